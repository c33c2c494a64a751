"""Targets that nobody should want: answered, or refused with a reason, after a few certificates."""

import contextlib
import math

import pytest
from dp_accounting import dp_event as dp
from tests.accounting.helpers import ADD, gaussian, laplace, poisson, pure, zcdp

from sordino.accounting import calibration, certify
from sordino.accounting.calibration import SMALLEST_EPSILON, Search, solve_scale
from sordino.errors import CalibrationError
from sordino.kernel.events import TiltDpEvent

MOST = 16
"""Certificates of one search; a dear one takes half a second."""

SHAPES = {
    "poisson": lambda s: poisson(0.01, s, 1000),
    "poisson, rare": lambda s: poisson(1e-12, s, 10**9),
    "poisson, nearly all": lambda s: poisson(1 - 1e-12, s),
    "laplace": lambda s: laplace(s, 10),
    "zcdp": lambda s: zcdp(0.5 / s**2),
    "tilt": lambda s: TiltDpEvent(s, 0.1),
    "tuning": lambda s: dp.RepeatAndSelectDpEvent(gaussian(s), 10.0, 1.0),
}
AT_ONCE = [
    (shape, epsilon, delta)
    for shape in SHAPES
    for epsilon in (1e-300, 1e-12, 1e300)
    for delta in (1e-280, 1e-15, 1 - 1e-9)
]


@pytest.fixture
def certificates(monkeypatch, tmp_path):
    """Count the certificates of the searches of a test, which remember nothing."""
    calls = []

    def counting(*args):
        calls.append(args)
        return certify(*args)

    monkeypatch.setattr(calibration, "certify", counting)
    monkeypatch.setenv("SORDINO_CACHE", str(tmp_path))
    monkeypatch.setattr(calibration, "_MEMORY", {})
    return calls


@pytest.mark.parametrize(("shape", "epsilon", "delta"), AT_ONCE)
def test_what_no_noise_reaches_is_refused_after_one_certificate(certificates, shape, epsilon, delta):
    with pytest.raises(CalibrationError, match=r"Choose a(nother| larger) epsilon"):
        solve_scale(SHAPES[shape], epsilon, delta, ADD)
    assert len(certificates) <= 1


@pytest.mark.parametrize(
    ("shape", "epsilon", "delta"),
    [
        ("poisson", 1e-6, 1e-5),
        pytest.param("poisson", 1e6, 1e-280, marks=pytest.mark.long),
        pytest.param("poisson", 1.0, 1 - 1e-9, marks=pytest.mark.long),
        ("poisson, rare", 1e-6, 1e-5),
        ("poisson, rare", 1.0, 1e-5),
        ("poisson, nearly all", 1e6, 1 - 1e-9),
        ("laplace", 1e-6, 1e-5),
        ("laplace", 1.0, 1 - 1e-9),
        ("zcdp", 1e6, 1e-280),
        ("zcdp", 1e6, 1 - 1e-9),
        ("tilt", 1e6, 1e-15),
        ("tilt", 0.05, 1e-5),
        ("tuning", 1e6, 1e-280),
        ("tuning", 1e6, 1e-15),
    ],
)
def test_an_extreme_target_is_reached_or_refused_after_few_certificates(certificates, shape, epsilon, delta):
    with contextlib.suppress(CalibrationError):
        scale = solve_scale(SHAPES[shape], epsilon, delta, ADD)
        assert 0.99 * epsilon < certify(SHAPES[shape](scale), delta, ADD).epsilon <= epsilon
    assert 0 < len(certificates) <= MOST


def test_the_smallest_epsilon_is_within_reach():
    scale = solve_scale(lambda s: gaussian(s), SMALLEST_EPSILON, 0.1, ADD)
    assert certify(gaussian(scale), 0.1, ADD).epsilon <= SMALLEST_EPSILON


def stepped(jump_at, left, right):
    """An event whose cost jumps at a scale, as where one accountant hands over to another."""
    return lambda s: pure((left if s < jump_at else right) / s)


def test_a_jump_over_the_target_ends_the_search_and_is_named(certificates):
    with pytest.raises(CalibrationError, match=r"Near scale 3\.\d* what is proven falls from 3.* to 0\.3"):
        solve_scale(stepped(3.0, 9.0, 1.0), 1.0, 1e-9, ADD)
    assert len(certificates) <= MOST


def test_a_steep_fall_is_no_jump(certificates):
    """The fortieth power of the scale: epsilon halves within two percent, yet every epsilon is reached."""
    for epsilon in (0.01, 0.7, 3.0):
        scale = solve_scale(lambda s: pure(min(max((3.0 / s) ** 40, 1e-6), 100.0)), epsilon, 1e-9, ADD)
        assert 0.98 * epsilon < (3.0 / scale) ** 40 <= epsilon * (1 + 1e-6)


def test_a_jump_to_just_below_the_target_is_an_answer():
    search = Search(lambda s: 1 / s, 1.0, "epsilon")
    search.above, search.below, search.enough = [(0.0, 1.5)], [(0.01, 0.993)], 0.01
    assert search._beside_the_jump() == math.exp(0.01)


def test_where_epsilon_meets_zero_the_search_follows_a_straight_line():
    search = Search(lambda s: 1 / s, 1e-6, "epsilon")
    for x, epsilon in ((0.0, 0.4), (0.1, 0.2), (0.5, 0.0)):
        search._narrow(x, epsilon)
    assert search._next(0.5, 0.0) == pytest.approx(0.2, rel=1e-4)
    search.below = [(0.5, 1e-7)]
    assert search._straight() is None
