"""Which engine differentiates a model, checked on made-up records before any data is seen."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sordino.errors import InvalidInputError, SlowEngineWarning, UnsupportedError
from sordino.execute.draws import seeded_draws
from sordino.kernel.clip.tensors import LARGEST_CLIP
from sordino.nn.compiled import FilledEngine
from sordino.nn.engines import Engine, GhostEngine, VmapEngine
from sordino.nn.entrance import try_out
from sordino.nn.network import (
    Network,
    find_dropout,
    forward_inputs,
    make_up_records,
    points,
    quiet_dropout,
    same_draws,
    uneven,
)

_BATCH = nn.modules.batchnorm._BatchNorm
_INSTANCE = nn.modules.instancenorm._InstanceNorm


def check_model(model: nn.Module, copied: bool = True) -> None:
    """Refuse layers that mix the records of a batch or keep statistics of them.

    A clipped gradient bounds what a record adds only if the gradient of a record depends on no other
    record; running statistics would leave the training without noise. A BatchNorm that was switched to
    ``eval()`` does neither: its statistics are constants, and the copy that is differentiated stays so.
    """
    for name, layer in model.named_modules():
        reason = _reason(layer, copied)
        if reason:
            raise UnsupportedError(f"The layer {name or 'model'!r} ({type(layer).__name__}) {reason}")


def _reason(layer: nn.Module, copied: bool) -> str:
    fixed = copied and not layer.training and getattr(layer, "running_mean", None) is not None
    if isinstance(layer, _BATCH) and not isinstance(layer, _INSTANCE) and not fixed:
        return (
            "mixes the records of a batch, so no clip bounds what one record adds. Use "
            f"nn.GroupNorm({_groups(layer.num_features)}, {layer.num_features}) in its place, call "
            "sordino.nn.replace_batch_norm(model), or layer.eval() to keep its statistics as they are."
        )
    if isinstance(layer, _INSTANCE) and layer.track_running_stats:
        return "keeps running statistics of the records without noise. Set track_running_stats=False."
    if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) and layer.scale_grad_by_freq:
        return "scales gradients by counts over the batch. Set scale_grad_by_freq=False."
    if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) and layer.max_norm is not None:
        return "rewrites the rows that a batch looks up. Set max_norm=None."
    return ""


def replace_batch_norm(model: nn.Module) -> nn.Module:
    """Return a copy of the model with a GroupNorm, with weights alike, in place of each BatchNorm."""
    whole = nn.ModuleList([copy.deepcopy(model)])
    for parent in list(whole.modules()):
        for name, layer in parent.named_children():
            if isinstance(layer, _BATCH) and not isinstance(layer, _INSTANCE):
                channels = layer.num_features
                like = next(layer.buffers(), next(layer.parameters(), torch.zeros(())))
                kind = like.dtype if like.is_floating_point() else torch.float32
                settings = (_groups(channels), channels, layer.eps, layer.affine, like.device, kind)
                setattr(parent, name, nn.GroupNorm(*settings))
    return whole[0]


def _groups(channels: int) -> int:
    # at least four channels to a group: one alone would be normalised to zero in a plain vector
    return next(g for g in range(max(1, min(32, channels // 4)), 0, -1) if channels % g == 0)


METHODS = ("auto", "ghost", "vmap")
_FULL = 0.8  # of a GPU's memory: a run needs some for noise, parameters and what else is there
# how many records, how large their numbers are, and at which point: where training starts, or away from there
_BATCHES = ((2, 1.0, 1), (3, 30.0, 0), (7, 0.1, 1))
_TRIED = (4, 12)  # made-up records whose memory is measured: the difference is that of eight
_MANY = (64, 192)  # so many that what they take outweighs what all parameters take
_ON_CPU = 1 << 30  # bytes for a block of records
_SLOPES = 3  # a backward pass holds, besides what the forward pass keeps, slopes and copies: about that many
_PLAIN = 3.5  # times the memory of a plain step, at most, without a compiler; with one about half
_VECTORS = 8  # of all parameters, that a step holds besides: noise, momentum, averages, sums
_PART = 7  # records of a part: that many were compared one by one
_SAME = 1e-5  # the same operations on the same numbers, twice
_TOLERANCE = 1e-3  # an error of the rules is far larger, the rounding of float32 far smaller
_ROUNDINGS = 25  # of the inputs of products, that a network may add up: 1.2 % with TF32, 10 % with bfloat16
_LOST = 0.25  # of the clip, at most, to bounds of norms where products round far and nearly cancel
_REMEDY = " Use engine='vmap'."
_passed: ContextVar[bool] = ContextVar("passed", default=False)


def make_engine(network: Network, x: Tensor, y: Tensor, method: str = "auto", chunk: int = 64) -> Engine:
    """Return the engine for a model whose records have the shape and type of ``x`` and ``y``.

    ``auto`` takes ghost norms if they agree with one backward pass per record on made-up records, else vmap,
    and warns. Values are never read. ``chunk`` is how many records will be differentiated at once.
    """
    engine: GhostEngine | VmapEngine
    if method not in METHODS:
        raise InvalidInputError(f"Expected engine in {METHODS}, got {method!r}.")
    if network.device.type == "mps":
        raise UnsupportedError(
            "Norms of gradients are bounded in float64, which the device 'mps' lacks. Use 'cpu' or 'cuda'."
        )
    check_model(network.model, copied=not network.sharded)
    if _passed.get():
        return GhostEngine(network)
    try_out(network, x, y)
    if network.sharded:  # there is no other way for it
        from sordino.nn.sharded import ShardedEngine

        engine = ShardedEngine(network)
        with _following():
            _check(engine, x, y, chunk)
    elif method == "vmap":
        engine = _check_vmap(VmapEngine(network), x, y)
    else:
        engine = _ghost_or_vmap(network, x, y, method, chunk)
    _check_own_seed(engine, *make_up_records(network, x, y, 3, 1.0))
    return engine


@contextmanager
def passed_before() -> Iterator[None]:
    """Take ghost norms untried: in this context a model is trained again that passed before."""
    token = _passed.set(True)
    try:
        yield
    finally:
        _passed.reset(token)


def sized_engine(
    network: Network, x: Tensor, y: Tensor, method: str, most: int, asked: int | None = None
) -> tuple[Engine, int]:
    """Return the engine, and how many records it differentiates at once: ``asked``, or as many as memory
    bears (what made-up records take is measured), but ``most`` at most.
    """
    if asked:
        return make_engine(network, x, y, method, asked), network.agree(asked)
    engine = make_engine(network, x, y, method, _PART)
    chunk = _bearable_chunk(engine, x, y, most)
    while isinstance(engine, GhostEngine) and chunk > _PART and not _passed.get():
        try:
            records = make_up_records(network, x, y, chunk, 1.0)
            with _following():
                _check_many(engine, points(network)[1], *records)
            break
        except torch.OutOfMemoryError:
            chunk //= 2
        except UnsupportedError as error:
            if method != "auto" or network.sharded:
                raise
            engine = _vmap_instead(network, error, x, y)
            chunk = _bearable_chunk(engine, x, y, most)
    return engine, network.agree(chunk)


def _bearable_chunk(engine: Engine, x: Tensor, y: Tensor, most: int) -> int:
    """Return how many records memory bears, by what a few made-up ones take and what others take more."""
    few, more = (min(most, count) for count in _TRIED)
    if few == more:
        return most
    device = engine.network.device
    try:
        taken = [_bytes(engine, *make_up_records(engine.network, x, y, count, 1.0)) for count in (few, more)]
    except torch.OutOfMemoryError:
        return few
    each = max(1.0, (taken[1] - taken[0]) / (more - few))
    room = float(_ON_CPU)
    if device.type == "cuda":
        used = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        room = _FULL * (torch.cuda.mem_get_info(device)[0] + used) - 4 * _VECTORS * engine.network.size
    chunk = max(1, min(most, int((room - taken[0]) / each) + few))
    # a loop takes as long for half the records
    loops = any(isinstance(layer, nn.RNNBase) for layer in engine.network.model.modules())
    if device.type == "cuda" and chunk > _MANY[1] and not loops and not engine.network.sharded:
        return min(chunk, _modest_chunk(engine, x, y, most))
    return chunk


def _modest_chunk(engine: Engine, x: Tensor, y: Tensor, most: int) -> int:
    """Return how many records take at most ``_PLAIN`` times the memory of a plain step on ``most``."""
    network, grown = engine.network, list[float]()
    try:
        for measure in (partial(_bytes, engine), partial(_plain_bytes, network)):
            few, many = (measure(*make_up_records(network, x, y, count, 1.0)) for count in _MANY)
            grown.append(max(1.0, many - few))
    except torch.OutOfMemoryError:
        return _MANY[0]
    return max(_MANY[1], int(_PLAIN * most * grown[1] / grown[0]))


def _peak(device: torch.device, action: Callable[[], Any]) -> float:
    """Return the memory of a GPU that an action takes."""
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    action()
    return float(torch.cuda.max_memory_allocated(device) - before)


def _plain_bytes(network: Network, x: Tensor, y: Tensor) -> float:
    """Return the memory that an ordinary backward pass over some records takes on a GPU."""
    vector = network.flat().requires_grad_()
    with torch.enable_grad():
        params = network.unflatten(vector)
        return _peak(
            network.device,
            lambda: torch.autograd.grad(network.losses(network.outputs(params, x), y).sum(), vector),
        )


def _bytes(engine: Engine, x: Tensor, y: Tensor) -> float:
    """Return the memory that some records take: measured on a GPU, elsewhere by what autograd keeps."""
    network = engine.network
    if network.device.type == "cuda":
        return _peak(network.device, lambda: engine.clipped_sum(network.flat(), x, y, 1.0))
    kept: dict[Any, int] = {}

    def note(value: Tensor) -> Tensor:
        kept[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        return value

    params = {name: part.requires_grad_() for name, part in network.unflatten(network.flat()).items()}
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
        network.losses(network.outputs(None if network.sharded else params, x), y)
    rows = 4.0 * len(x) * network.size if isinstance(engine, VmapEngine) else 0.0
    return _SLOPES * (sum(kept.values()) + rows)


def _ghost_or_vmap(
    network: Network, x: Tensor, y: Tensor, method: str, chunk: int
) -> GhostEngine | VmapEngine:
    """Return ghost norms if they pass the checks; ``auto`` takes vmap otherwise."""
    engine = GhostEngine(network)
    try:
        with _following():
            _check(engine, x, y, chunk)
    except torch.OutOfMemoryError:
        raise InvalidInputError(
            f"Expected fewer records at once: {chunk} do not fit into the memory of the device. Pass a "
            "smaller chunk_size; the answer is the same."
        ) from None
    except UnsupportedError as error:
        if method != "auto":
            raise
        return _vmap_instead(network, error, x, y)
    if unknown := engine.unknown():
        warnings.warn(
            f"{_slow_ones(unknown)} Their gradients, and only theirs, are computed by vmap, which runs the "
            "model a second time. Use operations that have a rule (products, convolutions, tables, norms, "
            "sums), or freeze them.",
            SlowEngineWarning,
            stacklevel=3,
        )
    return engine


def _check_own_seed(engine: GhostEngine | VmapEngine, x: Tensor, y: Tensor) -> None:
    """Refuse a model or a loss that draws from a seed of its own: everybody knows what it draws.

    A draw then depends on the record's place in a block: without the first record all others get another.
    """
    vector = points(engine.network)[1]

    def rows(seed: int, turn: int) -> Tensor:
        with seeded_draws(seed), torch.enable_grad():
            made = engine.per_record(vector, x.roll(turn, 0), y.roll(turn, 0))
        return made.roll(-turn, 0).nan_to_num()

    model = engine.network.model
    for dropout in (nullcontext(), quiet_dropout(model)) if find_dropout(model) else (nullcontext(),):
        with dropout:
            first = rows(1, 0)
            norm = engine.network.norm
            drawn, placed = (float(norm(rows(*other) - first)) for other in ((2, 0), (1, 1)))
        size = float(norm(first))
        if drawn <= _SAME * size and placed > _reach(engine.network) * len(x) * size:
            raise UnsupportedError(
                "The model or the loss draws from a seed of its own: a record's gradient depends on its "
                "place in a batch, whatever torch is seeded with. Let it draw from torch's own generator, "
                "whose seed is hidden in each step."
            )


@contextmanager
def _following() -> Iterator[None]:
    """Turn what torch says about a model that cannot be followed into a refusal."""
    try:
        with torch.enable_grad():  # whatever the caller has around it
            yield
    except (UnsupportedError, torch.OutOfMemoryError):
        raise
    except AttributeError as error:  # nodes of autograd's graph have no public face
        raise UnsupportedError(
            f"Ghost clipping reads the graph that autograd keeps, and torch {torch.__version__} keeps it "
            f"otherwise ({error.name!r} is not there).{_REMEDY}"
        ) from None
    except RuntimeError as error:
        raise UnsupportedError(
            f"Ghost clipping cannot follow this model; torch says: {str(error)[:200]}.{_REMEDY}"
        ) from None


def _slow_ones(unknown: dict[str, str]) -> str:
    ways = "; ".join(f"{name!r} by {kind.removesuffix('Backward0')}" for name, kind in unknown.items())
    return f"Some parameters enter the model by an operation without a rule of its own: {ways}."


def _vmap_instead(network: Network, error: UnsupportedError, x: Tensor, y: Tensor) -> VmapEngine:
    """Return the slow engine, and say that it stands in, and why."""
    engine = _check_vmap(VmapEngine(network, str(error).removesuffix(_REMEDY)), x, y)
    warnings.warn(
        f"{engine.reason} Gradients are computed by vmap over the whole model instead, which takes longer "
        "and holds one gradient for each record. Change what is named, or pass engine='vmap' if it is meant.",
        SlowEngineWarning,
        stacklevel=4,
    )
    return engine


def engine_notes(engine: Engine) -> tuple[str, ...]:
    """Return what a report says about how gradients were computed."""
    used = f"gradients by {engine.method}"
    inner = engine.inner if isinstance(engine, FilledEngine) else engine
    if isinstance(inner, GhostEngine) and inner.unknown():
        return (f"{used}; {_slow_ones(inner.unknown())} Theirs are computed by vmap.",)
    reason = inner.reason if isinstance(inner, VmapEngine) else ""
    return (f"{used}, not by ghost norms: {reason}",) if reason else (used,)


def _check(engine: GhostEngine, x: Tensor, y: Tensor, chunk: int) -> None:
    """Compare on batches of several sizes and magnitudes, at the initial parameters and away from them."""
    network = engine.network
    vectors = points(network)
    for count, size, point in _BATCHES:
        _compare(engine, vectors[point], *make_up_records(network, x, y, count, size))
    a, b = uneven(network, x, y)
    with quiet_dropout(network.model), torch.no_grad():  # a model may overflow at the large one
        finite = bool(network.loss_of_one(vectors[1], a[-1], b[-1]).isfinite())
    _compare(engine, vectors[1], *((a, b) if finite else (a[:-1], b[:-1])))
    if not set(network.names) - set(engine.unknown()):
        raise UnsupportedError(f"{_slow_ones(engine.unknown())}{_REMEDY}")
    _check_mode(engine, vectors[1], *make_up_records(network, x, y, 3, 1.0))
    _check_many(engine, vectors[1], *make_up_records(network, x, y, max(2, chunk), 1.0))


def _check_mode(engine: GhostEngine, vector: Tensor, x: Tensor, y: Tensor) -> None:
    """Compare in the mode of the model, with its dropout: the same draws, one backward pass per record."""
    network, draws = engine.network, same_draws()
    engine.clipped_sum(vector, x, y, 1.0)  # what it needs to know of this mode is found now
    with draws:
        rows = engine.per_record(vector, x, y)

    def losses() -> Tensor:
        with engine.taken_apart():
            outputs = network.outputs(None, x)
        return network.losses(outputs, y)

    with draws:
        each = engine.backward(vector, losses)
    known = torch.tensor([name not in engine.unknown() for name in network.names], device=vector.device)
    apart = (rows - each) * known.repeat_interleave(torch.tensor(network.sizes, device=vector.device))
    if not float(network.norm(apart)) <= _reach(network) * len(x) * float(network.norm(each)):
        raise UnsupportedError(_disagreement(network, apart))


def _check_many(engine: GhostEngine, vector: Tensor, x: Tensor, y: Tensor) -> None:
    """Refuse when a batch of the size that will be used gives other outputs or gradients than its parts.

    Gradients of the first records, the last, and some between count, without a clip to hide them.
    """
    network, params = engine.network, engine.network.unflatten(vector)
    some = torch.linspace(0, len(x) - 1, _PART, device=x.device).long()
    ends = torch.arange(_PART, device=x.device).clamp(max=len(x) - 1)
    chosen = torch.cat([ends, some, len(x) - 1 - ends]).unique()
    present = torch.zeros(len(x), device=x.device).index_fill_(0, chosen, 1.0)
    with quiet_dropout(network.model):
        with torch.no_grad():
            whole = network.outputs(params, x)
            each = max(_PART, math.isqrt(len(x)))
            parts = torch.cat([network.outputs(params, part) for part in x.split(each)])
        _same_as_parts(network, "outputs", whole, parts, len(x))
        total = engine.clipped_sum(vector, x, y, LARGEST_CLIP, present) / network.copies
        cut = chosen.tensor_split(max(1, len(chosen) // _PART))  # no record is left over alone
        sums = torch.stack([engine.whole(vector, x[part], y[part]) for part in cut]).sum(dim=0)
    _same_as_parts(network, "gradients", total, sums, len(x))


def _same_as_parts(network: Network, what: str, whole: Tensor, parts: Tensor, count: int) -> None:
    alike = whole.shape == parts.shape
    apart = network.norm(whole - parts) if alike else math.inf
    if not float(apart) <= _reach(network) * float(network.norm(parts)):
        raise UnsupportedError(
            f"The {what} of {count} records together are others than of a few at a time: the model mixes "
            f"records.{_REMEDY}"
        )


def _check_vmap(engine: VmapEngine, x: Tensor, y: Tensor) -> VmapEngine:
    """Run once on made-up records: what cannot be differentiated fails before a budget is spent."""
    records = make_up_records(engine.network, x, y, 3, 1.0)
    try:
        engine.clipped_sum(engine.network.flat(), *records, 1.0)
    except RuntimeError as error:
        kinds = sorted({type(m).__name__ for m in engine.network.model.modules()})
        first = f"{engine.reason} Nor can it be taken apart by vmap: " if engine.reason else ""
        raise UnsupportedError(
            f"{first}torch.func.vmap cannot differentiate this model record by record; among its layers "
            f"({', '.join(kinds)}) is one without a batching rule. torch says: {str(error)[:200]}"
        ) from None
    return engine


def _compare(engine: GhostEngine, vector: Tensor, x: Tensor, y: Tensor) -> None:
    """Refuse when the batch gives other gradients than its records alone, or than copies of one record: there
    the same kernels run, so the precision of products plays no part.
    """
    network, moved = engine.network, 0.0
    with quiet_dropout(network.model):
        alone = torch.cat([engine.backward(vector, partial(_loss_of, network, *one)) for one in zip(x, y)])
        norms = network.norm(alone, dim=1)
        clip = float(norms.median().clamp_min(1e-6))
        got, factors = engine.clipped(vector, x, y, clip)
        got = got / network.copies
        want = (alone * factors[:, None]).nan_to_num().sum(dim=0)
        rows = engine.per_record(vector, x, y)
        if _reach(network) > _TOLERANCE:
            copies = engine.per_record(vector, x[:1].expand_as(x).clone(), y[:1].expand_as(y).clone())
            moved = float(network.norm((rows[0] - copies[0]).nan_to_num()))
    size = norms.norm()
    moved = moved / float(size.clamp_min(1e-30))
    shares = (factors / (clip / norms).clamp(max=1)).nan_to_num(1.0)
    unfair = max(float(shares.max()) - 1, 1 - _LOST - float(shares.min()))
    # where products round, sums may be apart by what of the clip was lost to that which rounding may hide
    lost = float((1 - shares.clamp(1 - _LOST, 1)).sum()) if _reach(network) > _TOLERANCE else 0.0
    far, formed = float(network.norm(got - want)) / clip, float(network.norm(rows - alone) / size)
    apart = max(far - lost, formed - lost, unfair)
    if apart <= _reach(network) * len(x) and moved <= _TOLERANCE * len(x):
        return
    if not bool(norms.isfinite().all()):
        raise UnsupportedError(
            "Gradients on made-up records (numbers of both signs, and targets from 0 to 1) are not finite, "
            f"so ghost norms cannot be compared. Let logarithms and roots bear any number.{_REMEDY}"
        )
    raise UnsupportedError(_disagreement(network, rows - alone))


def _reach(network: Network) -> float:
    """Return how far two ways to the same gradient may be apart, by the precision in force."""
    if network.precision is not torch.float32 or network.halves:
        return 0.1
    return _TOLERANCE + _ROUNDINGS * forward_inputs(network.device)


def _disagreement(network: Network, difference: Tensor) -> str:
    """Name the parameter that is furthest off, and a setting that may be the cause."""
    parts = difference.split(network.sizes, dim=1)
    worst = max(zip(parts, network.names, strict=True), key=lambda part: float(part[0].nan_to_num().norm()))
    around = torch.is_autocast_enabled(network.device.type)
    coarse = forward_inputs(network.device) > 0 or network.precision is not torch.float32 or around
    setting = (
        ", or products that round their inputs (torch.set_float32_matmul_precision, TF32, autocast, "
        "precision=) round too far for it: try 'highest' and torch.float32"
    )
    return (
        "Ghost clipping does not agree with one backward pass per record for this model, least of all at the "
        f"parameter {worst[1]!r}: it mixes records, or makes something of this parameter that is not followed"
        f"{setting if coarse else ''}.{_REMEDY}"
    )


def _loss_of(network: Network, x: Tensor, y: Tensor) -> Tensor:
    return network.loss(network.outputs(None, x[None]), y[None]).sum()[None]
