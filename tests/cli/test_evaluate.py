"""Scores of a saved model: with noise for a price, or exact on public rows."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.cli.helpers import FIT, named, table, typed, typed_json, write_csv

import sordino
from sordino.cli.shared import check_parameters
from sordino.errors import InvalidInputError
from sordino.estimators.evaluation import _subgroups
from sordino.estimators.metrics import METRICS, ScoreLimits, score_words, words_without_r2
from sordino.kernel import public_generator
from sordino.solvers.heavy.location import NoisyMeans
from sordino.tables import Category, Number, Target


def test_a_private_score_is_paid_and_an_exact_one_is_for_public_rows(model, booked, folder):
    found = typed_json("evaluate", model, "people.csv", "--target", "y", "--epsilon", 1, *booked)
    assert found["interval"][0] <= found["value"] <= found["interval"][1]
    assert found["value"] > 0.85
    with sordino.Ledger.open(folder / "budget.db") as ledger:
        assert ledger.spent("people").reservations == 2
    exact = typed_json("evaluate", model, "public.csv", "--target", "y", "--public", "--metric", "auc")
    assert exact["privacy"] is None
    assert exact["value"] > 0.95
    assert "--public" in typed("evaluate", model, "people.csv", "--target", "y", code=2)
    refused = typed("evaluate", model, "people.csv", "--target", "y", "--public", code=3)
    assert "by its name the file that the model was fitted to, privately" in refused
    both = ("--public", "--epsilon", 1)
    assert "--public" in typed("evaluate", model, "people.csv", "--target", "y", *both, code=2)


@pytest.mark.parametrize("metric", ["log_loss", "balanced_accuracy", "accuracy"])
def test_exact_scores_are_those_of_scikit_learn(model, metric):
    from sklearn import metrics

    X, y = table()
    fitted = sordino.load(model)
    found = typed_json("evaluate", model, "public.csv", "--target", "y", "--public", "--metric", metric)
    answers = fitted.predict_proba(named(X)) if metric == "log_loss" else fitted.predict(named(X))
    expected = getattr(metrics, metric if metric == "log_loss" else f"{metric}_score")(y, answers)
    assert found["value"] == pytest.approx(expected)


def test_a_calibration_curve_says_where_a_cell_holds_too_little(model):
    words = ("evaluate", model, "people.csv", "--target", "y", "--metric", "calibration", "--epsilon", 0.01)
    text = typed(*words)
    assert "observed" in text
    assert "unknown" in text


def test_public_rows_have_a_calibration_curve_and_a_wrong_metric_names_the_right_ones(model, folder):
    words = ("evaluate", model, "public.csv", "--target", "y", "--public", "--metric")
    found = typed_json(*words, "calibration")
    X, y = table()
    hits = np.sum(y == "yes")
    curve = found["curve"]
    assert sum(curve["counts"]) == len(X)
    assert np.dot(curve["counts"], curve["observed"]) == pytest.approx(hits)
    assert "observed" in typed(*words, "calibration")
    assert "log_loss" in typed(*words, "r2", code=3)


def test_numbers_are_scored_within_bounds_that_are_typed(folder):
    numbers = ("--target", "d", "--epsilon", 2, "--output", "l.sordino")
    write_csv(folder / "rows.csv", table()[0])
    typed("fit", "rows.csv", "--model", "linear", "--set", "data_norm=3", *numbers)
    words = ("evaluate", "l.sordino", "rows.csv", "--target", "d", "--epsilon", 1)
    assert "--bounds" in typed(*words, code=3)
    assert "two numbers" in typed(*words, "--bounds", "1", code=2)
    assert typed_json(*words, "--bounds", "-3,3", "--metric", "mse")["value"] >= 0
    assert "loss_bound = 9 (losses of records are clipped" in typed(
        *words, "--bounds", "-3,3", "--metric", "mse"
    )
    dear = (*words[:-1], 0.01, "--bounds", "-3,3")
    hidden = "not known, noise hides it: pay more, or score more records"
    told = typed(*dear, "--output", "s.json")
    assert f"r2: {hidden}" in told
    assert "What was paid for is known: the mean squared error is" in told
    found = json.loads((folder / "s.json").read_text("utf-8"))
    assert (found["value"], found["worse than constant"]) == (None, None)
    assert hidden in found["notes"]
    typed("report", "l.sordino", "--scores", "s.json", "--output", "l.html", code=1)
    page = (folder / "l.html").read_text("utf-8")
    assert 'data-name="value">not known' in page
    assert "noise hides deviations below" in page
    (folder / "open.csv").write_text((folder / "rows.csv").read_text("utf-8"), "utf-8")
    exact = typed("evaluate", "l.sordino", "open.csv", "--target", "d", "--public", "--metric", "mae")
    d = table()[0][:, 3]
    assert f"best constant): {np.abs(d - np.median(d)).mean():.4g}" in exact


def test_a_projection_has_no_score(folder):
    write_csv(folder / "rows.csv", table()[0])
    typed("pca", "rows.csv", "--components", 1, "--data-norm", 3, "--epsilon", 2, "--output", "p.sordino")
    for price in (("--public",), ("--epsilon", 1)):
        assert "PCA predicts nothing, so it has no score" in typed(
            "evaluate", "p.sordino", "rows.csv", *price, code=3
        )


def test_a_score_has_the_relation_of_its_budget(model, folder):
    """A budget for replaced records refused every score: the command could not say the relation."""
    budget = ("--epsilon", 3, "--delta", 1e-4, "--relation", "replace-one")
    typed("ledger", "create", "other.db", "people", *budget)
    words = ("people.csv", "--target", "y", "--epsilon", 1, "--ledger", "other.db", "--dataset", "people")
    assert "replace-one" in typed("evaluate", model, *words, code=5)
    found = typed_json("evaluate", model, *words, "--relation", "replace-one")
    assert found["privacy"]["relation"] == "replace-one"


def test_a_second_metric_is_refused_before_anything_is_paid(model, booked, folder):
    words = ("evaluate", model, "people.csv", "--target", "y", "--epsilon", 1, *booked)
    assert "--metric is given 2 times" in typed(*words, "--metric", "accuracy", "--scoring", "auc", code=2)
    with sordino.Ledger.open(folder / "budget.db") as ledger:
        assert ledger.spent("people").reservations == 1
    (folder / "run.toml").write_text('metric = "auc"\n', "utf-8")
    public = ("evaluate", model, "public.csv", "--target", "y", "--public", "--config", "run.toml")
    assert typed_json(*public)["metric"] == "auc"
    assert typed_json(*public, "--metric", "log_loss")["metric"] == "log_loss"


RATES = """format = 1
[columns.x]
kind = "number"
low = -1
high = 1
[columns.ill]
kind = "flag"
[columns.ward]
kind = "category"
levels = ["A", "B\\nC"]
[columns.years]
kind = "exposure"
high = 2
[columns.falls]
kind = "target"
low = 0
high = 8
"""


def pairs():
    """Return the rows of `rates` without a ward, and their targets."""
    x = np.linspace(-1, 1, 400)
    rows = pd.DataFrame({"x": x, "ill": "yes", "ward": "A", "years": 2.0})
    return rows, 6 + 5 * x


@pytest.fixture
def rates(folder):
    """Return a model of rates, the records it knows, and others where the slope is the other way round."""
    x = np.linspace(-1, 1, 400)
    for name, slope in (("same.csv", 1), ("other.csv", -1)):
        rows = [f"{u},{('yes', 'no', '')[i % 3]},A,2,{6 + 5 * slope * u}" for i, u in enumerate(x)]
        (folder / name).write_text("\n".join(["x,ill,ward,years,falls", *rows, ""]), "utf-8")
    (folder / "s.toml").write_text(RATES, "utf-8")
    plain = ("--set", "knots=1", "--set", "pairs=false")
    typed("fit", "same.csv", "--schema", "s.toml", "--epsilon", 20, *plain, "--output", "r.sordino")
    return "r.sordino"


def test_a_score_with_an_interval_as_wide_as_it_can_be_is_not_known(rates, folder):
    words = ("evaluate", rates, "same.csv", "--epsilon", 0.01, "--output", "s.json", "--force")
    told = typed(*words, "--by", "ill")
    assert re.search(r"ill=no +not known +0 to", told)
    assert "Note: subgroups are scored by mae: r2 is no mean over records." in told
    assert "Note: not known, noise hides it" in told
    found = json.loads((folder / "s.json").read_text("utf-8"))
    assert [line["value"] for line in found["groups"]] == [None, None]
    typed("report", rates, "--scores", "s.json", "--output", "s.html", code=1)
    page = (folder / "s.html").read_text("utf-8")
    assert page.count('data-name="value">not known<') == 2
    assert "number of records: 400, all groups together" in page
    assert "not part of this score" in page
    assert "nor that each stands in their file once: it is the word of whoever chose them" in page
    for metric, least in (("mae", 0.0), ("r2", -math.inf)):
        score = sordino.private_score(sordino.load(rates), *pairs(), metric=metric, epsilon=0.01)
        assert math.isnan(score)
        assert score.interval[0] == least


def test_a_score_that_noise_took_to_its_end_says_so():
    end = " (noise may have gone beyond: read the interval)"
    assert score_words(0.0, 0.0, 31.81) == f"0{end}"
    assert score_words(1.0, 0.9, 1.0) == f"1{end}"
    assert [score_words(0.25, 0.1, 0.4), score_words(0.0), score_words(None, 0.0, 1.0)] == [
        "0.25", "0", "not known"
    ]  # fmt: skip
    squares = METRICS["r2"].metric(ScoreLimits.between(0.0, 30.0))
    words = words_without_r2(squares, NoisyMeans(-np.ones(8), 0.2), 100, 0.95)
    assert f"the mean squared error is 0{end}, 95 % interval 0 to" in words


@pytest.mark.parametrize("price", [("--public",), ("--epsilon", 20)])
def test_a_score_says_that_it_is_worse_than_the_constant_and_that_records_count_alike(rates, price):
    words = "the score is worse than that of the best constant"
    seen = "open.csv" if "--public" in price else "same.csv"
    Path("open.csv").write_text(Path("same.csv").read_text("utf-8"), "utf-8")
    for rows, worse in ((seen, False), ("other.csv", True)):
        found = typed_json("evaluate", rates, rows, "--metric", "mse", *price)
        assert found["worse than constant"] is worse
        alike = "records count alike in scores: only fits are weighted by 'years'"
        rate = "what is scored is the rate, the target per unit of 'years'"
        assert found["notes"][0] == f"{alike}; {rate}"
        fitted = "scored on same.csv, by its name the file that it was fitted to: no test"
        assert [note.startswith(fitted) for note in found["notes"][1:]] == [True] * (rows == "same.csv")
        assert found["data"].partition(",")[0] == rows
        assert found["privacy"] is None or found["notes"][0] in found["privacy"]["public"]
        text = typed("evaluate", rates, rows, "--metric", "neg_mean_squared_error", *price)
        assert (words in text) is worse
        assert "Note: records count alike in scores" in text


def test_a_score_that_is_that_of_the_constant_says_so_on_all_three(folder):
    X = table()[0]
    write_csv(folder / "chance.csv", X, np.where(public_generator(3).random(len(X)) < 0.6, "yes", "no"))
    typed("fit", "chance.csv", *FIT, "--classes", "no,yes", "--output", "c.sordino")
    words = ("evaluate", "c.sordino", "chance.csv", "--target", "y", "--epsilon", 5, "--output", "c.json")
    said = "the score cannot be told from that of the best constant"
    assert f"Note: {said}." in typed(*words)
    found = typed_json(*words, "--force")
    assert (said in found["notes"], found["worse than constant"]) == (True, None)
    typed("report", "c.sordino", "--scores", "c.json", "--output", "c.html", code=1)
    page = (folder / "c.html").read_text("utf-8")
    assert said in page
    assert "number of records: 800</small>" in page


def test_a_score_by_a_flag_is_booked_with_its_metric_and_column(rates, folder):
    typed("ledger", "create", "b.db", "rates", "--epsilon", 99, "--delta", 1e-3)
    booked = ("--ledger", "b.db", "--dataset", "rates")
    words = ("evaluate", rates, "same.csv", "--metric", "mae", "--epsilon", 20, *booked)
    found = typed_json(*words, "--by", "ill")
    assert [line["group"] for line in found["groups"]] == ["ill=yes", "ill=no"]
    assert "only fits are weighted by 'years'" in found["privacy"]["public"][-1]
    assert "private_score (mae by ill)" in typed("ledger", "history", "b.db", "rates")
    few = {"x": [0.0] * 4, "ill": ["yes", "no", "", "perhaps"], "ward": ["A"] * 4}
    assert _subgroups(sordino.load(rates), few, [1.0] * 4, "ill")[0]["ill"].tolist() == ["yes", "no", "", ""]
    for column in ("x", "falls", "nobody"):
        assert "declares levels" in typed(*words, "--by", column, code=3)


def test_a_level_with_a_break_stays_on_its_line(rates):
    lines = [line for line in typed("inspect", rates).splitlines() if "column 'ward'" in line]
    assert lines == ["  column 'ward': category, 2 levels: A, B\\nC (source not stated)"]


def test_probabilities_of_levels_stand_in_their_order(folder):
    levels = ["mild", "severe", "critical"]
    rows = [f"{k / 2 - 0.5},{levels[k]}" for k in range(3) for _ in range(100)]
    (folder / "o.csv").write_text("\n".join(["x,how", *rows, ""]), "utf-8")
    number = '[columns.x]\nkind = "number"\nlow = -1\nhigh = 1\n'
    target = f'[columns.how]\nkind = "target"\nlevels = {levels}\nordered = true\n'
    (folder / "o.toml").write_text(f"format = 1\n{number}{target}", "utf-8")
    typed("fit", "o.csv", "--schema", "o.toml", "--epsilon", 20, "--output", "o.sordino")
    head, first, *_ = typed("predict", "o.sordino", "o.csv", "--proba").splitlines()
    assert head == "prediction,probability of mild,probability of severe,probability of critical"
    shares = dict(
        zip(["critical", "mild", "severe"], sordino.load("o.sordino").predict_proba({"x": [-0.5]})[0])
    )
    assert [float(share) for share in first.split(",")[1:]] == pytest.approx([shares[k] for k in levels])


def test_what_has_no_rows_per_person_names_the_remedy():
    with pytest.raises(InvalidInputError, match=r"Declare whose a row is \(kind = \"person\" in a schema\)"):
        check_parameters(sordino.PrivateSearchCV, {"rows_per_person": 5})
    with pytest.raises(InvalidInputError, match=r"'nothing'\. It has: "):
        check_parameters(sordino.PrivateSearchCV, {"nothing": 5})


def test_intervals_are_paid_for_printed_and_shown_on_a_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    public = np.random.default_rng(0)
    age, town = public.uniform(0, 100, 4000).round(1), public.choice(list("ab"), 4000)
    ill = public.random(4000) < 1 / (1 + np.exp(1 - age / 50 - (town == "b")))
    people = pd.DataFrame({"age": age, "town": town, "ill": np.where(ill, "yes", "no")})
    people.to_csv("t.csv", index=False)
    columns = [Number("age", 0, 100), Category("town", ["a", "b"]), Target("ill", "category", ["no", "yes"])]
    sordino.Schema(columns).write("s.toml")
    fit = ("--schema", "s.toml", "--set", "pairs=false", "--set", "knots=1", "--output", "m.sordino")
    typed("fit", "t.csv", "--epsilon", 1, *fit)
    found = typed_json("intervals", "m.sordino", "t.csv", "--epsilon", 4, "--report", "p.html")
    line = next(line for line in found["intervals"] if line["name"] == "town = b")
    assert line["low"] < 0.5 < line["high"] < 1.0  # half of the log odds between the towns
    assert math.isclose(line["ratio"][2], math.exp(line["high"]))
    assert found["privacy"]["epsilon"] <= 4
    page = Path("p.html").read_text()
    assert "<td>town</td>" in page
    for said in ("m.sordino, digest ", "column &#39;age&#39;: number in [0, 100]", "--confidence 0.95"):
        assert said in page
    assert f"--delta {found['privacy']['delta']}" in page
    assert "sordino intervals m.sordino t.csv" in page
    assert "ratio" in page
    assert "ratio" in typed("intervals", "m.sordino", "t.csv", "--epsilon", 4)


def test_a_score_outside_of_its_own_interval_is_refused_and_a_booked_price_is_confirmed(
    model, booked, folder
):
    typed("evaluate", model, "people.csv", "--target", "y", "--epsilon", 1, *booked, "--output", "s.json")
    typed("report", model, "--scores", "s.json", *booked, "--output", "p.html")
    assert "private, confirmed by ledger budget.db, reservation " in (folder / "p.html").read_text("utf-8")
    found = json.loads((folder / "s.json").read_text("utf-8"))
    found["value"] = found["interval"][1] + 0.01
    (folder / "s.json").write_text(json.dumps(found), "utf-8")
    refused = typed("report", model, "--scores", "s.json", *booked, "--output", "q.html", code=3)
    assert "outside of its own interval" in refused


def test_utf_16_is_named_where_a_header_has_zero_bytes(folder):
    (folder / "wide.csv").write_text("a,y\n1,2\n", "utf-16")
    for more in ((), ("--encoding", "latin-1")):
        assert "--encoding utf-16" in typed("schema", "draft", "wide.csv", *more, code=3)


NOTED = """format = 1
[columns.x]
kind = "number"
low = -1
high = 1
"""


def test_a_check_names_a_missing_target_and_an_order_that_persons_do_not_have(folder):
    (folder / "s.toml").write_text(NOTED, "utf-8")
    assert 'no column has kind = "target"' in typed("schema", "check", "s.toml")
    (folder / "d.csv").write_text("x,y\n0,1\n", "utf-8")
    refused = typed("schema", "check", "s.toml", "d.csv", code=3)
    assert 'Target (kind = "target")' in refused
    assert "Next: sordino schema check s.toml d.csv" in refused
    fit = ("fit", "d.csv", "--schema", "s.toml", "--epsilon", 1, "--output", "m.sordino")
    assert "The schema declares no target" in typed(*fit, code=3)
    person = '[columns.who]\nkind = "person"\n'
    ordered = '[columns.how]\nkind = "target"\nlevels = ["low", "mid", "high"]\nordered = true\n'
    (folder / "s.toml").write_text(NOTED + person + ordered, "utf-8")
    (folder / "d.csv").write_text("0;p0;low\n1;p1;mid\n", "utf-8")
    told = typed("schema", "check", "s.toml", "d.csv", "--delimiter", ";", "--no-header")
    assert "Fit with --model logistic" in told
    apart = "--delimiter ';' --no-header --train d-train.csv --test d-test.csv"
    assert f"Next: sordino split d.csv --schema s.toml {apart}" in told
    rows = "".join(f"p{i},{i % 3 - 1},{('low', 'mid', 'high')[i % 3]}\n" for i in range(90))
    (folder / "p.csv").write_text(f"who,x,how\n{rows}", "utf-8")
    said = typed("fit", "p.csv", "--schema", "s.toml", "--epsilon", 4, "--output", "p.sordino")
    assert "Fit with --model logistic" in said
    assert type(sordino.load("p.sordino")).__name__ == "LogisticRegression"
    following = "Then: sordino fit d-train.csv --schema s.toml --model logistic --epsilon 1 --delimiter ';'"
    assert following in told


def test_what_comes_next_names_a_command_that_runs(folder):
    """A split without a schema said `fit` without one, a check without a target a fit that is refused."""
    (folder / "s.toml").write_text(NOTED, "utf-8")
    (folder / "d.csv").write_text("x\n" + "0\n1\n" * 50, "utf-8")
    parts = ("--header", "--train", "a.csv", "--test", "b.csv", "--force")
    for schema, following in (
        ((), "Next: sordino schema draft a.csv --target COLUMN --output SCHEMA"),
        (
            ("--schema", "s.toml"),
            "Next: sordino pca a.csv --schema s.toml --epsilon 1 --header --output MODEL",
        ),
    ):
        assert following in typed("split", "d.csv", *schema, *parts)
    assert "Next: sordino pca DATA --schema s.toml" in typed("schema", "check", "s.toml")
