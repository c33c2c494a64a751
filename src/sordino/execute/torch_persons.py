"""Tensors grouped by person: persons are sampled, and what all records of a person add is clipped once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sordino.errors import PlanError
from sordino.execute.grouped import Owners
from sordino.execute.torch import TorchExecutor
from sordino.kernel import Offer
from sordino.kernel.arrays import Ints, Rows
from sordino.kernel.contracts import TensorPersons

# Persons with more records than this run alone: an ordinary backward pass over so many is well used, and the
# matrices by which persons are told apart grow with the square of the records of one.
_TOGETHER = {"cpu": 32, "cuda": 256}


@dataclass(frozen=True, eq=False)
class PersonExecutor(TorchExecutor):
    """Records held as tensors or as a data set, each owned by a person; see :class:`TorchExecutor`.

    ``chunk`` counts records. Persons of about the same size are differentiated together, one with many
    records alone, part by part: memory does not grow with the largest person.
    """

    offer: ClassVar[Offer] = Offer("gradients of persons", (TensorPersons,), lattice=True)

    owners: Owners | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.owners is None or len(self.owners.order) != self._count:
            raise PlanError("Expected the owner of each record.")

    @property
    def population(self) -> int:
        """The number of persons, declared public."""
        assert self.owners is not None
        return self.owners.persons

    def records(self, rows: Rows) -> PersonRecords:
        """Return the records of some persons; for queries only."""
        assert self.owners is not None
        return PersonRecords(self, self.owners, np.arange(self.population) if rows is None else rows)


@dataclass(frozen=True, eq=False)
class PersonRecords:
    """The persons of one release, handed to a query block by block."""

    executor: PersonExecutor
    owners: Owners
    persons: Ints

    def blocks(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield (inputs, targets, present) of persons of about the same size."""
        sizes, chunk = self.owners.sizes(self.persons), self.executor.chunk
        places = _rounded_up(sizes)
        for wide in np.unique(places[places <= self._largest]):
            alike = self.persons[places == wide]
            count = max(1, chunk // int(wide))
            for start in range(0, len(alike), count):
                yield self._block(alike[start : start + count], int(wide))

    def long(self) -> Iterator[Iterator[tuple[Tensor, Tensor]]]:
        """Yield the persons with many records, each in parts."""
        places = _rounded_up(self.owners.sizes(self.persons))
        return self._alone(self.persons[places > self._largest])

    def each(self) -> Iterator[Iterator[tuple[Tensor, Tensor]]]:
        """Yield all persons, each in parts."""
        return self._alone(self.persons)

    def _alone(self, persons: Ints) -> Iterator[Iterator[tuple[Tensor, Tensor]]]:
        for person in persons:
            yield self._parts(self.owners.rows(np.array([person])))

    @property
    def _largest(self) -> int:
        most = _TOGETHER.get(self.executor.device.type, 32)
        return max(1, min(most, self.executor.chunk // 2))

    def _block(self, persons: Ints, wide: int) -> tuple[Tensor, Tensor, Tensor]:
        sizes, rows = self.owners.sizes(persons), self.owners.rows(persons)
        present = np.arange(wide) < sizes[:, None]
        # a place without a record holds the first one of the same person once more, and counts zero
        starts = np.cumsum(sizes) - sizes
        place = np.where(present, starts[:, None] + np.arange(wide), starts[:, None])
        x, y = self.executor.batch(rows[place.reshape(-1)])
        return x, y, torch.from_numpy(present).to(self.executor.device, torch.float32)

    def _parts(self, rows: Ints) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, len(rows), self.executor.chunk):
            yield self.executor.batch(rows[start : start + self.executor.chunk])


def _rounded_up(sizes: Ints) -> Ints:
    """Return the next of 1, 2, 3, 4, 6, 8, 12, ...: few shapes, at most half as many places again."""
    power = 2 ** np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)
    return np.where((sizes <= 3 * power // 4) & (power >= 4), 3 * power // 4, power)
