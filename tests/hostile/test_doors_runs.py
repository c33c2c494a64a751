"""The doors of runs: fits that nobody counts, ledgers out of reach. Each test failed before its mend.

The numbers in the docstrings were measured then.
"""

import numpy as np
import pytest

import sordino
from sordino import errors
from sordino.kernel import public_generator


def numbers(n=400, columns=3):
    return public_generator(5).normal(size=(n, columns))


# ----------------------------------------------------------------- 25: fits that nobody counts


def binary(n=300):
    X = numbers(n, 4)
    return X, 1 * (X[:, 0] > 0)


def private(epsilon=1.0):
    return sordino.LogisticRegression(epsilon, data_norm=3.0, classes=[0, 1])


def imputed():
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    X, _ = binary()
    X[::7, 1] = X[::5, 2] = np.nan
    model = sordino.LinearRegression(1.0, data_norm=3.0, target_bound=3.0)
    return IterativeImputer(model, max_iter=3, tol=0.0, imputation_order="roman").fit(X)


@pytest.mark.filterwarnings("ignore")
def test_door_25_private_fits_in_named_tuples_are_counted():
    """`IterativeImputer` keeps 12 private fits: .99975, "private" with `assume_public`."""
    imputer = imputed()
    kept = len(imputer.imputation_sequence_)
    report = sordino.pipeline_privacy(imputer, assume_public=["IterativeImputer"])
    assert kept == 12
    assert sum(note.startswith("step") and "epsilon" in note for note in report.notes) == kept
    assert report.epsilon > 1.5


def mine():
    """Return a wrapper that nobody has put on a list: it fits five times and keeps one."""
    from sklearn.base import BaseEstimator, clone

    class Mine(BaseEstimator):
        def fit(self, X, y):
            self.last_ = [clone(private()).fit(X, y) for _ in range(5)][-1]
            return self

    return Mine()


def refits():
    from sklearn.linear_model import RANSACRegressor
    from sklearn.model_selection import TunedThresholdClassifierCV

    line = sordino.LinearRegression(1.0, data_norm=3.0, target_bound=3.0)
    return {
        "a threshold": lambda: TunedThresholdClassifierCV(private(), cv=2).fit(*binary()),
        "imputations": imputed,
        "consensus": lambda: RANSACRegressor(line, min_samples=50, max_trials=3, residual_threshold=10.0).fit(
            *binary()
        ),
        "a wrapper of one's own": lambda: mine().fit(*binary()),
        "a network": lambda: network().fit(*binary()),
    }


def network():
    from sklearn.ensemble import BaggingClassifier

    from sordino.nn import NeuralClassifier

    inner = NeuralClassifier(epsilon=2.0, classes=[0, 1], data_norm=3.0, max_iter=2)
    return BaggingClassifier(inner, n_estimators=2, bootstrap=False)


@pytest.mark.parametrize(
    "kind", ["a threshold", "imputations", "consensus", "a wrapper of one's own", "a network"]
)
@pytest.mark.filterwarnings("ignore")
def test_door_25_whoever_fits_again_on_the_same_records_is_noticed(kind):
    """They were looked for in a list of modules, and these were not on it; networks were never asked."""
    with pytest.warns(errors.PrivacyWarning, match="epsilon of the whole is the sum"):
        refits()[kind]()


def test_door_25_one_fit_in_a_wrapper_and_steps_of_a_pipeline_are_no_refits():
    from sklearn.feature_selection import SelectFromModel
    from sklearn.pipeline import make_pipeline

    SelectFromModel(private()).fit(*binary())
    scaler = sordino.PrivateStandardScaler(1.0, data_norm=3.0)
    pipeline = make_pipeline(scaler, private())
    for _ in range(2):  # each call counts for itself
        SelectFromModel(private()).fit(*binary())
        pipeline.fit(*binary())
    assert not any("add up" in note for note in pipeline[-1].privacy_.notes)


def test_door_25_the_trials_of_a_search_are_not_counted_in_its_report():
    """A note that says which fit of a call this was would tell the number of trials."""
    from sklearn.base import BaseEstimator

    class Around(BaseEstimator):
        def fit(self, X, y):
            model = sordino.LogisticRegression(data_norm=3.0, solver="gd")
            self.search_ = sordino.PrivateSearchCV(model, {"max_iter": [2, 3]}, 3.0, mean_trials=30.0).fit(
                X, y
            )
            return self

    found = Around().fit(*binary()).search_
    assert not any("add up" in note for note in found.privacy_.notes)


def test_door_10_a_pipeline_with_memory_is_refused_before_a_search_is_booked(tmp_path):
    """It raised inside the second trial, and so told that there was more than one."""
    from sklearn.pipeline import make_pipeline

    ledger = sordino.Ledger.open(tmp_path / "ledger.db")
    ledger.create("ward", sordino.BudgetPolicy(epsilon=5.0, delta=1e-5))
    steps = (sordino.PrivateStandardScaler(1.0, data_norm=3.0), private())
    for nested in (False, True):
        pipeline = make_pipeline(*steps, memory=str(tmp_path / "cache"))
        pipeline = make_pipeline(pipeline) if nested else pipeline
        name = "pipeline__logisticregression__max_iter" if nested else "logisticregression__max_iter"
        search = sordino.PrivateSearchCV(pipeline, {name: [2, 3]}, 2.0, ledger=ledger, dataset_id="ward")
        with pytest.raises(errors.UnsupportedError, match="memory=None"):
            search.fit(*binary())
    assert ledger.history("ward") == []


# ---------------------------------------------------------------------- 19: ledgers that are out of reach


def test_door_19_a_ledger_out_of_reach_at_the_end_costs_no_model(tmp_path):
    """`fit` raised "Nothing was reserved" after the last release: the model was paid for and thrown away."""
    place = tmp_path / "ledger.db"
    ledger = sordino.Ledger.open(place)
    ledger.create("ward", sordino.BudgetPolicy(epsilon=5.0, delta=1e-5))
    X = numbers()

    def lost(*facts):
        place.rename(tmp_path / "elsewhere.db") if place.exists() else None

    model = sordino.LogisticRegression(1.0, data_norm=1.0, solver="gd", max_iter=3, ledger=ledger)
    model.set_params(dataset_id="ward", verbose=1)
    with (
        sordino.progress(callback=lost),
        pytest.warns(errors.LedgerWarning, match="could not be told which model"),
        pytest.warns(errors.LedgerWarning, match="stays spent"),
    ):
        model.fit(X, 1 * (X[:, 0] > 0))
    assert model.privacy_.is_private
    (tmp_path / "elsewhere.db").rename(place)
    with sordino.Ledger.open(place, create=False) as again:
        assert [entry.status.value for entry in again.history("ward")] == ["reserved"]


def test_door_19_a_search_is_not_lost_either(tmp_path, monkeypatch):
    """The search had a booking of its own."""
    ledger = sordino.Ledger.open(tmp_path / "ledger.db")
    ledger.create("ward", sordino.BudgetPolicy(epsilon=5.0, delta=1e-5))
    monkeypatch.setattr(ledger, "finish", refusing)
    X = numbers()
    model = sordino.LogisticRegression(data_norm=1.0, solver="gd")
    search = sordino.PrivateSearchCV(model, {"max_iter": [2, 3]}, 2.0, ledger=ledger, dataset_id="ward")
    with pytest.warns(errors.LedgerWarning, match="could not be told"):
        search.fit(X, 1 * (X[:, 0] > 0))
    assert search.privacy_.is_private


def refusing(*facts):
    raise errors.LedgerLockedError("The ledger cannot be used.")


def test_door_19_the_error_of_a_failed_run_is_not_hidden_by_the_ledger(tmp_path, monkeypatch):
    """A ledger out of reach took the place of the error that ended the run."""
    ledger = sordino.Ledger.open(tmp_path / "ledger.db")
    ledger.create("ward", sordino.BudgetPolicy(epsilon=5.0, delta=1e-5))
    monkeypatch.setattr(ledger, "finish", refusing)
    X = numbers()
    model = sordino.LogisticRegression(
        data_norm=1.0, solver="gd", ledger=ledger, dataset_id="ward", verbose=1
    )
    with (
        sordino.progress(callback=stop),
        pytest.warns(errors.LedgerWarning),
        pytest.raises(KeyboardInterrupt),
    ):
        model.fit(X, 1 * (X[:, 0] > 0))


def stop(*facts):
    raise KeyboardInterrupt


def test_door_19_a_mistyped_ledger_is_not_made(tmp_path):
    """`fit(ledger="leger.db")` made an empty ledger there, and then said that it has no such data set."""
    X, place = numbers(), tmp_path / "leger.db"
    model = sordino.LogisticRegression(data_norm=1.0, ledger=place, dataset_id="ward")
    with pytest.raises(errors.LedgerError, match="There is no ledger at"):
        model.fit(X, 1 * (X[:, 0] > 0))
    assert not place.exists()
