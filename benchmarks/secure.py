"""What exact noise costs: processor time of fits with and without ``secure_noise``, and draws per second.

python -m benchmarks.secure --json benchmarks/results/secure.json     measures
python -m benchmarks.secure --page            writes the kept table into docs/secure-noise.md
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import sordino
from benchmarks.machine import describe
from sordino.kernel import NoiseSource

ROOT = Path(__file__).resolve().parents[1]
PAGE, KEPT = ROOT / "docs" / "secure-noise.md", ROOT / "benchmarks" / "results" / "secure.json"
START, END = "<!-- made by python -m benchmarks.secure -->", "<!-- end of the table -->"
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5}
DENSE = ("auto", "gd", "agd", "sgd", "srm")
SPARSE = ("auto", "ight", "sgd-ht", "scsg-ht", "frank-wolfe", "two-stage", "peeled", "coordinate")
PCA = ("auto", "screen", "power", "vrpca")


def fits(n: int) -> Iterator[tuple[str, Callable[[bool], Any]]]:
    """Yield fits that take whether the noise is exact."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 20)) / 5
    y, t = (X[:, 0] + 0.5 * rng.normal(size=n) > 0).astype(int), X @ np.ones(20)
    S = sparse.random(n // 4, 2000, 0.01, random_state=0, format="csr")
    owner = np.arange(n) // 4
    common = {**BUDGET, "classes": [0, 1], "data_norm": 1.0}

    def dense(solver: str) -> Callable[[bool], Any]:
        return lambda s: sordino.LogisticRegression(solver=solver, secure_noise=s, **common).fit(X, y)

    def thin(solver: str, rows: Any, labels: Any) -> Callable[[bool], Any]:
        return lambda s: sordino.SparseLogisticRegression(
            solver=solver, n_nonzero_coefs=5, secure_noise=s, **common
        ).fit(rows, labels)

    def axes(solver: str) -> Callable[[bool], Any]:
        return lambda s: sordino.PCA(3, solver=solver, data_norm=1.0, secure_noise=s, **BUDGET).fit(X)

    yield from ((f"LogisticRegression, {solver}", dense(solver)) for solver in DENSE)
    yield from ((f"SparseLogisticRegression, {solver}", thin(solver, X, y)) for solver in SPARSE)
    yield "SparseLogisticRegression, ight, CSR", thin("ight", S, y[: n // 4])
    yield from ((f"PCA, {solver}", axes(solver)) for solver in PCA)
    for solver in ("auto", "gd"):
        yield (
            f"LogisticRegression, {solver}, persons",
            lambda s, solver=solver: sordino.LogisticRegression(solver=solver, secure_noise=s, **common).fit(
                X, y, groups=owner
            ),
        )
    yield (
        "PCA, auto, persons",
        lambda s: sordino.PCA(3, data_norm=1.0, secure_noise=s, **BUDGET).fit(X, groups=owner),
    )
    yield (
        "HeavyTailedRegressor, persons",
        lambda s: sordino.HeavyTailedRegressor(secure_noise=s, **BUDGET).fit(X, t, groups=owner),
    )
    yield (
        "HeavyTailedRegressor",
        lambda s: sordino.HeavyTailedRegressor(secure_noise=s, **BUDGET).fit(X, t),
    )
    yield from {
        "mean": lambda s: sordino.mean(X, secure_noise=s, **BUDGET),
        "mean, bounds": lambda s: sordino.mean(X, bounds=(-3, 3), secure_noise=s, **BUDGET),
        "mean, median of means": lambda s: sordino.mean(
            X, estimator="median-of-means", secure_noise=s, **BUDGET
        ),
        "variance": lambda s: sordino.variance(X, secure_noise=s, **BUDGET),
        "covariance": lambda s: sordino.covariance(X, secure_noise=s, **BUDGET),
        "quantiles": lambda s: sordino.quantiles(X, [0.1, 0.5], secure_noise=s, **BUDGET),
        "count": lambda s: sordino.count(y == 1, secure_noise=s, **BUDGET),
        "count, persons": lambda s: sordino.count(y == 1, groups=owner, secure_noise=s, **BUDGET),
    }.items()


def cost(fit: Callable[[bool], Any], repeats: int) -> tuple[float, float]:
    """Return the least processor time of plain and of exact fits, taken in turns."""
    spent: dict[bool, list[float]] = {False: [], True: []}
    for secure in (False, True):
        fit(secure)
    for _ in range(repeats):
        for secure, seconds in spent.items():
            begin = time.process_time()
            fit(secure)
            seconds.append(time.process_time() - begin)
    return min(spent[False]), min(spent[True])


def draws_per_second(count: int = 1_000_000) -> dict[str, float]:
    """Return exact draws per second of one core."""
    noise, out = NoiseSource.from_os(), {}
    for name, draw in {
        "Gaussian": lambda: noise.rounded_gaussian(2.0**28.5, count),
        "Laplace": lambda: noise.rounded_laplace(2.0**28.5, count),
        "runners of a race": lambda: noise.race(np.zeros(count), 1.0, 1),
    }.items():
        draw()
        begin = time.process_time()
        draw()
        out[name] = count / (time.process_time() - begin)
    return out


def page(text: str) -> str:
    """Return the page with the table of what was kept."""
    kept = json.loads(KEPT.read_text("utf-8"))
    rows = ["| fit | plain, ms of CPU | exact, ms | ratio |", "|---|---|---|---|"]
    for name, (plain, exact) in kept["fits"].items():
        rows.append(f"| {name} | {1e3 * plain:.1f} | {1e3 * exact:.1f} | {exact / plain:.2f} |")
    rows += ["", "| exact draws | millions per second and core |", "|---|---|"]
    rows += [f"| {name} | {rate / 1e6:.1f} |" for name, rate in kept["draws"].items()]
    rows += ["", f"Measured on {kept['machine']}, {kept['records']} records of 20 columns."]
    before, _, rest = text.partition(START)
    return "\n".join([before + START, "", *rows, "", END]) + rest.partition(END)[2]


def main(arguments: list[str] | None = None) -> None:
    """Measure and print, or write the page."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=int, default=100_000)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--only", default="")
    options.add_argument("--json", type=Path)
    options.add_argument("--page", action="store_true")
    chosen = options.parse_args(arguments)
    if chosen.page:
        PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
        return
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {"machine": describe(), "records": chosen.records, "fits": {}}
    for name, fit in fits(chosen.records):
        if chosen.only in name:
            found["fits"][name] = cost(fit, chosen.repeats)
            plain, exact = found["fits"][name]
            print(f"{name:45} {plain:8.4f} {exact:8.4f} {exact / plain:6.3f}", flush=True)
    found["draws"] = draws_per_second()
    print(found["draws"])
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
