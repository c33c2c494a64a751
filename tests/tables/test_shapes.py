"""Effects of columns and pairs of a fitted model of a table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import sordino
from sordino.kernel import public_generator
from sordino.report.plots import plot_shapes
from sordino.tables import Category, Date, Flag, Number, Ordinal, Target, Text
from sordino.tables.shapes import _noise_alone

SCHEMA = sordino.Schema(
    [
        Number("age", 0, 100),
        Number("cost", 0, 1000, log=True),
        Ordinal("grade", ["low", "middle", "high"]),
        Category("town", ["Bonn", "Rome", "Oslo"]),
        Flag("smoker"),
        Date("day", "2021-01-01", "2021-12-31"),
        Text("note", 8),
        Target("y", "number", low=-20, high=20),
    ]
)


def records(n: int = 20_000) -> pd.DataFrame:
    public = public_generator(5)
    table = pd.DataFrame(
        {
            "age": public.uniform(0, 100, n),
            "cost": public.uniform(0, 1000, n),
            "grade": np.array(["low", "middle", "high"])[public.integers(0, 3, n)],
            "town": np.array(["Bonn", "Rome", "Oslo"])[public.integers(0, 3, n)],
            "smoker": np.array(["yes", "no"])[public.integers(0, 2, n)],
            "day": pd.Timestamp("2021-01-01") + pd.to_timedelta(public.integers(0, 365, n), unit="D"),
            "note": "one two",
        }
    )
    bent = np.abs(table["age"] - 50) / 10 + 2.0 * (table["town"] == "Rome")
    table["y"] = bent + public.normal(size=n)
    return table


@pytest.fixture(scope="module")
def table():
    return records()


@pytest.fixture(scope="module")
def model(table):
    return sordino.LinearRegression(4.0, schema=SCHEMA, pairs=[("age", "town"), ("cost", "smoker")]).fit(
        table
    )


def test_effects_add_up_to_the_differences_of_predictions(model, table):
    shapes = {shape.name: shape for shape in model.shapes_}
    cost, age = shapes["cost"].at[0][2], shapes["age"].at[0][1]
    for name, last in {"grade": 2, "day": -1, "smoker": 1, "town": 2}.items():
        start = table.iloc[[0]].assign(cost=cost, age=age)
        shape = shapes[name]
        apart = shape.effect[last] - shape.effect[0]
        if name == "smoker":
            apart += np.diff(shapes["cost x smoker"].effect[2])[0]
        if name == "town":
            apart += shapes["age x town"].effect[1, 2] - shapes["age x town"].effect[1, 0]
        ends = [model.predict(start.assign(**{name: shape.at[0][end]}))[0] for end in (0, last)]
        assert ends[1] - ends[0] == pytest.approx(apart, abs=1e-9)


def test_a_pair_has_nothing_of_the_effects_of_its_columns(model):
    surface = next(shape for shape in model.shapes_ if shape.columns == ("age", "town")).effect
    assert np.allclose(surface.mean(axis=0), 0, atol=1e-9)
    assert np.allclose(surface.mean(axis=1), 0, atol=1e-9)


def test_a_bent_effect_is_seen_and_is_the_most_important(model):
    shape = model.shapes_[0]
    assert shape.columns == ("age",)
    ends, middle = shape.effect[[0, -1]], shape.effect[shape.at[0].index(50.0)]
    assert np.all(ends - middle > 4.0)
    assert shape.importance == pytest.approx(1.44, abs=0.3)  # of |age - 50| / 10


@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_importance_is_the_deviation_over_the_records_where_nobody_has_other_levels(loss):
    towns, n, public = np.array(["Bonn", "Rome", "Oslo", "Bern"]), 3000, public_generator(6)
    columns = [Number("age", 0, 100), Category("town", towns.tolist()), Flag("smoker")]
    columns += [Category(f"letter {i}", ["a", "b"]) for i in range(4)]
    schema = sordino.Schema([*columns, Target("y", "number", low=0, high=20)])
    table = pd.DataFrame({f"letter {i}": np.array(["a", "b"])[public.integers(0, 2, n)] for i in range(4)})
    table = table.assign(age=public.uniform(0, 100, n), town=towns[public.integers(0, 4, n)])
    table["smoker"] = np.where(public.random(n) < 0.3, "yes", "no")
    table["y"] = 0.1 * table["age"] + 3.0 * (table["smoker"] == "yes") + public.exponential(1, n)
    ratios = []
    for _ in range(2):
        model = sordino.LinearRegression(1.0, 1e-5, schema=schema, pairs=False, loss=loss).fit(table)
        assert {shape.name for shape in model.shapes_[:2]} == {"age", "smoker"}
        for shape in model.shapes_:
            told = dict(zip(shape.at[0], shape.effect))
            age = np.interp(table["age"], shape.at[0], shape.effect) if shape.name == "age" else None
            ratios.append(shape.importance / np.std(table[shape.name].map(told) if age is None else age))
    assert 0.7 < np.median(ratios) < 1.4
    assert np.mean(np.array(ratios) > 2.0) < 0.35


def test_effects_have_noise_of_their_own_and_values_of_their_columns(model):
    shapes = {shape.name: shape for shape in model.shapes_}
    assert set(shapes) == {"age", "cost", "grade", "town", "smoker", "day", "age x town", "cost x smoker"}
    for shape in shapes.values():
        assert shape.effect.shape == shape.noise.shape == tuple(map(len, shape.at))
        assert np.all(np.isfinite(shape.effect))
        assert np.all(shape.noise > 0)
    assert shapes["cost"].at[0][0] == 0.0
    assert shapes["cost"].at[0][-1] == 1000.0
    assert shapes["grade"].at == (("low", "middle", "high"),)
    assert shapes["town"].at == (("Bonn", "Rome", "Oslo", "(other)", "(missing)"),)
    assert shapes["day"].at[0][0] == "2021-01-01"


def test_stated_noise_of_effects_is_never_much_less_than_what_fits_differ_by(table):
    fits = [
        sordino.LinearRegression(1.0, schema=SCHEMA, pairs=False, knots=5).fit(table.iloc[:5000])
        for _ in range(8)
    ]
    shapes = [next(s for s in fit.shapes_ if s.name == "age") for fit in fits]
    between = np.std([s.effect - s.effect[2] for s in shapes], axis=0, ddof=1)[[0, 1, 3, 4]]
    ratio = np.median(between / np.median([s.noise for s in shapes], axis=0)[[0, 1, 3, 4]])
    assert 0.01 < ratio < 1.7  # careful, and of the right order at most a hundred times


def test_noise_lifts_few_columns_without_an_effect_above_noise_alone():
    """The band was the root mean square of the noise, and words said "at most"."""
    public = public_generator(4)
    errors, parts = public.normal(size=(5, 3)) * [1.0, 0.4, 0.1], np.array([0.1, 0.2, 0.3, 0.2, 0.2])
    draws = errors @ public.normal(size=(3, 20_000))
    above = np.sqrt(parts @ np.square(draws)) > _noise_alone(errors, parts)
    assert 0.04 < above.mean() < 0.06


def test_labels_of_several_classes_have_an_effect_each(table):
    schema = sordino.Schema([*SCHEMA.columns[:1], Target("band", levels=["a", "b", "c"])])
    frame = table[["age"]].assign(
        band=np.where(table["age"] < 30, "a", np.where(table["age"] < 60, "b", "c"))
    )
    fitted = sordino.LogisticRegression(4.0, schema=schema).fit(frame)
    (shape,) = fitted.shapes_
    assert shape.effect.shape == (3, len(shape.at[0]))
    assert shape.effect[2, -1] - shape.effect[0, -1] > shape.effect[2, 0] - shape.effect[0, 0]


@pytest.mark.filterwarnings("ignore:.*the model is the mean:sordino.errors.FitWarning")
def test_shapes_survive_a_file_and_are_forgotten_by_a_fit_without_a_schema(model, tmp_path):
    again = sordino.load(model.save(tmp_path / "model.sordino"))
    for one, two in zip(model.shapes_, again.shapes_, strict=True):
        assert (one.columns, one.at, one.importance) == (two.columns, two.at, two.importance)
        assert np.array_equal(one.effect, two.effect)
        assert np.array_equal(one.noise, two.noise)
    plain = sordino.LinearRegression(1.0, data_norm=1.0, target_bound=1.0).fit(np.eye(200, 3), np.zeros(200))
    assert not hasattr(plain, "shapes_")


def test_plots_have_a_picture_for_each_effect(model):
    figure = plot_shapes(model, top=5)
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert len(titles) == 5
    assert titles[0].startswith("age (")


def test_the_middle_of_a_logarithmic_line_is_that_of_logarithms():
    block = Number("paid", 0, 8000, log=True).block(1, frozenset())
    points, positions = block.grid()
    assert (points[0], points[-1]) == (0, 8000)
    assert points[1] == pytest.approx(np.expm1(np.log1p(8000) / 2))
    assert block.read(pd.Series(points)) == pytest.approx(positions)


def test_effects_of_a_flag_have_a_row_for_what_was_not_read():
    """Noise of yes and no stood alone on the page of a column whose values were all gaps."""
    public = np.random.default_rng(3)
    table = pd.DataFrame({"x": public.uniform(size=2000), "said": "oui", "known": ["yes", "no"] * 1000})
    table["y"] = table["x"]
    columns = [Number("x", 0, 1), Flag("said"), Flag("known"), Target("y", low=0, high=1)]
    model = sordino.LinearRegression(4.0, 1e-6, schema=sordino.Schema(columns), pairs=False).fit(table)
    shapes = {shape.name: shape for shape in model.shapes_}
    assert shapes["said"].at == (("no", "yes", "(missing)"),)
    assert abs(float(shapes["said"].effect[-1])) < 0.1
    assert shapes["said"].noise[0] > 5.0 * shapes["said"].noise[-1]  # all have this row, and nobody the other
    assert shapes["known"].noise[-1] > 5.0 * shapes["known"].noise[0]
