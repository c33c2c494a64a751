"""Half-widths of intervals from a known noise, an estimated sampling error and a bound of the bias."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from sordino.kernel.arrays import Bools, Floats

_FAR = 8.0  # biases of so many deviations: the far end of the normal law does not count any more


def half_width(std: Floats, bias: Floats, confidence: float) -> Floats:
    r"""Return the smallest h with ``P(|N(b, std^2)| <= h) >= confidence`` for every ``|b| <= bias``.

    The worst bias is the largest. ``h / std`` is the root of a quantile of the noncentral chi-square law,
    which is shorter than the normal quantile plus the bias.
    """
    std, bias = np.broadcast_arrays(np.asarray(std, dtype=float), np.asarray(bias, dtype=float))
    ratio = np.divide(bias, std, out=np.full(std.shape, np.inf), where=std > 0)
    near = np.sqrt(special.chndtrix(confidence, 1.0, np.minimum(ratio, _FAR) ** 2))
    far = bias + special.ndtri(confidence) * std
    return np.where(ratio < _FAR, near * std, far)


def reaches(std: Floats, below: Floats, above: Floats, confidence: float) -> tuple[Floats, Floats]:
    r"""Return how far an interval has to reach down and up if the bias is anything from -below to above.

    Its ends are the biases and k deviations more, with ``Phi(k) - Phi(-k - (below + above) / std)`` equal to
    the confidence: the k of :func:`half_width` for two equal ones.
    """
    std = np.asarray(std, dtype=float)
    middle = np.minimum((below + above) / 2.0, _FAR * std)
    more = half_width(std, middle, confidence) - middle
    return below + more, above + more


@dataclass(frozen=True)
class RobustEstimate:
    """A released value, where it was truncated, its noise and how far its interval reaches down and up.

    All of it is post-processing of released numbers. ``noise`` is a standard deviation; the reaches hold
    noise, sampling error and the bias of truncation. ``open`` says that the interval is infinite because the
    released counts do not rule out a tail that hides so much. ``center`` is the point around which values
    were truncated, ``spread`` the sampling variance of the truncated mean, ``sure`` says for which columns a
    scale was seen at all.
    """

    value: Floats
    threshold: Floats
    noise: Floats
    down: Floats
    up: Floats
    open: bool = False
    center: Floats | float = 0.0
    spread: Floats | float = 0.0
    sure: Bools | bool = True

    @property
    def interval(self) -> tuple[Floats, Floats]:
        """The two ends."""
        return self.value - self.down, self.value + self.up

    def within(self, low: float, high: float) -> RobustEstimate:
        """Return the same with value and ends between public limits, in which the truth is known to lie."""
        value, (start, end) = np.clip(self.value, low, high), np.clip(self.interval, low, high)
        endless = self.open and not np.isfinite(start + end).all()
        return replace(self, value=value, down=value - start, up=end - value, open=endless)


def sampling_variance(second: Floats, first: Floats, noise: float, count: float) -> Floats:
    """Return an upper guess of the variance of a mean of n values in [-1, 1], from their released moments.

    ``noise`` is that of the second moment; half of it is added, so that a guess that came out low by chance
    does not shorten the interval much.
    """
    guess = np.clip(second - np.square(first) + noise / 2.0, 0.0, 1.0)
    return guess / count
