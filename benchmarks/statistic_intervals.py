"""How often the intervals of statistics hold what they speak of, on columns of every kind.

Command: python -m benchmarks.statistic_intervals [--repeats 1000] [--only mean] [--column lognormal]
Columns: continuous, integer, tied, zero-inflated, heavy-tailed (t with 3 and 2.2 degrees of freedom, Pareto
with exponent 2.5, lognormal with sigma 1, 1.5 and 2). Means, variances, covariances, quantiles with and
without bounds; counts, sums, means and quantiles of a large and a small group. Each cell of 1,000 repeats
replaces the same one in benchmarks/results/statistic_intervals.json. The intervals were written with the laws
of benchmarks/laws.py in view, the constants of tails chosen on lognormal laws with sigma 0.5, 1 and 1.5, t(3)
and Pareto(2.5), in the end with lognormal sigma 2, Pareto(1.5) and zero-inflated columns in view. t(2.2),
t(2), Weibull(.5) and the mixtures judge. Those under "limits" lack a moment or have a heavy part behind a
light one: they are kept beside the cells. "endless": how often an end is infinite.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import sordino
from benchmarks.laws import LAWS, Judged, Law, Q, _mixed, _of
from sordino.solvers.heavy import location as hidden
from sordino.testing import seeded_noise_not_private

OUT = Path(__file__).parent / "results" / "statistic_intervals.json"
SETTINGS = ((1000, 1.0), (3000, 0.3))
HEAVIER = {"lognormal(1.5)": 0.5, "lognormal(2)": 0.2}  # the moment_order that a user may declare
FEW_MOMENTS = ("t(2.2)", "pareto(2.5)")  # a variance needs a third moment; these stand under "limits"
RANKED = ("continuous", "integer", "tied", "zero-inflated", "t(3)")
COLUMNS: dict[str, Law] = {
    "continuous": LAWS["normal"],
    "integer": LAWS["integer"],
    "tied": LAWS["tied"],
    "zero-inflated": LAWS["zero-inflated"],
    "t(3)": LAWS["t(3)"],
    "t(2.2)": _of(stats.t(2.2)),
    "pareto(2.5)": _of(stats.pareto(2.5)),
    "lognormal(1)": LAWS["lognormal"],
    "lognormal(1.5)": _of(stats.lognorm(1.5)),
    "lognormal(2)": _of(stats.lognorm(2.0)),
}
LIMITS: dict[str, Law] = {
    "t(2)": _of(stats.t(2)),
    "pareto(1.5)": _of(stats.pareto(1.5)),
    "weibull(0.5)": _of(stats.weibull_min(0.5)),
    "80 % exponential, 20 % lognormal(2)": _mixed(0.8, stats.expon(), stats.lognorm(2.0)),
    "90 % normal, 10 % pareto(1.5)": _mixed(0.9, stats.norm(), stats.pareto(1.5)),
}
LEVELS, SHARES = ("large", "small"), (0.85, 0.15)
BOUNDS = (-100.0, 200.0)  # of all columns, where bounds are asked for
Cell = tuple[str, str, tuple[tuple[int, float], ...], Callable[..., list[tuple[Any, ...]]]]


def _ends(found: Any, truth: Any) -> list[tuple[Any, ...]]:
    """Return value, ends and truth of each number of an answer."""
    parts = (found, *found.interval, np.broadcast_to(truth, np.shape(found)))
    return list(zip(*(np.ravel(part).astype(float) for part in parts), strict=True))


def cells() -> Iterator[Cell]:
    """Yield what is asked, on which column, the settings, and how to ask."""
    for name, law in COLUMNS.items():
        yield "mean", name, SETTINGS, partial(_asked, "mean", law, {})
        if name in HEAVIER:
            yield "mean", f"{name}, declared", SETTINGS, partial(_asked, "mean", law, _declared(name))
        if name not in FEW_MOMENTS:
            yield "variance", name, SETTINGS[:1], partial(_asked, "variance", law, {})
        yield "group_by.mean", name, SETTINGS, partial(_grouped, "mean", law)
        yield "group_by.sum", name, SETTINGS[:1], partial(_grouped, "sum", law)
    yield "group_by.count", "any", SETTINGS, partial(_grouped, "count", COLUMNS["continuous"])
    for name in RANKED:
        law, first = COLUMNS[name], SETTINGS[:1]
        yield "quantiles", name, first, partial(_ranked, law, None)
        yield "quantiles with bounds", name, first, partial(_ranked, law, BOUNDS)
        yield "group_by.quantile", name, first, partial(_grouped, "quantile", law)
        if name != "zero-inflated":
            yield "covariance", name, first, partial(_paired, law)


def _declared(name: str) -> dict[str, float]:
    return {"moment_order": HEAVIER[name]}


def _asked(statistic: str, law: Law, options: Any, rng: Any, n: int, epsilon: float) -> Any:
    found = getattr(sordino, statistic)(law.draw(rng, n), epsilon, **options)
    return _ends(found, getattr(law, statistic))


def _ranked(law: Law, bounds: Any, rng: Any, n: int, epsilon: float) -> Any:
    return _ends(sordino.quantiles(law.draw(rng, n), Q, epsilon, bounds=bounds), law.quantiles)


def _paired(law: Law, rng: Any, n: int, epsilon: float) -> Any:
    one, other = law.draw(rng, n), law.draw(rng, n)
    found = sordino.covariance(np.stack([one, (one + other) / 2], axis=1), epsilon)
    return _ends(found, law.variance * np.array([[1.0, 0.5], [0.5, 0.5]]))


_CLIPPED: dict[int, float] = {}


def _clipped_mean(law: Law) -> float:
    """Return the mean of a law between the bounds, from ten million draws."""
    if id(law) not in _CLIPPED:
        rng = np.random.default_rng(9)
        _CLIPPED[id(law)] = float(
            np.mean([np.clip(law.draw(rng, 1_000_000), *BOUNDS).mean() for _ in range(10)])
        )
    return _CLIPPED[id(law)]


def _grouped(kind: str, law: Law, rng: Any, n: int, epsilon: float) -> list[tuple[Any, ...]]:
    x, owner = law.draw(rng, n), rng.choice(LEVELS, n, p=SHARES)
    by, truth = sordino.group_by(owner, levels=LEVELS), np.zeros(2)
    if kind == "count":
        table, truth = by.count(epsilon), np.array([(owner == g).sum() for g in LEVELS])
    elif kind == "sum":
        table = by.sum(x, epsilon, bounds=BOUNDS)
        truth = np.array([np.clip(x[owner == g], *BOUNDS).sum() for g in LEVELS])
    elif kind == "mean":
        table, truth = by.mean(x, epsilon, bounds=BOUNDS), truth + _clipped_mean(law)
    else:
        table = by.quantile(x, Q, epsilon, bounds=BOUNDS)
        truth = np.tile(np.clip(law.quantiles, *BOUNDS), 2)
    return list(zip(table.value, table.low, table.high, truth, strict=True))


def measured(ask: Any, n: int, epsilon: float, repeats: int) -> dict[str, float]:
    """Return the coverage of the worst number of an answer, with its error and half width."""
    rng = np.random.default_rng(1)
    with seeded_noise_not_private(7):
        answers = np.array([ask(rng, n, epsilon) for _ in range(repeats)])
    judged = [Judged.of(*(a[:, j] - a[:, 3] for j in range(3)), 0.0) for a in answers.transpose(1, 0, 2)]
    worst = min(judged, key=lambda found: found.coverage)
    ratio = round(worst.ratio, 2) if np.isfinite(worst.ratio) else "inf"
    found = {"coverage": worst.coverage, "error": float(f"{worst.rmse:.3g}"), "half / error": ratio}
    endless = float(np.mean(np.isinf(answers[:, :, 1:3]).any(axis=(1, 2))))
    return found | ({"endless": endless} if endless else {})


def kept(part: str, statistic: str, column: str, n: int, epsilon: float, found: dict[str, Any]) -> None:
    """Write what was measured into the file of results, in the place of the same cell."""
    results = json.loads(OUT.read_text("utf-8"))
    row = {"statistic": statistic, "column": column, "n": n, "epsilon": epsilon, **found}
    same = [all(r[k] == row[k] for k in list(row)[:4]) for r in results.setdefault(part, [])]
    if any(same):
        results[part][same.index(True)] = row
    else:
        results[part].append(row)
    OUT.write_text(json.dumps(results, indent=1) + "\n")


def limits() -> Iterator[Cell]:
    """Yield what is asked of laws of which not enough can be seen."""
    for column, law in LIMITS.items():
        yield "mean", column, SETTINGS, partial(_asked, "mean", law, {})
    for column in FEW_MOMENTS:
        yield "variance", column, SETTINGS[:1], partial(_asked, "variance", COLUMNS[column], {})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--only", default="", help="One statistic, or 'limits'.")
    parser.add_argument("--column", default="", help="Columns whose names hold this.")
    parser.add_argument("--doubt", type=float, help="Another DOUBT of tails, kept apart.")
    asked = parser.parse_args()
    if asked.doubt is not None:
        hidden.two_sides.__defaults__ = (asked.doubt,)
    warnings.simplefilter("ignore", sordino.errors.UndeclaredBoundWarning)
    for part, wanted in (("cells", cells()), ("limits", limits())):
        for statistic, column, settings, ask in wanted:
            if asked.only not in ("", statistic, part) or asked.column not in column:
                continue
            for n, epsilon in settings:
                found = measured(ask, n, epsilon, asked.repeats)
                print(statistic, column, n, epsilon, found, flush=True)
                if asked.doubt is not None:
                    kept(f"doubt {asked.doubt:g}", statistic, column, n, epsilon, found)
                elif asked.repeats >= 1000:
                    kept(part, statistic, column, n, epsilon, found)


if __name__ == "__main__":
    main()
