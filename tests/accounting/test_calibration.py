"""Calibration: as little noise as is proven enough."""

import hashlib
import math
import struct

import pytest
from dp_accounting import dp_event as dp
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.accounting.helpers import (
    ADD,
    REPLACE,
    fixed_size,
    gaussian,
    laplace,
    mixture,
    poisson,
    pure,
    together,
    zcdp,
)

from sordino.accounting import calibration, certify, solve_scale
from sordino.accounting import calibration as cache
from sordino.accounting.calibration import calibrate
from sordino.errors import CalibrationError, InvalidInputError
from sordino.kernel import (
    ClippedSum,
    Full,
    Gaussian,
    GumbelTopK,
    Laplace,
    Norm,
    NormGamma,
    Plan,
    Poisson,
    Release,
)
from sordino.kernel.events import PureDpEvent


class Sum(ClippedSum):
    """A sum with contributions of norm 3."""

    def __init__(self, norm=Norm.L2):
        self.norm = norm

    def contribution(self, params):
        return 3.0


def plan(relation=ADD, **releases):
    return Plan(releases, relation, population=1000)


GRADIENT = Release(Sum(), Gaussian(), Poisson(0.05), times=40)
ANCHOR = Release(Sum(), Gaussian(relative=2.0), Full(), times=3)
SUPPORT = Release(Sum(Norm.LINF), GumbelTopK(count=5), Full(), mean=False)


@pytest.fixture(autouse=True)
def _no_memory(tmp_path, monkeypatch):
    monkeypatch.setenv("SORDINO_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "_MEMORY", {})


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize(
    "releases",
    [
        {"gradient": GRADIENT},
        {"anchor": ANCHOR},
        {"anchor": ANCHOR, "gradient": GRADIENT},
        {"support": SUPPORT, "anchor": ANCHOR},
        {"support": SUPPORT, "gradient": GRADIENT},
        {"mean": Release(Sum(Norm.L1), Laplace(), times=4), "output": Release(Sum(), NormGamma())},
    ],
    ids=lambda releases: "+".join(releases),
)
@pytest.mark.parametrize("epsilon", [0.3, 4.0])
def test_certified_epsilon_lies_just_below_the_target(relation, releases, epsilon):
    ready = calibrate(plan(relation, **releases), epsilon, 1e-5)
    assert ready.is_calibrated
    found = certify(ready.event(), 1e-5, relation).epsilon
    assert 0.99 * epsilon < found <= epsilon


@settings(max_examples=15)
@given(
    rate=st.floats(1e-3, 0.5),
    times=st.integers(1, 2000),
    epsilon=st.floats(0.05, 8),
    delta=st.floats(1e-8, 1e-3),
    relation=st.sampled_from([ADD, REPLACE]),
)
def test_poisson_plans_reach_any_usual_target(rate, times, epsilon, delta, relation):
    scale = solve_scale(lambda z: poisson(rate, z, times), epsilon, delta, relation)
    found = certify(poisson(rate, scale, times), delta, relation).epsilon
    assert 0.99 * epsilon < found <= epsilon


SHAPES = {
    "gaussian": (lambda s: gaussian(s, 7), ADD),
    "poisson": (lambda s: poisson(0.01, s, 1000), REPLACE),
    "selection": (lambda s: together(zcdp(5 / (2 * s**2)), gaussian(s)), ADD),
    "pure": (lambda s: together(pure(1 / s), laplace(s, 3)), REPLACE),
    "fixed size": (lambda s: fixed_size(10000, 100, s, 1000), REPLACE),
    "mixture": (lambda s: mixture(s, [0.1, 1.0], [0.9, 0.1], 20), ADD),
    "tuning": (lambda s: dp.RepeatAndSelectDpEvent(poisson(0.01, s, 100), 10.0, 1.0), ADD),
}


@pytest.mark.parametrize(
    ("name", "epsilon"),
    [
        pytest.param(name, epsilon, marks=[pytest.mark.long] if (name, epsilon) == ("mixture", 100.0) else [])
        for name in SHAPES
        for epsilon in (1e-3, 100.0)
    ],
)
def test_extreme_targets_are_reached(name, epsilon):
    event_at, relation = SHAPES[name]
    scale = solve_scale(event_at, epsilon, 1e-5, relation)
    assert 0.99 * epsilon < certify(event_at(scale), 1e-5, relation).epsilon <= epsilon


def test_gaussian_plans_are_solved_in_one_evaluation(monkeypatch):
    calls = []

    def counting(*args):
        calls.append(args)
        return certify(*args)

    monkeypatch.setattr(calibration, "certify", counting)
    solve_scale(lambda z: gaussian(z, 30), 1.0, 1e-5, REPLACE)
    assert len(calls) == 1


def test_usual_plans_take_few_evaluations(monkeypatch):
    calls = []

    def counting(*args):
        calls.append(args)
        return certify(*args)

    monkeypatch.setattr(calibration, "certify", counting)
    solve_scale(lambda z: poisson(0.01, z, 1000), 1.0, 1e-5, ADD)
    assert len(calls) <= 6


def test_one_scale_multiplies_every_relative_size():
    ready = calibrate(plan(anchor=ANCHOR, gradient=GRADIENT), 1.0, 1e-5)
    anchor, gradient = (r.mechanism.multiplier for r in ready.releases.values())
    assert anchor == pytest.approx(2 * gradient)


def test_infinite_epsilon_means_no_noise():
    ready = calibrate(plan(gradient=GRADIENT), math.inf, 1e-5)
    assert ready.releases["gradient"].mechanism.multiplier == 0
    assert certify(ready.event(), 1e-5, ADD).epsilon == math.inf


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, "1"])
def test_impossible_epsilons_are_refused(epsilon):
    with pytest.raises(InvalidInputError, match="epsilon > 0"):
        calibrate(plan(gradient=GRADIENT), epsilon, 1e-5)


@pytest.mark.parametrize("delta", [0, 1, math.nan, None])
def test_impossible_deltas_are_refused(delta):
    with pytest.raises(InvalidInputError, match="delta"):
        calibrate(plan(gradient=GRADIENT), 1.0, delta)


def test_an_event_that_noise_cannot_help_names_what_is_reachable():
    with pytest.raises(CalibrationError, match=r"epsilon=1 at delta=1e-05.*between 7\.08 and 7\.08"):
        solve_scale(lambda _: dp.ZCDpEvent(1.0), 1.0, 1e-5, ADD)


def test_a_floor_that_noise_does_not_lower_is_named():
    floor = dp.ZCDpEvent(0.05)
    with pytest.raises(CalibrationError, match="reached costs between"):
        solve_scale(lambda z: together(floor, gaussian(z)), 0.5, 1e-5, ADD)
    scale = solve_scale(lambda z: together(floor, gaussian(z)), 3.0, 1e-5, ADD)
    assert certify(together(floor, gaussian(scale)), 1e-5, ADD).epsilon <= 3.0


def test_a_release_without_noise_cannot_be_calibrated():
    with pytest.raises(CalibrationError, match="without noise"):
        solve_scale(lambda z: together(gaussian(z), dp.NonPrivateDpEvent()), 1.0, 1e-5, ADD)


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_remembered_result_is_found_without_a_search(monkeypatch, forgotten):
    first = calibrate(plan(gradient=GRADIENT), 1.0, 1e-5)
    monkeypatch.setattr(calibration, "Search", None)
    if forgotten:  # as a new process does, which has the file only
        cache._MEMORY.clear()
    again = calibrate(plan(gradient=GRADIENT), 1.0, 1e-5)
    assert again.releases["gradient"].mechanism == first.releases["gradient"].mechanism


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 1.1},
        {"delta": 2e-5},
        {"relation": REPLACE},
        {"event_at": lambda z: poisson(0.05, z, 41)},
        {"event_at": lambda z: poisson(0.05, z**2, 40)},  # the same event at scale 1
    ],
)
def test_another_problem_is_another_result(change, monkeypatch):
    problem = {"event_at": lambda z: poisson(0.05, z, 40), "epsilon": 1.0, "delta": 1e-5, "relation": ADD}
    solve_scale(**problem)
    monkeypatch.setattr(calibration, "Search", None)
    solve_scale(**problem)
    with pytest.raises(TypeError):
        solve_scale(**{**problem, **change})


@pytest.mark.parametrize("content", ["", "[]", "{", "null", '{"scale": 1e-9, "epsilon": 0.9999}'])
def test_a_damaged_memory_is_ignored(content, tmp_path):
    expected = solve_scale(lambda z: poisson(0.05, z, 40), 1.0, 1e-5, ADD)
    (file,) = tmp_path.rglob("*.json")
    file.write_text(content)
    cache._MEMORY.clear()
    assert solve_scale(lambda z: poisson(0.05, z, 40), 1.0, 1e-5, ADD) == expected
    assert cache.load(file.stem) == expected  # and mended


@pytest.mark.parametrize("factor", [1e-300, 1e-3, 0.999, 1.02, 1e3, 1e300])
def test_a_scale_that_is_not_certified_is_searched_for_anew(factor, tmp_path):
    """Whatever stands in the file or in the memory, what is returned is certified for the event."""
    expected = solve_scale(lambda z: poisson(0.05, z, 40), 1.0, 1e-5, ADD)
    (file,) = tmp_path.rglob("*.json")
    cache.store(file.stem, expected * factor)
    cache._MEMORY.clear()
    assert solve_scale(lambda z: poisson(0.05, z, 40), 1.0, 1e-5, ADD) == expected
    assert cache.load(file.stem) == expected
    cache._MEMORY[file.stem] = expected * factor
    assert solve_scale(lambda z: poisson(0.05, z, 40), 1.0, 1e-5, ADD) == expected


def test_starting_point_is_close_for_many_small_steps():
    problem = (lambda z: poisson(0.01, z, 1000), 0.5, 1e-5, ADD)
    assert calibration._guess(*problem) == pytest.approx(solve_scale(*problem), rel=0.1)


def test_pure_events_scale_like_their_noise():
    scale = solve_scale(lambda s: PureDpEvent(1 / s), 0.25, 1e-9, ADD)
    assert scale == pytest.approx(4.0, rel=2e-3)


def test_a_secant_that_leaves_the_bracket_is_replaced_by_the_middle():
    search = calibration.Search(lambda z: 1 / z, 1.0, "epsilon")
    search._narrow(0.0, 4.0)
    search._narrow(1.0, 0.9)
    assert (search.too_little, search.enough) == (0.0, 1.0)
    search.points = [(0.0, math.log(4.0)), (1.0, math.log(3.9))]  # nearly flat: the secant runs far away
    assert search._next(1.0, 3.9) == 0.5


def test_where_epsilon_is_infinite_the_search_jumps():
    search = calibration.Search(lambda z: 1 / z, 1.0, "epsilon")
    search._narrow(0.0, math.inf)
    assert search._next(0.0, math.inf) == pytest.approx(math.log(8))
    assert search.points == []
    search._narrow(math.log(8), 0.0)
    assert search._next(math.log(8), 0.0) == pytest.approx(math.log(8) / 2)


@pytest.mark.parametrize("steep", [0.25, 0.5, 3.0, 10.0])
def test_a_target_among_costs_that_move_by_their_rounding_is_met_after_few_of_them(steep):
    costs = []

    def cost(scale):
        rounded = 1.006 if hashlib.sha256(struct.pack("d", scale)).digest()[0] % 2 else 0.996
        costs.append(rounded * scale**-steep)
        return costs[-1]

    scale = calibration.Search(cost, 1.0, "a target").run(lambda: 2.0)
    assert (
        len(costs) <= 30
    )  # each cuts the bracket, which a search for one nearer to the target would exhaust
    assert 0.99 < cost(scale) <= 1.0
