"""The open plan behind :meth:`sordino.PCA.partial_fit`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sordino.problems.covariance import PcaProblem
from sordino.runs import Ask, PrivacyReport, Stream
from sordino.solvers.pca.spectrum import Principal
from sordino.solvers.pca.stream import Pooled, StreamGauss


class PcaStream:
    """A paid-for stream and what it has released so far."""

    def __init__(self, problem: PcaProblem, parts: int, ask: Ask, public: tuple[str, ...]) -> None:
        self._problem, self._solver = problem, StreamGauss.configured(problem, parts)
        self._stream = Stream(ask, self._solver.plan(problem), parts, public, "PCA (stream)")
        self._pooled = Pooled.empty(problem.features)

    @property
    def report(self) -> PrivacyReport:
        """What the whole stream guarantees."""
        return self._stream.report

    @property
    def chunks(self) -> int:
        """How many chunks were taken."""
        return self._stream.chunks

    def absorb(self, rows: Any) -> tuple[Principal, PcaProblem]:
        """Release the next chunk; return the axes so far and the problem they solve."""
        curator = self._stream.feed(rows, self._problem.data_norm)
        self._pooled = self._solver.absorb(curator, self._problem, self._pooled, rows.shape[0])
        self._stream.done()
        seen = replace(self._problem, population=self._pooled.count)
        return self._solver.principal(self._pooled, seen), seen
