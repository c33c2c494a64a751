"""Which layers cannot be trained with per-record privacy, and what to use in their place."""

from __future__ import annotations

import copy

import torch
from torch import nn

from sordino.errors import UnsupportedError

_BATCH = nn.modules.batchnorm._BatchNorm
_INSTANCE = nn.modules.instancenorm._InstanceNorm


def check_model(model: nn.Module) -> None:
    """Refuse layers that mix the records of a batch or keep statistics of them.

    A clipped gradient bounds what a record adds only if the gradient of a record depends on no other
    record; running statistics would leave the training without noise.
    """
    for name, layer in model.named_modules():
        reason = _reason(layer)
        if reason:
            raise UnsupportedError(f"The layer {name or 'model'!r} ({type(layer).__name__}) {reason}")


def _reason(layer: nn.Module) -> str:
    if isinstance(layer, _BATCH) and not isinstance(layer, _INSTANCE):
        return (
            "mixes the records of a batch, so no clip bounds what one record adds. Use "
            f"nn.GroupNorm({_groups(layer.num_features)}, {layer.num_features}) in its place, or call "
            "sordino.nn.replace_batch_norm(model)."
        )
    if isinstance(layer, _INSTANCE) and layer.track_running_stats:
        return "keeps running statistics of the records without noise. Set track_running_stats=False."
    if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) and layer.scale_grad_by_freq:
        return "scales gradients by counts over the batch. Set scale_grad_by_freq=False."
    if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) and layer.max_norm is not None:
        return "rewrites the rows that a batch looks up. Set max_norm=None."
    return ""


def replace_batch_norm(model: nn.Module) -> nn.Module:
    """Return a copy of the model with a GroupNorm in place of each BatchNorm."""
    model = copy.deepcopy(model)
    if isinstance(model, _BATCH) and not isinstance(model, _INSTANCE):
        return _group_norm(model)
    for parent in list(model.modules()):
        for name, layer in parent.named_children():
            if isinstance(layer, _BATCH) and not isinstance(layer, _INSTANCE):
                setattr(parent, name, _group_norm(layer))
    return model


def _group_norm(layer: nn.modules.batchnorm._BatchNorm) -> nn.GroupNorm:
    """Return what stands in for a BatchNorm: with weights if it has some, on its device, of its type."""
    channels = layer.num_features
    like = next(layer.buffers(), next(layer.parameters(), torch.zeros(())))
    kind = like.dtype if like.is_floating_point() else torch.float32
    return nn.GroupNorm(_groups(channels), channels, layer.eps, layer.affine, like.device, kind)


def _groups(channels: int) -> int:
    # at least four channels to a group: one alone would be normalised to zero in a plain vector
    return next(g for g in range(max(1, min(32, channels // 4)), 0, -1) if channels % g == 0)
