"""Tensors, data sets and loaders, as the records of an executor, and random views of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from sordino.errors import InvalidInputError, InvalidTypeError, SordinoError, UnsupportedError
from sordino.execute.draws import generator_states, held_generators, reachable_objects, seeded_draws
from sordino.execute.persons import Owners
from sordino.execute.processes import Processes
from sordino.execute.torch import TorchExecutor, Views, saturate
from sordino.kernel import public_generator
from sordino.values import refuse_unreadable

_LABELS = ("labels", "label", "targets")
_TOKENS = ("input_ids", "decoder_input_ids")


@dataclass(frozen=True)
class Fields:
    """The names, shapes and types of a model's inputs by keyword; a record is one row of all of them."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    kinds: tuple[torch.dtype, ...]

    @classmethod
    def of(cls, inputs: Mapping[str, Any]) -> Fields:
        """Read the names and shapes off some records."""
        parts = {name: torch.as_tensor(value) for name, value in inputs.items()}
        floating = {part.is_floating_point() for part in parts.values()}
        lengths = {len(part) for part in parts.values()}
        if len(floating) != 1 or len(lengths) != 1:
            raise InvalidInputError(
                f"Expected inputs {list(parts)} that are all whole numbers or all not, one row for each "
                "record. Wrap the model in a module that takes one tensor."
            )
        shapes = tuple(part.shape[1:] for part in parts.values())
        return cls(tuple(parts), shapes, tuple(part.dtype for part in parts.values()))

    def pack(self, inputs: Mapping[str, Any]) -> Tensor:
        """Return one row for each record."""
        if tuple(inputs) != self.names:
            raise InvalidInputError(f"Expected the inputs {list(self.names)}, got {list(inputs)}.")
        kind = torch.float32 if self.kinds[0].is_floating_point else torch.int64
        parts = [saturate(torch.as_tensor(value).detach(), kind) for value in inputs.values()]
        wrong = [n for n, p, s in zip(self.names, parts, self.shapes, strict=True) if p.shape[1:] != s]
        if wrong:
            raise InvalidInputError(
                f"Expected {wrong[0]!r} of one shape in all records: pad to a public length."
            )
        return torch.cat([part.flatten(1) for part in parts], dim=1)

    def unpack(self, rows: Tensor) -> dict[str, Tensor]:
        """Return the inputs by name."""
        parts = rows.split([shape.numel() for shape in self.shapes], dim=1)
        kinds = zip(self.names, parts, self.shapes, self.kinds, strict=True)
        return {name: part.reshape(len(rows), *shape).to(kind) for name, part, shape, kind in kinds}

    def public(self, rows: Tensor, words: int, few: int, full: bool) -> Tensor:
        """Return made-up rows that a model can read: masks end unless full, places count, types are few."""
        parts = rows.split([shape.numel() for shape in self.shapes], dim=1)
        kinds = zip(self.names, parts, self.kinds, strict=True)
        made = [_readable(*one, words if one[0] in _TOKENS else few, full) for one in kinds]
        return torch.cat(made, dim=1)


def _readable(name: str, part: Tensor, kind: torch.dtype, limit: int, full: bool) -> Tensor:
    if kind.is_floating_point:
        return part
    places = torch.arange(part.shape[1], device=part.device).expand_as(part)
    if "mask" in name or kind is torch.bool:  # record i keeps all but i places, at least one
        gone = torch.arange(len(part), device=part.device)[:, None] % part.shape[1]
        return (places < part.shape[1] - (0 if full else gone)).to(part.dtype)
    return places.to(part.dtype) if "position" in name else part % limit


def split_labels(item: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Return the inputs and the labels of a record, or of several, that is one mapping."""
    found = [name for name in _LABELS if name in item]
    if len(found) != 1:
        raise InvalidInputError(f"Expected one of {list(_LABELS)} among the inputs, got {list(item)}.")
    return {name: value for name, value in item.items() if name != found[0]}, item[found[0]]


_LARGEST = 512  # records at once on a processor, where more gain nothing
_OF_PERSONS = 4096  # nobody says how many records some persons have


@dataclass(frozen=True, eq=False)
class Source:
    """Where the records come from, with the shape of one of them, and who owns them if not each its own.

    ``inputs`` are the arrays as they were passed, and ``batch`` is the batch size of a loader.
    """

    data: Any
    example: tuple[Tensor, Tensor]
    collate: Any = None
    fields: Fields | None = None
    owners: Owners | None = None
    views: Views | None = None
    inputs: tuple[Any, ...] = ()
    batch: int | None = None

    @property
    def grouped(self) -> bool:
        """Whether a unit has several rows, whose gradients are added up before the clip."""
        return self.owners is not None or self.views is not None

    @property
    def population(self) -> int:
        """The number of records, or of their owners."""
        return self._records if self.owners is None else self.owners.persons

    @property
    def _records(self) -> int:
        return len(self.data[0]) if isinstance(self.data, tuple) else len(self.data)

    @property
    def kind(self) -> str:
        """What records look like, by the shape and the type of the first: text, image or tabular."""
        if not self.example[0].is_floating_point():
            return "text"
        shapes = [self.example[0].shape[1:]] if self.fields is None else self.fields.shapes
        return "image" if max(map(len, shapes)) > 1 else "tabular"

    def shares(self, other: Source) -> bool:
        """Tell whether some of these records are records of another source: as objects, or in memory.

        A copy is recognised as a whole only: who looked for single records could ask who is among them.
        """
        if not isinstance(self.data, tuple) or not isinstance(other.data, tuple):
            return share_items(self.data, other.data)
        pairs = list(zip(self.inputs, other.inputs, strict=False))
        alike = self.data[0].shape == other.data[0].shape and self.data[0].device == other.data[0].device
        return all(overlap(a, b) for a, b in pairs) or (alike and torch.equal(self.data[0], other.data[0]))

    def with_owners(self, groups: Any) -> Source:
        """Return these records with the owner of each; None leaves each on its own."""
        return self if groups is None else replace(self, owners=Owners.of(groups, self._records))

    def executor(
        self,
        device: torch.device,
        chunk: int,
        device_noise: bool,
        processes: Processes | None = None,
        made_up: tuple[Tensor, Tensor] | None = None,
    ) -> TorchExecutor:
        kinds = (self.example[0].dtype, self.example[1].dtype)
        owners = self.owners if self.views is None else self.views.owners(self.owners, self._records)
        filler = tuple(part[:1] for part in made_up or ())
        settings = (self.collate, kinds, processes, owners, self.views, filler)
        return TorchExecutor(self.data, device, chunk, device_noise, *settings)

    def most(self, batch: int, device: torch.device) -> int:
        """Return how many records are differentiated at once where memory bears it: a batch, mostly whole."""
        whole = _OF_PERSONS if self.grouped else min(batch + 4 * math.isqrt(batch) + 4, self._records)
        return whole if device.type == "cuda" else min(whole, _LARGEST)


_OF_ALL = (
    "RandomSampler", "SequentialSampler", "DistributedSampler", "SeedableRandomSampler",
    "UniformWithReplacementSampler", "DistributedUniformWithReplacementSampler",
)  # fmt: skip
_NAMED = "Several inputs have names: ({'a': a, 'b': b}, target) calls the model with these keywords."


def source_of(data: Any, targets: Any = None) -> Source:
    """Read (inputs, targets), a data set, a list of records, or a loader; inputs may be named tensors.

    Of a loader the data set, the way to collate and the batch size are used: batches are drawn by the
    curator, each record independently. A ``collate_fn`` is called on single records.
    """
    if isinstance(data, Source):
        return data
    if isinstance(data, Mapping):
        data = (data, targets) if targets is not None else split_labels(data)
    elif targets is not None:
        data = (data, targets)
    if isinstance(data, (Tensor, np.ndarray)):
        raise InvalidInputError("Expected targets besides the inputs, got none. Pass fit(inputs, targets).")
    if isinstance(data, torch.utils.data.DataLoader):
        batch, collate = _batch_of(data), data.collate_fn
        plain = (torch.utils.data.default_collate, torch.utils.data.default_convert)  # the latter: no batches
        return replace(_of_set(data.dataset, None if collate in plain else collate), batch=batch)
    pair = isinstance(data, list) and len(data) == 2 and not isinstance(data[0], (tuple, Mapping))
    return _of_tensors(data) if pair or isinstance(data, tuple) else _of_set(data, None)


def _batch_of(loader: Any) -> int | None:
    """Return the batch size of a loader, of all records alike: here one probability draws them all."""
    batches = loader.batch_sampler
    while hasattr(batches, "batch_sampler"):  # of accelerate
        batches = batches.batch_sampler
    kind = type(getattr(batches, "sampler", loader.sampler if batches is None else batches)).__name__
    if kind not in _OF_ALL and not isinstance(loader.dataset, torch.utils.data.IterableDataset):
        raise UnsupportedError(
            f"Expected a loader that draws from all records alike, got one with a {kind}: batches are drawn "
            "by the curator, so records that it leaves out would be trained on, and weights be lost. Pass "
            "the records that count, for example torch.utils.data.Subset(dataset, indices)."
        )
    return getattr(batches, "batch_size", None)


def _of_set(data: Any, collate: Any) -> Source:
    """Return the source of a data set, or of the items of a loader."""
    if isinstance(data, torch.utils.data.TensorDataset) and collate is None:
        return _of_tensors(data.tensors)
    if isinstance(data, tuple):
        data = list(data)  # a tuple would be read as a pair of tensors
    stream = isinstance(data, torch.utils.data.IterableDataset)
    if stream or not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise InvalidInputError(
            f"Expected (inputs, targets), a data set or a loader, got {type(data).__name__}. Batches are "
            "drawn at random, so records need numbers: read a stream into a list of records first."
        )
    if not len(data):
        raise InvalidInputError("Expected at least one record, got an empty data set.")
    with seeded_draws(0, held_generators(data, collate)):  # the data set's own generators go on unmoved
        return _of_items(data, collate)


def share_items(one: Any, other: Any) -> bool:
    """Tell whether two data sets have an item in common: an entry of lists, or a number of one data set."""
    first, second = (_items(data) for data in (one, other))
    return not first.isdisjoint(second)


def _items(data: Any) -> set[Any]:
    if isinstance(data, torch.utils.data.Subset):
        return {(id(data.dataset), int(i)) for i in data.indices}
    if isinstance(data, list):
        return {id(one) for one in data}
    return {(id(data), i) for i in range(len(data) if hasattr(data, "__len__") else 1)}


def overlap(a: Any, b: Any) -> bool:
    """Tell whether two arrays have some of their memory in common."""
    if isinstance(a, Tensor) and isinstance(b, Tensor) and not a.device == b.device == torch.device("cpu"):
        return a.data_ptr() == b.data_ptr()
    first, second, most = _as_array(a), _as_array(b), 100_000
    try:
        return first is not None and second is not None and np.shares_memory(first, second, cast(Any, most))
    except np.exceptions.TooHardError:
        return True


def _as_array(one: Any) -> np.ndarray | None:
    if not isinstance(one, Tensor):
        return one if isinstance(one, np.ndarray) else None
    kind = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(one.element_size())
    plain = kind is not None and one.device.type == "cpu" and one.layout is torch.strided
    return one.detach().view(kind).numpy() if plain else None


def _of_items(data: Any, collate: Any) -> Source:
    """Return the source of a data set that is read item by item; a record may have several named inputs."""
    collate_one = torch.utils.data.default_collate if collate is None else collate

    def pair_of(items: list[Any]) -> Any:
        made = collate_one(items)
        return split_labels(made) if isinstance(made, Mapping) else made

    first = pair_of([data[0]])
    if not isinstance(first, (tuple, list)) or len(first) != 2:
        raise InvalidInputError(
            "Expected records that are pairs of inputs and targets, or mappings with labels; the first is "
            f"something else. Wrap the data set in one that returns pairs. {_NAMED}"
        )
    if isinstance(first[0], Mapping):
        fields = Fields.of(first[0])

        def packed(items: list[Any]) -> tuple[Tensor, Tensor]:
            inputs, labels = pair_of(items)
            return fields.pack(inputs), torch.as_tensor(labels)

        return Source(data, packed([data[0]]), packed, fields)
    if not all(isinstance(part, Tensor) for part in first):
        raise InvalidTypeError(f"Expected records of tensors, arrays or numbers, got others. {_NAMED}")
    return Source(data, (single(first[0]), single(first[1])), collate)


def _of_tensors(data: Any) -> Source:
    if len(data) != 2:
        raise InvalidInputError(
            f"Expected two tensors, inputs and targets, got {len(data)}. {_NAMED} Weights of records belong "
            "into the targets, where the loss reads them."
        )
    inputs: Any = data[0]
    count = len(next(iter(inputs.values()), ()) if isinstance(inputs, Mapping) else inputs)
    if not count or count != len(data[1]):
        raise InvalidInputError("Expected two non-empty tensors of the same length: inputs and targets.")
    fields = Fields.of(inputs) if isinstance(inputs, Mapping) else None
    x, y = _tensor(inputs if fields is None else fields.pack(inputs)), _tensor(data[1])
    for name, part in (("inputs", x), ("targets", y)):
        if part.is_floating_point() and not bool(torch.isfinite(part).all()):
            raise InvalidInputError(f"Expected finite {name}, got nan or inf in some of them.")
    given = (inputs,) if fields is None else tuple(inputs.values())
    return Source((x, y), (x[:1], y[:1]), None, fields, inputs=given)


def _tensor(part: Any) -> Tensor:
    refuse_unreadable(part)
    if isinstance(part, Tensor):
        if part.layout is not torch.strided or part.is_complex():
            raise InvalidTypeError(
                "Expected dense real tensors, got others. Call to_dense() or view_as_real()."
            )
        return single(part.detach())
    try:
        return single(torch.from_numpy(np.require(part, requirements=("C", "W"))))
    except (TypeError, ValueError):
        kind = type(part).__name__
    raise InvalidTypeError(  # outside of the handler: the foreign error may quote the data
        f"Expected tensors or arrays of numbers as inputs and targets, got a {kind} of something else. "
        "Encode texts with a public vocabulary; make a torch.utils.data.Dataset of a list of records."
    )


def single(values: Tensor) -> Tensor:
    """Return float64 numbers as float32, and others as they are."""
    return saturate(values, torch.float32) if values.dtype == torch.float64 else values


# -------------------------------- Augmentation: random views of a record, whose mean gradient is clipped once

_SEED = 6199  # public
# Which made-up records are viewed together: all, alone, in another order, others before and after.
_BLOCKS = ((0, 1, 2, 3, 4), (0,), (4, 0), (2, 3, 0, 1), (1,), (0,), (3, 2), (4,), (0, 1, 2, 3, 4))
_BY_ITSELF = (
    "augment gives a record another view from the same numbers: it draws by itself, or remembers other "
    "records. It may use its record and the numbers it is given, as many as its attribute draws says."
)


@dataclass(frozen=True)
class Shifts:
    """Images moved by up to ``reach`` pixels (the last two axes), mirrored at the edges; with ``flips`` also
    left to right every other time: right for photographs, wrong for digits.
    """

    reach: int = 4
    flips: bool = False
    draws: int = 3

    def __post_init__(self) -> None:
        if self.reach < 0 or self.draws != 3:
            raise InvalidInputError(f"Expected reach >= 0 and draws = 3, got {self.reach} and {self.draws}.")

    def __call__(self, image: Tensor, numbers: Tensor) -> Tensor:
        """Return one view of one image."""
        if image.dim() < 2 or min(image.shape[-2:]) <= self.reach:
            raise InvalidInputError(
                f"Expected images of height and width above {self.reach}, got shape {tuple(image.shape)}. "
                "Reshape the records to (channels, height, width)."
            )
        step = torch.floor(numbers[:2] * (2 * self.reach + 1)).long() - self.reach
        for axis, by in ((-2, step[0]), (-1, step[1])):
            side = image.shape[axis]
            # moved, and mirrored at the ends
            places = (torch.arange(side, device=image.device) + by).abs()
            image = torch.index_select(image, axis, side - 1 - (side - 1 - places).abs())
        return torch.where(numbers[2] < 0.5, image.flip(-1), image) if self.flips else image


@dataclass(frozen=True, eq=False)
class MeanOfViews:
    """The loss of one view: so many of them add up to the mean over the views of a record."""

    loss: Callable[[Tensor, Tensor], Tensor]
    count: int

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.loss(outputs, targets) / self.count


def views_of(augment: Any, multiplicity: int, source: Source) -> Views | None:
    """Return the views that were asked for, tried on made-up records; None without augmentation."""
    if augment is None:
        if multiplicity != 1:
            raise InvalidInputError(
                f"Expected multiplicity 1 without augment, got {multiplicity}: the views would be the same. "
                "Pass augment=Shifts()."
            )
        return None
    draws = getattr(augment, "draws", None)
    if not callable(augment) or not isinstance(draws, int):
        raise InvalidTypeError(
            "Expected augment as a function of (record, numbers) with an integer attribute draws that says "
            f"how many numbers it needs, got {type(augment).__name__}. Shifts() is one."
        )
    views = Views(augment, draws, multiplicity)
    _check_alone(views, source.example[0])
    if holds_records(augment, source):
        raise UnsupportedError(
            "augment holds the records it is to make views of: a view would mix other records into one, "
            "and no clip bounds that. Let it hold public values only."
        )
    return views


def _check_alone(views: Views, example: Tensor) -> None:
    """Refuse an augmentation that draws by itself, or whose view of a record depends on other records."""
    public, held = public_generator(_SEED), held_generators(views.make)
    shape = (_BLOCKS[0][-1] + 1, *example.shape[1:])
    rows = torch.from_numpy(public.uniform(0, 2, shape)).to(example)
    numbers = torch.from_numpy(public.uniform(0, 1, (len(rows), views.draws))).to(example.device).float()
    first: dict[int, Tensor] = {}
    for turn, block in enumerate(_BLOCKS):
        with seeded_draws(_SEED + turn, held):
            before = generator_states(held)
            made = _view(views, rows[list(block)], numbers[list(block)])
            if generator_states(held) != before:
                raise UnsupportedError(_BY_ITSELF)
        if made.shape != (len(block), *example.shape[1:]):
            raise InvalidInputError("Expected views of the shape of a record, got another from augment.")
        if made.is_floating_point() and not bool(made.isfinite().all()):
            raise InvalidInputError(
                "Expected finite views, got nan or inf from augment on made-up records between 0 and 2. A "
                "record whose views are not finite adds nothing to the training."
            )
        for row, view in zip(block, made, strict=True):
            if not torch.allclose(first.setdefault(row, view), view, rtol=1e-4, atol=1e-5, equal_nan=True):
                raise UnsupportedError(_BY_ITSELF)


def _view(views: Views, rows: Tensor, numbers: Tensor) -> Tensor:
    try:
        made: Any = views.made(rows, numbers)
        if isinstance(made, Tensor):
            return made
        said = f"a {type(made).__name__} came back, no tensor."
    except SordinoError:
        raise
    except (RuntimeError, ValueError, TypeError) as error:
        said = str(error)[:200]
    raise UnsupportedError(
        f"augment cannot be mapped over records one by one (torch.func.vmap); torch says: {said} It may draw "
        "nothing by itself: it is given numbers, as many as its attribute draws says."
    )


def holds_records(function: Any, source: Source) -> bool:
    """Tell whether a function holds the records as they are.

    Found are the data set itself, and arrays that share the memory of its tensors or equal them as a whole.
    Some of the records, the same in another order, in a list, scaled, or a mean of them are not found.
    """
    parts = source.data if isinstance(source.data, tuple) else ()
    for one in reachable_objects(function):
        array = torch.from_numpy(one) if isinstance(one, np.ndarray) and one.dtype.kind in "fiu" else one
        alike = isinstance(array, Tensor) and (
            any(overlap(one, part) for part in (*source.inputs, *parts))
            or any(array.shape == part.shape and torch.equal(array.to(part), part) for part in parts)
        )
        if one is source.data or alike:
            return True
    return False
