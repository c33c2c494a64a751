"""The default: find good coordinates, descend with momentum, threshold late, polish on the support."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import softmax

from sordino.kernel import Curator, Full, Laplace, Norm, Plan, Release, SparseVector, SymmetricGaussian
from sordino.kernel.arrays import Bools, Floats, Ints, public_norm
from sordino.problems.affine import Affine, AffineGradient, ColumnMoments, MappedGram, MappedSum, SizeCounts
from sordino.problems.losses import Huber, QuantileLoss, has_labels, has_length, has_odds, has_shares, sigmoid
from sordino.problems.problem import Problem
from sordino.problems.queries import ClassSums, TargetCounts, TotalWeight, sure
from sordino.problems.scales import BINS, LOWEST, ColumnUnits
from sordino.solvers.base import STEPS, Capabilities, NoisyCoefficients, Options, Solver, noise_std
from sordino.solvers.correction import (
    Corrected,
    Whole,
    asks_gradient,
    constant_margin,
    correct,
    correction_queries,
    is_few,
    locate,
    skewed_unit,
    sum_up,
    weight_noise,
    with_weight,
)
from sordino.solvers.dense import Gd
from sordino.solvers.descent import (
    CENTER_STEPS,
    ROOM,
    Leg,
    Moments,
    Noise,
    NoisyDescent,
    TargetUnit,
    class_rates,
    column_means,
    grid_cells,
    has_metric,
    momentum_in,
    noise_factor,
    noise_limited_step,
    penalty_bend,
    row_size,
    second_moments,
    shrunk,
    spread_over_mask,
    top_mask,
)
from sordino.solvers.length import (
    Descended,
    class_share,
    constant_odds,
    constant_weights,
    hidden_rows,
    learnable,
    length_query,
    length_share,
    length_steps,
    lengthen,
    opened_gradient,
)
from sordino.solvers.quantiles import bends, huber_steps, rank_queries, rank_steps, tells_ranks, with_squares
from sordino.solvers.steps import as_sparse, hard_threshold

# ---------------------------------------------------------------------- Maps of columns from released numbers

INTERCEPT = 0.25
COLUMN_POWER = 0.4
# A line whose mean leaves less variance than this to it is not lengthened any further.
LEAST_ROOM = 1e-4
# Shares of the budget: of the moments, of the counts of sizes before and after they are centred.
MOMENTS, UNITS = 0.05, 0.04
# So many records times epsilon, for the root of the number of columns, show how large each of them is; labels
# and numbers of records need them for each column (Adult, n = 8,000: .848 for .853).
_SHOWN = 400.0
# Rows are added up that are clipped at so many times their usual length, and at more by this power of how
# much is shown: a clip of rows draws the mean of a far column nearer by many of its deviations.
_LONG, _LONGER = 1.5, 0.125
# Rows are no smaller than this part of the root of their mean square.
_LEAST = 0.5
# A column has a size around its mean where this share of its entries is not zero, unless one octave
# has this share of all that are shown, so many times nearer to the mean than the column is long.
_FULL, _PEAK, _NEARER = 0.5, 0.99, 8.0
# All that clips may have taken from the mean may be of one column that so few records have: two deviations.
_FEW, _DEVIATION = 0.02, 0.5
# Entries have about their largest octave or so many below it.
_TAIL = 12
# A column so many octaves below its largest possible entry is counted from its own largest octave on.
_DEEP = 20
# A column that counts do not show is taken to have this part of the entries that noise could hide.
_DROWNED = 0.03
_SIZES = SizeCounts("rows")


def has_units(problem: Problem) -> bool:
    """Return whether the sizes of columns are counted one by one: few columns of many records times epsilon.

    Sums of columns in one unit, that of the longest, tell nothing of columns that are a thousand times
    smaller. A histogram of sizes needs no unit. Lines, hats and products of a table have the sizes that its
    encoder gave them on purpose, so that pairs are followed after curves: a unit for each would undo that.
    """
    signal = problem.population * min(problem.epsilon, 4.0)
    few = has_metric(problem) or problem.loss.targets == "counts"
    numbers = problem.loss.targets == "numbers" and problem.unit == "record"
    power = 1.0 if numbers or has_odds(problem.loss) else 0.5
    return few and not problem.table and signal >= _SHOWN * problem.features**power


def map_queries(problem: Problem, units: bool) -> dict[str, tuple[Any, int, float]]:
    """Return the questions about columns, with how often they are asked and their shares."""
    if not units:
        return {"moments": (ColumnMoments(problem.data_norm), 1, MOMENTS)}
    times = 1 if problem.sparse else 2
    return {
        "units": (ColumnUnits(problem.features), times, UNITS),
        "moments": (MappedSum(), 1, MOMENTS - UNITS / 2),
    }


def map_of(
    problem: Problem,
    moments: tuple[Floats, Floats],
    noise: float,
    columns: Ints | None = None,
    listed: float = 0.0,
) -> Affine:
    """Return the map by the released means of columns and of their sizes, with this noise."""
    radius, (first, second) = problem.data_norm, moments
    if columns is None:
        mean = column_means(first, noise, problem.features, alike=not problem.table)
    else:
        mean = shrunk(first, noise, problem.features)  # the largest of all have no middle
    mean = mean * radius if problem.intercept else np.zeros(first.size)
    least = max(2.0 * noise, listed, 1e-12)
    scale = np.maximum(second, least) ** -COLUMN_POWER
    largest = scale.max() if columns is None else least**-COLUMN_POWER
    rest = None if columns is None else 1.0 / radius
    return Affine(mean, scale / (largest * radius), INTERCEPT if problem.intercept else 0.0, columns, rest)


def lengthen_lines(problem: Problem, affine: Affine, noise: float) -> Affine:
    """Return the map with lines over the largest deviation that their released means leave them.

    Where numbers fill little of their bounds their line hardly moves, and hats beside it would share its
    slope, which ends where their cell does: few records lie beyond it, and nothing is learned of their hats.
    """
    scale, lines = affine.scale.copy(), list(problem.lines)
    least = min(max(8.0 * noise, LEAST_ROOM), 1.0)
    scale[lines] /= np.sqrt(np.clip(1.0 - np.square(affine.shift[lines]), least, 1.0))
    return replace(affine, scale=scale * (affine.scale.max() / scale.max()))


def column_map(curator: Curator, problem: Problem) -> tuple[Affine, float, Floats | None]:
    """Return the map of all columns, and the least size of a row: a part of the root of the mean square.

    Where most entries of all columns are zero most rows are alike, and rows that tell something are longer.
    Last come the mean sizes of columns that few records have, infinite for others, where they are counted.

    **Privacy.** Post-processing of the releases ``"moments"`` and, where they were planned, ``"units"``.
    """
    n, d = problem.population, problem.features
    if "units" not in curator.plan.releases:
        released, noise = curator.release("moments") / n, noise_std(curator, "moments") / n
        found = map_of(problem, (released[:d], released[d:]), noise)
        return lengthen_lines(problem, found, noise * problem.data_norm), 0.0, None
    units, sizes, shown = _column_units(curator, problem, None)
    flat = Affine(np.zeros(d), 1.0 / units, 0.0)
    hidden = sure(d) * noise_std(curator, "units") / n  # so many entries may be there where counts show none
    longer = (
        max(n * problem.epsilon / (_SHOWN * d), 1.0) ** _LONGER if math.isfinite(problem.epsilon) else 1e3
    )
    usual = _LONG * longer * math.sqrt(max(float(sizes[1].sum()), min(hidden, 1.0)))
    own = usual / n
    rare = np.where(shown[0] < _FEW, np.maximum(sizes[0], hidden) * units, math.inf)
    means = curator.release("moments", flat.resize(1.0 / usual)) * own if problem.intercept else np.zeros(d)
    means = units * shrunk(means, noise_std(curator, "moments") * own, d)
    if curator.plan.releases["units"].times > 1:
        closer, nearer, (seen, peak) = _column_units(curator, problem, means, units)
        # Of the others most entries are zero, or one number: their distance to a mean is no size.
        full = (shown[0] > _FULL) & ((peak < _PEAK * seen) | (_NEARER * closer > units))
        units, sizes = np.where(full, closer, units), np.where(full, nearer, sizes)
    scale = np.maximum(sizes[0], max(_DROWNED * hidden, 1.0 / n)) ** -COLUMN_POWER
    found = Affine(means, scale / (scale.max() * units), INTERCEPT if problem.intercept else 0.0)
    parts = np.square(found.scale * units)
    unseen = parts * np.maximum(sizes[1], min(hidden, 1.0))  # of one column at least
    return found, _LEAST * math.sqrt(max(float(parts @ sizes[1]), float(unseen.min()))), rare


def _column_units(
    curator: Curator, problem: Problem, center: Floats | None, before: Floats | float = 0.0
) -> tuple[Floats, Floats, Floats]:
    """Return the unit of each column around a centre; in it the mean size and square; the shares shown.

    The shares are of all entries that are shown, and of the octave with most of them. The unit is the mean
    size of entries, weighted by their size: it does not know how many are zero. A column that counts do not
    show has the largest possible one: nothing of it should be followed. What counts lack around a centre lies
    as far out as the units ``before`` say: the few entries that a centre is far from.
    """
    n, d = problem.population, problem.features
    most = problem.data_norm if center is None else problem.data_norm + np.abs(center)
    noise, octave = noise_std(curator, "units"), np.ceil(np.log2(np.broadcast_to(most, d))).astype(int)
    counts, many = np.asarray(curator.release("units", center)), sure(d * BINS) / sure(BINS)
    # The grid of a column ends at its largest possible entry, or at its largest octave far below that.
    largest = LOWEST + BINS - 1 - np.argmax((counts > sure(d * BINS) * noise)[:, ::-1], axis=1)
    octave = np.where(largest < octave - _DEEP, largest, octave)
    units = np.exp2(octave.astype(float))
    farthest, found = before / units, _SIZES.on_grid(counts, octave - LOWEST)
    kept, seen = _SIZES.standing(found, many * noise, 1.0)
    last, cells = np.where(kept > 0.0, np.arange(2, seen.size + 2), 2).max(axis=1), np.arange(found.shape[1])
    below = np.where(cells < last[:, None], found, 0.0)
    near = np.where(cells >= last[:, None] - _TAIL, below, 0.0).sum(axis=1) + 2.0 * noise * math.sqrt(_TAIL)
    lost = np.maximum(n - np.maximum(near, below.sum(axis=1) + 2.0 * noise * np.sqrt(last)), 0.0)
    first, second = (kept @ seen**power + lost * farthest**power for power in (1, 2))
    counted = kept.any(axis=1)
    own = np.where(counted, second / np.where(counted, first, 1.0), 1.0)
    sizes = np.where(counted, [first / (own * n), second / (own * own * n)], 0.0)
    return units * own, sizes, np.where(counted, [kept.sum(axis=1) / n, kept.max(axis=1) / n], 0.0)


# ------------------------------------------------------------------------------------------------- The solver


@dataclass(frozen=True, eq=False)
class Around:
    r"""``bend (v - w)^T M (v - w) / 2 + ridge ||w||^2 / 2`` around coefficients w, no ridge on ``free``.

    M are the released second moments of the rows, mapped by ``affine`` as in the last descent. Where none
    were asked, columns are taken to be alike there and independent. ``bend`` is the second derivative of the
    loss, of labels at even odds. Another ridge and a smaller support have a minimum of their own in it: the
    model that the same answers lead to, for squared errors, moments without noise and a descent that arrived.

    **Privacy.** Released numbers and public ones; what is made of them is post-processing.
    """

    affine: Affine
    moments: Moments | None
    bend: float
    ridge: float
    factor: Floats | None = None
    free: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, problem: Problem, affine: Affine, moments: Moments | None, factor: Floats | None = None
    ) -> Around:
        """Return what a run has released at its end, and a factor of the covariance of its noise."""
        even = 1.0 / max(problem.outputs, 2)
        bend = even * (1.0 - even) if has_odds(problem.loss) else problem.curvature
        return cls(affine, moments, problem.weight * bend, problem.ridge, factor, problem.free)

    def minimum(
        self, coef: Floats, intercept: Floats | float, ridge: float, count: int | None
    ) -> tuple[Floats, Floats]:
        """Return the coefficients with another ridge, on the ``count`` largest of these; None keeps all.

        Sizes are compared by what they do to margins. The margin of the centre of the data stays.
        """
        columns = slice(None) if self.affine.columns is None else self.affine.columns
        w = np.atleast_2d(coef)[:, columns]
        bends = self.bend * self.second_moments()
        felt = w * np.sqrt(bends if bends.ndim == 1 else np.diag(bends))
        kept = np.full(w.shape, True) if count is None else top_mask(felt, min(count, w.size), 0)
        found, before = np.zeros_like(w), np.full(w.shape[1], self.ridge)
        before[list(self.free)] = 0.0
        for row, own in enumerate(kept):
            if bends.ndim == 1:
                found[row, own] = (w[row] * (bends + before) / (bends + ridge))[own]
                continue
            pull = bends @ w[row] + before * w[row]
            inner = bends[np.ix_(own, own)] + ridge * np.eye(int(own.sum()))
            found[row, own] = np.linalg.solve(inner, pull[own])
        out = np.zeros_like(np.atleast_2d(coef))
        out[:, columns] = found
        moved = intercept + ((w - found) @ self.affine.shift).reshape(np.shape(intercept))
        return out.reshape(coef.shape), moved

    def second_moments(self) -> Floats:
        """Return a matrix, or its diagonal, on the original columns; what is unsure of it counts as there."""
        d, scale = self.affine.scale.size, np.maximum(self.affine.scale, 1e-300)
        if self.moments is None:  # typical rows have length 1 in the map
            return 1.0 / (d * np.square(scale))
        sizes, axes = np.linalg.eigh(self.moments.stretch * self.moments.matrix[:d, :d])
        sizes = np.maximum(sizes, 0.0) + self.moments.stretch * self.moments.unsure
        found: Floats = (axes * sizes) @ axes.T / np.outer(scale, scale)
        return found


# ----------------------------------------------------- The stages in which a sparse model loses its columns

# Shares of the budget: of the cuts, of the first one behind a screen, of polishing behind cuts and alone.
NARROW, AFTER_SCREEN, POLISH, POLISH_ALONE = 0.12, 0.20, 0.20, 0.30
# Margin noise that the last iterate of a cut and of polishing may carry.
NARROWING, POLISHING = 0.5, 1.0
# The support is found in stages that keep so many times as many coefficients as the last one.
WIDTHS = (24, 6)


@dataclass(frozen=True)
class Stage:
    """A descent on the largest ``count`` coefficients: its steps, share of the budget and margin noise."""

    count: int
    steps: int
    share: float
    margin_noise: float


def narrowing(sparsity: int, coefficients: int) -> dict[str, Stage]:
    """Return the stages that end at this sparsity; one that would keep most coefficients is left out."""
    wide = {
        f"narrow-{times}": Stage(times * sparsity, 10, NARROW, NARROWING)
        for times in WIDTHS
        if 2 * times * sparsity <= coefficients
    }
    return {**wide, "polish": Stage(sparsity, 20, POLISH if wide else POLISH_ALONE, POLISHING)}


# ----------------------------------------------------------------------------------------------------------
# The first cut among very many columns: one gradient at the constant model keeps the largest coordinates.
# What no record touches has noise only, of which nothing here needs more than the largest values: moments
# and gradient are asked lazily (:mod:`sordino.kernel.lazy`), with the law of the dense releases.

# Releases whose untouched coordinates are not drawn.
LAZY = ("moments", "sizes", "gradient")
# From so many columns for each that the first cut keeps, fewer gradients make it, down to one: together with
# so many other questions on all columns, each as dear as a gradient, they cost what they do there.
SCREEN_FROM, OTHERS = 10, 3
# The noise of a coordinate after the first step, and the length of the first model: rows have length one.
NOISE, LENGTH = 0.3, 5.0


def listed_map(curator: Curator, problem: Problem, count: int) -> Affine:
    """Return the map that lists the columns with the ``count`` largest moments.

    The others count as if their moments were the least that is listed, or drowned in the noise, as those of
    columns without entries do.
    """
    n, d = problem.population, problem.features
    largest = hard_threshold(curator.release("moments") / n, min(2 * count, 2 * d))
    released = as_sparse(largest).sorted()
    columns = np.unique(released.indices % d)
    least = float(np.abs(released.values).min()) if released.values.size else 0.0
    noise = noise_std(curator, "moments") / n
    affine = map_of(problem, (released.at(columns), released.at(columns + d)), noise, columns, least)
    return affine.resize(1.0 / row_size(curator, "sizes", affine, problem.data_norm)[0])


def screen(
    curator: Curator, problem: Problem, affine: Affine, targets: TargetUnit, count: int
) -> tuple[Affine, Floats, Leg]:
    """Return the map of the ``count`` columns that are kept, the model on them, and how it came about."""
    n, features, kept = problem.population, problem.features, problem.n_intercepts
    start = SparseVector.zeros(features + kept, kept)
    if kept:
        start.values[-1] = targets.center / (targets.size * affine.intercept)

    def gradient(w: Any) -> Any:  # the plan has one
        return curator.release("gradient", (w, affine, None, targets.size)) / n

    found = as_sparse(hard_threshold(gradient(start), count, kept), kept).sorted()
    columns = found.indices[: found.indices.size - kept]
    if not columns.size:  # only without noise, where no record has an entry
        columns, found = np.zeros(1, dtype=np.int64), SparseVector.zeros(1 + kept, 1 + kept)
    std = noise_std(curator, "gradient") / n
    step = min(LENGTH / max(public_norm(found.values), 1e-300), NOISE / max(std, 1e-300))
    descent = NoisyDescent(gradient, step, Noise(std, features + kept), taken=[step])
    w = -step * found.values
    if kept:
        w[-1] += start.values[-1]
    chosen = replace(affine.pick(columns), columns=columns)
    leg = replace(Leg.of(descent, affine, None, features), scale=chosen.scale)
    return chosen, w, leg


def spread(values: Floats, columns: Ints | None, size: int) -> Floats:
    """Return numbers of some columns, and of the intercept behind them, in their places among all."""
    if columns is None:
        return values
    out = np.zeros((*values.shape[:-1], size))
    out[..., columns] = values[..., : columns.size]
    out[..., size - (values.shape[-1] - columns.size) :] = values[..., columns.size :]
    return out


# Shares of the budget (of rho); what is left goes to the gradients on all columns. Labels have no correction
# behind their clips: few long rows must be seen, where records times epsilon are more than the last number.
SIZES, SIZES_AGAIN, SIZES_OF_LABELS, SEEN_LONG = 0.02, 0.01, 0.05, 300.0
# How much all records weigh is asked with this share, or with half beside a single question.
WEIGHT = 0.02
# Margin noise that the last iterate may carry: dense models of two and of more classes, of numbers and of
# labels in a metric, models still to be thresholded.
DENSE, MANY, NUMBERS, METRIC, SELECTING = 1.2, 1.6, 0.5, 0.7, 0.3
CLIP = 0.35
# Shares of the counts that find the centre of the targets, and of the second moments of the rows. From so
# many records times epsilon on the centre is asked for so often: targets may be far from zero for their size.
CENTER, CENTER_OF_FEW, SECOND = 0.02, 0.06, 0.06
CENTER_CLEAR, CENTER_FARTHER = 2000.0, 6
# Steps on all columns, and where some are chosen after them. With fewer records times epsilon than columns a
# step for each so many of them is enough: more steps only divide the budget.
STEPS_ALL, STEPS_NARROWING, STEPS_LEAST, SIGNAL_A_STEP = 50, 30, 20, 600.0
# In a metric the descent is done after fewer steps where every coefficient has so many records times epsilon
# (made-up Gaussian, AR, t(3), lognormal and collinear designs; judged on a9a).
STEPS_CLEAR, SIGNAL_CLEAR = 24, 150.0
# Numbers have second moments that tell all typical directions from noise where records times epsilon are so
# many times d^1.5, and Newton steps behind the descent: fewer steps arrive.
STEPS_TOLD, SIGNAL_TOLD = 16, 130.0
# Log odds of columns that resemble each other need more steps: by the cube root of this number of records
# times epsilon for a coefficient, up to a factor.
SIGNAL_FARTHER, FARTHER = 5000.0, 4.0
# Fewer steps are not shared between sums and a mean; without noise nothing is clipped.
LEAST_SUMS, STEPS_PLAIN, UNCLIPPED = 4, 100, 1e6
# Fewer records times epsilon need larger shares for centre and size of the targets, up to those given here.
FEW, SIZES_OF_FEW = 1000.0, 0.08


@dataclass(frozen=True, eq=False)
class MappedProblem:
    """Where a descent takes place: mapped columns, the coordinates that are open, the unit of the targets.

    A mask of None leaves all of them open.
    """

    affine: Affine
    mask: Bools | None
    target_unit: float
    moments: Moments | None = None

    @property
    def params(self) -> tuple[Affine, Bools | None, float]:
        """What a gradient is asked with, besides its point."""
        return self.affine, self.mask, self.target_unit


@dataclass(frozen=True)
class Auto:
    """Private column means and scales, noisy Nesterov descent, thresholding in stages, length, correction.

    Each step is on the page of the solver (``docs/solvers/auto.md``).

    **Privacy.** Gaussian releases of clipped sums over all records; everything else is post-processing
    of released numbers or a function of n, d, k, epsilon and delta.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="column moments, row sizes, gradients, margins",
        reads=("n_nonzero_coefs", *STEPS),
        sparse=True,
        dense=True,
        persons=True,
        parts=True,
        losses=(
            "logistic",
            "multinomial",
            "squared",
            "huber",
            "squared-hinge",
            "poisson",
            "gamma",
            "quantile",
        ),
        paper="the default",
        page="auto",
    )

    steps: int
    stages: dict[str, Stage]
    clip: float
    step: float | None
    screens: bool = False
    opens: bool = False

    @classmethod
    def configure(cls, problem: Problem, options: Options) -> Solver:
        if isinstance(problem.loss, QuantileLoss) and not tells_ranks(problem):
            return Gd.configure(problem, options)
        k, coefficients = options.n_nonzero_coefs, problem.features * problem.outputs
        stages = narrowing(k, coefficients) if k is not None and k < coefficients else {}
        counts = [stage.count for stage in stages.values()] if options.max_iter is None else []
        # By public numbers of columns; one gradient on all of them leaves more steps to those that are left.
        cuts = problem.outputs == 1 and len(counts) > 1
        wide = problem.features / (SCREEN_FROM * counts[0]) if cuts else 0.0
        plain = math.isinf(problem.epsilon) and has_metric(problem) and wide < 1.0
        usual = STEPS_PLAIN if plain else _steps(problem, bool(stages))
        steps = max(1, int((usual + OTHERS) / wide) - OTHERS) if wide >= 1.0 else options.max_iter or usual
        if screens := wide >= 1.0 and steps == 1:
            first = next(iter(stages))
            stages[first] = replace(stages[first], steps=2 * stages[first].steps, share=AFTER_SCREEN)
        clip = options.clip_norm or (UNCLIPPED if plain else CLIP)
        opens = options.clip_norm is None and not plain
        return cls(steps, stages, clip, options.step_size, screens, opens)

    def plan(self, problem: Problem) -> Plan:
        """Declare the moments, the sizes, the gradients and the polishing."""
        if isinstance(problem.loss, QuantileLoss):
            last, problem = rank_queries(problem), with_squares(problem)
        elif isinstance(problem.loss, Huber) and not self.stages and bends(problem):
            last = rank_queries(problem)
        else:
            last = correction_queries(problem, self._last_count(problem), self._metric(problem))
        if has_odds(problem.loss) and problem.intercept and class_share(problem) == 1.0:
            return self._make_plan(problem, {"classes": (ClassSums(problem.outputs), 1, 1.0)})
        return self._make_plan(problem, last if is_few(problem) else self._queries(problem, last))

    def _queries(
        self, problem: Problem, last: dict[str, tuple[Any, int, float]]
    ) -> dict[str, tuple[Any, int, float]]:
        """Return all questions with how often they are asked and their shares; ``last`` are the last ones."""
        cells = grid_cells(problem)
        few = FEW / (signal := problem.population * problem.epsilon)
        rows = SIZES
        if has_labels(problem.loss) and self._metric(problem):
            more = min(max(3.0 * few, 1.0), 2.0)
            rows = min(SIZES * max(signal / SEEN_LONG, 1.0), SIZES_OF_LABELS * more)
        queries: dict[str, tuple[Any, int, float]] = {
            **map_queries(problem, not self.screens and has_units(problem)),
            "sizes": (SizeCounts("rows", cells), 1, rows),
        }
        if self._metric(problem):
            queries["second"] = (MappedGram(), 1, SECOND)
        if problem.loss.targets in ("numbers", "counts"):
            targets = max(SIZES, SIZES_OF_FEW * min(few, 1.0) ** 2)  # counts as exact as those of few
            queries["targets"] = (SizeCounts("targets", cells), 1, targets)
        if problem.loss.targets == "numbers" and problem.intercept:
            asks = CENTER_FARTHER if signal >= CENTER_CLEAR else CENTER_STEPS
            queries["center"] = (TargetCounts(), asks, min(max(CENTER, CENTER * few), CENTER_OF_FEW))
        if has_odds(problem.loss) and problem.intercept:
            queries["classes"] = (ClassSums(problem.outputs), 1, class_share(problem))
        if has_length(problem.loss) and not (self._plain(problem) and problem.loss.targets == "numbers"):
            left, asks = self._last_count(problem), length_steps(problem)
            queries["length"] = (length_query(problem, left), asks, length_share(problem, left))
        if not self._plain(problem) or "ranks" in last:
            queries |= last
        for name, stage in self.stages.items():
            queries[f"{name}-sizes"] = (SizeCounts("rows", cells), 1, SIZES_AGAIN)
            queries[name] = (self._gradient(problem, stage.count), stage.steps, stage.share)
        queries = _leave_a_rest(queries)
        rest = 1.0 - sum(share for _, _, share in queries.values())
        queries["gradient"] = (self._gradient(problem, problem.features * problem.outputs), self.steps, rest)
        return queries

    def _make_plan(self, problem: Problem, queries: dict[str, tuple[Any, int, float]]) -> Plan:
        releases = {}
        if problem.weighted:
            alone = len(queries) == 1
            own = 0.5 if alone else WEIGHT
            queries = {name: (asked, n, (1.0 - own) * share) for name, (asked, n, share) in queries.items()}
            queries["weight"] = (TotalWeight(Norm.L1 if alone and problem.once else Norm.L2), 1, own)
        for name, (query, times, share) in queries.items():
            noise: Any = SymmetricGaussian if isinstance(query, MappedGram) else problem.gaussian
            noise = Laplace if query.norm is Norm.L1 else noise
            lazy = self.screens and name in LAZY
            releases[name] = Release(
                query, noise(relative=math.sqrt(times / share)), Full(), times, mean=False, lazy=lazy
            )
        return problem.planned(**releases)

    def _gradient(self, problem: Problem, coefficients: int) -> AffineGradient:
        """Return the gradient; where coefficients drown in noise, unfair clips keep them long enough."""
        room = problem.population * problem.epsilon >= ROOM * coefficients
        opened = opened_gradient(problem, self.clip, coefficients, math.hypot(1.0, INTERCEPT))
        clip = opened if self.opens else self.clip
        return AffineGradient(problem.loss, clip, room and has_odds(problem.loss), room)

    def _narrower(self, problem: Problem, query: AffineGradient) -> float:
        """Return by how much less than planned amounts are clipped, by how much all records weigh."""
        if not (self.opens and has_shares(problem.loss)):
            return 1.0
        return self._gradient(problem, problem.features).clip / query.clip

    def run(self, curator: Curator, problem: Problem) -> Iterator[Any]:
        """Yield the iterates; the last one is on the original columns, the others on those that are left."""
        quantile = getattr(problem.loss, "quantile", None)
        problem = problem if quantile is None else with_squares(problem)
        problem = with_weight(curator, problem)
        targets = locate(curator, problem)
        if has_shares(problem.loss):
            targets = replace(targets, size=1.0)
        if problem.intercept and not (targets.seen and learnable(curator, problem, targets)):
            yield self._constant(curator, problem, targets, quantile)
            return
        affine, rows = self._map_columns(curator, problem)
        if self.screens:
            affine, w, leg = screen(curator, problem, affine, targets, next(iter(self.stages.values())).count)
            legs = [leg]
            yield w
        else:
            targets = skewed_unit(curator, problem, affine, targets, "gradient")
        view = MappedProblem(affine, None, targets.size, second_moments(curator, problem, affine, *rows))
        if not self.screens:
            start = constant_weights(problem, affine, targets)
            legs = [Leg.of(self._descent(curator, problem, "gradient", view, start), affine, None, 0)]
            for w in legs[0].descent.path(start, self.steps):
                yield w
        for name, stage in self.stages.items():
            view, start, legs = self._narrow(curator, problem, view, w, legs, name)
            descent = self._descent(curator, problem, name, view, start)
            legs.append(Leg.of(descent, view.affine, view.mask, 0))
            for w in descent.path(start, stage.steps):
                yield w
        name = next(reversed(self.stages), "gradient")
        query: Any = curator.plan.releases[name].query
        query = replace(query, clip=query.clip * self._narrower(problem, query))
        model = Descended(w, view.affine, targets, tuple(legs), query, view.moments)
        yield self._finish(curator, problem, model, quantile)

    def _finish(
        self, curator: Curator, problem: Problem, model: Descended, quantile: float | None
    ) -> NoisyCoefficients:
        """Return the model at its length and corrected, on the original columns."""
        affine = model.affine
        left = replace(problem, features=affine.scale.size)
        found = lengthen(curator, left, model)
        whole = Whole(curator, left, affine, model.targets)
        if "bends" in curator.plan.releases and quantile is None and model.moments is not None:
            last = huber_steps(whole, found.w, model.moments)
        else:
            last = correct(curator, left, model, found)
        if quantile is not None:
            last, _ = rank_steps(whole, quantile, last, model.moments)
        unit = _margin_unit(problem, model.targets.size)
        coefficients = affine.coefficients(last.w, problem.intercept) * unit
        left_out = np.where(last.w == 0.0, found.w, 0.0)[..., : left.features]  # is unsure by its size
        noise = np.hypot(weight_noise(model, found, last), left_out) * affine.scale * unit
        longer = coefficients[..., : left.features] * last.slope
        noise = np.hypot(noise, longer)
        if model.moments is not None and model.moments.rare is not None:
            noise = np.hypot(noise, _DEVIATION * last.unseen * unit / model.moments.rare)
        factor = noise_factor(model.legs, found.bend, last.after)
        if factor is not None and problem.outputs == 1:
            added = np.zeros((left.features, 0)) if last.added is None else last.added
            factor = np.hstack([factor[: left.features] * found.slope, added])
            factor = np.hstack([factor * (affine.scale * unit)[:, None], longer.reshape(-1, 1)])
        return NoisyCoefficients(
            spread(coefficients, affine.columns, problem.columns),
            spread(noise, affine.columns, problem.features),
            last.bitten,
            Around.of(problem, affine, model.moments, factor if problem.outputs == 1 else None),
            unseen=last.unseen * unit,
            guessed=hidden_rows(curator, problem, model, last.w),
        )

    def _constant(
        self, curator: Curator, problem: Problem, targets: TargetUnit, quantile: float | None
    ) -> NoisyCoefficients:
        """Return the model of no columns: the mean or quantile of targets, or the shares of the classes."""
        w, names = np.zeros(problem.shape), ([] if self.screens else ["gradient"]) + list(self.stages)
        means = problem.loss.name == "squared" and quantile is None and self.steps >= LEAST_SUMS
        if means and "whole" in curator.plan.releases and not self.stages:
            affine, rows = self._map_columns(curator, problem)
            moments = second_moments(curator, problem, affine, *rows)
            last = None if moments is None else sum_up(curator, problem, affine, moments)
            if last is not None and last.added is not None:
                unit = affine.scale * problem.target_bound
                value = affine.coefficients(last.w, problem.intercept) * problem.target_bound
                around = Around.of(problem, affine, moments, last.added * unit[:, None])
                return NoisyCoefficients(value, last.noise * unit, around=around)
        if quantile is not None:
            flat = Affine(np.zeros(problem.features), np.ones(problem.features), 1.0)
            whole = Whole(curator, problem, flat, targets)
            found, own = rank_steps(whole, quantile, Corrected(w, 0.0), None)
            margin = targets.size * float(found.w[-1])
        elif not has_odds(problem.loss):
            margin, own = constant_margin(curator, problem, [*names, "offset"], targets.least_mean)
        else:
            margin, own = constant_odds(curator, problem, names, targets), 0.0
        w[..., -1] = margin / problem.intercept
        return NoisyCoefficients(w, np.zeros((*problem.shape[:-1], problem.features)), mean_noise=own)

    def _narrow(
        self, curator: Curator, problem: Problem, view: MappedProblem, w: Floats, legs: list[Leg], name: str
    ) -> tuple[MappedProblem, Floats, list[Leg]]:
        """Keep the largest coefficients; restricted rows are smaller, so measure them again."""
        free = w.size - problem.n_intercepts * problem.outputs  # fewer than wanted without noise
        felt = w if view.moments is None else w * view.moments.deviations
        if problem.outputs > 1 and problem.intercept:  # log odds of a rare class move few predictions
            felt = felt * np.sqrt((p := softmax(view.affine.intercept * w[:, -1:], axis=0)) * (1.0 - p))
        mask = top_mask(felt, min(self.stages[name].count, free), problem.n_intercepts)
        kept: Bools = np.any(np.atleast_2d(mask), axis=0)
        affine = view.affine.restrict(kept[: view.affine.scale.size])
        spread = self._row_noise(curator, problem, name)
        size, _ = row_size(curator, f"{name}-sizes", affine, problem.data_norm, spread)
        w, mask = np.where(mask, w, 0.0)[..., kept], mask[..., kept]
        w[..., : affine.scale.size] *= size
        opened = None if mask.all() else mask
        moments = None
        if view.moments is not None and problem.outputs == 1:  # classes keep different columns
            moments = view.moments.narrow(kept).resize(1.0 / size, affine.scale.size)
        narrow = MappedProblem(affine.resize(1.0 / size), opened, view.target_unit, moments)
        return narrow, w, [leg.narrow(kept) for leg in legs]

    def _descent(
        self, curator: Curator, problem: Problem, name: str, view: MappedProblem, start: Floats
    ) -> NoisyDescent:
        mask = view.mask
        n, steps = problem.population, curator.plan.releases[name].times
        query: Any = curator.plan.releases[name].query
        coordinates = start.size if mask is None else int(mask.sum())
        narrow = self._narrower(problem, query)
        noise = Noise(narrow * noise_std(curator, name) / n, coordinates)
        metric = None
        if view.moments is not None:
            penalty = penalty_bend(problem, view.affine)
            metric = view.moments.metric(mask, problem.bend, penalty)
        budget = self._margin_noise(name, problem, metric is not None)
        step = self.step or noise_limited_step(budget, steps, noise, momentum_in(metric))
        if metric is not None and problem.outputs > 1 and problem.intercept:
            shares = softmax(view.affine.intercept * start[:, -1])
            told = math.sqrt(0.5 * steps) * min(1.0, query.clip / math.sqrt(2.0))
            metric = replace(metric, rates=class_rates(shares, noise, told, step / metric.longest))
        pairs = problem.outputs == 1 and has_odds(problem.loss) and not problem.penalties
        if metric is not None and pairs and problem.intercept:
            metric = metric.quicken(float(sigmoid(view.affine.intercept * start[-1])), view.affine.intercept)

        def gradient(w: Floats) -> Floats:
            asked = w, view.affine, mask, narrow * view.target_unit
            return narrow * curator.release(name, asked) / n

        full = gradient if mask is None else spread_over_mask(gradient, mask)
        return NoisyDescent(full, step, noise, penalty_through(view, problem), metric)

    def _margin_noise(self, name: str, problem: Problem, metric: bool) -> float:
        if name in self.stages:
            return self.stages[name].margin_noise
        if self.stages:
            return SELECTING
        if problem.loss.targets == "numbers":
            return NUMBERS
        if metric:
            return METRIC
        return DENSE if problem.outputs == 1 else MANY

    def _metric(self, problem: Problem) -> bool:
        return not self.screens and has_metric(problem)

    def _plain(self, problem: Problem) -> bool:
        """Return whether nothing needs a clip: there is no noise, and the metric finds the minimum."""
        return math.isinf(problem.epsilon) and self._metric(problem)

    def _row_noise(self, curator: Curator, problem: Problem, name: str) -> float:
        """Return the noise of a mean gradient of rows of size 1, infinite where a fixed share is clipped."""
        if "bends" in curator.plan.releases:
            several = math.sqrt(problem.features / curator.plan.releases["ranks"].times)
            return noise_std(curator, "ranks") / problem.population * several
        # slopes, or a choice of columns
        uncorrected = has_labels(problem.loss) or has_shares(problem.loss) or bool(self.stages)
        if not (self._plain(problem) or (self.opens and uncorrected)):
            return math.inf
        release = curator.plan.releases[name]
        count = self.stages[name].count if name in self.stages else problem.features * problem.outputs
        narrow = self._narrower(problem, release.query)  # type: ignore[arg-type]
        return narrow * noise_std(curator, name) / problem.population * math.sqrt(count / release.times)

    def _last_count(self, problem: Problem) -> int:
        """Return how many coefficients are left in the end."""
        counts = [stage.count for stage in self.stages.values()]
        return counts[-1] if counts else problem.features * problem.outputs

    def _map_columns(self, curator: Curator, problem: Problem) -> tuple[Affine, tuple[float, Floats | None]]:
        """Return the map; how many times larger the squares of whole rows are, and sizes of rare columns."""
        if self.screens:
            return listed_map(curator, problem, next(iter(self.stages.values())).count), (1.0, None)
        affine, least, rare = column_map(curator, problem)
        spread = self._row_noise(curator, problem, "gradient")
        squares = has_labels(problem.loss) and not has_odds(problem.loss)
        size, stretch = row_size(curator, "sizes", affine, problem.data_norm, spread, least, squares)
        return affine.resize(1.0 / size), (stretch, rare)


_REST = 0.3  # of what the other questions leave is kept for the descent, however much the classes take


def _leave_a_rest(queries: dict[str, tuple[Any, int, float]]) -> dict[str, tuple[Any, int, float]]:
    """Return the questions, with smaller shares where the classes of very few records leave too little."""
    classes = queries["classes"][2] if "classes" in queries else 0.0
    others = sum(share for _, _, share in queries.values()) - classes
    kept = min(1.0, (1.0 - classes) / (others + _REST * (1.0 - others))) if classes else 1.0
    return {
        name: (query, times, share if name == "classes" else kept * share)
        for name, (query, times, share) in queries.items()
    }


def _steps(problem: Problem, narrows: bool) -> int:
    """Return the steps on all columns: fewer for clear ones in a metric, and for labels that drown."""
    signal, most = problem.population * problem.epsilon, STEPS_NARROWING if narrows else STEPS_ALL
    each, labels = signal / (problem.features * problem.outputs), has_labels(problem.loss)
    if has_metric(problem) and each >= SIGNAL_CLEAR:
        more = min(max(each / SIGNAL_FARTHER, 1.0) ** (1.0 / 3.0), FARTHER) if labels else 1.0
        told = signal >= SIGNAL_TOLD * problem.features**1.5 and asks_gradient(problem, problem.features)
        squared = problem.loss.name == "squared" and not narrows
        return STEPS_TOLD if told and squared else int(STEPS_CLEAR * more)
    drowns = signal < problem.features and problem.outputs == 1 and labels
    return min(most, max(STEPS_LEAST, int(signal / SIGNAL_A_STEP))) if drowns else most


def penalty_through(view: MappedProblem, problem: Problem) -> Callable[[Floats], Floats] | None:
    """Return the gradient, in mapped weights, of the penalties on the original coefficients.

    The mapped loss is in units of the target unit times that of the margins, which coefficients are in.
    """
    affine, mask, unit = view.params
    if not problem.penalties:
        return None

    def gradient(w: Floats) -> Floats:
        coefficients = affine.coefficients(w, problem.intercept) * _margin_unit(problem, unit)
        out = affine.pull_back(problem.penalty_gradient(coefficients), problem.intercept) / unit
        return out if mask is None else np.where(mask, out, 0.0)

    return gradient


def _margin_unit(problem: Problem, unit: float) -> float:
    """Return the unit of margins: that of the targets, but for counts, whose logarithm they predict."""
    return unit if problem.loss.targets == "numbers" else 1.0
