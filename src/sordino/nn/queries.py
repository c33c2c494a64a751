"""The questions asked about a network: clipped gradients, and clipped differences of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from sordino.errors import InvalidInputError
from sordino.kernel import ClippedSum, OnLattice
from sordino.kernel.clip_tensors import (
    LARGEST_CLIP,
    LEAST_CLIP,
    clipped_rows,
    exact_rows,
    lattice_sum,
    row_factors,
    weighted_rows,
)
from sordino.kernel.contracts import TensorChunks
from sordino.nn.engines import Engine
from sordino.nn.precision import product_inputs, without_autocast
from sordino.problems.glm import check_clip


@dataclass(frozen=True)
class Block:
    """How many records are differentiated at once, always, and how often each stands there: one copy counts.

    A row that starts at another remainder of 64 bytes may be computed in another order: with 16 copies of
    each record, those that count all start alike.
    """

    count: int
    copies: int = 1

    def cut(self, records: TensorChunks) -> Iterator[tuple[Tensor, Tensor, slice]]:
        """Yield (inputs, targets) of full blocks, and which of their rows count."""
        for x, y in records.chunks():
            for a, b in zip(x.split(self.count), y.split(self.count), strict=True):
                yield self.filled(a), self.filled(b), slice(0, len(a) * self.copies, self.copies)

    def filled(self, rows: Tensor) -> Tensor:
        """Return a full block: the last row stands for those that are missing."""
        places = torch.arange(self.count, device=rows.device).clamp(max=len(rows) - 1)
        return rows[places.repeat_interleave(self.copies)]


@dataclass(frozen=True)
class TorchGradient(OnLattice, ClippedSum):
    r"""``sum_i clip_C(gradient of the loss of record i)`` at the parameter vector ``params``.

    **Privacy.** Sensitivity C (add-remove) or 2 C (replace-one) in L2, whatever the data. Splitting a batch
    into chunks does not change the sum; a record whose gradient is not finite contributes zero. With a
    ``block`` the sum can be taken in integers (:mod:`sordino.nn.exact`).
    """

    needs: ClassVar[tuple[type, ...]] = (TensorChunks,)

    engine: Engine
    clip: float
    block: Block | None = None

    def __post_init__(self) -> None:
        _check_clip("clip_norm", self.clip)

    @property
    def exact(self) -> bool:
        """Whether blocks are fixed."""
        return self.block is not None

    def contribution(self, params: Any) -> float:
        """Return the clip norm."""
        return self.clip

    def evaluate(self, records: TensorChunks, params: Any) -> Tensor:
        """Return the clipped sum at the point ``params``."""
        total = torch.zeros_like(params)
        for x, y in records.chunks():
            total += finite_sum(lambda a, b: self.engine.clipped_sum(params, a, b, self.clip), x, y)
        return total

    def evaluate_on_lattice(self, records: Any, params: Any, spacing: float) -> Any:
        """Return the clipped sum in integers; what a record adds is a function of this record alone."""
        total = torch.zeros_like(params, dtype=torch.int64)
        assert self.block is not None
        for x, y, kept in self.block.cut(records):
            total += lattice_sum(self.parts(self.engine.per_record(params, x, y))[kept], spacing)
        return total

    def parts(self, rows: Tensor) -> Tensor:
        """Return the clipped gradients in float64, not added up."""
        with without_autocast(rows.device):
            return exact_rows(rows, row_factors(rows, self.clip, product_inputs(rows.device)))

    def clipped(self, rows: Tensor) -> Tensor:
        """Return the clipped sum of gradients that are held one to a row."""
        with without_autocast(rows.device):
            return clipped_rows(rows, self.clip, product_inputs(rows.device))


@dataclass(frozen=True)
class TorchDifference(OnLattice, ClippedSum):
    r"""The correction of DP-SRM at two released points, ``params = (new, old)``.

    ``sum_i (1 - gamma) clip_{C2}(grad_i(new) - grad_i(old)) + gamma clip_{C1}(grad_i(new))``: gradient
    and difference are clipped apart.

    **Privacy.** One record adds at most ``(1 - gamma) C2 + gamma C1``; twice that when it is replaced.
    """

    needs: ClassVar[tuple[type, ...]] = (TensorChunks,)

    engine: Engine
    gradient_clip: float
    difference_clip: float
    gamma: float
    block: Block | None = None

    @property
    def exact(self) -> bool:
        """Whether blocks are fixed."""
        return self.block is not None

    def __post_init__(self) -> None:
        _check_clip("clip_norm", self.gradient_clip)
        _check_clip("difference_clip", self.difference_clip)

    def contribution(self, params: Any) -> float:
        """Return the bound of one record."""
        return (1 - self.gamma) * self.difference_clip + self.gamma * self.gradient_clip

    def evaluate(self, records: TensorChunks, params: Any) -> Tensor:
        """Return the clipped sum at the two points."""
        total = torch.zeros_like(params[0])
        for x, y in records.chunks():
            total += finite_sum(lambda a, b: self._sum(params, a, b), x, y)
        return total

    def evaluate_on_lattice(self, records: Any, params: Any, spacing: float) -> Any:
        """Return the clipped sum in integers; what a record adds is a function of this record alone."""
        total = torch.zeros_like(params[0], dtype=torch.int64)
        assert self.block is not None
        for x, y, kept in self.block.cut(records):
            rows = [self.engine.per_record(point, x, y) for point in params]
            total += lattice_sum(self.parts(*rows)[kept], spacing)
        return total

    def parts(self, new: Tensor, old: Tensor) -> Tensor:
        """Return what the records add in float64, not added up."""
        moved, inputs = new - old, product_inputs(new.device)
        with without_autocast(new.device):
            slow = exact_rows(moved, row_factors(moved, self.difference_clip, inputs))
            fast = exact_rows(new, row_factors(new, self.gradient_clip, inputs))
        # the factors leave room for many roundings of float32; these two are of float64
        return (1 - self.gamma) * slow + self.gamma * fast

    def _sum(self, params: tuple[Tensor, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return self.mixed(self.engine.per_record(params[0], x, y), self.engine.per_record(params[1], x, y))

    def mixed(self, new: Tensor, old: Tensor) -> Tensor:
        """Return the clipped sum of gradients at the new and the old point, one to a row."""
        moved, inputs = new - old, product_inputs(new.device)
        with without_autocast(new.device):
            slow = row_factors(moved, self.difference_clip, inputs)
            fast = row_factors(new, self.gradient_clip, inputs)
            correction = weighted_rows(moved, (1 - self.gamma) * slow)
            return correction + weighted_rows(new, self.gamma * fast)


def _check_clip(name: str, clip: float) -> None:
    """Refuse a clip to which float32 sums cannot be held."""
    check_clip(clip)
    if not LEAST_CLIP <= clip <= LARGEST_CLIP:
        raise InvalidInputError(
            f"Expected {name} between {LEAST_CLIP:.3g} and {LARGEST_CLIP:.3g}, got {clip:.3g}: gradients "
            "are float32 numbers. Scale the loss."
        )


def finite_sum(clipped_sum: Any, x: Tensor, y: Tensor) -> Tensor:
    """Return the sum over the records whose gradients are finite.

    An infinite gradient spoils a sum even with factor zero, so the block is halved until the record is
    alone; it then contributes zero. This costs time only when it happens.
    """
    total = clipped_sum(x, y)
    if bool(torch.isfinite(total).all()):
        return total
    if len(x) == 1:
        return torch.zeros_like(total)
    half = len(x) // 2
    return finite_sum(clipped_sum, x[:half], y[:half]) + finite_sum(clipped_sum, x[half:], y[half:])
