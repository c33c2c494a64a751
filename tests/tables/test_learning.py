"""Bounds and levels learned for a price."""

import datetime
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from dp_accounting import dp_event as dp

from sordino import BudgetPolicy, Ledger, LogisticRegression, Schema
from sordino.errors import BudgetExceededError, InvalidInputError, SchemaError
from sordino.execute.local import ValueExecutor
from sordino.kernel import Relation, public_generator
from sordino.problems.scales import FrequentValues, Grid, NumberTree, ValueKinds
from sordino.tables import (
    Blank,
    Category,
    Date,
    Ignored,
    Number,
    Person,
    Target,
    Weight,
    learn_schema,
    value_shares,
)
from sordino.tables.learning import Wanted
from sordino.tables.values import frame_of

BLANK = Schema([Number("age"), Category("town"), Date("day"), Ignored("id"), Target("ill", "category")])


def people(n=6000, seed=0):
    public = public_generator(seed)
    age = public.uniform(20, 80, n)
    return pd.DataFrame(
        {
            "age": np.where(public.uniform(size=n) < 0.3, np.nan, age),
            "town": np.array(["Bonn", "Rome", "?"])[public.integers(0, 3, n)],
            "day": pd.Timestamp("2010-01-01") + pd.to_timedelta(public.integers(0, 3000, n), unit="D"),
            "id": np.arange(n).astype(str),
            "ill": np.where(age > 50, "yes", "no"),
        }
    )


def test_what_was_blank_is_filled_in_and_the_rest_is_kept():
    table = people()
    table.loc[7, "town"] = "a secret village"
    learned = learn_schema(BLANK, table, epsilon=2.0, delta=1e-5)
    age, town, day, _, ill = learned.schema.columns
    assert 15 < age.low < 30 < 70 < age.high < 90
    assert town.levels == ("Bonn", "Rome")
    assert ill.levels == ("no", "yes")
    assert datetime.date(2009, 1, 1) < day.low < day.high < datetime.date(2020, 1, 1)
    assert "learned: private quantiles" in age.source
    (price,) = learned.schema.learned
    assert (price.epsilon, price.delta, price.unit) == (learned.privacy.epsilon, 1e-5, "record")
    assert Schema.from_toml(learned.schema.to_toml()) == learned.schema
    assert not learned.schema.unknown


def test_the_report_is_private_and_within_what_was_asked():
    report = learn_schema(BLANK, people(2000), epsilon=0.7, delta=1e-5).privacy
    assert report.is_private
    assert 0.69 < report.epsilon <= 0.7
    assert [release.name for release in report.releases] == ["numbers", "finer", "levels"]
    assert any("'age': bounds (low and high) learned" in note for note in report.notes)
    assert "number of records: 2000" in report.public


def test_columns_without_a_kind_are_told_apart():
    schema = Schema([Blank("age"), Blank("town"), Ignored("day"), Blank("id"), Target("ill")])
    learned = learn_schema(
        schema, people().assign(age=lambda t: t["age"].astype(str)), epsilon=3.0, delta=1e-5
    )
    age, town, _, who, _ = learned.schema.columns
    assert (age.word, town.word) == ("number", "category")
    assert 15 < age.low < 30 < 70 < age.high < 90
    assert town.levels == ("Bonn", "Rome")
    assert who.word == "number"  # texts of digits
    assert [release.name for release in learned.privacy.releases] == ["numbers", "finer", "levels", "kinds"]
    assert not learned.schema.unknown


def test_a_kind_that_noise_hides_stays_blank():
    schema = Schema([Blank("x"), Ignored("y")])
    table = {"x": ["a"] * 5 + [None] * 2995, "y": [1] * 3000}
    learned = learn_schema(schema, table, epsilon=0.2).schema
    assert replace(learned.columns[0], learned=()) == Blank("x")
    assert learned.columns[0].learned == learned.learned


def test_declared_columns_cost_nothing():
    schema = Schema([Number("age", 0, 100), Category("town"), *(Ignored(c) for c in ("day", "id", "ill"))])
    learned = learn_schema(schema, people(3000), epsilon=1.0)
    assert learned.schema.columns[0] == schema.columns[0]
    assert [release.name for release in learned.privacy.releases] == ["levels"]
    with pytest.raises(SchemaError, match="nothing to learn"):
        learn_schema(learned.schema, people(10))


def test_what_gaps_hide_stays_blank():
    table = people(3000)
    table.loc[20:, ["age", "town", "day"]] = None
    learned = learn_schema(BLANK, table, epsilon=0.3, delta=1e-5).schema
    assert {column.name for column in learned.unknown} == {"age", "town", "day"}
    assert "no value above the threshold" in learned.columns[1].source
    assert "too few records" in learned.columns[0].source


def test_a_column_of_one_value_gets_bounds_around_it():
    schema = Schema([Number("x")])
    for value in (0.0, 5.0, -300.0):
        column = learn_schema(schema, {"x": np.full(3000, value)}, epsilon=1.0).schema.columns[0]
        assert column.low < value < column.high


@pytest.mark.parametrize("unit", [1e-11, 1e-9, 1.0, 1e11])
def test_bounds_follow_the_unit(unit):
    table = {"x": public_generator(0).uniform(1.0, 5.0, 3000) * unit}
    column = learn_schema(Schema([Number("x")]), table, epsilon=2.0).schema.columns[0]
    assert 0.9 * unit < column.low < 1.2 * unit < 4.7 * unit < column.high < 5.3 * unit
    assert "declare" not in column.source


def test_years_and_days_keep_bounds_near_their_ends():
    public = public_generator(0)
    table = {"year": public.integers(1995, 2004, 7000), "skewed": np.exp(public.normal(5, 2, 7000))}
    table["day"] = pd.Timestamp("2021-03-01") + pd.to_timedelta(public.integers(0, 90, 7000), unit="D")
    blank = Schema([Number("year"), Number("skewed"), Date("day")])
    year, skewed, day = learn_schema(blank, table, epsilon=0.5, delta=1e-5).schema.columns
    assert 1992 < year.low <= 1995 < 2003 <= year.high < 2006
    assert 2 < skewed.low < np.exp(3)
    assert np.exp(7) < skewed.high < np.exp(10)
    assert datetime.date(2021, 1, 1) < day.low <= datetime.date(2021, 3, 5)
    assert datetime.date(2021, 5, 25) <= day.high < datetime.date(2021, 8, 1)


def test_beyond_the_last_cell_a_column_stays_blank_and_an_end_says_so():
    public = public_generator(0)
    table = {
        "far": public.uniform(1e14, 1.0001e14, 3000),
        "below": public.uniform(-1e14, -1e13, 3000),
        "wide": np.where(public.uniform(size=3000) < 0.5, 1.0, 1e14),
        "tiny": public.uniform(1e-15, 5e-15, 3000),
    }
    found = learn_schema(Schema([Number(name) for name in table]), table, epsilon=4.0).schema
    far, below, wide, tiny = found.columns
    assert found.unknown == (far, below)
    for column in found.columns:
        assert "declare low and high, or change the unit" in column.source
    assert wide.low < 1.1
    assert wide.high == 1.1e12
    assert (tiny.low, tiny.high) == (-0.5, 0.5)


def test_learning_and_fitting_are_booked_on_the_same_budget(tmp_path):
    table = people()
    with Ledger.open(tmp_path / "l.db", create=True) as book:
        book.create("people", BudgetPolicy(1.0, 1e-5))
    place = {"ledger": tmp_path / "l.db", "dataset_id": "people"}
    schema = learn_schema(BLANK, table, epsilon=0.3, delta=5e-6, **place).schema
    model = LogisticRegression(epsilon=0.7, delta=5e-6, schema=schema, **place).fit(table)
    assert model.privacy_.is_private
    assert any("learned from records: epsilon = 0.3," in line for line in model.privacy_.public)
    with Ledger.open(tmp_path / "l.db") as book:
        assert book.spent("people").reservations == 2
    with pytest.raises(BudgetExceededError):
        learn_schema(BLANK, table, epsilon=0.3, delta=5e-6, **place)


def test_learning_after_something_else_is_refused_with_the_reason(tmp_path):
    with Ledger.open(tmp_path / "l.db", create=True) as book:
        book.create("people", BudgetPolicy(3.0, 1e-5))
        book.reserve(
            "people",
            dp.GaussianDpEvent(50.0),
            relation=Relation.ADD_REMOVE,
            unit="record",
            certificate=(0.5, 1e-6),
            description="earlier",
            plan_digest="0" * 64,
        ).settle()
    with pytest.raises(
        BudgetExceededError, match="has to be first on its data set: declare the schema by hand"
    ):
        learn_schema(BLANK, people(3000), 0.3, 5e-6, ledger=tmp_path / "l.db", dataset_id="people")


def test_persons_are_protected_by_one_record_each():
    table = people(4000).assign(who=np.arange(4000) // 4)
    table["town"] = np.where(np.arange(4000) % 4 == 0, "Bonn", "Rome")  # everybody's first record is in Bonn
    learned = learn_schema(Schema([*BLANK.columns, Person("who")]), table, epsilon=4.0, delta=1e-5)
    assert learned.privacy.unit == "person"
    assert "number of persons: 1000" in learned.privacy.public
    assert learned.schema.columns[1].levels == ("Bonn",)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (people(5).drop(columns="ill"), "lacks the column 'ill'"),
        (people(5).assign(extra=1), "does not declare"),
        (people(5).iloc[:0], "no records"),
        (people(5).assign(age=pd.Timestamp("2020-01-01")), "'age': the schema declares numbers"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_before_anything_is_booked(table, words, tmp_path):
    with Ledger.open(tmp_path / "l.db", create=True) as book:
        book.create("people", BudgetPolicy(1.0, 1e-5))
    with pytest.raises(SchemaError, match=words):
        learn_schema(BLANK, table, ledger=tmp_path / "l.db", dataset_id="people", epsilon=0.5)
    with Ledger.open(tmp_path / "l.db") as book:
        assert book.spent("people").reservations == 0


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_one_record_moves_both_questions_by_their_sensitivity_at_most(relation):
    public = public_generator(5)
    kind = Relation.parse(relation)
    worst = 0.0
    for _ in range(40):
        n = 6
        numbers = [
            np.where(public.uniform(size=n) < 0.2, np.nan, public.normal(size=n) * 10.0**e) for e in (3, -9)
        ]
        texts = [list("abcabz")] * 3
        codes = [public.integers(-1, 6, n) for _ in range(3)]
        full = ValueExecutor(n, tuple(numbers), tuple(zip(codes, texts)))
        changed = [np.array(column) for column in (*numbers, *codes)]
        for column, value in zip(changed, (np.nan, 1e300, -1, 5, 2)):
            column[0] = value if kind is Relation.REPLACE_ONE else (np.nan if column.dtype == float else -1)
        other = ValueExecutor(n, tuple(changed[:2]), tuple(zip(changed[2:], texts)))
        tree, cells = NumberTree(2, 5), [Grid(np.sinh(np.linspace(-e, e, 33))) for e in (9, 3)]
        moved = np.sqrt(np.square(tree.evaluate(full, cells) - tree.evaluate(other, cells)).sum())
        assert moved <= tree.sensitivity(kind, None) * (1 + 1e-12)
        kinds = ValueKinds(2)
        change = np.abs(kinds.evaluate(full, None) - kinds.evaluate(other, None))
        assert np.sqrt(np.square(change).sum()) <= kinds.sensitivity(kind, None)
        query = FrequentValues(3)
        squares = 0.0
        for mine, theirs in zip(query.evaluate(full, None), query.evaluate(other, None)):
            squares += sum((mine.get(t, 0) - theirs.get(t, 0)) ** 2 for t in {*mine, *theirs})
        worst = max(worst, math.sqrt(squares) / query.sensitivity(kind, None))
    assert 0.9 < worst <= 1 + 1e-12


def test_columns_of_unequal_length_are_refused():
    with pytest.raises(InvalidInputError, match="3 records in every column"):
        ValueExecutor(3, (np.zeros(2),))


@pytest.mark.parametrize("day", ["2000-01-01", "1999-12-31", "0001-01-01", "9999-12-31"])
def test_a_single_day_becomes_bounds_and_not_an_error_after_the_budget_is_spent(day):
    learned = learn_schema(Schema([Date("day")]), {"day": [day] * 3000}, epsilon=1.0)
    (found,) = learned.schema.columns
    assert found.low < found.high


def test_one_record_moves_the_counts_of_texts_by_one_even_where_it_equals_the_others():
    counts = [
        Wanted.of(Schema([Category("c")])).executor(frame_of({"c": values}), None, 51).counts(0)
        for values in ([True, *[1] * 50], [7, *[1] * 50])
    ]
    assert counts == [{"True": 1, "1": 50}, {"7": 1, "1": 50}]


def test_learning_leaves_most_of_the_ledgers_delta_to_fits(tmp_path):
    with Ledger.open(tmp_path / "b.db") as book:
        book.create("people", BudgetPolicy(4.0, 2e-6))
        booked = {"ledger": book, "dataset_id": "people"}
        assert learn_schema(BLANK, people(), 2.0, **booked).privacy.delta <= 2e-7


def test_runs_after_a_learned_schema_leave_delta_to_each_other(tmp_path):
    with Ledger.open(tmp_path / "b.db") as book:
        book.create("people", BudgetPolicy(6.0, 1e-5))
        booked = {"ledger": book, "dataset_id": "people"}
        schema = learn_schema(BLANK, people(), 2.0, **booked).schema
        deltas = [LogisticRegression(0.5, schema=schema, **booked).fit(people()).privacy_.delta for _ in "ab"]
    assert deltas == pytest.approx([9e-6 / 4, 6.75e-6 / 4], rel=1e-4)


def test_a_weight_is_outside_of_its_bounds_where_it_is_larger():
    schema = Schema([Number("a", 0, 10), Weight("w", 2.0), Target("y", low=0, high=1)])
    table = {"a": np.full(4000, 5.0), "w": np.repeat([1.0, 3.0], 2000), "y": np.full(4000, 0.5)}
    found = value_shares(schema, table, 4.0, 1e-6)
    assert dict(zip(found.columns, found.outside.round(1), strict=True)) == {"a": 0.0, "w": 0.5, "y": 0.0}
