"""Classes in an order: one slope for all levels, the median level, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from tests.cli.helpers import typed, typed_json

import sordino
from sordino.errors import InvalidInputError, SchemaError, UnsupportedError
from sordino.estimators.metrics import METRICS, judge
from sordino.tables import Number, Target, Weight

LEVELS = ["never", "rarely", "often", "always"]
GD = {"solver": "gd", "max_iter": 2, "solver_options": {"clip_norm": 1.0}}
SLOPES = np.array([2.0, -1.0, 0.0])


def draw(n, seed=0):
    public = np.random.default_rng(seed)
    X = public.uniform(-1, 1, (n, 3))
    ranks = np.searchsorted([-1.5, 0.0, 1.0], X @ SLOPES + public.logistic(size=n))
    return X, ranks, np.array(LEVELS)[ranks]


def test_without_noise_it_is_the_proportional_odds_model():
    X, ranks, y = draw(20_000)
    model = sordino.OrderedLogisticRegression(float("inf"), data_norm=2.0, classes=LEVELS).fit(X, y)
    assert model.coef_[0] == pytest.approx(SLOPES, abs=0.1)
    assert model.intercept_ == pytest.approx([1.5, 0.0, -1.0], abs=0.1)
    above = np.vstack([np.hstack([X, np.tile(np.eye(3)[k], (len(X), 1))]) for k in range(3)])
    plain = LogisticRegression(C=1e6, fit_intercept=False).fit(
        above, np.concatenate([ranks > k for k in range(3)])
    )
    assert model.coef_[0] == pytest.approx(plain.coef_[0, :3], abs=0.03)
    assert list(model.classes_) == sorted(LEVELS)
    assert list(model.levels_) == LEVELS
    chances = model.predict_proba(X[:50])
    assert chances.sum(axis=1) == pytest.approx(1.0)
    order = [list(model.classes_).index(level) for level in LEVELS]
    median = (np.cumsum(chances[:, order], axis=1) < 0.5).sum(axis=1)
    assert (model.predict(X[:50]) == np.array(LEVELS)[median]).all()


def test_it_is_nearer_in_rank_than_a_softmax_at_the_same_price():
    X, _, y = draw(2000, 1)
    T, ranks, z = draw(5000, 2)
    errors = []
    for kind in (sordino.OrderedLogisticRegression, sordino.LogisticRegression):
        model = kind(1.0, data_norm=2.0, classes=LEVELS).fit(X, y)
        places = np.array([LEVELS.index(label) for label in model.predict(T)])
        errors.append(np.abs(places - ranks).mean())
        if kind is sordino.OrderedLogisticRegression:
            score = sordino.private_score(model, T, z, metric="rank_error", epsilon=1.0)
            assert score.interval[0] <= errors[0] <= score.interval[1]
            best = min(np.abs(ranks - level).mean() for level in range(len(LEVELS)))
            assert score.baseline[0] == pytest.approx(best, abs=4 * score.baseline[1] + 1e-3)
            judged = judge(model, T, z, "labels")
            assert METRICS["rank_error"].exact_constant(judged) == pytest.approx(best)
            assert model.privacy_.unit == "record"
            assert "number of records: 2000" in model.privacy_.public
    assert errors[0] < errors[1]


def test_the_noise_is_for_all_rows_of_a_record():
    X, _, y = draw(300)
    model = sordino.OrderedLogisticRegression(1.0, data_norm=2.0, classes=LEVELS, **GD).fit(X, y)
    two = sordino.LogisticRegression(1.0, data_norm=2.0, classes=[0, 1], **GD)
    two.fit(X, np.arange(300) % 2)
    bounds = [float(m.privacy_.releases[0].sensitivity.split()[0]) for m in (model, two)]
    assert bounds[0] == pytest.approx(3 * bounds[1], rel=1e-3)


def test_two_levels_are_logistic_and_numbers_have_an_order_of_their_own():
    X, ranks, _ = draw(4000)
    two = sordino.OrderedLogisticRegression(float("inf"), data_norm=2.0, classes=["no", "yes"])
    two.fit(X, np.where(ranks > 1, "yes", "no"))
    plain = sordino.LogisticRegression(float("inf"), data_norm=2.0, classes=["no", "yes"])
    plain.fit(X, np.where(ranks > 1, "yes", "no"))
    assert two.coef_ == pytest.approx(plain.coef_, abs=1e-6)
    seen = sordino.OrderedLogisticRegression(float("inf"), data_norm=2.0).fit(X, ranks)
    assert seen.levels_.tolist() == [0, 1, 2, 3]
    with pytest.raises(InvalidInputError, match="in their order"):
        sordino.OrderedLogisticRegression(data_norm=2.0).fit(X, np.array(LEVELS)[ranks])


def test_exact_noise_of_a_record_that_is_asked_as_several_rows():
    X, _, y = draw(200)
    model = sordino.OrderedLogisticRegression(data_norm=2.0, classes=LEVELS, secure_noise=True).fit(X, y)
    assert all("lattice" in release.mechanism for release in model.privacy_.releases)


def test_what_is_not_proven_is_refused():
    X, _, y = draw(200)
    model = sordino.OrderedLogisticRegression(data_norm=2.0, classes=LEVELS)
    with pytest.raises(UnsupportedError, match="groups"):
        model.fit(X, y, groups=np.arange(200))
    with pytest.raises(UnsupportedError, match="Joint"):
        model.joint_task(10, 3)
    with pytest.raises(UnsupportedError, match="curvature"):
        sordino.intervals(model.fit(X, y), X, y)
    table = pd.DataFrame({"a": X[:, 0], "w": 1.0, "y": y})
    schema = sordino.Schema([Number("a", -1, 1), Weight("w"), Target("y", levels=LEVELS, ordered=True)])
    with pytest.raises(SchemaError, match="no weights"):
        sordino.OrderedLogisticRegression(schema=schema).fit(table)
    with pytest.raises(SchemaError, match="ordered"):
        Target("y", low=0, high=1, ordered=True)


def test_from_a_schema_to_a_score_by_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, _, y = draw(3000)
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y}).to_csv("t.csv", index=False)
    target = Target("y", levels=LEVELS, ordered=True)
    sordino.Schema([Number("a", -1, 1), Number("b", -1, 1), target]).write("s.toml")
    assert "in this order" in typed("schema", "show", "s.toml")
    fit = typed(
        "fit", "t.csv", "--schema", "s.toml", "--epsilon", 2, "--output", "m.sordino", "--report", "m.html"
    )
    assert "\nOrderedLogisticRegression on 3000 records" in fit
    model = sordino.load("m.sordino")
    assert model.levels_.tolist() == LEVELS
    assert {shape.columns for shape in model.shapes_} >= {("a",), ("b",)}
    found = typed_json("evaluate", "m.sordino", "t.csv", "--epsilon", 1)
    assert found["metric"] == "rank_error"  # what the model minimises, where none is named
    assert 0.3 < found["value"] < 1.0
    typed("inspect", "m.sordino")
    tuned = (
        "tune",
        "t.csv",
        "--schema",
        "s.toml",
        "--epsilon",
        4,
        "--grid",
        "knots=[1, 3]",
        "--metric",
        "rank_error",
    )
    assert "chosen" in typed(*tuned, "--output", "n.sordino")
