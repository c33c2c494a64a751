"""The open plan behind :meth:`sordino.PCA.partial_fit`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sordino.accounting import PrivacyReport
from sordino.errors import PlanSpentError
from sordino.estimators.fitting import Budget, calibrated_plan, reserve_budget
from sordino.execute import LocalExecutor
from sordino.execute.stream import StreamExecutor
from sordino.kernel import Curator
from sordino.kernel.noise import fresh_noise
from sordino.problems.covariance import PcaProblem
from sordino.solvers.pca.spectrum import Principal
from sordino.solvers.pca.stream import Pooled, StreamGauss


class PcaStream:
    """One calibrated, reserved plan and what it has released so far.

    The whole budget is booked when the stream is opened; chunks that never come are not refunded.
    """

    def __init__(self, problem: PcaProblem, parts: int, budget: Budget, public: tuple[str, ...]) -> None:
        self._problem, self._solver = problem, StreamGauss.configured(problem, parts)
        plan, certificate = calibrated_plan(self._solver.plan(problem), budget)
        noise = fresh_noise()
        facts = (*public, f"number of chunks: {parts}, no record in two of them")
        self.report = PrivacyReport.from_plan(plan, certificate, noise, public=facts)
        reservation = reserve_budget(plan, certificate, budget, "PCA (stream)")
        self._executor = StreamExecutor(problem.population)
        self._curator = Curator(self._executor, plan, noise)
        if reservation is not None:
            reservation.settle()
        self._parts, self.chunks = parts, 0
        self._pooled = Pooled.empty(problem.features)

    def absorb(self, rows: Any) -> tuple[Principal, PcaProblem]:
        """Release the next chunk; return the axes so far and the problem they solve."""
        if self.chunks >= self._parts:
            raise PlanSpentError(
                f"The stream was planned for {self._parts} chunks, all are spent. "
                "Set n_chunks higher and start again."
            )
        self._executor.feed(LocalExecutor(rows, None, self._problem.data_norm))
        self._pooled = self._solver.absorb(self._curator, self._problem, self._pooled, rows.shape[0])
        self.chunks += 1
        seen = replace(self._problem, population=self._pooled.count)
        return self._solver.principal(self._pooled, seen), seen
