"""The vectors of the last question about margins in one compiled pass, for losses of one margin."""

from __future__ import annotations

import math
from typing import Any

import numba

from sordino.kernel.clip.factors import clipped
from sordino.kernel.machine_code import compiled
from sordino.kernel.pull import LOGISTIC, residual

ROOT = math.sqrt(2.0)


@numba.njit(inline="always", error_model="numpy")
def _followed(loss: Any, own: Any, margin: float, y: float, weight: float, norm: float) -> float:
    """Return how far a record was followed at a margin: half its clipped residual, against its sign."""
    kind, unit, threshold = loss
    _, _, bound, most, fair = own
    value, largest = residual(kind, margin, y, unit, threshold)
    value *= weight
    if fair:
        value *= min(1.0, bound / (norm * largest))
    return -0.5 * clipped(value, norm, most)


@compiled(nogil=True, error_model="numpy")
def margin_rows(
    margins: Any, records: Any, loss: Any, own: Any, travel: float, point: Any, units: Any, out: Any
) -> None:
    """Write gradient and curvature of each record in the slope, and in the offset where there is one.

    ``loss`` is (kind, unit, threshold), ``own`` (start, end, clip, its limit, fair), ``point`` (slope,
    offset), ``units`` (of margins, of curvatures, the constant, the clip): all public.
    """
    targets, weights, sizes, norms = records
    margin_unit, bend_unit, constant, bound = units
    kind, unit, threshold = loss
    for i in range(margins.size):
        y, weight = targets[i], weights[i] if weights.size else 1.0
        seen = _followed(loss, own, own[0], y, weight, norms[i])
        seen += _followed(loss, own, margins[i] + own[1], y, weight, norms[i])
        s = margins[i] - seen * travel * min(sizes[i], 1.0) * sizes[i]
        z, margin = s / margin_unit, point[0] * s + point[1]
        value, largest = residual(kind, margin, y, unit, threshold)
        bend, fair = bend_unit, weight
        if kind == LOGISTIC:
            small = math.exp(-abs(margin))
            bend *= small / ((1.0 + small) * (1.0 + small))
            square = z * z + constant * constant  # for a weight; the clip takes its own norm
            length = largest * largest * square + bend * bend * square * square
            fair *= min(1.0, bound / math.sqrt(length))
        out[i, 0] = fair * value * z
        if constant == 0.0:
            out[i, 1] = fair * bend * z * z
        else:
            out[i, 1] = fair * value * constant
            out[i, 2] = fair * bend * z * z
            out[i, 3] = fair * bend * ROOT * z * constant
            out[i, 4] = fair * bend * constant * constant
