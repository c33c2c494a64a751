"""Which engine differentiates a model, checked on made-up records before any data is seen."""

from __future__ import annotations

import torch
from torch import Tensor

from sordino.errors import InvalidInputError, UnsupportedError
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
    device = network.device
    made_up = _made_up(x, device), torch.zeros((_RECORDS, *y.shape[1:]), dtype=y.dtype, device=device)
    if method != "vmap":
        try:
            engine = GhostEngine(network)
            _compare(engine, *made_up)
        except UnsupportedError:
            if method == "ghost":
                raise
        else:
            return engine
    return _tried(VmapEngine(network), *made_up)


def _tried(engine: VmapEngine, x: Tensor, y: Tensor) -> VmapEngine:
    """Run once on made-up records: what cannot be differentiated fails before a budget is spent."""
    try:
        engine.clipped_sum(engine.network.flat(), x, y, 1.0)
    except RuntimeError as error:
        kinds = sorted({type(m).__name__ for m in engine.network.model.modules()})
        raise UnsupportedError(
            "torch.func.vmap cannot differentiate this model record by record; among its layers "
            f"({', '.join(kinds)}) is one without a batching rule. torch says: {str(error)[:200]}"
        ) from None
    return engine


def _made_up(x: Tensor, device: torch.device) -> Tensor:
    shape = (_RECORDS, *x.shape[1:])
    count = torch.arange(torch.Size(shape).numel(), device=device).reshape(shape)
    if x.is_floating_point():
        return torch.cos(count.to(x.dtype) * 1.7)
    return (count % 2).to(x.dtype)  # the two smallest word numbers exist in any vocabulary


def _compare(engine: GhostEngine, x: Tensor, y: Tensor) -> None:
    """Refuse when the batch gives other gradients than its records alone."""
    network = engine.network
    vector = network.flat()
    with quiet_dropout(network.model):
        alone = torch.stack([_alone(network, vector, x[i], y[i]) for i in range(_RECORDS)])
        norms = alone.norm(dim=1)
        clip = float(norms.median().clamp_min(1e-6))
        want = (alone * (clip / norms).clamp(max=1)[:, None]).nan_to_num().sum(dim=0)
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
