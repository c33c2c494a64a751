"""The published multi-party methods with the privacy they really have (vectors O1 to O3)."""

import math

import numpy as np
import pytest

from sordino.errors import InvalidInputError
from sordino.execute import LocalExecutor
from sordino.kernel import NoiseSource, Relation
from sordino.parties import baselines
from sordino.parties.mpc_output import OutputPerturbation
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem

TOLERANCE = 1e-3


def test_o1_laplace_noise_on_each_coordinate_is_not_private_as_claimed():
    assert baselines.per_coordinate_laplace(122, 0.5, 0) == pytest.approx(5.5227, rel=TOLERANCE)
    assert baselines.per_coordinate_laplace(122, 0.5, 1e-3) == pytest.approx(1.33338, rel=TOLERANCE)
    assert baselines.per_coordinate_laplace(122, 0.5, 1e-5) == pytest.approx(1.95422, rel=TOLERANCE)


def test_o2_the_printed_formula_is_safe_and_the_table_is_not():
    assert baselines.published_gradient_noise(0.5, 1e-3) == pytest.approx((0.13452, 0.28251), rel=TOLERANCE)
    found = baselines.published_gradient_noise(0.5, 1e-3, table=True)
    assert found == pytest.approx((0.70711, 2.05333), rel=TOLERANCE)


@pytest.mark.parametrize(
    ("records", "strength", "expected"), [(500, 1e-3, -0.31093), (50, 1e-3, -3.08352), (500, 1e-2, 0.40242)]
)
def test_o3_the_change_of_variables_takes_its_part_of_epsilon(records, strength, expected):
    ratio = 0.25 / (records * strength)
    assert 0.5 - math.log((1 + ratio) ** 2) == pytest.approx(expected, rel=TOLERANCE)
    found = baselines.objective_noise(0.5, records, strength, 0.25)
    if expected > 0:
        assert found == baselines.ObjectiveNoise(pytest.approx(expected, rel=TOLERANCE), 0.0)
    else:
        curvature = {500: 0.00276, 50: 0.0366}[records]
        assert (found.left, found.extra) == (0.25, pytest.approx(curvature, rel=5e-3))


def test_an_objective_without_curvature_is_refused():
    with pytest.raises(InvalidInputError, match="> 0"):
        baselines.objective_noise(0.5, 500, 0.0, 0.25)


def test_an_epsilon_for_each_iteration_adds_up():
    assert baselines.per_iteration_epsilon(0.5, 1500) == 750


@pytest.fixture
def world():
    public = np.random.default_rng(2)
    x = public.standard_normal((3000, 5)) / 3
    y = np.where(x @ np.array([2.0, -1.0, 0.5, 0.0, 0.0]) > 0, 1.0, -1.0)
    problem = Problem(LOSSES["logistic"], 3000, 5, Relation.ADD_REMOVE, 3.0, 1e-5, ridge=0.05)
    parts = np.array_split(np.arange(3000), 6)
    return x, y, problem, [LocalExecutor(x[p], y[p]) for p in parts]


def test_every_baseline_learns_when_epsilon_is_generous(world):
    x, y, problem, members = world
    noise = NoiseSource.seeded_not_private(5)
    models = {
        "output": baselines.local_output(members, problem, 1.0, noise),
        "objective": baselines.local_objective(members, problem, noise),
        "gradient": baselines.local_gradient(members, problem, 1.0, 20, 2.0, noise),
    }
    for name, w in models.items():
        assert np.mean(np.sign(x @ w) == y) > 0.85, name


def test_pathak_adds_m_times_the_noise_that_is_needed(world):
    _, _, problem, _ = world
    ours = OutputPerturbation(1.0, 0.05).plan(problem).releases["minimiser"]
    theirs = baselines.Pathak(1.0, 0.05, parties=6).plan(problem).releases["minimiser"]
    ratio = theirs.sensitivity(Relation.ADD_REMOVE) / ours.sensitivity(Relation.ADD_REMOVE)
    assert ratio == pytest.approx(6)
