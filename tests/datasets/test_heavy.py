"""Heavy-tailed laws have the means and moments they declare."""

import math

import numpy as np
import pytest
from scipy import stats

from sordino.datasets import Lognormal, Pareto, StudentT
from sordino.errors import InvalidInputError
from sordino.kernel.noise import public_generator

REJECT = 1e-4
WRONG = [2 / 3, 3 / 2]
LAWS = [Pareto(1.8, 2.0), StudentT(2.5, 3.0), Lognormal(1.2, 0.5)]
IDS = [type(law).__name__ for law in LAWS]


def _draws(law, n=100_000, seed=0):
    return law.draw(public_generator(seed), (n,))


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("law", "reference", "centre"),
    [
        (Pareto(1.8, 2.0), stats.pareto(1.8, scale=2.0), 0.0),
        (StudentT(2.5, 3.0), stats.t(2.5, loc=3.0), 3.0),
        (Lognormal(1.2, 0.5), stats.lognorm(1.2, scale=math.exp(0.5)), 0.0),
    ],
    ids=IDS,
)
def test_draws_follow_the_declared_law(law, reference, centre):
    draws = _draws(law, 20_000)
    assert stats.kstest(draws, reference.cdf).pvalue > REJECT
    for wrong in WRONG:
        scaled = centre + wrong * (draws - centre)
        assert stats.kstest(scaled, reference.cdf).pvalue < REJECT


@pytest.mark.statistical
@pytest.mark.parametrize("law", LAWS, ids=IDS)
def test_moments_of_low_order_match_a_large_sample(law):
    """Order 0.4 is low enough for the sample average to have a finite variance."""
    centred = type(law) is StudentT
    base = type(law)(law.index, 0.0) if centred else law
    values = np.abs(_draws(base, 400_000, seed=1)) ** 0.4
    z = (values.mean() - base.moment_bound(0.4)) / (values.std() / math.sqrt(len(values)))
    assert 2 * stats.norm.sf(abs(z)) > REJECT
    off = (values.mean() - base.moment_bound(0.4) * 1.05) / (values.std() / math.sqrt(len(values)))
    assert 2 * stats.norm.sf(abs(off)) < REJECT


@pytest.mark.parametrize("order", [1.0, 1.3])
def test_moments_match_numerical_integrals(order):
    cases = [
        (Pareto(2.4, 1.5), stats.pareto(2.4, scale=1.5)),
        (StudentT(2.4), stats.t(2.4)),
        (Lognormal(0.8, -0.3), stats.lognorm(0.8, scale=math.exp(-0.3))),
    ]
    for law, reference in cases:
        # E|X|^p = integral of p x^(p-1) P(|X| > x), summed over a grid in log x.
        x = np.exp(np.linspace(-30, 60, 200_001))
        tail = reference.sf(x) + reference.cdf(-x)
        integral = np.trapezoid(order * x**order * tail, np.log(x))
        assert law.moment_bound(order) == pytest.approx(integral, rel=1e-3)


@pytest.mark.parametrize("law", LAWS, ids=IDS)
def test_the_moment_at_a_location_is_bounded(law):
    values = np.abs(_draws(law, 100_000, seed=2))
    order = 1.0
    assert values.mean() < law.moment_bound(order) * 1.02
    assert law.moment_bound(order) >= abs(law.mean)


@pytest.mark.parametrize("law", LAWS, ids=IDS)
def test_the_mean_is_the_one_that_trimmed_samples_approach(law):
    """A median of means is near the mean even where the variance is infinite."""
    means = _draws(law, 400_000, seed=3).reshape(40, -1).mean(axis=1)
    spread = law.moment_bound(1.0)
    assert np.median(means) == pytest.approx(law.mean, abs=0.08 * spread)


@pytest.mark.parametrize("law", LAWS[:2], ids=IDS[:2])
def test_moments_from_the_tail_index_on_are_infinite(law):
    assert law.moment_bound(law.order) == math.inf
    assert law.moment_bound(law.order - 1e-3) < math.inf


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Pareto(1.0), "index in \\(1, inf\\), got 1.0"),
        (lambda: Pareto(2.0, -1), "scale in \\(0, inf\\), got -1"),
        (lambda: StudentT(float("nan")), "index"),
        (lambda: Lognormal(0.0), "spread"),
    ],
)
def test_laws_without_a_mean_are_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
