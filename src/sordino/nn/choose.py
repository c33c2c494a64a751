"""Which engine differentiates a model, checked on made-up records before any data is seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel import public_generator
from sordino.nn.engines import Engine, GhostEngine, VmapEngine
from sordino.nn.network import Network, quiet_dropout
from sordino.nn.refuse import check_model
from sordino.nn.state import check_stateless

METHODS = ("auto", "ghost", "vmap")
_BATCHES = ((2, 1.0), (3, 30.0), (7, 0.1))  # how many records, and how large their numbers are
_TOLERANCE = 1e-3  # an error of the rules is far larger, rounding far smaller
_SEED = 8191  # public: what is drawn here has nothing to do with the data


def make_engine(network: Network, x: Tensor, y: Tensor, method: str = "auto", chunk: int = 64) -> Engine:
    """Return the engine for a model whose records have the shape and type of ``x`` and ``y``.

    ``auto`` takes ghost norms if they agree with one backward pass per record on made-up records, else
    vmap. Only shapes and types of the data are looked at. A model that remembers records is refused.
    ``chunk`` is how many records will be differentiated at once: some models mix them in large batches only.
    """
    if method not in METHODS:
        raise InvalidInputError(f"Expected engine in {METHODS}, got {method!r}.")
    if network.device.type == "mps":
        raise UnsupportedError(
            "Norms of gradients are bounded in float64, which the device 'mps' lacks. Use 'cpu' or 'cuda'."
        )
    check_model(network.model)
    check_stateless(network, *made_up(network, x, y, 4, 1.0))
    if method != "vmap":
        try:
            engine = GhostEngine(network)
            _check(engine, x, y)
            _check_outputs(network, made_up(network, x, y, max(2, chunk), 1.0)[0])
        except UnsupportedError:
            if method == "ghost":
                raise
        else:
            return engine
    return _tried(VmapEngine(network), x, y)


def _check(engine: GhostEngine, x: Tensor, y: Tensor) -> None:
    """Compare on batches of several sizes and magnitudes, at the initial parameters and away from them."""
    network = engine.network
    for count, size in _BATCHES:
        records = made_up(network, x, y, count, size)
        for vector in _points(network):
            _compare(engine, vector, *records)


def _check_outputs(network: Network, x: Tensor) -> None:
    """Refuse when a batch of the size that will be used gives other outputs than its parts."""
    params, part = network.unflatten(network.flat()), _BATCHES[-1][0]
    with quiet_dropout(network.model), torch.no_grad():
        whole = network.outputs(params, x)
        parts = torch.cat([network.outputs(params, x[i : i + part]) for i in range(0, len(x), part)])
    reach = _TOLERANCE if network.precision is torch.float32 else 0.1
    if whole.shape != parts.shape or not float((whole - parts).norm()) <= reach * float(parts.norm()):
        raise UnsupportedError(
            f"The outputs of {len(x)} records together are others than of a few at a time: the model mixes "
            "records. Use engine='vmap'."
        )


def _tried(engine: VmapEngine, x: Tensor, y: Tensor) -> VmapEngine:
    """Run once on made-up records: what cannot be differentiated fails before a budget is spent."""
    records = made_up(engine.network, x, y, 3, 1.0)
    try:
        engine.clipped_sum(engine.network.flat(), *records, 1.0)
    except RuntimeError as error:
        kinds = sorted({type(m).__name__ for m in engine.network.model.modules()})
        raise UnsupportedError(
            "torch.func.vmap cannot differentiate this model record by record; among its layers "
            f"({', '.join(kinds)}) is one without a batching rule. torch says: {str(error)[:200]}"
        ) from None
    return engine


def made_up(network: Network, x: Tensor, y: Tensor, count: int, size: float) -> tuple[Tensor, Tensor]:
    """Return public random records of this shape and type; no two are alike."""
    public = public_generator(_SEED + count)
    words = min((m.num_embeddings for m in network.model.modules() if isinstance(m, nn.Embedding)), default=2)
    return (
        _drawn(x, count, size, max(2, words), public).to(network.device),
        _drawn(y, count, 1.0, 2, public).to(network.device),
    )


def _drawn(like: Tensor, count: int, size: float, words: int, public: Any) -> Tensor:
    uniform = torch.from_numpy(np.asarray(public.uniform(-1, 1, (count, *like.shape[1:]))))
    if like.is_floating_point():
        return (2 * size * uniform).to(like.dtype)
    # the smallest numbers exist in any vocabulary; the first two records always differ
    drawn = (0.5 * (uniform + 1) * words).floor().long()
    drawn[0], drawn[1] = drawn[1].clone(), (drawn[1] + 1) % words
    return drawn.to(like.dtype)


def _points(network: Network) -> tuple[Tensor, Tensor]:
    """Return the initial parameters and public random ones near them: zeros at the start hide much."""
    start = network.flat()
    public = public_generator(_SEED)
    drawn = torch.from_numpy(public.uniform(-1, 1, len(start))).to(start)
    return start, start + drawn * (0.2 * start.square().mean().sqrt() + 0.05)


def _compare(engine: GhostEngine, vector: Tensor, x: Tensor, y: Tensor) -> None:
    """Refuse when the batch gives other gradients than its records alone."""
    network = engine.network
    with quiet_dropout(network.model):
        alone = torch.stack([_alone(network, vector, a, b) for a, b in zip(x, y, strict=True)])
        norms = alone.norm(dim=1)
        clip = float(norms.median().clamp_min(1e-6))
        want = (alone * (clip / norms).clamp(max=1)[:, None]).nan_to_num().sum(dim=0)
        got = engine.clipped_sum(vector, x, y, clip)
        rows = engine.per_record(vector, x, y)
    reach = _TOLERANCE if network.precision is torch.float32 else 0.1
    apart = max(float((got - want).norm()) / clip, float((rows - alone).norm() / norms.norm()))
    if not apart <= reach * len(x):
        raise UnsupportedError(
            "Ghost clipping does not agree with one backward pass per record for this model: it mixes "
            "records, or uses a parameter outside of its layer. Use engine='vmap'."
        )


def _alone(network: Network, vector: Tensor, x: Tensor, y: Tensor) -> Tensor:
    leaf = vector.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(network.loss_of_one(leaf, x, y), leaf)
    return gradient
