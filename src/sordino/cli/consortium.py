"""`sordino consortium`: make a plan, have the members run it, look at what happened."""

from __future__ import annotations

from pathlib import Path

import click

from sordino.errors import SordinoError

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
def consortium() -> None:
    """Plan and run learning between several parties."""


@consortium.command()
@click.option("--config", type=FILE, required=True, help="The consortium: members, task, budget (TOML).")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The plan.")
def plan(config: Path, output: Path) -> None:
    """Calibrate the noise of a task and write the plan that all members will check."""
    from sordino.parties.mpc.consortium import plan_from

    try:
        made = plan_from(config)
    except SordinoError as error:
        raise click.ClickException(str(error)) from error
    made.save(output)
    found = made.certificate
    click.echo(
        f"Plan {made.digest[:12]}: epsilon {found.epsilon:.4g}, delta {found.delta:.3g}, mode "
        f"{made.text['mode']}, {len(made.members)} parties, any {made.share.threshold} may collude."
    )


@consortium.command()
@click.option("--plan", type=FILE, required=True, help="The plan.")
@click.option("--config", type=FILE, required=True, help="Settings with the certificate to call with.")
@click.option("--timeout", default=600.0, show_default=True, help="Seconds to wait for the end.")
def run(plan: Path, config: Path, timeout: float) -> None:
    """Send a plan to all members, who decide for themselves, and wait for the outcome."""
    from sordino.parties.mpc.consortium import run_everywhere

    try:
        for line in run_everywhere(plan, config, timeout):
            click.echo(line)
    except SordinoError as error:
        raise click.ClickException(str(error)) from error


@consortium.command()
@click.option("--plan", type=FILE, required=True, help="The plan.")
@click.option("--config", type=FILE, required=True, help="Settings with the certificate to call with.")
def status(plan: Path, config: Path) -> None:
    """Ask all members how far they are."""
    from sordino.parties.mpc.consortium import status_everywhere

    try:
        for line in status_everywhere(plan, config):
            click.echo(line)
    except SordinoError as error:
        raise click.ClickException(str(error)) from error


@consortium.command()
@click.argument("certificates", nargs=-1, required=True, type=FILE)
def fingerprint(certificates: tuple[Path, ...]) -> None:
    """Print the SHA-256 fingerprints of CERTIFICATES (PEM), as [members] of a party.toml wants them."""
    from sordino.parties.mpc.links import fingerprint_of

    try:
        for path in certificates:
            click.echo(f"{fingerprint_of(path)}  {path}")
    except SordinoError as error:
        raise click.ClickException(str(error)) from error


@consortium.command()
@click.argument("transcripts", nargs=-1, required=True, type=FILE)
def verify(transcripts: tuple[Path, ...]) -> None:
    """Check the chains of TRANSCRIPTS and that they tell the same story."""
    from sordino.parties.mpc.transcript import compare, read_transcript

    try:
        stories = [read_transcript(path) for path in transcripts]
        releases = compare(stories)
    except SordinoError as error:
        raise click.ClickException(str(error)) from error
    for path, story in zip(transcripts, stories):
        click.echo(f"{path}: {story.status}, {story.releases} release(s)")
    click.echo(f"Sound: {len(stories)} transcript(s) agree on {releases} release(s).")
