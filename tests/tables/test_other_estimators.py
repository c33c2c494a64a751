"""PCA, heavy-tailed models and networks take tables as the linear ones do."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from tests.tables.helpers import SCHEMA, hospital

import sordino
from sordino import (
    PCA,
    BudgetPolicy,
    HeavyTailedClassifier,
    HeavyTailedRegressor,
    Ledger,
    Schema,
    TableEncoder,
)
from sordino.errors import (
    BudgetExceededError,
    CalibrationError,
    InvalidInputError,
    PlanError,
    SchemaError,
    UnsupportedError,
)
from sordino.kernel import Relation
from sordino.nn import estimators
from sordino.report import report_html
from sordino.runs import Ask
from sordino.runs.promise import Enclosure
from sordino.tables import Ignored, Person, Target, Text
from sordino.testing import seeded_noise_not_private

nn = pytest.importorskip("sordino.nn")

NUMERIC = Schema([*SCHEMA.columns[1:-1], Ignored("ill"), Target("age", "number", low=0, high=100)])
WITH_PERSON = Schema([*SCHEMA.columns, Person("who")])
TABLE, LATER = (hospital(2000, seed=seed).fillna({"age": 30.0}) for seed in (0, 1))
TABLE["dose"], LATER["dose"] = TABLE["age"] / 25, LATER["age"] / 25

CLASSIFIERS = [
    HeavyTailedClassifier(6.0, 1e-5, schema=SCHEMA),
    nn.NeuralClassifier(6.0, 1e-5, schema=SCHEMA, max_iter=60, random_state=0),
]
REGRESSORS = [
    HeavyTailedRegressor(6.0, 1e-5, schema=NUMERIC),
    nn.NeuralRegressor(6.0, 1e-5, schema=NUMERIC, max_iter=60, random_state=0),
]
EVERY = [*CLASSIFIERS, *REGRESSORS, PCA(3, epsilon=6.0, delta=1e-5, schema=SCHEMA)]


def _name(model):
    return type(model).__name__


def _answers(model, table):
    return model.transform(table) if isinstance(model, PCA) else model.predict(table)


@pytest.fixture(scope="module", params=EVERY, ids=_name)
def fitted(request):
    return clone(request.param).fit(TABLE)


def test_a_table_is_fitted_and_answered_through_the_same_map(fitted):
    if hasattr(fitted, "module_"):  # a network that corrects a linear model of the encoded rows
        rows = fitted.encoder_.transform(LATER)
        rows = rows.toarray() if hasattr(rows, "toarray") else rows
        margins = rows @ fitted.coef_.T + fitted.intercept_
        margins = np.column_stack([-0.5 * margins, 0.5 * margins]) if hasattr(fitted, "classes_") else margins
        inputs = np.column_stack([margins, rows[:, fitted.encoder_.alone]])
        outputs = fitted.module_(torch.from_numpy(inputs).float()).detach().double().numpy()
        assert np.allclose(fitted._outputs(LATER), outputs, atol=1e-5)
        return
    encoded = TableEncoder(fitted.schema, sparse_output=False).fit_transform(LATER)
    alone = clone(fitted)
    vars(alone).update({name: value for name, value in vars(fitted).items() if name != "encoder_"})
    assert np.allclose(_as_codes(_answers(alone, encoded)), _as_codes(_answers(fitted, LATER)), atol=1e-6)


def _as_codes(answers):
    return answers == "yes" if answers.dtype.kind == "U" else answers


def test_what_is_learned_holds_for_other_records(fitted):
    if isinstance(fitted, PCA):
        assert fitted.components_.shape[1] == len(fitted.coef_names_)
        assert fitted.data_norm_ == pytest.approx(SCHEMA.data_norm)
    else:
        assert fitted.score(LATER) > (0.85 if hasattr(fitted, "classes_") else 0.5)


def test_the_report_and_its_page_say_what_was_declared(fitted):
    public = fitted.privacy_.public
    assert "column 'stage': ordinal, 3 levels: I, II, III (source not stated)" in public
    assert not any("default" in line or "assumed public" in line for line in public)
    page = report_html(fitted)
    assert "schema " + fitted.schema.digest[:12] in page


def test_a_saved_model_keeps_its_schema(fitted, tmp_path):
    back = sordino.load(fitted.save(tmp_path / "model.sordino"))
    assert back.schema == fitted.schema
    assert np.array_equal(_answers(back, LATER), _answers(fitted, LATER))


def test_a_regressor_answers_in_the_units_of_its_target():
    model = clone(REGRESSORS[1]).fit(TABLE)
    assert (model.target_middle_, model.target_bound_) == (50.0, 50.0)
    assert 20 < model.predict(LATER).mean() < 80


def test_persons_are_refused_before_anything_is_booked(tmp_path):
    with Ledger.open(tmp_path / "l.db", create=True) as book:
        book.create("h", BudgetPolicy(10.0, 1e-4))
    model = clone(EVERY[-1]).set_params(schema=WITH_PERSON, ledger=tmp_path / "l.db", dataset_id="h")
    with pytest.raises(SchemaError, match=r"Column 'who': it says whose record.*ignored"):
        model.partial_fit(TABLE.assign(who=np.arange(2000) // 4))
    with Ledger.open(tmp_path / "l.db") as book:
        assert book.spent("h").reservations == 0


@pytest.mark.parametrize("model", [*CLASSIFIERS[:2], EVERY[-1]], ids=_name)
def test_a_model_protects_the_persons_of_a_table(model):
    model = clone(model).set_params(schema=WITH_PERSON, max_iter=None if model is EVERY[-1] else 5)
    model.fit(TABLE.assign(who=np.arange(2000) // 4))
    assert model.privacy_.unit == "person"
    assert "number of persons: 500" in model.privacy_.public


@pytest.mark.parametrize("model", EVERY, ids=_name)
def test_a_missing_column_is_named(model):
    with pytest.raises(SchemaError, match="lacks the column 'stage'"):
        clone(model).fit(TABLE.drop(columns="stage"))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (HeavyTailedClassifier(schema=NUMERIC), "predicts a category, the schema declares a number"),
        (nn.NeuralClassifier(schema=SCHEMA, classes=["no", "yes"]), "classes=None"),
        (HeavyTailedRegressor(schema=SCHEMA), "predicts a number, the schema declares a category"),
        (nn.NeuralRegressor(schema=NUMERIC, target_bound=3.0), "target_bound=None"),
        (PCA(schema=3), "Expected a sordino.Schema"),
    ],
    ids=_name,
)
def test_a_schema_that_contradicts_the_model_is_refused(model, words):
    with pytest.raises(InvalidInputError, match=words):
        model.fit(TABLE)


def test_a_model_is_refitted_without_its_schema():
    for model in EVERY:
        plain = clone(model).fit(TABLE).set_params(schema=None)
        if hasattr(plain, "data_norm"):
            plain.set_params(data_norm=2.0)
        if hasattr(plain, "target_bound"):
            plain.set_params(target_bound=2.0)
        plain.fit(np.eye(60, 4), np.arange(60) % 2)
        assert not hasattr(plain, "encoder_")
        assert len(_answers(plain, np.eye(2, 4))) == 2


def test_a_stream_of_tables_has_one_map():
    pca = PCA(2, epsilon=8.0, delta=1e-5, schema=SCHEMA, n_chunks=2)
    for part in (TABLE[:1000], TABLE[1000:]):
        pca.partial_fit(part)
    assert pca.transform(LATER).shape == (2000, 2)
    assert any(line.startswith("column 'age'") for line in pca.privacy_.public)


def test_words_become_dense_rows_of_a_network():
    schema = Schema([Text("note", buckets=8), Target("ill", levels=["no", "yes"])])
    table = {"note": ["cough fever", "none"] * 300, "ill": ["yes", "no"] * 300}
    model = nn.NeuralClassifier(20.0, 1e-5, schema=schema, max_iter=40, random_state=0).fit(table)
    assert model.score(table) == 1.0


def test_components_of_a_table_feed_a_model_in_a_pipeline():
    axes = PCA(6, epsilon=4.0, delta=1e-6, schema=SCHEMA)
    last = sordino.LogisticRegression(4.0, 1e-6, data_norm=2.5, classes=["no", "yes"])
    pipeline = make_pipeline(axes, last).fit(TABLE, TABLE["ill"])
    assert sordino.pipeline_privacy(pipeline).is_private
    assert pipeline.score(LATER, LATER["ill"]) > 0.8


def test_a_network_corrects_a_linear_model_within_one_budget():
    ask = nn.NeuralClassifier(1.0, 1e-5, schema=SCHEMA, max_iter=5, random_state=0).fit(TABLE)
    assert 0.97 < ask.privacy_.epsilon <= 1.0
    names = [release.name for release in ask.privacy_.releases]
    assert names[-1] == "gradient"
    assert len(names) > 1
    assert sum("linear model" in note or "network" in note for note in ask.privacy_.notes) == 2


def test_two_runs_that_cost_more_than_was_asked_are_refused_before_the_first(monkeypatch, tmp_path):
    monkeypatch.setattr(Ask, "left_after", lambda self, spent, plan: self.epsilon)
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.create("ward", BudgetPolicy(epsilon=9.0, delta=1e-4))
    booked = {"ledger": ledger, "dataset_id": "ward", "schema": SCHEMA, "max_iter": 5}
    with pytest.raises(CalibrationError, match=r"certify epsilon = 1\.\d+ together.*Nothing was booked"):
        nn.NeuralClassifier(1.0, 1e-5, **booked).fit(TABLE)
    assert not ledger.history("ward")
    monkeypatch.setattr(Ask, "booked", lambda self, *plans: nullcontext())  # the report looks at it again
    with pytest.raises(PlanError, match=r"epsilon <= 1 for all steps together, certified are 1\.\d+"):
        nn.NeuralClassifier(1.0, 1e-5, schema=SCHEMA, max_iter=5).fit(TABLE)


@pytest.mark.parametrize("delta", [1e-5, None])
def test_a_network_books_both_runs_at_once(delta, tmp_path):
    """They were booked one after the other, and a budget of what was asked for ended after the first."""
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.create("ward", BudgetPolicy(epsilon=1.0, delta=1e-5))
    booked = {"ledger": ledger, "dataset_id": "ward", "schema": SCHEMA, "max_iter": 5}
    with pytest.raises(BudgetExceededError, match="Nothing was reserved"):
        nn.NeuralClassifier(1.5, 1e-5, **booked).fit(TABLE)
    assert not ledger.history("ward")
    model = nn.NeuralClassifier(1.0, delta, **booked).fit(TABLE)
    entry, told = ledger.history("ward")
    assert told.plan_digest in ledger.models("ward")
    assert entry.status.value == "settled"
    assert entry.epsilon == model.privacy_.epsilon <= 1.0


def test_a_network_that_fails_after_its_linear_model_has_spent_both(monkeypatch, tmp_path):
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.create("ward", BudgetPolicy(epsilon=1.0, delta=1e-5))
    monkeypatch.setattr(nn.NeuralClassifier, "_margins", lambda self, X, bound: 1 / 0)
    model = nn.NeuralClassifier(1.0, 1e-5, schema=SCHEMA, max_iter=5, ledger=ledger, dataset_id="ward")
    with pytest.raises(ZeroDivisionError):
        model.fit(TABLE)
    (entry,) = ledger.history("ward")
    assert entry.status.value == "failed"
    assert entry.epsilon > 0.99


@pytest.mark.parametrize("rows", [20, 64])
@pytest.mark.parametrize(("kind", "schema"), [("Classifier", SCHEMA), ("Regressor", NUMERIC)])
def test_few_records_are_enough_for_a_network(kind, schema, rows):
    """All of them are a batch: a plan without sampling, of which little is left to calibrate."""
    model = getattr(nn, f"Neural{kind}")(1.0, 1e-3, schema=schema, max_iter=5).fit(TABLE[:rows])
    assert model.predict(LATER[:5]).shape == (5,)
    assert 0.97 < model.privacy_.epsilon <= 1.0


def test_a_trial_books_nothing_for_a_network(tmp_path):
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.create("ward", BudgetPolicy(epsilon=1.0, delta=1e-5))
    model = nn.NeuralClassifier(1.0, 1e-5, schema=SCHEMA, max_iter=5, ledger=ledger, dataset_id="ward")
    with Enclosure(9.0, Relation.ADD_REMOVE).entered(), pytest.raises(UnsupportedError, match="ledger=None"):
        model.fit(TABLE)
    assert not ledger.history("ward")


@pytest.mark.parametrize(("kind", "rare"), [("label", 0.12), ("number", 0.12)])
def test_a_network_leans_neither_to_frequent_labels_nor_to_frequent_numbers(kind, rare):
    """Gradients that were clipped to a tenth made .002 of a share of .12, and .005 of numbers alike."""
    public = np.random.default_rng(5)
    u = public.uniform(size=12_000)
    hit = public.uniform(size=u.size) < 2 * rare * u
    target = Target("y", levels=[0, 1]) if kind == "label" else Target("y", "number", low=0, high=10)
    schema = Schema([sordino.tables.Number("u", 0, 1), target])
    table = {"u": u, "y": hit.astype(int) if kind == "label" else 10.0 * hit}
    with seeded_noise_not_private(3):
        if kind == "label":
            found = nn.NeuralClassifier(8.0, 1e-6, schema=schema, random_state=0).fit(table)
            said = found.predict_proba(table)[:, 1]
        else:
            said = nn.NeuralRegressor(8.0, 1e-6, schema=schema, random_state=0).fit(table).predict(table) / 10
    assert np.mean(said) == pytest.approx(hit.mean(), abs=0.012)
    assert np.mean(said[u > 0.8]) == pytest.approx(hit[u > 0.8].mean(), abs=0.03)


@pytest.mark.parametrize("outputs", [1, 2, 4])
def test_no_label_moves_the_weights_of_a_correction_by_more_than_one(outputs):
    torch.manual_seed(0)
    model = estimators.Correction(estimators.perceptron(6, 8, outputs, 0), outputs)
    rows = torch.cat([4 * torch.randn(30, outputs), torch.randn(30, 6)], dim=1)
    for part in model.parameters():
        torch.nn.init.normal_(part)
    norms = []
    for row in rows.split(1):
        with torch.no_grad():
            margins = model(row)
        assert torch.allclose(model(row), margins)
        labels = [torch.tensor([k]) for k in range(outputs)]
        numbers = [torch.full((1, 1), -1.0), torch.full((1, 1), 1.0)]
        loss, said = (estimators.even_entropy, labels) if outputs > 1 else (estimators.even_squares, numbers)
        slopes = [torch.autograd.grad(loss(model(row), one), list(model.parameters())) for one in said]
        norms.append(max(float(torch.cat([p.flatten() for p in parts]).norm()) for parts in slopes))
        if outputs > 1:  # zero in the mean where the shares are true
            shares = margins.softmax(1)[0]
            mean = sum(share * parts[0] for share, parts in zip(shares, slopes, strict=True))
            assert float(mean.norm()) < 1e-6
    assert 0.3 < max(norms) <= 1.0 + 1e-6
