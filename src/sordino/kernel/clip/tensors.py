"""The norm of a contribution and its clip factor, for tensors; methods of tensors need no import.

A record adds ``f v`` to a sum, where ``v`` is its gradient and ``f`` its factor. ``||f v|| <= clip`` holds
for what float32 *really adds*, not for what it meant to add: docs/privacy-notes.md ("Clipped gradients in
float32") proves it, in the names that are used here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

UNIT = 2.0**-24  # of float32
TINY = 2.0**-125  # what a machine that flushes small numbers may lose
LEAST_CLIP, LARGEST_CLIP = 2.0**-60, 2.0**60
_PIECE = 64
_SLICE = 2048  # no product of a Gram matrix is longer
_HALVES = 2.0**-13, 1.25 * 2.0**-9  # p of products of halves: in Gram matrices, in sums
MOST_HALVES = 1 << 13  # positions
_ROOM = 1.01  # (1 + K u)^k - 1 <= 1.01 k K u for the lengths that occur

Tensor = Any
_TYPES: dict[str, Any] = {}  # the dtype of float64, known since the first tensor came


def norms(values: Tensor) -> Tensor:
    """Return the float64 norms along the last axis, too small by at most :func:`shortfall`.

    nan where a value is nan; inf where squares overflow.
    """
    length, double = values.shape[-1], _float64(values)
    if length <= _PIECE:
        return values.norm(2, -1).double()
    piece = _piece(length)
    whole = length - length % piece
    shape, axis = ((piece, -1), -2) if values.is_cuda else ((-1, piece), -1)  # neighbours are read together
    pieces = values[..., :whole].unflatten(-1, shape).norm(2, axis).norm(2, -1, dtype=double)
    return pieces if whole == length else pieces.hypot(values[..., whole:].norm(2, -1).double())


def shortfall(values: Tensor) -> tuple[float, float]:
    """Return how much :func:`norms` may lose: a part of the norm, and what its square may lack."""
    length = values.shape[-1]
    # a sum of K squares errs by K u of itself, its root by half of that, and by its own rounding
    return _ROOM * (min(length, _PIECE) / 2 + 3) * UNIT, length * 2.0**-126


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
    join : ``torch.cat``; only rows alone need none.
    gram : ``values values^T`` in float32, of halves too; without it halves are made float32 first.
    """

    batch: Tensor
    inputs: float = 0.0
    join: Any = None
    gram: Any = None
    _rows: list[Tensor] = field(default_factory=list, init=False)
    _pairs: list[tuple[Tensor, Tensor]] = field(default_factory=list, init=False)
    _grams: _Grams = field(init=False)
    _short: float = field(default=0.0, init=False)
    _lost: float = field(default=0.0, init=False)
    _coarse: float = field(default=0.0, init=False)  # p of sums of halves
    _flushed: int = field(default=0, init=False)  # how many f g_t a record has in a layer, at most
    _recent: list[tuple[Any, Tensor, Tensor]] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        self._grams = _Grams(self.inputs)

    def add_rows(self, rows: Tensor) -> None:
        """Add gradients that are held one to a row."""
        self._rows.append(self._norms(rows)[:, None])

    def add_products(self, positions: Tensor, slopes: Tensor) -> None:
        """Add ``sum_t g_t a_t^T`` of (batch, groups, places, inputs) and (batch, groups, places, outputs)."""
        self._flushed = max(self._flushed, slopes.shape[1:].numel())
        halves = min(positions.element_size(), slopes.element_size()) < 4
        if slopes.shape[2] > 1 or halves:
            lengths, inner = (positions.shape[-1], slopes.shape[-1]), self._products(positions)
            self._coarse = _HALVES[1] if halves else self._coarse
            self._grams.add(inner, self._products(slopes), *lengths, halves=halves)
        else:  # nothing cancels, so the blur is a part of the norm, like that of a row
            self._pairs.append((self._norms(positions).flatten(1), self._norms(slopes).flatten(1)))

    def add_grams(self, inner: Tensor, slopes: Tensor, inputs: int) -> None:
        """Add ``sum_t g_t a_t^T`` where all ``a_t . a_s`` are given, of positions of so many inputs.

        They may be sums of products of parts of the positions: if each part errs by ``g(J)`` of the norms of
        its factors, then K of them, added up, err by ``g(J + K)`` of the norms of the positions (Cauchy and
        Schwarz). Parts of J inputs each that :func:`pairs` multiplies count less than K J inputs do.
        """
        self._flushed = max(self._flushed, slopes.shape[1:].numel())
        self._grams.add(inner, self._products(slopes), inputs, slopes.shape[-1])

    def add_tied(self, positions: Tensor, slopes: Tensor, words: Tensor, rows: Tensor) -> None:
        """Add ``sum_t g_t a_t^T + sum_s d_s e_s^T``, where ``d_s`` is one at the word of place s, else zero.

        So a table is used that is looked up and multiplied. (batch, 1, T, inputs), (batch, 1, T, outputs),
        (batch, S) and (batch, S, inputs). The products of the ``d_s`` are exact. The two parts are brought to
        one size first (``k d_s (e_s / k)^T`` is the same): the bound above multiplies sums over all places.
        """
        least, sizes = 2.0**-30, (positions.flatten(1).norm(2, 1), rows.flatten(1).norm(2, 1))
        ratios = (sizes[0] / sizes[1]).nan_to_num(1.0, 1 / least, least)
        k = ratios.clamp(least, 1 / least).log2().round().exp2()[:, None, None, None]
        self._flushed = max(self._flushed, slopes.shape[1:].numel())
        picked = slopes.gather(3, words[:, None, None, :].expand(-1, 1, slopes.shape[2], -1)) / k
        same = (words[:, None, :, None] == words[:, None, None, :]).to(slopes.dtype) / k
        upper = self.join([_products(slopes), picked], 3)
        outer = self.join([upper, self.join([picked.transpose(2, 3), same / k], 3)], 2)
        inner = _products(self.join([positions, rows[:, None] * k], 2))
        self._grams.add(inner, outer, positions.shape[-1], slopes.shape[-1])

    def bounds(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return bounds of the squared norm, of the squared blur and of the squared floor of each record.

        The first lacks what :func:`norms` loses: that is taken off the clip.
        """
        squared = blurred = floored = self.batch.new_zeros(len(self.batch), dtype=_float64(self.batch))
        if self._rows or self._pairs:
            squared, floored = self._alone()
        if self._grams.columns:
            parts, totals, sizes = self._grams.bounds(self.join)
            squared, floored = squared + parts, floored + sizes
            coarse = max(self.inputs, self._coarse)
            blurred = totals * (_ROOM * _product(self._grams.places + 2, coarse)) ** 2
        return squared, blurred, floored * (TINY**2 * self._flushed)

    def factors(self, clip: float, present: Tensor | None = None) -> Tensor:
        """Return a float32 factor of at most 1 for each record; zero where a bound is not a number.

        ``present`` is 0 for rows that only fill up a block. A factor below the normal numbers of float32
        would be rounded too far: it becomes zero.
        """
        least, room = 2.0**-126, 1 - _ROOM * (8 * UNIT + 2 * self.inputs) - 2 * self._short
        squared, blurred, floored = self.bounds()
        allowed = clip * room - floored.sqrt()
        ratios = allowed / (squared.sqrt() + blurred.sqrt())
        # a bound that is infinite or nan gives a ratio that is zero or nan: neither passes
        factors = ratios.clamp(max=1.0).where(ratios >= 2 * least, 0.0).to(self.batch.dtype)
        return factors if present is None else factors * present

    def _norms(self, values: Tensor) -> Tensor:
        short, lost = shortfall(values)
        self._short, self._lost = max(self._short, short), max(self._lost, lost)
        return norms(values)

    def _products(self, values: Tensor) -> Tensor:
        """Return ``values values^T``, once for what several layers read (queries, keys and values do)."""
        key = values.data_ptr(), tuple(values.shape), values.stride()
        if not key[0]:  # no memory of its own: nothing tells it from another
            return _products(values, self.gram)
        known = [one for one in self._recent if one[0] == key]
        # the values are held, so they keep their address
        last = known[0] if known else (key, values, _products(values, self.gram))
        self._recent = [*[one for one in self._recent if one is not last][-1:], last]
        return last[2]

    def _alone(self) -> tuple[Tensor, Tensor]:
        """Return the squared norms of rows and of single products, and those of the inputs of the latter."""
        left, right = [a for a, _ in self._pairs], [g for _, g in self._pairs]
        columns = [*self._rows, *left, *right]
        squares = (columns[0] if self.join is None else self.join(columns, 1)).square()
        squares = squares + self._lost if self._lost else squares
        count = sum(a.shape[1] for a in left)
        rows, a, g = squares.split([squares.shape[1] - 2 * count, count, count], dim=1)
        sizes = a.sum(1)
        if not count:
            return rows.sum(1), sizes
        return (a * g).sum(1) + rows.sum(1), sizes


@dataclass(eq=False)
class _Grams:
    """What the layers of several places have noted, and the largest of their lengths."""

    inputs: float
    columns: list[tuple[Tensor, ...]] = field(default_factory=list)
    places: int = 0  # T
    longest: int = 0  # I or O
    error: float = 0.0  # e

    def add(self, inner: Tensor, outer: Tensor, *lengths: int, halves: bool = False) -> None:
        """Note a layer by its Gram matrices and the lengths of their products."""
        inputs = max(self.inputs, _HALVES[0]) if halves else self.inputs
        double = _float64(inner)
        x, y = inner.diagonal(dim1=2, dim2=3), outer.diagonal(dim1=2, dim2=3)
        reach = (x * y).sqrt().sum(2, dtype=double)
        # a float64 copy of a whole matrix would cost a GPU more than all else here
        sizes = [matrix.norm(2, 2).norm(2, 2, dtype=double) for matrix in (inner, outer)]
        both = (inner * outer).sum(2).sum(2, dtype=double)
        # sum AB, r, ||A||, ||B||, X and Y of each record and group
        self.columns.append((both, reach, *sizes, x.sum(2, dtype=double), y.sum(2, dtype=double)))
        self.places = max(self.places, inner.shape[2])
        for length in lengths:
            self.longest = max(self.longest, length)
            slices = -(-length // _SLICE)  # an entry is rounded in a slice, between slices, and later
            self.error = max(self.error, _ROOM * _product(-(-length // slices) + slices + 12, inputs))

    def bounds(self, join: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sums over the layers of bounds of ||v||^2, of r^2, and of X."""
        noted = join([column for kind in zip(*self.columns, strict=True) for column in kind], 1)
        count = noted.shape[1] // 6
        both, reach, sizes, squares = noted.split([count, count, 2 * count, 2 * count], dim=1)
        e, rounds = self.error * (1 + 2 * self.error), _ROOM * _product(self.places + 8, 0.0)
        lacking = _ROOM * (self.places / 2 + 3) * UNIT
        sizes = (sizes * (1 + lacking)).minimum(squares * (1 + 2 * e))
        wide = sizes.add(squares, alpha=e) + self.places * 2.0**-62
        gram = both.addcmul(*sizes.chunk(2, dim=1), value=-1.0)
        gram = gram.addcmul(*wide.chunk(2, dim=1), value=1 + rounds)
        # |a_t||g_t| <= sqrt(x_t y_t) + c (sqrt(x_t) + sqrt(y_t)) + c^2, and an x_t y_t vanishes below c^2
        x, y = squares.sqrt().chunk(2, dim=1)
        c, places = self.longest**0.5 * 2.0**-63, self.places
        reach = (reach.add(x + y, alpha=c * places**0.5) + 2 * places * c) * (1 + e)
        total = reach.square()
        return gram.minimum(total).sum(1), total.sum(1), squares[:, :count].sum(1)


def weighted_rows(rows: Tensor, factors: Tensor) -> Tensor:
    """Return ``sum_i factors_i rows_i``; a row of factor zero is not read, it may be infinite."""
    return factors @ rows.where(factors[:, None] > 0, 0.0)


def exact_rows(rows: Tensor, factors: Tensor) -> Tensor:
    """Return ``factors_i rows_i`` in float64: exactly, for the product of two float32 numbers fits there."""
    weights = factors[:, None].double()
    return rows.where(factors[:, None] > 0, 0.0).double() * weights


def lattice_sum(rows: Tensor, spacing: float) -> Tensor:
    """Return ``sum_i rows_i`` in int64, each entry truncated towards zero to multiples of ``spacing``.

    The spacing is a power of two, so nothing is rounded but by the truncation, which makes no row longer: a
    row of norm at most C adds at most C, and the sum is exact in any order.
    """
    return (rows / spacing).long().sum(0)  # the cast truncates


def clipped_rows(rows: Tensor, clip: float, inputs: float = 0.0, present: Tensor | None = None) -> Tensor:
    """Return ``sum_i clip(rows_i)`` for gradients that are held one to a row."""
    return weighted_rows(rows, row_factors(rows, clip, inputs, present))


def row_factors(rows: Tensor, clip: float, inputs: float = 0.0, present: Tensor | None = None) -> Tensor:
    """Return the clip factors of gradients that are held one to a row."""
    contributions = Contributions(rows, inputs)
    contributions.add_rows(rows)
    return contributions.factors(clip, present)


def pairs(values: Tensor) -> Tensor:
    """Return the products of all pairs of positions, for :meth:`Contributions.add_grams`."""
    return _products(values)


def _products(values: Tensor, gram: Any = None) -> Tensor:
    """Return ``values values^T``, in slices: the error of a sum grows with its length."""
    values = values.float() if gram is None and values.element_size() < 4 else values
    total: Any = None
    for part in values.chunk(-(-values.shape[-1] // _SLICE), dim=-1):
        added = part @ part.transpose(-1, -2) if gram is None else gram(part)
        total = added if total is None else total + added
    return total


def _product(length: int, inputs: float) -> float:
    return length * UNIT + 2 * inputs * (1 + inputs)


def _float64(values: Tensor) -> Any:
    if "float64" not in _TYPES:
        _TYPES["float64"] = values.new_empty(0).double().dtype
    return _TYPES["float64"]
