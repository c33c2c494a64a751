"""Coverage and width of paid intervals: coefficients, effects, expected values, new targets.

Commands::

    python -m benchmarks.model_intervals                 # all designs, 60 repeats
    python -m benchmarks.model_intervals --only logistic --repeats 200
    python -m benchmarks.model_intervals --first 6 --seeds 12   # designs that were not in view
    python -m benchmarks.model_intervals --write         # keeps benchmarks/results/model_intervals.json

Each repeat draws records anew, fits a model at epsilon .5 and asks for 95 % intervals at epsilon .5 or 2. The
truth is the minimum of the loss over 200,000 other records, without privacy. ``width`` is the mean over all
coefficients (of tables: effects at knots and levels) of the stated error over the best possible: that of a
Newton step at the truth with the curvature known and all of the budget spent on one score, clipped where one
record in a thousand is longer. ``bounded`` is the same with scores as long as the declared bounds allow: such
intervals cover whatever few records hide within the bounds. ``shortest`` asks those scores in units of the
rows, of squares from the middle of the targets, with nothing spent on curvature and squares: what we know to
be the best. The first six designs and seeds 0 to 5 were in view when constants were set; --first skips them.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

import sordino
from benchmarks.machine import describe
from sordino.estimators import intervals as own
from sordino.solvers.one_step import OneStep
from sordino.tables import Category, Number, Target

OUT = Path(__file__).parent / "results" / "model_intervals.json"
FIT, DELTA = 0.5, 1e-6
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
    span, loss = own._span_of(model), model._loss()
    if isinstance(X, pd.DataFrame):
        X, y, _ = model.schema.split(X)
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


def longest(model: object, X: object, y: object, inverse: np.ndarray) -> tuple[float, float]:
    """Return the length of the longest score that the declared bounds allow, where errors are alike.

    And in units of the rows, of squares from the middle of the targets.
    """
    span, loss = own._span_of(model), model._loss()
    residual, bent = own._influences(model, loss, span, X, y, None)[2]
    sizes, axes = np.linalg.eigh(inverse)
    root = (axes * np.sqrt(np.maximum(sizes, 0.0))).T
    step = OneStep(span, float(model.data_norm_), residual, bent)
    middle = float(np.ptp(model.target_range_)) / 2 if loss.name == "squared" else residual
    return residual * step._longest(root), middle * step._longest(np.eye(len(inverse)))


def functionals(model: object, span: np.ndarray) -> np.ndarray:
    """Return what intervals are asked of: all coefficients, of tables the effects at knots and levels."""
    if not hasattr(model, "shapes_"):
        return np.eye(len(span))[:-1] @ span
    asked = own.questions_of(model.encoder_)
    regular = {"age": slice(None), "size": slice(None), "town": slice(0, 3)}
    rows = [
        (one.rows - one.rows[: len(one.at[0]) - 2 * (one.columns[0] == "town")].mean(axis=0))[
            regular[one.columns[0]]
        ]
        for one in asked
    ]
    return np.column_stack([np.vstack(rows), np.zeros(sum(map(len, rows)))]) @ span


def judge(name: str, design: tuple[Callable, Draw], n: int, epsilon: float, repeats: int) -> dict:
    """Return coverage and relative width over all repeats."""
    make, draw = design
    d = 0 if name.startswith("table") else draw(np.random.default_rng(0), 2)[0].shape[1]
    covered, widths, bests = [], [], None
    for repeat in range(repeats):
        rng = np.random.default_rng((repeat, n, len(name)))
        X, y = draw(rng, n)
        model = make(d)
        model = model.fit(X) if isinstance(X, pd.DataFrame) else model.fit(X, y)
        found = sordino.intervals(model, X, None if d == 0 else y, epsilon=epsilon, delta=DELTA)
        if bests is None:
            w, inverse, meat, sizes = truth(model, draw)
            asked = functionals(model, found._span)
            true = asked @ w
            multiplier = gaussian_multiplier(epsilon)
            bounds = longest(model, X, None if d == 0 else y, inverse)
            bests = []
            for size, units in (
                (sizes[int(0.999 * len(sizes))], inverse),
                (bounds[0], inverse),
                (bounds[1], inverse @ inverse),
            ):
                law = inverse @ meat @ inverse / n + (multiplier * size / n) ** 2 * units
                bests.append(np.sqrt(np.einsum("ij,jk,ik->i", asked, law, asked)))
        lifted = asked @ np.linalg.pinv(found._span)
        estimate = lifted @ np.append(found.coef_, found.intercept_)
        errors = found._deviations(lifted)
        covered.append(np.abs(estimate - true) <= found._width * errors)
        widths.append([errors / best for best in bests])
    known = np.isfinite(np.array(widths)[:, 0])
    return {
        "design": name,
        "rows": n,
        "epsilon": epsilon,
        "repeats": repeats,
        "coverage": float(np.mean(np.array(covered)[known])),
        "error": float(np.std(np.mean(covered, axis=1)) / math.sqrt(repeats)),
        "least": float(np.min(np.mean(covered, axis=0))),
        **{
            name: float(np.mean(np.array(widths)[:, at][known]))
            for at, name in enumerate(("width", "bounded", "shortest"))
        },
        "not known": float(1 - known.mean()),
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
    designs = {**({} if chosen.first else CHOSEN), **{f"seed {seed}": unseen(seed) for seed in seeds}}
    rows = []
    for name, design in designs.items():
        if chosen.only and name not in chosen.only:
            continue
        for n, epsilon in ((2_000, 2.0), (10_000, 0.5)):
            rows.append(judge(name, design, n, epsilon, chosen.repeats))
            print(
                "{design}, {rows} rows, epsilon {epsilon:g}: coverage {coverage:.3f} +- {error:.3f} (least "
                "{least:.2f}), width {width:.2f}, bounded {bounded:.2f}, "
                "shortest {shortest:.2f}, not known {not known:.2f}".format(**rows[-1]),
                flush=True,
            )
    if chosen.write:
        OUT.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
