r"""The norm of a contribution and its clip factor, for tensors; methods of tensors need no import.

A record adds ``f v`` to a sum, where ``v`` is its gradient and ``f`` its factor. Written here is why
``||f v|| <= clip`` for what float32 *really adds*, not for what it meant to add.

**Units.** float32 rounds by ``u = 2^-24``. Matrix products may first round what goes into them: by
``p = 2^-11`` (TF32, float16) or ``2^-8`` (bfloat16); ``p = 0`` where float32 is kept. A product of length K,
in any order, errs by ``g(K) = K u + 2 p`` of the product of the norms of its factors (first order; `_ROOM`
covers the second).

**Norms from above.** :func:`upper_squares` adds pieces of at most 64 float32 squares, each with error
``64 u``, and sums the pieces in float64 (on a GPU all squares are float64). Squares that vanish are at most
``2^-126`` each, so ``K 2^-126`` is added; squares that overflow give infinity, and the record then adds
nothing.

**Rows.** ``v`` is held as a row, so ``f v`` errs by ``(2 u + 2 p) ||f v||``; so does one product ``f g a^T``.

**Products.** ``v = sum_t g_t a_t^T`` over T positions is not held. With ``A_ts = a_t . a_s`` and
``B_ts = g_t . g_s`` as computed::

    ||v||^2 <= sum_ts [ A B + g(I) |a_t||a_s| |B| + g(O) |A| |g_t||g_s| + g(I) g(O) |a_t||a_s||g_t||g_s| ]
               + g(T) sum_ts |A B|

and ``||v|| <= r = sum_t |a_t||g_t|`` always; the smaller of the two is taken. The sum
``sum_t (f g_t) a_t^T`` errs by ``g(T + 2) f r``: this *blur* is added to the norm before it is divided into
the clip. What underflows in ``f g_t`` (at most ``2^-125`` each, for machines that flush) errs by
``2^-125 sqrt(O T) |a|``: this *floor* is subtracted from the clip. What underflows in ``a_t`` is below the
blur, because ``|a_t|`` is at least ``sqrt(I) 2^-63`` here.

What is not covered: adding up the records of a batch rounds too, by about ``u`` of the sum; see the privacy
notes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

UNIT = 2.0**-24  # of float32
TINY = 2.0**-125  # what a machine that flushes small numbers may lose
LEAST_CLIP, LARGEST_CLIP = 2.0**-60, 2.0**60
_PIECE = 64
_SLICE = 1024  # no product of a Gram matrix is longer
_ROOM = 1.01  # (1 + K u)^k - 1 <= 1.01 k K u for the lengths that occur
_SMALL, _LARGE, _LOST = 2.0**-40, 2.0**55, 2.0**-50

Tensor = Any
_TYPES: dict[str, Any] = {}  # the dtype of float64, known since the first tensor came


def upper_squares(values: Tensor) -> Tensor:
    """Return float64 bounds from above of the squared norms along the last axis.

    nan where a value is nan; inf where squares overflow. Their roots exceed the norm by at most ``40 u`` of
    it and ``sqrt(K) 2^-63``.
    """
    length = values.shape[-1]
    lost = length * 2.0**-126  # squares below the normal numbers may be flushed to zero
    if values.is_cuda:  # one pass; the squares of float32 numbers are safe in float64
        return values.norm(2, -1, dtype=_float64(values)).square() * (1 + _ROOM * 4 * UNIT) ** 2 + lost
    # a sum of K squares errs by K u of itself, its root by half of that, and by its own rounding
    return _squares(values) * (1 + _ROOM * (min(length, _PIECE) / 2 + 3) * UNIT) ** 2 + lost


def _squares(values: Tensor) -> Tensor:
    """Return the squared norms: pieces in float32, then in float64."""
    length = values.shape[-1]
    if length <= _PIECE:
        return values.norm(2, -1).double().square()
    piece, double = _piece(length), _float64(values)
    whole = length - length % piece
    if whole == length:
        return values.unflatten(-1, (-1, piece)).norm(2, -1).norm(2, -1, dtype=double).square()
    rest = values[..., whole:].norm(2, -1).double().square()
    pieces = values[..., :whole].unflatten(-1, (-1, piece)).norm(2, -1)
    return pieces.norm(2, -1, dtype=double).square() + rest


@cache
def _piece(length: int) -> int:
    """Return a divisor of the length if a good one exists: then no rest is left over."""
    good = [k for k in range(16, _PIECE + 1) if length % k == 0]
    return good[-1] if good else max(1, min(length, _PIECE))


@dataclass(eq=False)
class Contributions:
    """What the records of a block add, layer by layer: bounds of the norm, of its blur, and of its floor.

    Parameters
    ----------
    batch : a float32 tensor with one row for each record; only its length and its device are read.
    inputs : how far a matrix product rounds what goes into it (p above).
    """

    batch: Tensor
    inputs: float = 0.0
    _squared: Tensor = field(init=False)
    _blurred: Tensor = field(init=False)
    _floored: Tensor = field(init=False)

    def __post_init__(self) -> None:
        zeros = self.batch.new_zeros(len(self.batch), dtype=_float64(self.batch))
        self._squared = self._blurred = self._floored = zeros

    def add_rows(self, rows: Tensor) -> None:
        """Add gradients that are held one to a row."""
        self._squared = self._squared + upper_squares(rows)

    def add_products(self, positions: Tensor, slopes: Tensor, bias: bool) -> None:
        """Add ``sum_t g_t a_t^T`` of (batch, groups, places, inputs) and (batch, groups, places, outputs).

        A bias is one more input that is always one.
        """
        groups, places, outputs = slopes.shape[1:]
        a, g = upper_squares(positions), upper_squares(slopes)
        reach = (a + 1 if bias else a) * g
        self._floored = self._floored.add(a.sum((1, 2)), alpha=TINY**2 * groups * places * outputs)
        if places == 1:  # nothing cancels, so the blur is a part of the norm, like that of a row
            self._squared = self._squared + reach.sum((1, 2))
            return
        total = reach.sqrt().sum(2).square()
        squared = total.minimum(_gram(positions, slopes, a.sqrt(), g.sqrt(), bias, self.inputs))
        self._squared = self._squared + squared.sum(1)
        blur = (_ROOM * _product(places + 2, self.inputs)) ** 2
        self._blurred = self._blurred.add(total.sum(1), alpha=blur)

    def factors(self, clip: float, present: Tensor | None = None) -> Tensor:
        """Return a float32 factor of at most 1 for each record; zero where a bound is not a number.

        ``present`` is 0 for rows that only fill up a block. A factor below the normal numbers of float32
        would be rounded too far: it becomes zero.
        """
        least, room = 2.0**-126, 1 - _ROOM * (8 * UNIT + 2 * self.inputs)
        bounds = self._squared.sqrt() + self._blurred.sqrt()
        allowed = clip * room - self._floored.sqrt()
        ratios = allowed / bounds
        # a bound that is infinite or nan gives a ratio that is zero or nan: neither passes
        factors = ratios.clamp(max=1.0).where(ratios >= 2 * least, 0.0).to(self.batch.dtype)
        return factors if present is None else factors * present


def weighted_rows(rows: Tensor, factors: Tensor) -> Tensor:
    """Return ``sum_i factors_i rows_i``; a row of factor zero is not read, it may be infinite."""
    return factors @ rows.where(factors[:, None] > 0, 0.0)


def clipped_rows(rows: Tensor, clip: float, inputs: float = 0.0, present: Tensor | None = None) -> Tensor:
    """Return ``sum_i clip(rows_i)`` for gradients that are held one to a row."""
    return weighted_rows(rows, row_factors(rows, clip, inputs, present))


def row_factors(rows: Tensor, clip: float, inputs: float = 0.0, present: Tensor | None = None) -> Tensor:
    """Return the clip factors of gradients that are held one to a row."""
    contributions = Contributions(rows, inputs)
    contributions.add_rows(rows)
    return contributions.factors(clip, present)


def _gram(a: Tensor, g: Tensor, a_norms: Tensor, g_norms: Tensor, bias: bool, inputs: float) -> Tensor:
    """Return bounds of the squared norms by Gram matrices, for each record and group; inf where unsafe."""
    a_scale, g_scale = a_norms.amax(2), g_norms.amax(2)
    safe = (a_scale < _LARGE) & (g_scale < _LARGE) & (a_scale > _SMALL) & (g_scale > _SMALL)
    a_scale, g_scale = a_scale.where(safe, 1.0), g_scale.where(safe, 1.0)
    inner, inner_rounds = _products(a, a_scale, inputs)
    outer, outer_rounds = _products(g, g_scale, inputs)
    # what underflows in a product of Gram entries is below g(K) 2^-100: as if every norm were 2^-50 larger
    x = (a_norms + _LOST) / a_scale[..., None] + _LOST
    y = (g_norms + _LOST) / g_scale[..., None] + _LOST
    rounds = _ROOM * _product(a.shape[2] + 8, 0.0)
    both = inner * outer
    inner_size, outer_size = inner.abs(), outer.abs()
    total = _sum(both) + rounds * _sum(both.abs()) + a.shape[2] ** 2 * TINY
    total = total + inner_rounds * _form(outer_size, x) + outer_rounds * _form(inner_size, y)
    total = total + inner_rounds * outer_rounds * (x * y).sum(2).square()
    total = total.clamp(min=0.0) * a_scale.square()
    if bias:  # one more input, always one
        total = total + _sum(outer).clamp(min=0.0)
        total = total + (outer_rounds + rounds) * y.sum(2).square()
    return (total * g_scale.square()).where(safe, float("inf"))


def _products(values: Tensor, scale: Tensor, inputs: float) -> tuple[Tensor, float]:
    """Return ``values values^T / scale^2`` and how far it rounds, relative to the norms of its factors."""
    parts = values.split(_SLICE, dim=-1)
    total = parts[0] @ parts[0].transpose(-1, -2)
    for part in parts[1:]:
        total = total + part @ part.transpose(-1, -2)
    longest = min(values.shape[-1], _SLICE) + len(parts) + 2
    shrunk = total * scale.square().reciprocal()[..., None, None].to(total.dtype)
    return shrunk, _ROOM * _product(longest, inputs)


def _form(matrix: Tensor, vector: Tensor) -> Tensor:
    """Return ``x^T M x`` of non-negative entries, in float64."""
    return (matrix.double() * (vector[..., :, None] * vector[..., None, :])).sum((2, 3))


def _sum(matrix: Tensor) -> Tensor:
    """Return the sum of the entries: rows in float32, then in float64 (on a GPU all, in one kernel)."""
    double = _float64(matrix)
    return matrix.sum((2, 3), dtype=double) if matrix.is_cuda else matrix.sum(3).sum(2, dtype=double)


def _product(length: int, inputs: float) -> float:
    return length * UNIT + 2 * inputs * (1 + inputs)


def _float64(values: Tensor) -> Any:
    if "float64" not in _TYPES:
        _TYPES["float64"] = values.new_empty(0).double().dtype
    return _TYPES["float64"]
