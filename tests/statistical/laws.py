"""Distribution tests with fixed seeds: they accept the declared law and reject a wrong scale."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

LEVEL = 1e-4


def assert_law(sample: np.ndarray, law: Any, tests: int = 1) -> None:
    """Fail unless the sample passes a Kolmogorov-Smirnov test; ``tests`` share the level."""
    assert stats.kstest(np.ravel(sample), law.cdf).pvalue > LEVEL / tests


def assert_scale(sample: np.ndarray, law: Any, tests: int = 1) -> None:
    """Fail unless the sample has the law, and 2/3 and 3/2 of the sample are seen not to have it."""
    assert_law(sample, law, tests)
    for factor in (2 / 3, 3 / 2):
        assert stats.kstest(factor * np.ravel(sample), law.cdf).pvalue < LEVEL


def assert_same_law(one: np.ndarray, other: np.ndarray, tests: int = 1) -> None:
    """Fail unless two samples pass a two-sample Kolmogorov-Smirnov test."""
    assert stats.ks_2samp(np.ravel(one), np.ravel(other), method="asymp").pvalue > LEVEL / tests


def assert_counts(observed: np.ndarray, expected: np.ndarray, tests: int = 1) -> None:
    """Fail unless counts fit their expectations, by chi-squared with the small cells pooled."""
    small = expected < 5
    if small.any():
        observed = np.append(observed[~small], observed[small].sum())
        expected = np.append(expected[~small], expected[small].sum())
    expected = expected * observed.sum() / expected.sum()
    assert stats.chisquare(observed, expected).pvalue > LEVEL / tests


def assert_independent(sample: np.ndarray, lags: int = 3) -> None:
    """Fail unless a sequence has no correlation with itself and its sign has none either."""
    for series in (sample - sample.mean(), np.sign(sample - np.median(sample))):
        for lag in range(1, lags + 1):
            r = np.corrcoef(series[:-lag], series[lag:])[0, 1] * np.sqrt(series.size - lag)
            assert 2 * stats.norm.sf(abs(r)) > LEVEL / (2 * lags)
