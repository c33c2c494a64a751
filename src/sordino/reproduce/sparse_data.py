"""The data sets behind the tables on sparse models, each read once per process."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from sordino.datasets import load, log1p_unit, make_sparse_linear_model, unit_rows
from sordino.estimators.sparse import SparseLinearRegression, SparseLogisticRegression
from sordino.kernel import public_generator
from sordino.reproduce.linear import (
    Score,
    Task,
    error_rate,
    half_mean_square,
    mean_log_loss,
    mean_square,
    objective,
)
from sordino.reproduce.tables import Likeness

_SCORES: dict[str, Score] = {"loss": mean_log_loss, "error": error_rate, "objective": objective}
QUICK_REVIEWS = 5000


@dataclass(frozen=True)
class Source:
    """What ours are measured on: in words, how like the paper's set it is, the folders it is read from."""

    words: str
    likeness: Likeness
    needs: tuple[str, ...]
    quick: str = ""

    def said(self, quick: bool) -> str:
        """Return the words, those on a quick run included."""
        return f"{self.words} {self.quick}".strip() if quick else self.words


RCV1 = Source(
    "Ours: rcv1_sample, 12,337 rows of the same 47,236 columns to learn from and 11,413 others to judge on "
    "(the paper has 20,242 rows).",
    "like",
    ("rcv1_sample",),
)
REVIEWS = Source(
    "E2006-tfidf is not at hand. Stand-in: the star ratings of 25,000 IMDB reviews (74,849 words), scaled to "
    "[-1, 1]; compared is the ratio to the model without privacy.",
    "stand-in",
    ("imdb",),
    f"Quick: every fifth review, {QUICK_REVIEWS:,} to learn from and as many to judge on.",
)
XRAY = Source(
    "Ours: PneumoniaMNIST, the paper's own images (5,232 x 784 in five folds); ours to judge on are "
    "its 624 test images.",
    "like",
    ("pneumoniamnist",),
)


@cache
def rcv1(keep: int, ridge: float = 0.0, score: str = "loss") -> Task:
    """Return RCV1 with unit rows."""
    data: Any = load("rcv1_sample")
    facts = {"n_nonzero_coefs": keep, "data_norm": 1.0, "alpha": ridge}
    return Task(
        "rcv1_sample", data.data, data.target, data.test_data, data.test_target, _SCORES[score], facts
    )


@cache
def reviews(keep: int, half: bool = False, quick: bool = False) -> Task:
    """Return the IMDB ratings as a regression on words."""
    data: Any = load("imdb", target="rating")
    facts = {"n_nonzero_coefs": keep, "data_norm": 1.0, "target_bound": 1.0}
    every = data.data.shape[0] // QUICK_REVIEWS if quick else 1
    y, test_y = ((np.asarray(t, dtype=float)[::every] - 5.5) / 4.5 for t in (data.target, data.test_target))
    x, test_x = (log1p_unit(rows[::every]) for rows in (data.data, data.test_data))
    score: Score = half_mean_square if half else mean_square
    return Task("imdb ratings", x, y, test_x, test_y, score, facts, SparseLinearRegression)


@cache
def xray(keep: int) -> Task:
    """Return the chest X-rays as unit rows of pixels."""
    data: Any = load("pneumoniamnist")
    x, test_x = (
        unit_rows(np.asarray(a, dtype=float).reshape(len(a), -1)) for a in (data.data, data.test_data)
    )
    facts = {"n_nonzero_coefs": keep, "data_norm": 1.0}
    return Task("pneumoniamnist", x, data.target, test_x, data.test_target, mean_log_loss, facts)


@cache
def halves(name: str, quick: bool = False) -> Task:
    """Return a set of which half is public: its rows are used without their targets."""
    whole = rcv1(500, 0.0, "error") if name == "rcv1" else reviews(2000, half=True, quick=quick)
    x, public, y, _ = train_test_split(whole.x, whole.y, test_size=0.5, random_state=0)
    return Task(
        whole.name, x, y, whole.test_x, whole.test_y, whole.score, whole.facts, whole.estimator, public
    )


@cache
def wang_gu_design(kind: str, size: int, keep: int) -> Task:
    """Return the design of Wang and Gu, whose coefficients are known."""
    made = make_sparse_linear_model(
        size, size, keep, task="regression" if kind == "linear" else "classification", random_state=0
    )
    # |x . theta| is at most 2 s in the design; the targets of nearly all rows are within twice its root.
    return _known(kind, made.data, made.target, made.coef, made.data_norm, 2.0 * keep**0.5, None)


@cache
def uniform(kind: str, n: int, d: int, keep: int) -> Task:
    """Return the design of the dissertation's chapter 3, with n public rows besides.

    Entries are U(-1, 1), so that rows have norms close to ``sqrt(d / 3)``; they are clipped to a tenth more.
    """
    public = public_generator(0)
    x, other = (public.uniform(-1.0, 1.0, (n, d)) for _ in range(2))
    truth = np.zeros(d)
    truth[public.permutation(d)[:keep]] = public.uniform(-1.0, 1.0, keep)
    if kind == "linear":
        y: Any = x @ truth + math.sqrt(0.1) * public.normal(size=n)
    else:
        y = (public.random(n) < 1.0 / (1.0 + np.exp(-(x @ truth)))).astype(int)
    return _known(kind, x, y, truth, 1.1 * math.sqrt(d / 3), 2.0 * math.sqrt(keep) / 3 + 1.0, other)


def _known(kind: str, x: Any, y: Any, truth: Any, norm: float, target: float, public: Any) -> Task:
    facts = {"n_nonzero_coefs": int(np.count_nonzero(truth)), "data_norm": norm, "fit_intercept": False}
    if kind == "linear":
        facts["target_bound"] = target
    estimator = SparseLinearRegression if kind == "linear" else SparseLogisticRegression
    return Task(f"design, {kind}", x, y, None, None, _relative_error(truth), facts, estimator, public)


def _relative_error(truth: Any) -> Callable[[Any, Task], float]:
    def score(model: Any, task: Task) -> float:
        return float(np.linalg.norm(np.ravel(model.coef_) - truth) / np.linalg.norm(truth))

    return score
