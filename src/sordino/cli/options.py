"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from sordino.errors import InvalidInputError

Decorator = Callable[[Any], Any]
OUTPUT = click.Path(path_type=Path)
MODEL = click.argument("model", type=click.Path(path_type=Path))
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
UNBOOKED = "Note: booked on no ledger, so nobody adds it to what else is released."
OWN_OPTIONS = {
    "epsilon": "--epsilon",
    "delta": "--delta",
    "relation": "--relation",
    "ledger": "--ledger",
    "dataset_id": "--dataset",
    "schema": "--schema",
}
"""Parameters of models that `--set` and `--grid` leave alone, and the options that set them."""
REPORT = click.option("--report", type=OUTPUT, help="Also write the page of `sordino report` here.")
FORCE = click.option("--force", is_flag=True, help="Replace an output that exists.")


def all_of(*decorators: Decorator) -> Decorator:
    """Return several decorators as one, in the order in which `--help` shows them."""

    def decorate(command: Any) -> Any:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


FILE = all_of(
    click.option(
        "--format",
        "kind",
        type=click.Choice(("csv", "tsv", "parquet", "arrow", "npz", "libsvm")),
        help="Of the data; else by the ending of its name, CSV for standard input.",
    ),
    click.option("--delimiter", help="Of a CSV file; else the most frequent one in its header."),
    click.option(
        "--encoding", default="utf-8", show_default=True, help="Of a CSV file; it is never guessed."
    ),
    click.option("--decimal", default=".", show_default=True, help="The decimal point of a CSV file."),
    click.option(
        "--no-header",
        is_flag=True,
        help="The first row is a record; a schema names the columns, else they are x0, x1, ...",
    ),
    click.option(
        "--header", is_flag=True, help="The first row holds names; else one with a number is refused."
    ),
    click.option(
        "--features", type=click.IntRange(1), help="How many columns a libsvm file has; it is public."
    ),
)
DATA = all_of(click.argument("data"), FILE)
SCHEMA = click.option(
    "--schema", type=click.Path(path_type=Path), help="What the columns mean (TOML), from `sordino schema`."
)
TARGET = click.option("--target", help="The column to predict, where there is no schema.")
EPSILON = click.option("--epsilon", type=float, required=True, help="The privacy loss that may be spent.")
TERMS = all_of(
    click.option("--delta", type=float, help="The probability of a larger loss; else min(1e-5, 1/(10 n))."),
    click.option(
        "--relation",
        default="add-remove",
        show_default=True,
        help="What neighbours are: add-remove or replace-one.",
    ),
)
BUDGET = all_of(EPSILON, TERMS)
LEDGER = all_of(
    click.option(
        "--ledger", envvar="SORDINO_LEDGER", help="Where it is booked: a file or a postgresql:// URL."
    ),
    click.option("--dataset", help="The name of the data on the ledger."),
)


def data_file(data: str, options: dict[str, Any]) -> Any:
    """Take the options of a data file out of ``options`` and return the file."""
    from sordino.tables.data_file import DataFile

    kind, without, sure = (options.pop(name) for name in ("kind", "no_header", "header"))
    if without and sure:
        raise click.UsageError("Say either --header or --no-header.")
    how = {name: options.pop(name) for name in ("delimiter", "encoding", "decimal", "features")}
    return DataFile(data, kind, header=not without, sure=sure, **how)


def check_booking(ledger: str | None, dataset: str | None) -> tuple[str | None, str | None]:
    """Return the ledger and the data set, of which none or both are given."""
    if ledger is None and dataset is not None:
        raise click.UsageError("--dataset needs --ledger (or SORDINO_LEDGER), where the budget is.")
    if dataset is None and ledger is not None:
        raise click.UsageError("--ledger needs --dataset, the name of the data on it.")
    if ledger is not None and dataset is not None:
        require_budget(ledger, dataset)
    return ledger, dataset


def require_budget(ledger: str, dataset: str) -> None:
    """Refuse a ledger or a data set that is not there, before data is read; no ledger is made."""
    from sordino.ledger import Ledger

    with Ledger.open(ledger, create=False) as book:
        book.policy(dataset)


def values(pairs: tuple[str, ...], option: str) -> dict[str, Any]:
    """Return ``NAME=VALUE`` pairs as a dictionary; values are read as TOML, or else are texts."""
    out = {}
    for pair in pairs:
        name, mark, text = pair.partition("=")
        if not mark or not name.strip().isidentifier():
            raise click.UsageError(f"{option} wants NAME=VALUE, got {pair!r}.")
        out[name.strip()] = value_of(text.strip())
    return out


def parameters(pairs: tuple[str, ...], option: str) -> dict[str, Any]:
    """Return the parameters of a model; what has an option of its own is refused."""
    out = values(pairs, option)
    for name in out:
        if name in OWN_OPTIONS:
            raise click.UsageError(f"{option} {name}: use {OWN_OPTIONS[name]} instead.")
    return out


def value_of(text: str) -> Any:
    """Return a number, a flag or a list as TOML writes them; anything else is a text."""
    import tomllib

    words = {"none": None, "None": None, "True": True, "False": False}
    if text in words:
        return words[text]
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        return text


def known_parameters(kind: Any, given: dict[str, Any]) -> None:
    """Refuse parameters that an estimator does not have, before any data is read."""
    known = set(kind._get_param_names())
    unknown = sorted(set(given) - known)
    if unknown:
        raise InvalidInputError(
            f"{kind.__name__} has no parameter {unknown[0]!r}. It has: {', '.join(sorted(known))}."
        )


def pair(option: str, text: str | None) -> tuple[float, float] | None:
    """Return the two numbers of an option such as --bounds; None where it was not given."""
    if text is None:
        return None
    found = numbers(option, text)
    if len(found) != 2:
        raise click.UsageError(f"{option} wants two numbers: 0,100.")
    return found[0], found[1]


def numbers(option: str, text: str | None) -> list[float]:
    """Return the numbers of an option, which has commas between them."""
    try:
        return [float(part) for part in (text or "").strip("[]").split(",")]
    except ValueError:
        raise click.UsageError(f"{option} wants numbers with commas between: 0,18,65.") from None
