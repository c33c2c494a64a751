"""All records are looked at before a budget is booked: one that failed in a step would tell of itself."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from sordino.errors import InvalidInputError, SordinoError, UnsupportedError
from sordino.execute.draws import Seeding, noting_seeds, seeded_draws
from sordino.execute.processes import fingerprint
from sordino.execute.torch import TorchExecutor
from sordino.kernel.arrays import Ints
from sordino.nn.made_up import made_up
from sordino.nn.network import Network, quiet_dropout
from sordino.nn.state import losses_alone

_SEED = 5387  # public: what is drawn here is thrown away
_AGAIN = 32  # items of a data set that are read a second time, in another order
_MANY = 1 << 16  # records in memory that are looked at at once
_LABELS = 1000  # distinct class numbers that are tried one by one
_BOOKED = "Nothing was booked."
_UNREAD = "one cannot be read, or has another shape than the first"


def check_records(executor: TorchExecutor, network: Network, example: tuple[Tensor, Tensor]) -> int:
    """Refuse records that cannot be read, that are drawn by a known generator, or that a model cannot bear.

    Returns a number for all records in their order, by which processes compare what they hold; 0 for one
    process alone.
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
        """Look at some records."""
        parts = [part.int() if part.dtype is torch.bool else part for part in (x, y)]
        least, largest = [p.amin(0) for p in parts], [p.amax(0) for p in parts]
        self.least = list(map(torch.minimum, least, self.least or least))
        self.largest = list(map(torch.maximum, largest, self.largest or largest))
        if not y.is_floating_point() and y.dim() == 1:
            found = y.unique() if self.labels is None else torch.cat([self.labels, y.unique()]).unique()
            self.labels = found[torch.linspace(0, len(found) - 1, min(len(found), _LABELS)).long()]
        if marked:
            self.marks.append(fingerprint([x.cpu(), y.cpu()]))

    def ends(self, part: int, kind: torch.dtype) -> Tensor:
        """Return two rows of the inputs (0) or targets (1): one of the largest numbers, one of the least."""
        return torch.stack([self.largest[part], self.least[part]]).to(kind)


def _check_borne(
    executor: TorchExecutor, network: Network, example: tuple[Tensor, Tensor], seen: _Seen
) -> None:
    """Refuse records on which the model or the loss fails; most often a class or a token out of range.

    The ends of what all records hold are tried in made-up records; only if these fail, the records too.
    """
    near = _on_processor(network)
    x, y = made_up(near, *example, 2, 1.0)
    if not _bears(near, x, y):
        return  # the processor cannot run this model: nothing is found out here
    labels = seen.ends(1, y.dtype) if seen.labels is None else seen.labels.cpu()
    inputs = x if x.is_floating_point() else seen.ends(0, x.dtype).cpu()
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


def _on_processor(network: Network) -> Network:
    """Return a network that may fail: on a GPU a class number out of range ends the whole process."""
    if network.device.type == "cpu":
        return network
    near, loss = copy.copy(network), copy.deepcopy(network.loss)
    object.__setattr__(near, "model", copy.deepcopy(network.model).cpu())
    object.__setattr__(near, "loss", loss.cpu() if isinstance(loss, nn.Module) else loss)
    return near


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
            return TorchExecutor.batch(executor, rows)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        kind = str(error) if isinstance(error, SordinoError) else type(error).__name__
    raise InvalidInputError(  # outside of the handler: the foreign error may quote records
        f"The data set failed on some records ({kind}): {_UNREAD}. What it said is not shown. {_BOOKED}"
    )


def _check_draws(executor: TorchExecutor) -> None:
    """Refuse a data set that draws from a generator which cannot be found, or that remembers records.

    Found generators are given a hidden seed in each step. Of others somebody may know the seed: when a record
    leaves, all later ones would be drawn otherwise, and what they add is another.
    """
    count = executor.records_held
    some = np.unique(np.linspace(0, count - 1, min(count, _AGAIN)).astype(np.int64))
    first = {i: _read(executor, np.array([i]), _SEED) for i in some}
    for i in some[::-1]:
        again = _read(executor, np.array([i]), _SEED)
        if any(not _same(a, b) for a, b in zip(first[i], again, strict=True)):
            raise UnsupportedError(
                "The data set gives an item other numbers when it is read again, from generators that were "
                "given the same seed: it draws from one that is not among its attributes, or remembers what "
                "was read. Keep generators in attributes (self.generator), or draw in augment=. " + _BOOKED
            )
    _check_seeds(executor, some)


def _check_seeds(executor: TorchExecutor, rows: Ints) -> None:
    """Refuse a data set that seeds a generator to read an item, most often with the number of the item.

    When a record leaves, all later ones have other numbers: they would be drawn otherwise. A generator that
    stands at one place after reads from two hidden seeds was seeded in between.
    """
    for i in rows:
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


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
