"""A filter that its policy does not give is found wherever it is read."""

import json

import pytest

from sordino.errors import LedgerCorruptError
from sordino.kernel.events import Relation, gaussian_event
from sordino.ledger import BudgetPolicy, Ledger
from sordino.ledger.store import seal

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


def _reserve(ledger):
    event = gaussian_event(2.0, Relation.ADD_REMOVE)
    return ledger.reserve("survey", event, relation="add-remove", unit="record", certificate=(44.0, 1e-6))
