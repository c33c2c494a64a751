"""Bars of heavy-tailed models, of the order of rows, and of stated uncertainties.

Run by `python -m benchmarks.bars`. `intervals` reads the cells of `python -m benchmarks.behaviour`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

import sordino
from benchmarks.bars import Bar, medians, numbers
from benchmarks.behaviour import RESULT
from sordino.datasets import load, unit_rows
from sordino.literature.reproduce.heavy import excess_risks, slope
from sordino.testing import seeded_noise_not_private

LEAST = 0.93


def _student(seed: int, n: int, d: int, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    public = np.random.default_rng(seed)
    X = public.standard_t(3, size=(n, d)) / math.sqrt(3 * d)
    s = X @ np.where(np.arange(d) < 20, public.normal(size=d), 0.0)
    return X + shift, s / np.std(s) + 0.24 * public.standard_t(3, size=n) / math.sqrt(3)


def _heavy_r2(seed: int, epsilons: tuple[float, ...], shift: float = 0.0, d: int = 200, **kind: Any) -> Any:
    X, y = _student(seed, 8000, d, shift)
    found = []
    for epsilon in epsilons:
        with seeded_noise_not_private(seed):
            model = sordino.HeavyTailedRegressor(epsilon, 1e-6, **kind).fit(X[:4000], y[:4000])
        found.append(model.score(X[4000:], y[4000:]))
    return found


def heavy() -> Iterator[Bar]:
    """Never far below the constant, falling in n at the rate of the theory, no shift matters."""
    epsilons = (0.1, 0.3, 1.0, 3.0)
    for name, kind in (("", {}), (", 5 kept", {"n_nonzero_coefs": 5})):
        found = np.array([_heavy_r2(seed, epsilons, **kind) for seed in range(5)])
        yield Bar(
            3,
            f"`HeavyTailedRegressor`, n = 4,000, d = 200{name}: worst R² at epsilon .1 / .3 / 1 / 3",
            ">= -0.1",
            f"{numbers(found.min(axis=0))} (medians {numbers(np.median(found, axis=0))})",
            "worst of 5 designs, Student t(3)",
            bool(found.min() >= -0.1),
            "see the numbers",
        )
    sizes = (3000, 10_000, 30_000)
    with seeded_noise_not_private(0):
        risks = excess_risks({}, sizes, 80)
        few = excess_risks({"n_nonzero_coefs": 4}, (2000, 8000, 16_000, 32_000), 8)
    rate = slope(sizes, risks)
    yield Bar(
        3,
        "excess risk at n = 3,000 / 10,000 / 30,000: slope in n (theory -1)",
        "-1.15 to -0.85",
        f"{rate:.2f} (risks {numbers(risks, 4)})",
        "medians of 80 designs, Student t(2.2), epsilon 1",
        -1.15 <= rate <= -0.85,
        "it falls faster than promised, from 3,000 to 10,000 with a slope of "
        f"{slope(sizes[:2], risks[:2]):.2f}, from 10,000 to 30,000 of {slope(sizes[1:], risks[1:]):.2f}",
    )
    yield Bar(
        3,
        "sparse: excess risk at n = 2,000 / 8,000 / 16,000 / 32,000",
        "falling",
        numbers(few, 4),
        "medians of 8 designs, 4 of 5 columns kept, epsilon 1",
        bool(np.all(np.diff(few) < 0)),
        "see the numbers",
    )
    shifts, at = (0.0, 1.0, 10.0), (1.0, math.inf)
    found = np.array([medians(lambda s, by=by: _heavy_r2(s, at, by, 20), 5) for by in shifts])
    apart = float(np.abs(found[1:] - found[0]).max())
    yield Bar(
        3,
        "X shifted by 0 / 1 / 10: R² without noise, and at epsilon 1",
        "within 0.02",
        f"{numbers(found[:, 1])}; {numbers(found[:, 0])}",
        "medians of 5 designs, d = 20",
        apart <= 0.02,
        f"largest difference {apart:.3f}",
    )


def order() -> Iterator[Bar]:
    """Sorted and alternating rows: variances, and searches by folds."""
    public = np.random.default_rng(0)
    rows = {
        "sorted N(0, 1), true 1": (lambda: np.sort(public.normal(size=2000)), 1.0),
        "alternating 0 / 5 with N(0, 1), true 7.25": (
            lambda: public.normal(size=2000) + np.tile([0.0, 5.0], 1000),
            7.25,
        ),
    }
    for name, (draw, truth) in rows.items():
        with seeded_noise_not_private(0):
            answers = [sordino.variance(draw(), 1.0) for _ in range(100)]
        covered = float(np.mean([a.interval[0] <= truth <= a.interval[1] for a in answers]))
        middle = float(np.median(answers))
        yield Bar(
            4,
            f"`variance` of {name}: median, coverage of 95 % intervals",
            "within 5 %, >= 0.93",
            f"{middle:.3f}, {covered:.2f}",
            "100 draws of 2,000, epsilon 1",
            abs(middle / truth - 1) < 0.05 and covered >= 0.93 - 2 * math.sqrt(0.93 * 0.07 / 100),
            "see the numbers",
        )
    X, y = load("digits", return_X_y=True)
    X, labels = unit_rows(X), (y >= 5).astype(int)
    found = {"sorted": [], "shuffled": []}
    for seed in range(6):
        shuffle = np.random.default_rng(seed).permutation(len(y))
        for name, at in (
            ("sorted", shuffle[np.argsort(labels[shuffle], kind="stable")]),
            ("shuffled", shuffle),
        ):
            with seeded_noise_not_private(seed):
                found[name].append(_searched(X[at], labels[at], X, labels))
    means = {name: float(np.mean(values)) for name, values in found.items()}
    yield Bar(
        4,
        "`PrivateSearchCV` on digits sorted by label, beside shuffled: accuracy",
        "within 0.02",
        f"{means['sorted']:.3f} and {means['shuffled']:.3f}",
        "6 searches each, epsilon 2",
        abs(means["sorted"] - means["shuffled"]) <= 0.02,
        "see the numbers",
    )


def _searched(X: Any, y: Any, test: Any, truth: Any) -> float:
    model = sordino.LogisticRegression(classes=[0, 1], data_norm=1.0)
    grid = {"alpha": [0.0, 0.001, 1.0]}
    search = sordino.PrivateSearchCV(model, grid, epsilon=2.0, delta=1e-5, mean_trials=4)
    return float(search.fit(X, y).score(test, truth))


def noise() -> Iterator[Bar]:
    """The true deviation of coefficients over the stated one."""
    epsilons = (0.3, 1.0, 3.0, 10.0)
    for name, outputs, kept in (
        ("numbers", 0, None),
        ("two classes", 2, None),
        ("four classes", 4, None),
        ("two classes, 5 of 20 kept", 2, 5),
    ):
        true, stated, errors = zip(*(_true_and_stated(outputs, kept, epsilon) for epsilon in epsilons))
        found = [one / other for one, other in zip(true, stated)]
        yield Bar(
            6,
            f"`coef_noise_`, {name}: true over stated at epsilon .3 / 1 / 3 / 10",
            "0.33 to 1.1",
            numbers(found, 2),
            "deviation over 12 fits, one design, n = 4,000, d = 20",
            all(0.33 <= ratio <= 1.1 for ratio in found),
            f"True {numbers(true, 2)}, stated {numbers(stated, 2)}; a ratio of 12 fits has an error of "
            f"{max(errors):.0%}. Below .33 the stated noise is too careful, which part of it is not known",
        )
    for n, most, epsilons in ((1000, 3.0, (0.1, 1.0)), (100, math.inf, (0.3, 1.0, 3.0, 10.0))):
        errors, named = [], " / ".join(map(str, epsilons))
        for epsilon in epsilons:
            public = np.random.default_rng(1)
            with seeded_noise_not_private(1):
                draws = [sordino.quantiles(public.normal(3, 1, n), 0.99, epsilon) for _ in range(60)]
            errors.append(float(np.sqrt(np.mean((np.array(draws, dtype=float) - 5.326) ** 2))))
        yield Bar(
            6,
            f"q = .99 of N(3, 1), n = {n}: root mean square error at epsilon {named}",
            "not growing" if math.isinf(most) else f"<= {most:g}, not growing",
            numbers(errors, 2),
            "60 draws",
            bool(max(errors) <= most and np.all(np.diff(errors) <= 0.1)),
            "see the numbers",
        )


def _true_and_stated(outputs: int, kept: int | None, epsilon: float) -> tuple[float, float, float]:
    """Return the true deviation of coefficients, the stated one, and the relative error of the former."""
    public = np.random.default_rng(10)
    X = public.normal(size=(4000, 20)) / math.sqrt(20)
    s = X @ public.normal(size=(20, max(outputs, 1)))
    y: np.ndarray = s[:, 0] + 0.3 * public.normal(size=4000)
    shared: dict[str, Any] = {"data_norm": 2.0}
    if outputs:
        y = (2 * s + public.gumbel(size=s.shape)).argmax(axis=1)
        kind: Any = sordino.LogisticRegression if kept is None else sordino.SparseLogisticRegression
        shared |= {} if kept is None else {"n_nonzero_coefs": kept}
    else:
        kind, shared = sordino.LinearRegression, {**shared, "target_bound": 4.0}
    coefficients, stated = [], []
    for seed in range(12):
        with seeded_noise_not_private(seed):
            model = kind(epsilon, 1e-6, **shared).fit(X, y)
        coefficients.append(np.atleast_2d(model.coef_))
        stated.append(np.atleast_2d(model.coef_noise_))
    values, said = np.array(coefficients), np.array(stated)
    always = np.all(values != 0, axis=0)  # a coefficient that comes and goes has no deviation of its own
    if outputs > 2:
        values = values - values.mean(axis=1, keepdims=True)  # a common part of all classes says nothing
    true, stated = np.var(values, axis=0, ddof=1)[always].mean(), np.mean(np.square(said[:, always]))
    error = 1.0 / math.sqrt(2 * (len(values) - 1) * always.sum())
    return float(np.sqrt(true)), float(np.sqrt(stated)), error


# What the behaviour page asks; nothing declared, the upper end of a variance may be infinite.
_ASKED = {"variance": "`variance` with `moment_order=.5` declared"}


def intervals() -> Iterator[Bar]:
    """Coverage and width on the eleven laws, from the cells of the behaviour page."""
    kept = json.loads(RESULT.read_text("utf-8"))
    for name in ("mean", "variance", "quantiles"):
        cells, repeats = (kept["subjects"][name][key] for key in ("cells", "repeats"))
        said = _ASKED.get(name, f"`{name}`")
        covered = [c for c in cells if c["check"] == "coverage"]
        widths = [c for c in cells if c["check"] == "half-width over the error"]
        least = min(covered, key=lambda c: c["found"])
        runs = f"{repeats} draws a cell, eleven laws, epsilon .1 to 10"
        bad = "; ".join(f"{c['where']}: {c['found']:.2f}" for c in covered + widths if not c["holds"])
        yield Bar(
            6,
            f"{said}: least coverage of 95 % intervals",
            least["asked"] + " (.93 less two standard errors)",
            f"{least['found']:.3f} ({least['where']}); {_hold(covered)}",
            runs,
            all(c["holds"] for c in covered),
            bad,
        )
        if widths:
            most = max(widths, key=lambda c: c["found"])
            yield Bar(
                6,
                f"{said}: largest half-width over the root mean square error, epsilon >= 1",
                most["asked"] + " (3, and the error of a ratio)",
                f"{most['found']:.2f} ({most['where']}); {_hold(widths)}",
                runs,
                all(c["holds"] for c in widths),
                bad,
            )
    kept = json.loads(RESULT.with_name("statistic_intervals.json").read_text("utf-8"))
    few = [c for c in kept["cells"] if c["coverage"] < LEAST]
    names = "; ".join(f"`{c['statistic']}` of {c['column']} {c['coverage']:.2f}" for c in few)
    yield Bar(
        6,
        "means, variances, quantiles, counts and groups of 13 kinds of columns: coverage of 95 % intervals",
        f">= {LEAST}",
        f"{len(kept['cells']) - len(few)} of {len(kept['cells'])} cells hold",
        f"{kept['repeats']:,} draws a cell (`python -m benchmarks.statistic_intervals`)",
        not few,
        names,
    )
    beyond = kept["limits"]
    held = [c for c in beyond if c["coverage"] >= LEAST]
    names = "; ".join(
        f"`{c['statistic']}` of {c['column']} {c['coverage']:.2f}" for c in beyond if c not in held
    )
    yield Bar(
        6,
        "the same, columns without the moment or with a heavy part behind a light one",
        f">= {LEAST}",
        f"{len(held)} of {len(beyond)} cells hold",
        f"{kept['repeats']:,} draws a cell (`python -m benchmarks.statistic_intervals`)",
        len(held) == len(beyond),
        f"{names}. Intervals assume that a tail falls no slower past the last octave seen than before it; a "
        "wider doubt would make those of zero-inflated columns wider than three errors",
    )
    named = [c for c in kept["cells"] if c["statistic"] == "variance" and c.get("endless", 0.0) > 0.01]
    ends = "; ".join(f"{c['column']} {100 * c['endless']:.0f} %" for c in named)
    yield Bar(
        6,
        "`variance` with nothing declared: runs whose interval has an upper end",
        "all",
        f"without one: {ends}",
        f"{kept['repeats']:,} draws a cell (`python -m benchmarks.statistic_intervals`)",
        not named,
        "counts of 1,000 records do not rule out that squares have no mean: declare bounds or a moment",
    )


def _hold(cells: list[dict[str, Any]]) -> str:
    return f"{sum(cell['holds'] for cell in cells)} of {len(cells)} cells hold"
