"""The page of a run says everything a board asks for, and shows nothing of the records."""

import hashlib
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sordino
from sordino.accounting.conversions import gaussian_mu
from sordino.errors import InvalidInputError
from sordino.kernel import public_generator
from sordino.report import report_html, write_report
from sordino.report.run_page import WORDS, compare_attacks
from sordino.runs import Price
from sordino.runs import report as meaning
from sordino.runs.report import Status, at_most

SENTINEL = 7.318274659


def rows(n=1500, d=6):
    public = public_generator(0)
    X = public.normal(size=(n, d)) / 4
    return X, np.where(X[:, 0] > X[:, 1], "ill", "well")


@pytest.fixture(scope="module")
def booked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    X, y = rows()
    ledger = sordino.Ledger.open(folder / "ledger.db")
    ledger.create("ward 7", sordino.BudgetPolicy(epsilon=4.0, delta=1e-5))
    place = {"ledger": ledger, "dataset_id": "ward 7", "delta": 1e-6}
    sordino.mean(X, epsilon=0.5, **place)
    model = sordino.LogisticRegression(1.0, data_norm=1.0, classes=["ill", "well"], **place).fit(X, y)
    sordino.mean(X, epsilon=0.5, **place)
    return model


def test_the_page_answers_what_a_board_asks(booked):
    page = report_html(booked, author="Ada <b>", scores={"accuracy": 0.9})
    for words in ("ward 7", "Ada &lt;b&gt;", sordino.__version__, "54.8 %", "gradient", "data_norm = 1"):
        assert words in page
    assert "reservation 2" in page
    assert "class labels: declared" in page
    digest = re.search(r"SHA-256 ([0-9a-f]{64})", page)[1]
    settings = re.search(r"<pre>(\{.*?\})</pre>", page, re.DOTALL)[1].replace("&#34;", '"')
    assert hashlib.sha256(settings.encode()).hexdigest() == digest
    assert json.loads(settings)["epsilon"] == 1


def test_the_budget_before_and_after_is_replayed_from_the_ledger(booked):
    from sordino.report.page import Books

    books = Books(booked.ledger, "ward 7")
    _, found = books.find(booked.privacy_)
    ((before, after),) = found.parts
    assert 0 < before.fraction < after.fraction < found.history.now.fraction
    assert found.history.now.fraction == pytest.approx(booked.ledger.spent("ward 7").fraction)
    assert before.epsilon_left > after.epsilon_left
    other = sordino.mean(rows()[0], epsilon=0.3, delta=1e-6).privacy
    assert "no reservation" in books.find(other)[1].words
    assert "was not told of a ledger" in Books(None, None).find(other)[1].words
    assert "could not be read" in Books(booked.ledger, "elsewhere").find(other)[1].words


def test_the_bet_on_everything_booked_is_that_of_all_noise_together(tmp_path):
    """Three Gaussian releases are one of mu = sqrt(sum of mu^2); a sum of epsilons is a looser bound."""
    ledger, X = sordino.Ledger.open(tmp_path / "l.db"), rows()[0]
    ledger.create("ward", sordino.BudgetPolicy(epsilon=2.0, delta=1e-5))
    place = {"ledger": ledger, "dataset_id": "ward", "delta": 1e-6}
    first = sordino.mean(X, epsilon=1.0, **place)
    assert "the limit of the ledger" not in report_html(first, ledger=ledger, dataset_id="ward")
    for _ in range(2):
        last = sordino.mean(X, epsilon=0.5, **place)
    shares = [gaussian_mu(epsilon, 1e-6) ** 2 for epsilon in (1.0, 0.5, 0.5)]
    won = stats.norm.cdf(math.sqrt(sum(shares)) / 2)
    page = report_html(last, ledger=ledger, dataset_id="ward")
    said = float(re.search(r"wins at most ([\d.]+) % of the bets", page)[1])
    assert 100 * won - 0.05 <= said <= 100 * won + 0.1
    limit = math.exp(2) / (1 + math.exp(2)) * (1 - 1e-5) + 1e-5  # of randomised response
    assert (
        f"for this and all that it will ever admit under this name: at most {meaning.percent(limit)}." in page
    )


def test_a_result_that_was_booked_is_not_called_unbooked(booked):
    place = {"ledger": booked.ledger, "dataset_id": "ward 7"}
    found = sordino.count(rows()[0][:, 0] > 0, epsilon=0.1, delta=1e-6, **place)
    told = report_html(found)
    assert "not booked" not in told
    assert "was not told of a ledger" in told
    assert "Booked</dt>" not in told
    assert "was not told of a ledger" not in report_html(found, **place)
    assert f"reservation {len(booked.ledger.history('ward 7'))} " in report_html(found, **place)


def test_intervals_have_a_page(booked):
    X = np.random.default_rng(0).uniform(-0.5, 0.5, (500, 2))
    model = sordino.LinearRegression(2.0, data_norm=1.0, target_bound=1.0).fit(X, X[:, 0])
    found = sordino.intervals(model, X, X[:, 0], epsilon=2.0)
    page = report_html(found)
    assert "95 %" in page
    assert f"{found.coef_[0]:.4g} ({found.low[0]:.4g} to {found.high[0]:.4g})" in page
    wide = sordino.prediction_intervals(model, X, X[:, 0], coverage=0.5)
    assert "PredictionIntervals" in report_html(wide)


def test_parts_that_were_booked_one_after_the_other_are_named_with_their_cost(booked):
    from sordino.report.page import Books
    from sordino.runs import composed

    place = {"ledger": booked.ledger, "dataset_id": "ward 7"}
    reports = [sordino.mean(rows()[0], epsilon=e, delta=1e-6, **place).privacy for e in (0.2, 0.4, 0.4)]
    last = len(booked.ledger.history("ward 7"))
    whole = composed(list(zip("abc", reports, strict=True)))
    nested = composed([("first", reports[0]), ("rest", composed([("b", reports[1]), ("c", reports[2])]))])
    for report in (whole, nested):
        _, found = Books(*place.values()).find(report)
        assert [after.entry.sequence for _, after in found.parts] == [last - 2, last - 1, last]
    cost = found.parts[-1][1].fraction - found.parts[0][0].fraction
    page = report_html(whole, **place)
    assert f"booked one after the other: reservations {last - 2} (mean" in page
    assert f"Together they took {100 * cost:.1f} % of the budget." in page
    assert f"after reservation {last}<" in page
    missing = composed([("a", reports[0]), ("d", sordino.mean(rows()[0], epsilon=0.7).privacy)])
    assert "no reservation" in Books(*place.values()).find(missing)[1].words


def test_a_configuration_is_shown_as_it_was_given(booked):
    text = "[fit]\nepsilon = 1.0\n"
    page = report_html(booked, config=text, command="sordino fit --config run.toml")
    assert text in page
    assert hashlib.sha256(text.encode()).hexdigest() in page
    assert "sordino fit --config run.toml" in page


# ------------------------------------------------------------------------------- no data on the page


def test_nothing_that_hangs_on_a_model_gets_onto_the_page():
    X, y = rows()
    X[3] = SENTINEL
    model = sordino.LogisticRegression(1.0, 1e-6, data_norm=1.0, classes=["ill", "well"]).fit(X, y)
    model.X_, model.note_, model.solver_options = X, "secret 7.318", {"init": X}
    model.class_weight = np.full(5, SENTINEL)
    page = report_html(model)
    assert "7.318" not in page
    assert "secret" not in page


def test_a_pipeline_that_is_not_private_says_why_and_shows_no_numbers():
    X, y = rows()
    model = make_pipeline(StandardScaler(), sordino.LogisticRegression(1.0, 1e-6, data_norm=1.0)).fit(X, y)
    page = report_html(model)
    assert "Not private, because of" in page
    assert "PrivateStandardScaler" in page
    assert "Coefficients" not in page
    assert 'class="badge bad"' in page
    assert "nothing</b><span>is guaranteed" in page
    assert "(strong)" not in page
    assert "What epsilon means" not in page


def test_a_private_pipeline_and_a_search_show_what_they_chose():
    X, y = rows()
    inner = sordino.LogisticRegression(data_norm=1.0, classes=["ill", "well"])
    pipeline = make_pipeline(sordino.RowClipper(data_norm=1.0), inner.set_params(delta=1e-6)).fit(X, y)
    assert "Coefficients" in report_html(pipeline)
    search = sordino.PrivateSearchCV(inner, {"max_iter": [5, 10]}, 2.0, 1e-6, mean_trials=2.0).fit(X, y)
    page = report_html(search)
    assert "chosen by the search" in page
    assert "chosen from 2 candidates" in page


def test_a_result_and_a_report_have_pages_and_others_none(tmp_path):
    X, _ = rows()
    score = sordino.mean(X[:, 0], delta=1e-6)
    assert write_report(score, tmp_path / "mean.html").exists()
    assert "54.8 %" in report_html(score.privacy)
    for other in (3, "text", None):
        with pytest.raises(InvalidInputError, match="Expected a fitted private model"):
            report_html(other)
    with pytest.raises(Exception, match="not fitted"):
        report_html(sordino.LogisticRegression())


def test_several_classes_have_a_chart_each():
    X, _ = rows()
    y = (X[:, 0] > 0.1).astype(int) + (X[:, 1] > 0)
    model = sordino.LogisticRegression(2.0, 1e-6, data_norm=1.0, classes=[0, 1, 2]).fit(X, y)
    page = report_html(model)
    assert all(f"Coefficients of class {k}" in page for k in range(3))


def test_a_notebook_shows_the_guarantee_below_the_diagram_of_a_fitted_model():
    X, y = rows()
    model = sordino.LogisticRegression(1.0, 1e-6, data_norm=1.0, classes=["ill", "well"])
    assert "Privacy report" not in model._repr_html_()
    model.fit(X, y)
    for shown in (model._repr_html_(), model._repr_mimebundle_()["text/html"]):
        assert "Privacy report" in shown
        assert "54.8 %" in shown


# ------------------------------------------------------------------------------- words and odds


def test_an_epsilon_above_eight_is_never_private_without_a_word():
    X, _ = rows()
    weak = sordino.PCA(2, epsilon=50.0, delta=1e-6, data_norm=1.0).fit(X)
    for text in (report_html(weak), repr(weak.privacy_), weak.privacy_._repr_html_()):
        assert "rotects little" in text
    strong = sordino.PCA(2, epsilon=1.0, delta=1e-6, data_norm=1.0).fit(X)
    for text in (report_html(strong), repr(strong.privacy_), strong.privacy_._repr_html_()):
        assert "rotects little" not in text


def test_every_release_that_a_solver_asks_for_has_words():
    source = "".join(path.read_text("utf-8") for path in Path(sordino.__file__).parent.rglob("*.py"))
    asked = set(re.findall(r"\brelease\(\s*\"(\w+)\"", source))
    assert {"gradient", "moments", "length"} <= asked
    assert not sorted(asked - set(WORDS["asked"]))


def test_the_run_stands_beside_one_four_and_eight():
    X, _ = rows()

    def at(epsilon):
        return compare_attacks(sordino.mean(X[:, 0], epsilon=epsilon, delta=1e-6).privacy)

    assert [c["epsilon"] for c in at(2.0)] == ["1", "2", "4", "8"]
    assert [c["epsilon"] for c in at(1.0)] == ["0.9998", "4", "8"]
    assert [bool(c["own"]) for c in at(1.0)] == [True, False, False]
    assert at(2.0)[0]["bet"] == "54.8 %"
    page = report_html(sordino.mean(X[:, 0], epsilon=1.0, delta=1e-6))
    assert "delta (1 in 1,000,000)" in page
    assert "<b>0.000001</b>" in page
    above = replace(sordino.mean(X[:, 0], epsilon=1.0, delta=1e-6).privacy, epsilon=1.0001)
    assert [c["epsilon"] for c in compare_attacks(above)] == ["1", "1.001", "4", "8"]  # not taken for 1


def learned_model():
    import pandas as pd

    public = public_generator(1)
    age = public.uniform(18, 95, 3000).round()
    table = pd.DataFrame({"age": age, "ill": np.where(age + 20 * public.normal(size=3000) > 60, "yes", "no")})
    blank = sordino.Schema([sordino.tables.Number("age"), sordino.tables.Target("ill")])
    schema = sordino.tables.learn_schema(blank, table, epsilon=0.5, delta=1e-6).schema
    return sordino.LogisticRegression(1.0, 1e-6, schema=schema).fit(table)


def test_the_headline_counts_what_was_paid_for_a_learned_schema():
    model = learned_model()
    epsilon, delta = model.privacy_.whole
    assert 1.45 < epsilon <= 1.5
    assert delta == pytest.approx(2e-6, rel=0.01)
    page = report_html(model)
    alone = replace(model.privacy_, learned=()).trade_off
    assert model.privacy_.trade_off.advantage > alone.advantage
    assert f"at worst {meaning.percent(meaning.guess(model.privacy_.trade_off))}" in page
    assert f"at worst {meaning.percent(meaning.guess(alone))}" not in page
    assert f"<b>{at_most(epsilon)}</b><span>epsilon with the schema, at most" in page
    assert "class labels: those of the schema" in page
    assert "class labels: declared" not in page


def test_the_epsilon_with_the_schema_is_rounded_up():
    report = sordino.mean(np.arange(9.0), epsilon=1.0, delta=1e-6).privacy
    price = Price(1.0, 1e-6, report.relation, report.unit)
    page = report_html(replace(report, epsilon=2.00001, delta=1.00001e-6, learned=(price,)))
    assert "<b>3.001</b><span>epsilon with the schema, at most" in page
    assert "<b>0.000002001</b><span>delta of both" in page
    assert '<th scope="col" class="own">3.001 (this run and its schema)' in page


def test_a_schema_whose_price_nobody_knows_leaves_nothing_guaranteed():
    report = sordino.mean(np.arange(9.0), epsilon=1.0, delta=1e-6).privacy
    unknown = Price(float("inf"), 1.0, report.relation, report.unit, said=Status.COPY)
    page = report_html(replace(report, learned=(unknown,)))
    assert "Nothing is guaranteed: the schema that it reads was learned" in page
    assert "at worst" not in page


def test_a_ledger_that_was_not_told_which_model_was_released_confirms_releases_only(tmp_path, monkeypatch):
    monkeypatch.setattr(sordino.PCA, "_attested", lambda model: model)  # as if its process had ended there
    with sordino.Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.create("ward 7", sordino.BudgetPolicy(epsilon=9.0, delta=1e-4))
        model = sordino.PCA(1, epsilon=8.0, delta=1e-5, data_norm=2.0, ledger=ledger, dataset_id="ward 7")
        model.fit(np.repeat(np.eye(3), [800, 20, 20], axis=0)).set_params(ledger=None)
        page = report_html(
            sordino.load(model.save(tmp_path / "m.sordino")), ledger=ledger, dataset_id="ward 7"
        )
        copy = sordino.PrivacyReport.from_json(model.privacy_.to_json())
        releases = report_html(copy, ledger=ledger, dataset_id="ward 7")
    said = "unverified copy, releases confirmed by ledger ledger.db, reservation 1; the ledger holds no"
    assert f'<span class="badge mid">{said} digest of this model</span>' in page
    assert "private, confirmed" not in page
    assert '<th scope="col">signature</th>' not in page
    assert "private, confirmed by ledger ledger.db, reservation 1: releases only<" in releases


def test_a_copy_says_what_a_copy_is_and_who_could_prove_it(booked, tmp_path):
    copy = sordino.load(booked.save(tmp_path / "m.sordino"))
    page = report_html(copy, facts={"Ran": "yesterday <i>"})
    assert "made from a file" in page
    assert "no file can prove" in page
    assert "yesterday &lt;i&gt;" in page
    assert "Page by Sordino" in page
    budget = sordino.BudgetPolicy(epsilon=9.0, delta=1e-4)
    booked.ledger.create("another ward", budget)
    denied = report_html(copy, ledger=booked.ledger, dataset_id="another ward")
    assert '<span class="badge bad">unverified copy</span>' in denied
    assert "the model: The ledger has no reservation of &#39;another ward&#39;" in denied
    known = report_html(copy, ledger=booked.ledger, dataset_id="ward 7")
    said = "private, confirmed by ledger ledger.db, reservation 2: releases, model"
    assert f'<span class="badge">{said} and file</span>' in known
    assert known.index("<h2>Signatures</h2>") < known.rindex(said)
    assert "wrote the digest of its numbers, and that of what its report says of the run" in known
    changed = sordino.load(tmp_path / "m.sordino")
    changed.coef_ = changed.coef_ + 4.0
    page_of_another = report_html(changed, ledger=booked.ledger, dataset_id="ward 7")
    said = "unverified copy, releases confirmed by ledger ledger.db, reservation 2; this model is NOT the one"
    assert f'<span class="badge bad">{said} that the ledger knows</span>' in page_of_another
    assert "the ledger knows the model of reservation 2, and this one has another digest" in page_of_another
    assert copy.privacy_.status == Status.COPY
    assert '<span class="badge mid">unverified copy</span>' in page
    assert "confirmed by" not in page
    learned = replace(copy.privacy_, learned=(replace(Price.of(booked.privacy_), certified=False),))
    both = report_html(learned, ledger=booked.ledger, dataset_id="ward 7")
    assert '<span class="badge mid">unverified copy</span>' in both
    assert "its schema was read from a file, and the ledger has no receipt for it" in both
