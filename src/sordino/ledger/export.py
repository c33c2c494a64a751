"""A ledger as strict JSON, and back."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from sordino.errors import InvalidInputError, LedgerVersionError
from sordino.ledger.records import (
    DATASET_COLUMNS,
    ENTRY_COLUMNS,
    UNREADABLE,
    Dataset,
    Entry,
    dataset_from_row,
    dataset_row,
    decode_event,
    encode_event,
    entry_from_row,
    entry_row,
    jsonable,
)
from sordino.ledger.schema import VERSION

FORMAT = "sordino-ledger"
_NESTED = ("orders", "shares", "spent_renyi", "charges", "event")  # JSON texts in the tables


def to_json(records: Sequence[tuple[Dataset, Sequence[Entry]]]) -> str:
    """Return data sets and their histories as a JSON document."""
    datasets = [
        {
            **_object(DATASET_COLUMNS, dataset_row(dataset)),
            "history": [_object(ENTRY_COLUMNS, entry_row(entry)) for entry in entries],
        }
        for dataset, entries in records
    ]
    document = {"format": FORMAT, "version": VERSION, "datasets": datasets}
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)


def save(document: str, path: str | os.PathLike[str]) -> None:
    """Write an export that only its owner may read, as the ledger itself."""
    handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        with suppress(AttributeError):  # no file modes on this system
            os.fchmod(handle, 0o600)  # the file may have been there before
        file.write(document + "\n")


def from_json(document: str) -> list[tuple[Dataset, list[Entry]]]:
    """Return what :func:`to_json` wrote, or refuse the document."""
    datasets = _datasets(document)
    try:
        return [
            (
                dataset_from_row(_row(DATASET_COLUMNS, data)),
                [_entry(line) for line in data["history"]],
            )
            for data in datasets
        ]
    except UNREADABLE as error:
        raise InvalidInputError(
            "The document is not an export of a ledger: a data set or a reservation in it cannot "
            "be read. Export it again."
        ) from error


def _datasets(document: str) -> list[dict[str, Any]]:
    try:
        data = json.loads(document)
    except UNREADABLE as error:
        raise InvalidInputError("Expected an export of a ledger, got no JSON.") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InvalidInputError(f"Expected an export of a ledger (format {FORMAT!r}).")
    if data.get("version") != VERSION:
        raise LedgerVersionError(
            f"Expected an export of version {VERSION}, got {data.get('version')!r}. Export with "
            "the same version of Sordino."
        )
    datasets = data.get("datasets")
    if not isinstance(datasets, list):
        raise InvalidInputError("Expected a list of data sets in the export.")
    return datasets


def _entry(data: dict[str, Any]) -> Entry:
    entry = entry_from_row(_row(ENTRY_COLUMNS, data))
    encode_event(decode_event(entry.event_json))  # refuses what is not in the allow-list
    return entry


def _object(columns: str, values: Sequence[Any]) -> dict[str, Any]:
    """Return a row as an object, with the JSON texts in it unfolded."""
    return {
        column: json.loads(value) if column in _NESTED else _plain(value)
        for column, value in zip(columns.split(", "), values, strict=True)
    }


def _row(columns: str, data: dict[str, Any]) -> list[Any]:
    return [
        json.dumps(data[column], sort_keys=True, separators=(",", ":")) if column in _NESTED else data[column]
        for column in columns.split(", ")
    ]


def _plain(value: Any) -> Any:
    return jsonable(value) if isinstance(value, float) else value
