"""Tao et al., heavy tails: no experiments are printed, so the slopes of the proven rates are measured."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from sordino.datasets import Pareto, StudentT
from sordino.errors import NotPrivateWarning
from sordino.estimators.heavy import HeavyTailedRegressor
from sordino.estimators.statistics import mean
from sordino.kernel import public_generator
from sordino.literature.reproduce import tables
from sordino.literature.reproduce.linear import RELATIONS, certified_epsilon

DELTA = 1e-6


def rates(quick: bool) -> tables.Table:
    """Slopes of errors against n on doubly logarithmic axes."""
    sizes: tuple[int, ...] = (1000, 2154, 4641, 10_000, 21_544, 46_415, 100_000)
    sizes, repeats = (sizes[:5:2], 30) if quick else (sizes, 200)
    rows = []
    for order in (0.3, 0.5, 0.7, 1.0):
        known = tables.run_of(f"mean/{order}/known", partial(_mean_slope, order, True, sizes, repeats))
        ours = tables.run_of(f"mean/{order}/auto", partial(_mean_slope, order, False, sizes, repeats))
        printed = tables.run_of(f"mean/{order}/paper", partial(_printed_slope, order, sizes, repeats))
        rows.append(_row(f"mean, v = {order:g}", -order / (1 + order), known, ours, printed))
    sizes, few = (3000, 10_000, 30_000) if quick else (3000, 10_000, 30_000, 100_000), 6 if quick else 12
    for order in (0.5, 1.0):
        options: dict[str, Any] = {
            "split": {"solver_options": {"split": True}}, "convex": {"solver": "convex"}, "default": {}
        }  # fmt: skip
        split, convex, ours = (
            tables.run_of(
                f"risk/{order}/{way}", partial(_risk_slope, {"moment_order": order, **more}, sizes, few)
            )
            for way, more in options.items()
        )
        words, rate = _certifies(solver="strongly-convex", split=True), -order / (1 + order)
        rows.append(_row(f"strongly convex risk, v = {order:g}", 2 * rate, split, ours, words))
        rows.append(_row(f"convex risk, v = {order:g}", rate, convex, ours, _certifies(solver="convex")))
        several = partial(_columns_slope, order, sizes, 6 if quick else 30)
        words = "no experiment printed; the noise is that of DPODME"
        far = tables.run_of(f"columns/{order}/known", partial(several, True))
        near = tables.run_of(f"columns/{order}/auto", partial(several, False))
        rows.append(_row(f"ten means, v = {order:g}", rate, far, near, words))
    rows += _sparse_rows(quick)
    return tables.printed_table("tao-rates", rows)


def _sparse_rows(quick: bool) -> list[tables.Row]:
    """The rate ``s^((1+2v)/(1+v)) (log d / (n eps))^(2v/(1+v))``, one factor after another."""
    base = Sparse()
    sizes = (3000, 10_000, 30_000) if quick else (10_000, 31_623, 100_000, 316_228)
    ways: list[tuple[str, float, list[Sparse], Any]] = [
        ("n", -2 / 3, [replace(base, n=n, v=0.5) for n in sizes], lambda at: at.n),
        ("n", -1.0, [replace(base, n=n) for n in sizes], lambda at: at.n),
        ("s", 1.5, [replace(_JUDGED, s=s) for s in (3, 6, 12)], lambda at: at.s),
        ("log d", 1.0, [replace(base, d=d) for d in (25, 100, 400)], lambda at: math.log(at.d)),
    ]
    rows, repeats = [], 6 if quick else 10
    for name, theory, designs, size in ways:
        order, along = designs[0].v, [round(size(at), 5) for at in designs]  # settings: no digit of log's own
        peeled, ours = (
            tables.run_of(
                f"sparse/{name}/{order}/{way}", partial(_sparse_slope, way, designs, along, repeats)
            )
            for way in ("peeling", "gumbel")
        )
        most = max(at.s for at in designs)
        printed = f"{_certifies(n_nonzero_coefs=most, selection='peeling')} at s = {most}"
        rows.append(_row(f"sparse risk in {name}, v = {order:g}", theory, peeled, ours, printed))
    return rows


@cache
def _certifies(**options: Any) -> str:
    """Say what the printed noise certifies; its step sizes are not printed, so that it is not run."""
    few = np.zeros((100, 20))
    facts: dict[str, Any] = {"noise": "paper", "moment_bound": 1.0, "fit_intercept": False}
    own: dict[str, Any] = {name: options.pop(name) for name in ("selection", "split") if name in options}
    facts.update(options, solver_options={"step_size": 0.1, **own})
    models = [HeavyTailedRegressor(1.0, DELTA, relation=r, **facts) for r in RELATIONS]
    found = [tables.short(certified_epsilon(model, few, few[:, 0])) for model in models]
    return f"no experiment printed; the noise certifies {' / '.join(found)}"


def _row(
    method: str, theory: float, sound: tables.Runs, default: tables.Runs, paper: tables.Runs | str
) -> tables.Row:
    cells = tables.by_mode(paper, sound, default, "a slope of the noise")
    return tables.Row("rates", method, 1.0, DELTA, round(theory, 4), cells)


@dataclass(frozen=True)
class Sparse:
    """A sparse regression whose gradients have just moments of order 1 + v; its norm does not grow with s."""

    n: int = 30_000
    d: int = 50
    s: int = 4
    v: float = 1.0


_JUDGED = Sparse(40_000, 80)  # sizes that were not in view when the norm of the truth was fixed


def sparse_risk(at: Sparse, selection: str, repeats: int, seed: int = 0) -> float:
    w = np.zeros(at.d)
    w[: at.s] = np.where(np.arange(at.s) % 2, -2.0, 2.0) / math.sqrt(at.s)
    options: dict[str, Any] = {"n_nonzero_coefs": at.s, "solver_options": {"selection": selection}}
    return _risk(w, at.n, {"moment_order": at.v, **options}, repeats, (seed, at.n, at.d, at.s))


def _risk(w: Any, n: int, options: dict[str, Any], repeats: int, seed: tuple[int, ...]) -> float:
    """Return the median excess risk of a regression with Student-t features and noise of index 2.2.

    With a ``moment_order`` v features are normal and noise has index 1.2 + v: gradients have such moments.
    """
    normal, public, risks = "moment_order" in options, public_generator(seed), []
    law, half_variance = StudentT(1.2 + options.get("moment_order", 1.0)), 0.5 if normal else 5.5
    for _ in range(repeats):
        x = public.normal(size=(n, len(w))) if normal else law.draw(public, (n, len(w)))
        y = x @ w + law.draw(public, (n,))
        model = HeavyTailedRegressor(1.0, DELTA, fit_intercept=False, **options).fit(x, y)
        risks.append(half_variance * float(np.sum((model.coef_ - w) ** 2)))
    return float(np.median(risks))


def slope(sizes: Any, errors: Any) -> float:
    """Return the least-squares slope on doubly logarithmic axes."""
    return float(np.polyfit(np.log(sizes), np.log(errors), 1)[0])


def mean_errors(
    order: float, known: bool, sizes: Any, repeats: int, seed: int = 0, noise: str = "sound"
) -> list[float]:
    """Return mean absolute errors at epsilon 1 on Pareto numbers of index 1.03 + v, by size."""
    law, public = Pareto(1.03 + order), public_generator(seed)
    bound: Any = law.moment_bound(1 + order) if known else "auto"
    errors = []
    for n in sizes:
        rows = law.draw(public, (repeats, n))
        found = [mean(x, 1.0, DELTA, moment_order=order, moment_bound=bound, noise=noise) for x in rows]
        errors.append(float(np.mean(np.abs(np.array(found, dtype=float) - law.mean))))
    return errors


def excess_risks(options: dict[str, Any], sizes: Any, repeats: int, seed: int = 0) -> list[float]:
    """Return median excess risks by size, 5 columns."""
    w = np.array([1.0, -1.0, 0.5, 0.0, 2.0])
    few = max(1, repeats // 3)
    return [_risk(w, n, options, repeats if n < 100_000 else few, (seed, n)) for n in sizes]


def _mean_slope(order: float, known: bool, sizes: Any, repeats: int, seed: int) -> tables.Outcome:
    return {"value": slope(sizes, mean_errors(order, known, sizes, repeats, seed))}


def _columns_slope(order: float, sizes: Any, repeats: int, known: bool, seed: int) -> tables.Outcome:
    """Return the slope of DPHDME's distance on ten columns of Pareto numbers."""
    law, public, errors = Pareto(1.03 + order), public_generator((seed, 7)), []
    bound: Any = law.moment_bound(1 + order) if known else "auto"
    for n in sizes:
        options: Any = {"moment_order": order, "moment_bound": bound, "estimator": "median-of-means"}
        found = [mean(law.draw(public, (n, 10)), 1.0, DELTA, **options) for _ in range(repeats)]
        errors.append(float(np.mean([np.linalg.norm(np.asarray(x, dtype=float) - law.mean) for x in found])))
    return {"value": slope(sizes, errors)}


def _printed_slope(order: float, sizes: Any, repeats: int, seed: int) -> tables.Outcome:
    """Return the slope with the printed noise, and what that certifies."""
    with warnings.catch_warnings(action="ignore", category=NotPrivateWarning):
        value = slope(sizes, mean_errors(order, True, sizes, repeats, seed, "paper"))
        few: dict[str, Any] = {"moment_order": order, "moment_bound": 1.0, "noise": "paper"}
        found = {r: mean(np.zeros(100), 1.0, DELTA, relation=r, **few).privacy for r in RELATIONS}
    return {"value": value, **{r: report.epsilon for r, report in found.items() if report is not None}}


def _risk_slope(options: dict[str, Any], sizes: Any, repeats: int, seed: int) -> tables.Outcome:
    return {"value": slope(sizes, excess_risks(options, sizes, repeats, seed))}


def _sparse_slope(
    selection: str, designs: list[Sparse], sizes: Any, repeats: int, seed: int
) -> tables.Outcome:
    return {"value": slope(sizes, [sparse_risk(at, selection, repeats, seed) for at in designs])}
