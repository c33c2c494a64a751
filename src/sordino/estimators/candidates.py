"""Candidates of a private search: single estimators, pipelines with several private steps, tables."""

from __future__ import annotations

import inspect
import itertools
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer

from sordino.errors import InvalidInputError, UndeclaredBoundWarning, UnsupportedError
from sordino.estimators.neighbours import keeps_nothing, reason
from sordino.estimators.pipeline import learned_for, mixes_step, pipeline_privacy
from sordino.kernel import public_generator
from sordino.runs import Price
from sordino.runs.search import Trial
from sordino.tables import Schema

_CONTAINERS = (Pipeline, FeatureUnion, ColumnTransformer)
_QUIET = {"ledger": None, "dataset_id": None, "verbose": 0}  # each would tell the number of trials
OWN = ("epsilon", "delta", "relation", "ledger", "dataset_id", "verbose")
"""What belongs to the search and not to its grid."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """An estimator or a pipeline, whose private steps share the budget of a trial.

    Parameters
    ----------
    estimator : what is cloned for each candidate.
    assume_public : names of steps that are declared to use public data only.

    **Privacy.** The squared distances of Gaussian releases add up, so a step gets the share
    ``epsilon_i^2 / sum epsilon_j^2`` of a trial's, by the epsilons that the steps were given. The enclosure
    of the trial counts what they release.
    """

    estimator: Any
    assume_public: Sequence[str] = ()

    @property
    def final(self) -> Any:
        """The step that predicts."""
        return self.estimator.steps[-1][1] if isinstance(self.estimator, Pipeline) else self.estimator

    @property
    def schema(self) -> Schema | None:
        """The schema of the tables it takes; None where it takes rows."""
        first = self.estimator.steps[0][1] if isinstance(self.estimator, Pipeline) else self.estimator
        found = getattr(first, "schema", None)
        return found if isinstance(found, Schema) else None

    def learned(self, grid: Sequence[dict[str, Any]]) -> tuple[Price, ...]:
        """Return what was paid for the schemas of all candidates: the choice among them rests on each."""
        tried = [value for params in grid for value in params.values()]
        inside = [step.get_params().values() for step in (self.estimator, *tried) if _has_params(step)]
        return learned_for([*tried, *itertools.chain.from_iterable(inside)])

    def check(self) -> None:
        """Refuse what has no private step, cannot predict, or reads the records without paying."""
        if not hasattr(self.final, "predict") or not any(True for _ in paid_steps("", self.estimator)):
            raise UnsupportedError(
                "PrivateSearchCV needs a private classifier or regressor with an epsilon that it can set, or "
                f"a pipeline with one at its end, got a {type(self.estimator).__name__}."
            )
        unpaid = list(unpaid_steps("", self.estimator, frozenset(self.assume_public)))
        if unpaid:
            raise UnsupportedError(f"A private search pays for all that its candidates read: {unpaid[0]}.")

    def families(self, grid: Sequence[dict[str, Any]], persons: bool) -> list[list[dict[str, Any]]]:
        """Return the settings of the grid, those together that one fit can give a model for each of.

        They are alike but for what the estimator says one run shares, which rests on public facts.
        """
        found: dict[Any, list[dict[str, Any]]] = {}
        for number, params in enumerate(grid):
            final = Candidates(self._set(params)).final
            shared: tuple[str, ...] = () if persons else getattr(final, "shared_params", tuple)()
            names = {f"{self._prefix}{name}" for name in shared}
            rest = frozenset((name, id(value)) for name, value in params.items() if name not in names)
            found.setdefault(rest if names else number, []).append(params)
        return list(found.values())

    def members(self, family: Sequence[dict[str, Any]], model: Any) -> list[Any]:
        """Return the model of each setting of a family, from the one fit of all of them."""
        if len(family) == 1:
            return [model]
        fit = Candidates(model).final
        finals = [fit.member(Candidates(self._set(params)).final) for params in family]
        if not isinstance(model, Pipeline):
            return finals
        return [Pipeline([*model.steps[:-1], (model.steps[-1][0], final)]) for final in finals]

    @property
    def _prefix(self) -> str:
        return f"{self.estimator.steps[-1][0]}__" if isinstance(self.estimator, Pipeline) else ""

    def _set(self, params: dict[str, Any]) -> Any:
        try:
            return clone(self.estimator).set_params(**params)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"Expected an estimator and a grid of its own parameters; scikit-learn says: {error}"
            ) from None

    def made(self, family: Sequence[dict[str, Any]], budget: Trial, labels: Any) -> Any:
        """Return a fresh model for all settings of a family, with the budget of a trial.

        It is told the labels of all records.
        """
        model = self._set(family[0])
        if len(family) > 1:
            Candidates(model).final.widened([Candidates(self._set(params)).final for params in family])
        if any(getattr(part, "memory", None) is not None for part in (model, *model.get_params().values())):
            raise UnsupportedError(
                "A pipeline with memory= keeps rows on disk, and gives a second trial the answers of the "
                "first without paying. Set memory=None."
            )
        steps = list(paid_steps("", model))
        weights = [_weight(name, step) for name, step in steps]
        total = sum(w**2 for w in weights)
        for (_, step), weight in zip(steps, weights):
            known = step.get_params(deep=False)
            own: dict[str, Any] = {"epsilon": budget.part(weight**2 / total), "delta": budget.delta}
            own |= {"relation": budget.relation.value, **_QUIET}
            if labels is not None and "classes" in known and self._open(known):
                own["classes"] = np.unique(labels)
            step.set_params(**{name: value for name, value in own.items() if name in known})
        return model

    def fit_params(self, owners: Any) -> dict[str, Any]:
        """Return what ``fit`` is told of the owners of rows; refuse a model that cannot protect them.

        The owners of a table are one of its columns, which a model with a schema reads by itself.
        """
        if owners is None or (self.schema is not None and self.schema.person is not None):
            return {}
        if "groups" not in inspect.signature(self.final.fit).parameters:
            raise InvalidInputError(
                f"{type(self.final).__name__} cannot protect persons. Choose another model, or leave groups "
                "out if a record is all of a person."
            )
        return {f"{self._prefix}groups": owners}

    def tried(self, params: dict[str, Any], budget: Trial, X: Any, labels: Any) -> None:
        """Fit a pipeline on made-up rows: what is wrong with its later steps is found before the search pays.

        A rehearsal on the records ends at the first release, so it never reaches them.
        """
        if not isinstance(self.estimator, Pipeline) or not hasattr(X, "dtype") or X.dtype.kind not in "biuf":
            return
        known = None if labels is None else np.unique(labels)
        rows = max(50, 2 * (0 if known is None else known.size))
        public = public_generator(0)
        made_up = public.uniform(0.0, 1.0, (rows, X.shape[1]))
        targets = public.uniform(0.0, 1.0, rows) if known is None else known[np.arange(rows) % known.size]
        model = self.made([params], budget, labels)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            warnings.simplefilter("default", UndeclaredBoundWarning)
            owned = self.fit_params(np.arange(rows) if budget.unit == "person" else None)
            budget.fitted(lambda: model.fit(made_up, targets, **owned), self.report)

    def open_classes(self, params: dict[str, Any]) -> bool:
        """Tell whether nobody declared the classes of a candidate."""
        return self._open(Candidates(self._set(params)).final.get_params(deep=False))

    def report(self, model: Any) -> Any:
        """Return the guarantee of a fitted candidate."""
        own = getattr(model, "privacy_", None)
        return own if own is not None else pipeline_privacy(model, assume_public=self.assume_public)

    @staticmethod
    def _open(known: dict[str, Any]) -> bool:
        return known.get("classes") is None and known.get("schema") is None


def _has_params(value: Any) -> bool:
    return hasattr(value, "get_params") and not isinstance(value, type)


def paid_steps(name: str, step: Any) -> Iterator[tuple[str, Any]]:
    """Yield the private steps of an estimator that is not fitted yet, with their names."""
    if hasattr(step, "get_params") and "epsilon" in step.get_params(deep=False):
        yield name, step
    elif isinstance(step, _CONTAINERS):
        for inner, child in _parts(step):
            yield from paid_steps(f"{name}__{inner}" if name else inner, child)


def unpaid_steps(name: str, step: Any, assumed: frozenset[str]) -> Iterator[str]:
    """Yield why steps would make a candidate not private, before it is fitted."""
    if step is None or isinstance(step, str) or name in assumed:
        return
    if type(step) in _CONTAINERS:
        for inner, child in _parts(step):
            yield from unpaid_steps(f"{name}__{inner}" if name else inner, child, assumed)
    elif "epsilon" not in getattr(step, "get_params", dict)(deep=False):
        function = type(step) is FunctionTransformer and not mixes_step(step)
        if not (function or keeps_nothing(step)):
            yield reason(name or type(step).__name__, step)


def _parts(step: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(step, ColumnTransformer):
        yield from ((name, child) for name, child, _ in step.transformers)
    else:
        yield from step.steps if isinstance(step, Pipeline) else step.transformer_list


def _weight(name: str, step: Any) -> float:
    """Return the epsilon of a step, which only says how the steps of a pipeline share the budget."""
    value = step.epsilon
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf
    if not good:
        raise InvalidInputError(
            f"Expected a finite epsilon > 0 in step {name or type(step).__name__!r}: the epsilons of the "
            "steps say how they share the budget of a trial."
        )
    return float(value)
