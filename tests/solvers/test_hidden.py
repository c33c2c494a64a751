"""What truncation hides at most, read off released counts."""

import math

import numpy as np
import pytest
from scipy import stats

from sordino.problems.scales import EDGES, counts_of
from sordino.solvers.heavy.location import DOUBT, Seen, half_width, hidden_limit, reaches, two_sides

N = 20_000


def seen(x, cut, noise=7.0, count=N, **options):
    """Return what is released of one tail, with noise of a given size that happens to be zero."""
    moment = float(np.sum(np.minimum(np.abs(x) / cut, 1.0) ** 2))
    return Seen(counts_of(x[:, None])[0], noise, count, cut, ((2, moment, noise),), **options)


def pareto(index, n=N):
    return stats.pareto(index).ppf((np.arange(n) + 0.5) / n)


@pytest.mark.parametrize("index", [1.5, 2.5, 4.0])
@pytest.mark.parametrize("zero", [False, True])
def test_the_limit_is_above_what_a_pareto_tail_hides_and_of_its_size(index, zero):
    x, cut = pareto(index), {1.5: 150.0, 2.5: 24.0, 4.0: 8.0}[index]  # about the edge of what is seen
    hides = index / (index - 1.0) * cut ** (1.0 - index) - (0.0 if zero else cut**-index * cut)
    limit = hidden_limit(seen(x, cut, zero=zero), 1, DOUBT)
    assert hides < limit
    if index > 2.0:  # of a heavier one the counts rule out little
        assert limit < 4.0 * hides


@pytest.mark.parametrize(("index", "power"), [(0.9, 1), (1.0, 1), (1.8, 2), (2.0, 2)])
def test_a_tail_without_the_moment_has_no_limit(index, power):
    assert hidden_limit(seen(pareto(index), 40.0 if index > 1 else 800.0), power, DOUBT) == math.inf


def test_a_declared_slope_gives_a_limit_where_the_counts_do_not():
    heavy = seen(pareto(1.0), 800.0)
    assert hidden_limit(heavy, 1, DOUBT) == math.inf
    assert hidden_limit(seen(pareto(1.0), 800.0, slope=2.0 * math.log(2.0)), 1, DOUBT) < math.inf


def test_less_noise_and_less_doubt_hide_less():
    x = np.abs(stats.t(3).ppf((np.arange(N) + 0.5) / N))
    by_noise = [hidden_limit(seen(x, 16.0, noise), 1, DOUBT) for noise in (4.0, 12.0, 40.0)]
    by_doubt = [hidden_limit(seen(x, 16.0), 1, doubt) for doubt in (0.0, 1.0, 2.0)]
    assert by_noise == sorted(by_noise)
    assert by_doubt == sorted(by_doubt)


def test_counts_in_which_nothing_stands_out_limit_nothing():
    noise = np.random.default_rng(0).normal(size=EDGES.size)
    assert hidden_limit(Seen(noise, 1.0, 1000, 2.0), 1, DOUBT) == math.inf


def test_a_group_of_records_far_out_is_counted_where_it_is():
    x = np.concatenate([np.full(900, 1.5), np.full(100, 20.0)])
    assert hidden_limit(seen(x, 4.0, noise=25.0, count=1000), 1, DOUBT) > 0.1 * (20.0 - 4.0)


def test_each_side_hides_for_itself():
    x = stats.lognorm(1.0).ppf((np.arange(N) + 0.5) / N) - 1.0
    above, below = (seen(side, 15.0) for side in (x[x > 0], x[x < 0]))
    low, high = two_sides(above, below, 2.0)
    assert low < 1e-3 < high
    assert two_sides(below, above, 2.0) == (high, low)


def test_a_side_that_nobody_sees_is_held_to_the_usual_tail_and_two_are_seen_together():
    x = stats.norm.ppf((np.arange(N) + 0.5) / N)
    above, nothing = seen(x[x > 0], 4.0), seen(np.zeros(4), 4.0)
    low, _ = two_sides(above, nothing, 2.0)
    assert 0.0 < low < 0.05
    few = [seen(side, 4.0, noise=25.0) for side in (np.full(100, 1.5), np.full(100, -1.5))]
    assert [side.knot for side in few] == [None, None]
    low, high = two_sides(*few, 2.0)
    assert low == high < math.inf


@pytest.mark.parametrize("bias", [0.0, 0.3, 2.0, 50.0])
def test_two_equal_biases_reach_as_far_as_half_a_width(bias):
    std = np.array([1.0, 2.5])
    down, up = reaches(std, np.full(2, bias), np.full(2, bias), 0.9)
    np.testing.assert_allclose(down, half_width(std, np.full(2, bias), 0.9), rtol=1e-6)
    np.testing.assert_array_equal(down, up)


@pytest.mark.parametrize(("below", "above"), [(0.0, 3.0), (1.0, 0.2), (0.0, math.inf)])
def test_an_interval_covers_for_every_bias_between_its_ends(below, above):
    down, up = reaches(np.array([2.0]), np.array([below]), np.array([above]), 0.95)
    for bias in (-below, 0.0, min(above, 1e6)):  # truth is the value's mean plus the bias
        held = stats.norm.cdf((down[0] + bias) / 2.0) - stats.norm.cdf((bias - up[0]) / 2.0)
        assert held >= 0.95 - 1e-9
