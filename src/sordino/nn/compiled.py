"""The clipped sum of a block whose size is one of few: recorded on a GPU, or compiled."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from sordino.errors import SlowEngineWarning, UnsupportedError
from sordino.nn.engines import Engine, GhostEngine
from sordino.nn.network import Network, make_up_records, points, product_inputs, same_draws, without_autocast

_aten = torch.ops.aten


def _group_norm_backward(
    slope: Tensor, images: Tensor, means: Tensor, scales: Tensor, gamma: Tensor | None,
    count: int, channels: int, places: int, groups: int, asked: list[bool],
) -> Any:  # fmt: skip
    """Return the slope of a group norm in the shape of the images; a compiler turns torch's, by groups."""
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


def transpose_convolutions(graph: GraphModule) -> int:
    """Write slopes of images as transposed convolutions; return how many.

    A backward convolution keeps the order of axes in which it was traced, channels first, and reads an input
    that it does not need; a transposed one is computed channels last, as forward ones are.
    """
    backward, forward = _aten.convolution_backward.default, _aten.convolution.default
    found = [
        node
        for node in graph.graph.nodes
        if node.target is backward  # whose slope alone is asked for, of a convolution of two axes
        and (len(node.args[4]), node.args[7], list(node.args[10])) == (2, False, [True, False, False])
    ]
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


def sum_early(graph: Graph) -> None:
    """Move sums, and what is computed for them alone, up to what they read, which can then be let go."""
    for node in [node for node in graph.nodes if node.target is _aten.sum.dim_IntList]:
        own = [node]
        for part in own:  # grows while it is read
            alone = (i for i in part.all_input_nodes if i.op == "call_function" and set(i.users) <= set(own))
            own += [i for i in alone if i not in own]
        for part in sorted(own):
            last = max(part.all_input_nodes, default=part)
            if last.op == "call_function" and last is not part:
                last.append(part)


def lean_options(mode: str | None) -> dict[str, Any]:
    """Return options of a compiler that holds the results of equal operations once, and sums early.

    One that reorders for memory computes Gram matrices early and holds them. Where torch has moved the parts
    that this leans on, the import fails and the compiled step is not taken.
    """
    from torch._functorch.compile_utils import fx_graph_cse
    from torch._inductor import list_mode_options
    from torch._inductor.custom_graph_pass import CustomGraphPass

    class Leaner(CustomGraphPass):
        def __call__(self, graph: Graph) -> None:
            module: Any = graph.owning_module
            module.graph = fx_graph_cse(graph)
            sum_early(module.graph)

        def uuid(self) -> str:
            return "sordino 1"  # what was compiled before another number is compiled again

    lean = {"post_grad_custom_post_pass": Leaner(), "reorder_for_peak_memory": False}
    return list_mode_options(mode or "default") | lean


def _shape(node: Node) -> torch.Size:
    return torch.Size(node.meta["tensor_meta" if "tensor_meta" in node.meta else "val"].shape)


Backend: TypeAlias = str | Callable[..., Any]
_TRIES = 3
_SAME = 1e-4  # the same operations on the same numbers; sums of a GPU may be added up in another order
_LONG = 240.0  # seconds of steps without a compiler, from which on it is tried: it takes one minute or two
_SHORT = 5  # quarters of the length of a query, to which places are few
_STEP = 8  # a block of a multiple of this many records begins its rows where fast kernels want them


def even_block(chunk: int, expected: int) -> int:
    """Return the size of few equal blocks that a Poisson batch, rarely over ``n + 2 sqrt(n)``, fills."""
    if expected < 1:
        return chunk
    likely = expected + 2 * math.isqrt(expected)
    each = math.ceil(likely / math.ceil(likely / chunk))
    return min(chunk, math.ceil(each / _STEP) * _STEP)


@contextmanager
def _as_if_recording() -> Iterator[None]:
    """Let models that ask whether a GPU records (those of ``transformers``) do what they do then."""
    asked: Any = torch.cuda
    real, asked.is_current_stream_capturing = asked.is_current_stream_capturing, lambda: True
    try:
        yield
    finally:
        asked.is_current_stream_capturing = real


class Recorded:
    """A function of tensors, recorded once on a GPU and played again on others of the same shapes."""

    def __init__(
        self, function: Callable[..., Tensor], inputs: Iterable[Tensor], pool: Any, beside: Any
    ) -> None:
        torch.cuda.empty_cache()  # what stays would hold large blocks of what was tried before
        self._inputs = [part.clone() for part in inputs]
        here = torch.cuda.current_stream()
        beside.wait_stream(here)
        with torch.cuda.stream(beside), _as_if_recording():  # what is made and found out once, is so before
            torch.eye(8, device=self._inputs[0].device) @ torch.eye(8, device=self._inputs[0].device)
            function(*self._inputs)
        here.wait_stream(beside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool, stream=beside):
            self._out = function(*self._inputs)

    def __call__(self, *inputs: Tensor) -> Tensor:
        for held, new in zip(self._inputs, inputs, strict=True):
            held.copy_(new)
        self._graph.replay()
        return self._out.clone()  # the next block is written where this one was


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
    _recorded: dict[int, Recorded] = field(default_factory=dict, init=False, repr=False)

    @property
    def network(self) -> Network:
        return self.inner.network

    @property
    def method(self) -> str:
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
            return self._run(vector, _fill(x, present.numel()), _fill(y, present.numel()), clip, present)
        total: Tensor | None = None
        start, size = 0, 0
        while start < len(x):
            if x.device not in self._held:
                self._held[x.device] = torch.arange(self.chunk, device=x.device)
            size = self._size(len(x) - start)
            counted = self._held[x.device][:size] < len(x) - start
            some = slice(start, start + size)
            if present is not None:
                counted = _fill(present[some], size) * counted
            a, b = (_fill(part[some], size) for part in (x, y))
            added = self._run(vector, a, b, clip, counted)
            total = added if total is None else total + added
            start += size
        return torch.zeros_like(vector) if total is None else total

    def _size(self, left: int) -> int:
        """Return the size of the next block: one of the recorded, if any, so that memory is taken once."""
        if self._recorded:
            return next((size for size in sorted(self._recorded) if size >= left), max(self._recorded))
        step = self.step or self.chunk
        return min(self.chunk, math.ceil(left / step) * step)

    def _run(self, vector: Tensor, x: Tensor, y: Tensor, clip: float, present: Tensor) -> Tensor:
        run = self._recorded.get(len(x), self._block)
        return run(vector, x, y, present.to(vector.dtype), self._limit(clip, x.device))

    def _block(self, vector: Tensor, x: Tensor, y: Tensor, present: Tensor, limit: Any) -> Tensor:
        return self.inner.clipped_sum(vector, x, y, limit, present)

    def _limit(self, clip: float, device: torch.device) -> Tensor:
        if (clip, device) not in self._held:
            self._held[clip, device] = torch.tensor(clip, dtype=torch.float64, device=device)
        return self._held[clip, device]

    def _sizes(self, expected: int) -> Iterable[int]:
        """Return the sizes of most batches."""
        spread = math.isqrt(expected)
        low, high = (math.ceil(n / self.step) * self.step for n in (expected - spread, expected + 2 * spread))
        return range(low, min(high, self.chunk) + 1, self.step)

    def record(self, expected: int, example: tuple[Tensor, Tensor]) -> None:
        """Record the sizes of most batches as graphs of a GPU, on made-up records; a block that cannot be
        recorded (its operations depend on values), or then gives other sums, runs as it did.
        """
        vector = points(self.network)[1]
        records = make_up_records(self.network, *example, expected, 1.0)
        asked = _seconds(self, records)
        # one stream for all: a library of products keeps a work space for each, which may hold a large block
        room = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
        # what the largest has taken bears the others, not the other way round
        for size in sorted(self._sizes(expected), reverse=True):
            try:
                made = self._check(vector, size, example, room)
            except (RuntimeError, UnsupportedError):  # among them: no memory is left
                made = None
            if made is None:
                self._recorded.clear()
                return
            self._recorded[size] = made
        if self._recorded and asked < _seconds(self, records):
            self._recorded.clear()
        torch.cuda.empty_cache()  # of blocks that were run to be compared

    def _check(
        self, vector: Tensor, size: int, example: tuple[Tensor, Tensor], room: tuple[Any, Any]
    ) -> Recorded | None:
        """Return a recorded block that gives the sums of others, and leaves memory for one that is not."""
        ones, limit = vector.new_ones(size), self._limit(1.0, vector.device)
        first, second = (make_up_records(self.network, *example, n, 1.0) for n in (size, size + 1))
        made = Recorded(self._block, (vector, *first, ones, limit), *room)
        given, draws = (vector, *(part[:size] for part in second), ones, limit), same_draws()
        with draws:
            got = made(*given)
        torch.cuda.reset_peak_memory_stats(vector.device)
        before = torch.cuda.memory_allocated(vector.device)
        with draws, _as_if_recording():
            want = self._block(*given)
        taken = torch.cuda.max_memory_allocated(vector.device) - before
        torch.cuda.empty_cache()
        fits = torch.cuda.mem_get_info(vector.device)[0] > 1.2 * taken
        return made if fits and float((got - want).norm()) <= _SAME * float(want.norm()) else None


class _ShortAttention(TorchFunctionMode):
    """Lets attention over few places be two products, which a compiler joins with what is around."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func is F.scaled_dot_product_attention and args[0].dtype is torch.float32
        if not found or 4 * args[1].shape[-2] > _SHORT * args[0].shape[-1]:
            return func(*args, **(kwargs or {}))
        with sdpa_kernel(SDPBackend.MATH):
            return func(*args, **(kwargs or {}))


@dataclass(frozen=True, eq=False)
class CompiledEngine(FilledEngine):
    """Gives another engine's graphs to ``torch.compile``, for blocks of its size and of a ``smaller`` one."""

    backend: Backend = "inductor"
    mode: str | None = None
    smaller: int = 0
    _graphs: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def method(self) -> str:
        return f"compiled {self.inner.method}"

    def _size(self, left: int) -> int:
        return self.smaller if left <= self.smaller else self.chunk

    def _sizes(self, expected: int) -> Iterable[int]:
        return {self.smaller or self.chunk, self.chunk}

    def _block(self, vector: Tensor, x: Tensor, y: Tensor, present: Tensor, limit: Any) -> Tensor:
        # the bounds in a graph are those for the precision of products when it was traced
        key = (present.shape, x.shape, x.dtype, y.shape, y.dtype, product_inputs(x.device))
        inputs = vector, x, y, present, limit
        with without_autocast(x.device):
            if key not in self._graphs:
                self._graphs[key] = self._trace(*inputs)
            total = self._graphs[key](*inputs)
        return total.clone() if self.mode else total  # a CUDA graph overwrites its output next time

    def _trace(self, *inputs: Tensor) -> Any:
        def whole(v: Tensor, a: Tensor, b: Tensor, p: Tensor, limit: Tensor) -> Tensor:
            return self.inner.clipped_sum(v, a, b, limit, p)

        taken_apart = IN_PARTS if inputs[0].is_cuda else None
        with _ShortAttention():
            whole(*inputs)  # what the engine finds out about the model, it finds out before
            try:
                graph = make_fx(whole, taken_apart)(*inputs)
            except RuntimeError:  # operations fall apart otherwise when they are traced: find out about those
                make_fx(whole, _error_on_data_dependent_ops=False)(*inputs)
                graph = make_fx(whole, taken_apart)(*inputs)
        if inputs[0].is_cuda:
            transpose_convolutions(graph)
        if self.backend != "inductor":
            return torch.compile(graph, backend=self.backend, dynamic=False)
        return torch.compile(graph, options=lean_options(self.mode), dynamic=False)


def _fill(rows: Tensor, count: int) -> Tensor:
    missing = count - len(rows)
    return rows if missing <= 0 else torch.cat([rows, rows[:1].expand(missing, *rows.shape[1:])])


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
    plain, even = engine, engine.network.device.type == "cuda" and expected > 0
    if even:
        step = math.ceil(2 * math.isqrt(expected) / _STEP) * _STEP
        plain = FilledEngine(engine, chunk, step=step)
        with same_draws():
            plain.record(expected, example)
    # A compiler may pay on a GPU, for blocks of one size, without loops over places.
    loops = any(isinstance(layer, torch.nn.RNNBase) for layer in engine.network.model.modules())
    if asked is False or (asked is None and not (even and type(engine) is GhostEngine and not loops)):
        return plain, ()
    whole = even_block(chunk, expected)
    likely = math.ceil((expected + math.isqrt(expected) / 2) / _STEP) * _STEP  # two of three are not larger
    smaller = likely if isinstance(plain, FilledEngine) and likely < whole else 0
    made = CompiledEngine(engine, whole, backend, asked if isinstance(asked, str) else None, smaller)
    records = make_up_records(engine.network, *example, max(2, min(expected or whole, whole)), 1.0)
    try:
        with same_draws():
            eager = _seconds(plain, records)
            if asked is None and eager * steps * max(1.0, expected / whole) < _LONG:
                return plain, ()
            compiled = _seconds(made, records)
        if compiled < eager:
            if isinstance(plain, FilledEngine):
                plain._recorded.clear()
            torch.cuda.empty_cache()  # of what was recorded and tried
            with same_draws():
                if smaller:  # both are compiled before any record is read; what the larger takes bears both
                    _seconds(made, make_up_records(engine.network, *example, whole, 1.0))
                if isinstance(plain, FilledEngine) and not made.mode:  # a mode may record by itself
                    made.record(expected, example)
            return made, ()
        why = f"a step took {compiled:.2g} s on made-up records, and {eager:.2g} s without"
    except Exception as error:  # whatever a compiler says: without it the same is computed
        why = f"torch.compile failed: {type(error).__name__}, {' '.join(str(error).split())[:160]}"
    if asked is None:
        return plain, (f"steps are not compiled: {why}",)
    said = f"steps are not compiled, as was asked for: {why}"
    remedy = "Pass compiled=False if this is meant."
    warnings.warn(f"{said[0].upper()}{said[1:]}. {remedy}", SlowEngineWarning, stacklevel=4)
    return plain, (said,)


def _seconds(engine: Engine, records: tuple[Tensor, Tensor]) -> float:
    """Return how long a step takes, at best; the first one, which may compile, is not counted."""
    vector, times = engine.network.flat(), list[float]()
    for _ in range(_TRIES + 1):
        begin = time.perf_counter()
        float(engine.clipped_sum(vector, *records, 1.0)[0])  # waits for the device
        times.append(time.perf_counter() - begin)
    return min(times[1:])
