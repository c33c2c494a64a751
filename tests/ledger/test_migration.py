"""Tables of an older version change in place: all or nothing, with a copy, by a command."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from sordino.cli import main
from sordino.errors import LedgerVersionError
from sordino.ledger import Ledger, store

KEPT = Path(__file__).parents[1] / "fixtures" / "0.1.0" / "ledger.db"


@pytest.fixture
def book(tmp_path):
    return Path(shutil.copy(KEPT, tmp_path / "budget.db"))


@pytest.fixture
def next_version(monkeypatch):
    """Make the present version an old one: the next adds a column."""
    now = store.VERSION
    monkeypatch.setattr(store, "VERSION", now + 1)
    added = "ALTER TABLE sordino_reservations ADD COLUMN chain TEXT NOT NULL DEFAULT ''"
    monkeypatch.setitem(store.STEPS, now, lambda tables: tables.execute(added))
    return now


def version(path):
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT value FROM sordino_meta WHERE name = 'schema'").fetchone()[0]
        return int(found), [row[1] for row in connection.execute("PRAGMA table_info(sordino_reservations)")]


def test_every_older_version_that_a_release_wrote_has_a_step():
    written = {version(path)[0] for path in KEPT.parents[1].glob("*/ledger.db")}
    assert all(number in store.STEPS for old in written for number in range(old, store.VERSION))


def test_an_old_ledger_is_refused_with_the_command_that_converts_it(book, next_version):
    with pytest.raises(LedgerVersionError, match=rf"sordino migrate {book}"):
        Ledger.open(book)
    assert version(book)[0] == next_version


def test_the_command_converts_keeps_a_copy_and_the_history(book, next_version):
    result = CliRunner().invoke(main, ["migrate", str(book)])
    assert result.exit_code == 0, result.output
    copy = book.with_name(f"budget.db.v{next_version}.bak")
    assert str(copy) in result.output
    assert version(book)[0] == next_version + 1
    assert "chain" in version(book)[1]
    assert version(copy)[0] == next_version
    assert copy.stat().st_mode & 0o777 == 0o600
    with Ledger.open(book) as ledger:
        assert len(ledger.history("people")) == 2
        ledger.verify()


def test_a_step_that_fails_leaves_the_ledger_as_it_was(book, next_version, monkeypatch):
    def torn(tables):
        tables.execute("ALTER TABLE sordino_reservations ADD COLUMN chain TEXT")
        raise KeyboardInterrupt

    monkeypatch.setitem(store.STEPS, next_version, torn)
    before = version(book)
    with pytest.raises(KeyboardInterrupt):
        Ledger.open(book, migrate=True)
    assert version(book) == before


def test_a_copy_is_never_replaced(book, next_version):
    book.with_name(f"budget.db.v{next_version}.bak").write_text("precious")
    result = CliRunner().invoke(main, ["migrate", str(book)])
    assert result.exit_code == 5
    assert "Move it away" in result.output
    assert version(book)[0] == next_version
