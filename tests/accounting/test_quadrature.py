"""Rényi divergences of Gaussian mixtures against arbitrary precision, from above."""

import math

import mpmath
import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

from sordino.accounting.pld import MAX_POINTS, _step, mixture_divergence

CASES = [
    # P, Q, std, order
    ([(0.0, 0.99), (1.0, 0.01)], [(0.0, 1.0)], 1.0, 2.5),
    ([(0.0, 0.5), (1.0, 0.5)], [(0.0, 1.0)], 0.25, 1.1),
    ([(0.0, 0.99), (-1.0, 0.01)], [(0.0, 0.99), (1.0, 0.01)], 1.0, 2.5),
    ([(0.0, 0.7), (-1.0, 0.3)], [(0.0, 0.7), (1.0, 0.3)], 0.5, 3.5),
    ([(0.0, 0.9), (-1.0, 0.1)], [(0.0, 0.9), (1.0, 0.1)], 0.2, 1.1),
    ([(0.0, 0.999), (-1.0, 0.001)], [(0.0, 0.999), (1.0, 0.001)], 20.0, 60.0),
    ([(0.2, 0.5), (2.0, 0.5)], [(0.0, 1.0)], 1.5, 3.7),
    ([(0.0, 1.0)], [(0.2, 0.5), (2.0, 0.5)], 1.5, 3.7),
    ([(0.0, 1.0)], [(-1.0, 0.5), (1.0, 0.5)], 0.4, 6.3),
    ([(-1.0, 0.5), (1.0, 0.5)], [(0.0, 1.0)], 0.7, 1.5),
]


def reference(p, q, std, order):
    def density(parts, x):
        return mpmath.fsum(w * mpmath.npdf(x, c, std) for c, w in parts)

    with mpmath.workdps(22):
        ends = 2 * order + 16 * std
        moment = mpmath.quad(
            lambda x: density(p, x) ** order * density(q, x) ** (1 - order),
            mpmath.linspace(-ends, ends, 40),
        )
        return float(mpmath.log(moment) / (order - 1))


@pytest.mark.parametrize(("p", "q", "std", "order"), CASES)
def test_divergence_is_right_and_rounded_up(p, q, std, order):
    (found,) = mixture_divergence(p, q, std, np.array([order]))
    exact = reference(p, q, std, order)
    assert found == pytest.approx(exact, rel=1e-6)
    assert found >= exact


@pytest.mark.parametrize("std", [0.3, 1.0, 40.0])
@pytest.mark.parametrize("order", [2, 33, 400])
def test_whole_orders_of_a_poisson_batch_have_a_binomial_sum(std, order):
    rate, k = 0.02, np.arange(order + 1)
    logs = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    logs += k * math.log(rate) + (order - k) * math.log1p(-rate) + k * (k - 1) / (2 * std**2)
    exact = logsumexp(logs) / (order - 1)
    p, q = [(0.0, 1 - rate), (1.0, rate)], [(0.0, 1.0)]
    (found,) = mixture_divergence(p, q, std, np.array([float(order)]))
    assert found == pytest.approx(exact, rel=1e-6, abs=1e-11)
    assert found >= exact


@pytest.mark.parametrize("std", [0.05, 1.0, 300.0])
@pytest.mark.parametrize("order", [1.1, 7.0, 900.0, 65536.0])
def test_one_gaussian_against_another_has_a_closed_form(std, order):
    (found,) = mixture_divergence([(2.0, 1.0)], [(0.5, 1.0)], std, np.array([order]))
    exact = order * 1.5**2 / (2 * std**2)
    assert found == pytest.approx(exact, rel=1e-9, abs=2e-11)
    assert found >= exact


def test_weights_of_zero_are_ignored():
    with_zero = mixture_divergence([(1.0, 1.0), (9.0, 0.0)], [(0.0, 1.0), (-9.0, 0.0)], 1.0, np.array([2.0]))
    np.testing.assert_array_equal(
        with_zero, mixture_divergence([(1.0, 1.0)], [(0.0, 1.0)], 1.0, np.array([2.0]))
    )


def test_an_order_that_is_too_expensive_is_given_up_soundly():
    found = mixture_divergence([(0.0, 0.5), (1.0, 0.5)], [(0.0, 1.0)], 0.01, np.array([2.0, 50000.0]))
    assert math.isfinite(found[0])
    assert found[1] == math.inf


def test_an_order_takes_two_mebibytes_of_points_at_most():
    assert MAX_POINTS * np.dtype(float).itemsize == 2 * 2**20


def test_equal_laws_cost_only_the_margin():
    (found,) = mixture_divergence([(1.0, 0.5), (0.0, 0.5)], [(1.0, 0.5), (0.0, 0.5)], 2.0, np.array([3.0]))
    assert 0 < found < 1e-12


@pytest.mark.parametrize("order", [1.1, 5.0, 700.0])
@pytest.mark.parametrize("std", [0.1, 1.0, 25.0])
@pytest.mark.parametrize(("p_width", "q_width"), [(1.0, 0.0), (1.0, 1.0), (0.0, 2.0), (0.0, 0.0)])
def test_step_proves_sixteen_digits_and_not_many_more(order, std, p_width, q_width):
    """The best strip of the module's bound: 2 pi y/h - y^2/2s^2 + (a-1) ln cos(w y/2s^2) >= 37 + ln 2."""
    widest = max(p_width, q_width)
    y = np.linspace(0, 2 * std**2 / widest if widest else 50 * std, 20001)[1:]
    digits = 2 * math.pi * y / _step(order, std, p_width, q_width) - y**2 / (2 * std**2)
    digits += (order - 1) * np.log(np.cos(q_width * y / (2 * std**2)))
    assert 37 + math.log(2) < digits.max() < 46


@pytest.mark.parametrize(
    ("c", "d", "std", "order"),
    [
        (2.0, 0.5, 0.05, 900.0),
        (-2.0, 0.5, 0.05, 900.0),
        (-2.0, -3.0, 0.05, 900.0),
        (2.0, 3.0, 0.05, 900.0),
        (3.0, 1.0, 0.3, 200.0),
        (2.0, 0.5, 0.05, 7.0),
    ],
)
def test_the_margin_is_as_large_as_what_terms_of_this_size_lose(c, d, std, order):
    """The log moment of N(c) against N(d) is ``a (a-1) (c-d)^2 / 2s^2``; terms near its centre are larger."""
    (found,) = mixture_divergence([(c, 1.0)], [(d, 1.0)], std, np.array([order]))
    with mpmath.workdps(50):
        a, shift, s = mpmath.mpf(order), mpmath.mpf(c) - mpmath.mpf(d), mpmath.mpf(std)
        added = float(found * (a - 1) - a * (a - 1) * shift**2 / (2 * s**2))
    x = order * c - (order - 1) * d + np.linspace(-12 * std, 12 * std, 1001)
    up, down = order * c * (x - c / 2) / std**2, (order - 1) * d * (x - d / 2) / std**2
    size = (np.abs(up) + np.abs(down) + (x / std) ** 2).max()
    assert 0.85 < (added - 1e-12) / (1e-15 * size) < 1.15
