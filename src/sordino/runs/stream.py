"""One promise over data that arrive in chunks."""

from __future__ import annotations

from typing import Any

from sordino.errors import PlanSpentError
from sordino.execute.local import LocalExecutor
from sordino.execute.stream import StreamExecutor
from sordino.kernel import Curator, Plan, check_offer
from sordino.runs.ask import Ask
from sordino.runs.promise import Promise
from sordino.runs.report import PrivacyReport


class Stream:
    """A plan whose release number t sees chunk number t, paid for as a whole when it is opened.

    Parameters
    ----------
    ask, plan : what is wanted, and what will be asked of all ``parts`` chunks together.
    parts : the number of chunks; those that never come are not refunded.
    public, description : words for the report and for the ledger.
    """

    def __init__(self, ask: Ask, plan: Plan, parts: int, public: tuple[str, ...], description: str) -> None:
        promise = Promise.made(ask, plan)
        facts = (*public, f"number of chunks: {parts}, no record in two of them")
        self.report: PrivacyReport = promise.report(facts)
        self._executor = StreamExecutor(promise.plan.population)
        check_offer(promise.plan, self._executor.offer)
        self._run = promise.reserved(description)
        self.curator: Curator = self._run.curate(self._executor)
        self._parts, self.chunks = parts, 0

    def feed(self, rows: Any, data_norm: float) -> Curator:
        """Take the next chunk and return the curator that may be asked about it."""
        if self.chunks >= self._parts:
            raise PlanSpentError(
                f"The stream was planned for {self._parts} chunks, all are spent. "
                "Set n_chunks higher and start again."
            )
        self._executor.feed(LocalExecutor(rows, None, data_norm))
        self.chunks += 1
        return self.curator

    def done(self) -> None:
        """Settle after the answers about the last chunk."""
        if self.chunks == self._parts:
            self._run.settle()
