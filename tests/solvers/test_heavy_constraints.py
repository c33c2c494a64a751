"""Projections give the nearest point of their set."""

import numpy as np
import pytest

from sordino.errors import InvalidInputError
from sordino.execute import LocalExecutor
from sordino.kernel import Curator, NoiseSource, Relation
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem
from sordino.solvers.heavy.learners import Box, L1Ball, L2Ball, ProjectedGradient, Scaling, Simplex

SETS = [L2Ball(0.7), L1Ball(1.3), Simplex(0.9), Box(-0.2, 0.5)]


def inside(kind, w):
    if isinstance(kind, L2Ball):
        return np.linalg.norm(w) <= kind.radius * (1 + 1e-12)
    if isinstance(kind, L1Ball):
        return np.abs(w).sum() <= kind.radius * (1 + 1e-12)
    if isinstance(kind, Simplex):
        return (w >= 0).all() and abs(w.sum() - kind.total) < 1e-12
    return (w >= kind.low).all() and (w <= kind.high).all()


@pytest.mark.parametrize("kind", SETS, ids=lambda k: type(k).__name__)
@pytest.mark.parametrize("seed", range(5))
def test_the_projection_is_inside_and_no_other_point_is_nearer(kind, seed):
    rng = np.random.default_rng(seed)
    point = rng.normal(size=6) * 2
    nearest = kind.project(point)
    assert inside(kind, nearest)
    np.testing.assert_allclose(kind.project(nearest), nearest, atol=1e-12)
    for other in rng.normal(size=(200, 6)):  # <point - nearest, other - nearest> <= 0 on a convex set
        assert (point - nearest) @ (kind.project(other) - nearest) <= 1e-9


@pytest.mark.parametrize("make", [L2Ball, L1Ball, Simplex])
@pytest.mark.parametrize("radius", [0.0, -1.0, np.inf, np.nan])
def test_a_radius_that_is_no_radius_is_refused(make, radius):
    with pytest.raises(InvalidInputError, match="radius"):
        make(radius)


def test_an_empty_box_is_refused():
    with pytest.raises(InvalidInputError, match="low <= high"):
        Box(1.0, 0.0)


@pytest.mark.parametrize("kind", SETS, ids=lambda k: type(k).__name__)
def test_a_constrained_learner_stays_inside_and_leaves_the_intercept_alone(kind):
    rng = np.random.default_rng(0)
    X = rng.standard_t(3, size=(500, 4))
    y = X @ [2.0, -2.0, 1.0, 0.0] + 30 + rng.standard_t(3, size=500)
    task = Problem(LOSSES["squared"], 500, 4, Relation.ADD_REMOVE, 1.0, 1e-5, intercept=1.0)
    solver = ProjectedGradient(60, Scaling(step=0.1), "last", constraint=kind)
    curator = Curator(
        LocalExecutor(X, y, None, 1.0), solver.plan(task).at(0.2), NoiseSource.seeded_not_private(1)
    )
    *_, w = solver.run(curator, task)
    assert inside(kind, w[:4])
    assert w[-1] > 15
