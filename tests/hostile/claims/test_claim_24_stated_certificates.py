"""Claim 24, the ledger's part: a stated certificate of (1e-9, 1e-30) is stored and shown as certified."""

import json

import pytest

from sordino.errors import InvalidInputError, LedgerCorruptError
from sordino.kernel.events import gaussian_event
from sordino.kernel.relation import Relation
from sordino.ledger import BudgetPolicy, Ledger

GAUSSIAN = gaussian_event(20.0, Relation.ADD_REMOVE)


def reserve(ledger, certificate):
    return ledger.reserve("survey", GAUSSIAN, relation="add-remove", unit="record", certificate=certificate)


def test_a_certificate_that_nobody_proves_is_not_booked(tmp_path):
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        ledger.create("survey", BudgetPolicy(1.0, 1e-6))
        with pytest.raises(InvalidInputError, match="accountant certifies"):
            reserve(ledger, (1e-9, 1e-30))
        assert ledger.history("survey") == []


def test_a_certificate_that_was_made_smaller_in_an_export_is_found(tmp_path):
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        ledger.create("survey", BudgetPolicy(1.0, 1e-6))
        reserve(ledger, (0.5, 1e-6))
        document = json.loads(ledger.to_json())
    document["datasets"][0].update(spent_epsilon="1E-9", spent_delta="1E-30")
    document["datasets"][0]["history"][0].update(epsilon=1e-9, delta=1e-30)
    with Ledger.open(tmp_path / "other.sqlite") as other, pytest.raises(LedgerCorruptError):
        other.import_json(json.dumps(document))
