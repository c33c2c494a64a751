"""Rivals that are asked as one question: the numbers of a loop over parties, within their sensitivity."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.execute import LocalExecutor
from sordino.kernel import Relation
from sordino.literature.local import Gradients, Outputs, SingleMinimisers, SplitMinimisers
from sordino.parties.mpc.plan import WeightedMinimiser
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem
from sordino.runs import Ask, Promise, Task, run

RIDGE, CLIP = 0.3, 0.7


def _rows(n=12, d=4, loss="logistic", seed=3):
    public = np.random.default_rng(seed)
    x = public.standard_normal((n, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True) * public.uniform(1, 3, (n, 1))
    y = np.where(x[:, 0] > 0, 1.0, -1.0) if loss == "logistic" else public.uniform(-1, 1, n)
    return x, y


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_the_minimisers_of_single_records_are_those_that_each_party_finds(loss):
    x, y = _rows(loss=loss)
    query = SingleMinimisers(LOSSES[loss], CLIP, RIDGE, len(y))
    found = query.evaluate(LocalExecutor(x, y).records(None))
    shared = WeightedMinimiser(LOSSES[loss], CLIP, RIDGE, len(y), (4,), 1.0)
    each = [shared.evaluate(LocalExecutor(x[i : i + 1], y[i : i + 1]).records(None)) for i in range(len(y))]
    # A certified minimiser is exact up to its tolerance over the strength.
    assert np.abs(found - np.sum(each, axis=0)).max() < 2e-3 * CLIP / RIDGE


def test_blocks_of_one_process_are_the_parties():
    x, y = _rows()
    shape = (LOSSES["logistic"], CLIP, RIDGE, 12, (4,), 1.0)
    whole = SplitMinimisers(*shape, parties=3).evaluate(LocalExecutor(x, y).records(None))
    parts = [LocalExecutor(x[i : i + 4], y[i : i + 4]).records(None) for i in (0, 4, 8)]
    assert np.allclose(whole, sum(WeightedMinimiser(*shape).evaluate(part) for part in parts))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(list(Relation)), st.floats(1e-3, 1e3))
def test_a_record_moves_the_mean_of_single_minimisers_by_its_sensitivity_at_most(seed, relation, size):
    x, y = _rows(loss="squared", seed=seed % 97)
    other, target = x.copy(), y.copy()
    if relation is Relation.REPLACE_ONE:
        other[0], target[0] = -x[0] * size, np.sign(y[0]) * -size
    else:
        other[0] = 0.0
    query = SingleMinimisers(LOSSES["squared"], CLIP, RIDGE, len(y))
    one, two = (query.evaluate(LocalExecutor(a, b, 1e9).records(None)) for a, b in ((x, y), (other, target)))
    assert np.linalg.norm(one - two) <= query.sensitivity(relation) * (1 + 1e-9)
    assert SingleMinimisers(LOSSES["squared"], CLIP, RIDGE, len(y), 3.0).sensitivity(relation) == (
        pytest.approx(3 * query.sensitivity(relation))
    )


def test_pure_noise_is_pure_and_iterations_add_up():
    problem = Problem(LOSSES["logistic"], 12, 4, Relation.REPLACE_ONE, 0.5, 1e-3, ridge=RIDGE)
    plan = Outputs(CLIP, RIDGE, 12, pure=True).plan(problem)
    promise = Promise.made(Ask(0.5, 1e-12), plan)
    assert promise.plan.releases["minimiser"].mechanism.multiplier == pytest.approx(2.0, rel=0.02)
    steps = Gradients(CLIP, 10, 1.0, pure=True)
    multiplier = (
        Promise.made(Ask(0.5, 1e-12), steps.plan(problem)).plan.releases["gradient"].mechanism.multiplier
    )
    assert multiplier == pytest.approx(20.0, rel=0.02)  # a tenth of epsilon for each of ten iterations
    x, y = _rows()
    found = run(Task(steps, problem, "test"), LocalExecutor(x, y), Ask(0.5, 1e-3)).result
    assert np.isfinite(found).all()
