"""Euclidean norms of rows: never below the exact norm, never harmed by over- or underflow.

Rows are those of a C-ordered array or of a CSR matrix whose structure was checked. A row that is not finite
has the norm nan; a finite row beyond 1.8e308 has inf.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from sordino.kernel import clip_doubles
from sordino.kernel.arrays import Floats, Ints, Rows
from sordino.kernel.clip import passes
from sordino.kernel.clip.rounding import TINY, above, limit, slack


@dataclass(frozen=True, eq=False)
class Lengths:
    r"""The norms of rows as ``mantissa 2^exponent``: also of rows whose norm no double can hold.

    **Rounding.** ``norms`` are above the exact ones by at most ``2 slack(length)``, with ``length`` the
    number of columns.
    """

    mantissa: Floats
    exponent: Ints
    length: int

    @property
    def norms(self) -> Floats:
        """Upper bounds of the norms; inf where they overflow, nan for a row that is not finite."""
        with np.errstate(all="ignore"):
            return np.asarray(above(np.ldexp(self.mantissa, self.exponent), self.length))

    def factors(self, bound: float) -> Floats:
        r"""Return ``f_i <= 1`` with ``f_i ||x_i|| <= bound`` in exact arithmetic; 0 for a row not finite.

        **Rounding.** ``limit(bound) / norm`` with a norm that is an upper bound; a quotient below 2^-960 is
        rounded towards zero.
        """
        norms, most = self.norms, limit(bound)
        out = np.where(np.isnan(norms), 0.0, 1.0)
        far = np.flatnonzero(norms > most)
        if far.size:
            mantissa = self.mantissa[far] * (1.0 + slack(self.length))
            with np.errstate(all="ignore"):  # whatever the caller has set: an error would tell of a row
                found = np.ldexp(most / mantissa, -self.exponent[far])
                out[far] = np.where(found < TINY, np.nextafter(found, 0.0), found)
        return out


def measured(matrix: Any, rows: Rows = None) -> Lengths:
    r"""Return the lengths of rows: ``2^e || x 2^-e ||`` with e the exponent of the largest entry.

    **Rounding.** See :func:`slack`. Single precision needs no scaling: its squares are normal doubles.
    """
    pointers, values, _, width = parts(matrix)
    if rows is None:
        rows = np.arange(pointers.size - 1)
    mantissa, exponent = np.empty(rows.size), np.zeros(rows.size, dtype=np.int64)
    if values.dtype == np.float32:
        passes.measure_single(pointers, rows, values, mantissa)
    else:
        passes.measure(pointers, rows, values, values.view(np.int64), mantissa, exponent)
    return Lengths(mantissa, exponent, width)


def row_norms(matrix: Any, rows: Rows = None) -> Floats:
    """Return upper bounds of the norms of rows, see :func:`measured`."""
    return measured(matrix, rows).norms


def vector_norm(vector: Any) -> float:
    """Return an upper bound of the norm of one vector of data, see :func:`measured`."""
    return float(row_norms(np.asarray(vector, dtype=np.float64).reshape(1, -1))[0])


def joint_norms(norms: list[Any]) -> Floats:
    """Return upper bounds of the norms of vectors whose parts have these norms; some may be one number.

    **Rounding.** ``hypot`` errs by at most 2 u each time; it over- or underflows only if its result does.
    """
    out = norms[0]
    if hasattr(out, "tensor"):  # on a device
        return _joint_near(norms)
    with np.errstate(all="ignore"):
        for other in norms[1:]:
            out = np.hypot(out, other)
    return np.asarray(above(out, 2 * len(norms)))


def _joint_near(norms: list[Any]) -> Any:
    near = norms[0]
    last = [n.tensor if hasattr(n, "tensor") else n for n in norms[1:]]
    return near.like(clip_doubles.joint_norms(near.tensor, *last))


def weighted_norms(matrix: Any, weights: Floats, rows: Rows = None) -> Floats:
    r"""Return upper bounds of ``|| (x_ij weights_j)_j ||``; nan where they cannot be measured.

    The row and the weights are scaled by powers of two first. A row whose weighted entries are all below
    2^-450 of the largest entry times the largest weight cannot be told from nothing: it gets nan.

    **Rounding.** Two more roundings per entry (the weight, the product), inside :func:`slack`.
    """
    pointers, values, columns, width = parts(matrix)
    if rows is None:
        rows = np.arange(pointers.size - 1)
    top = float(np.abs(weights).max(initial=0.0))
    if not np.isfinite(top):
        return np.full(rows.size, np.nan)
    shift = int(np.frexp(top)[1])
    mantissa, exponent = np.empty(rows.size), np.zeros(rows.size, dtype=np.int64)
    with np.errstate(all="ignore"):
        even = np.ldexp(np.asarray(weights, dtype=np.float64), -shift)
    passes.measure_weighted(pointers, rows, values, columns, even, mantissa, exponent)
    return Lengths(mantissa, exponent + shift, width).norms


def centred_norms(
    matrix: Any, factors: Floats, shift: Floats, weights: Floats, rows: Rows = None, spread: float = 1.0
) -> Floats:
    r"""Return upper bounds of ``|| weights (f_i x_i - shift) ||``, without making a sparse row dense.

    Over the non-zeros let A be the sum of ``(weights (f x - shift))^2``, B that of ``(weights shift)^2`` and
    X that of ``(weights f x)^2``; M is B over all columns. The squared norm is ``A + (M - B)``.

    **Rounding.** With K columns: an entry of A errs by ``u |weights f x|`` and three relative u, so A by at
    most ``u X + (K + 8) u A``, ``M - B`` by ``2 K u M``, and ``A <= 2 (X + M)``: together less than
    ``6 (K + 4) u (X + M)``, which is added to the square. It also covers the rounding of what is added up
    for the record (``f x`` and ``shift`` apart, so ``4 u (sqrt X + sqrt M)^2 <= 8 u (X + M)``); products with
    a block of k columns err by ``K u sqrt k`` instead: ``spread = 1 + sqrt k`` multiplies it. A dense row is
    subtracted entry by entry, so M - B is not computed; ``8 u (sqrt X + sqrt M)`` is added to its norm.
    Squares of entries below 2^-511 underflow; ``2^-500 sqrt K`` is added for them.
    """
    pointers, values, columns, width = parts(matrix)
    if rows is None:
        rows = np.arange(pointers.size - 1)
    shift, weights = (np.ascontiguousarray(v, dtype=np.float64) for v in (shift, weights))
    near, away = np.empty(rows.size), np.empty(rows.size)
    with np.errstate(all="ignore"):
        whole = float(np.square(weights * shift).sum())
        dense = not sparse.issparse(matrix)
        passes.centred(pointers, rows, values, columns, factors, shift, weights, whole, dense, near, away)
        if not dense:
            out = np.sqrt(near + 6 * (width + 4) * 2.0**-53 * spread * (away + whole))
        else:
            out = np.sqrt(near) + 8 * 2.0**-53 * spread * (np.sqrt(away) + np.sqrt(whole))
        out = above(out, width) + 2.0**-500 * np.sqrt(width)
    return np.asarray(np.where(np.isfinite(out), out, np.nan))


def row_peaks(matrix: Any, rows: Rows = None) -> Floats:
    """Return the largest magnitude of each row: exact; nan for a row that is not finite."""
    pointers, values, _, _ = parts(matrix)
    if rows is None:
        rows = np.arange(pointers.size - 1)
    out = np.empty(rows.size)
    passes.peaks(pointers, rows, values, out)
    return out


def parts(matrix: Any) -> tuple[Any, Any, Any, int]:
    """Return where rows start and end, their values and columns (none for an array), and the width."""
    if sparse.issparse(matrix):
        return matrix.indptr, _floats(matrix.data), matrix.indices, int(matrix.shape[1])
    rows, width = matrix.shape
    values = _floats(np.ascontiguousarray(matrix)).reshape(-1)
    return np.arange(rows + 1) * width, values, np.empty(0, dtype=np.int32), int(width)


def _floats(values: Any) -> Any:
    if values.dtype in (np.float32, np.float64) and values.flags.aligned and values.dtype.isnative:
        return values
    return values.astype(np.float64)
