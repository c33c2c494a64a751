"""The certified minimiser: what it finds, how far neighbours are apart, and that it always certifies.

The proof: docs/privacy-notes.md, "Certified minimisers"; docs/proofs.md says what rests on it.
"""

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from tests.solvers.plain import gradient, made_data, made_problem

from sordino.accounting import gaussian_multiplier
from sordino.errors import InvalidInputError, UnsupportedError
from sordino.execute import LocalExecutor
from sordino.kernel import Relation
from sordino.problems.minimiser import CertifiedMinimiser, Descent, TiltedMinimiser, _descend, minimise


def records_of(problem, x, y):
    return LocalExecutor(x, y, problem.data_norm, problem.intercept).records(None)


def test_it_is_the_logistic_regression_of_scikit_learn():
    problem = made_problem(ridge=0.05)
    x, y = made_data(problem)
    ours = CertifiedMinimiser.of(problem, 1.5, 0.05).evaluate(records_of(problem, x, y))
    theirs = LogisticRegression(C=1 / (0.05 * 120), fit_intercept=False, tol=1e-10).fit(x, y)
    np.testing.assert_allclose(ours, theirs.coef_[0], atol=1e-4)


def test_it_is_ridge_regression_on_released_coordinates():
    problem = made_problem("squared", target_bound=50.0)
    x, y = made_data(problem)
    at = np.array([4, 0, 2])
    query = CertifiedMinimiser.of(problem, 20.0, 0.05)
    ours = query.evaluate(records_of(problem, x, y), at)
    theirs = Ridge(alpha=0.05 * 120, fit_intercept=False).fit(x[:, at], y)
    assert np.linalg.norm(ours - theirs.coef_) <= query.tolerance / 0.05 < 0.01


@pytest.mark.parametrize("strength", [1e-4, 0.3])
def test_the_certificate_holds_at_what_is_returned(strength):
    problem = made_problem(ridge=strength, intercept=0.6)
    x, y = made_data(problem)
    query = CertifiedMinimiser.of(problem, problem.row_bound, strength)
    found = query.evaluate(records_of(problem, x, y))
    assert np.linalg.norm(gradient(problem, x, y, found, free=False)) <= query.tolerance
    assert query.tolerance == pytest.approx(1e-3 * problem.row_bound / 120)


@pytest.mark.parametrize("relation", list(Relation), ids=str)
def test_a_flipped_label_comes_close_to_the_sensitivity_and_stays_below(relation):
    problem = made_problem("squared", n=30)
    x, y = made_data(problem)
    x[0] = np.eye(9)[0] * 1.5
    query = CertifiedMinimiser.of(problem, 0.7, 3.0)
    y[0] = 1e6
    ones = query.evaluate(records_of(problem, x, y))
    if relation is Relation.REPLACE_ONE:
        y[0] = -1e6
    else:
        x[0] = np.nan
    others = query.evaluate(records_of(problem, x, y))
    moved = np.linalg.norm(ones - others)
    assert 0.95 * query.sensitivity(relation) < moved <= query.sensitivity(relation)


def test_vector_k1_gives_the_noise_of_the_knowledge_transfer():
    problem = made_problem(n=8044, data_norm=1.0)
    query = CertifiedMinimiser.of(problem, 1.0, 0.01)
    bound = query.sensitivity(Relation.REPLACE_ONE)
    assert bound == pytest.approx(0.024888, rel=1e-4)
    assert bound * gaussian_multiplier(2.0, 1e-5) == pytest.approx(0.049622, rel=1e-4)


def test_plain_descent_certifies_within_the_number_of_steps_known_in_advance():
    scales = np.array([4.0, 1.0, 0.01])
    target = np.array([1.0, -2.0, 60.0])

    def slope(t):
        return scales * (t - target)

    start, limit = np.zeros(3), 1e-6
    first = np.linalg.norm(slope(start))
    steps = math.ceil(4.0 / 0.01 * math.log(first / limit))
    assert np.linalg.norm(slope(_descend(slope, start, 4.0, limit, steps))) <= limit
    assert np.linalg.norm(slope(_descend(slope, start, 4.0, limit, steps // 100))) > limit


def test_descent_takes_over_when_the_fast_steps_are_not_certified():
    plan = Descent(curvature=1.0, strength=0.25, limit=1e-4, first=0.7)
    seen = []

    def flat(t):  # never certified: what rounding could do at worst
        seen.append(t)
        return np.ones(2)

    decades = math.log(0.7 / 1e-4)
    fast = math.ceil(2 * 2 * (2 * decades + math.log(8))) + 1
    last = minimise(flat, np.zeros(2), plan)
    slow = math.ceil(4 * decades) + 1
    assert len(seen) == fast + slow
    np.testing.assert_array_equal(seen[fast], np.zeros(2))  # a start that does not depend on the data
    np.testing.assert_allclose(last, -slow)


def test_clipping_several_outputs_is_refused_and_so_is_a_loss_without_curvature():
    several = made_problem("multinomial", outputs=3)
    with pytest.raises(UnsupportedError, match="convex"):
        CertifiedMinimiser.of(several, 0.5, 0.1)
    CertifiedMinimiser.of(several, several.gradient_bound, 0.1)
    with pytest.raises(UnsupportedError, match="curvature"):
        CertifiedMinimiser.of(made_problem("poisson"), 0.5, 0.1)


@pytest.mark.parametrize("strength", [0.0, -1.0, math.inf, math.nan])
def test_a_regulariser_without_strength_is_refused(strength):
    with pytest.raises(InvalidInputError):
        CertifiedMinimiser.of(made_problem(), 1.0, strength)


def test_noise_inside_the_objective_is_refused_for_several_outputs():
    several = made_problem("multinomial", outputs=3)
    with pytest.raises(UnsupportedError, match="one output"):
        TiltedMinimiser(CertifiedMinimiser.of(several, several.gradient_bound, 0.1))


def test_a_tilted_minimiser_solves_the_tilted_problem():
    problem = made_problem(ridge=0.1)
    x, y = made_data(problem)
    at, tilt = np.array([5, 1, 2]), np.array([30.0, -4.0, 2.0])
    query = TiltedMinimiser(CertifiedMinimiser.of(problem, 1.5, 0.1))
    task = query.evaluate(records_of(problem, x, y), at)
    w = np.zeros(9)
    w[at] = task.minimise(tilt)
    slope = gradient(problem, x, y, w, free=False)[at] + tilt / 120
    assert np.linalg.norm(slope) <= task.tolerance
    assert task.output_sensitivity == pytest.approx(2 * task.tolerance / 0.1)
    assert query.sensitivity(Relation.REPLACE_ONE, at) == 2 * query.contribution(at) == 3.0
    assert query.jacobian == pytest.approx(math.log(1 + 0.25 * 1.5**2 / 12))
