"""`sordino consortium`: make a plan, have the members run it, look at what happened."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from sordino.cli.shared import JSON, bound, document, result
from sordino.errors import SordinoError

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
def consortium() -> None:
    """Plan and run learning between several parties."""


@consortium.command()
@click.option("--config", type=FILE, required=True, help="The consortium: members, task, budget (TOML).")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The plan.")
@JSON
def plan(config: Path, output: Path, as_json: bool) -> None:
    """Calibrate the noise of a task and write the plan that all members will check."""
    from sordino.parties.mpc.consortium import plan_from
    from sordino.parties.mpc.plan import in_time
    from sordino.parties.mpc.tasks import seconds_of

    try:
        made = plan_from(config)
    except SordinoError as error:
        raise click.ClickException(str(error)) from error
    made.save(output)
    found = made.certificate
    seconds = seconds_of(made.coordinates, made.share)
    facts = {
        "plan": made.digest,
        "epsilon": found.epsilon,
        "delta": found.delta,
        "mode": made.text["mode"],
        "parties": len(made.members),
        "may collude": made.share.threshold,
        "numbers opened": made.coordinates,
        "processor seconds of a member": seconds,
        "output": output,
    }
    words = (
        f"Plan {made.digest[:12]}: {bound(found)}, mode "
        f"{made.text['mode']}, {len(made.members)} parties, any {made.share.threshold} may collude. About "
        f"{in_time(seconds)} of processor time for each member."
    )
    result(as_json, facts, words)


@consortium.command()
@click.option("--plan", type=FILE, required=True, help="The plan.")
@click.option("--config", type=FILE, required=True, help="Settings with the certificate to call with.")
@click.option("--timeout", type=float, help="Seconds to wait for the end; by default as the plan needs them.")
@JSON
def run(plan: Path, config: Path, timeout: float | None, as_json: bool) -> None:
    """Send a plan to all members, who decide for themselves, and wait for the outcome."""
    from sordino.parties.mpc.consortium import run_everywhere

    try:
        _tell(run_everywhere(plan, config, timeout), as_json)
    except SordinoError as error:
        raise click.ClickException(str(error)) from error


@consortium.command()
@click.option("--plan", type=FILE, required=True, help="The plan.")
@click.option("--config", type=FILE, required=True, help="Settings with the certificate to call with.")
@JSON
def status(plan: Path, config: Path, as_json: bool) -> None:
    """Ask all members how far they are."""
    from sordino.parties.mpc.consortium import status_everywhere

    try:
        _tell(status_everywhere(plan, config), as_json)
    except SordinoError as error:
        raise click.ClickException(str(error)) from error


@consortium.command()
@click.argument("certificates", nargs=-1, required=True, type=FILE)
@JSON
def fingerprint(certificates: tuple[Path, ...], as_json: bool) -> None:
    """Print the SHA-256 fingerprints of CERTIFICATES (PEM), as [members] of a party.toml wants them."""
    from sordino.parties.mpc.links import fingerprint_of

    try:
        found = {str(path): fingerprint_of(path) for path in certificates}
    except SordinoError as error:
        raise click.ClickException(str(error)) from error
    result(as_json, found, "\n".join(f"{print_of}  {path}" for path, print_of in found.items()))


@consortium.command()
@click.argument("transcripts", nargs=-1, required=True, type=FILE)
@JSON
def verify(transcripts: tuple[Path, ...], as_json: bool) -> None:
    """Check the chains of TRANSCRIPTS and that they tell the same story."""
    from sordino.parties.mpc.transcript import compare, read_transcript

    try:
        stories = [read_transcript(path) for path in transcripts]
        releases = compare(stories)
    except SordinoError as error:
        raise click.ClickException(str(error)) from error
    told = [(str(path), story.status, story.releases) for path, story in zip(transcripts, stories)]
    rows = [{"transcript": path, "status": status, "releases": count} for path, status, count in told]
    lines = [f"{path}: {status}, {count} release(s)" for path, status, count in told]
    lines.append(f"Sound: {len(stories)} transcript(s) agree on {releases} release(s).")
    result(as_json, {"sound": True, "transcripts": rows, "releases": releases}, "\n".join(lines))


def _tell(lines: Iterable[str], as_json: bool) -> None:
    """Print what members say as it comes, or all of it as one document."""
    said = []
    for line in lines:
        said.append(line)
        click.echo(line, err=as_json)
    if as_json:
        document({"said": said})
