"""Gradients of kernels of convolutions as one kernel of a GPU; :mod:`sordino.nn.windows` checks it first."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

_PLACES = 32  # to a step of a program
_ENTRIES = 4096  # of a record, to a step of a program
_LEAST = 2.0**-126


@triton.jit
def _halve(
    values: tl.tensor, out: tl.tensor, tops: tl.tensor, least: tl.tensor,
    entries: tl.constexpr, size: tl.constexpr,
) -> None:  # fmt: skip
    """Write one record over its largest entry, and that entry."""
    record = tl.program_id(0).to(tl.int64)
    values += record * entries
    out += record * entries
    most = tl.zeros((size,), tl.float32)
    for start in range(0, entries, size):
        at = start + tl.arange(0, size)
        most = tl.maximum(most, tl.abs(tl.load(values + at, mask=at < entries, other=0.0)))
    top = tl.maximum(tl.max(most), least)
    tl.store(tops + record, top)
    for start in range(0, entries, size):
        at = start + tl.arange(0, size)
        unit = tl.load(values + at, mask=at < entries, other=0.0) * (1 / top)
        tl.store(out + at, unit.to(tl.float16), mask=at < entries)


def halved(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return each record over its largest entry in float16, channels last, and the largest entries."""
    values = values.contiguous(memory_format=torch.channels_last)
    out, tops = torch.empty_like(values, dtype=torch.float16), values.new_empty(len(values))
    if values.numel():
        with torch.cuda.device(values.device):
            entries = values[0].numel()
            _halve[(len(values),)](values, out, tops, _LEAST, entries=entries, size=_ENTRIES, num_warps=8)
    return out, tops


@triton.jit
def _read(
    images: tl.tensor, at: tl.tensor, inside: tl.tensor, column: tl.tensor, width: tl.tensor, used: tl.tensor
) -> tl.tensor:
    """Return what lies at these places of an image; zero beyond its edges."""
    live = inside & (column >= 0) & (column < width)
    return tl.load(images + at, mask=live[:, None] & used[None, :], other=0.0)


@triton.jit
def _rows(
    images: tl.tensor, slopes: tl.tensor, scales: tl.tensor, out: tl.tensor,
    height: tl.tensor, width: tl.tensor, across: tl.tensor, places: tl.tensor,
    image_step: tl.tensor, image_channel: tl.tensor, image_row: tl.tensor, image_column: tl.tensor,
    slope_step: tl.tensor, slope_channel: tl.tensor, slope_row: tl.tensor, slope_column: tl.tensor,
    stride_y: tl.tensor, stride_x: tl.tensor, pad_y: tl.tensor, pad_x: tl.tensor,
    dilation_y: tl.tensor, dilation_x: tl.tensor,
    inputs: tl.constexpr, outputs: tl.constexpr, kernel_width: tl.constexpr, entries: tl.constexpr,
    tile_o: tl.constexpr, tile_i: tl.constexpr, size: tl.constexpr, span: tl.constexpr,
) -> None:  # fmt: skip
    """Write tiles of ``span`` (1 or 3) neighbouring kernel entries of one record: sums over its places."""
    tiles_o: tl.constexpr = (outputs + tile_o - 1) // tile_o
    tiles_i: tl.constexpr = (inputs + tile_i - 1) // tile_i
    spans: tl.constexpr = entries // span
    parts: tl.constexpr = spans * tiles_o * tiles_i
    record, part = (tl.program_id(0) // parts).to(tl.int64), tl.program_id(0) % parts
    entry, tile = (part % spans) * span, part // spans
    o = (tile % tiles_o) * tile_o + tl.arange(0, tile_o)
    i = (tile // tiles_o) * tile_i + tl.arange(0, tile_i)
    images += record * image_step
    slopes += record * slope_step
    first = tl.zeros((tile_o, tile_i), tl.float32)
    second = tl.zeros((tile_o, tile_i), tl.float32)
    third = tl.zeros((tile_o, tile_i), tl.float32)
    for start in range(0, places, size):
        place = start + tl.arange(0, size)
        y, x = place // across, place % across
        row = y * stride_y - pad_y + (entry // kernel_width) * dilation_y
        column = x * stride_x - pad_x + (entry % kernel_width) * dilation_x
        inside = (place < places) & (row >= 0) & (row < height)
        at = (row * image_row + column * image_column)[:, None] + i[None, :] * image_channel
        g = tl.load(
            slopes + (y * slope_row + x * slope_column)[None, :] + o[:, None] * slope_channel,
            mask=(place < places)[None, :] & (o < outputs)[:, None],
            other=0.0,
        )
        first = tl.dot(g, _read(images, at, inside, column, width, i < inputs), first)
        if span == 3:
            step = dilation_x * image_column
            a = _read(images, at + step, inside, column + dilation_x, width, i < inputs)
            second = tl.dot(g, a, second)
            a = _read(images, at + 2 * step, inside, column + 2 * dilation_x, width, i < inputs)
            third = tl.dot(g, a, third)
    scale, used = tl.load(scales + record), (o < outputs)[:, None] & (i < inputs)[None, :]
    out += record * (outputs * entries * inputs) + entry * inputs
    at = o[:, None] * (entries * inputs) + i[None, :]
    tl.store(out + at, first * scale, mask=used)
    if span == 3:
        tl.store(out + at + inputs, second * scale, mask=used)
        tl.store(out + at + 2 * inputs, third * scale, mask=used)


def window_rows(
    images: Tensor,
    slopes: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """Return (records, outputs, kernel entries, inputs)."""
    (images, tops), (slopes, steepest) = halved(images), halved(slopes)
    scales = tops * steepest
    count, inputs, height, width = images.shape
    outputs, across, entries = slopes.shape[1], slopes.shape[3], kernel[0] * kernel[1]
    out = torch.empty(count, outputs, entries, inputs, device=images.device)
    tile_o, tile_i = _tile(outputs), _tile(inputs)
    span = 3 if kernel[1] == 3 else 1  # three columns share the slopes that they read
    programs = count * (entries // span) * triton.cdiv(outputs, tile_o) * triton.cdiv(inputs, tile_i)
    if not programs:
        return out
    with torch.cuda.device(images.device):
        _rows[(programs,)](
            images, slopes, scales, out, height, width, across, slopes.shape[2] * across,
            *images.stride(), *slopes.stride(), *stride, *padding, *dilation,
            inputs=inputs, outputs=outputs, kernel_width=kernel[1], entries=entries,
            tile_o=tile_o, tile_i=tile_i, size=_PLACES, span=span, num_warps=4, num_stages=4,
        )  # fmt: skip
    return out


def _tile(channels: int) -> int:
    return min(64, max(16, triton.next_power_of_2(channels)))
