"""Losses on a grid: pessimistic, complete, composed as they should be."""

import math

import numpy as np
import pytest
from dp_accounting import gaussian_mechanism
from dp_accounting.pld import privacy_loss_distribution as dp_pld
from scipy import optimize, stats
from tests.accounting.test_pairs import PAIRS, hockey_stick

from sordino.accounting.pld import (
    ROUNDING,
    TAIL,
    GridLoss,
    _log_moment,
    _variance,
    _window,
    addition_pair,
    compose,
    discretise,
    gaussian_pair,
    laplace_pair,
    mixture,
    removal_pair,
    replacement_pair,
    response_pair,
    reverse,
)

BINS = 2**20


def exact_gaussian_delta(mu, epsilon):
    with np.errstate(divide="ignore"):
        return math.exp(gaussian_mechanism._get_log_delta(1 / mu, epsilon))


@pytest.mark.parametrize("interval", [0.5, 0.05, 1e-3])
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_grid_keeps_all_mass_and_dominates_the_pair(pair, interval):
    grid = discretise(pair, interval)
    assert grid.probabilities.min() >= 0
    assert grid.probabilities.sum() + grid.infinite == pytest.approx(1, abs=1e-12)
    for epsilon in np.linspace(-2, 3, 23):
        assert grid.delta(epsilon) >= hockey_stick(pair, epsilon) - 1e-12


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_grid_is_exact_at_its_own_points(pair):
    grid = discretise(pair, 0.05)
    for epsilon in grid.losses()[(grid.losses() > -1) & (grid.losses() < 1.5)]:
        assert grid.delta(epsilon) == pytest.approx(hockey_stick(pair, epsilon), abs=1e-10)


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_losses_of_both_laws_agree(pair):
    """sum p e^-loss is the mass of Q on the finite part: at most 1, and nearly all of it."""
    grid = discretise(pair, 0.02)
    q = np.dot(grid.probabilities, np.exp(-grid.losses()))
    assert 0.999 < q <= 1 + 1e-9


def test_two_losses_come_back_on_the_grid():
    grid = discretise(response_pair(0.75), 0.25)
    likely = math.exp(0.75) / (1 + math.exp(0.75))
    np.testing.assert_allclose(grid.probabilities[[0, -1]], [1 - likely, likely], rtol=1e-9)
    np.testing.assert_allclose(grid.losses()[[0, -1]], [-0.75, 0.75])


def test_losses_above_the_grid_are_infinite_not_forgotten():
    pair = gaussian_pair(1.0)._replace(high=1.0)
    grid = discretise(pair, 0.1)
    assert grid.infinite == pytest.approx(hockey_stick(pair, 1.0), rel=1e-9)
    assert grid.probabilities.sum() + grid.infinite == pytest.approx(1, abs=1e-12)
    for epsilon in grid.losses()[grid.losses() > 0]:
        assert grid.delta(epsilon) == pytest.approx(hockey_stick(pair, epsilon), rel=1e-9)


def test_losses_below_the_grid_are_rounded_up():
    pair = gaussian_pair(1.0)._replace(low=0.0)
    grid = discretise(pair, 0.1)
    assert grid.start == 0
    assert grid.probabilities.sum() + grid.infinite == pytest.approx(1, abs=1e-12)
    assert grid.delta(0.3) >= hockey_stick(pair, 0.3)


LIBRARY = {
    "gaussian": (
        (gaussian_pair(0.8),),
        lambda d: dp_pld.from_gaussian_mechanism(1 / 0.8, value_discretization_interval=d),
    ),
    "poisson": (
        (removal_pair(gaussian_pair(1.0), 0.02), addition_pair(gaussian_pair(1.0), 0.02)),
        lambda d: dp_pld.from_gaussian_mechanism(1.0, value_discretization_interval=d, sampling_prob=0.02),
    ),
    "poisson, replace-one": (
        (replacement_pair(0.02, 1.5),),
        lambda d: dp_pld.from_gaussian_mechanism(
            1.5,
            value_discretization_interval=d,
            sampling_prob=0.02,
            neighboring_relation=dp_pld.NeighborRel.REPLACE_ONE,
        ),
    ),
    "laplace": (
        (laplace_pair(0.3),),
        lambda d: dp_pld.from_laplace_mechanism(1 / 0.3, value_discretization_interval=d),
    ),
    "poisson laplace": (
        (removal_pair(laplace_pair(1.3), 0.1), addition_pair(laplace_pair(1.3), 0.1)),
        lambda d: dp_pld.from_laplace_mechanism(1 / 1.3, value_discretization_interval=d, sampling_prob=0.1),
    ),
    "mixture": (
        (mixture((0.1, 1.0), (0.9, 0.1), 1.2), reverse(mixture((0.1, 1.0), (0.9, 0.1), 1.2))),
        lambda d: dp_pld.from_mixture_gaussian_mechanism(
            1.2, [0.1, 1.0], [0.9, 0.1], value_discretization_interval=d
        ),
    ),
}


@pytest.mark.parametrize(
    ("name", "times"),
    [(name, times) for name in LIBRARY for times in (1, 7, 200) if (name, times) != ("mixture", 1)],
)
def test_composition_agrees_with_dp_accounting(name, times):
    pairs, library = LIBRARY[name]
    interval = 5e-3 if name == "mixture" else 1e-3  # the library is slow on mixtures
    theirs = library(interval).self_compose(times)
    ours = max(compose([(discretise(pair, interval), times)], BINS).epsilon(1e-6) for pair in pairs)
    assert ours == pytest.approx(theirs.get_epsilon_for_delta(1e-6), rel=1e-5)


def test_unlike_parts_compose_as_their_gaussian_total():
    parts = [(discretise(gaussian_pair(0.3), 1e-3), 4), (discretise(gaussian_pair(0.5), 1e-3), 3)]
    total = compose(parts, BINS)
    mu = math.sqrt(4 * 0.09 + 3 * 0.25)
    for epsilon in (0.0, 0.7, 2.5):
        assert total.delta(epsilon) == pytest.approx(exact_gaussian_delta(mu, epsilon), rel=1e-4)
        assert total.delta(epsilon) >= exact_gaussian_delta(mu, epsilon)


def test_many_small_steps_stay_above_the_exact_divergence_where_the_library_falls_below():
    """100,000 steps: rounding of the Fourier transform alone is larger than the true delta."""
    steps, interval = 10**5, 1e-5
    mu = 1 / math.sqrt(steps)
    exact = exact_gaussian_delta(1.0, 8.0)
    theirs = dp_pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=interval)
    assert theirs.self_compose(steps).get_delta_for_epsilon(8.0) < exact
    ours = compose([(discretise(gaussian_pair(mu), interval), steps)], 2**22)
    assert ours.delta(8.0) > exact
    assert ours.infinite == pytest.approx(TAIL + steps * ROUNDING, rel=1e-3)


def test_infinite_losses_add_up():
    part = GridLoss(0.1, 0, np.array([0.9]), 0.1)
    other = GridLoss(0.1, 1, np.array([0.5]), 0.5)
    total = compose([(part, 2), (other, 1)], BINS)
    assert total.infinite == pytest.approx(1 - 0.81 * 0.5, abs=1e-12)
    assert total.probabilities.sum() == pytest.approx(0.81 * 0.5)
    assert total.losses()[np.argmax(total.probabilities)] == pytest.approx(0.1)


def test_a_single_part_is_not_touched():
    part = discretise(gaussian_pair(1.0), 0.1)
    assert compose([(part, 1)], BINS) is part


def test_a_composition_that_is_too_large_is_given_up():
    part = discretise(gaussian_pair(1.0), 1e-3)
    assert compose([(part, 50)], 1000) is None
    size = compose([(part, 50)], BINS).probabilities.size
    assert compose([(part, 50)], max(size, part.probabilities.size)) is not None


def test_window_holds_all_but_the_tail():
    part = discretise(removal_pair(gaussian_pair(1.0), 0.01), 1e-3)
    total = compose([(part, 300)], BINS)
    assert total.probabilities.sum() == pytest.approx(1, abs=1e-11)
    assert total.probabilities.size < 300 * part.probabilities.size / 10


def test_epsilon_inverts_delta():
    grid = discretise(gaussian_pair(0.9), 0.01)
    for delta in (1e-2, 1e-5, 1e-9):
        epsilon = grid.epsilon(delta)
        assert grid.delta(epsilon) == pytest.approx(delta, rel=1e-9)


def test_epsilon_is_zero_when_even_that_is_enough_and_infinite_when_nothing_is():
    grid = GridLoss(0.1, -3, np.full(7, 0.14), 0.02)
    assert grid.epsilon(0.9) == 0
    assert grid.epsilon(0.01) == math.inf
    assert grid.epsilon(0.02) == pytest.approx(0.3)
    assert GridLoss(0.1, -3, np.array([0.75]), 0.25).epsilon(0.25) == 0


def test_losses_of_a_thousand_are_read_off_without_overflow():
    grid = discretise(gaussian_pair(40.0), 0.01)
    exact = gaussian_mechanism.get_epsilon_gaussian(1 / 40, 1e-6)
    assert grid.epsilon(1e-6) == pytest.approx(exact, rel=1e-4)
    assert grid.epsilon(1e-6) >= exact - 1e-9


def test_the_grid_covers_the_losses_between_its_first_and_last_point():
    grid = discretise(response_pair(0.8), 0.25)
    np.testing.assert_allclose(grid.losses(), np.arange(-4, 5) / 4)


def test_cells_without_losses_stay_empty():
    grid = discretise(response_pair(0.5)._replace(low=-2.0, high=2.0), 0.25)
    likely = 1 / (1 + math.exp(-0.5))
    np.testing.assert_allclose(grid.losses()[grid.probabilities > 1e-15], [-0.5, 0.5])
    np.testing.assert_allclose(grid.probabilities[[6, 10]], [1 - likely, likely], rtol=1e-9)


@pytest.mark.parametrize("delta", [0.05, 0.2])
def test_epsilon_below_the_first_loss_counts_every_loss(delta):
    grid = GridLoss(0.1, 5, np.array([0.3, 0.2]), 0.01)
    tilted = 0.3 * math.exp(-0.5) + 0.2 * math.exp(-0.6)
    assert 0 < grid.epsilon(delta) < 0.5
    assert grid.epsilon(delta) == pytest.approx(math.log((0.51 - delta) / tilted), rel=1e-12)


def test_epsilon_inside_the_first_cell_is_found():
    grid = GridLoss(0.1, 0, np.array([0.4, 0.6]), 0.0)
    assert grid.epsilon(0.05) == pytest.approx(0.1 + math.log(0.55 / 0.6), rel=1e-12)


# ----------------------------------------- windows: sums of two-point losses are binomial

SMALL = GridLoss(0.1, -1, np.array([0.7, 0.3]), 0.0)


@pytest.mark.parametrize("count", [4, 6])  # 5 bins are a length of fast transforms, 7 are not
def test_a_small_composition_is_the_exact_convolution(count):
    total = compose([(SMALL, count)], BINS)
    assert total.start == -count
    expected = stats.binom.pmf(np.arange(count + 1), count, 0.3)
    np.testing.assert_allclose(total.probabilities, expected, rtol=1e-12)
    assert total.infinite == pytest.approx(TAIL + count * ROUNDING)


def test_the_log_moment_is_that_of_the_composed_loss():
    logs = [(np.log([0.7, 0.3]), -1, 4), (np.log([0.2, 0.3, 0.5]), 2, 3)]
    for order in (0.4, -0.4):
        one = 0.7 * math.exp(-order) + 0.3
        other = 0.2 * math.exp(2 * order) + 0.3 * math.exp(3 * order) + 0.5 * math.exp(4 * order)
        assert _log_moment(logs, order) == pytest.approx(4 * math.log(one) + 3 * math.log(other))


def test_the_variance_is_that_of_the_loss_in_bins():
    assert _variance(SMALL) == pytest.approx(0.3 * 0.7)
    assert _variance(GridLoss(0.1, 7, np.array([0.2, 0.3, 0.5]), 0.0)) == pytest.approx(0.61)


@pytest.mark.parametrize(("rate", "count"), [(0.3, 1000), (0.01, 5000), (0.95, 2000)])
def test_the_window_is_nearly_the_best_chernoff_bound_and_never_inside_of_it(rate, count):
    low, high = _window([(GridLoss(0.1, -1, np.array([1 - rate, rate]), 0.0), count)])
    room, mean = math.log(2 / TAIL), count * rate

    def best(side):
        def bound(t):
            return (count * math.log1p(rate * math.expm1(side * t)) + room) / t

        return optimize.minimize_scalar(bound, bounds=(1e-4, 20), method="bounded").fun

    up, down = min(best(1), count) - mean, min(best(-1), 0) + mean
    assert up - 1e-6 <= high + count - mean < 1.07 * up + 1
    assert down - 1e-6 <= mean - low - count < 1.07 * down + 1
    binomial = stats.binom(count, rate)
    assert binomial.sf(high + count) + binomial.cdf(low + count - 1) < TAIL


def test_what_is_charged_for_rounding_is_what_a_float_resolves_and_more_than_is_lost():
    assert np.finfo(float).eps == ROUNDING
    for count in (1000, 20000):
        total = compose([(SMALL, count)], BINS)
        exact = stats.binom.pmf(np.arange(total.probabilities.size) + total.start + count, count, 0.3)
        lost = np.cumsum((exact - total.probabilities)[::-1])
        assert lost.max() < 0.5 * ROUNDING * count
