"""A private score is near the exact one, its interval covers, and no record moves it further than it may."""

import math

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

import sordino
from sordino.accounting import gaussian_epsilon
from sordino.errors import FitWarning, InvalidInputError, UnsupportedError
from sordino.estimators.metrics import METRICS, Judged, ScoreLimits, metric_row
from sordino.report.run_page import scores_of
from sordino.tables import Number, Person, Target
from sordino.testing import seeded_noise_not_private

EXACT = {"epsilon": float("inf"), "delta": 1e-6}


class Softmax(ClassifierMixin, BaseEstimator):
    """A public classifier: the columns of X are its margins."""

    def __init__(self, classes=(0, 1)):
        self.classes = classes
        self.classes_ = np.asarray(classes)

    def predict_proba(self, X):
        z = np.exp(X - X.max(axis=1, keepdims=True))
        return z / z.sum(axis=1, keepdims=True)

    def predict(self, X):
        return self.classes_[X.argmax(axis=1)]


class First(RegressorMixin, BaseEstimator):
    """A public regressor: the first column."""

    def predict(self, X):
        return X[:, 0]


class Leaky(First):
    """A regressor that looks at all rows."""

    def predict(self, X):
        return X[:, 0] - X[:, 0].mean()


def labelled(n, seed=0, classes=2, sep=2.0, imbalance=1.0):
    public = np.random.default_rng(seed)
    weights = np.ones(classes)
    weights[0] = imbalance
    y = public.choice(classes, size=n, p=weights / weights.sum())
    X = public.normal(size=(n, classes))
    X[np.arange(n), y] += sep
    return X, y


def numbers(n, seed=0):
    public = np.random.default_rng(seed)
    X = public.normal(size=(n, 1))
    return X, X[:, 0] + public.normal(size=n) / 2


# ------------------------------------------------------------------------------- without noise


def test_without_noise_the_scores_are_those_of_scikit_learn():
    X, y = labelled(3000, classes=3, imbalance=4.0)
    model = Softmax((0, 1, 2))

    def score(metric, **options):
        return sordino.private_score(model, X, y, metric=metric, **EXACT, **options)

    assert score("accuracy") == pytest.approx(metrics.accuracy_score(y, model.predict(X)))
    assert score("balanced_accuracy") == pytest.approx(metrics.balanced_accuracy_score(y, model.predict(X)))
    exact = metrics.log_loss(y, model.predict_proba(X))
    assert score("log_loss", loss_bound=50.0) == pytest.approx(exact)
    assert not score("accuracy").privacy.is_private


def test_without_noise_errors_of_regressors_are_those_of_scikit_learn():
    X, y = numbers(2000)
    options = {"bounds": (-20.0, 20.0), **EXACT}
    assert sordino.private_score(First(), X, y, metric="mse", **options) == pytest.approx(
        metrics.mean_squared_error(y, X[:, 0])
    )
    assert sordino.private_score(First(), X, y, **options) == pytest.approx(metrics.r2_score(y, X[:, 0]))


def test_the_area_under_the_curve_is_within_what_its_cells_hide():
    X, y = labelled(4000, imbalance=9.0)
    model = Softmax()
    exact = metrics.roc_auc_score(y, model.predict_proba(X)[:, 1])
    score = sordino.private_score(model, X, y, metric="roc_auc", **EXACT)
    assert score == pytest.approx(exact, abs=0.005)
    assert score.interval[0] < exact < score.interval[1]


def test_the_calibration_curve_is_that_of_scikit_learn():
    from sklearn.calibration import calibration_curve

    X, y = labelled(5000)
    model = Softmax()
    curve = sordino.private_score(model, X, y, metric="calibration", bins=8, **EXACT)
    seen, said = calibration_curve(y, model.predict_proba(X)[:, 1], n_bins=8)
    np.testing.assert_allclose(curve.observed, seen, atol=1e-12)
    np.testing.assert_allclose(curve.predicted, said, atol=1e-12)
    assert ((curve.low <= curve.observed) & (curve.observed <= curve.high)).all()


# ------------------------------------------------------------------------------- intervals


@pytest.mark.statistical
@pytest.mark.parametrize("metric", ["accuracy", "balanced_accuracy", "log_loss", "auc", "mse", "r2"])
@pytest.mark.parametrize(("n", "epsilon"), [(300, 1.0), (3000, 0.3)])
def test_intervals_cover_the_score_on_the_population(metric, n, epsilon):
    """Runs of 1,000 repeats on nine laws are in benchmarks/score_intervals.py; here a quick check of each."""
    regression = metric in ("mse", "r2")
    options = {"bounds": (-5.0, 5.0)} if regression else {}
    model = First() if regression else Softmax()
    make = numbers if regression else (lambda n, seed: labelled(n, seed, sep=2.5, imbalance=3.0))
    truth = sordino.private_score(model, *make(200_000, 999), metric=metric, **EXACT, **options)
    found = []
    for seed in range(100):
        with seeded_noise_not_private(seed):
            X, y = make(n, seed)
            found.append(
                sordino.private_score(model, X, y, metric=metric, epsilon=epsilon, delta=1e-6, **options)
            )
    inside = sum(s.interval[0] <= truth <= s.interval[1] for s in found)
    assert inside >= 86  # of 100 at 95 %: 85 or fewer has a chance below 1e-4


def skewed(n, seed=0):
    """Return counts up to 100 of which a few are very large, and predictions whose R2 is .018."""
    public = np.random.default_rng(seed)
    z = public.normal(size=n)
    counts = public.poisson(public.gamma(0.25, 40.0, size=n) * np.exp(0.3 * z))
    return (10.0 + 3.0 * z)[:, None], np.minimum(counts, 100).astype(float)


def test_r2_is_that_of_squared_errors_as_they_are():
    """Errors were clipped at half of the range, the variance was not: .33 for .018, named R2."""
    X, y = skewed(1000)
    score = sordino.private_score(First(), X, y, bounds=(0, 100), **EXACT)
    assert score == pytest.approx(metrics.r2_score(y, X[:, 0].clip(0, 100)), abs=1e-9)
    assert score.baseline == (0.0, 0.0)
    assert not score.privacy.notes
    with pytest.warns(FitWarning, match="count as 2500 .* are of a number that is R2 or more"):
        above = sordino.private_score(First(), X, y, bounds=(0, 100), loss_bound=2500.0, **EXACT)
    assert above > score + 0.2
    assert above.baseline is None  # a constant scores more than 0 with the same clip
    said = scores_of({"r2": above})[0]["words"]
    assert "Squared errors above 2500 count as 2500" in said
    assert "targets and predictions clipped to their bounds" in said
    assert "bounds of targets and predictions: declared" in above.privacy.public


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [2.0, 20.0])
def test_the_interval_of_r2_holds_that_of_the_population_on_skewed_targets(epsilon):
    X, y = skewed(200_000, 999)
    truth, inside = metrics.r2_score(y, X[:, 0].clip(0, 100)), 0
    for seed in range(100):
        with seeded_noise_not_private(seed):
            score = sordino.private_score(
                First(), *skewed(1000, seed), bounds=(0, 100), epsilon=epsilon, delta=1e-6
            )
        inside += score.interval[0] <= truth <= score.interval[1]
    assert inside >= 86


def test_an_interval_shrinks_with_budget_and_records():
    model = Softmax()
    widths = []
    for n, epsilon in [(300, 0.3), (300, 3.0), (30000, 3.0)]:
        low, high = sordino.private_score(model, *labelled(n), epsilon=epsilon, delta=1e-6).interval
        widths.append(high - low)
    assert widths[0] > widths[1] > widths[2]


# ------------------------------------------------------------------------------- what one record can do


HOSTILE = np.array([0.0, -0.0, 1e-320, 1.0, -1.0, 1e308, -1e308, np.inf, -np.inf, np.nan])


def judged(public, n=500):
    pick = lambda *shape: public.choice(HOSTILE, size=shape)  # noqa: E731
    return Judged(
        public.integers(-1, 2, size=n),
        np.where(public.random(n) < 0.5, public.integers(-1, 2, size=n), pick(n)),
        pick(n),
        pick(n, 2),
        np.nan_to_num(pick(n), nan=-np.inf),
    )


@pytest.mark.parametrize("name", METRICS)
def test_whatever_a_record_holds_its_row_is_in_the_ball_or_refused(name):
    metric = METRICS[name].metric(ScoreLimits.between(-3.0, 7.0))
    with np.errstate(all="ignore"):
        rows = metric.rows(judged(np.random.default_rng(1)))
    away = np.linalg.norm(rows - np.asarray(metric.centre), axis=1)
    assert np.isfinite(away).all()
    assert (away <= metric.radius * (1 + 1e-12)).all()
    assert away.max() > 0.9 * metric.radius  # the ball is not larger than it has to be


@pytest.mark.statistical
@pytest.mark.parametrize(("relation", "moves"), [("add-remove", 0.5), ("replace-one", 1.0)])
def test_an_accuracy_has_the_noise_of_its_plan_and_not_two_thirds_of_it(relation, moves):
    X, y = labelled(400)
    asked = {"epsilon": 1.0, "delta": 1e-6, "relation": relation}
    with seeded_noise_not_private(3):
        found = [sordino.private_score(Softmax(), X, y, **asked) for _ in range(250)]
    exact = float(sordino.private_score(Softmax(), X, y, **EXACT))
    multiplier = found[0].privacy.releases[0].noise_multiplier
    # A Gaussian of this multiplier, for what one record moves, has the epsilon that was asked for.
    assert gaussian_epsilon(1 / multiplier, 1e-6) == pytest.approx(1.0, rel=0.01)
    std = multiplier * moves * math.hypot(1.0, 0.5) / 400  # the baseline beside it has half its radius
    for factor, accepted in ((1.0, True), (2 / 3, False), (1.5, False)):
        p = stats.kstest([float(f) for f in found], stats.norm(exact, std * factor).cdf).pvalue
        assert bool(p > 1e-4) is accepted


def test_a_model_that_looks_at_all_rows_is_refused_before_anything_is_spent(tmp_path):
    ledger = sordino.Ledger.open(tmp_path / "ledger.db")
    ledger.create("ward", sordino.BudgetPolicy(epsilon=5.0, delta=1e-5))
    booked = {"ledger": ledger, "dataset_id": "ward", "delta": 1e-6, "bounds": (-5.0, 5.0)}
    with pytest.raises(UnsupportedError, match="each row by itself"):
        sordino.private_score(Leaky(), *numbers(200), **booked)
    assert not ledger.history("ward")
    sordino.private_score(First(), *numbers(200), **booked)
    assert [entry.description for entry in ledger.history("ward")] == ["private_score (r2)"]


def test_a_person_counts_once_however_many_rows_it_has():
    X, y = labelled(1000)
    wrong = np.flatnonzero(Softmax().predict(X) != y)
    many = np.concatenate([np.arange(1000), np.repeat(wrong[:1], 5000)])
    groups = np.concatenate([np.arange(1000), np.full(5000, wrong[0])])
    alone = sordino.private_score(Softmax(), X, y, **EXACT)
    score = sordino.private_score(Softmax(), X[many], y[many], groups=groups, **EXACT)
    assert score == pytest.approx(float(alone))
    assert score.privacy.unit == "person"
    assert "number of persons: 1000" in score.privacy.public


# ------------------------------------------------------------------------------- input


def test_labels_that_the_model_does_not_know_count_as_wrong_and_raise_nothing():
    X, y = labelled(1000)
    strange = y.copy()
    strange[:500] = 7
    for metric in ("accuracy", "balanced_accuracy", "log_loss", "auc", "calibration"):
        sordino.private_score(Softmax(), X, strange, metric=metric, delta=1e-6)
    score = sordino.private_score(Softmax(), X, strange, **EXACT)
    assert score < 0.5


def test_targets_that_are_no_numbers_are_counted_as_the_worst_loss():
    X, y = numbers(1000)
    y[:10] = np.nan
    y[10:20] = np.inf
    score = sordino.private_score(First(), X, y, metric="mse", bounds=(-5.0, 5.0), **EXACT)
    assert np.isfinite(score)
    assert score > sordino.private_score(First(), X[20:], y[20:], metric="mse", bounds=(-5.0, 5.0), **EXACT)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metric": "f1"}, "metric"),
        ({"metric": "mse"}, "regressor"),
        ({"metric": "log_loss", "loss_bound": -1.0}, "loss_bound"),
        ({"metric": "calibration", "bins": 1}, "bins"),
        ({"confidence": 1.5}, "confidence"),
        ({"groups": [1, 2]}, "one group"),
        ({"epsilon": 0.0}, "epsilon"),
    ],
)
def test_a_wrong_parameter_is_named(options, words):
    with pytest.raises(InvalidInputError, match=words):
        sordino.private_score(Softmax(), *labelled(50), **{"delta": 1e-6, **options})


@pytest.mark.filterwarnings("ignore:.*the model is the mean:sordino.errors.FitWarning")
def test_bounds_of_targets_have_to_be_declared():
    X, y = numbers(50)
    with pytest.raises(InvalidInputError, match="bounds"):
        sordino.private_score(First(), X, y)
    for bounds in [(1.0, 1.0), (2.0, 1.0), (0.0, np.inf), "ab", 3]:
        with pytest.raises(InvalidInputError, match="bounds"):
            sordino.private_score(First(), X, y, bounds=bounds)
    fitted = sordino.LinearRegression(1.0, 1e-6, data_norm=1.0, target_bound=4.0).fit(X, y)
    assert np.isfinite(sordino.private_score(fitted, X, y, epsilon=30.0, delta=1e-6))


def test_a_model_with_a_schema_takes_targets_bounds_and_persons_from_the_table():
    pandas = pytest.importorskip("pandas")
    X, y = numbers(1000)
    table = pandas.DataFrame({"x": X[:, 0], "y": y, "who": np.arange(1000) // 2})
    columns = [Number("x", low=-3.0, high=3.0), Target("y", kind="number", low=-4.0, high=4.0)]
    model = sordino.LinearRegression(4.0, 1e-6, schema=sordino.Schema(columns)).fit(table[["x", "y"]])
    score = sordino.private_score(model, table[["x", "y"]], delta=1e-6)
    assert 0 < score <= 1
    persons = sordino.LinearRegression(4.0, 1e-6, schema=sordino.Schema([*columns, Person("who")])).fit(table)
    score = sordino.private_score(persons, table, delta=1e-6)
    assert (score.privacy.unit, score.privacy.public[0]) == ("person", "number of persons: 500")
    with pytest.raises(InvalidInputError, match="Expected y"):
        sordino.private_score(model, table[["x"]], delta=1e-6)


def test_targets_of_another_type_or_length_are_refused_without_their_values():
    X, y = labelled(50)
    for wrong in [np.array(["secret"] * 50), y[:-1], y[:, None], [{"secret"}] * 50, None]:
        with pytest.raises(InvalidInputError) as caught:
            sordino.private_score(Softmax(), X, wrong, delta=1e-6)
        assert "secret" not in str(caught.value)


def test_a_record_without_a_prediction_does_not_stop_the_score_wherever_it_stands():
    class Root(RegressorMixin, BaseEstimator):
        def predict(self, X):
            with np.errstate(invalid="ignore"):
                return np.sqrt(X[:, 0])

    X = np.ones((50, 1))
    for place in (0, 7):  # the first row is asked again alone
        rows = X.copy()
        rows[place] = -1.0
        score = sordino.private_score(Root(), rows, np.ones(50), metric="mse", bounds=(0, 2))
        assert score.privacy.epsilon <= 1.0


def test_a_model_that_was_not_fitted_is_refused_as_scikit_learn_does():
    X, y = np.zeros((5, 2)), np.zeros(5)
    search = sordino.PrivateSearchCV(sordino.LinearRegression(), {"max_iter": [1, 2]})
    for model in (sordino.LinearRegression(), make_pipeline(sordino.LinearRegression()), search):
        with pytest.raises(NotFittedError):
            sordino.private_score(model, X, y, bounds=(0, 1))
        with pytest.raises(NotFittedError):
            sordino.private_scores_by(model, X, y, by={"a": (y, [0])}, bounds=(0, 1))


def test_subgroups_of_a_model_of_persons_need_owners():
    rows = np.linspace(-1, 1, 60)[:, None]
    model = sordino.LinearRegression(4.0, data_norm=1.0).fit(rows, rows[:, 0], groups=np.arange(60) // 2)
    by = {"half": (np.where(rows[:, 0] > 0, "b", "a"), ["a", "b"])}
    how = {"by": by, "bounds": (-1, 1)}
    with pytest.raises(InvalidInputError, match="Expected groups, the owner of each row"):
        sordino.private_scores_by(model, rows, rows[:, 0], **how)
    table = sordino.private_scores_by(model, rows, rows[:, 0], **how, groups=np.arange(60) // 2)
    assert table.privacy.unit == "person"


@pytest.mark.parametrize(
    ("name", "value", "worse"),
    [("mae", 2.0, True), ("mae", 0.5, False), ("r2", -0.1, True), ("neg_mean_squared_error", -2.0, True)],
)
def test_what_is_worse_than_the_constant(name, value, worse):
    row, constant = metric_row(name), {"r2": 0.0, "mae": 1.0}.get(name, -1.0)
    assert row.is_worse(name, value, (), (constant, 0.0)) is worse
    assert row.is_worse(name, constant, (), (constant, 0.0)) is False
    assert row.is_worse(name, value, (-math.inf, 1.0), (constant, 0.0)) is None
    assert row.is_worse(name, value, (), (constant, 1.0)) is None
    assert row.is_worse(name, value, (), None) is None
    apart, around = (value - 1e-3, value + 1e-3), (constant - 1e-3, constant + 1e-3)
    assert ("is worse than" in row.verdict(name, value, apart, (constant, 0.0))) is worse
    assert "cannot be told from" in row.verdict(name, value, around, (constant, 0.0))
    assert row.is_worse(name, value, around, (constant, 0.0)) is None
