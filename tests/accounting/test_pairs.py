"""Dominating pairs: tails against simulation-free references."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from scipy import stats

from sordino.accounting.pld import (
    addition_pair,
    dilute,
    fixed_size_pair,
    gaussian_pair,
    laplace_pair,
    leaf_pairs,
    mixture,
    removal_pair,
    replacement_pair,
    response_pair,
    reverse,
)
from sordino.accounting.trees import flatten
from sordino.kernel.events import Poisson, Relation, count_rows

EDGES = np.linspace(-3, 3, 41) + 0.013

PAIRS = {
    "gaussian": gaussian_pair(0.7),
    "laplace": laplace_pair(1.3),
    "response": response_pair(0.9),
    "removed gaussian": removal_pair(gaussian_pair(1.7), 0.3),
    "added gaussian": addition_pair(gaussian_pair(1.7), 0.3),
    "removed laplace": removal_pair(laplace_pair(1.3), 0.4),
    "added laplace": addition_pair(laplace_pair(1.3), 0.4),
    "replaced": replacement_pair(0.3, 0.6),
    "fixed size": fixed_size_pair(0.3, 1.7),
    "mixture": mixture((0.2, 1.0, 2.0), (0.5, 0.0, 0.5), 0.8),
}


def hockey_stick(pair, epsilon):
    """P(loss > epsilon) - e^epsilon Q(loss > epsilon)."""
    epsilon = np.asarray(epsilon, dtype=float)
    tails = pair.tails(epsilon)
    return np.exp(tails.p_above) - np.exp(epsilon + tails.q_above)


def by_integration(p, q, epsilon):
    """The integral of (p - e^epsilon q)_+ by the midpoint rule."""
    step = 2e-4
    x = np.arange(-40, 41, step) + step / 2
    return step * np.maximum(p(x) - math.exp(epsilon) * q(x), 0).sum()


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_above_and_below_add_up_to_one(pair):
    tails = pair.tails(EDGES)
    np.testing.assert_allclose(np.exp(tails.p_above) + np.exp(tails.p_below), 1, rtol=1e-12)
    np.testing.assert_allclose(np.exp(tails.q_above) + np.exp(tails.q_below), 1, rtol=1e-12)


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_masses_of_a_cell_have_a_ratio_inside_the_cell(pair):
    tails = pair.tails(EDGES)
    p, q = -np.diff(np.exp(tails.p_above)), -np.diff(np.exp(tails.q_above))
    heavy = (p > 1e-9) & (q > 1e-9)
    ratio = np.log(p[heavy] / q[heavy])
    assert heavy.sum() > 0
    assert np.all(ratio >= EDGES[:-1][heavy] - 1e-6)
    assert np.all(ratio <= EDGES[1:][heavy] + 1e-6)


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_nearly_all_losses_lie_between_low_and_high(pair):
    margin = 1e-9
    tails = pair.tails(np.array([pair.low - margin, pair.high + margin]))
    assert math.exp(tails.p_below[0]) < 1e-20
    assert math.exp(tails.p_above[1]) < 1e-20
    inside = pair.tails(np.array([pair.low, pair.high]) * 0.5)
    assert math.exp(inside.p_above[1]) > 1e-20 or math.exp(inside.p_below[0]) > 1e-20


@pytest.mark.parametrize("mu", [0.1, 1.0, 30.0])
def test_a_gaussian_grid_ends_where_its_tail_is_negligible(mu):
    pair = gaussian_pair(mu)
    tails = pair.tails(np.array([pair.low, pair.high]))
    assert 1e-24 < math.exp(tails.p_above[1]) < 1e-20
    assert 1e-24 < math.exp(tails.q_below[0]) < 1e-20


WINDOWS = {
    **{name: PAIRS[name] for name in ("removed gaussian", "added gaussian", "replaced", "fixed size")},
    "replaced with much noise": replacement_pair(0.02, 2.5),
    "mixture": PAIRS["mixture"],
    "mixture with much noise": mixture((0.2, 2.0), (0.7, 0.3), 2.5),
}


@pytest.mark.parametrize("pair", WINDOWS.values(), ids=WINDOWS)
def test_every_window_reaches_as_far_as_that_of_a_gaussian_and_not_much_farther(pair):
    tails = pair.tails(np.array([pair.low, pair.high]))
    outside = np.exp([tails.p_above[1], tails.q_below[0]]) / stats.norm.sf(9.9)
    assert outside.max() <= 1 + 1e-9
    assert outside.min() > 0.03


@pytest.mark.parametrize(
    ("pair", "p_likely", "q_likely"),
    [
        (laplace_pair(1.3), 1 / 2, math.exp(-1.3) / 2),
        (response_pair(1.3), 1 / (1 + math.exp(-1.3)), 1 / (1 + math.exp(1.3))),
    ],
)
def test_an_atom_does_not_lie_above_its_own_loss(pair, p_likely, q_likely):
    tails = pair.tails(np.array([-1.3, 1.3]))
    np.testing.assert_allclose(np.exp(tails.p_above), [1 - q_likely, 0], rtol=1e-12)
    np.testing.assert_allclose(np.exp(tails.p_below), [q_likely, 1], rtol=1e-12)
    np.testing.assert_allclose(np.exp(tails.q_above), [1 - p_likely, 0], rtol=1e-12)
    np.testing.assert_allclose(np.exp(tails.q_below), [p_likely, 1], rtol=1e-12)


def test_a_probability_that_rounding_pushes_beyond_one_is_one():
    """(1 - 0.1) + 0.1 in logarithms is 3e-17, not 0."""
    tails = fixed_size_pair(0.1, 1.7).tails(np.array([-70.0, 70.0]))
    np.testing.assert_allclose(np.exp(tails.p_above), [1, 0], atol=1e-15)
    np.testing.assert_allclose(np.exp(tails.q_below), [0, 1], atol=1e-15)


NORMAL = stats.norm.pdf
REFERENCES = {
    "gaussian": (lambda x: NORMAL(x, 0.7), NORMAL),
    "removed gaussian": (
        lambda x: 0.7 * NORMAL(x, 0, 1 / 1.7) + 0.3 * NORMAL(x, 1, 1 / 1.7),
        lambda x: NORMAL(x, 0, 1 / 1.7),
    ),
    "added gaussian": (
        lambda x: NORMAL(x, 0, 1 / 1.7),
        lambda x: 0.7 * NORMAL(x, 0, 1 / 1.7) + 0.3 * NORMAL(x, 1, 1 / 1.7),
    ),
    "replaced": (
        lambda x: 0.7 * NORMAL(x, 0, 0.6) + 0.3 * NORMAL(x, 1, 0.6),
        lambda x: 0.7 * NORMAL(x, 0, 0.6) + 0.3 * NORMAL(x, -1, 0.6),
    ),
    "mixture": (
        lambda x: 0.5 * NORMAL(x, 0.2, 0.8) + 0.5 * NORMAL(x, 2, 0.8),
        lambda x: NORMAL(x, 0, 0.8),
    ),
    "laplace": (lambda x: stats.laplace.pdf(x, 1.3), stats.laplace.pdf),
    "removed laplace": (
        lambda x: 0.6 * stats.laplace.pdf(x) + 0.4 * stats.laplace.pdf(x, 1.3),
        stats.laplace.pdf,
    ),
    "added laplace": (
        stats.laplace.pdf,
        lambda x: 0.6 * stats.laplace.pdf(x) + 0.4 * stats.laplace.pdf(x, 1.3),
    ),
}


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("epsilon", [-1.1, -0.2, 0.15, 0.5, 1.2])
def test_hockey_stick_is_the_integral_of_the_densities(name, epsilon):
    p, q = REFERENCES[name]
    expected = by_integration(p, q, epsilon)
    assert hockey_stick(PAIRS[name], epsilon) == pytest.approx(expected, abs=1e-7)


def test_randomised_response_has_two_losses():
    tails = response_pair(0.9).tails(np.array([-0.91, -0.89, 0.89, 0.91]))
    likely = math.exp(0.9) / (1 + math.exp(0.9))
    np.testing.assert_allclose(np.exp(tails.p_above), [1, likely, likely, 0], rtol=1e-12)
    np.testing.assert_allclose(np.exp(tails.q_above), [1, 1 - likely, 1 - likely, 0], rtol=1e-12)


def test_fixed_size_takes_the_larger_direction_on_each_side():
    envelope, up, down = PAIRS["fixed size"], PAIRS["removed gaussian"], PAIRS["added gaussian"]
    for epsilon in (0.3, 1.0):
        assert hockey_stick(envelope, epsilon) == pytest.approx(hockey_stick(up, epsilon), rel=1e-12)
        assert hockey_stick(envelope, epsilon) > hockey_stick(down, epsilon)
    for epsilon in (-0.3, -1.0):
        assert hockey_stick(envelope, epsilon) == pytest.approx(hockey_stick(down, epsilon), rel=1e-12)
        assert hockey_stick(envelope, epsilon) > hockey_stick(up, epsilon)


def test_fixed_size_has_an_atom_at_zero_that_is_not_negative():
    tails = PAIRS["fixed size"].tails(np.array([-1e-12, 0.0]))
    atom = math.exp(tails.p_above[0]) - math.exp(tails.p_above[1])
    # 1 - P(loss > 0) - P(loss < 0) = 1 - rate - 2 (1 - rate) Phi(-mu/2)
    assert atom == pytest.approx(1 - 0.3 - 2 * 0.7 * stats.norm.cdf(-0.85), abs=1e-9)


def test_reversing_twice_gives_the_pair_back():
    pair = PAIRS["removed gaussian"]
    twice = reverse(reverse(pair))
    for once, again in zip(pair.tails(EDGES), twice.tails(EDGES)):
        np.testing.assert_array_equal(once, again)
    assert (twice.low, twice.high) == (pair.low, pair.high)


@pytest.mark.parametrize("rate", [1e-6, 0.01, 0.5, 0.99])
@pytest.mark.parametrize("loss", [-20.0, -0.3, 0.0, 0.4, 30.0, 900.0])
def test_dilution_is_the_loss_of_a_record_that_is_sometimes_absent(rate, loss):
    if loss < 700:
        expected = math.log(1 - rate + rate * math.exp(loss))
    else:
        expected = loss + math.log(rate)
    assert dilute(loss, rate) == pytest.approx(expected, abs=1e-12, rel=1e-12)


def test_huge_losses_do_not_overflow():
    tails = removal_pair(gaussian_pair(60.0), 1e-4).tails(np.array([1000.0, 1800.0]))
    mu, rate = 60.0, 1e-4
    expected = stats.norm.logsf((1800 - math.log(rate)) / mu - mu / 2) + math.log(rate)
    assert tails.p_above[1] == pytest.approx(expected, rel=1e-6)
    assert np.all(np.isfinite(replacement_pair(1e-4, 1 / 60).tails(np.array([1000.0, 1800.0])).p_above))


@pytest.mark.parametrize("split", [0.1, 0.35, 0.5])
@pytest.mark.parametrize("total", [0.2, 1.0, 4.0])
def test_one_shifted_coordinate_is_the_worst_laplace_vector(split, total):
    """Two coordinates that share an L1 sensitivity never leak more than one that has all of it."""
    first, second = total * split, total * (1 - split)
    grid = np.linspace(-total, total, 8001)
    inner, outer = laplace_pair(first), laplace_pair(second)
    steps = inner.tails(grid)
    mass = -np.diff(np.exp(steps.p_above), prepend=1.0, append=0.0)
    losses = np.concatenate([[grid[0]], grid[1:], [grid[-1]]])  # rounded up, so pessimistic
    for epsilon in np.linspace(-0.9 * total, 0.9 * total, 7):
        both = np.dot(mass, np.maximum(hockey_stick(outer, epsilon - losses), 0))
        assert both <= hockey_stick(laplace_pair(total), epsilon) + 2 * (grid[1] - grid[0])


@pytest.mark.parametrize("rate", [0.05, 0.4])
@pytest.mark.parametrize("std", [0.6, 1.5])
def test_replacing_plus_by_minus_is_the_worst_replacement(rate, std):
    """No two contributions of norm at most 1, in the plane, leak more than +1 replaced by -1."""
    axis = np.linspace(-1 - 6 * std, 1 + 6 * std, 241)
    x, y = np.meshgrid(axis, axis, indexing="ij")
    cell = (axis[1] - axis[0]) ** 2

    def law(shift):
        at = [np.exp(-((x - a) ** 2 + (y - b) ** 2) / (2 * std**2)) for a, b in ((0, 0), shift)]
        return ((1 - rate) * at[0] + rate * at[1]) / (2 * math.pi * std**2)

    p = law((1.0, 0.0))
    for angle in np.linspace(0.2, math.pi, 6):
        for size in (0.3, 1.0):
            q = law((size * math.cos(angle), size * math.sin(angle)))
            for epsilon in (-0.4, 0.0, 0.3, 1.0):
                leaked = cell * np.maximum(p - math.exp(epsilon) * q, 0).sum()
                assert leaked <= hockey_stick(replacement_pair(rate, std), epsilon) + 1e-4  # quadrature


ROWS = [
    [(1.0, 0.0), (1.0, 0.0), (1.0, 0.0)],
    [(1.0, 0.0), (-1.0, 0.0), (0.6, 0.8)],
    [(1.0, 0.0), (0.5, 0.5), (0.0, 0.0)],
    [(0.0, 1.0), (1.0, 0.0), (-0.6, 0.8)],
]


def batch_density(rows, rate, std, points):
    """The density of a noisy sum over the rows that enter, each with the same probability."""
    total = 0.0
    for chosen in itertools.product((0, 1), repeat=len(rows)):
        shift = np.array(chosen) @ np.array(rows)
        weight = rate ** sum(chosen) * (1 - rate) ** (len(rows) - sum(chosen))
        apart = np.square(points - shift).sum(axis=-1)
        total = total + weight * np.exp(-apart / (2 * std**2)) / (2 * math.pi * std**2)
    return total


def plane_divergence(p, q, epsilon, area):
    return float(area * np.maximum(p - math.exp(epsilon) * q, 0).sum())


def test_the_rows_of_a_person_in_a_batch_cost_no_more_than_their_event():
    rate, std, step = 0.3, 1.1, 0.05
    axis = np.arange(-12, 12, step) + step / 2
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    gaussian = dp.GaussianDpEvent(std / 3)
    pairs = {
        relation: leaf_pairs(flatten(Poisson(rate).amplify_rows(gaussian, 1, relation, 3))[0], relation)
        for relation in Relation
    }
    law = [batch_density(rows, rate, std, points) for rows in ROWS]
    none = batch_density([(0.0, 0.0)], rate, std, points)
    for epsilon in (-0.7, 0.0, 0.4, 1.2, 2.5):
        out, into = (float(hockey_stick(pair, [epsilon])[0]) for pair in pairs[Relation.ADD_REMOVE])
        found = [[plane_divergence(*both, epsilon, step**2) for both in ((p, none), (none, p))] for p in law]
        # rows that are alike and as long as the clip reach it
        np.testing.assert_allclose(found[0], [out, into], rtol=1e-3, atol=1e-6)
        assert all(a < out or a == out == 0 for a, _ in found[1:])
        assert all(b < into or b == into == 0 for _, b in found[1:])
        most = max(float(hockey_stick(pair, [epsilon])[0]) for pair in pairs[Relation.REPLACE_ONE])
        apart = [plane_divergence(p, q, epsilon, step**2) for p, q in itertools.permutations(law, 2)]
        opposite = batch_density(-np.array(ROWS[0]), rate, std, points)
        assert max(*apart, plane_divergence(law[0], opposite, epsilon, step**2)) <= most


def test_numbers_of_rows_in_a_batch_are_rounded_up_where_they_are_many():
    for rows, rate in ((7, 0.2), (400, 0.3), (10**6, 1e-4)):
        numbers, weights = count_rows(rows, rate)
        exact = stats.binom(rows, rate)
        assert len(numbers) <= 33
        assert (numbers[-1], sum(weights)) == (rows, pytest.approx(1.0))
        above = 1.0 - np.cumsum(weights)
        np.testing.assert_allclose(above[:-1], exact.sf(numbers[:-1]), atol=1e-12)
        assert np.dot(numbers, weights) >= exact.mean() * (1 - 1e-12)
    assert count_rows(7, 0.2)[0] == list(range(8))
