"""Records of a model whose parameters are sharded over processes: every process runs the same passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from sordino.execute.torch import TorchExecutor
from sordino.kernel import Offer, Question
from sordino.kernel.arrays import Ints, Rows
from sordino.kernel.plan import exact_sum
from sordino.kernel.query import TensorShards


@dataclass(frozen=True, eq=False)
class ShardedExecutor(TorchExecutor):
    """Each process adds up its records of a batch in shards, and adds the noise of its own shard.

    The first process draws the batch, and a key of the noise for each shard; ``filler`` is a made-up record.

    **Privacy.** The shards of a sum are disjoint, and their keys are drawn anew by the first process's source
    for each release. So each entry of the sum gets its noise once, of the deviation of the whole release, and
    independent of all others: the answers side by side are the release of one process.
    """

    sharded: ClassVar[bool] = True

    filler: tuple[Tensor, Tensor] = field(default=(torch.empty(0), torch.empty(0)), repr=False)

    @property
    def offer(self) -> Offer:
        return Offer("gradients of shards", (TensorShards,), lattice=False, doubles=False)

    def records(self, rows: Rows) -> Any:
        return ShardedRecords(self, np.arange(self.population) if rows is None else rows)

    def shard_sum(self, question: Question, said: Any) -> tuple[Question, Tensor, int]:
        """Return the question as the first process asks it, this process's shard of the sum, and its key."""
        processes = self.processes
        assert processes is not None
        same, (rows, keys, mechanism, sensitivity, private) = processes.hear(
            f"{type(question.query).__name__} {question.position}", said
        )
        with processes.amid_passes(same), self.hidden(private), torch.enable_grad():
            mine = self.records(processes.own(rows, self.population))
            value = exact_sum(question.query, mine, question.params, None)
        release = replace(question.release, mechanism=mechanism)
        return replace(question, release=release, sensitivity=sensitivity), value, keys[processes.rank]


@dataclass(frozen=True, eq=False)
class ShardedRecords:
    """One process's records of a release, in as many blocks as the process with most of them has."""

    executor: ShardedExecutor
    rows: Ints

    def blocks(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield (inputs, targets, present); a made-up record, which counts zero, fills empty places."""
        count = self._processes.most(-(-len(self.rows) // self.executor.chunk))
        for part in np.array_split(self.rows, count) if count else ():
            yield self._filled(list(self._readable(part)))

    @property
    def places(self) -> int:
        """The places of a block in all processes together."""
        return self.executor.chunk * self._processes.count

    def between(self, block: tuple[Tensor, ...], low: int, high: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return a block with made-up records outside of the places from ``low`` to ``high``."""
        x, y, present = block
        at = torch.arange(len(x), device=x.device) + self._processes.rank * len(x)
        kept = (low <= at) & (at < high)
        parts = (torch.where(kept.view(-1, *[1] * (v.dim() - 1)), v, f) for v, f in zip((x, y), self._filler))
        return *parts, present * kept

    def is_finite(self, value: Tensor) -> bool:
        """Tell whether a sum is finite in all processes."""
        return not self._processes.most(int(not bool(value.isfinite().all())))

    @property
    def _processes(self) -> Any:
        return self.executor.processes

    @property
    def _filler(self) -> tuple[Tensor, Tensor]:
        return self.executor.filler

    def _filled(self, parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
        count = sum(len(x) for x, _ in parts)
        size = self.executor.chunk
        ends = [part.expand(size - count, *part.shape[1:]) for part in self._filler]
        x, y = (torch.cat([*(pair[i] for pair in parts), ends[i]]) for i in (0, 1))
        return x, y, (torch.arange(size, device=x.device) < count).float()

    def _readable(self, rows: Ints) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the records that can be read; one that fails contributes zero, as in a process alone."""
        try:
            found = self.executor.batch(rows)
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception:
            half = len(rows) // 2
            for part in (rows[:half], rows[half:]) if half else ():
                yield from self._readable(part)
        else:
            yield found
