"""Private model selection."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from dp_accounting import dp_event as dp
from sklearn.base import MetaEstimatorMixin, clone, is_classifier
from sklearn.model_selection import ParameterGrid
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, indexable

from sordino.accounting import (
    Certificate,
    PrivacyReport,
    certify,
    gaussian_epsilon,
    solve_scale,
)
from sordino.errors import InvalidInputError, SordinoError, UnsupportedError
from sordino.estimators.base import PrivateEstimator
from sordino.estimators.checks import check_positive
from sordino.estimators.fitting import Budget, reserve_event
from sordino.execute import LocalExecutor
from sordino.kernel import ClippedSum, Curator, Full, Gaussian, Plan, Relation, Release
from sordino.kernel.events import gaussian_event
from sordino.kernel.noise import NoiseSource, fresh_noise

SHAPES = {"geometric": 1.0, "poisson": math.inf, "truncated-negative-binomial": 0.5}


@dataclass(frozen=True)
class ScoreSum(ClippedSum):
    """The sum of scores in [0, 1], one per record of the validation part."""

    def contribution(self, params: Any) -> float:
        """Return 1."""
        return 1.0

    def sensitivity(self, relation: Relation, params: Any) -> float:
        """Return 1: a score stays between 0 and 1 whichever record it is of."""
        return 1.0

    def evaluate(self, records: Any, params: Any) -> Any:
        """Return the sum."""
        return np.array([np.clip(records.targets, 0.0, 1.0).sum()])


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
    validation : the share of records, the last ones by position, that scores the candidates.
    target_bound : scores of regressors are ``1 - min(1, (y - prediction)^2 / target_bound^2)``.
    ledger, dataset_id : where the whole search is booked, once.

    Attributes
    ----------
    best_estimator_, best_params_, best_score_ (noisy), privacy_, classes_

    **Privacy.** ``best_estimator_`` and ``best_score_`` together are (epsilon, delta)-DP. A record is either
    in the training or in the validation part, so a trial costs the larger of the two, not their sum.
    """

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        epsilon: float = 1.0,
        delta: float | None = None,
        mean_trials: float = 10.0,
        distribution: str = "geometric",
        validation: float = 0.2,
        target_bound: float = 1.0,
        relation: str = "add-remove",
        ledger: Any = None,
        dataset_id: str | None = None,
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

    def fit(self, X: Any, y: Any) -> PrivateSearchCV:
        """Search; the whole budget is spent here."""
        X, y = indexable(X, y)
        n = X.shape[0]
        grid, cut = self._grid(), n - self._validation_size(n)
        budget = Budget.checked(self.epsilon, self.delta, n, self.ledger, self.dataset_id)
        relation = Relation.parse(self.relation)
        scale, certificate, event = self._calibrated(budget, relation)
        reservation = reserve_event(event, relation, "record", certificate, budget, "PrivateSearchCV")
        noise = fresh_noise()
        try:
            best = self._best_trial(X, y, cut, grid, scale, budget.delta, relation, noise)
        except BaseException as error:
            if reservation is not None:
                reservation.fail(type(error).__name__)
            raise
        if reservation is not None:
            reservation.settle()
        self.best_score_, self.best_params_, self.best_estimator_ = best
        self.privacy_ = self._report(certificate, event, relation, noise, n)
        # A chosen model costs the whole search: its own, smaller epsilon would be a false claim.
        self.best_estimator_.privacy_ = self.privacy_
        if is_classifier(self.best_estimator_):
            self.classes_ = self.best_estimator_.classes_
        return self

    def _grid(self) -> list[dict[str, Any]]:
        grid = list(ParameterGrid(self.param_grid))
        taken = {"epsilon", "delta", "relation", "ledger", "dataset_id"} & {k for c in grid for k in c}
        if taken:
            raise InvalidInputError(f"Expected a grid without {sorted(taken)}: they belong to the search.")
        return grid

    def _validation_size(self, n: int) -> int:
        if not 0 < self.validation < 1 or not 1 <= round(self.validation * n) < n:
            raise InvalidInputError(
                f"Expected validation in (0, 1) with at least one record on each side, got {self.validation}."
            )
        return round(self.validation * n)

    def _calibrated(self, budget: Budget, relation: Relation) -> tuple[float, Certificate, dp.DpEvent]:
        if self.distribution not in SHAPES:
            raise InvalidInputError(f"Expected distribution in {sorted(SHAPES)}, got {self.distribution!r}.")
        mean = check_positive("mean_trials", self.mean_trials, "It is the expected number of trials.")
        shape = SHAPES[self.distribution]

        def event_at(scale: float) -> dp.DpEvent:
            return dp.RepeatAndSelectDpEvent(gaussian_event(scale, relation), mean, shape)

        if math.isinf(budget.epsilon):
            raise InvalidInputError("Expected a finite epsilon for a private search, got inf.")
        scale = solve_scale(event_at, budget.epsilon, budget.delta, relation)
        event = event_at(scale)
        return scale, certify(event, budget.delta, relation), event

    def _best_trial(
        self,
        X: Any,
        y: Any,
        cut: int,
        grid: Any,
        scale: float,
        delta: float,
        relation: Relation,
        noise: NoiseSource,
    ) -> tuple[float, dict[str, Any], Any]:
        trials = noise.trials(float(self.mean_trials), SHAPES[self.distribution])
        if trials == 0:
            raise SordinoError(
                "The drawn number of trials is 0, so there is nothing to release; the budget is spent. "
                "Use distribution='geometric', which always runs one, or a larger mean_trials."
            )
        best: tuple[float, dict[str, Any], Any] | None = None
        for _ in range(trials):
            params = grid[int(noise.integers(len(grid), 1)[0])]
            model = self._trial(X[:cut], y[:cut], params, scale, delta, relation)
            score = self._score(model, X[cut:], y[cut:], scale, relation, noise)
            if best is None or score > best[0]:
                best = (score, params, model)
        assert best is not None
        return best

    def _trial(
        self, X: Any, y: Any, params: Mapping[str, Any], scale: float, delta: float, relation: Relation
    ) -> Any:
        epsilon = gaussian_epsilon(1.0 / scale, delta)
        model = clone(self.estimator).set_params(**params)
        model.set_params(epsilon=epsilon, delta=delta, relation=relation.value)
        model.set_params(ledger=None, dataset_id=None)  # rows per trial would tell their secret number
        model.fit(X, y)
        if model.privacy_.accountant != "gaussian (exact)":
            raise UnsupportedError(
                "PrivateSearchCV needs an estimator whose releases are all Gaussian on all records, got one "
                f"accounted by {model.privacy_.accountant!r}. Use solver='auto' or solver='ight'."
            )
        return model

    def _score(
        self, model: Any, X: Any, y: Any, scale: float, relation: Relation, noise: NoiseSource
    ) -> float:
        if is_classifier(model):
            scores = (model.predict(X) == np.asarray(y)).astype(float)
        else:
            bound = check_positive("target_bound", self.target_bound, "It is a public bound on |y|.")
            scores = 1.0 - np.minimum(1.0, ((model.predict(X) - np.asarray(y)) / bound) ** 2)
        plan = Plan({"score": Release(ScoreSum(), Gaussian(), Full())}, relation, len(scores)).at(scale)
        executor = LocalExecutor(np.zeros((len(scores), 1)), scores)
        return float(Curator(executor, plan, noise).release("score")[0])

    def _report(
        self, certificate: Certificate, event: dp.DpEvent, relation: Relation, noise: NoiseSource, n: int
    ) -> PrivacyReport:
        return PrivacyReport(
            epsilon=certificate.epsilon,
            delta=certificate.delta,
            relation=relation,
            unit="record",
            accountant=certificate.accountant,
            event=event,
            releases=(),
            public=(
                f"number of records: {n}",
                "the grid",
                f"validation share {self.validation:g}, by position",
            ),
            noise_source=noise.description,
            seeded=not noise.is_private,
            notes=(
                f"best of a random number of trials ({self.distribution}, {self.mean_trials:g} expected); "
                "the number of trials and all but the best are secret",
            ),
        )

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
