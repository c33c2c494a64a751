"""Rows seen through a public affine map, and the releases that find a good one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import softmax

from sordino.kernel import ClippedSum, Norm, Relation, SparseVector, SymmetricGaussian
from sordino.kernel.arrays import Bools, Floats, Ints, compile_with_cache
from sordino.kernel.clip import clip_scalars, factors_of, joint_norms, sum_of_rows
from sordino.kernel.query import (
    LOGISTIC,
    AffineViews,
    ColumnSums,
    MappedRows,
    OneCount,
    Point,
    PublicMap,
    Pull,
    as_weights,
    clip_residuals,
    shares_of,
    write_residuals,
)
from sordino.problems.losses import Loss, compiled_form, has_odds, residual_in, sigmoid
from sordino.problems.queries import count_by_octave, sure, weigh

# Sizes are counted on a logarithmic grid from 2^-30 to 2^10.
_LOWEST, _HIGHEST = -30, 10
# So many octaves are taken together at most, where single cells drown; fewer where they keep nearly as much.
_WIDEST, NEARLY = 4, 0.9
# The margin of a whole row is that of at most so many typical ones; numbers have a correction behind it.
_LONGEST, _NUMBERS_LONGEST = 8.0, 256.0


class Affine(PublicMap):
    """A public map that is fitted, with its way back: weights of mapped rows as weights of the rows."""

    def resize(self, factor: float) -> Affine:
        """Return the map with all scales multiplied."""
        rest = None if self.rest is None else self.rest * factor
        return replace(self, scale=self.scale * factor, rest=rest)

    def longest(self, radius: float) -> float:
        """Return a bound on the size of a mapped row that had at most this norm."""
        return float(np.max(np.abs(self.scale), initial=self.rest or 0.0)) * radius + self.offset

    def restrict(self, kept: Bools) -> Affine:
        """Return the map that drops all columns but some of those it has."""
        return Affine(self.shift[kept], self.scale[kept], self.intercept, self.listed[kept])

    def coefficients(self, w: Floats, constant: float) -> Floats:
        """Return the weights on the original columns, and on its intercept column ``constant``."""
        raw = w[..., :-1] * self.scale if self.intercept else w * self.scale
        if not self.intercept:
            return raw
        offset = self.intercept * w[..., -1] - raw @ self.shift
        return np.concatenate([raw, np.asarray(offset / constant)[..., None]], axis=-1)

    def pull_back(self, gradient: Floats, constant: float) -> Floats:
        """Return the gradient in mapped weights of a function with this gradient in :meth:`coefficients`."""
        if not self.intercept:
            return gradient * self.scale
        last = gradient[..., -1:] / constant
        inner = self.scale * (gradient[..., :-1] - last * self.shift)
        return np.concatenate([inner, self.intercept * last], axis=-1)


@dataclass(frozen=True)
class ColumnMoments(ClippedSum):
    r"""``sum_i (x_i, |x_i|) / R``: the sums of the columns and of their absolute values.

    With ``||x_i|| <= R`` both halves have norm at most 1, together at most sqrt 2. On sparse rows the
    absolute values stand out of the noise where squares would drown in it; ``square`` asks for
    ``x_i^2 / R^2`` in their place, which has norm at most 1 too.

    When x is replaced by y, ``||x - y||^2 + || |x| - |y| ||^2 <= 4 - 2 sum_j (x_j y_j + |x_j y_j|) <= 4`` in
    units of R: the sensitivity is 2, not 2 sqrt 2. With squares that is false: x = (1, 0), y = (-.27, .96).
    """

    data_norm: float
    square: bool = False

    def contribution(self, params: Any) -> float:
        return math.sqrt(2.0)

    def sensitivity(self, relation: Relation, params: Any) -> float:
        both = relation.contributions == 2 and not self.square
        return 2.0 if both else super().sensitivity(relation, params)

    def evaluate(self, records: ColumnSums, params: Any) -> Any:
        first, second = records.column_moments(self.square)
        unit = self.data_norm**2 if self.square else self.data_norm
        if isinstance(first, SparseVector):
            return (first / self.data_norm).followed_by(second / unit)
        return np.concatenate([first / self.data_norm, second / unit])


@dataclass(frozen=True)
class SizeCounts(OneCount):
    """How many records have their size in each cell of a logarithmic grid: a record adds one to one count.

    ``of="rows"`` measures rows through the map ``params``, ``of="targets"`` the distances of the targets to
    a public number in a public unit, the two of ``params``. An octave has ``cells`` cells.
    """

    needs: ClassVar[tuple[type, ...]] = (AffineViews,)

    of: str
    cells: int = 1

    def evaluate(self, records: Any, params: Any) -> Floats:
        if self.of == "targets":
            center, unit = params
            sizes = np.abs(records.targets - center) / unit
        else:
            sizes = records.through(params).sizes
        return self.count_sizes(sizes, shares_of(records))

    def count_sizes(self, sizes: Floats, parts: Floats | None = None) -> Floats:
        """Return how many sizes lie in each cell; one that is not a number lies in none."""
        return count_by_octave(sizes, self.cells, (_LOWEST, _HIGHEST), parts)[1]

    def quantile(self, counts: Floats, share: float, noise: float, most: float) -> float | None:
        """Return the size below which about ``share`` of the noisy counts lie, at most ``most``.

        The lowest count is of zeros, which have no size. Cells beyond ``most``, the largest possible size,
        hold noise only. Counts that noise alone would reach are left out; where none is left, wider cells are
        tried (the answer is then the middle of one), and then there is no answer.
        Free: it reads released counts and public bounds only.
        """
        for ends, width, kept in self._wider(counts, noise, most):
            if kept.any():
                end = ends[int(np.argmax(np.cumsum(kept) >= share * kept.sum()))] - (width - 1) / 2
                return float(min(self._below(end), most))
        return None

    def end(self, counts: Floats, noise: float) -> float:
        """Return the size, at most 1, beyond which there are no more records than noise would count."""
        ends = np.arange(-self.cells * _LOWEST, 0, -1)
        beyond = np.cumsum(counts[ends]) > 2.0 * noise * np.sqrt(np.arange(1, ends.size + 1))
        return float(self._below(ends[np.argmax(beyond)])) if beyond.any() else 1.0

    def without_peak(self, counts: Floats, near: float, least: float) -> Floats:
        """Return the counts with those up to ``near`` among the zeros, if an octave has ``least``."""
        close = self._below(np.arange(len(counts)) - 1) < near
        octaves = np.convolve(counts[close][1:], np.ones(self.cells)) if close[1:].any() else np.zeros(1)
        if octaves.max(initial=0.0) < least:
            return counts
        return np.append(counts[close].sum(), np.where(close, 0.0, counts)[1:])

    def on_grid(self, octaves: Floats, last: Ints) -> Floats:
        """Return rows of counts of octaves as counts of this grid, in units of the ends of ``last``."""
        cells = np.arange(_LOWEST, _HIGHEST + 1) + last[:, None]
        inside = (cells >= 0) & (cells < octaves.shape[1])
        return np.where(inside, np.take_along_axis(octaves, np.where(inside, cells, 0), axis=1), 0.0)

    def _below(self, cell: Any) -> Any:
        """Return the largest size in a cell."""
        return np.exp2(cell / self.cells + _LOWEST)

    def standing(self, counts: Floats, noise: float, most: float) -> tuple[Floats, Floats]:
        """Return the counts that stand out of noise, row by row, and the sizes in the middle of their cells.

        Cells are taken together until they keep nearly as much as the widest do. What a wide cell keeps is
        shared among its own as they were counted: what lies at its far end is not taken for its middle.
        """
        found = list(self._wider(counts, noise, most))
        sums = np.stack([kept.sum(axis=-1) for _, _, kept in found])
        narrowest = np.argmax(sums >= NEARLY * sums.max(axis=0), axis=0)
        cells = np.arange(1, found[0][0][-1] + 1)
        seen = np.maximum(counts[..., cells], 0.0)
        shares = np.empty_like(seen)
        for number in np.unique(narrowest):
            (ends, _, kept), own = found[number], narrowest == number
            wide = np.searchsorted(ends, cells)
            whole = np.add.reduceat(seen[own], np.append(0, ends[:-1]), axis=-1)
            shares[own] = kept[own][..., wide] * seen[own] / np.maximum(whole, 1e-300)[..., wide]
        return shares, np.minimum(self._below(cells - 0.5), most)

    def _wider(self, counts: Floats, noise: float, most: float) -> Iterator[tuple[Ints, int, Floats]]:
        """Yield last cells, the number of cells taken together, and counts that noise would not reach."""
        last = math.ceil(self.cells * (min(max(math.log2(most), _LOWEST), _HIGHEST) - _LOWEST))
        below = np.cumsum(counts, axis=-1)
        for width in (w for w in (1, 2, 4, 8, 16) if w <= _WIDEST * self.cells):
            ends = np.arange(max(last, 1), 0, -width)[::-1]
            sized = below[..., ends] - below[..., np.maximum(ends - width, 0)]
            yield ends, width, np.where(sized > sure(ends.size) * math.sqrt(width) * noise, sized, 0.0)


def affine_reach(clip: float, affine: Affine) -> float:
    """Return how large ``c ||scale x|| + c ||scale shift||`` may be where ``c ||z||`` is at most the clip."""
    if affine.offset == 0.0:
        return clip
    return clip * (1 + 2 * affine.offset / math.hypot(affine.floor, affine.intercept))


def fair_weights(loss: Loss, margins: Floats, norms: Floats, clip: float) -> Floats | None:
    """Return the weights at which no label would be clipped; None for a loss that has no law of labels."""
    return np.minimum(1.0, clip / (norms * loss.largest_residual(margins))) if has_odds(loss) else None


def whole_margins(view: MappedRows, w: Point, affine: Affine, longest: float = _LONGEST) -> Floats:
    """Return the margins of mapped rows before the clip of the map; nan where a row is not a number."""
    last = w.at(np.array([w.size - 1]))[0] if isinstance(w, SparseVector) else w[..., -1]
    constant = affine.intercept * last if affine.intercept else 0.0
    return constant + weigh(view.margins(w) - constant, 1.0 / np.maximum(view.factors, 1.0 / longest))


@dataclass(frozen=True)
class AffineGradient(ClippedSum):
    r"""``sum_i clip_C(r_i z_i)`` for the mapped rows ``z_i``, on all coordinates or on a public mask.

    ``params = (w, affine, mask, unit)``; a mask of None means every coordinate. The residual is in units of
    the targets, and so are margins that predict them without a link: counts have their logarithm predicted.

    A clip that looks at the label makes log odds too long: unlikely labels are clipped, likely ones not. With
    ``fair`` a record is first weighed so that no label it might have would be clipped. That weight is a
    function of its row alone, so the gradient keeps its mean zero at the true log odds.

    ``z_i`` is clipped to length 1, and so is its margin. With ``whole`` the margin is that of the row before
    this clip, which a model is asked for later: rows with rare features are long, and a model of their
    shortened selves is another one. Where noise is large, short margins keep the descent steady.
    """

    loss: Loss
    clip: float
    fair: bool = False
    whole: bool = False

    def reach(self, params: Any) -> float:
        r"""Return how large the terms are that are added up for a record: rows and shift apart.

        ``c ||scale x|| + c ||scale shift|| <= c (||z|| + 2 ||scale shift||)`` for a mapped row z, and
        ``c ||z||``, ``c intercept`` and ``c floor`` are at most the clip.
        """
        return affine_reach(self.clip, params[1])

    def evaluate(self, records: AffineViews, params: Any) -> Floats:
        w, affine, mask, unit = params
        view = records.through(affine)
        value = self._in_one_pass(view, w, mask, unit)
        if value is None:
            with np.errstate(over="ignore", invalid="ignore"):  # the clip deals with what is not a number
                margins = whole_margins(view, w, affine, self._longest) if self.whole else view.margins(w)
                residual = weigh(residual_in(self.loss, margins, view.targets, unit), view.weights)
                if self.fair:
                    residual = weigh(residual, fair_weights(self.loss, margins, view.norms, self.clip))
            value = view.weighted_sum(clip_scalars(residual, view.norms, self.clip))
        return value if mask is None else value[mask]

    @property
    def _longest(self) -> float:
        """How many typical rows long a row is at most, as far as its margin goes."""
        whole = _NUMBERS_LONGEST if self.loss.targets == "numbers" else _LONGEST
        return whole if self.whole else 1.0

    def _in_one_pass(self, view: Any, w: Point, mask: Bools | None, unit: float) -> Floats | None:
        """Return the sum where the loss is compiled and the rows can be read once; None elsewhere."""
        kind, one_pass = compiled_form(self.loss), getattr(view, "clipped_gradient", None)
        if kind is None or one_pass is None:
            return None
        constant = mask is not None and not mask[:-1].any()
        pull = Pull(kind[0], self.clip, self.fair, self._longest, unit, kind[1], constant)
        found: Floats = one_pass(w, pull)
        return found


@dataclass(frozen=True)
class ConstantGradient(AffineGradient):
    """The last entry of :class:`AffineGradient`, that of the constant.

    **Privacy.** One number, whose norms are all alike, and no larger than that of the whole gradient.
    """

    norm = Norm.L1

    def evaluate(self, records: AffineViews, params: Any) -> Floats:
        return super().evaluate(records, params)[-1:]


# ------ The second moments of mapped rows: which directions are long, and which columns resemble each other


@dataclass(frozen=True)
class MappedSum(ClippedSum):
    """The sum of the rows through the map ``params``, which clips them to length 1; without a constant entry.

    **Privacy.** A record adds a vector of norm at most 1.
    """

    def contribution(self, params: Any) -> float:
        return 1.0

    def reach(self, params: Any) -> float:
        return affine_reach(1.0, params)

    def evaluate(self, records: AffineViews, params: Affine) -> Floats:
        view = records.through(params)
        own = clip_scalars(np.ones(len(view.norms)), view.norms, 1.0)
        return np.asarray(view.weighted_sum(_weigh(own, view)))


@dataclass(frozen=True)
class MappedGram(ClippedSum):
    r"""``sum_i z_i z_i^T`` for the mapped rows ``z_i`` of the map ``params``, their constant entry last.

    A row counts by its weight, which is clipped to 1.

    **Privacy.** ``||z z^T||_F = ||z||^2 <= 1``: a row is clipped by its map, its square once more. Replacing
    a row moves the sum by ``sqrt(||z||^4 + ||y||^4 - 2 (z . y)^2) <= sqrt 2``.
    """

    def contribution(self, params: Any) -> float:
        return 1.0

    def reach(self, params: Any) -> float:
        return affine_reach(1.0, params) ** 2

    def sensitivity(self, relation: Relation, params: Any) -> float:
        return math.sqrt(relation.contributions)

    def evaluate(self, records: AffineViews, params: Affine) -> Floats:
        view = records.through(params)
        with np.errstate(over="ignore", invalid="ignore"):
            factors = factors_of(view.norms * view.norms, 1.0)
            return with_constant(view, params, _weigh(factors, view))


def _weigh(factors: Floats, view: MappedRows) -> Floats:
    """Return factors of squares times weights of records, of which none counts beyond 1 or below 0."""
    found = view.weights
    return factors if found is None else factors * np.where(found > 0.0, np.minimum(found, 1.0), 0.0)


def with_constant(view: MappedRows, affine: Affine, factors: Floats) -> Floats:
    """Return ``sum_i f_i z_i z_i^T``, the constant entry of the rows last."""
    inner = view.gram(factors)
    if not affine.intercept:
        return inner
    last = affine.intercept * view.weighted_sum(factors)
    out = np.pad(inner, (0, 1))
    out[-1, :], out[:, -1] = last, last
    return out


# So many octaves of sizes are told apart at most.
SHELLS = 16
# How a record is shared between its clipped gradient and the rest of it: the squares add up to 1.
NEAR, FAR = 0.8, 0.6


def shells_of(sizes: Floats, count: int) -> Ints:
    """Return how many times each size can be doubled and stays at most 1, fewer than ``count`` times."""
    found: Ints = np.clip(-np.frexp(sizes)[1], 0, count - 1)
    return found


@dataclass(frozen=True)
class GramShells(OneCount):
    r"""``sum_i a_i 4^s_i (1 - 1 / l_i^2) z_i z_i^T`` for each shell s: what clipped second moments lack.

    ``params = (affine, longest)``: rows that have length ``l_i > 1`` in a map ``longest`` times as large lie
    in the shell ``2^-(s + 1) <= ||z_i|| < 2^-s``. The noise of a shell is in proportion to the squares of its
    own rows, and one in which nothing but noise is seen can be left out. A shell is a row of the answer, with
    the upper half of its matrix. The weight ``a_i`` of a record is clipped to 1.

    **Privacy.** A record adds to one shell a matrix of Frobenius norm ``4^s (1 - 1 / l^2) ||z||^2 <= 1``, and
    no two of them have a negative product: 1 in L2, sqrt 2 when a record is replaced.
    """

    def reach(self, params: Any) -> float:
        return affine_reach(1.0, params[0]) ** 2

    def evaluate(self, records: AffineViews, params: Any) -> Floats:
        affine, longest = params
        view, d = records.through(affine), affine.scale.size
        count = min(max(math.ceil(math.log2(max(longest, 1.0))), 1), SHELLS)
        with np.errstate(all="ignore"):
            norms, sizes = np.asarray(view.norms), np.asarray(view.sizes)
            shell = shells_of(norms, count)
            factors = factors_of(np.square(np.ldexp(norms, shell)), 1.0) * np.exp2(2.0 * shell)
            factors = np.where(
                longest * sizes > 1.0, factors * (1.0 - np.square(1.0 / (longest * sizes))), 0.0
            )
            factors = np.asarray(_weigh(factors, view))
        out = np.zeros((count, d * (d + 1) // 2))
        for s in np.unique(shell[factors > 0.0]):
            out[s] = SymmetricGaussian.vector(view.gram(np.where(shell == s, factors, 0.0)))
        return out


@dataclass(frozen=True)
class GradientShells(ClippedSum):
    r"""``sum_i clip_c(r_i z_i)``, and its rest in shells of ``2^-(s + 1) <= |r_i| ||z_i|| < 2^-s``.

    ``params = (w, affine, unit, cut)``: residuals are in units of the largest possible one, ``c = 2^-cut``.
    Together the answers are the whole gradient, of which nothing below 1 is clipped. The noise of each is in
    proportion to its own size, and a shell in which nothing but noise is seen can be left out. The clipped
    gradient comes last.

    **Privacy.** A record adds ``.8 / c`` times its clipped gradient, of norm at most .8, and to one shell
    ``.6 2^s`` times the rest of it, at most .6: together 1 in L2, and 2 when it is replaced.
    """

    loss: Loss

    def contribution(self, params: Any) -> float:
        return 1.0

    def reach(self, params: Any) -> float:
        return (NEAR + FAR) * affine_reach(1.0, params[1])

    def evaluate(self, records: AffineViews, params: Any) -> Floats:
        w, affine, unit, cut = params
        view, c = records.through(affine), 2.0**-cut
        whole = None if cut else AffineGradient(self.loss, 1.0)._in_one_pass(view, w, None, unit)
        if whole is not None:  # nothing lies beyond the clip
            return NEAR * whole[None]
        with np.errstate(all="ignore"):  # the clip deals with what is not a number
            residual = residual_in(self.loss, view.margins(w), view.targets, unit)
            residual, norms = np.asarray(weigh(residual, view.weights)), np.asarray(view.norms)
            near, sizes = clip_scalars(NEAR / c * residual, norms, NEAR), np.abs(residual) * norms
            beyond = np.flatnonzero(sizes > c) if cut else np.empty(0, dtype=int)
            size = sizes[beyond]
            shell, rest = shells_of(size, max(cut, 1)), residual[beyond] * (1.0 - c / size)
            far = clip_scalars(FAR * np.ldexp(rest, shell), norms[beyond], FAR)
        last = np.asarray(view.weighted_sum(near))
        out = np.vstack([np.zeros((cut, last.size)), last])
        for s in np.unique(shell[far != 0.0]):
            parts = np.zeros_like(near)
            parts[beyond] = np.where(shell == s, far, 0.0)
            out[s] = view.weighted_sum(parts)
        return out


@dataclass(frozen=True)
class MappedCurvature(MappedGram):
    r"""``sum_i min(c_i, 1) z_i z_i^T``: the bend of a loss of counts, or of bounded slope, constant and all.

    ``params = (w, affine, cap)``; w is released. Of counts ``c_i = mu_i / f_i^2 cap``: ``mu_i`` is the count
    that w predicts for a record, and ``f_i`` the factor by which the map shortens its row: a long row counts
    as far as the cap allows. Of numbers ``c_i = cap / f_i max(|r_i|, cap)``: a parabola of this width
    through the loss at the residual ``r_i``, linear beyond ``cap``, lies nowhere below it.

    **Privacy.** The weight of a record is between 0 and 1 and looks at this record alone:
    ``||a z z^T - b y y^T||_F^2 = a^2 ||z||^4 + b^2 ||y||^4 - 2 a b (z . y)^2 <= 2``, as without weights.
    """

    loss: Loss

    def reach(self, params: Any) -> float:
        return super().reach(params[1])

    def evaluate(self, records: AffineViews, params: Any) -> Floats:
        w, affine, cap = params
        view, numbers = records.through(affine), self.loss.targets == "numbers"
        longest = _NUMBERS_LONGEST if numbers else _LONGEST
        with np.errstate(over="ignore", invalid="ignore"):
            margins = whole_margins(view, w, affine, longest)
            if numbers:
                share = 1.0 / np.maximum(np.abs(margins - view.targets / cap), 1.0)
            else:
                share = self.loss.link.mean(margins) / cap
            longer = np.maximum(view.factors, 1.0 / longest) ** (1 if numbers else 2)
            share = weigh(share / longer, view.weights)
            share = np.where(share > 0.0, np.minimum(share, 1.0), 0.0)  # nan is not above 0
            return with_constant(view, affine, factors_of(view.norms * view.norms, 1.0) * share)


# ------- The last question of a linear model: by how much are its margins too long, and how far are they off?


ROOT = math.sqrt(2.0)
_BLOCK = 1 << 14  # records whose vectors stay in the cache


@compile_with_cache(nogil=True, error_model="numpy")
def margin_rows(margins: Any, records: Any, pull: Any, own: Any, point: Any, units: Any, out: Any) -> None:
    """Write gradient and curvature of each record in the slope, and in the offset where there is one.

    ``pull`` are the numbers of the gradient that was followed (:class:`~sordino.kernel.query.Pull`), ``own``
    (start, end, travel), ``point`` (slope, offset), ``units`` (of margins, of curvatures, the constant, the
    clip): all public. A record was followed by half its clipped residual at the start and at the end.
    """
    targets, weights, sizes, norms = records
    margin_unit, bend_unit, constant, bound = units
    n, (start, end, travel) = margins.size, own
    z, values, largest = margins + end, np.full(n, start), np.empty(n)
    clip_residuals(pull, values, largest, targets, weights, norms)
    clip_residuals(pull, z, largest, targets, weights, norms)
    for i in range(n):
        seen = -0.5 * values[i] - 0.5 * z[i]
        s = margins[i] - seen * travel * min(sizes[i], 1.0) * sizes[i]
        z[i], values[i] = s / margin_unit, point[0] * s + point[1]
    write_residuals(pull, values, targets, largest)
    fair, bends = np.ones(n), np.full(n, bend_unit)
    if weights.size:
        fair *= weights
    if pull[0] == LOGISTIC:
        for i in range(n):
            bends[i] *= largest[i] * (1.0 - largest[i])
            square = z[i] * z[i] + constant * constant  # for a weight; the clip takes its own norm
            length = largest[i] * largest[i] * square + bends[i] * bends[i] * square * square
            fair[i] *= min(1.0, bound / math.sqrt(length))
    for i in range(n):
        value, bend = fair[i] * values[i], fair[i] * bends[i]
        out[i, 0] = value * z[i]
        if constant == 0.0:
            out[i, 1] = bend * z[i] * z[i]
        else:
            out[i, 1] = value * constant
            out[i, 2] = bend * z[i] * z[i]
            out[i, 3] = bend * ROOT * z[i] * constant
            out[i, 4] = bend * constant * constant


# Margins of this size count twice as much as the constant; curvatures are made as large as gradients.
_MARGIN = {"signs": 1.5, "labels": 1.5, "numbers": 1.0}
_BEND = {"signs": 4.0, "labels": 2.0, "numbers": 0.5}
_CONSTANT = 0.5
# From this clip on the constant grows with it, up to a factor, and the units of curvatures become smaller:
# a wide clip is for long margins, and should not be noise for the offset.
_NARROW, _LARGEST_FACTOR, _BEND_POWER = 0.8, 32.0, 0.75


@dataclass(frozen=True, eq=False)
class OwnPart:
    """How a record got into the margins: how far its share of a gradient was followed, through which map.

    ``start`` and ``end`` are the offsets before and after the descent, ``clip`` and ``fair`` those of its
    gradient. Records are weighed for a clip ``narrow`` times that of the question and enlarged to fill it.
    All of it is public.
    """

    affine: Affine
    travel: float
    start: Any
    end: Any
    clip: float
    fair: bool
    narrow: float = 1.0


@dataclass(frozen=True)
class MarginFit(ClippedSum):
    r"""The sum of clipped gradients and curvatures of the loss in a slope and an offset of given margins.

    ``params = (w, offset, slope, unit, own)``: the margins are ``slope s_i + offset`` in the unit of the
    targets, with ``s_i = x_i . w`` less the part that the record itself put into it when w was fitted: a
    model is too sure of the records it has seen. Records are weighed by what does not depend on their labels,
    so that no label would be clipped: the root of the gradient is the right slope, however small the clip.

    **Privacy.** A record adds one vector, clipped to the norm ``clip``.

    Parameters
    ----------
    loss : of log odds or of numbers.
    clip : the norm of a record's vector.
    offset : whether the offset is asked for too; of one margin only.
    """

    needs: ClassVar[tuple[type, ...]] = (AffineViews,)

    loss: Loss
    clip: float
    offset: bool

    @property
    def size(self) -> int:
        return 5 if self.offset else 2

    def units(self, narrow: float = 1.0) -> tuple[float, float, float]:
        """Return the units of margins and of curvatures, and the constant of the offset."""
        targets, wide = self.loss.targets, 1.0
        if has_odds(self.loss):
            wide = min(max(1.0, narrow * self.clip / _NARROW), _LARGEST_FACTOR)
        constant = _CONSTANT * wide if self.offset else 0.0
        return _MARGIN[targets], _BEND[targets] / wide**_BEND_POWER, constant

    def evaluate(self, records: Any, params: Any) -> Floats:
        """Return the sum over records: gradients, then curvatures."""
        w, offset, slope, unit, own = params
        with np.errstate(all="ignore"):  # the clip deals with what is not a number
            s = records.within(own.affine.columns).margins(w)
            view = records.through(own.affine)
            if isinstance(s, np.ndarray) and s.ndim == 1 and compiled_form(self.loss) is not None:
                blocks = [slice(i, i + _BLOCK) for i in range(0, s.size, _BLOCK)]
                return sum(
                    (self._in_one_pass((view, records.parts), s, params, rows) for rows in blocks),
                    np.zeros(self.size),
                )
            # what the record itself put into its margin, by its residuals at the start and at the end
            reach = own.travel * np.minimum(view.sizes, 1.0) * view.sizes
            followed = 0.0 * s
            for margins in (followed + own.start, s + own.end):
                residual = weigh(residual_in(self.loss, margins, view.targets, unit), view.weights)
                if own.fair:
                    residual = weigh(residual, fair_weights(self.loss, margins, view.norms, own.clip))
                followed = followed - 0.5 * clip_scalars(residual, view.norms, own.clip)
            s = s - weigh(followed, reach)
            z = s / self.units()[0]
            of = self._of_classes if s.ndim == 2 else self._of_one
            parts = of(z, slope * s + offset, records.targets, unit, own.narrow)
            parts = [weigh(part, records.weights) / own.narrow for part in parts]
            return sum_of_rows(parts, self.clip, records.parts)

    def _in_one_pass(self, seen: Any, s: Floats, params: Any, rows: slice) -> Floats:
        """Return the sum of the clipped vectors of some records; what :meth:`_of_one` does."""
        (_, offset, slope, unit, own), (view, parts) = params, seen
        kind, threshold = compiled_form(self.loss) or (0, 0.0)
        weights = as_weights(view.weights if view.weights is None else view.weights[rows])
        records = (view.targets[rows], weights, view.sizes[rows], view.norms[rows])
        units = (*self.units(own.narrow), own.narrow * self.clip)
        pull = Pull(kind, own.clip, own.fair, unit=unit, threshold=threshold).numbers
        before, point, s = (float(own.start), float(own.end), own.travel), (slope, float(offset)), s[rows]
        out = np.empty((s.size, self.size))
        margin_rows(s, records, pull, before, point, units, out)
        parts = None if parts is None else parts[rows]
        return sum_of_rows(out if own.narrow == 1.0 else out / own.narrow, self.clip, parts)

    def unpack(self, answer: Floats, narrow: float = 1.0) -> tuple[Floats, Floats]:
        """Return gradient and curvature in the slope (and the offset) from an answer."""
        (margin, bend, constant), answer = self.units(narrow), answer * narrow
        if not self.offset:
            return answer[:1] * margin, answer[1:, None] * margin**2 / bend
        units = np.array([margin, 1.0 / constant])
        cross = answer[3] / math.sqrt(2.0)
        curvature = np.array([[answer[2], cross], [cross, answer[4]]])
        return answer[:2] * units, curvature * np.outer(units, units) / bend

    def _of_one(self, z: Floats, margins: Floats, y: Floats, unit: float, narrow: float) -> list[Floats]:
        _, unit_of_bends, constant = self.units(narrow)
        length = joint_norms([np.abs(z), constant])
        residual = residual_in(self.loss, margins, y, unit)
        bend = unit_of_bends * (sigmoid(margins) * sigmoid(-margins) if has_odds(self.loss) else 1.0)
        parts = [residual * z, bend * z * z]
        if self.offset:
            parts = [residual * z, residual * constant, bend * z * z]
            parts += [bend * math.sqrt(2.0) * z * constant, bend * constant**2 + 0.0 * z]
        if not has_odds(self.loss):
            return parts
        fair = self._fair(self.loss.largest_residual(margins) * length, bend * length * length, narrow)
        return [weigh(part, fair) for part in parts]

    def _of_classes(self, z: Floats, margins: Floats, y: Floats, unit: float, narrow: float) -> list[Floats]:
        p: Floats = softmax(margins, axis=1)
        away = z - (p * z).sum(axis=1, keepdims=True)
        bend = self.units(narrow)[1] * (p * np.square(away)).sum(axis=1)
        gradient = (residual_in(self.loss, margins, y, unit) * z).sum(axis=1)
        fair = self._fair(np.abs(away).max(axis=1), bend, narrow)
        return [weigh(part, fair) for part in (gradient, bend)]

    def _fair(self, gradient: Floats, curvature: Floats, narrow: float) -> Floats:
        """Return the weight at which no label would be clipped."""
        return np.minimum(1.0, narrow * self.clip / joint_norms([gradient, curvature]))
