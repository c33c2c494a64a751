"""Half-widths of intervals from a known noise, an estimated sampling error and a bound of the bias."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from sordino.kernel.arrays import Floats

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


@dataclass(frozen=True)
class RobustEstimate:
    """A released value, where it was truncated, its noise and the half-width of its interval.

    All of it is post-processing of released numbers. ``noise`` is a standard deviation; ``half`` holds noise,
    sampling error and the bias of truncation.
    """

    value: Floats
    threshold: Floats
    noise: Floats
    half: Floats

    @property
    def interval(self) -> tuple[Floats, Floats]:
        """The two ends."""
        return self.value - self.half, self.value + self.half


def sampling_variance(second: Floats, first: Floats, noise: float, count: float) -> Floats:
    """Return an upper guess of the variance of a mean of n values in [-1, 1], from their released moments.

    ``noise`` is that of the second moment; half of it is added, so that a guess that came out low by chance
    does not shorten the interval much.
    """
    guess = np.clip(second - np.square(first) + noise / 2.0, 0.0, 1.0)
    return guess / count
