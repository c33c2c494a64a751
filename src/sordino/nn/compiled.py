"""The clipped sum as a compiled graph, for blocks of at most two sizes."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from sordino.errors import SlowEngineWarning
from sordino.nn.engines import Engine
from sordino.nn.lean import LeanEngine
from sordino.nn.made_up import made_up
from sordino.nn.network import Network, same_draws
from sordino.nn.precision import product_inputs, without_autocast
from sordino.nn.rewrites import IN_PARTS, computed_once, transposed

Backend: TypeAlias = str | Callable[..., Any]
_TRIES = 3
_DEAR = 1.25  # a record in a small block takes this much longer, about, than one in a large block


def block_sizes(chunk: int, expected: int) -> tuple[int, int]:
    """Return the sizes of blocks for Poisson batches of an expected size: the most of a batch, and a rest.

    A batch of n records is rarely smaller than ``n - 2 sqrt(n)``: that many go at once, and the rest, which
    differs from batch to batch, in blocks of ``2 sqrt(n)``, so that few rows only fill up.
    """
    spread = math.isqrt(max(expected, 0))
    if expected < 64:
        return chunk, 0
    whole = min(chunk, expected - 2 * spread)
    return whole, max(1, min(2 * spread, whole // 4))


@dataclass(frozen=True, eq=False)
class CompiledEngine:
    """Traces another engine once for each size of blocks and hands the graphs to ``torch.compile``.

    A Poisson batch has another size each time and a graph has one, so a batch is cut into blocks of ``chunk``
    records and of ``rest`` (0: none of these), and blocks are filled up with rows that count zero; their
    number is as secret as the batch.
    """

    inner: Engine
    chunk: int
    backend: Backend = "inductor"
    mode: str | None = None
    rest: int = 0
    _graphs: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)
    _held: dict[Any, Tensor] = field(default_factory=dict, init=False, repr=False)

    @property
    def network(self) -> Network:
        """The network of the inner engine."""
        return self.inner.network

    @property
    def method(self) -> str:
        """The method of the inner engine, compiled."""
        return f"compiled {self.inner.method}"

    @property
    def compilations(self) -> int:
        """How many graphs were made."""
        return len(self._graphs)

    def per_record(self, vector: Tensor, x: Tensor, y: Tensor, present: Tensor | None = None) -> Tensor:
        """Return the gradients, one row per record or person."""
        return self.inner.per_record(vector, x, y, present)

    def whole(self, vector: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the gradient of all records together."""
        return self.inner.whole(vector, x, y)

    def clipped_sum(
        self, vector: Tensor, x: Tensor, y: Tensor, clip: float, present: Tensor | None = None
    ) -> Tensor:
        """Return the clipped sum."""
        if present is not None and present.dim() == 2:
            return self._of_persons(vector, x, y, clip, present)
        total: Tensor | None = None
        for start, stop, size in self._cuts(len(x)):
            counted = self._places(x.device)[:size] < stop - start
            if present is not None:
                counted = _filled(present[start:stop], size) * counted
            a, b = (_filled(part[start:stop], size) for part in (x, y))
            added = self._run(vector, a, b, clip, counted)
            total = added if total is None else total + added
        return torch.zeros_like(vector) if total is None else total

    def _cuts(self, count: int) -> Iterator[tuple[int, int, int]]:
        """Yield where blocks begin and end, and the size that each is filled up to."""
        start = 0
        while start < count:
            left = count - start
            small = self.rest and math.ceil(left / self.rest) * self.rest * _DEAR < self.chunk
            size = self.rest if small else self.chunk
            yield start, min(start + size, count), size
            start += size

    def _of_persons(self, vector: Tensor, x: Tensor, y: Tensor, clip: float, present: Tensor) -> Tensor:
        """Return the clipped sum of persons of so many places each: those that fill up have no record."""
        missing = max(0, self.chunk // present.shape[1] - len(present))
        present = torch.cat([present, present.new_zeros(missing, present.shape[1])])
        return self._run(vector, _filled(x, present.numel()), _filled(y, present.numel()), clip, present)

    def _run(self, vector: Tensor, x: Tensor, y: Tensor, clip: float, present: Tensor) -> Tensor:
        # the bounds in a graph are those for the precision of products when it was traced
        key = (present.shape, x.shape, x.dtype, y.shape, y.dtype, product_inputs(x.device))
        inputs = vector, x, y, present, self._limit(clip, x.device)
        with without_autocast(x.device):
            if key not in self._graphs:
                self._graphs[key] = self._traced(*inputs)
            total = self._graphs[key](*inputs)
        return total.clone() if self.mode else total  # a CUDA graph overwrites its output next time

    def _places(self, device: torch.device) -> Tensor:
        if device not in self._held:
            self._held[device] = torch.arange(self.chunk, device=device)
        return self._held[device]

    def _limit(self, clip: float, device: torch.device) -> Tensor:
        """Return the clip as a tensor: it is an input of the graph, so another one needs no other graph."""
        if (clip, device) not in self._held:
            self._held[clip, device] = torch.tensor(clip, dtype=torch.float64, device=device)
        return self._held[clip, device]

    def _traced(self, *inputs: Tensor) -> Any:
        def whole(v: Tensor, a: Tensor, b: Tensor, p: Tensor, limit: Tensor) -> Tensor:
            return self.inner.clipped_sum(v, a, b, limit, p)

        taken_apart = IN_PARTS if inputs[0].is_cuda else None
        whole(*inputs)  # what the engine finds out about the model, it finds out before
        try:
            graph = make_fx(whole, taken_apart)(*inputs)
        except RuntimeError:  # operations fall apart otherwise when they are traced: find out about those too
            make_fx(whole, _error_on_data_dependent_ops=False)(*inputs)
            graph = make_fx(whole, taken_apart)(*inputs)
        if inputs[0].is_cuda:
            transposed(graph)
            computed_once(graph)
        return torch.compile(graph, backend=self.backend, mode=self.mode, dynamic=False)


def _filled(rows: Tensor, count: int) -> Tensor:
    missing = count - len(rows)
    if missing <= 0:
        return rows
    return torch.cat([rows, rows[:1].expand(missing, *rows.shape[1:])])


def compiled_engine(
    engine: Engine,
    chunk: int,
    expected: int,
    example: tuple[Tensor, Tensor],
    mode: str | None = None,
    backend: Backend = "inductor",
) -> tuple[Engine, tuple[str, ...]]:
    """Return the compiled engine if it is faster on made-up records, else the engine itself, and say why.

    Both sizes of blocks are compiled here, before any record is read. ``expected`` is the expected size of a
    batch; 0 where blocks are of one size.
    """
    if isinstance(engine, LeanEngine):
        return _not_compiled(engine, "a compiled step would hold what two backward passes spare")
    whole, rest = block_sizes(chunk, expected)
    made = CompiledEngine(engine, whole, backend, mode, rest)
    count = max(2, min(expected or chunk, whole + rest))
    records = made_up(engine.network, *example, count, 1.0)
    try:
        with same_draws():
            eager, compiled = _seconds(engine, records), _seconds(made, records)
        if compiled < eager:
            return made, ()
        why = f"a step took {compiled:.2g} s on made-up records, and {eager:.2g} s without"
    except Exception as error:  # whatever a compiler says: without it the same is computed
        why = f"torch.compile failed: {type(error).__name__}, {' '.join(str(error).split())[:160]}"
    return _not_compiled(engine, why)


def _not_compiled(engine: Engine, why: str) -> tuple[Engine, tuple[str, ...]]:
    said = f"steps are not compiled, as was asked for: {why}"
    warnings.warn(
        f"{said[0].upper()}{said[1:]}. Pass compiled=False if this is meant.", SlowEngineWarning, stacklevel=5
    )
    return engine, (said,)


def _seconds(engine: Engine, records: tuple[Tensor, Tensor]) -> float:
    """Return how long a step takes, at best; the first one, which may compile, is not counted."""
    vector, times = engine.network.flat(), list[float]()
    for _ in range(_TRIES + 1):
        begin = time.perf_counter()
        float(engine.clipped_sum(vector, *records, 1.0)[0])  # waits for the device
        times.append(time.perf_counter() - begin)
    return min(times[1:])
