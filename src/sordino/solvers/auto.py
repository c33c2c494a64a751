"""The default: find good coordinates, descend with momentum, threshold late, polish on the support."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.kernel import Curator, Full, Plan, Release
from sordino.kernel.arrays import Bools, Floats
from sordino.problems.affine import Affine, AffineGradient, ColumnMoments, SizeCounts
from sordino.problems.problem import Problem
from sordino.solvers.base import NoisyCoefficients, Options, Solver
from sordino.solvers.capabilities import STEPS, Capabilities
from sordino.solvers.descent import Noise, NoisyDescent, masked, noise_limited_step
from sordino.solvers.sparse.ight import Ight

# Shares of the budget (of rho); what is left goes to the gradients on all columns.
MOMENTS, SIZES, SIZES_AGAIN = 0.05, 0.02, 0.01
NARROW, POLISH, POLISH_ALONE = 0.12, 0.20, 0.30
# Margin noise that the last iterate may carry: dense models of two and of more classes, models still to be
# thresholded on all columns and on some, polishing.
DENSE, MANY, SELECTING, NARROWING, POLISHING = 1.2, 1.6, 0.3, 0.5, 1.0
# The support is found in stages that keep so many times as many coefficients as the last one.
WIDTHS = (24, 6)
INTERCEPT = 0.25
COLUMN_POWER = 0.4
CLIP = 0.35
# Rows larger than this share of the records are clipped.
TYPICAL = 0.6


@dataclass(frozen=True)
class Stage:
    """A descent on the largest ``count`` coefficients: its steps, share of the budget and margin noise."""

    count: int
    steps: int
    share: float
    margin_noise: float


@dataclass(frozen=True, eq=False)
class MappedProblem:
    """Where a descent takes place: mapped columns, the coordinates that are open, the unit of the targets."""

    affine: Affine
    mask: Bools | None
    target_unit: float

    @property
    def params(self) -> tuple[Affine, Bools | None, float]:
        """What a gradient is asked with, besides its point."""
        return self.affine, self.mask, self.target_unit


@dataclass(frozen=True)
class Auto:
    r"""Private column means and scales, noisy Nesterov descent, thresholding in stages.

    1. The sums of the columns and of their absolute values are released (a small share). Columns are
       centred and divided by a power of their mean absolute value, floored at the noise; a released
       histogram of row sizes sets the scale. Without centring, one direction would hold all of the
       curvature.
    2. ``steps`` noisy gradients drive Nesterov descent. The step is the largest at which the noise of the
       margins stays below a constant, so it grows with n and epsilon.
    3. With a sparsity k, the largest 24 k, then 6 k, then k coefficients are kept. After each cut the sizes
       of the restricted rows are released (they are smaller, and so is the noise), and a share of the
       budget descends on the columns that are left: many can be told apart that drowned before.

    **Privacy.** Gaussian releases of clipped sums over all records; everything else is post-processing
    of released numbers or a function of n, d, k, epsilon and delta.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="column moments, row sizes, gradients",
        reads=("n_nonzero_coefs", *STEPS),
        sparse=True,
        dense=True,
        persons=True,
        secure_noise=True,
        paper="the default",
        page="auto",
    )

    steps: int
    stages: dict[str, Stage]
    clip: float
    step: float | None
    center: bool

    @classmethod
    def configured(cls, problem: Problem, options: Options) -> Solver:
        """Choose from public facts."""
        options.chosen()
        if problem.secure_noise:  # centred rows are dense: no exact integer sums
            return Ight.configured(problem, options)
        k, coefficients = options.n_nonzero_coefs, problem.features * problem.outputs
        stages = narrowing(k, coefficients) if k is not None and k < coefficients else {}
        steps = options.max_iter or (30 if stages else 50)
        clip = CLIP if options.clip_norm is None else options.clip_norm
        return cls(steps, stages, clip, options.step_size, bool(problem.intercept))

    def plan(self, problem: Problem) -> Plan:
        """Declare the moments, the sizes, the gradients and the polishing."""
        gradient = AffineGradient(problem.loss, self.clip)
        cells = grid_cells(problem)
        queries: dict[str, tuple[Any, int, float]] = {
            "moments": (ColumnMoments(problem.data_norm), 1, MOMENTS),
            "sizes": (SizeCounts("rows", cells), 1, SIZES),
        }
        if problem.loss.targets in ("numbers", "counts"):
            queries["targets"] = (SizeCounts("targets", cells), 1, SIZES)
        for name, stage in self.stages.items():
            queries[f"{name}-sizes"] = (SizeCounts("rows", cells), 1, SIZES_AGAIN)
            queries[name] = (gradient, stage.steps, stage.share)
        queries["gradient"] = (gradient, self.steps, 1.0 - sum(share for _, _, share in queries.values()))
        return problem.planned(
            **{
                name: Release(query, problem.gaussian(math.sqrt(times / share)), Full(), times, mean=False)
                for name, (query, times, share) in queries.items()
            }
        )

    def run(self, curator: Curator, problem: Problem) -> Iterator[Any]:
        """Yield the iterates; the last one is on the original columns."""
        affine = self._mapped(curator, problem)
        view = MappedProblem(affine, None, self._target_unit(curator, problem))
        w = start = np.zeros(problem.shape)
        descent = self._descent(curator, problem, "gradient", view)
        for w in descent.path(start, self.steps):
            yield w
        noise = descent.noise_std * affine.scale
        for name, stage in self.stages.items():
            view, start = self._narrowed(curator, problem, view, w, name)
            descent = self._descent(curator, problem, name, view)
            for w in descent.path(start, stage.steps):
                yield w
            scale = view.affine.scale
            noise = np.where(scale > 0, np.hypot(noise, descent.noise_std * scale), 0.0)
        coefficients = view.affine.coefficients(w, problem.intercept)
        size = _margin_unit(problem, view.target_unit)
        yield NoisyCoefficients(coefficients * size, noise * size)

    def _narrowed(
        self, curator: Curator, problem: Problem, view: MappedProblem, w: Floats, name: str
    ) -> tuple[MappedProblem, Floats]:
        """Keep the largest coefficients; restricted rows are smaller, so measure them again."""
        mask = top_mask(w, self.stages[name].count, problem.n_intercepts)
        columns: Bools = np.any(np.atleast_2d(mask), axis=0)
        affine = view.affine.restricted(columns[: problem.features])
        size = self._size(curator, f"{name}-sizes", affine)
        w = np.where(mask, w, 0.0)
        w[..., : problem.features] *= size
        return MappedProblem(affine.resized(1.0 / size), mask, view.target_unit), w

    def _descent(self, curator: Curator, problem: Problem, name: str, view: MappedProblem) -> NoisyDescent:
        mask = view.mask
        n, steps = problem.population, curator.plan.releases[name].times
        coordinates = math.prod(problem.shape) if mask is None else int(mask.sum())
        noise = Noise(noise_std(curator, name) / n, coordinates)
        step = self.step
        if step is None:
            step = noise_limited_step(self._margin_noise(name, problem), steps, noise)

        def gradient(w: Floats) -> Floats:
            return curator.release(name, (w, *view.params)) / n

        full = gradient if mask is None else masked(gradient, mask)
        return NoisyDescent(full, step, noise, penalty_through(view, problem))

    def _margin_noise(self, name: str, problem: Problem) -> float:
        if name in self.stages:
            return self.stages[name].margin_noise
        if self.stages:
            return SELECTING
        return DENSE if problem.outputs == 1 else MANY

    def _mapped(self, curator: Curator, problem: Problem) -> Affine:
        n, d, radius = problem.population, problem.features, problem.data_norm
        released = curator.release("moments") / n
        floor = 2.0 * noise_std(curator, "moments") / n
        mean = shrunk(released[:d], floor / 2) * radius if self.center else np.zeros(d)
        scale = np.maximum(released[d:], max(floor, 1e-12)) ** -COLUMN_POWER
        affine = Affine(mean, scale / (scale.max() * radius), INTERCEPT if problem.intercept else 0.0)
        return affine.resized(1.0 / self._size(curator, "sizes", affine))

    def _size(self, curator: Curator, name: str, affine: Affine | None) -> float:
        counts = curator.release(name, affine)
        query: Any = curator.plan.releases[name].query
        return float(query.quantile(counts, TYPICAL, noise_std(curator, name)))

    def _target_unit(self, curator: Curator, problem: Problem) -> float:
        if "targets" not in curator.plan.releases:
            return 1.0
        return min(self._size(curator, "targets", None), problem.target_bound)


def narrowing(sparsity: int, coefficients: int) -> dict[str, Stage]:
    """Return the stages that end at this sparsity; one that would keep most coefficients is left out."""
    wide = {
        f"narrow-{times}": Stage(times * sparsity, 10, NARROW, NARROWING)
        for times in WIDTHS
        if 2 * times * sparsity <= coefficients
    }
    return {**wide, "polish": Stage(sparsity, 20, POLISH if wide else POLISH_ALONE, POLISHING)}


def penalty_through(view: MappedProblem, problem: Problem) -> Callable[[Floats], Floats] | None:
    """Return the gradient, in mapped weights, of the penalties on the original coefficients.

    The mapped loss is in units of the target unit times that of the margins, which coefficients are in.
    """
    affine, mask, unit = view.params
    if not problem.penalties:
        return None

    def gradient(w: Floats) -> Floats:
        coefficients = affine.coefficients(w, problem.intercept) * _margin_unit(problem, unit)
        out = affine.pulled_back(problem.penalty_gradient(coefficients), problem.intercept) / unit
        return out if mask is None else np.where(mask, out, 0.0)

    return gradient


def _margin_unit(problem: Problem, unit: float) -> float:
    """Return the unit of margins: that of the targets, but for counts, whose logarithm they predict."""
    return unit if problem.loss.targets == "numbers" else 1.0


def grid_cells(problem: Problem) -> int:
    """Return how finely sizes are counted: as finely as the noise of the counts allows."""
    signal = problem.population * min(problem.epsilon, 4.0)
    return 4 if signal > 4000 else 2 if signal > 1000 else 1


def noise_std(curator: Curator, name: str) -> float:
    """Return the standard deviation of a planned Gaussian sum: public, it is in the plan."""
    release = curator.plan.releases[name]
    return float(release.mechanism.multiplier or 0.0) * release.sensitivity(curator.plan.relation)


def shrunk(values: Floats, noise: float) -> Floats:
    """Shrink noisy means towards zero, those below about the noise level to zero."""
    if noise == 0:
        return values
    return values * np.maximum(0.0, 1.0 - 2.0 * (noise / np.maximum(np.abs(values), 1e-300)) ** 2)


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
