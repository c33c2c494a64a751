"""One suite, two databases: a file, and a PostgreSQL cluster that lives as long as the tests."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from sordino.ledger import BudgetPolicy, Ledger


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
    folder = Path(tempfile.mkdtemp(prefix="sordino-pg-", dir="/tmp"))
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
    """Return the URL of the database, emptied: it holds one ledger."""
    import psycopg

    url = f"postgresql:///postgres?host={cluster}&user=sordino"
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT quote_ident(nspname) FROM pg_namespace"
            " WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema'"
        )
        for (schema,) in rows.fetchall():
            connection.execute(f"DROP SCHEMA {schema} CASCADE")
        connection.execute("CREATE SCHEMA public")
        connection.execute("GRANT USAGE ON SCHEMA public TO public")
        connection.execute("ALTER DATABASE postgres RESET ALL")
    return url


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
        if folder.stat().st_uid == 0 and "pytest-of-" in str(folder):
            folder.chmod(0o755)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
