"""The doors that an attacker from outside found: prices, owners, texts and flags that got past the checks."""

import numpy as np
import pandas
import pytest

import sordino
from sordino import errors
from sordino.accounting.trade_off import NO_BOUND
from sordino.report import report_html
from sordino.runs.status import Status
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
