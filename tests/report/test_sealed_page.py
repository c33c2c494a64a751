"""What a page says was compared, who counted a run, and what its guarantee rests on."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import sordino
from sordino.errors import InvalidInputError
from sordino.kernel import public_generator
from sordino.report import report_html
from sordino.report.run_page import scores_of
from sordino.runs import PrivacyReport
from sordino.tables import Number, Target

SCHEMA = sordino.Schema([Number("a", 0, 1), Target("stay", "number", low=0, high=10, unit="days")])
TABLE = pd.DataFrame({"a": np.linspace(0, 1, 2000), "stay": np.linspace(1, 7, 2000)})
SIGNED = '<th scope="col">signature</th>'


def known(page):
    return page.split("<h2>What to know before you sign</h2>")[1].split("</ul>")[0]


@pytest.fixture
def place(tmp_path):
    ledger = sordino.Ledger.open(tmp_path / "l.db")
    ledger.create("ward", sordino.BudgetPolicy(epsilon=9.0, delta=1e-4))
    return {"ledger": ledger, "dataset_id": "ward", "delta": 1e-6}


@pytest.fixture
def model(place):
    return sordino.LinearRegression(1.0, schema=SCHEMA, **place).fit(TABLE)


def test_the_banner_in_python_says_what_was_compared(model, place):
    score = sordino.private_score(model, TABLE, epsilon=1.0, **place)
    page = report_html(model, scores={"r2": score})
    assert page.standing.line == "private, confirmed by its ledger, reservation 1: releases and model"
    assert not page.standing.denied
    assert "reservation 3: releases only" in page  # of the score: nobody compared its number
    assert "metric and best constant were compared with nothing" in page
    assert "Nobody can confirm the numbers on this page later" not in page  # the model's were
    assert "compared with nothing" not in report_html(model)
    assert "Nobody can confirm the numbers on this page later" in report_html(
        score, ledger=place["ledger"], dataset_id="ward"
    )
    assert "reservation 3: releases only" in report_html(score, ledger=place["ledger"], dataset_id="ward")
    model.coef_ = model.coef_ * 0
    edited = report_html(model)
    assert edited.standing.colour == "bad"
    assert SIGNED not in edited


def test_a_page_of_intervals_says_that_nobody_can_confirm_them_and_that_no_command_checks_it(model, place):
    found = sordino.intervals(model, TABLE, epsilon=1.0, **place)
    for shape in found.shapes_:  # in the process that asked, which nobody can hold against anything
        shape.noise[...] *= 0.01
    page = report_html(found, ledger=place["ledger"], dataset_id="ward", check="sordino inspect MODEL")
    assert page.standing.line.endswith("releases only")
    beside = page[page.index('class="badge') : page.index("</header>")]
    assert "Nobody can confirm the numbers on this page later" in beside
    signed = page[page.index("<h2>Signatures</h2>") :]
    assert "No command checks this page" in signed
    assert "sordino inspect MODEL" not in signed
    assert SIGNED in signed


def test_a_score_names_its_metric_itself_and_keeps_what_it_was_released_with(model, place):
    score = sordino.private_score(model, TABLE, epsilon=1.0, **place)
    for name in ("interval", "privacy", "baseline", "metric", "anything"):
        with pytest.raises(InvalidInputError, match="what was released"):
            setattr(score, name, (0.9, 0.95))
        with pytest.raises(InvalidInputError, match="what was released"):
            delattr(score, name)
    own, renamed = scores_of({"r2": score, "accuracy of the whole hospital": score})
    (praised,) = scores_of({"R2 on an external hospital, audited": score})
    assert praised["name"] == 'r2; whoever wrote this page calls it "R2 on an external hospital, audited"'
    assert own["name"] == "r2"
    assert renamed["name"] == 'r2; whoever wrote this page calls it "accuracy of the whole hospital"'
    assert renamed["words"] == own["words"] != ""
    assert [score.metric, scores_of({"accuracy": 0.9})[0]["words"]] == ["r2", ""]


def test_errors_have_the_unit_of_the_target(model, place):
    pair = {m: sordino.private_score(model, TABLE, metric=m, epsilon=1.0, **place) for m in ("mae", "mse")}
    page = report_html(model, scores=pair)
    for metric, unit in (("mae", "days"), ("mse", "(days)²")):
        text = scores_of({metric: pair[metric]})[0]["text"]
        assert f"{text} {unit}</td>" in page


@pytest.mark.parametrize("how", ["a model", "a report", "a file"])
def test_a_run_that_no_ledger_counts_is_not_for_signing_however_its_page_is_made(how, tmp_path):
    model = sordino.LinearRegression(1.0, schema=SCHEMA).fit(TABLE)
    shown = {"a model": lambda: model, "a report": lambda: model.privacy_}
    shown["a file"] = lambda: sordino.load(model.save(tmp_path / "m.sordino"))
    page = report_html(shown[how]())
    assert SIGNED not in page
    assert "Do not sign this page" in page
    assert page.standing.colour == "mid"
    assert "nobody counts what else was released of these records" in page
    said = "unverified copy" if how == "a file" else "private, counted by no ledger"
    assert page.standing.line == said


def test_a_budget_is_that_of_a_name_on_a_ledger(model):
    page = report_html(model)
    assert "everything ever released" not in page
    assert "under another name, on another ledger or on none is not in these numbers" in page
    assert "Numbers that are left out are lines which cost nothing" in page


def test_a_declared_number_of_rows_stands_beside_the_bet_and_in_the_signed_sentence(place):
    place["ledger"].create("people", sordino.BudgetPolicy(epsilon=9.0, delta=1e-4, unit="person"))
    X = public_generator(1).uniform(-0.5, 0.5, (600, 2))
    terms = {"data_norm": 1.0, "target_bound": 1.0, **place}
    persons = {**terms, "dataset_id": "people"}
    model = sordino.LinearRegression(1.0, rows_per_person=12, **persons).fit(X, X[:, 0])
    said = "only for persons with at most 12 records, as somebody declared and nobody can check"
    again = PrivacyReport.from_json(model.privacy_.to_json())
    assert said in again.guarantee
    assert said in again.odds
    page = report_html(model)
    lead, end = page.split('<p class="lead">')[1].split("</p>")[0], page[page.index("<h2>Signatures</h2>") :]
    assert said in lead
    assert said in end
    assert "How many records there are is public (number of records: 600): the bet is on what the" in page
    assert "records of one person hold" in page
    free = sordino.LinearRegression(1.0, **terms).fit(X, X[:, 0])
    assert "holds only" not in report_html(free)


def test_a_declared_number_of_rows_stands_beside_every_total_bet_that_counts_it(place):
    """The page of an honest run on that data set bounded the bet on all of it without a condition."""
    persons = {**place, "dataset_id": "people"}
    place["ledger"].create("people", sordino.BudgetPolicy(epsilon=9.0, delta=1e-4, unit="person"))
    X = public_generator(1).uniform(-0.5, 0.5, (600, 2))
    honest = sordino.LinearRegression(1.0, data_norm=1.0, target_bound=1.0, **persons)
    honest.fit(X, X[:, 0], groups=np.arange(600) // 3)
    assert "holds only" not in report_html(honest)
    again = clone(honest).set_params(rows_per_person=1).fit(X, X[:, 0])
    said = "holds only for persons with at most 1 record, as somebody declared"
    page = report_html(honest)
    assert said in page.split("whoever bets on one person as above wins")[1].split("</p>")[0]
    assert said in known(page)
    assert said not in page[page.index("<h2>Signatures") :]
    assert said in known(report_html(again))


def test_what_nobody_checked_is_known_before_signing(model, place):
    """It stood in grey below the scores, and in the section on the budget."""
    score = sordino.private_score(model, TABLE, epsilon=0.2, **place)
    page = known(report_html(model, scores={"r2": score}))
    assert "Nobody checked that the records of a score were not used to fit" in page
    assert "the same people under another name, on another ledger or on none cannot be seen" in page
    assert "records of a score" not in report_html(model)


def test_a_page_says_that_paper_proves_nothing_and_how_whoever_signs_checks_it(model):
    sheet = (page := report_html(model))[page.index("<h2>Signatures</h2>") :]
    assert "Paper proves nothing" in sheet
    assert sheet.index("Paper proves nothing") < sheet.index(SIGNED)
    assert "report_html(model, ledger=LEDGER, dataset_id=" in sheet


def test_a_page_names_other_data_sets_with_the_same_schema(model, place, tmp_path):
    """`comp` fitted as `comp2` had a page that counted nothing of `comp`."""
    ledger, terms = place["ledger"], {**place, "schema": SCHEMA}
    assert "same schema" not in report_html(model)
    ledger.create("ward again", sordino.BudgetPolicy(epsilon=9.0, delta=1e-4))
    again = sordino.LinearRegression(1.0, **{**terms, "dataset_id": "ward again"}).fit(TABLE)
    page = report_html(again)
    assert "models with the same schema on other data sets, &#39;ward&#39;: where they hold the same" in page
    assert page.standing.colour == "mid"
    assert "'ward again'" in report_html(model).standing.cautions[0]
    other = sordino.Schema([Number("a", 0, 2), *SCHEMA.columns[1:]])
    ledger.create("elsewhere", sordino.BudgetPolicy(epsilon=9.0, delta=1e-4))
    apart = sordino.LinearRegression(1.0, **{**place, "schema": other, "dataset_id": "elsewhere"}).fit(TABLE)
    assert report_html(apart).standing.colour == ""


def test_conditions_of_the_signed_sentence_stand_on_the_first_sheet_and_in_it(place):
    """They stood in a table behind it: noise in doubles, columns without a source, and scores not shown."""
    table = {**place, "schema": SCHEMA}
    for secure in (False, True):
        model = sordino.LinearRegression(1.0, secure_noise=secure, **table).fit(TABLE)
        scores = [sordino.private_score(model, TABLE, epsilon=0.2, **place) for _ in range(2)]
        page = report_html(model, scores={"r2": scores[0]})
        first, last = page[: page.index("<main>")], page[page.index("<h2>Signatures</h2>") :]
        for sheet in (first, last):
            assert ("guarantee is for real numbers" in sheet) is not secure
        assert "bounds or levels of 2 of 2 columns come from (a, stay): if somebody read them off" in first
        assert f"this data set of the ledger has {2 + 2 * secure} booked in all" in first
    said = [Number("a", 0, 1, source="manual"), Target("stay", "number", low=0, high=9, source="law")]
    stated = sordino.LinearRegression(1.0, **place, schema=sordino.Schema(said)).fit(TABLE)
    assert "Nobody stated where" not in report_html(stated)
