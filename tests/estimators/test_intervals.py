"""Paid intervals: they cover, they are about as narrow as can be, and what they cannot do they say."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

import sordino
from sordino.errors import FitWarning, InvalidInputError, NotPrivateWarning, UnsupportedError
from sordino.estimators.intervals import units_of
from sordino.tables import Category, Date, Flag, Number, Ordinal, Person, Target, Text

BETA = np.array([0.5, -0.3, 0.0])


def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.uniform(-1, 1, (n, 3))
    return X, X @ BETA + 0.2 + (0.2 + 0.5 * np.abs(X[:, 0])) * rng.normal(size=n)


def fitted(X: np.ndarray, y: np.ndarray, **more: object) -> sordino.LinearRegression:
    settings = {"epsilon": 0.5, "delta": 1e-6, "data_norm": math.sqrt(3), "target_bound": 4.0, **more}
    return sordino.LinearRegression(**settings).fit(X, y)


def test_intervals_cover_coefficients_and_are_at_most_twice_as_wide_as_sampling_alone():
    rng, covered, widths = np.random.default_rng(0), [], []
    for _ in range(25):
        X, y = draw(rng, 4000)
        found = sordino.intervals(fitted(X, y), X, y, epsilon=2.0, delta=1e-6)
        covered.append((found.low <= BETA) & (found.high >= BETA))
        scores = (y - X @ BETA - 0.2)[:, None] * X * 3.0
        widths.append(found.errors / (scores.std(axis=0) / math.sqrt(len(y))))
    assert 0.85 <= np.mean(covered) <= 1.0
    assert 1.0 < np.mean(widths) < 2.1  # scores as long as the bounds allow: see OneStep


def test_without_noise_it_is_the_sandwich_of_least_squares():
    X, y = draw(np.random.default_rng(1), 3000)
    found = sordino.intervals(fitted(X, y), X, y, epsilon=math.inf)
    rows = np.column_stack([X, np.ones(len(X))])
    inverse = np.linalg.inv(rows.T @ rows)
    exact = inverse @ rows.T @ y
    scores = rows * (y - rows @ exact)[:, None]
    errors = np.sqrt(np.diag(inverse @ scores.T @ scores @ inverse))
    assert found.coef_ == pytest.approx(exact[:3], abs=1e-4)
    assert found.intercept_ == pytest.approx(exact[3], abs=1e-4)
    assert found.errors == pytest.approx(errors[:3], rel=0.02)


def test_odds_and_rates_have_ratios_and_expected_values_have_intervals():
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, (8000, 2))
    chance = 1 / (1 + np.exp(-X @ [1.5, 0.0]))
    y = (rng.uniform(size=8000) < chance).astype(int)
    model = sordino.LogisticRegression(1.0, 1e-6, data_norm=math.sqrt(2), classes=[0, 1]).fit(X, y)
    found = sordino.intervals(model, X, y, epsilon=1.0, delta=1e-6, confidence=0.99)
    assert found.ratios.shape == (2, 3)
    assert found.ratios[0, 1] < math.exp(1.5) < found.ratios[0, 2]
    assert found.ratios[1, 1] < 1.0 < found.ratios[1, 2]
    mean, low, high = found.predict(X)
    assert np.all((low <= mean) & (mean <= high) & (low > 0) & (high < 1))
    assert np.mean((low <= chance) & (chance <= high)) > 0.9
    counts = rng.poisson(np.exp(X @ [0.5, -0.2] + 0.5)).astype(float)
    rates = sordino.LinearRegression(
        1.0, 1e-6, loss="poisson", data_norm=math.sqrt(2), target_bound=30.0
    ).fit(X, counts)
    found = sordino.intervals(rates, X, counts, epsilon=1.0, delta=1e-6, confidence=0.99)
    assert found.ratios[0, 1] < math.exp(0.5) < found.ratios[0, 2]


COLUMNS = [Number("age", 0, 100), Category("town", ["a", "b"]), Target("y", "number", low=-3, high=5)]


def people(n: int, rng: np.random.Generator) -> pd.DataFrame:
    table = pd.DataFrame({"age": rng.uniform(0, 100, n), "town": np.array(["a", "b"])[rng.integers(0, 2, n)]})
    bent = np.abs(table["age"] - 50) / 25 + (table["town"] == "b")
    return table.assign(y=bent + 0.5 * rng.normal(size=n))


def test_effects_of_a_table_have_bands_that_cover_them():
    rng = np.random.default_rng(3)
    table = people(12_000, rng)
    model = sordino.LinearRegression(1.0, 1e-6, schema=sordino.Schema(COLUMNS), pairs=False, knots=5).fit(
        table
    )
    shapes = {s.name: s for s in sordino.intervals(model, table, epsilon=2.0, delta=1e-6).shapes_}
    age = shapes["age"]
    truth = np.abs(np.array(age.at[0]) - 50) / 25
    truth -= truth.mean()
    assert np.all(np.abs(age.effect - truth) < 3.5 * age.noise)
    assert np.all(age.noise < 0.25)
    town = shapes["town"]
    assert abs(town.effect[1] - town.effect[0] - 1.0) < 0.2


def test_persons_are_protected_as_a_whole_and_widen_intervals():
    rng = np.random.default_rng(4)
    table = people(6000, rng).assign(who=np.arange(6000) // 3)
    table["y"] += np.repeat(rng.normal(size=2000), 3)
    schema = sordino.Schema([*COLUMNS, Person("who")])
    model = sordino.LinearRegression(2.0, 1e-6, schema=schema, pairs=False, knots=1).fit(table)
    found = sordino.intervals(model, table, epsilon=2.0, delta=1e-6)
    assert found.privacy.unit == "person"
    assert "number of persons: 2000" in found.privacy.public
    with pytest.raises(InvalidInputError, match="owner of each row"):
        sordino.intervals(model, table.drop(columns="who"), epsilon=2.0)


def test_new_targets_are_covered_as_often_as_was_asked():
    rng = np.random.default_rng(5)
    (X, y), (X2, y2), (X3, y3) = draw(rng, 4000), draw(rng, 4000), draw(rng, 20_000)
    model = fitted(X, y)
    for share in (0.8, 0.95):
        found = sordino.prediction_intervals(model, X2, y2, epsilon=1.0, coverage=share)
        mean, low, high = found.predict(X3)
        assert np.mean((low <= y3) & (y3 <= high)) == pytest.approx(share, abs=0.02)
        assert np.all((low <= mean) & (mean <= high))
        assert found.privacy.is_private


@pytest.mark.filterwarnings("ignore:.*the model is the mean:sordino.errors.FitWarning")
def test_effects_that_few_large_targets_carry_are_covered():
    covered = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (20_000, 2))
        y = (rng.random(20_000) < 0.01) * 50.0 * (1.0 + X[:, 0])
        model = sordino.LinearRegression(1.0, 1e-6, data_norm=1.5, target_bound=100.0).fit(X, y)
        found = sordino.intervals(model, X, y, epsilon=1.0, delta=1e-6)
        _, low, high = found.predict(np.zeros((1, 2)))
        covered.append([found.low[0] < 0.5 < found.high[0], low[0] < 0.5 < high[0]])
    assert np.mean(covered) >= 0.8


def test_a_model_too_far_off_for_one_step_leaves_ends_open_and_says_so():
    rng = np.random.default_rng(8)
    X = rng.uniform(-1, 1, (20_000, 1))
    y = (rng.random(20_000) < 1 / (1 + np.exp(22 - 25 * X[:, 0]))).astype(int)
    model = sordino.LogisticRegression(8.0, 1e-6, data_norm=1.0, classes=[0, 1]).fit(X, y)
    with pytest.warns(FitWarning, match="all ends are open"):
        found = sordino.intervals(model, X, y, epsilon=8.0, delta=1e-6)
    assert found.low[0] == -math.inf
    assert found.high[0] == math.inf


def test_new_targets_are_covered_where_ranks_are_noisy():
    rng, shares = np.random.default_rng(9), []
    for _ in range(8):
        (X, y), (X2, y2) = draw(rng, 4000), draw(rng, 4000)
        found = sordino.prediction_intervals(fitted(X, y), X, y, epsilon=0.2, delta=1e-6, coverage=0.9)
        _, low, high = found.predict(X2)
        shares.append(np.mean((low <= y2) & (y2 <= high)))
    assert 0.9 <= np.mean(shares) < 0.97


@pytest.mark.filterwarnings("ignore:.*the model is the mean:sordino.errors.FitWarning")
@pytest.mark.filterwarnings("ignore:.*their declared bounds:sordino.errors.FitWarning")
@pytest.mark.parametrize("rare", [0.0, 0.03])
def test_targets_that_are_all_alike_are_covered(rare):
    """A radius a hair below an error that nearly all records have covered nothing in half of the calls."""
    rng, shares, radii = np.random.default_rng(11), [], []

    def targets(n):
        return 3e5 + 1e5 * (rng.random(n) < rare)

    X = rng.uniform(-1, 1, (3000, 2))
    model = sordino.LinearRegression(1.0, 1e-6, data_norm=1.5, target_bound=1e6).fit(X, targets(3000))
    model.coef_ = np.zeros(2)  # as it is where nothing can be learned
    for _ in range(12):
        found = sordino.prediction_intervals(model, X, targets(3000), epsilon=1.0, delta=1e-6, coverage=0.9)
        _, low, high = found.predict(X)
        y = targets(3000)
        shares.append(np.mean((low <= y) & (y <= high)))
        radii.append(found.radius)
    assert min(shares) > 0.95
    assert np.median(radii) < 9e4


def test_prediction_intervals_of_persons_ask_one_row_of_each():
    X, y = draw(np.random.default_rng(6), 900)
    found = sordino.prediction_intervals(fitted(X, y), X, y, coverage=0.7, groups=np.arange(900) // 3)
    assert found.privacy.unit == "person"


@pytest.mark.filterwarnings("ignore:.*the model is the mean:sordino.errors.FitWarning")
def test_what_has_no_intervals_is_refused():
    X, y = draw(np.random.default_rng(7), 500)
    with pytest.raises(UnsupportedError, match="curvature that one step can use"):
        sordino.intervals(fitted(X, y, loss="quantile"), X, y)
    with pytest.raises(InvalidInputError, match="one target per row"):
        sordino.intervals(fitted(X, y), X, y[:-1])
    with pytest.raises(InvalidInputError, match="Expected y"):
        sordino.intervals(fitted(X, y), X)
    wide = sordino.LinearRegression(1.0, data_norm=1.0, target_bound=1.0).fit(np.eye(500, 401), np.zeros(500))
    with pytest.raises(UnsupportedError, match="at most 400 columns"):
        sordino.intervals(wide, np.eye(500, 401), np.zeros(500))
    with pytest.raises(UnsupportedError, match="at most 64 columns"):  # of persons squares are listed
        sordino.intervals(wide, np.eye(500, 401), np.zeros(500), groups=np.arange(500))
    schema = sordino.Schema([Number("age", 0, 100), Text("note", 4), Target("y", "number", low=0, high=1)])
    table = pd.DataFrame({"age": np.arange(200.0) / 2, "note": "word", "y": 0.5})
    with pytest.raises(UnsupportedError, match="hashed words"):
        sordino.intervals(sordino.LinearRegression(1.0, schema=schema).fit(table), table)
    classes = sordino.LogisticRegression(1.0, data_norm=2.0, classes=[0, 1]).fit(X, y > 0)
    with pytest.raises(InvalidInputError, match="Expected a regressor"):
        sordino.prediction_intervals(classes, X, y > 0)


def test_what_rests_on_a_model_without_privacy_says_so():
    """Scores and intervals of a model of epsilon inf, on its own records, said "private" and no more."""
    X, y = draw(np.random.default_rng(3), 500)
    model = fitted(X, y, epsilon=math.inf)
    parts = {"half": (np.arange(500) % 2, [0, 1])}
    asked = {
        "effects": lambda: sordino.intervals(model, X, y).privacy,
        "targets": lambda: sordino.prediction_intervals(model, X, y, coverage=0.7).privacy,
        "a score": lambda: sordino.private_score(model, X, y).privacy,
        "parts": lambda: sordino.private_scores_by(model, X, y, by=parts, bounds=(-4.0, 4.0)).privacy,
        "a pipeline": lambda: sordino.private_score(make_pipeline(model), X, y, bounds=(-4.0, 4.0)).privacy,
    }
    for name, ask in asked.items():
        with pytest.warns(NotPrivateWarning, match="The model itself is not private") as told:
            report = ask()
        assert str(told[0].message) in report.notes, name
        assert report.is_private == (name != "effects"), name  # an estimate contains the model's own
    assert sordino.private_score(fitted(X, y), X, y, metric="mse").privacy.notes == ()


def test_few_records_open_the_ends_of_new_targets_with_a_warning():
    rng = np.random.default_rng(10)
    model = fitted(*draw(rng, 4000))
    for n in (20, 100):
        with pytest.warns(FitWarning, match="declared bounds"):
            found = sordino.prediction_intervals(model, *draw(rng, n), epsilon=1.0)
        _, low, high = found.predict(rng.uniform(-1, 1, (50, 3)))
        assert found.radius == math.inf  # it was 0, or 7e11
        assert (low == -4.0).all()
        assert (high == 4.0).all()
    assert sordino.prediction_intervals(model, *draw(rng, 200), epsilon=1.0).radius < 2.0


def test_a_rare_group_with_ten_times_the_errors_has_its_own_width():
    ratios = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        flag = (rng.random(10_000) < 0.03) * 1.0
        X = np.column_stack([flag, rng.uniform(-1, 1, 10_000)])
        errors = np.where(flag > 0, 1.0, 0.1) * rng.uniform(-1.7, 1.7, 10_000)
        model = fitted(
            X, flag + 0.3 * X[:, 1] + errors, epsilon=8.0, data_norm=math.sqrt(2), target_bound=5.0
        )
        found = sordino.intervals(model, X, flag + 0.3 * X[:, 1] + errors, epsilon=8.0, delta=1e-6)
        ratios.append(
            found.errors[0] * math.sqrt(flag.sum())
        )  # the flag's own mean has errors of deviation .98
    assert 0.9 < np.median(ratios) < 1.4  # squares taken as alike gave about .5


@pytest.mark.parametrize("share", [1.0, 0.1])
def test_the_step_of_few_records_is_not_too_long(share):
    """A clip of curvatures that noisy counts put too low made .4 .67, and 1.65 of a flag of a tenth."""
    rng, middles, covered = np.random.default_rng(5), [], []
    for _ in range(15):
        x = np.where(rng.random(1000) < share, rng.uniform(-1, 1, 1000) if share == 1.0 else 1.0, 0.0)[
            :, None
        ]
        y = 0.4 * x[:, 0] + 0.05 * rng.normal(size=1000)
        model = sordino.LinearRegression(1.0, data_norm=1.0, target_bound=1.0).fit(x, y)
        found = sordino.intervals(model, x, y, epsilon=1.0)
        middles.append(found.coef_[0])
        covered.append(found.low[0] <= 0.4 <= found.high[0])
    assert np.mean(middles) == pytest.approx(0.4, abs=0.12 if share < 1.0 else 0.03)
    assert np.mean(covered) >= 0.8


def test_expected_values_of_a_table_are_known_though_hats_gap_and_constant_repeat_each_other():
    """They were measured in other units than rows are, so that no row seemed to be one of the table."""
    rng = np.random.default_rng(2)
    schema = sordino.Schema([Number("x", 0, 100), Target("y", "number", low=0, high=100)])
    x = rng.uniform(0, 100, 20_000)
    table = pd.DataFrame({"x": x, "y": np.clip(40 + 0.2 * x + 4 * rng.normal(size=x.size), 0, 100)})
    model = sordino.LinearRegression(1.0, schema=schema, pairs=False).fit(table)
    _, low, high = sordino.intervals(model, table, epsilon=1.0).predict(
        pd.DataFrame({"x": [5.0, 50.0, 95.0]})
    )
    assert (high - low < 4.0).all()  # from bound to bound before
    assert ((low < [41.5, 50.5, 59.5]) & (high > [40.5, 49.5, 58.5])).all()


def test_labels_of_a_table_have_ends_though_nobody_has_a_gap():
    """Gaps that no record has were taken for margins that may be 22 off, the more the more records."""
    rng, schema = (
        np.random.default_rng(4),
        sordino.Schema([*COLUMNS[:2], Target("y", "category", ["n", "y"])]),
    )
    table, covered = people(20_000, rng), []
    age = table["age"].to_numpy() / 100
    for _ in range(5):
        yes = rng.random(20_000) < 1 / (1 + np.exp(1.0 - 2.0 * age))
        told = table.assign(y=np.where(yes, "y", "n"))
        model = sordino.LogisticRegression(1.0, 1e-6, schema=schema, pairs=False, knots=3).fit(told)
        shapes = {s.name: s for s in sordino.intervals(model, told, epsilon=1.0, delta=1e-6).shapes_}
        truth = 2.0 * (np.array(shapes["age"].at[0]) / 100 - 0.5)
        assert (shapes["age"].noise < 0.4).all()
        covered.append(np.abs(shapes["age"].effect - truth) < 1.96 * shapes["age"].noise)
    assert np.mean(covered) > 0.7


def test_curvature_below_its_noise_leaves_ends_open():
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (60, 3))
    y = X @ BETA + 0.1 * rng.normal(size=60)
    with pytest.warns(FitWarning, match="curvature is less than its noise"):
        found = sordino.intervals(fitted(X, y, epsilon=8.0), X, y, epsilon=0.05, delta=1e-6)
    assert (found.high == math.inf).all()


def visits(rng: np.random.Generator, n: int) -> pd.DataFrame:
    """Return a table with curves, wards of which nobody has the last, and two columns that act as a pair."""
    table = pd.DataFrame({"age": rng.uniform(18, 95, n), "stay": np.minimum(rng.exponential(12, n), 40)})
    table["ward"] = np.array(list("abc"))[rng.choice(3, n, p=[0.5, 0.3, 0.2])]
    table["sex"] = np.array(["f", "m"])[rng.integers(0, 2, n)]
    age, stay = (table["age"] - 56) / 38, table["stay"] / 40
    y = 2 * age**2 + 1.5 * np.sqrt(stay) + (table["ward"] == "c") + 1.2 * age * (table["sex"] == "m")
    return table.assign(y=np.clip(y + 0.6 * rng.normal(size=n), -2, 6))


@pytest.mark.parametrize("labels", [False, True])
def test_a_default_fit_with_pairs_has_intervals_of_its_columns_that_cover(labels):
    """It was refused for its columns. What nobody has, ward z, other values and gaps, looked known."""
    wards, target = Category("ward", list("abcz")), Target("y", "number", low=-2, high=6)
    target = Target("y", "category", ["n", "y"]) if labels else target
    columns = [Number("age", 18, 95), Number("stay", 0, 40), wards, Category("sex", ["f", "m"])]
    schema, kind = sordino.Schema([*columns, target]), sordino.LinearRegression
    kind, covered, widths = sordino.LogisticRegression if labels else kind, [], []

    def table(seed: int, n: int) -> pd.DataFrame:
        rng = np.random.default_rng(seed)
        found = visits(rng, n)
        yes = rng.random(n) < 1 / (1 + np.exp(1.5 - found["y"]))
        return found.assign(y=np.where(yes, "y", "n")) if labels else found

    for seed in range(6):
        model = kind(1.0, 1e-6, schema=schema).fit(table(seed, 12_000))
        assert len(model.encoder_.basis.pairs) == 6
        found = sordino.intervals(model, table(seed, 12_000), epsilon=1.0, delta=1e-6)
        assert "best model of single columns, curves with 5 knots" in found.privacy.notes[-1]
        if seed == 0:  # the truth: all ends are far inside of those at epsilon 1
            start = kind(30.0, 1e-6, schema=schema, pairs=False, knots=5).fit(table(99, 150_000))
            true = sordino.intervals(start, table(99, 150_000), epsilon=30.0, delta=1e-6)
        for shape, exact in ((s, e) for s in found.shapes_ for e in true.shapes_ if s.columns == e.columns):
            known = np.isfinite(shape.noise)
            covered += [*(np.abs(shape.effect - exact.effect)[known] < 1.96 * shape.noise[known])]
            assert known.tolist() == [value not in ("z", "(other)", "(missing)") for value in shape.at[0]]
            widths.append(float(np.median(shape.noise[known])))
    assert np.mean(covered) >= 0.9
    assert np.median(widths) < (0.6 if labels else 0.25)


@pytest.mark.parametrize("pairs", [False, [("age", "town"), ("age", "grade")]])
@pytest.mark.parametrize("missing", ["column", "zero", 40.0])
def test_no_row_of_a_table_is_longer_than_its_corners_say(pairs, missing):
    """A row beyond would be clipped, which makes steps too long."""
    rng = np.random.default_rng(6)
    columns = [
        Number("age", 0, 100, missing=missing),
        Category("town", ["a", "b", "c"], missing="other" if missing == 40.0 else missing),
        Ordinal("grade", ["low", "mid", "high"]),
        Flag("smoker"),
        Date("day", "2020-01-01", "2021-01-01"),
    ]
    table = pd.DataFrame(
        {
            "age": rng.uniform(-20, 120, 600),
            "town": rng.choice(["a", "b", "c", "d"], 600),
            "grade": rng.choice(["low", "mid", "high", "none"], 600),
            "smoker": rng.choice(["yes", "no"], 600),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 360, 600), unit="D"),
        }
    )
    table = table.mask(rng.random(table.shape) < 0.1).assign(y=rng.normal(size=600))
    schema = sordino.Schema([*columns, Target("y", "number", low=-3, high=3)])
    model = sordino.LinearRegression(1.0, 1e-6, schema=schema, pairs=pairs, knots=3).fit(table)
    encoded = model.encoder_.transform(table)
    encoded = encoded.toarray() if hasattr(encoded, "toarray") else encoded
    rows, units = np.column_stack([encoded, np.ones(600)]), units_of(model)
    own = rows @ units.own
    assert own[:, -1] == pytest.approx(units.constant)
    assert np.linalg.norm(own[:, :-1], axis=1).max() <= units.norm * (1 + 1e-9)
    assert own @ units.back == pytest.approx(rows, abs=1e-8)
    weights = rng.normal(size=own.shape[1])
    low, high = units.ends(weights)
    assert low <= (own @ weights).min() <= (own @ weights).max() <= high


@pytest.mark.filterwarnings("ignore:.*targets are skewed:sordino.errors.FitWarning")
def test_the_effect_of_a_rare_flag_on_skewed_amounts_is_inside():
    columns = [Number("age", 18, 95), Flag("flag"), Target("cost", "number", low=0, high=50_000)]
    schema, covered, truth = sordino.Schema(columns), [], 3194.0  # of three million such records
    for seed in range(6):
        rng = np.random.default_rng((28, seed))
        table = pd.DataFrame({"age": rng.uniform(18, 95, 20_000), "flag": rng.random(20_000) < 0.02})
        table["cost"] = np.minimum(np.exp(rng.normal(6, 1.2, 20_000)) * (1 + 4 * table["flag"]), 50_000)
        model = sordino.LinearRegression(1.0, 1e-6, schema=schema, pairs=False).fit(table)
        found = sordino.intervals(model, table, epsilon=1.0, delta=1e-6)
        flag = next(s for s in found.shapes_ if s.name == "flag")
        covered.append(abs(flag.effect[1] - flag.effect[0] - truth) < 2 * flag.noise[:2].sum())
        assert flag.noise[:2].sum() < truth  # it has ends
    assert sum(covered) >= 4
