"""Private model selection."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.base import MetaEstimatorMixin, clone, is_classifier
from sklearn.model_selection import ParameterGrid
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sordino.bounds import declared_bound
from sordino.checks import DECLARED_LABELS, SEEN_LABELS, check_data, check_positive
from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel import Relation, public_generator
from sordino.private_estimator import PrivateEstimator
from sordino.runs import Ask, BestOf
from sordino.runs.search import Trial

_OWN = ("epsilon", "delta", "relation", "ledger", "dataset_id", "verbose")


def _has(name: str) -> Any:
    return lambda self: hasattr(self.estimator, name)


class PrivateSearchCV(MetaEstimatorMixin, PrivateEstimator):
    r"""Choose parameters privately: the best of a random number of random candidates.

    Each trial draws a candidate, fits it on the training part and scores it, with noise, on the
    validation part. Only the best trial is released; the number of trials is random and secret. Then the
    search costs little more than one trial (Papernot and Steinke 2022), whatever the size of the grid.

    Parameters
    ----------
    estimator : a Sordino estimator whose releases are all Gaussian on all records (``auto``, ``ight``, ...).
    param_grid : as in scikit-learn; ``epsilon`` and ``delta`` belong to the search, not to the grid.
    epsilon, delta : the guarantee of the whole search.
    mean_trials : the expected number of trials.
    distribution : of that number: ``"geometric"``, ``"poisson"`` or ``"truncated-negative-binomial"``.
    validation : the share of records, drawn by a public permutation, that scores the candidates.
    target_bound : scores of regressors are ``1 - min(1, (y - prediction)^2 / target_bound^2)``; None is
        1, and says so once.
    ledger, dataset_id : where the whole search is booked, once.
    random_state : seeds the public permutation, never noise.

    Attributes
    ----------
    best_estimator_, best_params_, best_score_ (noisy), privacy_, classes_

    **Privacy.** ``best_estimator_`` and ``best_score_`` together are (epsilon, delta)-DP. A record is either
    in the training or in the validation part, so a trial costs the larger of the two, not their sum. Warnings
    and progress of the trials are not shown, because their number is secret; the run time tells it.
    """

    best_estimator_: Any
    best_params_: dict[str, Any]
    best_score_: float
    classes_: np.ndarray

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        mean_trials: float = 10.0,
        distribution: str = "geometric",
        validation: float = 0.2,
        target_bound: float | None = None,
        relation: str = "add-remove",
        ledger: Any = None,
        dataset_id: str | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.delta = delta
        self.mean_trials = mean_trials
        self.distribution = distribution
        self.validation = validation
        self.target_bound = target_bound
        self.relation = relation
        self.ledger = ledger
        self.dataset_id = dataset_id
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type, tags.target_tags = inner.estimator_type, inner.target_tags
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.input_tags, tags.non_deterministic = inner.input_tags, True
        return tags

    def fit(self, X: Any, y: Any) -> PrivateSearchCV:
        """Search; the whole budget is spent here."""
        self._check_estimator()
        classifier = is_classifier(self.estimator)
        X, y = check_data(self, X, y, y_numeric=not classifier)
        n, grid = X.shape[0], self._grid()
        cut = n - self._validation_size(n)
        public = public_generator(self.random_state)
        order = public.permutation(n)
        train, test = order[:cut], order[cut:]
        unused = classifier and self.target_bound is None
        bound = 1.0 if unused else declared_bound(self, "target_bound")
        mean = check_positive("mean_trials", self.mean_trials, "It is the expected number of trials.")
        ask = Ask.checked(self.epsilon, self.delta, n, self.ledger, self.dataset_id)
        search = BestOf.made(ask, Relation.parse(self.relation), self.distribution, mean)

        labels = y if classifier else None
        # Each candidate up to its first release, the drawn ones or not: what fails is not paid for, and what
        # warns (a bound that was not declared) is seen, for inside of a trial it is not.
        for params in grid:
            model = self._candidate(params, search.trial, labels)
            search.trial.rehearsed(partial(model.fit, X[train], y[train]))

        def trial(budget: Trial) -> tuple[float, Any]:
            params = grid[search.draw(len(grid))]
            model = self._candidate(params, budget, labels)
            model = budget.fitted(lambda: model.fit(X[train], y[train]))
            predicted = model.predict(X[test])
            scores = predicted == y[test] if classifier else 1.0 - ((predicted - y[test]) / bound) ** 2
            return budget.score(scores.astype(float)), (params, model)

        self.best_score_, (self.best_params_, self.best_estimator_) = search.run(trial, "PrivateSearchCV")
        share = f"validation share {self.validation:g}, by a public permutation"
        # The trials were told the labels of all records; that is no declaration.
        seen = classifier and self._open_classes(self.best_params_)
        facts = (f"number of records: {n}", "the grid", share, *((SEEN_LABELS,) if seen else ()))
        told = (DECLARED_LABELS,) if seen else ()
        self.privacy_ = search.report(self.best_estimator_.privacy_, facts, instead_of=told)
        # A chosen model costs the whole search: its own, smaller epsilon would be a false claim.
        self.best_estimator_.privacy_ = self.privacy_
        if classifier:
            self.classes_ = self.best_estimator_.classes_
        return self

    def _check_estimator(self) -> None:
        known: dict[str, Any] = getattr(self.estimator, "get_params", dict)()
        if "epsilon" not in known or not hasattr(self.estimator, "predict"):
            raise UnsupportedError(
                "PrivateSearchCV needs one private classifier or regressor, with an epsilon that it can set, "
                f"got a {type(self.estimator).__name__}. Search over the model, fit steps before it apart."
            )

    def _candidate(self, params: dict[str, Any], budget: Trial, labels: Any) -> Any:
        """Return a fresh model with the budget of a trial, for the labels of all records."""
        try:
            model = clone(self.estimator).set_params(**params)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"Expected an estimator and a grid of its own parameters; scikit-learn says: {error}"
            ) from None
        own: dict[str, Any] = {
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "relation": budget.relation.value,
        }
        own |= {"ledger": None, "dataset_id": None, "verbose": 0}  # both would tell the number of trials
        known = model.get_params(deep=False)
        if labels is not None and "classes" in known and known["classes"] is None:
            own["classes"] = np.unique(labels)
        return model.set_params(**{name: value for name, value in own.items() if name in known})

    def _open_classes(self, params: dict[str, Any]) -> bool:
        return {**self.estimator.get_params(deep=False), **params}.get("classes") is None

    def _grid(self) -> list[dict[str, Any]]:
        grid = list(ParameterGrid(self.param_grid))
        taken = set(_OWN) & {k for c in grid for k in c}
        if taken:
            raise InvalidInputError(f"Expected a grid without {sorted(taken)}: they belong to the search.")
        return grid

    def _validation_size(self, n: int) -> int:
        if not 0 < self.validation < 1 or not 1 <= round(self.validation * n) < n:
            raise InvalidInputError(
                f"Expected validation in (0, 1) with at least one record on each side, got {self.validation}."
            )
        return round(self.validation * n)

    @available_if(_has("predict"))
    def predict(self, X: Any) -> Any:
        """Predict with the best estimator."""
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    @available_if(_has("predict_proba"))
    def predict_proba(self, X: Any) -> Any:
        """Return the class probabilities of the best estimator."""
        check_is_fitted(self)
        return self.best_estimator_.predict_proba(X)

    @available_if(_has("decision_function"))
    def decision_function(self, X: Any) -> Any:
        """Return the margins of the best estimator."""
        check_is_fitted(self)
        return self.best_estimator_.decision_function(X)

    def score(self, X: Any, y: Any) -> float:
        """Score the best estimator on other data."""
        check_is_fitted(self)
        return float(self.best_estimator_.score(X, y))
