"""Input checks at the door: typed errors that name the value, the bound and the remedy, never the data."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import validate_data

from sordino.errors import InvalidInputError, InvalidTypeError, UndeclaredBoundWarning, levels_to_the_caller
from sordino.execute import Held, HeldColumn, hold, strip_tensor
from sordino.execute.csr import sound
from sordino.runs.report import Fact, Source
from sordino.values import CAUGHT, as_float, check_positive, is_number, refuse_unreadable, refusing


def check_data(estimator: Any, X: Any, y: Any = "no_validation", *, reset: bool = True, **kwargs: Any) -> Any:
    """Validate X (and y) as scikit-learn does, without a value of the data in any message."""
    X, y = strip_tensor(X, here=not reset), strip_tensor(y)
    elsewhere = hold(X, None if isinstance(y, str) else y)
    if elsewhere is not None:
        return _check_held(estimator, *elsewhere, y, reset, kwargs)
    X, numeric = sound(X), bool(kwargs.get("y_numeric"))

    def validated() -> Any:
        with np.errstate(all="ignore"):  # a cast that overflows would warn on one data set only
            kinds = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}
            known: Any = {"ensure_all_finite": not _adds_up(X)}
            out = validate_data(estimator, X, y, reset=reset, **kinds, **known, **kwargs)
            return (out[0], _real(out[1])) if numeric else out

    least = int(kwargs.get("ensure_min_samples", 1))
    return refusing(validated, X, None if isinstance(y, str) else y, estimator, least)


def _adds_up(X: Any) -> bool:
    """Tell whether the squares of an array add up to a number, and so each entry is one.

    scikit-learn adds up the entries, which takes six times as long. Where squares overflow, it decides.
    """
    if not (isinstance(X, np.ndarray) and X.dtype == np.float64 and X.flags.c_contiguous):
        return False
    flat = X.reshape(-1)
    return bool(np.isfinite(flat @ flat))


def _check_held(
    estimator: Any, rows: Held, column: Any, y: Any, reset: bool, kwargs: Mapping[str, Any]
) -> Any:
    """Check the facts of rows that lie elsewhere; their numbers were checked where they lie."""
    if not reset:
        raise InvalidInputError(
            f"Expected rows in this process for {type(estimator).__name__}, got others. Apply the fitted "
            "model to their blocks, for example X.map_blocks(model.predict)."
        )
    if y is None:
        raise InvalidInputError("This estimator requires y to be passed, but the target y is None.")
    least = int(kwargs.get("ensure_min_samples", 1))
    if rows.shape[0] < least or rows.shape[1] < 1:
        raise InvalidInputError(f"Expected at least {least} rows and one column, got shape {rows.shape}.")
    estimator.n_features_in_ = rows.shape[1]
    vars(estimator).pop("feature_names_in_", None)
    if rows.names is not None:
        estimator.feature_names_in_ = np.asarray(rows.names, dtype=object)
    if isinstance(y, str):
        return rows
    return rows, _numeric(column) if kwargs.get("y_numeric") else column


def _numeric(column: Any) -> Any:
    if not isinstance(column, HeldColumn):
        return _real(np.asarray(column))
    if not column.kinds <= set("fiub"):
        raise InvalidTypeError(
            "Expected numeric targets, got entries that are not numbers. Encode them first."
        )
    return column.astype(np.float64)


def _real(y: np.ndarray) -> np.ndarray:
    """Return targets as doubles; texts and complex numbers are refused by the caller."""
    if np.iscomplexobj(y):
        raise ValueError("complex data")
    out = y.astype(np.float64)
    if not np.isfinite(out).all():
        raise ValueError("y contains infinity")
    return out


def remember(estimator: Any, parameters: Mapping[str, Any]) -> None:
    """Store the parameters of ``__init__`` as they are: pass its ``locals()``."""
    for name, value in parameters.items():
        if name not in ("self", "__class__"):
            setattr(estimator, name, value)


SEEN_LABELS = Fact(
    "class labels: those seen in y, assumed public (pass classes= to declare them)", Source.SEEN
)
DECLARED_LABELS = Fact("class labels: declared")
LEARNED_LABELS = Fact("class labels: those of the schema, learned from records", Source.LEARNED)


def encode_labels(y: Any, classes: Any) -> tuple[Any, np.ndarray, str]:
    """Return class numbers, the classes, and the statement about them for the report."""
    if isinstance(y, HeldColumn):
        seen = y.unique()
        if seen is None:
            raise InvalidInputError(
                "Unknown label type: continuous. Expected one class label per row; use a regressor for "
                "numbers."
            )
        _, known, said = encode_labels(seen, classes)
        return y.map(_places, known), known, said  # class numbers that lie with their records
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it counts the labels seen, and says so where they are many
        plain = isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype.kind in "biuU"  # labels of any number
        kind = "multiclass" if plain else refusing(lambda: str(type_of_target(y)), None, y)
    if kind not in ("binary", "multiclass"):
        raise InvalidInputError(
            f"Unknown label type: {kind}. Expected one class label per row; use a regressor for numbers."
        )
    if classes is None:
        known = refusing(lambda: np.unique(y), None, y)
        codes, said = np.searchsorted(known, y), SEEN_LABELS
    else:
        known, said = _declared_classes(classes), DECLARED_LABELS
        try:
            codes = np.minimum(np.searchsorted(known, y), known.size - 1)
            among_them = np.array_equal(known[codes], y)
        except (TypeError, ValueError):
            among_them = False
        if not among_them:
            raise InvalidInputError(
                f"Expected labels among the {known.size} declared classes, got others. "
                "Add them to classes= or drop those rows by a public rule."
            )
    if known.size < 2:
        raise InvalidInputError(
            f"Expected at least 2 classes, got {known.size} class: the classifier needs samples of at least "
            "2 classes in the data. Pass classes= to declare them."
        )
    return codes, known, said


def _places(y: np.ndarray, known: np.ndarray) -> np.ndarray:
    return np.searchsorted(known, y)


def _declared_classes(classes: Any) -> np.ndarray:
    try:
        known = np.unique(np.asarray(classes))
    except CAUGHT:
        known = np.empty(0)
    if known.size < 2 or known.dtype.kind not in "biufUSO":
        raise InvalidInputError("Expected classes as a list of 2 or more labels of one kind, got others.")
    return known


def class_weights(declared: Any, classes: np.ndarray) -> np.ndarray | None:
    """Return the declared weight of each class; "balanced" would read the class counts from the data."""
    if declared is None:
        return None
    if not isinstance(declared, Mapping):
        raise InvalidInputError(
            "Expected class_weight as a dict of declared constants. 'balanced' would be computed from "
            "the data: declare the class shares you believe in."
        )
    named = {label: declared.get(label, 1.0) for label in classes.tolist()}
    if not all(map(is_number, named.values())):
        raise InvalidInputError("Expected every class_weight to be a positive number.")
    weights = np.array([as_float(w) for w in named.values()])
    if not np.all((weights > 0) & np.isfinite(weights)):
        raise InvalidInputError("Expected every class_weight to be a positive number.")
    return weights / weights.max()  # a weight above one would only be clipped away again


_EXPECTED_WEIGHTS = "Expected sample_weight as one finite number >= 0 for each of the {} rows."


def record_weights(declared: Any, X: Any, bound: float) -> Any:
    """Return each record's weight as a share of the declared bound, at which it is clipped."""
    if isinstance(X, Held) and isinstance(declared := X.column(declared), HeldColumn):
        column: Any = _numeric(declared)
        if (column.least() or 0.0) < 0:
            raise InvalidInputError(_EXPECTED_WEIGHTS.format(X.shape[0]))
        return column.map(_shares, bound)
    refuse_unreadable(declared)
    weights = np.empty(0)
    with contextlib.suppress(*CAUGHT):
        weights = _real(np.asarray(declared))
    rows = X.shape[0]
    if weights.ndim == 0:
        weights = np.full(rows, weights)
    # Weights that are all zero are fine: refusing them would tell that no record has another.
    if weights.shape != (rows,) or np.any(weights < 0):
        raise InvalidInputError(_EXPECTED_WEIGHTS.format(rows))
    return _shares(weights, bound)


def _shares(weights: np.ndarray, bound: float) -> np.ndarray:
    return np.minimum(weights / bound, 1.0)


# ------- Bounds that the user declares, or did not: a default bound clips, so using one is said aloud, once

DEFAULT = 1.0
_EFFECT = {
    "data_norm": "rows are clipped to norm 1, in fit and in predict alike",
    "target_bound": "targets count up to 1 in magnitude and are clipped beyond",
    "weight_bound": "sample weights are clipped to 1",
}
_SUBJECT = {"data_norm": "the row norms", "target_bound": "|y|", "weight_bound": "the weights"}
_LEAK = {"data_norm": "X", "target_bound": "y", "weight_bound": "the weights"}
_REMEDY = {"data_norm": "Columns in different units are best declared one by one, in a sordino.Schema. "}
_said: set[tuple[str, str]] = set()


def declared_bound(estimator: Any, name: str) -> float:
    """Return the bound ``name`` of an estimator, checked; None means 1 and, once per process, a warning."""
    value = getattr(estimator, name)
    schema = getattr(estimator, "schema", None)
    if name == "data_norm" and schema is not None:
        if value is not None:
            raise InvalidInputError(
                "Expected data_norm=None: the bound of every row follows from the schema."
            )
        encoder = getattr(estimator, "encoder_", None)
        return float(schema.data_norm if encoder is None else encoder.data_norm_)
    if value is None:
        said = type(estimator).__name__, name
        if said not in _said:
            _said.add(said)
            warnings.warn(
                f"{said[0]}: no {name} was declared, so {_EFFECT[name]}. Pass {name}=, a public bound "
                f"that nearly all records keep ({name}=1.0 keeps this one); computing it from the data would "
                f"leak. {_REMEDY.get(name, '')}This is said once.",
                UndeclaredBoundWarning,
                stacklevel=levels_to_the_caller(),
            )
        return DEFAULT
    return check_positive(
        name,
        value,
        f"Pass a public bound on {_SUBJECT[name]} (what is beyond is clipped to it); computing it from "
        f"{_LEAK[name]} would leak.",
    )


def bound_fact(name: str, value: float, origin: Source, effect: str) -> Fact:
    """Return the line of the report about a bound."""
    default = ", the default" if origin is Source.DEFAULT else ""
    return Fact(f"{name} = {value:g}{default} ({effect})", origin)


def check_noise(noise: Any) -> bool:
    """Tell whether ``noise`` asks for a published formula: ``"paper"`` or ``"paper: NAME"``."""
    if isinstance(noise, str) and (noise in ("sound", "paper") or noise.startswith("paper:")):
        return noise != "sound"
    raise InvalidInputError(f"Expected noise in ('sound', 'paper', 'paper: NAME'), got {noise!r}.")


def literature(module: str, name: str) -> Any:
    """Return what ``noise="paper"`` asks for, by name: only the command line imports the literature."""
    return getattr(import_module(f"sordino.literature.{module}"), name)
