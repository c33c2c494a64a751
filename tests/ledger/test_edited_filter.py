"""A filter that its policy does not give, and another owner, are found wherever they are read."""

import json

import pytest

from sordino.errors import LedgerCorruptError
from sordino.kernel.events import Relation, gaussian_event
from sordino.ledger import BudgetPolicy, Ledger
from sordino.ledger.store import ENTRY_COLUMNS, seal

EDITED = {"orders": [1.0000001, "inf"], "shares": [0.9999999, 0], "spent_renyi": [0.0, 0.0]}


def test_a_database_with_another_filter_is_neither_sound_nor_booked_on(tmp_path):
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        ledger.create("survey", BudgetPolicy(1.0, 1e-6))
        with ledger._store.transaction(write=True) as store:
            changed = {c: json.dumps(v, separators=(",", ":")) for c, v in EDITED.items()}
            for column, text in changed.items():
                store.execute(f"UPDATE sordino_datasets SET {column} = ?", (text,))
            row = store.execute("SELECT * FROM sordino_datasets")[0]
            store.execute("UPDATE sordino_datasets SET seal = ?", (seal(row[:-1]),))
        for call in (ledger.verify, lambda: ledger.spent("survey"), lambda: _reserve(ledger)):
            with pytest.raises(LedgerCorruptError, match="filter"):
                call()


@pytest.mark.parametrize("column", ["owner", "description"])
def test_who_booked_is_under_the_seal_and_rows_of_before_are_read(tmp_path, column):
    """Whoever wrote another name into a reservation had a sound ledger, and a page "settled by curie"."""
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        ledger.create("survey", BudgetPolicy(1.0, 1e-6))
        event = gaussian_event(20.0, Relation.ADD_REMOVE)
        terms = {"relation": "add-remove", "unit": "record", "certificate": (0.25, 1e-6)}
        with ledger.reserve("survey", event, **terms):
            pass
        ledger.verify()
        with ledger._store.transaction(write=True) as store:
            (*values, owner, _) = store.execute(
                f"SELECT {ENTRY_COLUMNS}, owner, seal FROM sordino_reservations"
            )[0]
            store.execute("UPDATE sordino_reservations SET seal = ?", (seal(values),))  # as 0.1 wrote it
        assert [entry.status.value for entry in ledger.history("survey")] == ["settled"]
        with ledger._store.transaction(write=True) as store:
            store.execute("UPDATE sordino_reservations SET seal = ?", (seal([*values, owner]),))
        ledger.verify()
        with ledger._store.transaction(write=True) as store:
            store.execute(f"UPDATE sordino_reservations SET {column} = 'a|b|1|2|curie|0.2|c|d'")
        for call in (ledger.verify, lambda: ledger.history("survey")):
            with pytest.raises(LedgerCorruptError, match="does not match its seal"):
                call()


def _reserve(ledger):
    event = gaussian_event(2.0, Relation.ADD_REMOVE)
    return ledger.reserve("survey", event, relation="add-remove", unit="record", certificate=(44.0, 1e-6))
