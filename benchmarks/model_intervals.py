"""Coverage and width of paid intervals: coefficients, effects, expected values, new targets.

Commands::

    python -m benchmarks.model_intervals                 # all designs, 60 repeats
    python -m benchmarks.model_intervals --only logistic --repeats 200
    python -m benchmarks.model_intervals --first 6 --seeds 12   # designs that were not in view
    python -m benchmarks.model_intervals --write         # keeps each cell in results/model_intervals.json

Each repeat draws records anew, fits a model at epsilon .5 and asks for 95 % intervals at epsilon .5 or 2. The
truth is the minimum of the loss over 200,000 other records, without privacy. Widths are means over all
coefficients (of tables: effects at knots and levels) of the stated error over errors of four others:

- ``sampling``: the sandwich without privacy, out of reach where records times epsilon are few;
- ``clipped``: a Newton step at the truth with the curvature known and all of the budget spent on one score,
  clipped where one record in a thousand is longer, in units of equal errors. It misses what few records hide;
- ``known``: the same with scores as long as the declared bounds allow, in the units of the intervals, of
  squares from the middle of the targets: the best that covers every design within its bounds, if somebody
  gives the curvature away;
- ``best``: the same with the curvature of squares paid for, by the best share of the budget and from the best
  point between the middle and the model, both chosen by the truth. Nothing goes to squares of scores, and no
  direction is lost in the noise of the curvature.

The first seven designs and seeds 0 to 5 were in view when constants were set. Of JUDGES "one column", "nearly
a sum" and "table of a ward" were looked at with few repeats meanwhile, seed 17 told that ends have to be open
where the curvature is less than its noise, "table of labels" when a step is too far; the others, seeds 6 to
16 and seeds from 18 on were not in view ("table with a rare flag" came after them). --first skips the designs
that were.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import operator
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

import sordino
from benchmarks.machine import describe
from sordino.estimators import intervals as own
from sordino.tables import Category, Flag, Number, Ordinal, Target

OUT = Path(__file__).parent / "results" / "model_intervals.json"
FIT, DELTA = 0.5, 1e-6
LOUD = (0.35, 0.5, 0.7, 1.0, 1.4, 2.0)  # how loud the constant is in a score: see OneStep
Draw = Callable[[np.random.Generator, int], tuple]


def uniform(d: int) -> Callable:
    return lambda rng, n: rng.uniform(-1, 1, (n, d))


def alike(d: int) -> Callable:
    """Return rows whose columns resemble each other."""

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        shared = rng.normal(size=(n, 1))
        return np.clip(0.6 * shared + 0.5 * rng.normal(size=(n, d)), -2, 2) / 2

    return draw


def numbers(rows: Callable, beta: np.ndarray, spread: Callable) -> Draw:
    def draw(rng: np.random.Generator, n: int) -> tuple:
        X = rows(rng, n)
        return X, X @ beta + 0.2 + spread(X) * rng.normal(size=n)

    return draw


def labels(rows: Callable, beta: np.ndarray, offset: float) -> Draw:
    def draw(rng: np.random.Generator, n: int) -> tuple:
        X = rows(rng, n)
        return X, (rng.uniform(size=n) < 1 / (1 + np.exp(-X @ beta - offset))).astype(int)

    return draw


def counts(rows: Callable, beta: np.ndarray, offset: float) -> Draw:
    def draw(rng: np.random.Generator, n: int) -> tuple:
        X = rows(rng, n)
        return X, rng.poisson(np.exp(X @ beta + offset)).astype(float)

    return draw


def table(rng: np.random.Generator, n: int) -> tuple:
    frame = pd.DataFrame({"age": rng.uniform(0, 100, n), "size": rng.beta(2, 3, n)})
    frame["town"] = np.array(["a", "b", "c"])[rng.integers(0, 3, n)]
    frame["y"] = np.abs(frame["age"] - 50) / 50 + frame["size"] ** 2 + 0.5 * (frame["town"] == "b")
    frame["y"] += 0.4 * (0.5 + frame["size"]) * rng.normal(size=n)
    return frame, frame["y"].to_numpy()


SCHEMA = sordino.Schema(
    [
        Number("age", 0, 100),
        Number("size", 0, 1),
        Category("town", ["a", "b", "c"]),
        Target("y", "number", low=-2, high=4),
    ]
)


def regression(**more: object) -> Callable:
    return lambda d: sordino.LinearRegression(
        FIT, DELTA, data_norm=math.sqrt(d), **{"target_bound": 4.0, **more}
    )


def logistic(d: int) -> sordino.LogisticRegression:
    return sordino.LogisticRegression(FIT, DELTA, data_norm=math.sqrt(d), classes=[0, 1])


def long_rows(rng: np.random.Generator, n: int) -> tuple:
    """Return records of which one in fifty is eight times as long, with another slope."""
    X, rare = rng.uniform(-0.125, 0.125, (n, 3)), rng.uniform(size=n) < 0.02
    X[rare] *= 8.0
    return X, np.where(rare, X @ [-1.0, 0.5, 0.0], X @ [2.0, 1.0, 0.0]) + 0.3 * rng.normal(size=n)


def one_column(rng: np.random.Generator, n: int) -> tuple:
    x = rng.uniform(-1, 1, (n, 1))
    return x, 0.4 * x[:, 0] + 0.05 * rng.normal(size=n)


def rare_group(rng: np.random.Generator, n: int) -> tuple:
    """Return records of which three in a hundred have a flag and ten times the errors."""
    flag = (rng.random(n) < 0.03) * 1.0
    X = np.column_stack([flag, rng.uniform(-1, 1, n)])
    return X, flag + 0.3 * X[:, 1] + np.where(flag > 0, 1.0, 0.1) * rng.uniform(-1.7, 1.7, n)


def skewed(rng: np.random.Generator, n: int) -> tuple:
    """Return skewed columns and errors."""
    X = np.minimum(rng.exponential(0.3, (n, 3)), 1.0)
    return X, X @ [0.8, -0.5, 0.0] + np.minimum(rng.exponential(0.5, n), 3.0)


def one_line(rng: np.random.Generator, n: int) -> tuple:
    """Return three columns of which the last is nearly the sum of the others."""
    X = rng.uniform(-0.5, 0.5, (n, 2))
    X = np.column_stack([X, X.sum(axis=1) + 0.3 * rng.uniform(-1, 1, n)])
    return X, X @ [0.5, -0.5, 0.3] + 0.4 * rng.normal(size=n)


def ward(rng: np.random.Generator, n: int) -> tuple:
    """Return a table of a skewed number, one with gaps, grades and five wards of unequal size."""
    frame = pd.DataFrame({"stay": np.minimum(rng.exponential(6, n), 30), "weight": rng.normal(75, 12, n)})
    frame["grade"] = np.array(["low", "middle", "high", "top"])[rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])]
    frame["ward"] = np.array(list("abcde"))[rng.choice(5, n, p=[0.4, 0.3, 0.15, 0.1, 0.05])]
    y = 3 * np.sqrt(frame["stay"] / 30) + 0.5 * (frame["grade"] == "top") + 0.4 * (frame["ward"] == "e")
    y += np.abs(frame["weight"].clip(30, 120) - 75) / 40
    frame.loc[rng.random(n) < 0.1, "weight"] = None
    frame["y"] = np.clip(y + rng.exponential(0.6, n) - 0.6, -1, 7)
    return frame, frame["y"].to_numpy()


WARD = sordino.Schema(
    [
        Number("stay", 0, 30),
        Number("weight", 30, 120),
        Ordinal("grade", ["low", "middle", "high", "top"]),
        Category("ward", list("abcde")),
        Target("y", "number", low=-1, high=7),
    ]
)

LABELS = sordino.Schema([*WARD.features, Target("y", "category", ["no", "yes"])])


def labelled(rng: np.random.Generator, n: int) -> tuple:
    """Return the same table with a label."""
    frame, y = ward(rng, n)
    yes = rng.random(n) < 1 / (1 + np.exp(1.5 - y))
    return frame.assign(y=np.where(yes, "yes", "no")), yes.astype(int)


def costs(rng: np.random.Generator, n: int) -> tuple:
    """Return skewed amounts that are five times as large for the 2 % with a flag."""
    frame = pd.DataFrame({"age": rng.uniform(18, 95, n), "stay": np.minimum(rng.exponential(5, n), 60)})
    frame["flag"] = np.where(rng.random(n) < 0.02, "yes", "no")
    frame["ward"] = np.array(list("abcde"))[rng.integers(0, 5, n)]
    cost = np.exp(rng.normal(6, 1.2, n)) * np.where(frame["flag"] == "yes", 5, 1)
    frame["cost"] = np.minimum(cost, 50_000)
    return frame, frame["cost"].to_numpy()


COSTS = sordino.Schema(
    [
        Number("age", 18, 95),
        Number("stay", 0, 60),
        Flag("flag"),
        Category("ward", list("abcde")),
        Target("cost", "number", low=0, high=50_000),
    ]
)


def visits(rng: np.random.Generator, n: int) -> tuple:
    """Return a table with three curves, grades, four wards of unequal size, and two pairs that act."""
    frame = pd.DataFrame({"age": rng.uniform(18, 95, n), "stay": np.minimum(rng.exponential(8, n), 40)})
    frame["bmi"] = np.clip(rng.normal(27, 5, n), 15, 50)
    frame["grade"] = np.array(["low", "middle", "high", "top"])[rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])]
    frame["ward"] = np.array(list("abcd"))[rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])]
    frame["sex"] = np.array(["f", "m"])[rng.integers(0, 2, n)]
    age, stay = (frame["age"] - 56) / 38, frame["stay"] / 40
    y = 2 * age**2 + 1.5 * np.sqrt(stay) + 0.8 * (frame["ward"] == "c")
    y += 1.2 * age * (frame["sex"] == "m") + stay * (frame["grade"] == "top") + 0.6 * rng.standard_t(5, n)
    frame["y"] = np.clip(y, -2, 6)
    return frame, frame["y"].to_numpy()


VISITS = [
    Number("age", 18, 95),
    Number("stay", 0, 40),
    Number("bmi", 15, 50),
    Ordinal("grade", ["low", "middle", "high", "top"]),
    Category("ward", list("abcd")),
    Category("sex", ["f", "m"]),
]


def labelled_visits(rng: np.random.Generator, n: int) -> tuple:
    """Return the same table with a label."""
    frame, y = visits(rng, n)
    yes = rng.random(n) < 1 / (1 + np.exp(1.5 - y))
    return frame.assign(y=np.where(yes, "yes", "no")), yes.astype(int)


def panel(rng: np.random.Generator, n: int) -> tuple:
    """Return a table of seven columns that depend on each other, of which all pairs act a little."""
    shared = rng.normal(size=n)
    frame = pd.DataFrame({f"x{i}": np.clip(0.6 * shared + rng.normal(size=n), -3, 3) for i in range(4)})
    frame["hours"] = np.minimum(rng.gamma(2.0, 10.0, n), 80)
    frame["flag"] = np.where(rng.random(n) < 0.2 + 0.1 * (shared > 0), "yes", "no")
    frame["zone"] = np.array(list("abcdef"))[rng.choice(6, n, p=[0.3, 0.2, 0.2, 0.1, 0.1, 0.1])]
    x = frame[[f"x{i}" for i in range(4)]].to_numpy() / 3
    y = x.sum(axis=1) ** 2 / 2 + np.sin(2 * x[:, 0]) + 0.3 * (frame["zone"] == "f") * x[:, 1]
    frame["y"] = np.clip(y + 0.5 * (frame["flag"] == "yes") + rng.exponential(0.5, n), -2, 8)
    return frame, frame["y"].to_numpy()


PANEL = [
    *(Number(f"x{i}", -3, 3) for i in range(4)),
    Number("hours", 0, 80),
    Flag("flag"),
    Category("zone", list("abcdef")),
    Target("y", "number", low=-2, high=8),
]

B = np.array([0.5, -0.3, 0.2, 0.0, 0.1])
CHOSEN: dict[str, tuple[Callable, Draw]] = {
    "numbers": (regression(), numbers(uniform(5), B, lambda X: 0.5)),
    "unequal variances": (regression(), numbers(uniform(5), B, lambda X: 0.2 + 0.6 * np.abs(X[:, 0]))),
    "columns alike": (regression(), numbers(alike(4), B[:4], lambda X: 0.5)),
    "logistic": (logistic, labels(uniform(5), 3 * B, 0.3)),
    "counts": (regression(loss="poisson", target_bound=30.0), counts(uniform(4), B[:4], 0.5)),
    "table with curves": (
        lambda d: sordino.LinearRegression(FIT, DELTA, schema=SCHEMA, pairs=False, knots=5),
        table,
    ),
    "long rows": (regression(), long_rows),
}


JUDGES: dict[str, tuple[Callable, Draw]] = {
    "one column": (regression(target_bound=1.0), one_column),
    "rare group": (regression(target_bound=5.0), rare_group),
    "skewed": (regression(), skewed),
    "nearly a sum": (regression(target_bound=3.0), one_line),
    "table of a ward": (
        lambda d: sordino.LinearRegression(FIT, DELTA, schema=WARD, pairs=False, knots=3),
        ward,
    ),
    "table with a rare flag": (
        lambda d: sordino.LinearRegression(FIT, DELTA, schema=COSTS, pairs=False, knots=3),
        costs,
    ),
    "table of labels": (
        lambda d: sordino.LogisticRegression(FIT, DELTA, schema=LABELS, pairs=False, knots=3),
        labelled,
    ),
}


# Default fits, with pairs: "visits" was in view when the number of knots was set, "panel" was not.
PAIRED: dict[str, tuple[Callable, Draw]] = {
    "table of visits with pairs": (
        lambda d: sordino.LinearRegression(
            FIT, DELTA, schema=sordino.Schema([*VISITS, Target("y", "number", low=-2, high=6)])
        ),
        visits,
    ),
    "table of labelled visits with pairs": (
        lambda d: sordino.LogisticRegression(
            FIT, DELTA, schema=sordino.Schema([*VISITS, Target("y", "category", ["no", "yes"])])
        ),
        labelled_visits,
    ),
    "table of a panel with pairs": (
        lambda d: sordino.LinearRegression(FIT, DELTA, schema=sordino.Schema(PANEL)),
        panel,
    ),
}


def unseen(seed: int) -> tuple[Callable, Draw]:
    """Return a design drawn by a seed."""
    rng = np.random.default_rng(1000 + seed)
    d = int(rng.integers(2, 9))
    rows = uniform(d) if rng.uniform() < 0.5 else alike(d)
    beta, kind = rng.normal(size=d) * 0.5, seed % 3
    if kind == 0:
        shape, flat = rng.uniform(0, 1, d), rng.uniform(0.2, 0.8)
        return regression(), numbers(rows, beta, lambda X: flat + np.abs(X @ shape) / d)
    if kind == 1:
        return logistic, labels(rows, 2 * beta, float(rng.normal()))
    return regression(loss="poisson", target_bound=40.0), counts(
        rows, 0.6 * beta, float(rng.uniform(-0.5, 1))
    )


def gathered(model: object, X: object, y: object) -> tuple[np.ndarray, np.ndarray, np.ndarray, object]:
    """Return rows in the span of the model, targets as its loss sees them, the span and the loss."""
    span, loss = own.units_of(model).own, model._loss()
    if isinstance(X, pd.DataFrame):
        y = model.schema.split(X)[1] if model.schema.target.kind == "number" else y
        X = model.schema.split(X)[0]
    targets = 2.0 * y - 1.0 if hasattr(model, "classes_") else np.clip(y, *model.target_range_)
    return own._clipped_rows(model, X) @ span, targets, span, loss


def truth(model: object, draw: Draw) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the minimum over many records, the inverse curvature, the squares of scores, their sizes."""
    rows, y, _, loss = gathered(model, *draw(np.random.default_rng(99), 200_000))
    w = np.zeros(rows.shape[1])
    for _ in range(1 if loss.name == "squared" else 8):
        bent = loss.expected_curvature(rows @ w)
        score = (loss.residual(rows @ w, y)[:, None] * rows).mean(axis=0)
        inverse = np.linalg.pinv((rows * bent[:, None]).T @ rows / len(rows), rcond=1e-9, hermitian=True)
        w = w - inverse @ score
    scores = loss.residual(rows @ w, y)[:, None] * rows
    sizes, axes = np.linalg.eigh(inverse)
    root = axes * np.sqrt(np.maximum(sizes, 0.0))
    return w, inverse, scores.T @ scores / len(rows), np.sort(np.linalg.norm(scores @ root, axis=1))


def errors_of_others(
    model: object, X: object, y: object, draw: Draw, epsilon: float, n: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the truth, and the covariances of the errors that widths are measured by."""
    w, inverse, meat, sizes = truth(model, draw)
    units, loss = own.units_of(model), model._loss()
    asked, whole, one = functionals(model, units.own, None), np.eye(len(w)), gaussian_multiplier(epsilon) / n
    residual = own._influences(model, loss, units, *own._records_of(model, X, y, None))[1][0]
    laws = {"sampling": np.zeros_like(meat)}
    laws["clipped"] = (one * sizes[int(0.999 * len(sizes))]) ** 2 * np.linalg.pinv(
        inverse, 1e-9, hermitian=True
    )
    low, high = model.target_range_ if loss.name == "squared" else (-residual, residual)
    away = w - 0.5 * (low + high) / units.constant * whole[-1]
    tilted = 0.5 * units.longest(whole) ** 4 * ((away @ away) * whole + np.outer(away, away))
    tries = {"known": [], "best": []}
    for loud, left, share in itertools.product(
        LOUD, np.linspace(0, 1, 9), (0.0, *np.linspace(0.02, 0.6, 30))
    ):
        root = np.diag(np.append(np.ones(len(w) - 1), loud))
        far = 0.0 if loss.name != "squared" else (1 - left) * max(map(abs, units.ends(away)))
        noise = (one * units.longest(root) * (0.5 * (high - low) + far)) ** 2 * np.linalg.inv(root @ root)
        if share == 0.0:
            tries["known"].append(noise)
        if share > 0.0 or loss.name != "squared":
            paid = (one * left) ** 2 / share * tilted if share else 0.0
            tries["best"].append(noise / (1 - share) + paid)
    for name, found in tries.items():
        laws[name] = min(found, key=lambda law: np.log(_lengths(asked, inverse @ law @ inverse)).sum())
    return w, {name: inverse @ (meat / n + law) @ inverse for name, law in laws.items()}


def _lengths(asked: np.ndarray, law: np.ndarray) -> np.ndarray:
    return np.sqrt(np.einsum("ij,jk,ik->i", asked, law, asked))


def functionals(model: object, span: np.ndarray, found: sordino.Intervals | None) -> np.ndarray:
    """Return what intervals are asked of: all coefficients, of tables the effects at knots and levels.

    Those are measured from the mean over the knots and levels at which ``found`` has ends.
    """
    if not hasattr(model, "shapes_"):
        return np.eye(len(span))[:-1] @ span
    ends = {} if found is None else {s.columns: np.isfinite(s.noise) for s in found.shapes_}
    asked = []
    for one in own.questions_of(model.encoder_):
        known = ends.get(one.columns, np.ones(len(one.rows), bool))[: one.named]
        rows = one.rows[: one.named][known]
        asked += [rows - rows.mean(axis=0)] if known.any() else []
    rows = np.vstack(asked)
    rows = rows[np.abs(rows).max(axis=1) > 1e-9]  # the middle of a straight line has no effect
    return np.column_stack([rows, np.zeros(len(rows))]) @ span


def judge(name: str, design: tuple[Callable, Draw], n: int, epsilon: float, repeats: int) -> dict:
    """Return coverage and relative width over all repeats."""
    make, draw = design
    d = 0 if name.startswith("table") else draw(np.random.default_rng(0), 2)[0].shape[1]
    covered, widths, known, others = [], [], [], {}
    for repeat in range(repeats):
        rng = np.random.default_rng((repeat, n, len(name)))
        X, y = draw(rng, n)
        model = make(d)
        model = model.fit(X) if isinstance(X, pd.DataFrame) else model.fit(X, y)
        found = sordino.intervals(model, X, None if d == 0 else y, epsilon=epsilon, delta=DELTA)
        model = found.model  # without the pairs of a default fit
        if not others:
            w, others = errors_of_others(model, X, None if d == 0 else y, draw, epsilon, n)
        asked, every = (functionals(model, found._units.own, one) for one in (found, None))
        lifted = asked @ found._units.back
        estimate = lifted @ np.append(found.coef_, found.intercept_)
        errors = found._deviations(lifted)
        ended = np.isfinite(errors)
        known.append(ended.sum() / len(every))
        if ended.any():
            covered.append(np.mean((np.abs(estimate - asked @ w) <= found._width * errors)[ended]))
            widths.append([np.mean((errors / _lengths(asked, law))[ended]) for law in others.values()])
    return {
        "design": name,
        "rows": n,
        "epsilon": epsilon,
        "repeats": repeats,
        "coverage": float(np.mean(covered)),
        "error": float(np.std(covered) / math.sqrt(len(covered))),
        **{name: float(np.mean(np.array(widths)[:, at])) for at, name in enumerate(others)},
        "not known": float(1 - np.mean(known)),
    }


def gaussian_multiplier(epsilon: float) -> float:
    """Return the noise of one Gaussian release of sensitivity 1."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    def delta(sigma: float) -> float:
        a, b = 0.5 / sigma - epsilon * sigma, -0.5 / sigma - epsilon * sigma
        return norm.cdf(a) - math.exp(epsilon) * norm.cdf(b) - DELTA

    return float(brentq(delta, 1e-2, 1e3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--first", type=int, help="designs by seeds from this one on, and no others")
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    machine = describe()
    seeds = range(chosen.first or 0, (chosen.first or 0) + chosen.seeds)
    designs = {
        **({} if chosen.first else CHOSEN),
        **JUDGES,
        **PAIRED,
        **{f"seed {seed}": unseen(seed) for seed in seeds},
    }
    rows = []
    for name, design in designs.items():
        if chosen.only and name not in chosen.only:
            continue
        for n, epsilon in ((8_000, 1.0), (40_000, 1.0)) if name in PAIRED else ((2_000, 2.0), (10_000, 0.5)):
            rows.append(judge(name, design, n, epsilon, chosen.repeats))
            print(
                "{design}, {rows} rows, epsilon {epsilon:g}: coverage {coverage:.3f} +- {error:.3f}, "
                "width over sampling {sampling:.2f}, clipped {clipped:.2f}, known {known:.2f}, "
                "best {best:.2f}, not known {not known:.2f}".format(**rows[-1]),
                flush=True,
            )
            if chosen.write:
                keep(rows[-1], machine)


def keep(row: dict, machine: str) -> None:
    """Put a cell in the place of the kept one of the same design, rows and epsilon, or behind all."""
    cell = operator.itemgetter("design", "rows", "epsilon")
    rows = {cell(kept): kept for kept in json.loads(OUT.read_text())["rows"]} | {cell(row): row}
    OUT.write_text(json.dumps({"machine": machine, "rows": list(rows.values())}, indent=1) + "\n")


if __name__ == "__main__":
    main()
