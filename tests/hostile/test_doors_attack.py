"""The doors that an attacker from outside found: prices, owners, texts and flags that got past the checks."""

from decimal import Decimal

import numpy as np
import pandas
import pytest
from tests.cli.helpers import typed

import sordino
from sordino import errors
from sordino.accounting.trade_off import NO_BOUND
from sordino.report import report_html
from sordino.runs.report import Status
from sordino.tables import Category, Ignored, Number, Person, Target, learn_schema


def visits(n=1200):
    age = np.random.default_rng(0).uniform(18, 95, n).round()
    return pandas.DataFrame(
        {
            "age": age,
            "town": ["north", "south"] * (n // 2),
            "id": np.arange(n) // 3,
            "sick": np.where(age > 60, "yes", "no"),
        }
    )


@pytest.mark.parametrize("other", ["person column", "groups", "relation"])
def test_door_31_a_schema_that_was_learned_for_others_leaves_no_bet_and_no_private(other):
    """A schema of epsilon 50 per record, a fit of .1 per person: the page said "at worst 50.6 %", private."""
    table = visits()
    asked = [Number("age"), Category("town"), Ignored("id"), Target("sick", levels=["no", "yes"])]
    schema = learn_schema(sordino.Schema(asked), table, epsilon=50.0, delta=1e-6).schema
    with_person = sordino.Schema([Person("id") if c.name == "id" else c for c in schema.columns])
    model = sordino.LogisticRegression(
        0.1,
        1e-6,
        schema=with_person if other == "person column" else schema,
        relation="replace-one" if other == "relation" else "add-remove",
    ).fit(table, groups=table["id"] if other == "groups" else None)
    report = model.privacy_
    assert report.status is Status.APART
    assert not report.is_private
    assert not report.status.holds
    assert report.trade_off == NO_BOUND
    for text in (report.odds, report.guarantee, report_html(model).replace("&#39;", "'"), report.to_html()):
        assert "epsilon = 49.99" in text
        assert "do not add up" in text
        assert "For this run alone" in text
        assert "Whoever bets" not in text
    same = sordino.LogisticRegression(0.1, 1e-6, schema=schema).fit(table).privacy_
    assert same.is_private
    assert same.whole[0] > 50


@pytest.mark.parametrize("marker", ["", " ", "?", "NA", "nan", "NULL", "None", b"NA", ("a", "")])
def test_door_32_texts_that_mark_a_gap_are_no_person(marker):
    """All records with groups "NA" were one person: two strangers shared one contribution."""
    X = np.random.default_rng(0).normal(size=(90, 3)) / 3
    y = (X[:, 0] > 0).astype(int)
    like = {bytes: lambda i: b"p%d" % i, tuple: lambda i: ("p", str(i))}.get(type(marker), "p{}".format)
    groups = [marker if i in (5, 60) else like(i // 3) for i in range(90)]
    model = sordino.LogisticRegression(1.0, 1e-5, data_norm=1.0, classes=[0, 1])
    forms = (
        [groups] if isinstance(marker, tuple) else [groups, np.array(groups), np.array(groups, dtype=object)]
    )
    for form in forms:
        with pytest.raises(errors.InvalidInputError, match="a known person for every record"):
            model.fit(X, y, groups=form)


HALF = "\ud800"  # half a character: Python holds it, no file does


@pytest.mark.parametrize("form", [list, np.array, lambda v: np.array(v, dtype=object)])
def test_door_33_half_a_character_in_a_column_is_another_level_in_every_container(form):
    """One record with it made a dictionary of arrays "columns of unequal length"; a list was read."""
    schema = sordino.Schema([Number("age", 18, 100), Category("ward", ["a", "b"])])
    encoder = sordino.TableEncoder(schema)
    found = encoder.fit_transform({"age": form([50.0] * 3), "ward": form(["a", HALF, "b"])})
    usual = encoder.fit_transform({"age": form([50.0] * 3), "ward": form(["a", "c", "b"])})
    assert (found != usual).nnz == 0


def test_door_34_half_a_character_is_no_level_and_no_name(tmp_path):
    """It was learned as a level and paid for; then nothing could write the schema, nor fit with it."""
    n = 2000
    table = {"ward": [HALF, "b"] * (n // 2), "sick": ["no", "yes"] * (n // 2)}
    asked = sordino.Schema([Category("ward"), Target("sick", levels=["no", "yes"])])
    schema = learn_schema(asked, table, epsilon=3.0, delta=1e-6).schema
    assert schema.columns[0].levels == ("b",)
    schema.write(tmp_path / "wards.toml")
    sordino.LogisticRegression(1.0, 1e-6, schema=schema).fit(table)
    for wrong in (lambda: Category("ward", ["a", HALF]), lambda: Number(HALF, 0, 1)):
        with pytest.raises(errors.SchemaError, match="Unicode text"):
            wrong()


@pytest.mark.parametrize("odd", [5, 2**40, 10**400, float("nan"), None, "maybe", [1], Decimal("sNaN")])
def test_door_35_a_count_of_yes_and_no_says_nothing_of_an_odd_record(odd):
    """One record of 5 or None was refused where its neighbour was answered: the refusal told of it."""
    for base in ([0, 1], [0.0, 1.0], [False, True], ["0", "1"], ["no", "yes"], [np.False_, np.True_]):
        column = base * 500
        column[7] = odd
        forms = [column, tuple(column)]
        loose = np.empty(1000, dtype=object)
        loose[:] = column
        forms.append(loose)
        forms += [np.array(column, dtype=int)] if type(odd) is int and odd < 2**50 and base[0] == 0 else []
        for form in forms:
            assert abs(float(sordino.count(form, epsilon=1e3)) - 499) < 1


def test_door_36_the_outlook_of_a_search_counts_persons(tmp_path, monkeypatch):
    """1200 records of 400 persons: `tune` promised each trial the records, for a guarantee per person."""
    monkeypatch.chdir(tmp_path)
    visits().to_csv("visits.csv", index=False)
    target = Target("sick", levels=["no", "yes"])
    columns = [Number("age", 18, 100), Category("town", ["north", "south"]), Person("id"), target]
    sordino.Schema(columns).write("visits.toml")
    words = ("--schema", "visits.toml", "--epsilon", 1, "--grid", "alpha=[0.0,0.1]", "--output", "best")
    said = typed("tune", "visits.csv", *words)
    assert "persons; a fit without a search has 1 and 400" in said
    assert "records" not in said.splitlines()[0]
