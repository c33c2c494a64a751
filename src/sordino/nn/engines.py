"""Sums of clipped per-record gradients: by ghost norms, or by vmap over the whole model."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge
from torch.func import grad, vmap

from sordino.errors import UnsupportedError
from sordino.kernel.clip.tensors import Contributions, clipped_rows
from sordino.nn.ghosts import Ghost, Rows, pieces
from sordino.nn.network import Network, make_up_records, points, product_inputs, without_autocast
from sordino.nn.operations import (
    Found,
    Graph,
    Routes,
    Use,
    find_layouts,
    find_routes,
    find_saved,
    found_at,
    gram32,
    is_known,
    pull_back,
    read_graph,
    unite,
)
from sordino.nn.recurrent import by_rule

_PROBE = 5  # made-up records, to find the axis that holds them
_STEP = 4  # numbers of 16 bytes
_SMALL = 4096  # entries of a gradient that is cheaper to copy than to treat on its own


class Engine(Protocol):
    """Computes what a query needs about a block of records.

    ``present`` has one number for each record, 0 for those that only fill up a block; or, where persons have
    several records, it is (persons, places): the places of a person lie behind each other in the block, and
    what they add together is one contribution.
    """

    @property
    def network(self) -> Network: ...

    @property
    def method(self) -> str: ...

    def clipped_sum(
        self, vector: Tensor, x: Tensor, y: Tensor, clip: float, present: Tensor | None = None
    ) -> Tensor:
        """Return ``sum_i clip(gradient_i)``."""

    def per_record(self, vector: Tensor, x: Tensor, y: Tensor, present: Tensor | None = None) -> Tensor:
        """Return the gradients, one row per record or person."""

    def whole(self, vector: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the gradient of all records together, without a clip."""


@dataclass(frozen=True, eq=False)
class VmapEngine:
    """``torch.func.vmap`` of the gradient: any model, one gradient per record in memory. ``reason`` says why
    it stands in for ghost norms, if it does.
    """

    network: Network
    reason: str = ""
    method: str = field(default="vmap", init=False)

    def per_record(self, vector: Tensor, x: Tensor, y: Tensor, present: Tensor | None = None) -> Tensor:
        if (units := units_of(present)) is not None:
            apart = (part.unflatten(0, units.shape) for part in (x, y))
            return vmap(grad(self._weigh), (None, 0, 0, 0), randomness="different")(vector, *apart, units)
        one = grad(self.network.loss_of_one)
        return vmap(one, (None, 0, 0), randomness="different")(vector, x, y)

    def whole(self, vector: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the gradient of all records together; each runs through the model alone."""
        return grad(self._weigh)(vector, x, y, torch.ones(len(x), device=x.device))

    def _weigh(self, vector: Tensor, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        losses = vmap(self.network.loss_of_one, (None, 0, 0), randomness="different")(vector, x, y)
        return (losses * weights).sum()

    def clipped_sum(
        self, vector: Tensor, x: Tensor, y: Tensor, clip: float, present: Tensor | None = None
    ) -> Tensor:
        rows = self.per_record(vector, x, y, present)
        fills = None if units_of(present) is not None else present
        with without_autocast(rows.device):
            return clipped_rows(rows, clip, product_inputs(rows.device), fills)


@dataclass(frozen=True, eq=False)
class GhostEngine:
    """One forward and one backward pass for the whole batch; norms and sums operation by operation.

    The backward pass stops at the operations that parameters enter (no gradient of a parameter is formed),
    what went into them is kept, and both give norms, then the weighted sum. Norm and sum come from the same
    two arrays, so the clip holds for what is summed. Parameters that enter by an operation without a rule are
    differentiated by vmap, they alone.
    """

    network: Network
    method: str = field(default="ghost", init=False)
    _routes: dict[Hashable, Routes] = field(default_factory=dict, init=False, repr=False)
    taken_apart: Callable[[], AbstractContextManager[Any]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "taken_apart", by_rule(self.network.model))

    def per_record(self, vector: Tensor, x: Tensor, y: Tensor, present: Tensor | None = None) -> Tensor:
        try:
            return self._split_gradients(vector, x, y, True, units_of(present))[2].all()
        except _OneRecord:
            return self.per_record(vector, *_two(x, y))[:1]

    def whole(self, vector: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the gradient of all records together, by one ordinary backward pass."""
        network = self.network
        return self.backward(vector, lambda: network.losses(network.outputs(None, x), y).sum()[None])[0]

    def backward(self, vector: Tensor, losses: Callable[[], Tensor]) -> Tensor:
        """Return the gradients of some numbers, one row each, by ordinary backward passes."""
        params = self._leaves(vector)

        def rows() -> Tensor:
            with torch.enable_grad():
                numbers = losses()
            several = len(numbers) > 1
            return torch.stack([self.network.gradient(one, params, several) for one in numbers])

        return self.network.holding(params, rows)

    def clipped_sum(
        self, vector: Tensor, x: Tensor, y: Tensor, clip: float, present: Tensor | None = None
    ) -> Tensor:
        return self.clipped(vector, x, y, clip, present)[0]

    def clipped(
        self, vector: Tensor, x: Tensor, y: Tensor, clip: float, present: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the clipped sum, and what each record (or person) was multiplied by."""
        try:
            graph, ghosts, rows = self._split_gradients(vector, x, y, False, units_of(present))
        except _OneRecord:
            alone = torch.tensor([1.0, 0.0], device=vector.device)
            filled = alone if present is None else alone * present.reshape(1)
            total, factors = self.clipped(vector, *_two(x, y), clip, filled)
            return total, factors[:1]
        fills = None if units_of(present) is not None else present
        with without_autocast(vector.device), torch.no_grad():
            batch = vector.new_empty(len(x) if present is None else len(present))
            contributions = Contributions(batch, product_inputs(batch.device), torch.cat, gram32)
            rows.add_to(contributions)
            for ghost in ghosts:
                ghost.add_to(contributions)
            factors = contributions.factors(clip, fills)
            formed = rows.weighted_sum(factors)
            by_name: dict[str, list[Ghost]] = {}
            for ghost in ghosts:
                by_name.setdefault(ghost.name, []).append(ghost)
            ghosts.clear()

            def weighted(name: str) -> Tensor | None:  # what is summed is let go
                total = formed.pop(name, None)
                for ghost in by_name.pop(name, ()):
                    value = pull_back(graph, ghost.path, ghost.weighted_sum(factors)).reshape(-1)
                    total = value if total is None else total + value
                return total

            return self.network.flatten(weighted), factors

    def unknown(self) -> dict[str, str]:
        """Return the parameters that are differentiated by vmap, and the operations they enter by."""
        first_seen_last = reversed(self._routes.values())  # large batches may take other operations
        return {name: why for _, unknown in first_seen_last for name, why in unknown.items()}

    def _split_gradients(
        self, vector: Tensor, x: Tensor, y: Tensor, form: bool, units: Tensor | None = None
    ) -> tuple[Graph, list[Ghost], _Rows]:
        """Split the parameters into those with ghost norms and those whose gradients are formed."""
        ghosts = list[Ghost]()
        rows = _Rows(self.network, len(x) if units is None else len(units), {})
        params = self._leaves(vector)
        graph, found, unknown = self.network.holding(params, lambda: self._slopes(params, x, y, units))
        with without_autocast(vector.device), torch.no_grad():
            for name in list(found):
                for piece in pieces(graph, name, found.pop(name), form):
                    if isinstance(piece, Ghost):
                        ghosts.append(piece)
                    else:
                        rows.parts[name] = piece
        if unknown:
            found_too = by_vmap(self.network, unknown, vector, x, y, units)
            rows.parts |= {name: Rows(name, values) for name, values in found_too.items()}
        return graph, ghosts, rows

    def _slopes(
        self, params: dict[str, Tensor], x: Tensor, y: Tensor, units: Tensor | None = None
    ) -> tuple[Graph, dict[str, list[tuple[Use, Found]]], list[str]]:
        """Return the graph, the uses of each parameter, and the parameters without a rule."""
        graph, losses = self._forward(params, x, y)
        all_uses, unknown = self._routes_of(graph, x, y)
        kept = self._read_saved(graph, all_uses)
        at = list(dict.fromkeys(use.node for use in all_uses))
        edges = [GradientEdge(graph.nodes[node], 0) for node in at]
        total = losses.sum() if units is None else losses @ units.reshape(-1).to(losses.dtype)
        grads = torch.autograd.grad(total, edges, allow_unused=True) if edges else ()
        slopes = dict(zip(at, grads, strict=True))
        last = {use.node: number for number, use in enumerate(all_uses)}
        found: dict[str, list[tuple[Use, Found]]] = {}
        del grads, losses, total
        with without_autocast(x.device), torch.no_grad():
            for number, use in enumerate(all_uses):  # a rule may copy: what it has read is let go
                slope, saved = slopes[use.node], kept[number]
                kept[number] = None
                if last[use.node] == number:
                    del slopes[use.node]
                if slope is not None:
                    part = found_at(graph, use, saved, slope, len(x))
                    part = part if units is None else unite(part, units)
                    found.setdefault(use.name, []).append((use, part))
        return graph, found, list(unknown)

    def _read_saved(self, graph: Graph, uses: Iterable[Use]) -> list[Any]:
        """Return what autograd kept for the uses; the backward pass frees it."""
        return [find_saved(graph, use) for use in uses]

    def _leaves(self, vector: Tensor) -> dict[str, Tensor]:
        network, vector = self.network, vector.detach()
        parts = align(network, vector) if vector.is_cuda else network.unflatten(vector)
        return {name: part.detach().requires_grad_() for name, part in parts.items()}

    def _forward(self, params: dict[str, Tensor], x: Tensor, y: Tensor) -> tuple[Graph, Tensor]:
        """Return the graph and the losses; the model holds the parameters."""
        with torch.enable_grad():
            with self.taken_apart():
                outputs = self.network.outputs(None, x)
            losses = self.network.losses(outputs, y)
        return read_graph(losses.grad_fn, self.network.leaves(params)), losses

    def _routes_of(self, graph: Graph, x: Tensor, y: Tensor) -> Routes:
        """Return the uses of parameters in a graph of this form, found on made-up records."""
        if (known := self._routes.get(graph.form)) is not None:
            return known
        for count, full in product((_PROBE, max(2, len(x))), (False, True)):  # few records are cheap to try
            self._probe(*make_up_records(self.network, x, y, count, 1.0, full))
            if graph.form in self._routes:
                return self._routes[graph.form]
        if len(x) == 1:
            raise _OneRecord
        raise UnsupportedError(
            "The operations of this model depend on the values of its inputs, so no rule can be chosen "
            "beforehand. Use engine='vmap'."
        )

    def _probe(self, x: Tensor, y: Tensor) -> None:
        params = self._leaves(points(self.network)[1])

        def tried() -> None:
            graph, losses = self._forward(params, x, y)
            self._routes[graph.form] = self._find_uses(graph, losses)

        self.network.holding(params, tried)

    def _find_uses(self, graph: Graph, losses: Tensor) -> Routes:
        """Return the uses of parameters, by layouts that made-up records show."""
        return find_routes(graph, find_layouts(graph, losses), is_known)


class _OneRecord(Exception):
    """One record alone takes other operations than several, and no axis can be told from another."""


def align(network: Network, vector: Tensor) -> dict[str, Tensor]:
    """Return parameters that begin where fast kernels of a GPU want them, with gaps filled, in one vector."""
    ends, sizes = list[Tensor](), [shape.numel() for shape in network.shapes]
    begin = stop = 0
    for size in sizes:
        stop += size
        if size % _STEP:
            ends += [vector[begin:stop], vector.new_zeros(-size % _STEP)]
            begin = stop
    if not ends:
        return network.unflatten(vector)
    places = torch.cat([*ends, vector[begin:]]).split([size + -size % _STEP for size in sizes])
    named = zip(network.names, places, network.shapes, strict=True)
    return {name: place[: shape.numel()].view(shape) for name, place, shape in named}


def units_of(present: Tensor | None) -> Tensor | None:
    """Return the places of persons, where ``present`` tells of persons."""
    return present if present is not None and present.dim() == 2 else None


def _two(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return torch.cat([x, x]), torch.cat([y, y])


def by_vmap(
    network: Network, names: list[str], vector: Tensor, x: Tensor, y: Tensor, units: Tensor | None = None
) -> dict[str, Tensor]:
    """Return the gradients of some parameters, one row for each record or person."""
    params = network.unflatten(vector.detach())
    chosen = {name: params[name] for name in names}

    def loss(some: dict[str, Tensor], a: Tensor, b: Tensor) -> Tensor:
        return network.loss(network.outputs(params | some, a[None]), b[None]).sum()

    found = vmap(grad(loss), (None, 0, 0), randomness="different")(chosen, x, y)
    rows = {name: value.reshape(len(x), -1) for name, value in found.items()}
    if units is None:
        return rows
    return {name: unite(values * units.reshape(-1, 1), units) for name, values in rows.items()}


@dataclass(eq=False)
class _Rows:
    """Gradients per record of the parameters for which they are formed."""

    network: Network
    batch: int
    parts: dict[str, Rows]
    _blocks: list[tuple[list[Rows], Tensor]] = field(default_factory=list, init=False)

    def add_to(self, contributions: Contributions) -> None:
        whole = self.parts.values()
        self._blocks = [([part], part.values) for part in whole if part.values.shape[1] > _SMALL]
        if small := [part for part in whole if part.values.shape[1] <= _SMALL]:
            # side by side they cost as many operations as one
            self._blocks.append((small, torch.cat([part.values for part in small], dim=1)))
        for _, block in self._blocks:
            contributions.add_rows(block)

    def weighted_sum(self, factors: Tensor) -> dict[str, Tensor]:
        """Return the weighted sums; an infinite row makes them infinite, and the query leaves it out."""
        total: dict[str, Tensor] = {}
        for parts, block in self._blocks:
            sums = (factors @ block).split([part.values.shape[1] for part in parts])
            total |= {part.name: part.in_order(one) for part, one in zip(parts, sums, strict=True)}
        return total

    def all(self) -> Tensor:
        network, blank = self.network, torch.zeros(self.batch, 1, device=self.network.device)
        pairs = [(self.parts.get(n), s.numel()) for n, s in zip(network.names, network.shapes, strict=True)]
        return torch.cat([blank.expand(-1, n) if one is None else one.values for one, n in pairs], dim=1)
