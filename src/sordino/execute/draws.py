"""What torch itself draws while a release is computed: masks of dropout, and whatever a model draws."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from sordino.kernel import NoiseSource


@contextmanager
def hidden_draws(noise: NoiseSource) -> Iterator[None]:
    """Let torch draw from a seed that nobody knows; then its generators go on as before.

    **Privacy.** Masks are drawn for a whole batch, in its order. Nobody knows which mask a record gets, so
    the records that two neighbours share may be thought to get the same ones, and only what one record adds
    is different. Whoever knew the seed would know better: without the first record all others get the
    masks of those before them, and every contribution is another.
    """
    outside = generators()
    _seed_all(int(noise.integers(2**62, ())))
    try:
        yield
    finally:
        restore(outside)


def _seed_all(seed: int) -> None:
    """Seed all that torch may draw from, as ``torch.manual_seed`` does, which takes .1 ms.

    It is asked where a device has no generator yet (its seed waits there until it has one) and on devices
    that are neither a processor nor CUDA.
    """
    started, device = torch.cuda.is_initialized(), torch.accelerator.current_accelerator()
    if (device is not None and device.type != "cuda") or (not started and torch.cuda.is_available()):
        torch.manual_seed(seed)
        return
    for generator in (torch.default_generator, *(torch.cuda.default_generators if started else ())):
        generator.manual_seed(seed)


def generators() -> dict[str, Any]:
    """Return the state of torch's own generators."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def restore(state: dict[str, Any]) -> None:
    """Let torch's own generators go on where they stopped."""
    torch.set_rng_state(state["cpu"].cpu())
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([one.cpu() for one in state["cuda"]])
