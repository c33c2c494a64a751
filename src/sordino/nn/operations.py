r"""Gradients of single operations, record by record, from what autograd kept and the slope of the output.

The gradient of a matrix that multiplies positions is ``sum_t left_t right_t^T`` at one record: a
:class:`Product`. The gradient of a table is one row for each word: a :class:`Table`. All other gradients are
small and are formed, one for each record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from sordino.nn.graph import Graph, Layout, Use
from sordino.nn.products import Product, Table, Windows


@dataclass
class Seen:
    """One use on one batch: what was kept, the input asked for and its shape, the slope and the layout."""

    kept: Any
    slot: int
    shape: torch.Size
    slope: Tensor
    batch: int
    layout: Layout

    def records(self, values: Tensor) -> Tensor:
        """Return float32 values with the records in front."""
        return self.layout.records(values, self.batch).float()

    def summed(self, local: Tensor, axis: int = 1) -> Tensor:
        """Return a gradient of channels that are this axis: sum over all else but the record."""
        moved = self.layout.records(local.float(), self.batch)
        keep = axis + (moved.dim() - local.dim())
        others = [i for i in range(1, moved.dim()) if i != keep]
        return moved.sum(others) if others else moved


Found: TypeAlias = Product | Table | Tensor
Rule: TypeAlias = Callable[[Seen], Found]


def kept_at(graph: Graph, use: Use) -> SimpleNamespace:
    """Return what autograd kept for a use; the backward pass frees it."""
    node = graph.nodes[use.node]
    names = _KEPT.get((graph.signature[use.node], use.slot), ())
    saved = {name: getattr(node, f"_saved_{name}") for name in names}
    return SimpleNamespace(**{k: v.detach() if isinstance(v, Tensor) else v for k, v in saved.items()})


def found_at(graph: Graph, use: Use, kept: SimpleNamespace, slope: Tensor, batch: int) -> Found:
    """Return the gradient of a use."""
    shape = graph.shape(use.node, use.slot)
    seen = Seen(kept, use.slot, shape, slope, batch, use.layout)
    return _RULES[graph.signature[use.node], use.slot](seen)


def united(part: Any, units: Tensor) -> Any:
    """Return what the records of each person add together: their places are places of the person.

    ``units`` is (persons, records of each); the records of a person lie behind each other.
    """
    if isinstance(part, Product):
        apart = (v.unflatten(0, units.shape).movedim(1, 2).flatten(2, 3) for v in (part.left, part.right))
        return Product(*apart)
    if isinstance(part, Table):
        together = (v.unflatten(0, units.shape).flatten(1, 2) for v in (part.words, part.slopes))
        return Table(*together)
    return part.unflatten(0, units.shape).sum(1)


def is_known(graph: Graph, use: Use) -> bool:
    """Tell whether there is a rule for this use."""
    kind = (graph.signature[use.node], use.slot)
    return kind in _RULES and _FITS.get(kind[0], _always)(graph, use)


def _always(graph: Graph, use: Use) -> bool:
    return True


def _broadcast(graph: Graph, use: Use) -> bool:
    """Tell whether the input is the same for all records: one number along their axis."""
    rank = len(graph.nodes[use.node]._input_metadata[0].shape)
    shape = graph.shape(use.node, use.slot)
    padded = (1,) * (rank - len(shape)) + tuple(shape)
    return padded[use.layout.axis] == 1


def _first(graph: Graph, use: Use) -> bool:
    return use.layout.axis == 0


def _not_last(graph: Graph, use: Use) -> bool:
    return use.layout.axis < len(graph.nodes[use.node]._input_metadata[0].shape) - 1


# ------------------------------------------------------------------------------------- products


def _times(seen: Seen, left: Tensor, right: Tensor, scale: Any = 1) -> Product:
    """Return the product of two arrays of (positions, features)."""
    left, right = seen.records(left), seen.records(right)
    right = right if scale == 1 else right * scale
    flat = [v.reshape(seen.batch, 1, -1, v.shape[-1]) for v in (left, right)]
    return Product(*flat)


def _addmm(seen: Seen) -> Product:
    return _times(seen, seen.kept.mat1, seen.slope, seen.kept.alpha)


def _mm(seen: Seen) -> Product:
    return _times(seen, seen.kept.self, seen.slope)


def _bmm(seen: Seen) -> Product:
    """Positions are the second axis, groups the first."""
    left, right = seen.records(seen.kept.self), seen.records(seen.slope)
    flat = [v.reshape(seen.batch, seen.shape[0], -1, v.shape[-1]) for v in (left, right)]
    return Product(*flat)


def _conv(seen: Seen) -> Product:
    return Windows(seen.kept, seen.slope, seen.shape[2:], seen.batch, seen.records)


# --------------------------------------------------------------------------------------- tables


def _embedding(seen: Seen) -> Table:
    padding = seen.kept.padding_idx
    found = _table(seen, seen.kept.indices)
    if 0 <= padding < seen.shape[0]:
        found.slopes = found.slopes * (found.words != padding)[:, :, None]
    return found


def _table(seen: Seen, indices: Tensor) -> Table:
    words = seen.layout.records(indices, seen.batch).reshape(seen.batch, -1)
    return Table(words, seen.records(seen.slope).reshape(seen.batch, words.shape[1], -1))


# ---------------------------------------------------------------------------------- small gradients


def _layer_norm(seen: Seen) -> Tensor:
    kept = seen.kept
    return _same(seen, (kept.input - kept.result1) * kept.result2)


def _rms_norm(seen: Seen) -> Tensor:
    return _same(seen, seen.kept.input * seen.kept.result1)


def _group_norm(seen: Seen) -> Tensor:
    """Return the gradient of scales by the two sums of the backward pass: a compiler shares them."""
    kept, slope = seen.kept, seen.slope.float()
    means, scales = (
        part.float()[:, :, None].expand(-1, -1, slope.shape[1] // kept.group).flatten(1)
        for part in (kept.result1, kept.result2)
    )
    both = _over_places(torch.mul(slope, kept.input.float()))
    return seen.summed((both - means * _over_places(slope)) * scales)


def _shifted(seen: Seen) -> Tensor:
    return seen.summed(_over_places(seen.slope.float()))


def _over_places(values: Tensor) -> Tensor:
    """Return sums over all that is not image or channel."""
    over = list(range(2, values.dim()))
    return values.sum(over) if over else values


def _same(seen: Seen, factor: Tensor | None) -> Tensor:
    """Return the gradient of what was spread over the output and multiplied by the factor."""
    local = seen.slope.float() if factor is None else seen.slope.float() * factor
    moved = seen.records(local)
    wanted = [1] * (local.dim() - len(seen.shape)) + list(seen.shape)
    if not seen.layout.part:
        del wanted[seen.layout.axis]
    spread = [i + 1 for i, size in enumerate(wanted) if size == 1 and moved.shape[i + 1] != 1]
    moved = moved.sum(spread) if spread else moved
    return moved.reshape(seen.batch, *seen.shape)


def _mul(seen: Seen) -> Tensor:
    return _same(seen, seen.kept.self if seen.slot else seen.kept.other)


def _div(seen: Seen) -> Tensor:
    inverse = seen.kept.other.reciprocal()
    return _same(seen, -seen.kept.self * inverse.square() if seen.slot else inverse)


def _repeat(seen: Seen) -> Tensor:
    return seen.records(seen.slope).reshape(seen.batch, -1, *seen.shape).sum(1)


def _signed(seen: Seen) -> Tensor:
    alpha = seen.kept.alpha
    return _same(seen, None if alpha == -1 else torch.as_tensor(-alpha, device=seen.slope.device))


def _added(seen: Seen) -> Tensor:
    alpha = seen.kept.alpha
    return _same(seen, None if alpha == 1 else torch.as_tensor(alpha, device=seen.slope.device))


def _plain(seen: Seen) -> Tensor:
    return _same(seen, None)


_RULES: dict[tuple[str, int], Rule] = {
    ("AddmmBackward0", 0): _plain,
    ("AddmmBackward0", 2): _addmm,
    ("MmBackward0", 1): _mm,
    ("BmmBackward0", 1): _bmm,
    ("ConvolutionBackward0", 1): _conv,
    ("ConvolutionBackward0", 2): lambda seen: seen.summed(seen.slope),
    ("EmbeddingBackward0", 0): _embedding,
    ("NativeLayerNormBackward0", 1): _layer_norm,
    ("NativeLayerNormBackward0", 2): _plain,
    ("FusedRmsNormBackward0", 1): _rms_norm,
    ("NativeGroupNormBackward0", 1): _group_norm,
    ("NativeGroupNormBackward0", 2): _shifted,
    ("AddBackward0", 0): _plain,
    ("AddBackward0", 1): _added,
    ("SubBackward0", 0): _plain,
    ("SubBackward0", 1): _signed,
    ("MulBackward0", 0): _mul,
    ("MulBackward0", 1): _mul,
    ("DivBackward0", 0): _div,
    ("DivBackward0", 1): _div,
    ("ExpandBackward0", 0): _plain,
    ("RepeatBackward0", 0): _repeat,
}

_CONVOLUTION = ("input", "padding", "dilation", "stride", "groups", "transposed")
_KEPT: dict[tuple[str, int], tuple[str, ...]] = {
    ("AddmmBackward0", 2): ("mat1", "alpha"),
    ("MmBackward0", 1): ("self",),
    ("BmmBackward0", 1): ("self",),
    ("ConvolutionBackward0", 1): _CONVOLUTION,
    ("EmbeddingBackward0", 0): ("indices", "padding_idx"),
    ("NativeLayerNormBackward0", 1): ("input", "result1", "result2"),
    ("FusedRmsNormBackward0", 1): ("input", "result1"),
    ("NativeGroupNormBackward0", 1): ("input", "group", "result1", "result2"),
    ("AddBackward0", 1): ("alpha",),
    ("SubBackward0", 1): ("alpha",),
    ("MulBackward0", 0): ("other",),
    ("MulBackward0", 1): ("self",),
    ("DivBackward0", 0): ("other",),
    ("DivBackward0", 1): ("self", "other"),
}


def _scaled_once(graph: Graph, use: Use) -> bool:
    node = graph.nodes[use.node]
    return _first(graph, use) if use.slot == 2 else node._saved_beta == 1 and _broadcast(graph, use)


def _one_copy(graph: Graph, use: Use) -> bool:
    return len(graph.shape(use.node, use.slot)) == 1 and use.layout == Layout(0, "major")


_FITS: dict[str, Callable[[Graph, Use], bool]] = {
    "AddmmBackward0": _scaled_once,
    "MmBackward0": _first,
    "BmmBackward0": lambda graph, use: use.layout.axis == 1,
    "ConvolutionBackward0": _first,
    "EmbeddingBackward0": _not_last,
    "NativeGroupNormBackward0": _first,
    "RepeatBackward0": _one_copy,
    "NativeLayerNormBackward0": _broadcast,
    "FusedRmsNormBackward0": _broadcast,
    **dict.fromkeys(
        ("AddBackward0", "SubBackward0", "MulBackward0", "DivBackward0", "ExpandBackward0"), _broadcast
    ),
}
