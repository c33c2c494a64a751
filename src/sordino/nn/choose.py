"""Which engine differentiates a model, checked on made-up records before any data is seen."""

from __future__ import annotations

import torch
from torch import Tensor

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.nn.clip import SAFETY
from sordino.nn.engines import Engine, GhostEngine, VmapEngine
from sordino.nn.network import Network, quiet_dropout
from sordino.nn.refuse import check_model

METHODS = ("auto", "ghost", "vmap")
_RECORDS = 3
_TOLERANCE = 1e-3  # an error of the rules is far larger, rounding far smaller


def make_engine(network: Network, x: Tensor, y: Tensor, method: str = "auto") -> Engine:
    """Return the engine for a model whose records have the shape and type of ``x`` and ``y``.

    ``auto`` takes ghost norms if they agree with one backward pass per record on made-up records, else
    vmap. Only shapes and types of the data are looked at.
    """
    if method not in METHODS:
        raise InvalidInputError(f"Expected method in {METHODS}, got {method!r}.")
    check_model(network.model)
    if method == "vmap":
        return VmapEngine(network)
    try:
        engine = GhostEngine(network)
        _compare(engine, *_made_up(x, network.device), _targets(y, network.device))
    except UnsupportedError:
        if method == "ghost":
            raise
        return VmapEngine(network)
    return engine


def _made_up(x: Tensor, device: torch.device) -> tuple[Tensor]:
    shape = (_RECORDS, *x.shape[1:])
    count = torch.arange(torch.Size(shape).numel(), device=device).reshape(shape)
    if x.is_floating_point():
        return (torch.cos(count.to(x.dtype) * 1.7),)
    return ((count % 2).to(x.dtype),)  # the two smallest word numbers exist in any vocabulary


def _targets(y: Tensor, device: torch.device) -> Tensor:
    return torch.zeros((_RECORDS, *y.shape[1:]), dtype=y.dtype, device=device)


def _compare(engine: GhostEngine, x: Tensor, y: Tensor) -> None:
    """Refuse when the batch gives other gradients than its records alone."""
    network = engine.network
    vector = network.flat()
    with quiet_dropout(network.model):
        alone = torch.stack([_alone(network, vector, x[i], y[i]) for i in range(_RECORDS)])
        norms = alone.norm(dim=1)
        clip = float(norms.median().clamp_min(1e-6))
        want = (alone * (clip * SAFETY / norms).clamp(max=1)[:, None]).nan_to_num().sum(dim=0)
        got = engine.clipped_sum(vector, x, y, clip)
        rows = engine.per_record(vector, x, y)
    reach = _TOLERANCE if network.precision is torch.float32 else 0.1
    apart = max(float((got - want).norm()) / clip, float((rows - alone).norm() / norms.norm()))
    if not apart <= reach:
        raise UnsupportedError(
            "Ghost clipping does not agree with one backward pass per record for this model: it mixes "
            "records, or uses a parameter outside of its layer. Use method='vmap'."
        )


def _alone(network: Network, vector: Tensor, x: Tensor, y: Tensor) -> Tensor:
    leaf = vector.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(network.loss_of_one(leaf, x, y), leaf)
    return gradient
