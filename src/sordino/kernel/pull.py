"""The pull of a record on the coefficients: the scalar that its row is multiplied by in a clipped gradient.

For the losses that have a number here, margin, residual, fair weight and clip are one compiled function, so
that a gradient can be one pass over the rows. The clip is that of :mod:`sordino.kernel.clip`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from sordino.kernel.clip.arrays import clipped, times_factor
from sordino.kernel.clip.doubles import clipped_scalars, limit
from sordino.kernel.machine_code import compiled

# 1 / ln 2, ln 2 in two parts, and a number whose last bit is worth one.
_BITS, _LN_2, _LN_2_LOW, _ROUND = (
    1.4426950408889634,
    6.93147180369123816490e-01,
    1.90821492927058770002e-10,
    1.5 * 2.0**52,
)
LOGISTIC, NUMBERS = 0, 1
"""Labels -1 and 1 with log odds; numbers, their errors cut at a threshold."""


@dataclass(frozen=True)
class Pull:
    r"""``clip_C`` of the residual of one record, in units of ``unit``.

    Parameters
    ----------
    kind : the loss, :data:`LOGISTIC` or :data:`NUMBERS`.
    clip : the norm C of what a record adds, at least 2^-400 (:func:`~sordino.kernel.clip.check_bound`).
    fair : whether a record is weighed first, so that neither label would be clipped; of log odds only.
    longest : margins are those of rows before their clip, up to so many times as long; 1 for clipped ones.
    unit : of the targets, and of margins that predict numbers.
    threshold : where errors of numbers are cut.
    """

    kind: int
    clip: float
    fair: bool = False
    longest: float = 1.0
    unit: float = 1.0
    threshold: float = math.inf

    @property
    def numbers(self) -> tuple[int, float, float, bool, float, float]:
        """What the compiled passes take: all of it, the clip with its limit."""
        return self.kind, self.clip, limit(self.clip), self.fair, self.unit, self.threshold


@numba.njit(inline="always", error_model="numpy")
def error_of(margin: float, y: float, unit: float, threshold: float) -> float:
    """Return the error of a number, cut at the threshold; what is not a number stays as it is."""
    error = margin * unit - y
    return math.copysign(threshold, error) if abs(error) > threshold else error


@numba.njit(inline="always", error_model="numpy")
def residual(kind: int, margin: float, y: float, unit: float, threshold: float) -> tuple[float, float]:
    """Return the residual of a record, and the largest that either label would have (1 for numbers)."""
    if kind == NUMBERS:
        return error_of(margin, y, unit, threshold) / unit, 1.0
    along = y * margin
    small = math.exp(-abs(along))
    largest = 1.0 / (1.0 + small)
    return -y * ((small if along > 0.0 else 1.0) * largest) / unit, largest


@compiled(nogil=True, error_model="numpy", fastmath={"contract"})
def _exponentials(values: Any) -> None:
    """Write exp over values of at most 0, within 4e-16 of it: four times as quick as one call for each.

    ``exp(x) = 2^k exp(r)`` with ``|r| <= ln(2) / 2``; k stands in the last bits of a sum with 1.5 2^52. Below
    -700 it is exp(-700); what is not a number stays as it is.
    """
    whole, powers = np.empty(values.size), np.empty(values.size, dtype=np.int64)
    for j in range(values.size):
        x = -700.0 if values[j] < -700.0 else values[j]
        whole[j] = x * _BITS + _ROUND
        k = whole[j] - _ROUND
        r = (x - k * _LN_2) - k * _LN_2_LOW
        series = 1.0
        for divisor in (13.0, 12.0, 11.0, 10.0, 9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0):
            series = 1.0 + series * r * (1.0 / divisor)
        values[j] = series
    bits, factors = whole.view(np.int64), powers.view(np.float64)
    for j in range(values.size):
        powers[j] = (bits[j] + 1023) << 52
    for j in range(values.size):
        values[j] *= factors[j]


@compiled(nogil=True, error_model="numpy")
def _residuals(pull: Any, margins: Any, targets: Any, largest: Any) -> None:
    """Write residuals over margins, as :func:`residual`; short loops do several records at a time."""
    kind, _, _, _, unit, threshold = pull
    if kind == NUMBERS:
        for j in range(margins.size):
            margins[j] = error_of(margins[j], targets[j], unit, threshold)
            largest[j] = 1.0
    else:
        for j in range(margins.size):
            largest[j] = -abs(targets[j] * margins[j])
        _exponentials(largest[: margins.size])
        for j in range(margins.size):
            size = 1.0 / (1.0 + largest[j])
            part = largest[j] if targets[j] * margins[j] > 0.0 else 1.0
            margins[j] = -targets[j] * (part * size)
            largest[j] = size
    if unit != 1.0:
        for j in range(margins.size):
            margins[j] /= unit


@compiled(nogil=True, fastmath={"reassoc", "nsz"})
def _sums(scalars: Any, shorter: Any) -> tuple[float, float]:
    total = shifted = 0.0
    for j in range(scalars.size):
        total += scalars[j]
        shifted += scalars[j] * shorter[j]
    return total, shifted


@compiled(nogil=True, error_model="numpy")
def pull_rows(
    pull: Any, margins: Any, largest: Any, targets: Any, weights: Any, norms: Any, shorter: Any, scale: Any
) -> tuple[float, float]:
    """Write the factor of each stored row over its margin; ``largest`` is room for as many numbers.

    A row enters by ``clip * shorter * scale``. Returns the sums of ``clip`` and of ``clip * shorter``: what
    multiplies a constant entry, and what a shift.
    """
    _, bound, most, fair, _, _ = pull
    _residuals(pull, margins, targets, largest)
    if weights.size:
        for j in range(margins.size):
            margins[j] *= weights[j]
    if fair:
        for j in range(margins.size):
            margins[j] *= min(1.0, bound / (norms[j] * largest[j]))
    for j in range(margins.size):
        margins[j] = clipped(margins[j], norms[j], most)
    sums = _sums(margins, shorter)
    for j in range(margins.size):
        margins[j] = times_factor(margins[j] * shorter[j], scale[j])
    return sums


def pulled(pull: Pull, margins: Any, targets: Any, weights: Any, norms: Any) -> Any:
    """Return the clipped scalars of records whose numbers are tensors on a device."""
    if pull.kind == NUMBERS:
        error = margins * pull.unit - targets
        value, largest = error.clamp(-pull.threshold, pull.threshold) / pull.unit, None
    else:
        against = targets.neg()
        along = against * margins
        value, largest = against * along.sigmoid() / pull.unit, along.abs().sigmoid()
    value = value if weights is None else value * weights
    if pull.fair and largest is not None:
        value = value * (pull.clip / (norms * largest)).clamp(max=1.0)
    return clipped_scalars(value, norms, pull.clip)


def as_weights(weights: Any) -> Any:
    """Return weights of records for the compiled passes, which take none for an empty array."""
    return np.empty(0) if weights is None else np.ascontiguousarray(weights, dtype=np.float64)
