"""What others draw while a release is computed: masks of dropout, and what a model or a data set draws."""

from __future__ import annotations

import importlib
import math
import random
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sordino.kernel.noise import NoiseSource

# The key comes from the kernel's noise source, a fresh one for each block of noise, so a stream is never
# used twice; what is computed here is a function of that key alone.

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
    fixed = torch.tensor(_CONSTANTS, dtype=torch.int32, device=key.device)
    counter = torch.arange(blocks, dtype=torch.int32, device=key.device)
    last = [counter, *(torch.full_like(counter, word) for word in nonce)]
    head = torch.cat([fixed, key]).reshape(3, 4, 1).expand(3, 4, blocks)
    first = torch.cat([head, torch.stack(last)[None]])
    a, b, c, d = first.unbind(0)
    for _ in range(_ROUNDS // 2):
        a, b, c, d = _quarter(a, b, c, d)
        a, b, c, d = _quarter(a, b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0))
        b, c, d = b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)
    return (torch.stack([a, b, c, d]) + first).reshape(16, blocks).T.reshape(-1)


def normals(key: Tensor, count: int) -> Tensor:
    """Return ``count`` float32 normals by Box-Muller in float64 with tails to 9.4 deviations."""
    made = _kernel(key.device) if key.is_cuda and count < _MOST else None
    return _normals(key, count) if made is None else made.normals(key, count)


def _normals(key: Tensor, count: int) -> Tensor:
    pairs = (count + 1) // 2
    words = chacha20_words(key, math.ceil(3 * pairs / 16))[: 3 * pairs].reshape(3, pairs)
    wide = words.to(torch.float64)
    high, low, angle = torch.where(wide < 0, wide + 2.0**32, wide)  # unsigned
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


def _quarter(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    a = a + b
    d = _rotate(d ^ a, 16)
    c = c + d
    b = _rotate(b ^ c, 12)
    a = a + b
    d = _rotate(d ^ a, 8)
    c = c + d
    return a, _rotate(b ^ c, 7), c, d


def _rotate(x: Tensor, by: int) -> Tensor:
    # The shift to the right repeats the sign bit, which is masked away.
    return (x << by) | ((x >> (32 - by)) & ((1 << by) - 1))


_MOST_OBJECTS, _FEW = 20_000, 64  # objects that are looked at, and entries of one container
_FOREIGN = ("builtins", "collections", "functools", "numpy", "random", "scipy", "sordino", "torch", "typing")
_PLAIN = (str, bytes, bool, int, float, complex, type(None), type, ModuleType, np.ndarray, torch.Tensor)
_SOURCES = ("default_rng", "RandomState", "SeedSequence", "MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
_SEEDERS = frozenset({"manual_seed", *_SOURCES})
TURN = threading.RLock()
"""Held while generators stand elsewhere: a thread that put them back would show another what it draws."""

_hidden: ContextVar[NoiseSource | None] = ContextVar("sordino_hidden_draws", default=None)


@contextmanager
def hidden_draws(noise: NoiseSource) -> Iterator[None]:
    """Let torch draw from a seed that nobody knows; then its generators go on as before.

    **Privacy.** Masks are drawn for a whole batch, in its order. Whoever knew the seed would know that
    without the first record all others get the masks of those before them, and every contribution is another.
    """
    with TURN:
        token, outside = _hidden.set(noise), generators()
        _seed_all(int(noise.integers(2**62, ())))
        try:
            yield
        finally:
            restore(outside)
            _hidden.reset(token)


@contextmanager
def draw_apart(held: Iterable[Any] = ()) -> Iterator[None]:
    """Let torch, NumPy, Python and the generators ``held`` draw here from a hidden seed of their own.

    A data set that seeds torch for an item would tell which masks the model draws next.
    """
    noise = _hidden.get()
    if noise is None:
        yield
        return
    with seeded_draws(int(noise.integers(2**62, ())), held):
        yield


@contextmanager
def seeded_draws(seed: int, held: Iterable[Any] = ()) -> Iterator[None]:
    """Let everybody draw from one seed; then all generators go on as before."""
    with TURN:
        outside, others = generators(), [*_OWN, *held]
        kept = [_state(one) for one in others]
        _seed_all(seed)
        for place, one in enumerate(others):
            bits, own = _bits(one), (seed + place) % 2**32
            if bits is not None:
                bits.state = type(bits)(own).state
            else:
                (one.manual_seed if isinstance(one, torch.Generator) else one.seed)(own)
        try:
            yield
        finally:
            restore(outside)
            for one, state in zip(others, kept, strict=True):
                bits = _bits(one)
                if bits is not None:
                    bits.state = state
                else:
                    (one.setstate if hasattr(one, "setstate") else one.set_state)(state)


def generator_states(held: Iterable[Any] = ()) -> list[str]:
    """Return the states of all generators, to see whether anybody has drawn."""
    return [repr(_state(one)) for one in (*_OWN, *held)] + [str(generators()["cpu"].tolist())]


@dataclass
class Seeding:
    """What was seen of reads: the functions that seeded generators, and where generators stood afterwards."""

    named: set[str] = field(default_factory=set)
    ends: list[list[str]] = field(default_factory=list)


@contextmanager
def noting_seeds(seen: Seeding, held: Iterable[Any] = ()) -> Iterator[None]:
    """Note who seeds generators in here, in this thread; compiled functions of NumPy by their names."""

    def watch(frame: FrameType, event: str, called: Any) -> None:
        code, place = frame.f_code, str(frame.f_globals.get("__name__")).partition(".")[0]
        if event == "c_call" and called.__name__ == "manual_seed":
            seen.named.add("manual_seed")
        elif event == "call" and code is random.Random.seed.__code__ and frame.f_locals.get("a") is not None:
            seen.named.add("random.seed")
        elif event == "call" and place not in _FOREIGN and code.co_name != "<module>":
            named = {str(getattr(frame.f_globals.get(name), "__name__", name)) for name in code.co_names}
            seen.named.update(_SEEDERS & (named | set(code.co_names)))

    outside = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(outside)
        seen.ends.append(generator_states(held))


_OWN: tuple[Any, ...] = (np.random, random)  # the modules are generators too


def held_generators(*roots: Any) -> list[Any]:
    """Return the generators that some objects hold, also in closures, or that their functions name."""
    kinds = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
    found = [one for one in reachable_objects(*roots) if isinstance(one, (*kinds, torch.Generator))]
    own = (random.SystemRandom,)  # which nobody can foresee
    return [one for one in found if not isinstance(one, own) and one is not torch.default_generator]


def _bits(one: Any) -> Any:
    """Return the source of bits of one of NumPy's new generators, None for others."""
    one = one.bit_generator if isinstance(one, np.random.Generator) else one
    return one if isinstance(one, np.random.BitGenerator) else None


def _state(one: Any) -> Any:
    if (bits := _bits(one)) is not None:
        return bits.state
    return one.getstate() if hasattr(one, "getstate") else one.get_state()


def reachable_objects(*roots: Any) -> list[Any]:
    """Return what some objects hold, directly or not: attributes, entries, closures, named globals."""
    seen: dict[int, Any] = {}
    waiting = list(roots)
    while waiting and len(seen) < _MOST_OBJECTS:
        one = waiting.pop()
        if id(one) not in seen:
            seen[id(one)] = one
            waiting.extend(_inside(one))
    return list(seen.values())


def _inside(one: Any) -> list[Any]:
    if isinstance(one, _PLAIN):
        return []
    if isinstance(one, FunctionType):
        if (one.__module__ or "").partition(".")[0] in _FOREIGN:
            return []
        cells = [cell.cell_contents for cell in one.__closure__ or () if cell != type(cell)()]
        named = [one.__globals__.get(name) for name in _names(one.__code__)]
        return [*cells, *(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values(), *named]
    if isinstance(one, MethodType):
        return [one.__self__, one.__func__]
    if isinstance(one, Mapping):
        return list(islice(one.values(), _FEW))
    if isinstance(one, (list, tuple, set, frozenset)):
        return list(islice(one, _FEW))
    parts = [getattr(one, name, None) for name in ("func", "args", "keywords", "__wrapped__")]
    kinds = [kind for kind in type(one).__mro__ if kind.__module__.partition(".")[0] not in _FOREIGN]
    functions = [f for kind in kinds for f in vars(kind).values() if isinstance(f, FunctionType)]
    return [*parts, *getattr(one, "__dict__", {}).values(), *functions]


def _names(code: CodeType) -> list[str]:
    inner = [name for part in code.co_consts if isinstance(part, CodeType) for name in _names(part)]
    return [*code.co_names, *inner]


def _seed_all(seed: int) -> None:
    """Seed all that torch may draw from; ``torch.manual_seed`` takes .1 ms and is asked only where needed."""
    started, device = torch.cuda.is_initialized(), torch.accelerator.current_accelerator()
    if (device is not None and device.type != "cuda") or (not started and torch.cuda.is_available()):
        torch.manual_seed(seed)
        return
    for generator in (torch.default_generator, *(torch.cuda.default_generators if started else ())):
        generator.manual_seed(seed)


def generators() -> dict[str, Any]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def restore(state: dict[str, Any]) -> None:
    """Let torch's own generators go on where they stopped."""
    torch.set_rng_state(state["cpu"].cpu())
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([one.cpu() for one in state["cuda"]])
