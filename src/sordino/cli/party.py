"""`sordino party`: one member of a consortium, on its own machine."""

from __future__ import annotations

from pathlib import Path

import click

from sordino.errors import SordinoError

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--config", type=FILE, required=True, help="This member's settings (TOML).")
@click.option("--plan", type=FILE, help="Take part in this plan once; else wait for plans.")
def party(config: Path, plan: Path | None) -> None:
    """Take part in joint runs, after checking each plan against this member's own ledger and policy."""
    from sordino.parties.party import PartyRun
    from sordino.parties.party_config import PartyConfig

    try:
        settings = PartyConfig.load(config)
        if plan is None:
            from sordino.parties.party_daemon import serve

            serve(settings, config)
            return
        from sordino.parties.mpc_plan import JointPlan

        outcome = PartyRun(settings, JointPlan.load(plan), click.echo).run()
    except SordinoError as error:
        raise click.ClickException(str(error)) from error
    found = outcome.certificate
    click.echo(f"Done: epsilon {found.epsilon:.4g}, delta {found.delta:.3g} ({found.relation.value}).")
    click.echo(f"Sent {outcome.bytes_sent} bytes. Result and transcript: {outcome.transcript.parent}")
