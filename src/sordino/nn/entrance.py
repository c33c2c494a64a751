"""All records are looked at before a budget is booked: one that failed in a step would tell of itself."""

from __future__ import annotations

import copy
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sordino.errors import InvalidInputError, SordinoError, UnsupportedError
from sordino.execute.draws import Seeding, noting_seeds, seeded_draws
from sordino.execute.processes import fingerprint
from sordino.execute.torch import TorchExecutor
from sordino.kernel.arrays import Ints
from sordino.nn.network import Network, forward_inputs, make_up_records, points, quiet_dropout, same_draws
from sordino.nn.operations import read_graph

_PLAIN = (bool, int, float, complex, str, bytes)


def check_stateless(network: Network, x: Tensor, y: Tensor) -> None:
    """Refuse a model, or a loss, whose state changes when it is called.

    On made-up records, autograd on: no attribute of a module is another afterwards, and a record gives the
    same loss before and after others were seen.
    """
    vector, draws = network.flat().requires_grad_(), same_draws()
    kept = vector.detach().clone()
    modules = [("model", network.model), ("loss", network.loss)]
    _loss(network, draws, vector, x, y)  # what a model makes once, it makes of these public records
    before = dict(_states(modules))
    first = _loss(network, draws, vector, x[:1], y[:1])
    for _ in range(3):
        _loss(network, draws, vector, x[1:], y[1:])
    again = _loss(network, draws, vector, x[:1], y[:1])
    for where, seen in _states(modules):
        if where not in before or not _same_state(before[where], seen):
            raise UnsupportedError(_refusal_words(f"changes {where!r}"))
    if not _same_state(kept, vector):
        raise UnsupportedError(_refusal_words("changes parameters"))
    if not _same_state(first, again):
        raise UnsupportedError(_refusal_words("gives a record another loss after it has seen others"))


def _refusal_words(what: str) -> str:
    return (
        f"The forward pass {what}: it remembers records, and no clip bounds what one of them leaves behind. "
        "Compute such numbers from public data and keep them fixed (a buffer that forward only reads)."
    )


def _loss(network: Network, draws: same_draws, vector: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return the losses of some records, with the same random draws each time."""
    params = network.unflatten(vector)
    with draws, torch.enable_grad():
        losses = torch.stack(losses_alone(network, network.outputs(params, x), y))
        # hooks of the backward pass may remember; whether it works is seen later
        with suppress(RuntimeError):
            network.gradient(losses.sum(), params)
    return losses.detach()


def losses_alone(network: Network, outputs: Tensor, y: Tensor) -> list[Tensor]:
    """Return the losses of some outputs, each without the others."""
    return [network.loss(outputs[i : i + 1], y[i : i + 1]).sum() for i in range(len(y))]


def _states(modules: list[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the name and a copy of every tensor and plain value that the modules hold."""
    for title, module in modules:
        if not isinstance(module, nn.Module):
            continue
        for name, layer in module.named_modules():
            for key, value in {**vars(layer), **layer._buffers}.items():
                if not key.startswith("_forward") and not key.startswith("_backward"):
                    yield ".".join(filter(None, (title, name, key))), _copy(value)


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        local: Any = value.detach()
        return (local.to_local() if hasattr(local, "to_local") else local).clone()
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, value))
    if isinstance(value, (list, tuple, deque)):
        return [_copy(one) for one in value]
    if isinstance(value, dict):
        return {key: _copy(one) for key, one in value.items() if not isinstance(one, nn.Module)}
    return value if isinstance(value, _PLAIN) or value is None else type(value)


def _same_state(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        alike = isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape
        return alike and bool(((a == b) | ((a != a) & (b != b))).all())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same_state, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same_state(a[key], b[key]) for key in a)
    return bool(a == b) or (a != a and b != b)


# of the outputs: the same operations on the same numbers differ by their rounding only, which may be coarse
_APART, _COARSELY = 0.01, 0.1
_UNLIKE = 1e-3


def try_out(network: Network, x: Tensor, y: Tensor) -> None:
    """Refuse what fails, remembers records or reads untrained parameters, by shapes and types alone."""
    records = make_up_records(network, x, y, 4, 1.0)
    try:
        check_stateless(network, *records)
    except (SordinoError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise InvalidInputError(
            f"Expected a model and a loss for inputs of shape {tuple(x.shape[1:])} and type {x.dtype}, and "
            f"targets of shape {tuple(y.shape[1:])} and type {y.dtype}, several records at once and one "
            f"alone. On made-up ones they fail; torch says: {type(error).__name__}: {str(error)[:200]} "
            "(Class numbers are int64. A model in bfloat16 needs precision=torch.bfloat16, or model.float(). "
            "squeeze(-1) keeps the axis of the records.)"
        ) from None
    with quiet_dropout(network.model):
        _check_alone(network, records[0])
        _check_own_parameters(network, *records)
        _check_attributes(network, records[0])
        _say_of_whole_batches(network, *records)


def _check_alone(network: Network, x: Tensor) -> None:
    """Refuse a model whose outputs are numbers for several records only: each alone would count zero."""
    params = network.unflatten(points(network)[1])
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        several, alone = (bool(network.outputs(params, part).isfinite().all()) for part in (x, x[:1]))
    if several and not alone:
        raise UnsupportedError(
            "The outputs of the model are finite for several records and not for one alone: it takes a "
            "deviation, or another statistic, over a batch. A record's gradient must not depend on others. "
            "Compute the statistic from public data and keep it fixed (a buffer that forward only reads), or "
            "take it over the features of each record."
        )


def _check_own_parameters(network: Network, x: Tensor, y: Tensor) -> None:
    """Refuse a forward pass that reaches trainable parameters which are not those of the model."""
    parts = network.unflatten(points(network)[1])
    params = {name: part.detach().requires_grad_() for name, part in parts.items()}
    with torch.enable_grad():
        total = torch.stack(losses_alone(network, network.outputs(params, x), y)).sum()
    params = network.leaves(params)
    own = {id(value) for value in params.values()}
    nodes = [] if total.grad_fn is None else read_graph(total.grad_fn, params).nodes
    leaves = (getattr(node, "variable", None) for node in nodes)
    if any(isinstance(leaf, nn.Parameter) and id(leaf) not in own for leaf in leaves):
        raise UnsupportedError(
            "The loss depends on trainable parameters that are not the model's, and they would never be "
            "trained. Layers in a list belong into nn.ModuleList, weights of a loss into the model. A "
            "function that was made in __init__ (a lambda, a hook) still holds the module that this one was "
            "copied from: make it a method. Freeze what stays as it is (requires_grad_(False))."
        )


def _check_attributes(network: Network, x: Tensor) -> None:
    """Refuse a model that reads parameters otherwise than as attributes: it would see the initial ones."""
    if network.sharded or any(p.dtype is not torch.float32 for p in network.model.parameters()):
        return  # shards are gathered into attributes; outputs of another type are other outputs
    start, moved = network.flat(), points(network)[1]
    draws = same_draws()
    with torch.no_grad():
        with draws:
            called = network.outputs(network.unflatten(moved), x)
        network.load(moved, network.model)
        try:
            with draws:
                held = network.outputs(None, x)
        finally:
            network.load(start, network.model)
    around = torch.is_autocast_enabled(network.device.type) or network.precision is not torch.float32
    share = _COARSELY if around or forward_inputs(network.device) > 0 else _APART
    called, held = called.nan_to_num(), held.nan_to_num()
    if called.shape == held.shape and not float((called - held).norm()) <= share * float(held.norm()):
        raise UnsupportedError(
            "The model reads some of its parameters otherwise than as attributes (out of a list or a "
            "dictionary), so it would be trained with their initial values there. Read self.name, or keep "
            "them in nn.ParameterList or nn.ParameterDict."
        )


def _say_of_whole_batches(network: Network, x: Tensor, y: Tensor) -> None:
    """Warn of a loss that is not the sum, or the mean, of the losses of its records."""
    with torch.no_grad():
        outputs = network.outputs(network.unflatten(points(network)[1]), x)
        each = torch.stack(losses_alone(network, outputs, y))
        try:
            whole = network.loss(outputs, y).sum()
        except Exception:  # a loss for single records is a loss
            return
    criterion: Any = getattr(network.loss, "loss", network.loss)
    if getattr(criterion, "ignore_index", -1) >= 0 or not bool(each.isfinite().all() & whole.isfinite()):
        return
    reach = _UNLIKE * float(each.abs().sum())
    adds_up = any(abs(float(each.sum() / n - whole)) <= reach / n for n in (1, len(each)))
    plain = isinstance(criterion, (nn.CrossEntropyLoss, nn.NLLLoss))
    if not adds_up or (plain and criterion.weight is not None and criterion.reduction == "mean"):
        warnings.warn(
            "The loss of several records is neither the sum nor the mean of their losses. It is called on "
            "one record at a time, so what compares records is lost, and weights of classes cancel in a mean "
            "over one record: use reduction='sum', or a loss that is a sum over records.",
            UserWarning,
            stacklevel=5,
        )


_SEED = 5387  # public: what is drawn here is thrown away
_AGAIN = 32  # items of a data set that are read a second time, in another order
_MANY = 1 << 16  # records in memory that are looked at at once
_LABELS = 1000  # distinct class numbers that are tried one by one
_BOOKED = "Nothing was booked."
_UNREAD = "one cannot be read, or has another shape than the first"


def check_records(executor: TorchExecutor, network: Network, example: tuple[Tensor, Tensor]) -> int:
    """Refuse records that cannot be read, that are drawn by a known generator, or that a model cannot bear;
    return a number for them all in their order, by which processes compare what they hold.
    """
    if not isinstance(executor.data, tuple):
        _check_draws(executor)
    seen = _Seen()
    for x, y in _blocks(executor, _MANY if isinstance(executor.data, tuple) else executor.chunk):
        if (x.shape[1:], y.shape[1:]) != (example[0].shape[1:], example[1].shape[1:]):
            raise InvalidInputError(f"Expected records of one shape, got several: {_UNREAD}. {_BOOKED}")
        if not all(bool(part.isfinite().all()) for part in (x, y) if part.is_floating_point()):
            raise InvalidInputError(f"Expected finite inputs and targets, got nan or inf. {_BOOKED}")
        seen.add(x, y, executor.processes is not None)
    _check_borne(executor, network, example, seen)
    return hash(tuple(seen.marks))


@dataclass(eq=False)
class _Seen:
    """The least and the largest numbers of all records, place by place, and their class numbers."""

    least: list[Tensor] = field(default_factory=list)
    largest: list[Tensor] = field(default_factory=list)
    labels: Tensor | None = None
    marks: list[int] = field(default_factory=list)

    def add(self, x: Tensor, y: Tensor, marked: bool) -> None:
        parts = [part.int() if part.dtype is torch.bool else part for part in (x, y)]
        least, largest = [p.amin(0) for p in parts], [p.amax(0) for p in parts]
        self.least = list(map(torch.minimum, least, self.least or least))
        self.largest = list(map(torch.maximum, largest, self.largest or largest))
        if not y.is_floating_point() and y.dim() == 1:
            found = y.unique() if self.labels is None else torch.cat([self.labels, y.unique()]).unique()
            self.labels = found[torch.linspace(0, len(found) - 1, min(len(found), _LABELS)).long()]
        if marked:
            self.marks.append(fingerprint([x.cpu(), y.cpu()]))


def _check_borne(
    executor: TorchExecutor, network: Network, example: tuple[Tensor, Tensor], seen: _Seen
) -> None:
    """Refuse records on which the model or the loss fails, by the ends of all, then by themselves."""
    near = network
    if network.device.type != "cpu" and not network.sharded:
        # on a GPU a class number out of range ends the whole process
        near, loss = copy.copy(network), copy.deepcopy(network.loss)
        object.__setattr__(near, "model", copy.deepcopy(network.model).cpu())
        object.__setattr__(near, "loss", loss.cpu() if isinstance(loss, nn.Module) else loss)
    x, y = make_up_records(near, *example, 2, 1.0)
    if not _bears(near, x, y):
        return  # the processor cannot run this model: nothing is found out here
    ends = [torch.stack(both).cpu() for both in zip(seen.largest, seen.least, strict=True)]
    labels = ends[1].to(y.dtype) if seen.labels is None else seen.labels.cpu()
    inputs = x if x.is_floating_point() else ends[0].to(x.dtype)
    repeated = x[:1].expand(len(labels), *x.shape[1:])
    if _bears(near, inputs, y) and _bears(near, repeated, labels.to(y.device, y.dtype)):
        return
    if not all(_bears(near, a.cpu(), b.cpu()) for a, b in _blocks(executor, executor.chunk)):
        raise InvalidInputError(
            "The model or the loss fails on some records: a class number that the outputs do not have, a "
            "token outside of the vocabulary, a target out of the range of the loss. Compare them with the "
            f"outputs and the tables of the model. {_BOOKED}"
        )


def _bears(network: Network, x: Tensor, y: Tensor) -> bool:
    try:
        with torch.no_grad(), quiet_dropout(network.model), seeded_draws(_SEED):
            losses_alone(network, network.outputs(None, x), y)
    except torch.OutOfMemoryError:
        raise
    except Exception:
        return False
    return True


def _blocks(executor: TorchExecutor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield all records, plain ones where views of them are trained on, drawn from a public seed."""
    rows = np.arange(executor.records_held)
    for start in range(0, len(rows), size):
        if isinstance(executor.data, tuple):
            yield tuple(part[start : start + size] for part in executor.data)
        else:
            yield _read(executor, rows[start : start + size], _SEED + start)


def _read(
    executor: TorchExecutor, rows: Ints, seed: int, seen: Seeding | None = None
) -> tuple[Tensor, Tensor]:
    watched = nullcontext() if seen is None else noting_seeds(seen, executor.held)
    try:
        with seeded_draws(seed, executor.held), watched:
            return executor.plain_batch(rows)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        kind = str(error) if isinstance(error, SordinoError) else type(error).__name__
    raise InvalidInputError(  # outside of the handler: the foreign error may quote records
        f"The data set failed on some records ({kind}): {_UNREAD}. What it said is not shown. {_BOOKED}"
    )


def _check_draws(executor: TorchExecutor) -> None:
    """Refuse a data set that draws from a generator which cannot be found, that seeds one, or that remembers.

    Found generators get a hidden seed in each step. Of others somebody may know the seed, most often the
    number of the item: when a record leaves, all later ones would be drawn otherwise.
    """
    count = executor.records_held
    some = np.unique(np.linspace(0, count - 1, min(count, _AGAIN)).astype(np.int64))
    first = {i: _read(executor, np.array([i]), _SEED) for i in some}
    for i in some[::-1]:
        if not all(map(_same_state, first[i], _read(executor, np.array([i]), _SEED))):
            raise UnsupportedError(
                "The data set gives an item other numbers when it is read again, from generators that were "
                "given the same seed: it draws from one that is not among its attributes, or remembers what "
                "was read. Keep generators in attributes (self.generator), or draw in augment=. " + _BOOKED
            )
    for i in some:
        seen = Seeding()
        for seed in (_SEED, _SEED + 1):
            _read(executor, np.array([i]), seed, seen)
        if seen.named or any(a == b for a, b in zip(*seen.ends, strict=True)):
            named = ", ".join(sorted(seen.named)) or "seed"
            raise UnsupportedError(
                f"The data set seeds a generator to read an item ({named}): "
                "what it draws is known, and drawn otherwise when the place of the record changes because "
                "another leaves. Draw from the generators of torch, NumPy or Python, or from one in an "
                "attribute, and seed none: they have a hidden seed in each step. " + _BOOKED
            )
