"""Rules of norms, embeddings and custom layers, and the table that finds the rule of any layer."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap

from sordino.kernel.clip_tensors import Contributions
from sordino.nn.layers import Call, ConvRule, Ghost, LayerRule, LinearRule


class NormRule:
    """Scale and shift of GroupNorm, LayerNorm, InstanceNorm and RMSNorm: one entry per channel."""

    def gradients(self, call: Call) -> dict[str, Tensor]:
        """Return ``sum over places of g times the normalised input``, and of g."""
        layer: Any = call.layer
        g = call.gradient.float()
        products = {"weight": g * _normalised(layer, call.inputs.float())}
        if getattr(layer, "bias", None) is not None:
            products["bias"] = g
        return {name: _over_places(layer, value) for name, value in products.items()}

    def cheapest(self, call: Call) -> dict[str, Tensor]:
        """Return the gradients: they are small."""
        return self.gradients(call)


def _normalised(layer: Any, a: Tensor) -> Tensor:
    if isinstance(layer, nn.GroupNorm):
        return F.group_norm(a, layer.num_groups, eps=layer.eps)
    if isinstance(layer, nn.LayerNorm):
        return F.layer_norm(a, layer.normalized_shape, eps=layer.eps)
    if isinstance(layer, nn.RMSNorm):
        return F.rms_norm(a, layer.normalized_shape, eps=layer.eps)
    return F.instance_norm(a, eps=layer.eps)


def _over_places(layer: Any, value: Tensor) -> Tensor:
    """Sum over all that is neither the record nor a parameter of the layer."""
    if isinstance(layer, (nn.LayerNorm, nn.RMSNorm)):
        places = tuple(range(1, value.dim() - len(layer.normalized_shape)))
    else:
        places = tuple(range(2, value.dim()))
    return value.sum(dim=places) if places else value


class EmbeddingRule:
    """``nn.Embedding``: a gradient row for each word a record holds."""

    def gradients(self, call: Call) -> dict[str, Tensor]:
        """Return one table per record; only asked for when a table is shared or small."""
        layer: Any = call.layer
        words, slopes = _words(call)
        table = torch.zeros(len(words), *layer.weight.shape, device=slopes.device)
        index = words[:, :, None].expand_as(slopes)
        return {"weight": table.scatter_add_(1, index, slopes)}

    def cheapest(self, call: Call) -> EmbeddingGhost:
        """Return the rows of the table that a record touches, each at the first place of its word."""
        words, slopes = _words(call)
        first = (words[:, :, None] == words[:, None, :]).byte().argmax(dim=2)
        index = first[:, :, None].expand_as(slopes)
        touched = torch.zeros_like(slopes).scatter_add_(1, index, slopes)
        return EmbeddingGhost(words, touched, False)


class EmbeddingGhost(Ghost):
    """The touched rows of a table, one record each; the weighted sum is scattered into one table."""

    def add_to(self, contributions: Contributions) -> None:
        """Tell the clip what each record adds: a word that stands twice has one row, so none cancel."""
        contributions.add_rows(self.slopes.flatten(1))

    def weighted_sum(self, factors: Tensor, shape: torch.Size) -> dict[str, Tensor]:
        """Return the weighted sum of the tables."""
        slopes = (self.slopes * factors[:, None, None]).reshape(-1, shape[1])
        table = torch.zeros(shape, device=slopes.device, dtype=slopes.dtype)
        return {"weight": table.index_add(0, self.positions.reshape(-1), slopes)}


def _words(call: Call) -> tuple[Tensor, Tensor]:
    layer: Any = call.layer
    words = call.inputs.reshape(len(call.inputs), -1)
    slopes = call.gradient.float().reshape(len(words), words.shape[1], -1)
    if layer.padding_idx is not None:
        slopes = slopes * (words != layer.padding_idx)[:, :, None]
    return words, slopes


class OpaqueRule:
    """Any other layer of one input: differentiated by vmap, the layer alone."""

    def gradients(self, call: Call) -> dict[str, Tensor]:
        """Return the gradients of the layer's own parameters, where they are now."""
        own = call.parameters

        def one(a: Tensor, g: Tensor) -> dict[str, Tensor]:
            _, pull = vjp(lambda p: functional_call(call.layer, p, (a[None],)), own)
            return pull(g[None])[0]

        inputs = call.inputs.float() if call.inputs.is_floating_point() else call.inputs
        return vmap(one)(inputs, call.gradient.float())

    def cheapest(self, call: Call) -> dict[str, Tensor]:
        """Return the gradients: there is no short cut."""
        return self.gradients(call)


_RULES: tuple[tuple[tuple[type, ...], LayerRule], ...] = (
    ((nn.Linear,), LinearRule()),
    ((nn.Conv1d, nn.Conv2d, nn.Conv3d), ConvRule()),
    ((nn.Embedding,), EmbeddingRule()),
    ((nn.GroupNorm, nn.LayerNorm, nn.RMSNorm), NormRule()),
    ((nn.modules.instancenorm._InstanceNorm,), NormRule()),
)


def rule_of(layer: nn.Module) -> LayerRule | None:
    """Return the rule of a layer, a general one for an unknown leaf, None if only the whole model helps."""
    for kinds, rule in _RULES:
        if type(layer) in kinds or (isinstance(layer, kinds) and _same_forward(layer, kinds)):
            return rule
    composed = any(True for _ in layer.children()) or isinstance(layer, nn.RNNBase)
    return None if composed else OpaqueRule()


def _same_forward(layer: nn.Module, kinds: tuple[type, ...]) -> bool:
    return any(isinstance(layer, kind) and _forward(type(layer)) is _forward(kind) for kind in kinds)


def _forward(kind: Any) -> Any:
    return kind.forward
