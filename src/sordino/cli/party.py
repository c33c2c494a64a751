"""`sordino party`: one member of a consortium, on its own machine."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sordino.cli.charter import charter, csr, init
from sordino.cli.shared import JSON, bound, document, result
from sordino.errors import SordinoError

if TYPE_CHECKING:
    from sordino.parties.mpc.config import PartyConfig
    from sordino.parties.mpc.plan import JointPlan

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
CONFIG = click.option("--config", type=FILE, required=True, help="This member's settings (TOML).")


@click.group()
def party() -> None:
    """Take part in joint runs, as one member."""


@party.command()
@CONFIG
@click.argument("plan", type=FILE)
@click.option("--yes", is_flag=True, help="Do not ask.")
@JSON
def approve(config: Path, plan: Path, yes: bool, as_json: bool) -> None:
    """Show PLAN in words, check it against this member's settings, and allow it to be run, once."""
    try:
        settings, text = _read(config, plan)
        who = _approve(settings, text, ask=not yes, aside=as_json)
    except SordinoError as error:
        raise click.ClickException(str(error)) from error
    found = {"approved": text.digest, "party": settings.name, "person": who}
    result(as_json, found, f"Approved {text.digest[:12]} at {settings.name} by {who or 'nobody named'}.")


for command in (init, csr, charter):
    party.add_command(command)


@party.command()
@CONFIG
@click.argument("plan", type=FILE)
@JSON
def withdraw(config: Path, plan: Path, as_json: bool) -> None:
    """Take back what was approved of PLAN: it does not start, and does not go on after a stop."""
    try:
        settings, text = _read(config, plan)
        who = settings.approvals.withdraw(text.digest)
    except SordinoError as error:
        raise click.ClickException(str(error)) from error
    found = {"withdrawn": text.digest, "party": settings.name, "person": who}
    result(as_json, found, f"Withdrew {text.digest[:12]} at {settings.name} by {who or 'nobody named'}.")


@party.command()
@CONFIG
@JSON
def decisions(config: Path, as_json: bool) -> None:
    """List who decided what about which plan, and when; a chain that was changed is an error."""
    from sordino.parties.mpc.config import PartyConfig

    try:
        lines = PartyConfig.load(config).approvals.lines()
    except SordinoError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        document(list(lines))
    for line in () if as_json else lines:
        until = f", until {line['expires']}" if "expires" in line else ""
        click.echo(f"{line['at']}  {line['kind']:8}  {line['plan'][:12]}  {line['person']}{until}")


@party.command()
@CONFIG
@click.argument("transcript", type=FILE)
@JSON
def commitment(config: Path, transcript: Path, as_json: bool) -> None:
    """Check that the records of this member are those that it committed to in TRANSCRIPT."""
    from sordino.parties.mpc.config import PartyConfig
    from sordino.parties.mpc.party import check_commitment

    try:
        found = check_commitment(PartyConfig.load(config), transcript)
    except SordinoError as error:
        raise click.ClickException(str(error)) from error
    result(as_json, {"sound": True, "commitment": found}, f"The records are those of {found}.")


@party.command()
@CONFIG
@click.option("--plan", type=FILE, required=True, help="The plan to take part in.")
@click.option("--approve", is_flag=True, help="Approve of the plan, which is shown in words.")
@JSON
def run(config: Path, plan: Path, approve: bool, as_json: bool) -> None:
    """Take part in an approved plan, after checking it against this member's ledger and settings."""
    from sordino.parties.mpc.party import PartyRun

    try:
        settings, text = _read(config, plan)
        if approve:
            _approve(settings, text, ask=False, aside=as_json)
        outcome = PartyRun(settings, text, partial(click.echo, err=as_json)).run()
    except SordinoError as error:
        raise click.ClickException(str(error)) from error
    found, folder = outcome.certificate, outcome.transcript.parent
    facts = {
        "epsilon": found.epsilon,
        "delta": found.delta,
        "relation": found.relation.value,
        "bytes sent": outcome.bytes_sent,
        "folder": folder,
    }
    words = (
        f"Done: {bound(found)} ({found.relation.value}).\n"
        f"Sent {outcome.bytes_sent} bytes. Result and transcript: {folder}"
    )
    result(as_json, facts, words)


@party.command()
@CONFIG
def serve(config: Path) -> None:
    """Wait for plans of the proposers in this member's settings; run those that were approved."""
    from sordino.parties.mpc.config import PartyConfig
    from sordino.parties.mpc.daemon import serve as wait

    try:
        wait(PartyConfig.load(config), config)
    except SordinoError as error:
        raise click.ClickException(str(error)) from error


def _read(config: Path, plan: Path) -> tuple[PartyConfig, JointPlan]:
    from sordino.parties.mpc.config import PartyConfig
    from sordino.parties.mpc.plan import JointPlan

    return PartyConfig.load(config), JointPlan.load(plan)


def _approve(settings: PartyConfig, plan: JointPlan, ask: bool, aside: bool = False) -> str:
    """Show a plan in words, on standard error if ``aside``, and note who allows it for this member."""
    from sordino.parties.mpc.config import check_partners, check_plan, spent_of
    from sordino.parties.mpc.party import load_local
    from sordino.parties.mpc.plan import in_words

    check_partners(plan, settings.partners)
    settings.check_charter(plan)
    check_plan(plan, settings.policy, spent_of(settings.state, plan.digest).slack)
    load_local(settings, plan)  # what would be refused later, before the others hear of it
    for line in in_words(plan):
        click.echo(line, err=aside)
    if ask:
        click.confirm(f"Shall {settings.name} take part?", abort=True, err=aside)
    return settings.approvals.add(plan)
