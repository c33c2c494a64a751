"""`sordino party`: one member of a consortium, on its own machine."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sordino.cli.shared import JSON, bound, result
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
        _approve(settings, text, ask=not yes, aside=as_json)
    except SordinoError as error:
        raise click.ClickException(str(error)) from error
    found = {"approved": text.digest, "party": settings.name}
    result(as_json, found, f"Approved {text.digest[:12]} at {settings.name}.")


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
    from sordino.parties.mpc.party import serve as wait

    try:
        wait(PartyConfig.load(config), config)
    except SordinoError as error:
        raise click.ClickException(str(error)) from error


def _read(config: Path, plan: Path) -> tuple[PartyConfig, JointPlan]:
    from sordino.parties.mpc.config import PartyConfig
    from sordino.parties.mpc.plan import JointPlan

    return PartyConfig.load(config), JointPlan.load(plan)


def _approve(settings: PartyConfig, plan: JointPlan, ask: bool, aside: bool = False) -> None:
    """Show a plan in words, on standard error if ``aside``, and note that this member allows it."""
    from sordino.parties.mpc.config import check_partners, check_plan
    from sordino.parties.mpc.party import load_local, spent_slack
    from sordino.parties.mpc.plan import Approvals, in_words

    check_partners(plan, settings.partners)
    check_plan(plan, settings.policy, spent_slack(settings.state))
    load_local(settings, plan)  # what would be refused later, before the others hear of it
    for line in in_words(plan):
        click.echo(line, err=aside)
    if ask:
        click.confirm(f"Shall {settings.name} take part?", abort=True, err=aside)
    Approvals(settings.state).add(plan)
