"""Learning from sensitive, high-dimensional data with differential privacy that is true."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# name -> module; loaded when first used, so that `import sordino` stays fast
_EXPORTS = {
    "LogisticRegression": "sordino.estimators.linear",
    "LinearRegression": "sordino.estimators.linear",
    "SparseLogisticRegression": "sordino.estimators.sparse",
    "SparseLinearRegression": "sordino.estimators.sparse",
    "HeavyTailedRegressor": "sordino.estimators.heavy",
    "HeavyTailedClassifier": "sordino.estimators.heavy",
    "TruncatedMean": "sordino.estimators.location",
    "MedianOfMeans": "sordino.estimators.location",
    "mean": "sordino.estimators.statistics",
    "variance": "sordino.estimators.statistics",
    "covariance": "sordino.estimators.statistics",
    "quantiles": "sordino.estimators.statistics",
    "PCA": "sordino.estimators.pca",
    "PrivateColumnWeights": "sordino.estimators.preprocessing",
    "PrivateSearchCV": "sordino.estimators.search",
    "PrivateStandardScaler": "sordino.estimators.preprocessing",
    "RowClipper": "sordino.estimators.preprocessing",
    "pipeline_privacy": "sordino.estimators.pipeline",
    "PrivacyReport": "sordino.runs",
    "Ledger": "sordino.ledger",
    "BudgetPolicy": "sordino.ledger",
    "Relation": "sordino.kernel",
}

__all__ = ["__version__", *_EXPORTS]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'sordino' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
