"""`sordino ledger`: set budgets, look at them, carry them elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from sordino.cli import shared

if TYPE_CHECKING:
    from sordino.ledger import Entry, Ledger

PLACE = click.argument("ledger")
OF = shared.all_of(PLACE, click.argument("dataset"))
ONE = click.option("--dataset", help="Only this data set.")
PAGE = click.Path(dir_okay=False, path_type=Path)
_MODES = {
    "undecided": "decided by the first reservation",
    "renyi": "Rényi filter, sound for plans chosen after seeing results",
    "basic": "sum of certificates, sound for plans chosen after seeing results",
}


@click.group()
def ledger() -> None:
    """Set and inspect privacy budgets.

    LEDGER is the path of a file or a postgresql:// URL.
    """


@ledger.command()
@OF
@click.option("--epsilon", type=float, required=True, help="Epsilon of everything ever released.")
@click.option("--delta", type=float, required=True, help="Delta of everything ever released.")
@shared.RELATION
@click.option(
    "--unit",
    type=click.Choice(("record", "person")),
    default="record",
    show_default=True,
    help="Whom the budget protects, for ever: a person may have several records.",
)
@shared.JSON
def create(ledger: str, dataset: str, epsilon: float, delta: float, relation: str, unit: str) -> None:
    """Give DATASET its budget, once and for all."""
    from sordino.kernel.events import Relation
    from sordino.ledger import BudgetPolicy

    policy = BudgetPolicy(epsilon, delta, Relation.parse(relation), unit)
    with shared.open_ledger(ledger, create=True) as book:
        book.create(dataset, policy)
        made = _summary(book, dataset)
    shared.result(made, f"{dataset}: epsilon {epsilon:g}, delta {delta:g} per {unit}, {relation}.")
    if epsilon == float("inf"):
        click.echo("Note: this budget has no end, and protects nobody: it admits any release.", err=True)


@ledger.command(name="list")
@PLACE
@shared.JSON
def list_datasets(ledger: str) -> None:
    """List the data sets with what is spent and left."""
    with shared.open_ledger(ledger) as book:
        found = [_summary(book, name) for name in book.datasets()]
    if shared.wants_json():
        shared.document(found)
        return
    rows = [
        (row["dataset"], f"{row['budget']['epsilon']:g}", f"{row['budget']['delta']:g}", row["relation"],
         row["unit"], f"{row['spent']['share']:.1%}", str(row["reservations"]))
        for row in found
    ]  # fmt: skip
    shared.show_table(("data set", "epsilon", "delta", "relation", "unit", "spent", "reservations"), rows)


@ledger.command()
@OF
@click.option("--tight/--no-tight", default=True, show_default=True, help="Also compute the PLD figure.")
@shared.JSON
def show(ledger: str, dataset: str, tight: bool) -> None:
    """Show what is spent and left of DATASET's budget."""
    from sordino.values import at_least, at_most

    with shared.open_ledger(ledger) as book:
        if shared.wants_json():
            shared.document(_summary(book, dataset))
            return
        policy, spent, left = book.policy(dataset), book.spent(dataset), book.remaining(dataset)
        lines = {
            "budget": f"epsilon {policy.epsilon:g}, delta {policy.delta:g}",
            "protects": f"one {policy.unit}, {policy.relation.value}",
            "filter": _MODES[spent.mode.value],
            "spent": f"{spent.fraction:.1%} in {spent.reservations} reservation(s) ({shared.bound(spent)})",
            "left": f"{left.fraction:.1%}, enough for one more plan of "
            f"epsilon {at_least(left.epsilon)}, delta {at_least(left.delta, 3)}",
        }
        if spent.mode.value == "renyi":
            lines["what counts"] = "the percentages: epsilons of several plans add up to more than their cost"
        if tight:
            found = book.nonadaptive(dataset)
            words = f"epsilon {at_most(found.epsilon)} ({found.accountant}; no guarantee for adaptive plans)"
            lines["if planned in one go"] = words
    shared.show_table(("", ""), list(lines.items()))


@ledger.command()
@OF
@shared.JSON
def history(ledger: str, dataset: str) -> None:
    """Show every reservation of DATASET, oldest first."""
    with shared.open_ledger(ledger) as book:
        entries = book.history(dataset)
    names = ("number", "reserved at", "status", "reason", "epsilon", "delta", "description")
    if shared.wants_json():  # numbers as they are, times with their zone
        facts = [
            (e.sequence, e.reserved_at, e.status.value, e.reason, e.epsilon, e.delta, e.description)
            for e in entries
        ]
        shared.document([dict(zip(names, line, strict=True)) for line in facts])
        return
    shared.show_table(HISTORY, [entry_row(entry) for entry in entries])


HISTORY = ("#", "reserved at (UTC)", "status", "epsilon", "delta", "description")


def entry_row(entry: Entry) -> tuple[str, ...]:
    """Return a reservation as a line of the table that has these titles."""
    from sordino.runs.report import at_most

    when = entry.reserved_at[:19].replace("T", " ")
    status = f"{entry.status.value} ({entry.reason})" if entry.reason else entry.status.value
    numbers = at_most(entry.epsilon), at_most(entry.delta, 3)
    return str(entry.sequence), when, status, *numbers, entry.description


@ledger.command()
@PLACE
@ONE
@click.option("--output", type=PAGE, help="A file; else print.")
@shared.JSON
def export(ledger: str, dataset: str | None, output: Path | None) -> None:
    """Write budgets and histories as JSON."""
    with shared.open_ledger(ledger) as book:
        text = book.to_json(dataset)
    if output is None:
        click.echo(text)
        return
    from sordino.ledger.store import save

    save(text, output)
    shared.result({"output": output}, f"Written to {output}")


@ledger.command(name="import")
@PLACE
@click.argument("document", type=click.File(encoding="utf-8"))
@shared.JSON
def import_document(ledger: str, document: TextIO) -> None:
    """Add the data sets of an export to LEDGER, for example to move to PostgreSQL."""
    from sordino.ledger.ledger import check_import

    text = document.read()
    check_import(text)  # before a new ledger is made
    with shared.open_ledger(ledger, create=True) as book:
        names = book.import_json(text)
    shared.result({"imported": list(names)}, f"Imported: {', '.join(names) or 'nothing'}.")


@ledger.command()
@PLACE
@click.option("--output", type=PAGE, required=True, help="The page.")
@ONE
@shared.JSON
def report(ledger: str, output: Path, dataset: str | None) -> None:
    """Write a page about budgets: spending over time, by person and data set, what is left."""
    from sordino.report import write_ledger_report

    with shared.open_ledger(ledger) as book:
        path = write_ledger_report(book, output, dataset_id=dataset)
    shared.result({"output": path}, f"Report written to {path}")


@ledger.command()
@PLACE
@click.option("--mark-crashed", is_flag=True, help="Label reservations of processes that are gone.")
@click.option(
    "--receipt", "receipts", multiple=True, help="Of an earlier check: nothing before it may have changed."
)
@shared.JSON
def verify(ledger: str, mark_crashed: bool, receipts: tuple[str, ...]) -> None:
    """Replay all histories, compare them with the running sums and receipts, and print receipts to keep."""
    from sordino.errors import InvalidInputError
    from sordino.ledger.ledger import check_receipt

    try:
        for receipt in receipts:
            check_receipt(receipt)
    except InvalidInputError as error:
        raise click.UsageError(f"--receipt: {error}") from None
    with shared.open_ledger(ledger) as book:
        crashed = book.mark_crashed() if mark_crashed else 0
        if mark_crashed and not shared.wants_json():
            click.echo(f"{crashed} reservation(s) marked as crashed; they stay spent.")
        found = book.verify(receipts=receipts)
    words = f"Sound: {found.reservations} reservation(s) of {found.datasets} data set(s)."
    facts = {"sound": True, "reservations": found.reservations, "datasets": found.datasets}
    facts |= {"marked as crashed": crashed, "receipts": found.receipts}
    shared.result(facts, "\n".join([words, *(f"receipt {receipt}" for receipt in found.receipts)]))


@ledger.command()
@OF
@click.option(
    "--role", "roles", multiple=True, metavar="ROLE=PERSON", help="Who may create, spend, approve, read."
)
@click.option("--approve-above", type=float, help="From this epsilon on a second person has to approve.")
@shared.JSON
def terms(ledger: str, dataset: str, roles: tuple[str, ...], approve_above: float | None) -> None:
    """Show who may do what with DATASET, or set it: a role that nobody is named for is everybody's."""
    from dataclasses import replace

    with shared.open_ledger(ledger) as book:
        found = book.terms(dataset)
        if roles or approve_above is not None:
            people: dict[str, tuple[str, ...]] = {}
            for one in roles:
                role, _, person = one.partition("=")
                people[role] = (*people.get(role, ()), person)
            above = found.approve_above if approve_above is None else approve_above
            found = replace(found, roles={**found.roles, **people}, approve_above=above)
            book.set_terms(dataset, found)
    lines = [f"{role}: {', '.join(who)}" for role, who in found.roles.items()]
    lines = lines or ["Everybody may do everything."]
    if found.approve_above is not None:
        lines.append(f"A second person approves from epsilon {found.approve_above:g} on.")
    said = {"roles": {role: list(who) for role, who in found.roles.items()}}
    shared.result({**said, "approve above": found.approve_above}, "\n".join(lines))


@ledger.command()
@OF
@click.argument("request")
@shared.JSON
def approve(ledger: str, dataset: str, request: str) -> None:
    """Approve REQUEST, which another person was refused on DATASET, once."""
    with shared.open_ledger(ledger) as book:
        book.approve(dataset, request)
    shared.result({"approved": request}, f"Approved: {request} on {dataset}, for one reservation.")


@ledger.command()
@PLACE
@click.option("--output", type=PAGE, required=True, help="The copy: a file that is not there yet.")
@shared.JSON
def backup(ledger: str, output: Path) -> None:
    """Copy a ledger in a file as it is at one moment, while others go on booking."""
    with shared.open_ledger(ledger) as book:
        book.back_up(output)
    shared.result({"output": output}, f"Written to {output}")


def _summary(book: Ledger, dataset: str) -> dict[str, Any]:
    policy, spent, left = book.policy(dataset), book.spent(dataset), book.remaining(dataset)
    facts: dict[str, Any] = {"dataset": dataset, "budget": {"epsilon": policy.epsilon, "delta": policy.delta}}
    facts |= {"relation": policy.relation.value, "unit": policy.unit, "reservations": spent.reservations}
    shares: list[tuple[str, Any]] = [("spent", spent), ("left", left)]
    parts = {k: {"share": v.fraction, "epsilon": v.epsilon, "delta": v.delta} for k, v in shares}
    return {**facts, **parts}
