"""Bounds that the user declares, or did not: a default bound clips, so using one is said aloud, once."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from sordino.checks import check_positive
from sordino.errors import InvalidInputError, UndeclaredBoundWarning

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
    """Return the bound ``name`` of an estimator, checked; None means 1 and a warning, once per process.

    **Privacy.** Whether it warns depends on the parameters and never on the data.
    """
    value = getattr(estimator, name)
    schema = getattr(estimator, "schema", None)
    if name == "data_norm" and schema is not None:
        if value is not None:
            raise InvalidInputError(
                "Expected data_norm=None: the bound of every row follows from the schema."
            )
        return float(schema.data_norm)
    if value is None:
        _warn_once(type(estimator).__name__, name)
        return DEFAULT
    return check_positive(
        name,
        value,
        f"Pass a public bound on {_SUBJECT[name]} (what is beyond is clipped to it); computing it from "
        f"{_LEAK[name]} would leak.",
    )


def bound_fact(name: str, value: float, declared: Any, effect: str) -> str:
    """Return the line of the report about a bound."""
    default = ", the default" if declared is None else ""
    return f"{name} = {value:g}{default} ({effect})"


def _warn_once(estimator: str, name: str) -> None:
    if (estimator, name) in _said:
        return
    _said.add((estimator, name))
    warnings.warn(
        f"{estimator}: no {name} was declared, so {_EFFECT[name]}. Pass {name}=, a public bound that "
        f"nearly all records keep ({name}=1.0 keeps this one); computing it from the data would leak. "
        f"{_REMEDY.get(name, '')}This is said once.",
        UndeclaredBoundWarning,
        stacklevel=_levels_to_the_caller(),
    )


def _levels_to_the_caller() -> int:
    """Return the ``stacklevel`` at which the first line outside of this package stands."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("sordino."):
        frame, level = frame.f_back, level + 1
    return level
