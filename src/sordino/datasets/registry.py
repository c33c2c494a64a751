"""The types of the registry: one frozen row per data set, and nothing that reads a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sordino.errors import InvalidInputError


@dataclass(frozen=True)
class DataFile:
    """One file of a data set.

    Parameters
    ----------
    part : str
        What the file holds: ``"train"``, ``"test"``, ``"labels"`` (of both, or ``"train-labels"``),
        ``"vocabulary"``, or ``"archive"`` for all of it.
    name : str
        Its name in the data set's folder.
    sha256, md5 : str or None
        The digest of what the addresses deliver. MD5 stands where no SHA-256 is published: it tells
        a damaged file from a whole one, not a forged one.
    urls : tuple of str
        Public addresses, tried in turn. Empty: nobody serves the file in this format.
    copies : tuple of str
        SHA-256 of known copies with the same contents in another packing.
    """

    part: str
    name: str
    sha256: str | None = None
    md5: str | None = None
    urls: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()

    @property
    def digest(self) -> tuple[str, str] | None:
        """The algorithm and the digest that a download must have, or None where none is known."""
        if self.sha256 is not None and self.urls:
            return "sha256", self.sha256
        return None if self.md5 is None else ("md5", self.md5)

    def serves(self, part: str) -> bool:
        """Return whether reading a part (train, test, vocabulary) takes this file."""
        if self.part in ("archive", part):
            return True
        if self.part == "labels":
            return part in ("train", "test")
        return self.part == f"{part}-labels"

    @property
    def known_sha256(self) -> frozenset[str]:
        """Every SHA-256 under which this file is known to be whole."""
        return frozenset(self.copies) | ({self.sha256} if self.sha256 else frozenset())


@dataclass(frozen=True)
class Form:
    """A set of files that holds the whole data set, and the parser that reads it.

    A form with a ``converter`` is not read itself: it is turned once into the files of the row's
    first form, which are kept in the cache.
    """

    parser: str
    files: tuple[DataFile, ...]
    note: str = ""
    converter: str | None = None

    def needed(self, part: str) -> tuple[DataFile, ...]:
        """Return the files that reading a part takes."""
        return tuple(file for file in self.files if file.serves(part))


@dataclass(frozen=True)
class DatasetRow:
    """What is known of a data set: files, shapes, terms of use, whom to cite, how to read it.

    ``train_shape`` and ``test_shape`` count the columns as the files hold them; a loader that
    encodes or flattens says so in its own documentation.
    """

    name: str
    loader: str
    title: str
    task: str
    train_shape: tuple[int, ...]
    test_shape: tuple[int, ...] | None
    forms: tuple[Form, ...]
    licence: str
    citation: str
    source: str
    description: str
    target_names: tuple[str, ...] = ()
    folder: str = ""

    @property
    def directory(self) -> str:
        """The name of the data set's folder."""
        return self.folder or self.name

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits a loader can return."""
        return ("train", "test", "all") if self.test_shape else ("train", "all")

    @property
    def n_features(self) -> int:
        """The number of columns."""
        return self.train_shape[1]

    def shape_of(self, part: str) -> tuple[int, ...]:
        """Return the shape of a part."""
        return self.train_shape if part == "train" or not self.test_shape else self.test_shape

    def files(self) -> Iterator[DataFile]:
        """Walk over the files of every form."""
        for form in self.forms:
            yield from form.files

    def describe(self) -> str:
        """Return the description that a loaded data set carries as ``DESCR``."""
        test = f", test {_times(self.test_shape)}" if self.test_shape else ""
        lines = [
            self.title,
            "=" * len(self.title),
            "",
            self.description,
            "",
            f"Task: {self.task}.",
            f"Shape: train {_times(self.train_shape)}{test}.",
            f"Licence: {self.licence}",
            f"Source: {self.source}",
            f"Citation: {self.citation}",
        ]
        return "\n".join(lines)


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(f"{n:,}" for n in shape)


class Registry:
    """The rows by name."""

    def __init__(self, *rows: DatasetRow) -> None:
        self._rows = {row.name: row for row in rows}

    def __getitem__(self, name: str) -> DatasetRow:
        try:
            return self._rows[name]
        except KeyError:
            known = ", ".join(self._rows)
            raise InvalidInputError(f"There is no data set {name!r}. Choose one of: {known}.") from None

    def __iter__(self) -> Iterator[DatasetRow]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, name: object) -> bool:
        return name in self._rows
