"""`sordino party init`, `csr` and `charter`: keys, and what all members of a consortium have signed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sordino.cli.shared import JSON, result
from sordino.errors import SordinoError

if TYPE_CHECKING:
    from sordino.parties.mpc.charter import Charter

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
OUTPUT = click.Path(dir_okay=False, path_type=Path)
SETTINGS = """[party]
name = "{name}"
state = "state"                    # transcripts, results and decisions
control = "{control}"        # where plans are proposed
charter = "charter.json"           # what all members signed

[tls]
certificate = "certificate.pem"
key = "key.pem"

[data]
path = "records.npz"               # X and y, or a CSV with a header whose last column is y
dataset = "{dataset}"

[ledger]
path = "ledger.sqlite"

[policy]
max_epsilon = {epsilon:g}                 # of one plan
max_delta = {delta:g}
trusted = []                       # names of members who will not hand what they see to another one

[approval]
days = 30                          # how long an approval holds
"""


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--name", required=True, help="The name of this member in charters and plans.")
@click.option("--control", default="127.0.0.1:26500", help="Host and port where plans are proposed.")
@click.option("--dataset", default="patients", help="The name of the records on the ledger.")
@click.option("--epsilon", type=float, required=True, help="The budget of the records, on a new ledger.")
@click.option("--delta", type=float, required=True, help="The delta of that budget.")
@JSON
def init(
    folder: Path, name: str, control: str, dataset: str, epsilon: float, delta: float, as_json: bool
) -> None:
    """Make FOLDER for a member: its key, its certificate, its settings and a ledger with its budget."""
    from sordino.ledger import BudgetPolicy, Ledger
    from sordino.parties.mpc.keys import make_key
    from sordino.parties.mpc.links import fingerprint_of
    from sordino.parties.mpc.transcript import private_folder

    try:
        budget = BudgetPolicy(epsilon=epsilon, delta=delta)
        key, certificate, _ = make_key(private_folder(folder), name)
        (folder / "party.toml").write_text(
            SETTINGS.format(name=name, control=control, dataset=dataset, epsilon=epsilon, delta=delta)
        )
        with Ledger.open(folder / "ledger.sqlite") as ledger:
            ledger.create(dataset, budget)
    except SordinoError as error:
        raise click.ClickException(str(error)) from error
    found = {"certificate": certificate, "key": key, "fingerprint": fingerprint_of(certificate)}
    words = (
        f"Made {folder}. Send certificate.pem to the others, and its fingerprint on another channel:\n"
        f"{found['fingerprint']}\nThe key stays where it is. Next: trusted in party.toml, records, charter."
    )
    result(as_json, found, words)


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--name", required=True, help="The name of this member.")
@JSON
def csr(folder: Path, name: str, as_json: bool) -> None:
    """Make the next key of a member in FOLDER, with its certificate and a request for an authority.

    Propose a charter with both certificates, exchange them in party.toml when all have signed it, and propose
    one with the new certificate alone.
    """
    from sordino.parties.mpc.keys import make_key
    from sordino.parties.mpc.links import fingerprint_of

    try:
        number = len(list(folder.glob("key*.pem"))) + 1
        key, certificate, request = make_key(folder, name, f"-{number}")
    except SordinoError as error:
        raise click.ClickException(str(error)) from error
    found = {"key": key, "certificate": certificate, "request": request}
    words = f"Made {certificate} with the fingerprint {fingerprint_of(certificate)}."
    result(as_json, {**found, "fingerprint": fingerprint_of(certificate)}, words)


@click.group()
def charter() -> None:
    """What all members of a consortium have signed: who they are and what may be asked."""


@charter.command()
@click.option("--config", type=FILE, required=True, help="Members, rules and limits (TOML).")
@click.option("--previous", type=FILE, help="The charter in force, if there is one.")
@click.option("--output", type=OUTPUT, required=True, help="The charter, for all members to sign.")
@JSON
def propose(config: Path, previous: Path | None, output: Path, as_json: bool) -> None:
    """Write the next version of a charter, which nobody has signed yet."""
    from sordino.parties.mpc.charter import Charter, proposal

    try:
        before = None if previous is None else Charter.load(previous)
        made = proposal(config, before)
        made.save(output)
        _tell(made, before, as_json)
    except SordinoError as error:
        raise click.ClickException(str(error)) from error


@charter.command()
@click.argument("path", type=FILE)
@click.option("--name", required=True, help="The name of this member in the charter.")
@click.option("--key", type=FILE, required=True, help="Its key.")
@click.option("--previous", type=FILE, help="The charter in force, if there is one.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@JSON
def sign(path: Path, name: str, key: Path, previous: Path | None, yes: bool, as_json: bool) -> None:
    """Show the charter at PATH in words and add this member's signature to the file."""
    from sordino.parties.mpc.charter import Charter, in_words

    try:
        before = None if previous is None else Charter.load(previous).require_in_force()
        found = Charter.load(path)
        found.require_follows(before)
        for line in in_words(found, before):
            click.echo(line, err=as_json)
        if not yes:
            click.confirm(f"Shall {name} sign?", abort=True, err=as_json)
        found.sign_as(name, key).save(path)
    except SordinoError as error:
        raise click.ClickException(str(error)) from error
    result(as_json, {"signed": found.digest, "by": name}, f"Signed {found.digest[:12]} as {name}.")


@charter.command()
@click.argument("path", type=FILE)
@click.option("--previous", type=FILE, help="The charter before, to say what is new.")
@JSON
def show(path: Path, previous: Path | None, as_json: bool) -> None:
    """Show the charter at PATH in words, and who has signed it."""
    from sordino.parties.mpc.charter import Charter

    try:
        _tell(Charter.load(path), None if previous is None else Charter.load(previous), as_json)
    except SordinoError as error:
        raise click.ClickException(str(error)) from error


def _tell(found: Charter, before: Charter | None, as_json: bool) -> None:
    from sordino.parties.mpc.charter import in_words

    facts = {"digest": found.digest, "charter": found.text, "missing": found.missing}
    result(as_json, facts, "\n".join(in_words(found, before)))
