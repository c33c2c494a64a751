"""What a private fit costs beside scikit-learn's own on the same rows, in turns, one thread each.

Command: python -m benchmarks.beside_plain [--turns 9] [--save benchmarks/results/beside_plain.json]
         python -m benchmarks.beside_plain --steps 20 50 --sets rcv1_sample   (other numbers of steps)
Needs a9a, imdb and rcv1_sample (docs/datasets.md). Defaults of both sides at (1, 1e-5). The ratio is of the
processor's time: the median over the turns, with its quartiles; accuracies are means over the same fits. A
first fit, which compiles, is left out. Set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression as Plain

from benchmarks.machine import describe
from sordino import SparseLogisticRegression
from sordino.datasets import load, log1p_unit
from sordino.errors import DataNotFoundError

# Set, norm of a row, how rows are prepared, coefficients that are kept.
SETS: tuple[tuple[str, float, Callable[[Any], Any], tuple[int | None, ...]], ...] = (
    ("imdb", 1.0, log1p_unit, (None, 1000)),
    ("a9a", 3.75, lambda X: X, (None, 50)),
    ("rcv1_sample", 1.0, lambda X: X, (None, 1000)),
)
Task = tuple[str, int | None, float, tuple[Any, Any, Any, Any]]


def tasks(wanted: list[str]) -> Iterator[Task]:
    """Yield what is fitted, as far as the data are here."""
    for name, norm, prepared, kept in SETS:
        if wanted and name not in wanted:
            continue
        try:
            data = load(name)
        except DataNotFoundError:
            print(f"{name}: absent")
            continue
        parts = prepared(data.data), data.target, prepared(data.test_data), data.test_target
        for count in kept:
            yield name, count, norm, parts


def timed(model: Any, X: Any, y: Any) -> float:
    """Return the processor's seconds of one fit."""
    start = time.process_time()
    model.fit(X, y)
    return time.process_time() - start


def beside(task: Task, turns: int, steps: int | None) -> dict[str, Any]:
    """Fit both in turns."""
    name, kept, norm, (X, y, test_X, test_y) = task
    ours = SparseLogisticRegression(1.0, 1e-5, n_nonzero_coefs=kept, data_norm=norm, max_iter=steps)
    theirs = Plain()
    ours.fit(X, y), theirs.fit(X, y)
    pairs, scores = [], []
    for _ in range(turns):
        pairs.append((timed(ours, X, y), timed(theirs, X, y)))
        scores.append(ours.score(test_X, test_y))
    ratios = np.array([a / b for a, b in pairs])
    low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
    return {
        "set": name,
        "kept": kept,
        "steps": steps,
        "seconds": float(np.median([a for a, _ in pairs])),
        "plain_seconds": float(np.median([b for _, b in pairs])),
        "ratio": float(middle),
        "quartiles": [float(low), float(high)],
        "accuracy": float(np.mean(scores)),
        "error": float(np.std(scores, ddof=1) / math.sqrt(turns)),
        "plain_accuracy": float(theirs.score(test_X, test_y)),
    }


def main() -> None:
    """Print the table, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--steps", type=int, nargs="*", default=[None])
    parser.add_argument("--sets", nargs="*", default=[])
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    machine = describe()
    found = []
    print("set, kept: seconds, scikit-learn's, ratio (quartiles), accuracy, scikit-learn's")
    for task, steps in itertools.product(tasks(given.sets), given.steps):
        row = beside(task, given.turns, steps)
        found.append(row)
        what = f"{row['set']}, {row['kept'] or 'all'}" + (f", {steps} steps" if steps else "")
        print(
            f"{what}: {row['seconds']:.3f}, {row['plain_seconds']:.3f}, "
            f"{row['ratio']:.2f} ({row['quartiles'][0]:.2f} to {row['quartiles'][1]:.2f}), "
            f"{row['accuracy']:.4f} +- {row['error']:.4f}, {row['plain_accuracy']:.4f}",
            flush=True,
        )
    if given.save:
        about = {
            "command": "python -m benchmarks.beside_plain",
            "machine": machine,
            "turns": given.turns,
            "epsilon": 1.0,
        }
        given.save.write_text(json.dumps({"about": about, "rows": found}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
