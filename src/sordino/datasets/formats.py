"""Readers: one short function per format, from the files of a part to its rows and targets."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn import datasets as bundled
from sklearn.feature_extraction.text import CountVectorizer

from sordino.datasets.files import Files
from sordino.datasets.registry import Dataset
from sordino.errors import DataNotFoundError, MissingExtraError, require_extra
from sordino.tables import Category


@dataclass(frozen=True, eq=False)
class Part:
    """The rows of one part: features, targets and whatever else is known per row."""

    data: Any
    target: NDArray[Any]
    extra: dict[str, Any] = field(default_factory=dict)
    feature_names: list[str] | None = None


def _csr(matrix: Any) -> sparse.csr_matrix:
    """Return sorted CSR; the constructor takes 32-bit indices where they fit."""
    out = sparse.csr_matrix((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)
    out.sort_indices()
    return out


def _libsvm(files: Files, part: str) -> Part:
    n_features = files.row.shapes[part][1]
    data, target = bundled.load_svmlight_file(str(files.path(part)), n_features=n_features, zero_based=False)
    return Part(_csr(data), target.astype(np.int64) if files.row.classes else target)


def _counts(files: Files, part: str) -> Part:
    """Read a CSR matrix and everything in ``labels.npz`` that ends in the name of the part."""
    if files.on_disk(part) is None and "texts" in files.row.details:
        _count_texts(files)
    data = _csr(sparse.load_npz(files.path(part)))
    suffix = f"_{part}"
    with np.load(files.path("labels"), allow_pickle=False) as named:
        rows = {key.removesuffix(suffix): named[key] for key in named.files if key.endswith(suffix)}
    names = None
    if "texts" in files.row.details:
        names = lzma.decompress(files.path("vocabulary").read_bytes()).decode().removesuffix("\n").split("\n")
    return Part(data, rows.pop("y").astype(np.int64), rows, names)


def _count_texts(files: Files) -> None:
    """Count the words of an archive of texts once; the counts are kept in the cache."""
    where = files.row.details["texts"]
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(files.path("archive")) as archive:
            archive.extractall(folder, filter="data")
        texts = {
            part: bundled.load_files(
                Path(folder, where[part]),
                categories=list(where["folders"]) if "folders" in where else None,
                encoding=where["encoding"],
                shuffle=False,
            )
            for part in ("train", "test")
        }
    vectoriser = CountVectorizer(dtype=np.int16).fit(texts["train"].data)
    labels: dict[str, Any] = {}
    for part, found in texts.items():
        codes = np.searchsorted(texts["train"].target_names, found.target_names)
        labels[f"y_{part}"] = codes[found.target].astype(np.int8)
        if files.row.targets:  # IMDB: the file name ends in the stars
            stars = [int(Path(name).stem.rpartition("_")[2]) for name in found.filenames]
            labels[f"rating_{part}"] = np.array(stars, dtype=np.int8)
        _keep(files.home / f"{part}_counts.npz", sparse.save_npz, vectoriser.transform(found.data))
    words = "\n".join(vectoriser.get_feature_names_out()) + "\n"
    _keep(files.home / "vocabulary.txt.xz", lambda stream, b: stream.write(b), lzma.compress(words.encode()))
    _keep(files.home / "labels.npz", lambda stream, named: np.savez_compressed(stream, **named), labels)


def _keep(path: Path, write: Callable[[Any, Any], object], value: Any) -> None:
    """Write a file under another name and rename it when it is whole."""
    whole = io.BytesIO()
    write(whole, value)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as stream:
        stream.write(whole.getbuffer())
    os.replace(partial, path)


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise require_extra("pandas", "datasets") from error
    return pandas


def _csv(files: Files, part: str) -> Part:
    """Read a table by its declared columns; its label may end in a full stop."""
    row = files.row
    assert row.schema is not None
    columns, label = row.schema.columns, row.details["label"]
    numbers = {key: target.number for key, target in row.targets.items() if target.number}
    kinds = {column.name: str if isinstance(column, Category) else np.float64 for column in columns}
    kinds |= {label: str} | dict.fromkeys(numbers.values(), np.float64)
    header = {"header": 0} if row.details.get("header") else {"names": list(kinds)}
    pandas = _pandas()
    frame = pandas.read_csv(
        files.path(part), **header, usecols=list(kinds), dtype=kinds, skipinitialspace=True, comment="|",
        na_values=["?", ".", "NA", ""], keep_default_na=False,
    )  # fmt: skip
    target = pandas.Index(row.classes).get_indexer(frame[label].str.rstrip(".")).astype(np.int64)
    if (target < 0).any():
        raise ValueError("a label is not declared")
    extra = {key: frame[name].fillna(0.0).to_numpy() for key, name in numbers.items()}
    return Part(frame[[column.name for column in columns]], target, extra)


def _idx_array(path: Path) -> NDArray[np.uint8]:
    """Read an idx file: two zero bytes, the type (8: bytes), the rank, the sizes, the values."""
    raw = gzip.decompress(path.read_bytes())
    if raw[:3] != b"\0\0\x08":
        raise ValueError("not an idx file of bytes")
    shape = np.frombuffer(raw, dtype=">u4", count=raw[3], offset=4)
    return np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * raw[3]).reshape(shape.astype(int))


def _idx(files: Files, part: str) -> Part:
    labels = _idx_array(files.path(f"{part}-labels"))
    return Part(_idx_array(files.path(part)), labels.astype(np.int64))


def _npz(files: Files, part: str, data: str, target: str, file: str) -> Part:
    with np.load(files.path(file), allow_pickle=False) as arrays:
        return Part(arrays[data], arrays[target].ravel().astype(np.int64))


def _medmnist(files: Files, part: str) -> Part:
    short = "val" if part == "validation" else part
    return _npz(files, part, f"{short}_images", f"{short}_labels", "archive")


def _cifar(files: Files, part: str) -> Part:
    """Read packed images, or records of the archive: a label, then 3 x 32 x 32 bytes."""
    if files.on_disk(part) is not None:
        return _npz(files, part, "images", "labels", part)
    n = files.row.shapes[part][0]
    n_batches = -(-n // 10_000)
    wanted = [f"data_batch_{i + 1}.bin" for i in range(n_batches)] if part == "train" else ["test_batch.bin"]
    with tarfile.open(files.path("archive")) as archive:
        streams = [archive.extractfile(f"cifar-10-batches-bin/{name}") for name in wanted]
        raw = b"".join(stream.read() for stream in streams if stream is not None)
    records = np.frombuffer(raw, dtype=np.uint8).reshape(-1, 3_073)[:n]
    images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return Part(np.ascontiguousarray(images), records[:, 0].astype(np.int64))


def _bundled(files: Files, part: str) -> Part:
    """Take a set that comes with scikit-learn and divide it by its declared bounds."""
    source = getattr(bundled, f"load_{files.row.name}")()
    data = np.clip(source.data / np.array(files.row.details["scale"], dtype=float), 0.0, 1.0)
    return Part(data, source.target.astype(np.int64), {}, [str(name) for name in source.feature_names])


READERS: dict[str, Callable[[Files, str], Part]] = {
    "libsvm": _libsvm,
    "counts": _counts,
    "csv": _csv,
    "idx": _idx,
    "images": _cifar,
    "medmnist": _medmnist,
    "microarray": lambda files, part: _npz(files, part, "X", "y", "train"),
    "bundled": _bundled,
}


def read(files: Files, part: str) -> Part:
    """Read a part and check that it has the rows and columns the registry promises.

    Raises
    ------
    DataNotFoundError
        If a file is damaged or holds something else. The message names the files, never a value.
    """
    row = files.row
    try:
        out = READERS[row.format](files, part)
    except (DataNotFoundError, MissingExtraError, MemoryError, PermissionError):
        raise
    except Exception:
        # The readers' own messages quote what they read, so they end here.
        raise DataNotFoundError(_damaged(files.used, row)) from None
    n, *columns = row.shapes[part]
    if not len(out.target) == out.data.shape[0] == n or (
        not row.schema and list(out.data.shape[1:]) != columns
    ):
        raise DataNotFoundError(_damaged(files.used, row))
    return out


def _damaged(paths: list[Path], row: Dataset) -> str:
    return (
        f"{' and '.join(map(str, dict.fromkeys(paths)))} cannot be read as the data set {row.name!r}, whose "
        f"training part is {' x '.join(map(str, row.shapes['train']))}: a file is damaged or holds something "
        "else. Delete it and load again, or replace it."
    )
