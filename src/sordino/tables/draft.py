"""A schema to fill in: names and stored types of a file, and not one value of its records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from sordino.errors import SchemaError
from sordino.tables.columns import KINDS
from sordino.tables.data_file import DataFile, arrow, in_words
from sordino.tables.files import read_names
from sordino.tables.rules import refuse
from sordino.tables.toml import FORMAT

_HEAD = """\
# Drafted from the {what} of {name}. No record was read.
# Fill in the blanks. kind is one of {kinds}.
# A number needs low and high, a category levels: low = 0 and high = 120, or levels = ["no", "yes"].
# Bounds and levels come from what a column means, never from looking at the data; say where from in source.
# What you leave out can be learned for a price: sordino schema learn.
"""
_BLANKS = {
    "number": ("low =", "high =", 'unit = ""'),
    "category": ("levels = []",),
    "ordinal": ("levels = []  # in their order",),
    "date": ("low = 2000-01-01", "high = 2030-01-01"),
    "text": ("buckets = 256",),
    "target": ('of = "category"  # or "number"', "levels = []  # or low = and high ="),
}


def draft_schema(
    source: str | Path | DataFile, *, kinds: Mapping[str, str] | None = None, rest: str = ""
) -> str:
    """Return the TOML text of a schema with blanks to fill in.

    Parameters
    ----------
    source : a CSV, TSV, Parquet or Arrow file.
    kinds : what is known of some columns: ``{"age": "number", "ill": "target"}``.
    rest : the kind of all others; blank by default.

    **Privacy.** Of a CSV file only the first row is read, and it holds no types: kinds stay blank. Parquet
    and Arrow files state types, which are read without the records. A first row that holds a number is
    taken for a record and refused, for its values would become names.
    """
    file = source if isinstance(source, DataFile) else DataFile(str(source))
    given = dict(kinds or {})
    for kind in (*given.values(), *([rest] if rest else [])):
        if kind not in KINDS:
            raise SchemaError(f"Expected kinds among {', '.join(KINDS)}, got {kind!r}.")
    types = _types(file)
    absent = [name for name in given if name not in types]
    if absent:
        raise refuse(absent[0], f"{file.name} has no such column", "Compare the spelling with its header.")
    typed = file.kind in ("parquet", "arrow")
    head = _HEAD.format(what="stored types" if typed else "header", name=file.name, kinds=", ".join(KINDS))
    tables = [_table(name, given.get(name) or kind or rest) for name, kind in types.items()]
    return "\n".join([f"{head}format = {FORMAT}\n", *tables])


def stored_flags(file: DataFile, name: str) -> bool:
    """Tell whether a file states that a column holds flags; its types are read, and no values."""
    if file.kind not in ("parquet", "arrow") or file.path == "-" or name not in read_names(file):
        return False
    return _kind(in_words(file, lambda: _stored(file)).field(name).type) == "flag"


def _types(file: DataFile) -> dict[str, str]:
    """Return the kind of each column as far as the file states one."""
    if file.kind in ("parquet", "arrow"):
        stored = in_words(file, lambda: _stored(file))
        return {name: _kind(stored.field(name).type) for name in read_names(file)}
    if not file.header:
        raise file.refuse(
            "a file without a header names no columns. Write the schema by hand, in their order."
        )
    return dict.fromkeys(read_names(file), "")


def _stored(file: DataFile) -> Any:
    if file.kind == "parquet":
        import pyarrow.parquet as parquet

        return parquet.read_schema(arrow().BufferReader(file.open().read()))
    import pyarrow.ipc as ipc

    data = file.open().read()
    try:
        return ipc.open_file(data).schema
    except arrow().ArrowInvalid:
        return ipc.open_stream(data).schema


def _kind(stored: Any) -> str:
    types = arrow().types
    if types.is_boolean(stored):
        return "flag"
    if types.is_integer(stored) or types.is_floating(stored) or types.is_decimal(stored):
        return "number"
    if types.is_date(stored) or types.is_timestamp(stored):
        return "date"
    return "category" if types.is_dictionary(stored) else ""


def _table(name: str, kind: str) -> str:
    lines = [tomli_w.dumps({"columns": {name: {"kind": kind}}}).rstrip()]
    lines += [f"# {blank}" for blank in _BLANKS.get(kind, ())]
    if kind not in ("ignored", "person"):
        lines.append('# source = ""')
    return "\n".join(lines) + "\n"
