"""Solvers without noise in plain NumPy, and how to run ours without noise."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from sordino.execute import LocalExecutor
from sordino.kernel import Curator, NoiseSource, Relation
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem


def made_problem(loss: str = "logistic", n: int = 120, d: int = 9, **facts: Any) -> Problem:
    """Return the facts of a small task with rows of norm up to 1.5."""
    relation = facts.pop("relation", "add-remove")
    facts = {"data_norm": 1.5, **facts}
    return Problem(LOSSES[loss], n, d, Relation.parse(relation), 1.0, 1e-5, **facts)


def made_data(problem: Problem, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows inside the norm bound, and targets that depend on the first three columns."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(problem.population, problem.features))
    x *= rng.uniform(0.2, problem.data_norm, (len(x), 1)) / np.linalg.norm(x, axis=1, keepdims=True)
    margins = x[:, :3] @ np.array([4.0, -3.0, 2.0]) + 0.3
    if problem.loss.name == "logistic":
        return x, np.where(rng.random(len(x)) < expit(margins), 1.0, -1.0)
    return x, np.clip(margins + 0.1 * rng.normal(size=len(x)), -problem.target_bound, problem.target_bound)


def run(solver: Any, problem: Problem, x: Any, y: Any, scale: float = 0.0, seed: int = 0) -> list[np.ndarray]:
    """Return the iterates; ``scale=0`` is without noise."""
    plan = solver.plan(problem).at(scale)
    executor = LocalExecutor(x, y, problem.data_norm, problem.intercept)
    curator = Curator(executor, plan, NoiseSource.seeded_not_private(seed))
    iterates = list(solver.run(curator, problem))
    return [w.to_dense() if hasattr(w, "to_dense") else np.array(w) for w in iterates]


def gradient(problem: Problem, x: np.ndarray, y: np.ndarray, w: np.ndarray, free: bool = True) -> np.ndarray:
    """Return the mean gradient with ridge, not clipped; the intercept is not penalised where it is free."""
    rows = np.hstack([x, np.full((len(x), 1), problem.intercept)]) if problem.intercept else x
    pull = problem.ridge * w
    if free:
        pull[problem.features :] = 0.0
    return problem.loss.residual(rows @ w, y) @ rows / problem.population + pull


def top(w: np.ndarray, count: int, kept: int = 0) -> np.ndarray:
    """Return ``w`` with its largest entries, and the last ``kept``."""
    out = np.zeros_like(w)
    free = w[: w.size - kept]
    best = np.argsort(-np.abs(free))[:count]
    out[best] = w[best]
    if kept:
        out[-kept:] = w[-kept:]
    return out
