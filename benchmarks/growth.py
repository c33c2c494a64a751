"""How the CPU time of a private fit grows with the rows, the columns, the entries of a row and what is kept.

Command: python -m benchmarks.growth [--save benchmarks/results/growth.json]
         python -m benchmarks.growth --widths     (auto at 20 numbers of columns, and where more cost less)
         python -m benchmarks.growth --screens    (one gradient on all columns for several: accuracy and CPU)
Each line doubles one of n, d, entries a row (nnz), kept coefficients (k) or parties, the others fixed, and
prints the exponent p of CPU ~ size^p over the doublings (least of three fits each). Sparse rows, seed 0.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from scipy import sparse

from benchmarks.machine import describe
from benchmarks.sparse_design import make_sparse_classification
from sordino import SparseLogisticRegression
from sordino.execute import LocalExecutor
from sordino.execute.parties import Mode, NoiseShare, SimulatedParties
from sordino.kernel import Relation
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem
from sordino.runs import Ask, Task, run
from sordino.solvers import auto
from sordino.solvers.sparse import Ight
from sordino.testing import seeded_noise_not_private

BASE = {"n": 10_000, "d": 10_000, "nnz": 50, "k": 500}
DOUBLINGS, STEPS = 3, 50
WIDTHS = tuple(int(d) for d in np.round(np.geomspace(1_000, 8_000_000, 20), -3))


def rows(n: int, d: int, nnz: int) -> tuple[Any, np.ndarray]:
    """Return sparse rows of unit norm with labels."""
    public = np.random.default_rng(0)
    indices = np.sort(public.integers(0, d, (n, nnz)), axis=1).astype(np.int32).ravel()
    values = np.full(n * nnz, nnz**-0.5)
    x = sparse.csr_matrix((values, indices, np.arange(0, n * nnz + 1, nnz, dtype=np.int32)), (n, d))
    x.sum_duplicates()
    return x, public.integers(0, 2, n)


def fit(solver: str, n: int, d: int, nnz: int, k: int) -> Callable[[], Any]:
    """Return a fit, its data made beforehand."""
    x, y = rows(n, d, nnz)
    settings = {"max_iter": STEPS} if solver == "ight" else {}
    model = SparseLogisticRegression(1.0, 1e-6, n_nonzero_coefs=k, data_norm=1.0, solver=solver, **settings)
    return lambda: model.fit(x, y)


def between(parties: int) -> Callable[[], Any]:
    """Return descent between parties of 100 records each, in one process."""
    x, y = rows(100 * parties, 200, 20)
    problem = Problem(LOSSES["logistic"], *x.shape, Relation.ADD_REMOVE, 1.0, 1e-6)
    parts = np.array_split(np.arange(len(y)), parties)
    signs = np.where(y > 0, 1.0, -1.0)
    members = SimulatedParties(
        [LocalExecutor(x[p], signs[p]) for p in parts], NoiseShare(Mode.INSIDE, parties, 1)
    )
    task = Task(Ight(None, STEPS, 1.0, 1.0), problem, "growth")
    return lambda: run(task, members, Ask(1.0, 1e-6))


def cpu(work: Callable[[], Any], times: int = 3) -> float:
    """Return the least CPU seconds of some calls."""
    found = []
    for _ in range(times):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def growth(
    make: Callable[[int], Callable[[], Any]], first: int, doublings: int = DOUBLINGS
) -> dict[str, Any]:
    """Return sizes, CPU seconds, and the exponent over the doublings."""
    sizes = [first * 2**i for i in range(doublings + 1)]
    seconds = [cpu(make(size)) for size in sizes]
    slope = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
    return {"sizes": sizes, "cpu": seconds, "exponent": slope}


def measured(doublings: int = DOUBLINGS, base: dict[str, int] | None = None) -> dict[str, dict[str, Any]]:
    """Return the growth of every size for two solvers, and that of the parties."""
    base, found = base or BASE, {}
    for solver in ("ight", "auto"):
        for name in base:
            made = growth(lambda size, n=name, s=solver: fit(s, **{**base, n: size}), base[name], doublings)
            found[f"{solver}, {name}"] = made
            print(f"{solver:>5} {name:>4}: CPU ~ {name}^{made['exponent']:.2f}   {made['cpu']}", flush=True)
    found["parties"] = growth(between, 10, doublings)
    print(f"parties: CPU ~ m^{found['parties']['exponent']:.2f}   {found['parties']['cpu']}", flush=True)
    return found


def widths(sizes: tuple[int, ...] = WIDTHS, n: int = 20_000, fits: int = 5) -> dict[int, float]:
    """Return the median CPU seconds of the default by columns; a tenth of them tell the class.

    Labels that no column tells would end some fits early, at a constant.
    """
    found: dict[int, float] = {}
    for d in sizes:
        x, _ = rows(n, d, BASE["nnz"])
        public = np.random.default_rng(1)
        signal = x @ np.where(public.random(d) < 0.1, public.normal(size=d), 0.0)
        y = signal + 0.3 * signal.std() * public.normal(size=n) > 0
        model = SparseLogisticRegression(1.0, 1e-6, n_nonzero_coefs=BASE["k"], data_norm=1.0)
        model.fit(x, y)
        found[d] = float(np.median([cpu(lambda m=model, a=x, b=y: m.fit(a, b), 1) for _ in range(fits)]))
        fall = max(found.values()) / found[d]
        print(
            f"{d:>10,} columns: {found[d]:.3f} s" + f", {fall:.1f} times less than before" * (fall > 1.2),
            flush=True,
        )
    return found


def screens(fits: int = 12, n: int = 20_000, tests: int = 4_000) -> None:
    """Print what one gradient on all columns gains and costs beside several: paired fits on Zipf columns.

    Noise is seeded, the same for both plans, so that what differs is not a matter of luck alone.
    """
    one = {"SCREEN_FROM": 4, "OTHERS": 10**6}  # from fewer columns on, and at once
    for records, d in (
        (n, 60_000),
        (5 * n, 60_000),
        (n, 110_000),
        (5 * n, 110_000),
        (n, 300_000),
        (n, 600_000),
    ):
        made: tuple[list[tuple[float, float]], ...] = ([], [])
        for seed in range(fits):
            data = make_sparse_classification(records + tests, d, 50, random_state=seed)
            x, y = sparse.csr_matrix(data.data, dtype=float), data.target
            for plan, found in zip(({"OTHERS": auto.OTHERS}, one), made, strict=True):
                model = SparseLogisticRegression(1.0, 1e-6, n_nonzero_coefs=BASE["k"], data_norm=1.0)
                with seeded_noise_not_private(seed), mock.patch.multiple(auto, **plan):
                    spent = cpu(lambda m=model, a=x[:records], b=y[:records]: m.fit(a, b), 1)
                found.append((model.score(x[records:], y[records:]), spent))
        usual, screened = map(np.array, made)
        gain, (before, now) = screened[:, 0] - usual[:, 0], np.median([usual[:, 1], screened[:, 1]], axis=1)
        print(
            f"{records:>7,} x {d:,}: accuracy {usual[:, 0].mean():.4f}, with one gradient {gain.mean():+.4f} "
            f"+- {gain.std(ddof=1) / fits**0.5:.4f}; {before:.2f} s, {now:.2f} s",
            flush=True,
        )


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--widths", action="store_true")
    parser.add_argument("--screens", action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    machine = describe()
    fit("ight", 500, 500, 5, 20)()  # compile
    if asked.widths or asked.screens:
        (widths if asked.widths else screens)()
        return
    found = measured()
    if asked.save:
        about = {
            "command": "python -m benchmarks.growth",
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "machine": machine,
        }
        asked.save.write_text(
            json.dumps({"about": about, "growth": found}, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
