"""Linear models of heavy-tailed records: learned truncations, convex sets, DP-SCO and sparse optimisation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from sordino.errors import InvalidInputError
from sordino.kernel import (
    ClippedSum,
    Curator,
    Disjoint,
    FromSum,
    Full,
    GumbelTopK,
    LaplacePeeling,
    Norm,
    Plan,
    Release,
)
from sordino.kernel.arrays import Bools, Floats, Ints
from sordino.kernel.query import PartedRows, summation_error
from sordino.problems.losses import IDENTITY, Loss
from sordino.problems.problem import Problem
from sordino.problems.robust import GradientPoint, RobustGradient, Truncation
from sordino.problems.scales import (
    EDGES,
    ColumnScales,
    CountsBelow,
    FeatureScales,
    GradientScales,
    TargetsBelow,
)
from sordino.solvers.base import CURVED, STEPS, Capabilities, Option, Options, distinguishable, noise_std
from sordino.solvers.heavy.location import (
    COLUMNS,
    CROWD,
    HALVINGS,
    LARGEST,
    LIKELY,
    ROUGH,
    SURE,
    Tail,
    median_of,
    moment_threshold,
    resolution,
    share_relative,
)
from sordino.values import check_flag, check_range

# ----------------------- Column scales, step sizes and thresholds that a learner reads off noisy histograms

SHARE = 0.1  # of the budget for each kind of histogram
MOST = 0.8  # the largest share of the targets' median
WANDER, FEW = 0.3, 0.7  # residuals that noise may move a model; less where nothing is forgotten
_CLASSICAL = 0.75  # noise of a budget over the classical formula's, which is loose: .63 to .8 from .1 to 1
CROWDED = 0.1  # part of the records that is in one octave of any column that spreads
REFRESH = 3  # histograms of gradient scales: gradients shrink on the way


@dataclass(frozen=True)
class Scaling:
    """How a learner on data without bounds finds its units; None means: from noisy histograms.

    Parameters
    ----------
    order : v; gradients have a moment of order 1 + v.
    bound : u with ``E|g|^(1+v) <= u`` for the truncated quantity, in units of the column scales.
    fixed : a public threshold that replaces the choice.
    step : the step size.
    columns : whether columns are divided by their learned scales.
    center : whether rough medians of the columns are subtracted first (dense rows with an intercept).
    target : whether the intercept starts at a rough median of the targets (regression).
    failure : xi, in the threshold of a known moment.
    """

    order: float = 1.0
    bound: float | None = None
    fixed: float | None = None
    step: float | None = None
    columns: bool = False
    center: bool = False
    target: bool = False
    failure: float = 0.05

    @property
    def learns(self) -> bool:
        """Whether gradient scales are released."""
        return self.bound is None and self.fixed is None

    def releases(self, problem: Problem, by: str, paid: int, steps: int) -> dict[str, Release]:
        """Return the histograms of a plan whose other releases cost as much as ``paid`` Gaussians."""
        out: dict[str, Release] = {}
        if self.center:
            halvings = problem.gaussian(share_relative(SHARE, paid / HALVINGS))
            out["location"] = Release(CountsBelow(problem.features), halvings, times=HALVINGS, mean=False)
        if self.target:
            halvings = problem.gaussian(share_relative(target_share(problem), paid / ROUGH))
            out["target"] = Release(TargetsBelow(), halvings, times=ROUGH, mean=False)
        hint = problem.gaussian(share_relative(SHARE, paid))
        if self.columns:
            out["columns"] = Release(ColumnScales(problem.features), hint, mean=False)
        elif self.step is None:
            out["features"] = Release(FeatureScales(problem.features), hint, mean=False)
        if self.learns:
            times = min(REFRESH, steps)
            hint = problem.gaussian(share_relative(SHARE, paid / times))
            query = GradientScales(problem.loss, by)
            out["gradients"] = Release(query, hint, times=times, mean=False)
        return out

    def refreshes(self, steps: int) -> set[int]:
        """Return the steps before which the threshold is chosen again."""
        times = min(REFRESH, steps) if self.learns else 1
        return {t * steps // times for t in range(times)}

    def start(self, curator: Curator, problem: Problem) -> tuple[GradientPoint, float]:
        """Return the first point, in the units that were found, and the first step size."""
        center: Floats | None = None
        if self.center:
            found = median_of(curator, problem.population, problem.features, crowd=COLUMNS, near=0.0)
            center = np.append(found, np.zeros(problem.n_intercepts))
        scales: Floats | float = 1.0
        if self.columns:
            scales = learned_scales(curator, problem, None if center is None else center[: problem.features])
        elif self.step is None:
            scales = common_scale(curator, problem)
        ridge = problem.ridge / float(np.min(scales)) ** 2
        w = np.zeros(problem.shape)
        if self.target:
            # In the units of the constant itself.
            w[-1] = median_of(curator, problem.population, 1, "target", COLUMNS, near=0.0)[0]
        point = GradientPoint(w, 1.0, scales, center)
        if self.step is not None:
            return point, self.step
        return point, 1.0 / max(problem.curvature + ridge, 1e-12)

    def threshold(
        self, curator: Curator, n: float, point: GradientPoint, noise: float
    ) -> tuple[float, float]:
        """Return the threshold for a mean whose noise is ``noise * threshold / n``, and a typical size.

        The size is that of what is truncated: the root of its mean square, or the threshold where none is
        known.
        """
        if self.fixed is not None:
            return self.fixed, self.fixed
        if self.bound is not None:
            log = math.log(1.0 / self.failure)
            cut = moment_threshold(self.bound, self.order, n, noise, log)
            return cut, cut
        counts = curator.release("gradients", point)[0]
        tail = Tail.read(counts, noise_std(curator, "gradients", point), 1.0 + self.order)
        cut = tail.threshold(noise)
        return cut, min(tail.typical(n), cut)


def target_share(problem: Problem) -> float:
    """Return the share of the budget for a rough median of the targets.

    It should find ``CROWD`` noise widths among the records, and has to find ``COLUMNS``, or the model starts
    at zero, which for targets far from zero is far below a constant. Where that takes more than usual the
    coefficients drown in any case, and the constant is what can be learned. All of it is public.
    """
    width = _CLASSICAL * math.sqrt(2.0 * math.log(1.25 / max(problem.delta, 1e-300))) / problem.epsilon
    return min(max(ROUGH * (CROWD * width / problem.population) ** 2, SHARE / 2.0), MOST)


def patience(noise: float, steps: int) -> float:
    r"""Return the share p of a full step that keeps the noise of all steps from carrying the model away.

    ``noise`` is that of one full step in residuals. T steps of share p wander ``p noise sqrt(min(T, 1 / (2
    p)))`` (what is older than 1 / (2 p) steps is forgotten), which must stay below ``WANDER``, and below a
    little less where records are so few that nothing is forgotten: there the model must not fall below a
    constant.
    """
    most = WANDER / max(noise, 1e-150)
    return min(1.0, 2.0 * most**2 if 4.0 * most**2 * steps > 1.0 else FEW * most / math.sqrt(steps))


def raw_coefficients(point: GradientPoint, intercept: float) -> Floats:
    """Return the coefficients of a point in the units of the data; the intercept takes the centre up."""
    raw = point.w / point.scales
    if point.center is not None:
        raw[..., -1] -= raw @ point.center / intercept
    return np.asarray(raw)


def learned_scales(curator: Curator, problem: Problem, center: Floats | None = None) -> Floats:
    """Return the root mean squares of the columns, from the octaves that stand out of the noise.

    A column without such an octave gets the middle scale of the others; the intercept has its own. One that
    is all at its centre is held at a coefficient of zero.
    """
    counts, noise = curator.release("columns", center), noise_std(curator, "columns")
    sure = np.pad(counts > max(SURE * noise, 0.5), ((0, 0), (1, 1)))
    # Next to a sure octave less will do: without its tail a column looks short, and its rows are cut.
    seen = sure[:, 1:-1] | ((sure[:, :-2] | sure[:, 2:]) & (counts > max(LIKELY * noise, 0.5)))
    square = np.where(seen, counts, 0.0) @ EDGES**2 / (2.0 * problem.population)
    scales = np.sqrt(square)
    known = scales > 0
    flat = np.zeros_like(known) if center is None else _flat(seen, scales, noise, problem, center)
    scales[~known] = np.median(scales[known]) if known.any() else 1.0
    scales[flat] = LARGEST
    return np.append(scales, [problem.intercept] * problem.n_intercepts)


def _flat(seen: Bools, scales: Floats, noise: float, problem: Problem, center: Floats) -> Bools:
    """Tell which columns are one number, as far as can be seen, where a spread would have been seen.

    What is left of such a column is how far its centre was missed. In units of that its coefficient would be
    huge, and the intercept its opposite: right for the records, far off for any other value.
    """
    if CROWDED * problem.population < SURE * noise:
        return np.zeros(center.shape, dtype=bool)
    missed = 1.5 * resolution(HALVINGS) * np.abs(center)  # scales are up to 1.4 times too large
    return (center != 0) & (seen.sum(axis=1) <= 1) & (scales <= missed)


def common_scale(curator: Curator, problem: Problem) -> Floats:
    """Return one root mean square for all columns, from the norms of the rows; the intercept has its own.

    Where no octave stands out of the noise it is 1, and so are the units.
    """
    ours = np.append(np.ones(problem.features), np.zeros(problem.n_intercepts))
    tail = Tail.read(curator.release("features", ours)[0], noise_std(curator, "features", ours), 2.0)
    square = tail.moment(tail.edge, problem.population, 2) / 2.0  # upper edges are too far by about 1.4
    size = math.sqrt(square / problem.features) if tail.sure else 1.0
    return np.append(np.full(problem.features, size), [problem.intercept] * problem.n_intercepts)


# ---------------------------------------- Convex sets to which iterates are projected: free post-processing


class Constraint(Protocol):
    """A closed convex set."""

    def project(self, point: Floats) -> Floats:
        """Return the nearest point of the set."""


@dataclass(frozen=True)
class L2Ball:
    """The vectors of Euclidean norm at most ``radius``."""

    radius: float = 1.0

    def __post_init__(self) -> None:
        check_range("radius", self.radius, "(0, inf)", _COEFFICIENTS)

    def project(self, point: Floats) -> Floats:
        norm = float(np.linalg.norm(point))
        return point if norm <= self.radius else point * (self.radius / norm)


@dataclass(frozen=True)
class Box:
    """The vectors with every entry in [low, high]."""

    low: float = -1.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise InvalidInputError(f"Expected low <= high, got {self.low} > {self.high}.")

    def project(self, point: Floats) -> Floats:
        return np.clip(point, self.low, self.high)


@dataclass(frozen=True)
class Simplex:
    """The non-negative vectors that sum to ``total``."""

    total: float = 1.0

    def __post_init__(self) -> None:
        check_range("radius", self.total, "(0, inf)", _COEFFICIENTS)

    def project(self, point: Floats) -> Floats:
        """Subtract the one number that makes the positive parts sum to ``total`` (sorting, O(d log d))."""
        flat = np.asarray(point, dtype=float).reshape(-1)
        falling = np.sort(flat)[::-1]
        excess = (np.cumsum(falling) - self.total) / np.arange(1, flat.size + 1)
        shift = excess[np.flatnonzero(falling > excess)[-1]]
        return np.maximum(flat - shift, 0.0).reshape(np.shape(point))


@dataclass(frozen=True)
class L1Ball(L2Ball):
    """The vectors whose magnitudes sum to at most ``radius``: a part of the ball of this Euclidean norm."""

    def project(self, point: Floats) -> Floats:
        """Project the magnitudes to the simplex and give the signs back."""
        sizes = np.abs(point)
        if sizes.sum() <= self.radius:
            return point
        return np.copysign(Simplex(self.radius).project(sizes), point)


_COEFFICIENTS = "Pass a public bound on the coefficients."


# --------------------- DP-SCO: projected gradient descent with a robust mean of the gradients (Algorithm 2)

MOST_MOMENTUM = 10.0  # steps that momentum may add up
_LEARNED, _BY_NORM = Scaling(), Truncation(by="norm")


@dataclass(frozen=True)
class ProjectedGradient:
    r"""``w <- Proj(w - step (robust mean of gradients + noise + ridge w))``.

    Parameters
    ----------
    steps : the number of noisy gradients.
    scaling : thresholds, step size and column scales, given or learned.
    average : the iterates that are averaged: "all" (paper, convex losses), "last" (paper, strongly convex) or
        "tail", the second half (our default for strongly convex losses: free, and with less noise).
    split : step t sees the t-th of ``steps`` disjoint chunks (paper, strongly convex); otherwise every step
        sees all records, which needs less noise: sqrt(T) / n instead of T / n.
    truncation, blocks : the robust mean; by norm (default), by coordinate, or a median of block means.
    constraint : the convex set, intercept excluded.

    **Privacy.** ``steps`` Gaussian releases (one, in parallel, for disjoint chunks) and the histograms.
    Departure: line 8 of the listing passes all of X to the estimator in the split branch as well, which
    would be ``steps`` full-budget releases on the same records; each chunk is used once here.
    """

    steps: int
    scaling: Scaling = _LEARNED
    average: str = "tail"
    split: bool = False
    truncation: Truncation = _BY_NORM
    blocks: int = 1
    constraint: Constraint | None = None

    def plan(self, problem: Problem) -> Plan:
        rows = Disjoint(self.steps) if self.split else Full()
        paid = 1 if self.split else self.steps
        releases = self.scaling.releases(problem, self.truncation.by, paid, self.steps)
        query = RobustGradient(problem.loss, self.truncation, self.blocks)
        releases["gradient"] = Release(query, problem.gaussian(), rows, self.steps, mean=False)
        return problem.planned(**releases)

    def run(self, curator: Curator, problem: Problem) -> Iterator[Floats]:
        point, step = self.scaling.start(curator, problem)
        walk = _Walk(step, point, problem, self)
        total = np.zeros(problem.shape)
        first = {"all": 0, "tail": self.steps // 2, "last": self.steps - 1}[self.average]
        refresh = self.scaling.refreshes(self.steps)
        for t in range(self.steps):
            point = replace(point, w=walk.point.w)
            if t in refresh:
                # Bias and noise are compared per coordinate, or in norm where norms are truncated.
                noise = self._noise(curator, problem, replace(point, threshold=1.0)) * problem.population
                if self.truncation.by == "coordinate":
                    noise /= math.sqrt(point.size)
                cut, size = self.scaling.threshold(curator, problem.population, point, noise)
                # Gradients shrink on the way: an octave that shows later was there before, or is noise.
                point = replace(point, threshold=min(cut, point.threshold) if t else cut)
                walk.allow(step * self._patience(curator, problem, point, size))
            gradient = np.asarray(curator.release("gradient", point)) / self._records(problem)
            gradient = gradient + problem.ridge * point.w / np.square(point.scales)
            walk.move(gradient, self._noise(curator, problem, point))
            if t >= first:
                total += walk.coefficients
            yield total / (t + 1 - first) if t >= first else walk.coefficients

    def _records(self, problem: Problem) -> float:
        """Return the public number of records behind a mean (of a block)."""
        return problem.population / ((self.steps if self.split else 1) * self.blocks)

    def _noise(self, curator: Curator, problem: Problem, point: GradientPoint) -> float:
        """Return the norm that the noise of a mean gradient has, roughly."""
        std = noise_std(curator, "gradient", point) / self._records(problem)
        return std * math.sqrt(point.size)

    def _patience(self, curator: Curator, problem: Problem, point: GradientPoint, size: float) -> float:
        """Return the share of a learned step that keeps the noise of all steps from carrying the model away.

        A gradient of norm ``size`` is ``sqrt(p)`` residuals long in the units of p columns (an entry of that
        size is one).
        """
        if self.scaling.step is not None or not size > 0:
            return 1.0
        residual = size / (math.sqrt(point.size) if self.truncation.by == "norm" else 1.0)
        return patience(self._noise(curator, problem, point) / residual, self.steps)


class _Walk:
    """The iterates; a learned step is shortened whenever a released gradient says that it is too long.

    Collinear columns make it short for all directions; momentum makes up for that in the flat ones, as far
    as a step of the length that noise allows would go. All of it looks at released values only.
    """

    def __init__(
        self, step: float, point: GradientPoint, problem: Problem, solver: ProjectedGradient
    ) -> None:
        self.step, self.point = step, point
        self._allowed, self._velocity = step, np.zeros_like(point.w)
        self._free, self._constant = problem.features, problem.intercept
        self._adapts, self._constraint = solver.scaling.step is None, solver.constraint
        self._last: tuple[Floats, Floats] | None = None

    @property
    def coefficients(self) -> Floats:
        return raw_coefficients(self.point, self._constant)

    def allow(self, longest: float) -> None:
        """Bound the step, and what momentum makes of it."""
        self._allowed = min(self._allowed, longest)
        self.step = min(self.step, longest)

    def move(self, gradient: Floats, noise: float) -> None:
        """Take one step; if the last one overshot, go back and take a shorter one instead."""
        if self._adapts and self._last is not None:
            before, old = self._last
            self.step = min(self.step, 1.0 / self._curvature(before, old, gradient, noise))
            if np.linalg.norm(gradient) > 1.1 * np.linalg.norm(old) + 2.0 * noise:
                self.step /= 2.0
                self.point, gradient = replace(self.point, w=before), old
                self._velocity = np.zeros_like(gradient)
        self._last = (self.point.w, gradient)
        gain = min(max(self._allowed / self.step, 1.0), MOST_MOMENTUM)  # of a lasting gradient
        self._velocity = (1.0 - 1.0 / gain) * self._velocity + gradient
        w = self.point.w - self.step * self._velocity
        if self._constraint is not None:
            raw = w / self.point.scales
            raw[..., : self._free] = self._constraint.project(raw[..., : self._free])
            w = np.asarray(raw * self.point.scales)
        self.point = replace(self.point, w=w)

    def _curvature(self, before: Floats, old: Floats, gradient: Floats, noise: float) -> float:
        """Return how fast the gradient changed along the last step, beyond what noise explains."""
        change = float(np.sum((gradient - old) ** 2)) - 4.0 * noise**2
        moved = float(np.sum((self.point.w - before) ** 2))
        return math.sqrt(max(change, 0.0) / moved) + 1e-12 if moved > 0 else 1e-12


# ----------------------------------------------------- Sparse learning from heavy-tailed data (Algorithm 5)

# Of a learned step: learned scales are up to 1.4 times too small, and no gradient corrects it here.
CAREFUL = 0.5
STEPS_TAKEN, LONGER = 10, 10.0  # of the solver of the sparse estimators
OVERSHOOTS = 1.5  # a step this many times as long as the curvature allows; from 2 on it leads away


@dataclass(frozen=True, eq=False)
class Step:
    """A step from a point, on some flat coordinates; all of it public or released before."""

    point: GradientPoint
    length: float
    coordinates: Ints

    def start(self, ridge: float) -> Floats:
        """Return the point after the ridge alone, which is public."""
        return self.point.w * (1.0 - self.length * ridge / np.square(self.point.scales))


@dataclass(frozen=True)
class GradientStep(FromSum, ClippedSum):
    r"""``w - length (sum of truncated gradients / records + ridge w)`` on the coordinates of a :class:`Step`.

    In L2 what the sum adds to its public start: an intercept far from zero would round it.

    **Privacy.** One record moves each coordinate by at most ``lam = length * threshold / records`` (twice
    when replaced): lam in Linf, ``sqrt(coordinates) lam`` in L2, or ``joint lam`` where gradients are clipped
    jointly and that is less. ``records`` is a public constant.
    """

    loss: Loss
    records: float
    ridge: float = 0.0
    zero: bool = False
    norm: Norm = Norm.LINF
    joint: float | None = None

    adds_up: ClassVar[bool] = False  # each answer starts from the point

    @property
    def truncation(self) -> Truncation:
        return Truncation(zero=self.zero, joint=self.joint)

    def contribution(self, params: Step) -> float:
        """Return lam, or lam times the norm that the coordinates of a truncated gradient can have."""
        length = params.length / self.records
        size = 1 if self.norm is Norm.LINF else params.coordinates.size
        return length * self.truncation.bound(size, params.point.threshold)

    def error(self, params: Step, count: int) -> float:
        """Return the rounding of the sum, and of the step from the point where that is part of the answer."""
        point, rounded = params.point, summation_error(count, self.contribution(params))
        if self.norm is not Norm.LINF:
            return rounded
        ridge = 1.0 + self.ridge * params.length / float(np.square(point.scales).min())
        return rounded + 16 * 2.0**-53 * ridge * float(np.abs(point.w).max(initial=0.0))

    def summed(self, records: PartedRows, params: Step) -> Floats:
        return RobustGradient(self.loss, self.truncation).evaluate(records, params.point)

    def finished(self, total: Floats, params: Step) -> Floats:
        start = params.start(self.ridge) if self.norm is Norm.LINF else 0.0
        return (start - params.length * (total / self.records)).reshape(-1)[params.coordinates]


@dataclass(frozen=True)
class HeavyTailedSparse:
    r"""``w <- top-s(w - step (truncated mean gradient))`` with a private choice of the s coordinates.

    Parameters
    ----------
    sparsity : s, the number of coefficients that survive; None keeps all and selects nothing.
    steps : their number T.
    scaling : threshold B, step size and column scales, given or learned.
    split : step t sees the t-th of T chunks (paper); False, better under zCDP, sees all records each time.
    selection : ``"gumbel"`` (one-shot Gumbel top-s, Gaussian values) or ``"peeling"`` (paper, Laplace).
    zero : set truncated entries to zero (paper) instead of clipping them.
    joint : clip the truncated gradient of a record to this norm in units of the threshold: the values of s
        coordinates then move by ``min(sqrt(s), joint) lam``, and an intercept no further than before.

    **Privacy.** Per step one selection (``s lam^2 / (2 beta^2)`` zCDP) and one Gaussian release of the s
    values, with equal shares; or one peeling. The intercept gets a Gaussian release and is never selected.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="truncated gradients, then support and values",
        reads=("n_nonzero_coefs", *STEPS),
        sparse=True,
        weights=False,
        paper="heavy-tailed sparse optimisation",
        page="../heavy-tails",
        losses=CURVED,
    )

    sparsity: int | None
    steps: int
    scaling: Scaling = _LEARNED
    split: bool = False
    selection: str = "gumbel"
    zero: bool = False
    joint: float | None = None

    @classmethod
    def configure(cls, problem: Problem, options: Options) -> HeavyTailedSparse:
        """Fill what the user left open from public facts; ``clip_norm`` is the threshold B.

        Rows of the sparse estimators have a declared bound, and so have entries of a gradient: half of the
        largest one that is usual is the threshold. (A histogram of the entries of rows of text would drown:
        nearly all are zero.) Ten steps, longer than the curvature of a row allows: a few columns have a small
        part of it.
        """
        steps = STEPS_TAKEN if options.max_iter is None else options.max_iter
        cut = options.peak(problem) / 2.0 if options.clip_norm is None else options.clip_norm
        step = LONGER * options.step(problem) if options.step_size is None else options.step_size
        wanted = options.n_nonzero_coefs
        free = problem.features * problem.outputs
        kept = None if wanted is None else distinguishable(problem, wanted, free)
        whole = problem.gradient_bound / cut  # no gradient is longer than the bound of all
        return cls(kept, steps, Scaling(fixed=cut, step=step), joint=max(whole, 1.0))

    def plan(self, problem: Problem) -> Plan:
        rows = Disjoint(self.steps) if self.split else Full()
        paid = 2 if self.split else 2 * self.steps  # a selection costs as much as its values
        releases = self.scaling.releases(problem, "coordinate", paid, self.steps)
        query = GradientStep(problem.loss, self._records(problem), problem.ridge, self.zero, joint=self.joint)
        for name, mechanism in self._mechanisms(problem).items():
            asked = replace(query, norm=Norm.LINF if name == "select" else Norm.L2)
            releases[name] = Release(asked, mechanism, rows, self.steps, mean=False)
        return problem.planned(**releases)

    def run(self, curator: Curator, problem: Problem) -> Iterator[Floats]:
        point, length = self.scaling.start(curator, problem)
        longest, taken = length, list[Taken]()
        refresh = self.scaling.refreshes(self.steps)
        for t in range(self.steps):
            if t in refresh:
                noise = self._noise(curator, problem) * (self.steps if self.split else 1)
                cut, size = self.scaling.threshold(curator, problem.population, point, noise)
                point = replace(point, threshold=cut)
                patient = self._patience(curator, problem, cut / size if size > 0 else 1.0)
                length = min(length, longest * patient)
            moved = self._move(curator, problem, point, length)
            energy = 0.0  # the variance of the noise in a coordinate of a released gradient
            if "values" in curator.plan.releases:
                unit = Step(point, 1.0, np.arange(self._count_kept(problem)))
                energy = noise_std(curator, "values", unit) ** 2
            taken.append(Taken(point.w.ravel(), moved.ravel(), length, energy))
            length = steady(taken[-2:], length) if self.scaling.step is None else length
            point = replace(point, w=moved)
            yield raw_coefficients(point, problem.intercept)

    def _records(self, problem: Problem) -> float:
        return problem.population / (self.steps if self.split else 1)

    def _selects(self, problem: Problem) -> bool:
        return self.sparsity is not None and self.sparsity < problem.features * problem.outputs

    def _count_kept(self, problem: Problem) -> int:
        """Return how many coordinates get a value in a step."""
        chosen = (self.sparsity or 0) + problem.n_intercepts
        return chosen if self._selects(problem) else math.prod(problem.shape)

    def _mechanisms(self, problem: Problem) -> dict[str, Any]:
        if not self._selects(problem):
            return {"values": problem.gaussian()}
        s = int(self.sparsity or 0)
        if self.selection == "gumbel":
            chooser = GumbelTopK(relative=math.sqrt(s), count=s, absolute=True)
            return {"select": chooser, "values": problem.gaussian()}
        peeling = {"select": LaplacePeeling(relative=math.sqrt(5.0 * s), count=s)}
        if not problem.n_intercepts:
            return peeling
        # One more value beside s peeled ones gets a small share.
        return {**peeling, "values": problem.gaussian(share_relative(1.0 / (s + 1)))}

    def _move(self, curator: Curator, problem: Problem, point: GradientPoint, length: float) -> Floats:
        w, out = point.w, np.zeros(point.size)
        free = np.arange(w.size).reshape(w.shape)[..., : problem.features].reshape(-1)  # all but intercepts
        kept = np.setdiff1d(np.arange(w.size), free)
        chosen = np.arange(w.size)
        if self._selects(problem):
            best = curator.release("select", Step(point, length, free))
            if self.selection == "gumbel":
                chosen = np.concatenate([free[best], kept])
            else:
                out[free[best.indices]] = best.values
                chosen = kept
        if chosen.size:
            step = Step(point, length, chosen)
            out[chosen] = step.start(problem.ridge).reshape(-1)[chosen] + curator.release("values", step)
        return out.reshape(w.shape)

    def _patience(self, curator: Curator, problem: Problem, cut: float) -> float:
        """Return the share of a learned step that keeps the noise of all steps from carrying the model away.

        ``cut`` is the threshold in units of a typical entry of a gradient, which is a residual.
        """
        if self.scaling.step is not None:
            return 1.0
        values = curator.plan.releases["values" if "values" in curator.plan.releases else "select"].mechanism
        kept = self._count_kept(problem)
        bound = problem.rows * Truncation(joint=self.joint).bound(kept, 1.0)
        bound *= curator.plan.relation.contributions * (values.multiplier or 0.0)
        noise = cut * bound / self._records(problem) * math.sqrt(kept)
        return min(CAREFUL, patience(noise, self.steps))

    def _noise(self, curator: Curator, problem: Problem) -> float:
        """Return the noise of one coordinate in units of ``length * threshold / records``."""
        selects = self._selects(problem)
        mechanism = curator.plan.releases["select" if selects else "values"].mechanism
        size = 1 if selects else problem.columns * problem.outputs
        scale = (mechanism.multiplier or 0.0) * curator.plan.relation.contributions * problem.rows
        return scale * Truncation(joint=self.joint).bound(size, 1.0)


@dataclass(frozen=True, eq=False)
class Taken:
    """A step that was taken: from where, to where, how long, and the variance of a gradient's noise."""

    start: Floats
    end: Floats
    length: float
    energy: float

    @property
    def gradient(self) -> Floats:
        return np.where(self.end != 0.0, (self.start - self.end) / self.length, np.nan)


def steady(taken: list[Taken], length: float) -> float:
    """Return a step that does not lead away, from the curvature between the last two released gradients.

    Columns that resemble each other bend the loss more than one of them. As in
    :class:`~sordino.solvers.descent.NoisyDescent` the noise that both points share is subtracted.
    """
    if len(taken) < 2:
        return length
    before, last = taken
    moved, changed = last.start - before.start, last.gradient - before.gradient
    both = np.isfinite(changed)
    squared = float(np.square(moved[both]).sum())
    if not squared > 0.0:
        return length
    spurious = before.length * before.energy * float(both.sum())
    curvature = (float((moved * changed)[both].sum()) - spurious) / squared
    return 1.0 / curvature if length * curvature > OVERSHOOTS else length


# --------------------------------------------------------------- The rows of the registry for both learners

# Steps of dense and of sparse models, on disjoint chunks, and without noise, where they cost nothing and
# collinear columns need many.
DENSE_STEPS, SPARSE_STEPS, SPLIT_STEPS, FREE_STEPS = 50, 10, 10, 500
_PUBLIC = "Pass a public number; from the data it would leak."
LEARNER = Capabilities(
    asks="robust means of gradients, and histograms of their scales",
    reads=("n_nonzero_coefs", "max_iter", "step_size"),
    options={
        "constraint": Option(),
        "gradient": Option("norm", ("norm", "truncated", "median-of-means")),
        "joint_clip": Option(None, "> 0", "It is in units of the threshold."),
        "scale_columns": Option("auto"),
        "selection": Option("gumbel", ("gumbel", "peeling")),
        "split": Option(False),
        "threshold": Option(None, "> 0", _PUBLIC),
        "truncation": Option("clip", ("clip", "zero")),
    },
    sparse=True,
    dense=True,
    weights=False,
    losses=CURVED,
    paper="DP-SCO on heavy tails",
    page="../heavy-tails",
)


def learner(problem: Problem, options: Options, average: str) -> ProjectedGradient | HeavyTailedSparse:
    """Return the learner of a problem without bounds: with a sparsity the one of Algorithm 5.

    ``average`` says which iterates of a dense model are averaged, where no step has records of its own.
    """
    own = options.read(LEARNER)
    split, constraint = check_flag("split", own["split"]), own["constraint"]
    if constraint is not None and not callable(getattr(constraint, "project", None)):
        raise InvalidInputError(
            f"Expected constraint to be a set of sordino.solvers.heavy.learners, got "
            f"{type(constraint).__name__}."
        )
    usual = SPARSE_STEPS if options.n_nonzero_coefs is not None else DENSE_STEPS
    usual = SPLIT_STEPS if split else FREE_STEPS if math.isinf(problem.epsilon) else usual
    steps = options.steps(min(usual, problem.population))
    given = constraint is not None or options.step_size is not None
    # the reach of the histograms of all columns, which have to stand out of their noise
    reach = problem.population * min(problem.epsilon, 10.0) / 1000.0
    columns = not given and problem.features <= 3.0 * reach**2
    if own["scale_columns"] != "auto":
        columns = check_flag("scale_columns", own["scale_columns"])
    free = problem.n_intercepts > 0 and options.step_size is None
    zero = own["truncation"] == "zero"
    scaling = Scaling(
        center=columns and not problem.sparse and free,
        target=free and problem.loss.link is IDENTITY,
        order=problem.moment_order,
        bound=problem.moment_bound,
        fixed=own["threshold"],
        step=options.step_size,
        columns=columns,
    )
    if options.n_nonzero_coefs is not None:
        start = (options.n_nonzero_coefs, steps, scaling, split)
        return HeavyTailedSparse(*start, own["selection"], zero, own["joint_clip"])
    by = "norm" if own["gradient"] == "norm" else "coordinate"
    blocks = 1
    if own["gradient"] == "median-of-means":
        wanted = math.ceil(4.0 * math.log(2.0 * problem.columns * problem.outputs / 0.05)) | 1
        blocks = max(1, min(wanted, problem.population // (steps if split else 1)))
    average = "last" if split and average == "tail" else average
    truncation = Truncation(by, zero, own["joint_clip"])
    return ProjectedGradient(steps, scaling, average, split, truncation, blocks, constraint)
