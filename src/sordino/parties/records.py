"""Rows and targets of a member, checked at the door as an estimator checks them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from sordino.checks import check_data, encode_labels
from sordino.errors import InvalidInputError
from sordino.problems.losses import label_targets


def usual_classes(targets: str, outputs: int) -> list[int]:
    """Return the labels that a loss has if none are declared: -1 and 1, or numbers; none for numbers."""
    return {"signs": [-1, 1], "labels": list(range(outputs))}.get(targets, [])


def check_records(matrix: Any, targets: Any, classes: Sequence[Any]) -> tuple[Any, Any]:
    """Return the rows and what a loss wants for their targets: those of the declared classes, or numbers.

    **Privacy.** What does not fit is refused in words without a value, before anything is booked.
    """
    if targets is None:
        raise InvalidInputError("Expected a target for each record, got none.")
    matrix, y = check_data(BaseEstimator(), matrix, targets, y_numeric=not len(classes))
    if not len(classes):
        return matrix, y
    codes, known, _ = encode_labels(y, np.asarray(classes))
    return matrix, label_targets(codes, known.size)
