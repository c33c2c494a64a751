"""The data as tensors, on the processor or on a GPU."""

from __future__ import annotations

import hashlib
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from sordino.errors import InvalidInputError, PlanError, SordinoError
from sordino.execute.draws import draw_apart, held_generators, hidden_draws, normals, seeded_draws
from sordino.execute.persons import Owners
from sordino.execute.processes import Processes
from sordino.kernel import Batch, Offer, Question
from sordino.kernel.arrays import Ints, Rows
from sordino.kernel.noise import NoiseSource, fresh_noise
from sordino.kernel.plan import exact_sum
from sordino.kernel.query import TensorChunks, TensorPersons, TensorShards

_POOL = 1 << 21
ON_DEVICE = "Gaussian noise expanded on the device by ChaCha20, with keys from that generator"


@dataclass(frozen=True, eq=False)
class TorchExecutor:
    """Records held as tensors, or as a map-style data set that is read batch by batch.

    Parameters
    ----------
    data : a pair of tensors (inputs, targets), or a data set with ``__len__`` and ``__getitem__``.
    device : where gradients are computed; a batch is moved there.
    chunk : how many records are differentiated at once; it changes the memory, not the answer.
    device_noise : expand the noise on the device (ChaCha20) instead of moving it there.
    collate : makes a pair of tensors from a list of items of a data set; it is given one item at a time, so
        that no record can reach another through it.
    kinds : types of inputs and targets; None takes those of each batch.
    processes : those that share the work of each release; None for this one alone.
    owners : who owns each record; then persons are the units. Those of about the same size are differentiated
        together, one with many records alone, part by part: memory does not grow with the largest person.
    views : random views, one of which stands for a record whenever it is read; ``owners`` then owns views:
        each record stands there as often as it has views.
    filler : a made-up record. It is tried at a few releases whose numbers are public: what fails there is
        said, while a record that fails is left out in silence.
    """

    data: Any = field(repr=False)
    device: torch.device
    chunk: int = 256
    device_noise: bool = False
    collate: Any = None
    kinds: tuple[torch.dtype, torch.dtype] | None = None
    processes: Processes | None = None
    owners: Owners | None = field(default=None, repr=False)
    views: Views | None = None
    filler: tuple[Tensor, ...] = field(default=(), repr=False)
    held: list[Any] = field(init=False, repr=False)
    _pool: NoisePool = field(init=False, repr=False)
    _secret: NoiseSource = field(init=False, repr=False)
    _draws: NoiseSource | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.chunk < 1:
            raise InvalidInputError(f"Expected a chunk of at least one record, got {self.chunk}.")
        owned = -1 if self.owners is None else len(self.owners.order)
        views = 1 if self.views is None else self.views.count
        if owned != self.records_held * views and (self.views is not None or self.owners is not None):
            raise PlanError("Expected the owner of each record, or of each view of one.")
        object.__setattr__(self, "_pool", NoisePool(self.device))
        object.__setattr__(self, "_secret", NoiseSource.from_os())
        object.__setattr__(self, "_draws", None if self.views is None else fresh_noise())
        found = [] if isinstance(self.data, tuple) else held_generators(self.data, self.collate)
        object.__setattr__(self, "held", found)

    @property
    def offer(self) -> Offer:
        """What queries may ask of records, or of persons."""
        if self.owners is None:
            return Offer("gradients", (TensorChunks,), lattice=True, doubles=False)
        return Offer("gradients of persons", (TensorPersons,), lattice=True, doubles=False)

    @property
    def population(self) -> int:
        """The number of records, or of their owners, declared public."""
        return self.records_held if self.owners is None else self.owners.persons

    @property
    def records_held(self) -> int:
        """The number of records, whoever owns them."""
        return len(self.data[0]) if isinstance(self.data, tuple) else len(self.data)

    def noisy_total(self, question: Question, batch: Batch, noise: NoiseSource) -> Tensor:
        """Return the sum over a batch with noise from here or from the device, for all processes."""
        with self.hidden(noise.is_private), torch.enable_grad():  # whatever the caller has around it
            value = self.summed(question, batch.rows(self.population))
        if question.spacing is None:
            tensors: Any = TensorNoise(noise, self.device, self._pool if self.device_noise else None)
            answer = question.noised(value, tensors)
        else:
            exact = torch.from_numpy(question.noised(value.cpu().numpy(), noise))
            answer = exact.to(self.device, torch.float32)
        return answer if self.processes is None else self.processes.shared(answer)

    def follow(self, question: Question) -> Tensor:
        """Add up this process's part of a question, and return what the first process has released."""
        assert self.processes is not None
        with self.hidden():
            self.summed(question, None)
        points = question.params if isinstance(question.params, tuple) else (question.params,)
        return self.processes.shared(torch.empty_like(points[0]))

    def summed(self, question: Question, drawn: Rows) -> Tensor:
        """Return the exact sum over some rows, here or by several processes; for what adds the noise only."""

        def evaluate(some: Rows, spacing: float | None) -> Tensor:
            def total(records: Any) -> Tensor:
                return exact_sum(question.query, records, question.params, spacing)

            if self.filler and not question.position & (question.position - 1):  # 0, 1, 2, 4, 8 ...
                self._try_made_up(total)
            rows = np.arange(self.population) if some is None else some
            return _bearable(lambda part: total(self.records(part)), rows)

        if self.processes is None:
            return evaluate(drawn, question.spacing)
        words, said = f"{type(question.query).__name__} {question.position}", (drawn, question.spacing)
        return self.processes.summed(words, question.params, said, self.population, evaluate)

    def _try_made_up(self, total: Callable[[Any], Tensor]) -> None:
        """Say what fails on the made-up record: it fails whatever the records are, and tells of none."""
        one = None if self.owners is None else Owners(np.arange(1), np.arange(2))
        owners = one if self.views is None else self.views.owners(one, 1)
        alone = replace(self, data=self.filler, collate=None, kinds=None, processes=None, owners=owners)
        try:
            with seeded_draws(0):  # public: dropout of the records draws as it would have
                total(alone.records(None))
        except (SordinoError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise InvalidInputError(
                f"The model, the loss or the device fails on a made-up record ({type(error).__name__}: "
                f"{str(error)[:200]}), and so on all records. The budget is spent."
            ) from None

    def hidden(self, private: bool = True) -> AbstractContextManager[None]:
        """Return a block in which others draw what nobody knows; with seeded noise, as they would."""
        return hidden_draws(self._secret) if private else nullcontext()

    def records(self, rows: Rows) -> Any:
        """Return some records, or those of some persons, part by part; for queries only."""
        units = np.arange(self.population) if rows is None else rows
        return TorchRecords(self, units) if self.owners is None else PersonRecords(self, self.owners, units)

    def batch(self, rows: Ints) -> tuple[Tensor, Tensor]:
        """Return the inputs (a view of each, where views are made) and targets of some rows on the device."""
        x, y = self.plain_batch(rows)
        if self.views is not None and self._draws is not None and len(x):
            x = self.views.of(x, self._draws)
        return x.contiguous(), y.contiguous()  # as made-up records are: other strides are other operations

    def plain_batch(self, rows: Ints) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of some rows as they are."""
        if isinstance(self.data, tuple):
            x, y = (part[torch.from_numpy(rows).to(part.device)].to(self.device) for part in self.data)
            return x, y
        with draw_apart(self.held):
            x, y = self._collate([self.data[i] for i in rows.tolist()])
        kinds = (x.dtype, y.dtype) if self.kinds is None else self.kinds
        if any(part.is_floating_point() and not kind.is_floating_point for part, kind in zip((x, y), kinds)):
            raise InvalidInputError(  # one such record would round the whole numbers of the others
                "Expected whole numbers as in the first record, got one with fractions. Cast all alike."
            )
        return saturate(x, kinds[0]).to(self.device), saturate(y, kinds[1]).to(self.device)

    def _collate(self, items: Sequence[Any]) -> tuple[Tensor, Tensor]:
        if self.collate is None:
            x, y = torch.utils.data.default_collate(items)
            return x, y
        pairs = [self.collate([item]) for item in items]
        shapes = {(tuple(x.shape), tuple(y.shape)) for x, y in pairs}
        if len(shapes) > 1 or any(len(x) != 1 or len(y) != 1 for x, y in pairs):
            raise InvalidInputError(
                "Expected a collate_fn that makes one row of one record, all of the same shape. It is called "
                "on single records: what it did to a whole batch could mix them. Pad to a public length."
            )
        return torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs])


def _bearable(total: Callable[[Any], Tensor], rows: Ints) -> Tensor:
    """Return the sum over the rows that a data set, a model and a loss can bear; others contribute zero.

    **Privacy.** An error in a step would tell that the record is in the batch: the rows are halved until it
    is alone, as for a gradient that is not finite.
    """
    try:
        return total(rows)
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        kind = type(error).__name__
    if not len(rows):  # outside of the handler: the foreign error would be its context
        raise InvalidInputError(
            f"The model or the device failed without a record ({kind}). The budget is spent."
        )
    if len(rows) == 1:
        return _bearable(total, rows[:0])
    half = len(rows) // 2
    return _bearable(total, rows[:half]) + _bearable(total, rows[half:])


def saturate(values: Tensor, kind: torch.dtype) -> Tensor:
    """Return numbers of another type; finite ones beyond its range become its largest, without a word."""
    if values.is_floating_point() and kind.is_floating_point:
        largest = torch.finfo(kind).max
        if torch.finfo(values.dtype).max > largest:
            values = torch.where(values.isfinite(), values.clamp(-largest, largest), values)
    return values.to(kind)


@dataclass(frozen=True, eq=False)
class TorchRecords:
    """The rows of one release, handed to a query chunk by chunk."""

    executor: TorchExecutor
    rows: Ints

    def chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (inputs, targets) of at most ``chunk`` records, in parts as even as can be."""
        parts = -(-len(self.rows) // self.executor.chunk)
        for part in np.array_split(self.rows, parts) if parts else ():
            yield self.executor.batch(part)


@dataclass(frozen=True, eq=False)
class TensorNoise:
    """The kernel's noise as float32 tensors: what mechanisms see in place of the source."""

    noise: NoiseSource
    device: torch.device
    pool: NoisePool | None = None

    def normal(self, shape: Any) -> Tensor:
        """Return standard normal variables on the device."""
        if self.pool is not None:
            return self.pool.take(self.noise, int(np.prod(tuple(shape)))).reshape(tuple(shape))
        drawn = self.noise.normal(tuple(shape))
        return torch.from_numpy(drawn).to(self.device, torch.float32)

    def subkey(self) -> int:
        """Draw the key of one vector."""
        return self.noise.subkey()

    def normal_of(self, key: int, shape: Any) -> Tensor:
        """Return the normal variables of a key, the same ones each time."""
        if self.pool is not None:
            words = np.frombuffer(hashlib.sha256(key.to_bytes(16, "little")).digest(), np.int32)
            return normals(torch.from_numpy(words.copy()).to(self.device), math.prod(shape)).reshape(shape)
        return torch.from_numpy(self.noise.normal_of(key, shape)).to(self.device, torch.float32)


class NoisePool:
    """Normals made on the device in large blocks, hundreds of small operations each, and handed out once.

    A new block has a fresh key of the source; it is thrown away when the source or the process is another.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._turn = device, threading.Lock()
        self._least = _POOL if device.type == "cuda" else 1
        self._owner: tuple[Any, int] = (None, -1)
        self._left = torch.empty(0)

    def take(self, noise: NoiseSource, count: int) -> Tensor:
        """Return ``count`` variables that nobody has seen."""
        with self._turn:
            if self._owner != (noise, os.getpid()) or len(self._left) < count:
                self._owner = (noise, os.getpid())
                words = noise.integers(2**32, 8).astype(np.uint32).view(np.int32)
                key = torch.from_numpy(words.copy()).to(self._device)
                self._left = normals(key, max(count, self._least))
            out, self._left = self._left[:count], self._left[count:]
        return out

    def __reduce__(self) -> NoReturn:
        raise PlanError("A pool of noise cannot be copied or pickled: noise used twice cancels.")


# Persons with more records than this run alone: an ordinary backward pass over so many is well used, and the
# matrices by which persons are told apart grow with the square of the records of one.
_TOGETHER = {"cpu": 32, "cuda": 256}


@dataclass(frozen=True, eq=False)
class PersonRecords:
    """The persons of one release, handed to a query block by block."""

    executor: TorchExecutor
    owners: Owners
    persons: Ints

    def blocks(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield (inputs, targets, present) of persons of about the same size."""
        sizes, chunk = self.owners.sizes(self.persons), self.executor.chunk
        places = _round_up(sizes)
        for wide in np.unique(places[places <= self._largest]):
            alike = self.persons[places == wide]
            count = max(1, chunk // int(wide))
            for start in range(0, len(alike), count):
                persons = alike[start : start + count]
                own, rows = self.owners.sizes(persons), self.owners.rows(persons)
                present = np.arange(wide) < own[:, None]
                # a place without a record holds the first one of the same person once more, and counts zero
                starts = (np.cumsum(own) - own)[:, None]
                place = np.where(present, starts + np.arange(wide), starts)
                x, y = self.executor.batch(rows[place.reshape(-1)])
                yield x, y, torch.from_numpy(present).to(self.executor.device, torch.float32)

    def long(self) -> Iterator[Iterator[tuple[Tensor, Tensor]]]:
        """Yield the persons with many records, each in parts."""
        places = _round_up(self.owners.sizes(self.persons))
        return self._alone(self.persons[places > self._largest])

    def each(self) -> Iterator[Iterator[tuple[Tensor, Tensor]]]:
        return self._alone(self.persons)

    def _alone(self, persons: Ints) -> Iterator[Iterator[tuple[Tensor, Tensor]]]:
        for person in persons:
            rows, chunk = self.owners.rows(np.array([person])), self.executor.chunk
            yield map(self.executor.batch, np.split(rows, range(chunk, len(rows), chunk)))

    @property
    def _largest(self) -> int:
        most = _TOGETHER.get(self.executor.device.type, 32)
        return max(1, min(most, self.executor.chunk // 2))


def _round_up(sizes: Ints) -> Ints:
    """Return the next of 1, 2, 3, 4, 6, 8, 12, ...: few shapes, at most half as many places again."""
    power = 2 ** np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)
    return np.where((sizes <= 3 * power // 4) & (power >= 4), 3 * power // 4, power)


_FINE = 1 << 24  # the numbers that views are made from are multiples of 1 / _FINE


@dataclass(frozen=True)
class Views:
    """So many random views of each record in each release: ``make(record, numbers)`` of ``draws`` numbers.

    It is called on one record at a time (``torch.func.vmap``): it cannot mix them, and may draw nothing.

    **Privacy.** What a view adds depends on its record and on numbers of its own from the kernel's generator.
    """

    make: Callable[[Tensor, Tensor], Tensor]
    draws: int
    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1 or self.draws < 0:
            raise InvalidInputError(
                f"Expected multiplicity >= 1 and draws >= 0, got {self.count} and {self.draws}."
            )

    def of(self, x: Tensor, noise: NoiseSource) -> Tensor:
        """Return one view of each row."""
        whole = noise.integers(_FINE, (len(x), self.draws)).astype(np.float32)
        return self.made(x, torch.from_numpy(whole / np.float32(_FINE)).to(x.device))

    def made(self, x: Tensor, numbers: Tensor) -> Tensor:
        """Return one view of each row from its row of numbers."""
        return vmap(self.make, randomness="error")(x, numbers)

    def owners(self, owners: Owners | None, records: int) -> Owners:
        """Return who owns the views, record by record or person by person."""
        if owners is None:
            owners = Owners(np.arange(records), np.arange(records + 1))
        return Owners(np.repeat(owners.order, self.count), owners.edges * self.count)


# ------------------- A model whose parameters are sharded over processes: every process runs the same passes


@dataclass(frozen=True, eq=False)
class ShardedExecutor(TorchExecutor):
    """Each process adds up its records of a batch in shards, and adds the noise of its own shard.

    The first process draws the batch, and a key of the noise for each shard; ``filler`` is a made-up record.

    **Privacy.** The shards of a sum are disjoint, and their keys are drawn anew by the first process's source
    for each release. So each entry of the sum gets its noise once, of the deviation of the whole release, and
    independent of all others: the answers side by side are the release of one process.
    """

    @property
    def offer(self) -> Offer:
        return Offer("gradients of shards", (TensorShards,), lattice=False, doubles=False)

    def records(self, rows: Rows) -> Any:
        assert self.processes is not None
        return ShardedRecords(self, np.arange(self.population) if rows is None else rows, self.processes)

    def noisy_total(self, question: Question, batch: Batch, noise: NoiseSource) -> Tensor:
        """Return this process's shard of the sum, with noise; say the batch and the keys to the others."""
        assert self.processes is not None
        keys = [noise.subkey() for _ in range(self.processes.count)]
        law = question.release.mechanism, question.sensitivity, noise.is_private
        return self._noisy_shard(question, (batch.rows(self.population), keys, *law))

    def follow(self, question: Question) -> Tensor:
        """Return this process's shard of the sum, with noise, by what the first process says."""
        return self._noisy_shard(question, None)

    def _noisy_shard(self, question: Question, said: Any) -> Tensor:
        processes = self.processes
        assert processes is not None
        same, (rows, keys, mechanism, sensitivity, private) = processes.hear(
            f"{type(question.query).__name__} {question.position}", said
        )
        with processes.amid_passes(same), self.hidden(private), torch.enable_grad():
            mine = self.records(processes.own(rows, self.population))
            value = exact_sum(question.query, mine, question.params, None)
        made = TensorNoise(self._secret, self.device, self._pool if self.device_noise else None)
        law = SimpleNamespace(normal=lambda shape: made.normal_of(keys[processes.rank], tuple(shape)))
        release = replace(question.release, mechanism=mechanism)
        return replace(question, release=release, sensitivity=sensitivity).noised(value, law)


@dataclass(frozen=True, eq=False)
class ShardedRecords:
    """One process's records of a release, in as many blocks as the process with most of them has."""

    executor: ShardedExecutor
    rows: Ints
    processes: Processes

    def blocks(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield (inputs, targets, present); a made-up record, which counts zero, fills empty places."""
        count = self.processes.most(-(-len(self.rows) // self.executor.chunk))
        for part in np.array_split(self.rows, count) if count else ():
            parts, size = list(self._readable(part)), self.executor.chunk
            filled = sum(len(x) for x, _ in parts)
            ends = [one.expand(size - filled, *one.shape[1:]) for one in self.executor.filler]
            x, y = (torch.cat([*(pair[i] for pair in parts), ends[i]]) for i in (0, 1))
            yield x, y, (torch.arange(size, device=x.device) < filled).float()

    @property
    def places(self) -> int:
        """The places of a block in all processes together."""
        return self.executor.chunk * self.processes.count

    def between(self, block: tuple[Tensor, ...], low: int, high: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return a block with made-up records outside of the places from ``low`` to ``high``."""
        x, y, present = block
        at = torch.arange(len(x), device=x.device) + self.processes.rank * len(x)
        kept = (low <= at) & (at < high)
        pairs = zip((x, y), self.executor.filler)
        parts = (torch.where(kept.view(-1, *[1] * (v.dim() - 1)), v, f) for v, f in pairs)
        return *parts, present * kept

    def is_finite(self, value: Tensor) -> bool:
        """Tell whether a sum is finite in all processes."""
        return not self.processes.most(int(not bool(value.isfinite().all())))

    def _readable(self, rows: Ints) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the records that can be read; one that fails contributes zero, as in a process alone."""
        try:
            found = self.executor.batch(rows)
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception:
            half = len(rows) // 2
            for part in (rows[:half], rows[half:]) if half else ():
                yield from self._readable(part)
        else:
            yield found
