"""Read files of records: CSV, TSV, Parquet, Arrow, NPZ, libsvm, from disk or standard input.

How a value is read never depends on another record: kinds of columns are declared, the encoding is declared,
the delimiter is taken from the header. A reader that guessed (a column of whole numbers with one gap turned
into fractions, a file with one odd byte read as Latin-1) would let one record change the values of all.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sordino.tables.data_file import FORMATS, DataFile, arrow, in_words
from sordino.tables.delimited import AS_IS, MARKERS, NUMBER, TEXT, checked_names, csv_table, header, require

__all__ = [
    "AS_IS",
    "FORMATS",
    "NUMBER",
    "TEXT",
    "DataFile",
    "Matrix",
    "read_frame",
    "read_matrix",
    "read_names",
]


@dataclass(frozen=True, eq=False)
class Matrix:
    """Rows as numbers, with targets, owners and names of columns where the file has them."""

    X: Any
    y: Any = None
    groups: Any = None
    names: tuple[str, ...] | None = None


def read_names(file: DataFile) -> list[str]:
    """Return the names of the columns; of a CSV file, nothing but the first row is read.

    Without a header they are x0, x1 and so on, as many as the first row has fields.
    """
    readers: dict[str, Callable[[], Any]] = {
        "csv": lambda: header(file).names,
        "tsv": lambda: header(file).names,
        "parquet": lambda: checked_names(file, _parquet().read_schema(_seekable(file)).names),
        "arrow": lambda: checked_names(file, _arrow_table(file).column_names),
    }
    return list(in_words(file, _reader(file, readers)))


def read_frame(
    file: DataFile,
    kinds: Mapping[str, str],
    *,
    names: Sequence[str] | None = None,
    markers: Sequence[str] = MARKERS,
) -> Any:
    """Return the columns named in ``kinds`` as a pandas frame, in that order.

    Parameters
    ----------
    file : what to read.
    kinds : ``NUMBER``, ``TEXT`` or ``AS_IS`` for each column that is wanted; no other is read.
    names : the names of all columns of a file without a header.
    markers : the texts that stand for a missing number in a CSV file. In a text only the empty one does.

    Raises :class:`~sordino.errors.DataFileError`, which names file, column or row and the remedy, no value.
    """
    readers: dict[str, Callable[[], Any]] = {
        "csv": lambda: csv_table(file, kinds, names, markers),
        "tsv": lambda: csv_table(file, kinds, names, markers),
        "parquet": lambda: _parquet().read_table(_seekable(file), columns=list(kinds)),
        "arrow": lambda: _arrow_table(file),
    }
    read = _reader(file, readers)
    if file.kind in ("parquet", "arrow"):
        require(file, read_names(file), kinds)
    return in_words(file, lambda: _framed(file, read(), kinds))


def _reader(file: DataFile, readers: dict[str, Callable[[], Any]]) -> Callable[[], Any]:
    if file.kind not in readers:
        raise file.refuse(f"a file of format {file.kind} has no named columns. Use CSV, Parquet or Arrow.")
    return readers[file.kind]


def _framed(file: DataFile, table: Any, kinds: Mapping[str, str]) -> Any:
    if table.num_rows == 0:
        raise file.refuse("it has a header and no records.")
    typed = {name: _typed(file, name, table[name], kind) for name, kind in kinds.items()}
    return arrow().table(typed).to_pandas()


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
    kinds = dict.fromkeys(names, NUMBER) | ({} if target is None else {target: TEXT if labels else NUMBER})
    frame = read_frame(file, kinds, names=names)
    if target is not None and labels and frame[target].isna().any():
        raise file.refuse(f"the column {target!r} has gaps. Every record needs a label.")
    y = None if target is None else frame.pop(target).to_numpy()
    named = file.header or file.kind in ("parquet", "arrow")
    return Matrix(frame.to_numpy(dtype=np.float64), y, None, tuple(frame.columns) if named else None)


# ------------------------------------------------------------------------------------- Parquet and Arrow


def _arrow_table(file: DataFile) -> Any:
    """Read the file or the stream format of Arrow, which is that of Feather too."""
    import pyarrow.ipc as ipc

    data = file.open().read()
    try:
        return ipc.open_file(data).read_all()
    except arrow().ArrowInvalid:
        return ipc.open_stream(data).read_all()


def _seekable(file: DataFile) -> Any:
    return file.path if file.path != "-" else arrow().BufferReader(file.open().read())


def _typed(file: DataFile, name: str, column: Any, kind: str) -> Any:
    """Return a column as it was declared, value by value."""
    import pyarrow.compute as compute

    types, double, string = arrow().types, arrow().float64(), arrow().string()
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    texts = types.is_string(column.type) or types.is_large_string(column.type)
    if kind == NUMBER:
        if texts or types.is_nested(column.type):
            raise file.refuse(f"the column {name!r} holds {column.type}, and numbers were declared.")
        return column.cast(double, safe=False)
    if kind == TEXT or (kind == AS_IS and texts):
        if types.is_nested(column.type) or types.is_binary(column.type):
            raise file.refuse(f"the column {name!r} holds {column.type}, and texts were declared.")
        trimmed = compute.utf8_trim_whitespace(column.cast(string))
        return compute.if_else(compute.equal(trimmed, ""), None, trimmed)
    return column


# --------------------------------------------------------------------------------------- NPZ and libsvm


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


def _parquet() -> Any:
    arrow()
    import pyarrow.parquet

    return pyarrow.parquet
