"""What a data protection officer stumbled over before signing: each test failed before its mend."""

import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.cli.helpers import typed

import sordino
from sordino.kernel import public_generator
from sordino.tables import Category, Number, Person, Target

LEVELS = [f"town {i}" for i in range(12)]
SCHEMA = sordino.Schema(
    [Number("age", 0, 100), Category("town", LEVELS), Target("ill", "category", ["no", "yes"])]
)
BOOKED = ("--ledger", "l.db", "--dataset", "ward")


@pytest.fixture
def ward(tmp_path, monkeypatch):
    """Write a table, its schema and a budget for persons' records."""
    monkeypatch.chdir(tmp_path)
    public = public_generator(4)
    age = public.uniform(0, 100, 900).round(1)
    rows = pd.DataFrame({"age": age, "town": np.array(LEVELS)[public.integers(0, 12, 900)]})
    rows.assign(ill=np.where(age > 60, "yes", "no")).to_csv("w.csv", index=False)
    SCHEMA.write("w.toml")
    typed("ledger", "create", "l.db", "ward", "--epsilon", 4, "--delta", 1e-4)
    return tmp_path


def fitted(*more):
    typed("fit", "w.csv", "--schema", "w.toml", "--epsilon", 1, *BOOKED, "--output", "m.sordino", *more)
    return "m.sordino"


def page_of(*words):
    told = typed("report", "m.sordino", "--ledger", "l.db", "--output", "p.html", "--force", *words)
    return told, Path("p.html").read_text("utf-8")


def test_a_page_has_what_is_signed_on_the_sheet_of_the_signatures(ward):
    fitted("--purpose", "plan beds")
    with sordino.Ledger.open("l.db") as book:
        (receipt,) = book.verify("ward").receipts
    told, page = page_of("--purpose", "something else")
    sheet = page[page.index("<h2>Signatures</h2>") :]
    assert receipt in sheet
    assert sordino.saving.files.model_digest(sordino.load("m.sordino"))[:16] in sheet
    assert "something else (at the run: plan beds)" in sheet
    assert "How many there are is public (number of records: 900)" in page
    assert all(level in page for level in LEVELS)
    assert "--delta 1e-05" in page
    assert "private, confirmed by ledger l.db, reservation 1: releases, model and file" in told
    assert "Not stated on the page: --controller, --approver, --basis, --recipients, --kept-until." in told
    assert typed("ledger", "verify", "l.db", "--receipt", receipt).startswith("Sound")


def test_a_page_of_a_damaged_ledger_is_not_signed(ward):
    fitted()
    with sqlite3.connect("l.db") as store:
        store.execute("update sordino_reservations set epsilon = .5 where sequence = 1")
    told, page = page_of()
    assert "The ledger is damaged" in page
    assert "<strong>Do not sign.</strong>" in page
    assert '<span class="badge bad">unverified copy' in page
    assert '<th scope="col">signature</th>' not in page
    assert "unverified copy, The ledger is damaged" in told


def test_a_check_says_what_a_fit_would_refuse(ward):
    persons = sordino.Schema([*SCHEMA.columns, Person("who")])
    persons.write("persons.toml")
    assert "The table lacks the column 'who'" in typed("schema", "check", "persons.toml", "w.csv", code=3)
    pd.read_csv("w.csv").assign(who=range(900)).to_csv("who.csv", index=False)
    said = typed("schema", "check", "persons.toml", "who.csv", *BOOKED, code=3)
    assert said.endswith("sordino ledger create l.db NAME --epsilon 4 --delta 0.0001 --unit person\n")
    typed("ledger", "create", "l.db", "others", "--epsilon", 1, "--delta", 1e-5, "--unit", "patient", code=2)
    flags = SCHEMA.to_toml().replace('kind = "category"', 'kind = "flag"').split("levels = ")[0]
    target = SCHEMA.to_toml()[SCHEMA.to_toml().index("[columns.ill]") :]
    Path("flag.toml").write_text(f"{flags}\n{target}")
    said = typed("schema", "check", "flag.toml", "w.csv", "--epsilon", 2)
    assert "Note: hardly a value of town is within what is declared" in said


def test_a_split_says_the_command_that_books(ward):
    parts = ("--train", "w-train.csv", "--test", "w-test.csv", "--force")
    Path("w.run.toml").write_text(
        'ledger = "l.db"\ndataset = "ward"\n[fit]\nepsilon = 1.0\noutput = "m.sordino"\n'
    )
    said = typed("split", "w.csv", "--schema", "w.toml", "--encoding", "ascii", *parts)
    (line,) = (line for line in said.splitlines() if line.startswith("Next: "))
    assert line == "Next: sordino fit w-train.csv --schema w.toml --config w.run.toml --encoding ascii"
    assert "Booked" in typed(*line.split()[2:])
    said = typed("split", "w.csv", "--train", "t.parquet", "--test", "j.csv", code=3)
    assert "give --train and --test the ending .csv" in said
    typed("schema", "draft", "w.csv", "--target", "ill", "--output", "blank.toml")
    said = typed("split", "w.csv", "--schema", "blank.toml", *parts)
    assert "Next: sordino schema check blank.toml w-train.csv" in said


def test_one_file_is_not_public_and_sensitive_on_one_page(ward):
    fitted()
    Path("other.csv").write_text(Path("w.csv").read_text())
    typed("evaluate", "m.sordino", "other.csv", "--epsilon", 1, *BOOKED, "--output", "paid.json")
    typed("evaluate", "m.sordino", "other.csv", "--public", "--output", "exact.json")
    scores = ("--scores", "paid.json", "--scores", "exact.json")
    said = typed("report", "m.sordino", *scores, "--output", "p.html", code=3)
    assert "One score of other.csv is exact, as of public records, and another was paid for" in said
    assert "as somebody said" in page_of("--scores", "exact.json")[1]


def test_a_learned_schema_that_was_edited_is_not_confirmed(ward):
    typed("schema", "draft", "w.csv", "--number", "age", "--category", "town", "--target", "ill",
          "--output", "blank.toml")  # fmt: skip
    typed("schema", "learn", "blank.toml", "w.csv", "--epsilon", 2, *BOOKED, "--output", "w.toml", "--force")
    low = f"low = {sordino.Schema.read('w.toml').columns[0].low}"
    fitted()
    page = page_of()[1]
    assert "confirmed by ledger l.db, reservation 3: releases, model and file" in page
    assert "Booked so far: reservation 1, learn_schema, epsilon " in page
    text = Path("w.toml").read_text()
    assert low in text
    Path("w.toml").write_text(text.replace(low, "low = 1.0"))
    fitted("--force")
    assert '<span class="badge mid">unverified copy' in page_of()[1]
