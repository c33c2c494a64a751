"""Schemas without tears: row numbers, gaps in targets, paths, what a look costs before it is paid for."""

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from sordino import (
    BudgetPolicy,
    Ledger,
    LinearRegression,
    LogisticRegression,
    Schema,
    TableEncoder,
    private_score,
)
from sordino.cli.program import main
from sordino.errors import SchemaError
from sordino.kernel import public_generator
from sordino.problems.covariance import RowMoments
from sordino.tables import Category, Number, Person, Target, draft_schema, learn_schema, value_shares
from sordino.tables.files import DataFile, read_matrix, read_names, read_table
from sordino.tables.learning import ShareCounter

SCHEMA = Schema(
    [
        Number("age", 0, 100),
        Category("region", ["north", "other"]),
        Target("pay", "number", low=0, high=50, missing="leave out"),
    ]
)


def table(n=3000, seed=1):
    public = public_generator(seed)
    age = public.uniform(0, 110, n)
    pay = np.where(public.random(n) < 0.25, np.nan, age / 3)
    region = np.array(["north", "other", "elsewhere"])[public.integers(0, 3, n)]
    return pd.DataFrame({"age": age, "region": region, "pay": pay})


@pytest.mark.parametrize("first", ["", '""', "Unnamed: 0"])
def test_numbers_of_rows_are_no_column(tmp_path, first):
    path = tmp_path / "people.csv"
    path.write_text(f"{first},age,pay\n1,20,5\n2,30,7\n")
    file = DataFile(str(path))
    assert read_table(file, {"age": "number"}).to_pandas()["age"].tolist() == [20.0, 30.0]
    assert read_matrix(file, target="pay").X.tolist() == [[20.0], [30.0]]
    drafted = draft_schema(path, rest="number")
    assert read_names(file)[-2:] == ["age", "pay"]
    assert ("Unnamed" in drafted) == (first == "Unnamed: 0") == ('kind = "ignored"' in drafted)
    frame = pd.read_csv(path)
    schema = Schema([Number("age", 0, 90), Target("pay", "number", low=0, high=9)])
    assert TableEncoder(schema).fit(frame).transform(frame).shape[0] == 2


def test_only_the_first_column_may_be_without_a_name(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(",age,\n1,20,5\n")
    with pytest.raises(ValueError, match="column 3 has no name"):
        read_names(DataFile(str(path)))


def test_a_level_called_other_and_the_column_of_others_have_two_names():
    names = TableEncoder(SCHEMA).fit().get_feature_names_out().tolist()
    assert "region=other" in names
    assert "region (other)" in names
    assert len(set(names)) == len(names)


def test_records_without_a_target_are_left_out_where_the_schema_says_so():
    people = table()
    model = LinearRegression(epsilon=3.0, delta=1e-6, schema=SCHEMA).fit(people)
    known = int(people["pay"].notna().sum())
    assert f"number of records: {known}" in model.privacy_.public
    assert any("records without it are left out" in line for line in model.privacy_.public)
    assert model.score(people) == model.score(people.dropna(subset=["pay"])) > 0.8
    assert private_score(model, people, epsilon=2.0, metric="r2") > 0.7
    strict = Schema([*SCHEMA.columns[:2], Target("pay", "number", low=0, high=50)])
    with pytest.raises(SchemaError, match="missing or not declared"):
        LinearRegression(epsilon=3.0, schema=strict).fit(people)


def test_what_stays_in_is_told_row_by_row():
    """Leaving out a record changes no other record: the rule reads each target by itself."""
    people = table(60)
    whole = SCHEMA.split(people)[0].index.tolist()
    for row in range(0, 60, 7):
        rest = people.drop(index=row)
        assert SCHEMA.split(rest)[0].index.tolist() == [i for i in whole if i != row]


def test_a_schema_may_be_given_by_its_path(tmp_path):
    SCHEMA.write(tmp_path / "pay.toml")
    model = LinearRegression(schema=tmp_path / "pay.toml")
    assert model.schema == SCHEMA == TableEncoder(str(tmp_path / "pay.toml")).fit().schema_
    assert LinearRegression().set_params(schema=str(tmp_path / "pay.toml")).schema == SCHEMA


def test_a_schema_has_a_table_for_notebooks():
    html = Schema([Number("a<b", 0, 1), Target("y", levels=["n", "y"])])._repr_html_()
    assert "a&lt;b" in html
    assert "[0, 1]" in html
    assert "a<b" not in html


def test_a_target_without_a_kind_is_asked_about():
    people = table().assign(ill=lambda t: np.where(t["age"] > 50, 1, 0)).drop(columns="pay")
    blank = Schema([Number("age", 0, 100), Category("region", ["north"]), Target("ill")])
    assert blank.unknown[0].unknown == "category or number: give levels, or low and high"
    assert Schema.from_toml(blank.to_toml()) == blank
    assert learn_schema(blank, people, 2.0, 1e-6).schema.target.levels == (0, 1)
    amounts = people.assign(ill=people["age"] * 3.7)
    found = learn_schema(blank, amounts, 2.0, 1e-6).schema.target
    assert found.kind == "number"
    assert 250 < found.high < 500
    assert Target("y", levels=["a", "b"]).kind == "category"
    assert Target("y", low=0, high=1).kind == "number"
    with pytest.raises(SchemaError, match="category or number"):
        LogisticRegression(schema=blank).fit(people)


def test_learning_says_what_it_costs_before_it_spends():
    words = []
    blank = Schema([Number("age"), Category("region"), Target("pay", "number", low=0, high=50)])
    people = table().fillna({"pay": 1.0})

    def stop(said):
        words.append(said)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        learn_schema(blank, people, 1.0, 1e-6, tell=stop)
    assert "bounds of 1 column, levels of 1 column" in words[0]
    assert "costs epsilon 1, delta 1e-06 per record" in words[0]
    least = float(words[0].rpartition("epsilon ")[2].split()[0])
    learn_schema(blank, people, least * 1.05, 1e-6)
    with pytest.raises(SchemaError, match="too few"):
        learn_schema(blank, people, least * 0.8, 1e-6)


def test_shares_of_values_that_do_not_fit_are_near_the_truth_and_paid_for():
    people = table(20000)
    found = value_shares(SCHEMA, people, 1.0, 1e-6)
    assert found.columns == ("age", "region", "pay")
    truth = [(people["age"] > 100).mean(), (people["region"] == "elsewhere").mean(), 0.0]
    assert np.abs(found.outside - truth).max() < 6 * found.noise < 0.01
    assert abs(found.missing[2] - people["pay"].isna().mean()) < 6 * found.noise
    assert found.privacy.is_private
    assert 0.99 < found.privacy.epsilon <= 1.0


def test_a_person_moves_the_shares_as_far_as_one_record():
    people = table(400).assign(id=np.arange(400) % 7, age=500.0)
    schema = Schema([*SCHEMA.columns, Person("id")])
    report = value_shares(schema, people, 100.0, 1e-6).privacy
    assert report.unit == "person"
    assert "number of persons: 7" in report.public
    assert report.releases[0].sensitivity.startswith(f"{RowMoments(3**0.5, 0.01).contribution(None):.4g}")
    assert ShareCounter(3)._query().row_norm == 3**0.5


def test_schema_check_pays_for_a_look(tmp_path):
    table(4000).to_csv(tmp_path / "pay.csv", index=True)
    SCHEMA.write(tmp_path / "pay.toml")
    place = [str(tmp_path / "pay.toml"), str(tmp_path / "pay.csv")]
    told = CliRunner().invoke(main, ["schema", "check", *place, "--epsilon", "1"])
    assert told.exit_code == 0
    assert "clipped or other" in told.output
    assert "private" in told.output
    free = CliRunner().invoke(main, ["schema", "check", *place])
    assert free.exit_code == 0
    assert "clipped" not in free.output
    assert CliRunner().invoke(main, ["schema", "check", place[0], "--epsilon", "1"]).exit_code == 2


def test_shares_that_noise_would_hide_are_not_paid_for(tmp_path):
    with Ledger.open(tmp_path / "b.db") as book:
        book.create("few", BudgetPolicy(4.0, 1e-5))
        table = {"a": np.arange(50.0)}
        with pytest.raises(SchemaError, match=r"50 records are too few .* Nothing was spent\. Pay "):
            value_shares(Schema([Number("a", 0, 40)]), table, 0.1, ledger=book, dataset_id="few")
        assert book.spent("few").reservations == 0
