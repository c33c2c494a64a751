"""`sordino migrate`: bring files of older versions up to date, with a copy of what was there."""

from __future__ import annotations

import re
import shutil
import tomllib
import zipfile
from pathlib import Path

import click

from sordino.cli.shared import JSON, document, wants_json
from sordino.errors import InvalidInputError, SordinoError


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@JSON
def migrate(files: tuple[str, ...]) -> None:
    """Bring models, ledgers, reports, schemas and plans in FILE... up to the formats of this version.

    A file that is up to date is left alone. What changes is copied to FILE.vNUMBER.bak before. A ledger may
    be a postgresql:// URL; its owner makes the copy. A file that is refused does not stop the others: the
    status is that of the first one.
    """
    found, refused = [], []
    for file in files:
        try:
            kind, done = _migrate_one(file)
        except SordinoError as error:
            refused.append(error)
            kind, done = "refused", str(error)
        found.append({"file": file, "kind": kind, "done": done})
    if wants_json():
        document(found)
    for row in found:
        if not wants_json() and (row["kind"] != "refused" or len(files) > 1):
            click.echo(f"{row['file']}: {row['kind']}, {row['done']}")
    if refused:
        raise refused[0]


def _migrate_one(address: str) -> tuple[str, str]:
    """Bring one file up to date; return its kind and what was done."""
    if address.startswith(("postgresql://", "postgres://")):
        return _ledger(address)
    path = Path(address)
    try:
        with path.open("rb") as file:
            start = file.read(16)
    except OSError as error:
        raise InvalidInputError(f"Cannot read {address!r}: {error.strerror}.") from None
    if start.startswith(b"SQLite format 3"):
        return _ledger(address)
    if not start.startswith(b"PK"):
        return _text(path)
    with zipfile.ZipFile(path) as archive:
        if "sordino.json" in archive.namelist():
            return _model(path)
    raise _unknown(path)


def _ledger(address: str) -> tuple[str, str]:
    from sordino.ledger import Ledger

    beside = set(Path(address).parent.glob("*.bak"))
    Ledger.open(address, create=False, migrate=True).close()
    new = sorted(str(copy) for copy in set(Path(address).parent.glob("*.bak")) - beside)
    return "ledger", f"converted; as it was: {new[0]}" if new else "up to date"


def _model(path: Path) -> tuple[str, str]:
    from sordino.saving import about, load, save
    from sordino.saving.files import FORMAT

    facts = about(path)
    if facts["format"] == FORMAT:
        return "model", "up to date"
    copy = path.with_name(f"{path.name}.v{facts['format']}.bak")
    if copy.exists():
        raise InvalidInputError(f"{str(copy)!r} exists. Move it away, then: sordino migrate {path}")
    model = load(path)
    shutil.copy2(path, copy)
    save(model, path, about=facts["about"])
    return "model", f"converted from format {facts['format']} to {FORMAT}; as it was: {copy}"


def _text(path: Path) -> tuple[str, str]:
    """Read a text by the reader of its kind, which refuses a format that it does not know."""
    text = path.read_bytes().decode("utf-8", "replace")
    if text.lstrip().startswith("{"):
        from sordino.ledger.store import from_json
        from sordino.parties.mpc.plan import FORMAT, JointPlan
        from sordino.runs import PrivacyReport

        if '"sordino-ledger"' in text:
            from_json(text)
            return "export of a ledger", "up to date"
        if '"consortium"' in text:
            found = re.search(r'"format":\s*(\d+)', text)
            if found and int(found[1]) < FORMAT:  # members of one version run a plan, once
                raise InvalidInputError(
                    f"{str(path)!r} is a plan of an older version, which is made again from the settings: "
                    "sordino consortium plan --config CONFIG --output PLAN"
                )
            JointPlan.load(path)
            return "plan of a consortium", "up to date"
        PrivacyReport.from_json(text)
        return "report", "up to date"
    try:
        known = "columns" in tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        known = False
    if not known:
        raise _unknown(path)
    from sordino.tables import Schema

    Schema.from_toml(text)
    return "schema", "up to date"


def _unknown(path: Path) -> InvalidInputError:
    return InvalidInputError(
        f"Expected a model, a ledger, a report, a schema or a plan, got {str(path)!r}, which is none that "
        "Sordino converts. A checkpoint is finished by the version that began it."
    )
