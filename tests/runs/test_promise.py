"""A promise is certified when it is made, never exceeds the ask, and pays for one run in one process."""

import linecache
import os
from dataclasses import replace

import numpy as np
import pytest
from tests.runs.helpers import ADD, ask_of, batches, memory, plan_of

import sordino
from sordino.accounting import certify, gaussian_multiplier
from sordino.errors import (
    BudgetExceededError,
    CalibrationError,
    NotPrivateWarning,
    PlanError,
    PlanSpentError,
    UnsupportedError,
)
from sordino.kernel import PaperNoise, Plan, Poisson
from sordino.kernel.plan import Offer
from sordino.runs import Promise
from sordino.runs import promise as module
from sordino.runs.promise import at_multipliers


@pytest.fixture
def ledger(tmp_path):
    book = sordino.Ledger.open(tmp_path / "budget.db")
    book.create("ward", sordino.BudgetPolicy(epsilon=3.0, delta=1e-3))
    return book


def statuses(ledger):
    return [entry.status.value for entry in ledger.history("ward")]


@pytest.mark.parametrize("plan", [plan_of(), batches(), plan_of(relation="replace-one")])
def test_what_is_made_is_certified_just_below_the_ask(plan):
    promise = Promise.made(ask_of(), plan)
    assert 0.99 * 1.5 < promise.certificate.epsilon <= 1.5
    assert promise.certificate == certify(promise.plan.event(), 1e-4, plan.relation)


def test_noise_that_does_not_reach_the_ask_is_refused():
    enough = 2.0 * gaussian_multiplier(1.5, 1e-4)  # four Gaussians compose to twice the distance
    assert Promise.given(ask_of(), plan_of().at(enough * 1.001)).certificate.epsilon < 1.5
    with pytest.raises(CalibrationError, match="more than"):
        Promise.given(ask_of(), plan_of().at(enough * 0.999))


def test_a_calibration_that_is_wrong_is_not_believed(monkeypatch):
    monkeypatch.setattr(module, "calibrate", lambda plan, epsilon, delta: plan.at(1e-3))
    with pytest.raises(CalibrationError, match="more than"):
        Promise.made(ask_of(), plan_of())


def test_slack_is_taken_from_delta_and_the_whole_delta_is_reported():
    promise = Promise.made(ask_of(), plan_of(), slack=0.5e-4)
    assert promise.certificate.delta == 1e-4
    assert certify(promise.plan.event(), 0.5e-4, ADD).epsilon <= 1.5
    assert promise.multipliers["total"] > Promise.made(ask_of(), plan_of()).multipliers["total"]
    with pytest.raises(CalibrationError, match="more than"):  # noise for the whole delta is not enough
        Promise.given(ask_of(), Promise.made(ask_of(), plan_of()).plan, slack=0.5e-4)


def test_published_noise_may_exceed_the_claim_and_says_so():
    with pytest.warns(NotPrivateWarning, match="claims epsilon = 1.5"):
        promise = Promise.made(ask_of(), plan_of(), PaperNoise({"total": 0.5}, "Theorem 9"))
    report = promise.report()
    assert report.epsilon == promise.certificate.epsilon > 10
    assert report.paper_claim.epsilon == 1.5


def test_a_run_is_reserved_before_its_first_answer_and_settled_after_its_last(ledger):
    promise = Promise.made(ask_of(ledger=ledger, dataset_id="ward"), plan_of())
    with promise.run(memory(), "test") as curator:
        assert statuses(ledger) == ["reserved"]
        curator.release("total")
    assert statuses(ledger) == ["settled"]
    assert ledger.history("ward")[0].plan_digest == promise.digest
    with pytest.raises(PlanSpentError, match="ended"):
        curator.release("total")


def test_an_error_fails_the_run_and_closes_its_curator(ledger):
    promise = Promise.made(ask_of(ledger=ledger, dataset_id="ward"), plan_of())
    with pytest.raises(KeyboardInterrupt), promise.run(memory(), "test") as curator:
        raise KeyboardInterrupt
    assert statuses(ledger) == ["failed"]
    with pytest.raises(PlanSpentError):
        curator.release("total")


def test_a_refused_budget_opens_no_curator(ledger):
    executor = memory()
    promise = Promise.made(ask_of(5.0, ledger=ledger, dataset_id="ward"), plan_of())
    with pytest.raises(BudgetExceededError), promise.run(executor, "test"):
        pass
    assert executor.log == []
    assert statuses(ledger) == []


def test_a_run_is_opened_once_and_not_after_its_end():
    run = Promise.made(ask_of(), plan_of()).reserved("test")
    with run:
        run.curate(memory())
        with pytest.raises(PlanSpentError, match="before"):
            run.curate(memory())
    with pytest.raises(PlanSpentError, match="ended"), run:
        pass
    promise = run.promise
    with pytest.raises(PlanSpentError, match="opened once"):
        promise.reserved("again").curate(memory())


def test_a_paused_run_keeps_its_booking_and_answers_no_more(ledger):
    run = Promise.made(ask_of(ledger=ledger, dataset_id="ward"), plan_of()).reserved("test")
    with run:
        curator = run.curate(memory())
        run.pause()
    assert statuses(ledger) == ["reserved"]
    with pytest.raises(PlanSpentError):
        curator.release("total")


def test_a_resumable_run_stays_reserved_on_an_error(ledger):
    run = Promise.made(ask_of(ledger=ledger, dataset_id="ward"), plan_of()).reserved("test")
    run.resumable = True
    with pytest.raises(ValueError), run:
        raise ValueError
    assert statuses(ledger) == ["reserved"]


def test_a_promise_of_another_process_is_not_run():
    promise = Promise.made(ask_of(), plan_of())
    with pytest.raises(PlanSpentError, match="another process"):
        replace(promise, process=promise.process + 1).reserved("test")
    assert os.getpid() == promise.process


def test_a_run_that_was_booked_before_a_fork_is_not_opened_in_the_child():
    run = Promise.made(ask_of(), plan_of()).reserved("test")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            run.curate(memory())
            os.write(write, b"opened")
        except PlanSpentError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as answer:
        assert "another process" in answer.read()
    run.curate(memory()).release("total")


@pytest.mark.parametrize(
    "numbers", [{}, {"other": 1.0}, {"total": 1.0, "other": 1.0}, {"total": -1.0}, {"total": float("nan")}]
)
def test_multipliers_from_elsewhere_have_to_fit_the_plan(numbers):
    with pytest.raises(PlanError, match="noise multiplier"):
        at_multipliers(plan_of(), numbers)


def test_the_report_names_its_noise_and_its_plan():
    promise = Promise.made(ask_of(), plan_of(unit="patient"))
    report = promise.report(["n"], ["a note"])
    assert (report.unit, report.public, report.notes) == ("patient", ("n",), ("a note",))
    assert report.is_private
    assert report.releases[0].noise_multiplier == promise.multipliers["total"]


def test_a_promise_put_together_by_hand_is_certified_too():
    promise = Promise.made(ask_of(), plan_of())
    weak = plan_of().at(0.1)
    with pytest.raises(CalibrationError, match="more than"):
        replace(promise, plan=weak)
    with pytest.raises(CalibrationError, match="more than"):
        replace(promise, ask=ask_of(0.1))
    with pytest.raises(CalibrationError, match="more than"):
        replace(promise, certificate=replace(promise.certificate, epsilon=0.01))
    with pytest.warns(NotPrivateWarning):
        printed = Promise.made(ask_of(), plan_of(), PaperNoise({"total": 0.5}, "Theorem 9"))
    with pytest.raises(CalibrationError, match="more than"):
        replace(printed, plan=weak)


def test_a_promise_without_a_data_set_is_booked_nowhere(ledger):
    for ask in (ask_of(ledger=ledger), ask_of(dataset_id="ward")):
        assert Promise.made(ask, plan_of()).reserved("test").place is None
    assert statuses(ledger) == []


def test_an_executor_that_does_not_offer_what_the_plan_needs_is_refused_before_booking(ledger):
    class Empty:
        population = 60
        offer = Offer("nothing", (), samplings=(Poisson,))

        def total(self, *arguments):
            raise AssertionError("asked")

    promise = Promise.made(ask_of(ledger=ledger, dataset_id="ward"), plan_of())
    with pytest.raises(UnsupportedError, match="cannot be run"), promise.run(Empty(), "test"):
        pass
    assert statuses(ledger) == []


def test_multipliers_from_elsewhere_are_numbers_that_add_noise_or_none():
    plan = Plan({name: plan_of().releases["total"] for name in ("a", "b")}, ADD, 60)
    assert at_multipliers(plan, {"a": 0.0, "b": 2.0}).releases["a"].mechanism.multiplier == 0.0
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(PlanError, match="finite"):
            at_multipliers(plan, {"a": wrong, "b": 2.0})


def test_the_warning_on_published_noise_points_to_the_caller_of_the_fit():
    X, y = np.eye(40)[:, :5], np.arange(40) % 2
    model = sordino.SparseLogisticRegression(10.0, 0.01, solver="ight", noise="paper", data_norm=1.0)
    with pytest.warns(NotPrivateWarning) as said:
        model.fit(X, y)
    line = next(w for w in said if w.category is NotPrivateWarning)
    assert (line.filename, "model.fit(X, y)" in linecache.getline(__file__, line.lineno)) == (__file__, True)
