"""Gradients of the kernels of convolutions, record by record, on a GPU and without unfolded windows.

Where matrix products may round their inputs to 11 bits (TF32), so may these: images and slopes of a record
are brought to at most one and rounded to float16, which has as many. A row is held as it comes out, and its
norm and the sum are those of the row that is held: how it was rounded before plays no part in the clip.
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
_LEAST = 2.0**-126


def rows_of(
    images: Tensor,
    slopes: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor | None:
    """Return the gradients as (records, outputs, kernel entries, inputs); None where windows are as good."""
    if not _suits(images, slopes):
        return None
    (a, top), (g, steepest) = _rounded(images), _rounded(slopes)
    return torch.ops.sordino.window_rows(
        a, g, top * steepest, list(kernel), list(stride), list(padding), list(dilation)
    )


def _suits(images: Tensor, slopes: Tensor) -> bool:
    if not images.is_cuda or product_inputs(images.device) < INPUTS["tf32"]:
        return False
    few = min(images.shape[1], slopes.shape[1]) < _CHANNELS or slopes.shape[2:].numel() < _PLACES
    return not few and _kernel(images.device) is not None


def _rounded(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return each record over its largest entry in float16, channels last, and the largest entries."""
    top = values.abs().amax((1, 2, 3)).float().clamp_min(_LEAST)
    unit = values * (1 / top)[:, None, None, None]
    return unit.to(torch.float16, memory_format=torch.channels_last), top


@torch.library.custom_op("sordino::window_rows", mutates_args=(), tags=(torch.Tag.needs_fixed_stride_order,))
def _window_rows(
    images: Tensor,
    slopes: Tensor,
    scales: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    made = _module() if images.is_cuda else None
    if made is None:
        return _unfolded(images, slopes, scales, kernel, stride, padding, dilation)
    out: Tensor = made.window_rows(images, slopes, scales, kernel, stride, padding, dilation)
    return out


@_window_rows.register_fake
def _(images: Tensor, slopes: Tensor, scales: Tensor, kernel: Sequence[int], *_: Any) -> Tensor:
    return _blank(images, slopes, kernel)


def _blank(images: Tensor, slopes: Tensor, kernel: Sequence[int]) -> Tensor:
    shape = len(images), slopes.shape[1], kernel[0] * kernel[1], images.shape[1]
    return images.new_empty(shape, dtype=torch.float32)


def _unfolded(images: Tensor, slopes: Tensor, scales: Tensor, *geometry: Any) -> Tensor:
    """Return the same from unfolded windows: (records, inputs x entries, places)."""
    kernel, stride, padding, dilation = geometry
    windows = F.unfold(images.float(), kernel, dilation, padding, stride)
    rows = slopes.float().flatten(2) @ windows.transpose(1, 2)
    rows = rows.unflatten(2, (images.shape[1], -1)).transpose(2, 3)
    return (rows * scales[:, None, None, None]).contiguous()


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
    scales, same = torch.tensor([0.5, 1.0, 2.0], device=device), False
    try:
        made: Any = _module()
        for step, ends in ((1, 9), (2, 5)):
            parts = images.half(), slopes[:, :, :ends, :ends].half(), scales
            geometry = (3, 3), (step, step), (1, 1), (1, 1)
            want = _unfolded(*parts, *geometry)
            same = torch.allclose(made.window_rows(*parts, *geometry), want, rtol=2e-3, atol=2e-3)
            if not same:
                return None
    except Exception:  # an old driver: windows are unfolded then
        return None
    return made


def _waves(channels: int, device: torch.device) -> Tensor:
    return torch.arange(3 * channels * 81, device=device).float().mul(0.7).sin().reshape(3, channels, 9, 9)
