"""`sordino ledger`: set budgets, look at them, carry them elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from sordino.cli.exits import error_lines
from sordino.cli.shared import JSON, bound
from sordino.cli.shared import document as show_json
from sordino.cli.shared import result as show_result
from sordino.errors import SordinoError

if TYPE_CHECKING:
    from rich.table import Table

    from sordino.ledger import Entry, Ledger

PLACE = click.argument("ledger")
DATASET = click.argument("dataset")
OUTPUT = click.Path(dir_okay=False, path_type=Path)


@click.group()
def ledger() -> None:
    """Set and inspect privacy budgets.

    LEDGER is the path of a file or a postgresql:// URL.
    """


@ledger.command()
@PLACE
@DATASET
@click.option("--epsilon", type=float, required=True, help="Epsilon of everything ever released.")
@click.option("--delta", type=float, required=True, help="Delta of everything ever released.")
@click.option("--relation", default="add-remove", show_default=True, help="Or replace-one.")
@click.option("--unit", default="record", show_default=True, help="Whom the budget protects.")
@JSON
def create(
    ledger: str, dataset: str, epsilon: float, delta: float, relation: str, unit: str, as_json: bool
) -> None:
    """Give DATASET its budget, once and for all."""
    from sordino.kernel.events import Relation
    from sordino.ledger import BudgetPolicy

    with _errors_in_words():
        policy = BudgetPolicy(epsilon, delta, Relation.parse(relation), unit)
    with _open(ledger, create=True) as book:
        book.create(dataset, policy)
        made = _summary(book, dataset)
    show_result(as_json, made, f"{dataset}: epsilon {epsilon:g}, delta {delta:g} per {unit}, {relation}.")


@ledger.command(name="list")
@PLACE
@JSON
def list_datasets(ledger: str, as_json: bool) -> None:
    """List the data sets with what is spent and left."""
    with _open(ledger) as book:
        if as_json:
            show_json([_summary(book, name) for name in book.datasets()])
            return
        table = _table("data set", "epsilon", "delta", "relation", "unit", "spent", "reservations")
        for name in book.datasets():
            policy, spent = book.policy(name), book.spent(name)
            values = (policy.relation.value, policy.unit, f"{spent.fraction:.1%}")
            numbers = f"{policy.epsilon:g}", f"{policy.delta:g}"
            table.add_row(name, *numbers, *values, str(spent.reservations))
    _print(table)


@ledger.command()
@PLACE
@DATASET
@click.option("--tight/--no-tight", default=True, show_default=True, help="Also compute the PLD figure.")
@JSON
def show(ledger: str, dataset: str, tight: bool, as_json: bool) -> None:
    """Show what is spent and left of DATASET's budget."""
    with _open(ledger) as book:
        if as_json:
            show_json(_summary(book, dataset))
            return
        policy, spent, left = book.policy(dataset), book.spent(dataset), book.remaining(dataset)
        lines = {
            "budget": f"epsilon {policy.epsilon:g}, delta {policy.delta:g}",
            "protects": f"one {policy.unit}, {policy.relation.value}",
            "filter": _MODES[spent.mode.value],
            "spent": f"{spent.fraction:.1%} in {spent.reservations} reservation(s) ({bound(spent)})",
            "left": f"{left.fraction:.1%}, enough for one more plan of "
            f"epsilon {left.epsilon:.4g}, delta {left.delta:.3g}",
        }
        if tight:
            lines["if planned in one go"] = _nonadaptive(book, dataset)
    table = _table("", "")
    table.show_header = False
    for title, text in lines.items():
        table.add_row(title, text)
    _print(table)


@ledger.command()
@PLACE
@DATASET
@JSON
def history(ledger: str, dataset: str, as_json: bool) -> None:
    """Show every reservation of DATASET, oldest first."""
    with _open(ledger) as book:
        entries = book.history(dataset)
    if as_json:
        show_json([_fields(entry) for entry in entries])
        return
    table = _table("#", "reserved at (UTC)", "status", "epsilon", "delta", "description")
    for entry in entries:
        table.add_row(*_entry(entry))
    _print(table)


@ledger.command()
@PLACE
@click.option("--dataset", help="Only this data set.")
@click.option("--output", type=OUTPUT, help="A file; else print.")
@JSON
def export(ledger: str, dataset: str | None, output: Path | None, as_json: bool) -> None:
    """Write budgets and histories as JSON."""
    with _open(ledger) as book:
        document = book.to_json(dataset)
    if output is None:
        click.echo(document)
    else:
        from sordino.ledger.store import save

        save(document, output)
        show_result(as_json, {"output": output}, f"Written to {output}")


@ledger.command(name="import")
@PLACE
@click.argument("document", type=click.File(encoding="utf-8"))
@JSON
def import_document(ledger: str, document: TextIO, as_json: bool) -> None:
    """Add the data sets of an export to LEDGER, for example to move to PostgreSQL."""
    with _open(ledger, create=True) as book:
        names = book.import_json(document.read())
    show_result(as_json, {"imported": list(names)}, f"Imported: {', '.join(names) or 'nothing'}.")


@ledger.command()
@PLACE
@click.option("--output", type=OUTPUT, required=True, help="The page.")
@click.option("--dataset", help="Only this data set.")
@JSON
def report(ledger: str, output: Path, dataset: str | None, as_json: bool) -> None:
    """Write a page about budgets: spending over time, by person and data set, what is left."""
    from sordino.report import write_ledger_report

    with _open(ledger) as book:
        path = write_ledger_report(book, output, dataset_id=dataset)
    show_result(as_json, {"output": path}, f"Report written to {path}")


@ledger.command()
@PLACE
@click.option("--mark-crashed", is_flag=True, help="Label reservations of processes that are gone.")
@click.option(
    "--receipt", "receipts", multiple=True, help="Of an earlier check: nothing before it may have changed."
)
@JSON
def verify(ledger: str, mark_crashed: bool, receipts: tuple[str, ...], as_json: bool) -> None:
    """Replay all histories, compare them with the running sums and receipts, and print receipts to keep."""
    with _open(ledger) as book:
        crashed = book.mark_crashed() if mark_crashed else 0
        if mark_crashed and not as_json:
            click.echo(f"{crashed} reservation(s) marked as crashed; they stay spent.")
        result = book.verify(receipts=receipts)
    found = {"sound": True, "reservations": result.reservations, "datasets": result.datasets}
    words = f"Sound: {result.reservations} reservation(s) of {result.datasets} data set(s)."
    words = "\n".join([words, *(f"receipt {receipt}" for receipt in result.receipts)])
    show_result(as_json, {**found, "marked as crashed": crashed, "receipts": result.receipts}, words)


@ledger.command()
@PLACE
@click.argument("dataset")
@click.option(
    "--role", "roles", multiple=True, metavar="ROLE=PERSON", help="Who may create, spend, approve, read."
)
@click.option("--approve-above", type=float, help="From this epsilon on a second person has to approve.")
@JSON
def terms(
    ledger: str, dataset: str, roles: tuple[str, ...], approve_above: float | None, as_json: bool
) -> None:
    """Show who may do what with DATASET, or set it: a role that nobody is named for is everybody's."""
    from dataclasses import replace

    with _open(ledger) as book:
        found = book.terms(dataset)
        if roles or approve_above is not None:
            people: dict[str, tuple[str, ...]] = {}
            for one in roles:
                role, _, person = one.partition("=")
                people[role] = (*people.get(role, ()), person)
            above = found.approve_above if approve_above is None else approve_above
            found = replace(found, roles={**found.roles, **people}, approve_above=above)
            book.set_terms(dataset, found)
    said = {"roles": {role: list(who) for role, who in found.roles.items()}}
    lines = [f"{role}: {', '.join(who)}" for role, who in found.roles.items()] or [
        "Everybody may do everything."
    ]
    if found.approve_above is not None:
        lines.append(f"A second person approves from epsilon {found.approve_above:g} on.")
    show_result(as_json, {**said, "approve above": found.approve_above}, "\n".join(lines))


@ledger.command()
@PLACE
@click.argument("dataset")
@click.argument("request")
@JSON
def approve(ledger: str, dataset: str, request: str, as_json: bool) -> None:
    """Approve REQUEST, which another person was refused on DATASET, once."""
    with _open(ledger) as book:
        book.approve(dataset, request)
    show_result(as_json, {"approved": request}, f"Approved: {request} on {dataset}, for one reservation.")


@ledger.command()
@PLACE
@click.option("--output", type=OUTPUT, required=True, help="The copy: a file that is not there yet.")
@JSON
def backup(ledger: str, output: Path, as_json: bool) -> None:
    """Copy a ledger in a file as it is at one moment, while others go on booking."""
    with _open(ledger) as book:
        book.back_up(output)
    show_result(as_json, {"output": output}, f"Written to {output}")


_MODES = {
    "undecided": "decided by the first reservation",
    "renyi": "Rényi filter, sound for plans chosen after seeing results",
    "basic": "sum of certificates, sound for plans chosen after seeing results",
}


@contextmanager
def _errors_in_words() -> Iterator[None]:
    """Turn our errors into lines for a person."""
    try:
        yield
    except SordinoError as error:
        raise error_lines(error) from error


@contextmanager
def _open(address: str, *, create: bool = False) -> Iterator[Ledger]:
    """Open a ledger for one command."""
    from sordino.ledger import Ledger

    with _errors_in_words(), Ledger.open(address, create=create) as book:
        yield book


def _summary(book: Ledger, dataset: str) -> dict[str, Any]:
    policy, spent, left = book.policy(dataset), book.spent(dataset), book.remaining(dataset)
    return {
        "dataset": dataset,
        "budget": {"epsilon": policy.epsilon, "delta": policy.delta},
        "relation": policy.relation.value,
        "unit": policy.unit,
        "spent": {"share": spent.fraction, "epsilon": spent.epsilon, "delta": spent.delta},
        "reservations": spent.reservations,
        "left": {"share": left.fraction, "epsilon": left.epsilon, "delta": left.delta},
    }


def _nonadaptive(book: Ledger, dataset: str) -> str:
    found = book.nonadaptive(dataset)
    return f"epsilon {found.epsilon:.4g} ({found.accountant}; no guarantee for adaptive plans)"


def _entry(entry: Entry) -> tuple[str, ...]:
    from sordino.runs.price import at_most

    when = entry.reserved_at[:19].replace("T", " ")
    status = f"{entry.status.value} ({entry.reason})" if entry.reason else entry.status.value
    numbers = at_most(entry.epsilon), at_most(entry.delta, 3)
    return str(entry.sequence), when, status, *numbers, entry.description


def _fields(entry: Entry) -> dict[str, Any]:
    """Return a reservation for programs: numbers as they are, times with their zone."""
    return {
        "number": entry.sequence,
        "reserved at": entry.reserved_at,
        "status": entry.status.value,
        "reason": entry.reason,
        "epsilon": entry.epsilon,
        "delta": entry.delta,
        "description": entry.description,
    }


def _table(*titles: str) -> Table:
    from rich import box
    from rich.table import Table

    return Table(*titles, box=box.SIMPLE_HEAD)


def _print(table: Table) -> None:
    from rich.console import Console

    Console(markup=False, emoji=False, highlight=False).print(table)
