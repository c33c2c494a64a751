"""Bad input gets a typed error that names the bound and the remedy, and never a value of the data."""

from __future__ import annotations

import numpy as np
import pytest

from sordino import BudgetPolicy, Ledger, SparseLinearRegression, SparseLogisticRegression
from sordino.errors import InvalidInputError, LedgerError, SordinoError

X = np.random.default_rng(0).normal(size=(40, 3))
Y = (X[:, 0] > 0).astype(int)
SECRET = 87654321

PARAMETERS = {
    "epsilon zero": dict(epsilon=0),
    "epsilon negative": dict(epsilon=-1.0),
    "epsilon nan": dict(epsilon=float("nan")),
    "epsilon text": dict(epsilon="one"),
    "epsilon bool": dict(epsilon=True),
    "delta zero": dict(delta=0.0),
    "delta one": dict(delta=1.0),
    "delta text": dict(delta="small"),
    "data_norm missing": dict(data_norm=None),
    "data_norm zero": dict(data_norm=0.0),
    "data_norm nan": dict(data_norm=float("nan")),
    "data_norm inf": dict(data_norm=float("inf")),
    "n_nonzero_coefs negative": dict(n_nonzero_coefs=-2),
    "n_nonzero_coefs zero": dict(n_nonzero_coefs=0),
    "n_nonzero_coefs huge": dict(n_nonzero_coefs=10**9),
    "n_nonzero_coefs fraction": dict(n_nonzero_coefs=1.5),
    "max_iter zero": dict(max_iter=0),
    "batch_size zero": dict(batch_size=0, solver="sgd-ht"),
    "step_size negative": dict(step_size=-1.0),
    "clip_norm zero": dict(clip_norm=0.0),
    "ridge negative": dict(ridge=-0.5),
    "relation unknown": dict(relation="swap"),
    "sampling unknown": dict(sampling="shuffle"),
    "fixed size under add-remove": dict(sampling="fixed", solver="sgd-ht", batch_size=4),
    "noise unknown": dict(noise="little"),
    "solver unknown": dict(solver="magic"),
    "ledger without data set": dict(ledger="some.db"),
}


@pytest.mark.parametrize("parameters", PARAMETERS.values(), ids=PARAMETERS.keys())
def test_a_bad_parameter_is_a_typed_error_that_says_what_was_expected(parameters):
    with pytest.raises(SordinoError, match=r"Expected|proven") as caught:
        SparseLogisticRegression(**parameters).fit(X, Y)
    assert isinstance(caught.value, ValueError)


def data_cases():
    bad_nan, bad_inf = X.copy(), X.copy()
    bad_nan[7, 1], bad_inf[7, 1] = np.nan, np.inf
    objects = X.astype(object)
    objects[3, 2] = f"patient {SECRET}"
    return {
        "nan": (bad_nan, Y),
        "inf": (bad_inf, Y),
        "text in X": (objects, Y),
        "nan in y": (X, np.where(np.arange(40) == 3, np.nan, 1.0)),
        "one class": (X, np.full(40, SECRET)),
        "empty": (X[:0], Y[:0]),
        "one row": (X[:1], Y[:1]),
        "no columns": (X[:, :0], Y),
        "lengths differ": (X, Y[:-1]),
        "one dimension": (X[:, 0], Y),
    }


@pytest.mark.parametrize("case", data_cases().keys())
@pytest.mark.parametrize("estimator", [SparseLogisticRegression, SparseLinearRegression])
def test_bad_data_is_refused_without_showing_it(estimator, case):
    data, target = data_cases()[case]
    if estimator is SparseLinearRegression and case in ("one class", "one row"):
        return  # a constant or single target is a valid regression
    with pytest.raises(InvalidInputError) as caught:
        estimator().fit(data, target)
    assert str(SECRET) not in str(caught.value)


def test_labels_outside_the_declared_classes_are_refused_without_showing_them():
    labels = np.where(np.arange(40) == 5, SECRET, Y)
    with pytest.raises(InvalidInputError, match="declared classes") as caught:
        SparseLogisticRegression(classes=[0, 1]).fit(X, labels)
    assert str(SECRET) not in str(caught.value)


def test_one_column_and_few_rows_are_fine():
    assert SparseLogisticRegression().fit(X[:, :1], Y).coef_.shape == (1, 1)
    assert SparseLinearRegression().fit(X[:2], Y[:2].astype(float)).coef_.shape == (3,)


def test_non_contiguous_data_is_fine():
    wide = np.repeat(X, 2, axis=1)[:, ::2]
    assert SparseLogisticRegression().fit(wide[::-1], Y[::-1]).coef_.shape == (1, 3)


def test_an_error_before_the_first_release_books_nothing(tmp_path):
    ledger = Ledger.open(tmp_path / "budget.db")
    ledger.create("ward", BudgetPolicy(epsilon=1.0, delta=1e-5))
    with pytest.raises(InvalidInputError):
        SparseLogisticRegression(max_iter=-1, ledger=ledger, dataset_id="ward").fit(X, Y)
    assert ledger.history("ward") == []


def test_a_broken_ledger_stops_the_fit_before_any_release(tmp_path):
    path = tmp_path / "budget.db"
    path.write_bytes(b"this is not a ledger" * 100)
    with pytest.raises(LedgerError):
        SparseLogisticRegression(ledger=path, dataset_id="ward").fit(X, Y)
