"""What a pipeline promises when private steps stand inside other steps, and plain ones beside them."""

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import StackingClassifier
from sklearn.feature_selection import RFE
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler

import sordino
from sordino.errors import PrivacyWarning

DELTA = 1e-6


def data():
    public = np.random.default_rng(0)
    X = public.normal(size=(900, 4)) / 4
    return X, (X[:, 0] > 0).astype(int)


def scaler():
    return sordino.PrivateStandardScaler(epsilon=5.0, delta=DELTA, data_norm=2.0)


def model(epsilon=0.1):
    return sordino.LogisticRegression(epsilon=epsilon, delta=DELTA, data_norm=2.0, classes=[0, 1])


NESTED = {
    "columns": lambda: make_pipeline(ColumnTransformer([("s", scaler(), [0, 1, 2, 3])]), model()),
    "pipeline": lambda: make_pipeline(Pipeline([("inner", make_pipeline(scaler()))]), model()),
    "union": lambda: make_pipeline(FeatureUnion([("a", scaler()), ("b", "passthrough")]), model()),
}


@pytest.mark.parametrize("kind", NESTED)
def test_a_nested_private_step_is_counted(kind):
    report = sordino.pipeline_privacy(NESTED[kind]().fit(*data()))
    assert report.epsilon > 4.9
    assert report.status == "private"


def test_a_plain_scaler_before_a_private_model_is_not_private():
    report = sordino.pipeline_privacy(make_pipeline(StandardScaler(), model()).fit(*data()))
    assert not report.is_private
    assert "PrivateStandardScaler" in report.unpaid[0]


def test_a_plain_search_around_a_private_model_is_not_private():
    X, y = data()
    with pytest.warns(PrivacyWarning):
        search = GridSearchCV(model(1.0), {"fit_intercept": [True, False]}, cv=2).fit(X, y)
    assert not sordino.pipeline_privacy(search).is_private


def test_each_model_of_a_wrapper_is_counted():
    public = np.random.default_rng(1)
    X = public.normal(size=(900, 4)) / 4
    with pytest.warns(PrivacyWarning, match="wrapper"):
        wrapped = OneVsRestClassifier(model(1.0)).fit(X, public.integers(0, 3, 900))
    report = sordino.pipeline_privacy(wrapped)
    assert not report.is_private  # the wrapper itself read the labels
    assert report.epsilon > 1.5
    assert sordino.pipeline_privacy(make_pipeline(model(1.0)).fit(*data())).epsilon < 1.01


def test_a_step_declared_public_by_name_is_listed_and_free():
    pipe = make_pipeline(StandardScaler(), model()).fit(*data())
    report = sordino.pipeline_privacy(pipe, assume_public=["standardscaler"])
    assert report.is_private
    assert any("declared to use public data" in note for note in report.notes)


def test_a_step_that_stands_in_two_places_counts_twice():
    one = scaler()
    pipe = Pipeline([("a", one), ("b", one), ("model", model())]).fit(*data())
    alone = sordino.pipeline_privacy(make_pipeline(scaler(), model()).fit(*data()))
    assert sordino.pipeline_privacy(pipe).epsilon > 1.3 * alone.epsilon


class OwnPipeline(Pipeline):
    """A pipeline that learns something itself."""


LEARNING = {
    "rare levels": OneHotEncoder(categories=[[0.0, 1.0]] * 4, min_frequency=2, handle_unknown="ignore"),
    "few levels": OrdinalEncoder(
        categories=[[0.0, 1.0]] * 4, max_categories=2, handle_unknown="use_encoded_value", unknown_value=-1
    ),
    "indicator": SimpleImputer(strategy="constant", keep_empty_features=True, add_indicator=True),
    "empty columns": SimpleImputer(strategy="constant"),
    "function": FunctionTransformer(lambda X: X - X.mean(axis=0)),
    "subclass": OwnPipeline([("nothing", "passthrough")]),
}


@pytest.mark.parametrize("kind", LEARNING)
def test_a_step_that_looks_at_all_records_in_a_corner_is_not_free(kind):
    report = sordino.pipeline_privacy(make_pipeline(LEARNING[kind], model()).fit(*data()))
    assert not report.is_private
    assert len(report.unpaid) == 1 or kind == "indicator"


def test_a_function_of_single_rows_is_free_and_the_report_says_what_it_rests_on():
    report = sordino.pipeline_privacy(make_pipeline(FunctionTransformer(np.tanh), model()).fit(*data()))
    assert report.is_private
    assert any("must change each row by itself" in note for note in report.notes)


def test_a_private_step_inside_of_what_is_declared_public_counts_all_the_same():
    X, _ = data()
    inner = sordino.LinearRegression(epsilon=1.0, delta=DELTA, data_norm=2.0, target_bound=1.0)
    pipe = Pipeline([("scale", scaler()), ("wrapped", TransformedTargetRegressor(inner))]).fit(X, X[:, 0])
    report = sordino.pipeline_privacy(pipe, assume_public=["wrapped"])
    assert report.is_private
    assert report.epsilon > 1.01 * pipe[0].privacy_.epsilon
    whole = sordino.pipeline_privacy(pipe[1], assume_public=["TransformedTargetRegressor"])
    assert whole.is_private


SEVERAL = {
    "folds": lambda X, y: cross_val_predict(model(), X, y, cv=2),
    "stack": lambda X, y: StackingClassifier([("one", model())], final_estimator=model(), cv=2).fit(X, y),
    "elimination": lambda X, y: RFE(model(), n_features_to_select=2).fit(X, y),
}


@pytest.mark.parametrize("kind", SEVERAL)
def test_what_fits_several_times_on_the_same_records_is_noticed(kind):
    with pytest.warns(PrivacyWarning, match="epsilon of the whole is the sum") as said:
        fitted = SEVERAL[kind](*data())
    assert len(said) >= 2
    if kind == "elimination":
        assert any("their epsilons add up" in note for note in fitted.estimator_.privacy_.notes)
