"""The demonstration: private beside non-private learning, on data made on the spot or in scikit-learn."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from sordino.cli.shared import document, show_table

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
SEED = 20


@dataclass
class Task:
    """One comparison: a figure of merit with privacy at each epsilon, and without."""

    name: str
    measure: str
    plain: float
    private: Callable[[float], tuple[float, Any]]
    scores: list[float] = field(default_factory=list)
    privacy: Any = None

    def run(self, epsilon: float) -> None:
        """Keep the score at an epsilon, and the guarantee at 1."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            score, privacy = self.private(epsilon)
        self.scores.append(score)
        self.privacy = privacy if epsilon == 1.0 else self.privacy

    @property
    def row(self) -> list[str]:
        """A line of the table of all results."""
        return [self.name, self.measure, *(f"{score:.3f}" for score in self.scores), f"{self.plain:.3f}"]


def run(report: str, as_json: bool = False) -> None:
    """Fit everything, print a table (or a JSON document), write the report."""
    console, tasks = Console(), []
    with Progress(console=console, transient=True, disable=as_json or not console.is_terminal) as bar:
        step = bar.add_task("fitting", total=None)
        for task in _tasks():
            for epsilon in EPSILONS:
                bar.update(step, description=f"{task.name}, epsilon {epsilon:g}", advance=1)
                task.run(epsilon)
            tasks.append(task)
    path = _page(tasks).write(report)
    if as_json:
        rows = [
            {"task": task.name, "measure": task.measure, "without privacy": task.plain,
             "private": {f"{e:g}": score for e, score in zip(EPSILONS, task.scores, strict=True)}}
            for task in tasks
        ]  # fmt: skip
        document({"output": path, "tasks": rows})
        return
    print("Private against non-private (delta = 1e-5, one record added or removed)")
    titles = ("task", "measure", *(f"eps {epsilon:g}" for epsilon in EPSILONS), "no privacy")
    show_table(titles, [task.row for task in tasks])
    print(f"Report written to {path}")


def _tasks() -> Iterator[Task]:
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression, OrthogonalMatchingPursuit
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import normalize

    from sordino import PCA, SparseLinearRegression, SparseLogisticRegression
    from sordino.datasets import make_sparse_linear_model

    data = make_sparse_linear_model(5000, 5000, 30, random_state=SEED)

    def error(coef: np.ndarray) -> float:
        return float(np.linalg.norm(coef - data.coef) / np.linalg.norm(data.coef))

    def regression(epsilon: float) -> tuple[float, Any]:
        bounds: dict[str, Any] = {"data_norm": 60.0, "target_bound": 10.0, "fit_intercept": False}
        model = SparseLinearRegression(epsilon, 1e-5, n_nonzero_coefs=30, **bounds).fit(
            data.data, data.target
        )
        return error(model.coef_), model.privacy_

    plain = OrthogonalMatchingPursuit(n_nonzero_coefs=30, fit_intercept=False).fit(data.data, data.target)
    yield Task("sparse regression", "relative error", error(plain.coef_), regression)
    X, y = load_digits(return_X_y=True)
    split = train_test_split(normalize(X), (y >= 5).astype(int), test_size=0.3, random_state=SEED)
    X, Xt, y, yt = split

    def digits(epsilon: float) -> tuple[float, Any]:
        model = SparseLogisticRegression(epsilon, 1e-5, classes=[0, 1], data_norm=1.0).fit(X, y)
        return float(model.score(Xt, yt)), model.privacy_

    yield Task(
        "digits 0-4 or 5-9", "test accuracy", float(LogisticRegression().fit(X, y).score(Xt, yt)), digits
    )

    def captured(components: np.ndarray) -> float:
        return float(np.linalg.norm(Xt @ components.T) ** 2 / np.linalg.norm(Xt) ** 2)

    def axes(epsilon: float) -> tuple[float, Any]:
        model = PCA(10, epsilon=epsilon, delta=1e-5, center=False, data_norm=1.0).fit(X)
        return captured(model.components_), model.privacy_

    best = captured(np.linalg.svd(X, full_matrices=False)[2][:10])
    yield Task("digits PCA, k = 10", "captured variance", best, axes)


def _page(tasks: list[Task]) -> Any:
    from matplotlib.figure import Figure

    from sordino.report import Page
    from sordino.report.plots import log_axis, style_axes

    page = Page("Sordino demonstration", "The same models with and without differential privacy.")
    columns = ["task", "measure", *(f"epsilon {e:g}" for e in EPSILONS), "no privacy"]
    words = "delta = 1e-5; one record may be added or removed."
    page.add("All results", words, columns=columns, rows=[task.row for task in tasks])
    for task in tasks:
        figure = Figure(figsize=(5.5, 3.2), layout="constrained")
        axes = style_axes(figure.subplots())
        axes.plot(EPSILONS, task.scores, "o-", label="private")
        axes.axhline(task.plain, color="gray", linestyle="--", label="no privacy")
        axes.set(xlabel="epsilon", ylabel=task.measure, title=task.name)
        log_axis(axes, at=EPSILONS)
        axes.legend()
        page.add(task.name, "The guarantee of the fit at epsilon 1:", figure=figure, privacy=task.privacy)
    return page
