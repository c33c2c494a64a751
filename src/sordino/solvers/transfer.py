"""DPSL-KT made sound: a private strongly convex teacher, a sparse student on public features."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from sordino.errors import InvalidInputError
from sordino.kernel import Curator, Full, Plan, Release, public_generator
from sordino.kernel.arrays import Floats
from sordino.kernel.query import Point
from sordino.problems.minimiser import CertifiedMinimiser, MinimiserResponses, convex_clip
from sordino.problems.problem import Problem
from sordino.solvers.base import CURVED, Capabilities, Option, Options
from sordino.solvers.steps import bearable, hard_threshold, target_unit
from sordino.values import check_range, check_whole

# The noise that a margin of the released teacher may carry, in units of the targets; the least and the most
# ridge, in units of the squared row bound: a weaker one takes long to certify, a stronger leaves nothing.
MARGIN_NOISE, WEAKEST, STRONGEST = 0.3, 1e-4, 0.1
STUDENT_STEPS = 200
_EXACT_NORM = 2000  # the smaller side of a matrix whose operator norm is computed exactly


@dataclass(frozen=True, eq=False)
class Transfer:
    r"""Release a certified ridge/logistic teacher once; fit a sparse student to what it says.

    ``mode="P"`` releases the parameters ``theta + N(0, (z D)^2 I)``; the student then minimises
    ``||X~ w - X~ theta_p||^2`` over k-sparse w on public (or synthetic) features X~. Without features the
    student is ``H_k(theta_p)``, the limit of many isotropic synthetic ones. ``mode="R"`` releases the
    responses ``X~ theta`` instead; (R) is (P) plus more noise, so (P) is the default.

    **Privacy.** One Gaussian release; see :mod:`sordino.problems.minimiser` for its sensitivity D. The
    features must be independent of the private data.

    References: Wang 2020, chapter 3 (DPSL-KT). Departures: the published teacher is the *sparse*
    minimiser, whose sensitivity does not fall with n at all (see the documentation for a counterexample);
    ours has no sparsity constraint. The student's sparsity is post-processing.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="one regularised minimiser",
        reads=("n_nonzero_coefs", "max_iter", "clip_norm"),
        options={
            "mode": Option("P", ("P", "R")),
            "public_features": Option(),
            "public_rows": Option(),
            "strength": Option(),
            "student_steps": Option(STUDENT_STEPS),
        },
        sparse=True,
        dense=True,
        paper="DPSL-KT, with a sound teacher",
        page="transfer",
        losses=CURVED,
    )

    sparsity: int | None
    clip: float
    strength: float
    mode: str = "P"
    features: Any = None
    student_steps: int = STUDENT_STEPS

    @classmethod
    def configure(cls, problem: Problem, options: Options) -> Transfer:
        own, strength = options.read(cls.capabilities), problem.ridge or default_strength(problem)
        strength = strength if own["strength"] is None else own["strength"]
        features = _public_features(own, problem, options, needed=own["mode"] == "R")
        steps = check_whole("student_steps", options.max_iter or own["student_steps"])
        return cls(
            options.n_nonzero_coefs,
            convex_clip(problem, options.clip_norm),
            check_range("strength", strength, "(0, inf)"),
            own["mode"],
            features,
            steps,
        )

    def plan(self, problem: Problem) -> Plan:
        query: Any = CertifiedMinimiser.of(problem, self.clip, self.strength)
        if self.mode == "R":
            bound = operator_bound(with_intercept(self.features, problem.intercept))
            query = MinimiserResponses(query, lambda theta: self._responses(theta, problem), bound)
        return problem.planned(teacher=Release(query, problem.gaussian(), Full(), mean=False))

    def run(self, curator: Curator, problem: Problem) -> Iterator[Point]:
        answer = curator.release("teacher")
        if self.features is None:
            yield hard_threshold(answer, self.sparsity, problem.n_intercepts)
            return
        start = answer if self.mode == "P" else np.zeros(problem.shape)
        responses = self._responses(answer, problem) if self.mode == "P" else answer
        yield self.student(responses, start, problem)

    def _responses(self, theta: Floats, problem: Problem) -> Floats:
        margins: Floats = with_intercept(self.features, problem.intercept) @ theta.T
        return margins

    def student(self, responses: Floats, start: Floats, problem: Problem) -> Floats:
        """Return the sparse least-squares fit to public responses, by plain hard thresholding."""
        x = with_intercept(self.features, problem.intercept)
        step = 1.0 / largest_curvature(x)
        w = hard_threshold(start, self.sparsity, problem.n_intercepts)
        for _ in range(self.student_steps):
            gradient = (x.T @ (x @ w.T - responses)).T
            w = hard_threshold(w - step * gradient, self.sparsity, problem.n_intercepts)
        return w


def default_strength(problem: Problem) -> float:
    r"""Return the ridge at which the noise of a margin is about ``MARGIN_NOISE``: from public numbers.

    A teacher of strength s is released with noise ``z C / (n s)`` in each coordinate, which rows of norm R
    make ``z C R / (n s)`` in a margin; z is about ``sqrt(2 ln(1.25 / delta)) / epsilon``.
    """
    z = math.sqrt(2 * math.log(1.25 / problem.delta)) / problem.epsilon if problem.delta > 0 else 0.0
    square = problem.row_bound**2 * problem.weight_bound
    margin = MARGIN_NOISE * bearable(problem) / target_unit(problem)
    noisy = problem.relation.contributions * z / (problem.population * margin)
    return square * min(max(noisy, WEAKEST), STRONGEST)


def with_intercept(features: Any, constant: float) -> Any:
    """Return the features with their constant column."""
    if not constant:
        return features
    column = np.full((features.shape[0], 1), constant)
    return (
        sparse.hstack([features, column]).tocsr()
        if sparse.issparse(features)
        else np.hstack([features, column])
    )


def operator_bound(x: Any) -> float:
    """Return an upper bound of the operator norm: exact for a small side, else a rigorous estimate.

    Power iteration would give a lower bound, which is not sound here.
    """
    if min(x.shape) <= _EXACT_NORM:
        gram = x @ x.T if x.shape[0] <= x.shape[1] else x.T @ x
        gram = gram.toarray() if sparse.issparse(gram) else gram
        return math.sqrt(max(float(np.linalg.eigvalsh(gram)[-1]), 0.0)) * (1 + 1e-9)
    size = abs(x)
    frobenius = math.sqrt(float(size.power(2).sum() if sparse.issparse(x) else np.square(size).sum()))
    mixed = math.sqrt(float(size.sum(axis=0).max()) * float(size.sum(axis=1).max()))
    return min(frobenius, mixed) * (1 + 1e-9)


def largest_curvature(x: Any) -> float:
    """Return a slight overestimate of ``||x||^2`` for a step size: power iteration on public data."""
    v = np.ones(x.shape[1]) / math.sqrt(x.shape[1])
    size = 0.0
    for _ in range(50):
        v = x.T @ (x @ v)
        size = float(np.linalg.norm(v))
        if size == 0.0:
            return 1.0
        v = v / size
    return 1.1 * size


def _public_features(extra: dict[str, Any], problem: Problem, options: Options, needed: bool) -> Any:
    features = extra["public_features"]
    if isinstance(features, str) and features == "synthetic":
        rows = check_whole("public_rows", extra["public_rows"] or min(problem.population, _EXACT_NORM))
        public = public_generator(options.random_state)
        return public.uniform(-1.0, 1.0, (rows, problem.features))
    if features is None:
        if needed:
            raise InvalidInputError("mode='R' needs public_features: a matrix, or 'synthetic'.")
        return None
    features = features.tocsr() if sparse.issparse(features) else np.asarray(features, dtype=float)
    if features.ndim != 2 or features.shape[1] != problem.features:
        raise InvalidInputError(
            f"Expected public_features with {problem.features} columns, got shape {features.shape}."
        )
    return features
