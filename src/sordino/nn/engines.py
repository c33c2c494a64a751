"""Sums of clipped per-record gradients: by ghost norms, or by vmap over the whole model.

The norm of ``sum_t g_t a_t^T`` needs no gradient: ``sum_{t,s} (a_t . a_s) (g_t . g_s)``. Positions are cheap
when few, the gradient is cheap when small; ``_direct_pays`` chooses. A parameter that is used twice has more
positions. The norms themselves, and what rounding may hide in them, are the business of
:mod:`sordino.kernel.clip.tensors`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
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
from sordino.nn.network import Network, make_up_records, points, product_inputs, without_autocast
from sordino.nn.operations import (
    Found,
    Graph,
    Product,
    Routes,
    Step,
    Table,
    Use,
    Windows,
    find_layouts,
    find_routes,
    find_saved,
    found_at,
    gram32,
    is_known,
    product32,
    pull_back,
    read_graph,
    unite,
)
from sordino.nn.recurrent import by_rule

_ENTRY_COST = 16  # products of a processor in the time in which it writes and reads one entry of a gradient
_BYTE_COST = 13.0, 60.0  # operations of a GPU in the time of one byte: in float32, and in coarser products
_HELD = 1  # a gradient that is formed is at most this many times as large as what is held anyway
_CASTS = ("ToCopyBackward0", "AliasBackward0")
_SWAPS = ("TBackward0", "TransposeBackward0", "PermuteBackward0")
_CUTS = ("SplitBackward0", "SplitWithSizesBackward0", "UnbindBackward0", "ChunkBackward0")
# each entry of what goes in stands once in what comes out, or is cut off: norms stay
KEEPING = (
    *_CASTS, *_SWAPS, *_CUTS, "ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0",
    "UnsqueezeBackward0", "SqueezeBackward0", "SqueezeBackward1", "SelectBackward0", "SliceBackward0",
    "CloneBackward0",
)  # fmt: skip


@dataclass
class Tied:
    """A table that is looked up and also multiplied."""

    product: Product
    table: Table


@dataclass
class Ghost:
    """Gradients of one parameter that are not formed: norms and sum come from the same two arrays."""

    name: str
    path: tuple[Step, ...]
    found: Product | Table | Tied
    shape: torch.Size

    def add_to(self, contributions: Contributions) -> None:
        """Tell the clip what each record adds: a word that stands twice has one row, so none cancel."""
        if isinstance(self.found, Table):
            contributions.add_rows(self.found.slopes.flatten(1))
        elif isinstance(self.found, Tied):
            product, table = self.found.product, self.found.table
            contributions.add_tied(product.right, product.left, table.words, table.slopes)
        elif isinstance(self.found, Windows) and (gram := self.found.gram()) is not None:
            contributions.add_grams(gram, self.found.left, self.found.sizes[2])
        else:
            contributions.add_products(*_wide_and_narrow(self.found))

    def weighted_sum(self, factors: Tensor) -> Tensor:
        """Return ``sum_i factors_i gradient_i`` without forming a gradient of one record."""
        if isinstance(self.found, Tied):
            product, table = self.found.product, self.found.table
            total = _add_up((product.left, product.right), factors, 0).reshape(self.shape)
            return _scatter(total, table, factors)
        if isinstance(self.found, Table):
            zeros = torch.zeros(self.shape, device=factors.device, dtype=factors.dtype)
            return _scatter(zeros, self.found, factors)
        wide, narrow = _wide_and_narrow(self.found)
        if narrow is self.found.right:
            return _add_up((wide, narrow), factors, 1).reshape(self.shape)
        if isinstance(self.found, Windows):
            return _add_up((narrow, wide), factors, 0).reshape(self.shape)
        # a compiler that finds the weighted part transposed in a product computes it against its rows
        return _add_up((wide, narrow), factors, 1).transpose(1, 2).reshape(self.shape)


def _add_up(pair: tuple[Tensor, Tensor], factors: Tensor, weighted: int) -> Tensor:
    """Return ``sum_bt factor_b left_bt right_bt^T`` for each group, places and records in order of memory, by
    factors that are spread over one of the pair first: else a compiler runs against the rows.
    """
    places_first = pair[1].stride(2) > pair[1].stride(0)
    order = (1, 2, 0, 3) if places_first else (1, 0, 2, 3)
    flat = [values.permute(order).flatten(1, 2) for values in pair]
    spread = factors[:, None].expand(-1, pair[0].shape[2])
    weights = (spread.T if places_first else spread).reshape(-1, 1)
    if len(flat[0]) == 1:  # a product that is not one of several may be split along the places
        flat = [values[0] for values in flat]
    flat[weighted] = (flat[weighted] * weights).to(flat[weighted].dtype)
    total = product32(flat[0].transpose(-2, -1), flat[1])
    return total if total.dim() == 3 else total[None]


def _scatter(total: Tensor, table: Table, factors: Tensor) -> Tensor:
    slopes = (table.slopes * factors[:, None, None]).flatten(0, 1)
    return total.index_add(0, table.words.reshape(-1), slopes.reshape(-1, *total.shape[1:]))


def _wide_and_narrow(product: Product) -> tuple[Tensor, Tensor]:
    """Return what the clip calls positions and slopes; the latter are multiplied, so they are the smaller."""
    left, right = product.left, product.right
    return (right, left) if left.shape[3] <= right.shape[3] else (left, right)


def _touched_rows(table: Table) -> Table:
    """Return the rows of the table that a record touches, each at the first place of its word."""
    words, slopes = table.words, table.slopes
    first = (words[:, :, None] == words[:, None, :]).byte().argmax(dim=2)
    index = first[:, :, None].expand_as(slopes)
    return Table(words, torch.zeros_like(slopes).scatter_add_(1, index, slopes))


@dataclass
class Rows:
    """Formed gradients of one parameter: (records, entries).

    ``turned`` is the shape in which the entries lie if the parameter has its last two axes the other way
    round: norms are the same, and only the sum has to be turned.
    """

    name: str
    values: Tensor
    turned: torch.Size | None = None

    def in_order(self, total: Tensor) -> Tensor:
        """Return a weighted sum in the order of the parameter."""
        return total if self.turned is None else total.view(self.turned).transpose(-1, -2).reshape(-1)


def pieces(graph: Graph, name: str, found: list[tuple[Use, Found]], form: bool) -> Iterator[Ghost | Rows]:
    """Yield what the clip needs about one parameter; with ``form`` all gradients are formed."""
    groups = _group_by_end(graph, found)
    alone = groups.get((), [None])[0] if not form and len(found) == 1 else None
    # a kernel whose gradients a GPU forms faster than it unfolds windows
    if isinstance(alone, Windows) and _direct_pays(alone) and (rows := alone.form()) is not None:
        yield Rows(name, rows.flatten(1), rows.shape[1:])
        return
    merged = {path: _merge(parts, graph, name) for path, parts in groups.items()}
    apart = not form and _norms_add_up(graph, list(merged)) and None not in merged.values()
    ends: dict[Any, list[tuple[Step, ...]]] = {}
    for path, whole in merged.items():
        if apart and isinstance(whole, (Product, Table, Tied)) and not _direct_pays(whole):
            shape = _end_shape(graph, path, name)
            yield Ghost(name, path, _touched_rows(whole) if isinstance(whole, Table) else whole, shape)
        else:
            ends.setdefault(path[:1] and (path[0].node, path[0].output), []).append(path)
    total: Any = None
    for ways in ends.values():
        whole, shape = merged[ways[0]], _end_shape(graph, ways[0], name)
        each = groups[ways[0]] if whole is None else [whole]
        values = sum((_form(part, shape) for part in each[1:]), start=_form(each[0], shape))
        if ways[0]:  # by the chain rule, over all ways from the parameter to what is made of it
            values = vmap(lambda v, ways=ways: sum(pull_back(graph, way, v) for way in ways))(values)
        total = values if total is None else total + values
    if total is not None:
        yield Rows(name, total.reshape(len(total), -1))


def _group_by_end(graph: Graph, found: list[tuple[Use, Found]]) -> dict[tuple[Step, ...], list[Found]]:
    """Group the uses by what they use: the parameter itself, however transposed, or something made of it."""
    groups: dict[tuple[Step, ...], list[Found]] = {}
    for use, part in found:
        path = use.path
        while path and (turned := _turn(graph, path[0], part)) is not None:
            part, path = turned, path[1:]
        groups.setdefault(path, []).append(part)
    return groups


def _turn(graph: Graph, step: Step, part: Found) -> Found | None:
    """Return the gradient one step closer to the parameter, if that costs nothing."""
    kind = graph.signature[step.node]
    if kind in _CASTS:
        return part
    matrix = isinstance(part, Product) and len(graph.shape(step.node, step.slot)) == 2
    if kind in _SWAPS and matrix and isinstance(part, Product) and part.left.shape[1] == 1:
        return Product(part.right, part.left)
    return None


def _end_shape(graph: Graph, path: tuple[Step, ...], name: str) -> torch.Size:
    if not path:
        return torch.Size(graph.nodes[graph.leaves[name]].variable.shape)
    return torch.Size(graph.nodes[path[0].node]._input_metadata[path[0].output].shape)


def _norms_add_up(graph: Graph, paths: list[tuple[Step, ...]]) -> bool:
    """Tell whether the norms of the groups add up: nothing between changes them, and none overlap."""
    if not all(graph.signature[step.node] in KEEPING for path in paths for step in path):
        return False
    if len(paths) == 1:
        return True
    cuts = {(path[-1].node, path[-1].output) for path in paths if path}
    nodes = {node for node, _ in cuts}
    same = len(cuts) == len(paths) and len(nodes) == 1
    return same and graph.signature[next(iter(nodes))] in _CUTS


def _merge(parts: list[Found], graph: Graph, name: str) -> Product | Table | Tied | None:
    """Return several uses of one matrix as one; None if they have to be formed first."""
    if len(parts) == 1:
        return parts[0] if not isinstance(parts[0], Tensor) else None
    if all(isinstance(part, Table) for part in parts):
        looked: Any = parts
        words = torch.cat([t.words for t in looked], dim=1)
        return Table(words, torch.cat([t.slopes for t in looked], dim=1))
    if any(isinstance(part, Tensor) for part in parts):
        return None
    tables = [part for part in parts if isinstance(part, Table)]
    others = [part for part in parts if isinstance(part, Product)]
    if len(tables) == len(others) == 1 and others[0].left.shape[1] == 1:
        return Tied(Product(others[0].left.float(), others[0].right.float()), tables[0])
    rows = graph.nodes[graph.leaves[name]].variable.shape[0]
    products: Any = [_as_product(part, rows) for part in parts]
    if len({p.left.shape[1:2] + p.left.shape[3:] + p.right.shape[3:] for p in products}) > 1:
        return None
    left = torch.cat([p.left for p in products], dim=2)
    return Product(left, torch.cat([p.right for p in products], dim=2))


def _as_product(part: Any, rows: int) -> Product:
    """Return a table as a product: its words are rows of the unit matrix."""
    if isinstance(part, Product):
        return part
    hot = torch.zeros(*part.words.shape, rows, device=part.slopes.device)
    return Product(hot.scatter_(2, part.words[:, :, None], 1.0)[:, None], part.slopes[:, None])


def _form(part: Found | Tied, shape: torch.Size) -> Tensor:
    """Return one gradient for each record."""
    if isinstance(part, Tied):
        return _form(part.product, shape) + _form(part.table, shape)
    if isinstance(part, Product):
        values = product32(part.left.transpose(2, 3), part.right)
    elif isinstance(part, Table):
        table = torch.zeros(len(part.words), *shape, device=part.slopes.device)
        values = table.flatten(2).scatter_add_(1, part.words[:, :, None].expand_as(part.slopes), part.slopes)
    else:
        values = part
    return values.reshape(len(values), *shape)


def _direct_pays(found: Product | Table | Tied) -> bool:
    """Tell whether gradients are cheaper to form than their norms are to find without."""
    if isinstance(found, Table):
        return False
    found = found.product if isinstance(found, Tied) else found
    count, rows, columns = found.sizes
    if count == 1:
        return False
    if found.device.type == "cuda":
        byte, entries = _BYTE_COST[product_inputs(found.device) > 0], rows * columns
        # A gradient is written, read for its norm and read for the sum. Two Gram matrices take products, are
        # read and written a few times, and the sum then reads positions and slopes again.
        formed = 12 * byte * entries
        moved = 36 * count**2 + 8 * count * min(rows, columns) + 4 * count * (rows + columns)
        grams = 2 * count**2 * (rows + columns) + byte * moved
        return formed < grams and entries <= _HELD * count * (rows + columns)
    small = rows * columns <= count * (rows + columns)
    return small or _ENTRY_COST * rows * columns < count * count * (rows + columns)


# ---------------------- Sums of clipped per-record gradients: by ghost norms, or by vmap over the whole model

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
