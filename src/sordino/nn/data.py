"""Tensors, data sets and loaders, as the records of an executor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sordino.errors import InvalidInputError, InvalidTypeError
from sordino.execute.draws import held_generators, seeded_draws
from sordino.execute.grouped import Owners
from sordino.execute.processes import Processes
from sordino.execute.torch import TorchExecutor, saturated
from sordino.execute.torch_persons import PersonExecutor
from sordino.execute.torch_views import ViewExecutor, Views
from sordino.nn.fields import Fields, packing, split_labels
from sordino.refusals import refuse_masked

_MEMORY = {"cpu": 1 << 28, "cuda": 1 << 31}  # numbers held at once per kind of device
_LARGEST = {"cpu": 512, "cuda": 4096}


@dataclass(frozen=True, eq=False)
class Source:
    """Where the records come from, with the shape of one of them, and who owns them if not each its own."""

    data: Any
    example: tuple[Tensor, Tensor]
    collate: Any = None
    fields: Fields | None = None
    owners: Owners | None = None
    views: Views | None = None

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

    def owned(self, groups: Any) -> Source:
        """Return these records with the owner of each; None leaves each on its own."""
        return self if groups is None else replace(self, owners=Owners.of(groups, self._records))

    def executor(
        self, device: torch.device, chunk: int, device_noise: bool, processes: Processes | None = None
    ) -> TorchExecutor:
        """Return the executor of these records."""
        kinds = (self.example[0].dtype, self.example[1].dtype)
        settings = (self.data, device, chunk, device_noise, self.collate, kinds, processes)
        if self.views is not None:
            owners = self.views.owners(self.owners, self._records)
            return ViewExecutor(*settings, owners=owners, views=self.views)
        if self.owners is None:
            return TorchExecutor(*settings)
        return PersonExecutor(*settings, owners=self.owners)

    def chunk(self, size: int, batch: int, device: torch.device) -> int:
        """Return how many records are differentiated at once; nobody says how many some persons have."""
        return default_chunk(size, batch if not self.grouped else _LARGEST["cuda"], device)


def source_of(data: Any, targets: Any = None) -> Source:
    """Read (inputs, targets), a data set, or a loader; inputs may be a mapping of named tensors.

    Of a loader only the data set and the way to collate are used: batches are drawn by the curator, each
    record independently, whatever sampler the loader has. A ``collate_fn`` is called on single records.
    """
    if isinstance(data, Mapping):
        data = (data, targets) if targets is not None else split_labels(data)
    elif targets is not None:
        data = (data, targets)
    if isinstance(data, (Tensor, np.ndarray)):
        raise InvalidInputError("Expected targets besides the inputs, got none. Pass fit(inputs, targets).")
    collate, loader = None, isinstance(data, torch.utils.data.DataLoader)
    if loader:
        data, collate = data.dataset, data.collate_fn
        plain = (torch.utils.data.default_collate, torch.utils.data.default_convert)  # the latter: no batches
        collate = None if collate in plain else collate
    if isinstance(data, torch.utils.data.TensorDataset) and collate is None:
        return _of_tensors(data.tensors)
    if isinstance(data, (tuple, list)) and not loader:
        return _of_tensors(data)
    if isinstance(data, tuple):
        data = list(data)  # the items of a loader: a tuple would be read as a pair of tensors
    stream = isinstance(data, torch.utils.data.IterableDataset)
    if stream or not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise InvalidInputError(
            f"Expected (inputs, targets), a data set or a loader, got {type(data).__name__}. Batches are "
            "drawn at random, so records need numbers: a stream has to be read into a list first."
        )
    if not len(data):
        raise InvalidInputError("Expected at least one record, got an empty data set.")
    with seeded_draws(0, held_generators(data, collate)):  # the data set's own generators go on unmoved
        return _of_items(data, collate)


def _of_items(data: Any, collate: Any) -> Source:
    """Return the source of a data set that is read item by item."""
    collate_one = torch.utils.data.default_collate if collate is None else collate
    made = collate_one([data[0]])
    if isinstance(made, Mapping):
        return _of_mappings(data, made, collate_one)
    if not isinstance(made, (tuple, list)) or len(made) != 2:
        raise InvalidInputError(
            "Expected records that are pairs of inputs and targets, or mappings with labels; the first is "
            "something else. Wrap the data set in one that returns pairs."
        )
    if isinstance(made[0], Mapping):
        return _of_mappings(data, made, collate_one)
    if not all(isinstance(part, Tensor) for part in made):
        raise InvalidTypeError("Expected records of tensors, arrays or numbers, got something else.")
    return Source(data, (single(made[0]), single(made[1])), collate)


def _of_mappings(data: Any, made: Any, collate: Any) -> Source:
    """Return the source of a data set whose records have several named inputs."""
    fields = Fields.of(split_labels(made)[0] if isinstance(made, Mapping) else made[0])
    packed = packing(collate, fields)
    return Source(data, packed([data[0]]), packed, fields)


def _of_tensors(data: Any) -> Source:
    if len(data) != 2 or _count(data[0]) != len(data[1]) or not len(data[1]):
        raise InvalidInputError("Expected two non-empty tensors of the same length: inputs and targets.")
    fields = Fields.of(data[0]) if isinstance(data[0], Mapping) else None
    x, y = _tensor(data[0] if fields is None else fields.pack(data[0])), _tensor(data[1])
    for name, part in (("inputs", x), ("targets", y)):
        if part.is_floating_point() and not bool(torch.isfinite(part).all()):
            raise InvalidInputError(f"Expected finite {name}, got nan or inf in some of them.")
    return Source((x, y), (x[:1], y[:1]), None, fields)


def _count(inputs: Any) -> int:
    return len(next(iter(inputs.values()), ())) if isinstance(inputs, Mapping) else len(inputs)


def _tensor(part: Any) -> Tensor:
    refuse_masked(part)
    if isinstance(part, Tensor) and (part.layout is not torch.strided or part.is_complex()):
        raise InvalidTypeError("Expected dense real tensors, got others. Call to_dense() or view_as_real().")
    return single(part.detach() if isinstance(part, Tensor) else _from_array(part))


def _from_array(part: Any) -> Tensor:
    try:
        return torch.from_numpy(np.require(part, requirements=("C", "W")))
    except (TypeError, ValueError):
        kind = type(part).__name__
    raise InvalidTypeError(  # outside of the handler: the foreign error may quote the data
        f"Expected tensors or arrays of numbers as inputs and targets, got a {kind} of something else. "
        "Encode texts with a public vocabulary; make a torch.utils.data.Dataset of a list of records."
    )


def single(values: Tensor) -> Tensor:
    """Return float64 numbers as float32, and others as they are."""
    return saturated(values, torch.float32) if values.dtype == torch.float64 else values


def default_chunk(size: int, batch: int, device: torch.device) -> int:
    """Return how many records of a model with ``size`` parameters are differentiated at once."""
    fits = _MEMORY.get(device.type, 1 << 28) // max(size, 1)
    return max(1, min(fits, _LARGEST.get(device.type, 512), batch + 4 * int(batch**0.5) + 4))
