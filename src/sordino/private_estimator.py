"""What all estimators share: a ledger's address that is never shown, a score without data in its messages."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from sordino.errors import DivergenceWarning, FitWarning, levels_to_the_caller
from sordino.execute import untensored
from sordino.ledger.address import hidden
from sordino.runs import Ask, PrivacyReport, Task, run
from sordino.values import Moved, refusing


class PrivateEstimator(BaseEstimator):
    """A scikit-learn estimator that keeps secrets out of its texts."""

    epsilon: float
    delta: float | None
    relation: str
    ledger: Any
    dataset_id: str | None
    privacy_: PrivacyReport
    n_features_in_: int
    _moved: ClassVar[Moved | None] = None
    feature_names_in_: NDArray[np.object_]

    def __setattr__(self, name: str, value: Any) -> None:
        # Here and not in __init__: set_params and clone assign as well.
        super().__setattr__(name, hidden(value) if name == "ledger" else value)

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``solver_options__name`` sets one of the solver's options and leaves the others.

        Examples
        --------
        >>> from sordino import LogisticRegression
        >>> LogisticRegression(solver="gd").set_params(solver_options__step_size=0.1).solver_options
        {'step_size': 0.1}
        """
        known = getattr(self, "solver_options", None)
        params = params if self._moved is None else self._moved.fold(params, known)
        own = {name: value for name, value in params.items() if name.startswith("solver_options__")}
        if own:
            params = {name: value for name, value in params.items() if name not in own}
            named = {name.removeprefix("solver_options__"): value for name, value in own.items()}
            params["solver_options"] = {**(params.get("solver_options", known) or {}), **named}
        super().set_params(**params)
        return self

    def save(self, path: Any, *, about: Mapping[str, Any] | None = None) -> Path:
        """Write the fitted model to a file; :func:`sordino.load` reads it without running anything.

        See :func:`sordino.save`.
        """
        from sordino.saving import save

        return save(self, path, about=about)

    def _ask(self, population: int) -> Ask:
        """Return the budget that the parameters ask for, checked, for so many units."""
        return Ask.checked(self.epsilon, self.delta, population, self.ledger, self.dataset_id)

    def _run(self, task: Task, rows: Any, ask: Ask) -> int:
        """Run a task and keep the attributes that it is finished to; return how many steps it took."""
        fitted = run(task, rows, ask, verbose=getattr(self, "verbose", 0))
        self.__dict__.update(fitted.result, privacy_=fitted.report)
        return fitted.steps

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return scikit-learn's text, in which epsilon always stands, also where it is the default."""
        text = str(super().__repr__(N_CHAR_MAX))
        head, mark, rest = text.partition("(")
        known = signature(type(self)).parameters.get("epsilon")
        if known is None or repr(self.epsilon) != repr(known.default):  # then it stands there
            return text
        return f"{head}{mark}epsilon={self.epsilon}{'' if rest.startswith(')') else ', '}{rest}"

    def _html_repr(self) -> str:
        """Return scikit-learn's diagram and, of a fitted model, its guarantee; notebooks show it."""
        diagram = str(super()._html_repr())
        report = getattr(self, "privacy_", None)
        return f"{diagram}{report._repr_html_()}" if isinstance(report, PrivacyReport) else diagram

    def _warn_if_diverged(self, released: NDArray[np.floating[Any]], remedy: str) -> None:
        """Say that a run blew up.

        **Privacy.** It reads released numbers only, which anyone who holds the model can see as well.
        """
        if not np.isfinite(released).all():
            warnings.warn(
                f"{type(self).__name__}: the released coefficients are not finite, so predictions mean "
                f"nothing. The steps were too long; {remedy}. The budget is spent.",
                DivergenceWarning,
                stacklevel=levels_to_the_caller(),
            )

    def _warn_if_bitten(self, released: Any) -> None:
        """Say that a clip took more of the targets than could be put back; it reads released numbers only."""
        if getattr(released, "bitten", False):
            warnings.warn(
                f"{type(self).__name__}: released residuals say that the targets are skewed. The mean was "
                "corrected, but records times epsilon are too few for so many columns to correct each slope: "
                "their direction is that of clipped targets. Use fewer columns or more budget.",
                FitWarning,
                stacklevel=levels_to_the_caller(),
            )


class Scored:
    """Score as scikit-learn does, without a value of the data in any message."""

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the score of scikit-learn on these rows: an exact number, which is not private."""
        inherited: Any = super()
        schema = getattr(self, "schema", None)
        if y is None and schema is not None:
            schema.checked(X, target=True)
            X, y, _ = schema.split(X, bounded=False)
        known = untensored(y)
        return float(refusing(lambda: inherited.score(X, known, sample_weight), X, known, self))
