"""The registry: what is known of each data set, read from ``registry.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from types import MappingProxyType
from typing import Any

from sordino.tables import Category, Number, Schema


@dataclass(frozen=True)
class DataFile:
    """One file of a data set: which part it holds, its name, and what its bytes must be.

    ``sha256`` or ``md5`` is the digest of what ``urls`` deliver; ``copies`` are the SHA-256 of the same
    contents in another packing. Without ``urls`` nobody serves the file in this format.
    """

    part: str
    name: str
    sha256: str | None = None
    md5: str | None = None
    urls: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()

    @property
    def digest(self) -> str | None:
        """What a download must hash to, ``algorithm:digest``, or None where none is known."""
        if self.sha256 is not None:
            return f"sha256:{self.sha256}"
        return None if self.md5 is None else f"md5:{self.md5}"


@dataclass(frozen=True)
class Target:
    """One of several things to predict: other classes than the file's, or a column of numbers.

    ``positive`` counts the first and the last of the file's classes that become 1.
    """

    classes: tuple[str, ...] | None = None
    positive: tuple[int, int] | None = None
    number: str | None = None


@dataclass(frozen=True)
class Dataset:
    """A row of the registry: files, shapes, terms of use, whom to cite, how to read it."""

    name: str
    title: str
    task: str
    shapes: Mapping[str, tuple[int, ...]]
    format: str
    licence: str
    citation: str
    source: str
    description: str
    files: tuple[DataFile, ...] = ()
    folder: str = ""
    note: str = ""
    classes: tuple[str, ...] = ()
    targets: Mapping[str, Target] = field(default_factory=dict)
    schema: Schema | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_image(self) -> bool:
        """Whether a record is an array of pixels."""
        return len(self.shapes["train"]) > 2

    def describe(self) -> str:
        """Return the text that a loaded data set carries as ``DESCR``."""
        shapes = [f"{part} {' x '.join(f'{n:,}' for n in shape)}" for part, shape in self.shapes.items()]
        facts = {
            "Task": f"{self.task}.",
            "Shape": ", ".join(shapes) + ".",
            "Licence": self.licence,
            "Source": self.source,
            "Citation": self.citation,
        }
        head = [self.title, "=" * len(self.title), "", self.description, ""]
        return "\n".join(head + [f"{key}: {value}" for key, value in facts.items()])


def _frozen(value: Any) -> Any:
    """Turn the lists of TOML into tuples."""
    if isinstance(value, dict):
        return {key: _frozen(entry) for key, entry in value.items()}
    return tuple(_frozen(entry) for entry in value) if isinstance(value, list) else value


def _column(name: str, *declared: Any) -> Number | Category:
    """Return a column as the papers encode it: lines, and nothing for what is missing or not declared."""
    if isinstance(declared[0], str):
        return Category(name, declared, missing="zero", other="zero")
    low, high, *options = declared
    missing = "column" if "missing" in options else "zero"
    return Number(name, low, high, missing=missing, knots=1, log="log" in options)


def _dataset(name: str, row: dict[str, Any]) -> Dataset:
    values = {"folder": name} | {key: _frozen(value) for key, value in row.items()}
    shapes = {part: values.pop(part) for part in ("train", "validation", "test") if part in values}
    values["files"] = tuple(DataFile(**file) for file in values.get("files", ()))
    values["targets"] = {key: Target(**target) for key, target in values.get("targets", {}).items()}
    if "columns" in values:
        values["schema"] = Schema(tuple(_column(*column) for column in values.pop("columns")))
    known = Dataset.__dataclass_fields__
    details = {key: value for key, value in values.items() if key not in known}
    own = {key: value for key, value in values.items() if key in known}
    return Dataset(name=name, shapes=shapes, details=details, **own)


def _read() -> dict[str, Dataset]:
    rows = tomllib.loads(resources.files("sordino.datasets").joinpath("registry.toml").read_text("utf-8"))
    # A row "like" another takes what it does not say itself from that one.
    whole = {name: {**rows.get(row.pop("like", ""), {}), **row} for name, row in rows.items()}
    return {name: _dataset(name, row) for name, row in whole.items()}


REGISTRY: Mapping[str, Dataset] = MappingProxyType(_read())
"""Every data set that :func:`sordino.datasets.load` can load, by name."""
