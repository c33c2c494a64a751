"""Estimators that take tables."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from tests.tables.helpers import SCHEMA, hospital

import sordino
from sordino import (
    Ledger,
    LinearRegression,
    LogisticRegression,
    Schema,
    SparseLogisticRegression,
    TableEncoder,
    pipeline_privacy,
)
from sordino.errors import FitWarning, InvalidInputError, InvalidTypeError, SchemaError
from sordino.tables import Category, Ignored, Number, Person, Target
from sordino.testing import seeded_noise_not_private

NUMERIC = Schema([*SCHEMA.columns[1:-1], Ignored("ill"), Target("age", "number", low=0, high=100)])


def test_a_model_fits_and_predicts_tables_through_the_same_map():
    table, later = hospital(3000).fillna({"age": 30.0}), hospital(500, seed=1).fillna({"age": 30.0})
    model = LogisticRegression(epsilon=4.0, delta=1e-5, schema=SCHEMA).fit(table)
    assert model.score(later) > 0.85
    assert set(model.predict(later.drop(columns="ill"))) <= {"no", "yes"}
    assert model.data_norm_ == model.encoder_.data_norm_ > np.sqrt(6)
    assert model.coef_.shape[1] == len(model.coef_names_)


def test_the_report_says_what_was_declared_and_nothing_was_assumed():
    public = LogisticRegression(epsilon=1.0, schema=SCHEMA).fit(hospital()).privacy_.public
    assert "class labels: declared" in public
    assert "column 'age': number in [0, 100] years (admission form)" in public
    assert not any("default" in line or "assumed public" in line for line in public)


def test_a_model_with_a_schema_is_cloned_and_reconfigured():
    model = clone(SparseLogisticRegression(epsilon=1.0, schema=SCHEMA, n_nonzero_coefs=4))
    assert model.get_params()["schema"] == SCHEMA
    model.fit(hospital())
    model.set_params(schema=None).fit(np.eye(40, 4), np.arange(40) % 2)
    assert not hasattr(model, "encoder_")
    assert model.predict(np.eye(2, 4)).shape == (2,)


def test_a_saved_model_keeps_its_schema(tmp_path):
    table = hospital(500)
    model = LogisticRegression(epsilon=1.0, schema=SCHEMA).fit(table)
    sordino.save(model, tmp_path / "model.sordino")
    back = sordino.load(tmp_path / "model.sordino")
    assert back.schema == SCHEMA
    assert back.predict(table).tolist() == model.predict(table).tolist()


def test_persons_come_from_the_schema():
    schema = Schema([*SCHEMA.columns, Person("who")])
    table = hospital().assign(who=np.arange(400) // 4)
    model = LogisticRegression(epsilon=1.0, schema=schema).fit(table)
    assert model.privacy_.unit == "person"
    assert "number of persons: 100" in model.privacy_.public
    assert model.score(table.drop(columns="who")) >= 0
    with pytest.raises(InvalidInputError, match="groups=None"):
        LogisticRegression(schema=schema).fit(table, groups=np.arange(400))
    with pytest.raises(SchemaError, match="lacks the column 'who'"):
        LogisticRegression(schema=schema).fit(table.drop(columns="who"))


def test_a_regressor_measures_targets_from_the_middle_of_their_bounds():
    table = hospital(2000).fillna({"age": 30.0})
    table["dose"] = np.clip(table["age"], 0, 100) / 25
    model = LinearRegression(epsilon=8.0, schema=NUMERIC).fit(table)
    assert model.score(table) > 0.8
    assert "target_bound = 50 (half of the range that targets are clipped to)" in model.privacy_.public
    flat = LinearRegression(epsilon=8.0, schema=NUMERIC, fit_intercept=False).fit(table)
    assert flat.intercept_ == 0.0
    assert "target_bound = 100 (targets are clipped to it)" in flat.privacy_.public


@pytest.mark.filterwarnings("ignore:.*the model is the mean:sordino.errors.FitWarning")
def test_targets_beyond_their_bounds_count_as_the_bound():
    schema = Schema([Number("x", 0, 1, knots=1), Target("y", "number", low=0, high=1)])
    table = {"x": np.linspace(0, 1, 500), "y": np.full(500, 1e9)}
    model = LinearRegression(epsilon=50.0, schema=schema).fit(table)
    assert 0.5 < model.predict(table).mean() < 1.5


def test_a_model_that_is_the_mean_says_so_once_and_how_well_that_is_known():
    schema = Schema([Number("x", 0, 365, knots=1), Target("y", "number", low=0, high=50_000)])
    table = {"x": np.linspace(0, 30, 300), "y": 800 + 90 * np.linspace(0, 30, 300)}
    with pytest.warns(FitWarning, match="the model is the mean of the targets") as heard:
        model = LinearRegression(epsilon=0.1, delta=1e-6, schema=schema).fit(table)
    assert len(heard) == 1
    assert not model.coef_.any()
    (mean,) = model.privacy_.releases
    known = float(re.search(r"known to \+-(\S+)", str(heard[0].message)).group(1))
    laplace = np.sqrt(2) * 25_000 * mean.noise_multiplier / 300
    assert known == pytest.approx(2 * laplace, rel=0.06)  # two digits are shown
    assert LinearRegression(epsilon=float("inf"), schema=schema).fit(table).score(table) > 0.99


def test_a_model_that_is_the_shares_of_the_classes_says_so():
    schema = Schema([Number("x", 0, 365), Target("y", levels=["no", "yes"])])
    table = {"x": np.linspace(0, 30, 200), "y": np.array(["no", "yes"])[np.arange(200) % 2]}
    with pytest.warns(FitWarning, match="the model is the shares of the classes"):
        model = LogisticRegression(epsilon=0.05, delta=1e-6, schema=schema).fit(table)
    assert not model.coef_.any()
    assert any("shares of the classes" in note for note in model.privacy_.notes)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (LogisticRegression(schema=NUMERIC), "predicts a category, the schema declares a number"),
        (LinearRegression(schema=SCHEMA), "predicts a number, the schema declares a category"),
        (LogisticRegression(schema=SCHEMA, classes=["no", "yes"]), "classes=None"),
        (LinearRegression(schema=NUMERIC, target_bound=3.0), "target_bound=None"),
        (LogisticRegression(schema=3), "Expected a sordino.Schema"),
        (LogisticRegression(schema=Schema([Number("age", 0, 9), Ignored("ill")])), "declare"),
    ],
)
def test_a_schema_that_contradicts_the_model_is_refused_before_anything_is_booked(model, words, tmp_path):
    from sordino import BudgetPolicy

    with Ledger.open(tmp_path / "l.db", create=True) as book:
        book.create("h", BudgetPolicy(1.0, 1e-5))
    model = clone(model).set_params(ledger=tmp_path / "l.db", dataset_id="h")
    with pytest.raises(InvalidInputError, match=words):
        model.fit(hospital().fillna({"age": 30.0}))
    with Ledger.open(tmp_path / "l.db") as book:
        assert book.spent("h").reservations == 0


@pytest.mark.parametrize("kind", [LogisticRegression, SparseLogisticRegression])
def test_a_bound_of_rows_beside_a_schema_is_refused_for_the_schema_declares_it(kind):
    with pytest.raises(InvalidInputError, match="data_norm=None"):
        kind(schema=SCHEMA, data_norm=1.0).fit(hospital())


def test_a_model_without_a_schema_still_wants_numbers_and_targets():
    with pytest.raises(InvalidInputError, match="requires y"):
        LogisticRegression().fit(np.eye(4))
    with pytest.raises(InvalidTypeError):
        LogisticRegression(schema=SCHEMA).fit(np.eye(4), [0, 1, 0, 1])


def test_a_table_goes_through_a_pipeline():
    table = hospital(2000)
    _, y, _ = SCHEMA.split(table)
    model = LogisticRegression(epsilon=2.0, data_norm=SCHEMA.data_norm, classes=["no", "yes"])
    pipeline = make_pipeline(TableEncoder(SCHEMA), model).fit(table, y)
    report = pipeline_privacy(pipeline)
    assert report.is_private
    assert any("'tableencoder': nothing paid, it keeps nothing" in note for note in report.notes)
    whole = make_pipeline(LogisticRegression(epsilon=2.0, schema=SCHEMA)).fit(table)
    assert whole.predict(table).shape == (2000,)


def test_the_noise_of_levels_that_nobody_has_is_stated_for_counts():
    public = np.random.default_rng(3)
    columns = [Category(name, list("abcdef")) for name in "uvw"]
    schema = Schema([*columns, Number("age", 0, 100), Target("y", "number", low=0, high=30)])
    found, stated = [], []
    for seed in range(3):
        table = pd.DataFrame({name: public.choice(list("abc"), 3000) for name in "uvw"})
        table["age"] = public.uniform(0, 100, 3000)
        table["y"] = public.poisson(np.exp(0.5 + 0.01 * table["age"])).clip(0, 30)
        with seeded_noise_not_private(seed):
            model = LinearRegression(1.0, 1e-6, schema=schema, loss="poisson", pairs=False).fit(table)
        names = model.encoder_.get_feature_names_out()
        nobody = [k for k, name in enumerate(names) if name in {f"{c}={v}" for c in "uvw" for v in "def"}]
        found.append(model.coef_[nobody])
        stated.append(model.coef_noise_[nobody])
    assert len(nobody) == 9
    assert np.sqrt(np.mean(np.square(found))) < 1.5 * np.mean(stated)  # 4 times before


@pytest.mark.parametrize("alpha", [None, 1e-3])
def test_a_table_with_curves_is_known_as_one_whatever_its_penalty(alpha):
    columns = [Number("age", 0, 100), Category("town", ["a", "b"]), Target("y", "number", low=0, high=1)]
    frame = pd.DataFrame({"age": np.arange(100.0), "town": ["a", "b"] * 50, "y": np.linspace(0, 1, 100)})
    model = sordino.LinearRegression(1.0, 1e-6, schema=sordino.Schema(columns), alpha=alpha)
    with pytest.warns(FitWarning):
        model.fit(frame)
    known = model._penalties()
    assert known["table"]
    assert known["lines"] == model.encoder_.lines
    assert ("free" in known) == (alpha is None)  # a penalty by hand weighs on all columns
