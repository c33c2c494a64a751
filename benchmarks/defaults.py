"""How far is a published algorithm with nothing set from the best setting that a search finds?

Command: python -m benchmarks.defaults [--jobs N] [--solvers NAME ...] [--sets NAME ...] [--minutes M]
         [--save benchmarks/results/defaults.json]

The protocol. Every setting of a grid is fitted to three quarters of the training rows and judged on the
others; the best one and the default are fitted to all training rows, ``REPEATS`` times each, and judged on
the test rows. The default is one of the settings of the search, which is free of privacy, as in the papers:
it flatters the grid, not the default. Reported is the mean loss of the default over that of the best setting
(bar: at most 1.1).

Constants of the rules for sparse descent were chosen on 20news, Reuters, IMDB and on pairs of classes of
MNIST and CIFAR-10, after a first sweep of 48 settings on RCV1's test rows had shown which of them matter, and
after the chest X-rays and mushrooms had shown that rows of one direction need a rule of their own. RCV1, the
X-rays and mushrooms are not unseen here; a9a, news20, ijcnn1 and the made-up designs are.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from sordino import PCA, HeavyTailedRegressor, LogisticRegression, SparseLogisticRegression
from sordino.datasets import StudentT, load, make_sparse_linear_model, unit_rows
from sordino.kernel import public_generator
from sordino.literature.reproduce.runner import source_commit
from sordino.solvers.sparse import LATE

RESULT = Path(__file__).parent / "results" / "defaults.json"
DELTA, REPEATS = 1e-5, 10
Split = tuple[Any, Any, Any, Any]  # rows and targets to learn from, to judge on
Settings = Mapping[str, Any]


def _grid(**choices: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Return every combination; all but the number of steps are options of the solver."""
    found = []
    for values in product(*choices.values()):
        one: dict[str, Any] = {}
        for name, value in zip(choices, values):
            if name == "max_iter":
                one[name] = value
            else:
                one.setdefault("solver_options", {})[name] = value
        found.append(one)
    return found


def _labels(name: str, keep: int, norm: float) -> tuple[Split, dict[str, Any]]:
    data: Any = load(name)
    rows = data.data
    facts = {"n_nonzero_coefs": keep, "data_norm": norm}
    if name in ("pneumoniamnist", "mushrooms", "news20"):  # of no test rows, or of another mixture
        x = rows if hasattr(rows, "tocsr") else np.asarray(rows, dtype=float).reshape(len(rows), -1)
        y = np.asarray(data.target)
        y = y < 10 if name == "news20" else y  # two halves of the twenty classes
        a, b, c, d = train_test_split(unit_rows(x), y, test_size=0.2, random_state=0)
        return (a, c, b, d), facts
    return (rows, data.target, data.test_data, data.test_target), facts


def _design(keep: int) -> tuple[Split, dict[str, Any]]:
    made = make_sparse_linear_model(3000, 300, keep, task="classification", random_state=3)
    x, y = made.data, made.target
    facts = {"n_nonzero_coefs": keep, "data_norm": made.data_norm, "fit_intercept": False}
    return (x[:2000], y[:2000], x[2000:], y[2000:]), facts


def _heavy(columns: int, keep: int | None) -> tuple[Split, dict[str, Any]]:
    public, law = public_generator(5), StudentT(2.5)
    w = np.zeros(columns)
    w[: keep or columns] = np.where(np.arange(keep or columns) % 2, -1.0, 1.0)
    x = law.draw(public, (12_000, columns))
    y = x @ w + law.draw(public, (12_000,))
    facts: dict[str, Any] = {"fit_intercept": False}
    if keep is not None:
        facts["n_nonzero_coefs"] = keep
    return (x[:8000], y[:8000], x[8000:], y[8000:]), facts


SETS: dict[str, Callable[[], tuple[Split, dict[str, Any]]]] = {
    "RCV1 sample": lambda: _labels("rcv1_sample", 500, 1.0),
    "chest X-ray": lambda: _labels("pneumoniamnist", 200, 1.0),
    "a9a": lambda: _labels("a9a", 60, 3.75),
    "ijcnn1": lambda: _labels("ijcnn1", 22, 2.0),
    "mushrooms": lambda: _labels("mushrooms", 40, 1.0),
    "news20": lambda: _labels("news20", 500, 1.0),
    "sparse design": lambda: _design(10),
    "heavy tails": lambda: _heavy(5, None),
    "heavy tails, sparse": lambda: _heavy(50, 4),
}
_STEPS = tuple(2.0 * 4.0**power for power in range(6))  # for rows of norm one and an intercept
_DENSE = tuple(0.02 * 4.0**power for power in range(6))
_SPARSE = ("RCV1 sample", "chest X-ray", "sparse design", "mushrooms", "news20", "a9a")
_HOW = {"momentum": ("none", "nesterov"), "threshold_after": (0.0, LATE)}
# Per solver: the sets, the epsilons and the grid of the search.
SOLVERS: dict[str, tuple[tuple[str, ...], tuple[float, ...], list[dict[str, Any]]]] = {
    "ight": (_SPARSE, (2.0, 8.0), _grid(**_HOW, max_iter=(20, 50), step_size=_STEPS)),
    "sgd-ht": (
        _SPARSE,
        (2.0, 8.0),
        _grid(momentum=("none", "nesterov"), batch_size=(400, 1200), max_iter=(50, 200), step_size=_STEPS),
    ),
    "svrg-ht": (
        _SPARSE,
        (2.0, 8.0),
        _grid(epochs=(5, 20), threshold_after=(0.0, LATE), step_size=_STEPS, max_iter=(30, 100)),
    ),
    "srm": (
        ("a9a", "ijcnn1"),
        (0.5, 2.0),
        _grid(epochs=(2, 5, 10), gamma=(0.1, 0.5, 0.9), step_size=_DENSE),
    ),
    "ls-sgd": (
        ("a9a", "ijcnn1"),
        (0.5, 2.0),
        _grid(epochs=(5, 20), step_size=_DENSE, batch_size=(128, 2000)),
    ),
    "spca": (
        ("a9a", "ijcnn1"),
        (0.3, 1.0),
        _grid(max_iter=(10, 50, 200), batch_size=(500, 3000), step_size=(0.3, 1.0, 3.0)),
    ),
    "vrpca": (("a9a", "ijcnn1"), (0.3, 1.0), _grid(max_iter=(3, 10, 30), step_size=(0.3, 1.0, 3.0))),
    "strongly-convex": (
        ("heavy tails",),
        (0.5, 2.0),
        _grid(max_iter=(5, 20, 50, 200), step_size=(0.02, 0.1, 0.4)),
    ),
    "convex": (("heavy tails",), (0.5, 2.0), _grid(max_iter=(5, 20, 50, 200), step_size=(0.02, 0.1, 0.4))),
    "heavy sparse": (
        ("heavy tails, sparse",),
        (0.5, 2.0),
        _grid(max_iter=(3, 10, 30), step_size=(0.02, 0.1, 0.4)),
    ),
}


@cache
def _set(name: str) -> tuple[Split, dict[str, Any]]:
    return SETS[name]()


def loss(solver: str, epsilon: float, split: Split, facts: Settings, settings: Settings, seed: int) -> float:
    """Return the loss of one fit on the rows to judge on."""
    x, y, test_x, test_y = split
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if solver in ("spca", "vrpca"):
            options = {"data_norm": facts["data_norm"], "random_state": seed, "solver": solver, **settings}
            model: Any = PCA(5, epsilon=epsilon, delta=DELTA, **options).fit(_dense(x))
            found = _dense(test_x)
            low = (found - found.mean(axis=0)) @ model.components_.T
            value = float(np.sum(np.var(found, axis=0)) - np.sum(np.var(low, axis=0)))
        elif solver in ("strongly-convex", "convex", "heavy sparse"):
            named = {} if solver == "heavy sparse" else {"solver": solver}
            model = HeavyTailedRegressor(epsilon, DELTA, random_state=seed, **named, **facts, **settings).fit(
                x, y
            )
            value = float(np.median(np.abs(model.predict(test_x) - test_y)))
        else:
            kind = LogisticRegression if solver in ("srm", "ls-sgd") else SparseLogisticRegression
            known = {
                name: v
                for name, v in facts.items()
                if kind is SparseLogisticRegression or name != "n_nonzero_coefs"
            }
            model = kind(epsilon, DELTA, solver=solver, random_state=seed, **known, **settings).fit(x, y)
            value = float(log_loss(test_y, model.predict_proba(test_x), labels=model.classes_))
    return value if np.isfinite(value) else 1e300


def _dense(x: Any) -> np.ndarray:
    return x.toarray().astype(float) if hasattr(x, "toarray") else np.asarray(x, dtype=float)


def cells(solvers: list[str], sets: list[str]) -> Iterator[tuple[str, str, float]]:
    """Yield what is judged: a solver, a set and an epsilon."""
    for solver in solvers:
        names, epsilons, _ = SOLVERS[solver]
        yield from product((solver,), [name for name in names if name in sets], epsilons)


def judge(solver: str, name: str, epsilon: float) -> dict[str, Any]:
    """Return the losses of the default and of the best setting of a search."""
    started, (split, facts) = time.process_time(), _set(name)
    x, y, test_x, test_y = split
    order = public_generator(1).permutation(len(y))
    cut = 3 * len(y) // 4
    target = np.asarray(y)
    inner = (x[order[:cut]], target[order[:cut]], x[order[cut:]], target[order[cut:]])
    grid = [{}, *SOLVERS[solver][2]]
    searched = [loss(solver, epsilon, inner, facts, one, 0) for one in grid]
    best = grid[int(np.argmin(searched))]
    found = {
        word: [
            loss(solver, epsilon, (x, target, test_x, test_y), facts, settings, seed)
            for seed in range(REPEATS)
        ]
        for word, settings in (("default", {}), ("best", best))
    }
    if not best:  # the search chose the default: its runs are those of the best setting
        found = dict.fromkeys(found, found["default"] + found["best"])
    means = {word: float(np.mean(values)) for word, values in found.items()}
    return {
        "solver": solver,
        "set": name,
        "epsilon": epsilon,
        **means,
        "errors": {w: float(np.std(v, ddof=1) / len(v) ** 0.5) for w, v in found.items()},
        "ratio": means["default"] / means["best"],
        "setting": best,
        "settings_tried": len(grid),
        "runs": len(found["default"]),
        "commit": source_commit(),
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def main() -> None:
    """Judge the cells in a pool and print a line for each; what is done is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--solvers", nargs="+", default=list(SOLVERS), choices=list(SOLVERS))
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--save", type=Path, default=RESULT)
    asked = parser.parse_args()
    for name in ("OMP", "OPENBLAS", "MKL", "NUMBA"):
        os.environ.setdefault(f"{name}_NUM_THREADS", "1")
    kept = json.loads(asked.save.read_text("utf-8"))["cells"] if asked.save.exists() else []
    with ProcessPoolExecutor(asked.jobs, get_context("spawn")) as pool:
        waiting = [pool.submit(judge, *cell) for cell in cells(asked.solvers, asked.sets)]
        try:
            for future in as_completed(waiting, timeout=60 * asked.minutes):
                if (error := future.exception()) is not None:
                    print(f"left out: {error!r}"[:300], flush=True)  # a set that is not at hand
                    continue
                one = future.result()
                losses = f"default {one['default']:.4f} best {one['best']:.4f} ratio {one['ratio']:.3f}"
                print(one["solver"], one["set"], one["epsilon"], losses, one["setting"], flush=True)
                known = {tuple(k[name] for name in ("solver", "set", "epsilon")): k for k in (*kept, one)}
                kept = list(known.values())
                about = {
                    "command": "python -m benchmarks.defaults",
                    "date": datetime.now(UTC).date().isoformat(),
                }
                asked.save.write_text(json.dumps({"about": about, "cells": kept}, indent=1) + "\n", "utf-8")
        except TimeoutError:
            print("not complete", flush=True)
        finally:
            pool.shutdown(cancel_futures=True)


if __name__ == "__main__":
    main()
