"""Models of quantiles: the asked share of targets is below, wherever they lie, however wide the bound."""

import warnings

import numpy as np
import pytest

import sordino


def fits(n, epsilon, quantile, far, bound, count=6, spread=0.0):
    """Return the shares of targets below and the slopes of some fits of y = far + x + noise."""
    rng, found = np.random.default_rng(4), []
    for _ in range(count):
        x = rng.uniform(-1, 1, (n, 1))
        y = far + x[:, 0] + 0.5 * (1 + spread * x[:, 0]) * rng.normal(size=n)
        settings = {"data_norm": 1.0, "target_bound": bound, "quantile": quantile}
        model = sordino.LinearRegression(epsilon, 1e-6, loss="quantile", **settings).fit(x, y)
        found.append((np.mean(y <= model.predict(x)), model.coef_[0]))
    return np.transpose(found)


@pytest.mark.parametrize("quantile", [0.5, 0.9])
@pytest.mark.parametrize(("far", "bound"), [(0, 400.0), (10, 20.0), (100, 200.0)])
def test_quantiles_far_from_zero_and_under_wide_bounds(far, bound, quantile):
    """The share was .82 or .996 for .9, and slopes -3 +- 12, at any n and epsilon."""
    for n, epsilon, error in ((3000, 1.0, 0.03), (50_000, 4.0, 0.005)):
        shares, slopes = fits(n, epsilon, quantile, far, bound)
        assert np.abs(shares - quantile).max() < error
        assert np.abs(slopes - 1.0).max() < 8.0 * error


def test_slopes_of_a_quantile_follow_the_spread():
    shares, slopes = fits(50_000, 1.0, 0.9, 0.0, 8.0, spread=0.8)
    assert np.abs(shares - 0.9).max() < 0.01
    assert slopes == pytest.approx(1.0 + 0.4 * 1.2816, abs=0.05)  # that of the mean is 1


@pytest.mark.parametrize(("n", "told"), [(900, True), (1100, False)])
def test_a_quantile_of_few_records_says_that_it_is_learned_from_zero(n, told):
    x = np.random.default_rng(4).uniform(-1, 1, (n, 1))
    model = sordino.LinearRegression(1.0, 1e-6, loss="quantile", data_norm=1.0, target_bound=3.0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit(x, x[:, 0])
    assert any("plain descent from zero" in str(one.message) for one in said) == told


@pytest.mark.parametrize(
    ("quantile", "law"),
    [
        (0.5, lambda rng, x: np.where(rng.random(x.size) < 0.6, 0.0, 10 * x * rng.exponential(size=x.size))),
        (0.9, lambda rng, x: np.where(rng.random(x.size) < 0.3 + 0.4 * x, 5.0, 1.0)),
    ],
    ids=["mostly zeros", "two values"],
)
def test_quantiles_of_targets_that_are_mostly_alike_tend_to_the_constant(quantile, law):
    """Steps went back and forth over the value that most have: 4 and 7 % above the constant, at any n."""
    rng, above = np.random.default_rng(6), []
    for n, epsilon in ((5000, 1.0), (50_000, 4.0)):
        x = rng.uniform(size=(n, 1))
        y = law(rng, x[:, 0]).clip(0, 50)
        settings = {"data_norm": 1.0, "target_bound": 50.0, "quantile": quantile}
        model = sordino.LinearRegression(epsilon, 1e-6, loss="quantile", **settings).fit(x, y)
        errors = [y - model.predict(x), y - np.quantile(y, quantile)]
        losses = [np.mean(np.maximum(quantile * e, (quantile - 1.0) * e)) for e in errors]
        above.append(losses[0] / losses[1] - 1.0)
    assert above[0] < 0.1
    assert above[1] < 0.01
