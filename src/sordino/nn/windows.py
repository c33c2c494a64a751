"""Gradients of the kernels of convolutions, record by record, on a GPU and without unfolded windows.

Where matrix products may round their inputs to 11 bits (TF32), so may these: images and slopes of a record,
some channels at a time, are brought to at most one and rounded to float16, which has as many. A row is held
as it comes out, and its norm and the sum are those of the row that is held: how it was rounded before plays
no part in the clip.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sordino.nn.precision import INPUTS, product_inputs

_CHANNELS, _PLACES = 16, 64  # below, the tiles of a kernel are mostly empty
_MOST = 2**16  # places of an image of which one program can hold a channel
_ROUNDING = 2.0**-9  # of rows whose factors have 11 bits
_TAGS = (torch.Tag.flexible_layout,)  # a compiler leaves the axes as a convolution has put them


def rows_of(images: Tensor, slopes: Tensor, *geometry: Sequence[int]) -> Tensor | None:
    """Return the gradients as (records, outputs, kernel entries, inputs); None where windows are as good.

    The geometry is kernel, stride, padding and dilation.
    """
    if not _suits(images, slopes):
        return None
    return torch.ops.sordino.window_rows(images.float(), slopes.float(), *map(list, geometry))


def _suits(images: Tensor, slopes: Tensor) -> bool:
    if not images.is_cuda or product_inputs(images.device) < INPUTS["tf32"]:
        return False
    places = [part.shape[2:].numel() for part in (slopes, images)]
    few = min(images.shape[1], slopes.shape[1]) < _CHANNELS or places[0] < _PLACES
    return not few and max(places) <= _MOST and _kernel(images.device) is not None


@torch.library.custom_op("sordino::window_rows", mutates_args=(), tags=_TAGS)
def _window_rows(
    images: Tensor,
    slopes: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    made, geometry = _module() if images.is_cuda else None, (kernel, stride, padding, dilation)
    if made is None:
        return _unfolded(images, slopes, *geometry)
    out: Tensor = made.window_rows(images, slopes, *geometry)
    return out


@_window_rows.register_fake
def _(images: Tensor, slopes: Tensor, kernel: Sequence[int], *_: Any) -> Tensor:
    return images.new_empty(len(images), slopes.shape[1], kernel[0] * kernel[1], images.shape[1])


def _unfolded(images: Tensor, slopes: Tensor, *geometry: Any) -> Tensor:
    """Return the same from unfolded windows: (records, inputs x entries, places)."""
    kernel, stride, padding, dilation = geometry
    windows = F.unfold(images, kernel, dilation, padding, stride)
    rows = slopes.flatten(2) @ windows.transpose(1, 2)
    return rows.unflatten(2, (images.shape[1], -1)).transpose(2, 3).contiguous()


@cache
def _module() -> Any:
    try:
        return importlib.import_module("sordino.nn.windows_gpu")
    except Exception:  # no compiler, no triton
        return None


@cache
def _kernel(device: torch.device) -> Any:
    """Return the kernel if this machine can build it and it makes the rows of unfolded windows."""
    images, slopes = (_waves(c, device) for c in (20, 33))
    try:
        made: Any = _module()
        for step, ends in ((1, 9), (2, 5)):
            parts = images, slopes[:, :, :ends, :ends]
            geometry = (3, 3), (step, step), (1, 1), (1, 1)
            want = _unfolded(*(part.double() for part in parts), *geometry)
            if not float((made.window_rows(*parts, *geometry) - want).norm() / want.norm()) < _ROUNDING:
                return None
    except Exception:  # an old driver: windows are unfolded then
        return None
    return made


def _waves(channels: int, device: torch.device) -> Tensor:
    return torch.arange(3 * channels * 81, device=device).float().mul(0.7).sin().reshape(3, channels, 9, 9)
