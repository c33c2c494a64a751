"""Column scales, step sizes and thresholds that a learner reads off noisy histograms."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sordino.kernel import Curator, Release
from sordino.kernel.arrays import Bools, Floats
from sordino.problems.problem import Problem
from sordino.problems.robust import GradientPoint
from sordino.problems.scales import (
    EDGES,
    ColumnScales,
    CountsBelow,
    FeatureScales,
    GradientScales,
    TargetsBelow,
)
from sordino.solvers.heavy.location import COLUMNS, CROWD, ROUGH, median_of, resolution
from sordino.solvers.heavy.shares import noise_of, share_relative
from sordino.solvers.heavy.threshold import LARGEST, LIKELY, SURE, Tail, moment_threshold

SHARE = 0.1  # of the budget for each kind of histogram
MOST, FEWER = 0.8, 14  # the largest share of the targets' median, and its halvings there: to 1 % of itself
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
        halvings = problem.gaussian(share_relative(SHARE, paid / ROUGH))
        if self.center:
            out["location"] = Release(CountsBelow(problem.features), halvings, times=ROUGH, mean=False)
        if self.target:
            share, times = target_share(problem)
            halvings = problem.gaussian(share_relative(share, paid / times))
            out["target"] = Release(TargetsBelow(), halvings, times=times, mean=False)
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
        center = self._center(curator, problem)
        scales: Floats | float = 1.0
        if self.columns:
            scales = learned_scales(curator, problem, None if center is None else center[: problem.features])
        elif self.step is None:
            scales = common_scale(curator, problem)
        ridge = problem.ridge / float(np.min(scales)) ** 2
        w = np.zeros(problem.shape)
        if self.target:
            # In the units of the constant itself.
            w[-1] = median_of(curator, problem.population, 1, "target", near=0.0)[0]
        point = GradientPoint(w, 1.0, scales, center)
        if self.step is not None:
            return point, self.step
        return point, 1.0 / max(problem.curvature + ridge, 1e-12)

    def _center(self, curator: Curator, problem: Problem) -> Floats | None:
        if not self.center:
            return None
        found = median_of(curator, problem.population, problem.features, crowd=COLUMNS, near=0.0)
        return np.append(found, np.zeros(problem.n_intercepts))

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
        tail = Tail.read(counts, noise_of(curator, "gradients", point), 1.0 + self.order)
        cut = tail.threshold(noise)
        return cut, min(tail.typical(n), cut)


def target_share(problem: Problem) -> tuple[float, int]:
    """Return the share of the budget for a rough median of the targets, and its number of halvings.

    It must find ``CROWD`` noise widths among the records, or the model starts at zero, which for targets far
    from zero is far below a constant. Where that takes more than usual the coefficients drown in any case,
    and the constant is what can be learned. All of it is public.
    """
    width = _CLASSICAL * math.sqrt(2.0 * math.log(1.25 / max(problem.delta, 1e-300))) / problem.epsilon
    needed = (CROWD * width / problem.population) ** 2
    if needed * ROUGH <= SHARE / 2.0 or needed * FEWER > MOST:
        return SHARE / 2.0, ROUGH
    return needed * FEWER, FEWER


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
    counts, noise = curator.release("columns", center), noise_of(curator, "columns", None)
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
    missed = 1.5 * resolution(ROUGH) * np.abs(center)  # scales are up to 1.4 times too large
    return (center != 0) & (seen.sum(axis=1) <= 1) & (scales <= missed)


def common_scale(curator: Curator, problem: Problem) -> Floats:
    """Return one root mean square for all columns, from the norms of the rows; the intercept has its own.

    Where no octave stands out of the noise it is 1, and so are the units.
    """
    ours = np.append(np.ones(problem.features), np.zeros(problem.n_intercepts))
    tail = Tail.read(curator.release("features", ours)[0], noise_of(curator, "features", ours), 2.0)
    square = tail.moment(tail.edge, problem.population, 2) / 2.0  # upper edges are too far by about 1.4
    size = math.sqrt(square / problem.features) if tail.sure else 1.0
    return np.append(np.full(problem.features, size), [problem.intercept] * problem.n_intercepts)
