"""Our own words for what scikit-learn and NumPy refuse: their messages quote the data, ours never do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from sordino.errors import InvalidInputError, InvalidTypeError, SordinoError

Reason = tuple[tuple[str, ...], str, type[InvalidInputError]]
CAUGHT = (ValueError, TypeError, ArithmeticError, AttributeError)

# The first kind of problem whose marks are in the foreign message gives ours. The marks only choose among
# these texts: a message that is not known gets the last one.
_REASONS: tuple[Reason, ...] = (
    (
        ("could not convert", "invalid literal", "argument must be", "arrays of bytes", "int too large"),
        "Expected a numeric matrix X and numeric targets, got entries that are not numbers: "
        "argument must be a string or a number. Encode them with a public vocabulary first.",
        InvalidTypeError,
    ),
    (("complex data",), "Complex data not supported: expected real numbers.", InvalidInputError),
    (
        ("contains nan", "contains infinity"),
        "Expected finite numbers, got NaN or inf. Drop or replace them by a public rule.",
        InvalidInputError,
    ),
    (
        ("requires y to be passed", "got none", "y cannot be none"),
        "This estimator requires y to be passed, but the target y is None.",
        InvalidInputError,
    ),
    (
        ("feature names should match", "feature names"),
        "The feature names should match those that were passed during fit, in the same order and all of them "
        "strings; they do not. Compare X.columns with feature_names_in_.",
        InvalidInputError,
    ),
    (
        ("expecting",),
        "X has {features} features, but {estimator} is expecting {fitted} features as input.",
        InvalidInputError,
    ),
    (
        ("reshape your data", "dim", "1d array instead", "0d", "scalar array"),
        "Expected a matrix X with one row per record, got shape {shape}. Reshape your data: "
        "X.reshape(-1, 1) if it is one column, X.reshape(1, -1) if it is one record.",
        InvalidInputError,
    ),
    (
        ("sample(s)",),
        "Found array with {rows} sample(s) (shape={shape}) while a minimum of {least} is required.",
        InvalidInputError,
    ),
    (
        ("feature(s)",),
        "Found array with {features} feature(s) (shape={shape}) while a minimum of 1 is required.",
        InvalidInputError,
    ),
    (
        ("inconsistent numbers of samples", "inconsistent length"),
        "Expected one target per row, got X of shape {shape} and y of shape {targets}.",
        InvalidInputError,
    ),
    (
        ("should be a 1d array", "bad input shape", "multi-output"),
        "Expected y with one value per row (y should be a 1d array), got shape {targets}.",
        InvalidInputError,
    ),
    (
        ("sparse",),
        "Expected dense data here, got a sparse matrix. Sparse input is not supported for it.",
        InvalidTypeError,
    ),
    (
        ("",),
        "Expected a numeric matrix X with one row per record (and one target per row), got something that "
        "could not be read as one. Its values are not shown.",
        InvalidInputError,
    ),
)


def refusing(call: Callable[[], Any], X: Any, y: Any = None, estimator: Any = None, least: int = 1) -> Any:
    """Return ``call()``; what it refuses is refused in our words, without its message and its chain."""
    refuse_unreadable(X, y)
    try:
        return call()
    except (SordinoError, NotFittedError):
        raise
    except CAUGHT as error:
        refusal = _refusal(str(error).lower(), X, y, estimator, least)
    raise refusal  # outside of the handler: the foreign error would be its context


def refuse_unreadable(*arrays: Any) -> None:
    """Refuse masked arrays, of which conversion would read what was taken out, and integers of 128 bits."""
    if any(isinstance(array, np.ma.MaskedArray) for array in arrays):
        raise InvalidInputError(
            "Expected a plain array, got a masked one, whose hidden values would be used. Fill them with a "
            "public constant (filled) or leave the records out (compressed)."
        )
    frames = [a.dtypes for a in arrays if isinstance(getattr(a, "dtypes", None), list)]  # those of polars
    types = [getattr(a, "dtype", None) for a in arrays] + [kind for kinds in frames for kind in kinds]
    if any(str(kind) in ("Int128", "UInt128") for kind in types):
        raise InvalidTypeError(
            "Expected numbers of at most 64 bits, got a column of 128, which NumPy has not. Cast it: numbers "
            "to Float64, identifiers to String."
        )


def _refusal(text: str, X: Any, y: Any, estimator: Any, least: int) -> InvalidInputError:
    _, words, kind = next(reason for reason in _REASONS if any(mark in text for mark in reason[0]))
    shape = _shape(X)
    return kind(
        words.format(
            shape=shape,
            rows=shape[0] if shape else 0,
            features=shape[1] if len(shape) > 1 else 1,
            targets=_shape(y),
            least=least,
            estimator=type(estimator).__name__,
            fitted=getattr(estimator, "n_features_in_", "other"),
        )
    )


def _shape(values: Any) -> tuple[int, ...]:
    """Return the shape, which is public; that of a list by its lengths."""
    shape = getattr(values, "shape", None)
    if isinstance(shape, tuple):
        return shape
    if not isinstance(values, (list, tuple)):
        return ()
    inner = {len(row) for row in values if isinstance(row, (list, tuple))}
    return (len(values), *inner) if len(inner) == 1 else (len(values),)
