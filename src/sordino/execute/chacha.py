"""ChaCha20 in integer tensor operations: a cryptographic stream made where the gradient is.

The key comes from the kernel's noise source, a fresh one for each block of noise, so a stream is never used
twice; what is computed here is a function of that key alone.
"""

from __future__ import annotations

import importlib
import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
_ROUNDS = 20
_MOST = 1 << 30  # numbers of one kernel: their words are counted in 32 bits


def chacha20_words(key: Tensor, blocks: int, nonce: tuple[int, int, int] = (0, 0, 0)) -> Tensor:
    """Return ``16 * blocks`` words of 32 bits (as int32, block after block) of RFC 8439's ChaCha20.

    Parameters
    ----------
    key : eight int32 words, on the device where the stream is wanted.
    blocks : how many blocks of 64 bytes; the counter starts at zero.
    """
    first = _initial(key, blocks, nonce)
    a, b, c, d = first.unbind(0)
    for _ in range(_ROUNDS // 2):
        a, b, c, d = _quarter(a, b, c, d)
        a, b, c, d = _quarter(a, b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0))
        b, c, d = b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)
    return (torch.stack([a, b, c, d]) + first).reshape(16, blocks).T.reshape(-1)


def normals(key: Tensor, count: int) -> Tensor:
    r"""Return ``count`` standard normal float32 numbers by the Box-Muller transform in float64.

    Each pair takes 64 bits for the radius and 32 for the angle, so the tails reach 9.4 deviations.
    """
    made = _kernel(key.device) if key.is_cuda and count < _MOST else None
    return _normals(key, count) if made is None else made.normals(key, count)


def _normals(key: Tensor, count: int) -> Tensor:
    pairs = (count + 1) // 2
    words = chacha20_words(key, math.ceil(3 * pairs / 16))[: 3 * pairs].reshape(3, pairs)
    high, low, angle = (_unsigned(row) for row in words)
    # in (0, 1], never zero: the logarithm is finite
    uniform = (high * 2.0**32 + low + 1.0) * 2.0**-64
    radius = torch.sqrt(-2.0 * torch.log(uniform))
    turn = angle * (2.0 * math.pi * 2.0**-32)
    pair = torch.stack([radius * torch.cos(turn), radius * torch.sin(turn)])
    return pair.reshape(-1)[:count].float()


@cache
def _kernel(device: torch.device) -> Any:
    """Return both as kernels if this machine can build them and they make the words and numbers above."""
    try:
        made: Any = importlib.import_module("sordino.execute.chacha_gpu")
        key = torch.arange(-3, 5, dtype=torch.int32, device=device) * 0x12345678
        same = torch.equal(made.words(key, 300), chacha20_words(key, 300))
        near = torch.allclose(made.normals(key, 3001), _normals(key, 3001), rtol=1e-6, atol=1e-6)
    except Exception:  # no compiler, no triton, an old driver: the operations of torch do the same
        return None
    return made if same and near else None


def _initial(key: Tensor, blocks: int, nonce: tuple[int, int, int]) -> Tensor:
    """Return the state as (4 rows, 4 columns, blocks)."""
    fixed = torch.tensor([_signed(w) for w in _CONSTANTS], dtype=torch.int32, device=key.device)
    counter = torch.arange(blocks, dtype=torch.int32, device=key.device)
    last = [counter, *(torch.full_like(counter, _signed(w)) for w in nonce)]
    head = torch.cat([fixed, key]).reshape(3, 4, 1).expand(3, 4, blocks)
    return torch.cat([head, torch.stack(last)[None]])


def _quarter(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    a = a + b
    d = _rotated(d ^ a, 16)
    c = c + d
    b = _rotated(b ^ c, 12)
    a = a + b
    d = _rotated(d ^ a, 8)
    c = c + d
    return a, _rotated(b ^ c, 7), c, d


def _rotated(x: Tensor, by: int) -> Tensor:
    # The shift to the right repeats the sign bit, which is masked away.
    return (x << by) | ((x >> (32 - by)) & ((1 << by) - 1))


def _signed(word: int) -> int:
    return word - (1 << 32) if word >= 1 << 31 else word


def _unsigned(words: Tensor) -> Tensor:
    wide = words.to(torch.float64)
    return torch.where(wide < 0, wide + 2.0**32, wide)
