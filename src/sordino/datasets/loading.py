"""``load(name)``: from a name in the registry to features and targets.

The files are in the folder ``SORDINO_DATA``, then in the cache, then at the public source.
"""

from __future__ import annotations

import dataclasses
import gzip
import io
import lzma
import os
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse
from sklearn import datasets as bundled
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import normalize
from sklearn.utils import Bunch

from sordino.errors import DataNotFoundError, InvalidInputError, MissingExtraError, import_extra
from sordino.kernel.noise import public_generator
from sordino.tables import Category, Number, Schema, TableEncoder
from sordino.tables.files import replace_file


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
    """One of several things to predict: a column, or classes by the first and last that are ``positive``."""

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


def read_resource(package: str, name: str) -> dict[str, Any]:
    """Return a TOML file of a package, its arrays as tuples."""

    def frozen(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: frozen(entry) for key, entry in value.items()}
        return tuple(map(frozen, value)) if isinstance(value, list) else value

    made: dict[str, Any] = frozen(tomllib.loads(resources.files(package).joinpath(name).read_text("utf-8")))
    return made


def _column(name: str, *declared: Any) -> Number | Category:
    """Return a column as the papers encode it: lines, and nothing for what is missing or not declared."""
    if isinstance(declared[0], str):
        return Category(name, declared, missing="zero", other="zero")
    low, high, *options = declared
    missing = "column" if "missing" in options else "zero"
    return Number(name, low, high, missing=missing, knots=1, log="log" in options)


def _dataset(name: str, row: dict[str, Any]) -> Dataset:
    values = {"folder": name} | row
    shapes = {part: values.pop(part) for part in ("train", "validation", "test") if part in values}
    values["files"] = tuple(DataFile(**file) for file in values.get("files", ()))
    values["targets"] = {key: Target(**target) for key, target in values.get("targets", {}).items()}
    if "columns" in values:
        values["schema"] = Schema(tuple(_column(*column) for column in values.pop("columns")))
    known = Dataset.__dataclass_fields__
    details = {key: value for key, value in values.items() if key not in known}
    own = {key: value for key, value in values.items() if key in known}
    return Dataset(name=name, shapes=shapes, details=details, **own)


_ROWS = read_resource("sordino.datasets", "registry.toml")
# A row "like" another takes what it does not say itself from that one.
_WHOLE = {name: {**_ROWS.get(row.pop("like", ""), {}), **row} for name, row in _ROWS.items()}
REGISTRY: Mapping[str, Dataset] = MappingProxyType(
    {name: _dataset(name, row) for name, row in _WHOLE.items()}
)
"""Every data set that :func:`sordino.datasets.load` can load, by name."""


Download = bool | Literal["unverified"]


def roots(data_home: str | os.PathLike[str] | None = None) -> tuple[Path, ...]:
    """Return the folders that are searched, the one that downloads go to last."""
    from sordino.kernel.arrays import cache_folder

    if data_home is not None:
        return (Path(data_home).expanduser(),)
    given = os.environ.get("SORDINO_DATA")
    folders = [Path(given).expanduser()] if given else []
    return (*folders, cache_folder() / "data")


class Files:
    """The files of one data set, found on disk or downloaded when they are asked for."""

    def __init__(
        self, row: Dataset, data_home: str | os.PathLike[str] | None = None, download: Download = True
    ) -> None:
        if download not in (True, False, "unverified"):
            raise InvalidInputError(
                'Expected download to be True, False or "unverified", got '
                f"{download!r}. Only the last one takes files without a published digest."
            )
        offline = os.environ.get("SORDINO_OFFLINE", "") not in ("", "0")
        self.row = row
        self.folders = tuple(root / row.folder for root in roots(data_home))
        self.used: list[Path] = []
        self._download: Download = False if offline else download

    @property
    def home(self) -> Path:
        """The folder that downloads and conversions go to."""
        return self.folders[-1]

    def on_disk(self, part: str) -> Path | None:
        """Return the path of a part, or None where it is in no folder."""
        names = [file.name for file in self.row.files if file.part == part]
        paths = [folder / name for folder in self.folders for name in names]
        return next((path for path in paths if path.is_file()), None)

    def path(self, part: str) -> Path:
        """Return the path of a part, downloaded if need be.

        Raises
        ------
        DataNotFoundError
            If it is neither there nor downloadable. The message says which file to put where.
        """
        found, reasons = self.on_disk(part), list[str]()
        for file in self.row.files:
            if found is not None or file.part != part or not file.urls:
                continue
            if not self._download:
                reasons.append(f"Downloads are off, so {file.name} was not fetched.")
            elif file.digest is None and self._download != "unverified":
                reasons.append(
                    f"No digest of {file.name} is published, so it is not downloaded by itself; allow it "
                    'with download="unverified".'
                )
            else:
                found = fetch(file, self.home, reasons)
        if found is None:
            wanted = [file for file in self.row.files if file.part in (part, "archive")]
            urls = [url for file in wanted for url in file.urls]
            sentences = [
                f"The data set {self.row.name!r} is not on this machine.",
                *reasons,
                f"Put {' or '.join(file.name for file in wanted)} into "
                f"{' or '.join(map(str, self.folders))}, or set SORDINO_DATA to a folder that has a folder "
                f"{self.row.folder!r} with it.",
                f"Public source: {', '.join(urls)}." if urls else f"See {self.row.source}.",
                *([self.row.note] if self.row.note else []),
            ]
            raise DataNotFoundError(" ".join(sentences))
        self.used.append(found)
        return found


def fetch(file: DataFile, folder: Path, reasons: list[str]) -> Path | None:
    """Download a file with pooch, which checks its digest; each address that fails adds a reason."""
    pooch = import_extra("pooch", "datasets")
    for url in file.urls:
        try:
            return Path(pooch.retrieve(url, file.digest, file.name, folder))
        except (OSError, ValueError) as error:
            reasons.append(f"{url} failed ({error}).")
    return None


# ----------------- Readers: one short function per format, from the files of a part to its rows and targets


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
    files.home.mkdir(parents=True, exist_ok=True)
    for part, found in texts.items():
        codes = np.searchsorted(texts["train"].target_names, found.target_names)
        labels[f"y_{part}"] = codes[found.target].astype(np.int8)
        if files.row.targets:  # IMDB: the file name ends in the stars
            stars = [int(Path(name).stem.rpartition("_")[2]) for name in found.filenames]
            labels[f"rating_{part}"] = np.array(stars, dtype=np.int8)
        sparse.save_npz(counts := io.BytesIO(), vectoriser.transform(found.data))
        replace_file(files.home / f"{part}_counts.npz", counts.getvalue())
    words = "\n".join(vectoriser.get_feature_names_out()) + "\n"
    replace_file(files.home / "vocabulary.txt.xz", lzma.compress(words.encode()))
    np.savez_compressed(named := io.BytesIO(), **labels)
    replace_file(files.home / "labels.npz", named.getvalue())


def _csv(files: Files, part: str) -> Part:
    """Read a table by its declared columns; its label may end in a full stop."""
    row = files.row
    assert row.schema is not None
    columns, label = row.schema.columns, row.details["label"]
    numbers = {key: target.number for key, target in row.targets.items() if target.number}
    kinds = {column.name: str if isinstance(column, Category) else np.float64 for column in columns}
    kinds |= {label: str} | dict.fromkeys(numbers.values(), np.float64)
    header = {"header": 0} if row.details.get("header") else {"names": list(kinds)}
    pandas = import_extra("pandas", "datasets")
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


def _bundle(files: Files, part: str) -> Part:
    """Take a set that comes with scikit-learn and divide it by its declared bounds."""
    source = getattr(bundled, f"load_{files.row.name}")()
    data = np.clip(source.data / np.array(files.row.details["scale"], dtype=float), 0.0, 1.0)
    return Part(data, source.target.astype(np.int64), {}, [str(name) for name in source.feature_names])


READERS: dict[str, Callable[[Files, str], Part]] = {
    "libsvm": _libsvm,
    "counts": _counts,
    "csv": _csv,
    "idx": lambda files, part: Part(
        _idx_array(files.path(part)), _idx_array(files.path(f"{part}-labels")).astype(np.int64)
    ),
    "images": _cifar,
    "medmnist": _medmnist,
    "microarray": lambda files, part: _npz(files, part, "X", "y", "train"),
    "bundled": _bundle,
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
        raise DataNotFoundError(_damage_words(files.used, row)) from None
    n, *columns = row.shapes[part]
    if not len(out.target) == out.data.shape[0] == n or (
        not row.schema and list(out.data.shape[1:]) != columns
    ):
        raise DataNotFoundError(_damage_words(files.used, row))
    return out


def _damage_words(paths: list[Path], row: Dataset) -> str:
    return (
        f"{' and '.join(map(str, dict.fromkeys(paths)))} cannot be read as the data set {row.name!r}, whose "
        f"training part is {' x '.join(map(str, row.shapes['train']))}: a file is damaged or holds something "
        "else. Delete it and load again, or replace it."
    )


def unit_rows(data: Any) -> Any:
    """Divide each row by its Euclidean norm; rows of zeros stay. Sparse stays sparse.

    **Privacy.** A row depends on itself alone, so this is not a release. Afterwards no row has a norm
    above 1 but for rounding, and ``data_norm=1`` clips nothing that matters.

    Examples
    --------
    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    # By the largest entry first: squares of 1e-162 vanish and those of 1e155 overflow.
    return normalize(normalize(data, norm="max", axis=1, copy=True), norm="l2", axis=1, copy=False)


def log1p_unit(counts: Any, dtype: DTypeLike = np.float64) -> Any:
    """Map word counts to ``log(1 + count)`` and scale each row to unit norm.

    Unlike tf-idf it uses nothing but the document itself, so it is free of privacy cost.

    Parameters
    ----------
    counts : counts, at least zero.
    dtype : the floating type of the result.

    Examples
    --------
    >>> log1p_unit(np.array([[1, 0, 1]])).round(4)
    array([[0.7071, 0.    , 0.7071]])
    """
    is_sparse = sparse.issparse(counts)
    values = counts.data if is_sparse else np.asarray(counts)
    if values.size and values.min() < 0:
        raise InvalidInputError("Expected counts of at least 0, got negative entries.")
    return unit_rows(counts.astype(dtype).log1p() if is_sparse else np.log1p(values.astype(dtype)))


def centred_unit(data: Any) -> Any:
    """Subtract from each row its own mean and scale it to unit norm; columns would use other people."""
    rows = np.asarray(data)
    return unit_rows(rows - rows.mean(axis=1, keepdims=True))


_TRANSFORMS = {
    "unit": unit_rows,
    "log1p-unit": lambda rows: log1p_unit(rows, rows.dtype),
    "centred-unit": centred_unit,
}


def load(
    name: str,
    *,
    split: str | None = None,
    target: str | None = None,
    transform: Literal["unit", "log1p-unit", "centred-unit"] | None = None,
    encoding: Literal["onehot", "raw"] | None = None,
    missing: Literal["drop", "zero"] | None = None,
    flatten: bool | None = None,
    dtype: DTypeLike | None = None,
    shuffle: bool = False,
    random_state: object = None,
    return_X_y: bool = False,
    data_home: str | os.PathLike[str] | None = None,
    download: Download = True,
) -> Bunch | tuple[Any, NDArray[Any]]:
    """Load a data set of the :data:`REGISTRY` by its name, for example ``load("a9a")``.

    Parameters
    ----------
    name, split : the set and its rows: ``"train"``, ``"test"``, several joined by ``+``, or ``"all"``.
        Without a split these are the training rows, and ``test_data``, ``test_target`` come along.
    target : what to predict where there is a choice: ``"dos"``, ``"attack"``, ``"kind"`` (kddcup99),
        ``"donate"``, ``"amount"`` (donor_pva), ``"sentiment"``, ``"rating"`` (imdb), ``"digit"``, ``"high"``
        (digits).
    transform : "unit", "log1p-unit" or "centred-unit" scale each row to unit norm: as it is, after
        ``log(1 + x)``, or after subtracting its own mean.
    encoding, missing : tables: encoded by the declared schema ("onehot") or a DataFrame as read ("raw");
        incomplete records left out ("drop", the default for adult, as in the papers) or kept with zeros for
        what is missing ("zero").
    flatten, dtype : images: rows of pixels or arrays. Floats are float64, for images float32 in [0, 1]; or
        uint8.
    shuffle, random_state : permute the rows of ``data`` by a public seed, without looking at the data.
    return_X_y : return ``(data, target)`` instead of a Bunch, which also holds ``target_names``,
        ``feature_names`` where there are names, ``DESCR``, ``shape``, ``licence``, ``citation``, ``source``.
    data_home, download : a folder to use instead of ``SORDINO_DATA`` and the cache; whether to download what
        is missing, and even what has no published digest.

    Notes
    -----
    **Privacy.** Nothing here uses more than one record: levels and bounds are declared in the
    registry, transforms act on each row alone. What the *sources* did is in each description.
    """
    if name not in REGISTRY:
        raise InvalidInputError(f"There is no data set {name!r}. Choose one of: {', '.join(REGISTRY)}.")
    recipe = _Recipe(REGISTRY[name], target, transform, encoding, missing, flatten, dtype)
    files = Files(recipe.row, data_home, download)
    part = _stack([recipe.prepare(read(files, key)) for key in recipe.parts(split)])
    part = _shuffle(part, random_state) if shuffle else part
    if return_X_y:
        return part.data, part.target
    others: dict[str, Any] = {}
    for key in recipe.row.shapes if split is None else ():
        if key != "train":
            other = recipe.prepare(read(files, key))
            named = {"data": other.data, "target": other.target, **other.extra}
            others |= {f"{key}_{what}": value for what, value in named.items()}
    return recipe.bunch(part, others)


def _among(name: str, value: object, choices: Any) -> None:
    if value is not None and value not in choices:
        listed = ", ".join(map(str, choices))
        raise InvalidInputError(f"Expected {name} to be one of {listed}, got {value!r}.")


@dataclass(frozen=True)
class _Recipe:
    """What one call asked for, checked, and how a part that was read becomes that."""

    row: Dataset
    target: str | None
    transform: str | None
    encoding: str | None
    missing: str | None
    flatten: bool | None
    dtype: Any

    def __post_init__(self) -> None:
        is_table = self.row.schema is not None
        for option, is_read in (
            ("target", bool(self.row.targets)),
            ("encoding", is_table),
            ("missing", is_table),
            ("flatten", self.row.is_image),
            ("transform", self.encoding != "raw" and self.flatten is not False),
            ("dtype", self.encoding != "raw"),
        ):
            if getattr(self, option) is not None and not is_read:
                raise InvalidInputError(
                    f"{option}={getattr(self, option)!r} has no meaning for the data set {self.row.name!r} "
                    "as it was asked for. Leave it out."
                )
        _among("target", self.target, self.row.targets)
        _among("transform", self.transform, _TRANSFORMS)
        _among("encoding", self.encoding, ("onehot", "raw"))
        _among("missing", self.missing, ("drop", "zero"))
        kinds = ("float64", "float32", "uint8") if self.row.is_image else ("float64", "float32")
        _among("dtype", None if self.dtype is None else _dtype_name(self.dtype), kinds)

    def parts(self, split: str | None) -> tuple[str, ...]:
        known = tuple(self.row.shapes)
        parts = ("train",) if split is None else known if split == "all" else tuple(split.split("+"))
        if not set(parts) <= set(known) or len(set(parts)) < len(parts):
            raise InvalidInputError(
                f"Expected split to be one of {', '.join((*known, 'all'))} for the data set "
                f"{self.row.name!r}, or several joined by +, got {split!r}."
            )
        return parts

    def prepare(self, part: Part) -> Part:
        """Choose the target, encode or scale the features, transform the rows."""
        chosen = self.chosen
        if self.target and chosen.number is not None:
            part = dataclasses.replace(part, target=np.asarray(part.extra[self.target], dtype=np.float64))
        elif chosen.positive is not None:
            first, last = chosen.positive
            positive = (part.target >= first) & (part.target <= last)
            part = dataclasses.replace(part, target=positive.astype(np.int64))
        if self.row.schema is not None:
            part = self._encode(part)
        elif self.row.is_image:
            rows = part.data if self.flatten is False else part.data.reshape(len(part.data), -1)
            dtype = np.dtype(self.dtype or "float32")
            rows = rows if dtype == np.uint8 else rows.astype(dtype) / dtype.type(255)
            part = dataclasses.replace(part, data=rows)
        else:
            part = dataclasses.replace(part, data=part.data.astype(self.dtype or "float64", copy=False))
        if self.transform is None:
            return part
        return dataclasses.replace(part, data=_TRANSFORMS[self.transform](part.data))

    @property
    def chosen(self) -> Target:
        """The target that was asked for, or the first one."""
        known = self.row.targets
        return known[self.target] if self.target else next(iter(known.values()), Target())

    def _encode(self, part: Part) -> Part:
        """Encode a table, after leaving out what is incomplete, which each record decides alone."""
        frame, target = part.data, part.target
        if (self.missing or self.row.details.get("missing", "zero")) == "drop":
            whole = ~frame.isna().any(axis=1).to_numpy()
            frame, target = frame[whole], target[whole]
        if self.encoding == "raw":
            return Part(frame, target, {}, list(frame.columns))
        assert self.row.schema is not None
        encoder = TableEncoder(
            self.row.schema, sparse_output=True, dtype=_dtype_name(self.dtype or "float64")
        )
        data = encoder.fit_transform(frame)
        data.eliminate_zeros()
        return Part(data, target, {}, encoder.get_feature_names_out().tolist())

    def bunch(self, part: Part, more: dict[str, Any]) -> Bunch:
        """Return a part with what is known of its data set, and more."""
        row = self.row
        classes = row.classes if self.chosen.classes is None else self.chosen.classes
        named = {} if part.feature_names is None else {"feature_names": part.feature_names}
        if "topics" in row.details:
            named["topic_names"] = list(row.details["topics"])
        return Bunch(
            data=part.data,
            target=part.target,
            **part.extra,
            **named,
            target_names=list(classes),
            DESCR=row.describe(),
            shape=part.data.shape,
            **{key: getattr(row, key) for key in ("name", "licence", "citation", "source")},
            **more,
        )


def _dtype_name(dtype: object) -> str:
    try:
        return str(np.dtype(dtype))  # type: ignore[call-overload]
    except TypeError:
        return str(dtype)


def _stack(parts: list[Part]) -> Part:
    first, *others = parts
    if not others:
        return first
    rows = [part.data for part in parts]
    if sparse.issparse(first.data):
        data: Any = sparse.vstack(rows, format="csr")
    elif isinstance(first.data, np.ndarray):
        data = np.concatenate(rows)
    else:
        import pandas

        data = pandas.concat(rows, ignore_index=True)
    extra = {key: np.concatenate([part.extra[key] for part in parts]) for key in first.extra}
    return Part(data, np.concatenate([part.target for part in parts]), extra, first.feature_names)


def _shuffle(part: Part, random_state: object) -> Part:
    public = public_generator(random_state)
    order = public.permutation(len(part.target))
    rows = part.data if isinstance(part.data, np.ndarray) or sparse.issparse(part.data) else part.data.iloc
    extra = {key: values[order] for key, values in part.extra.items()}
    return Part(rows[order], part.target[order], extra, part.feature_names)
