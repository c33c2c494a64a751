"""`sordino schema`: draft, show, check, learn, and then a fit from a CSV file."""

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.cli.helpers import typed, typed_json

import sordino
from sordino.saving import about

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
    assert "age (bounds (low and high))" in typed("schema", "check", "blank.toml", "people.csv", code=3)
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
    checked = typed("schema", "check", "blank.toml", "people.csv", "--json", code=3)
    assert json.loads(checked[: checked.rindex("}") + 1])["digest"] == shown["digest"]
    assert "Not declared yet" in checked


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


VISITS = """format = 1
[columns.id]
kind = "person"
[columns.day]
kind = "date"
low = 2021-01-01
high = 2021-12-31
[columns.ill]
kind = "target"
levels = ["no", "yes"]
"""


def visits(day):
    """Write 400 visits of 100 persons, all on this day but for one that is not known."""
    Path("visits.toml").write_text(VISITS, "utf-8")
    rows = [f"p{i % 100};{'NA' if i == 7 else day};{'yes' if i % 3 else 'no'}" for i in range(400)]
    Path("visits.csv").write_text("\n".join(["id;day;ill", *rows, ""]), "utf-8")
    return "fit", "visits.csv", "--schema", "visits.toml", "--epsilon", 1, "--output", "v.sordino"


def test_dates_that_cannot_be_read_are_refused_with_the_row_and_without_the_value(folder):
    said = typed(*visits("24.12.2021"), code=3)
    assert "row 2" in said
    assert "'day'" in said
    assert "24.12" not in said
    assert not Path("v.sordino").exists()


def test_how_many_records_persons_have_is_neither_printed_nor_saved(folder):
    assert "400" not in typed(*visits("2021-12-24"))
    assert "rows" not in about("v.sordino")["about"]["run"]


def test_a_guarantee_for_persons_states_the_noise_of_coefficients(folder):
    typed(*visits("2021-12-24"))
    assert all(entry["two sigma"] > 0 for entry in typed_json("inspect", "v.sordino")["coefficients"])
    assert "two sigma" in typed("inspect", "v.sordino")


def test_what_to_type_next_is_quoted_and_books_where_learning_was_booked(folder):
    table = pd.read_csv("people.csv").assign(dose=lambda rows: rows["dose"] * 1e14)
    table.to_csv("our people.csv", index=False, decimal=",", sep=";")
    typed("schema", "draft", "our people.csv", *KINDS, "--decimal", ",", "--output", "our blank.toml")
    how = ("--decimal", ",", *BOOKED)
    asked = typed("schema", "check", "our blank.toml", "our people.csv", *how, code=3)
    assert "sordino schema learn 'our blank.toml' 'our people.csv' --decimal , --ledger budget.db" in asked
    words = (
        "schema",
        "learn",
        "our blank.toml",
        "our people.csv",
        *how,
        "--epsilon",
        1,
        "--output",
        "s 1.toml",
    )
    said = typed(*words)
    assert "Note: column 'dose': not learned: values beyond 1.1e+12; declare low and high" in said
    (line,) = (line for line in said.splitlines() if line.startswith("Next: "))
    next_words = shlex.split(line.removeprefix("Next: sordino "))
    assert next_words == ["schema", "check", "s 1.toml", "our people.csv", *how]  # a blank is left
    table.assign(dose=table["dose"] / 1e14).to_csv("our people.csv", index=False, decimal=",", sep=";")
    said = typed(*words[:-1], "s 2.toml")
    (line,) = (line for line in said.splitlines() if line.startswith("Next: "))
    next_words = shlex.split(line.removeprefix("Next: sordino "))
    assert next_words[:4] == ["fit", "our people.csv", "--schema", "s 2.toml"]
    for option, value in (("--decimal", ","), ("--ledger", "budget.db"), ("--dataset", "people")):
        assert next_words[next_words.index(option) + 1] == value
    hint = typed("schema", "check", "no such.toml", code=3)
    assert "'no such.toml'" in hint


def test_a_blank_ordinal_stays_blank_and_is_asked_for(folder):
    kinds = [word if word != "--category" else "--ordinal" for word in KINDS]
    typed("schema", "draft", "people.csv", *kinds, "--output", "blank.toml")
    assert "town (levels in their order, which no record tells)" in typed(
        "schema", "check", "blank.toml", "people.csv", code=3
    )
    said = typed("schema", "learn", "blank.toml", "people.csv", "--epsilon", 1, "--output", "s.toml")
    assert "Still blank: town" in said
    assert said.endswith("Next: sordino schema check s.toml people.csv\n")
    assert "pay" not in typed("schema", "check", "s.toml", code=3)
    assert "nothing was spent" in typed(
        "schema", "learn", "s.toml", "people.csv", "--epsilon", 1, "--output", "t.toml", code=3
    )


def test_errors_and_notes_name_options_and_not_parameters_of_python(folder):
    columns = {"age": (0, 100), "dose": (0, 3)}
    text = "".join(
        f'[columns.{c}]\nkind = "number"\nlow = {a}\nhigh = {b}\n' for c, (a, b) in columns.items()
    )
    text += '[columns.town]\nkind = "ignored"\n[columns.id]\nkind = "ignored"\n'
    Path("s.toml").write_text(f'format = 1\n{text}[columns.ill]\nkind = "target"\nlevels = ["no", "yes"]\n')
    fit = ("fit", "people.csv", "--schema", "s.toml", "--epsilon", 1, "--output", "m.sordino")
    said = typed(*fit, *BOOKED, "--relation", "replace-one", code=5)
    assert "Plan with --relation add-remove." in said
    assert "Next: sordino ledger show budget.db people" in said
    assert "no --delta" in typed(*fit, "--delta", 0.5)
    said = typed(*fit, "--force", "--set", "solver=sgd", "--set", "noise=paper")
    assert "Note: --set noise=paper runs the published formula" in said


def test_numbers_with_decimal_commas_are_told_from_categories_where_kinds_are_blank(folder):
    table = pd.read_csv("people.csv").assign(dose=lambda rows: rows["dose"] + 0.25)
    table.to_csv("commas.csv", index=False, decimal=",", sep=";")
    typed("schema", "draft", "commas.csv", "--decimal", ",", "--output", "blank.toml")
    how = ("--decimal", ",", "--epsilon", 4, "--output", "found.toml")
    typed("schema", "learn", "blank.toml", "commas.csv", *how)
    words = {column.name: column.word for column in sordino.Schema.read("found.toml").columns}
    assert words["dose"] == "number"  # a category without levels, before


ODD = """Eintritt;CRP;BMI;Krank;Rest;Tage
22.04.2024;15,8;22,1;oui;a;1,2
05.04.2023;NA;20;non;b;3,3
"""
DECLARED = """format = 1
columns.Eintritt = {kind = "date", low = 2020-01-01, high = 2025-01-01}
columns.CRP = {kind = "number", low = 0, high = 300}
columns.BMI = {kind = "number", low = 0, high = 300}
columns.Krank = {kind = "flag"}
columns.Rest = {kind = "ignored"}
columns.Tage = {kind = "target", low = 0, high = 9}
"""


@pytest.fixture
def odd(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("odd.csv").write_text(ODD)
    Path("odd.toml").write_text(DECLARED)
    return tmp_path


def test_check_says_at_once_which_columns_are_spelt_otherwise(odd):
    said = typed("schema", "check", "odd.toml", "odd.csv", code=3)
    assert "'Eintritt' holds something else than a date. Write dates as 2021-12-31." in said
    assert said.count("holds something else than a number. Pass --decimal ,.") == 3
    assert "'Krank' holds something else than yes or no." in said
    assert not any(value in said for value in ("22.04", "15,8", "oui"))
    Path("odd.csv").write_text(ODD.replace("oui", "yes").replace("non", "no").replace(".04.20", "-04-"))
    said = typed("schema", "check", "odd.toml", "odd.csv", "--decimal", ",", code=3)
    assert [name in said for name in ("Eintritt", "CRP", "Krank")] == [True, False, False]
    good = ODD.replace("oui", "1.0").replace("non", "no").replace("22.04.2024", "").replace("05.04.2023", "")
    Path("odd.csv").write_text(good)
    assert "nothing is blank" in typed("schema", "check", "odd.toml", "odd.csv", "--decimal", ",")
    said = typed("schema", "check", "odd.toml", "odd.csv", code=3)
    assert said.count("Pass --decimal ,.") == 3


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_flag_in_other_words_is_refused_as_a_number_is(odd, ending):
    """It was read as missing throughout, and its effects were drawn all the same."""
    table = pd.DataFrame({"Krank": ["yes", "", "oui", "1.0"], "Tage": [1.0, 2.0, 3.0, 4.0]})
    table.to_csv("odd.csv", index=False)
    table.to_parquet("odd.parquet")
    fit = ("fit", f"odd.{ending}", "--schema", "odd.toml", "--epsilon", 1, "--output", "m.sordino")
    lines = [DECLARED.splitlines()[k] for k in (0, 4, 6)]
    Path("odd.toml").write_text("\n".join(lines))
    said = typed(*fit, code=3)
    row = 4 if ending == "csv" else 3
    assert f"row {row} has something else than yes or no in column 'Krank', declared as flags" in said
    assert "oui" not in said
    Path("odd.toml").write_text("\n".join([lines[0], 'markers = ["oui"]', *lines[1:]]))
    typed(*fit)


def test_the_refusal_of_a_key_says_what_a_target_of_numbers_takes(odd):
    Path("odd.toml").write_text(DECLARED.replace("high = 9", 'high = 9, type = "number"'))
    assert "for a number, low = and high =" in typed("schema", "check", "odd.toml", code=3)
    Path("odd.toml").write_text(DECLARED.replace(", low = 0, high = 9", ""))
    assert "give levels, or low and high" in typed("schema", "check", "odd.toml", code=3)
