"""Curves and pairs of a linear model of a table: public, bounded, sparse, and worth it."""

import numpy as np
import pytest
from scipy import sparse

from sordino import LinearRegression, LogisticRegression, Schema, TableEncoder, load, save
from sordino.errors import InvalidInputError
from sordino.kernel import public_generator
from sordino.tables import Basis, Category, Date, Flag, Number, Ordinal, Person, Target, Text
from sordino.tables.encoder import choose_basis
from sordino.testing import seeded_noise_not_private

pd = pytest.importorskip("pandas")

SCHEMA = Schema(
    [
        Number("age", 0, 100),
        Number("income", 0, 1e5, log=True),
        Number("dose", 0, 4, knots=(1.0, 1.5)),
        Number("size", 0, 1, knots=1),
        Ordinal("grade", ["low", "middle", "high"]),
        Category("town", ["Bonn", "Rome", "Oslo"]),
        Category("sex", ["f", "m"], missing="other"),
        Flag("smoker"),
        Date("day", "2020-01-01", "2021-01-01"),
        Text("note", buckets=16),
        Target("y", "number", low=-2, high=2),
    ]
)


def patients(n, seed=0):
    """Return a table with gaps, undeclared levels and values beyond their bounds."""
    public = public_generator(seed)
    pick = lambda *values: np.array(values, dtype=object)[public.integers(0, len(values), n)]  # noqa: E731
    age, size = public.uniform(-20, 120, n), public.uniform(size=n)
    table = pd.DataFrame(
        {"age": age, "income": 10 ** public.uniform(0, 6, n), "dose": public.uniform(0, 5, n)}
    )
    table["size"], table["grade"] = size, pick("low", "middle", "high", "none", None)
    table["town"], table["sex"] = pick("Bonn", "Rome", "Oslo", "Kiel", None), pick("f", "m", "x", None)
    table["smoker"], table["day"] = (
        pick("yes", "no", None),
        pick("2020-03-01", "2020-12-31", "1999-01-01", None),
    )
    table["note"] = pick("a word or two", "", "other words")
    table.loc[public.uniform(size=n) < 0.1, "age"] = np.nan
    table["y"] = 1.5 * (np.clip(age, 0, 100) / 50 - 1) * (2 * size - 1) + 0.2 * public.normal(size=n)
    return table


ALL = choose_basis(SCHEMA, 10**6, 4.0)


@pytest.mark.parametrize(
    "basis", [ALL, choose_basis(SCHEMA, 100, 1.0), choose_basis(SCHEMA, 100, 1.0, knots=1)]
)
def test_no_row_is_longer_than_the_public_bound(basis):
    encoder = TableEncoder(SCHEMA, basis=basis).fit()
    rows = encoder.transform(patients(3000))
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    assert lengths.max() <= encoder.data_norm_
    assert lengths.max() > 0.7 * encoder.data_norm_


def test_dense_and_sparse_rows_are_the_same_and_every_column_has_its_name():
    table = patients(500)
    encoder = TableEncoder(SCHEMA, basis=ALL, sparse_output=True).fit()
    rows = encoder.transform(table)
    names = encoder.get_feature_names_out()
    assert len(set(names)) == rows.shape[1] == len(encoder.origins)
    assert {"age", "age at 25", "age x size", "age middle x town=Rome", "sex=m x smoker"} <= set(names)
    dense = TableEncoder(SCHEMA, basis=ALL, sparse_output=False).fit().transform(table)
    assert np.array_equal(rows.toarray(), dense)
    column = dict(zip(names, dense.T))
    product = (
        column["age"] * column["size"] * column["age x size"].std() / (column["age"] * column["size"]).std()
    )
    known = table["age"].notna().to_numpy()
    assert np.allclose(column["age x size"][known], product[known])
    assert not column["age x size"][~known].any()  # a gap brings nothing into a pair


def test_rows_of_ten_thousand_columns_stay_sparse():
    levels = [str(level) for level in range(110)]
    schema = Schema([Category("a", levels), Category("b", levels), Number("x", 0, 1), Number("z", 0, 1)])
    encoder = TableEncoder(schema, basis=choose_basis(schema, 10**9, 4.0)).fit()
    table = {"a": levels[:50], "b": levels[50:100], "x": np.linspace(0, 1, 50), "z": np.linspace(0, 1, 50)}
    rows = encoder.transform(table)
    assert sparse.issparse(rows)
    assert rows.shape[1] > 12_000
    # Two levels, three entries a number, and pairs: one of levels, four of two, four of numbers.
    assert np.diff(rows.indptr).max() == 2 + 2 * 3 + 1 + 4 * 2 + 4


def test_the_basis_follows_from_public_numbers_alone():
    table, other = patients(2000), patients(2000, seed=7)
    models = [LinearRegression(1.0, 1e-6, schema=SCHEMA).fit(rows) for rows in (table, other)]
    assert models[0].encoder_.basis == models[1].encoder_.basis == choose_basis(SCHEMA, 2000, 1.0)
    assert models[0].data_norm_ == models[1].data_norm_
    assert any("pairs of columns" in fact for fact in models[0].privacy_.public)


def test_more_records_or_budget_never_take_columns_away():
    few, some, many, most = (choose_basis(SCHEMA, n, 1.0) for n in (300, 3_000, 30_000, 10**6))
    assert few.curve > some.curve > many.curve == most.curve  # few records do not tell the middle of a line
    assert some.pair < many.pair == most.pair  # and pairs are shrunk before curves
    assert not some.pairs
    assert len(many.pairs) == len(most.pairs) == 9 * 8 // 2  # texts are not paired
    assert (some.knots, most.knots) == (5, 9)
    assert most.ridge < many.ridge
    assert choose_basis(SCHEMA, 3_000, 10.0) == choose_basis(SCHEMA, 3_000, 4.0)
    several = Schema([*SCHEMA.columns[:-1], Target("y", levels=["a", "b", "c", "d"])])
    assert not choose_basis(several, 30_000, 0.5).pairs


def test_persons_not_records_make_room_for_columns():
    table = patients(9000)
    table["who"] = np.arange(9000) // 30
    schema = Schema([*SCHEMA.columns, Person("who")])
    model = LinearRegression(1.0, 1e-6, schema=schema).fit(table)
    assert model.encoder_.basis == choose_basis(schema, 300, 1.0)
    owners = [("id", who) for who in table.pop("who")]
    assert LinearRegression(1.0, 1e-6, schema=SCHEMA).fit(table, groups=owners).encoder_.basis.curve > 1.0


def test_pairs_and_knots_by_hand():
    table = patients(3000)
    lines = LinearRegression(2.0, 1e-6, schema=SCHEMA, knots=1, pairs=False).fit(table)
    named = LinearRegression(2.0, 1e-6, schema=SCHEMA, pairs=[("size", "age")]).fit(table)
    assert lines.encoder_.basis == Basis(knots=1)
    assert named.encoder_.basis.pairs == (("age", "size"),)
    assert lines.score(table) < 0.1 < 0.5 < named.score(table)
    for wrong in ([("age", "age")], [("age", "note")], [("age",)], "age", 3):
        with pytest.raises(InvalidInputError, match="Columns that can be paired: 'age'"):
            LinearRegression(schema=SCHEMA, pairs=wrong).fit(table)
    with pytest.raises(InvalidInputError, match="knots=None without a schema"):
        LinearRegression(knots=3).fit(np.zeros((10, 2)), np.zeros(10))


def test_a_saved_model_keeps_its_basis(tmp_path):
    table = patients(3000)
    table["y"] = np.where(table["y"] > 0, "yes", "no")
    schema = Schema([*SCHEMA.columns[:-1], Target("y", levels=["no", "yes"])])
    model = LogisticRegression(4.0, 1e-6, schema=schema, pairs=[("age", "size")]).fit(table)
    again = load(save(model, tmp_path / "model.sordino"))
    assert again.encoder_.basis == model.encoder_.basis
    assert np.array_equal(again.predict_proba(table), model.predict_proba(table))


def test_pairs_are_found_where_there_are_some_and_cost_little_where_there_are_none():
    public, scores = public_generator(1), {}
    rows = pd.DataFrame(public.uniform(size=(12_000, 4)), columns=list("abcd"))
    schema = Schema([*(Number(name, 0, 1) for name in "abcd"), Target("y", "number", low=-1, high=3)])
    both = rows.assign(y=2 * rows["a"] * rows["b"] + 0.3 * public.normal(size=12_000))
    line = rows.assign(y=rows["a"] + rows["b"] + 0.3 * public.normal(size=12_000))
    for name, table in {"both": both, "line": line}.items():
        for kind, chosen in {"ours": {}, "lines": {"knots": 1, "pairs": False}}.items():
            with seeded_noise_not_private(3):
                model = LinearRegression(1.0, 1e-6, schema=schema, **chosen).fit(table[:8000])
            scores[name, kind] = model.score(table[8000:])
    assert scores["both", "ours"] > scores["both", "lines"] + 0.03
    assert scores["line", "ours"] > scores["line", "lines"] - 0.02


def test_a_number_that_fills_little_of_its_bounds_keeps_its_line():
    """Most stays last a week and a year is declared: beyond the first knot few records say how it goes on."""
    public = public_generator(0)
    days = np.minimum(public.exponential(4, 40_000) * np.exp(0.7 * public.normal(size=40_000)), 365.0)
    table = pd.DataFrame({"age": public.uniform(18, 95, days.size), "days": days})
    table["cost"] = 200 + 60 * days + 2 * table["age"] + 150 * public.normal(size=days.size)
    schema = Schema(
        [Number("age", 18, 95), Number("days", 0, 365), Target("cost", "number", low=0, high=50_000)]
    )
    train, test = table[:20_000], table[20_000:]
    with seeded_noise_not_private(0):
        model = LinearRegression(1.0, 1e-5, schema=schema).fit(train)
    wrong = np.square(test["cost"] - model.predict(test)).mean() / test["cost"].var()
    assert model.encoder_.basis.knots > 1
    assert 1.0 - wrong > 0.87  # least squares has .90; with a ridge on lines .81


def test_no_ridge_weighs_on_lines_and_levels():
    table = patients(300)
    model = LinearRegression(1.0, 1e-5, schema=SCHEMA).fit(table)
    names = model.encoder_.get_feature_names_out()
    lines = {"age", "income", "dose", "size", "grade", "day"}
    assert {names[at] for at in model.encoder_.lines} == lines
    problem = model._problem((300, len(names)), model._ask(300), False)
    pull = problem.penalty_gradient(np.ones(len(names) + 1))
    flat = {
        name
        for name, one in zip(names, model.encoder_.origins, strict=True)
        if one.column in {"town", "sex", "smoker"}
    }
    assert {names[at] for at in np.flatnonzero(pull[:-1] == 0.0)} == lines | flat
    assert pull[-1] == 0.0


def test_a_level_of_one_record_in_a_hundred_has_its_effect():
    public = public_generator(0)
    groups = public.choice(list("abcd"), 10_000, p=[0.9, 0.07, 0.02, 0.01])
    effects = {"a": 40.0, "b": 40.0, "c": 50.0, "d": 60.0}
    y = np.array([effects[group] for group in groups]) + 4 * public.normal(size=groups.size)
    schema = Schema([Category("g", list("abcd")), Target("y", "number", low=0, high=100)])
    with seeded_noise_not_private(0):
        model = LinearRegression(1.0, 1e-6, schema=schema).fit(pd.DataFrame({"g": groups, "y": y}))
    found = model.predict(pd.DataFrame({"g": list("abcd")}))
    wrong = np.abs(found - list(effects.values()))
    assert wrong.max() < 5.0  # with the ridge of curves the last misses by 8.5


def test_the_columns_of_a_table_keep_the_sizes_that_their_encoder_gave_them():
    # Counts of sizes would give each its own unit, and pairs were followed like lines.
    public = np.random.default_rng(0)
    table = pd.DataFrame({"a": public.uniform(0, 1, 4000), "b": public.uniform(0, 100, 4000)})
    table["y"] = 2 * table["a"] - 1 + 0.2 * public.normal(size=4000)
    bounded = [Number("a", 0, 100), Number("b", 0, 100), Target("y", "number", low=-3, high=3)]
    curved = LinearRegression(4.0, 1e-6, schema=Schema(bounded)).fit(table)
    plain = LinearRegression(4.0, 1e-6, data_norm=100.0, target_bound=3.0)
    plain.fit(table[["a", "b"]].to_numpy(), table["y"].to_numpy())
    assert "units" in [release.name for release in plain.privacy_.releases]
    assert "units" not in [release.name for release in curved.privacy_.releases]
    left = np.square(table["y"] - curved.predict(table[["a", "b"]])).mean() / table["y"].var()
    assert 1 - left > 0.8  # .89 without noise; a column fills 1 % of its bounds
