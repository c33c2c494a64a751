"""Survey weights and exposures as kinds of columns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import sordino
from sordino.errors import InvalidInputError, SchemaError, UnsupportedError
from sordino.tables import Exposure, Number, Target, Weight

PLAIN = {"knots": 1, "pairs": False}


def test_an_exposure_is_an_offset_of_counts():
    rng = np.random.default_rng(0)
    x, years = rng.uniform(-1, 1, 30_000), rng.uniform(0.2, 4.0, 30_000)
    claims = rng.poisson(years * np.exp(0.8 * x - 0.5))
    table = pd.DataFrame({"x": x, "years": years, "claims": claims})
    schema = sordino.Schema(
        [Number("x", -1, 1), Exposure("years", 4.0), Target("claims", "number", low=0, high=20)]
    )
    model = sordino.LinearRegression(4.0, 1e-6, loss="poisson", schema=schema, **PLAIN).fit(table)
    assert model.predict(pd.DataFrame({"x": [-1.0, 0.0, 1.0]})) == pytest.approx(
        np.exp([-1.3, -0.5, 0.3]), rel=0.12
    )
    assert "column 'years': exposure in [0, 4] (source not stated)" in model.privacy_.public
    with pytest.raises(UnsupportedError, match="no intervals"):
        sordino.intervals(model, table)
    again = sordino.Schema.from_toml(schema.to_toml())
    assert again == schema


def test_survey_weights_move_the_answer_to_the_population():
    rng = np.random.default_rng(1)
    rich = rng.uniform(size=20_000) < 0.8  # of whom there are too many
    table = pd.DataFrame({"x": rng.uniform(0, 1, 20_000), "w": np.where(rich, 0.25, 4.0)})
    table["y"] = np.where(rich, 1.0, 0.0) + 0.1 * rng.normal(size=20_000)
    columns = [Number("x", 0, 1), Target("y", "number", low=-1, high=2)]
    weighted = sordino.Schema([*columns, Weight("w", 4.0)])
    model = sordino.LinearRegression(4.0, 1e-6, schema=weighted, **PLAIN).fit(table)
    plain = sordino.LinearRegression(4.0, 1e-6, schema=sordino.Schema(columns), **PLAIN)
    assert float(plain.fit(table.drop(columns="w")).predict(table[["x"]]).mean()) == pytest.approx(
        0.8, abs=0.05
    )
    assert float(model.predict(table[["x"]]).mean()) == pytest.approx(0.2, abs=0.08)


def test_a_gap_counts_for_nothing_and_a_large_weight_for_the_bound():
    schema = sordino.Schema([Number("x", 0, 1), Weight("w", 2.0), Target("y", "number", low=0, high=1)])
    frame = schema.checked(
        pd.DataFrame({"x": [0.0] * 4, "w": [1.0, None, -3.0, 9.0], "y": [0.0] * 4}), target=True
    )
    assert schema.weights(frame).tolist() == [0.5, 0.0, 0.0, 1.0]


def test_what_knows_no_weights_refuses_them():
    schema = sordino.Schema([Number("x", 0, 1), Weight("w", 2.0), Target("y", "number", low=0, high=1)])
    table = pd.DataFrame({"x": np.linspace(0, 1, 50), "w": 1.0, "y": 0.5})
    with pytest.raises(SchemaError, match="knows no weights"):
        sordino.PCA(1, schema=schema).fit(table)
    with pytest.raises(InvalidInputError, match="Leave out y and sample_weight"):
        sordino.LinearRegression(schema=schema).fit(table, sample_weight=np.ones(50))
    with pytest.raises(SchemaError, match="no number above 0"):
        Weight("w", -1.0)
    with pytest.raises(SchemaError, match="says how much a record counts"):
        sordino.TableEncoder(schema).fit(table)
    with pytest.raises(SchemaError, match="at most one weight"):
        sordino.Schema([Number("x", 0, 1), Weight("w", 2.0), Weight("v", 2.0)])


def test_a_search_weighs_the_records_of_a_table():
    public = np.random.default_rng(8)
    table = pd.DataFrame({"a": public.uniform(0, 1, 2000), "w": public.integers(0, 2, 2000) * 4.0})
    table["y"] = np.where(table["w"] > 0, 1.0, 0.0)  # records of weight zero say otherwise
    schema = sordino.Schema([Number("a", 0, 1), Weight("w", high=4), Target("y", low=0, high=1)])
    model = sordino.LinearRegression(schema=schema, knots=1, pairs=False)
    search = sordino.PrivateSearchCV(model, {"max_iter": [10, 20]}, epsilon=8.0).fit(table)
    assert search.predict(table[["a"]]).mean() > 0.9
    assert search.privacy_.status == "private"
