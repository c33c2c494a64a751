"""The only door: each planned release as often as planned, counted before it is asked."""

import copy
import gc
import os
import threading
import weakref
from dataclasses import dataclass

import numpy as np
import pytest
from tests.kernel.toys import Memory, Total, source

from sordino.errors import PlanError, PlanSpentError
from sordino.kernel import Curator, Full, Gaussian, Plan, Poisson, Release

RECORDS = np.array([[3.0, 0.0], [0.0, -9.0], [1.0, 1.0], [np.nan, 2.0]])


def plan_of(sampling=None, times=3, mean=True, relation="add-remove", scale=1.3, population=4):
    release = Release(Total(), Gaussian(), sampling or Full(), times, mean=mean)
    return Plan({"total": release, "again": release}, relation, population).at(scale)


def curator_of(plan=None, executor=None, seed=61, **more):
    return Curator(executor or Memory(RECORDS), plan or plan_of(), source(seed), **more)


def test_an_answer_is_the_mean_over_the_public_number_plus_noise_of_the_declared_scale():
    answer = curator_of().release("total")
    exact = np.array([2.7 + 1.0, -2.7 + 1.0])
    np.testing.assert_allclose(answer, (exact + 1.3 * 2.7 * source(61).normal(2)) / 4)


def test_a_sum_is_not_divided():
    answer = curator_of(plan_of(mean=False, scale=0.0)).release("total")
    np.testing.assert_allclose(answer, [3.7, -1.7])


@pytest.mark.parametrize(("relation", "wanted"), [("add-remove", 2.7), ("replace-one", 5.4)])
def test_the_executor_is_told_the_sensitivity_of_the_relation_and_the_parameters(relation, wanted):
    executor = Memory(RECORDS)
    curator = curator_of(plan_of(relation=relation), executor)
    curator.release("total")
    curator.release("total", 0.5)
    assert [log[2] for log in executor.log] == [pytest.approx(wanted), pytest.approx(wanted / 2)]
    assert [log[1] for log in executor.log] == [None, 0.5]
    assert [log[3] for log in executor.log] == [0, 1]


def test_a_release_is_answered_as_often_as_planned_and_no_more():
    curator = curator_of()
    for _ in range(3):
        curator.release("total")
    with pytest.raises(PlanSpentError, match="'total' was planned 3 times"):
        curator.release("total")
    assert curator.used == {"total": 3}
    curator.release("again")
    assert curator.used == {"total": 3, "again": 1}


def test_a_name_outside_the_plan_is_refused_and_not_counted():
    curator = curator_of()
    with pytest.raises(PlanError, match="No release 'secret' in the plan; planned are: total, again"):
        curator.release("secret")
    assert curator.used == {}


def test_a_plan_is_opened_once():
    plan = plan_of()
    curator_of(plan)
    with pytest.raises(PlanSpentError, match="already opened"):
        curator_of(plan)
    curator_of(plan.at(1.3))


def test_two_threads_cannot_open_one_plan():
    plan, opened = plan_of(), []

    def attempt():
        try:
            opened.append(curator_of(plan))
        except PlanSpentError:
            opened.append(None)

    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(c is not None for c in opened) == 1


def test_opened_plans_are_not_kept_alive():
    plan = plan_of()
    curator_of(plan)
    seen = weakref.ref(plan)
    del plan
    gc.collect()
    assert seen() is None


def test_a_plan_without_multipliers_is_not_opened():
    plan = Plan({"total": Release(Total(), Gaussian())}, "add-remove", 4)
    with pytest.raises(PlanError, match="no noise multipliers"):
        curator_of(plan)


@pytest.mark.parametrize("population", [3, 5])
def test_a_plan_for_another_population_is_not_opened(population):
    plan = plan_of(population=population)
    with pytest.raises(PlanError, match=f"population of {population}, the executor declares 4"):
        curator_of(plan)
    Curator(Memory(np.zeros((population, 2))), plan, source())


def test_a_crash_counts_as_spent():
    class Broken(Memory):
        def total(self, *arguments):
            raise OSError

    curator = curator_of(executor=Broken(RECORDS))
    for _ in range(3):
        with pytest.raises(OSError):
            curator.release("total")
    with pytest.raises(PlanSpentError):
        curator.release("total")


def test_threads_do_not_get_more_answers_than_planned():
    curator, answers, refused = curator_of(plan_of(times=40)), [], []

    def work():
        for _ in range(20):
            try:
                answers.append(curator.release("total"))
            except PlanSpentError:
                refused.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(answers), len(refused)) == (40, 40)
    assert np.unique(np.array(answers), axis=0).shape[0] == 40
    assert sorted(log[3] for log in curator._executor.log) == list(range(40))


def test_the_plan_is_public_and_the_counts_are_a_copy():
    plan = plan_of()
    curator = curator_of(plan)
    assert curator.plan is plan
    curator.used["total"] = 99
    assert curator.used == {}


def test_a_curator_with_its_noise_cannot_be_copied():
    with pytest.raises((PlanError, TypeError)):
        copy.deepcopy(curator_of())


# ----------------------------------------------------------------------------- sessions and journals


def test_a_resumed_run_goes_on_where_it_stopped():
    curator = curator_of(used={"total": 2})
    curator.release("total")
    assert curator._executor.log[0][3] == 2
    with pytest.raises(PlanSpentError):
        curator.release("total")
    assert curator.used == {"total": 3}


@pytest.mark.parametrize("used", [{"total": 4}, {"total": -1}, {"secret": 0}])
def test_a_position_outside_the_plan_is_refused(used):
    with pytest.raises(PlanError, match="position inside the plan"):
        curator_of(used=used)


def test_the_ends_of_the_plan_are_positions_too():
    assert curator_of(used={"total": 3, "again": 0}).used == {"total": 3, "again": 0}


def test_the_journal_is_told_before_the_question_is_asked():
    executor, notes = Memory(RECORDS), []
    curator = curator_of(executor=executor, journal=lambda *note: notes.append((*note, len(executor.log))))
    curator.release("total")
    curator.release("total")
    assert notes == [("total", 1, 0), ("total", 2, 1)]


def test_a_journal_that_fails_stops_the_release():
    def full_disk(name, count):
        raise OSError

    executor = Memory(RECORDS)
    with pytest.raises(OSError):
        curator_of(executor=executor, journal=full_disk).release("total")
    assert executor.log == []


# ------------------------------------------------------------------------------- the batch's divisor


def mean_moves(curator_kind, runs=400):
    """Return how far the mean of a half-sampled batch moves when one record is absent, at most."""
    moved = []
    for seed in range(runs):
        pair = []
        for records in (np.full((4, 2), 9.0), np.vstack([np.full((3, 2), 9.0), [[np.nan, 0.0]]])):
            plan = plan_of(Poisson(0.5), scale=0.0)
            pair.append(curator_kind(Memory(records), plan, source(seed)).release("total"))
        moved.append(np.linalg.norm(pair[0] - pair[1]))
    return max(moved)


@dataclass
class Realised(Memory):
    """An executor that scales a batch's sum so that the curator divides by the realised batch size."""

    def total(self, question, batch):
        rows = batch.rows(self.population)
        present = [r for r in self.matrix[rows] if np.isfinite(r).all()]
        expected = question.release.sampling.expected(self.population)
        return question.summed(self.matrix[rows]) * expected / max(1, len(present))


def test_a_mean_moves_at_most_its_sensitivity_over_the_expected_batch_size():
    assert mean_moves(Curator) == pytest.approx(2.7 / 2)


def test_a_batch_divided_by_its_realised_size_is_caught():
    def twin(executor, plan, noise):
        return Curator(Realised(executor.matrix), plan, noise)

    assert mean_moves(twin) > 1.5 * 2.7 / 2


@dataclass(frozen=True)
class Unreviewed(Gaussian):
    """A mechanism that the kernel does not know."""


def test_a_plan_that_is_not_proven_here_is_opened_for_those_who_say_its_name():
    plan = Plan({"total": Release(Total(), Unreviewed(3.0))}, "add-remove", len(RECORDS))
    with pytest.raises(PlanError, match=r"printed=\('unreviewed: .*Unreviewed',\)"):
        curator_of(plan)
    assert curator_of(plan, printed=plan.printed).plan is plan  # and a refusal does not spend it


def test_a_closed_curator_answers_nothing_and_counts_nothing():
    executor = Memory(RECORDS)
    curator = curator_of(executor=executor)
    curator.release("total")
    curator.close()
    with pytest.raises(PlanSpentError, match="has ended"):
        curator.release("total")
    assert curator.used == {"total": 1}
    assert len(executor.log) == 1


def test_a_copy_in_another_process_answers_nothing(monkeypatch):
    executor = Memory(RECORDS)
    curator = curator_of(executor=executor)
    here = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: here + 1)
    with pytest.raises(PlanSpentError, match="process that opened it"):
        curator.release("total")
    assert executor.log == []
    monkeypatch.setattr(os, "getpid", lambda: here)
    curator.release("total")
