"""Gradients that are not formed: products of what went in and of slopes, tables, and windows of images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sordino.kernel.clip_tensors import pairs
from sordino.nn.windows import rows_of

_ENTRIES = 25  # of a kernel, at most, whose windows are compared entry by entry


@dataclass
class Product:
    """``sum_t left_t right_t^T`` of (batch, groups, places, rows) and (batch, groups, places, columns)."""

    left: Tensor
    right: Tensor

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Places, rows and columns."""
        return self.left.shape[2], self.left.shape[3], self.right.shape[3]

    @property
    def device(self) -> torch.device:
        """Where the numbers are."""
        return self.left.device


@dataclass
class Table:
    """``slopes`` of the rows of a table that ``words`` name: (batch, places) and (batch, places, columns)."""

    words: Tensor
    slopes: Tensor


class Windows(Product):
    """A convolution: outputs by kernel entries (of a transposed one, the other way round).

    Windows are unfolded when they are asked for: they are as many times the image as a kernel has entries.
    """

    def __init__(
        self, kept: Any, slope: Tensor, kernel: torch.Size, batch: int, by_record: Callable[[Tensor], Tensor]
    ) -> None:
        self._kept, self._kernel, self._by_record = kept, kernel, by_record
        self._wide, self._narrow = (slope, kept.input) if kept.transposed else (kept.input, slope)
        self._images = len(slope) // batch  # of a record

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Places, rows and columns."""
        groups, places = self._kept.groups, self._narrow.shape[2:].numel()
        columns = self._wide.shape[1] // groups * self._kernel.numel()
        return self._images * places, self._narrow.shape[1] // groups, columns

    @property
    def device(self) -> torch.device:
        """Where the numbers are."""
        return self._wide.device

    @cached_property
    def left(self) -> Tensor:
        """Slopes: (batch, groups, places, rows)."""
        return self._apart(self._narrow.flatten(2))

    @cached_property
    def right(self) -> Tensor:
        """Windows: (batch, groups, places, columns)."""
        windows = _windows(self._padded(), self._kernel, self._kept.dilation, self._kept.stride)
        for axis, size in enumerate(self._narrow.shape[2:]):  # of a transposed one with output padding
            windows = windows.narrow(2 + len(self._kernel) + axis, 0, size)
        return self._apart(windows.reshape(len(windows), -1, self._narrow.shape[2:].numel()))

    def _padded(self) -> Tensor:
        twice = [size for pad in reversed(self._kept.padding) for size in (pad, pad)]
        return F.pad(self._wide, twice) if any(twice) else self._wide

    def formed(self) -> Tensor | None:
        """Return gradients as (batch, outputs, kernel entries, inputs), where a GPU needs no windows."""
        kept = self._kept
        if kept.transposed or kept.groups > 1 or len(self._kernel) != 2 or self._images > 1:
            return None
        return rows_of(self._wide, self._narrow, self._kernel, kept.stride, kept.padding, kept.dilation)

    def gram(self) -> Tensor | None:
        """Return the products of all pairs of windows, if those of pairs of places of the image are fewer.

        Two windows have as many pairs of places as a kernel has entries, and share most of them with others.
        """
        kept, dims = self._kept, len(self._kernel)
        padded = self._padded()
        places, inside = self._narrow.shape[2:], padded.shape[2:]
        dear = inside.numel() ** 2 > places.numel() ** 2 * self._kernel.numel() / 2
        if dear or self._images > 1 or self._kernel.numel() > _ENTRIES:
            return None
        flat = padded.unflatten(1, (kept.groups, -1)).flatten(3).transpose(2, 3).float()
        all_pairs = pairs(flat).unflatten(3, inside).unflatten(2, inside)
        total: Any = None
        for entry in product(*(range(size) for size in self._kernel)):
            part = all_pairs
            for axis in range(dims):
                start, step = entry[axis] * kept.dilation[axis], kept.stride[axis]
                stop = start + step * (places[axis] - 1) + 1
                window = slice(start, stop, step)
                part = part[(slice(None),) * (2 + axis) + (window,) + (slice(None),) * (dims - 1) + (window,)]
            total = part if total is None else total + part
        return total.flatten(2 + dims).flatten(2, 1 + dims)

    def _apart(self, values: Tensor) -> Tensor:
        """Return (records, groups, places, features) of (images, features, places)."""
        moved = self._by_record(values.unflatten(1, (self._kept.groups, -1)).transpose(2, 3))
        return moved if moved.dim() == 4 else moved.movedim(1, 2).flatten(2, 3)


def _windows(a: Tensor, kernel: Any, dilation: Any, stride: Any) -> Tensor:
    """Return (batch, channels, *kernel, *places), a view: F.unfold starts one kernel a record on a GPU."""
    dims = len(kernel)
    for i in range(dims):
        a = a.unfold(2 + i, dilation[i] * (kernel[i] - 1) + 1, stride[i])
        a = a[..., :: dilation[i]] if dilation[i] > 1 else a
    places, entries = range(2, 2 + dims), range(2 + dims, 2 + 2 * dims)
    return a.permute(0, 1, *entries, *places)
