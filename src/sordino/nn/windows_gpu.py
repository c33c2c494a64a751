"""Kernels of a GPU, for convolutions and pairs of places; :mod:`sordino.nn.operations` checks them first."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

_PLACES = 32  # to a step of a program
_ENTRIES = 2**14  # of a record, to a program that halves them
_LEAST = 2.0**-126
_FAR = 2**31  # numbers apart, that an index cannot reach


@triton.jit
def _halve(
    values: tl.tensor, out: tl.tensor, tops: tl.tensor, least: tl.tensor,
    step: tl.tensor, channel: tl.tensor, place: tl.tensor,
    channels: tl.constexpr, places: tl.constexpr, together: tl.constexpr, size: tl.constexpr,
) -> None:  # fmt: skip
    """Write some channels of one record over their largest entry, and that entry."""
    parts: tl.constexpr = (channels + together - 1) // together
    record, part = (tl.program_id(0) // parts).to(tl.int64), tl.program_id(0) % parts
    c, p = part * together + tl.arange(0, together), tl.arange(0, size)
    used = (p < places)[:, None] & (c < channels)[None, :]
    at = p[:, None] * place + c[None, :] * channel
    found = tl.load(values + record * step + at, mask=used, other=0.0)
    top = tl.maximum(tl.max(tl.abs(found)), least)
    tl.store(tops + tl.program_id(0), top)
    at = p[:, None] * channels + c[None, :]
    tl.store(out + record * (places * channels) + at, (found * (1 / top)).to(tl.float16), mask=used)


def halve(values: Tensor) -> tuple[Tensor, Tensor, int]:
    """Return records in float16, channels last, some over their largest entry; these entries; how many."""
    count, channels, height, width = values.shape
    if values.dtype is torch.bfloat16:
        whole = values.contiguous(memory_format=torch.channels_last)
        return whole, torch.ones(count, 1, device=values.device), channels
    if values.stride(2) != width * values.stride(3):
        values = values.contiguous(memory_format=torch.channels_last)
    places = height * width
    size = triton.next_power_of_2(places)
    together = min(max(1, _ENTRIES // size), triton.next_power_of_2(channels))
    parts = triton.cdiv(channels, together)
    out = torch.empty_like(values, dtype=torch.float16, memory_format=torch.channels_last)
    tops = values.new_empty(count, parts)
    with torch.cuda.device(values.device):
        _halve[(count * parts,)](
            values, out, tops, _LEAST, values.stride(0), values.stride(1), values.stride(3),
            channels=channels, places=places, together=together, size=size,
            num_warps=min(32, max(4, size * together // 2048)),
        )  # fmt: skip
    return out, tops, together


@triton.jit
def _read(
    images: tl.tensor, at: tl.tensor, inside: tl.tensor, column: tl.tensor, width: tl.tensor, used: tl.tensor
) -> tl.tensor:
    """Return what lies at these places of an image; zero beyond its edges."""
    live = inside & (column >= 0) & (column < width)
    return tl.load(images + at, mask=live[:, None] & used[None, :], other=0.0)


@triton.jit
def _rows(
    images: tl.tensor, slopes: tl.tensor, tops: tl.tensor, steepest: tl.tensor, out: tl.tensor,
    height: tl.tensor, width: tl.tensor, across: tl.tensor, places: tl.tensor,
    image_step: tl.tensor, image_channel: tl.tensor, image_row: tl.tensor, image_column: tl.tensor,
    slope_step: tl.tensor, slope_channel: tl.tensor, slope_row: tl.tensor, slope_column: tl.tensor,
    stride_y: tl.tensor, stride_x: tl.tensor, pad_y: tl.tensor, pad_x: tl.tensor,
    dilation_y: tl.tensor, dilation_x: tl.tensor,
    inputs: tl.constexpr, outputs: tl.constexpr, kernel_width: tl.constexpr, entries: tl.constexpr,
    tile_o: tl.constexpr, tile_i: tl.constexpr, size: tl.constexpr, span: tl.constexpr,
    o_together: tl.constexpr, i_together: tl.constexpr,
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
    used = (o < outputs)[:, None] & (i < inputs)[None, :]
    o_parts: tl.constexpr = (outputs + o_together - 1) // o_together
    i_parts: tl.constexpr = (inputs + i_together - 1) // i_together
    scale = tl.load(steepest + record * o_parts + o // o_together, mask=o < outputs, other=0.0)[:, None]
    scale = scale * tl.load(tops + record * i_parts + i // i_together, mask=i < inputs, other=0.0)[None, :]
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
    count, inputs, height, width = images.shape
    outputs, across, entries = slopes.shape[1], slopes.shape[3], kernel[0] * kernel[1]
    out = torch.empty(count, outputs, entries, inputs, device=images.device)
    tile_o, tile_i = _tile(outputs), _tile(inputs)
    span = 3 if kernel[1] == 3 else 1  # three columns share the slopes that they read
    programs = count * (entries // span) * triton.cdiv(outputs, tile_o) * triton.cdiv(inputs, tile_i)
    if not programs:
        return out
    (images, tops, i_together), (slopes, steepest, o_together) = halve(images), halve(slopes)
    with torch.cuda.device(images.device):
        _rows[(programs,)](
            images, slopes, tops, steepest, out, height, width, across, slopes.shape[2] * across,
            *images.stride(), *slopes.stride(), *stride, *padding, *dilation,
            inputs=inputs, outputs=outputs, kernel_width=kernel[1], entries=entries,
            tile_o=tile_o, tile_i=tile_i, size=_PLACES, span=span,
            o_together=o_together, i_together=i_together, num_warps=4, num_stages=4,
        )  # fmt: skip
    return out


def _tile(channels: int) -> int:
    return min(64, max(16, triton.next_power_of_2(channels)))


@triton.jit
def _load(
    values: tl.tensor, row: tl.tensor, column: tl.tensor, step: tl.tensor, rows: tl.tensor, columns: tl.tensor
) -> tl.tensor:
    used = (row < rows)[:, None] & (column < columns)[None, :]
    return tl.load(values + row[:, None] * step + column[None, :], mask=used, other=0.0)


@triton.jit
def _pairs(
    values: tl.tensor, out: tl.tensor, record_step: tl.tensor, row_step: tl.tensor,
    places: tl.tensor, length: tl.tensor, scale: tl.tensor,
    tile: tl.constexpr, parts: tl.constexpr, size: tl.constexpr,
) -> None:  # fmt: skip
    """Write a tile of the products of all pairs of rows of one record."""
    record, part = (tl.program_id(0) // (parts * parts)).to(tl.int64), tl.program_id(0) % (parts * parts)
    row, column = part // parts * tile + tl.arange(0, tile), part % parts * tile + tl.arange(0, tile)
    values += record * record_step
    total = tl.zeros((tile, tile), tl.float32)
    for start in range(0, length, size):
        at = start + tl.arange(0, size)
        left = _load(values, row, at, row_step, places, length)
        total = tl.dot(left, tl.trans(_load(values, column, at, row_step, places, length)), total)
    used = (row < places)[:, None] & (column < places)[None, :]
    out += record * places * places
    tl.store(out + row[:, None] * places + column[None, :], total * scale, mask=used)


def pairs(values: Tensor) -> Tensor:
    """Return (records, places, places) of (records, places, entries).

    A unit of products cuts float32 to eleven bits: the result lies between 1 and ``1 - 2^-10`` of what went
    in, each time. Over ``1 - 2^-11`` this is off by ``2^-11``, as if it had been rounded.
    """
    count, places, length = values.shape
    if values.stride(2) != 1 or values.stride(1) * places >= _FAR:
        values = values.contiguous()
    out = torch.empty(count, places, places, device=values.device)
    tile = 64 if places <= 64 else 128
    parts = triton.cdiv(places, tile)
    if out.numel():
        with torch.cuda.device(values.device):
            _pairs[(count * parts**2,)](
                values, out, values.stride(0), values.stride(1), places, length,
                (1 - 2.0**-11) ** -2 if values.dtype is torch.float32 else 1.0,
                tile=tile, parts=parts, size=64, num_warps=tile // 16, num_stages=3,
            )  # fmt: skip
    return out
