"""The unit of the rows and of the targets is the user's: no solver's answer depends on it."""

import numpy as np
import pytest

from sordino import LinearRegression, LogisticRegression, SparseLinearRegression, SparseLogisticRegression
from sordino.solvers import SOLVERS
from sordino.testing import seeded_noise_not_private

DENSE = ("adam", "agd", "gd", "ls-adam", "ls-sgd", "rrp-sgd", "sgd", "srm")
# Its own truncation finds the scale of the columns: see the tests of heavy tails.
SPARSE = tuple(name for name in SOLVERS["linear"] if name not in (*DENSE, "auto", "heavy-tailed"))


def rows_and_labels(n=400, d=6):
    public = np.random.default_rng(0)
    X = public.normal(size=(n, d)) / np.sqrt(d)
    return X, X @ np.r_[2.0, -2.0, np.zeros(d - 2)] + 0.1 * public.normal(size=n)


def margins(kind, solver, X, y, unit, **bounds):
    few = {"n_nonzero_coefs": 2} if solver in SPARSE else {}
    with seeded_noise_not_private(4):
        model = kind(
            epsilon=2.0, delta=1e-5, solver=solver, data_norm=1.7 * unit, random_state=0, **few, **bounds
        )
        model.fit(unit * X, y)
    return model.decision_function(unit * X) if hasattr(model, "classes_") else model.predict(unit * X)


@pytest.mark.parametrize("unit", [1e-3, 1e3])
@pytest.mark.parametrize("solver", [*DENSE, *SPARSE])
def test_a_classifier_says_the_same_in_other_units(solver, unit):
    X, y = rows_and_labels()
    kind = SparseLogisticRegression if solver in SPARSE else LogisticRegression
    one, other = (margins(kind, solver, X, y > 0.2, u, classes=[False, True]) for u in (1.0, unit))
    np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6 * np.abs(one).max())


@pytest.mark.parametrize("solver", [*DENSE, *SPARSE])
def test_a_regressor_says_the_same_in_other_units_of_rows_and_targets(solver):
    X, y = rows_and_labels()
    kind = SparseLinearRegression if solver in SPARSE else LinearRegression
    one = margins(kind, solver, X, y, 1.0, target_bound=4.0)
    for unit, value in ((1e-3, 1.0), (1e3, 1e-2), (1.0, 1e3)):
        other = margins(kind, solver, X, value * y, unit, target_bound=4.0 * value)
        np.testing.assert_allclose(other / value, one, rtol=1e-4, atol=1e-6 * np.abs(one).max())
