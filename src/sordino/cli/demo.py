"""The demonstration: private beside non-private learning, on data made on the spot or in scikit-learn."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from sordino.cli.shared import document

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
SEED = 20


@dataclass(frozen=True)
class Task:
    """One comparison: a figure of merit with privacy at each epsilon, and without."""

    name: str
    measure: str
    plain: float
    private: Callable[[float], tuple[float, Any]]


def run(report: str, as_json: bool = False) -> None:
    """Fit everything, print a table (or a JSON document), write the report."""
    console = Console()
    results: dict[str, tuple[Task, list[float], Any]] = {}
    with Progress(console=console, transient=True, disable=as_json or not console.is_terminal) as bar:
        step = bar.add_task("fitting", total=None)
        for task in _tasks():
            scores, privacy = [], None
            for epsilon in EPSILONS:
                bar.update(step, description=f"{task.name}, epsilon {epsilon:g}", advance=1)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    score, fit_privacy = task.private(epsilon)
                scores.append(score)
                privacy = fit_privacy if epsilon == 1.0 else privacy
            results[task.name] = (task, scores, privacy)
    path = _page(results).write(report)
    if as_json:
        document({"output": path, "tasks": [_row(*row) for row in results.values()]})
        return
    console.print(_table(results))
    console.print(f"Report written to {path}")


def _row(task: Task, scores: list[float], privacy: Any) -> dict[str, Any]:
    private = {f"{epsilon:g}": score for epsilon, score in zip(EPSILONS, scores, strict=True)}
    return {"task": task.name, "measure": task.measure, "without privacy": task.plain, "private": private}


def _tasks() -> Iterator[Task]:
    yield _sparse_regression()
    yield _digits()
    yield _digits_pca()


def _sparse_regression() -> Task:
    from sklearn.linear_model import OrthogonalMatchingPursuit

    from sordino import SparseLinearRegression
    from sordino.datasets import make_sparse_linear_model

    data = make_sparse_linear_model(5000, 5000, 30, random_state=SEED)
    X, y, truth = data.data, data.target, data.coef

    def error(coef: np.ndarray) -> float:
        return float(np.linalg.norm(coef - truth) / np.linalg.norm(truth))

    plain = OrthogonalMatchingPursuit(n_nonzero_coefs=30, fit_intercept=False).fit(X, y)

    def private(epsilon: float) -> tuple[float, Any]:
        model = SparseLinearRegression(
            epsilon=epsilon,
            delta=1e-5,
            n_nonzero_coefs=30,
            data_norm=60.0,
            target_bound=10.0,
            fit_intercept=False,
        ).fit(X, y)
        return error(model.coef_), model.privacy_

    return Task("sparse regression", "relative error", error(plain.coef_), private)


def _digits() -> Task:
    from sklearn.linear_model import LogisticRegression

    from sordino import SparseLogisticRegression

    X, Xt, y, yt = _split_digits()
    plain = LogisticRegression().fit(X, y).score(Xt, yt)

    def private(epsilon: float) -> tuple[float, Any]:
        model = SparseLogisticRegression(epsilon, 1e-5, classes=[0, 1], data_norm=1.0).fit(X, y)
        return float(model.score(Xt, yt)), model.privacy_

    return Task("digits 0-4 or 5-9", "test accuracy", float(plain), private)


def _digits_pca() -> Task:
    from sordino import PCA

    X, Xt, _, _ = _split_digits()

    def captured(components: np.ndarray) -> float:
        return float(np.linalg.norm(Xt @ components.T) ** 2 / np.linalg.norm(Xt) ** 2)

    plain = captured(np.linalg.svd(X, full_matrices=False)[2][:10])

    def private(epsilon: float) -> tuple[float, Any]:
        model = PCA(10, epsilon=epsilon, delta=1e-5, center=False, data_norm=1.0).fit(X)
        return captured(model.components_), model.privacy_

    return Task("digits PCA, k = 10", "captured variance", plain, private)


def _split_digits() -> Any:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import normalize

    X, y = load_digits(return_X_y=True)
    return train_test_split(normalize(X), (y >= 5).astype(int), test_size=0.3, random_state=SEED)


def _table(results: dict[str, tuple[Task, list[float], Any]]) -> Table:
    table = Table(title="Private against non-private (delta = 1e-5, one record added or removed)")
    table.add_column("task")
    table.add_column("measure")
    for epsilon in EPSILONS:
        table.add_column(f"eps {epsilon:g}", justify="right")
    table.add_column("no privacy", justify="right")
    for row in _rows(results):
        table.add_row(*row)
    return table


def _rows(results: dict[str, tuple[Task, list[float], Any]]) -> list[list[str]]:
    return [
        [name, task.measure, *(f"{score:.3f}" for score in scores), f"{task.plain:.3f}"]
        for name, (task, scores, _) in results.items()
    ]


def _page(results: dict[str, tuple[Task, list[float], Any]]) -> Any:
    from matplotlib.figure import Figure

    from sordino.report import Page
    from sordino.report.plots import log_axis, style_axes

    page = Page("Sordino demonstration", "The same models with and without differential privacy.")
    columns = ["task", "measure", *(f"epsilon {e:g}" for e in EPSILONS), "no privacy"]
    page.add(
        "All results",
        "delta = 1e-5; one record may be added or removed.",
        columns=columns,
        rows=_rows(results),
    )
    for name, (task, scores, privacy) in results.items():
        figure = Figure(figsize=(5.5, 3.2), layout="constrained")
        axes = style_axes(figure.subplots())
        axes.plot(EPSILONS, scores, "o-", label="private")
        axes.axhline(task.plain, color="gray", linestyle="--", label="no privacy")
        axes.set(xlabel="epsilon", ylabel=task.measure, title=name)
        log_axis(axes, at=EPSILONS)
        axes.legend()
        page.add(name, "The guarantee of the fit at epsilon 1:", figure=figure, privacy=privacy)
    return page
