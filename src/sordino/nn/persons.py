"""The questions asked about a network when the unit of privacy is a person with several records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from sordino.kernel.clip_tensors import lattice_sum
from sordino.kernel.contracts import TensorPersons
from sordino.nn.engines import Engine
from sordino.nn.queries import TorchDifference, TorchGradient

BlockSum = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class PersonGradient(TorchGradient):
    r"""``sum_p clip_C(sum_{i of p} gradient of the loss of record i)`` at the parameter vector ``params``.

    **Privacy.** A person with all its records adds at most C. Persons that are differentiated together are
    told apart by ghost norms over the places of all their records; one that is differentiated alone has one
    gradient, which is clipped as a row. A person whose gradient is not finite contributes zero.
    """

    needs: ClassVar[tuple[type, ...]] = (TensorPersons,)

    def evaluate(self, records: Any, params: Any) -> Tensor:
        """Return the clipped sum at the point ``params``."""
        persons: TensorPersons = records

        def together(x: Tensor, y: Tensor, present: Tensor) -> Tensor:
            return self.engine.clipped_sum(params, x, y, self.clip, present)

        total = _sum_of_blocks(persons, together, params)
        for parts in persons.long():
            (row,) = _whole(self.engine, (params,), parts)
            total += _if_finite(self.clipped(row[None]))
        return total

    def evaluate_on_lattice(self, records: Any, params: Any, spacing: float) -> Any:
        """Return the clipped sum in integers; each person is differentiated alone."""
        persons: TensorPersons = records
        total = torch.zeros_like(params, dtype=torch.int64)
        for parts in persons.each():
            (row,) = _whole(self.engine, (params,), parts)
            total += lattice_sum(self.parts(row[None]), spacing)
        return total


@dataclass(frozen=True)
class PersonDifference(TorchDifference):
    """The correction of DP-SRM, where gradients and their differences are sums over a person's records.

    **Privacy.** As :class:`~sordino.nn.queries.TorchDifference`, for a person with all its records.
    """

    needs: ClassVar[tuple[type, ...]] = (TensorPersons,)

    def evaluate(self, records: Any, params: Any) -> Tensor:
        """Return the clipped sum at the two points."""
        persons: TensorPersons = records

        def together(x: Tensor, y: Tensor, present: Tensor) -> Tensor:
            rows = (self.engine.per_record(point, x, y, present) for point in params)
            return self.mixed(*rows)

        total = _sum_of_blocks(persons, together, params[0])
        for parts in persons.long():
            new, old = _whole(self.engine, params, parts)
            total += _if_finite(self.mixed(new[None], old[None]))
        return total

    def evaluate_on_lattice(self, records: Any, params: Any, spacing: float) -> Any:
        """Return the clipped sum in integers; each person is differentiated alone."""
        persons: TensorPersons = records
        total = torch.zeros_like(params[0], dtype=torch.int64)
        for parts in persons.each():
            new, old = _whole(self.engine, params, parts)
            total += lattice_sum(self.parts(new[None], old[None]), spacing)
        return total


def _whole(engine: Engine, points: Any, parts: Iterable[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """Return the gradient of one person at each of the points."""
    rows = [torch.zeros_like(point) for point in points]
    for x, y in parts:
        for row, point in zip(rows, points, strict=True):
            row += engine.whole(point, x, y)
    return rows


def _sum_of_blocks(persons: TensorPersons, together: BlockSum, like: Tensor) -> Tensor:
    total = torch.zeros_like(like)
    for x, y, present in persons.blocks():
        total += finite_persons(together, x, y, present)
    return total


def finite_persons(together: BlockSum, x: Tensor, y: Tensor, present: Tensor) -> Tensor:
    """Return the sum over the persons whose gradients are finite; the others contribute zero.

    A block whose sum is not finite is halved until the person is alone.
    """
    total = together(x, y, present)
    if bool(torch.isfinite(total).all()) or len(present) == 1:
        return _if_finite(total)
    half = len(present) // 2
    cut = half * present.shape[1]
    first = finite_persons(together, x[:cut], y[:cut], present[:half])
    return first + finite_persons(together, x[cut:], y[cut:], present[half:])


def _if_finite(total: Tensor) -> Tensor:
    return total if bool(torch.isfinite(total).all()) else torch.zeros_like(total)
