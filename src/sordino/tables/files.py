"""Read files of records: CSV, TSV, Parquet, Arrow, NPZ, libsvm, from disk or standard input.

How a value is read never depends on another record: kinds of columns are declared, the encoding is declared,
the delimiter is taken from the header. A reader that guessed (a column of whole numbers with one gap turned
into fractions, a file with one odd byte read as Latin-1) would let one record change the values of all.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from sordino.errors import DataFileError, InvalidInputError, SordinoError, require_extra
from sordino.execute.disk_files import parquet_parts
from sordino.tables.values import number_of

T = TypeVar("T")
FORMATS = ("csv", "tsv", "parquet", "arrow", "npz", "libsvm")
_OTHERS = {"tsv": "tab", "parquet": "pq", "arrow": "feather ipc", "libsvm": "svm svmlight"}
_ENDINGS = {f".{end}": kind for kind in FORMATS for end in (kind, *_OTHERS.get(kind, "").split())}
_PACKED = (".gz", ".bz2", ".zst")
_FOLDER, _NOWHERE = "it is a folder without Parquet files. Pass a file.", "there is no such file."
_BEYOND = "a record has a column beyond the number of columns that was declared."
_ENDLESS = "a record is longer than 16 MiB. Is a quote never closed?"


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
        if path.is_dir() and parquet_parts(path):
            return "parquet"
        if ending not in _ENDINGS:
            if path.is_dir() or not path.exists():
                raise self.refuse(_FOLDER if path.is_dir() else _NOWHERE)
            raise DataFileError(
                f"{self.name}: the ending {ending!r} does not say what it is. Pass the format, one of "
                f"{', '.join(FORMATS)}. Save a sheet of Excel as CSV."
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
    known: dict[type[Exception], str] = {
        FileNotFoundError: _NOWHERE,
        IsADirectoryError: _FOLDER,
        PermissionError: "it may not be read by this user.",
    }
    try:
        return call()
    except SordinoError:
        raise
    except Exception as error:  # whatever a reader makes of a damaged file
        words = known.get(type(error))
        text = "codec" if isinstance(error, UnicodeError) else str(error)
        refusal = reading_error(file, text) if words is None else file.refuse(words)
    raise refusal  # outside of the handlers: the foreign error would be its context


# What is said where a reader's text holds one of these.
_WORDS = {
    "Empty CSV file": "it is empty.",
    "n_features was set to": _BEYOND,
    "straddles two chunks": _ENDLESS,
    "too large": _ENDLESS,
    "pickle": "it holds Python objects, which are not loaded. Save arrays of numbers or texts.",
}


def reading_error(file: DataFile, text: str, names: Sequence[str] = ()) -> DataFileError:
    """Return our error for a reader's text, of which only counts and positions are used."""
    row = re.search(r"Row #(\d+)", text)
    where = f"row {row[1]} " if row else "a row "
    fields = re.search(r"Expected (\d+) columns, got (\d+)", text)
    column = re.search(r"In CSV column #(\d+)", text)
    if fields:
        why = f"{where}has {fields[2]} fields, the header {fields[1]}. Is it cut off, is the delimiter right?"
    elif "invalid UTF8" in text or "UTF-8" in text or "codec" in text:
        why = (
            f"its texts are not {file.encoding}{f' in {where.strip()}' if row else ''}. Pass the right "
            "one, such as encoding='latin-1'; it is never guessed, because one record would then change how "
            "all others are read."
        )
    elif column and "conversion error" in text:
        number = int(column[1])
        title = repr(names[number]) if number < len(names) else str(number + 1)
        why = (
            f"{where}has something else than a number in column {title}, declared as numbers. Correct it, "
            f"pass decimal={'.' if file.decimal == ',' else ','!r} if that is the decimal point, or declare "
            f"the columns otherwise, in a schema: sordino schema draft {file.name}"
        )
    elif file.kind == "libsvm" and "too large" in text:
        why = _BEYOND
    else:
        other = f"it cannot be read as {file.kind}: it is cut off, damaged, or of another format."
        why = next((words for part, words in _WORDS.items() if part in text), other)
    return file.refuse(why)


def arrow(part: str = "pyarrow") -> Any:
    """Return Arrow or a part of it, which makes frames of pandas; or say which extra brings both."""
    for name in ("pandas", "pyarrow"):
        if find_spec(name) is None:
            raise require_extra(name, "tables")
    return import_module(part)


# --------------- CSV and TSV files, read by Arrow: quotes, byte order marks, delimiters, declared encodings

NUMBER, TEXT, AS_IS = "number", "text", "as is"
"""What a column is read as: a double, a text without spaces around it, or exactly what a typed file has."""
MOST_COLUMNS = 100_000
LONGEST_HEADER = 1 << 24
MARKERS = ("", "?", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", ".")
_DELIMITERS = ",;\t|"


class Header(NamedTuple):
    """The names of the columns, the delimiter, and how many lines the names take."""

    names: list[str]
    delimiter: str
    lines: int


def header(file: DataFile) -> Header:
    """Read the first row, and nothing else; without a header it only says how many columns there are."""
    plain = file.encoding.lower().replace("_", "-") in ("utf-8", "utf8")
    encoding = "utf-8-sig" if plain else file.encoding  # without a byte order mark
    text = io.TextIOWrapper(file.open(), encoding=encoding, errors="replace", newline="")
    first = text.readline(LONGEST_HEADER)
    if "\0" in first:
        raise file.refuse("its first line has zero bytes, as texts in UTF-16 have. Pass encoding='utf-16'.")
    if not first.strip():
        raise file.refuse("it is empty." if not first else "its first line is empty; names were expected.")
    if len(first) >= LONGEST_HEADER:
        raise file.refuse(f"its first line has more than {LONGEST_HEADER} characters. Is it a CSV file?")
    delimiter = file.delimiter or ("\t" if file.kind == "tsv" else None)
    if delimiter is None:  # the most frequent candidate outside of quotes; the header is public
        bare = re.sub(r'"[^"]*"', "", first)
        delimiter = max(_DELIMITERS, key=bare.count)
    lines = [first]
    while "".join(lines).count('"') % 2 and (line := text.readline(LONGEST_HEADER)):  # a quoted line end
        lines.append(line)
    names = next(csv.reader(lines, delimiter=delimiter))
    if not file.header:
        return Header([f"x{number}" for number in range(len(names))], delimiter, 0)
    if not file.sure and any(math.isfinite(number_of(name)) for name in names):
        raise file.refuse(
            "its first row holds a number, so it looks like a record and not like names. Pass --no-header if "
            "it is a record, --header if it holds the names of the columns."
        )
    if any("\ufffd" in name for name in names):
        raise file.refuse(
            f"the names of its columns are not {file.encoding}. Pass another, such as encoding='latin-1'."
        )
    return Header(check_columns(file, [name.strip() for name in names]), delimiter, len(lines))


INDEXES = ("Unnamed: 0", "__index_level_0__")
"""Names that pandas gives to the numbers of rows; nobody means them as a column."""


def check_columns(file: DataFile, names: Iterable[str]) -> list[str]:
    """Return the names, each of which is there once. A first column without a name numbers the rows."""
    names = list(names)
    if len(names) > MOST_COLUMNS:
        raise file.refuse(
            f"it has {len(names)} columns, more than the {MOST_COLUMNS} of a table. Use NPZ or libsvm for "
            "wide matrices."
        )
    if "" in names[1:]:
        raise file.refuse(f"column {names.index('', 1) + 1} has no name. Give every column a name.")
    places: dict[str, int] = {}
    for number, name in enumerate(names, start=1):
        if places.setdefault(name, number) != number:  # by number: the first row may be a record after all
            raise file.refuse(
                f"the columns {places[name]} and {number} have the same name. Give every column its own."
            )
    return names


def csv_table(
    file: DataFile, kinds: Mapping[str, str], names: Sequence[str] | None, markers: Sequence[str]
) -> Any:
    """Return the wanted columns as an Arrow table: numbers as doubles, all others as texts."""
    import pyarrow.csv as arrow_csv

    if not file.header and names is None:
        raise file.refuse("without a header the names of all columns must be given, by a schema.")
    mark = file.delimiter or ("\t" if file.kind == "tsv" else ",")
    top = header(file) if file.header else Header(list(names or ()), mark, 0)
    require(file, top.names, kinds)
    _require_closed_quotes(file)
    types = {name: arrow().float64() if kind == NUMBER else arrow().string() for name, kind in kinds.items()}
    gaps = [f"{before}{marker}{after}" for marker in markers for before in ("", " ") for after in ("", " ")]
    try:
        return arrow_csv.read_csv(
            file.open(),
            # One thread: then the number of a row that does not fit is known.
            arrow_csv.ReadOptions(
                use_threads=False, encoding=file.encoding, column_names=top.names, skip_rows=top.lines,
                block_size=16 << 20,
            ),
            arrow_csv.ParseOptions(delimiter=top.delimiter, newlines_in_values=True),
            arrow_csv.ConvertOptions(
                column_types=types, include_columns=list(kinds), null_values=gaps,
                strings_can_be_null=False, decimal_point=file.decimal,
            ),
        )  # fmt: skip
    except arrow().ArrowInvalid as error:
        refusal = reading_error(file, str(error), top.names)
    raise refusal  # outside of the handler: the message of Arrow, which quotes the data, would be its context


def _require_closed_quotes(file: DataFile) -> None:
    """Refuse an odd number of quotes: from the open one on, records would flow into each other."""
    if file.encoding.lower().startswith(("utf-16", "utf-32")):
        return
    stream, quotes = file.open(), 0
    while block := stream.read(1 << 24):
        quotes += bytes(block).count(b'"')
    if quotes % 2:
        raise file.refuse(
            "it has an odd number of quotes, so one of them is never closed. Quote fields that hold quotes, "
            'and double those inside: "5"" pipe".'
        )


def require(file: DataFile, names: Sequence[str], wanted: Iterable[str]) -> None:
    """Refuse a file without the columns that are wanted."""
    known = set(names)
    missing = [name for name in wanted if name not in known]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        shown = ", ".join(map(repr, missing[:5])) + more
        raise file.refuse(f"it has no column {shown}. It has {len(names)} columns; compare the names.")


@dataclass(frozen=True, eq=False)
class Matrix:
    """Rows as numbers, with targets, owners and names of columns where the file has them."""

    X: Any
    y: Any = None
    groups: Any = None
    names: tuple[str, ...] | None = None


def read_names(file: DataFile) -> list[str]:
    """Return the names of the columns; of a CSV file, nothing but the first row is read.

    Without a header they are x0, x1 and so on, as many as the first row has fields. A first column without a
    name, with which R and pandas number the rows, is left out.
    """
    if file.kind in ("csv", "tsv"):
        return [name for name in in_words(file, lambda: header(file).names) if name]
    return [name for name in check_columns(file, _stored_schema(file).names) if name]


def stored_kinds(file: DataFile) -> dict[str, str]:
    """Return the kind of each column, "" where the file states none; its types are read, and no values."""
    names = read_names(file)
    if file.kind in ("csv", "tsv"):
        return dict.fromkeys(names, "")
    types, stored = arrow().types, _stored_schema(file)
    number = (types.is_integer, types.is_floating, types.is_decimal)
    kinds = {"flag": (types.is_boolean,), "number": number, "date": (types.is_date, types.is_timestamp)}
    kinds["category"] = (types.is_dictionary,)

    def kind_of(type_: Any) -> str:
        return next((kind for kind, tests in kinds.items() if any(test(type_) for test in tests)), "")

    return {name: kind_of(stored.field(name).type) for name in names}


def _stored_schema(file: DataFile) -> Any:
    if file.kind == "parquet":
        return in_words(file, lambda: arrow("pyarrow.parquet").read_schema(_parts(file)[0]))
    if file.kind == "arrow":
        return in_words(file, lambda: _arrow_reader(file).schema)
    raise file.refuse(f"a file of format {file.kind} has no named columns. Use CSV, Parquet or Arrow.")


def read_table(
    file: DataFile,
    kinds: Mapping[str, str],
    *,
    names: Sequence[str] | None = None,
    markers: Sequence[str] = MARKERS,
) -> Any:
    """Return the columns named in ``kinds`` as an Arrow table, in that order.

    Parameters
    ----------
    file : what to read.
    kinds : ``NUMBER``, ``TEXT`` or ``AS_IS`` for each column that is wanted; no other is read.
    names : the names of all columns of a file without a header.
    markers : the texts that stand for a missing number in a CSV file. In a text only the empty one does.

    Raises :class:`~sordino.errors.DataFileError`, which names file, column or row and the remedy, no value.
    """
    if file.kind not in ("csv", "tsv"):
        require(file, read_names(file), kinds)

    def read() -> Any:
        table = _read_table(file, kinds, names, markers)
        if table.num_rows == 0:
            raise file.refuse("it has a header and no records.")
        typed = {name: _as_declared(file, name, table[name], kind) for name, kind in kinds.items()}
        return arrow().table(typed)

    return in_words(file, read)


def read_whole(file: DataFile, names: Sequence[str] | None = None) -> Any:
    """Return all columns as an Arrow table, texts of a CSV file as they stand there.

    ``names`` are those of a file without a header.
    """
    known = read_names(file) if file.header or names is None else list(names)
    return in_words(file, lambda: _read_table(file, dict.fromkeys(known, TEXT), known, ()))


def _read_table(
    file: DataFile, kinds: Mapping[str, str], names: Sequence[str] | None, markers: Sequence[str]
) -> Any:
    if file.kind in ("csv", "tsv"):
        return csv_table(file, kinds, names, markers)
    if file.kind == "parquet":
        parts = [
            arrow("pyarrow.parquet").read_table(part, columns=list(kinds), partitioning=None)
            for part in _parts(file)
        ]
        return arrow().concat_tables(parts)
    return _arrow_reader(file).read_all()


def packed_table(table: Any, ending: str, like: DataFile) -> bytes:
    """Return an Arrow table as a file with this ending: Parquet, or CSV that is written ``like`` another."""
    content = io.BytesIO()
    if _ENDINGS.get(ending.lower()) == "parquet":
        arrow("pyarrow.parquet").write_table(table, content)
    else:
        mark = like.delimiter or (header(like).delimiter if like.header and like.kind == "csv" else ",")
        mark = "\t" if _ENDINGS.get(ending.lower()) == "tsv" else mark
        how = arrow("pyarrow.csv").WriteOptions(include_header=like.header, delimiter=mark)
        arrow("pyarrow.csv").write_csv(table, content, how)
        return content.getvalue().decode().encode(like.encoding)
    return content.getvalue()


def read_matrix(
    file: DataFile, *, target: str | None = None, labels: bool = False, features: int | None = None
) -> Matrix:
    """Return all columns but the target as numbers.

    Parameters
    ----------
    file : any format; NPZ holds ``X`` and maybe ``y`` and ``groups``, or one sparse matrix.
    target : the column to predict, of a file with named columns.
    labels : the target is a class label, read as a text; else it is a number.
    features : how many columns a libsvm file has; None takes what the file was declared to have.
    """
    if file.kind in ("npz", "libsvm"):
        if target is not None:
            raise file.refuse(
                f"a file of format {file.kind} has no column {target!r}; its targets are known."
            )
        return in_words(file, lambda: _npz(file) if file.kind == "npz" else _libsvm(file, features))
    names = read_names(file)
    if target is not None:
        require(file, names, [target])
    wanted = [name for name in names if name not in INDEXES]
    kinds = dict.fromkeys(wanted, NUMBER) | ({} if target is None else {target: TEXT if labels else NUMBER})
    frame = read_table(file, kinds, names=names).to_pandas()
    if target is not None and labels and frame[target].isna().any():
        raise file.refuse(f"the column {target!r} has gaps. Every record needs a label.")
    y = None if target is None else frame.pop(target).to_numpy()
    named = file.header or file.kind in ("parquet", "arrow")
    return Matrix(frame.to_numpy(dtype=np.float64), y, None, tuple(frame.columns) if named else None)


def replace_file(
    path: Path, content: bytes, *, own: bool = False, error: type[SordinoError] = InvalidInputError
) -> None:
    """Write a file under another name and rename it when it is whole; ``own``: for its owner's eyes alone."""
    draft = None
    try:
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(draft, 0o600 if own else 0o666 & ~mask)
        os.replace(draft, path)
    except OSError as failure:
        if draft is not None:
            os.unlink(draft)
        reason = failure.strerror or type(failure).__name__
        raise error(f"Cannot write {path.name!r} into {str(path.parent)!r}: {reason}.") from None


def _arrow_reader(file: DataFile) -> Any:
    """Open the file or the stream format of Arrow, which is that of Feather too."""
    import pyarrow.ipc as ipc

    data = file.open().read()
    try:
        return ipc.open_file(data)
    except arrow().ArrowInvalid:
        return ipc.open_stream(data)


def _parts(file: DataFile) -> list[Any]:
    """Return the file, or those of a folder; one that is not there is left to the reader to refuse."""
    if file.path == "-":
        return [arrow().BufferReader(file.open().read())]
    return parquet_parts(Path(file.path)) or [file.path]


def _as_declared(file: DataFile, name: str, column: Any, kind: str) -> Any:
    """Return a column as it was declared, value by value."""
    import pyarrow.compute as compute

    types, double, string = arrow().types, arrow().float64(), arrow().string()
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    texts = types.is_string(column.type) or types.is_large_string(column.type)
    if kind == NUMBER:
        numbers = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
        if not any(is_kind(column.type) for is_kind in numbers):
            raise file.refuse(
                f"the column {name!r} holds {column.type}, and numbers were declared. Leave it out, or "
                "declare what it holds in a schema (a category, a date)."
            )
        return column.cast(double, safe=False)
    if kind == TEXT or (kind == AS_IS and texts):
        if types.is_nested(column.type) or types.is_binary(column.type):
            raise file.refuse(f"the column {name!r} holds {column.type}, and texts were declared.")
        text = compute.utf8_trim_whitespace(column.cast(string))
        return compute.if_else(compute.binary_length(text).cast("bool"), text, arrow().nulls(1, string)[0])
    return column


def write_points(table: Any, names: Sequence[str]) -> Any:
    """Return the table with decimal points in place of commas where a text is a number with a comma."""
    import pyarrow.compute as compute

    for name in names:
        texts = compute.replace_substring_regex(table[name], r"^([+-]?[0-9]*),([0-9]+)$", r"\1.\2")
        table = table.set_column(table.column_names.index(name), name, texts)
    return table


def _npz(file: DataFile) -> Matrix:
    from scipy import sparse

    whole = io.BytesIO(file.open().read())
    with np.load(whole, allow_pickle=False) as arrays:
        names = set(arrays.files)
        if "indptr" not in names:
            if "X" not in names:
                raise file.refuse(f"it has no array X. It has {', '.join(sorted(names)[:8]) or 'nothing'}.")
            y, groups = (arrays[key] if key in names else None for key in ("y", "groups"))
            return Matrix(arrays["X"], y, groups)
    whole.seek(0)
    return Matrix(sparse.load_npz(whole))


def declared_features(file: DataFile) -> int:
    """Return how many columns a libsvm file was declared to have."""
    if file.features is None:
        raise file.refuse(
            "how many columns a libsvm file has is not in it: the largest index would be decided by one "
            "record. Declare it, with --features."
        )
    return file.features


def _libsvm(file: DataFile, features: int | None) -> Matrix:
    from sklearn.datasets import load_svmlight_file

    features = declared_features(file) if features is None else features
    if file.features not in (None, features):
        raise file.refuse(f"the model takes {features} columns, not {file.features}: leave out --features.")
    content = io.BytesIO(file.open().read())
    # Indices count from 1, whatever is in the file: to guess it would let one record shift all columns.
    X, y = load_svmlight_file(content, n_features=features, zero_based=False)
    if X.shape[0] == 0:
        raise file.refuse("it holds no records.")
    return Matrix(X, y)
