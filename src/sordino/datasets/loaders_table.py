"""Loaders of the tables."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from sordino.datasets import schemas
from sordino.datasets.load import Loaded, LoadOptions, Prepare, load, loader, to_dtype
from sordino.datasets.parse import Part
from sordino.datasets.rows import unit_rows
from sordino.datasets.tables import Schema, encode_table, raw_records
from sordino.errors import InvalidInputError

Encoding = Literal["onehot", "raw"]
MICROARRAYS = ("alon", "golub", "singh", "gordon", "shipp", "west", "chowdary")


def choose(name: str, value: Any, options: tuple[str, ...]) -> None:
    """Refuse a value that is not one of the options."""
    if value not in options:
        raise InvalidInputError(f"Expected {name} to be one of {', '.join(options)}, got {value!r}.")


def _encoder(schema: Schema, encoding: Encoding, unit: bool, dtype: np.dtype) -> Any:
    """Return a function from a table to what the loader returns as data."""
    choose("encoding", encoding, ("onehot", "raw"))
    if encoding == "raw":
        return lambda table: raw_records(table, schema)
    if unit:
        return lambda table: unit_rows(encode_table(table, schema, dtype))
    return lambda table: encode_table(table, schema, dtype)


def _names(schema: Schema, encoding: Encoding) -> list[str]:
    if encoding == "raw":
        return [column.name for column in schema.columns]
    return list(schema.feature_names)


@loader
def load_a9a(**options: Unpack[LoadOptions]) -> Loaded:
    """Load a9a: census income, 123 binary features, labels -1 and +1.

    Parameters
    ----------
    {parameters}

    Returns
    -------
    {returns}

    Examples
    --------
    >>> X, y = load_a9a(return_X_y=True)  # doctest: +SKIP
    >>> X.shape  # doctest: +SKIP
    (32561, 123)
    """
    return load("a9a", options)


@loader
def load_ijcnn1(**options: Unpack[LoadOptions]) -> Loaded:
    """Load ijcnn1: engine misfires, 22 features, nine tenths of the labels are -1.

    Parameters
    ----------
    {parameters}

    Returns
    -------
    {returns}
    """
    return load("ijcnn1", options)


@loader
def load_mushrooms(**options: Unpack[LoadOptions]) -> Loaded:
    """Load mushrooms: 112 binary features, labels 1 and 2, no test part.

    Parameters
    ----------
    {parameters}

    Returns
    -------
    {returns}
    """
    return load("mushrooms", options)


@loader
def load_adult(
    *,
    encoding: Encoding = "onehot",
    missing: Literal["drop", "zero"] = "drop",
    unit: bool = False,
    **options: Unpack[LoadOptions],
) -> Loaded:
    """Load Adult: census income, encoded into 104 columns by a declared schema.

    Parameters
    ----------
    encoding : {"onehot", "raw"}
        ``"onehot"`` is a sparse matrix with entries in [0, 1]; ``"raw"`` a structured array of the
        14 columns.
    missing : {"drop", "zero"}
        Leave incomplete records out, as the papers do (30,162 training rows remain), or keep them
        with zeros in the columns of what is missing.
    unit : bool
        Scale each encoded row to unit norm.
    {parameters}

    Returns
    -------
    {returns}

    Notes
    -----
    **Privacy.** Levels and bounds are declared, not computed (:data:`sordino.datasets.schemas.ADULT`).
    Whether a record is kept depends on that record alone.
    """
    choose("missing", missing, ("drop", "zero"))

    def prepare(part: Part, dtype: np.dtype) -> Part:
        table, labels = part.data, part.target
        if missing == "drop":
            whole = table.complete()
            table, labels = table.take(whole), labels[whole]
        encode = _encoder(schemas.ADULT, encoding, unit, dtype)
        return Part(encode(table), (labels == b">50K").astype(np.int64))

    return load("adult", options, prepare, feature_names=_names(schemas.ADULT, encoding))


def _kdd_target(labels: NDArray[Any], target: str) -> NDArray[np.int64]:
    if target == "attack":
        return (labels != b"normal").astype(np.int64)
    if target == "dos":
        return np.isin(labels, [kind.encode() for kind in schemas.KDD_DOS]).astype(np.int64)
    codes = {kind.encode(): code for code, kind in enumerate(schemas.KDD_LABELS)}
    kinds, places = np.unique(labels, return_inverse=True)
    return np.array([codes[kind] for kind in kinds], dtype=np.int64)[places]


@loader
def load_kddcup99(
    *,
    target: Literal["dos", "attack", "kind"] = "dos",
    encoding: Encoding = "onehot",
    unit: bool = False,
    **options: Unpack[LoadOptions],
) -> Loaded:
    """Load KDD Cup 1999 (the ten per cent sample), encoded into 122 columns by a declared schema.

    Parameters
    ----------
    target : {"dos", "attack", "kind"}
        1 for a denial of service (the task of the papers), 1 for any attack, or the kind of
        connection as an index into ``target_names``.
    encoding : {"onehot", "raw"}
        ``"onehot"`` is a sparse matrix with entries in [0, 1]; ``"raw"`` a structured array of the
        41 columns.
    unit : bool
        Scale each encoded row to unit norm.
    {parameters}

    Returns
    -------
    {returns}

    Notes
    -----
    **Privacy.** Levels and bounds are declared (:data:`sordino.datasets.schemas.KDDCUP99`). A service
    that is not declared (two test rows have one) is encoded as none. Many rows occur often, so
    record-level privacy does not hide a host that made many connections.
    """
    choose("target", target, ("dos", "attack", "kind"))
    names = {"dos": ["other", "dos"], "attack": ["normal", "attack"]}

    def prepare(part: Part, dtype: np.dtype) -> Part:
        encode = _encoder(schemas.KDDCUP99, encoding, unit, dtype)
        return Part(encode(part.data), _kdd_target(part.target, target))

    return load(
        "kddcup99",
        options,
        prepare,
        feature_names=_names(schemas.KDDCUP99, encoding),
        target_names=names.get(target, list(schemas.KDD_LABELS)),
    )


@loader
def load_donor_pva(
    *,
    target: Literal["donate", "amount"] = "donate",
    encoding: Encoding = "onehot",
    unit: bool = False,
    **options: Unpack[LoadOptions],
) -> Loaded:
    """Load DONOR, a sample related to KDD Cup 1998, encoded by a declared schema.

    Parameters
    ----------
    target : {"donate", "amount"}
        Whether a person gave (0 or 1), or how much (0 for who did not).
    encoding : {"onehot", "raw"}
        ``"onehot"`` is a sparse matrix with entries in [0, 1]; ``"raw"`` a structured array of the
        columns without the identifier.
    unit : bool
        Scale each encoded row to unit norm.
    {parameters}

    Returns
    -------
    {returns}

    Notes
    -----
    **Privacy.** Levels and bounds are declared (:data:`sordino.datasets.schemas.DONOR_PVA`). The
    amounts have no natural bound: pass a public ``target_bound`` when learning from them.
    """
    choose("target", target, ("donate", "amount"))

    def prepare(part: Part, dtype: np.dtype) -> Part:
        encode = _encoder(schemas.DONOR_PVA, encoding, unit, dtype)
        amount = np.where(part.extra["amount"] == b"", b"0", part.extra["amount"]).astype(float)
        gave = (part.target == b"Yes").astype(np.int64)
        return Part(encode(part.data), gave if target == "donate" else amount)

    names = _names(schemas.DONOR_PVA, encoding)
    classes = ["No", "Yes"] if target == "donate" else []
    return load("donor_pva", options, prepare, feature_names=names, target_names=classes)


def _centred(prepare: Prepare, standardise: bool) -> Prepare:
    """Standardise within each row, which is private; within columns would not be."""
    if not standardise:
        return prepare

    def scaled(part: Part, dtype: np.dtype) -> Part:
        rows = part.data.astype(np.float64)
        rows -= rows.mean(axis=1, keepdims=True)
        return dataclasses.replace(part, data=unit_rows(rows).astype(dtype))

    return scaled


@loader
def load_microarray(name: str, *, centre_rows: bool = False, **options: Unpack[LoadOptions]) -> Loaded:
    """Load a gene expression study: few people, thousands of genes, two classes.

    Parameters
    ----------
    name : {"alon", "golub", "singh", "gordon", "shipp", "west", "chowdary"}
        The first author.
    centre_rows : bool
        Subtract each sample's own mean and scale it to unit norm.
    {parameters}

    Returns
    -------
    {returns}

    Notes
    -----
    **Privacy.** Values are as published. Standardising genes uses the other people's values and is
    not private; centring a sample by its own mean is.
    """
    choose("name", name, MICROARRAYS)
    return load(f"microarray_{name}", options, _centred(to_dtype, centre_rows))
