"""Public random records of the shape and type of the data, on which models are tried out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sordino.kernel import public_generator
from sordino.nn.network import Network

_LARGE = 1000.0  # how much larger than the others one record is
_SEED = 8191  # public: what is drawn here has nothing to do with the data


def made_up(
    network: Network, x: Tensor, y: Tensor, count: int, size: float, full: bool = False
) -> tuple[Tensor, Tensor]:
    """Return public random records of this shape and type; no two are alike.

    Masks end at different places, or with ``full`` nowhere: some models ask whether there is a mask at all.
    """
    public = public_generator(_SEED + count)
    few, words = _vocabularies(network.model)
    inputs = _drawn(x, count, size, few if network.fields is None else words, public)
    if network.fields is not None:
        inputs = network.fields.public(inputs, words, few, full)
    targets = _drawn(y, count, 1.0, 2, public)
    if targets.is_floating_point():
        targets = targets / 4 + 0.5  # probabilities are targets too, and logarithms are taken of others
    return inputs.to(network.device), targets.to(network.device)


def uneven(network: Network, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return public random records of which the last is far larger than the others, and those end early.

    Some models look at a whole batch for its largest number, or for its longest record (padding is zero, or
    what a table says that it is): alike records would not show it.
    """
    inputs, targets = made_up(network, x, y, 4, 1.0)
    if network.fields is None and inputs.dim() > 1:  # named inputs have masks, and those end early anyway
        places = inputs.shape[1]
        for i in range(len(inputs) - 1):
            inputs[i, max(1, (i + 1) * places // 5) :] = _padding(network.model)
    if inputs.is_floating_point():
        inputs[-1] = inputs[-1] * _LARGE
    return inputs, targets


def _padding(model: nn.Module) -> int:
    found = [m.padding_idx for m in model.modules() if isinstance(m, nn.Embedding)]
    return next((word for word in found if word is not None), 0)


def _vocabularies(model: nn.Module) -> tuple[int, int]:
    """Return how many words all tables of a model have, and how many that of its tokens has."""
    few = min((m.num_embeddings for m in model.modules() if isinstance(m, nn.Embedding)), default=2)
    getter: Any = getattr(model, "get_input_embeddings", None)
    tokens = getter() if callable(getter) else None
    return max(2, few), max(2, getattr(tokens, "num_embeddings", few))


def points(network: Network) -> tuple[Tensor, Tensor]:
    """Return the initial parameters and public random ones near them: zeros at the start hide much."""
    start = network.flat()
    public = public_generator(_SEED)
    drawn = torch.from_numpy(public.uniform(-1, 1, len(start))).to(start)
    return start, start + drawn * (0.2 * start.square().mean().sqrt() + 0.05)


def _drawn(like: Tensor, count: int, size: float, words: int, public: Any) -> Tensor:
    uniform = torch.from_numpy(np.asarray(public.uniform(-1, 1, (count, *like.shape[1:]))))
    if like.is_floating_point():
        return (2 * size * uniform).to(like.dtype)
    # the smallest numbers exist in any vocabulary; the first two records always differ
    drawn = (0.5 * (uniform + 1) * words).floor().long()
    drawn[0], drawn[1] = drawn[1].clone(), (drawn[1] + 1) % words
    return drawn.to(like.dtype)
