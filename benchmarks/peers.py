"""Sordino beside its peers in one run: accuracy per epsilon, CPU seconds, peak memory.

Command: python -m benchmarks.peers [--quick] [--rivals NAME ...] [--save benchmarks/results/peers.json]
The peers live in two environments of their own, made by `make peers`; without them they are left out.
(epsilon, 1e-5), one record added or removed; diffprivlib is pure epsilon, DP-EBM has its own neighbours;
Opacus, Opake and jax-privacy get the best of three learning rates in hindsight, their time is that of one.
Intervals are 95 % of the mean over the runs. CPU seconds and peak memory are those of a process that does
nothing else; neither imports nor its first fit, which may load or compile code, are timed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from sklearn.linear_model import LinearRegression as LeastSquares
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from benchmarks.adassp import adassp
from benchmarks.machine import describe, peak_mb
from sordino import LinearRegression, LogisticRegression, mean
from sordino.datasets import REGISTRY, load, unit_rows
from sordino.errors import DataNotFoundError
from sordino.tables import Number

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ROOT / ".venv-peers" / "bin" / "python"
OPAKE = ROOT / ".venv-opake" / "bin" / "python"  # its accounting does not import on Python 3.11
WORKER = Path(__file__).with_name("peer_worker.py")
DELTA = 1e-5


def digits(seed: int) -> dict[str, Any]:
    """Digits below five against the others."""
    X, y = load("digits", return_X_y=True)
    return _parts(unit_rows(X), (y >= 5).astype(int), seed)


def breast_cancer(seed: int) -> dict[str, Any]:
    """Breast cancer, standardised (not private by itself), rows of unit norm."""
    X, y = load("breast_cancer", return_X_y=True)
    return _parts(unit_rows(StandardScaler().fit_transform(X)), np.asarray(y), seed)


def adult(seed: int) -> dict[str, Any]:
    """Adult: encoded for linear models, raw numbers and codes for trees, bounds and levels as declared.

    A level that is not declared gets the code after the last one.
    """
    data, raw = load("adult", transform="unit"), load("adult", encoding="raw")
    codes, tests, low, high = [], [], [], []
    for column in REGISTRY["adult"].schema.columns:
        sides = raw.data[column.name], raw.test_data[column.name]
        if isinstance(column, Number):
            a, b = (np.asarray(side, dtype=float) for side in sides)
        else:
            known = {level: code for code, level in enumerate(column.levels)}
            a, b = (np.array([known.get(str(v), len(known)) for v in side], dtype=float) for side in sides)
        codes.append(a), tests.append(b)
        low.append(column.low if isinstance(column, Number) else 0.0)
        high.append(column.high if isinstance(column, Number) else 0.0)
    return {
        "x": data.data.toarray(), "y": np.asarray(data.target), "test_x": data.test_data.toarray(),
        "test_y": np.asarray(data.test_target), "raw": np.stack(codes, 1), "test_raw": np.stack(tests, 1),
        "low": np.array(low), "high": np.array(high), "categories": np.array(high) == 0,
    }  # fmt: skip


def _parts(X: np.ndarray, y: np.ndarray, seed: int) -> dict[str, Any]:
    x, test_x, y, test_y = train_test_split(X, y, test_size=0.3, random_state=seed)
    return {"x": x, "y": y, "test_x": test_x, "test_y": test_y}


CLASSIFICATION: dict[str, tuple[Callable[[int], dict[str, Any]], tuple[str, ...]]] = {
    "digits": (digits, ("diffprivlib", "opacus", "jax-privacy", "opake")),
    "breast cancer": (breast_cancer, ("diffprivlib", "opacus", "jax-privacy", "opake")),
    "adult": (adult, ("diffprivlib", "opacus", "jax-privacy", "opake", "dp-ebm")),
}


def ours(task: dict[str, Any], epsilon: float) -> dict[str, float]:
    """Fit the default classifier."""
    return _scored(task, LogisticRegression(epsilon, DELTA, data_norm=1.0))


def plain(task: dict[str, Any]) -> dict[str, float]:
    """Fit scikit-learn's, without privacy."""
    return _scored(task, Plain(max_iter=1000))


def _scored(task: dict[str, Any], model: Any) -> dict[str, float]:
    seconds, fitted = _timed(lambda: model.fit(task["x"], task["y"]))
    return {"value": float(fitted.score(task["test_x"], task["test_y"])), "cpu": seconds}


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    done = work()
    return time.process_time() - start, done


def alone(way: Callable[..., dict[str, float]], many: list[tuple[Any, ...]]) -> list[dict[str, float]]:
    """Return a measurement for each of ``many``, made in one process of their own, with its peak memory."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_each, way, many).result()


def _each(way: Callable[..., dict[str, float]], many: list[tuple[Any, ...]]) -> list[dict[str, float]]:
    warnings.simplefilter("ignore")
    way(*many[0])
    return [{**way(*given), "peak_mb": peak_mb()} for given in many]


def peer(name: str, task: dict[str, Any], epsilon: float, seed: int) -> dict[str, float] | None:
    """Run a peer in its own environment; None where it fails, with its last words."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.npz"
        np.savez(path, **task)
        command = [
            str(OPAKE if name == "opake" else PYTHON),
            str(WORKER),
            str(path),
            name,
            str(epsilon),
            str(seed),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
    if done.returncode:
        print(f"  {name}: {done.stderr.strip().splitlines()[-1:]}", flush=True)
        return None
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return found if found["value"] is not None else None


def _environment() -> dict[str, str]:
    return {**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, "OMP_NUM_THREADS": "1"}


def classification(runs: int, epsilons: tuple[float, ...], rivals: list[str]) -> Iterator[dict[str, Any]]:
    """Yield a row per task, method and epsilon."""
    for name, (make, peers) in CLASSIFICATION.items():
        try:
            tasks = [make(seed) for seed in range(1 if name == "adult" else runs)]
        except DataNotFoundError:
            print(f"{name}: absent")
            continue
        if name == "adult":
            tasks = tasks * runs
        yield _row(name, "not private", math.inf, alone(plain, [(task,) for task in tasks]))
        for epsilon in epsilons:
            yield _row(name, "sordino", epsilon, alone(ours, [(task, epsilon) for task in tasks]))
            for rival in (name for name in peers if not rivals or name in rivals):
                if not (OPAKE if rival == "opake" else PYTHON).exists():
                    continue
                found = [
                    peer(rival, task, epsilon, seed) for seed, task in enumerate(tasks[: max(3, runs // 3)])
                ]
                yield _row(name, rival, epsilon, [f for f in found if f is not None])


def regression(runs: int, epsilons: tuple[float, ...]) -> Iterator[dict[str, Any]]:
    """Yield R^2 of a dense regression beside AdaSSP, for two shapes."""
    for n, d in ((5000, 10), (2000, 50)):
        for epsilon in epsilons:
            for way in ("sordino", "adassp", "not private"):
                found = alone(explained, [(way, n, d, epsilon, seed) for seed in range(runs)])
                yield _row(f"regression {n} x {d}", way, epsilon, found)


def explained(way: str, n: int, d: int, epsilon: float, seed: int) -> dict[str, float]:
    """Return R^2 on as many rows as were learned from."""
    rng = np.random.default_rng(seed)
    x = unit_rows(rng.normal(size=(2 * n, d)))
    y = np.clip(x @ rng.normal(size=d) / 2 + 0.25 * rng.normal(size=2 * n), -2, 2)
    private = LinearRegression(epsilon, DELTA, data_norm=1.0, target_bound=2.0, fit_intercept=False)
    ways: dict[str, Callable[[], Any]] = {
        "sordino": lambda: private.fit(x[:n], y[:n]).coef_,
        "adassp": lambda: adassp(x[:n], y[:n], epsilon, DELTA, 1.0, 2.0, seed),
        "not private": lambda: LeastSquares(fit_intercept=False).fit(x[:n], y[:n]).coef_,
    }
    seconds, w = _timed(ways[way])
    error = np.mean((x[n:] @ w - y[n:]) ** 2) / y[n:].var()
    return {"value": 1 - float(error), "cpu": seconds}


def means(runs: int, epsilons: tuple[float, ...]) -> Iterator[dict[str, Any]]:
    """Yield errors of the mean of 2,000 lognormal numbers; OpenDP is told bounds of 0 and 100."""
    numbers = [np.random.default_rng(seed).lognormal(size=2000) for seed in range(runs)]
    for epsilon in epsilons:
        found = {"sordino": alone(our_mean, [(values, epsilon) for values in numbers])}
        if PYTHON.exists():
            bounds = {"low": np.array(0.0), "high": np.array(100.0)}
            told = [
                peer("opendp", {"values": values, **bounds}, epsilon, seed)
                for seed, values in enumerate(numbers)
            ]
            found["opendp"] = [answer for answer in told if answer is not None]
        for way, answers in found.items():
            off = [{**answer, "value": abs(answer["value"] - math.exp(0.5))} for answer in answers]
            yield _row("mean, absolute error", way, epsilon, off)


def our_mean(values: np.ndarray, epsilon: float) -> dict[str, float]:
    """Return the default mean."""
    seconds, found = _timed(lambda: mean(values, epsilon, DELTA))
    return {"value": float(found), "cpu": seconds}


def _row(task: str, way: str, epsilon: float, found: list[dict[str, float]]) -> dict[str, Any]:
    values = [f["value"] for f in found]
    half = math.nan
    if len(values) > 1:
        half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))
    row = {
        "task": task,
        "method": way,
        "epsilon": epsilon,
        "mean": float(np.mean(values)) if values else math.nan,
        "half": half,
        "runs": len(values),
        "cpu": float(np.median([f["cpu"] for f in found])) if values else math.nan,
        "cpu_range": [float(pick([f["cpu"] for f in found])) if values else math.nan for pick in (min, max)],
        "peak_mb": float(np.max([f["peak_mb"] for f in found])) if values else math.nan,
    }
    print(
        "{task:22} {method:12} eps {epsilon:<5g} {mean:.4f} ± {half:.4f} ({runs} runs, {cpu:.2f} s)".format(
            **row
        )
    )
    sys.stdout.flush()
    return row


def main() -> None:
    """Run all, print, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three runs (means: ten), two epsilons")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--rivals", nargs="+", default=[], help="classification beside these alone")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    machine = describe()
    if not (PYTHON.exists() or OPAKE.exists()):
        print("No peers: run `make peers` first.")
    runs, epsilons = (3, (1.0, 4.0)) if asked.quick else (10, (0.5, 1.0, 2.0, 4.0))
    about = {
        "command": " ".join(["python -m benchmarks.peers", *sys.argv[1:]]).partition(" --save")[0],
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine,
    }
    parts = [classification(runs, epsilons, asked.rivals)]
    parts += [] if asked.rivals else [regression(runs, epsilons), means(max(runs, 10), epsilons)]
    rows = []
    for row in chain(*parts):
        rows.append(row)
        if asked.save:  # what is measured is kept
            asked.save.write_text(
                json.dumps({"about": about, "rows": rows}, indent=1) + "\n", encoding="utf-8"
            )


if __name__ == "__main__":
    main()
