"""Eleven laws of one column on which every interval is judged, and what is true of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

Q = (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class Law:
    """How to draw n numbers, and what is true of them."""

    draw: Callable[[np.random.Generator, int], np.ndarray]
    mean: float
    variance: float
    quantiles: tuple[float, ...]


def _of(frozen: Any, draw: Any = None, shift: float = 0.0) -> Law:
    draw = draw or (lambda r, n: np.asarray(frozen.rvs(size=n, random_state=r), dtype=float))
    quantiles = tuple(float(shift + frozen.ppf(q)) for q in Q)
    return Law(draw, shift + float(frozen.mean()), float(frozen.var()), quantiles)


def _mixed(share: float, one: Any, other: Any) -> Law:
    """Return the law that is ``one`` with probability ``share`` and ``other`` otherwise."""

    def draw(r: np.random.Generator, n: int) -> np.ndarray:
        first = r.random(n) < share
        return np.where(first, one.rvs(size=n, random_state=r), other.rvs(size=n, random_state=r))

    mean = share * one.mean() + (1 - share) * other.mean()
    square = share * (one.var() + one.mean() ** 2) + (1 - share) * (other.var() + other.mean() ** 2)
    grid = np.linspace(-200, 400, 600_001)
    cdf = share * one.cdf(grid) + (1 - share) * other.cdf(grid)
    quantiles = tuple(float(grid[np.searchsorted(cdf, q - 1e-12)]) for q in Q)
    return Law(draw, float(mean), float(square - mean**2), quantiles)


def _tied() -> Law:
    values = np.arange(-50.0, 160.0, 10.0)
    edge = stats.norm(50, 10).cdf
    share = edge(values + 5) - edge(values - 5)
    frozen = stats.rv_discrete(values=(values.astype(int), share / share.sum()))
    return _of(frozen, lambda r, n: np.round(r.normal(50, 10, n), -1))


NORMAL = stats.norm()
LAWS: dict[str, Law] = {
    "normal": _of(NORMAL),
    "lognormal": _of(stats.lognorm(1.0)),
    "t(3)": _of(stats.t(3)),
    "integer": _of(stats.poisson(3.0)),
    "constant": Law(lambda _, n: np.full(n, 7.0), 7.0, 0.0, (7.0,) * len(Q)),
    "bimodal": _mixed(0.5, stats.norm(-3, 0.5), stats.norm(3, 0.5)),
    "90/10 mixture": _mixed(0.9, NORMAL, stats.norm(20, 1)),
    "zero-inflated": _mixed(0.8, stats.bernoulli(0.0), stats.expon(scale=10)),
    "sorted": _of(NORMAL, lambda r, n: np.sort(r.normal(size=n))),
    "tied": _tied(),
    "shifted by 1e4": _of(NORMAL, lambda r, n: 1e4 + r.normal(size=n), 1e4),
}


@dataclass(frozen=True)
class Judged:
    """Coverage, root mean square error and the median half-width over it, of one statistic on one law."""

    coverage: float
    rmse: float
    ratio: float

    @classmethod
    def of(cls, values: Any, lows: Any, highs: Any, truth: float) -> Judged:
        """Judge repeated answers."""
        values, lows, highs = (np.asarray(a, dtype=float) for a in (values, lows, highs))
        rmse = math.sqrt(float(np.mean((values - truth) ** 2)))
        half = float(np.median((highs - lows) / 2.0))
        slack = 1e-9 * max(1.0, abs(truth))  # a rounding of the truth itself is not a miss, nor wide
        ratio = half / rmse if rmse > 0 else math.inf
        ratio = 0.0 if half <= slack else ratio
        hits = (lows - slack <= truth) & (truth <= highs + slack)
        return cls(float(np.mean(hits)), rmse, ratio)
