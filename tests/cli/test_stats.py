"""`sordino stats`: declared groups, bounds and edges in, numbers with intervals out."""

import pytest
from tests.cli.helpers import SECRET, typed, typed_json

import sordino
from sordino.cli import stats
from sordino.ledger import BudgetPolicy, Ledger
from sordino.tables import Category, Flag, Number, Person

ROWS = [("north", 20 + i % 30, i) for i in range(600)] + [("south", 60 + i % 10, 600 + i) for i in range(300)]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SORDINO_LEDGER", raising=False)
    lines = [
        "ward,age,id",
        *(f"{ward},{age},{person}" for ward, age, person in ROWS),
        f"west,{SECRET},1",
        "north,,7",
    ]
    (tmp_path / "wards.csv").write_text("\n".join([*lines, ""]))
    sordino.Schema([Category("ward", ["north", "south"]), Number("age", 0, 100)]).write("wards.toml")
    return tmp_path


SCHEMA = ("wards.csv", "--schema", "wards.toml", "--epsilon", 4)


def test_levels_are_counted():
    found = typed_json("stats", "count", *SCHEMA, "--by", "ward")
    counts = {row["ward"]: row for row in found["rows"]}
    # The noise has a deviation of 1.2: ten of them. How often intervals cover is asked under seeds.
    assert counts["north"]["count"] == pytest.approx(601, abs=12)
    assert counts["south"]["count"] == pytest.approx(300, abs=12)
    assert all(row["low"] < row["count"] < row["high"] for row in counts.values())
    assert set(counts) == {"north", "south"}, "a level that nobody declared is in no group"
    assert found["privacy"]["epsilon"] <= 4
    assert "south" in typed("stats", "count", *SCHEMA, "--column", "ward")


def test_a_mean_that_noise_hides_is_not_printed():
    words = ("stats", "mean", "wards.csv", "--schema", "wards.toml", "--column", "age", "--by", "ward")
    assert typed(*words, "--epsilon", 0.001).count("not known") == 2
    assert "not known" not in typed(*words, "--epsilon", 4)


def test_means_and_quantiles_by_group_leave_records_without_the_number_out():
    found = typed_json("stats", "mean", *SCHEMA, "--column", "age", "--by", "ward")
    means = {row["ward"]: row["mean"] for row in found["rows"]}
    # Deviations of .28 at most; of .41 for the medians and of 112 for the sum: seven or more of them each.
    assert means["north"] == pytest.approx(34.5, abs=2)
    assert means["south"] == pytest.approx(64.5, abs=2)
    found = typed_json("stats", "quantile", *SCHEMA, "--column", "age", "--by", "ward", "--q", 0.5)
    assert [row["quantile"] for row in found["rows"]] == pytest.approx([34.5, 64.5], abs=4)
    whole = typed_json("stats", "sum", *SCHEMA, "--column", "age")
    assert whole["rows"][0]["sum"] == pytest.approx(sum(age for _, age, _ in ROWS) + 100, abs=800)


def test_several_probabilities_are_typed_with_commas_or_one_by_one():
    words = ("stats", "quantile", *SCHEMA, "--column", "age")
    for typed_q in (("--q", "0.25,.5", "--q", ".75"), ("--q", "[0.25, 0.5, 0.75]")):
        assert [row["q"] for row in typed_json(*words, *typed_q)["rows"]] == [0.25, 0.5, 0.75]
    assert "--q wants numbers with commas" in typed(*words, "--q", "half", code=2)
    assert "q in [0, 1]" in typed(*words, "--q", "1.5", code=3)


def test_a_budget_for_records_says_how_to_make_one_for_persons():
    sordino.Schema([Category("ward", ["north", "south"]), Person("id")]).write("persons.toml")
    typed("ledger", "create", "b.db", "wards", "--epsilon", 9, "--delta", 1e-4)
    words = ("--schema", "persons.toml", "--epsilon", 1, "--ledger", "b.db", "--dataset", "wards")
    assert "--unit person" in typed("stats", "count", "wards.csv", "--by", "ward", *words, code=5)
    typed("ledger", "create", "b.db", "people", "--epsilon", 9, "--delta", 1e-4, "--unit", "person")
    typed("stats", "count", "wards.csv", "--by", "ward", *words[:-1], "people")


def test_histograms_have_declared_edges():
    words = ("stats", "histogram", "wards.csv", "--column", "age", "--edges", "0,50,100", "--epsilon", 4)
    found = typed_json(*words)
    assert [row["count"] for row in found["rows"]] == pytest.approx([600, 300], abs=15)


def test_what_nobody_declared_is_asked_for_before_data_is_read():
    plain = ("wards.csv", "--epsilon", 1)
    assert "not declared" in typed("stats", "mean", *plain, "--column", "age", code=3)
    assert "not declared" in typed("stats", "count", *plain, "--by", "ward", code=3)
    assert "--edges" in typed("stats", "histogram", *plain, "--column", "age", code=2)
    assert "--column" in typed("stats", "mean", *SCHEMA, code=2)
    assert "--column or --by" in typed("stats", "count", *SCHEMA, code=2)
    assert "no such column" in typed("stats", "count", *SCHEMA, "--by", "town", code=3)
    assert "levels" in typed("stats", "count", *SCHEMA, "--by", "age", code=3)
    assert "two numbers" in typed("stats", "mean", *plain, "--column", "age", "--bounds", "3", code=2)
    typed("stats", "count", *plain, "--by", "ward", "--levels", 'ward=["north"]')


def test_a_person_with_many_records_counts_once():
    sordino.Schema([Category("ward", ["north", "south"]), Person("id")]).write("persons.toml")
    lines = ["ward,id", *(["north,1"] * 500), *(f"south,{i}" for i in range(2, 302))]
    with open("wards.csv", "w") as file:
        file.write("\n".join([*lines, ""]))
    found = typed_json(
        "stats", "count", "wards.csv", "--schema", "persons.toml", "--by", "ward", "--epsilon", 4
    )
    assert found["rows"][0]["count"] < 20
    assert found["privacy"]["unit"] == "person"


def test_a_statistic_is_booked():
    typed("ledger", "create", "b.db", "wards", "--epsilon", 5, "--delta", 1e-3)
    typed("stats", "count", *SCHEMA, "--by", "ward", "--ledger", "b.db", "--dataset", "wards")
    assert len(typed_json("ledger", "history", "b.db", "wards")) == 1
    refused = ("stats", "count", *SCHEMA, "--by", "ward", "--ledger", "b.db", "--dataset", "wards")
    assert "Nothing was reserved" in typed(*refused, code=4)


def test_a_flag_has_its_levels_and_names_may_have_any_signs(folder):
    """`--levels 'diab?=[...]'` was refused, although the error told to pass it; so was a declared flag."""
    rows = [f"{word},{i}" for i, word in enumerate(("yes", "N", "Y", "", "no", "T") * 100)]
    (folder / "diab.csv").write_text("\n".join(["diab? / now,id", *rows, ""]))
    sordino.Schema([Flag("diab? / now")]).write("diab.toml")
    words = ("stats", "count", "diab.csv", "--column", "diab? / now", "--epsilon", 4)
    found = typed_json(*words, "--schema", "diab.toml")["rows"]
    assert [row["diab? / now"] for row in found] == ["no", "yes"]
    assert [row["count"] for row in found] == pytest.approx([200, 300], abs=12)
    assert "Pass --levels 'diab? / now=[...]'" in typed(*words, code=3)
    found = typed_json(*words, "--levels", 'diab? / now=["yes","no"]')["rows"]
    assert [row["count"] for row in found] == pytest.approx([100, 100], abs=12)
    assert "wants NAME=VALUE" in typed(*words, "--levels", "=[1]", code=2)


def test_numbers_that_were_paid_for_are_printed_though_the_ledger_is_gone_by_then(folder, monkeypatch):
    with Ledger.open(folder / "book.db") as book:
        book.create("wards", BudgetPolicy(8.0, 1e-5))
    asked = stats._ask

    def asked_then_gone(*args):
        table = asked(*args)
        (folder / "book.db").rename(folder / "away.db")
        return table

    monkeypatch.setattr(stats, "_ask", asked_then_gone)
    said = typed("stats", "count", *SCHEMA, "--by", "ward", "--ledger", "book.db", "--dataset", "wards")
    assert "north" in said
    with Ledger.open(folder / "away.db") as book:
        assert len(book.history("wards")) == 1
