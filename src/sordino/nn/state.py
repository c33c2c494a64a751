"""Models that keep state between calls are found and refused: what a record leaves there gets no noise."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sordino.errors import UnsupportedError
from sordino.nn.network import Network, same_draws

_PLAIN = (bool, int, float, complex, str, bytes)


def check_stateless(network: Network, x: Tensor, y: Tensor) -> None:
    """Refuse a model, or a loss, whose state changes when it is called.

    Two tests on made-up records: no attribute of a module is another afterwards, and a record gives the
    same loss before and after others were seen. Autograd is on and goes back, as in training: some models
    remember only then.
    """
    vector, draws = network.flat().requires_grad_(), same_draws()
    kept = vector.detach().clone()
    modules = [("model", network.model), ("loss", network.loss)]
    _loss(network, draws, vector, x, y)  # what a model makes once, it makes of these public records
    before = dict(_states(modules))
    first = _loss(network, draws, vector, x[:1], y[:1])
    for _ in range(3):
        _loss(network, draws, vector, x[1:], y[1:])
    again = _loss(network, draws, vector, x[:1], y[:1])
    for where, seen in _states(modules):
        if where not in before or not _same(before[where], seen):
            raise UnsupportedError(_said(f"changes {where!r}"))
    if not _same(kept, vector):
        raise UnsupportedError(_said("changes parameters"))
    if not _same(first, again):
        raise UnsupportedError(_said("gives a record another loss after it has seen others"))


def _said(what: str) -> str:
    return (
        f"The forward pass {what}: it remembers records, and no clip bounds what one of them leaves behind. "
        "Compute such numbers from public data and keep them fixed (a buffer that forward only reads)."
    )


def _loss(network: Network, draws: same_draws, vector: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return the losses of some records, with the same random draws each time."""
    params = network.unflatten(vector)
    with draws, torch.enable_grad():
        losses = torch.stack(losses_alone(network, network.outputs(params, x), y))
        # hooks of the backward pass may remember; whether it works is seen later
        with suppress(RuntimeError):
            torch.autograd.grad(losses.sum(), vector, allow_unused=True)
    return losses.detach()


def losses_alone(network: Network, outputs: Tensor, y: Tensor) -> list[Tensor]:
    """Return the losses of some outputs, each without the others."""
    return [network.loss(outputs[i : i + 1], y[i : i + 1]).sum() for i in range(len(y))]


def _states(modules: list[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the name and a copy of every tensor and plain value that the modules hold."""
    for title, module in modules:
        if not isinstance(module, nn.Module):
            continue
        for name, layer in module.named_modules():
            for key, value in {**vars(layer), **layer._buffers}.items():
                if not key.startswith("_forward") and not key.startswith("_backward"):
                    yield ".".join(filter(None, (title, name, key))), _copied(value)


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, value))
    if isinstance(value, (list, tuple, deque)):
        return [_copied(one) for one in value]
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in value.items() if not isinstance(one, nn.Module)}
    return value if isinstance(value, _PLAIN) or value is None else type(value)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        alike = isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape
        return alike and bool(((a == b) | ((a != a) & (b != b))).all())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return bool(a == b) or (a != a and b != b)
