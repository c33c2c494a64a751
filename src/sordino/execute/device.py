"""One number for each record on a device, for the arithmetic of queries: they ask in NumPy's words."""

from __future__ import annotations

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
        """Return an array of doubles brought to a device."""
        return cls(torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64)).to(device))

    @property
    def shape(self) -> tuple[int]:
        """How many records there are."""
        return (len(self.tensor),)

    def __len__(self) -> int:
        return len(self.tensor)

    def sum(self, axis: int | None = None) -> float:
        """Return the sum over all records."""
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
        if known is None or method != "__call__" or kwargs or not all(map(self._is_near, inputs)):
            arrays = [np.asarray(i) if isinstance(i, DeviceVector) else i for i in inputs]
            return getattr(ufunc, method)(*arrays, **kwargs)
        return DeviceVector(known(*map(self._brought, inputs)))

    def _is_near(self, value: Any) -> bool:
        return isinstance(value, DeviceVector) or np.shape(value) in ((), self.shape)

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
