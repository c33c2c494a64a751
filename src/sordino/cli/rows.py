"""From a data file to what a model takes: a table that a schema declares, or a matrix of numbers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from scipy import sparse

from sordino.errors import InvalidInputError, SchemaError
from sordino.kernel.arrays import Bools
from sordino.tables import files
from sordino.tables.values import MISSING, flags_of

if TYPE_CHECKING:
    from sordino import Schema


_GROWTH = 3  # bytes of memory for one of a text file, while it is read
_COPIES = 2  # of a table's numbers, while it is read
_NAMELESS = ("npz", "libsvm")


def memory_for_rows(megabytes: int | None) -> int:
    """Return the bytes that rows may take: the declared number, or half of the memory of the machine."""
    if megabytes is not None:
        return megabytes << 20
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def is_large(file: files.DataFile, memory: int) -> bool:
    """Tell whether a file needs more memory than this; files of formats that are read whole never do."""
    path = Path(file.path)
    if file.path == "-" or not path.exists() or path.suffix in (".gz", ".bz2", ".zst"):
        return False
    if file.kind == "libsvm":
        return _GROWTH * path.stat().st_size > memory
    if file.kind != "parquet":
        return False
    from pyarrow import parquet

    from sordino.execute.disk_files import parquet_parts

    facts = [parquet.read_metadata(part) for part in parquet_parts(path)]
    return bool(_COPIES * 8 * sum(part.num_rows * part.num_columns for part in facts) > memory)


def convert_rows(file: files.DataFile, target: str | None, labels: bool, memory: int) -> tuple[Any, Any]:
    """Return rows on a disk, in files without a name that go with the process, and their targets."""
    from sordino.execute.disk import without_name
    from sordino.execute.disk_files import libsvm_blocks, parquet_blocks

    click.echo(f"{file.name} is larger than the memory for rows: it is worked on from disk.", err=True)
    path = Path(file.path)
    if file.kind == "libsvm":
        blocks = _whole(file, libsvm_blocks(path, files.declared_features(file)))
        rows = files.in_words(file, lambda: without_name(blocks, memory))
        return rows, rows.target
    blocks = _whole(file, ((block, None) for block, _ in parquet_blocks(path, target)))
    rows = files.in_words(file, lambda: without_name(blocks, memory))
    rows.names = [name for name in files.read_names(file) if name != target]
    if target is None:
        return rows, None
    column = files.read_table(file, {target: files.TEXT if labels else files.NUMBER}).to_pandas()[target]
    if labels and column.isna().any():
        raise file.refuse(f"the column {target!r} has gaps. Every record needs a label.")
    return rows, column.to_numpy()


def _whole(file: files.DataFile, blocks: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Yield blocks of rows; refuse gaps and infinite numbers, as readers of whole files do."""
    for block, targets in blocks:
        if not np.isfinite(block.data if sparse.issparse(block) else block).all():
            raise file.refuse(
                "a feature has a gap or is infinite. Declare a schema, or drop such rows by a public rule."
            )
        yield block, targets


# --------------------------------------------------------------------------------- What each command reads


def read_schema(path: Path | None, whole: bool = False, data: str = "-") -> Schema | None:
    """Return the schema of a file; ``whole`` refuses one with blanks, and says if ``data`` is not there."""
    if path is None:
        return None
    from sordino import Schema

    schema = Schema.read(path)
    if whole:
        try:
            schema.require_known()
        except SchemaError as error:
            gone = "" if data == "-" or Path(data).exists() else f" Nor is there a file {data}."
            raise SchemaError(f"{error}{gone}") from None
    return schema


def table(file: files.DataFile, schema: Schema, *, target: bool, person: bool = True) -> Any:
    """Return an Arrow table with the columns of a schema; target, weights and person only where asked."""
    wanted = schema.wanted(target=target, person=person)
    if target and schema.target is None:
        raise InvalidInputError('The schema declares no target. Give one of its columns kind = "target".')
    kinds = {column.name: column.stored for column in wanted}
    names = None if file.header else [column.name for column in schema.columns]
    gaps = [*schema.markers, ""]
    found = files.read_table(file, kinds, names=names, markers=gaps)
    lines = file.kind in ("csv", "tsv")
    if file.decimal == "," and lines:
        # a column whose kind is not known yet may hold numbers with decimal commas
        found = files.write_points(found, [column.name for column in wanted if column.word == ""])
    for column in (column for column in wanted if column.word in ("date", "flag")):
        odd = np.flatnonzero(misspelt(column, found[column.name].to_pandas(), gaps))
        if len(odd):  # 31.12.2021 or oui throughout would be a column of gaps
            what, remedy = SPELLINGS[column.word]
            raise file.refuse(
                f"row {odd[0] + 1 + (lines and file.header)} has something else than {what} in column "
                f"{column.name!r}, declared as {column.word}s. {remedy}, or declare the column otherwise."
            )
    return found


SPELLINGS = {
    "number": ("a number", "Write numbers without units and spaces"),
    "date": ("a date", "Write dates as 2021-12-31"),
    "flag": ("yes or no", "Write yes or no (true, t, y, 1, on; false, f, n, 0, off), list gaps in markers"),
}
"""What columns of these kinds hold, and how to write it: others would be gaps without a word."""


def misspelt(column: Any, texts: Any, gaps: Iterable[str]) -> Bools:
    """Tell which texts are no gaps, and not what the column is declared to hold either."""
    said = (texts.notna() & ~texts.isin([*gaps])).to_numpy()
    odd = flags_of(texts) == MISSING if column.word == "flag" else np.isnan(column.numbers(texts, ()))
    return np.asarray(said & odd)


def require_fit(file: files.DataFile, schema: Schema) -> None:
    """Refuse a file without the declared columns, or a text file with others than a fit reads, all at once.

    What is said of values is what the refusal of a fit says: columns and how to spell them.
    """
    if file.header:
        schema.check_names(files.read_names(file), person=True)
    if file.kind not in ("csv", "tsv"):
        return
    table = files.read_whole(file, None if file.header else [column.name for column in schema.columns])
    lines, gaps, swapped = [], [*schema.markers, ""], str.maketrans(".,", ",.")
    for column in schema.columns:
        kind = "number" if column.stored == files.NUMBER else column.word
        if column.name in table.column_names and kind in SPELLINGS:
            texts = table[column.name].to_pandas()
            ways = [texts, texts.str.translate(swapped)] if kind == "number" else [texts, texts]
            here, there = (not misspelt(column, ways[mark == ","], gaps).any() for mark in ".,")
            if not (there if file.decimal == "," else here):
                what, remedy = SPELLINGS[kind]
                remedy = f"Pass --decimal {',' if there else '.'}" if here or there else remedy
                lines.append(f"{column.name!r} holds something else than {what}. {remedy}.")
    if lines:
        raise file.refuse("\n".join(["a fit would refuse what these columns hold.", *lines]))


def owners_in(found: Any, person: str | None) -> Any:
    """Return a number for the owner of each row of an Arrow table; without persons, one for each row."""
    from sordino.execute.persons import number_owners

    return np.arange(found.num_rows) if person is None else number_owners(found[person].to_pandas())


def to_fit(
    file: files.DataFile, schema: Schema | None, target: str | None = None, labels: bool = False,
    memory: int | None = None, *, targets: bool = True,
) -> files.Matrix:  # fmt: skip
    """Return the rows to fit: a table with its target in it, or a matrix and its target, if there is one.

    A matrix that needs more bytes than ``memory`` is worked on from disk; the model remembers its names.
    """
    if schema is not None:
        declared = None if schema.target is None else schema.target.name
        if target not in (None, declared):
            raise InvalidInputError(
                f"Expected no --target beside the schema, whose target is {declared!r}, got {target!r}."
            )
        return files.Matrix(table(file, schema, target=targets))
    if memory is not None and is_large(file, memory):
        found = files.Matrix(*convert_rows(file, target, labels, memory))
    else:
        found = files.read_matrix(file, target=target, labels=labels)
    if targets and found.y is None:
        raise InvalidInputError(
            f"{file.name} has no targets. Pass --target COLUMN, or a schema with a target."
        )
    X = found.X
    if found.names is not None:
        import pandas

        X = pandas.DataFrame(X, columns=list(found.names))
    return files.Matrix(X, found.y if targets else None, found.groups)


def for_model(file: files.DataFile, model: Any, *, judge: bool, target: str | None = None) -> files.Matrix:
    """Return the features that a fitted model takes, by name; to ``judge`` it, with targets and owners."""
    schema, names = getattr(model, "schema", None), getattr(model, "feature_names_in_", None)
    if schema is not None:
        records = table(file, schema, target=judge, person=judge)
        return files.Matrix(*schema.split(records, bounded=False)) if judge else files.Matrix(records)
    if file.kind in _NAMELESS:
        found = files.read_matrix(file, features=model.n_features_in_)
        if judge and found.y is None:
            raise InvalidInputError(f"{file.name} has no targets y.")
        return found
    if judge and target is None:
        raise InvalidInputError("Expected --target, the column with the right answers.")
    # Labels are read as texts, where a model does not have numbers for them.
    labels = judge and hasattr(model, "classes_") and model.classes_.dtype.kind not in "biuf"
    if names is None:
        found = files.read_matrix(file, target=target, labels=labels)
        if found.names is not None:
            raise file.refuse(
                "its columns have names, and the model was fitted to columns without: nobody can say which "
                "is which. Pass the columns in the order of the fit as NPZ, or as CSV without names and "
                "--no-header."
            )
        return found
    answers = {} if target is None else {target: files.TEXT if labels else files.NUMBER}
    frame = files.read_table(file, dict.fromkeys(names, files.NUMBER) | answers).to_pandas()
    return files.Matrix(frame, None if target is None else frame.pop(target).to_numpy())


def ids_of(file: files.DataFile, model: Any, names: tuple[str, ...]) -> dict[str, list[Any]]:
    """Return the columns that tell rows apart, for predictions: those asked for, or the person column."""
    schema = getattr(model, "schema", None)
    person = None if schema is None else schema.person
    if file.kind in _NAMELESS or (not names and person is None):
        return {}
    layout = None if schema is None or file.header else [column.name for column in schema.columns]
    known = files.read_names(file) if layout is None else layout
    wanted = names or tuple(name for name in (getattr(person, "name", ""),) if name in known)
    kinds = dict.fromkeys(wanted, files.AS_IS)
    return files.read_table(file, kinds, names=layout).to_pandas().to_dict("list") if wanted else {}
