"""Parsers: one function per format, from the paths of a part's files to its rows and targets."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from sordino.datasets import schemas
from sordino.datasets.registry import DatasetRow
from sordino.datasets.tables import Schema, read_table
from sordino.errors import DataNotFoundError

Paths = Mapping[str, Path]


@dataclass(frozen=True, eq=False)
class Part:
    """The rows of one part: features, targets and whatever else is known per row."""

    data: Any
    target: NDArray[Any]
    extra: dict[str, Any] = field(default_factory=dict)


def read_bytes(path: Path) -> bytes:
    """Return the contents of a file, decompressed by its suffix."""
    openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    with openers.get(path.suffix, open)(path, "rb") as stream:
        return bytes(stream.read())


def compact_csr(matrix: Any) -> sparse.csr_matrix:
    """Return a CSR matrix with sorted rows and 32-bit indices where they fit."""
    narrow = max(matrix.nnz, *matrix.shape) < np.iinfo(np.int32).max
    kind = np.int32 if narrow else np.int64
    indices = matrix.indices.astype(kind, copy=False)
    indptr = matrix.indptr.astype(kind, copy=False)
    out = sparse.csr_matrix((matrix.data, indices, indptr), shape=matrix.shape)
    out.sort_indices()
    return out


def _libsvm(paths: Paths, part: str, row: DatasetRow) -> Part:
    data, target = load_svmlight_file(
        str(paths[part]), n_features=row.n_features, zero_based=False, dtype=np.float64
    )
    is_regression = row.task.startswith("regression")
    return Part(compact_csr(data), target if is_regression else target.astype(np.int64))


def _csr_with_labels(paths: Paths, part: str, row: DatasetRow) -> Part:
    """Read a CSR matrix and everything in ``labels.npz`` that ends in the name of the part."""
    data = compact_csr(sparse.load_npz(paths[part]))
    with np.load(paths["labels"], allow_pickle=False) as labels:
        named = {key: labels[key] for key in labels.files}
    suffix = f"_{part}"
    rows = {key.removesuffix(suffix): named[key] for key in named if key.endswith(suffix)}
    return Part(data, rows.pop("y").astype(np.int64), rows)


def _idx_array(path: Path) -> NDArray[np.uint8]:
    """Read an idx file: two zero bytes, the type (8: bytes), the rank, the sizes, the values."""
    raw = read_bytes(path)
    rank = raw[3]
    if raw[:3] != b"\0\0\x08":
        raise ValueError("not an idx file of bytes")
    shape = np.frombuffer(raw, dtype=">u4", count=rank, offset=4)
    return np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * rank).reshape(shape.astype(int))


def _idx(paths: Paths, part: str, row: DatasetRow) -> Part:
    labels = _idx_array(paths[f"{part}-labels"])
    return Part(_idx_array(paths[part]), labels.astype(np.int64))


def _images(paths: Paths, part: str, row: DatasetRow) -> Part:
    with np.load(paths[part], allow_pickle=False) as arrays:
        return Part(arrays["images"], arrays["labels"].ravel().astype(np.int64))


def _medmnist(paths: Paths, part: str, row: DatasetRow) -> Part:
    with np.load(paths["archive"], allow_pickle=False) as arrays:
        labels = arrays[f"{part}_labels"].ravel().astype(np.int64)
        return Part(arrays[f"{part}_images"], labels)


def _cifar_binary(paths: Paths, part: str, row: DatasetRow) -> Part:
    """Read as many records (a label, then 3 x 32 x 32 bytes) as the row has, batch by batch."""
    n = row.shape_of(part)[0]
    batches = range(1, 6) if part == "train" else ()
    wanted = [f"data_batch_{i}.bin" for i in batches][: -(-n // 10_000)] or ["test_batch.bin"]
    found: dict[str, bytes] = {}
    with tarfile.open(paths["archive"], "r:*") as archive:
        for member in archive:
            name = Path(member.name).name
            if name in wanted and (stream := archive.extractfile(member)) is not None:
                found[name] = stream.read()
    records = np.frombuffer(b"".join(found[name] for name in wanted), dtype=np.uint8)
    records = records.reshape(-1, 3_073)[:n]
    images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return Part(np.ascontiguousarray(images), records[:, 0].astype(np.int64))


def _microarray(paths: Paths, part: str, row: DatasetRow) -> Part:
    with np.load(paths["train"], allow_pickle=False) as arrays:
        return Part(arrays["X"], arrays["y"].astype(np.int64))


def _csv(schema: Schema, label: str) -> Callable[[Paths, str, DatasetRow], Part]:
    names = (*(column.name for column in schema.columns), label)

    def parse(paths: Paths, part: str, row: DatasetRow) -> Part:
        table = read_table(read_bytes(paths[part]), names)
        return Part(table, np.char.rstrip(table.column(label), b"."))

    return parse


def _donor(paths: Paths, part: str, row: DatasetRow) -> Part:
    header, _, body = read_bytes(paths[part]).partition(b"\n")
    table = read_table(body, tuple(header.decode().strip().split(",")))
    return Part(table, table.column("Donate"), {"amount": table.column("Donation.Amount")})


PARSERS: dict[str, Callable[[Paths, str, DatasetRow], Part]] = {
    "libsvm": _libsvm,
    "counts": _csr_with_labels,
    "csr": _csr_with_labels,
    "idx": _idx,
    "images": _images,
    "medmnist": _medmnist,
    "cifar-binary": _cifar_binary,
    "microarray": _microarray,
    "adult": _csv(schemas.ADULT, "income"),
    "kddcup99": _csv(schemas.KDDCUP99, "label"),
    "donor": _donor,
}


def parse(parser: str, paths: Paths, part: str, row: DatasetRow) -> Part:
    """Read a part and check that it has the rows and columns the registry promises.

    Raises
    ------
    DataNotFoundError
        If a file is damaged or holds something else. The message names the files, never a value.
    """
    try:
        out = PARSERS[parser](paths, part, row)
    except (MemoryError, PermissionError):
        raise
    except Exception:
        # The parsers' own messages quote what they read, so they end here.
        raise DataNotFoundError(_damaged(paths, row)) from None
    shape = row.shape_of(part)
    whole = len(out.target) == shape[0] or part not in ("train", "test")
    if hasattr(out.data, "shape"):
        whole = whole and out.data.shape[1:] == shape[1:] and out.data.shape[0] == len(out.target)
    if not whole:
        raise DataNotFoundError(_damaged(paths, row))
    return out


def _damaged(paths: Paths, row: DatasetRow) -> str:
    names = " and ".join(str(path) for path in paths.values())
    return (
        f"{names} cannot be read as the data set {row.name!r}, whose training part is "
        f"{' x '.join(map(str, row.train_shape))}: a file is damaged or holds something else. "
        "Delete it and load again, or replace it."
    )
