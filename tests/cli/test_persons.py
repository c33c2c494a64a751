"""The commands of the front page, `tune`, `stats` and `schema learn` on a table with a person column."""

import json
from pathlib import Path

import pytest
from tests.cli.helpers import typed, typed_json

import sordino
from sordino.kernel import public_generator

pytest.importorskip("pyarrow")
SCHEMA = """format = 1
[columns.id]
kind = "person"
[columns.age]
kind = "number"
low = 0
high = 100
[columns.ward]
kind = "category"
levels = ["north", "south"]
[columns.ill]
kind = "target"
levels = ["no", "yes"]
"""
ROOT = Path(__file__).resolve().parents[2]
BOOKED = ("--ledger", "budget.db", "--dataset", "visits")


@pytest.fixture
def visits(tmp_path, monkeypatch):
    """Write 1,200 visits of 300 persons, and a schema that says so."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SORDINO_LEDGER", raising=False)
    age = public_generator(1).uniform(0, 100, 1200).round()
    rows = [
        f"p{i % 300},{age[i]:.0f},{('north', 'south')[i % 2]},{'yes' if age[i] > 50 else 'no'}"
        for i in range(1200)
    ]
    (tmp_path / "visits.csv").write_text("\n".join(["id,age,ward,ill", *rows, ""]), "utf-8")
    (tmp_path / "visits.toml").write_text(SCHEMA, "utf-8")
    typed("ledger", "create", "budget.db", "visits", "--epsilon", 30, "--delta", 1e-2, "--unit", "person")
    return tmp_path


def test_door_07_every_command_of_the_front_page_and_tune_protect_persons(visits):
    """`tune` ended with "The table lacks the column 'id'"."""
    draft = typed("schema", "draft", "visits.csv", "--person", "id", "--target", "ill")
    assert 'kind = "person"' in draft
    words = ("--schema", "visits.toml", "--epsilon", 2, "--delta", 1e-5, *BOOKED)
    fitted = typed_json("fit", "visits.csv", *words, "--output", "m.sordino")
    tuned = typed_json(
        "tune", "visits.csv", *words, "--grid", "alpha=[0.0, 0.1]", "--trials", 2, "--output", "t.sordino",
        "--report", "t.html",
    )  # fmt: skip
    for found in (fitted, tuned):
        assert found["privacy"]["unit"] == "person"
        assert "number of persons: 300" in found["privacy"]["public"]
        assert "rows" not in found["run"]
    for model in ("m.sordino", "t.sordino"):
        assert len(typed_json("predict", model, "visits.csv")["predictions"]["prediction"]) == 1200
        score = typed_json(
            "evaluate", model, "visits.csv", "--epsilon", 1, *BOOKED, "--output", f"{model}.json"
        )
        assert score["privacy"]["unit"] == "person"
        assert json.loads((visits / f"{model}.json").read_text())["privacy"]["unit"] == "person"
        typed(
            "report", model, "--ledger", "budget.db", "--scores", f"{model}.json", "--output", f"{model}.html"
        )
        assert "one person" in (visits / f"{model}.html").read_text("utf-8")
        assert "per person" in typed("inspect", model)
    with sordino.Ledger.open("budget.db") as book:
        assert book.spent("visits").reservations == 4


def test_door_07_a_budget_of_records_is_refused_with_the_command_that_makes_one_of_persons(visits):
    """The front page creates a budget of records: its hint and the refusal name the same option."""
    typed("ledger", "create", "budget.db", "records", "--epsilon", 3, "--delta", 1e-4)
    fit = ("fit", "visits.csv", "--schema", "visits.toml", "--epsilon", 1, *BOOKED[:-1])
    refused = typed(*fit, "records", "--output", "m.sordino", code=5)
    for page in (refused, (ROOT / "README.md").read_text("utf-8")):
        assert "--unit person" in page
    assert typed_json("ledger", "show", "budget.db", "records")["reservations"] == 0
    typed(*fit, "visits", "--output", "m.sordino")


def test_door_07_statistics_and_learned_schemas_protect_persons(visits):
    found = typed_json(
        "stats", "count", "visits.csv", "--schema", "visits.toml", "--by", "ward", "--epsilon", 2
    )
    assert found["privacy"]["unit"] == "person"
    blank = SCHEMA.replace("low = 0\nhigh = 100\n", "")
    (visits / "blank.toml").write_text(blank, "utf-8")
    words = ("--epsilon", 4, *BOOKED, "--output", "learned.toml")
    assert typed_json("schema", "learn", "blank.toml", "visits.csv", *words)["privacy"]["unit"] == "person"
    (price,) = sordino.Schema.read("learned.toml").learned
    assert price.unit == "person"


def test_door_07_tune_takes_the_groups_of_a_file(visits):
    """`tune` refused a file that says whose record each one is."""
    import numpy as np

    X = public_generator(2).normal(size=(400, 3)) / 3
    np.savez(visits / "rows.npz", X=X, y=(X[:, 0] > 0) * 1, groups=np.arange(400) // 4)
    words = ("--model", "logistic", "--set", "data_norm=1", "--classes", "0,1", "--epsilon", 3)
    found = typed_json("tune", "rows.npz", *words, "--grid", "alpha=[0.0, 0.1]", "--output", "t.sordino")
    assert found["privacy"]["unit"] == "person"
    assert "number of persons: 100" in found["privacy"]["public"]
