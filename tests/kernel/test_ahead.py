"""Batches that are drawn ahead: the law, the sums and the counts are those of batches drawn one by one."""

import numpy as np
import pytest
from tests.kernel.toys import Memory, Total, source

from sordino.errors import PlanSpentError
from sordino.kernel import Batch, Curator, FixedSize, Full, Gaussian, Plan, Poisson, Release
from sordino.kernel.events import Listed

COUNT, RATE, TIMES, AT_ONCE = 6, 0.3, 6000, 7
RECORDS = np.diag(2.0 ** np.arange(COUNT))


class Ahead(Memory):
    """An executor that wants some batches at once, and keeps those that it is asked for."""

    def __init__(self, records, at_once=AT_ONCE):
        super().__init__(records)
        self.at_once, self.told, self.rows = at_once, [], []

    def ahead(self, release, left):
        return 0 if isinstance(release.sampling, Full) else min(left, self.at_once)

    def prepare(self, batches):
        self.told.append([Batch((Listed(batch.rows(self.population)),)) for batch in batches])
        return self.told[-1]

    def total(self, question, batch):
        self.rows.append(batch.rows(self.population))
        return super().total(question, batch)


def plan_of(sampling, times=TIMES, scale=0.0, relation="add-remove"):
    release = Release(Total(bound=1e3), Gaussian(), sampling, times, mean=False)
    return Plan({"total": release, "again": release}, relation, COUNT).at(scale)


def asked(executor, plan, times, seed=3, **more):
    curator = Curator(executor, plan, source(seed), **more)
    return curator, np.array([curator.release("total") for _ in range(times)])


def entered(rows):
    """Return which record entered which batch."""
    return np.array([np.isin(np.arange(COUNT), found) for found in rows], dtype=float)


def standings(found, noise=None):
    """Return how many deviations frequencies are from those of independent draws.

    They are of a record alone, of two records in a batch, of a record in two batches some steps apart, and of
    the sign of the noise of a release with a record of a later batch.
    """
    free, times, scores = found - RATE, len(found), []
    spread = RATE * (1 - RATE)
    scores.append(free.sum(axis=0) / np.sqrt(times * spread))
    pairs = (free.T @ free)[np.triu_indices(COUNT, 1)]
    scores.append(pairs / (np.sqrt(times) * spread))
    for lag in (1, 2, AT_ONCE - 1, AT_ONCE, 10):
        scores.append((free[lag:].T @ free[:-lag]).ravel() / (np.sqrt(times - lag) * spread))
        if noise is not None:
            signs = np.sign(noise[:-lag])
            scores.append((free[lag:].T @ signs).ravel() / np.sqrt((times - lag) * spread))
    return np.concatenate(scores)


def test_batches_drawn_ahead_are_independent_poisson_batches_of_records_steps_and_noise():
    executor = Ahead(RECORDS)
    _, answers = asked(executor, plan_of(Poisson(RATE), scale=1.0), TIMES)
    found = entered(executor.rows)
    assert np.abs(standings(found, answers - found @ RECORDS)).max() < 5
    assert [len(told) for told in executor.told[-2:]] == [AT_ONCE, TIMES % AT_ONCE]


@pytest.mark.parametrize("fault", ["repeated", "dealt", "thinned", "carried"])
def test_the_test_of_the_law_refuses_batches_with_another_one(fault):
    public = np.random.default_rng(5)
    found = (public.random((TIMES, COUNT)) < RATE).astype(float)
    if fault == "repeated":  # one batch for all steps that are drawn together
        found = found[np.arange(TIMES) // AT_ONCE * AT_ONCE]
    elif fault == "dealt":  # each record once in an epoch
        turns = public.integers(round(1 / RATE), size=(TIMES // 3, COUNT))
        found = (turns[:, None, :] == np.arange(3)[None, :, None]).reshape(-1, COUNT).astype(float)
    elif fault == "thinned":
        found[::AT_ONCE, 0] = 0.0
    else:  # the last batch of one draw is the first of the next
        found[AT_ONCE::AT_ONCE] = found[AT_ONCE - 1 : -1 : AT_ONCE]
    assert np.abs(standings(found)).max() > 5


@pytest.mark.parametrize("sampling", [Poisson(RATE), FixedSize(2)])
@pytest.mark.parametrize("at_once", [1, 4, 100])
def test_answers_are_those_of_batches_drawn_one_by_one_without_noise_between_them(sampling, at_once):
    plan = plan_of(sampling, 10, relation="replace-one")
    executor = Ahead(RECORDS, at_once)
    _, found = asked(executor, plan, 10)
    _, expected = asked(Memory(RECORDS), plan.at(0.0), 10)
    assert np.array_equal(found, expected)
    assert [len(told) for told in executor.told] == {1: [1] * 10, 4: [4, 4, 2], 100: [10]}[at_once]


def test_each_release_has_batches_of_its_own_and_each_batch_is_given_once():
    executor = Ahead(RECORDS, 4)
    curator = Curator(executor, plan_of(Poisson(RATE), 6), source(1))
    for _ in range(6):
        curator.release("total")
        curator.release("again")
    given = [id(batch.shares[0].positions) for told in executor.told for batch in told]
    assert len(given) == 12
    assert sorted(map(id, executor.rows)) == sorted(given)
    with pytest.raises(PlanSpentError):
        curator.release("total")


def test_a_run_that_stops_and_goes_on_draws_what_is_left_anew_and_counts_what_was_asked():
    noted, executor = [], Ahead(RECORDS, 8)
    plan = plan_of(Poisson(RATE), 8)
    curator, _ = asked(executor, plan, 3, journal=lambda *line: noted.append(line))
    curator.close()
    assert noted == [("total", count) for count in (1, 2, 3)]
    later = Ahead(RECORDS, 8)
    curator, _ = asked(later, plan.at(0.0), 5, seed=4, used={"total": 3})
    assert curator.used["total"] == 8
    assert [len(told) for told in later.told] == [5]
    with pytest.raises(PlanSpentError):
        curator.release("total")


def test_all_records_are_never_drawn_ahead():
    executor = Ahead(RECORDS)
    asked(executor, plan_of(Full(), 3), 3)
    assert executor.told == []
    assert all(rows is None for rows in executor.rows)


def test_only_an_executor_that_says_how_many_it_wants_is_told_of_batches():
    class Prepared(Memory):
        def prepare(self, batches):
            raise AssertionError("it never said that it wants any")

    _, found = asked(Prepared(RECORDS), plan_of(Poisson(RATE), 3), 3)
    _, expected = asked(Memory(RECORDS), plan_of(Poisson(RATE), 3), 3)
    assert np.array_equal(found, expected)
