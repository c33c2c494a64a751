"""What a private search refuses, and that a huge row leaves its score a number."""

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import sordino
from sordino import checks as bounds
from sordino.errors import InvalidInputError, UndeclaredBoundWarning, UnsupportedError
from sordino.tables import Number, Target


def search(**options):
    model = sordino.LinearRegression(data_norm=1.0, target_bound=1.0)
    return sordino.PrivateSearchCV(model, {"max_iter": [3, 5]}, epsilon=3.0, delta=1e-6, **options)


def data(n=400):
    public = np.random.default_rng(0)
    X = public.normal(size=(n, 3)) / 3
    return X, X[:, 0].copy()


@pytest.mark.parametrize("huge", [1e308, -1e308])
def test_a_huge_row_leaves_the_score_a_number(huge):
    X, y = data()
    for row in range(0, 400, 40):  # one of them is in the validation part, whatever the split
        X[row], y[row] = huge, -huge
    assert np.isfinite(search().fit(X, y).best_score_)


def test_a_target_that_is_not_a_number_is_refused_before_anything_is_spent(tmp_path):
    X, y = data()
    y[7] = np.nan
    ledger = sordino.Ledger.open(tmp_path / "ledger.db")
    ledger.create("ward", sordino.BudgetPolicy(epsilon=5.0, delta=1e-5))
    with pytest.raises(InvalidInputError):
        search(ledger=ledger, dataset_id="ward").fit(X, y)
    assert not ledger.history("ward")


def test_published_noise_leaves_no_model_behind():
    X, _ = data()
    options = {"solver": "ight", "noise": "paper", "max_iter": 5, "data_norm": 1.0, "n_nonzero_coefs": 2}
    grid = {"fit_intercept": [True, False]}
    made = sordino.PrivateSearchCV(sordino.SparseLogisticRegression(**options), grid, epsilon=1.0, delta=1e-6)
    with pytest.raises(UnsupportedError, match="published noise"):
        made.fit(X, X[:, 0] > 0)
    assert not hasattr(made, "best_estimator_")


SCALER = sordino.PrivateStandardScaler(data_norm=1.0)
MODEL = sordino.LinearRegression(data_norm=1.0, target_bound=1.0)
FAULTY = {
    "a name": (MODEL, {"max_itre": [3]}),
    "a value": (MODEL, {"max_iter": [3, 0]}),
    "a solver": (MODEL, {"solver": ["auto", "sgd"]}),
    "no model": (sordino.PCA(2), {"center": [True]}),
    "a step that does not pay": (make_pipeline(StandardScaler(), MODEL), {"linearregression__max_iter": [3]}),
    "a later step": (make_pipeline(SCALER, MODEL), {"linearregression__max_iter": [3, 0]}),
    "a budget in the grid": (make_pipeline(SCALER, MODEL), {"linearregression__epsilon": [3.0]}),
    "rows that mix": (make_pipeline(FunctionTransformer(lambda X: X - X.mean(axis=0)), MODEL), {}),
    "a step without epsilon": (make_pipeline(sordino.PrivateStandardScaler(epsilon=0.0), MODEL), {}),
    "a score": (MODEL, {}, {"scoring": "accuracy"}),
}


@pytest.mark.parametrize("fault", FAULTY)
def test_a_candidate_that_cannot_run_is_refused_before_anything_is_spent(fault, tmp_path):
    ledger = sordino.Ledger.open(tmp_path / "ledger.db")
    ledger.create("ward", sordino.BudgetPolicy(epsilon=5.0, delta=1e-5))
    estimator, grid, *options = FAULTY[fault]
    budget = {"epsilon": 3.0, "delta": 1e-6, "ledger": ledger, "dataset_id": "ward"}
    made = sordino.PrivateSearchCV(estimator, grid, **budget, **(options[0] if options else {}))
    with pytest.raises((InvalidInputError, UnsupportedError)):
        made.fit(*data())
    assert not ledger.history("ward")


def test_a_bound_that_a_candidate_leaves_out_is_said_although_trials_are_silent(monkeypatch):
    monkeypatch.setattr(bounds, "_said", set())  # said once per process, and other tests say it too
    model = sordino.LinearRegression(target_bound=1.0)
    with pytest.warns(UndeclaredBoundWarning, match="data_norm"):
        sordino.PrivateSearchCV(model, {"max_iter": [3]}, epsilon=3.0, delta=1e-6, target_bound=1.0).fit(
            *data()
        )


# ------------------------------------------------------------------------------- pipelines, tables, scores


def classes(n=3000, seed=0):
    public = np.random.default_rng(seed)
    X = public.normal(size=(n, 4)) / 4
    return X, np.where(X[:, 0] > X[:, 1], "a", "b")


def test_the_steps_of_a_pipeline_share_one_budget():
    X, y = classes()
    model = sordino.LogisticRegression(1.0, data_norm=3.0, classes=["a", "b"])
    pipeline = make_pipeline(sordino.PrivateStandardScaler(data_norm=1.0, epsilon=0.25), model)
    grid = {"logisticregression__max_iter": [20, 40]}
    found = sordino.PrivateSearchCV(pipeline, grid, 4.0, 1e-6, mean_trials=2.0).fit(X, y)
    assert found.score(X, y) > 0.85
    assert found.privacy_.status == "private"
    assert found.privacy_.epsilon <= 4.0
    assert {"moments", "gradient", "scores"} <= {release.name for release in found.privacy_.releases}
    for _, step in found.best_estimator_.steps:  # no part of it claims less than the search
        assert step.privacy_ is found.privacy_
    assert is_classifier(found)
    assert found.n_features_in_ == 4


def test_a_step_gets_the_share_of_its_epsilon_in_the_squared_distances():
    from sordino.estimators.search import Candidates
    from sordino.kernel import Relation
    from sordino.runs import Ask, BestOf

    model = sordino.LinearRegression(4.0, data_norm=1.0, target_bound=1.0)
    steps = make_pipeline(sordino.PrivateStandardScaler(data_norm=1.0, epsilon=3.0), model)
    trial = BestOf.made(Ask.checked(2.0, 1e-6, 100), Relation.ADD_REMOVE, "geometric", 5.0).trial
    model = Candidates(steps).build([{}], trial, None)
    assert model.steps[0][1].epsilon == pytest.approx(trial.part(9 / 25))
    assert model.steps[1][1].epsilon == pytest.approx(trial.part(16 / 25))
    assert trial.part(1.0) == trial.epsilon
    assert model.steps[0][1].epsilon < trial.epsilon


@pytest.mark.parametrize("fault", ["a row", "a target", "a label", "no target", "lengths"])
def test_records_that_a_later_step_would_refuse_are_refused_before_anything_is_spent(fault, tmp_path):
    ledger = sordino.Ledger.open(tmp_path / "ledger.db")
    ledger.create("ward", sordino.BudgetPolicy(epsilon=5.0, delta=1e-5))
    X, y = data()
    model = sordino.LogisticRegression(data_norm=1.0, classes=[0, 1]) if fault == "a label" else MODEL
    labels = np.arange(len(y)) % 3 if fault == "a label" else y
    if fault == "a row":
        X[5, 1] = np.nan
    if fault == "a target":
        labels[5] = np.nan
    given = {"no target": None, "lengths": labels[:-1]}.get(fault, labels)
    booked = {"ledger": ledger, "dataset_id": "ward", "delta": 1e-6}
    made = sordino.PrivateSearchCV(make_pipeline(SCALER, model), {}, 3.0, **booked)
    with pytest.raises(InvalidInputError):
        made.fit(X, given)
    assert not ledger.history("ward")


def test_texts_and_lists_can_be_searched():
    X, y = classes(800)
    texts = ["good fine" if label == "a" else "bad awful" for label in y]
    model = sordino.LogisticRegression(data_norm=1.0, classes=["a", "b"])
    pipeline = make_pipeline(HashingVectorizer(n_features=64, norm="l2"), model)
    grid = {"logisticregression__max_iter": [10, 20]}
    found = sordino.PrivateSearchCV(pipeline, grid, 4.0, 1e-6, mean_trials=2.0).fit(texts, list(y))
    assert found.predict(["good fine"]).tolist() == ["a"]
    plain = sordino.PrivateSearchCV(model, {"max_iter": [10]}, 4.0, 1e-6, mean_trials=1.0)
    assert plain.fit(X.tolist(), y.tolist()).n_features_in_ == 4


def test_a_table_with_a_schema_can_be_searched():
    pandas = pytest.importorskip("pandas")
    X, y = classes()
    columns = [Number(f"c{i}", low=-1.0, high=1.0) for i in range(4)]
    schema = sordino.Schema([*columns, Target("ill", levels=["a", "b"])])
    table = pandas.DataFrame(X, columns=[f"c{i}" for i in range(4)]).assign(ill=y)
    model = sordino.LogisticRegression(schema=schema)
    found = sordino.PrivateSearchCV(model, {"max_iter": [20, 40]}, 4.0, 1e-6, mean_trials=2.0).fit(table)
    assert (found.predict(table) == y).mean() > 0.85
    assert "class labels: declared" in found.privacy_.public


@pytest.mark.parametrize("scoring", ["neg_log_loss", "accuracy"])
def test_a_search_of_classifiers_has_a_choice_of_scores(scoring):
    X, y = classes()
    model = sordino.LogisticRegression(data_norm=1.0, classes=["a", "b"])
    grid = {"max_iter": [20]}
    found = sordino.PrivateSearchCV(model, grid, 8.0, 1e-6, mean_trials=1.0, scoring=scoring).fit(X, y)
    if scoring == "accuracy":
        assert found.best_score_ == pytest.approx(found.score(X, y), abs=0.05)
    else:
        chances = found.predict_proba(X)
        loss = -np.log(np.where(y == found.classes_[0], chances[:, 0], chances[:, 1]))
        assert found.best_score_ == pytest.approx(-np.minimum(loss, 4.0).mean(), abs=0.15)


@pytest.mark.parametrize(
    ("scoring", "power"), [("neg_mean_squared_error", 2), ("neg_mean_absolute_error", 1)]
)
def test_a_search_of_regressors_has_a_choice_of_scores(scoring, power):
    X, y = data(4000)
    found = search(scoring=scoring, target_bound=1.0, mean_trials=1.0).fit(X, y)
    low, high = found.best_score_interval_
    assert low <= found.best_score_ <= high
    error = np.minimum(np.abs(found.predict(X) - y), 1.0) ** power
    assert found.best_score_ == pytest.approx(-error.mean(), abs=0.05)


def test_a_search_without_scoring_names_its_metric_and_tells_it_in_its_units():
    """It was 1.0 of a scale that nobody named, where R2 was .84."""
    X, y = data(4000)
    found = search(target_bound=1.0, mean_trials=1.0).fit(X, y)
    assert found.scoring_ == "mse"
    assert found.best_score_ == pytest.approx(np.mean((found.predict(X) - y) ** 2), abs=0.05)


def test_sorted_records_are_searched_as_well_as_shuffled_ones():
    """They scored .015 when folds went by position."""
    X, y = classes(4000)
    order = np.argsort(y, kind="stable")
    model = sordino.LogisticRegression(data_norm=1.0, classes=["a", "b"])
    found = sordino.PrivateSearchCV(model, {"max_iter": [20]}, 8.0, 1e-6, mean_trials=1.0).fit(
        X[order], y[order]
    )
    assert found.best_score_ > 0.85


@pytest.mark.parametrize("place", ["the estimator", "a step", "the grid"])
def test_a_ledger_of_a_candidate_is_not_ignored_by_a_search_without_one(place, tmp_path):
    """The search ran, private at its epsilon, and the ledger that the model was given heard nothing."""
    ledger = sordino.Ledger.open(tmp_path / "ledger.db")
    ledger.create("ward", sordino.BudgetPolicy(epsilon=5.0, delta=1e-5))
    booked = sordino.LinearRegression(data_norm=1.0, target_bound=1.0, ledger=ledger, dataset_id="ward")
    estimator, grid = {
        "the estimator": (booked, {"max_iter": [3, 5]}),
        "a step": (make_pipeline(SCALER, booked), {"linearregression__max_iter": [3, 5]}),
        "the grid": (make_pipeline(SCALER, MODEL), {"linearregression": [booked]}),
    }[place]
    made = sordino.PrivateSearchCV(estimator, grid, epsilon=50.0, delta=1e-6, target_bound=1.0)
    with pytest.raises(
        InvalidInputError, match=r"ledger=None.*Pass ledger= and dataset_id= to PrivateSearchCV"
    ):
        made.fit(*data())
    assert not hasattr(made, "best_estimator_")
