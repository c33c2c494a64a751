"""A batch: how each part of the records finds its rows, wherever it lies and however often it is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from sordino.kernel.arrays import Rows
from sordino.kernel.noise import NoiseSource


class Share(Protocol):
    """One part's rows of one release: the same ones each time, so that a task may be run again."""

    def rows(self, count: int) -> Rows:
        """Return which of the ``count`` rows of the part are looked at; None for all of them."""


@dataclass(frozen=True)
class Listed:
    """The rows of a list, which is as secret as the batch is; None lists all of them."""

    positions: Rows = field(repr=False, default=None)

    def rows(self, count: int) -> Rows:
        """Return the list."""
        return self.positions


@dataclass(frozen=True)
class Between:
    """The rows from one position of the part to another, which are public."""

    start: int
    stop: int

    def rows(self, count: int) -> Rows:
        """Return the range."""
        return np.arange(self.start, self.stop)


@dataclass(frozen=True)
class Drawn:
    """Each row with a probability. The key is as secret as the batch is."""

    rate: float
    key: int = field(repr=False)

    def rows(self, count: int) -> Rows:
        """Return the rows that this key draws."""
        return NoiseSource.of_subkey(self.key).bernoulli_rows(count, self.rate)


@dataclass(frozen=True)
class Chosen:
    """So many distinct rows. Number and key are as secret as the batch is."""

    size: int = field(repr=False)
    key: int = field(repr=False)

    def rows(self, count: int) -> Rows:
        """Return the rows that this key draws."""
        return NoiseSource.of_subkey(self.key).distinct_rows(count, self.size)


@dataclass(frozen=True)
class Batch:
    """The records that one release looks at, drawn by the curator: a share for each place where they lie."""

    shares: tuple[Share, ...] = field(repr=False, default=(Listed(),))

    def rows(self, count: int) -> Rows:
        """Return the rows of records that all lie in one place, ``count`` of them; None for all."""
        (only,) = self.shares
        return only.rows(count)
