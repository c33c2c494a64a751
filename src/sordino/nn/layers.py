r"""Gradients of single layers from their inputs ``a`` and output gradients ``g``, record by record.

The gradient of a linear map at one record is ``sum_t g_t a_t^T`` over its positions t (time steps, pixels).
Its norm needs no gradient: ``sum_{t,s} (a_t . a_s) (g_t . g_s)``, one term when there is one position.
Positions are cheap when few, the gradient is cheap when small; ``_direct_pays`` chooses. The norms
themselves, and what rounding may hide in them, are the business of :mod:`sordino.kernel.clip_tensors`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sordino.kernel.clip_tensors import Contributions

# Writing and reading one entry of a gradient costs about as much as this many products.
_ENTRY_COST = {"cpu": 16, "cuda": 64}


@dataclass
class Call:
    """One use of a layer: what went in, and the gradient of the summed loss at what came out.

    ``parameters`` are the layer's own at this use: the module itself still holds the initial ones.
    """

    name: str
    layer: nn.Module
    inputs: Tensor
    gradient: Tensor
    parameters: dict[str, Tensor] = field(default_factory=dict)


class LayerRule(Protocol):
    """How a kind of layer is differentiated record by record; names are those of its parameters."""

    def gradients(self, call: Call) -> dict[str, Tensor]:
        """Return the gradient of each record, one row each."""

    def cheapest(self, call: Call) -> Ghost | dict[str, Tensor]:
        """Return norms where they are cheaper than gradients, else the gradients."""


@dataclass
class Ghost:
    """Gradients that are not formed: norms and the weighted sum come from the same two arrays."""

    positions: Tensor
    slopes: Tensor
    bias: bool

    def add_to(self, contributions: Contributions) -> None:
        """Tell the clip what each record adds."""
        contributions.add_products(self.positions, self.slopes, self.bias)

    def weighted_sum(self, factors: Tensor, shape: torch.Size) -> dict[str, Tensor]:
        """Return ``sum_i factors_i gradient_i`` without forming a gradient of one record."""
        slopes = self.slopes * factors[:, None, None, None]
        weight = torch.einsum("bgto,bgti->goi", slopes, self.positions)
        out = {"weight": weight.reshape(shape)}
        if self.bias:
            out["bias"] = slopes.sum(dim=(0, 2)).reshape(-1)
        return out


class LinearRule:
    """``nn.Linear`` on ``(batch, ..., features)``."""

    def gradients(self, call: Call) -> dict[str, Tensor]:
        """Return one matrix per record."""
        return _dense_gradients(*_linear_positions(call), call.layer)

    def cheapest(self, call: Call) -> Ghost | dict[str, Tensor]:
        """Return norms from the positions, or one matrix per record."""
        return _cheapest(*_linear_positions(call), call.layer)


class ConvRule:
    """``nn.Conv1d``, ``nn.Conv2d`` and ``nn.Conv3d``, any stride, dilation, groups and padding."""

    def gradients(self, call: Call) -> dict[str, Tensor]:
        """Return one kernel per record."""
        return _dense_gradients(*_conv_positions(call), call.layer)

    def cheapest(self, call: Call) -> Ghost | dict[str, Tensor]:
        """Return norms from the unfolded input, or one kernel per record."""
        return _cheapest(*_conv_positions(call), call.layer)


def _linear_positions(call: Call) -> tuple[Tensor, Tensor]:
    a = call.inputs.float().reshape(len(call.inputs), 1, -1, call.inputs.shape[-1])
    g = call.gradient.float().reshape(len(call.gradient), 1, -1, call.gradient.shape[-1])
    return a, g


def _conv_positions(call: Call) -> tuple[Tensor, Tensor]:
    """Return (batch, groups, positions, kernel entries) and (batch, groups, positions, outputs)."""
    layer: Any = call.layer
    a, g = _padded(layer, call.inputs.float()), call.gradient.float()
    batch, groups = len(a), layer.groups
    columns = _windows(a, layer.kernel_size, layer.dilation, layer.stride)
    columns = columns.reshape(batch, groups, -1, g[0, 0].numel()).transpose(2, 3)
    return columns, g.reshape(batch, groups, layer.out_channels // groups, -1).transpose(2, 3)


def _windows(a: Tensor, kernel: Any, dilation: Any, stride: Any) -> Tensor:
    """Return (batch, channels, *kernel, *places), a view: F.unfold starts one kernel a record on a GPU."""
    dims = len(kernel)
    for i in range(dims):
        a = a.unfold(2 + i, dilation[i] * (kernel[i] - 1) + 1, stride[i])
        a = a[..., :: dilation[i]] if dilation[i] > 1 else a
    places, entries = range(2, 2 + dims), range(2 + dims, 2 + 2 * dims)
    return a.permute(0, 1, *entries, *places)


def _padded(layer: Any, a: Tensor) -> Tensor:
    twice = list(layer._reversed_padding_repeated_twice)
    if not any(twice):
        return a
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    return F.pad(a, twice, mode=mode)


def _dense_gradients(positions: Tensor, slopes: Tensor, layer: Any) -> dict[str, Tensor]:
    weight = slopes.transpose(2, 3) @ positions
    out = {"weight": weight.reshape(len(weight), *layer.weight.shape)}
    if layer.bias is not None:
        out["bias"] = slopes.sum(dim=2).reshape(len(weight), -1)
    return out


def _cheapest(positions: Tensor, slopes: Tensor, layer: Any) -> Ghost | dict[str, Tensor]:
    if positions.shape[2] > 1 and _direct_pays(positions, slopes):
        return _dense_gradients(positions, slopes, layer)
    return Ghost(positions, slopes, layer.bias is not None)


def _direct_pays(positions: Tensor, slopes: Tensor) -> bool:
    """Tell whether gradients are cheap: no larger than what is held anyway, or fewer products."""
    count, inputs, outputs = positions.shape[2], positions.shape[3], slopes.shape[3]
    cost = _ENTRY_COST.get(positions.device.type, 64)
    small = inputs * outputs <= count * (inputs + outputs)
    return small or cost * inputs * outputs < count * count * (inputs + outputs)
