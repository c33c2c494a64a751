"""`sordino split`: a part of the records to learn from, and the rest to judge by; nobody is in both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sordino.cli.shared import DATA, FORCE, JSON, OUTPUT, SCHEMA, data_file, require_writable, result
from sordino.errors import InvalidInputError


@click.command()
@DATA
@SCHEMA
@click.option("--person", metavar="COLUMN", help="Whose record it is; else as the schema says.")
@click.option("--share", type=float, default=0.3, show_default=True, help="Of persons (records) that judge.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the split, which is public.")
@click.option("--train", type=OUTPUT, required=True, help="Where the records to learn from go.")
@click.option("--test", type=OUTPUT, required=True, help="Where the others go.")
@FORCE
@JSON
def split(data: str, person: str | None, train: Path, test: Path, as_json: bool, **how: Any) -> None:
    """Split DATA into two files, all rows of a person in one of them.

    Who comes where depends on a public seed and on the order of the file, not on values. Both files hold
    records: only you may read them.
    """
    import numpy as np

    from sordino.cli.rows import read_schema
    from sordino.execute.persons import number_owners
    from sordino.kernel import public_generator
    from sordino.tables.files import packed_table, read_whole, replace_file

    require_writable(how.pop("force"), train, test)
    share, seed, declared = how.pop("share"), how.pop("seed"), read_schema(how.pop("schema"))
    if not 0 < share < 1:
        raise click.UsageError("--share is between 0 and 1.")
    file = data_file(data, how)
    if person is None and declared is not None and declared.person is not None:
        person = declared.person.name
    table = read_whole(file, None if declared is None else [column.name for column in declared.columns])
    if person is not None and person not in table.column_names:
        raise InvalidInputError(f"{file.name} has no column {person!r}, which says whose record each one is.")
    owners = np.arange(table.num_rows) if person is None else number_owners(table[person].to_pandas())
    count = int(owners.max(initial=-1)) + 1
    public = public_generator(seed)
    judges = public.permutation(count)[: round(share * count)]
    held = np.isin(owners, judges)
    for place, chosen in ((train, ~held), (test, held)):
        content = packed_table(table.take(np.flatnonzero(chosen)), place.suffix)
        replace_file(place, content, own=True)
    unit = "records" if person is None else "persons"
    found = {"unit": unit, "train": count - len(judges), "test": len(judges), "seed": seed}
    words = f"{count - len(judges)} {unit} in {train}, {len(judges)} in {test}."
    result(as_json, {**found, "outputs": [train, test]}, words)
