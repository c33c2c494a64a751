"""Private model selection."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import MetaEstimatorMixin, is_classifier
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sordino.bounds import declared_bound
from sordino.checks import DECLARED_LABELS, SEEN_LABELS, among, check_data, check_positive, encode_labels
from sordino.errors import InvalidInputError, UnsupportedError
from sordino.estimators.candidates import OWN, Candidates, paid_steps
from sordino.estimators.search_scores import CLASSIFYING, REGRESSING, Scorer, as_numbers, rows_of
from sordino.execute.grouped import number_owners
from sordino.kernel import Relation, public_generator
from sordino.kernel.arrays import Floats, Ints
from sordino.private_estimator import PrivateEstimator
from sordino.refusals import refusing
from sordino.runs import Ask, BestOf, ChooseThenFit
from sordino.runs.search import Trial

WORTH = 0.05  # a difference of scores that is worth a search


def _has(name: str) -> Any:
    return lambda self: hasattr(self.estimator, name)


class PrivateSearchCV(MetaEstimatorMixin, PrivateEstimator):
    r"""Choose parameters privately: try the candidates for little, then fit the best with all the rest.

    Each candidate is fitted on the training part and scored, with noise, on the validation part, all for a
    third of the squared budget. The best is fitted anew on all records with what is left: more than 0.8 of
    epsilon. :meth:`outlook` says before how much that is, and what the scores can tell. Candidates of
    ``auto`` that differ in ``alpha`` or ``n_nonzero_coefs`` only are made of one fit, which is not repeated.

    Parameters
    ----------
    estimator : a Sordino estimator whose releases are all Gaussian on all records (``auto``, ``ight``, ...),
        with a ``schema`` or without, or a pipeline of such steps and steps that keep nothing of the data. The
        epsilons of the steps of a pipeline say how they share the budget of a trial.
    param_grid : as in scikit-learn; ``epsilon`` and ``delta`` belong to the search, not to the grid.
    epsilon, delta : the guarantee of the whole search.
    mean_trials : the largest number of fits; of a larger grid, so many are drawn by a public order.
        With a ``distribution``, the expected number of trials.
    distribution : None, or ``"geometric"``, ``"poisson"`` or ``"truncated-negative-binomial"``: release the
        best of a random, secret number of random candidates and nothing else (Papernot and Steinke 2022). A
        trial then has about half of epsilon, whatever the size of the grid, and nothing is fitted anew.
    validation : the share of records (of persons), drawn by a public permutation, that scores the candidates.
    scoring : "accuracy", "neg_log_loss" (losses clipped at 4), "neg_mean_squared_error" or
        "neg_mean_absolute_error" (errors clipped at the target bound). None is the accuracy of classifiers,
        and of regressors ``1 - min(1, (y - prediction)^2 / target_bound^2)``.
    target_bound : the largest error of a regressor that counts; None is half of the range that a schema
        declares, or 1, and says so once.
    assume_public : names of steps that you declare to use public data only.
    ledger, dataset_id : where the whole search is booked, once.
    random_state : seeds the public permutation, never noise.

    Attributes
    ----------
    best_estimator_, best_params_, privacy_, classes_
    best_score_ : the noisy score of the best candidate as it was fitted for the choice; fitted anew, with
        more records and more of the budget, it is as a rule better. Noise beyond the range is cut off.
    best_score_interval_ : holds, at 95 %, the mean of that score over the law behind the records.

    **Privacy.** ``best_estimator_`` and ``best_score_`` together are (epsilon, delta)-DP. A record is either
    in the training or in the validation part, so a trial costs the larger of the two, not their sum. With
    ``groups``, or a person column in the schema, a person is in one part with all records, is protected as a
    whole by the fit, and counts once in the score, with the mean over its records. Warnings
    and progress of the trials are not shown; with a ``distribution`` the run time tells their secret number.
    """

    best_estimator_: Any
    best_params_: dict[str, Any]
    best_score_: float
    best_score_interval_: tuple[float, ...]
    classes_: np.ndarray

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        mean_trials: float = 10.0,
        distribution: str | None = None,
        validation: float = 0.2,
        scoring: str | None = None,
        target_bound: float | None = None,
        assume_public: Sequence[str] = (),
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
        self.scoring = scoring
        self.target_bound = target_bound
        self.assume_public = assume_public
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

    def fit(self, X: Any, y: Any = None, *, groups: Any = None) -> PrivateSearchCV:
        """Search; the whole budget is spent here. With a schema, y and ``groups`` come from the table."""
        candidates = Candidates(self.estimator, tuple(self.assume_public))
        candidates.check()
        classifier = is_classifier(self.estimator)
        X, y, owners = self._records(candidates, X, y, groups, classifier)
        grid, score = self._grid(), self._scorer(candidates, classifier)
        n, unit = (len(y), "record") if owners is None else (int(owners.max()) + 1, "person")
        families = self._families(candidates, grid, owners is not None)
        train, test = self._split(n, owners)
        search = self._search(families, n, unit, candidates.learned(grid))
        labels = y if classifier else None
        past, future = rows_of(X, train), rows_of(X, test)
        owned = candidates.fit_params(None if owners is None else owners[train])
        # Each candidate up to its first release, the drawn ones or not: what fails is not paid for, and what
        # warns (a bound that was not declared) is seen, for inside of a trial it is not.
        for params in grid:
            model = candidates.made([params], search.trial, labels)
            search.trial.rehearsed(partial(model.fit, past, y[train], **owned))
            candidates.tried(params, search.trial, X, labels)

        def fitted(budget: Trial, number: int, rows: Any, targets: Any, owned: Any) -> list[Any]:
            model = candidates.made(families[number], budget, labels)
            model = budget.fitted(lambda: model.fit(rows, targets, **owned), candidates.report)
            return candidates.members(families[number], model)

        def trial(budget: Trial, number: int) -> tuple[Floats, list[Any]]:
            models = fitted(budget, number, past, y[train], owned)
            judges = None if owners is None else owners[test]
            scores = [score.of(model, future, y[test], judges) for model in models]
            return budget.score(np.stack(scores, axis=1)), models

        whole = candidates.fit_params(owners)
        found, number, place, models = search.run(
            trial, lambda budget, number: fitted(budget, number, X, y, whole), "PrivateSearchCV"
        )
        self.best_params_, self.best_estimator_ = families[number][place], models[place]
        ends = search.score_interval(found, self._validation_size(n))
        known = min(max(found, 0.0), 1.0)  # the mean of scores in [0, 1]: only noise leaves them
        self.best_score_, self.best_score_interval_ = score.natural(known), tuple(map(score.natural, ends))
        self._report(candidates, search, n, classifier)
        if classifier:
            self.classes_ = self.best_estimator_.classes_
        if hasattr(self.best_estimator_, "n_features_in_"):  # texts and tables have no such number
            self.n_features_in_ = self.best_estimator_.n_features_in_
        return self

    def outlook(self, n: int, unit: str = "record") -> str:
        """Return what a search on n records or persons, the unit, has to offer: from public numbers."""
        families = self._families(Candidates(self.estimator), self._grid(), unit != "record")
        search, judges = self._search(families, n, unit), self._validation_size(n)
        seen = 2.0 * math.sqrt(2.0) * search.score_noise(judges)
        needed = n * float(self.epsilon) * seen / WORTH
        text = (
            f"Each of {search.tried:g} trials has epsilon {search.trial.epsilon:.3g} and {n - judges} "
            f"{unit}s; a fit without a search has {float(self.epsilon):g} and {n}. "
        )
        if search.members > 1:
            text += f"One fit stands for up to {search.members} candidates. "
        if search.last is not None:
            text += f"The best is fitted anew on all {unit}s with epsilon {search.last.epsilon:.3g}. "
        return text + (
            f"Two scores are told apart if they differ by {seen:.2g} or more (of 1): below n x epsilon = "
            f"{needed:,.0f} the default is expected to be better than a choice that cannot see {WORTH:g}."
        )

    def _families(
        self, candidates: Candidates, grid: list[dict[str, Any]], persons: bool
    ) -> list[list[dict[str, Any]]]:
        """Return what is fitted: families of candidates, at most ``mean_trials`` if all are tried."""
        mean = check_positive("mean_trials", self.mean_trials, "It is the number of trials.")
        found = candidates.families(grid, persons)
        if self.distribution is not None or len(found) <= mean:
            return found
        public = public_generator(self.random_state)
        order = public.permutation(len(found))
        return [found[number] for number in order[: math.ceil(mean)]]

    def _search(
        self, families: Sequence[Sequence[Any]], n: int, unit: str, learned: tuple[Any, ...] = ()
    ) -> BestOf | ChooseThenFit:
        """Return the certified search over these families."""
        ask = Ask.checked(self.epsilon, self.delta, n, self.ledger, self.dataset_id, learned=learned)
        relation, members = Relation.parse(self.relation), max(len(family) for family in families)
        if self.distribution is None:
            return ChooseThenFit.of(ask, relation, len(families), members, unit)
        law = self.distribution, float(self.mean_trials)
        return BestOf.made(ask, relation, *law, len(families), members, unit)

    def _report(
        self, candidates: Candidates, search: BestOf | ChooseThenFit, n: int, classifier: bool
    ) -> None:
        share = f"validation share {self.validation:g}, by a public permutation"
        # The trials were told the labels of all records; that is no declaration.
        seen = classifier and candidates.open_classes(self.best_params_)
        facts = (f"number of {search.unit}s: {n}", "the grid", share, *((SEEN_LABELS,) if seen else ()))
        told = (DECLARED_LABELS,) if seen else ()
        self.privacy_ = search.report(candidates.report(self.best_estimator_), facts, instead_of=told)
        # A chosen model costs the whole search: its own, smaller epsilon would be a false claim.
        for _, step in paid_steps("", self.best_estimator_):
            step.privacy_ = self.privacy_

    def _records(
        self, candidates: Candidates, X: Any, y: Any, groups: Any, classifier: bool
    ) -> tuple[Any, Any, Ints | None]:
        """Return rows that can be split, one target for each, and the number of its owner."""
        schema = candidates.schema
        if schema is not None:
            features, target, owners = schema.split(X)
            owners = schema.owners_of(owners, groups)
            if schema.person is not None:  # the model reads the owners from the table
                features[schema.person.name] = owners
            y = self._targets(candidates, target if y is None else y, len(features), classifier)
        elif not isinstance(self.estimator, Pipeline):
            features, y = check_data(self, X, y, y_numeric=not classifier)
            owners = None if groups is None else number_owners(groups)
        else:
            features = np.asarray(X) if isinstance(X, (list, tuple)) else X
            if hasattr(features, "dtype") and features.dtype.kind in "biuf":
                features = check_data(self, features)  # else texts or tables: the first step judges
            y = self._targets(candidates, y, features.shape[0], classifier)
            owners = None if groups is None else number_owners(groups)
        if owners is not None and owners.shape != (len(y),):
            raise InvalidInputError(f"Expected one group per row, {len(y)} of them, got {owners.shape}.")
        return features, y, owners

    @staticmethod
    def _targets(candidates: Candidates, y: Any, n: int, classifier: bool) -> Any:
        """Return targets that every candidate can use: a wrong one is found before the search pays."""
        if y is None:
            raise InvalidInputError("This estimator requires y to be passed, but the target y is None.")
        targets = refusing(lambda: np.asarray(y), None, y)
        if targets.shape != (n,):
            raise InvalidInputError(f"Expected one target per row, {n} of them, got shape {targets.shape}.")
        if classifier:
            encode_labels(targets, getattr(candidates.final, "classes", None))
            return targets
        return refusing(lambda: as_numbers(targets), None, targets)

    def _split(self, n: int, owners: Ints | None) -> tuple[Ints, Ints]:
        """Return the rows to train on and those to score on, whatever the order of the records or persons."""
        judging = np.zeros(n, dtype=bool)
        public = public_generator(self.random_state)
        judging[public.permutation(n)[n - self._validation_size(n) :]] = True
        rows = judging if owners is None else judging[owners]
        return np.flatnonzero(~rows), np.flatnonzero(rows)

    def _scorer(self, candidates: Candidates, classifier: bool) -> Scorer:
        among("scoring", self.scoring, (None, *(CLASSIFYING if classifier else REGRESSING)))
        if self.scoring == "neg_log_loss" and not hasattr(self.estimator, "predict_proba"):
            raise UnsupportedError("scoring='neg_log_loss' needs an estimator with predict_proba.")
        if classifier:
            return Scorer(self.scoring or "accuracy", 1.0)
        target = None if candidates.schema is None else candidates.schema.target
        if self.target_bound is None and target is not None and None not in (target.low, target.high):
            return Scorer(self.scoring, (float(target.high) - float(target.low)) / 2.0)  # type: ignore[arg-type]
        return Scorer(self.scoring, declared_bound(self, "target_bound"))

    def _grid(self) -> list[dict[str, Any]]:
        grid = self._candidates()
        taken = {k for c in grid for k in c if k.rpartition("__")[2] in OWN}
        if taken:
            raise InvalidInputError(f"Expected a grid without {sorted(taken)}: they belong to the search.")
        return grid

    def _candidates(self) -> list[dict[str, Any]]:
        """Return the settings in the grid, at least one; scikit-learn's errors are not ours."""
        try:
            found = list(ParameterGrid(self.param_grid))
        except (TypeError, ValueError):
            found = []
        if not found:
            raise InvalidInputError(
                "Expected param_grid to name parameters, each with a list of one or more values to try, such "
                "as {'max_iter': [10, 30]}; it holds no candidate."
            )
        return found

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

    def score(self, X: Any, y: Any = None) -> float:
        """Score the best estimator on other data; one with a schema takes y from the table."""
        check_is_fitted(self)
        return float(self.best_estimator_.score(*((X,) if y is None else (X, y))))
