"""What a schema cost before a run: numbers that are added up, rounded up, and counted once."""

import importlib
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from tests.runs.helpers import ADD, REPLACE, ask_of, plan_of

import sordino
from sordino import PCA, LogisticRegression, PrivateSearchCV, Schema, TableEncoder, load, pipeline_privacy
from sordino.errors import InvalidInputError
from sordino.kernel import public_generator
from sordino.runs import Ask, Price, PrivacyReport, Promise, composed
from sordino.runs.report import Status, at_most, each_once
from sordino.tables import Number, Target

PRICE = Price(0.20001, 1e-6, ADD, "record", "first")
OTHER = replace(PRICE, receipt="second")


def report_of(*prices, epsilon=1.0):
    return Promise.made(Ask(epsilon, 1e-4, learned=prices), plan_of()).report()


@pytest.mark.parametrize("digits", [1, 3, 4])
def test_a_bound_is_never_shown_smaller_than_it_is(digits):
    public = public_generator(0)
    values = [*(10.0 ** public.uniform(-12, 3, 500)), 0.12341, 1.00001, 9.9991, 1e-300, 0.0]
    for value in values:
        shown = float(at_most(value, digits))
        assert value <= shown <= value * (1 + 10.0 ** (1 - digits))


def test_a_bound_with_few_digits_is_shown_as_it_is():
    assert [at_most(value) for value in (0.2, 1.5, 1e-6, 30.0)] == ["0.2", "1.5", "1e-06", "30"]
    assert at_most(0.12341) == "0.1235"
    assert at_most(np.float64(9.9991)) == "10"
    assert at_most(math.inf) == "inf"


def test_a_run_and_its_schema_cost_their_sum():
    report = report_of(PRICE)
    epsilon, delta = report.whole
    assert epsilon >= report.epsilon + 0.20001 - 1e-15
    assert (epsilon, delta) == pytest.approx((report.epsilon + 0.20001, 1.01e-4), rel=1e-12)
    assert f"together at most epsilon {at_most(epsilon)}, delta 0.000101." in report.on_top
    assert report.on_top in repr(report)
    assert report.on_top in report.to_html()


def test_the_sentence_rounds_up_where_the_nearest_number_is_smaller():
    report = replace(report_of(), epsilon=2.00001, learned=(replace(PRICE, epsilon=1.0),))
    assert f"{report.whole[0]:.4g}" == "3"
    assert "at most epsilon 3.001," in report.on_top


def test_sums_of_round_numbers_stay_round():
    report = replace(report_of(epsilon=0.5), epsilon=1.0, learned=(replace(PRICE, epsilon=0.2),))
    assert report.whole[0] == 1.2


def test_without_a_learned_schema_nothing_is_on_top():
    report = report_of()
    assert report.whole is None
    assert report.on_top is None


@pytest.mark.parametrize("change", [{"relation": REPLACE}, {"unit": "person"}])
def test_what_protects_somebody_else_does_not_add_up(change):
    report = report_of(PRICE, replace(OTHER, **change))
    assert report.whole is None
    assert "comes on top" in report.on_top
    assert "at most" not in report.on_top


def test_a_price_nobody_knows_bounds_nothing():
    report = report_of(Price(math.inf, 1.0, ADD, "record", said=Status.COPY))
    assert report.whole == (math.inf, 1.0)
    assert "not bounded" in report.on_top
    assert PrivacyReport.from_json(report.to_json()).learned == report.learned


def test_the_price_survives_the_text_of_a_report():
    report = report_of(PRICE, OTHER)
    back = PrivacyReport.from_json(report.to_json())
    assert back.learned == (PRICE, OTHER)
    assert back.whole == report.whole


def test_a_report_that_says_nothing_of_its_price_is_refused():
    text = report_of(PRICE).to_dict()
    del text["learned"]
    with pytest.raises(InvalidInputError, match="privacy report"):
        PrivacyReport.from_json(json.dumps(text))


def test_two_models_pay_for_one_schema_once_and_for_two_of_the_same_price_twice():
    one, two = report_of(PRICE), report_of(OTHER)
    same = composed([("a", one), ("b", one)])
    both = composed([("a", one), ("b", two)])
    assert same.learned == (PRICE,)
    assert both.learned == (PRICE, OTHER)
    assert both.whole[0] == pytest.approx(same.whole[0] + PRICE.epsilon)


def test_what_has_no_receipt_is_never_taken_for_the_same():
    loose = replace(PRICE, receipt="")
    assert each_once([loose, PRICE, loose, PRICE]) == (loose, PRICE, loose)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(-1, 0.1), (math.nan, 0.1), (1, -0.1), (1, 1.5), (1, math.nan)]
)
def test_numbers_that_are_no_price_are_refused(epsilon, delta):
    with pytest.raises(InvalidInputError, match="price of a learned schema"):
        Price(epsilon, delta, ADD, "record")


SCHEMA = Schema([Number("x", -1, 1), Target("y", levels=["no", "yes"])], learned=[PRICE])


def table():
    x = public_generator(1).uniform(-1, 1, 400)
    return {"x": x, "y": np.where(x > 0, "yes", "no")}


def test_every_path_to_a_report_carries_the_price(tmp_path):
    rows = table()
    model = LogisticRegression(1.0, 1e-4, schema=SCHEMA).fit(rows)
    assert model.privacy_.learned == (PRICE,)
    assert load(model.save(tmp_path / "m.sordino")).privacy_.learned == (PRICE,)
    steps = make_pipeline(
        TableEncoder(SCHEMA), LogisticRegression(1.0, 1e-4, classes=["no", "yes"], data_norm=1)
    )
    assert pipeline_privacy(steps.fit(rows, rows["y"])).learned == (PRICE,)


@pytest.mark.parametrize("kind", ["HeavyTailedClassifier", "PCA", "NeuralClassifier"])
def test_every_kind_of_model_carries_the_price(kind):
    made = getattr(sordino, kind, None) or getattr(importlib.import_module("sordino.nn"), kind)
    options = {"max_iter": 2} if kind == "NeuralClassifier" else {}
    assert made(epsilon=1.0, delta=1e-4, schema=SCHEMA, **options).fit(table()).privacy_.learned == (PRICE,)


def test_a_stream_carries_the_price():
    model = PCA(epsilon=1.0, delta=1e-4, schema=SCHEMA, n_chunks=2)
    assert model.partial_fit(table()).privacy_.learned == (PRICE,)


def test_a_search_pays_for_the_schemas_of_all_its_candidates():
    other = Schema([Number("x", -2, 2), SCHEMA.target], learned=[OTHER])
    search = PrivateSearchCV(
        LogisticRegression(1.0, schema=SCHEMA), {"schema": [SCHEMA, other]}, 3.0, 1e-4, mean_trials=2.0
    )
    assert set(search.fit(table()).privacy_.learned) == {PRICE, OTHER}


def test_the_ask_of_a_run_says_nothing_of_a_schema_by_itself():
    assert ask_of().learned == ()
