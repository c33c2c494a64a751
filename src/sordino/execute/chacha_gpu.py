"""ChaCha20 as one kernel of a GPU; :mod:`sordino.execute.draws` compares it with its own words first."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

_SIZE = 128  # blocks of the stream to a program


@triton.jit
def _turn_left(x: tl.tensor, by: tl.constexpr) -> tl.tensor:
    return (x << by) | (x >> (32 - by))


@triton.jit
def _quarter(a: tl.tensor, b: tl.tensor, c: tl.tensor, d: tl.tensor) -> tl.tensor:
    a = a + b
    d = _turn_left(d ^ a, 16)
    c = c + d
    b = _turn_left(b ^ c, 12)
    a = a + b
    d = _turn_left(d ^ a, 8)
    c = c + d
    b = _turn_left(b ^ c, 7)
    return a, b, c, d


@triton.jit
def _word(key: tl.tensor, at: tl.constexpr, zero: tl.tensor) -> tl.tensor:
    return zero + tl.load(key + at).to(tl.uint32, bitcast=True)


@triton.jit
def _store(out: tl.tensor, at: tl.constexpr, value: tl.tensor, inside: tl.tensor) -> None:
    tl.store(out + at, value.to(tl.int32, bitcast=True), mask=inside)


@triton.jit
def _stream(key: tl.tensor, out: tl.tensor, blocks: tl.tensor, size: tl.constexpr) -> None:
    """Write 16 words for each block; the counter is the number of the block, the nonce is zero."""
    place = tl.program_id(0) * size + tl.arange(0, size)
    zero = tl.zeros((size,), tl.uint32)
    i0, i1 = tl.full((size,), 0x61707865, tl.uint32), tl.full((size,), 0x3320646E, tl.uint32)
    i2, i3 = tl.full((size,), 0x79622D32, tl.uint32), tl.full((size,), 0x6B206574, tl.uint32)
    i4, i5, i6, i7 = _word(key, 0, zero), _word(key, 1, zero), _word(key, 2, zero), _word(key, 3, zero)
    i8, i9, i10, i11 = _word(key, 4, zero), _word(key, 5, zero), _word(key, 6, zero), _word(key, 7, zero)
    i12 = place.to(tl.uint32)
    x0, x1, x2, x3, x4, x5, x6, x7 = i0, i1, i2, i3, i4, i5, i6, i7
    x8, x9, x10, x11, x12, x13, x14, x15 = i8, i9, i10, i11, i12, zero, zero, zero
    for _ in range(10):
        x0, x4, x8, x12 = _quarter(x0, x4, x8, x12)
        x1, x5, x9, x13 = _quarter(x1, x5, x9, x13)
        x2, x6, x10, x14 = _quarter(x2, x6, x10, x14)
        x3, x7, x11, x15 = _quarter(x3, x7, x11, x15)
        x0, x5, x10, x15 = _quarter(x0, x5, x10, x15)
        x1, x6, x11, x12 = _quarter(x1, x6, x11, x12)
        x2, x7, x8, x13 = _quarter(x2, x7, x8, x13)
        x3, x4, x9, x14 = _quarter(x3, x4, x9, x14)
    inside, row = place < blocks, out + place * 16
    _store(row, 0, x0 + i0, inside)
    _store(row, 1, x1 + i1, inside)
    _store(row, 2, x2 + i2, inside)
    _store(row, 3, x3 + i3, inside)
    _store(row, 4, x4 + i4, inside)
    _store(row, 5, x5 + i5, inside)
    _store(row, 6, x6 + i6, inside)
    _store(row, 7, x7 + i7, inside)
    _store(row, 8, x8 + i8, inside)
    _store(row, 9, x9 + i9, inside)
    _store(row, 10, x10 + i10, inside)
    _store(row, 11, x11 + i11, inside)
    _store(row, 12, x12 + i12, inside)
    _store(row, 13, x13, inside)
    _store(row, 14, x14, inside)
    _store(row, 15, x15, inside)


def words(key: Tensor, blocks: int) -> Tensor:
    """Return ``16 * blocks`` words (as int32, block after block); the counter starts at zero."""
    out = torch.empty(16 * blocks, dtype=torch.int32, device=key.device)
    with torch.cuda.device(key.device):
        _stream[(-(-blocks // _SIZE),)](key, out, blocks, size=_SIZE)
    return out


@triton.jit
def _load_unsigned(words: tl.tensor, inside: tl.tensor) -> tl.tensor:
    return tl.load(words, mask=inside, other=0).to(tl.uint32, bitcast=True).to(tl.float64)


@triton.jit
def _pairs(words: tl.tensor, out: tl.tensor, pairs: tl.tensor, count: tl.tensor, size: tl.constexpr) -> None:
    """Write two normal variables for three words, by the Box-Muller transform in float64."""
    place = tl.program_id(0) * size + tl.arange(0, size)
    inside = place < pairs
    high, low = _load_unsigned(words + place, inside), _load_unsigned(words + pairs + place, inside)
    uniform = (high * 4294967296.0 + low + 1.0) * 5.421010862427522e-20  # 2^32 and 2^-64
    radius = tl.sqrt(-2.0 * tl.log(uniform))
    turn = _load_unsigned(words + 2 * pairs + place, inside) * 1.4629180792671596e-09  # 2 pi 2^-32
    tl.store(out + place, (radius * tl.cos(turn)).to(tl.float32), mask=inside)
    tl.store(
        out + pairs + place, (radius * tl.sin(turn)).to(tl.float32), mask=inside & (pairs + place < count)
    )


def normals(key: Tensor, count: int) -> Tensor:
    """Return ``count`` standard normal float32 numbers."""
    pairs = (count + 1) // 2
    stream = words(key, math.ceil(3 * pairs / 16))
    out = torch.empty(count, device=key.device)
    with torch.cuda.device(key.device):
        _pairs[(-(-pairs // _SIZE),)](stream, out, pairs, count, size=_SIZE)
    return out
