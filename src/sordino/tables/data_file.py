"""A file of records: where it is, how it is written, and our words for what its readers refuse."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sordino.errors import DataFileError, InvalidInputError, SordinoError, require_extra

T = TypeVar("T")
FORMATS = ("csv", "tsv", "parquet", "arrow", "npz", "libsvm")
_ENDINGS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".npz": "npz",
    ".svm": "libsvm",
    ".libsvm": "libsvm",
    ".svmlight": "libsvm",
}
_PACKED = (".gz", ".bz2", ".zst")
_FOLDER, _NOWHERE = "it is a folder. Pass a file.", "there is no such file."


@dataclass(frozen=True)
class DataFile:
    """Where records are and how they are written; everything here is public.

    Parameters
    ----------
    path : the file, or "-" for standard input.
    format : one of ``FORMATS``; None goes by the ending of the name, and is CSV for standard input.
    delimiter : of a CSV file; None is the most frequent of ``, ; tab |`` in the header.
    encoding : of the texts. Never guessed: one odd byte would change how all records are read.
    decimal : the decimal point of numbers, "." or ",".
    header : whether the first row holds the names of the columns; else they are given when reading.
    sure : whether somebody said so. Else a first row that holds a number is taken for a record and refused:
        its values would become names, in messages and in model files.
    features : how many columns a libsvm file has. Read from the file, one record would decide it.
    """

    path: str
    format: str | None = None
    delimiter: str | None = None
    encoding: str = "utf-8"
    decimal: str = "."
    header: bool = True
    sure: bool = False
    features: int | None = None
    _read: list[bytes] = field(default_factory=list, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise InvalidInputError(f"Expected format in {FORMATS}, got {self.format!r}.")
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise InvalidInputError(f"Expected a delimiter of one character, got {self.delimiter!r}.")
        if self.decimal not in (".", ","):
            raise InvalidInputError(f"Expected decimal '.' or ',', got {self.decimal!r}.")
        try:
            "".encode(self.encoding)
        except LookupError:
            raise InvalidInputError(f"The encoding {self.encoding!r} is not known. Try latin-1.") from None

    @property
    def name(self) -> str:
        """What messages call it."""
        return "standard input" if self.path == "-" else Path(self.path).name or self.path

    @property
    def kind(self) -> str:
        """The format, by declaration or by the ending of the name."""
        if self.format is not None:
            return self.format
        if self.path == "-":
            return "csv"
        path = Path(self.path)
        ending = (path.with_suffix("") if path.suffix.lower() in _PACKED else path).suffix.lower()
        if ending not in _ENDINGS:
            if path.is_dir() or not path.exists():
                raise self.refuse(_FOLDER if path.is_dir() else _NOWHERE)
            raise DataFileError(
                f"{self.name}: the ending {ending!r} does not say what it is. Pass the format, one of "
                f"{', '.join(FORMATS)}."
            )
        return _ENDINGS[ending]

    def refuse(self, why: str) -> DataFileError:
        """Return the error that names this file."""
        return DataFileError(f"{self.name}: {why}")

    def open(self) -> Any:
        """Return the bytes as a stream of Arrow, unpacked where the name says that they are packed."""
        if self.path != "-":
            packed = self.path.lower().endswith(_PACKED)
            return arrow().input_stream(self.path, compression="detect" if packed else None)
        if not self._read:
            self._read.append(sys.stdin.buffer.read())
        return io.BytesIO(self._read[0])


def in_words(file: DataFile, call: Callable[[], T]) -> T:
    """Return ``call()``; say what readers refuse in our words: theirs quote the data."""
    try:
        return call()
    except SordinoError:
        raise
    except UnicodeError:
        refusal = _encoding(file, "")
    except OSError as error:
        refusal = _trouble(file, error)
    except Exception as error:  # whatever a reader makes of a damaged file
        refusal = refused(file, str(error))
    raise refusal  # outside of the handlers: the foreign error would be its context


def _trouble(file: DataFile, error: OSError) -> DataFileError:
    words = {
        FileNotFoundError: _NOWHERE,
        IsADirectoryError: _FOLDER,
        PermissionError: "it may not be read by this user.",
    }
    known = words.get(type(error))
    return refused(file, str(error)) if known is None else file.refuse(known)


def refused(file: DataFile, text: str, names: Sequence[str] = ()) -> DataFileError:
    """Return our error for a reader's text, of which only counts and positions are used."""
    row = re.search(r"Row #(\d+)", text)
    where = f"row {row[1]} " if row else "a row "
    fields = re.search(r"Expected (\d+) columns, got (\d+)", text)
    if fields:
        return file.refuse(
            f"{where}has {fields[2]} fields, the header {fields[1]}. Is it cut off, is the delimiter right?"
        )
    if "invalid UTF8" in text or "UTF-8" in text or "codec" in text:
        return _encoding(file, f" in {where.strip()}" if row else "")
    column = re.search(r"In CSV column #(\d+)", text)
    if column and "conversion error" in text:
        number = int(column[1])
        title = repr(names[number]) if number < len(names) else str(number + 1)
        return file.refuse(
            f"{where}has something else than a number in column {title}, declared as numbers. Correct it, "
            f"declare the column otherwise, or pass the decimal point (now {file.decimal!r})."
        )
    if "Empty CSV file" in text:
        return file.refuse("it is empty.")
    if "straddles two chunks" in text or "too large" in text:
        return file.refuse("a record is longer than 16 MiB. Is a quote never closed?")
    if "n_features was set to" in text:
        return file.refuse("a record has a column beyond the number of columns that was declared.")
    if "pickle" in text:
        return file.refuse("it holds Python objects, which are not loaded. Save arrays of numbers or texts.")
    return file.refuse(f"it cannot be read as {file.kind}: it is cut off, damaged, or of another format.")


def _encoding(file: DataFile, where: str) -> DataFileError:
    return file.refuse(
        f"its texts are not {file.encoding}{where}. Pass the encoding, such as latin-1; it is never guessed, "
        "because one record would then change how all others are read."
    )


def arrow() -> Any:
    """Return Arrow, which makes frames of pandas; or say which extra brings both."""
    try:
        import pandas as pandas
        import pyarrow
    except ImportError as error:
        raise require_extra(error.name or "pyarrow", "tables") from None
    return pyarrow
