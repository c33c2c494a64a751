"""What a model of a table shows of a rare flag or level, beside its stated noise.

Command::

    python -m benchmarks.rare_levels --repeats 6

``costs``: 2 % of persons have a flag that adds 11,200 to skewed costs up to 60,000. ``level``: 1 % of records
have a level that adds 8 to targets in a range of 11. Each line has the mean effect over the repeats, its
deviation, the median stated noise, the share of fits whose effect is farther than two stated deviations from
the truth, the share of fits that warn of rare levels or clips, and R2 on the records of the fit.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import pandas as pd

import sordino
from sordino.tables import Category, Flag, Number, Target


def costs(rng: np.random.Generator, n: int) -> pd.DataFrame:
    table = pd.DataFrame({"age": rng.uniform(18, 95, n), "stay": np.minimum(rng.exponential(5, n), 60)})
    table["flag"] = np.where(rng.random(n) < 0.02, "yes", "no")
    table["ward"] = np.array(list("abcde"))[rng.integers(0, 5, n)]
    cost = np.exp(rng.normal(7.5, 0.8, n)) + 200 * table["stay"] + 11_200 * (table["flag"] == "yes")
    return table.assign(cost=np.minimum(cost, 60_000))


def level(rng: np.random.Generator, n: int) -> pd.DataFrame:
    table = pd.DataFrame({"x": rng.uniform(0, 1, n), "z": rng.uniform(0, 1, n)})
    table["level"] = np.array(list("abcd"))[rng.choice(4, n, p=[0.5, 0.3, 0.19, 0.01])]
    y = table["x"] + 8 * (table["level"] == "d") + 0.1 * rng.normal(size=n)
    return table.assign(y=np.clip(y, -1, 10))


COSTS = sordino.Schema(
    [
        Number("age", 18, 95),
        Number("stay", 0, 60),
        Flag("flag"),
        Category("ward", list("abcde")),
        Target("cost", "number", low=0, high=60_000),
    ]
)
LEVEL = sordino.Schema(
    [
        Number("x", 0, 1),
        Number("z", 0, 1),
        Category("level", list("abcd")),
        Target("y", "number", low=-1, high=10),
    ]
)
DESIGNS = {
    "costs": (costs, COSTS, "flag", "yes", ("no",), 11_200.0),
    "level": (level, LEVEL, "level", "d", ("a", "b", "c"), 8.0),
}


def judge(name: str, n: int, epsilon: float, repeats: int) -> None:
    """Print one line."""
    draw, schema, column, rare, others, truth = DESIGNS[name]
    rows = []
    for repeat in range(repeats):
        table = draw(np.random.default_rng((repeat, n)), n)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model = sordino.LinearRegression(epsilon, 1e-6, schema=schema).fit(table)
        shape = next(shape for shape in model.shapes_ if shape.columns == (column,))
        at = list(map(str, shape.at[0]))
        effect = shape.effect[at.index(rare)] - np.mean([shape.effect[at.index(one)] for one in others])
        warned = any("clip" in str(one.message) for one in said)
        rows.append((effect, shape.noise[at.index(rare)], warned, model.score(table)))
    effect, noise, warned, score = np.array(rows, dtype=float).T
    print(
        f"{name}, {n} rows, epsilon {epsilon:g}: true {truth:g}, effect {effect.mean():.4g} (deviation "
        f"{effect.std():.3g}), stated noise {np.median(noise):.3g}, missed by two deviations "
        f"{np.mean(np.abs(effect - truth) > 2 * noise):.2f}, warned {warned.mean():.2f}, "
        f"R2 {score.mean():.3f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=6)
    repeats = parser.parse_args().repeats
    for n, epsilon in ((1607, 1.0), (1607, 4.0), (10_000, 1.0), (50_000, 1.0)):
        judge("costs", n, epsilon, repeats)
    for n in (2000, 10_000, 50_000):
        judge("level", n, 1.0, repeats)


if __name__ == "__main__":
    main()
