"""Extreme parameters: a typed error before anything is booked, or a fit. Nothing between the two."""

import inspect
import warnings

import numpy as np
import pytest
from tests.runs.helpers import CountingLedger

import sordino
from sordino.errors import (
    DivergenceWarning,
    FitWarning,
    NotPrivateWarning,
    PrivacyWarning,
    SordinoError,
    UndeclaredBoundWarning,
)

PUBLIC = np.random.default_rng(0)
X = PUBLIC.normal(size=(40, 2))
LABELS, NUMBERS = (X[:, 0] > 0).astype(int), X[:, 0] / 3
EXTREMES = {
    "zero": 0,
    "minus one": -1,
    "not a number": float("nan"),
    "infinity": float("inf"),
    "huge": 1e308,
    "tiny": 5e-324,
    "beyond doubles": 10**400,
    "beyond 64 bits": 2**63,
    "word": "word",
    "empty word": "",
    "nothing": None,
    "true": True,
    "list": [],
    "pair": (1, 2),
    "array": np.array([1.0, 2.0]),
    "bytes": b"1",
    "object": object(),
    "complex": 1j,
    "half": 0.5,
    "one": 1,
}
TARGETS = {
    "SparseLogisticRegression": LABELS,
    "SparseLinearRegression": NUMBERS,
    "LogisticRegression": LABELS,
    "LinearRegression": NUMBERS,
    "HeavyTailedClassifier": LABELS,
    "HeavyTailedRegressor": NUMBERS,
    "TruncatedMean": None,
    "MedianOfMeans": None,
    "PCA": None,
    "PrivateStandardScaler": None,
    "PrivateColumnWeights": None,
}
STATISTICS = {"mean": {}, "variance": {}, "covariance": {}, "quantiles": {"q": 0.5}}


def parameters_of(made):
    left_out = ("x", "ledger", "dataset_id", "random_state", "verbose")
    return [name for name in inspect.signature(made).parameters if name not in left_out]


CASES = [
    pytest.param(name, parameter, id=f"{name}-{parameter}")
    for name in [*TARGETS, *STATISTICS]
    for parameter in parameters_of(getattr(sordino, name))
]


def run(name, parameters):
    made = getattr(sordino, name)
    if name in STATISTICS:
        return made(X[:, 0], **{**STATISTICS[name], **parameters})
    return made(**parameters).fit(X, TARGETS[name])


ALLOWED = (UndeclaredBoundWarning, PrivacyWarning, NotPrivateWarning, DivergenceWarning, FitWarning)


@pytest.mark.parametrize(("name", "parameter"), CASES)
def test_an_extreme_parameter_is_refused_before_anything_is_booked_or_fits(name, parameter):
    for kind, value in EXTREMES.items():
        spy = CountingLedger()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for allowed in ALLOWED:
                warnings.simplefilter("ignore", allowed)
            try:
                run(name, {parameter: value, "ledger": spy, "dataset_id": "ward"})
            except SordinoError:
                assert spy.booked == 0, f"{parameter} = {kind} was refused after the budget was booked"
            else:
                assert spy.booked == 1


SOLVERS = ("auto", "ight", "sgd-ht", "svrg-ht", "scsg-ht", "frank-wolfe", "two-stage", "peeled", "coordinate")
HARD = {
    "lattice": {"secure_noise": True},
    "lattice without noise": {"secure_noise": True, "epsilon": float("inf")},
    "many steps": {"max_iter": 1100},
    "empty batches": {"max_iter": 2, "solver_options": {"batch_size": 1}},
    "long steps": {"solver_options": {"step_size": 1e90}},
    "large bound": {"data_norm": 1e100},
    "small bound": {"data_norm": 1e-100},
    "heavy alpha": {"alpha": 1e100},
}


@pytest.mark.filterwarnings("ignore::sordino.errors.DivergenceWarning")
@pytest.mark.filterwarnings("ignore:.*the model is the mean:sordino.errors.FitWarning")
@pytest.mark.parametrize("hard", HARD)
@pytest.mark.parametrize("solver", [*SOLVERS, "heavy-tailed"])
def test_a_hard_combination_is_refused_before_anything_is_booked_or_fits(solver, hard):
    model = sordino.SparseLinearRegression(
        **{"data_norm": 1.0, "target_bound": 1.0, "solver": solver, **HARD[hard]}
    )
    for extra in ({}, {"groups": np.arange(40) // 2}, {"sample_weight": np.full(40, 0.5)}):
        spy = CountingLedger()
        model.set_params(ledger=spy, dataset_id="ward", weight_bound=1.0)
        try:
            model.fit(X, NUMBERS, **extra)
        except SordinoError:
            assert spy.booked == 0
