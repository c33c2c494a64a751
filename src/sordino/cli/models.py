"""The models that `sordino fit` and `sordino tune` know by name."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sordino.errors import InvalidInputError

MODELS = {
    "logistic": "sordino.estimators.linear.LogisticRegression",
    "linear": "sordino.estimators.linear.LinearRegression",
    "classifier": "sordino.estimators.linear.LinearClassifier",
    "sparse-logistic": "sordino.estimators.sparse.SparseLogisticRegression",
    "sparse-linear": "sordino.estimators.sparse.SparseLinearRegression",
    "heavy-classifier": "sordino.estimators.heavy.HeavyTailedClassifier",
    "heavy-regressor": "sordino.estimators.heavy.HeavyTailedRegressor",
    "network": "sordino.nn.estimators.NeuralClassifier",
    "network-regressor": "sordino.nn.estimators.NeuralRegressor",
}
"""The word on the command line, and the class."""


def model_class(name: str, schema: Any) -> Any:
    """Return the class of a model; "auto" goes by the target of the schema."""
    if name == "auto":
        if schema is None or schema.target is None:
            raise InvalidInputError(
                f"Expected --model without a schema that declares a target: one of {', '.join(MODELS)}."
            )
        name = "linear" if schema.target.kind == "number" else "logistic"
    module, _, attribute = MODELS[name].rpartition(".")
    return getattr(import_module(module), attribute)


def takes_labels(kind: Any) -> bool:
    """Tell whether a model predicts classes."""
    from sklearn.base import ClassifierMixin

    return issubclass(kind, ClassifierMixin)
