"""Noise inside an objective: no true loss exceeds the law it is charged for.

The proofs: docs/proofs.md.
"""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from scipy import integrate, stats
from scipy.special import expit
from tests.accounting.helpers import ADD, REPLACE, together

from sordino.accounting import calibrate, certify, certify_by, rdp_curve
from sordino.accounting.pld import (
    BEND,
    addition_pair,
    compose,
    discretise,
    gaussian_pair,
    removal_pair,
    tilt_log_moments,
    tilt_pairs,
)
from sordino.accounting.trees import Leaf, flatten
from sordino.errors import CalibrationError, InvalidInputError, UnsupportedError
from sordino.kernel import Full, Plan, Release, TiltedObjective
from sordino.kernel.events import TiltDpEvent, tilt_event
from sordino.problems.losses import Logistic
from sordino.problems.minimiser import CertifiedMinimiser, TiltedMinimiser


def profile(pair, cells=6000):
    """Return delta as a function of epsilon of a pair, on a fine grid."""
    return discretise(pair, pair.high / cells).delta


def true_delta(p, q, epsilon, step):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum() * step)


def old_event(multiplier, jacobian, relation):
    """The (xi, rho)-zCDP line that a tilt was charged for before."""
    mean = math.sqrt(math.pi / 2) if relation is REPLACE else math.sqrt(2 / math.pi)
    return dp.ZCDpEvent(0.5 / multiplier**2, jacobian + mean / multiplier)


@pytest.mark.parametrize(
    ("relation", "multiplier", "strength", "less"),
    [
        (ADD, 5.0, 10, 0.22),
        (ADD, 10.0, 5, 0.22),
        (ADD, 10.0, 10, 0.23),
        (REPLACE, 5.0, 10, 0.26),
        (REPLACE, 10.0, 10, 0.27),
    ],
)
def test_a_single_tilt_costs_22_to_27_percent_less_than_its_line(relation, multiplier, strength, less):
    jacobian = math.log1p(0.25 / strength)
    found = certify(tilt_event(multiplier, jacobian, relation), 1e-5, relation)
    assert found.accountant == "pld"
    assert (
        found.epsilon
        < (1 - less) * certify(old_event(multiplier, jacobian, relation), 1e-5, relation).epsilon
    )


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("multiplier", [0.3, 2.0, 10.0, 1e3])
@pytest.mark.parametrize("jacobian", [0.0, 0.1, 3.0])
def test_no_order_costs_more_than_the_line(relation, multiplier, jacobian):
    new, old = (rdp_curve(make(multiplier, jacobian, relation), relation) for make in (tilt_event, old_event))
    assert np.all(new <= old * (1 + 1e-9) + 1e-12)
    assert np.all(new >= rdp_curve(dp.GaussianDpEvent(multiplier * relation.contributions), relation))


def slopes(kind, theta, curvature):
    """Return l' and l'' of losses with slopes in [-1, 1]."""
    if kind == "logistic":
        half = expit(4 * curvature * theta)
        return half, 4 * curvature * half * (1 - half)
    inside = np.abs(curvature * theta) < 1
    return np.clip(curvature * theta, -1, 1), np.where(inside, curvature, 0.0)


@pytest.mark.parametrize("kind", ["logistic", "huber"])
@pytest.mark.parametrize("std", [0.4, 2.0, 9.9])
@pytest.mark.parametrize("ratio", [0.05, 1.0, 30.0])
@pytest.mark.parametrize("centre", [0.0, 0.7])
def test_the_true_loss_of_one_record_never_exceeds_its_law(kind, std, ratio, centre):
    """Theta has density F''(theta) phi(F'(theta)); it is integrated on a line, with and without a record."""
    strength = 3.0
    theta = np.linspace(-14, 14, 80_001) * (std + 1) / strength
    slope, bend = slopes(kind, theta - centre * std / strength, ratio * strength)
    present = (strength + bend) * stats.norm.pdf(strength * theta + slope, scale=std)
    absent = strength * stats.norm.pdf(strength * theta, scale=std)
    pairs = tilt_pairs(math.log1p(ratio), 1 / std, ADD)
    for (p, q), pair in zip(((present, absent), (absent, present)), pairs, strict=True):
        bound = profile(pair)
        for epsilon in (-1.0, 0.0, *np.linspace(0.02, 1, 12) * pair.high):
            assert true_delta(p, q, epsilon, theta[1] - theta[0]) <= bound(epsilon) * (1 + 1e-3) + 1e-10


def test_the_absolute_value_is_needed_where_the_slope_of_a_record_jumps():
    theta = np.linspace(-14, 14, 400_001)
    slope, bend = slopes("huber", theta, 1e3)
    absent, present = stats.norm.pdf(theta), (1 + bend) * stats.norm.pdf(theta + slope)
    true = true_delta(absent, present, 3.0, theta[1] - theta[0])
    bound = profile(tilt_pairs(math.log1p(1e3), 1.0, ADD)[1])(3.0)
    assert 0.99 * bound < true <= bound * (1 + 1e-4)
    assert true > 1.9 * (stats.norm.cdf(-2.5) - math.exp(3.0) * stats.norm.cdf(-3.5))


@pytest.mark.parametrize("angle", [0.0, 0.5, math.pi / 2, 2.5, math.pi])
@pytest.mark.parametrize("ratio", [0.1, 10.0])
def test_the_true_loss_of_a_replaced_record_never_exceeds_its_law(angle, ratio):
    """The same in a plane: two records whose features are at an angle, slopes of both signs."""
    axis = np.linspace(-9, 9, 1201)
    theta = np.stack(np.meshgrid(axis, axis, indexing="ij"))

    def density(direction, centre):
        margin = direction[0] * theta[0] + direction[1] * theta[1]
        slope, bend = (
            np.tanh(ratio * (margin - centre)),
            ratio * (1 - np.tanh(ratio * (margin - centre)) ** 2),
        )
        b = theta + slope * np.array(direction)[:, None, None]
        return (1 + bend) * np.exp(-(b**2).sum(axis=0) / 2) / (2 * math.pi)

    p, q = density((1.0, 0.0), 0.8), density((math.cos(angle), math.sin(angle)), -0.5)
    (pair,) = tilt_pairs(math.log1p(ratio), 2.0, REPLACE)
    bound, cell = profile(pair), (axis[1] - axis[0]) ** 2
    for epsilon in (-1.0, 0.0, *np.linspace(0.05, 0.6, 12) * pair.high):
        assert true_delta(p, q, epsilon, cell) <= bound(epsilon) + 1e-7
        assert true_delta(q, p, epsilon, cell) <= bound(epsilon) + 1e-7


def survival(t):
    return math.exp(-t * t / 2) if t < BEND else 2 * stats.norm.cdf(-t)


@pytest.mark.parametrize("length", np.linspace(0, 1, 41))
def test_from_the_bend_four_vectors_are_no_worse_than_one(length):
    """h(w) + h(m^2 - w) <= 2 Phi(-t), the step of the proof that needs convexity."""
    for mu in (0.01, 0.3, 2.0, 20.0):
        for t in (BEND, 2.0, 4.4, 9.0):
            y = mu * (t + mu / 2)
            parts = [mu * math.sqrt(part) for part in (length, 1 - length) if part > 0]
            assert sum(2 * stats.norm.cdf(m / 2 - y / m) for m in parts) <= survival(t) * (1 + 1e-12)


@pytest.mark.parametrize("mu", [0.05, 0.7, 4.0, 30.0])
def test_the_tails_of_q_and_the_moments_are_integrals_of_the_tail_of_p(mu):
    """E[e^-U; U > u] = e^-u P[U > u] - int e^-v P[U > v] dv, and the like for E e^(tU)."""
    jacobian = 0.2
    for relation in (ADD, REPLACE):
        for pair in tilt_pairs(jacobian, mu, relation):
            edges = pair.low + (pair.high - pair.low) * np.array([1e-9, 0.03, 0.1, 0.13, 0.3, 0.6])

            def above(v, pair=pair):
                return float(np.exp(pair.tails(np.array([v])).p_above[0]))

            bend = pair.low + BEND * mu
            for edge, found in zip(edges, pair.tails(edges).q_above, strict=True):
                points = [edge, *([bend] if edge < bend else []), pair.high + 10 * mu]
                tail = sum(
                    integrate.quad(lambda v, e=edge: math.exp(e - v) * above(v), *at, limit=400, epsabs=0)[0]
                    for at in itertools.pairwise(points)
                )
                assert math.exp(found + edge) == pytest.approx(above(edge) - tail, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("mu", [0.05, 0.7, 3.0])
@pytest.mark.parametrize("t", [0.1, 1.0, 4.0])
def test_the_moments_are_those_of_the_laws(mu, t):
    def moment(pair):
        def weighed(v):
            return t * math.exp(t * (v - pair.low) + float(pair.tails(np.array([v])).p_above[0]))

        ends = [pair.low, pair.low + BEND * mu, pair.high + (t + 4) * mu**2 + 10 * mu]
        return t * pair.low + math.log1p(
            sum(integrate.quad(weighed, *e, limit=400)[0] for e in itertools.pairwise(ends))
        )

    for relation in (ADD, REPLACE):
        worst = max(moment(pair) for pair in tilt_pairs(0.2, mu, relation))
        assert float(tilt_log_moments(0.2, mu, relation, np.array([t]))[0]) == pytest.approx(worst, rel=1e-6)


def test_beyond_the_determinants_delta_is_that_of_a_gaussian():
    bound = profile(tilt_pairs(0.3, 0.5, ADD)[0], 20_000)
    for epsilon in (0.3, 0.6, 1.5, 2.4):
        left = epsilon - 0.3
        exact = stats.norm.cdf(0.25 - left / 0.5) - math.exp(left) * stats.norm.cdf(-0.25 - left / 0.5)
        assert exact <= bound(epsilon) <= exact * (1 + 1e-3) + 1e-12


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_more_noise_costs_less_and_larger_determinants_cost_more(relation, accountant):
    def cost(multiplier, jacobian, times=1):
        event = dp.SelfComposedDpEvent(TiltDpEvent(multiplier, jacobian), times)
        return certify_by(accountant, event, 1e-6, relation).epsilon

    assert cost(1.0, 0.1) > cost(2.0, 0.1) > cost(20.0, 0.1) > cost(1e6, 0.1) > 0.1 - 1e-5
    assert cost(5.0, 0.0) < cost(5.0, 0.1) < cost(5.0, 1.0)
    assert cost(5.0, 0.1) < cost(5.0, 0.1, 2) < cost(5.0, 0.1, 9)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_tilts_compose_with_everything_and_never_below_gaussians(relation):
    tilts = dp.SelfComposedDpEvent(TiltDpEvent(6.0, 0.05), 4)
    tree = together(tilts, dp.GaussianDpEvent(8.0), dp.LaplaceDpEvent(9.0))
    found, loose = (certify_by(name, tree, 1e-6, relation).epsilon for name in ("pld", "rdp"))
    gaussians = together(dp.SelfComposedDpEvent(dp.GaussianDpEvent(6.0), 4), dp.GaussianDpEvent(8.0))
    assert certify(gaussians, 1e-6, relation).epsilon < found < loose


def test_the_directions_of_a_composition_are_those_of_one_record():
    """Present goes with a batch that may hold the record; the dearer parts of both would cost more."""
    tree = together(TiltDpEvent(3.0, 0.0), dp.PoissonSampledDpEvent(0.2, dp.GaussianDpEvent(1.0)))
    batch = gaussian_pair(1.0)
    sides = zip(
        tilt_pairs(0.0, 1 / 3.0, ADD), (removal_pair(batch, 0.2), addition_pair(batch, 0.2)), strict=True
    )
    parts = [[(discretise(pair, 1e-3), 1) for pair in side] for side in sides]
    costs = [compose(side, 2**22).epsilon(1e-6) for side in parts]
    mixed = compose([parts[1][0], parts[0][1]], 2**22).epsilon(1e-6)
    assert certify(tree, 1e-6, ADD, grid=1e-3).epsilon == pytest.approx(max(costs), rel=1e-6)
    assert mixed > 1.01 * max(costs)


def test_normal_forms_and_refusals():
    assert (
        flatten(TiltDpEvent(0.0, 0.1))
        == flatten(TiltDpEvent(2.0, math.inf))
        == [Leaf(dp.NonPrivateDpEvent(), 1)]
    )
    assert flatten(TiltDpEvent(math.inf, 0.1)) == [Leaf(TiltDpEvent(1e30, 0.1), 1)]
    for wrong in (TiltDpEvent(-1.0, 0.1), TiltDpEvent(1.0, -0.1), TiltDpEvent(math.nan, 0.1)):
        with pytest.raises(InvalidInputError):
            flatten(wrong)
    for relation in (ADD, REPLACE):
        with pytest.raises(UnsupportedError, match="TiltDpEvent"):
            certify(dp.PoissonSampledDpEvent(0.1, TiltDpEvent(2.0, 0.1)), 1e-5, relation)


def plan(relation, strength=0.05):
    fit = CertifiedMinimiser(Logistic(), 1.0, strength, 100, (3,), 1.0)
    query = TiltedMinimiser(fit)
    release = Release(query, TiltedObjective(jacobian=query.jacobian), Full(), mean=False)
    return Plan({"fit": release}, population=100, relation=relation)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5])
def test_calibration_lands_just_below_the_target(relation, epsilon, delta):
    found = certify(calibrate(plan(relation), epsilon, delta).event(), delta, relation).epsilon
    assert 0.99 * epsilon < found <= epsilon


def test_determinants_above_the_budget_are_refused():
    with pytest.raises(CalibrationError):
        calibrate(plan(ADD, 0.001), 0.5, 1e-5)
