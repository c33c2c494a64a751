"""A receipt that was kept elsewhere shows what a forger changes, who makes all seals and sums anew."""

from dataclasses import replace

import pytest
from click.testing import CliRunner
from tests.ledger.helpers import reserve

from sordino.cli import main
from sordino.errors import InvalidInputError, LedgerCorruptError
from sordino.ledger import BudgetPolicy, Ledger
from sordino.ledger.account import Account
from sordino.ledger.ledger import chain_heads, replay, verify_records
from sordino.ledger.store import Dataset, Status


@pytest.fixture
def history(tmp_path):
    """A ledger with four reservations, and the receipt after the first three."""
    ledger = Ledger.open(tmp_path / "budget.db")
    ledger.create("survey: 1", BudgetPolicy(epsilon=9.0, delta=1e-4))
    for number in range(3):
        reserve(ledger, dataset_id="survey: 1", description=f"fit {number}").settle()
    (receipt,) = ledger.verify().receipts
    reserve(ledger, dataset_id="survey: 1", description="fit 3")
    return ledger, receipt


def forged(ledger, entries):
    """Return the records of a ledger in which everything but this history is made anew."""
    policy = ledger.policy("survey: 1")
    entries = [replace(entry, sequence=i) for i, entry in enumerate(entries, 1)]
    account = ledger.account("survey: 1")
    again = replay(Account(policy, account.filter), entries)
    return [(Dataset("survey: 1", again, "2026-01-01"), entries)]


def test_a_receipt_outlives_later_reservations_and_their_ends(history):
    ledger, receipt = history
    assert receipt.startswith("survey: 1:3:")
    assert ledger.verify(receipts=[receipt]).reservations == 4
    assert ledger.verify(receipts=ledger.verify().receipts).receipts[0].startswith("survey: 1:4:")


def test_only_what_was_pending_may_be_given_back_after_a_receipt(history):
    ledger, _ = history
    pending = reserve(ledger, dataset_id="survey: 1")
    (receipt,) = ledger.verify().receipts
    assert receipt.endswith(":4,5")  # the fourth is one that nobody ended
    pending.give_back()
    ledger.verify(receipts=[receipt])
    (later,) = ledger.verify().receipts
    assert later.endswith(":4")
    entries = ledger.history("survey: 1")
    spent = [*entries[:4], replace(entries[4], status=Status.SETTLED)]
    with pytest.raises(LedgerCorruptError, match="edited"):
        verify_records(forged(ledger, spent), [later])


FORGERIES = {
    "edit": lambda e: [e[0], replace(e[1], description="another"), *e[2:]],
    "deletion": lambda e: [e[0], *e[2:]],
    "reordering": lambda e: [e[1], e[0], *e[2:]],
    "truncation": lambda e: e[:2],
    "refund": lambda e: [e[0], replace(e[1], status=Status.RETURNED, reason="nothing was asked"), *e[2:]],
}


@pytest.mark.parametrize("kind", FORGERIES)
def test_a_forger_who_makes_all_sums_anew_is_found_by_a_receipt(history, kind):
    ledger, receipt = history
    records = forged(ledger, FORGERIES[kind](ledger.history("survey: 1")))
    assert verify_records(records).datasets == 1  # without a receipt nothing is wrong with it
    with pytest.raises(LedgerCorruptError, match="edited, deleted, moved or cut off"):
        verify_records(records, [receipt])


@pytest.mark.parametrize("wrong", ["", "garbage", "survey: 1", "survey: 1:3:", "other:3:ab", "survey: 1:0:"])
def test_a_text_that_is_no_receipt_is_refused_as_such(history, wrong, tmp_path):
    with pytest.raises(InvalidInputError, match="NAME:NUMBER:DIGEST"):
        history[0].verify(receipts=[wrong])
    told = CliRunner().invoke(main, ["ledger", "verify", str(tmp_path / "budget.db"), "--receipt", wrong])
    assert told.exit_code == 2
    assert "damaged" not in told.output


@pytest.mark.parametrize("wrong", ["other:3", "survey: 1:3", "survey: 1:0", "survey: 1:99"])
def test_a_receipt_that_the_ledger_lacks_may_be_of_another_one(history, wrong):
    with pytest.raises(LedgerCorruptError, match=r"of another ledger.*restore"):
        history[0].verify(receipts=[f"{wrong}:{'ab' * 32}"])


def test_each_head_depends_on_the_one_before(history):
    entries = history[0].history("survey: 1")
    heads = chain_heads(entries)
    assert len(set(heads)) == 4
    assert chain_heads(entries[:2]) == heads[:2]


def test_the_command_prints_and_checks_receipts(history, tmp_path):
    path = str(tmp_path / "budget.db")
    told = CliRunner().invoke(main, ["ledger", "verify", path, "--receipt", history[1]])
    assert told.exit_code == 0
    assert "receipt survey: 1:4:" in told.output
    assert CliRunner().invoke(main, ["ledger", "verify", path, "--receipt", "survey: 1:3:ff"]).exit_code != 0
