"""The doors of tables, statistics and searches: persons, prices and statuses that got lost on the way in."""

import uuid

import numpy as np
import pandas
import pytest
from sklearn.pipeline import make_pipeline

import sordino
from sordino import errors
from sordino.runs.search import Trial
from sordino.tables import Ignored, Number, Person, Target

IDS = {
    "UUIDs": lambda i: uuid.UUID(int=i),
    "bytes": lambda i: i.to_bytes(8, "big"),
    "tuples": lambda i: (i // 7, i % 7),
    "integers from 2^53 on": lambda i: 2**53 + i,
    "integers beyond 64 bits": lambda i: 2**70 + i,
}


@pytest.mark.parametrize("what", IDS)
def test_door_01_persons_of_a_table_are_told_apart_exactly(what):
    """400 UUIDs were one person, 2^53 and 2^53 + 1 too; one of them moved the sum by 2 clips, not 1."""
    ids = [IDS[what](i % 50) for i in range(200)]
    schema = sordino.Schema([Number("x", 0, 1), Person("id"), Target("y", levels=["no", "yes"])])
    table = {"x": [0.5] * 200, "id": ids, "y": ["no", "yes"] * 100}
    for form in (table, pandas.DataFrame({**table, "id": pandas.Series(ids, dtype=object)})):
        owners = schema.split(form)[2]
        assert len(set(owners.tolist())) == 50
        assert (owners == np.arange(200) % 50).all() or what != "UUIDs"
    model = sordino.LogisticRegression(schema=schema).fit(table)
    assert "number of persons: 50" in model.privacy_.public


def test_door_01_one_function_numbers_the_owners_of_tables_and_of_groups():
    """A table sent ids through texts, `groups` did not: what one refused the other merged."""
    schema = sordino.Schema([Number("x", 0, 1), Person("id"), Target("y", "number", low=0, high=1)])
    for ids in ([2.0**53, 2.0**53 + 2], ["a", None], ["NA", "b"], [1, "1"]):
        with pytest.raises(errors.SchemaError, match="'id'"):
            schema.split({"x": [0, 1], "y": [0, 1], "id": ids})


PERSONS = sordino.Schema([Number("x", 0, 1), Person("id"), Target("y", levels=["no", "yes"])])


def visits(n=600, persons=150):
    """Return a table in which each person has several records."""
    x = np.linspace(0, 1, n)
    ids = [uuid.UUID(int=i % persons) for i in range(n)]
    return pandas.DataFrame({"x": x, "id": ids, "y": np.where(x > 0.5, "yes", "no")})


def test_door_07_a_score_with_targets_beside_the_table_protects_its_persons():
    """`private_score(model, table, y)` said "record" where the schema declares persons."""
    table = visits()
    model = sordino.LogisticRegression(schema=PERSONS).fit(table)
    for X, y in ((table, table["y"]), (table.drop(columns="y"), table["y"]), (table, None)):
        report = sordino.private_score(model, X, y, epsilon=1.0).privacy
        assert (report.unit, report.public[0]) == ("person", "number of persons: 150")
    with pytest.raises(errors.SchemaError, match=r"'id'.*the table lacks it"):
        sordino.private_score(model, table[["x"]], table["y"])
    assert sordino.private_score(model, table[["x"]], table["y"], groups=table["id"]).privacy.unit == "person"
    with pytest.raises(errors.InvalidInputError, match="groups=None"):
        sordino.private_score(model, table, groups=table["id"])


def test_door_07_a_model_of_persons_without_a_schema_is_not_scored_by_records():
    table = visits()
    rows, y, owners = table[["x"]].to_numpy(), table["y"].to_numpy(), table["id"]
    model = sordino.LogisticRegression(data_norm=1.0, classes=["no", "yes"]).fit(rows, y, groups=owners)
    with pytest.raises(errors.InvalidInputError, match="the model protects one person"):
        sordino.private_score(model, rows, y)
    assert sordino.private_score(model, rows, y, groups=owners).privacy.unit == "person"


@pytest.mark.parametrize("searched", [False, True])
def test_door_07_a_pipeline_after_an_encoder_does_not_forget_the_persons(searched, tmp_path):
    """`Pipeline(TableEncoder, model)` dropped the person column and protected records."""
    ledger = sordino.Ledger.open(tmp_path / "budget.db")
    ledger.create("visits", sordino.BudgetPolicy(5.0, 1e-3))
    booked = {"ledger": ledger, "dataset_id": "visits"}
    model = sordino.LogisticRegression(data_norm=1.0, **({} if searched else booked))
    made = make_pipeline(sordino.TableEncoder(PERSONS), model)
    if searched:
        made = sordino.PrivateSearchCV(made, {"logisticregression__alpha": [0.0, 0.1]}, **booked)
    with pytest.raises(errors.SchemaError, match=r"'id'.*encoded rows have no owners"):
        made.fit(visits(), visits()["y"])
    assert not ledger.history("visits")


def test_door_07_the_remedy_for_a_pipeline_protects_persons():
    table = visits()
    schema = sordino.Schema([Number("x", 0, 1), Ignored("id"), Target("y", levels=["no", "yes"])])
    made = make_pipeline(sordino.TableEncoder(schema), sordino.LogisticRegression(data_norm=1.0))
    made.fit(table, table["y"], logisticregression__groups=table["id"])
    assert sordino.pipeline_privacy(made).unit == "person"


@pytest.mark.parametrize("form", ["table", "rows", "pipeline"])
def test_door_07_a_search_protects_persons(form):
    """A schema with a person column ended with "The table lacks the column 'id'", groups with an error."""
    table, how = visits(), {"epsilon": 3.0, "delta": 1e-6}
    if form == "table":
        search = sordino.PrivateSearchCV(
            sordino.LogisticRegression(schema=PERSONS), {"alpha": [0.0, 0.1]}, **how
        )
        search.fit(table)
    else:
        model, grid = sordino.LogisticRegression(data_norm=1.0, classes=["no", "yes"]), {"alpha": [0.0, 0.1]}
        if form == "pipeline":
            model = make_pipeline(sordino.RowClipper(data_norm=1.0), model)
            grid = {"logisticregression__alpha": [0.0, 0.1]}
        search = sordino.PrivateSearchCV(model, grid, **how)
        search.fit(table[["x"]].to_numpy(), table["y"].to_numpy(), groups=table["id"])
    assert search.privacy_.unit == "person"
    assert "number of persons: 150" in search.privacy_.public
    assert not any("records:" in line for line in search.privacy_.public)


def test_door_07_a_person_of_a_search_is_in_one_part_and_counts_once(monkeypatch):
    """The split is over persons, and one person moves the sum of scores by one at most."""
    table, seen = visits(), []
    monkeypatch.setattr(Trial, "score", lambda self, scores: seen.append(scores) or 0.5)
    search = sordino.PrivateSearchCV(sordino.LogisticRegression(schema=PERSONS), {}, validation=0.2)
    search.fit(table)
    assert {len(scores) for scores in seen} == {30}
    assert all(((scores >= 0) & (scores <= 1)).all() for scores in seen)
    owners = np.arange(600) % 150
    train, test = search._split(150, owners)
    assert set(owners[train]).isdisjoint(owners[test])
    assert sorted([*train, *test]) == list(range(600))


def test_door_07_a_search_refuses_a_model_that_cannot_protect_persons():
    table = visits()
    model = sordino.HeavyTailedClassifier(classes=["no", "yes"])
    with pytest.raises(errors.SordinoError, match="cannot protect persons"):
        sordino.PrivateSearchCV(model, {}).fit(table[["x"]].to_numpy(), table["y"], groups=table["id"])
