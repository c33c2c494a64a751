"""`sordino schema`: draft, show, check, learn, and then a fit from a CSV file."""

import numpy as np
import pandas as pd
import pytest
from tests.cli.helpers import typed, typed_json

import sordino

KINDS = ("--number", "age", "--number", "dose", "--category", "town", "--target", "ill", "--ignore", "id")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SORDINO_LEDGER", raising=False)
    public = np.random.default_rng(0)
    n = 4000
    age = public.uniform(20, 80, n)
    table = pd.DataFrame(
        {
            "age": age.round(),
            "dose": public.uniform(0, 3, n).round(2),
            "town": np.array(["Bonn", "Rome", "?"])[public.integers(0, 3, n)],
            "id": [f"secret{i}" for i in range(n)],
            "ill": np.where(age > 50, "yes", "no"),
        }
    )
    table.to_csv("people.csv", index=False)
    typed("ledger", "create", "budget.db", "people", "--epsilon", 2, "--delta", 1e-4)
    return tmp_path


BOOKED = ("--ledger", "budget.db", "--dataset", "people")


def test_from_a_file_to_a_model_without_knowing_a_bound(folder):
    said = typed("schema", "draft", "people.csv", *KINDS, "--output", "blank.toml")
    assert "no record was read" in said
    assert "age (bounds (low and high))" in typed("schema", "check", "blank.toml", "people.csv")
    learned = typed_json(
        "schema",
        "learn",
        "blank.toml",
        "people.csv",
        "--epsilon",
        1,
        "--delta",
        5e-5,
        *BOOKED,
        "--output",
        "s.toml",
    )
    assert learned["privacy"]["status"] == "private"
    assert "nothing is blank" in typed("schema", "check", "s.toml", "people.csv")
    assert "learned: private quantiles" in " ".join(typed("schema", "show", "s.toml").split())
    typed(
        "fit",
        "people.csv",
        "--schema",
        "s.toml",
        "--epsilon",
        1,
        "--delta",
        5e-5,
        *BOOKED,
        "--output",
        "m.sordino",
    )
    model = sordino.load("m.sordino")
    assert model.score(pd.read_csv("people.csv")) > 0.9
    with sordino.Ledger.open("budget.db") as book:
        assert book.spent("people").reservations == 2


def test_kinds_can_be_learned_too(folder):
    typed("schema", "draft", "people.csv", "--target", "ill", "--ignore", "id", "--output", "blank.toml")
    learned = typed_json(
        "schema", "learn", "blank.toml", "people.csv", "--epsilon", 2, "--delta", 5e-5, "--output", "s.toml"
    )
    kinds = [column["kind"] for column in learned["columns"]]
    assert kinds == ["number", "number", "category", "ignored", "target"]


def test_a_draft_is_printed_and_holds_no_value(folder):
    text = typed("schema", "draft", "people.csv")
    assert "[columns.town]" in text
    assert "secret" not in text
    assert "Bonn" not in text


def test_json_has_what_is_declared(folder):
    typed("schema", "draft", "people.csv", *KINDS, "--output", "blank.toml")
    shown = typed_json("schema", "show", "blank.toml")
    assert [column["kind"] for column in shown["columns"]] == [
        "number",
        "number",
        "category",
        "ignored",
        "target",
    ]
    assert shown["columns"][0]["blank"] == "bounds (low and high)"
    assert typed_json("schema", "check", "blank.toml", "people.csv")["digest"] == shown["digest"]


def test_names_that_do_not_fit_are_refused(folder):
    typed("schema", "draft", "people.csv", *KINDS, "--output", "blank.toml")
    pd.read_csv("people.csv").rename(columns={"age": "Age"}).to_csv("other.csv", index=False)
    refused = typed("schema", "check", "blank.toml", "other.csv", code=3)
    assert "lacks the column 'age'" in refused


def test_nothing_is_paid_where_the_result_could_not_be_written(folder):
    typed("schema", "draft", "people.csv", *KINDS, "--output", "blank.toml")
    for output in ("blank.toml", "nowhere/s.toml"):
        typed(
            "schema",
            "learn",
            "blank.toml",
            "people.csv",
            "--epsilon",
            1,
            *BOOKED,
            "--output",
            output,
            code=3,
        )
    with sordino.Ledger.open("budget.db") as book:
        assert book.spent("people").reservations == 0


def test_a_draft_is_not_written_over_work(folder):
    (folder / "s.toml").write_text("mine")
    typed("schema", "draft", "people.csv", "--output", "s.toml", code=3)
    assert (folder / "s.toml").read_text() == "mine"
    typed("schema", "draft", "people.csv", "--output", "s.toml", "--force")
    assert "mine" not in (folder / "s.toml").read_text()
