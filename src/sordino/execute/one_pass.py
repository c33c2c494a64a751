"""A clipped gradient in one pass over rows in memory: a block is read once, for its margins and its sum.

Its residuals and clips are those of :mod:`sordino.kernel.pull`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sordino.execute.csr import add_row, product
from sordino.kernel.arrays import Floats
from sordino.kernel.machine_code import compiled
from sordino.kernel.pull import Pull, as_weights, pull_rows

_ROWS = 128  # sparse rows of a block: they stay in the cache
_ENTRIES = 1 << 15  # entries of a dense block
# The order of a sum is free where it makes a margin, which a record may have any of.
_FREE_ORDER = {"reassoc", "contract", "nsz"}


@dataclass(frozen=True, eq=False)
class MappedFacts:
    """What the rows of a map are multiplied by and measured with, one number for each record."""

    targets: Floats
    weights: Floats
    norms: Floats
    shorter: Floats
    scale: Floats
    whole: Floats

    @classmethod
    def of(cls, view: Any, scale: Floats, factors: Floats, longest: float) -> MappedFacts:
        """Return those of a view; ``longest`` as in :class:`~sordino.kernel.pull.Pull`."""
        whole = factors / np.maximum(factors, 1.0 / longest) if longest > 1.0 else factors
        held = (view.targets, as_weights(view.weights), view.norms, factors, scale, whole)
        return cls(*map(np.ascontiguousarray, held))

    def arrays(self) -> tuple[Floats, ...]:
        """Return them in the order of the passes."""
        return self.targets, self.weights, self.norms, self.shorter, self.scale, self.whole


def over_csr(
    matrix: Any, rows: Any, w: Floats, at: tuple[float, float], facts: MappedFacts, pull: Pull, out: Floats
) -> tuple[float, float]:
    """Add the clipped gradient of sparse rows to ``out``; return the sums of :func:`pull_rows`.

    ``at`` are the product of ``w`` with the shift, and the constant of all margins.
    """
    x = matrix
    return _over_csr(x.indptr, x.indices, x.data, rows, w, at, facts.arrays(), pull.numbers, out)


def over_dense(
    matrix: Any, w: Floats, at: tuple[float, float], facts: MappedFacts, pull: Pull, out: Floats
) -> tuple[float, float]:
    """Add the clipped gradient of the rows of an array to ``out``, see :func:`over_csr`."""
    step = max(1, min(256, _ENTRIES // max(1, matrix.shape[1])))
    return _over_dense(matrix, step, w, at, facts.arrays(), pull.numbers, out)


@compiled(nogil=True)
def _over_csr(
    indptr: Any, indices: Any, data: Any, rows: Any, w: Any, at: Any, facts: Any, pull: Any, out: Any
) -> tuple[float, float]:
    targets, weights, norms, shorter, scale, whole = facts
    offset, constant = at
    held, room, total, shifted = np.empty(_ROWS), np.empty(_ROWS), 0.0, 0.0
    for start in range(0, rows.size, _ROWS):
        count = min(_ROWS, rows.size - start)
        here = slice(start, start + count)
        for j in range(count):
            row = rows[start + j]
            found = product(indices, data, indptr[row], indptr[row + 1], w)
            held[j] = (found * scale[start + j] - offset) * whole[start + j] + constant
        given = weights[here] if weights.size else weights
        sums = pull_rows(
            pull, held[:count], room, targets[here], given, norms[here], shorter[here], scale[here]
        )
        total += sums[0]
        shifted += sums[1]
        for j in range(count):
            if held[j] != 0.0:
                row = rows[start + j]
                add_row(indices, data, indptr[row], indptr[row + 1], held[j], out)
    return total, shifted


@compiled(nogil=True)
def _over_dense(
    matrix: Any, step: int, w: Any, at: Any, facts: Any, pull: Any, out: Any
) -> tuple[float, float]:
    targets, weights, norms, shorter, scale, whole = facts
    offset, constant = at
    n, held, room, total, shifted = matrix.shape[0], np.empty(step), np.empty(step), 0.0, 0.0
    for start in range(0, n, step):
        count = min(step, n - start)
        here = slice(start, start + count)
        _dots(matrix[here], w, held)
        for j in range(count):
            held[j] = (held[j] * scale[start + j] - offset) * whole[start + j] + constant
        given = weights[here] if weights.size else weights
        sums = pull_rows(
            pull, held[:count], room, targets[here], given, norms[here], shorter[here], scale[here]
        )
        total += sums[0]
        shifted += sums[1]
        _add_rows(matrix[here], held, out)
    return total, shifted


@compiled(nogil=True, fastmath=_FREE_ORDER)
def _dots(block: Any, w: Any, out: Any) -> None:
    for i in range(block.shape[0]):
        row, total = block[i], 0.0
        for j in range(w.size):
            total += row[j] * w[j]
        out[i] = total


@compiled(nogil=True)
def _add_rows(block: Any, factors: Any, out: Any) -> None:
    for i in range(block.shape[0]):
        row, factor = block[i], factors[i]
        if factor != 0.0:
            for j in range(out.size):
                out[j] += factor * row[j]


@compiled(nogil=True, fastmath=_FREE_ORDER)
def point_on_rows(w: Floats, scale: Floats, offset: Floats) -> tuple[Floats, float]:
    """Return the weights of stored rows from those of mapped ones, and their product with the offset."""
    out, total = np.empty(scale.size), 0.0
    for j in range(scale.size):
        out[j] = w[j] * scale[j]
        total += w[j] * offset[j]
    return out, total


@compiled(nogil=True)
def mapped(sums: Floats, scale: Floats, offset: Floats, shifted: float) -> None:
    """Turn sums of rows into those of mapped rows, in place: ``scale sums - shifted offset``."""
    for j in range(scale.size):
        sums[j] = sums[j] * scale[j] - shifted * offset[j]
