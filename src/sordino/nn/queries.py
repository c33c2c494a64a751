"""The questions asked about a network: clipped gradients, and clipped differences of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from sordino.errors import InvalidInputError, SlowEngineWarning
from sordino.kernel import ClippedSum, OnLattice
from sordino.kernel.clip.tensors import (
    LARGEST_CLIP,
    LEAST_CLIP,
    exact_rows,
    lattice_sum,
    row_factors,
    weighted_rows,
)
from sordino.kernel.query import TensorChunks, TensorPersons, TensorShards, check_clip
from sordino.nn.engines import Engine
from sordino.nn.network import make_up_records, points, product_inputs, quiet_dropout, without_autocast


@dataclass(frozen=True)
class Block:
    """How many records are differentiated at once, always, and how often each stands there: one copy counts.

    A row at another remainder of 64 bytes may be computed otherwise: 16 copies of each start alike.
    """

    count: int
    copies: int = 1

    def cut(self, records: TensorChunks) -> Iterator[tuple[Tensor, Tensor, slice]]:
        """Yield (inputs, targets) of full blocks, and which of their rows count."""
        for x, y in records.chunks():
            for a, b in zip(x.split(self.count), y.split(self.count), strict=True):
                yield self.fill(a), self.fill(b), slice(0, len(a) * self.copies, self.copies)

    def fill(self, rows: Tensor) -> Tensor:
        """Return a full block: the last row stands for those that are missing."""
        places = torch.arange(self.count, device=rows.device).clamp(max=len(rows) - 1)
        return rows[places.repeat_interleave(self.copies)]


class _GradientSum(OnLattice, ClippedSum):
    """A sum of what clips leave of gradients at ``params``, one point or several, by ``_terms``."""

    engine: Engine
    block: Block | None
    _terms: Callable[..., list[tuple[Tensor, float, float]]]

    @property
    def exact(self) -> bool:
        """Whether blocks are fixed."""
        return self.block is not None

    def evaluate(self, records: TensorChunks, params: Any) -> Tensor:
        """Return the clipped sum at the points."""
        points = _points(params)
        total = torch.zeros_like(points[0])
        for x, y in records.chunks():
            total += finite_sum(lambda a, b: self._block_sum(points, a, b), x, y)
        return total

    def evaluate_on_lattice(self, records: Any, params: Any, spacing: float) -> Any:
        """Return the clipped sum in integers; what a record adds is a function of this record alone."""
        points = _points(params)
        total = torch.zeros_like(points[0], dtype=torch.int64)
        assert self.block is not None
        for x, y, kept in self.block.cut(records):
            rows = [self.engine.per_record(point, x, y) for point in points]
            total += lattice_sum(self.parts(*rows)[kept], spacing)
        return total

    def _block_sum(self, points: Any, x: Tensor, y: Tensor, present: Tensor | None = None) -> Tensor:
        """Return the clipped sum over some records, or persons."""
        return self.clipped(*(self.engine.per_record(point, x, y, present) for point in points))

    def parts(self, *rows: Tensor) -> Tensor:
        """Return what records add in float64; the factors leave room for many roundings of float32."""
        inputs = product_inputs(rows[0].device)
        with without_autocast(rows[0].device):
            first, *others = (w * exact_rows(v, row_factors(v, c, inputs)) for v, c, w in self._terms(*rows))
            return sum(others, start=first)

    def clipped(self, *rows: Tensor) -> Tensor:
        """Return the clipped sum of gradients that are held one to a row, for each point."""
        inputs = product_inputs(rows[0].device)
        with without_autocast(rows[0].device):
            terms = self._terms(*rows)
            first, *others = (weighted_rows(v, w * row_factors(v, c, inputs)) for v, c, w in terms)
            return sum(others, start=first)


def _points(params: Any) -> tuple[Tensor, ...]:
    return params if isinstance(params, tuple) else (params,)


@dataclass(frozen=True)
class TorchGradient(_GradientSum):
    r"""``sum_i clip_C(gradient of the loss of record i)`` at the parameter vector ``params``.

    **Privacy.** Sensitivity C (add-remove) or 2 C (replace-one) in L2, whatever the data. Splitting a batch
    into chunks does not change the sum; a record whose gradient is not finite contributes zero. With a
    ``block`` the sum can be taken in integers (:mod:`sordino.nn.queries`).
    """

    engine: Engine
    clip: float
    block: Block | None = None

    def __post_init__(self) -> None:
        _check_clip("clip_norm", self.clip)

    def _block_sum(self, points: Any, x: Tensor, y: Tensor, present: Tensor | None = None) -> Tensor:
        return self.engine.clipped_sum(points[0], x, y, self.clip, present)

    def _terms(self, rows: Tensor) -> list[tuple[Tensor, float, float]]:
        return [(rows, self.clip, 1.0)]


@dataclass(frozen=True)
class ShardedGradient(TorchGradient):
    """The same sum over the records of all processes; each has the shard of it that it holds parameters of.

    **Privacy.** As :class:`~sordino.nn.queries.TorchGradient`. A gradient that is not finite is looked for by
    all processes together: which records count depends on no other record.
    """

    needs: ClassVar[tuple[type, ...]] = (TensorShards,)

    def evaluate(self, records: Any, params: Any) -> Tensor:
        """Return this process's shard of the clipped sum."""
        shards: TensorShards = records
        total = torch.zeros_like(params)
        for block in shards.blocks():
            total += self._finite(shards, params, block, 0, shards.places)
        return total

    def _finite(self, shards: TensorShards, params: Tensor, block: Any, low: int, high: int) -> Tensor:
        x, y, present = shards.between(block, low, high)
        total = self.engine.clipped_sum(params, x, y, self.clip, present)
        if shards.is_finite(total):
            return total
        if high - low == 1:
            return torch.zeros_like(total)
        halves = (low, (low + high) // 2), ((low + high) // 2, high)
        first, second = (self._finite(shards, params, block, *half) for half in halves)
        return first + second


@dataclass(frozen=True)
class TorchDifference(_GradientSum):
    r"""The correction of DP-SRM at two released points, ``params = (new, old)``.

    ``sum_i (1 - gamma) clip_{C2}(grad_i(new) - grad_i(old)) + gamma clip_{C1}(grad_i(new))``: gradient
    and difference are clipped apart.

    **Privacy.** One record adds at most ``(1 - gamma) C2 + gamma C1``; twice that when it is replaced.
    """

    engine: Engine
    gradient_clip: float
    difference_clip: float
    gamma: float
    block: Block | None = None

    def __post_init__(self) -> None:
        _check_clip("clip_norm", self.gradient_clip)
        _check_clip("difference_clip", self.difference_clip)

    def contribution(self, params: Any) -> float:
        """Return the bound of one record."""
        return (1 - self.gamma) * self.difference_clip + self.gamma * self.gradient_clip

    def _terms(self, new: Tensor, old: Tensor) -> list[tuple[Tensor, float, float]]:
        return [(new - old, self.difference_clip, 1 - self.gamma), (new, self.gradient_clip, self.gamma)]


def _check_clip(name: str, clip: float) -> None:
    """Refuse a clip to which float32 sums cannot be held."""
    check_clip(clip)
    if not LEAST_CLIP <= clip <= LARGEST_CLIP:
        raise InvalidInputError(
            f"Expected {name} between {LEAST_CLIP:.3g} and {LARGEST_CLIP:.3g}, got {clip:.3g}: gradients "
            "are float32 numbers. Scale the loss."
        )


def finite_sum(clipped_sum: Any, x: Tensor, y: Tensor, present: Tensor | None = None) -> Tensor:
    """Return the sum over the records, or persons (``present``), whose gradients are finite.

    An infinite gradient spoils a sum even with factor zero: the block is halved until that record is alone.
    """
    total = clipped_sum(x, y) if present is None else clipped_sum(x, y, present)
    count, places = (len(x), 1) if present is None else present.shape
    if bool(torch.isfinite(total).all()):
        return total
    if count == 1:
        return torch.zeros_like(total)
    half = count // 2
    cut = half * places
    first, second = (None, None) if present is None else (present[:half], present[half:])
    return finite_sum(clipped_sum, x[:cut], y[:cut], first) + finite_sum(
        clipped_sum, x[cut:], y[cut:], second
    )


class _PersonSum(_GradientSum):
    """The same sums over persons."""

    needs: ClassVar[tuple[type, ...]] = (TensorPersons,)

    def evaluate(self, records: Any, params: Any) -> Tensor:
        """Return the clipped sum at the points; a person with many records is differentiated alone."""
        persons: TensorPersons = records
        points = _points(params)
        total = torch.zeros_like(points[0])
        for x, y, present in persons.blocks():
            total += finite_sum(lambda a, b, kept: self._block_sum(points, a, b, kept), x, y, present)
        for parts in persons.long():
            alone = self.clipped(*self._rows(points, parts))
            total += alone if bool(torch.isfinite(alone).all()) else torch.zeros_like(alone)
        return total

    def evaluate_on_lattice(self, records: Any, params: Any, spacing: float) -> Any:
        """Return the clipped sum in integers; each person is differentiated alone."""
        persons: TensorPersons = records
        points = _points(params)
        total = torch.zeros_like(points[0], dtype=torch.int64)
        for parts in persons.each():
            total += lattice_sum(self.parts(*self._rows(points, parts)), spacing)
        return total

    def _rows(self, points: tuple[Tensor, ...], parts: Iterable[tuple[Tensor, Tensor]]) -> list[Tensor]:
        """Return the gradient of one person at each of the points, as one row each."""
        rows = [torch.zeros_like(point) for point in points]
        for x, y in parts:
            for row, point in zip(rows, points, strict=True):
                row += self.engine.whole(point, x, y)
        return [row[None] for row in rows]


@dataclass(frozen=True)
class PersonGradient(_PersonSum, TorchGradient):
    r"""``sum_p clip_C(sum_{i of p} gradient of the loss of record i)`` at the parameter vector ``params``.

    **Privacy.** A person with all its records adds at most C. Persons that are differentiated together are
    told apart by ghost norms over the places of all their records; one that is differentiated alone has one
    gradient, which is clipped as a row. A person whose gradient is not finite contributes zero.
    """


@dataclass(frozen=True)
class PersonDifference(_PersonSum, TorchDifference):
    """The correction of DP-SRM, where gradients and their differences are sums over a person's records."""


# A record's clipped gradient is truncated to a lattice of integers, and integers add up exactly. Its row must
# be a function of *this record alone*, bit by bit; docs/privacy-notes.md ("Noise on a lattice") says how
# blocks of one size, and a test before anything is booked, see to that.

_MOST = {"cpu": 32, "cuda": 512}
_ENTRIES = {"cpu": 1 << 26, "cuda": 1 << 30}  # float64 numbers held at once
_COPIES = (1, 2, 4, 16)
_SIZES = (1.0, 30.0)


def exact_block(engine: Engine, x: Tensor, y: Tensor, chunk: int) -> Block:
    """Return how records are differentiated: several at once where rows are alone, else one by one."""
    kind = engine.network.device.type
    most = min(_MOST.get(kind, 32), chunk, _ENTRIES.get(kind, 1 << 26) // max(1, engine.network.size))
    count = 1 << max(0, int(most).bit_length() - 1)
    for copies in _COPIES if count > 1 else ():
        block = Block(max(2, count // copies), copies)
        if rows_are_alone(engine, x, y, block):
            return block
    if count > 1:
        warnings.warn(
            "The last bits of a record's gradient depend on the records that are differentiated with it, so "
            "for secure_noise=True this is done one at a time, which is slow. torch.set_num_threads(1) or "
            "torch.use_deterministic_algorithms(True) may mend it.",
            SlowEngineWarning,
            stacklevel=4,
        )
    return Block(1)


def rows_are_alone(engine: Engine, x: Tensor, y: Tensor, block: Block) -> bool:
    """Tell whether rows are the same bits in every place of a block, beside whatever made-up records."""
    vector, query = points(engine.network)[1], TorchGradient(engine, 1.0, block)

    def parts(a: Tensor, b: Tensor) -> Tensor:
        return query.parts(engine.per_record(vector, block.fill(a), block.fill(b)))[:: block.copies]

    with quiet_dropout(engine.network.model):
        for size in _SIZES:
            inputs, targets = make_up_records(engine.network, x, y, block.count, size)
            rows = parts(inputs, targets)
            for turn in {1, block.count // 2, block.count - 1}:
                turned = parts(inputs.roll(turn, 0), targets.roll(turn, 0))
                if not torch.equal(turned.roll(-turn, 0), rows):
                    return False
            if not torch.equal(parts(inputs[:1], targets[:1]), rows[:1].expand_as(rows)):
                return False
    return True
