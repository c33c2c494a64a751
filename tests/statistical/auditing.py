"""An attack on one release, and the lower bound on epsilon that its success proves."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse, stats
from tests.asking import asked
from tests.property.neighbours import answers, stored, worst_pair
from tests.solver_case import Asked, SolverCase, as_array, scaled

from sordino.accounting import certify
from sordino.kernel import Batch, Curator, FixedSize, Full, NoiseSource, Plan, Poisson, Question, Release

ERROR = 1e-4
RUNS = 1200
MULTIPLIER = 1.0
PLACES = (0.5, 0.75, 1.0, 1.25)


def lower_bound(ours: np.ndarray, theirs: np.ndarray, delta: float) -> float:
    """Return an epsilon that (epsilon, delta)-DP output stays below with probability at most 1e-4.

    ``P(S | D) <= e^eps P(S | D') + delta`` for every set S. The exact answers are 1 on D and 0 on D'; the
    sets are half lines that end between or just beyond them, and both probabilities are bounded by
    Clopper and Pearson, each with its share of the error.
    """
    error = ERROR / (4 * len(PLACES))
    up = [_epsilon(ours > place, theirs > place, delta, error) for place in PLACES]
    down = [_epsilon(theirs < 1 - place, ours < 1 - place, delta, error) for place in PLACES]
    return max(up + down)


def _epsilon(ours: np.ndarray, theirs: np.ndarray, delta: float, error: float) -> float:
    hits, misses = int(ours.sum()), int(theirs.sum())
    least = stats.beta.ppf(error, hits, len(ours) - hits + 1) if hits else 0.0
    most = stats.beta.ppf(1 - error, misses + 1, len(theirs) - misses) if misses < len(theirs) else 1.0
    return math.log((least - delta) / most) if least > delta else 0.0


class Once:
    """An executor that adds up all records once, and batches each time: what it answers is the same."""

    def __init__(self, executor: Any) -> None:
        self._executor, self._total = executor, None
        self.population, self.offer = executor.population, executor.offer

    def total(self, question: Question, batch: Batch) -> Any:
        if not isinstance(question.release.sampling, Full):
            return self._executor.total(question, batch)
        if self._total is None:
            self._total = self._executor.total(question, batch)
        return copy.deepcopy(self._total)


@dataclass(frozen=True)
class Attack:
    """Two neighbours that a release should not be able to tell apart, and where to look."""

    case: SolverCase
    release: Release
    params: Any
    pair: tuple[Any, Any]
    away: np.ndarray
    origin: np.ndarray
    reach: float

    @classmethod
    def on(cls, case: SolverCase, questions: list[Asked]) -> Attack:
        """Return the attack by the worst pair of records, all other records being absent.

        The release is attacked at that of the asked points (or a multiple) where it moves most.
        """
        release, relation = questions[0].release, case.problem.relation
        tried = [scaled(q.params, s) for q in questions for s in case.param_scales]
        tried = [p for p in tried if release.query.sensitivity(relation, p) > 0]
        pairs = [worst_pair(case, release, relation, p) for p in tried]
        best = max(range(len(tried)), key=lambda i: pairs[i][0])
        params, (reach, one, other) = tried[best], pairs[best]
        pair = [cls._filled(case, record) for record in (one, other)]
        exact = [answers(case, release, params, d, "dense")[0] for d in pair]
        away = exact[0] - exact[1]
        kind = "csr" if sparse.issparse(case.data(case.problem, 0)[0]) else "dense"
        executors = tuple(case.executor(case.problem, stored(d[0], kind), d[1]) for d in pair)
        release = replace(release, mechanism=release.mechanism.at(MULTIPLIER))
        return cls(case, release, params, executors, away / (away @ away), exact[1], reach)

    @staticmethod
    def _filled(case: SolverCase, record: Any) -> tuple[np.ndarray, np.ndarray]:
        rows = np.zeros((case.problem.population, case.problem.features))
        rows[:, 0], targets = np.nan, np.zeros(case.problem.population)
        rows[0], targets[0] = record
        return rows, targets

    @property
    def delta(self) -> float:
        """A delta at which few runs tell much: below the sampling rate, or sampling alone hides all."""
        sampling, population = self.release.sampling, self.case.problem.population
        if not isinstance(sampling, Poisson | FixedSize):
            return 0.1
        return 0.1 * sampling.expected(population) / population

    def claim(self) -> float:
        """Return the epsilon that is certified for one use of the release."""
        problem = self.case.problem
        plan = Plan({"audited": replace(self.release, times=1)}, problem.relation, problem.population)
        return certify(plan.event(), self.delta, plan.relation).epsilon

    def proven(self, release: Release | None = None) -> float:
        """Return the epsilon that the attack proves against the release, or against a twin of it."""
        sensitivity = self.release.sensitivity(self.case.problem.relation, self.params)
        noise, release = NoiseSource.seeded_not_private(20), release or self.release
        ours, theirs = (
            np.array([self._statistic(executor, release, sensitivity, noise) for _ in range(RUNS)])
            for executor in map(Once, self.pair)
        )
        return lower_bound(ours, theirs, self.delta)

    def proven_of_a_run(self, plan: Callable[[], Plan], steps: int) -> float:
        """Return the epsilon proven by ``steps`` answers of a curator, added up along the attack."""
        noise, sums = NoiseSource.seeded_not_private(21), []
        size = next(iter(plan().releases.values())).sampling.expected(self.case.problem.population)
        for executor in self.pair:
            curators = (Curator(executor, plan(), noise) for _ in range(RUNS))
            answers = [[c.release("audited", self.params) for _ in range(steps)] for c in curators]
            sums.append(np.array([np.mean([as_array(a) * size for a in run], axis=0) for run in answers]))
        return lower_bound(*[(s - self.origin) @ self.away for s in sums], self.delta)

    def _statistic(self, executor: Any, release: Release, sensitivity: float, noise: NoiseSource) -> float:
        answer = asked(executor, release, self.params, sensitivity, 0, noise)
        return float((as_array(answer) - self.origin) @ self.away)
