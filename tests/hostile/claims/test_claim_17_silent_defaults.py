"""Claim 17: no default ruins a model in silence: predict clips as fit does, undeclared bounds are said."""

import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import sordino

README = Path(__file__).resolve().parents[3] / "README.md"


def census(n, seed):
    """Return rows like a one-hot table: eight ones each, so a norm of 2.8 under a default bound of 1."""
    public = np.random.default_rng(seed)
    levels = public.integers(0, 6, size=(n, 8))
    X = np.eye(6)[levels].reshape(n, -1)
    return X, (X[:, ::6].sum(axis=1) - 0.6 * X[:, 3::6].sum(axis=1) > 1.5).astype(int)


def test_one_hot_rows_are_learnt_with_default_bounds():
    train, test = census(20_000, 0), census(5_000, 1)
    for estimator in (sordino.LogisticRegression, sordino.SparseLogisticRegression):
        model = estimator(epsilon=1.0).fit(*train)
        assert model.score(*test) > max(test[1].mean(), 1 - test[1].mean()) + 0.1


def test_the_ten_lines_of_the_front_page_score_well_in_every_run():
    lines = re.search(r"## Ten lines\n\n```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)[1]
    scores = []
    for _ in range(30):
        shown = []
        exec(lines, {"print": lambda value, shown=shown: shown.append(value)})
        scores.append(shown[0])
    assert np.mean(scores) > 0.88
    assert min(scores) > 0.8


def test_targets_far_beyond_an_undeclared_bound_are_not_cut_without_a_word():
    code = (
        "import warnings, numpy as np, sordino; warnings.simplefilter('error')\n"
        "X = np.eye(4)[np.arange(400) % 4]\n"
        "sordino.LinearRegression(data_norm=1.0).fit(X, 100.0 * X[:, 1])\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "UndeclaredBoundWarning" in result.stderr
    assert "target_bound" in result.stderr


@pytest.mark.parametrize("huge", [1.0, 1e6])
def test_what_is_said_of_bounds_does_not_depend_on_the_data(huge):
    X = np.eye(4)[np.arange(400) % 4] * huge
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sordino.LinearRegression(data_norm=1.0, target_bound=1.0).fit(X, huge * X[:, 1])
    assert caught == []
