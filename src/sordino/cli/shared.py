"""What the commands share: places of files, a configuration file, options, and what they print."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from sordino.errors import InvalidInputError, LedgerError

# ------------ Where commands write: never onto a file that they read, nor twice onto one place, though forced

CONFIG = "sordino.config"  # where a context keeps the path of its configuration
RUNNING = "sordino.running"  # and that of the command that was typed
JOINT = "sordino.joint"  # and whether it has begun something that members do together: it fails with status 1
_OUTPUTS = ("output", "report", "train", "test")
_ADDRESSES = ("data", "ledger")  # texts: a path, standard input, or a URL
_BESIDE = ("", "-wal", "-shm", "-journal")  # files of one ledger


def guard(command: click.Command) -> None:
    """Let a command, and those of a group, compare its places before it reads, books or writes anything."""
    if isinstance(command, click.Group):
        for part in command.commands.values():
            guard(part)
        return
    run = command.callback
    if run is None:
        return

    @functools.wraps(run)
    def guarded(*words: Any, **chosen: Any) -> Any:
        context = click.get_current_context()
        context.meta[RUNNING] = context
        require_places({**chosen, "config": chosen.get("config", context.meta.get(CONFIG))})
        path = context.command_path.removeprefix(context.find_root().command_path)
        context.meta[JOINT] = path.split()[:1] in (["party"], ["consortium"])
        return run(*words, **chosen)

    command.callback = guarded


def require_places(chosen: dict[str, Any]) -> None:
    """Refuse an output that is an input or another output, that cannot be written, or that is there already.

    A command without --force replaces what is there.
    """
    taken, force = list(_inputs(chosen)), click.get_current_context().meta.get("sordino--force", True)
    places = {key: Path(chosen[key]) for key in _OUTPUTS if chosen.get(key) is not None}
    for key, place in places.items():
        for name, other in taken:
            if _same(place, other):
                raise InvalidInputError(
                    f"Expected another place for --{key} than {str(place)!r}: this command has it as its "
                    f"{name}, which would be lost. Choose another place; --force does not replace it."
                )
        taken.append((f"--{key}", place))
    for place in places.values():
        folder = place.parent
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise InvalidInputError(
                f"Cannot write {place.name!r}: {str(folder)!r} is no folder one can write to."
            )
        if place.is_dir():
            raise InvalidInputError(f"Cannot write {str(place)!r}: it is a folder.")
        if place.exists() and not force:
            raise InvalidInputError(f"{str(place)!r} exists. Choose another place, or pass --force.")


def _inputs(chosen: dict[str, Any]) -> Iterator[tuple[str, Path]]:
    """Yield what a command reads, by the names of its parameters."""
    for name, value in chosen.items():
        if name in _OUTPUTS:
            continue
        for entry in value if isinstance(value, tuple) else (value,):
            if isinstance(entry, Path):
                yield name, entry
            elif name in _ADDRESSES and isinstance(entry, str) and entry != "-":
                beside = _BESIDE if name == "ledger" else ("",)
                yield from ((name, Path(entry + end).expanduser()) for end in beside)


def _same(one: Path, other: Path) -> bool:
    """Tell whether two paths are one file, through links of any kind."""
    try:
        return one.resolve() == other.resolve() or (one.exists() and other.exists() and one.samefile(other))
    except (OSError, RuntimeError, ValueError):  # no path at all: whoever opens it says so
        return False


# ------------------- One TOML file for all flags of a run: shared keys at the top, a table for each command

SECRET = ("ledger",)  # an address may hold a password
_UNSAID = ("config", "json", "force")


def config_option(command: Any) -> Any:
    """Add ``--config`` to a command."""
    return click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        is_eager=True,
        expose_value=False,
        callback=_load,
        help="A TOML file with the options of this run; what is typed wins.",
    )(command)


def _load(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    ctx.meta[CONFIG] = path
    try:
        text = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path.name} is no TOML file: {error}") from None
    root = ctx.find_root().command  # a shared key or a table may belong to another command
    commands = dict(root.commands) if isinstance(root, click.Group) else {ctx.info_name or "": ctx.command}
    shared = {key: value for key, value in text.items() if not isinstance(value, dict)}
    tables = {key: value for key, value in text.items() if isinstance(value, dict)}
    every = {key for command in commands.values() for key in _keys(command)}
    for name, table in {"": shared, **tables}.items():
        if name and name not in commands:
            raise click.UsageError(
                f"{path.name}: [{name}] is no command. A table is called as one of: {', '.join(commands)}."
            )
        known = _keys(commands[name]) if name else every
        unknown = sorted(key for key in table if _key(key) not in known)
        if unknown:
            where, names = f"[{name}] " if name else "", ", ".join(sorted(known))
            raise click.UsageError(f"{path.name}: {where}{unknown[0]!r} is no option. Known are: {names}.")
    own, options = _keys(ctx.command), {param.name: param for param in ctx.command.params}
    both = {**shared, **tables.get(ctx.info_name or "", {})}
    said = {own[_key(key)]: (key, value) for key, value in both.items() if _key(key) in own}
    said = {name: _check_value(path, key, value, options[name]) for name, (key, value) in said.items()}
    ctx.default_map = {**(ctx.default_map or {}), **said}


def _key(name: str) -> str:
    return name.lstrip("-").replace("_", "-")


def _keys(command: click.Command) -> dict[str, Any]:
    """Return the names in a file, which are those on the command line, with those of the parameters."""
    named = {_key(word): p.name for p in command.params for word in (*p.opts, *p.secondary_opts)}
    return {key: name for key, name in named.items() if key != "config"}


def _check_value(path: Path, key: str, value: Any, option: Any) -> Any:
    """Return a value of the kind that an option takes: click would make 1 of true, and a text of a list."""
    several = isinstance(value, list)
    entries = value if several else [value]
    flag = getattr(option, "is_flag", False)
    whole = not any(isinstance(entry, (dict, list)) or isinstance(entry, bool) != flag for entry in entries)
    if not whole or (several and not option.multiple):
        wanted = "true or false" if flag else "a list" if option.multiple else "one text or number"
        raise click.UsageError(f"{path.name}: {key!r} wants {wanted}, got {json.dumps(value, default=str)}.")
    return entries if option.multiple else value


def read_settings(ctx: click.Context) -> dict[str, Any]:
    """Return the options of this run as they were in force, without addresses that may hold secrets."""
    names = {name: key for key, name in _keys(ctx.command).items() if key not in (*SECRET, *_UNSAID)}
    said = {names[k]: v for k, v in ctx.params.items() if k in names and v not in (None, (), False)}
    return {key: plain(said[key]) for key in sorted(said)}


# ---------------------------------------------------------------------- Options that several commands share

Decorator = Callable[[Any], Any]
OUTPUT = click.Path(path_type=Path)


class _MetricName(click.ParamType):  # type: ignore[type-arg]
    """A name in the table of metrics, which is read when it is needed: it loads the numeric libraries."""

    name = "metric"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from sordino.estimators.metrics import metric_names

        if value not in metric_names():
            self.fail(f"{value!r} is not one of {', '.join(metric_names())}.", param, ctx)
        return value

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        from sordino.estimators.metrics import METRICS

        return f"[{'|'.join(METRICS)}]"


class Once(click.Option):
    """An option that is refused where it is typed twice: the last one would win, and nobody would know."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Keep all that is typed."""
        parser.add_option(self, [*self.opts], dest=self.name, action="append")

    def consume_value(self, ctx: click.Context, opts: Any) -> Any:
        """Return what is typed once, or else what a configuration says."""
        typed = opts.get(self.name) or ()
        if len(typed) > 1:
            raise click.UsageError(f"{self.opts[0]} is given {len(typed)} times. Ask for one, then the next.")
        return super().consume_value(ctx, {**opts, self.name: typed[0]} if typed else opts)


class _Budget(click.ParamType):  # type: ignore[type-arg]
    """An epsilon, or a risk: 1, max_advantage=.1, max_posterior=.3,prior=.1."""

    name = "epsilon"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return float(value)
        except ValueError:
            pass
        from sordino import Risk

        pairs = (pair.partition("=") for pair in value.split(","))
        try:
            return Risk(**{key.strip(): float(number) for key, _, number in pairs})
        except (TypeError, ValueError):
            self.fail(f"{value!r} is neither a number nor a risk, such as max_advantage=.1.", param, ctx)


METRIC = _MetricName()
MODEL = click.argument("model", type=click.Path(path_type=Path))
OWN_OPTIONS = {name: f"--{name}" for name in ("epsilon", "delta", "relation", "ledger", "schema")}
OWN_OPTIONS |= {"dataset_id": "--dataset", "rows_per_person": "--rows-per-person"}
"""Parameters of models that `--set` and `--grid` leave alone, and the options that set them."""


def _kept_flag(flag: str, help: str) -> Decorator:
    """Return a flag that is kept with the context of a command, under its name, and not handed to it."""

    def keep(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        ctx.meta[f"sordino{flag}"] = value

    return click.option(flag, is_flag=True, expose_value=False, callback=keep, help=help)


JSON = _kept_flag("--json", "Print one JSON document.")
FORCE = _kept_flag("--force", "Replace an output that exists.")


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
SIGNERS = all_of(
    click.option("--purpose", help="What the result is for, on the page that is signed."),
    click.option("--controller", help="Who answers for the data, on that page."),
    click.option("--approver", help="Who signs that page."),
    click.option("--basis", help="On which legal basis the records are used, on that page."),
    click.option("--recipients", help="Who may have the result, on that page."),
    click.option("--kept-until", help="When the result is deleted, on that page."),
)
SCHEMA = click.option(
    "--schema", type=click.Path(path_type=Path), help="What the columns mean (TOML), from `sordino schema`."
)
TARGET = click.option("--target", help="The column to predict, where there is no schema.")
RELATION = click.option(
    "--relation",
    type=click.Choice(("add-remove", "replace-one")),
    default="add-remove",
    show_default=True,
    help="What neighbours are.",
)
EPSILON = click.option(
    "--epsilon",
    type=_Budget(),
    required=True,
    help="The privacy loss that may be spent, or a risk: max_advantage=.1, max_posterior=.6.",
)
TERMS = all_of(
    click.option(
        "--delta",
        type=float,
        help="The probability of a larger loss; else min(1e-5, 1/(10 n)), and on a ledger that begins with a "
        "learned schema a quarter of what is left at most.",
    ),
    RELATION,
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
    from sordino.tables.files import DataFile

    kind, without, sure = (options.pop(name) for name in ("kind", "no_header", "header"))
    if without and sure:
        raise click.UsageError("Say either --header or --no-header.")
    how = {name: options.pop(name) for name in ("delimiter", "encoding", "decimal", "features")}
    return DataFile(data, kind, header=not without, sure=sure, **how)


def split_ending(file: Any) -> str:
    """Return the ending of the parts of a file: texts stay texts, in which a Parquet file has no numbers."""
    return str(file.kind) if file.kind in ("csv", "tsv") else "parquet"


def command_line(*words: Any, **options: Any) -> str:
    """Return a command as a shell reads it; options that say nothing, or what holds anyway, are left out."""
    from sordino.ledger.address import hide

    usual = {"encoding": "utf-8", "decimal": ".", "relation": "add-remove", "model": "auto"}
    line = ["sordino", *(str(word) for word in words)]
    for name, value in options.items():
        flag = "--format" if name == "kind" else f"--{name.replace('_', '-')}"
        for entry in value if isinstance(value, list) else [value]:
            if entry is not None and entry is not False and entry != usual.get(name):
                line += [flag] if entry is True else [flag, str(hide(entry))]
    return shlex.join(line)


def fit_line(data: Any, place: Any, schema: Any, **said: Any) -> str:
    """Return the command that fits a model to a file, or what a schema lacks for it.

    A configuration that `sordino init` wrote beside the schema names the ledger, and what it costs.
    """
    if schema is None:
        return command_line("schema", "draft", data, target="COLUMN", output="SCHEMA")
    if schema.unknown:
        return command_line("schema", "check", place, data, **said)
    if schema.target is None:
        return command_line("pca", data, schema=place, epsilon=1, **said, output="MODEL")
    model = "logistic" if has_unordered_persons(schema) else None
    if not said.get("ledger") and (config := Path(place).with_suffix(".run.toml")).is_file():
        return command_line("fit", data, schema=place, model=model, config=config, **said)
    line = command_line("fit", data, schema=place, model=model, epsilon=1, **said, output="MODEL")
    return line if said.get("ledger") else f"{line}\n{budget_words(schema.person)}"


def budget_words(person: Any) -> str:
    """Return how to have it added up what is released: a budget of the unit that the schema protects."""
    unit = "person" if person else "record"
    made = command_line("ledger", "create", "LEDGER", "NAME", epsilon=3, delta="1e-5", unit=unit)
    return f"To have it booked: {made}; then add --ledger LEDGER --dataset NAME."


ORDER_LOST = (
    "classes in an order are learned of records, not of persons. Fit with --model logistic, the default "
    "here, which takes them without their order"
)


def has_unordered_persons(schema: Any) -> bool:
    """Tell whether classes in an order are declared beside persons, of whom their order is not learned."""
    target = schema.target
    return bool(target.ordered and len(target.levels or ()) > 2 and schema.person is not None)


def open_ledger(address: str, create: bool = False) -> Any:
    """Return a ledger for a ``with`` statement."""
    from sordino.ledger import Ledger

    return Ledger.open(address, create=create)


def take_budget(options: dict[str, Any]) -> dict[str, Any]:
    """Take the budget and its ledger, which has to be there, out of ``options``, and return it for a call."""
    ledger, dataset = options.pop("ledger"), options.pop("dataset")
    if ledger is None and dataset is not None:
        raise click.UsageError("--dataset needs --ledger (or SORDINO_LEDGER), where the budget is.")
    if dataset is None and ledger is not None:
        raise click.UsageError("--ledger needs --dataset, the name of the data on it.")
    if ledger is not None:
        require_budget(ledger, dataset)
    terms = {name: options.pop(name) for name in ("epsilon", "delta", "relation")}
    return {**terms, "ledger": ledger, "dataset_id": dataset}


def require_budget(ledger: str, dataset: str) -> None:
    """Refuse a ledger or a data set that is not there."""
    with open_ledger(ledger) as book:
        book.policy(dataset)


def tell_budget(budget: dict[str, Any]) -> None:
    """Say what is left of the budget, or that nobody adds up what was released, where no ledger does."""
    words = "Note: booked on no ledger, so nobody adds it to what else is released."
    if budget["ledger"] is not None:
        try:
            with open_ledger(budget["ledger"]) as book:
                left = book.remaining(budget["dataset_id"])
            words = f"Booked: {left.fraction:.1%} of the budget of {budget['dataset_id']} is left."
        except LedgerError as error:  # what was released and paid for is not lost with it
            words = f"Note: booked, and the ledger is out of reach, so nobody knows what is left: {error}"
    click.echo(words, err=True)


def values(pairs: tuple[str, ...], option: str) -> dict[str, Any]:
    """Return ``NAME=VALUE`` pairs as a dictionary; values are read as TOML, or else are texts."""
    out = {}
    for pair in pairs:
        name, mark, text = pair.partition("=")
        if not mark or not name.strip():
            raise click.UsageError(f"{option} wants NAME=VALUE, got {pair!r}.")
        out[name.strip()] = value_of(text.strip())
    return out


def parameters(pairs: tuple[str, ...], option: str) -> dict[str, Any]:
    """Return the parameters of a model. A parameter that has an option of its own is refused."""
    out = values(pairs, option)
    for name in out:
        if name in OWN_OPTIONS:
            raise click.UsageError(f"{option} {name}: use {OWN_OPTIONS[name]} instead.")
    return out


def value_of(text: str) -> Any:
    """Return the number, flag or list that a text is in TOML (.1 is a number too), else the text itself."""
    words = {"none": None, "None": None, "True": True, "False": False}
    if text in words:
        return words[text]
    for written in (text, re.sub(r"(^|[\[,]\s*)([+-]?)\.(?=\d)", r"\1\g<2>0.", text)):
        with contextlib.suppress(tomllib.TOMLDecodeError, KeyError):
            return tomllib.loads(f"value = {written}")["value"]
    return text


def check_parameters(kind: Any, given: dict[str, Any]) -> None:
    """Refuse parameters that an estimator does not have, before any data is read."""
    known = set(kind._get_param_names())
    unknown = sorted(set(given) - known)
    if unknown:
        remedy = f"It has: {', '.join(sorted(known))}."
        if unknown[0] == "rows_per_person":
            remedy = 'Declare whose a row is (kind = "person" in a schema), or fit a linear model.'
        raise InvalidInputError(f"{kind.__name__} has no parameter {unknown[0]!r}. {remedy}")


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


# ----------------------------------- What commands print: tables for people, one JSON document for programs


def document(values: Any) -> None:
    """Print one JSON document."""
    click.echo(text(values))


def wants_json() -> bool:
    """Tell whether the command that runs was asked for a document."""
    return bool(click.get_current_context().meta.get("sordino--json"))


def say(words: str) -> None:
    """Print what people read while a command goes on: beside a document, on standard error."""
    click.echo(words, err=wants_json())


def result(values: Any, words: str) -> None:
    """Print what a command did: a document for programs, or a sentence for people."""
    if wants_json():
        document(values)
    else:
        click.echo(words)


def text(values: Any) -> str:
    """Return values as one JSON document."""
    return json.dumps(plain(values), indent=2, allow_nan=False)


def plain(value: Any) -> Any:
    """Return what JSON can hold; numbers that are not finite become texts."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def one_line(words: str) -> str:
    """Return words on one line: breaks and other controls are spelled out."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)


def show_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; without titles, of names and values."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    out = Table(*titles, box=box.SIMPLE_HEAD, show_header=any(titles))
    for row in rows:
        out.add_row(*map(one_line, row))
    Console(markup=False, emoji=False, highlight=False).print(out)


def bound(found: Any) -> str:
    """Return epsilon and delta of a report or a certificate, rounded up as all that is guaranteed."""
    from sordino.runs.report import at_most

    return f"epsilon {at_most(found.epsilon)}, delta {at_most(found.delta)}"


def guarantee(report: Any) -> str:
    """Return a report in one line, with the warning that a large epsilon needs."""
    text = f"{bound(report)} per {report.unit} ({report.relation.value}); {report.status}"
    return text if report.warning is None else f"{text}; {report.warning}"


def tell_schema_price(report: Any) -> None:
    """Say what the schema of a run cost, where that was learned from records."""
    if report.on_top is not None:
        click.echo(report.on_top)


def tell_doubts(standing: Any) -> None:
    """Say why nobody should sign a page that was written beside a result, and what to know before."""
    verdict = () if standing is None else standing.verdict
    click.echo("".join(f"{line}\n" for line in verdict), nl=False, err=True)
