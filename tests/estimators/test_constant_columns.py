"""Columns that are one number: they have no coefficient of their own beside an intercept."""

import math

import numpy as np
import pytest

from sordino import HeavyTailedRegressor
from sordino.kernel import Relation, public_generator
from sordino.problems.losses import Squared
from sordino.problems.problem import Problem
from sordino.solvers.heavy.learners import _flat
from sordino.solvers.heavy.location import HALVINGS, ROUGH, resolution
from sordino.testing import seeded_noise_not_private


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
@pytest.mark.parametrize("constant", [1.0, 0.3, -770.0])
def test_a_constant_column_gets_no_coefficient(constant, epsilon):
    public = public_generator(3)
    X = np.column_stack([public.normal(size=(2000, 2)), np.full(2000, constant)])
    y = X[:, 0] + public.normal(size=2000) + 2.0
    with seeded_noise_not_private(5):
        model = HeavyTailedRegressor(epsilon, 1e-5).fit(X, y)
    assert abs(model.coef_[2] * constant) < 1e-12
    assert model.coef_[0] == pytest.approx(1.0, abs=0.3)
    assert model.intercept_ == pytest.approx(2.0, abs=0.3)


def test_a_narrow_column_far_from_zero_is_no_constant():
    public = public_generator(4)
    year = 2000.0 + public.normal(size=4000)
    with seeded_noise_not_private(6):
        model = HeavyTailedRegressor(4.0, 1e-5).fit(year[:, None], 3.0 * (year - 2000.0))
    assert model.coef_[0] == pytest.approx(3.0, abs=0.5)


def test_a_centre_is_missed_by_less_than_the_halvings_resolve():
    assert resolution(ROUGH) == pytest.approx(1.06e-4, rel=0.01)
    assert resolution(HALVINGS) < 5e-7


def test_few_records_do_not_tell_a_constant_from_a_column_that_spreads():
    problem = Problem(Squared(), 200, 1, Relation.ADD_REMOVE, 1.0, 1e-5, outputs=1, intercept=1.0)
    nothing = np.zeros((1, 129), dtype=bool)
    for noise, flat in ((1.0, True), (20.0, False)):
        assert _flat(nothing, np.zeros(1), noise, problem, np.ones(1)) == [flat]
