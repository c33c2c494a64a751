"""Every solver with its defaults on every set at epsilon 2: does it beat the best constant?

Command: python -m benchmarks.solver_bars [--quick] [--solvers NAME ...] [--sets NAME ...]
         [--save benchmarks/results/solver_bars.json]
Cells that fail with --quick are run again without it, into solver_bars_whole.json.
Then `python docs/figures/solver_bars.py` writes the table of docs/solvers/index.md.

A score is accuracy, or R2 for numbers. ``gain`` is ``1 - loss / loss of the best constant`` on test records:
log loss or squared error, so a model that is worse than a constant is below zero however rare a class is.
Seeded noise, not private; delta 1e-5; the median of ``fits`` fits. Large sets are cut to ``rows`` training
rows; absent ones are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from benchmarks.machine import describe
from benchmarks.more_sets import parts, stars, two_groups
from sordino import (
    LinearRegression,
    LogisticRegression,
    SparseLinearRegression,
    SparseLogisticRegression,
    datasets,
)
from sordino.errors import DataNotFoundError
from sordino.solvers import SOLVERS
from sordino.testing import seeded_noise_not_private

EPSILON, DELTA = 2.0, 1e-5
RESULT = Path(__file__).parent / "results" / "solver_bars.json"
# Cells that fail with few rows, run again without --quick.
WHOLE = RESULT.with_name("solver_bars_whole.json")


@dataclass(frozen=True)
class Task:
    """A set: how to load its split, how many coefficients sparse solvers keep, and its public bounds."""

    load: Callable[[], tuple[Any, ...]]
    keep: int
    data_norm: float = 1.0
    target_bound: float | None = None


def _scikit(load: Callable[[], Any], middle: float = 0.0, half: float = 1.0) -> tuple[Any, ...]:
    """Return a small set of scikit-learn in units of ranges that stand for public ones."""
    data = load()
    X = (data.data - data.data.mean(axis=0)) / (3.0 * data.data.std(axis=0))
    y = (data.target - middle) / half if half != 1.0 else data.target
    return tuple(train_test_split(X / np.sqrt(X.shape[1]), y, test_size=0.3, random_state=0))


def _gaussian() -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(8000, 20)) / np.sqrt(20), rng.normal(size=20)
    y = X @ (w / np.std(X @ w)) + 0.5 * rng.normal(size=len(X))
    return X[:6000], X[6000:], y[:6000], y[6000:]


TASKS: dict[str, Task] = {
    "RCV1 sample": Task(lambda: parts(datasets.load("rcv1_sample"), lambda X: X), 1000),
    "Reuters acq": Task(lambda: parts(datasets.load("reuters_acq"), datasets.unit_rows), 500),
    "20news comp": Task(two_groups, 1000),
    "IMDB": Task(lambda: parts(datasets.load("imdb"), datasets.log1p_unit), 1000),
    "a9a": Task(lambda: parts(datasets.load("a9a"), lambda X: X), 60, 3.75),
    "mushrooms": Task(lambda: parts(datasets.load("mushrooms"), datasets.unit_rows), 60),
    "breast cancer": Task(lambda: _scikit(load_breast_cancer), 10),
    "IMDB stars, R2": Task(stars, 1000, 1.0, 1.0),
    "Gaussian, R2": Task(_gaussian, 10, 2.0, 4.0),
    "diabetes, R2": Task(lambda: _scikit(load_diabetes, 185.0, 161.0), 5, 1.0, 1.0),
}


@dataclass(frozen=True)
class Fit:
    """One solver on one set."""

    set: str
    solver: str
    score: float
    constant: float
    gain: float
    seconds: float


def prepared(task: Task, rows: int) -> tuple[Any, ...]:
    """Return the split with at most ``rows`` training and test rows, drawn publicly."""
    X, Xt, y, yt = task.load()
    rng = np.random.default_rng(0)
    train, test = (rng.permutation(m.shape[0])[:rows] for m in (X, Xt))
    return X[train], Xt[test], np.asarray(y)[train], np.asarray(yt)[test]


def model_of(solver: str, task: Task, numbers: bool, seed: int) -> Any:
    """Return the estimator: the sparse one where the solver is a sparse one."""
    sparse = SOLVERS["linear"][solver].capabilities.sparse
    kinds = (
        (SparseLinearRegression, LinearRegression)
        if numbers
        else (SparseLogisticRegression, LogisticRegression)
    )
    options: dict[str, Any] = {"data_norm": task.data_norm, "solver": solver, "random_state": seed}
    if sparse:
        options["n_nonzero_coefs"] = task.keep
    if numbers:
        options["target_bound"] = task.target_bound
    return kinds[0 if sparse else 1](EPSILON, DELTA, **options)


def judged(model: Any, Xt: Any, yt: np.ndarray, numbers: bool) -> tuple[float, float, float]:
    """Return the score, that of the best constant, and the share of the constant's loss that is saved."""
    if numbers:
        score = float(model.score(Xt, yt))
        return score, 0.0, score
    share = np.clip(model.predict_proba(Xt)[:, 1], 1e-12, 1 - 1e-12)
    labels = list(model.classes_)
    rate = float(np.mean(yt == labels[1]))
    loss = log_loss(yt == labels[1], share, labels=[False, True])
    least = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    return float(model.score(Xt, yt)), max(rate, 1 - rate), float(1.0 - loss / least)


def fitted(name: str, solver: str, split: tuple[Any, ...], fits: int) -> Fit:
    """Return the medians of some fits."""
    X, Xt, y, yt = split
    task, numbers, found = TASKS[name], y.dtype.kind == "f" and len(np.unique(y)) > 2, []
    start = time.process_time()
    for seed in range(fits):
        with warnings.catch_warnings(), seeded_noise_not_private(seed):
            warnings.simplefilter("ignore")
            model = model_of(solver, task, numbers, seed).fit(X, y)
            found.append(judged(model, Xt, yt, numbers))
    score, constant, gain = np.median(found, axis=0)
    return Fit(name, solver, *map(float, (score, constant, gain, (time.process_time() - start) / fits)))


def main() -> int:
    """Run, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="at most 3,000 rows and one fit")
    parser.add_argument("--solvers", nargs="*", default=list(SOLVERS["linear"]), help="solvers by name")
    parser.add_argument("--sets", nargs="*", default=list(TASKS), help="sets by name")
    parser.add_argument("--save", type=Path, default=None, help=f"for the page: {RESULT.name}")
    asked = parser.parse_args()
    describe()
    rows, fits = (3000, 1) if asked.quick else (20_000, 3)
    done: list[Fit] = []
    for name in asked.sets:
        try:
            split = prepared(TASKS[name], rows)
        except DataNotFoundError:
            print(f"{name}: absent")
            continue
        for solver in asked.solvers:
            done.append(fitted(name, solver, split, fits))
            last = done[-1]
            worse = "" if last.gain > 0 else "   WORSE THAN A CONSTANT"
            print(
                f"{name:>16} {solver:>14} {last.score:.3f} (constant {last.constant:.3f}) "
                f"gain {last.gain:.3f} {last.seconds:.2f} s{worse}",
                flush=True,
            )
    if asked.save is not None:
        about = {
            "command": "python -m benchmarks.solver_bars" + " --quick" * asked.quick,
            "date": datetime.now(UTC).date().isoformat(),
            "epsilon": EPSILON,
            "rows": rows,
            "fits": fits,
        }
        text = json.dumps({"about": about, "fits": [asdict(fit) for fit in done]}, indent=1)
        asked.save.write_text(text + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
