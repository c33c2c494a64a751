"""Nonconvex logistic regression of the DP-SRM chapter: test loss, passes and gradient norm at true epsilon.

Command: SORDINO_DATA=... python -m benchmarks.nonconvex --runs 30 --save benchmarks/results/nonconvex.json

Every method minimises ``mean logistic loss + 0.001 sum t^2 / (1 + t^2)`` at the same certified epsilon,
delta 1e-5, add-remove. ``srm`` and ``agd`` run with their defaults, whose constants were chosen on these two
data sets; the others get the best of three step sizes with hindsight (the test loss of two pilot runs). "sgd,
average" returns the mean of its last 30 % of iterates, as ``srm`` does, and "srm, last" its last one. A
pass reads n records: a recursion of srm reads its batch once and a line search reads all records once.
Gradient norms are those of the whole training objective, unclipped.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.machine import about
from sordino.accounting import calibrate
from sordino.datasets import load
from sordino.execute import LocalExecutor
from sordino.kernel import Curator, NoiseSource, Relation
from sordino.literature.reproduce.linear import NORMS
from sordino.literature.reproduce.tables import page_of
from sordino.problems.losses import LOSSES, Nonconvex
from sordino.problems.problem import Problem
from sordino.solvers import Options, make_solver

DELTA, PENALTY, PILOTS, POINTS = 1e-5, Nonconvex(1e-3), 2, 16
STEPS = (1.0, 4.0, 12.0)  # in units of one over the largest curvature
PASSES = {0.2: 4, 0.5: 5}
NAMES = {"gd": "DP-GD", "agd": "DP-AGD", "rrp-sgd": "RRPSGD", "srm": "DP-SRM"}
METHODS = ("gd", "agd", "rrp-sgd", "sgd", "srm", "sgd, average", "srm, last")


@dataclass(frozen=True)
class Task:
    """A data set with the public facts of its problem."""

    name: str
    problem: Problem
    train: tuple[Any, np.ndarray]
    test: tuple[Any, np.ndarray]

    @classmethod
    def of(cls, name: str, epsilon: float) -> Task:
        """Load the data and declare the problem."""
        data = load(name)
        sets = [(x, _signs(y)) for x, y in ((data.data, data.target), (data.test_data, data.test_target))]
        facts = {"data_norm": NORMS[name], "intercept": 1.0, "penalty": PENALTY}
        shape = data.data.shape
        problem = Problem(LOSSES["logistic"], *shape, Relation.ADD_REMOVE, epsilon, DELTA, **facts)
        return cls(name, problem, *sets)

    def loss(self, w: np.ndarray) -> float:
        """Return the test loss."""
        x, y = self.test
        return float(np.logaddexp(0, -y * (x @ w[:-1] + w[-1])).mean())

    def gradient_norm(self, w: np.ndarray) -> float:
        """Return the norm of the gradient of the training objective (looked at by the benchmark only)."""
        x, y = self.train
        r = self.problem.loss.residual(x @ w[:-1] + w[-1], y) / len(y)
        return float(np.linalg.norm(np.append(x.T @ r, r.sum()) + PENALTY.gradient(w)))


def _signs(y: Any) -> np.ndarray:
    return np.where(np.asarray(y, dtype=float) > 0, 1.0, -1.0)


def options(method: str, epsilon: float, step: float | None, seed: int) -> Options:
    """Return the setting of a method: the passes of the paper."""
    extra = {} if method in ("gd", "agd") else {"epochs": PASSES[epsilon] * (2 if method == "rrp-sgd" else 1)}
    method, _, output = method.partition(", ")
    extra |= {"output": output} if output else {}
    portions = {"gd": 20, "agd": 180}.get(method)
    return Options(max_iter=portions, step_size=step, extra=extra, random_state=seed)


def run(task: Task, method: str, step: float | None, seed: int, path: bool = False) -> dict[str, Any]:
    """Run a method once at the certified epsilon."""
    problem = task.problem
    solver = make_solver(method.partition(",")[0], problem, options(method, problem.epsilon, step, seed))
    plan = calibrate(solver.plan(problem), problem.epsilon, DELTA)
    executor = LocalExecutor(*task.train, problem.data_norm, problem.intercept)
    curator = Curator(executor, plan, NoiseSource.seeded_not_private(seed))
    iterates = [(passes(curator), w) for w in solver.run(curator, problem)]
    done, w = iterates[-1]
    found = {"loss": task.loss(w), "gradient": task.gradient_norm(w), "passes": done}
    if path:
        every = max(1, len(iterates) // POINTS)
        found["path"] = [(p, task.loss(v)) for p, v in iterates[every - 1 :: every]]
    return found


def passes(curator: Curator) -> float:
    """Return how often the records were read so far."""
    n = curator.plan.population
    return sum(
        used * curator.plan.releases[name].sampling.expected(n) / n for name, used in curator.used.items()
    )


def tuned_step(task: Task, method: str) -> float | None:
    """Return the step size with the best test loss of the pilot runs; srm chooses its own."""
    if method.startswith(("srm", "agd")):  # agd searches for steps itself
        return None
    base = Options().step(task.problem)
    pilots = [range(1000, 1000 + PILOTS)] * len(STEPS)
    means = [
        np.mean([run(task, method, s * base, seed)["loss"] for seed in p]) for s, p in zip(STEPS, pilots)
    ]
    return STEPS[int(np.argmin(means))] * base


def measure(task: Task, method: str, runs: int) -> dict[str, Any]:
    """Return means with 95 % intervals, and the path of the first run."""
    step = tuned_step(task, method)
    made = [run(task, method, step, seed, path=seed < 3) for seed in range(runs)]
    out: dict[str, Any] = {"runs": runs, "step": step}
    for key in ("loss", "gradient", "passes"):
        values = np.array([m[key] for m in made])
        half = stats.t.ppf(0.975, runs - 1) * values.std(ddof=1) / math.sqrt(runs) if runs > 1 else math.nan
        out[key] = [round(float(values.mean()), 5), round(float(half), 5)]
    if method != "rrp-sgd":  # its runs have different lengths
        out["path"] = np.mean([m["path"][:POINTS] for m in made[:3]], axis=0).round(5).tolist()
    return out


def show(name: str, epsilon: float, method: str, found: dict[str, Any]) -> None:
    """Print one row with the published numbers behind it."""
    beside = ""
    if method in NAMES:
        losses, slopes = (
            next(group for group in page_of(table)["groups"] if group["name"] == name)
            for table in ("srm", "srm-gradients")
        )
        lists = (losses["numbers"], losses["passes"], slopes["numbers"])
        place = losses["epsilons"].index(epsilon)
        beside = "   paper {} / {} / {}".format(*(one[NAMES[method]][place] for one in lists))
    cells = " ".join(f"{key} {found[key][0]:.4f} ±{found[key][1]:.4f}" for key in ("loss", "gradient"))
    print(f"{name:7} eps {epsilon}  {method:8} {cells} passes {found['passes'][0]:6.1f}{beside}", flush=True)


def main() -> None:
    """Run all methods on both data sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tasks", nargs="*", default=list(NORMS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--save", type=Path)
    asked = parser.parse_args()
    said = about("python -m benchmarks.nonconvex")
    known = asked.save is not None and asked.save.exists()
    results: dict[str, Any] = json.loads(asked.save.read_text("utf-8")) if known else {}
    for name in asked.tasks:
        for epsilon in PASSES:
            task = Task.of(name, epsilon)
            for method in asked.methods:
                found = {**measure(task, method, asked.runs), "date": said["date"], "commit": said["commit"]}
                results.setdefault(name, {}).setdefault(str(epsilon), {})[method] = found
                show(name, epsilon, method, found)
                if asked.save:
                    asked.save.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
