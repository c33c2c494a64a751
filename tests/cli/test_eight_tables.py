"""Schema, fit, inspect, predict, evaluate and report, as the docs have it, on eight real tables."""

import csv
import gzip
import os
from pathlib import Path

import pandas as pd
import pytest
from benchmarks.curves import CHOSEN, JUDGES
from tests.cli.helpers import typed

from sordino import Schema
from sordino.tables import Category, Ignored, Number, Ordinal, Person, Target

FOLDER = Path(os.environ.get("SORDINO_DATA", "data")) / "tables"
TABLES = {**CHOSEN, **JUDGES}
OWN_TARGET = {
    "VietNamI": Target("pharvis", "number", low=0, high=10),
    "SLID": Target("wages", "number", low=2, high=50, missing="leave out"),
}
PERSONS = {"InstEval": "s"}

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the tables of SORDINO_DATA are not here")


def filled(name: str, draft: Path) -> None:
    """Fill in the blanks of a draft as somebody would who knows what the columns mean."""
    known = {column.name: column for column in TABLES[name]}
    if name in OWN_TARGET:
        known[OWN_TARGET[name].name] = OWN_TARGET[name]
    if name in PERSONS:
        known[PERSONS[name]] = Person(PERSONS[name])
    names = Schema.read(draft).columns
    Schema([known.get(column.name, Ignored(column.name)) for column in names]).write(draft)


@pytest.mark.parametrize("name", TABLES)
def test_six_commands_run_on_a_table_by_following_the_docs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data, target = FOLDER / f"{name}.csv.gz", next(c.name for c in TABLES[name] if isinstance(c, Target))
    unit = ["--unit", "person"] if name in PERSONS else []
    typed("ledger", "create", "budget.db", name, "--epsilon", 4, "--delta", 1e-4, *unit)
    booked = ("--ledger", "budget.db", "--dataset", name)
    typed("schema", "draft", data, "--target", target, "--output", "t.toml")
    assert "Not declared yet" in typed("schema", "check", "t.toml", data, code=3)
    filled(name, Path("t.toml"))
    typed("schema", "check", "t.toml", data)
    typed("split", data, "--schema", "t.toml", "--train", "train.csv", "--test", "test.csv")
    words = ("--schema", "t.toml", "--epsilon", 1, *booked, "--purpose", "a walk", "--approver", "Board")
    told = typed("fit", "train.csv", *words, "--output", "m.sordino", "--report", "fit.html")
    assert "; private" in told
    assert f"per {'person' if name in PERSONS else 'record'}" in told
    effects = next(line for line in typed("inspect", "m.sordino").splitlines() if line.startswith("Effects"))
    assert f" of {target}" in effects
    typed("predict", "m.sordino", "test.csv", "--output", "said.csv")
    with open("said.csv") as file:
        assert len(list(csv.reader(file))) == len(pd.read_csv("test.csv")) + 1
    told = typed("evaluate", "m.sordino", "test.csv", "--epsilon", 0.5, *booked, "--output", "score.json")
    assert "best constant" in told
    typed("report", "m.sordino", "--scores", "score.json", "--ledger", "budget.db", "--output", "m.html")
    page = Path("m.html").read_text()
    for said in ("One column at a time", "Board", "a walk", "reservation 1", "best constant", "signature"):
        assert said in page
    assert '<span class="badge">private, confirmed by ledger budget.db' in Path("fit.html").read_text()


def test_every_table_of_the_folder_is_walked():
    assert {path.name.partition(".")[0] for path in FOLDER.glob("*.csv.gz")} == set(TABLES)
    for path in FOLDER.glob("*.csv.gz"):
        with gzip.open(path, "rt") as file:
            assert next(csv.reader(file))[0] == ""  # as R writes them
    assert {Number, Category, Ordinal, Target} == {type(c) for columns in TABLES.values() for c in columns}
