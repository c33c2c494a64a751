"""Where parameters enter a model, and their gradients there, record by record: read off autograd's graph.

No list of layers is needed: whatever a model calls (layers, functions, attention, adapters), autograd notes
one node for each operation, with an edge to each parameter that goes in. From a parameter the edges are
followed up to the first operation whose output holds the records apart. What lies between is a function of
parameters alone (a transpose, a slice, a cast, an exponential). Which axis of an output holds the records is
found once, on made-up records: the loss of one record has a gradient only in that record's part.

A gradient follows from what autograd kept and the slope of the output. That of a matrix that multiplies
positions is ``sum_t left_t right_t^T`` at one record: a :class:`Product`. That of a table is one row for each
word: a :class:`Table`. All other gradients are small and are formed, one for each record.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import product
from types import SimpleNamespace
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import GradientEdge

from sordino.kernel.clip.tensors import MOST_HALVES, pairs
from sordino.nn.network import INPUTS, product_inputs

_NONE = -1  # what has no gradient


@dataclass(frozen=True)
class Layout:
    """The axis of a tensor that holds the records; ``major`` and ``minor`` if they share it with places."""

    axis: int
    part: str = ""

    def records(self, values: Tensor, batch: int) -> Tensor:
        """Return the tensor with the records in front."""
        if not self.part:
            return values.movedim(self.axis, 0) if self.axis else values
        major = self.part == "major"
        apart = values.unflatten(self.axis, (batch, -1) if major else (-1, batch))
        return apart.movedim(self.axis + (not major), 0)


@dataclass(frozen=True)
class Step:
    """A node that holds no records, between a parameter and its use: its output, and the input followed."""

    node: int
    output: int
    slot: int


@dataclass(frozen=True)
class Use:
    """A parameter entering an operation on records; ``path`` leads from there down to the parameter."""

    name: str
    path: tuple[Step, ...]
    node: int
    slot: int
    layout: Layout


Routes: TypeAlias = tuple[tuple[Use, ...], dict[str, str]]
"""All uses of the parameters, and why some have none that is known."""


@dataclass(eq=False)
class Graph:
    """The nodes of one forward pass, in a fixed order, and what goes into each: (node, its output)."""

    nodes: list[Any]
    inputs: tuple[tuple[tuple[int, int], ...], ...]
    leaves: dict[str, int]
    signature: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.signature = tuple([type(node).__name__ for node in self.nodes])

    @cached_property
    def form(self) -> Hashable:
        """What two graphs share that use the same parameters by the same operations in the same order."""
        return self.signature, self.inputs, tuple(self.leaves.items())

    @cached_property
    def consumers(self) -> dict[int, list[tuple[int, int, int]]]:
        """Who consumes each node: (consumer, its input, the node's output)."""
        found: dict[int, list[tuple[int, int, int]]] = {}
        for at, inputs in enumerate(self.inputs):
            for slot, (child, output) in enumerate(inputs):
                found.setdefault(child, []).append((at, slot, output))
        found.pop(_NONE, None)
        return found

    def shape(self, node: int, slot: int) -> torch.Size:
        """Return the shape of an input of a node."""
        child, output = self.nodes[node].next_functions[slot]
        if hasattr(child, "variable"):
            return torch.Size(child.variable.shape)
        return torch.Size(child._input_metadata[output].shape)


def read_graph(root: Any, params: dict[str, Tensor]) -> Graph:
    """Walk from the loss to the parameters."""
    owners = {id(value): name for name, value in params.items()}
    nodes, numbers, leaves = [root], {root: 0, None: _NONE}, dict[str, int]()
    inputs = list[tuple[tuple[int, int], ...]]()
    for at, node in enumerate(nodes):  # grows while it is read
        found = node.next_functions
        for child, _ in found:
            if child not in numbers:
                numbers[child] = len(nodes)
                nodes.append(child)
        inputs.append(tuple([(numbers[child], output) for child, output in found]))
        if not found and (name := owners.get(id(getattr(node, "variable", None)))) is not None:
            leaves[name] = at
    return Graph(nodes, tuple(inputs), leaves)


def find_layouts(graph: Graph, losses: Tensor) -> list[Layout | None]:
    """Return where each node's output holds the records; None if it does not hold them apart."""
    batch, seen, possible = len(losses), set[int](), dict[int, list[Layout]]()
    for at, node in enumerate(graph.nodes):  # the axes of a parameter hold no records
        shape = () if hasattr(node, "variable") else tuple(node._input_metadata[0].shape)
        axes = [Layout(axis) for axis, size in enumerate(shape) if size == batch]
        parts = [axis for axis, size in enumerate(shape) if size > batch and size % batch == 0]
        axes += [Layout(axis, part) for axis in parts for part in ("major", "minor")]
        if axes:
            possible[at] = axes
    edges = [GradientEdge(graph.nodes[at], 0) for at in possible]
    for j in range(batch):
        slopes = torch.autograd.grad(losses[j], edges, retain_graph=True, allow_unused=True)
        for at, slope in zip(possible, slopes, strict=True):
            if slope is not None and bool((nonzero := slope != 0).any()):
                seen.add(at)
                apart = [(one, one.records(nonzero, batch)) for one in possible[at]]
                possible[at] = [one for one, v in apart if int(v.sum()) == int(v[j].sum())]
    found_at = {at: found[0] for at, found in possible.items() if at in seen and found}
    return [found_at.get(at) for at in range(len(graph.nodes))]


def find_routes(graph: Graph, layouts: list[Layout | None], known: Any) -> Routes:
    """Follow each parameter up to the operations that use it on records."""
    uses, unknown = list[Use](), dict[str, str]()
    for name, leaf in graph.leaves.items():
        found = list(_follow(graph, layouts, name, leaf, None, ()))
        odd = [use for use in found if use is None or not known(graph, use)]
        if not odd and found:
            uses += [use for use in found if use is not None]
        else:
            first = odd[0] if odd else None
            unknown[name] = "mixing records" if first is None else graph.signature[first.node]
    return tuple(uses), unknown


def _follow(
    graph: Graph, layouts: list[Layout | None], name: str, at: int, slot: int | None, below: tuple[Step, ...]
) -> Iterator[Use | None]:
    for consumer, its_slot, output in graph.consumers.get(at, []):
        path = below if slot is None else (Step(at, output, slot), *below)
        layout = layouts[consumer]
        if layout is not None:
            yield Use(name, path, consumer, its_slot, layout)
        elif consumer == 0:  # the loss itself: nowhere were the records apart
            yield None
        else:
            yield from _follow(graph, layouts, name, consumer, its_slot, path)


def pull_back(graph: Graph, path: tuple[Step, ...], value: Tensor) -> Tensor:
    """Return the gradient at the parameter from that at the end of its path."""
    for step in path:
        node = graph.nodes[step.node]
        outputs: list[Any] = [None] * len(node._input_metadata)
        outputs[step.output] = value
        inputs = node(*outputs)
        value = inputs[step.slot] if isinstance(inputs, tuple) else inputs
        # nodes leave the sum over axes along which something was spread to autograd
        value = value.sum_to_size(graph.shape(step.node, step.slot))
    return value


# ----------------------------------------------------------- Gradients of single operations, record by record

# Where matrix products may round their inputs to 11 bits (TF32), so may these: images and slopes of a
# record, some channels at a time, are brought to at most one and rounded to float16, which has as many. A
# row is held as it comes out, and its norm and the sum are those of the row that is held: how it was
# rounded before plays no part in the clip.

_CHANNELS, _PLACES = 16, 64  # below, the tiles of a kernel are mostly empty
_MOST = 2**16  # places of an image of which one program can hold a channel
_ROUNDING = 2.0**-9  # of rows whose factors have 11 bits
_CUT = (1.0, 1 + 2.0**-10 - 2.0**-23, 1 + 2.0**-11 + 2.0**-22)  # loses nothing; most; would be rounded up
_TAGS = (torch.Tag.flexible_layout,)  # a compiler leaves the axes as a convolution has put them


def rows_of(images: Tensor, slopes: Tensor, *geometry: Sequence[int]) -> Tensor | None:
    """Return the gradients as (records, outputs, kernel entries, inputs); None where windows are as good."""
    if not _suits(images, slopes):
        return None
    if not images.dtype is slopes.dtype is torch.bfloat16:
        images, slopes = images.float(), slopes.float()
    return torch.ops.sordino.window_rows(images, slopes, *map(list, geometry))


def _suits(images: Tensor, slopes: Tensor) -> bool:
    if not images.is_cuda or product_inputs(images.device) < INPUTS["tf32"]:
        return False
    places = [part.shape[2:].numel() for part in (slopes, images)]
    few = min(images.shape[1], slopes.shape[1]) < _CHANNELS or places[0] < _PLACES
    return not few and max(places) <= _MOST and _kernel(images.device) is not None


@torch.library.custom_op("sordino::window_rows", mutates_args=(), tags=_TAGS)
def _window_rows(
    images: Tensor,
    slopes: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    made = _module() if images.is_cuda else None
    if made is None:
        return _unfold(images.float(), slopes.float(), kernel, stride, padding, dilation)
    out: Tensor = made.window_rows(images, slopes, kernel, stride, padding, dilation)
    return out


@_window_rows.register_fake
def _(images: Tensor, slopes: Tensor, kernel: Sequence[int], *_: Any) -> Tensor:
    shape = len(images), slopes.shape[1], kernel[0] * kernel[1], images.shape[1]
    return images.new_empty(shape, dtype=torch.float32)


def _unfold(images: Tensor, slopes: Tensor, *geometry: Any) -> Tensor:
    """Return the same from unfolded windows: (records, inputs x entries, places)."""
    kernel, stride, padding, dilation = geometry
    windows = F.unfold(images, kernel, dilation, padding, stride)
    rows = slopes.flatten(2) @ windows.transpose(1, 2)
    return rows.unflatten(2, (images.shape[1], -1)).transpose(2, 3).contiguous()


def gram32(values: Tensor) -> Tensor:
    """Return ``values values^T`` in float32, padded: rows that begin askew take twice as long or more."""
    places, step = values.shape[-2], 16 // values.element_size()
    coarse = values.element_size() < 4 or product_inputs(values.device) >= INPUTS["tf32"]
    askew = values.is_cuda and coarse and places > 16 and places % step > 0
    if not askew or _kernel(values.device) is None:
        return product32(values, values.transpose(-1, -2))
    made: Tensor = torch.ops.sordino.pairs(values.flatten(0, -3))
    return made.unflatten(0, values.shape[:-2])


@torch.library.custom_op("sordino::pairs", mutates_args=(), tags=_TAGS)
def _pairs(values: Tensor) -> Tensor:
    made = _module() if values.is_cuda else None
    out: Tensor = product32(values, values.transpose(1, 2)) if made is None else made.pairs(values)
    return out


@_pairs.register_fake
def _(values: Tensor) -> Tensor:
    return values.new_empty(*values.shape[:2], values.shape[1], dtype=torch.float32)


@cache
def _module() -> Any:
    try:
        return importlib.import_module("sordino.nn.windows_gpu")
    except Exception:  # no compiler, no triton
        return None


@cache
def _kernel(device: torch.device) -> Any:
    """Return the kernels if this machine can build them and they make the rows of unfolded windows."""
    images, slopes = (
        torch.arange(3 * c * 81, device=device).float().mul(0.7).sin().reshape(3, c, 9, 9) for c in (20, 33)
    )
    try:
        made: Any = _module()
        for step, ends in ((1, 9), (2, 5)):
            parts = images, slopes[:, :, :ends, :ends]
            geometry = (3, 3), (step, step), (1, 1), (1, 1)
            want = _unfold(*(part.double() for part in parts), *geometry)
            if not float((made.window_rows(*parts, *geometry) - want).norm() / want.norm()) < _ROUNDING:
                return None
        cut = torch.tensor(_CUT, device=device)[:, None, None].expand(-1, 17, 40).contiguous()
        found = made.pairs(cut).double() / (40 * cut[:, :1, :1].double().square())
    except Exception:  # an old driver: windows are unfolded then
        return None
    return made if float((found - 1).abs().max()) < 1.01 * 2 * INPUTS["tf32"] else None


_ENTRIES = 25  # of a kernel, at most, whose windows are compared entry by entry


@dataclass
class Product:
    """``sum_t left_t right_t^T`` of (batch, groups, places, rows) and (batch, groups, places, columns)."""

    left: Tensor
    right: Tensor

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Places, rows and columns."""
        return self.left.shape[2], self.left.shape[3], self.right.shape[3]

    @property
    def device(self) -> torch.device:
        return self.left.device


def product32(left: Tensor, right: Tensor) -> Tensor:
    """Return a product in float32, of halves too: on a GPU without making them float32 first."""
    if left.dtype is not torch.bfloat16 or right.dtype is not torch.bfloat16 or not left.is_cuda:
        return left.float() @ right.float()
    if left.dim() == 2:
        return torch.mm(left, right, out_dtype=torch.float32)
    made = torch.bmm(left.flatten(0, -3), right.flatten(0, -3), out_dtype=torch.float32)
    return made.unflatten(0, left.shape[:-2])


@dataclass
class Table:
    """``slopes`` of the rows of a table that ``words`` name: (batch, places) and (batch, places, columns)."""

    words: Tensor
    slopes: Tensor


class Windows(Product):
    """A convolution: outputs by kernel entries (transposed: the other way round), unfolded when asked for."""

    def __init__(
        self, kept: Any, slope: Tensor, kernel: torch.Size, batch: int, by_record: Callable[[Tensor], Tensor]
    ) -> None:
        self._kept, self._kernel, self._by_record = kept, kernel, by_record
        self._wide, self._narrow = (slope, kept.input) if kept.transposed else (kept.input, slope)
        self._images = len(slope) // batch  # of a record

    @property
    def sizes(self) -> tuple[int, int, int]:
        groups, places = self._kept.groups, self._narrow.shape[2:].numel()
        columns = self._wide.shape[1] // groups * self._kernel.numel()
        return self._images * places, self._narrow.shape[1] // groups, columns

    @property
    def device(self) -> torch.device:
        return self._wide.device

    @cached_property
    def left(self) -> Tensor:
        """Slopes: (batch, groups, places, rows)."""
        return self._apart(self._narrow.flatten(2))

    @cached_property
    def right(self) -> Tensor:
        """Windows: (batch, groups, places, columns)."""
        windows = _windows(self._pad(), self._kernel, self._kept.dilation, self._kept.stride)
        for axis, size in enumerate(self._narrow.shape[2:]):  # of a transposed one with output padding
            windows = windows.narrow(2 + len(self._kernel) + axis, 0, size)
        return self._apart(windows.reshape(len(windows), -1, self._narrow.shape[2:].numel()))

    def _pad(self) -> Tensor:
        twice = [size for pad in reversed(self._kept.padding) for size in (pad, pad)]
        return F.pad(self._wide, twice) if any(twice) else self._wide

    def form(self) -> Tensor | None:
        """Return gradients as (batch, outputs, kernel entries, inputs), where a GPU needs no windows."""
        kept = self._kept
        if kept.transposed or kept.groups > 1 or len(self._kernel) != 2 or self._images > 1:
            return None
        return rows_of(self._wide, self._narrow, self._kernel, kept.stride, kept.padding, kept.dilation)

    def gram(self) -> Tensor | None:
        """Return the products of all pairs of windows, if no window is needed for them, and those of pairs of
        places of the image, which they share, are fewer.
        """
        kept, dims = self._kept, len(self._kernel)
        count, rows, columns = self.sizes
        if count == 1 or rows >= columns:
            return None
        padded = self._pad()
        places, inside = self._narrow.shape[2:], padded.shape[2:]
        dear = inside.numel() ** 2 > places.numel() ** 2 * self._kernel.numel() / 2
        if dear or self._images > 1 or self._kernel.numel() > _ENTRIES:
            return None
        flat = padded.unflatten(1, (kept.groups, -1)).flatten(3).transpose(2, 3).float()
        all_pairs = pairs(flat).unflatten(3, inside).unflatten(2, inside)
        total: Any = None
        for entry in product(*(range(size) for size in self._kernel)):
            part = all_pairs
            for axis in range(dims):
                start, step = entry[axis] * kept.dilation[axis], kept.stride[axis]
                stop = start + step * (places[axis] - 1) + 1
                window = slice(start, stop, step)
                part = part[(slice(None),) * (2 + axis) + (window,) + (slice(None),) * (dims - 1) + (window,)]
            total = part if total is None else total + part
        return total.flatten(2 + dims).flatten(2, 1 + dims)

    def _apart(self, values: Tensor) -> Tensor:
        """Return (records, groups, places, features) of (images, features, places)."""
        moved = self._by_record(values.unflatten(1, (self._kept.groups, -1)).transpose(2, 3))
        return moved if moved.dim() == 4 else moved.movedim(1, 2).flatten(2, 3)


def _windows(a: Tensor, kernel: Any, dilation: Any, stride: Any) -> Tensor:
    """Return (batch, channels, *kernel, *places), a view: F.unfold starts one kernel a record on a GPU."""
    dims = len(kernel)
    for i in range(dims):
        a = a.unfold(2 + i, dilation[i] * (kernel[i] - 1) + 1, stride[i])
        a = a[..., :: dilation[i]] if dilation[i] > 1 else a
    places, entries = range(2, 2 + dims), range(2 + dims, 2 + 2 * dims)
    return a.permute(0, 1, *entries, *places)


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
Fits: TypeAlias = Callable[[Graph, Use], bool]
Rule: TypeAlias = tuple[str, Callable[[Seen], Found], Fits]
"""What autograd keeps for a use, the gradient from that, and whether the rule holds for the use."""


def find_saved(graph: Graph, use: Use) -> SimpleNamespace:
    """Return what autograd kept for a use."""
    node, names = graph.nodes[use.node], _RULES[graph.signature[use.node], use.slot][0]
    saved = {name: getattr(node, f"_saved_{name}") for name in names.split()}
    return SimpleNamespace(**{k: v.detach() if isinstance(v, Tensor) else v for k, v in saved.items()})


def found_at(graph: Graph, use: Use, kept: SimpleNamespace, slope: Tensor, batch: int) -> Found:
    """Return the gradient of a use."""
    shape = graph.shape(use.node, use.slot)
    seen = Seen(kept, use.slot, shape, slope, batch, use.layout)
    return _RULES[graph.signature[use.node], use.slot][1](seen)


def unite(part: Any, units: Tensor) -> Any:
    """Return what the records of each person add together; ``units`` is (persons, records of each)."""
    if isinstance(part, Product):
        apart = (v.unflatten(0, units.shape).movedim(1, 2).flatten(2, 3) for v in (part.left, part.right))
        return Product(*apart)
    if isinstance(part, Table):
        together = (v.unflatten(0, units.shape).flatten(1, 2) for v in (part.words, part.slopes))
        return Table(*together)
    return part.unflatten(0, units.shape).sum(1)


def is_known(graph: Graph, use: Use) -> bool:
    """Tell whether there is a rule for this use."""
    rule = _RULES.get((graph.signature[use.node], use.slot))
    return rule is not None and rule[2](graph, use)


def _broadcast(graph: Graph, use: Use) -> bool:
    """Tell whether the input is the same for all records: one number along their axis."""
    rank = len(graph.nodes[use.node]._input_metadata[0].shape)
    shape = graph.shape(use.node, use.slot)
    padded = (1,) * (rank - len(shape)) + tuple(shape)
    return padded[use.layout.axis] == 1


def _first(graph: Graph, use: Use) -> bool:
    return use.layout.axis == 0


def _times(seen: Seen, left: Tensor, right: Tensor, scale: Any = 1, groups: int = 1) -> Product:
    """Return the product of two arrays of (groups, positions, features)."""
    left, right = (seen.layout.records(v, seen.batch) for v in (left, right if scale == 1 else right * scale))
    flat = [v.reshape(seen.batch, groups, -1, v.shape[-1]) for v in (left, right)]
    return Product(*_alike(*flat))


def _alike(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return both in float32, or as they are: halves of several places are multiplied as such on a GPU."""
    halves = left.is_cuda and left.dtype is right.dtype is torch.bfloat16
    keep = halves and 1 < left.shape[2] <= MOST_HALVES
    return (left, right) if keep else (left.float(), right.float())


def _embedding(seen: Seen) -> Table:
    padding = seen.kept.padding_idx
    words = seen.layout.records(seen.kept.indices, seen.batch).reshape(seen.batch, -1)
    found = Table(words, seen.records(seen.slope).reshape(seen.batch, words.shape[1], -1))
    if 0 <= padding < seen.shape[0]:
        found.slopes = found.slopes * (found.words != padding)[:, :, None]
    return found


def _group_norm(seen: Seen) -> Tensor:
    """Return the gradient of scales by the two sums of the backward pass: a compiler shares them."""
    kept, slope = seen.kept, seen.slope.float()
    means, scales = (
        part.float()[:, :, None].expand(-1, -1, slope.shape[1] // kept.group).flatten(1)
        for part in (kept.result1, kept.result2)
    )
    both = _over_places(torch.mul(slope, kept.input.float()))
    return seen.summed((both - means * _over_places(slope)) * scales)


def _over_places(values: Tensor) -> Tensor:
    """Return sums over all that is not image or channel."""
    over = list(range(2, values.dim()))
    return values.sum(over) if over else values


def _spread(seen: Seen, factor: Any) -> Tensor:
    """Return the gradient of what was spread over the output and multiplied by the factor."""
    local = seen.slope if factor is None else seen.slope.float() * factor
    moved = seen.layout.records(local, seen.batch)
    wanted = [1] * (local.dim() - len(seen.shape)) + list(seen.shape)
    if not seen.layout.part:
        del wanted[seen.layout.axis]
    spread = [i + 1 for i, size in enumerate(wanted) if size == 1 and moved.shape[i + 1] != 1]
    moved = moved.sum(spread, dtype=torch.float32) if spread else moved.float()
    return moved.reshape(seen.batch, *seen.shape)


def _factor(
    names: str = "", factor: Callable[[Any], Any] = lambda kept: None, fits: Fits = _broadcast
) -> Rule:
    """Return the rule of what is spread over the output and multiplied by a factor of what was kept."""
    return names, lambda seen: _spread(seen, factor(seen.kept)), fits


# by node and input
_RULES: dict[tuple[str, int], Rule] = {
    ("AddmmBackward0", 0): _factor(
        fits=lambda graph, use: graph.nodes[use.node]._saved_beta == 1 and _broadcast(graph, use)
    ),
    ("AddmmBackward0", 2): (
        "mat1 alpha",
        lambda seen: _times(seen, seen.kept.mat1, seen.slope, seen.kept.alpha),
        _first,
    ),
    ("MmBackward0", 1): ("self", lambda seen: _times(seen, seen.kept.self, seen.slope), _first),
    ("BmmBackward0", 1): (
        "self",
        lambda seen: _times(seen, seen.kept.self, seen.slope, 1, seen.shape[0]),
        lambda graph, use: use.layout.axis == 1,
    ),
    ("ConvolutionBackward0", 1): (
        "input padding dilation stride groups transposed",
        lambda seen: Windows(seen.kept, seen.slope, seen.shape[2:], seen.batch, seen.records),
        _first,
    ),
    ("ConvolutionBackward0", 2): ("", lambda seen: seen.summed(seen.slope), _first),
    ("EmbeddingBackward0", 0): (
        "indices padding_idx",
        _embedding,
        lambda graph, use: use.layout.axis < len(graph.nodes[use.node]._input_metadata[0].shape) - 1,
    ),
    ("NativeLayerNormBackward0", 1): _factor(
        "input result1 result2", lambda kept: (kept.input - kept.result1) * kept.result2
    ),
    ("NativeLayerNormBackward0", 2): _factor(),
    ("FusedRmsNormBackward0", 1): _factor("input result1", lambda kept: kept.input * kept.result1),
    ("NativeGroupNormBackward0", 1): ("input group result1 result2", _group_norm, _first),
    ("NativeGroupNormBackward0", 2): (
        "",
        lambda seen: seen.summed(_over_places(seen.slope.float())),
        _first,
    ),
    ("AddBackward0", 0): _factor(),
    ("AddBackward0", 1): _factor("alpha", lambda kept: None if kept.alpha == 1 else kept.alpha),
    ("SubBackward0", 0): _factor(),
    ("SubBackward0", 1): _factor("alpha", lambda kept: -kept.alpha),
    ("MulBackward0", 0): _factor("other", lambda kept: kept.other),
    ("MulBackward0", 1): _factor("self", lambda kept: kept.self),
    ("DivBackward0", 0): _factor("other", lambda kept: kept.other.reciprocal()),
    ("DivBackward0", 1): _factor("self other", lambda kept: -kept.self * kept.other.reciprocal().square()),
    ("PreluKernelBackward0", 1): _factor("self", lambda kept: kept.self.clamp(max=0)),
    ("ExpandBackward0", 0): _factor(),
    ("RepeatBackward0", 0): (
        "",
        lambda seen: seen.records(seen.slope).reshape(seen.batch, -1, *seen.shape).sum(1),
        lambda graph, use: len(graph.shape(use.node, use.slot)) == 1 and use.layout == Layout(0, "major"),
    ),
}
