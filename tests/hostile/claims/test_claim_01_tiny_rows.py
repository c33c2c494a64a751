"""Claim 1: squares of tiny rows underflowed, so a tiny row with a huge target was never clipped."""

import numpy as np
import pytest
from scipy import sparse

from sordino import HeavyTailedRegressor
from sordino.execute import LocalExecutor
from sordino.problems.losses import LOSSES
from sordino.problems.robust import GradientPoint, RobustGradient, Truncation

ROW, TARGET = np.array([[1e-170, 0.0, 0.0]]), np.array([-1e178])


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("truncation", [Truncation(by="norm"), Truncation(by="norm", joint=9.0)])
def test_a_tiny_row_with_a_huge_target_adds_at_most_the_threshold(kind, truncation):
    records = LocalExecutor(kind(ROW), TARGET, None).records(None)
    point = GradientPoint(np.zeros(3), 0.7, np.array([1.0, 2.0, 3.0]))
    assert np.linalg.norm(RobustGradient(LOSSES["squared"], truncation).evaluate(records, point)) <= 0.7


def test_one_record_cannot_carry_a_heavy_tailed_model_away():
    rng = np.random.default_rng(0)
    X = rng.standard_t(3, size=(4000, 3))
    y = X[:, 0] + 0.1 * rng.normal(size=4000)
    X[0], y[0] = ROW[0], TARGET[0]
    fitted = HeavyTailedRegressor(epsilon=1.0, fit_intercept=False).fit(X, y)
    assert np.abs(fitted.coef_).max() < 100.0
