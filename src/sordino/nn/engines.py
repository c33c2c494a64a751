"""Sums of clipped per-record gradients: by ghost norms, or by vmap over the whole model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from sordino.errors import UnsupportedError
from sordino.kernel.clip_tensors import Contributions, clipped_rows
from sordino.nn.layer_rules import rule_of
from sordino.nn.layers import Call, Ghost
from sordino.nn.network import Network
from sordino.nn.precision import product_inputs, without_autocast

_SMALL = 4096  # entries of a gradient that is cheaper to copy than to treat on its own


class Engine(Protocol):
    """Computes what a query needs about a block of records."""

    @property
    def network(self) -> Network: ...

    @property
    def method(self) -> str: ...

    def clipped_sum(
        self, vector: Tensor, x: Tensor, y: Tensor, clip: float, present: Tensor | None = None
    ) -> Tensor:
        """Return ``sum_i clip(gradient_i)``."""

    def per_record(self, vector: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the gradients, one row per record."""


@dataclass(frozen=True, eq=False)
class VmapEngine:
    """``torch.func.vmap`` of the gradient: any model, one gradient per record in memory.

    ``reason`` says why it stands in for ghost norms; it is empty where it was asked for.
    """

    network: Network
    reason: str = ""
    method: str = field(default="vmap", init=False)

    def per_record(self, vector: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the gradients, one row per record."""
        one = grad(self.network.loss_of_one)
        return vmap(one, (None, 0, 0), randomness="different")(vector, x, y)

    def clipped_sum(
        self, vector: Tensor, x: Tensor, y: Tensor, clip: float, present: Tensor | None = None
    ) -> Tensor:
        """Return the clipped sum."""
        rows = self.per_record(vector, x, y)
        with without_autocast(rows.device):
            return clipped_rows(rows, clip, product_inputs(rows.device), present)


@dataclass(frozen=True, eq=False)
class GhostEngine:
    """One forward and one backward pass for the whole batch; norms and sums layer by layer.

    The backward pass stops at the outputs of the layers (no gradient of a parameter is formed), the
    inputs are kept, and each layer turns both into norms, then into the weighted sum. Norm and sum come
    from the same two arrays, so the clip holds for what is summed.
    """

    network: Network
    method: str = field(default="ghost", init=False)

    def __post_init__(self) -> None:
        unfit = _unfit(self.network)
        if unfit:
            raise UnsupportedError(f"Ghost clipping has no rule for the layer {unfit}. Use engine='vmap'.")

    def per_record(self, vector: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the gradients, one row per record."""
        rows = _Rows(self.network, len(x))
        for call in self._calls(vector, x, y):
            rule: Any = rule_of(call.layer)
            rows.add(call, rule.gradients(call))
        return rows.all()

    def clipped_sum(
        self, vector: Tensor, x: Tensor, y: Tensor, clip: float, present: Tensor | None = None
    ) -> Tensor:
        """Return the clipped sum."""
        calls = self._calls(vector, x, y)
        with without_autocast(vector.device):
            return self.network.flatten(self._clipped(calls, vector.new_empty(len(x)), clip, present))

    def _clipped(
        self, calls: list[Call], batch: Tensor, clip: float, present: Tensor | None
    ) -> dict[str, Tensor]:
        ghosts, rows = self._sorted_out(calls, len(batch))
        contributions = Contributions(batch, product_inputs(batch.device), torch.cat)
        rows.add_to(contributions)
        for _, ghost in ghosts:
            ghost.add_to(contributions)
        factors = contributions.factors(clip, present)
        total = rows.weighted_sum(factors)
        for call, ghost in ghosts:
            sums = ghost.weighted_sum(factors, call.parameters["weight"].shape)
            total |= {f"{call.name}{key}": value for key, value in sums.items()}
        return total

    def _sorted_out(self, calls: list[Call], batch: int) -> tuple[list[tuple[Call, Ghost]], Any]:
        """Split the calls into those with ghost norms and those whose gradients are formed."""
        uses = Counter(call.name for call in calls)
        ghosts, rows = [], _Rows(self.network, batch)
        for call in calls:
            rule: Any = rule_of(call.layer)
            # A layer used twice adds up its gradients before the norm is taken.
            alone = uses[call.name] == 1 and _all_trained(self, call)
            found = rule.cheapest(call) if alone else rule.gradients(call)
            if isinstance(found, Ghost):
                ghosts.append((call, found))
            else:
                rows.add(call, found)
        return ghosts, rows

    def _calls(self, vector: Tensor, x: Tensor, y: Tensor) -> list[Call]:
        anchor = torch.zeros((), device=vector.device, requires_grad=True)
        params = self.network.unflatten(vector.detach())
        taps = _Taps(self.network, anchor, len(x), params)
        with taps, torch.enable_grad():
            outputs = self.network.outputs(params, x)
            total = self.network.losses(outputs, y).sum()
            torch.autograd.grad(total, anchor, allow_unused=True)
        return [call for call in taps.calls if call.gradient is not None]


class _Rows:
    """Gradients per record of the parameters for which they are formed."""

    def __init__(self, network: Network, batch: int) -> None:
        self._network, self._batch = network, batch
        self._parts: dict[str, Tensor] = {}
        self._blocks: list[tuple[list[str], Tensor]] = []

    def add(self, call: Call, gradients: dict[str, Tensor]) -> None:
        for key, value in gradients.items():
            name = f"{call.name}{key}"
            if name in self._network.names:
                value = value.reshape(self._batch, -1)
                self._parts[name] = self._parts[name] + value if name in self._parts else value

    def add_to(self, contributions: Contributions) -> None:
        self._blocks = [([name], value) for name, value in self._parts.items() if value.shape[1] > _SMALL]
        small = {name: value for name, value in self._parts.items() if value.shape[1] <= _SMALL}
        if small:  # side by side they cost as many operations as one
            self._blocks.append((list(small), torch.cat(list(small.values()), dim=1)))
        for _, block in self._blocks:
            contributions.add_rows(block)

    def weighted_sum(self, factors: Tensor) -> dict[str, Tensor]:
        """Return the weighted sums; an infinite row makes them infinite, and the query leaves it out."""
        total: dict[str, Tensor] = {}
        for names, block in self._blocks:
            widths = [self._parts[name].shape[1] for name in names]
            total |= dict(zip(names, (factors @ block).split(widths), strict=True))
        return total

    def all(self) -> Tensor:
        network, device = self._network, self._network.device
        blank = {
            name: torch.zeros(self._batch, shape.numel(), device=device)
            for name, shape in zip(network.names, network.shapes, strict=True)
            if name not in self._parts
        }
        return torch.cat([(blank | self._parts)[name] for name in network.names], dim=1)


class _Tap(torch.autograd.Function):
    """The identity; on the way back it notes the gradient of a layer's output."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, anchor: Tensor, call: Call) -> Tensor:
        ctx.call = call
        ctx.mark_dirty(value)  # no copy, and a later in-place activation is allowed
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.call.gradient = grads[0]
        return grads[0], None, None


class _Taps:
    """Forward hooks on the layers with trained parameters, for the length of a block."""

    def __init__(self, network: Network, anchor: Tensor, batch: int, params: dict[str, Tensor]) -> None:
        self._network, self._anchor, self._batch, self._params = network, anchor, batch, params
        self.calls: list[Any] = []

    def __enter__(self) -> None:
        self._handles = [
            layer.register_forward_hook(self._hook(f"{name}." if name else ""))
            for name, layer in _trained_layers(self._network)
        ]

    def __exit__(self, *exc: Any) -> None:
        for handle in self._handles:
            handle.remove()

    def _hook(self, name: str) -> Any:
        def note(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> Tensor:
            plain = len(inputs) == 1 and isinstance(output, Tensor)
            if not plain or len(inputs[0]) != self._batch or len(output) != self._batch:
                raise UnsupportedError(
                    f"The layer {name.rstrip('.')!r} ({type(layer).__name__}) keeps not one row a record. "
                    "Use engine='vmap'."
                )
            own = self._own(name, layer)
            call: Any = Call(name, layer, inputs[0].detach(), None, own)
            self.calls.append(call)
            return _Tap.apply(output, self._anchor, call)

        return note

    def _own(self, name: str, layer: nn.Module) -> dict[str, Tensor]:
        own = layer.named_parameters(recurse=False)
        return {key: self._params.get(f"{name}{key}", p.detach()) for key, p in own}


def _trained_layers(network: Network) -> list[tuple[str, nn.Module]]:
    found = []
    for name, layer in network.model.named_modules():
        own = [key for key, _ in layer.named_parameters(recurse=False)]
        if any((f"{name}.{key}" if name else key) in network.names for key in own):
            found.append((name, layer))
    return found


def _unfit(network: Network) -> str:
    """Return the first layer that has to be differentiated with the whole model, or nothing."""
    for name, layer in _trained_layers(network):
        if rule_of(layer) is None:
            return f"{name or 'model'!r} ({type(layer).__name__})"
    names = [n for n, _ in network.model.named_parameters(remove_duplicate=False)]
    once = {n for n, _ in network.model.named_parameters()}
    tied = [n for n in names if n not in once]
    return f"that holds the tied parameter {tied[0]!r}" if tied else ""


def _all_trained(engine: GhostEngine, call: Call) -> bool:
    own = [f"{call.name}{key}" for key, _ in call.layer.named_parameters(recurse=False)]
    return all(name in engine.network.names for name in own)
