"""Every sparse solver with its defaults: accuracy at five epsilons, CPU time and memory, on real sets.

Command: python -m benchmarks.every_solver [set or solver ...]   (one fit each, fresh noise, public choices
seeded 0; names of sets and of solvers choose among them)
Needs the data sets (docs/datasets.md); one that is absent is named and left out. delta = 1e-5. Ceilings are
scikit-learn without privacy: all columns (the best of three penalties), and L1 with at most k columns.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
import warnings
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from benchmarks.machine import describe
from benchmarks.more_sets import EPSILONS, genes, parts, two_groups
from sordino import SparseLogisticRegression, datasets
from sordino.errors import DataNotFoundError

SOLVERS = (
    "auto",
    "ight",
    "sgd-ht",
    "svrg-ht",
    "scsg-ht",
    "coordinate",
    "frank-wolfe",
    "peeled",
    "two-stage",
    "transfer",
)
# task, k, data_norm
TASKS = {
    "rcv1_sample": (lambda: parts(datasets.load("rcv1_sample"), lambda X: X), 1000, 1.0),
    "20news comp": (two_groups, 2000, 1.0),
    "imdb": (lambda: parts(datasets.load("imdb"), datasets.log1p_unit), 5000, 1.0),
    "a9a": (lambda: parts(datasets.load("a9a"), lambda X: X), 60, 3.75),
    "reuters acq": (lambda: parts(datasets.load("reuters_acq"), datasets.unit_rows), 500, 1.0),
    "golub": (genes("golub"), 20, 1.0),
}


def ceilings(X: Any, Xt: Any, y: Any, yt: Any, k: int) -> tuple[float, float]:
    """Return the accuracies of plain models on all columns and on at most k of them."""
    plain = max(LogisticRegression(C=c, max_iter=300).fit(X, y).score(Xt, yt) for c in (1.0, 100.0, 1e4))
    few = 0.0
    for c in (0.01, 0.1, 1.0, 10.0):
        model = LogisticRegression(C=c, l1_ratio=1.0, solver="liblinear").fit(X, y)
        if np.count_nonzero(model.coef_) <= k:
            few = max(few, model.score(Xt, yt))
    return plain, few


def measure(model: SparseLogisticRegression, X: Any, y: Any) -> tuple[float, float]:
    """Return the CPU seconds of a fit and, of a second one, the megabytes beyond the data."""
    start = time.process_time()
    model.fit(X, y)
    seconds = time.process_time() - start
    tracemalloc.start()
    model.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return seconds, peak


def table(name: str, split: tuple[Any, ...], k: int, data_norm: float) -> None:
    X, Xt, y, yt = split
    plain, few = ceilings(X, Xt, y, yt, k)
    print(f"\n{name} {X.shape}, k = {k}; not private: {plain:.3f}, L1 with at most k {few:.3f}")
    print(f"{'solver':>12}  " + " ".join(f"{e:>6g}" for e in EPSILONS) + "   CPU s     MB")
    for solver in [s for s in SOLVERS if s in sys.argv] or SOLVERS:
        models = [
            SparseLogisticRegression(
                e, 1e-5, n_nonzero_coefs=k, solver=solver, data_norm=data_norm, random_state=0
            ).fit(X, y)
            for e in EPSILONS
        ]
        seconds, memory = measure(models[1], X, y)
        line = " ".join(f"{model.score(Xt, yt):>6.3f}" for model in models)
        print(f"{solver:>12}  {line}  {seconds:>6.2f} {memory:>6.0f}", flush=True)


def main() -> None:
    """Print a table per data set."""
    warnings.simplefilter("ignore")
    describe()
    for name, (load, k, data_norm) in TASKS.items():
        words = [word for word in sys.argv[1:] if word not in SOLVERS]
        if words and not any(word in name for word in words):
            continue
        try:
            table(name, load(), k, data_norm)
        except DataNotFoundError:
            print(f"\n{name}: absent")


if __name__ == "__main__":
    main()
