"""Nesterov descent on noisy gradients, with a step that looks at released numbers only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from sordino.kernel import Curator
from sordino.kernel.arrays import Bools, Floats, Ints, compile_with_cache, public_norm
from sordino.problems.affine import Affine
from sordino.problems.problem import Problem
from sordino.problems.queries import CELLS, narrow, sure
from sordino.solvers.base import noise_std

# ----------------------------------------------------------------------------------------------------------
# What released numbers are evidence of: widths of clips, numbers seen with noise, curvature along a step.

# Tails end where so many deviations of noise hide them.
_SURE = 3.0
NOTHING = 1e-300
# So many neighbouring cells show a tail together that drowns among the cells beyond it.
_NEAR = (2, 4, 8)
# How far the slope may be from that of the clipped question before any release.
SLOPE = 0.5
# What is usual of a number may be so much less: two decades of its size.
_UNUSUAL = 1e-4


def chosen_width(
    sizes: Floats,
    shares: Floats,
    noise: float,
    spread: float,
    biased: tuple[float, float],
    near: tuple[int, ...] = (),
) -> tuple[float, float]:
    """Return the width of a clip that weighs its bias against noise, and the bias that is expected of it.

    ``shares`` of the records have these sizes, below and above zero, with this noise; a clip at ``width``
    adds noise of ``spread * width``. The tail beyond a width is what stands out of the noise of its sum, and
    what one side has more of it, and what both have, counts by ``biased``.
    """
    seen = sizes <= _farthest(shares.sum(axis=0), sizes, _SURE * math.sqrt(2.0) * noise, near)
    widths = np.append(sizes[sizes > sizes[-1] * 2.0**-16], 1.2 * sizes[-1])
    beyond = np.where(seen, np.maximum(sizes - widths[:, None], 0.0), 0.0)
    unsure = noise * np.sqrt(2.0 * np.square(beyond).sum(axis=1))
    down, up = (beyond @ side for side in shares)
    more = np.maximum(np.abs(up - down) - _SURE * unsure, 0.0)
    bias = np.hypot(biased[0] * more, biased[1] * np.maximum(up + down - unsure, 0.0))
    best = int(np.argmin(np.hypot(bias, spread * widths)))
    return float(widths[best]), float(bias[best])


def _farthest(shares: Floats, sizes: Floats, least: float, near: tuple[int, ...]) -> float:
    """Return the largest size that stands out: so many neighbours do together, or all from there on."""
    below, found = np.append(0.0, np.cumsum(shares)), 0.0
    first = np.arange(len(sizes))
    for many in (*near, len(sizes)):
        end = np.minimum(first + many, len(sizes))
        stands = below[end] - below[first] > least * np.sqrt(end - first)
        found = max(found, sizes[(end - 1 if many in near else first)[stands]].max(initial=0.0))
    return float(found)


def one_sided(shares: Floats, sizes: Floats) -> Floats:
    """Return the shares by rising size, all of them below zero."""
    rising = shares[np.argsort(sizes)]
    return np.stack([rising, np.zeros_like(rising)])


def believe(seen: float, variance: float, usual: float) -> float:
    """Return what is believed of a number seen with noise: that it is 0, or not, of even odds.

    One that is not 0 has the variance ``usual``, or down to ``_UNUSUAL`` of it: all sizes are as likely.
    """
    sizes = np.append(0.0, np.geomspace(_UNUSUAL * usual, usual, 9))[:, None]
    return seen * float(_shrinkage(np.array([seen]), variance, sizes)[0])


def _shrinkage(seen: Floats, variance: Floats | float, signals: Floats) -> Floats:
    """Return the share of each number seen with noise that is kept, by the laws that may have made them all.

    A row of ``signals`` are the variances of one law; the first law, that they are noise, has even odds.
    """
    law = np.maximum(variance + signals, NOTHING)
    likely = -0.5 * (np.log(law) + np.square(seen) / law).sum(axis=1)
    likely[1:] -= math.log(len(signals) - 1)
    weights = np.exp(likely - likely.max())
    return np.asarray((weights / weights.sum()) @ (signals / law))


def along_axes(
    seen: Floats, w: Floats, bends: Floats, noise: Floats | float, most: float
) -> tuple[Floats, Floats, Floats, tuple[float, float]]:
    """Return the step along each axis, the share of what was seen that is believed, and what stays unsure.

    First the slope, one number whose spread is known; its share and its deviation come last. Then all axes
    alike: there is nothing to correct, or the step adds the same variance to margins, ``most`` or less.
    """
    along = max(float(w @ (bends * w)), NOTHING)
    error, whole = math.sqrt(float(np.square(noise * w).sum())) / along, float(w @ seen) / along
    slope = believe(whole, error**2, SLOPE**2)
    left = seen - slope * bends * w
    variances = np.append(0.0, np.geomspace(1e-10, 1.0, 81) * min(most, 1e2))[:, None]
    kept = _shrinkage(left, noise**2, bends * variances)
    share = slope / whole if whole else 0.0
    return slope * w + kept * left / bends, kept, np.sqrt(kept) * noise / bends, (share, error)


# ----------------------------------------------------------------------------------------------------------
# Units from released numbers: the sizes of rows and targets, the centre of targets, what drowns in noise.

# Rows larger than this share of the records are clipped, at a size that leaves this share of all squares, and
# at most so many times as large as that share has, or as the root of the mean square.
TYPICAL, SQUARES, WIDER = 0.6, 0.25, 2.0
# What a clip takes of long rows counts as a bias by so much of it; noise of so much would drown all others.
LONG, DROWNING = 0.3, 0.1
# Long rows are told from so many deviations of noise on: in a unit that is far too large nothing is learned.
SURELY = 4.0
# Targets that mostly sit at their centre have the size of the others: this share of this quantile.
LARGE, LARGE_SHARE = 0.9, 0.5
# So many neighbouring cells show the centre together, where fewer drown in noise.
NEIGHBOURS = (1, 2, 4, 8)
# So many of the targets of one size are a peak: no octave has as many of a smooth law.
PEAK = 0.5
# This share of the targets is nearer to their mean than all others.
NEAREST = 0.1
# The means of columns have to stand out like the largest of so many at least: three deviations.
_SURELY = 100
# The middle distance of so many means, or more, tells whether they differ: where its square exceeds that of
# noise by this part over the root of their number (2.5 deviations of it).
_TOGETHER, _CHANCE = 16, 6.0
# The interval with the centre is narrowed so often, and further while it is no wider than so many cells.
CENTER_STEPS, _TIGHT = 3, 4
# Targets that counts do not show are expected so many times as far out as the farthest that they show.
BEYOND = 2.0


@dataclass(frozen=True, eq=False)
class TargetUnit:
    """Targets are measured from ``center`` in units of ``size``; ``seen`` says that data set the size.

    ``far`` are shares of the targets at distances from the centre, as far as counts tell them from noise; the
    last may be there, and ``beyond`` of it is beyond the noise of all counts together.
    ``nearest`` is how far those are from their mean that are nearest to it, as of a coin none is.
    ``means`` are released means of classes and their noise, if there are classes.
    """

    center: Any = 0.0
    size: float = 1.0
    seen: bool = True
    far: tuple[Floats, Floats] = (np.zeros(0), np.zeros(0))
    nearest: float = 0.0
    beyond: float = 0.0
    means: tuple[Floats, float] | None = None

    @property
    def mean(self) -> float:
        """The mean distance to the centre, as far as counts tell it."""
        return float(self.far[0] @ self.far[1])

    @property
    def least_mean(self) -> float:
        """The same of the targets that are seen."""
        return float(self.far[0][:-1] @ self.far[1][:-1])

    @property
    def spread(self) -> float:
        """The root of the mean squared distance to the centre."""
        shares, sizes = self.far
        return math.sqrt(float(shares @ np.square(sizes))) or self.size

    @property
    def least_spread(self) -> float:
        """The same of the targets that are surely so far."""
        sure = np.append(self.far[0][:-1], self.beyond)[: self.far[0].size]
        return math.sqrt(float(sure @ np.square(self.far[1]))) or self.size


def target_center(curator: Curator, problem: Problem) -> tuple[float, float, float] | None:
    """Return where most targets lie, the width of the cells that say so, and how far away their mean is.

    Released counts say it. None where no count stands out of its noise. Of more than the usual questions each
    asks in a smaller interval while the middle half of the targets lies in so few cells that their spread is
    not seen; the others ask again where the last did.
    """
    bound, width, mean = problem.target_bound, math.inf, 0.0
    interval, narrows = (-bound, bound), True
    for number in range(curator.plan.releases["center"].times if "center" in curator.plan.releases else 0):
        if narrows:
            asked, counts, noise = interval, np.zeros(CELLS), 0.0
        counts = counts + curator.release("center", asked)
        noise = math.hypot(noise, noise_std(curator, "center"))
        # Later on neighbours would lead from the middle of skewed targets to their peak.
        found = narrow(counts, noise, asked, NEIGHBOURS if math.isinf(width) else NEIGHBOURS[:1])
        narrows = found is not None
        if found is None:
            continue
        if math.isinf(width):
            kept = np.where(counts > sure(CELLS) * noise, counts, 0.0)
            middles = bound * (np.arange(1, 2 * CELLS, 2) / CELLS - 1.0)
            mean = float(kept @ middles / kept.sum()) if kept.any() else 0.5 * sum(found)
        interval, width = found, (asked[1] - asked[0]) / CELLS
        narrows = number + 1 < CENTER_STEPS or interval[1] - interval[0] < (_TIGHT + 0.5) * width
    center = 0.5 * sum(interval)
    return None if math.isinf(width) else (center, width, max(abs(mean - center) - 2.0 * bound / CELLS, 0.0))


def target_unit(
    curator: Curator, problem: Problem, center: float = 0.0, near: float = 0.0, away: float = 0.0
) -> TargetUnit:
    """Return how far targets spread around their centre, from released counts; others have the unit 1.

    Where most targets have one size within ``near``, the precision of the centre, they are at the centre and
    have none: the others set the unit. Their mean is ``away`` from the centre.
    """
    if "targets" not in curator.plan.releases:
        return TargetUnit()
    most = problem.target_bound + abs(center)
    noise, counts = noise_std(curator, "targets"), curator.release("targets", (center, most))
    query: Any = curator.plan.releases["targets"].query
    counts = query.without_peak(counts, near / most, PEAK * problem.population)
    typical, large = (query.quantile(counts, share, noise, 1.0) for share in (TYPICAL, LARGE))
    if typical is None:
        return TargetUnit(0.0, problem.target_bound, False)
    kept, sizes = query.standing(counts, noise, 1.0)
    largest = float(sizes[kept > 0].max(initial=0.0))
    unsure = noise * math.sqrt(1.0 + np.count_nonzero(kept) + np.count_nonzero(counts == 0.0))
    lost = max(0.0, problem.population - float(kept.sum()) - max(float(counts[0]), 0.0) - unsure)
    last = 1 + int(np.flatnonzero(kept).max(initial=-1))  # many that drown are near, in small cells
    beyond = problem.population - float(counts[: last + 1].sum()) - noise * math.sqrt(last + 1.0)
    shares = np.append(kept, lost) / problem.population  # what is lost in noise may lie farther out
    far = shares, most * np.append(sizes, min(BEYOND * largest, 1.0))
    apart = np.abs(np.append(0.0, sizes * 2.0 ** (0.5 / query.cells)) - away / most)  # from the mean
    nearer = np.append(max(1.0 - float(shares[:-1].sum()), 0.0), shares[:-1])[np.argsort(apart)].cumsum()
    nearest = most * float(np.sort(apart)[np.argmax(nearer >= NEAREST * nearer[-1])])
    unit = most * max(typical, LARGE_SHARE * large, float(shares[:-1] @ sizes))
    return TargetUnit(center, unit, True, far, nearest, np.clip(beyond, 0.0, lost) / problem.population)


def row_size(
    curator: Curator,
    name: str,
    affine: Affine,
    radius: float,
    spread: float = math.inf,
    least: float = 0.0,
    quadratic: bool = False,
) -> tuple[float, float]:
    """Return the size that most mapped rows have at most, by a released histogram, or a larger one.

    ``spread`` is the noise that rows of size 1 mean for what is asked of them later: rows are clipped at a
    larger size where the noise of that is less than what the clip takes of the longest rows.
    Where no count stands out of its noise, the size is the largest possible one; it is at least ``least``.
    A loss of labels that is ``quadratic`` in margins is ruined by few long rows: less shows them, and noise
    is the smaller evil.
    The second number says by how much the squares of rows shrink that are clipped to that size.
    """
    query: Any = curator.plan.releases[name].query
    most, noise, counts = affine.longest(radius), noise_std(curator, name), curator.release(name, affine)
    size: float | None = query.quantile(counts, TYPICAL if spread else 1.0, noise, most)
    if size is None:
        return most, 1.0
    kept, sizes = query.standing(counts, noise, most)
    squares = np.square(np.minimum.outer(sizes, sizes)) @ kept
    wide = float(sizes[squares >= SQUARES * squares.max()].min())
    size = max(size, min(wide, WIDER * max(size, 2.0 * least)))
    if 0.0 < spread < math.inf:
        own = 1.0 / max(float(kept.sum()), 1.0)
        shares = one_sided(own * counts[1 : sizes.size + 1], sizes)  # few long rows drown cell by cell
        unsure = (1.0 if quadratic else SURELY / _SURE) * math.sqrt(0.5) * own * noise
        near = _NEAR if quadratic else ()
        chosen = chosen_width(np.sort(sizes), shares, unsure, spread, (0.0, LONG), near)[0]
        chosen *= 2.0 ** (0.5 / query.cells)  # the end of a cell, not its middle
        size = max(size, chosen) if spread * chosen < (1.0 if quadratic else DROWNING) * size else size
    size = min(max(size, least), most)
    clipped = float(kept @ np.square(np.minimum(sizes, size)))
    return size, max(1.0, float(kept @ np.square(sizes)) / clipped) if clipped > 0 else 1.0


def grid_cells(problem: Problem) -> int:
    """Return how finely sizes are counted: as finely as the noise of the counts allows."""
    signal = problem.population * min(problem.epsilon, 4.0)
    return 4 if signal > 4000 else 2 if signal > 1000 else 1


def shrunk(values: Floats, noise: float, count: int) -> Floats:
    """Shrink noisy means towards zero, and to zero what the largest of ``count`` noises would reach."""
    if noise == 0:
        return values
    sure = noise * math.sqrt(2.0 * math.log(max(count, _SURELY)))
    return values * np.maximum(0.0, 1.0 - (sure / np.maximum(np.abs(values), 1e-100)) ** 2)


def column_means(values: Floats, noise: float, count: int, alike: bool = True) -> Floats:
    """Return noisy means of columns, shrunk towards their median as far as that stands out of its own noise.

    Means that drown one by one can be seen together: intensities, counts or grades are all positive. Noise
    that moves rows without entries from zero would make them the typical ones. Where the middle half of the
    means differs by more than noise, all keep what James and Stein's shrinkage leaves of their distance, if
    columns are ``alike``: those of a table are not, and a level that nobody has would get a mean of noise.
    """
    root = math.sqrt(values.size)
    away = values - (middle := shrunk(np.array([np.median(values)]), 1.2533 * noise / root, 1)[0])
    own, square = shrunk(away, noise, count), (1.4826 * float(np.median(np.abs(away)))) ** 2
    if alike and values.size >= _TOGETHER and square > (least := (1.0 + _CHANCE / root) * noise**2):
        own = np.where(np.abs(own) > (kept := 1.0 - least / square) * np.abs(away), own, kept * away)
    return middle + own


def top_mask(w: Floats, count: int, kept: int) -> Bools:
    """Mark the ``count`` largest magnitudes and the last ``kept`` columns."""
    mask = np.zeros(w.shape, dtype=bool)
    free = np.abs(w[..., : w.shape[-1] - kept])
    best = np.argpartition(free.reshape(-1), free.size - count)[free.size - count :]
    inner = np.zeros(free.size, dtype=bool)
    inner[best] = True
    mask[..., : w.shape[-1] - kept] = inner.reshape(free.shape)
    mask[..., w.shape[-1] - kept :] = True
    return mask


# ------------- Lengths in which all directions are alike: a metric from released second moments of the rows

# So many records times epsilon for a coefficient leave room to clip all labels alike, and margins not at all.
ROOM = 20.0
# Second moments are asked of so many columns at most, with so many records times epsilon for their root.
COLUMNS, SURE = 256, 100.0
# A column with less than so many deviations of noise in its second moment, and less than this part of the
# mean of all, may be one that no record has.
EMPTY = 2.0, 0.25
# A direction with less than so many rows in it is not hurried: of numbers, of labels (which say less), and
# where there is no noise. Beyond so much epsilon fewer rows are enough.
SEEN_NUMBERS, SEEN_LABELS, SEEN_PLAIN, SEEN_BY = 10.0, 200.0, 0.01, 10.0
# The share of a class may be off by this factor where log odds of two are quickened by it.
_QUICK = 1.25
# Margins of a rare class may have so much noise when it is hurried.
_HURRIED = 0.25
# Without noise a direction with less than this part of the largest is rounding: no step should follow it.
ROUNDED = 1e-9


@dataclass(frozen=True, eq=False)
class Metric:
    r"""Steps along ``P g``, with ``P = V diag(p) V^T`` about the inverse of the second moments of rows.

    ``sizes`` are the released second moments along the axes, the rows of ``axes``, and ``expected`` what is
    expected of them at least; ``pace`` is p, and ``bend`` the largest second derivative of the loss. p is
    scaled such that steps add as much noise to a margin as without a metric: ``sum p^2 s = sum s``. Noise
    tilts axes by ``tilt``, the deviation of an entry of the moments over their size, those that it hides
    aside. No record may have the columns that are ``empty``. A class is hurried by its entry of ``rates``.
    """

    axes: Floats
    sizes: Floats
    expected: Floats
    pace: Floats
    bend: float
    tilt: Floats
    empty: Bools
    rates: Floats = field(default_factory=lambda: np.ones(()))

    def __call__(self, gradient: Floats) -> Floats:
        """Return ``P g``, for each row of several."""
        return self.rates * ((gradient @ self.axes.T) * self.pace) @ self.axes

    def squared(self, moved: Floats) -> float:
        """Return ``v^T P^-1 v``."""
        return float((np.square(moved @ self.axes.T) / (self.rates * self.pace)).sum())

    def slow_classes(self, moved: Floats, changed: Floats, spurious: float) -> Metric:
        """Return the metric that hurries no class along which gradients changed more than it has room for.

        A rare class bends log odds as little as its share says only where that share is alike everywhere.
        """
        length = (np.square(moved @ self.axes.T) / (self.rates * self.pace)).sum(axis=1, keepdims=True)
        noise = spurious * self.pace.mean() * self.rates / len(moved)
        along = (moved * changed).sum(axis=1, keepdims=True) - noise
        over = np.maximum(self.longest * along / np.maximum(length, NOTHING), 1.0)
        return replace(self, rates=np.maximum(self.rates / over, 1.0))

    @cached_property
    def noise(self) -> float:
        """How much isotropic noise has along its own step, in units of a step without a metric."""
        return float(self.pace.mean() * self.rates.mean())

    @property
    def own(self) -> float:
        """How much a row's gradient moves its own margin, in units of a step without a metric."""
        return float((self.pace * self.sizes).sum() / max(self.sizes.sum(), 1e-300))

    @cached_property
    def longest(self) -> float:
        """The longest step that overshoots in no direction."""
        return 1.0 / (self.bend * float((self.pace * self.sizes).max()))

    def quicken(self, share: float, constant: float) -> Metric:
        """Return the metric of log odds of two classes, one of which has this share.

        Their second derivatives p (1 - p) are at most share (1 - share) in the mean over records, by Jensen's
        inequality, and mapped rows have at most length 1 beside the constant: few columns bend less than .25.
        """
        paces = self.axes.T * self.pace @ self.axes
        rows = np.linalg.eigvalsh(paces[:-1, :-1])[-1] + 2.0 * constant * public_norm(paces[:-1, -1])
        bend = _QUICK * share * (1.0 - share) * float(rows + constant**2 * paces[-1, -1])
        return replace(self, bend=min(self.bend, bend / max(float((self.pace * self.sizes).max()), NOTHING)))

    def columns(self, deviations: Floats) -> Floats:
        """Return the deviations of coordinates, from independent ones along the axes."""
        return np.sqrt(np.square(deviations) @ np.square(self.axes))


@dataclass(frozen=True, eq=False)
class Moments:
    """Released second moments of mapped rows with their constant entry, and what is unsure of them.

    ``unsure`` is about a direction that the moments themselves choose, ``noise`` about one chosen before;
    whole rows have about ``stretch`` times the moments of these, which are clipped. Columns that few records
    have are of the mean sizes ``rare``, all others of infinite ones.
    """

    matrix: Floats
    unsure: float
    noise: float
    stretch: float = 1.0
    rare: Floats | None = None

    @classmethod
    def of(cls, released: Floats, noise: float, seen: float, population: int, constant: float) -> Moments:
        """Return the moments of a released sum, with symmetric noise of this deviation.

        A direction is sure beyond the spectral norm of the noise and the part that ``seen`` rows have in it.
        Of the means of the columns, beside the ``constant``, only what noise would not cause is kept.
        """
        unsure = noise * math.sqrt(2.0 * len(released)) + seen
        matrix = released / population
        if constant:
            cross = released[-1, :-1]
            kept = max(0.0, 1.0 - 0.5 * cross.size * noise**2 / max(float(cross @ cross), NOTHING))
            matrix[-1, :] = matrix[:, -1] = np.append(kept * matrix[-1, :-1], constant**2)
        return cls(matrix, unsure / population, noise / population)

    @property
    def deviations(self) -> Floats:
        """How far the margin moves with each weight, as far as released moments tell columns apart.

        Where noise hides that all moments count as alike: single ones would choose columns by chance.
        """
        own = np.diag(self.matrix)
        away = own - own.mean()
        told = 1.0 - self.noise**2 / max(float(np.square(away).mean()), NOTHING)
        return np.sqrt(np.maximum(own.mean() + max(told, 0.0) * away, 0.0))

    def narrow(self, kept: Bools) -> Moments:
        """Return the moments of some coordinates."""
        rare = None if self.rare is None else self.rare[kept[: self.rare.size]]
        return replace(self, matrix=self.matrix[np.ix_(kept, kept)], rare=rare)

    def resize(self, factor: float, features: int) -> Moments:
        """Return the moments of rows times ``factor``, the constant left as it is."""
        factors = np.where(np.arange(len(self.matrix)) < features, factor, 1.0)
        matrix = self.matrix * np.outer(factors, factors)
        return replace(self, matrix=matrix, unsure=self.unsure * factor**2, noise=self.noise * factor**2)

    def metric(self, opened: Bools | None, bend: float, penalty: Floats | float = 0.0) -> Metric:
        """Return the metric on the open coordinates, for a loss with a penalty of this second derivative."""
        kept = np.arange(len(self.matrix)) if opened is None else np.flatnonzero(opened)
        bent = (self.matrix + penalty / bend)[np.ix_(kept, kept)]
        sizes, vectors = np.linalg.eigh(bent)
        axes = np.zeros((len(kept), len(self.matrix)))
        axes[:, kept] = vectors.T
        hidden = sizes < self.unsure
        expected = self._expected(sizes)
        largest = max(float(sizes.max(initial=0.0)), 1e-12)
        # Below zero is noise; a pace by it would have no bound.
        seen = np.where(np.abs(sizes) < ROUNDED * largest, 1e6 * largest, np.maximum(sizes, 0.0))
        pace = 1.0 / (seen + self.unsure)
        sizes = np.maximum(sizes, 1e-12 * largest)
        pace *= math.sqrt(sizes.sum() / (np.square(pace) * sizes).sum())
        tilt = np.where(hidden, 0.0, math.sqrt(0.5) * self.noise / sizes)
        own = np.diag(self.matrix)
        # no record may have some columns: a weight there follows noise all the way
        empty = own < min(EMPTY[0] * self.noise, EMPTY[1] * float(own.mean()))
        return Metric(axes, sizes, expected, pace, bend, tilt, empty)

    def _expected(self, sizes: Floats) -> Floats:
        """Return what is expected at least along axes with these moments.

        Noise spreads the moments of a matrix even if all directions are alike. As far as they spread more,
        they differ; what is not known of an axis then is taken off, as noise grows where there is no moment.
        """
        count = max(len(sizes), 1)
        mean = float(sizes.sum()) / count
        spread = float(np.square(sizes - mean).sum()) / count
        differ = max(spread - 0.5 * count * self.noise**2, 0.0)
        share = differ / max(spread, 1e-300)
        return np.maximum(mean + share * (sizes - mean) - math.sqrt(differ * (1.0 - share)), 0.0)


def has_metric(problem: Problem) -> bool:
    """Return whether second moments are worth their share: few columns, many records.

    Their spectral noise is about ``root d / (n epsilon)`` in units of the largest possible direction.
    """
    d, signal = problem.features, problem.population * problem.epsilon
    room = problem.population * min(problem.epsilon, 1.0) >= ROOM * d * problem.outputs
    return math.isfinite(problem.bend) and d <= COLUMNS and room and signal >= SURE * math.sqrt(d)


def second_moments(
    curator: Curator, problem: Problem, affine: Affine, stretch: float, rare: Floats | None
) -> Moments | None:
    """Return the released second moments of the mapped rows, where they were planned."""
    if "second" not in curator.plan.releases:
        return None
    seen = SEEN_NUMBERS if problem.loss.targets == "numbers" else SEEN_LABELS
    seen = max(seen * min(1.0, SEEN_BY / problem.epsilon), SEEN_PLAIN)
    noise, n = noise_std(curator, "second"), problem.population
    moments = Moments.of(curator.release("second", affine), noise, seen, n, affine.intercept)
    return replace(moments, stretch=stretch, rare=rare)


def class_rates(shares: Floats, noise: Noise, told: float, most: float) -> Floats:
    """Return how many times faster the log odds of each class may go: those of a rare one bend less.

    Noise enters by the same factor: ``most`` is what it allows in any case, and the whole factor where the
    mean of the last points has margins with less noise than ``_HURRIED`` for it. A record tells ``told`` of
    what it would without a clip, times the root of the number of points.
    """
    bends = shares * (1.0 - shares)
    whole = bends.max() / np.maximum(bends, NOTHING)
    unsure = noise.std * (noise.coordinates / shares.size) / np.maximum(bends * told, NOTHING)
    allowed = np.maximum(most, whole * np.square(np.minimum(1.0, _HURRIED / np.maximum(unsure, NOTHING))))
    return np.clip(whole, 1.0, np.maximum(allowed, 1.0))[:, None]


def penalty_bend(problem: Problem, affine: Affine) -> Floats | float:
    """Return a bound on the second derivative of the penalties in mapped weights."""
    if not problem.penalties:
        return 0.0
    along = np.square(affine.scale)  # the intercept is not penalised
    along[list(problem.free)] = 0.0
    return problem.penalty_curvature * np.diag(np.append(along, 0.0) if affine.intercept else along)


MOMENTUM, STEADY = 0.9, 0.7
FIRST_STEP = 4.0


@dataclass(frozen=True)
class Noise:
    """The public standard deviation of each coordinate of a released mean gradient."""

    std: float
    coordinates: int

    @property
    def energy(self) -> float:
        """The expected squared norm of the noise."""
        return self.std**2 * self.coordinates


@dataclass
class NoisyDescent:
    r"""Nesterov steps of size at most ``step`` on noisy gradients, in a ``metric`` or without one.

    The step doubles from a safe one up to ``step``, and is cut to one over the largest curvature seen
    between two released gradients. Both points carry the noise of the earlier gradient, which looks like
    curvature; its expectation is known and subtracted. ``penalty`` returns a gradient that is free.

    In a metric no direction is slow: less momentum does, the safe step is known, and the last half of the
    points, whose noises differ, is averaged.
    """

    gradient: Callable[[Floats], Floats]
    step: float
    noise: Noise
    penalty: Callable[[Floats], Floats] | None = None
    metric: Metric | None = None
    taken: list[float] = field(default_factory=list)

    @property
    def momentum(self) -> float:
        """How much of a step the next one keeps."""
        return momentum_in(self.metric)

    def path(self, start: Floats, steps: int) -> Iterator[Floats]:
        """Yield the iterates, in a metric the means of those behind the middle."""
        mean = np.zeros_like(start)
        for t, w in enumerate(self._points(start, steps)):
            late = t - steps // 2
            if self.metric is not None and late >= 0:
                mean = mean + (w - mean) / (late + 1)
                yield mean
            else:
                yield w

    def _points(self, start: Floats, steps: int) -> Iterator[Floats]:
        w, velocity, earlier, curvature = start, np.zeros_like(start), None, 0.0
        for t in range(steps):
            ahead = w + self.momentum * velocity
            g = self.gradient(ahead)
            if self.penalty is not None:
                g = g + self.penalty(ahead)
            if earlier is not None:
                curvature = max(curvature, self._curvature((ahead, g), earlier, self.taken[-1]))
            earlier = (ahead, g)
            safe = FIRST_STEP * 2.0 ** min(t, 1000) if self.metric is None else self.metric.longest
            h = min(self.step, safe, 1.0 / curvature if curvature > 0 else math.inf)
            self.taken.append(h)
            velocity *= self.momentum
            velocity -= h * (g if self.metric is None else self.metric(g))
            w = w + velocity
            yield w

    def _curvature(self, later: tuple[Floats, Floats], earlier: tuple[Floats, Floats], step: float) -> float:
        spurious = step * (1 + self.momentum) * self.noise.energy
        length, along = _changes(*later, *earlier)
        if self.metric is not None:
            if np.ndim(self.metric.rates):
                moved, changed = later[0] - earlier[0], later[1] - earlier[1]
                self.metric = self.metric.slow_classes(moved, changed, spurious)
            length, spurious = self.metric.squared(later[0] - earlier[0]), spurious * self.metric.noise
        return (along - spurious) / length if length > 0 else 0.0

    def spread(self, curvature: Floats, before: Floats) -> Floats:
        """Return the standard deviation of the noise in coordinates of the last point.

        ``before`` is that of the first point; with a metric, coordinates are those along its axes. Each step
        adds noise and, where there is curvature, takes some of the earlier noise back: the covariance of
        point, velocity and mean follows.
        """
        shape = np.shape(before)
        pace = np.ones(shape) if self.metric is None else np.broadcast_to(self.metric.pace, shape)
        bends = np.ascontiguousarray(pace * curvature).reshape(-1)
        stds = np.ascontiguousarray(pace * self.noise.std).reshape(-1)
        law = _follow_variance(
            np.square(before).reshape(-1), bends, np.square(stds), np.array(self.taken), self.momentum
        )
        return np.sqrt(np.maximum(law[0 if self.metric is None else 1], 0.0)).reshape(shape)

    @property
    def travel(self) -> float:
        """How far a constant gradient of norm one would have been followed."""
        left = len(self.taken) - np.arange(len(self.taken))
        total = float((np.array(self.taken) * (1 - self.momentum**left)).sum() / (1 - self.momentum))
        return total if self.metric is None else 0.75 * total * self.metric.own


@compile_with_cache(fastmath={"reassoc", "contract", "nsz"})
def _changes(w: Floats, g: Floats, w_before: Floats, g_before: Floats) -> tuple[float, float]:
    """Return the squared length of a move, and its product with that of the gradients."""
    a, b, c, d = w.ravel(), g.ravel(), w_before.ravel(), g_before.ravel()
    length = along = 0.0
    for j in range(a.size):
        moved = a[j] - c[j]
        length += moved * moved
        along += moved * (b[j] - d[j])
    return length, along


@compile_with_cache()
def _follow_variance(
    before: Floats, bends: Floats, entering: Floats, taken: Floats, momentum: float
) -> tuple[Floats, Floats]:
    """Return the variances of each coordinate of the last point, and of the mean of the last half of them.

    ``before`` is that of the first point, ``entering`` what a step of length one adds. A step of length h is
    ``velocity' = momentum (1 - b) velocity - b point + noise``, ``point' = point + velocity'`` with
    ``b = min(h bend, 1)``; the covariances of point p, velocity v and mean m follow.
    """
    n, middle = before.size, taken.size // 2
    pp, pv, vv = before.copy(), np.zeros(n), np.zeros(n)
    pm, vm, mm = np.zeros(n), np.zeros(n), np.zeros(n)
    for t in range(taken.size):
        share = 1.0 / (t - middle + 1) if t >= middle else 1.0
        for j in range(n):
            bent = min(taken[t] * bends[j], 1.0)
            kept = momentum * (1.0 - bent)
            point, mean = kept * pv[j] - bent * pp[j], kept * vm[j] - bent * pm[j]  # with velocity'
            vv[j] = kept * (kept * vv[j] - bent * pv[j]) - bent * point + taken[t] * taken[t] * entering[j]
            moved = pm[j] + mean  # point' with the mean so far
            pp[j] += 2.0 * point + vv[j]
            pv[j] = point + vv[j]
            mm[j] = (1.0 - share) * ((1.0 - share) * mm[j] + 2.0 * share * moved) + share * share * pp[j]
            pm[j] = (1.0 - share) * moved + share * pp[j]
            vm[j] = (1.0 - share) * mean + share * pv[j]
    return pp, mm


def momentum_in(metric: Metric | None) -> float:
    """Return the momentum of steps in a metric, or without one."""
    return MOMENTUM if metric is None else STEADY


def noise_limited_step(budget: float, steps: int, noise: Noise, momentum: float, limit: float = 1e4) -> float:
    """Return the step at which the noise of the last margin has about the std ``budget``.

    ``steps`` Nesterov steps of size h add up noise of about ``h sqrt(steps) std / (1 - momentum)`` in each
    coordinate, and rows have norm at most one.
    """
    if noise.std == 0:
        return limit
    return min(limit, budget * (1 - momentum) / (math.sqrt(steps) * noise.std))


def spread_over_mask(gradient: Callable[[Any], Floats], mask: Bools) -> Callable[[Floats], Floats]:
    """Spread a gradient that was released on a mask over the full shape."""

    def full(w: Floats) -> Floats:
        out = np.zeros(mask.shape)
        out[mask] = gradient(w)
        return out

    return full


# ----------------- What descents leave in coefficients: how far gradients were followed, and how much noise

# Mapped rows have about this mean squared norm. A coordinate that others resemble is bent less than its own
# column says: its curvature counts by this share.
_ENERGY, _ALONE = 0.8, 0.25


@dataclass(frozen=True, eq=False)
class Leg:
    """A finished descent: the scales of its columns, the coordinates that were open, all columns' energy.

    ``places`` are the columns that are left of those it had; None stands for all.
    """

    descent: NoisyDescent
    scale: Floats
    mask: Bools | None
    energy: float
    places: Ints | None = None

    @classmethod
    def of(cls, descent: NoisyDescent, affine: Affine, mask: Bools | None, features: int) -> Leg:
        """Return the leg of a descent on the mapped columns, of which there are so many."""
        rest = 0.0 if affine.rest is None else (features - affine.scale.size) * affine.rest**-0.5
        return cls(descent, affine.scale, mask, float(_shares(affine.scale).sum()) + rest)

    def narrow(self, kept: Bools) -> Leg:
        """Return what is known of some of the columns, the intercept among them."""
        mask = None if self.mask is None else self.mask[..., kept]
        columns = kept[: self.scale.size]
        places = np.arange(self.scale.size) if self.places is None else self.places
        return replace(self, scale=self.scale[columns], mask=mask, places=places[columns])

    def open(self, shape: tuple[int, ...]) -> Bools:
        """Return which coefficients, intercepts left out, were open."""
        return np.ones(shape, dtype=bool) if self.mask is None else self.mask[..., : shape[-1]]

    def resize(self, later: Leg) -> float:
        """Return by how much weights grew when the columns of a later leg were scaled anew."""
        kept = later.scale > 0
        return float(self.scale[kept][0] / later.scale[kept][0])


def _shares(scale: Floats) -> Floats:
    return np.where(scale > 0, np.maximum(scale, 1e-300) ** -0.5, 0.0)


def travel_length(legs: Sequence[Leg]) -> float:
    """Return how far a constant gradient would have been followed, in units of the last leg."""
    total = legs[0].descent.travel
    for before, leg in pairwise(legs):
        total = total * before.resize(leg) ** 2 + leg.descent.travel
    return total


def coefficient_noise(
    legs: Sequence[Leg], bend: float, shape: tuple[int, ...], after: Floats | None
) -> Floats:
    """Return the standard deviation of the noise in each mapped weight of the last leg.

    ``bend`` is the mean second derivative of the loss. Columns share the curvature by the size that their
    scales give away: divided by a power of their mean absolute value, they keep the rest of it. In a metric
    the curvature along its axes is known. ``after`` is what the last weights were multiplied by.
    """
    noise = np.zeros(shape)
    for i, leg in enumerate(legs):
        before = noise * legs[i - 1].resize(leg) if i else noise
        noise = np.where(leg.open(shape), _spread(leg, bend, before, after), 0.0)
    metric = legs[-1].descent.metric
    return noise * (1.0 if metric is None else metric.rates)


def noise_factor(legs: Sequence[Leg], bend: float, after: Floats | None) -> Floats | None:
    """Return F of the covariance ``F F^T`` of the noise in mapped weights; None where a metric is not known.

    Noise of columns that resemble each other cancels in what they add up to, which one deviation for each
    column does not tell.
    """
    leg = legs[0]
    if len(legs) > 1 or leg.descent.metric is None:
        return None
    parts = _parts(leg.descent, leg.descent.metric, bend, 0.0)
    return parts if after is None else after @ parts


def _spread(leg: Leg, bend: float, before: Floats, after: Floats | None) -> Floats:
    """Return the noise of the mapped coefficients after a leg."""
    metric = leg.descent.metric
    if metric is not None:  # earlier noise is taken as alike along all axes
        start = math.sqrt(float(np.square(before).mean()))
        parts = _parts(leg.descent, metric, bend, start)
        found = np.linalg.norm(parts if after is None or leg.places is not None else after @ parts, axis=1)
        places = np.arange(before.shape[-1]) if leg.places is None else leg.places
        return np.broadcast_to(found[places], before.shape)
    share = _shares(leg.scale) / max(leg.energy, 1e-300)
    curvature = np.broadcast_to(_ALONE * bend * _ENERGY * share, before.shape)
    return leg.descent.spread(curvature, before)


def _parts(descent: NoisyDescent, metric: Metric, bend: float, start: float) -> Floats:
    """Return the noise of each column along each axis after a descent from noise alike along all of them."""
    return spread_along(metric, lambda sizes: descent.spread(bend * sizes, np.full(len(sizes), start)))


def spread_along(metric: Metric, noise_at: Callable[[Floats], Floats]) -> Floats:
    """Return the noise of each column along each axis, of steps that leave so much at these moments.

    Nothing bends columns that no record has. Noise along axes of little curvature is in the others too, as
    far as these are tilted.
    """
    variances = np.square(noise_at(metric.expected))
    along = np.sqrt(variances + np.square(metric.tilt) * float(variances.sum()))
    free = metric.columns(noise_at(np.zeros_like(along)))
    more = np.where(metric.empty, free / np.maximum(metric.columns(along), 1e-300), 1.0)
    return more[:, None] * metric.axes.T * along
