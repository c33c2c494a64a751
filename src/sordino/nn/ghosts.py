"""Norms and weighted sums of gradients that are not formed, and the choice between them and formed ones.

The norm of ``sum_t g_t a_t^T`` needs no gradient: ``sum_{t,s} (a_t . a_s) (g_t . g_s)``. Positions are cheap
when few, the gradient is cheap when small; ``_direct_pays`` chooses. A parameter that is used twice has more
positions. The norms themselves, and what rounding may hide in them, are the business of
:mod:`sordino.kernel.clip.tensors`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from sordino.kernel.clip.tensors import Contributions
from sordino.nn.network import product_inputs
from sordino.nn.operations import Found, Graph, Product, Step, Table, Use, Windows, product32, pull_back

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
