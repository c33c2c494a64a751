"""Ghost norms in little memory: two backward passes, each slope is let go as soon as it was used."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from sordino.kernel.clip_tensors import Contributions
from sordino.nn.engines import GhostEngine, by_vmap, units_of
from sordino.nn.ghosts import Ghost, Rows, is_made_of_parameter, pieces
from sordino.nn.graph import Graph, Routes, Use, pulled_back
from sordino.nn.operations import Found, found_at, kept_at, united
from sordino.nn.precision import product_inputs, without_autocast

Act: TypeAlias = Callable[[str, Ghost | Rows], None]


@dataclass(frozen=True, eq=False)
class LeanEngine(GhostEngine):
    """One forward and two backward passes: the first finds norms, the second the weighted sum.

    What :class:`GhostEngine` holds until the factors are known is computed twice instead. Both passes run the
    same operations on the same numbers, in a fixed order of additions (torch's deterministic algorithms on a
    GPU), so the sum is made of the slopes whose norms were bounded.
    """

    method: str = field(default="ghost, in two backward passes", init=False)

    def clipped(
        self, vector: Tensor, x: Tensor, y: Tensor, clip: float, present: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the clipped sum, and what each record (or person) was multiplied by."""
        if len(x) == 1:  # nothing to spare, and one record alone may take other operations
            return super().clipped(vector, x, y, clip, present)
        params = self._leaves(vector)
        with _fixed_order(x.device):
            return self.network.holding(params, lambda: self._twice(params, vector, x, y, clip, present))

    def _twice(
        self, params: dict[str, Tensor], vector: Tensor, x: Tensor, y: Tensor, clip: float, present: Any
    ) -> tuple[Tensor, Tensor]:
        graph, losses = self._forward(params, x, y)
        units, routes = units_of(present), self._routes_of(graph, x, y)
        total = losses.sum() if units is None else losses @ units.reshape(-1).to(losses.dtype)
        back = _Passes(graph, routes, total, len(x), units)
        slow = by_vmap(self.network, list(routes.unknown), vector, x, y, units) if routes.unknown else {}
        batch = vector.new_empty(len(x) if present is None else len(present))
        bounds = Contributions(batch, product_inputs(batch.device), torch.cat)
        for values in slow.values():
            bounds.add_rows(values)
        back.run(lambda _, piece: _noted(bounds, piece), again=True)
        with without_autocast(vector.device), torch.no_grad():
            factors = bounds.factors(clip, present if units is None else None)
        sums = {name: factors @ values for name, values in slow.items()}

        def add(name: str, piece: Ghost | Rows) -> None:
            value = _weighted(graph, piece, factors)
            sums[name] = sums[name] + value if name in sums else value

        back.run(add, again=False)
        return self.network.flatten(sums), factors


def _noted(bounds: Contributions, piece: Ghost | Rows) -> None:
    if isinstance(piece, Rows):
        bounds.add_rows(piece.values)
    else:
        piece.add_to(bounds)


def _weighted(graph: Graph, piece: Ghost | Rows, factors: Tensor) -> Tensor:
    if isinstance(piece, Rows):
        return piece.in_order(factors @ piece.values)
    return pulled_back(graph, piece.path, piece.weighted_sum(factors)).reshape(-1)


@dataclass(eq=False)
class _Passes:
    """Backward passes that hand over the gradients of a parameter once all its uses have their slopes."""

    graph: Graph
    routes: Routes
    total: Tensor
    batch: int
    units: Tensor | None

    def run(self, act: Act, again: bool) -> None:
        """Run one pass; ``again`` keeps what the next one needs."""
        waiting: dict[str, list[tuple[Use, Found]]] = {}
        missing = Counter(use.name for use in self.routes.uses)
        nodes = list(dict.fromkeys(use.node for use in self.routes.uses))
        last = _last(self.graph, nodes)
        kept = {use: kept_at(self.graph, use) for use in self.routes.uses}  # a checkpoint is read once a pass

        def seen(node: int, slope: Tensor | None) -> None:
            with without_autocast(self.total.device), torch.no_grad():
                for use in [use for use in self.routes.uses if use.node == node and slope is not None]:
                    waiting.setdefault(use.name, []).append((use, self._found(use, kept.pop(use), slope)))
                    missing[use.name] -= 1
                    # operations between a parameter and its use cannot be run inside of a pass
                    if not missing[use.name] and not is_made_of_parameter(self.graph, waiting[use.name]):
                        self._hand_over(use.name, waiting.pop(use.name), act)

        hooks = [
            self.graph.nodes[node].register_prehook(lambda slopes, node=node: seen(node, slopes[0]))
            for node in nodes
            if node not in last
        ]
        try:
            edges = [GradientEdge(self.graph.nodes[node], 0) for node in last]
            slopes = torch.autograd.grad(self.total, edges, retain_graph=again, allow_unused=True)
        finally:
            for hook in hooks:
                hook.remove()
        for node, slope in zip(last, slopes, strict=True):
            seen(node, slope)
        with without_autocast(self.total.device), torch.no_grad():
            for name, found in waiting.items():  # those, and some with a use that the loss does not see
                self._hand_over(name, found, act)

    def _found(self, use: Use, kept: Any, slope: Any) -> Found:
        part = found_at(self.graph, use, kept, slope, self.batch)
        return part if self.units is None else united(part, self.units)

    def _hand_over(self, name: str, found: list[tuple[Use, Found]], act: Act) -> None:
        for piece in pieces(self.graph, name, found, form=False):
            act(name, piece)


def _last(graph: Graph, nodes: list[int]) -> list[int]:
    """Return the nodes below which none of the others lies: a pass that reaches them runs the others."""
    above, stack = set[int](), [at for node in nodes for at, _, _ in graph.consumers.get(node, [])]
    while stack:
        at = stack.pop()
        if at not in above:
            above.add(at)
            stack += [one for one, _, _ in graph.consumers.get(at, [])]
    return [node for node in nodes if node not in above]


@contextmanager
def _fixed_order(device: torch.device) -> Iterator[None]:
    """Let a GPU add in the same order each time; where torch has no such way, it would say so each time."""
    if device.type != "cuda":
        yield
        return
    room: Any = torch.utils.deterministic
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    filled, room.fill_uninitialized_memory = room.fill_uninitialized_memory, False  # only costs time here
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*deterministic.*")
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])
            room.fill_uninitialized_memory = filled
