"""Input checks at the door: typed errors that name the value, the bound and the remedy, never the data."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from sordino.errors import InvalidInputError, InvalidTypeError


def check_data(estimator: Any, X: Any, y: Any = "no_validation", *, reset: bool = True, **kwargs: Any) -> Any:
    """Validate X (and y) as scikit-learn does, without a value of the data in any message."""
    try:
        return validate_data(
            estimator,
            X,
            y,
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            **kwargs,
        )
    except (ValueError, TypeError) as error:
        text = str(error)
        if "convert" in text or "invalid literal" in text or "argument must be" in text:
            raise InvalidTypeError(
                "Expected a numeric matrix X and numeric targets, got entries that are not numbers: "
                "argument must be a string or a number. Encode them with a public vocabulary first."
            ) from None
        raise InvalidInputError(text) from None


def remember(estimator: Any, parameters: Mapping[str, Any]) -> None:
    """Store the parameters of ``__init__`` as they are: pass its ``locals()``."""
    for name, value in parameters.items():
        if name not in ("self", "__class__"):
            setattr(estimator, name, value)


def check_positive(name: str, value: Any, remedy: str) -> float:
    """Return ``value`` as a positive finite float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidInputError(f"Expected {name} > 0, got {type(value).__name__}. {remedy}")
    number = float(value)
    if not 0 < number < np.inf:
        raise InvalidInputError(f"Expected {name} > 0, got {number:g}. {remedy}")
    return number


def check_count(name: str, value: Any, low: int, high: int | None, remedy: str) -> int | None:
    """Return ``value`` as an integer in [low, high]; None stays None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidInputError(f"Expected {name} to be an integer, got {type(value).__name__}. {remedy}")
    number = int(value)
    if number < low or (high is not None and number > high):
        bound = f">= {low}" if high is None else f"in [{low}, {high}]"
        raise InvalidInputError(f"Expected {name} {bound}, got {number}. {remedy}")
    return number


def check_mapping(name: str, value: Any) -> dict[str, Any]:
    """Return ``value`` as a dictionary with names as keys; None is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidInputError(f"Expected {name} to be a dictionary of names, got {type(value).__name__}.")
    return dict(value)


def encode_labels(y: Any, classes: Any) -> tuple[np.ndarray, np.ndarray, str]:
    """Return class numbers, the classes, and the statement about them for the report."""
    try:
        check_classification_targets(y)
    except ValueError as error:
        raise InvalidInputError(str(error)) from None
    if classes is None:
        known, codes = np.unique(y, return_inverse=True)
        said = "class labels: those seen in y, assumed public (pass classes= to declare them)"
    else:
        known, codes = _codes_of(y, np.unique(np.asarray(classes)))
        said = "class labels: declared"
    if known.size < 2:
        raise InvalidInputError(
            f"Expected at least 2 classes, got {known.size} class: the classifier needs samples of at least "
            "2 classes in the data. Pass classes= to declare them."
        )
    return codes, known, said


def _codes_of(y: Any, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    codes = np.searchsorted(known, y)
    codes = np.minimum(codes, known.size - 1)
    if not np.array_equal(known[codes], y):
        raise InvalidInputError(
            f"Expected labels among the {known.size} declared classes, got others. "
            "Add them to classes= or drop those rows by a public rule."
        )
    return known, codes


def class_weights(declared: Any, classes: np.ndarray) -> np.ndarray | None:
    """Return the declared weight of each class; "balanced" would read the class counts from the data."""
    if declared is None:
        return None
    if not isinstance(declared, Mapping):
        raise InvalidInputError(
            "Expected class_weight as a dict of declared constants. 'balanced' would be computed from "
            "the data: declare the class shares you believe in."
        )
    weights = np.array([float(declared.get(label, 1.0)) for label in classes.tolist()])
    if not np.all((weights > 0) & np.isfinite(weights)):
        raise InvalidInputError("Expected every class_weight to be a positive number.")
    return weights / weights.max()  # a weight above one would only be clipped away again


def record_weights(declared: Any, X: Any, bound: float) -> np.ndarray:
    """Return each record's weight as a share of the declared bound, at which it is clipped."""
    try:
        weights = _check_sample_weight(declared, X, dtype=np.float64, ensure_non_negative=True)
    except (ValueError, TypeError):
        raise InvalidInputError(
            f"Expected sample_weight as one finite number >= 0 for each of the {X.shape[0]} rows."
        ) from None
    return np.minimum(weights / bound, 1.0)
