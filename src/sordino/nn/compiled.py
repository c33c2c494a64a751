"""The clipped sum as a compiled graph, for blocks of one size."""

from __future__ import annotations

import math
import operator
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg

from sordino.errors import SlowEngineWarning
from sordino.kernel.clip.tensors import Contributions
from sordino.nn.engines import Engine, GhostEngine, by_vmap, units_of
from sordino.nn.ghosts import Ghost, Rows, is_made_of_parameter, pieces
from sordino.nn.graph import Graph, Routes, Use, pulled_back
from sordino.nn.network import Network, made_up, product_inputs, same_draws, without_autocast
from sordino.nn.operations import Found, found_at, kept_at, product32, united

_aten = torch.ops.aten
_PURE = (_aten.mul.Tensor, _aten.sum.dim_IntList)


def _group_norm_backward(
    slope: Tensor, images: Tensor, means: Tensor, scales: Tensor, gamma: Tensor | None,
    count: int, channels: int, places: int, groups: int, asked: list[bool],
) -> Any:  # fmt: skip
    """Return the slope of a group norm, in the shape of the images from beginning to end.

    Taken apart by groups, as torch does it, a compiler writes it in the order of the groups and turns it.
    """
    if asked != [True, False, False] or images.dtype != torch.float32 or images.dim() < 3:
        return NotImplemented
    each, over = channels // groups, list(range(2, images.dim()))
    both, alone = (slope * images).sum(over), slope.sum(over)  # (records, channels)
    weight = torch.ones_like(both[:1]) if gamma is None else gamma[None]

    def of_group(values: Tensor) -> Tensor:
        return (values * weight).reshape(count, groups, each).sum(2)

    def to_images(values: Tensor) -> Tensor:
        spread = values[:, :, None].expand(count, groups, each).reshape(count, channels)
        return spread.reshape(count, channels, *[1] * len(over))

    second = (of_group(alone) * means - of_group(both)) * scales**3 / (places * each)
    third = -second * means - of_group(alone) * scales / (places * each)
    first = to_images(scales) * weight.reshape(1, channels, *[1] * len(over))
    return slope * first + images * to_images(second) + to_images(third), None, None


IN_PARTS: dict[Any, Any] = {_aten.native_group_norm_backward.default: _group_norm_backward}


def computed_once(graph: GraphModule) -> int:
    """Take the first of equal products and sums for all of them; return how many were left out.

    Gradients of group norms, record by record, are made of the same sums over places as the slope is. What
    is written in place somewhere, or is a view of it, stays as it is.
    """
    nodes, seen, left = list(graph.graph.nodes), dict[Any, Node](), 0
    written = {_base(arg) for node in nodes if _writes(node) for arg in node.all_input_nodes}
    for node in nodes:
        if node.target not in _PURE or written & {_base(part) for part in (node, *node.all_input_nodes)}:
            continue
        key = node.target, map_arg(_hashable(node.args), _source), _hashable(node.kwargs)
        first = seen.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.graph.erase_node(node)
            left += 1
    graph.recompile()
    return left


def _source(node: Node) -> str:
    """Return the name of what a node is a copy of without a history."""
    while node.target is _aten.detach.default and isinstance(node.args[0], Node):
        node = node.args[0]
    return node.name


def _base(node: Node) -> Node:
    """Return what a node is a view of; one of several parts counts as the whole."""
    while node.args and isinstance(node.args[0], Node) and _is_view(node):
        node = node.args[0]
    return node


def _is_view(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return node.target is operator.getitem
    return any(given.alias_info is not None for given in schema.returns)


def _writes(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _hashable(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_hashable(part) for part in value)
    if isinstance(value, dict):
        return tuple((name, _hashable(part)) for name, part in sorted(value.items()))
    return value


def transposed(graph: GraphModule) -> int:
    """Write slopes of images as transposed convolutions; return how many.

    A backward convolution keeps the order of axes in which it was traced, channels first, and reads an input
    that it does not need; a transposed one is computed channels last, as forward ones are.
    """
    backward, forward = torch.ops.aten.convolution_backward.default, torch.ops.aten.convolution.default
    found = [node for node in graph.graph.nodes if node.target is backward and _is_of_images(node)]
    for node in found:
        slope, images, kernel, _, stride, padding, dilation, _, _, groups, _ = node.args
        sizes = zip(
            *(_shape(part)[2:] for part in (images, slope, kernel)), stride, padding, dilation, strict=True
        )
        beyond = [whole - ((o - 1) * s - 2 * p + d * (k - 1) + 1) for whole, o, k, s, p, d in sizes]
        with graph.graph.inserting_before(node):
            made = graph.graph.call_function(
                forward, (slope, kernel, None, stride, padding, dilation, True, beyond, groups)
            )
        for user in list(node.users):
            if user.args[1] == 0:
                user.replace_all_uses_with(made)
            graph.graph.erase_node(user)
        graph.graph.erase_node(node)
    graph.recompile()
    return len(found)


def _is_of_images(node: Node) -> bool:
    """Tell whether only the slope of a convolution of two axes is asked for."""
    stride, is_transposed, asked = node.args[4], node.args[7], node.args[10]
    return len(stride) == 2 and not is_transposed and list(asked) == [True, False, False]


def _shape(node: Node) -> torch.Size:
    return torch.Size(
        node.meta["tensor_meta"].shape if "tensor_meta" in node.meta else node.meta["val"].shape
    )


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
        bounds = Contributions(batch, product_inputs(batch.device), torch.cat, product32)
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


Backend: TypeAlias = str | Callable[..., Any]
_TRIES = 3
_LONG = 240.0  # seconds of steps without a compiler, from which on it is tried: it takes one minute or two
_STEP = 8  # a block of a multiple of this many records begins its rows where fast kernels want them


def even_block(chunk: int, expected: int) -> int:
    """Return the size of blocks for Poisson batches of an expected size: few, and all alike.

    A batch of n records is rarely larger than ``n + 2 sqrt(n)``: so many fill equal blocks, as few as memory
    bears (``chunk`` of records each), and smaller batches are filled up.
    """
    if expected < 1:
        return chunk
    likely = expected + 2 * math.isqrt(expected)
    each = math.ceil(likely / math.ceil(likely / chunk))
    return min(chunk, math.ceil(each / _STEP) * _STEP)


@dataclass(frozen=True, eq=False)
class FilledEngine:
    """Fills blocks of another engine up to few sizes, multiples of ``step``, with rows that count zero.

    A Poisson batch has another size each time, and libraries of a GPU look for a plan for each new size (of a
    convolution, of attention), which takes longer than the step. The number of rows that only fill up is as
    secret as the batch. No block has more than ``chunk`` records.
    """

    inner: Engine
    chunk: int
    step: int = field(default=0, kw_only=True)  # 0: all blocks are of one size
    _held: dict[Any, Tensor] = field(default_factory=dict, init=False, repr=False)

    @property
    def network(self) -> Network:
        """The network of the inner engine."""
        return self.inner.network

    @property
    def method(self) -> str:
        """The method of the inner engine."""
        return self.inner.method

    def per_record(self, vector: Tensor, x: Tensor, y: Tensor, present: Tensor | None = None) -> Tensor:
        return self.inner.per_record(vector, x, y, present)

    def whole(self, vector: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self.inner.whole(vector, x, y)

    def clipped_sum(
        self, vector: Tensor, x: Tensor, y: Tensor, clip: float, present: Tensor | None = None
    ) -> Tensor:
        if present is not None and present.dim() == 2:
            missing = max(0, self.chunk // present.shape[1] - len(present))
            present = torch.cat([present, present.new_zeros(missing, present.shape[1])])
            return self._run(vector, _filled(x, present.numel()), _filled(y, present.numel()), clip, present)
        total: Tensor | None = None
        for start in range(0, len(x), self.chunk):
            if x.device not in self._held:
                self._held[x.device] = torch.arange(self.chunk, device=x.device)
            step = self.step or self.chunk
            size = min(self.chunk, math.ceil((len(x) - start) / step) * step)
            counted = self._held[x.device][:size] < len(x) - start
            some = slice(start, start + size)
            if present is not None:
                counted = _filled(present[some], size) * counted
            a, b = (_filled(part[some], size) for part in (x, y))
            added = self._run(vector, a, b, clip, counted)
            total = added if total is None else total + added
        return torch.zeros_like(vector) if total is None else total

    def _run(self, vector: Tensor, x: Tensor, y: Tensor, clip: float, present: Tensor) -> Tensor:
        return self.inner.clipped_sum(vector, x, y, clip, present.to(vector.dtype))


@dataclass(frozen=True, eq=False)
class CompiledEngine(FilledEngine):
    """Traces another engine and hands the graph, which has one size of blocks, to ``torch.compile``."""

    backend: Backend = "inductor"
    mode: str | None = None
    _graphs: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def method(self) -> str:
        """The method of the inner engine, compiled."""
        return f"compiled {self.inner.method}"

    @property
    def compilations(self) -> int:
        """How many graphs were made."""
        return len(self._graphs)

    def _run(self, vector: Tensor, x: Tensor, y: Tensor, clip: float, present: Tensor) -> Tensor:
        # the bounds in a graph are those for the precision of products when it was traced
        key = (present.shape, x.shape, x.dtype, y.shape, y.dtype, product_inputs(x.device))
        if (clip, x.device) not in self._held:
            self._held[clip, x.device] = torch.tensor(clip, dtype=torch.float64, device=x.device)
        inputs = vector, x, y, present, self._held[clip, x.device]
        with without_autocast(x.device):
            if key not in self._graphs:
                self._graphs[key] = self._traced(*inputs)
            total = self._graphs[key](*inputs)
        return total.clone() if self.mode else total  # a CUDA graph overwrites its output next time

    def _traced(self, *inputs: Tensor) -> Any:
        def whole(v: Tensor, a: Tensor, b: Tensor, p: Tensor, limit: Tensor) -> Tensor:
            return self.inner.clipped_sum(v, a, b, limit, p)

        taken_apart = IN_PARTS if inputs[0].is_cuda else None
        whole(*inputs)  # what the engine finds out about the model, it finds out before
        try:
            graph = make_fx(whole, taken_apart)(*inputs)
        except RuntimeError:  # operations fall apart otherwise when they are traced: find out about those too
            make_fx(whole, _error_on_data_dependent_ops=False)(*inputs)
            graph = make_fx(whole, taken_apart)(*inputs)
        if inputs[0].is_cuda:
            transposed(graph)
            computed_once(graph)
        return torch.compile(graph, backend=self.backend, mode=self.mode, dynamic=False)


def _filled(rows: Tensor, count: int) -> Tensor:
    missing = count - len(rows)
    if missing <= 0:
        return rows
    return torch.cat([rows, rows[:1].expand(missing, *rows.shape[1:])])


def compiled_engine(
    engine: Engine,
    chunk: int,
    expected: int,
    example: tuple[Tensor, Tensor],
    asked: bool | str | None = True,
    steps: int = 1,
    backend: Backend = "inductor",
) -> tuple[Engine, tuple[str, ...]]:
    """Return the compiled engine if it is faster on made-up records, else the engine itself, and say why.

    On a GPU the latter fills up blocks of Poisson batches. A block is compiled here, before any record is
    read. ``expected`` is the expected size of a batch; 0 where nobody knows it. Where nothing was ``asked``
    for (None), it is tried on a GPU for many ``steps``.
    """
    plain = engine
    if engine.network.device.type == "cuda" and expected > 0:
        step = math.ceil(2 * math.isqrt(expected) / _STEP) * _STEP
        plain = FilledEngine(engine, chunk, step=step)
    if asked is False or (asked is None and not _may_pay(engine, expected)):
        return plain, ()
    if isinstance(engine, LeanEngine):
        return _not_compiled(plain, asked, "a compiled step would hold what two backward passes spare")
    whole = even_block(chunk, expected)
    made = CompiledEngine(engine, whole, backend, asked if isinstance(asked, str) else None)
    records = made_up(engine.network, *example, max(2, min(expected or whole, whole)), 1.0)
    try:
        with same_draws():
            eager = _seconds(plain, records)
            if asked is None and eager * steps * max(1.0, expected / whole) < _LONG:
                return plain, ()
            compiled = _seconds(made, records)
        if compiled < eager:
            return made, ()
        why = f"a step took {compiled:.2g} s on made-up records, and {eager:.2g} s without"
    except Exception as error:  # whatever a compiler says: without it the same is computed
        why = f"torch.compile failed: {type(error).__name__}, {' '.join(str(error).split())[:160]}"
    return _not_compiled(plain, asked, why)


def _may_pay(engine: Engine, expected: int) -> bool:
    """Tell whether a compiler may pay: on a GPU, for blocks of one size, without loops over places."""
    network = engine.network
    loops = any(isinstance(layer, torch.nn.RNNBase) for layer in network.model.modules())
    return type(engine) is GhostEngine and network.device.type == "cuda" and expected > 0 and not loops


def _not_compiled(engine: Engine, asked: bool | str | None, why: str) -> tuple[Engine, tuple[str, ...]]:
    if asked is None:
        return engine, (f"steps are not compiled: {why}",)
    said = f"steps are not compiled, as was asked for: {why}"
    warnings.warn(
        f"{said[0].upper()}{said[1:]}. Pass compiled=False if this is meant.", SlowEngineWarning, stacklevel=5
    )
    return engine, (said,)


def _seconds(engine: Engine, records: tuple[Tensor, Tensor]) -> float:
    """Return how long a step takes, at best; the first one, which may compile, is not counted."""
    vector, times = engine.network.flat(), list[float]()
    for _ in range(_TRIES + 1):
        begin = time.perf_counter()
        float(engine.clipped_sum(vector, *records, 1.0)[0])  # waits for the device
        times.append(time.perf_counter() - begin)
    return min(times[1:])
