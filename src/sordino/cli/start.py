"""`sordino init`, `sordino doctor` and `sordino completion`: the first hour."""

from __future__ import annotations

import math
import os
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import click

from sordino.cli import shared
from sordino.errors import InvalidInputError, SordinoError

_SHARE = 4  # a first fit may take this part of the budget


@click.command()
@click.argument("data", required=False, metavar="DATA")
@click.option("--dataset", help="What the records are called on the ledger; else the name of the file.")
@click.option("--target", metavar="COLUMN", help="The column to predict.")
@click.option(
    "--person", metavar="COLUMN", help="The column that says whose record it is, if several are one's."
)
@click.option(
    "--epsilon", type=float, help="Epsilon of everything that is ever released; asked for if not given."
)
@click.option(
    "--delta", type=float, default=1e-5, show_default=True, help="Delta of everything ever released."
)
@click.option("--ledger", default="budget.db", show_default=True, help="Where the budget is kept.")
@shared.FILE
@shared.FORCE
@shared.JSON
def init(data: str | None, epsilon: float | None, ledger: str, **told: Any) -> None:
    """Begin with DATA: a budget on a ledger, a draft of its schema, a configuration for the commands.

    It reads the names of the columns and no record. What is not given is asked for in a terminal.
    """
    import tomli_w

    from sordino.kernel import Relation
    from sordino.ledger import BudgetPolicy
    from sordino.ledger.address import hide
    from sordino.tables import draft_schema
    from sordino.tables.files import replace_file

    asks = None in (data, target := told.pop("target"), epsilon)
    try:
        data = data or click.prompt("The file of records (CSV, Parquet, Arrow)")
        target = target or click.prompt("The column to predict", default="", show_default=False)
        if asks and told["person"] is None:
            words = "The column that says whose a record is (blank: nobody has more than one record)"
            told["person"] = click.prompt(words, default="", show_default=False) or None
        if epsilon is None:
            epsilon = float(click.prompt("Epsilon of everything ever released", type=float, default=3.0))
    except click.Abort:
        if sys.stdin.isatty():  # Ctrl-C
            raise
        told = {"target": target or "COLUMN", "epsilon": epsilon or 3, **told, "ledger": ledger}
        wanted = shared.command_line("init", data or "DATA", **told)
        raise click.UsageError(f"Nobody can be asked here. Type: {wanted}") from None
    if not math.isfinite(epsilon):
        raise InvalidInputError(f"Expected a finite epsilon, got {epsilon}: that protects nobody.")
    person, delta = told.pop("person"), told.pop("delta")
    name = told.pop("dataset") or Path(data).name.partition(".")[0]
    schema, config = Path(f"{name}.toml"), Path(f"{name}.run.toml")
    for place in (schema, config):
        shared.require_places({"data": data, "output": place})
    usual = {"encoding": "utf-8", "decimal": "."}
    how = {key: value for key, value in told.items() if value and value != usual.get(key)}
    kinds = {column: kind for column, kind in ((target, "target"), (person, "person")) if column}
    file = shared.data_file(data, told)
    draft = draft_schema(file, kinds=kinds)
    policy = BudgetPolicy(epsilon, delta, Relation.ADD_REMOVE, "person" if person else "record")
    with shared.open_ledger(ledger, create=True) as book:
        book.create(name, policy)
    replace_file(schema, draft.encode())
    check = shared.command_line("schema", "check", schema, data, **how, ledger=ledger, dataset=name)
    ending = shared.split_ending(file)
    train, test, score = (f"{name}-{end}" for end in (f"train.{ending}", f"test.{ending}", "score.json"))
    parts = {"schema": schema, **how, "train": train, "test": test}
    how |= {"format": ending} if how.pop("kind", None) else {}
    fit = {"data": train, "schema": str(schema), "epsilon": epsilon / _SHARE, "output": f"{name}.sordino"}
    head = "# Options of sordino fit; what is typed wins. epsilon is a quarter of the budget.\n"
    if ledger != (ledger := hide(ledger)):
        head += "# The password of the ledger is not written down: PGPASSWORD or a password file has it.\n"
    said = tomli_w.dumps({"ledger": ledger, "dataset": name, **how, "fit": fit})
    replace_file(config, f"{head}{said}".encode())
    price = {"config": config, "epsilon": epsilon / (2 * _SHARE), "output": score}
    page = {"ledger": ledger, "dataset": name, "output": f"{name}.html", "scores": score}
    steps = [
        f"Fill in the blanks of {schema}, then: {check}",
        shared.command_line("split", data, **parts),
        shared.command_line("fit", config=config),
        shared.command_line("evaluate", fit["output"], test, **price),
        shared.command_line("report", fit["output"], **page),
    ]
    made = {"schema": schema, "config": config, "ledger": ledger, "dataset": name, "next": steps}
    words = f"{name}: epsilon {epsilon:g}, delta {delta:g} per {policy.unit} on {ledger}. No record was read."
    lines = "".join(f"\n  {i}. {step}" for i, step in enumerate(steps, 1))
    shared.result(made, f"{words}\nNext:{lines}")


# ------------------------------------------------------------------------------------------ `sordino doctor`

Finding = tuple[str, bool, str]  # what was looked at, whether it is well, in words


@click.command()
@click.option("--ledger", envvar="SORDINO_LEDGER", help="Also look at this ledger.")
@shared.JSON
def doctor(ledger: str | None) -> None:
    """Look at what Sordino stands on: versions, noise, compiled code, extras, a GPU, the ledger.

    Status 1 where something is wrong; its line ends with the command that mends it.
    """
    found = [*_versions(), *_machine(), *_extras()]
    if ledger is not None:
        found.append(_ledger(ledger))
    if shared.wants_json():
        shared.document([{"part": part, "well": well, "words": words} for part, well, words in found])
    else:
        shared.show_table(
            ("part", "", "what was found"), [(p, "ok" if w else "WRONG", words) for p, w, words in found]
        )
    if not all(well for _, well, _ in found):
        sys.exit(1)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def _versions() -> Iterator[Finding]:
    from sordino import __version__

    yield "Sordino", True, f"{__version__}, Python {platform.python_version()} on {platform.system()}"
    for line in metadata.requires("sordino") or ():
        match = re.match(r"([\w-]+)>=([\d.]+)(?:,<([\d.]+))?$|([\w-]+)<([\d.]+),>=([\d.]+)$", line)
        if match is None:  # an extra
            continue
        name, low, high = match[1] or match[4], match[2] or match[6], match[3] or match[5]
        try:
            here = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield name, False, f"not installed: pip install '{line}'"
            continue
        well = _numbers(here) >= _numbers(low) and (high is None or _numbers(here) < _numbers(high))
        yield name, well, here if well else f"{here} does not suit: pip install '{line}'"


def _machine() -> Iterator[Finding]:
    """Look at noise, at the place of compiled code, and at a GPU."""
    from sordino.kernel.arrays import _folders
    from sordino.kernel.noise import sources_differ

    apart = sources_differ()
    words = "keys of the operating system, no two alike" if apart else "two sources drew alike: use no result"
    yield "noise", apart, words
    for folder in _folders("sordino.kernel.query"):
        there = next(place for place in (folder, *folder.parents) if place.exists())
        if os.access(there, os.W_OK | os.X_OK):
            yield "compiled code", True, f"kept in {folder.parents[1]}"
            break
    else:
        words = "no place to keep it, each process compiles: export SORDINO_CACHE=FOLDER"
        yield "compiled code", False, words
    try:
        cuda = import_module("torch").cuda
        words = "none; networks are trained on the processor"
        yield "GPU", True, cuda.get_device_name(0) if cuda.is_available() else words
    except ImportError:
        yield "GPU", True, "not looked for: torch is not installed"


def _extras() -> Iterator[Finding]:
    modules = {"tables": "pandas", "save": "skops", "torch": "torch", "dask": "dask", "flower": "flwr"}
    modules |= {"mpc": "cryptography", "postgres": "psycopg", "onnx": "skl2onnx"}
    modules["transformers"] = "transformers"
    for extra, module in modules.items():
        words = f"not installed; if wanted: pip install 'sordino[{extra}]'"
        with suppress(metadata.PackageNotFoundError):
            words = f"{module} {metadata.version(module)}"
        yield f"extra {extra}", True, words


def _ledger(address: str) -> Finding:
    try:
        with shared.open_ledger(address) as book:
            book.verify()
            return "ledger", True, f"{len(book.datasets())} data sets, every reservation adds up"
    except SordinoError as error:
        return "ledger", False, str(error)


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print what lets SHELL complete commands and options.

    Bash: `sordino completion bash > ~/.sordino.sh`, and the line `source ~/.sordino.sh` in ~/.bashrc.
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    if made is None:
        raise InvalidInputError(f"Expected bash, zsh or fish, got {shell!r}.")
    root = click.get_current_context().find_root()
    click.echo(made(root.command, {}, "sordino", "_SORDINO_COMPLETE").source())
