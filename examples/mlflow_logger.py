"""Log private models to MLflow: the guarantee as metrics and tags, report and model file as artifacts.

Run: pip install mlflow && python examples/mlflow_logger.py
Runs can then be compared by epsilon in MLflow's pages (`mlflow ui`). Nothing is logged but what the model
released: parameters, the report, the model file, and scores that were paid for.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import sordino
from sordino.errors import InvalidInputError
from sordino.report import report_html

UNSAID = ("ledger", "schema", "random_state")  # an address may hold a password; the report has the schema


def log_private_model(model: Any, name: str = "model", scores: Mapping[str, Any] | None = None) -> None:
    """Log a fitted model of Sordino to the active run.

    ``scores`` are results of :func:`sordino.private_score`. An exact score on sensitive rows is not private,
    so plain numbers are refused.
    """
    import mlflow

    report = model.privacy_
    paid = {key: value for key, value in (scores or {}).items() if hasattr(value, "privacy")}
    if len(paid) < len(scores or {}):
        raise InvalidInputError("Expected results of private_score as scores, got plain numbers.")
    given = {key: value for key, value in model.get_params(deep=False).items() if value is not None}
    mlflow.log_params({key: value for key, value in given.items() if key not in UNSAID})
    mlflow.log_metrics({"epsilon": report.epsilon, "delta": report.delta})
    mlflow.log_metrics({key: float(value) for key, value in paid.items()})
    mlflow.log_metrics({f"{key} epsilon": value.privacy.epsilon for key, value in paid.items()})
    mlflow.set_tags({f"privacy.{key}": value for key, value in _tags(report).items()})
    mlflow.log_text(report.to_json(), f"{name}/privacy.json")
    mlflow.log_text(report_html(model, scores=paid), f"{name}/report.html")
    with tempfile.TemporaryDirectory() as folder:
        mlflow.log_artifact(str(model.save(Path(folder) / f"{name}.sordino")), name)


def _tags(report: sordino.PrivacyReport) -> dict[str, str]:
    return {
        "status": report.status,
        "unit": report.unit,
        "relation": report.relation.value,
        "guarantee": report.guarantee,
    }


def main() -> None:
    """Fit two models and log both."""
    try:
        import mlflow
    except ImportError:
        sys.exit("This example needs MLflow: pip install mlflow")
    public = np.random.default_rng(0)
    X = public.normal(size=(4000, 5)) / 3
    y = np.where(X[:, 0] - X[:, 1] > 0, "ill", "well")
    mlflow.set_experiment("sordino")
    for epsilon in (0.5, 2.0):
        with mlflow.start_run(run_name=f"epsilon {epsilon:g}"):
            model = sordino.LogisticRegression(epsilon, 1e-6, data_norm=1.0, classes=["ill", "well"])
            model.fit(X[:3000], y[:3000])
            accuracy = sordino.private_score(model, X[3000:], y[3000:], epsilon=0.5, delta=1e-6)
            log_private_model(model, scores={"accuracy": accuracy})
            print(f"logged epsilon {model.privacy_.epsilon:.3g}, accuracy {float(accuracy):.3f}")


if __name__ == "__main__":
    main()
