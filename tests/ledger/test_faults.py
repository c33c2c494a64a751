"""Files and servers that are locked, damaged, read-only, newer or gone: typed errors, no harm."""

import os
import sqlite3
import sys
from pathlib import Path

import pytest
from tests.ledger.helpers import gaussian, reserve

from sordino.errors import (
    InvalidInputError,
    LedgerCorruptError,
    LedgerError,
    LedgerLockedError,
    LedgerReadOnlyError,
    LedgerVersionError,
    MissingExtraError,
    SordinoError,
)
from sordino.ledger import BudgetPolicy, Ledger


def make(path, reservations=0):
    with Ledger.open(path) as ledger:
        ledger.create("survey", BudgetPolicy(1.0, 1e-5))
        for _ in range(reservations):
            reserve(ledger, gaussian(1000.0)).settle()


def change(path, statement, *values):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement, values)
    connection.close()


def test_the_file_is_a_write_ahead_log_with_full_synchronisation(sqlite_path):
    with Ledger.open(sqlite_path) as ledger, ledger._store.transaction(write=False) as store:
        assert store.execute("PRAGMA journal_mode") == [("wal",)]
        assert store.execute("PRAGMA synchronous") == [(2,)]


def test_closing_the_last_handle_leaves_one_file(sqlite_path):
    make(sqlite_path, 2)
    assert [p.name for p in Path(sqlite_path).parent.iterdir()] == ["ledger.sqlite"]


def test_a_locked_file_is_a_typed_error_and_books_nothing(sqlite_path):
    make(sqlite_path)
    other = sqlite3.connect(sqlite_path, isolation_level=None)
    with Ledger.open(sqlite_path, timeout=0.05) as ledger:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerLockedError, match="try again"):
            reserve(ledger)
        assert ledger.history("survey") == []  # readers do not wait for writers
        other.execute("ROLLBACK")
        assert reserve(ledger).sequence == 1
    other.close()


def test_a_locked_row_of_a_server_is_a_typed_error(postgres_url):
    import psycopg

    with Ledger.open(postgres_url, timeout=0.05) as ledger:
        ledger.create("survey", BudgetPolicy(1.0, 1e-5))
        with psycopg.connect(postgres_url) as other:
            other.execute("SELECT * FROM sordino_datasets FOR UPDATE")
            with pytest.raises(LedgerLockedError, match="try again"):
                reserve(ledger)
        assert reserve(ledger).sequence == 1


@pytest.mark.parametrize(
    "content", [b"", b"not a database at all" * 100, b"SQLite format 3\0" + b"\x17" * 4096]
)
def test_a_file_that_is_no_ledger_is_refused_and_kept(sqlite_path, content):
    Path(sqlite_path).write_bytes(content)
    with pytest.raises(LedgerCorruptError):
        Ledger.open(sqlite_path)
    assert Path(sqlite_path).read_bytes() == content


def test_a_database_of_somebody_else_is_refused(sqlite_path):
    change(sqlite_path, "CREATE TABLE customers (name TEXT)")
    with pytest.raises(LedgerCorruptError):
        Ledger.open(sqlite_path)


@pytest.mark.parametrize("version", ["", "x", "0", "-1", "2.0"])
def test_a_version_that_is_no_version_is_damage(sqlite_path, version):
    make(sqlite_path)
    change(sqlite_path, "UPDATE sordino_meta SET value = ?", version)
    with pytest.raises(LedgerCorruptError, match="version"):
        Ledger.open(sqlite_path)


def test_a_newer_version_is_refused_untouched(sqlite_path):
    make(sqlite_path)
    change(sqlite_path, "UPDATE sordino_meta SET value = '3'")
    before = Path(sqlite_path).read_bytes()
    with pytest.raises(LedgerVersionError, match="Upgrade"):
        Ledger.open(sqlite_path)
    assert Path(sqlite_path).read_bytes() == before


def test_an_older_version_is_refused(sqlite_path):
    make(sqlite_path)
    change(sqlite_path, "UPDATE sordino_meta SET value = '1'")
    with pytest.raises(LedgerVersionError, match="no release"):
        Ledger.open(sqlite_path)


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")
def test_only_the_owner_may_read_a_ledger(sqlite_path):
    before = os.umask(0)
    try:
        with Ledger.open(sqlite_path) as ledger:
            ledger.create("survey", BudgetPolicy(1.0, 1e-5))
            files = sorted(Path(sqlite_path).parent.iterdir())
            assert [f.name for f in files] == ["ledger.sqlite", "ledger.sqlite-shm", "ledger.sqlite-wal"]
            assert [f.stat().st_mode & 0o777 for f in files] == [0o600] * 3
    finally:
        os.umask(before)


def test_a_role_with_a_schema_of_its_own_finds_the_one_ledger(postgres_url):
    import psycopg

    with Ledger.open(postgres_url) as ledger:
        ledger.create("survey", BudgetPolicy(1.0, 1e-5))
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("CREATE SCHEMA elsewhere")
    with Ledger.open(f"{postgres_url}&options=-csearch_path%3Delsewhere") as ledger:
        assert ledger.datasets() == ["survey"]
        assert reserve(ledger).sequence == 1
    with psycopg.connect(postgres_url, autocommit=True) as other:
        found = other.execute("SELECT count(*) FROM pg_class WHERE relname = 'sordino_meta'").fetchone()
    assert found == (1,)


def test_a_schema_of_any_name_holds_a_ledger(postgres_url):
    import psycopg

    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute('CREATE SCHEMA "odd "" %name"')
        other.execute(f"ALTER DATABASE {other.info.dbname} SET search_path = 'odd \" %name'")
    with Ledger.open(postgres_url) as ledger:
        ledger.create("survey", BudgetPolicy(1.0, 1e-5))
        assert reserve(ledger).sequence == 1
        assert ledger._store._schema == 'odd " %name'


def test_two_ledgers_in_one_database_are_refused(postgres_url):
    import psycopg

    Ledger.open(postgres_url).close()
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("CREATE SCHEMA second")
        other.execute("CREATE TABLE second.sordino_meta (name TEXT, value TEXT)")
    with pytest.raises(LedgerError, match="2 ledgers, in the schemas public, second"):
        Ledger.open(postgres_url)


def test_a_role_without_a_schema_is_told_so(postgres_url):
    with pytest.raises(LedgerError, match="no schema"):
        Ledger.open(f"{postgres_url}&options=-csearch_path%3Dnowhere")


def test_a_newer_server_is_refused(postgres_url):
    import psycopg

    Ledger.open(postgres_url).close()
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("UPDATE sordino_meta SET value = '3'")
    with pytest.raises(LedgerVersionError, match="Upgrade"):
        Ledger.open(postgres_url)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE sordino_datasets SET spent_renyi = '[0,0,0,0]'",
        "UPDATE sordino_datasets SET epsilon = 100.0",
        "UPDATE sordino_datasets SET mode = 'undecided', reservations = 0",
        "UPDATE sordino_datasets SET relation = 'swap'",
        "UPDATE sordino_datasets SET orders = 'nonsense'",
        "UPDATE sordino_datasets SET spent_epsilon = CAST(x'ff' AS TEXT)",
        "DROP TABLE sordino_reservations",
    ],
)
def test_a_damaged_account_is_found_before_anything_is_booked(sqlite_path, statement):
    make(sqlite_path, 2)
    change(sqlite_path, statement)
    with Ledger.open(sqlite_path) as ledger:
        with pytest.raises(LedgerCorruptError):
            reserve(ledger)
        with pytest.raises(LedgerCorruptError):
            ledger.verify()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE sordino_reservations SET event = '{}' WHERE sequence = 1",
        "UPDATE sordino_reservations SET status = 'free' WHERE sequence = 1",
        "UPDATE sordino_reservations SET charges = '[0]' WHERE sequence = 1",
        "DELETE FROM sordino_reservations WHERE sequence = 1",
    ],
)
def test_a_damaged_history_is_found_by_verify(sqlite_path, statement):
    make(sqlite_path, 2)
    change(sqlite_path, statement)
    with Ledger.open(sqlite_path) as ledger, pytest.raises(LedgerCorruptError):
        ledger.verify()


def test_no_flipped_byte_ever_gives_budget_back(sqlite_path, tmp_path):
    """A byte changed anywhere gives a typed error or the same numbers, never others."""
    make(sqlite_path, 20)
    with Ledger.open(sqlite_path) as ledger:
        expected = ledger.account("survey")
    content, twin, found = Path(sqlite_path).read_bytes(), tmp_path / "twin.sqlite", 0
    for place in range(0, len(content), 97):
        damaged = bytearray(content)
        damaged[place] ^= 0x11
        twin.write_bytes(damaged)
        try:
            with Ledger.open(twin, timeout=0.1) as ledger:
                assert ledger.account("survey") == expected
        except SordinoError:
            found += 1
        for leftover in tmp_path.glob("twin.sqlite-*"):
            leftover.unlink()
    assert found > 0


def test_a_read_only_folder_can_be_neither_made_nor_written(tmp_path, unprivileged):
    with pytest.raises(LedgerReadOnlyError):
        Ledger.open(tmp_path / "ledger.sqlite")


def test_a_read_only_file_is_a_typed_error(tmp_path, request):
    path = tmp_path / "folder" / "ledger.sqlite"
    path.parent.mkdir()
    make(path, 1)
    path.chmod(0o444)
    path.parent.chmod(0o777)
    request.getfixturevalue("unprivileged")
    with Ledger.open(path) as ledger:
        assert len(ledger.history("survey")) == 1
        with pytest.raises(LedgerReadOnlyError, match="write"):
            reserve(ledger)
        assert len(ledger.history("survey")) == 1


def test_a_file_in_a_read_only_folder_is_a_typed_error(tmp_path, request):
    path = tmp_path / "folder" / "ledger.sqlite"
    path.parent.mkdir()
    make(path, 1)
    path.chmod(0o444)
    path.parent.chmod(0o555)
    request.getfixturevalue("unprivileged")
    with pytest.raises(LedgerReadOnlyError):
        reserve(Ledger.open(path))


def test_a_read_only_role_may_look_but_not_book(postgres_url):
    with Ledger.open(postgres_url) as ledger:
        ledger.create("survey", BudgetPolicy(1.0, 1e-5))
    role = postgres_url.replace("user=sordino", "user=visitor")
    import psycopg

    schema = "public"
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("DO $$ BEGIN CREATE ROLE visitor LOGIN; EXCEPTION WHEN OTHERS THEN END $$")
        other.execute(f"GRANT USAGE ON SCHEMA {schema} TO visitor")
        other.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO visitor")
    with Ledger.open(role) as ledger:
        assert ledger.datasets() == ["survey"]
        with pytest.raises(LedgerReadOnlyError, match="Grant"):
            reserve(ledger)


def test_a_table_that_is_gone_from_a_server_is_a_typed_error(postgres_url):
    import psycopg

    with Ledger.open(postgres_url) as ledger:
        ledger.create("survey", BudgetPolicy(1.0, 1e-5))
        with psycopg.connect(postgres_url, autocommit=True) as other:
            other.execute("ALTER TABLE sordino_reservations RENAME TO away")
        with pytest.raises(LedgerCorruptError, match="missing"):
            reserve(ledger)


def test_a_file_that_was_removed_while_open_is_not_written(sqlite_path, tmp_path):
    make(sqlite_path)
    with Ledger.open(sqlite_path) as ledger:
        reserve(ledger)
        os.rename(sqlite_path, tmp_path / "moved.sqlite")
        for _ in range(2):
            with pytest.raises(LedgerError, match=r"removed or replaced|no ledger"):
                reserve(ledger)
        os.rename(tmp_path / "moved.sqlite", sqlite_path)
        assert reserve(ledger).sequence == 2


def test_a_file_that_was_replaced_while_open_is_not_written(sqlite_path, tmp_path):
    make(sqlite_path)
    make(tmp_path / "other.sqlite")
    with Ledger.open(sqlite_path) as ledger:
        os.replace(tmp_path / "other.sqlite", sqlite_path)
        with pytest.raises(LedgerError, match="removed or replaced"):
            reserve(ledger)
        assert reserve(ledger).sequence == 1
    with Ledger.open(sqlite_path) as ledger:
        assert len(ledger.history("survey")) == 1


def test_a_ledger_that_is_not_there_is_not_made_when_one_only_looks(tmp_path, postgres_url):
    for address in (tmp_path / "none.sqlite", postgres_url):
        with pytest.raises(LedgerError, match="no ledger"):
            Ledger.open(address, create=False)
    assert not (tmp_path / "none.sqlite").exists()


@pytest.mark.parametrize("address", ["", ":memory:", "mysql://host/db", "a\0b", 3, None, b"ledger.sqlite"])
def test_a_bad_address_is_a_typed_error(address):
    with pytest.raises(InvalidInputError):
        Ledger.open(address)


def test_a_folder_is_no_ledger(tmp_path):
    with pytest.raises(InvalidInputError, match="folder"):
        Ledger.open(tmp_path)
    with pytest.raises(LedgerError, match="does not exist"):
        Ledger.open(tmp_path / "no" / "ledger.sqlite")


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), "1"])
def test_a_bad_timeout_is_a_typed_error(sqlite_path, timeout):
    with pytest.raises(InvalidInputError):
        Ledger.open(sqlite_path, timeout=timeout)


def test_a_server_that_cannot_be_reached_is_named_without_the_password():
    pytest.importorskip("psycopg")
    url = "postgresql://ann:hunter2@127.0.0.1:1/budget"
    with pytest.raises(LedgerError, match=r"127\.0\.0\.1:1/budget") as caught:
        Ledger.open(url)
    assert "hunter2" not in str(caught.value)


def test_a_lost_connection_is_opened_again(postgres_url):
    import psycopg

    with Ledger.open(postgres_url) as ledger:
        ledger.create("survey", BudgetPolicy(1.0, 1e-5))
        with psycopg.connect(postgres_url, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
        with pytest.raises(LedgerError):
            reserve(ledger)
        assert reserve(ledger).sequence == 1


def test_without_psycopg_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"sordino\[postgres\]"):
        Ledger.open("postgresql://host/db")


def test_a_commit_that_fails_books_nothing(sqlite_path, monkeypatch):
    make(sqlite_path)
    with Ledger.open(sqlite_path) as ledger:
        execute = type(ledger._store).execute

        def full(store, statement, values=()):
            if statement == "COMMIT":
                error = sqlite3.OperationalError("database or disk is full")
                error.sqlite_errorcode, error.sqlite_errorname = 13, "SQLITE_FULL"
                raise error
            return execute(store, statement, values)

        with monkeypatch.context() as patch:
            patch.setattr(type(ledger._store), "execute", full)
            with pytest.raises(LedgerError, match="SQLITE_FULL"):
                reserve(ledger)
        assert ledger.history("survey") == []
        assert reserve(ledger).sequence == 1
