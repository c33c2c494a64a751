"""The clipped sum as one compiled graph, for blocks of a fixed size."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from sordino.nn.engines import Engine
from sordino.nn.network import Network
from sordino.nn.precision import product_inputs, without_autocast


@dataclass(frozen=True, eq=False)
class CompiledEngine:
    """Traces another engine once and hands the graph to ``torch.compile``.

    A Poisson batch has another size each time and a graph has one, so blocks are filled up with rows
    that count zero; their number is as secret as the batch.
    """

    inner: Engine
    chunk: int
    backend: str = "inductor"
    mode: str | None = None
    _graphs: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)
    _rows: dict[torch.device, Tensor] = field(default_factory=dict, init=False, repr=False)

    @property
    def network(self) -> Network:
        """The network of the inner engine."""
        return self.inner.network

    @property
    def method(self) -> str:
        """The method of the inner engine, compiled."""
        return f"compiled {self.inner.method}"

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
        count = len(x)
        if present is None:
            present = self._places(x.device) < count
        if present.dim() == 2:  # persons of so many places each: those that fill up have no record
            missing = max(0, self.chunk // present.shape[1] - len(present))
            present = torch.cat([present, present.new_zeros(missing, present.shape[1])])
        rows = self.chunk if present.dim() == 1 else present.numel()
        x, y = _filled(x, rows), _filled(y, rows)
        # the clip in a graph is that for the precision of products when it was traced
        key = (clip, present.shape, x.shape, x.dtype, y.shape, y.dtype, product_inputs(x.device))
        with without_autocast(x.device):
            if key not in self._graphs:
                self._graphs[key] = self._traced(vector, x, y, clip, present)
            total = self._graphs[key](vector, x, y, present)
        return total.clone() if self.mode else total  # a CUDA graph overwrites its output next time

    def _places(self, device: torch.device) -> Tensor:
        if device not in self._rows:
            self._rows[device] = torch.arange(self.chunk, device=device)
        return self._rows[device]

    def _traced(self, vector: Tensor, x: Tensor, y: Tensor, clip: float, present: Tensor) -> Any:
        def whole(v: Tensor, a: Tensor, b: Tensor, p: Tensor) -> Tensor:
            return self.inner.clipped_sum(v, a, b, clip, p)

        whole(vector, x, y, present)  # what the engine finds out about the model, it finds out before
        try:
            graph = make_fx(whole)(vector, x, y, present)
        except RuntimeError:  # operations fall apart otherwise when they are traced: find out about those too
            make_fx(whole, _error_on_data_dependent_ops=False)(vector, x, y, present)
            graph = make_fx(whole)(vector, x, y, present)
        return torch.compile(graph, backend=self.backend, mode=self.mode, dynamic=False)


def _filled(rows: Tensor, count: int) -> Tensor:
    missing = count - len(rows)
    if missing <= 0:
        return rows
    return torch.cat([rows, rows[:1].expand(missing, *rows.shape[1:])])
