"""Many short operations on a device, recorded once and played again: a CUDA graph."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sordino.kernel.arrays import Floats

GRAPHS = True


def played(function: Callable[[Tensor], Tensor], size: int, store: Any) -> Callable[[Floats], Tensor]:
    """Return the function for arrays of so many doubles; its answer holds until the next call.

    It is recorded where the rows lie on a CUDA device and the operations are short: a store of dense rows
    casts them block by block, which takes longer than to ask for it. What cannot be recorded is run.
    """
    point = torch.empty(size, dtype=torch.float64, device=store.device)
    if GRAPHS and store.device.type == "cuda" and store.short:
        return _Recorded(function, point)
    return lambda w: function(point.copy_(torch.from_numpy(np.require(w, requirements=["C", "W"]))))


@contextmanager
def _nothing_thrown_away() -> Iterator[None]:
    """Keep the graph of an earlier fit from being freed, which a device refuses while it records."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class _Recorded:
    """The first call runs the function, which makes what is made once; the second records it."""

    def __init__(self, function: Callable[[Tensor], Tensor], point: Tensor) -> None:
        self._function, self._point, self._calls = function, point, 0
        self._asked = torch.empty(point.shape, dtype=point.dtype, pin_memory=True)
        self._left, self._graph, self._out = torch.cuda.Event(), None, point

    def __call__(self, w: Floats) -> Tensor:
        self._left.synchronize()  # the last point has left
        np.copyto(self._asked.numpy(), w)
        self._point.copy_(self._asked, non_blocking=True)
        self._left.record()
        self._calls += 1
        if self._calls == 2:
            self._record()
        if self._graph is None:
            return self._function(self._point)
        self._graph.replay()
        return self._out

    def _record(self) -> None:
        graph: Any = torch.cuda.CUDAGraph()
        here, beside = torch.cuda.current_stream(), torch.cuda.Stream()
        beside.wait_stream(here)
        try:
            with torch.cuda.stream(beside), _nothing_thrown_away():
                graph.capture_begin(capture_error_mode="thread_local")  # other threads go on as they like
                try:
                    self._out = self._function(self._point)
                finally:
                    graph.capture_end()
        except RuntimeError:
            return
        here.wait_stream(beside)
        self._graph = graph
