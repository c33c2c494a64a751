"""Labels, counts and numbers beside columns of other units; few records of a rare class; by the default."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.linear_model import LinearRegression as PlainLinear
from sklearn.metrics import log_loss

from sordino import LinearRegression, LogisticRegression, Schema
from sordino.errors import FitWarning
from sordino.tables import Category, Flag, Number, Target
from sordino.testing import seeded_noise_not_private

TESTED = 10_000


def beside_a_dose(n, seed):
    """Return a normal column and one that 2 % of the records have, from 0 to 1,000, and true log odds."""
    public = np.random.default_rng([n, seed])
    dose = np.where(public.random(n) < 0.02, 1000 * public.random(n), 0.0)
    X = np.column_stack([np.clip(public.normal(size=n), -3, 3), dose])
    return public, X, X @ [1.0, 0.004] - 0.5


@pytest.mark.parametrize(("n", "most"), [(1000, 0.02), (5000, 0.01), (20_000, 0.005)])
def test_labels_beside_a_rare_dose_are_nearly_as_good_as_true_odds(n, most):
    excess = []
    for seed in range(4):
        public, X, odds = beside_a_dose(n + TESTED, seed)
        y = (public.random(len(odds)) < expit(odds)).astype(int)
        with seeded_noise_not_private(seed):
            model = LogisticRegression(1.0, 1e-5, data_norm=1001.0, classes=[0, 1]).fit(X[:n], y[:n])
        found = [log_loss(y[n:], p) for p in (model.predict_proba(X[n:])[:, 1], expit(odds[n:]))]
        excess.append(found[0] - found[1])
    assert np.mean(excess) < most  # .147, .051 and .013 where all columns had the unit of the longest


@pytest.mark.parametrize("small", [3e-9, 1e-15])
def test_a_column_of_any_unit_is_followed(small):
    """Entries 30 octaves below the longest row were not counted: a coefficient of 0, R2 .30 for .60."""
    public, n = np.random.default_rng(0), 5000
    X = public.uniform(0, 1, (n, 2))
    odds = 3 * X[:, 0] - 3 * X[:, 1]
    y, classes = odds + public.normal(size=n).clip(-4, 4), public.random(n) < expit(odds)
    X[:, 0] *= small
    with seeded_noise_not_private(0):
        numbers = LinearRegression(1.0, 1e-6, data_norm=1.0, target_bound=8.0).fit(X, y)
        labels = LogisticRegression(1.0, 1e-6, data_norm=1.0, classes=[False, True]).fit(X, classes)
    assert numbers.score(X, y) > 0.57
    assert log_loss(classes, labels.predict_proba(X)) < log_loss(classes, expit(odds)) + 0.005


def test_noise_in_counts_of_sizes_is_not_taken_for_long_rows():
    """Three deviations of noise made the unit 800 typical rows: one fit in sixty lost all it had learned."""
    public, n = np.random.default_rng(2), 50_000
    X = np.column_stack([public.uniform(0, 1, n), public.uniform(0, 1000, n)])
    odds = 3 * X[:, 0] - 0.003 * X[:, 1]
    y = public.random(n) < expit(odds)
    with seeded_noise_not_private(2):
        model = LogisticRegression(1.0, 1e-6, data_norm=1010.0, classes=[False, True]).fit(X, y)
    assert log_loss(y, model.predict_proba(X)) < log_loss(y, expit(odds)) + 0.002  # .69 for .56


def mixed_columns(n):
    """Return columns of six units, one far from zero, and their slopes."""
    public = np.random.default_rng(3)
    X = np.column_stack(
        [
            np.clip(public.normal(size=n), -3, 3),
            100 * public.random(n),
            public.random(n) < 0.3,
            public.random(n) < 0.05,
            2000 + 5 * public.normal(size=n).clip(-3, 3),
            public.exponential(10, n).clip(0, 200),
        ]
    )
    slopes = np.array([0.7, 0.01, 0.5, 1.0, 0.05, 0.03])
    odds = (X - X.mean(axis=0)) @ slopes
    return X, (public.random(n) < expit(odds)).astype(int), slopes


def test_slopes_of_columns_in_six_units_and_their_stated_noise_are_true():
    X, y, slopes = mixed_columns(20_000)
    found, stated = [], []
    for seed in range(30):
        with seeded_noise_not_private(seed):
            model = LogisticRegression(1.0, 1e-6, data_norm=2050.0, classes=[0, 1]).fit(X, y)
        found.append(model.coef_.ravel())
        stated.append(np.ravel(model.coef_noise_))
    np.testing.assert_allclose(np.mean(found, axis=0) / slopes, 1.0, atol=0.2)  # .07 to 1.03 before
    ratio = np.std(found, axis=0, ddof=1) / np.sqrt(np.square(stated).mean(axis=0))
    assert 0.6 < np.median(ratio) < 1.25
    assert ratio.max() < 1.6  # of thirty fits


def test_counts_beside_money_do_not_go_astray_by_noise_of_the_offset():
    lost, n = [], 5000
    for seed in (2, 3, 9, 11):  # .15, .18, .18 and 2.7 before noise of the gradient moved no offset
        public = np.random.default_rng([seed, 99])
        money = np.exp(10 + 0.7 * public.normal(size=n + TESTED)).clip(0, 3e5)
        X = np.column_stack([np.clip(public.normal(size=n + TESTED), -3, 3), money])
        means = np.exp(np.minimum(0.5 * (X @ [1.0, 2e-5] - 0.5), 3.0))
        y = public.poisson(means).clip(0, 60).astype(float)
        with seeded_noise_not_private(seed):
            model = LinearRegression(1.0, 1e-5, loss="poisson", data_norm=3.01e5, target_bound=60.0)
            predicted = model.fit(X[:n], y[:n]).predict(X[n:])
        rest = y[n:]
        lost.append(np.mean(predicted - rest * np.log(predicted) - means[n:] + rest * np.log(means[n:])))
    assert max(lost) < 0.05


@pytest.mark.parametrize(("persons", "rows", "columns"), [(500, 5, 20), (800, 5, 8), (300, 1, 4)])
def test_few_positives_are_no_worse_than_their_share(persons, rows, columns):
    excess, n = [], persons * rows
    for seed in range(8):
        public = np.random.default_rng([persons, seed])
        X = np.clip(public.normal(size=(n + TESTED, columns)), -3, 3)
        odds = X @ public.normal(size=columns) / np.sqrt(columns)
        y = (public.random(len(X)) < expit(odds - 3.3)).astype(int)
        owners = np.repeat(np.arange(persons), rows)
        with seeded_noise_not_private(seed):
            model = LogisticRegression(1.0, 1e-5, data_norm=3 * np.sqrt(columns), classes=[0, 1])
            model.fit(X[:n], y[:n], groups=owners)
        rest = y[n:]
        constant = log_loss(rest, np.full(TESTED, rest.mean()))
        excess.append(log_loss(rest, model.predict_proba(X[n:])) - constant)
    assert np.mean(excess) < 0.004  # .008 and .006 where the odds of the shares grew with the slope


def test_a_column_that_counts_do_not_show_leaves_rows_their_unit():
    """Sums of rows of no known size once had a mean of 1e-8, and rows were in units of it: R2 -10."""
    found = []
    for seed in range(5):
        rng = np.random.default_rng([seed, 3])
        X = (rng.random((4524, 1)) < 0.034).astype(float)
        y = 8.0 * X[:, 0] + rng.standard_t(3, 4524)
        with seeded_noise_not_private(seed):
            model = LinearRegression(3.9, 1e-5, data_norm=1.27, target_bound=50.0).fit(X[:524], y[:524])
        found.append(model.score(X[524:], y[524:]))
    assert np.median(found) > 0.2


@pytest.mark.parametrize(
    ("n", "columns", "rate", "epsilon"),
    [(2000, 1, 0.01, 1.0), (500, 2, 0.03, 4.0), (500, 2, 0.03, 1.0), (8000, 5, 0.003, 1.0)],
)
def test_columns_that_are_all_rare_flags_throw_no_record(n, columns, rate, epsilon):
    """In the unit of rows without a flag the others were hundreds long: R2 -3 to -22, log loss .1 to .5."""
    bounds, lost, excess = {"data_norm": np.sqrt(columns)}, [], []
    for seed in range(6):
        rng = np.random.default_rng([seed, n])
        X = (rng.random((n + TESTED, columns)) < rate).astype(float)
        y = 8.0 * X[:, 0] + rng.standard_t(3, n + TESTED)
        labels = (rng.random(n + TESTED) < expit(3.0 * X[:, 0] - 1.0)).astype(int)
        with seeded_noise_not_private(seed):
            model = LinearRegression(epsilon, 1e-5, target_bound=50.0, **bounds).fit(X[:n], y[:n])
            classes = LogisticRegression(epsilon, 1e-5, classes=[0, 1], **bounds).fit(X[:n], labels[:n])
        lost.append(model.score(X[n:], y[n:]))
        shares = np.full(TESTED, labels[n:].mean())
        excess.append(log_loss(labels[n:], classes.predict_proba(X[n:])[:, 1]) - log_loss(labels[n:], shares))
    assert min(lost) > -0.1
    assert max(excess) < 0.03


def test_numbers_beside_a_rare_dose_are_those_of_least_squares():
    found = []
    for seed in range(3):
        public, X, signal = beside_a_dose(5000 + TESTED, seed)
        y = signal + public.normal(size=len(signal))
        with seeded_noise_not_private(seed):
            model = LinearRegression(1.0, 1e-5, data_norm=1001.0, target_bound=12.0).fit(X[:5000], y[:5000])
        found.append(np.mean(np.square(model.predict(X[5000:]) - signal[5000:])))
    assert (
        max(found) < 0.02
    )  # of a signal whose variance is about 1.1; .01 to .42 where all columns had one unit


@pytest.mark.parametrize(("n", "epsilon"), [(1000, 0.5), (3000, 0.5)])
@pytest.mark.parametrize("classes", [2, 3])
def test_noise_in_the_weight_of_a_long_rare_column_throws_no_log_odds(classes, n, epsilon):
    """One record in twenty has the column, a thousand times as long as the others."""
    lost = []
    for seed in range(4):
        public = np.random.default_rng([n, seed, classes])
        rare = np.where(public.random(n + TESTED) < 0.05, 1000 * public.exponential(size=n + TESTED), 0.0)
        X = np.column_stack([np.clip(public.normal(size=(n + TESTED, 3)), -3, 3), rare.clip(0, 5000)])
        scores = np.outer(X[:, 0] - X[:, 1], np.arange(classes)) + public.gumbel(size=(n + TESTED, classes))
        y = scores.argmax(axis=1)
        with seeded_noise_not_private(seed):
            model = LogisticRegression(epsilon, 1e-5, data_norm=5001.0, classes=range(classes))
            found = model.fit(X[:n], y[:n]).predict_proba(X[n:])
        shares = np.broadcast_to(np.bincount(y[:n], minlength=classes) / n, found.shape)
        lost.append(log_loss(y[n:], found) - log_loss(y[n:], shares))
    assert max(lost) < -0.1  # up to .66 above the shares


def test_several_unequal_classes_with_nothing_to_learn_are_about_their_shares():
    lost, classes, n = [], 4, 1000
    for seed in range(6):
        public = np.random.default_rng([seed, classes, n])
        X, odds = public.normal(size=(n + TESTED, 3)).clip(-3, 3), -np.arange(classes) * np.log(4.0)
        y = (odds + public.gumbel(size=(n + TESTED, classes))).argmax(axis=1)
        with seeded_noise_not_private(seed):
            model = LogisticRegression(0.3, 1e-6, data_norm=2.3, classes=range(classes)).fit(X[:n], y[:n])
        shares = np.exp(odds) / np.exp(odds).sum()
        found = model.predict_proba(X[n:]), np.broadcast_to(shares, (TESTED, classes))
        lost.append(np.subtract(*(log_loss(y[n:], p, labels=range(classes)) for p in found)))
    assert np.mean(lost) < 0.035  # .046 where shares of several classes had no more budget than those of two


def test_a_mean_that_few_targets_near_the_bound_make_is_followed():
    missed, n = [], 5000
    for seed in range(6):
        public = np.random.default_rng([seed, n])
        X = np.clip(public.normal(size=(n, 3)), -3, 3)
        y = 0.3 + 0.1 * X[:, 0] + 0.1 * public.normal(size=n)
        far = public.random(n) < 0.02
        y[far] = public.uniform(90, 100, far.sum())
        with seeded_noise_not_private(seed):
            model = LinearRegression(1.0, 1e-5, data_norm=6.0, target_bound=100.0).fit(X, y)
        missed.append(y.mean() - model.predict(X).mean())
    assert np.mean(missed) < 0.3  # .50 of a mean of 2.12 where one of three answers was asked at the bound


def test_a_flag_that_few_large_targets_carry_is_told_of_where_noise_drowns_its_slope():
    told, n = [], 5000
    for seed in range(4):
        public = np.random.default_rng([seed, n])
        flag = public.random(n) < 0.02
        X = np.column_stack([flag, public.normal(size=(n, 2)).clip(-3, 3)])
        y = (np.where(flag, 45.0, 1.0) * public.gamma(4.0, 0.25, n)).clip(-300, 300)
        with seeded_noise_not_private(seed), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model = LinearRegression(1.0, 1e-5, data_norm=4.4, target_bound=300.0).fit(X, y)
        told.append((model.coef_[0] > 30.0, any("skewed" in str(w.message) for w in said)))
    assert all(close or warned for close, warned in told)
    assert sum(not close for close, _ in told) >= 2  # else nothing was tried


def test_two_values_of_targets_with_nothing_to_learn_are_about_their_mean():
    """The longest rows have the largest residuals, so a gradient that is clipped there sees no slope."""
    lost, n = [], 4000
    for seed in range(6):
        X = np.random.default_rng([seed, n]).choice([-1.0, 1.0], (n, 3))
        y = X[:, 0] * X[:, 1]
        with seeded_noise_not_private(seed):
            model = LinearRegression(1.0, 1e-6, data_norm=3**0.5, target_bound=1.0).fit(X, y)
        lost.append(np.mean((y - model.predict(X)) ** 2) / y.var() - 1.0)
    assert max(lost) < 0.01  # up to .17 where the whole gradient was clipped at the longest row


def held_out_score(X, y, n, seed, norm, bound):
    with seeded_noise_not_private(seed):
        model = LinearRegression(1.0, 1e-5, data_norm=norm, target_bound=bound).fit(X[:n], y[:n])
    return model.score(X[n:], y[n:])


def test_the_outcome_of_a_coin_is_predicted_by_its_mean():
    """All residuals are as large: a narrow clip leaves their signs, and descent on signs learns noise."""
    found = []
    for seed in range(10):
        public = np.random.default_rng([3, seed])
        X, y = public.choice([-1.0, 1.0], (10_700, 4)), public.choice([-1.0, 1.0], 10_700)
        found.append(held_out_score(X, y, 700, seed, 2.0, 1.0))
    assert (
        np.mean(found) > -0.03
    )  # -.07, single fits -.26, where the unit was the distance to one of the values


def test_targets_of_two_values_are_learned_by_few_records():
    """A unit in which no residual is clipped costs noise, and the slope alone needs such residuals."""
    found = []
    for seed in range(6):
        public = np.random.default_rng([9, seed])
        X = public.normal(size=(5700, 50)) / np.sqrt(50.0)
        odds = 1.5 * np.sqrt(10.0) * X[:, :5] @ np.array([1.0, -1.0, 1.0, 1.0, -1.0])
        y = np.where(public.random(len(X)) < 1.0 / (1.0 + np.exp(-odds)), 1.0, -1.0)
        found.append(held_out_score(X, y, 700, seed, 2.0, 1.0))
    assert np.mean(found) > 0.09  # .05 where the unit of the descent was that large


def test_a_rare_flag_with_skewed_amounts_has_its_effect():
    """A tail that lies in many shells stands out of none of them, and of all together."""
    for seed in range(3):
        public, n = np.random.default_rng([7, seed]), 100_000
        x = (public.random(n) < 0.01).astype(float)
        y = np.minimum((public.random(n) < 0.35) * public.exponential(1.0, n) * (1.0 + 20.0 * x), 100.0)
        with seeded_noise_not_private(seed):
            model = LinearRegression(4.0, 1e-6, data_norm=1.0, target_bound=100.0).fit(x[:, None], y)
        plain = y[x == 1].mean() - y[x == 0].mean()
        assert abs(model.coef_[0] - plain) < 0.25 * plain  # 1.6 to 2.9 off before


def test_the_stated_noise_of_a_rare_flag_counts_what_clips_may_hide_of_it():
    """With 300 records of 100,000 a coefficient of 40 for 50 was stated to +-.1."""
    for seed in range(4):
        public, n = np.random.default_rng(seed), 100_000
        flag, u = public.random(n) < 0.003, public.uniform(-1, 1, n)
        noise = flag * 50 * public.normal(size=n).clip(-3, 3) + public.normal(size=n).clip(-4, 4)
        X, y = np.column_stack([u, flag]), u + 50 * flag + noise
        with seeded_noise_not_private(seed):
            model = LinearRegression(1.0, 1e-6, data_norm=1.5, target_bound=300.0).fit(X, y)
        plain = PlainLinear().fit(X, y).coef_
        assert abs(model.coef_[1] - plain[1]) < 2 * model.coef_noise_[1] < 60
        assert model.coef_noise_[0] < 0.05  # that of the other column is what it was


@pytest.mark.parametrize("skewed", [True, False])
def test_a_table_says_what_a_clip_may_hide_of_a_rare_flag_and_where_amounts_are_skewed(skewed):
    public, n = np.random.default_rng(4), 20_000
    table = pd.DataFrame({"age": public.uniform(18.0, 90.0, n), "ward": public.choice(list("abcde"), n)})
    for name, share in (("sex", 0.5), ("icu", 0.02), ("smokes", 0.2)):
        table[name] = public.random(n) < share
    usual = np.where(table["icu"], 8.0, 1.0) * (0.5 + 0.01 * table["age"])
    normal = 10.0 + usual + 3.0 * public.normal(size=n)
    table["cost"] = np.clip(usual * public.exponential(1.0, n) if skewed else normal, 0.0, 100.0)
    flags = [Flag(name) for name in ("sex", "icu", "smokes")]
    columns = [Number("age", 0.0, 110.0), Category("ward", list("abcde")), *flags]
    schema = Schema([*columns, Target("cost", "number", low=0.0, high=100.0)])
    with seeded_noise_not_private(5), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = LinearRegression(1.0, 1e-6, schema=schema).fit(table)
    words = [str(one.message) for one in said if issubclass(one.category, FitWarning)]
    assert any("skewed" in one for one in words) == skewed
    assert any("a tenth of the records have 'icu" in one and "'sex" not in one for one in words)
    flag = next(shape for shape in model.shapes_ if shape.name == "icu")
    plain = table.loc[table["icu"], "cost"].mean() - table.loc[~table["icu"], "cost"].mean()
    assert (
        abs(np.ptp(flag.effect) - plain) < 2 * flag.noise.max()
    )  # stated .3 to .7 while 1 to 3 were missing
    assert flag.noise_alone < 0.5  # what is hidden is no reason to call the flag noise


def test_a_level_that_nearly_all_records_have_leaves_rare_levels_their_unit():
    found = []
    for seed in range(20):
        public = np.random.default_rng([3, seed])
        level = public.choice(4, 12_000, p=[0.9, 0.07, 0.02, 0.01])
        y = np.clip(np.array([0.0, 0.2, -0.3, 0.4])[level] + public.normal(size=level.size), -4, 4)
        found.append(held_out_score(np.eye(4)[level], y, 2000, seed, 1.0, 4.0))
    assert np.mean(found) > -0.03  # -.05, single fits -.24, with rows of rare levels clipped far shorter


def test_a_rare_class_that_one_column_tells_is_not_hurried_past_its_odds():
    public, shares, excess = np.random.default_rng(0), [0.6, 0.25, 0.1, 0.04, 0.01], []
    for seed in range(3):
        y = public.choice(5, 20_000, p=shares)
        X = np.eye(5)[(y + public.choice(5, 20_000, p=[0.8, 0.05, 0.05, 0.05, 0.05])) % 5]
        with seeded_noise_not_private(seed):
            model = LogisticRegression(4.0, 1e-6, data_norm=1.0, classes=range(5)).fit(X, y)
        together = X.T @ np.eye(5)[y]
        plain = X @ (together / together.sum(axis=1, keepdims=True))
        excess.append(log_loss(y, model.predict_proba(X)) - log_loss(y, plain))
    assert np.mean(excess) < 0.001  # .002 to .008 where the whole step was cut instead


def test_a_hundred_columns_of_three_factors_lose_their_noise_by_the_last_question():
    n, d, found = 10_000, 100, []
    for seed in range(3):
        public = np.random.default_rng([d, seed])
        X = public.normal(size=(n + TESTED, 3)) @ public.normal(size=(3, d))
        X = np.clip(X + 0.5 * public.normal(size=X.shape), -8, 8)
        signal = X @ public.normal(size=d)
        y = (
            signal / signal.std()
            + 8.0 * (public.random(len(X)) < 0.3)
            + public.normal(size=len(X)).clip(-3, 3)
        )
        with seeded_noise_not_private(seed):
            model = LinearRegression(4.0, 1e-5, data_norm=40.0, target_bound=20.0).fit(X[:n], y[:n])
        found.append(model.score(X[n:], y[n:]))
    assert np.mean(found) > 0.028  # .042; .012 where a descent in a metric was believed to hold no noise


@pytest.mark.parametrize(("epsilon", "some"), [(10.0, 10), (100.0, 0), (10_000.0, 0)])
def test_columns_that_are_far_from_zero_for_their_spread_are_followed(epsilon, some):
    """A clip of rows drew their mean nearer by many deviations: nine of ten fits lost one of two columns.

    At epsilon 10 noise moves a mean by 15 deviations of its column, and 11 to 14 of 60 fits lose one.
    """
    lost = []
    for seed in range(30 if some else 4):
        public = np.random.default_rng(seed)
        X = np.column_stack([1000 + public.normal(size=5000), -500 + 0.1 * public.normal(size=5000)])
        X = np.column_stack([X, public.normal(size=5000)])
        y = 1e4 + 5 * (X[:, 0] - 1000) + 20 * (X[:, 1] + 500) + public.exponential(2.0, 5000)
        with seeded_noise_not_private(seed):
            model = LinearRegression(epsilon, 1e-6, data_norm=1200.0, target_bound=12_000.0).fit(X, y)
        lost.append(PlainLinear().fit(X, y).score(X, y) - model.score(X, y))
    assert np.sum(np.array(lost) > 0.02) <= some  # .12 where a column is lost


def test_years_whose_mean_is_one_of_them_have_the_unit_of_their_spread():
    """Those of the mean counted as far out, as counts lacked them: one fit in six lost the year."""
    public, n = np.random.default_rng(3), 31 * 2000
    x = np.column_stack([np.resize(np.arange(1990.0, 2021.0), n), public.integers(18, 90, n)])
    y = public.poisson(3 * np.exp(0.05 * (x[:, 0] - 2005) + 0.01 * (x[:, 1] - 50))).clip(0, 100)
    for seed in range(3):
        with seeded_noise_not_private(seed):
            settings = {"loss": "poisson", "data_norm": 2100.0, "target_bound": 100.0}
            model = LinearRegression(3000.0, 1e-6, **settings).fit(x, y)
        assert model.coef_ == pytest.approx([0.05, 0.01], rel=0.1)
