"""One number for each record on a device, for the arithmetic of queries: they ask in NumPy's words."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.lib.mixins import NDArrayOperatorsMixin
from torch import Tensor

from sordino.kernel.arrays import Floats

_NAMES = {
    "absolute": torch.abs,
    "add": torch.add,
    "divide": torch.div,
    "exp": torch.exp,
    "expit": torch.special.expit,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "multiply": torch.mul,
    "negative": torch.neg,
    "subtract": torch.sub,
}


class DeviceVector(NDArrayOperatorsMixin):
    """A vector of doubles on a device.

    The operations of :data:`_NAMES` are done there; whatever else NumPy is asked for is done in this process,
    on a copy.
    """

    ndim = 1

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    @classmethod
    def of(cls, values: Any, device: torch.device) -> DeviceVector:
        return cls(torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64)).to(device))

    @property
    def shape(self) -> tuple[int]:
        return (len(self.tensor),)

    def __len__(self) -> int:
        return len(self.tensor)

    def sum(self, axis: int | None = None) -> float:
        return float(self.tensor.sum())

    def like(self, tensor: Tensor) -> DeviceVector:
        """Return another vector on the same device."""
        return DeviceVector(tensor)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        return self.tensor.cpu().numpy().astype(dtype or np.float64, copy=False)

    def __getitem__(self, rows: Any) -> Any:
        return np.asarray(self)[rows]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        known = _NAMES.get(ufunc.__name__)
        near = all(isinstance(i, DeviceVector) or np.shape(i) in ((), self.shape) for i in inputs)
        if known is None or method != "__call__" or kwargs or not near:
            arrays = [np.asarray(i) if isinstance(i, DeviceVector) else i for i in inputs]
            return getattr(ufunc, method)(*arrays, **kwargs)
        return DeviceVector(known(*map(self._brought, inputs)))

    def _brought(self, value: Any) -> Tensor:
        if isinstance(value, DeviceVector):
            return value.tensor
        if np.shape(value) == ():  # made there: a copy would wait for all that is under way
            return torch.full((), float(value), dtype=torch.float64, device=self.tensor.device)
        return torch.as_tensor(np.asarray(value, dtype=np.float64)).to(self.tensor.device)


class Arriving:
    """A sum on its way from a device; whoever uses it first waits for it, and may draw noise before."""

    def __init__(self, tensor: Tensor) -> None:
        self.shape, there = tuple(tensor.shape), tensor.is_cuda
        self._host = torch.empty(self.shape, dtype=tensor.dtype, pin_memory=there)
        self._host.copy_(tensor, non_blocking=there)
        self._copied = torch.cuda.Event() if there else None
        if self._copied is not None:
            self._copied.record()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        if self._copied is not None:
            self._copied.synchronize()
        return np.array(self._host.numpy(), dtype=dtype, copy=copy)

    def __getitem__(self, where: Any) -> Any:
        return np.asarray(self)[where]

    def __add__(self, other: Any) -> Any:
        return np.asarray(self) + other


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
        collects = gc.isenabled()
        gc.disable()  # a device refuses to free the graph of an earlier fit while it records
        try:
            with torch.cuda.stream(beside):
                graph.capture_begin(capture_error_mode="thread_local")  # other threads go on as they like
                try:
                    self._out = self._function(self._point)
                finally:
                    graph.capture_end()
        except RuntimeError:
            return
        finally:
            if collects:
                gc.enable()
        here.wait_stream(beside)
        self._graph = graph
