"""One suite, two databases: a file, and a PostgreSQL cluster that lives as long as the tests."""

import itertools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sordino.ledger import BudgetPolicy, Ledger

_COUNTER = itertools.count()


def _as_somebody():
    """Return the prefix that leaves root, which PostgreSQL refuses, and the user's name."""
    if os.geteuid() != 0:
        return [], None
    for user in ("postgres", "nobody"):
        probe = ["runuser", "-u", user, "--", "true"]
        if shutil.which("runuser") and subprocess.run(probe, check=False).returncode == 0:
            return ["runuser", "-u", user, "--"], user
    pytest.skip("PostgreSQL does not run as root and there is no other user to run it")


def _binaries():
    found = shutil.which("initdb") or next(
        iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)), None
    )
    if found is None:
        pytest.skip("PostgreSQL's initdb and pg_ctl are not installed")
    return Path(found).resolve().parent


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """Start a PostgreSQL server on a socket of its own; return its folder."""
    pytest.importorskip("psycopg")
    binaries, (prefix, user) = _binaries(), _as_somebody()
    # A socket's path has about 100 characters at most; pytest's folders are longer.
    folder = Path("/tmp") / f"sordino-pg-{os.getpid()}"
    folder.mkdir()
    if user:
        shutil.chown(folder, user)

    def run(*command):
        subprocess.run([*prefix, *command], check=True, capture_output=True, cwd=folder)

    try:
        run(binaries / "initdb", "-D", folder / "data", "-U", "sordino", "-A", "trust", "-N")
        options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
        log = folder / "log"
        run(binaries / "pg_ctl", "-D", folder / "data", "-l", log, "-w", "-o", options, "start")
        yield folder
        run(binaries / "pg_ctl", "-D", folder / "data", "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(cluster):
    """Return the URL of an empty schema."""
    import psycopg

    schema = f"s{next(_COUNTER)}"
    base = f"postgresql:///postgres?host={cluster}&user=sordino"
    with psycopg.connect(base, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    return f"{base}&options=-csearch_path%3D{schema}"


@pytest.fixture
def sqlite_path(tmp_path):
    return str(tmp_path / "ledger.sqlite")


@pytest.fixture(params=["sqlite", "postgres"])
def address(request):
    """Return where a new ledger may be made, once per database."""
    name = {"sqlite": "sqlite_path", "postgres": "postgres_url"}[request.param]
    return request.getfixturevalue(name)


@pytest.fixture
def ledger(address):
    """Return a ledger with the data set "survey" and the budget (1, 1e-5)."""
    with Ledger.open(address, timeout=5) as opened:
        opened.create("survey", BudgetPolicy(epsilon=1.0, delta=1e-5))
        yield opened


@pytest.fixture
def unprivileged(tmp_path):
    """Give up root for a test, whose rights no file mode limits; the folder stays readable."""
    if os.geteuid() != 0:
        yield
        return
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
