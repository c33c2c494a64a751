"""Public random records of the shape and type of the data, on which models are tried out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sordino.kernel import public_generator
from sordino.nn.network import Network

_SEED = 8191  # public: what is drawn here has nothing to do with the data


def made_up(network: Network, x: Tensor, y: Tensor, count: int, size: float) -> tuple[Tensor, Tensor]:
    """Return public random records of this shape and type; no two are alike."""
    public = public_generator(_SEED + count)
    words = min((m.num_embeddings for m in network.model.modules() if isinstance(m, nn.Embedding)), default=2)
    return (
        _drawn(x, count, size, max(2, words), public).to(network.device),
        _drawn(y, count, 1.0, 2, public).to(network.device),
    )


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
