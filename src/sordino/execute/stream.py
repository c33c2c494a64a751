"""Data that arrive in chunks: one plan over the whole stream."""

from __future__ import annotations

from typing import Any, ClassVar

from sordino.errors import PlanError
from sordino.execute.local import CSR, LocalExecutor
from sordino.kernel import Batch, Disjoint, Offer, Question


class StreamExecutor:
    """Answers release number t from chunk number t, and forgets each chunk when the next one comes.

    Parameters
    ----------
    population : the public number of records that the plan was made for.

    **Privacy.** The plan's sampling is ``Disjoint``: the chunks compose in parallel, provided that no
    record is fed in two of them, which only the caller can know.
    """

    offer: ClassVar[Offer] = Offer("data that arrive in chunks", CSR.operations, samplings=(Disjoint,))

    def __init__(self, population: int) -> None:
        self._population, self._number = population, -1
        self._chunk: LocalExecutor | None = None

    @property
    def population(self) -> int:
        """The public number of records of the whole stream."""
        return self._population

    def feed(self, chunk: LocalExecutor) -> None:
        """Put the next chunk in place of the last one."""
        self._number, self._chunk = self._number + 1, chunk

    def total(self, question: Question, batch: Batch) -> Any:
        """Return the exact answer on the chunk whose turn it is, which is the batch."""
        position = question.position
        if self._chunk is None or position != self._number:
            raise PlanError(f"Release number {position} belongs to another chunk than {self._number}.")
        return question.summed(self._chunk.records(None))
