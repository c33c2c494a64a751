"""The guarantee of several steps together, however they are nested."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

from sordino.errors import InvalidInputError
from sordino.estimators.by_row import made_up, mixes_rows
from sordino.estimators.neighbours import REPEATS, is_template, keeps_nothing, reason
from sordino.runs import Price, PrivacyReport, composed
from sordino.runs.price import each_once
from sordino.tables import Schema

_CONTAINERS = (Pipeline, FeatureUnion, ColumnTransformer)
_BY_ITSELF = "its function must change each row by itself, with constants that are not from the data"


@dataclass
class _Found:
    """The parts of a pipeline by what they paid."""

    paid: list[tuple[str, PrivacyReport]] = field(default_factory=list)
    free: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    unpaid: list[str] = field(default_factory=list)
    schemas: list[Schema] = field(default_factory=list)
    above: list[int] = field(default_factory=list)

    def add(self, inside: _Found, *, declared: bool) -> None:
        """Take in the parts of a step; those of one that is declared public are so too, unless they paid."""
        self.paid += inside.paid
        self.assumed += inside.assumed
        self.schemas += inside.schemas
        if not declared:
            self.free += inside.free
            self.functions += inside.functions
            self.unpaid += inside.unpaid


def pipeline_privacy(
    pipeline: Any, delta: float | None = None, *, assume_public: Sequence[str] = ()
) -> PrivacyReport:
    """Return the guarantee of all private steps of a fitted pipeline together.

    Nested pipelines, unions, column transformers and wrappers are walked through. The events of the
    private steps are composed and certified; ``delta=None`` takes the largest delta of the steps. A step that
    reads the records and paid nothing makes the whole "not private", and the report says which and what to
    use instead. Steps that keep nothing of the data (hashing, row normalising, declared levels) are free. The
    function of a ``FunctionTransformer`` is tried on made-up rows; that it changes real ones each by itself
    is yours to know, and a note says so.

    Parameters
    ----------
    pipeline : a fitted pipeline, union, column transformer, wrapper or single estimator.
    delta : of the whole.
    assume_public : names of steps (``"outer__inner"`` where nested, the name of its class for the pipeline
        itself) that you declare to use public data only. Private steps inside of them count all the same.
    """
    check_is_fitted(pipeline)
    found = _Found()
    _walk("", pipeline, frozenset(assume_public), found)
    unknown = sorted(set(assume_public) - set(found.assumed))
    if unknown:
        raise InvalidInputError(f"Expected assume_public among the steps that paid nothing, got {unknown}.")
    if not found.paid:
        raise InvalidInputError("Expected a pipeline with at least one private step, got none.")
    notes = [f"step {name!r}: nothing paid, it keeps nothing of the data" for name in found.free]
    notes += [f"step {name!r}: nothing paid, {_BY_ITSELF}" for name in found.functions]
    notes += [f"step {name!r}: nothing paid, declared to use public data only" for name in found.assumed]
    prices = learned_for(found.schemas)
    return composed(found.paid, delta, notes=notes, unpaid=found.unpaid, learned=prices)


def learned_for(schemas: Iterable[Any]) -> tuple[Price, ...]:
    """Return what was paid for schemas, each payment once."""
    return each_once(p for schema in schemas if isinstance(schema, Schema) for p in schema.learned)


def _walk(name: str, step: Any, assumed: frozenset[str], found: _Found) -> None:
    # The same object in two places was fitted twice, so it counts twice; only a circle is cut.
    if step is None or isinstance(step, str) or id(step) in found.above:
        return
    found.above.append(id(step))
    _judge(name, step, assumed, found)
    found.above.pop()


def _judge(name: str, step: Any, assumed: frozenset[str], found: _Found) -> None:
    report, title = getattr(step, "privacy_", None), name or type(step).__name__
    if isinstance(report, PrivacyReport):
        found.paid.append((title, report))
        return
    if is_template(step):
        return
    found.schemas += [step.schema] if isinstance(getattr(step, "schema", None), Schema) else []
    if title in assumed and type(step).__name__ in REPEATS:
        raise InvalidInputError(
            f"The step {title!r} ({type(step).__name__}) gives private steps the same record several times, "
            "so what they guarantee for one record does not hold. It cannot be declared public."
        )
    if type(step) in _CONTAINERS:
        pass  # it learns nothing; a class made from it may
    elif title in assumed:
        found.assumed.append(title)
    elif type(step) is FunctionTransformer and step.func is not None and not mixes_step(step):
        found.functions.append(title)
    elif keeps_nothing(step):
        found.free.append(title)
    else:
        found.unpaid.append(reason(title, step))
    inside = _Found(above=found.above)
    for inner, child in _steps(step) if isinstance(step, _CONTAINERS) else _children(step):
        _walk(f"{name}__{inner}" if name else inner, child, assumed, inside)
    found.add(inside, declared=title in found.assumed)


def _steps(step: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(step, Pipeline):
        yield from step.steps
    elif isinstance(step, FeatureUnion):
        yield from step.transformer_list
    else:
        yield from ((name, child) for name, child, _ in step.transformers_)


def _children(step: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fitted estimators that a wrapper holds, however deep in lists, tuples and dictionaries.

    Its parameters are templates, which it copies before it fits them. Of what it hides, under names that do
    not end as those of fitted attributes do, it is a part; only a private model in there paid for itself.
    """
    templates = step.get_params(deep=False) if hasattr(step, "get_params") else {}
    for name, value in getattr(step, "__dict__", {}).items():
        held = [] if name in templates else list(_estimators(value, ()))
        if not name.endswith("_"):
            held = [child for child in held if isinstance(getattr(child, "privacy_", None), PrivacyReport)]
        yield from (
            (f"{name}{number}" if len(held) > 1 else name, child) for number, child in enumerate(held)
        )


def _estimators(value: Any, above: tuple[int, ...]) -> Iterator[BaseEstimator]:
    """Yield the estimators in a value; the same one in two places was fitted twice, only a circle is cut."""
    if id(value) in above:
        return
    inside: Iterable[Any] = ()
    if isinstance(value, BaseEstimator):
        yield value
    elif isinstance(value, dict):
        inside = value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        inside = value
    elif isinstance(value, np.ndarray) and value.dtype == object:
        inside = value.ravel().tolist()
    elif type(value).__module__.startswith("sklearn."):  # a pair of a model and its calibration
        inside = getattr(value, "__dict__", {}).values()
    for part in inside:
        yield from _estimators(part, (*above, id(value)))


def mixes_step(step: Any) -> bool:
    """Tell whether a function gives made-up rows another result together than one by one."""
    return mixes_rows(step.transform, made_up(np.zeros((0, getattr(step, "n_features_in_", 1)))))
