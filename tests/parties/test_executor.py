"""Solvers over parties: the same integers as one machine, true sensitivities, sums that fit."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.asking import asked
from tests.parties.helpers import linear_task

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.execute import LocalExecutor
from sordino.execute.parties import Mode, NoiseShare, SimulatedParties
from sordino.execute.parties.engine import quantise
from sordino.execute.parties.executor import OFFER
from sordino.kernel import (
    Curator,
    Disjoint,
    Gaussian,
    GumbelTopK,
    NoiseSource,
    Plan,
    Relation,
    Release,
    check_offer,
)
from sordino.parties.mpc.plan import WeightedMinimiser, joint_task
from sordino.problems.covariance import GramProduct
from sordino.problems.losses import LOSSES
from sordino.problems.minimiser import CertifiedMinimiser
from sordino.problems.queries import GlmGradient

BUDGET = {"epsilon": 1.0, "delta": 1e-5, "relation": "add-remove"}


def _data(n=240, d=6, seed=4):
    public = np.random.default_rng(seed)
    x = public.standard_normal((n, d)) / math.sqrt(d)
    return x, np.where(x[:, 0] - x[:, 1] > 0, 1.0, -1.0)


def _parties(x, y, count):
    parts = np.array_split(np.arange(len(x)), count)
    return [LocalExecutor(x[p], y[p]) for p in parts]


def _run(task, executor, seed=9, multiplier=0.5):
    plan = task.plan().at(multiplier)
    noise = NoiseSource.seeded_not_private(seed)
    last, _ = task.follow(Curator(executor, plan, noise))
    return task.finish(last)


def _task(text, records=240):
    return joint_task(text, records, BUDGET)[1]


TASKS = {
    "grad": _task(linear_task(6, max_iter=12, solver_options={"step_size": 2.0})),
    "hard": _task(linear_task(6, max_iter=12, n_nonzero_coefs=2, solver_options={"step_size": 2.0})),
    "sgd": _task(
        linear_task(6, solver="sgd-ht", max_iter=40, n_nonzero_coefs=2, solver_options={"batch_size": 60})
    ),
    "srm": _task(
        linear_task(6, "LogisticRegression", solver="srm", max_iter=40, solver_options={"batch_size": 120})
    ),
    "out": _task({**linear_task(6, alpha=0.05), "method": "output"}),
}


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("name", TASKS)
def test_a_solver_learns_between_five_parties_as_on_one_machine(name, mode):
    x, y = _data()
    executor = SimulatedParties(_parties(x, y, 5), NoiseShare(mode, 5, 2))
    found = _run(TASKS[name], executor)["coef_"]
    assert np.mean(np.sign(x @ found[0]) == y) > 0.85


def test_the_power_method_finds_the_axis_that_one_machine_finds():
    x, y = _data(2000)
    x[:, 3] *= 4
    params = {"data_norm": 4.0, "random_state": 0, "solver": "power", "n_components": 1, "max_iter": 3}
    told = {"estimator": "PCA", "features": 6, "params": params}
    task = _task(told, 2000)
    found = _run(task, SimulatedParties(_parties(x, y, 3), NoiseShare(Mode.INSIDE, 3, 1)))
    assert abs(found["components_"][0][3]) > 0.95


@pytest.mark.parametrize("relation", list(Relation))
def test_integers_of_parties_add_up_to_those_of_all_records_but_for_their_rounding(relation):
    x, y = _data()
    release = Release(GlmGradient(LOSSES["logistic"], 0.7), Gaussian(3.0))
    w = np.arange(6) / 6
    sensitivity = release.sensitivity(relation, w)
    whole = quantise(release, LocalExecutor(x, y).records(None), w, sensitivity, 240)
    parts = [quantise(release, p.records(None), w, sensitivity, 240) for p in _parties(x, y, 7)]
    assert np.abs(sum(p.values for p in parts) - whole.values).max() <= 4  # seven roundings for one
    assert {p.lattice for p in parts} == {whole.lattice}
    exact = release.query.evaluate(LocalExecutor(x, y).records(None), w)
    assert (
        np.abs(whole.values * whole.lattice.spacing - exact).max()
        < 1e-5 * whole.lattice.std * whole.lattice.spacing
    )


BLOCK = np.linalg.qr(np.arange(16.0).reshape(4, 4) ** 2 + np.eye(4))[0][:, :2]
QUERIES = {
    "exact": (GlmGradient(LOSSES["logistic"], 0.7), np.linspace(-2, 2, 4)),
    "rounded": (
        GramProduct(1.3),
        (BLOCK, None),
    ),
    "minimiser": (WeightedMinimiser(LOSSES["logistic"], 1.0, 0.2, 12, (4,), 1.3), None),
}


@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-8, 0.3, 1.0, 50.0]), party=st.integers(0, 2))
def test_neighbours_on_the_grid_are_as_near_as_the_noise_assumes(name, seed, scale, party):
    query, params = QUERIES[name]
    release = Release(query, Gaussian(2.5), mean=False)
    public = np.random.default_rng(seed)
    x, y = public.standard_normal((12, 4)) * scale, np.where(public.random(12) < 0.5, 1.0, -1.0)
    sensitivity = release.sensitivity(Relation.REPLACE_ONE, params)
    other = x.copy()
    other[5] = -3 * x[5] + 1
    rows = np.array_split(np.arange(12), 3)[party]
    ours, theirs = (
        quantise(release, LocalExecutor(z[rows], y[rows], 1.3).records(None), params, sensitivity, 12)
        for z in (x, other)
    )
    moved = float(np.linalg.norm((ours.values - theirs.values).astype(float)))
    assert moved <= ours.lattice.std / 2.5  # std = multiplier x sensitivity
    assert np.abs(ours.values).max() <= ours.lattice.bound


def test_the_weighted_minimiser_does_not_care_how_records_are_spread():
    query = WeightedMinimiser(LOSSES["logistic"], 0.8, 0.01, 5000, (3,), 1.0)
    expected = 0.8 / (5000 * 0.01)
    assert expected < query.sensitivity(Relation.ADD_REMOVE) < expected * 1.01
    assert query.sensitivity(Relation.REPLACE_ONE) < 2 * expected * 1.01


def test_a_sum_that_the_field_does_not_hold_is_refused():
    x, y = _data()
    release = Release(GlmGradient(LOSSES["logistic"], 0.7), Gaussian(1.0))
    asked_of = LocalExecutor(x, y).records(None), np.zeros(6), 0.7
    held = quantise(release, *asked_of, 2**30).lattice
    assert held.bound + 25 * 100**1.5 * held.std < 2**60 - 1  # with the noise of a hundred members
    with pytest.raises(UnsupportedError, match="overflow sums of 61 bits"):
        quantise(release, *asked_of, 2**31)


def test_batches_that_need_all_records_at_once_are_refused():
    release = Release(GlmGradient(LOSSES["logistic"], 0.7), Gaussian(1.0), Disjoint(2))
    with pytest.raises(UnsupportedError, match="Disjoint"):
        check_offer(Plan({"gradient": release}, Relation.ADD_REMOVE, 240), OFFER)


def test_sensitivity_zero_opens_zeros_without_noise():
    x, y = _data()
    executor = SimulatedParties(_parties(x, y, 3), NoiseShare(Mode.INSIDE, 3, 1))
    release = Release(GlmGradient(LOSSES["logistic"], 0.7), Gaussian(1.0))
    assert not asked(executor, release, np.zeros(6), 0.0, 0, NoiseSource.seeded_not_private(1)).any()


def test_the_number_of_parties_must_be_the_one_of_the_noise():
    x, y = _data()
    with pytest.raises(InvalidInputError, match="at least 5 parties"):
        SimulatedParties(_parties(x, y, 3), NoiseShare(Mode.INSIDE, 5, 2))


def test_selections_cannot_be_planned_between_parties():
    task = _task(linear_task(6, solver="frank-wolfe", max_iter=3))
    with pytest.raises(UnsupportedError, match=GumbelTopK.__name__):
        check_offer(task.plan(), OFFER)


def test_answers_that_do_not_add_up_are_refused():
    query = CertifiedMinimiser(LOSSES["logistic"], 1.0, 0.1, 240, (6,), 1.0)
    with pytest.raises(UnsupportedError, match="not a sum over records"):
        check_offer(Plan({"q": Release(query, Gaussian(1.0), mean=False)}, Relation.ADD_REMOVE, 240), OFFER)
