"""The published multi-party methods with the privacy they really have (vectors O1 to O3)."""

import math

import numpy as np
import pytest

from sordino.accounting import certify
from sordino.errors import InvalidInputError
from sordino.execute import LocalExecutor
from sordino.kernel import Curator, NoiseSource, Relation
from sordino.literature import local
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem

TOLERANCE = 1e-3


def test_o1_laplace_noise_on_each_coordinate_is_not_private_as_claimed():
    assert local.per_coordinate_laplace(122, 0.5, 0) == pytest.approx(5.5227, rel=TOLERANCE)
    assert local.per_coordinate_laplace(122, 0.5, 1e-3) == pytest.approx(1.33338, rel=TOLERANCE)
    assert local.per_coordinate_laplace(122, 0.5, 1e-5) == pytest.approx(1.95422, rel=TOLERANCE)


def test_o2_the_printed_formula_is_safe_and_the_table_is_not():
    assert local.published_gradient_noise(0.5, 1e-3) == pytest.approx((0.13452, 0.28251), rel=TOLERANCE)
    found = local.published_gradient_noise(0.5, 1e-3, table=True)
    assert found == pytest.approx((0.70711, 2.05333), rel=TOLERANCE)


@pytest.mark.parametrize(
    ("records", "strength", "expected"), [(500, 1e-3, -0.31093), (50, 1e-3, -3.08352), (500, 1e-2, 0.40242)]
)
def test_o3_the_change_of_variables_takes_its_part_of_epsilon(records, strength, expected):
    ratio = 0.25 / (records * strength)
    assert 0.5 - math.log((1 + ratio) ** 2) == pytest.approx(expected, rel=TOLERANCE)
    found = local.objective_noise(0.5, records, strength, 0.25)
    if expected > 0:
        assert found == (pytest.approx(expected, rel=TOLERANCE), 0.0)
    else:
        curvature = {500: 0.00276, 50: 0.0366}[records]
        assert found == (0.25, pytest.approx(curvature, rel=5e-3))


def test_an_objective_without_curvature_is_refused():
    with pytest.raises(InvalidInputError, match="> 0"):
        local.objective_noise(0.5, 500, 0.0, 0.25)


def test_local_objectives_learn_and_certify_nothing():
    public = np.random.default_rng(2)
    x = public.standard_normal((3000, 5)) / 3
    y = np.where(x @ np.array([2.0, -1.0, 0.5, 0.0, 0.0]) > 0, 1.0, -1.0)
    problem = Problem(LOSSES["logistic"], 500, 5, Relation.ADD_REMOVE, 3.0, 1e-5, ridge=0.05)
    noise, total = NoiseSource.seeded_not_private(5), np.zeros(5)
    for rows in np.array_split(np.arange(3000), 6):
        solver = local.LocalObjective.as_printed(problem)
        plan = solver.plan(problem)
        curator = Curator(LocalExecutor(x[rows], y[rows]), plan, noise, printed=[local.PrintedTilt.printed])
        total += next(solver.run(curator, problem))
        assert math.isinf(certify(plan.event(), 1e-5, plan.relation).epsilon)
    assert np.mean(np.sign(x @ total) == y) > 0.85


@pytest.mark.parametrize("relation", list(Relation))
def test_the_noise_of_the_tilt_is_the_printed_one_under_both_relations(relation):
    problem = Problem(LOSSES["logistic"], 500, 5, relation, 0.5, 1e-5, ridge=1e-2)
    release = local.LocalObjective.as_printed(problem).plan(problem).releases["minimiser"]
    scale = release.mechanism.scale(release.sensitivity(relation))
    assert scale == pytest.approx(2 / 0.40242, rel=TOLERANCE)
