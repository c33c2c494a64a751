"""The demonstration: private beside non-private learning, on data made on the spot or in scikit-learn."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from sordino.cli.shared import document, show_table, wants_json

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
SEED = 20
Task = tuple[str, str, Any, Callable[[float], Any], Callable[[Any], float]]
"""Name, measure, the model without privacy, the private one at an epsilon, and the score of a model."""


def run(report: str) -> None:
    """Fit everything, print a table (or a JSON document), write the report."""
    found = []
    for name, measure, plain, private, score in _tasks():
        click.echo(f"fitting: {name}", err=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            models = {epsilon: private(epsilon) for epsilon in EPSILONS}
        scores = {f"{epsilon:g}": score(model) for epsilon, model in models.items()}
        found.append((name, measure, scores, score(plain), models[1.0].privacy_))
    rows = [
        [name, measure, *(f"{score:.3f}" for score in (*scores.values(), plain))]
        for name, measure, scores, plain, _ in found
    ]
    path = Path(report)
    path.write_text(_page(found, rows), encoding="utf-8")
    if wants_json():
        names = ("task", "measure", "private", "without privacy")
        document({"output": path, "tasks": [dict(zip(names, line)) for line in found]})
        return
    click.echo("Private against non-private (delta = 1e-5, one record added or removed)")
    show_table(("task", "measure", *(f"eps {epsilon:g}" for epsilon in EPSILONS), "no privacy"), rows)
    click.echo(f"Report written to {path}")


def _tasks() -> Iterator[Task]:
    from sklearn.datasets import load_digits
    from sklearn.decomposition import TruncatedSVD
    from sklearn.linear_model import LogisticRegression, OrthogonalMatchingPursuit
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import normalize

    from sordino import PCA, SparseLinearRegression, SparseLogisticRegression
    from sordino.datasets import make_sparse_linear_model

    data = make_sparse_linear_model(5000, 5000, 30, random_state=SEED)
    few: dict[str, Any] = {"n_nonzero_coefs": 30, "fit_intercept": False}
    bounds: dict[str, Any] = {"data_norm": 60.0, "target_bound": 10.0}
    yield (
        "sparse regression",
        "relative error",
        OrthogonalMatchingPursuit(**few).fit(data.data, data.target),
        lambda e: SparseLinearRegression(e, 1e-5, **few, **bounds).fit(data.data, data.target),
        lambda model: float(np.linalg.norm(model.coef_ - data.coef) / np.linalg.norm(data.coef)),
    )
    X, y = load_digits(return_X_y=True)
    X, Xt, y, yt = train_test_split(normalize(X), (y >= 5).astype(int), test_size=0.3, random_state=SEED)
    yield (
        "digits 0-4 or 5-9",
        "test accuracy",
        LogisticRegression().fit(X, y),
        lambda e: SparseLogisticRegression(e, 1e-5, classes=[0, 1], data_norm=1.0).fit(X, y),
        lambda model: float(model.score(Xt, yt)),
    )
    yield (
        "digits PCA, k = 10",
        "captured variance",
        TruncatedSVD(10, algorithm="arpack", random_state=SEED).fit(X),
        lambda e: PCA(10, epsilon=e, delta=1e-5, center=False, data_norm=1.0).fit(X),
        lambda model: float(np.linalg.norm(Xt @ model.components_.T) ** 2 / np.linalg.norm(Xt) ** 2),
    )


def _page(found: list[Any], rows: list[list[str]]) -> str:
    from matplotlib.figure import Figure

    from sordino.report.page import render_page
    from sordino.report.plots import log_axis, style_axes

    columns = ["task", "measure", *(f"epsilon {e:g}" for e in EPSILONS), "no privacy"]
    text = "delta = 1e-5; one record may be added or removed."
    sections: list[Any] = [{"heading": "All results", "text": text, "columns": columns, "rows": rows}]
    for name, measure, scores, plain, privacy in found:
        figure = Figure(figsize=(5.5, 3.2), layout="constrained")
        axes = style_axes(figure.subplots())
        axes.plot(EPSILONS, list(scores.values()), "o-", label="private")
        axes.axhline(plain, color="gray", linestyle="--", label="no privacy")
        axes.set(xlabel="epsilon", ylabel=measure, title=name)
        log_axis(axes, at=EPSILONS)
        axes.legend()
        image = io.BytesIO()
        figure.savefig(image, format="png", dpi=110, bbox_inches="tight")
        drawn = {"image": base64.b64encode(image.getvalue()).decode("ascii"), "privacy": privacy}
        sections.append({"heading": name, "text": "The guarantee of the fit at epsilon 1:", **drawn})
    lead = "The same models with and without differential privacy."
    return render_page("page.html", title="Sordino demonstration", lead=lead, sections=sections)
