"""What a board signs: purpose, names, scores beside the best constant, and scores of this very model."""

import json
import re
import warnings
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import sordino
from sordino.cli.program import main
from sordino.errors import FitWarning, InvalidInputError
from sordino.estimators.metrics import METRICS, judge
from sordino.kernel import public_generator
from sordino.report import report_html
from sordino.report.plots import target_words
from sordino.report.run_page import _curve, _curves, _effect_rows, scores_of
from sordino.runs import PrivacyReport, composed
from sordino.runs.report import guess, percent
from sordino.saving.files import model_digest
from sordino.tables import Category, Number, Target, learn_schema
from sordino.tables.shapes import Shape
from sordino.testing import seeded_noise_not_private
from sordino.values import plain_number

SCHEMA = sordino.Schema(
    [Number("age", 0, 100), Category("sex", ["f", "m"]), Target("ill", levels=["no", "yes"])]
)


def people(n=6000, seed=3):
    public = public_generator(seed)
    age = public.uniform(0, 100, n)
    ill = np.where(age + 10 * public.normal(size=n) > 75, "yes", "no")
    return pd.DataFrame({"age": age, "sex": np.array(["f", "m"])[public.integers(0, 2, n)], "ill": ill})


@pytest.fixture(scope="module")
def model():
    return sordino.LogisticRegression(epsilon=2.0, delta=1e-6, schema=SCHEMA).fit(people())


def test_those_who_answer_for_it_stand_on_the_page(model):
    page = report_html(model, purpose="plan <beds>", controller="Ministry", approver="Dr. Who", author="Ada")
    for words in ("plan &lt;beds&gt;", "Ministry", "Dr. Who", "Ada", "signature", "Data controller"):
        assert words in page
    assert page.index('class="summary"') < page.index("Dr. Who") < page.index("<h2>The run</h2>")
    assert "not stated" in report_html(model)


def test_each_column_has_its_curve(model, tmp_path):
    page = report_html(model)
    assert "One column at a time" in page
    assert 'aria-label="age: from' in page
    assert "What matters" in page
    model.save(tmp_path / "m.sordino")
    told = CliRunner().invoke(main, ["inspect", str(tmp_path / "m.sordino")])
    assert "Effects on the log odds of ill = yes." in told.output
    assert "Predicts <b>ill = yes</b>" in page[: page.index("<h2>")]
    assert "adds to the log odds of ill = yes," in page
    sexes = page.split("<b>sex</b>")[1].split("</div>")[0]
    assert "<span>f, m, (other), (missing)</span>" in sexes
    assert sexes.count('<circle class="rest"') == 2
    assert "age" in told.output
    rows = {
        line.split()[0]: line for line in told.output.splitlines() if line.startswith(("  age ", "  sex "))
    }
    assert "could be noise" not in rows["age"]
    assert "could be noise" in rows["sex"]
    bars = page[page.index("What matters") : page.index("One column at a time")]
    assert bars.count('class="band"') == len(model.shapes_)
    assert 'class="fill"' in bars.split('title="age"')[1].split("<span")[1]
    assert 'class="fill faint"' in bars.split('title="sex"')[1].split("<span")[1]


def test_what_is_predicted_and_its_numbers_are_said_in_words():
    ordered = SimpleNamespace(classes_=np.array(["a", "b", "c"]), coef_=np.zeros((1, 2)))
    several = SimpleNamespace(classes_=np.array(["a", "b", "c"]), coef_=np.zeros((3, 2)))
    assert [target_words(ordered), target_words(several)] == [
        "the level of the class",
        "the class, one of 3",
    ]
    assert [target_words(several, True), target_words(SimpleNamespace())] == ["the class = c", ""]
    said = [plain_number(v, 3, "+") for v in (1843.2, -4271.0, 0.04851, 0.0, 3e7)]
    assert said == ["+1,840", "-4,270", "+0.0485", "+0", "+30,000,000"]


def test_pairs_are_maps_on_one_scale_and_counts_are_logarithms():
    public, schema = public_generator(8), [Number("a", 0, 1), Number("b", 0, 1)]
    table = pd.DataFrame(public.uniform(size=(20_000, 2)), columns=["a", "b"])
    table["y"] = public.poisson(np.exp(2 * (2 * table["a"] - 1) * (2 * table["b"] - 1)))
    schema = sordino.Schema([*schema, Target("y", "number", low=0, high=30, unit="visits")])
    page = report_html(sordino.LinearRegression(4.0, schema=schema, loss="poisson", pairs=True).fit(table))
    assert "moves the logarithm of the prediction of y (visits)" in page
    assert "LinearRegression, loss poisson" in page
    cells = page.split("<b>a x b</b>")[1].split("</div>")[0]
    assert cells.count("<rect") == cells.count('class="up"') + cells.count('class="down"') > 20
    assert 'opacity="1.0"' in cells
    assert "→ a 0 to 1, ↑ b 0 to 1" in cells


def test_pages_of_intervals_show_them_and_their_notes(model):
    table = people()
    found = sordino.intervals(model, table, epsilon=2.0, delta=1e-6)
    page = report_html(found)
    both = composed([("intervals", found.privacy), ("model", model.privacy_)])
    assert both.trade_off.advantage > found.privacy.trade_off.advantage
    assert f"at worst {percent(guess(both.trade_off))} after seeing" in page
    assert "This counts the fit of the model, which this page shows too" in page
    assert "inspect --json" not in page
    assert "nobody: how models of this kind predict" in page
    assert "sampling and noise together" in page
    assert 'aria-label="age: from' in page
    amounts = sordino.Schema([Number("age", 0, 100), Target("days", "number", low=0, high=10)])
    stays = pd.DataFrame({"age": table["age"], "days": table["age"] / 20 + table["age"] % 1})
    fitted = sordino.LinearRegression(2.0, schema=amounts).fit(stays[::2])
    found = sordino.prediction_intervals(fitted, stays[1::2])
    assert f"<dt>radius, in units of the target</dt><dd>{found.radius:.4g}</dd>" in report_html(found)
    assert "the value of the asked rank" in report_html(found)
    assert "model.fit(X, y)" not in report_html(found)
    with pytest.warns(FitWarning, match="declared bounds"):
        few = sordino.prediction_intervals(fitted, stays[:40])
    page = report_html(few)
    assert "do not tell how far a share of 0.95 of the targets may be off" in page
    assert "not known: ends are declared bounds" in page


def test_two_scores_of_one_metric_keep_its_words(model):
    score = sordino.private_score(model, people(seed=5), epsilon=0.5, delta=1e-6)
    one, two = scores_of({"accuracy": score, "accuracy (b.json)": score})
    assert one["words"] == two["words"] != ""
    assert one["baseline"] == two["baseline"]


def test_what_could_be_noise_is_pale_and_one_wide_bar_leaves_its_box():
    """All pairs of a model were vivid though each could be noise; a bar of +-117,000 flattened its box."""
    noise, facts = np.array([0.5, 0.5, 0.5, 58_650.0]), (np.array([1.0, -1.0, 0.5, 0.0]), 0.1)
    wide = Shape(("ward",), (("a", "b", "c", "d"),), facts[0], noise, facts[1], 1.0)
    assert [_curve(wide)[name] for name in ("faint", "bottom", "top")] == [True, "-3", "+3"]
    assert "0 ± 117,000" in _effect_rows(SimpleNamespace(shapes_=[wide]))[0]["text"]
    pair = np.array([[1.0, -1.0], [-1.0, 1.0]])
    for alone, share in ((1.0, 0.25), (0.01, 1.0), (None, 1.0)):
        shape = Shape(("a", "b"), ((0.0, 5e6), (0.0, 1.0)), pair, None, 0.1, alone)
        (found,) = _curves(SimpleNamespace(shapes_=[shape]))
        assert max(abs(cell[-1]) for cell in found["cells"]) == share
        assert found["first"] == "→ a 0 to 5,000,000, ↑ b 0 to 1"


def test_inspect_calls_a_coefficient_noise_whose_column_could_be_noise(model, tmp_path):
    """It called single cells of a pair real, and the pair itself noise, one below the other."""
    model.save(tmp_path / "m.sordino")
    told = json.loads(CliRunner().invoke(main, ["inspect", str(tmp_path / "m.sordino"), "--json"]).output)
    faint = {shape.name for shape in model.shapes_ if shape.could_be_noise}
    assert "sex" in faint
    origins = dict(zip(model.coef_names_, model.encoder_.origins, strict=True))
    for row in told["coefficients"]:
        alone = abs(row["value"]) <= row["two sigma"]
        assert row["could be noise"] is (alone or origins[row["name"]].column in faint)


def test_names_of_levels_that_are_cut_say_so():
    names = ("a", "b", "c", "d", "twelve signs", "thirteen sign", "g")
    shape = SimpleNamespace(name="ward", at=[names], effect=np.arange(7.0), noise=None, could_be_noise=False)
    assert _curve(shape)["first"] == "a, b, c, d, twelve signs, thirteen sign, g"
    names = (*(f"level {i}" for i in range(29)), "x" * 20, "x" * 21, "(missing)")
    shape = SimpleNamespace(name="ward", at=[names], effect=np.arange(32.0), noise=None, could_be_noise=False)
    last = f"level 14, ..., level 28, {'x' * 20}, {'x' * 19}..., (missing)"
    assert _curve(shape)["first"].endswith(last)


@pytest.mark.parametrize(
    ("metric", "truth"),
    [
        ("accuracy", lambda y: max((y == "no").mean(), (y == "yes").mean())),
        ("log_loss", lambda y: -sum(p * np.log(p) for p in ((y == "no").mean(), (y == "yes").mean()))),
        ("auc", lambda y: 0.5),
        ("balanced_accuracy", lambda y: 0.5),
    ],
)
def test_the_best_constant_stands_beside_a_score(model, metric, truth):
    test = people(20000, 4)
    score = sordino.private_score(model, test, metric=metric, epsilon=2.0, delta=1e-6)
    constant, noise = score.baseline
    assert abs(constant - truth(test["ill"])) <= 6 * noise < 0.05
    assert f"{constant:.3g}"[:4] in report_html(model, scores={metric: score})


@pytest.mark.parametrize(
    ("metric", "truth", "rounding"),
    [
        ("mse", lambda y: y.var(), 0.0),
        ("mae", lambda y: (y - y.median()).abs().mean(), 0.5),
        ("deviance", lambda y: 2 * ((y * np.log(y)).mean() - y.mean() * np.log(y.mean())), 0.0),
    ],
)
def test_the_best_constant_of_numbers_is_the_mean_or_the_median(metric, truth, rounding):
    rows = people(20000, 5).assign(pay=lambda t: t["age"] / 2)
    schema = sordino.Schema([*SCHEMA.columns[:2], Target("pay", "number", low=0, high=60)])
    found = sordino.LinearRegression(epsilon=2.0, delta=1e-6, schema=schema).fit(rows.drop(columns="ill"))
    score = sordino.private_score(found, rows.drop(columns="ill"), metric=metric, epsilon=2.0, delta=1e-6)
    constant, noise = score.baseline
    assert abs(constant - truth(rows["pay"])) <= 6 * noise + rounding < 30
    judged = judge(found, rows.drop(columns=["ill", "pay"]), rows["pay"], "values")
    spread = np.var if metric == "mse" else truth
    assert METRICS[metric].exact_constant(judged) == pytest.approx(spread(rows["pay"]), rel=1e-9)
    assert sordino.private_score(found, rows.drop(columns="ill"), epsilon=1.0).baseline == (0.0, 0.0)
    page = report_html(found, scores={metric: score})
    assert "losses of records are clipped to it" in page
    assert ("those of the best constant are not" in page) == (metric != "mae")


def test_subgroups_have_scores_for_one_price(model):
    test = people(20000, 6)
    table = sordino.private_scores_by(model, test, by="sex", epsilon=1.0, delta=1e-6)
    assert [row[0] for row in table.rows] == ["f", "m"]
    right = model.predict(test) == test["ill"]
    for sex in ("f", "m"):
        low, high = table.interval(sex)
        assert low - 0.02 < right[test["sex"] == sex].mean() < high + 0.02
        assert high - low < 0.1
    assert 0.99 < table.privacy.epsilon <= 1.0
    assert "accuracy, sex=f" in report_html(model, scores={"accuracy": table})
    with pytest.raises(InvalidInputError, match="declares levels"):
        sordino.private_scores_by(model, test, by="age")
    with pytest.raises(sordino.errors.UnsupportedError, match="no mean over records"):
        sordino.private_scores_by(model, test, by="sex", metric="auc")


def test_a_score_of_another_model_is_refused(model, tmp_path):
    other = sordino.LogisticRegression(epsilon=2.0, delta=1e-6, schema=SCHEMA).fit(people(seed=9))
    score = sordino.private_score(other, people(500), epsilon=1.0)
    assert score.model == model_digest(other) != model_digest(model)
    with pytest.raises(InvalidInputError, match="another model"):
        report_html(model, scores={"accuracy": score})
    model.save(tmp_path / "a.sordino")
    again = sordino.load(tmp_path / "a.sordino")
    assert model_digest(again) == model_digest(model)
    assert model_digest(model)[:16] in report_html(again)


def test_a_fit_on_a_learned_file_is_private_where_the_ledger_has_the_receipt(tmp_path):
    blank = sordino.Schema([Number("age"), *SCHEMA.columns[1:]])
    ledger = sordino.Ledger.open(tmp_path / "l.db")
    ledger.create("ward", sordino.BudgetPolicy(epsilon=9.0, delta=1e-4))
    ledger.create("other", sordino.BudgetPolicy(epsilon=9.0, delta=1e-4))
    booked = {"ledger": ledger, "dataset_id": "ward"}
    learn_schema(blank, people(), 1.0, 1e-6, **booked).schema.write(tmp_path / "s.toml")

    def status(path, **place):
        return sordino.LogisticRegression(1.0, 1e-6, schema=path, **place).fit(people()).privacy_.status

    assert status(tmp_path / "s.toml", **booked) == "private"
    assert status(tmp_path / "s.toml") == "unverified copy"
    assert status(tmp_path / "s.toml", ledger=ledger, dataset_id="other") == "unverified copy"
    text = (tmp_path / "s.toml").read_text()
    paid = next(line for line in text.splitlines() if line.startswith("epsilon"))
    (tmp_path / "forged.toml").write_text(text.replace(paid, "epsilon = 0.25"))
    assert status(tmp_path / "forged.toml", **booked) == "unverified copy"


@pytest.mark.parametrize("why", ["settled", "failed", "seeded"])
def test_a_copy_is_confirmed_by_a_run_that_settled_with_fresh_noise_and_by_no_other(tmp_path, why):
    ledger = sordino.Ledger.open(tmp_path / "l.db")
    ledger.create("ward", sordino.BudgetPolicy(epsilon=9.0, delta=1e-4))
    fit = partial(sordino.LogisticRegression, 2.0, 1e-6, schema=SCHEMA, ledger=ledger, dataset_id="ward")

    def stop(*_):
        raise KeyboardInterrupt

    if why == "failed":
        with pytest.raises(KeyboardInterrupt), sordino.progress(callback=stop):
            fit().fit(people())
        model = sordino.LogisticRegression(2.0, 1e-6, schema=SCHEMA).fit(people())
    else:
        with seeded_noise_not_private(1) if why == "seeded" else nullcontext():
            model = fit().fit(people())
    said = model.privacy_.to_dict() | {"seeded": False}  # as a file says that somebody edited
    page = report_html(PrivacyReport.from_dict(said), ledger=ledger, dataset_id="ward")
    assert ("private, confirmed by ledger l.db, reservation 1" in page) == (why == "settled")
    assert (">unverified copy<" in page) == (why != "settled")
    assert ("the ledger does not say that reservation 1 ended as planned, with fresh noise" in page) == (
        why != "settled"
    )


def test_a_copy_with_a_learned_schema_is_confirmed_by_the_receipts_of_that_schema(tmp_path):
    ledger = sordino.Ledger.open(tmp_path / "l.db")
    ledger.create("ward", sordino.BudgetPolicy(epsilon=9.0, delta=1e-4))
    booked = {"ledger": ledger, "dataset_id": "ward"}
    blank = sordino.Schema([Number("age"), *SCHEMA.columns[1:]])
    learned = learn_schema(blank, people(), 1.0, 1e-6, **booked).schema
    sordino.LogisticRegression(1.0, 1e-6, schema=learned, **booked).fit(people()).save(tmp_path / "m")
    page = report_html(sordino.load(tmp_path / "m"), **booked)
    assert "private, confirmed by ledger l.db, reservation 3" in page
    assert "the receipts of the schema are there too" in page


def test_signatures_come_last_and_notes_before_them():
    model = sordino.LogisticRegression(1.0, 1e-6, schema=SCHEMA).fit(people())
    model.privacy_ = replace(model.privacy_, notes=("mind the gap",))
    page = report_html(model, approver="the board")
    places = [
        page.index(words) for words in ("mind the gap", "<h2>The run</h2>", "<h2>Not to be signed</h2>")
    ]
    assert places == sorted(places)
    assert page.index("Privacy events") < places[-1]
    assert not re.search(r"<h2>|<h3>", page[places[-1] + 10 :])


def test_every_column_and_pair_stands_on_the_page_in_numbers():
    rng = np.random.default_rng(0)
    names = [f"column {i}" for i in range(8)]
    table = pd.DataFrame({name: rng.uniform(0, 1, 500) for name in names}).assign(y=rng.uniform(0, 1, 500))
    columns = [*(Number(name, 0, 1) for name in names), Target("y", "number", low=0, high=1)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        model = sordino.LinearRegression(1.0, schema=sordino.Schema(columns), pairs=True).fit(table)
    rows = re.search(r'<section class="fold">.*?</section>', report_html(model), re.S)[0]
    assert [shape.name for shape in model.shapes_] == re.findall(r"<tr><td>(.*?)</td>", rows)
    assert len(model.shapes_) == 36
    for shape in (shape for shape in model.shapes_ if len(shape.columns) == 1):
        for at, effect, noise in zip(shape.at[0], shape.effect, shape.noise, strict=True):
            assert f"{at:g}".replace("nan", "(missing)") in rows if isinstance(at, float) else at in rows
            assert f"{plain_number(float(effect), 3, '+')} ± {2 * noise:.3g}" in rows


def test_the_page_says_how_many_records_were_used_and_not_how_many_have_no_target():
    amounts = sordino.Schema(
        [*SCHEMA.columns[:2], Target("pay", "number", low=0, high=60, missing="leave out")]
    )
    table = people().drop(columns="ill").assign(pay=lambda t: (t["age"] / 2).where(t.index % 4 > 0))
    model = sordino.LinearRegression(2.0, 1e-6, schema=amounts).fit(table)
    fact = f"number of records: {3 * len(table) // 4}"
    assert fact in model.privacy_.public
    assert any("records without it are left out" in line for line in model.privacy_.public)
    page, counted = report_html(model), "counted in the data, and taken for public"
    assert f'<tr><td>{fact}</td><td data-name="who says so">{counted}</td></tr>' in page
    for line in (*model.privacy_.public, *model.privacy_.notes):
        assert str(len(table)) not in line
        assert f"{len(table) // 4} " not in line
    score = sordino.private_score(model, table, epsilon=1.0)
    assert "records without a target are left out, here too" in report_html(model, scores={"r2": score})
    # The number of records is declared public; how many more lie in the file is nobody's declaration.
    whole = sordino.LinearRegression(2.0, 1e-6, schema=amounts).fit(table.dropna())
    assert whole.privacy_.public == model.privacy_.public


def test_the_commands_carry_names_and_scores_to_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    people(3000).to_csv("p.csv")
    SCHEMA.write("p.toml")

    def typed(*words):
        found = CliRunner().invoke(main, [str(word) for word in words])
        assert found.exit_code == ("Do not sign" in found.output), found.output
        return found.output

    typed("fit", "p.csv", "--schema", "p.toml", "--epsilon", 2, "--output", "m.sordino", "--purpose", "beds")
    told = typed("evaluate", "m.sordino", "p.csv", "--epsilon", 1, "--output", "a.json")
    assert "best constant" in told
    typed("evaluate", "m.sordino", "p.csv", "--epsilon", 1, "--by", "sex", "--output", "b.json")
    scores = ("--scores", "a.json", "--scores", "b.json")
    typed("report", "m.sordino", *scores, "--approver", "Dr. Who", "--output", "m.html")
    page = (tmp_path / "m.html").read_text()
    for words in ("beds", "Dr. Who", "sex=f", ", 95 % interval ", "best constant"):
        assert words in page
    assert "whoever wrote this page calls it" not in page
    assert page.count("right or wrong") >= 3  # of the score, and of both groups


def visits(n=3000):
    """Return a table of visits over one or two years, and its columns."""
    public = public_generator(11)
    table = pd.DataFrame({"age": public.uniform(0, 100, n), "years": public.choice([1.0, 2.0], n)})
    table["visits"] = public.poisson(3.0 * table["years"]).clip(0, 20).astype(float)
    return table, [Number("age", 0, 100), Target("visits", low=0, high=20, unit="visits")]


def test_a_rate_is_called_one_wherever_it_is_predicted_and_scored(tmp_path):
    """ "Predicts ofp (visits)" stood over visits a year, and over an R2 of the rate."""
    table, columns = visits()
    schema = sordino.Schema([*columns, sordino.tables.Exposure("years", high=2.0)])
    model = sordino.LinearRegression(1.0, 1e-6, schema=schema, loss="poisson").fit(table)
    score = sordino.private_score(model, table, epsilon=1.0, metric="r2")
    page = report_html(model, scores={"r2": score})
    assert "Predicts <b>visits (visits) per unit of &#39;years&#39;</b>" in page
    assert "the logarithm of the prediction of visits (visits) per unit of" in page
    assert "what is scored is the rate, the target per unit of" in page
    model.save(tmp_path / "m.sordino")
    table.to_csv(tmp_path / "new.csv", index=False)
    said = CliRunner().invoke(main, ["predict", str(tmp_path / "m.sordino"), str(tmp_path / "new.csv")])
    assert "Note: predictions of visits (visits) per unit of 'years'." in said.stderr
    assert said.stdout.count("\n") == 3001


def test_a_quantile_says_which_and_what_its_scores_judge():
    """Half of the page's readers took the .9 quantile for the mean: it was named in the settings alone."""
    table, columns = visits()
    schema = sordino.Schema([*columns, sordino.tables.Ignored("years")])
    model = sordino.LinearRegression(1.0, 1e-6, schema=schema, loss="quantile", quantile=0.9).fit(table)
    page = report_html(model, scores={"r2": sordino.private_score(model, table, epsilon=1.0, metric="r2")})
    assert "Predicts <b>the 0.9 quantile of visits (visits)</b>" in page
    assert "loss quantile 0.9" in page
    assert "the model predicts the 0.9 quantile: r2 and mse judge it as a mean" in page
    assert "R2, mse and mae do not judge this quantile" in page
    plain = sordino.LinearRegression(1.0, 1e-6, schema=schema).fit(table)
    page = report_html(plain, scores={"r2": sordino.private_score(plain, table, epsilon=1.0, metric="r2")})
    assert "quantile:" not in page


def test_a_page_without_any_known_noise_promises_no_bands():
    """Each effect of a quantile of persons had "noise not known", and the page explained its grey band."""
    table, columns = visits()
    schema = sordino.Schema([*columns, sordino.tables.Ignored("years")])
    model = sordino.LinearRegression(1.0, 1e-6, schema=schema).fit(table)
    promised = ("give or take twice the standard", "The grey band", "the band is")
    assert all(words in report_html(model) for words in promised)
    model.shapes_ = [replace(shape, noise=None, noise_alone=None) for shape in model.shapes_]
    page = report_html(model)
    assert "(noise not known)" in page
    assert "with noise of which nobody knows how much it is; of a pair" in page
    assert not any(words in page for words in promised)


def test_a_page_of_intervals_shows_those_that_were_paid_for():
    """At 80 % two standard errors stood beside each effect: 1.56 times the interval."""
    table, columns = visits()
    schema = sordino.Schema([*columns, sordino.tables.Ignored("years")])
    model = sordino.LinearRegression(2.0, 1e-6, schema=schema, knots=1, pairs=False).fit(table)
    found = sordino.intervals(model, table, epsilon=2.0, confidence=0.8)
    line = next(line for line in found.records() if line["name"] == "age = 100")
    page = report_html(found)
    half = plain_number(line["high"] - line["value"], 3)
    assert f"100: {plain_number(line['value'], 3, '+')} ± {half}" in page
    assert "give or take half of its 80 % interval" in page
    assert ": reference;" in page
    assert "+0 ± 0" not in page
    assert "the band is its 80 % interval" in page
    assert "The importance is that of the fitted model" in page
