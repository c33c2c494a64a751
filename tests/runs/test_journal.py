"""A saved run is certified again, on the same ledger and data set, or refused."""

from dataclasses import replace

import pytest
from tests.runs.helpers import ask_of, memory, plan_of

import sordino
from sordino.errors import CalibrationError, LedgerError, PlanError
from sordino.ledger import Status
from sordino.runs import Journal, Promise, SavedRun, resumed
from sordino.runs import journal as module
from sordino.testing import seeded_noise_not_private


@pytest.fixture
def ledger(tmp_path):
    book = sordino.Ledger.open(tmp_path / "budget.db")
    for name in ("A", "B"):
        book.create(name, sordino.BudgetPolicy(epsilon=3.0, delta=1e-3))
    return book


def saved_on(ledger=None, dataset_id=None):
    run = Promise.made(ask_of(ledger=ledger, dataset_id=dataset_id), plan_of()).reserved("test")
    run.pause()
    return SavedRun.of(run, "recipe")


def test_a_saved_run_goes_on_where_it_stopped(ledger):
    saved = saved_on(ledger, "A")
    run = resumed(ask_of(ledger=ledger, dataset_id="A"), plan_of(), saved, "recipe")
    with run:
        curator = run.curate(memory(), used={"total": 3})
        curator.release("total")
        with pytest.raises(PlanError, match="all are spent"):
            curator.release("total")
    assert [e.status.value for e in ledger.history("A")] == ["settled"]
    with pytest.raises(PlanError, match="settled"):
        resumed(ask_of(ledger=ledger, dataset_id="A"), plan_of(), saved, "recipe")


def test_less_noise_than_was_paid_for_is_refused():
    saved = saved_on()
    edited = replace(saved, multipliers={"total": saved.multipliers["total"] / 8})
    with pytest.raises(PlanError, match="another plan"):
        resumed(ask_of(), plan_of(), edited, "recipe")
    run = Promise.given(ask_of(50.0), plan_of().at(saved.multipliers["total"] / 8)).reserved("test")
    forged = SavedRun.of(run, "recipe")  # consistent in itself, and far above what is asked for now
    with pytest.raises(CalibrationError, match="more than"):
        resumed(ask_of(), plan_of(), forged, "recipe")


def test_more_noise_than_was_asked_for_is_not_what_was_released():
    run = Promise.given(ask_of(), plan_of().at(50.0)).reserved("test")
    with pytest.raises(PlanError, match="it was started with"):
        resumed(ask_of(), plan_of(), SavedRun.of(run, "recipe"), "recipe")


def test_another_recipe_or_plan_is_refused():
    saved = saved_on()
    with pytest.raises(PlanError, match="another recipe"):
        resumed(ask_of(), plan_of(), saved, "other")
    with pytest.raises(PlanError, match="another plan"):
        resumed(ask_of(), plan_of(times=5), saved, "recipe")


@pytest.mark.parametrize("dataset_id", ["B", None])
def test_a_run_stays_on_its_data_set(ledger, dataset_id):
    saved = saved_on(ledger, "A")
    ask = ask_of(ledger=None if dataset_id is None else ledger, dataset_id=dataset_id)
    with pytest.raises(PlanError, match="booked on"):
        resumed(ask, plan_of(), saved, "recipe")
    assert ledger.history("B") == []


def test_a_run_that_was_booked_nowhere_cannot_move_onto_a_ledger(ledger):
    with pytest.raises(PlanError, match="no ledger"):
        resumed(ask_of(ledger=ledger, dataset_id="A"), plan_of(), saved_on(), "recipe")


def test_a_ledger_without_the_reservation_is_refused(ledger, tmp_path):
    saved = saved_on(ledger, "A")
    other = sordino.Ledger.open(tmp_path / "other.db")
    other.create("A", sordino.BudgetPolicy(epsilon=3.0, delta=1e-3))
    with pytest.raises(PlanError, match="no reservation"):
        resumed(ask_of(ledger=other, dataset_id="A"), plan_of(), saved, "recipe")
    with ledger.reserve(
        "A", plan_of().at(9.0).event(), relation="add-remove", unit="record", certificate=(1.0, 1e-4)
    ):
        pass
    with pytest.raises(PlanError, match="no reservation"):
        resumed(ask_of(ledger=ledger, dataset_id="A"), plan_of(), replace(saved, place=("A", 2)), "recipe")


def test_a_seeded_run_is_not_continued_with_private_noise():
    with seeded_noise_not_private(3):
        saved = saved_on()
    with pytest.raises(PlanError, match="kind of noise"):
        resumed(ask_of(), plan_of(), saved, "recipe")


def test_a_journal_knows_its_plan_and_its_owner_alone_may_read_it(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.begin("abc")
    journal.note("the sum", 4)
    journal.require("abc")
    assert journal.counts() == {"the sum": 4}
    with pytest.raises(PlanError, match="another plan"):
        journal.require("abd")
    with pytest.raises(PlanError, match="Another process"):
        Journal(tmp_path / "j")
    assert (tmp_path / "j").stat().st_mode & 0o777 == 0o600
    journal.close()


def test_of_two_copies_of_a_saved_run_one_goes_on(ledger):
    """Both would release the rest of the plan, and the ledger has it once."""
    saved, ask = saved_on(ledger, "A"), ask_of(ledger=ledger, dataset_id="A")
    first = resumed(ask, plan_of(), saved, "recipe")
    again = SavedRun.of(first, "recipe")
    first.pause()
    with pytest.raises(LedgerError, match="went on 1 times, this copy of the run knows 0"):
        resumed(ask, plan_of(), saved, "recipe")
    second = resumed(ask, plan_of(), again, "recipe")
    assert (again.turn, second.turn) == (1, 2)
    second.settle()
    with pytest.raises(LedgerError, match="settled"):
        ledger.take_turn("A", 1, 2)


def test_a_run_whose_process_died_keeps_its_turn(ledger):
    saved, ask = saved_on(ledger, "A"), ask_of(ledger=ledger, dataset_id="A")
    run = resumed(ask, plan_of(), saved, "recipe")
    ledger.finish("A", 1, Status.CRASHED, "the process ended")
    assert ledger.history("A")[0].reason == "turn 1; the process ended"
    with pytest.raises(LedgerError, match="knows 0"):
        resumed(ask, plan_of(), saved, "recipe")
    resumed(ask, plan_of(), SavedRun.of(run, "recipe"), "recipe").settle()
    assert ledger.history("A")[0].status is Status.SETTLED


def test_a_line_that_was_cut_off_does_not_count_and_does_not_spoil_the_next(tmp_path):
    (tmp_path / "j").write_bytes(b"# abc\ntotal 1\ntotal 2")
    journal = Journal(tmp_path / "j")
    assert journal.counts() == {"total": 1}
    journal.note("total", 3)
    assert journal.counts() == {"total": 3}
    journal.close()
    assert (tmp_path / "j").read_text() == "# abc\ntotal 1\ntotal 3\n"


def test_a_whole_journal_is_read_without_a_change(tmp_path):
    journal = Journal(tmp_path / "j")
    assert journal.counts() == {}
    journal.begin("abc")
    journal.note("never asked", 0)
    assert journal.counts() == {"never asked": 0}
    journal.close()
    assert (tmp_path / "j").read_text() == "# abc\nnever asked 0\n"


def test_a_line_is_on_disk_before_its_release(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(module.os, "fsync", lambda handle: seen.append((tmp_path / "j").read_text()))
    journal = Journal(tmp_path / "j")
    journal.note("total", 1)
    journal.close()
    assert seen == ["total 1\n"]


def test_a_run_without_privacy_goes_on_as_well():
    run = Promise.given(ask_of(float("inf")), plan_of().at(0.0)).reserved("test")
    saved = SavedRun.of(run, "recipe")
    assert saved.turn == 0
    assert SavedRun("r", {}, "d", None, False).turn == 0
    assert resumed(ask_of(float("inf")), plan_of(), saved, "recipe").turn == 1


def test_a_small_epsilon_is_not_taken_for_a_large_one():
    """The noise must be that of what is asked now, up to a hundredth, whatever the size of epsilon."""
    run = Promise.given(ask_of(20.0), plan_of().at(3.0)).reserved("test")
    with pytest.raises(PlanError, match="it was started with"):
        resumed(ask_of(20.0), plan_of(), SavedRun.of(run, "recipe"), "recipe")


def test_an_error_leaves_a_resumed_run_reserved(ledger):
    saved = saved_on(ledger, "A")
    run = resumed(ask_of(ledger=ledger, dataset_id="A"), plan_of(), saved, "recipe")
    with pytest.raises(KeyboardInterrupt), run:
        raise KeyboardInterrupt
    assert [e.status.value for e in ledger.history("A")] == ["reserved"]
