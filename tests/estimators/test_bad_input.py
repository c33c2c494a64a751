"""Bad input gets a typed error that names the bound and the remedy, and never a value of the data."""

from __future__ import annotations

import numpy as np
import pytest

from sordino import BudgetPolicy, Ledger, SparseLinearRegression, SparseLogisticRegression, mean
from sordino.errors import InvalidInputError, LedgerError, SordinoError

X = np.random.default_rng(0).normal(size=(40, 3))
Y = (X[:, 0] > 0).astype(int)
SECRET = 87654321

PARAMETERS = {
    "epsilon zero": {"epsilon": 0},
    "epsilon negative": {"epsilon": -1.0},
    "epsilon nan": {"epsilon": float("nan")},
    "epsilon text": {"epsilon": "one"},
    "epsilon bool": {"epsilon": True},
    "delta zero": {"delta": 0.0},
    "delta one": {"delta": 1.0},
    "delta text": {"delta": "small"},
    "data_norm zero": {"data_norm": 0.0},
    "data_norm in words": {"data_norm": "1"},
    "data_norm a flag": {"data_norm": True},
    "data_norm nan": {"data_norm": float("nan")},
    "data_norm inf": {"data_norm": float("inf")},
    "n_nonzero_coefs negative": {"n_nonzero_coefs": -2},
    "n_nonzero_coefs zero": {"n_nonzero_coefs": 0},
    "n_nonzero_coefs huge": {"n_nonzero_coefs": 10**9},
    "n_nonzero_coefs fraction": {"n_nonzero_coefs": 1.5},
    "max_iter zero": {"max_iter": 0},
    "batch_size zero": {"solver_options": {"batch_size": 0}, "solver": "sgd-ht"},
    "step_size negative": {"solver_options": {"step_size": -1.0}},
    "clip_norm zero": {"solver_options": {"clip_norm": 0.0}},
    "alpha negative": {"alpha": -0.5},
    "relation unknown": {"relation": "swap"},
    "sampling unknown": {"solver_options": {"sampling": "shuffle"}},
    "fixed size under add-remove": {
        "solver": "sgd-ht",
        "solver_options": {"sampling": "fixed", "batch_size": 4},
    },
    "noise unknown": {"noise": "little"},
    "solver unknown": {"solver": "magic"},
    "ledger without data set": {"ledger": "some.db"},
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


@pytest.mark.filterwarnings("ignore:.*the model is the mean:sordino.errors.FitWarning")
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


MASKED = np.ma.masked_array(np.arange(40.0), mask=np.arange(40) % 2)
WITH_MASKS = {
    "rows": lambda model: model.fit(np.ma.masked_array(X, mask=X > 0), Y),
    "targets": lambda model: model.fit(X, np.ma.masked_array(Y, mask=Y > 0)),
    "weights": lambda model: model.fit(X, Y, sample_weight=MASKED),
    "persons": lambda model: model.fit(X, Y, groups=MASKED),
    "numbers": lambda _: mean(MASKED, delta=1e-5),
}


@pytest.mark.parametrize("where", WITH_MASKS)
def test_what_a_mask_hides_is_not_read(where):
    model = SparseLogisticRegression(n_nonzero_coefs=2, data_norm=1.0, weight_bound=1.0)
    with pytest.raises(InvalidInputError, match="masked"):
        WITH_MASKS[where](model)
