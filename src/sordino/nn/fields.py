"""Records with several named inputs (token ids, masks), held side by side in one tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from sordino.errors import InvalidInputError
from sordino.execute.torch import saturated

_LABELS = ("labels", "label", "targets")
_TOKENS = ("input_ids", "decoder_input_ids")
Collate: TypeAlias = Callable[[list[Any]], Any]


@dataclass(frozen=True)
class Fields:
    """The names, shapes and types of the inputs of a model that is called with keywords.

    A record is one row: its inputs one after the other, so that batches, masks and chunks are cut the same
    way for all of them.
    """

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
        parts = [saturated(torch.as_tensor(value).detach(), kind) for value in inputs.values()]
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
        limits = [words if name in _TOKENS else few for name in self.names]
        made = zip(kinds, limits, strict=True)
        return torch.cat([_readable(*one, limit, full) for one, limit in made], dim=1)


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


def packing(
    collate: Callable[[list[Any]], Any], fields: Fields
) -> Callable[[list[Any]], tuple[Tensor, Tensor]]:
    """Return a way to collate that packs the inputs of the records."""

    def packed(items: list[Any]) -> tuple[Tensor, Tensor]:
        made = collate(items)
        inputs, labels = split_labels(made) if isinstance(made, Mapping) else made
        return fields.pack(inputs), torch.as_tensor(labels)

    return packed
