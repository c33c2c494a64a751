"""`sordino party`, one member of a consortium, and `sordino consortium`, what is done between members."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sordino.cli.shared import JSON, bound, document, result, say, wants_json

if TYPE_CHECKING:
    from sordino.parties.mpc.charter import Charter
    from sordino.parties.mpc.config import PartyConfig
    from sordino.parties.mpc.plan import JointPlan

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
OUTPUT = click.Path(dir_okay=False, path_type=Path)
PLAN = click.option("--plan", type=FILE, required=True, help="The plan.")
CONFIG = click.option("--config", type=FILE, required=True, help="This member's settings (TOML).")
CALLER = click.option("--config", type=FILE, required=True, help="Settings with a certificate to call with.")
PREVIOUS = click.option("--previous", type=FILE, help="The charter in force, if there is one.")
YES = click.option("--yes", is_flag=True, help="Do not ask.")


@click.group()
def party() -> None:
    """Take part in joint runs, as one member."""


@party.command()
@CONFIG
@click.argument("plan", type=FILE)
@YES
@JSON
def approve(config: Path, plan: Path, yes: bool) -> None:
    """Show PLAN in words, check it against this member's settings, and allow it to be run, once."""
    from sordino.parties.words import PlanRefusedError

    settings, text = _read(config, plan)
    who = _approve(settings, text, ask=not yes)
    found = {"approved": text.digest, "party": settings.name, "person": who}
    said = f"Approved {text.digest[:12]} at {settings.name} by {who or 'nobody named'}."
    try:
        settings.require_approval(text)
    except PlanRefusedError as error:  # a second person has to
        said += f" {error}"
    result(found, said)


@party.command()
@CONFIG
@click.argument("plan", type=FILE)
@JSON
def withdraw(config: Path, plan: Path) -> None:
    """Take back what was approved of PLAN: it does not start, and does not go on after a stop."""
    settings, text = _read(config, plan)
    who = settings.approvals.withdraw(text.digest)
    found = {"withdrawn": text.digest, "party": settings.name, "person": who}
    result(found, f"Withdrew {text.digest[:12]} at {settings.name} by {who or 'nobody named'}.")


@party.command()
@CONFIG
@JSON
def decisions(config: Path) -> None:
    """List who decided what about which plan, and when; what the ledger's reservations deny is an error."""
    from sordino.ledger import Ledger
    from sordino.parties.mpc.config import PartyConfig

    settings = PartyConfig.load(config)
    lines = settings.approvals.story.lines
    with Ledger.open(settings.ledger, create=False) as ledger:
        settings.approvals.require_heads(ledger.history(settings.dataset))
    ends = [f", until {line['expires']}" if "expires" in line else "" for line in lines]
    told = [f"{a['at']}  {a['kind']:8}  {a['plan'][:12]}  {a['person']}{end}" for a, end in zip(lines, ends)]
    result(list(lines), "\n".join(told))


@party.command()
@CONFIG
@click.argument("transcript", type=FILE)
@JSON
def commitment(config: Path, transcript: Path) -> None:
    """Check that the records of this member are those that it committed to in TRANSCRIPT."""
    from sordino.parties.mpc.config import PartyConfig
    from sordino.parties.mpc.party import check_commitment

    found = check_commitment(PartyConfig.load(config), transcript)
    result({"sound": True, "commitment": found}, f"The records are those of {found}.")


@party.command("run")
@CONFIG
@PLAN
@click.option("--approve", "allow", is_flag=True, help="Approve of the plan, which is shown in words.")
@JSON
def take_part(config: Path, plan: Path, allow: bool) -> None:
    """Take part in an approved plan, after checking it against this member's ledger and settings."""
    from sordino.parties.mpc.party import PartyRun

    settings, text = _read(config, plan)
    if allow:
        _approve(settings, text, ask=False)
    outcome = PartyRun(settings, text, say).run()
    found, folder = outcome.certificate, outcome.transcript.parent
    facts: Any = {"epsilon": found.epsilon, "delta": found.delta, "relation": found.relation.value}
    facts |= {"bytes sent": outcome.bytes_sent, "folder": folder}
    words = (
        f"Done: {bound(found)} ({found.relation.value}).\n"
        f"Sent {outcome.bytes_sent} bytes. Result and transcript: {folder}"
    )
    result(facts, words)


@party.command()
@CONFIG
def serve(config: Path) -> None:
    """Wait for plans of the proposers in this member's settings; run those that were approved."""
    from sordino.parties.mpc.config import PartyConfig
    from sordino.parties.mpc.control import serve as wait

    wait(PartyConfig.load(config), config)


def _read(config: Path, plan: Path) -> tuple[PartyConfig, JointPlan]:
    from sordino.parties.mpc.config import PartyConfig
    from sordino.parties.mpc.plan import JointPlan

    return PartyConfig.load(config), JointPlan.load(plan)


def _approve(settings: PartyConfig, plan: JointPlan, ask: bool) -> str:
    """Show a plan in words, on standard error beside a document, and note who allows it for this member."""
    from sordino.parties.mpc.config import check_own, check_partners
    from sordino.parties.mpc.party import load_local
    from sordino.parties.mpc.plan import in_words

    check_partners(plan, settings.partners)
    settings.check_charter(plan)
    check_own(settings, plan)  # what would be refused later, before the others hear of it
    load_local(settings, plan)
    for line in in_words(plan):
        say(line)
    (row,) = (row for row in plan.text["members"] if row["name"] == settings.name)
    if row.get("control", "").rpartition(":")[2] != (settings.control or "").rpartition(":")[2]:
        click.echo(
            "Note: control has another port here. That is right behind a forwarder only.", err=wants_json()
        )
    if ask:
        click.confirm(f"Shall {settings.name} take part?", abort=True, err=wants_json())
    return settings.approvals.add(plan)


@party.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--name", required=True, help="The name of this member in charters and plans.")
@click.option("--control", default="127.0.0.1:26500", help="Host and port where plans are proposed.")
@click.option("--dataset", default="patients", help="The name of the records on the ledger.")
@click.option("--epsilon", type=float, required=True, help="The budget of the records, on a new ledger.")
@click.option("--delta", type=float, required=True, help="The delta of that budget.")
@JSON
def init(folder: Path, name: str, control: str, dataset: str, epsilon: float, delta: float) -> None:
    """Make FOLDER for a member: its key, its certificate, its settings and a ledger with its budget."""
    from importlib.resources import files

    from sordino.ledger import BudgetPolicy, Ledger
    from sordino.parties.mpc.links import fingerprint_of, make_key
    from sordino.parties.mpc.transcript import private_folder

    budget = BudgetPolicy(epsilon=epsilon, delta=delta)
    key, certificate, _ = make_key(private_folder(folder), name)
    settings = (files("sordino.parties.mpc") / "party.toml").read_text("utf-8")
    facts = {"name": name, "control": control, "dataset": dataset, "epsilon": epsilon, "delta": delta}
    (folder / "party.toml").write_text(settings.format(**facts))
    with Ledger.open(folder / "ledger.sqlite") as ledger:
        ledger.create(dataset, budget)
    found = {"certificate": certificate, "key": key, "fingerprint": fingerprint_of(certificate)}
    words = (
        f"Made {folder}. Send certificate.pem to the others, and its fingerprint on another channel:\n"
        f"{found['fingerprint']}\nThe key stays where it is. Next: trusted in party.toml, records, charter."
    )
    result(found, words)


@party.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--name", required=True, help="The name of this member.")
@JSON
def csr(folder: Path, name: str) -> None:
    """Make the next key of a member in FOLDER, with its certificate and a request for an authority.

    Propose a charter with both certificates, exchange them in party.toml when all have signed it, and propose
    one with the new certificate alone.
    """
    from sordino.parties.mpc.links import fingerprint_of, make_key

    number = len(list(folder.glob("key*.pem"))) + 1
    key, certificate, request = make_key(folder, name, f"-{number}")
    pin = fingerprint_of(certificate)
    found = {"key": key, "certificate": certificate, "request": request, "fingerprint": pin}
    result(found, f"Made {certificate} with the fingerprint {pin}.")


@party.group()
def charter() -> None:
    """What all members of a consortium have signed: who they are and what may be asked."""


@charter.command()
@click.option("--config", type=FILE, required=True, help="Members, rules and limits (TOML).")
@PREVIOUS
@click.option("--output", type=OUTPUT, required=True, help="The charter, for all members to sign.")
@JSON
def propose(config: Path, previous: Path | None, output: Path) -> None:
    """Write the next version of a charter, which nobody has signed yet."""
    from sordino.parties.mpc.charter import proposal

    before = _charter(previous)
    made = proposal(config, before)
    made.save(output)
    _tell_charter(made, before)


@charter.command()
@click.argument("path", type=FILE)
@click.option("--name", required=True, help="The name of this member in the charter.")
@click.option("--key", type=FILE, required=True, help="Its key.")
@PREVIOUS
@YES
@JSON
def sign(path: Path, name: str, key: Path, previous: Path | None, yes: bool) -> None:
    """Show the charter at PATH in words and add this member's signature to the file."""
    from sordino.parties.mpc.charter import charter_in_words

    found, before = _charter(path), _charter(previous)
    found.require_follows(None if before is None else before.require_in_force())
    for line in charter_in_words(found, before):
        say(line)
    if not yes:
        click.confirm(f"Shall {name} sign?", abort=True, err=wants_json())
    found.sign_as(name, key).save(path)
    result({"signed": found.digest, "by": name}, f"Signed {found.digest[:12]} as {name}.")


@charter.command()
@click.argument("path", type=FILE)
@click.option("--previous", type=FILE, help="The charter before, to say what is new.")
@JSON
def show(path: Path, previous: Path | None) -> None:
    """Show the charter at PATH in words, and who has signed it."""
    _tell_charter(_charter(path), _charter(previous))


def _charter(path: Path | None) -> Any:
    from sordino.parties.mpc.charter import Charter

    return None if path is None else Charter.load(path)


def _tell_charter(found: Charter, before: Charter | None) -> None:
    from sordino.parties.mpc.charter import charter_in_words

    facts = {"digest": found.digest, "charter": found.text, "missing": found.missing}
    result(facts, "\n".join(charter_in_words(found, before)))


@click.group()
def consortium() -> None:
    """Plan and run learning between several parties."""


@consortium.command()
@click.option("--config", type=FILE, required=True, help="The consortium: members, task, budget (TOML).")
@click.option("--output", type=OUTPUT, required=True, help="The plan.")
@JSON
def plan(config: Path, output: Path) -> None:
    """Calibrate the noise of a task and write the plan that all members will check."""
    from sordino.parties.mpc.control import plan_from
    from sordino.parties.mpc.plan import in_time, seconds_of

    made = plan_from(config)
    made.save(output)
    found, seconds = made.certificate, seconds_of(made.coordinates, made.share)
    facts = {"plan": made.digest, "epsilon": found.epsilon, "delta": found.delta, "mode": made.text["mode"]}
    facts |= {"parties": len(made.members), "may collude": made.share.threshold}
    facts |= {"numbers opened": made.coordinates, "processor seconds of a member": seconds, "output": output}
    words = (
        f"Plan {made.digest[:12]}: {bound(found)}, mode "
        f"{made.text['mode']}, {len(made.members)} parties, any {made.share.threshold} may collude. About "
        f"{in_time(seconds)} of processor time for each member."
    )
    result(facts, words)


@consortium.command()
@PLAN
@CALLER
@click.option("--timeout", type=float, help="Seconds to wait for the end; by default as the plan needs them.")
@JSON
def run(plan: Path, config: Path, timeout: float | None) -> None:
    """Send a plan to all members, who decide for themselves, and wait for the outcome."""
    from sordino.parties.mpc.control import run_everywhere

    _tell(run_everywhere(plan, config, timeout))


@consortium.command()
@PLAN
@CALLER
@JSON
def status(plan: Path, config: Path) -> None:
    """Ask all members how far they are."""
    from sordino.parties.mpc.control import status_everywhere

    _tell(status_everywhere(plan, config))


def _tell(lines: Iterable[str]) -> None:
    """Print what members say as it comes, or all of it as one document."""
    said = []
    for line in lines:
        said.append(line)
        say(line)
    if wants_json():
        document({"said": said})


@consortium.command()
@click.argument("certificates", nargs=-1, required=True, type=FILE)
@JSON
def fingerprint(certificates: tuple[Path, ...]) -> None:
    """Print the SHA-256 fingerprints of CERTIFICATES (PEM), as [members] of a party.toml wants them."""
    from sordino.parties.mpc.links import fingerprint_of

    found = {str(path): fingerprint_of(path) for path in certificates}
    result(found, "\n".join(f"{print_of}  {path}" for path, print_of in found.items()))


@consortium.command()
@click.argument("transcripts", nargs=-1, required=True, type=FILE)
@click.option("--config", type=FILE, help="Settings of a member: its ledger must hold what was opened.")
@JSON
def verify(transcripts: tuple[Path, ...], config: Path | None) -> None:
    """Check the chains of TRANSCRIPTS and that they, and a member's ledger, tell the same story."""
    from sordino.parties.mpc.config import PartyConfig, check_booked
    from sordino.parties.mpc.transcript import compare, read_transcript

    stories = [read_transcript(path) for path in transcripts]
    releases = compare(stories)
    if config is not None:
        check_booked(PartyConfig.load(config), stories)
    told = [(str(path), story.status, story.releases) for path, story in zip(transcripts, stories)]
    rows = [{"transcript": path, "status": status, "releases": count} for path, status, count in told]
    lines = [f"{path}: {status}, {count} release(s)" for path, status, count in told]
    lines.append(f"Sound: {len(stories)} transcript(s) agree on {releases} release(s).")
    result({"sound": True, "transcripts": rows, "releases": releases}, "\n".join(lines))
