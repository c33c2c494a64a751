"""Objective against data passes of hard-thresholding solvers at the same true epsilon.

Command: SORDINO_DATA=... python -m benchmarks.sparse_solvers [--save benchmarks/results/sparse_solvers.json]
         (`python docs/figures/kept.py` makes a table and a picture of docs/solvers/scsg-ht.md from the file)

Every point is a run that was planned and calibrated for that number of passes; each solver gets the best step
size and batch of a small grid *with hindsight* (the objective on the training records is not private and is
looked at here only), mean of two seeds. A correction reads its batch once, and is counted once, although it
evaluates two gradients: the count favours variance reduction.
"""

from __future__ import annotations

import argparse
import json
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.machine import about
from sordino.accounting import calibrate
from sordino.datasets import load
from sordino.execute import LocalExecutor
from sordino.kernel import Curator, Full, NoiseSource, Poisson, Relation
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem
from sordino.solvers.sparse import Ight, ScsgHt, SgdHt
from sordino.solvers.steps import Momentum

EPSILON, DELTA, SEEDS = 2.0, 1e-5, 2
PASSES = (1, 3, 10, 30)
LONG = (1.0, 3.0, 10.0, 30.0, 100.0)  # few steps have to be long
STEPS = {"ight": LONG, "ight+nesterov": LONG}
OTHER_STEPS = (1.0, 3.0, 10.0, 30.0)
CLIP = 1.0
KINDS = ("ight", "ight+nesterov", "sgd-ht", "svrg-ht", "scsg-ht")
SNAPSHOTS = {"svrg-ht": ((1.0, 0.1), (1.0, 0.02)), "scsg-ht": ((0.2, 0.02), (0.5, 0.05))}


@dataclass(frozen=True)
class Task:
    """A data set with its problem and sparsity."""

    name: str
    problem: Problem
    x: Any
    y: np.ndarray
    keep: int

    @classmethod
    def of(cls, name: str, x: Any, y: Any, keep: int) -> Task:
        """Scale rows to unit norm (a row-wise map, so it is free) and labels to +-1."""
        x = sparse.csr_matrix(x, dtype=float)
        norms = np.sqrt(np.asarray(x.multiply(x).sum(axis=1)).ravel())
        x = sparse.csr_matrix(sparse.diags_array(1 / np.maximum(norms, 1e-12)) @ x)
        signs = np.where(np.asarray(y) == np.max(y), 1.0, -1.0)
        problem = Problem(
            LOSSES["logistic"], *x.shape, Relation.ADD_REMOVE, EPSILON, DELTA, intercept=1.0, ridge=1e-5
        )
        return cls(name, problem, x, signs, keep)

    def objective(self, w: np.ndarray) -> float:
        """Return the training objective (looked at by the benchmark only)."""
        margins = self.x @ w[:-1] + w[-1]
        return float(np.mean(np.logaddexp(0, -self.y * margins)) + self.problem.ridge / 2 * w @ w)


def solvers(kind: str, task: Task, passes: int, step: float) -> list[Any]:
    """Return the solvers of one kind that read the data about this often."""
    if kind.startswith("ight"):
        momentum = Momentum("nesterov" if kind == "ight+nesterov" else "none")
        return [Ight(task.keep, passes, step, CLIP, momentum=momentum)]
    if kind == "sgd-ht":
        return [SgdHt(task.keep, passes * m, step, CLIP, Poisson(1 / m)) for m in (10, 50)]
    made = []
    for big, small in SNAPSHOTS[kind]:  # fractions of the records
        for length in (5, round(big / small)):
            epochs = round(passes / (big + (length - 1) * small))
            if epochs >= 1:
                snapshots = Full() if big == 1 else Poisson(big)
                lengths = (length,) * epochs
                made.append(_corrected(task, step, snapshots, Poisson(small), lengths))
    return made


def _corrected(task: Task, step: float, snapshots: Any, batches: Any, lengths: tuple[int, ...]) -> ScsgHt:
    return ScsgHt(task.keep, step, CLIP, 2 * CLIP, task.problem.row_bound, snapshots, batches, lengths)


def reached(task: Task, solver: Any) -> float:
    """Return the mean objective of a solver at the benchmark's epsilon."""
    found = []
    for seed in range(SEEDS):
        plan = calibrate(solver.plan(task.problem), EPSILON, DELTA)
        executor = LocalExecutor(task.x, task.y, 1.0, 1.0)
        curator = Curator(executor, plan, NoiseSource.seeded_not_private(seed))
        (w,) = deque(solver.run(curator, task.problem), maxlen=1)
        found.append(task.objective(w.to_dense() if hasattr(w, "to_dense") else w))
    return float(np.mean(found))


def curve(task: Task, kind: str) -> list[tuple[float, str]]:
    """Return the best objective by number of passes, and what reached it."""
    best = []
    for passes in PASSES:
        made = [s for step in STEPS.get(kind, OTHER_STEPS) for s in solvers(kind, task, passes, step)]
        best.append(min(((reached(task, s), _name(s)) for s in made), default=(np.nan, "")))
    return best


def _name(solver: Any) -> str:
    rate = getattr(getattr(solver, "sampling", getattr(solver, "minibatches", None)), "rate", 1.0)
    lengths = getattr(solver, "lengths", None)
    epochs = f" {len(lengths)}x{lengths[0]}" if lengths else ""
    return f"step {solver.step:g} b/n {rate:g}{epochs}"


def tasks() -> list[Task]:
    """Return the two real data sets."""
    return [
        Task.of("rcv1_sample", *load("rcv1_sample", return_X_y=True), 1000),
        Task.of("a9a", *load("a9a", return_X_y=True), 60),
    ]


def main() -> None:
    """Print the curves, and keep them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", type=Path)
    asked = parser.parse_args()
    kept: dict[str, Any] = {"about": about("python -m benchmarks.sparse_solvers"), "rows": []}
    for task in tasks():
        print(f"{task.name} {task.x.shape}, k = {task.keep}: objective by passes {PASSES}", flush=True)
        for kind in KINDS:
            found = curve(task, kind)
            print(f"  {kind:13s}", " | ".join(f"{v:.4f} ({how})" for v, how in found), flush=True)
            row = {
                "set": task.name,
                "n": task.x.shape[0],
                "d": task.x.shape[1],
                "k": task.keep,
                "solver": kind,
            }
            kept["rows"].append(row | {"passes": PASSES, "objective": [v for v, _ in found]})
            kept["rows"][-1]["settings"] = [how for _, how in found]
    if asked.save:
        asked.save.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
