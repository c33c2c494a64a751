"""CSV and TSV files, read by Arrow: quotes, byte order marks, delimiters, declared encodings."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sordino.tables.data_file import DataFile, arrow, refused

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
    text = io.TextIOWrapper(file.open(), encoding=_without_mark(file), errors="replace", newline="")
    first = text.readline(LONGEST_HEADER)
    if not first.strip():
        raise file.refuse("it is empty." if not first else "its first line is empty; names were expected.")
    if len(first) >= LONGEST_HEADER:
        raise file.refuse(f"its first line has more than {LONGEST_HEADER} characters. Is it a CSV file?")
    delimiter = file.delimiter or ("\t" if file.kind == "tsv" else _delimiter(first))
    lines = [first, *_rest_of_quoted(first, text)]
    names = next(csv.reader(lines, delimiter=delimiter))
    if not file.header:
        return Header([f"x{number}" for number in range(len(names))], delimiter, 0)
    if not file.sure and any(_is_number(name) for name in names):
        raise file.refuse(
            "its first row holds a number, so it looks like a record and not like names. Pass --no-header if "
            "it is a record, --header if it holds the names of the columns."
        )
    if any("\ufffd" in name for name in names):
        raise file.refuse(
            f"the names of its columns are not {file.encoding}. Pass the encoding, such as latin-1."
        )
    return Header(checked_names(file, [name.strip() for name in names]), delimiter, len(lines))


def _is_number(name: str) -> bool:
    try:
        return math.isfinite(float(name))
    except ValueError:
        return False


def _rest_of_quoted(first: str, text: Iterator[str]) -> Iterator[str]:
    """Yield the lines that belong to the first row, when a quoted name has line ends in it."""
    quotes = first.count('"')
    for line in text:
        if quotes % 2 == 0:
            return
        quotes += line.count('"')
        yield line


def _delimiter(line: str) -> str:
    """Return the most frequent candidate outside of quotes; the header is public."""
    bare = re.sub(r'"[^"]*"', "", line)
    counts = [bare.count(mark) for mark in _DELIMITERS]
    return _DELIMITERS[counts.index(max(counts))]


def _without_mark(file: DataFile) -> str:
    return "utf-8-sig" if file.encoding.lower().replace("_", "-") in ("utf-8", "utf8") else file.encoding


def checked_names(file: DataFile, names: Iterable[str]) -> list[str]:
    """Return the names, each of which is there once."""
    names = list(names)
    if len(names) > MOST_COLUMNS:
        raise file.refuse(
            f"it has {len(names)} columns, more than the {MOST_COLUMNS} of a table. Use NPZ or libsvm for "
            "wide matrices."
        )
    places: dict[str, int] = {}
    for number, name in enumerate(names, start=1):
        if places.setdefault(name, number) != number:  # by number: the first row may be a record after all
            raise file.refuse(
                f"the columns {places[name]} and {number} have the same name. Give every column its own."
            )
    if "" in names:
        raise file.refuse(f"column {names.index('') + 1} has no name. Give every column a name.")
    return names


def csv_table(
    file: DataFile, kinds: Mapping[str, str], names: Sequence[str] | None, markers: Sequence[str]
) -> Any:
    """Return the wanted columns as an Arrow table: numbers as doubles, all others as texts."""
    import pyarrow.csv as arrow_csv

    top = header(file) if file.header else _without_header(file, names)
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
        refusal = refused(file, str(error), top.names)
    raise refusal  # outside of the handler: the message of Arrow, which quotes the data, would be its context


def _without_header(file: DataFile, names: Sequence[str] | None) -> Header:
    if names is None:
        raise file.refuse("without a header the names of all columns must be given, by a schema.")
    return Header(list(names), file.delimiter or ("\t" if file.kind == "tsv" else ","), 0)


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
