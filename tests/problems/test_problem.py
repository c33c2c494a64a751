"""The public facts of a task, and what follows from them."""

import math
from dataclasses import replace

import numpy as np
import pytest

from sordino.execute import LocalExecutor
from sordino.kernel import Full, Gaussian, Relation, Release
from sordino.problems.losses import LOSSES, Huber
from sordino.problems.problem import Problem
from sordino.problems.queries import GlmGradient

PROBLEM = Problem(LOSSES["logistic"], 40, 6, Relation.REPLACE_ONE, 1.0, 1e-5, data_norm=1.5)


def test_the_intercept_is_a_column_that_is_never_thresholded():
    assert (PROBLEM.columns, PROBLEM.n_intercepts, PROBLEM.shape) == (6, 0, (6,))
    with_intercept = replace(PROBLEM, intercept=2.0)
    assert (with_intercept.columns, with_intercept.n_intercepts, with_intercept.shape) == (7, 1, (7,))
    assert with_intercept.row_bound == 2.5
    assert replace(with_intercept, outputs=3).shape == (3, 7)


def test_the_gradient_bound_is_that_of_the_loss_and_the_rows():
    assert PROBLEM.gradient_bound == 1.5
    assert replace(PROBLEM, loss=Huber(2.0), intercept=2.0).gradient_bound == 5.0
    assert replace(PROBLEM, loss=LOSSES["multinomial"]).gradient_bound == pytest.approx(1.5 * 2**0.5)
    assert replace(PROBLEM, loss=LOSSES["squared"], target_bound=3.0).gradient_bound == 4.5
    assert replace(PROBLEM, loss=LOSSES["squared"], target_bound=0.0).gradient_bound > 0


@pytest.mark.parametrize("name", ["logistic", "multinomial", "huber"])
def test_no_gradient_is_clipped_at_the_gradient_bound(name):
    outputs = 3 if name == "multinomial" else 1
    problem = replace(PROBLEM, loss=LOSSES[name], outputs=outputs, intercept=2.0)
    rng = np.random.default_rng(0)
    rows, w = 9 * rng.normal(size=(40, 6)), 9 * rng.normal(size=problem.shape)
    y = rng.integers(0, 3, 40).astype(float) if outputs > 1 else rng.choice([-1.0, 1.0], 40)
    records = LocalExecutor(rows, y, problem.data_norm, problem.intercept).records(None)
    bound = problem.gradient_bound * (1 + 1e-9)
    at_bound, unclipped = [GlmGradient(problem.loss, c).evaluate(records, w) for c in (bound, 1e9)]
    np.testing.assert_allclose(at_bound, unclipped)


def test_a_problem_plans_for_its_relation_population_and_unit():
    release = Release(GlmGradient(PROBLEM.loss, 0.6), PROBLEM.gaussian(0.5), Full(), 3)
    plan = replace(PROBLEM, unit="patient").planned(gradient=release)
    assert (plan.relation, plan.population, plan.unit) == (Relation.REPLACE_ONE, 40, "patient")
    assert dict(plan.releases) == {"gradient": release}


def test_the_noise_of_a_problem_is_secure_when_asked():
    assert PROBLEM.gaussian(0.5) == Gaussian(relative=0.5)
    release = Release(GlmGradient(LOSSES["logistic"], 1.0), PROBLEM.gaussian())
    plan = replace(PROBLEM, secure_noise=True).planned(gradient=release)
    assert plan.releases["gradient"].mechanism.secure
    assert PROBLEM.gaussian().multiplier is None


def test_an_unbounded_loss_has_no_gradient_bound_of_its_own():
    assert math.isinf(LOSSES["squared"].lipschitz)
    assert math.isfinite(replace(PROBLEM, loss=LOSSES["poisson"]).gradient_bound)


@pytest.mark.parametrize(
    ("loss", "bound", "curvature"),
    [("logistic", 9.0, 0.25), ("squared", 9.0, 1.0), ("poisson", 9.0, 9.0), ("poisson", 0.3, 1.0)],
)
def test_a_curvature_without_a_bound_is_that_at_the_largest_count(loss, bound, curvature):
    problem = Problem(LOSSES[loss], 10, 2, Relation.ADD_REMOVE, 1.0, 1e-5, target_bound=bound)
    assert problem.curvature == curvature
