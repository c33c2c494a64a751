"""Calibration: cold, remembered, and beside dp-accounting's own bisection."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable

from dp_accounting import dp_event as dp
from dp_accounting import pld
from dp_accounting.mechanism_calibration import ExplicitBracketInterval, calibrate_dp_mechanism

from benchmarks.machine import describe
from sordino.accounting import calibration, certify, solve_scale
from sordino.accounting.renyi import leaf_curve
from sordino.kernel.events import Relation, gaussian_event, poisson_event, repeat_event, zcdp_event

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE


def poisson(rate: float, times: int, relation: Relation) -> Callable[[float], dp.DpEvent]:
    """Return the event of a Poisson-sampled plan at a multiplier."""
    return lambda z: repeat_event(poisson_event(rate, gaussian_event(z, relation)), times)


def several(z: float) -> dp.DpEvent:
    """Return ten anchors and a thousand corrections, each with its own noise."""
    parts = [repeat_event(poisson_event(0.1, gaussian_event(4 * z, ADD)), 10)]
    parts.append(repeat_event(poisson_event(0.001, gaussian_event(z, ADD)), 1000))
    return dp.ComposedDpEvent(parts)


def selection(z: float) -> dp.DpEvent:
    """Return a private support and a thousand sampled gradients, by Rényi."""
    return dp.ComposedDpEvent([zcdp_event(5 / z**2), poisson(0.01, 1000, REPLACE)(z)])


PLANS: list[tuple[str, Callable[[float], dp.DpEvent], float, float, Relation]] = [
    ("Poisson q=.01 T=1000", poisson(0.01, 1000, ADD), 1.0, 1e-5, ADD),
    ("the same, replace-one", poisson(0.01, 1000, REPLACE), 1.0, 1e-5, REPLACE),
    ("q=.005 T=4048", poisson(100 / 20242, 4048, ADD), 2.0, 1e-5, ADD),
    ("q=.001 T=1,000,000", poisson(0.001, 10**6, ADD), 1.0, 1e-5, ADD),
    ("q=.003 T=3256", poisson(100 / 32561, 3256, ADD), 0.1, 1e-3, ADD),
    ("q=.01 T=1000, large", poisson(0.01, 1000, ADD), 30.0, 1e-5, ADD),
    ("anchors + corrections", several, 1.0, 1e-5, ADD),
    ("selection + gradients", selection, 1.0, 1e-5, REPLACE),
    ("full batch T=100", lambda z: repeat_event(gaussian_event(z, ADD), 100), 1.0, 1e-5, ADD),
]


def forget() -> None:
    """Empty what the process remembers, so that a run is cold."""
    calibration._certify.cache_clear()
    leaf_curve.cache_clear()


def cpu(function: Callable[[], float]) -> tuple[float, float]:
    """Return the result and the CPU seconds it took."""
    start = time.process_time()
    result = function()
    return result, time.process_time() - start


def library_bisection() -> float:
    """Calibrate the first plan with dp-accounting's own bisection."""
    return calibrate_dp_mechanism(
        lambda: pld.PLDAccountant(value_discretization_interval=1e-4),
        poisson(0.01, 1000, ADD),
        1.0,
        1e-5,
        ExplicitBracketInterval(0.5, 4.0),
        tol=1e-4,
    )


def main() -> None:
    """Print the table."""
    describe()
    heads = ("epsilon", 8), ("multiplier", 11), ("reached", 9), ("cold CPU s", 11), ("cached ms", 10)
    print(f"{'plan':<24}", *(f"{word:>{width}}" for word, width in heads))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SORDINO_CACHE"] = folder
        certify(dp.GaussianDpEvent(1.0), 1e-5, ADD)  # imports are not calibration
        for name, event_at, epsilon, delta, relation in PLANS:
            forget()
            scale, cold = cpu(lambda e=event_at, a=epsilon, d=delta, r=relation: solve_scale(e, a, d, r))
            repeats = 50
            start = time.perf_counter()
            for _ in range(repeats):
                solve_scale(event_at, epsilon, delta, relation)
            cached = (time.perf_counter() - start) / repeats
            reached = certify(event_at(scale), delta, relation).epsilon
            print(
                f"{name:<24} {epsilon:>8g} {scale:>11.5g} {reached / epsilon:>9.3%} "
                f"{cold:>11.3f} {1e3 * cached:>10.2f}"
            )
    theirs, seconds = cpu(library_bisection)
    print(f"dp-accounting's bisection of the first plan: multiplier {theirs:.5g}, {seconds:.1f} CPU s")
    print("bars: first plan under 1 s cold and 5 ms cached, multiplier within 1 % of 1.4147")


if __name__ == "__main__":
    main()
