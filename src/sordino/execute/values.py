"""The columns of a table as they are, for questions about values and not about rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from sordino.errors import InvalidInputError
from sordino.kernel import Batch, Full, Offer, Question, contracts
from sordino.kernel.arrays import Floats, Ints


@dataclass(frozen=True, eq=False)
class ValueExecutor:
    """Columns held in memory.

    Parameters
    ----------
    population : the public number of records; every column has so many.
    number_columns : arrays of doubles, nan where a record has no number.
    text_columns : pairs of an array of numbers, -1 for none, and the texts that they number.
    """

    offer: ClassVar[Offer] = Offer("columns of a table", (contracts.ValueColumns,), samplings=(Full,))

    population: int
    number_columns: tuple[Floats, ...] = field(repr=False, default=())
    text_columns: tuple[tuple[Ints, list[str | None]], ...] = field(repr=False, default=())

    def __post_init__(self) -> None:
        lengths = {len(c) for c in self.number_columns} | {len(codes) for codes, _ in self.text_columns}
        if lengths - {self.population}:
            raise InvalidInputError(f"Expected {self.population} records in every column.")

    def numbers(self, column: int) -> Floats:
        """Return the numbers of a column."""
        return self.number_columns[column]

    def counts(self, column: int) -> dict[str, int]:
        """Return how many records have each text; several numbers may stand for one text."""
        codes, texts = self.text_columns[column]
        out: dict[str, int] = {}
        for code, count in _tally(codes, len(texts)):
            text = texts[code]
            if text is not None:
                out[text] = out.get(text, 0) + count
        return out

    def total(self, question: Question, batch: Batch) -> Any:
        """Return the exact answer on all records."""
        return question.summed(self)


def _tally(codes: Ints, size: int) -> list[tuple[int, int]]:
    counts = np.bincount(codes[codes >= 0], minlength=size)
    return [(int(code), int(counts[code])) for code in np.flatnonzero(counts)]
