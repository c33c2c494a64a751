"""The doors of tables, statistics and searches: persons, prices and statuses that got lost on the way in."""

import re
import uuid
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import sordino
from sordino import errors
from sordino.kernel.noise import seeded_noise_not_private as seeded_noise
from sordino.runs import composed
from sordino.runs.report import each_once
from sordino.runs.search import Trial
from sordino.tables import Category, Date, Ignored, Number, Person, Target, learn_schema

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
    monkeypatch.setattr(
        Trial, "score", lambda self, scores: seen.append(scores[:, 0]) or np.full(scores.shape[1], 0.5)
    )
    search = sordino.PrivateSearchCV(sordino.LogisticRegression(schema=PERSONS), {}, validation=0.2)
    search.fit(table)
    assert {len(scores) for scores in seen} == {30}
    assert all(((scores >= 0) & (scores <= 1)).all() for scores in seen)
    owners = np.arange(600) % 150
    train, test = search._split(150, 30, owners)
    assert set(owners[train]).isdisjoint(owners[test])
    assert sorted([*train, *test]) == list(range(600))


def test_door_07_a_search_refuses_a_model_that_cannot_protect_persons():
    table = visits()

    class Alone(sordino.HeavyTailedClassifier):
        def fit(self, X, y):
            return super().fit(X, y)

    model = Alone(classes=["no", "yes"])
    with pytest.raises(errors.SordinoError, match="cannot protect persons"):
        sordino.PrivateSearchCV(model, {}).fit(table[["x"]].to_numpy(), table["y"], groups=table["id"])


BLANK = sordino.Schema([Number("x"), Person("id"), Target("y", levels=["no", "yes"])])


@pytest.mark.parametrize("epsilon", [0.05, 0.5])
def test_door_19_too_few_records_are_said_before_anything_is_spent(epsilon, tmp_path):
    """`schema learn` spent its budget and then said "too few records for this budget"."""
    ledger = sordino.Ledger.open(tmp_path / "budget.db")
    ledger.create("visits", sordino.BudgetPolicy(500.0, 1e-3, unit="person"))
    booked = {"ledger": ledger, "dataset_id": "visits"}
    with pytest.raises(errors.SchemaError, match="150 persons are too few") as caught:
        learn_schema(BLANK, visits(), epsilon, **booked)
    assert not ledger.history("visits")
    enough = float(re.search(r"Pay epsilon = ([0-9.]+)", str(caught.value))[1])
    with pytest.raises(errors.SchemaError, match="too few"):
        learn_schema(BLANK, visits(), 0.88 * enough, **booked)
    assert not ledger.history("visits")
    with seeded_noise(5):  # the remedy is true: at this noise three deviations leave room
        assert not learn_schema(BLANK, visits(), enough, **booked).schema.unknown


def test_door_19_levels_that_cannot_be_told_are_not_paid_for():
    blank = sordino.Schema([Category("x"), Target("y")])
    with pytest.raises(errors.SchemaError, match=r"20 records are too few.*Pay epsilon"):
        learn_schema(blank, {"x": ["a"] * 20, "y": ["no", "yes"] * 10}, 0.5)
    with pytest.raises(errors.SchemaError, match=r"1 records are too few.*No epsilon does"):
        learn_schema(blank, {"x": ["a"], "y": ["no"]}, 0.5, 1e-5)


def learned_visits(epsilon=8.0, seed=3):
    with seeded_noise(seed) if seed is not None else nullcontext():
        return learn_schema(BLANK, visits(), epsilon).schema


STATES = {"seeded (not private)": (8.0, 3), "not private (no noise)": (np.inf, None), "private": (60.0, None)}


@pytest.mark.parametrize("status", STATES)
def test_door_05_a_price_remembers_how_the_schema_was_learned(status):
    """With seeded noise or epsilon inf the model that read the schema said "private"."""
    schema = learned_visits(*STATES[status])
    assert [price.status for price in schema.learned] == [status]
    model = sordino.LogisticRegression(schema=schema).fit(visits())
    score = sordino.private_score(model, visits())
    search = sordino.PrivateSearchCV(sordino.LogisticRegression(schema=schema), {}).fit(visits())
    for report in (model.privacy_, score.privacy, search.privacy_, composed([("a", model.privacy_)])):
        assert report.learned == schema.learned
        assert report.status == status
        assert report.is_private == (status == "private")
        assert ("Nothing is guaranteed" in report.guarantee) == (status != "private")
        assert ("Nothing is guaranteed" in report.odds) == (status != "private")


def test_door_05_a_price_that_was_read_from_a_text_is_an_unverified_copy():
    """A price in a file was believed: edited to .1, or without its status, the model said "private"."""
    schema = learned_visits(60.0, None)
    text = schema.to_toml()
    for edited in (
        text,
        re.sub("(?m)^status = .*$", "", text),
        re.sub("(?m)^epsilon = .*$", "epsilon = 0.1", text),
    ):
        again = sordino.Schema.from_toml(edited)
        assert [price.status for price in again.learned] == ["unverified copy"]
        report = sordino.LogisticRegression(schema=again).fit(visits()).privacy_
        assert (report.status, report.is_private) == ("unverified copy", False)
    seeded = sordino.Schema.from_toml(learned_visits().to_toml())
    assert [price.status for price in seeded.learned] == ["seeded (not private)"]
    with pytest.raises(errors.SchemaError, match="status of a learned schema"):
        sordino.Schema.from_toml(text.replace('status = "private"', 'status = "fine"'))


def test_door_05_of_two_prices_with_one_receipt_the_worse_counts():
    (price,) = learned_visits(60.0, None).learned
    edited = replace(price, epsilon=0.1, certified=False)
    for pair in ((price, edited), (edited, price)):
        (found,) = each_once(pair)
        assert (found.epsilon, found.status) == (price.epsilon, "unverified copy")


def test_door_22_a_price_stays_with_its_columns():
    """`Schema(learned.schema.columns)` was "declared before the fit", at no price."""
    schema = learned_visits()
    copied = sordino.Schema(schema.columns)
    assert copied.learned == schema.learned != ()
    assert "learned from records" in copied.facts[0]
    part = sordino.Schema([Number("age", 0, 100), schema.columns[0]])
    assert part.learned == schema.learned
    assert sordino.Schema(schema.columns[1:]).learned == ()  # what was declared stays so
    assert sordino.Schema([replace(schema.columns[0], low=0.0)]).learned == schema.learned
    assert sordino.Schema.from_toml(copied.to_toml()).learned == schema.learned


def test_door_22_one_learning_counts_once_and_two_count_twice():
    one, two = learned_visits(), learned_visits(seed=4)
    renamed = replace(two.columns[0], name="z")
    assert len(sordino.Schema([one.columns[0], replace(one.columns[0], name="z")]).learned) == 1
    both = sordino.Schema([one.columns[0], renamed])
    assert both.learned == (*one.learned, *two.learned)
    wide = sordino.Schema(
        [*one.columns, Category("w")]
    )  # what is learned later rests on what was learned before
    again = learn_schema(wide, visits().assign(w="a"), 20.0).schema
    assert again.columns[-1].learned[:1] == one.learned
    assert len(sordino.Schema([again.columns[-1]]).learned) == 2


def test_door_22_a_column_copied_into_another_file_without_its_price_is_refused():
    text = learned_visits().to_toml()
    alone = "format = 1\n" + text[text.index("[columns.x]") :]
    with pytest.raises(errors.SchemaError, match=r"'x': it was learned.*for which price"):
        sordino.Schema.from_toml(alone)
    bare = re.sub("(?ms)^learned = \\[.*?^\\]\n", "", text)  # the price is there, its columns are not named
    assert bare != text
    assert len(sordino.Schema.from_toml(bare).learned) == 1


@pytest.mark.parametrize("learned", [False, True])
def test_levels_of_a_target_that_are_whole_numbers_stay_in_their_order(learned):
    """`Target(levels=[0..24])` was sorted as '0', '1', '10': columns of `predict_proba` moved in silence."""
    y = np.arange(6000) % 12
    table = pandas.DataFrame({"x": y / 12, "y": y})
    schema = sordino.Schema(
        [Number("x", 0, 1), Target("y", kind="category", levels=None if learned else range(12))]
    )
    if learned:
        with seeded_noise(1):
            schema = learn_schema(schema, table.astype({"y": str}), 8.0).schema
    assert schema.target.levels == tuple(range(12))
    again = sordino.Schema.from_toml(schema.to_toml())
    assert again == schema
    model = sordino.LogisticRegression(8.0, schema=again).fit(table)
    assert model.classes_.tolist() == list(range(12))
    assert model.predict_proba(table[["x"]]).shape == (6000, 12)
    assert model.predict(table[["x"]]).dtype.kind == "i"
    assert 0 <= model.score(table) <= 1
    assert sordino.private_score(model, table).privacy.unit == "record"


@pytest.mark.parametrize("levels", [["0", "1", "10"], [True, False], [0, "1", "10"], [0.5, 1.5]])
def test_other_levels_of_a_target_are_texts(levels):
    assert all(isinstance(level, str) for level in Target("y", levels=levels).levels)


@pytest.mark.parametrize("model", [sordino.LogisticRegression, sordino.PCA, sordino.HeavyTailedClassifier])
def test_door_26_rows_without_names_are_refused_where_a_schema_is_given(model, tmp_path):
    """`schema=` was ignored for rows on disk and tensors, and the report listed its columns as declared."""
    torch = pytest.importorskip("torch")
    schema = sordino.Schema([Number("x", 0, 1), Number("z", 0, 1), Target("y", levels=["no", "yes"])])
    X, y = np.full((200, 2), 50.0), np.array(["no", "yes"] * 100)
    kept = sordino.on_disk(sordino.to_disk(tmp_path / "rows", [(X, (y == "yes") * 1.0)]))
    for rows in (torch.from_numpy(X), kept):
        with pytest.raises(errors.UnsupportedError, match="A schema describes tables"):
            model(schema=schema).fit(rows, *(() if model is sordino.PCA else (y,)))


@pytest.mark.parametrize("records", [10, 60, 300])
@pytest.mark.parametrize("odd", ["\ud800", "2021-01-01\ud800", "\u0661", "\x00"])
def test_door_10_a_date_that_no_text_can_hold_is_missing_in_tables_of_any_length(odd, records):
    """A lone surrogate raised in tables of more than 50 rows, and told that one record is odd."""
    days = ["2021-06-01"] * (records - 1)
    schema = sordino.Schema([Date("day", "2021-01-01", "2021-12-31", knots=1)])
    rows = sordino.TableEncoder(schema, sparse_output=False).fit().transform({"day": [odd, *days]})
    assert rows[0].tolist() == [0.0, 1.0]
    assert (rows[1:] == rows[1]).all()
    assert 0 < rows[1, 0] < 1


def test_door_05_what_is_learned_on_a_learned_schema_has_its_status_too():
    """The second learning read the first one's schema, and its report forgot the price and the status."""
    wide = sordino.Schema([*learned_visits().columns, Category("w")])
    found = learn_schema(wide, visits().assign(w="a"), 20.0)
    assert found.privacy.status == "seeded (not private)"
    assert found.privacy.learned == wide.columns[0].learned
    assert [price.status for price in found.schema.learned] == ["seeded (not private)"] * 2
    assert "the first record of each person counts, the others do not" in found.privacy.notes


def test_door_06_labels_that_were_learned_are_not_said_to_be_declared():
    blank = sordino.Schema([Number("x", 0, 1), Target("y")])
    with seeded_noise(1):
        schema = learn_schema(blank, visits().drop(columns="id"), 8.0).schema
    report = sordino.LogisticRegression(schema=schema).fit(visits().drop(columns="id")).privacy_
    assert "class labels: those of the schema, learned from records" in report.public
    assert "class labels: declared" not in report.public


def test_door_07_owners_beside_a_table_are_kept_by_searches_and_scores():
    """A schema without a person column, and groups beside the table: scores and searches counted records."""
    table = visits()
    schema = sordino.Schema([Number("x", 0, 1), Ignored("id"), Target("y", levels=["no", "yes"])])
    model = sordino.LogisticRegression(schema=schema).fit(table, groups=table["id"])
    piped = make_pipeline(sordino.TableEncoder(schema), sordino.LogisticRegression(data_norm=1.0))
    piped.fit(table, table["y"], logisticregression__groups=table["id"])
    for fitted in (model, piped):
        with pytest.raises(errors.InvalidInputError, match="the model protects one person"):
            sordino.private_score(fitted, table)
        assert sordino.private_score(fitted, table, groups=table["id"]).privacy.unit == "person"
    for estimator in (sordino.LogisticRegression(schema=schema), clone(piped)):
        search = sordino.PrivateSearchCV(estimator, {}).fit(table, groups=table["id"])
        assert (search.privacy_.unit, search.privacy_.public[0]) == ("person", "number of persons: 150")


def test_door_48_a_zoned_time_has_one_day_however_it_comes():
    encoder = sordino.TableEncoder(sordino.Schema([Date("d", "2021-01-01", "2021-12-31", knots=1)]))
    frame = pandas.DataFrame({"d": pandas.date_range("2021-06-01 23:30", periods=2, tz="America/New_York")})
    encoder.fit(frame)
    ways = [
        frame,
        frame.to_dict("records"),
        frame.astype(object),
        {"d": [time.isoformat() for time in frame.d]},
        frame.assign(d=frame.d.dt.tz_convert("Asia/Tokyo")),
    ]
    days = [encoder.transform(way) for way in ways]
    for found in days:
        np.testing.assert_allclose(
            (found.toarray() if hasattr(found, "toarray") else np.asarray(found))[:, 0] * 364, [152.0, 153.0]
        )  # UTC; a column once gave its own zone's
