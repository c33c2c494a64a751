"""Private model selection."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import MetaEstimatorMixin, clone, is_classifier
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sordino.checks import DECLARED_LABELS, SEEN_LABELS, check_data, declared_bound, encode_labels, remember
from sordino.errors import InvalidInputError, UndeclaredBoundWarning, UnsupportedError
from sordino.estimators import pipeline
from sordino.estimators.metrics import METRICS, MetricRow, ScoreLimits, find_metric, judge
from sordino.estimators.pipeline import final_step, rows_of, schema_of
from sordino.execute.persons import mean_of_owners, number_owners
from sordino.kernel import Relation, public_generator
from sordino.kernel.arrays import Floats, Ints
from sordino.private_estimator import PrivateEstimator
from sordino.runs import Ask, BestOf, ChooseThenFit, Price
from sordino.runs.report import Fact
from sordino.runs.search import Trial
from sordino.saving.files import attest
from sordino.tables import Schema
from sordino.values import check_number, check_positive, refusing

_QUIET = {"ledger": None, "dataset_id": None, "verbose": 0}  # each would tell the number of trials
OWN = ("epsilon", "delta", "relation", "ledger", "dataset_id", "rows_per_person", "verbose")
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
    def schema(self) -> Schema | None:
        """The schema of the tables it takes; None where it takes rows."""
        return schema_of(self.estimator)

    @property
    def weighs(self) -> bool:
        """Whether a table says how much its records count; in scores they count alike."""
        return self.schema is not None and bool(self.schema.weighing)

    def prices(self, grid: Sequence[dict[str, Any]]) -> tuple[Price, ...]:
        """Return what was paid for the schemas of all candidates: the choice among them rests on each."""
        inside = (value for _, value in self._inside(grid))
        return pipeline.prices_for([*(value for params in grid for value in params.values()), *inside])

    def _inside(self, grid: Sequence[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
        """Yield the parameters of the estimator and of the estimators that are tried, with their names."""
        for value in (self.estimator, *(value for params in grid for value in params.values())):
            if hasattr(value, "get_params") and not isinstance(value, type):
                yield from value.get_params().items()

    def refuse_ledgers(self, grid: Sequence[dict[str, Any]]) -> None:
        """Refuse a candidate with a ledger of its own, for a search that has none: nobody would book."""
        for name, value in self._inside(grid):
            if value is not None and name.rpartition("__")[2] == "ledger":
                raise InvalidInputError(
                    f"Expected {name}=None in what a search without a ledger tries, got a ledger: the search "
                    "pays, so nothing would be booked there. Pass ledger= and dataset_id= to "
                    "PrivateSearchCV instead."
                )

    def check(self) -> None:
        """Refuse what has no private step, cannot predict, or reads the records without paying."""
        paid = [step for _, step in paid_steps("", self.estimator)]
        if not hasattr(final_step(self.estimator), "predict") or not paid:
            raise UnsupportedError(
                "PrivateSearchCV needs a private classifier or regressor with an epsilon that it can set, or "
                f"a pipeline with one at its end, got a {type(self.estimator).__name__}."
            )
        if any(getattr(step, "rows_per_person", None) is not None for step in paid):
            raise UnsupportedError(
                "A search cannot keep the rows of a person together whom nobody knows: some would train and "
                "others judge. Set rows_per_person=None and pass groups, or fit without a search."
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
            final = final_step(self._set(params))
            shared: tuple[str, ...] = () if persons else getattr(final, "shared_params", tuple)()
            names = {f"{self._prefix}{name}" for name in shared}
            rest = frozenset((name, id(value)) for name, value in params.items() if name not in names)
            found.setdefault(rest if names else number, []).append(params)
        return list(found.values())

    def members(self, family: Sequence[dict[str, Any]], model: Any) -> list[Any]:
        """Return the model of each setting of a family, from the one fit of all of them."""
        if len(family) == 1:
            return [model]
        fit = final_step(model)
        finals = [fit.member(final_step(self._set(params))) for params in family]
        if not isinstance(model, Pipeline):
            return finals
        return [Pipeline([*model.steps[:-1], (model.steps[-1][0], final)]) for final in finals]

    def home(self, families: Sequence[Sequence[dict[str, Any]]]) -> tuple[int, int] | None:
        """Return where the estimator's own setting stands: its family and its place there; None elsewhere."""
        places = ((n, place) for n, family in enumerate(families) for place in range(len(family)))
        return next((home for home in places if self._is_own(families[home[0]][home[1]])), None)

    def _is_own(self, params: dict[str, Any]) -> bool:
        """Tell whether a setting changes nothing; no penalty and one of weight 0 are the same."""
        own, penalties = self.estimator.get_params(), [_penalties(final_step(self.estimator))]
        for name, value in params.items():
            if name == f"{self._prefix}alpha":
                penalties.append(_penalties(final_step(self._set(params))))
            elif not (
                own.get(name) is value or (isinstance(value, (int, float, str)) and own.get(name) == value)
            ):
                return False
        return penalties[0] == penalties[-1]

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

    def build(self, family: Sequence[dict[str, Any]], budget: Trial, labels: Any) -> Any:
        """Return a fresh model for all settings of a family, with a trial's budget, told all labels."""
        model = self._set(family[0])
        if len(family) > 1:
            final_step(model).widened([final_step(self._set(params)) for params in family])
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
            if labels is not None and "classes" in known and _is_open(known):
                own["classes"] = np.unique(labels)
            step.set_params(**{name: value for name, value in own.items() if name in known})
        return model

    def fit_params(self, owners: Any) -> dict[str, Any]:
        """Return what ``fit`` is told of the owners of rows; refuse a model that cannot protect them."""
        if owners is None or (self.schema is not None and self.schema.person is not None):
            return {}
        final = final_step(self.estimator)
        if "groups" not in inspect.signature(final.fit).parameters:
            raise InvalidInputError(
                f"{type(final).__name__} cannot protect persons. Choose another model, or leave groups "
                "out if a record is all of a person."
            )
        return {f"{self._prefix}groups": owners}

    def rehearse_steps(self, params: dict[str, Any], budget: Trial, X: Any, labels: Any) -> None:
        """Fit a pipeline on made-up rows: what is wrong with later steps is found before the search pays."""
        if not isinstance(self.estimator, Pipeline) or not hasattr(X, "dtype") or X.dtype.kind not in "biuf":
            return
        known = None if labels is None else np.unique(labels)
        rows = max(50, 2 * (0 if known is None else known.size))
        public = public_generator(0)
        made_up = public.uniform(0.0, 1.0, (rows, X.shape[1]))
        targets = public.uniform(0.0, 1.0, rows) if known is None else known[np.arange(rows) % known.size]
        model = self.build([params], budget, labels)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            warnings.simplefilter("default", UndeclaredBoundWarning)
            owned = self.fit_params(np.arange(rows) if budget.unit == "person" else None)
            budget.fitted(lambda: model.fit(made_up, targets, **owned), self.report)

    def open_classes(self, params: dict[str, Any]) -> bool:
        """Tell whether nobody declared the classes of a candidate."""
        return _is_open(final_step(self._set(params)).get_params(deep=False))

    def report(self, model: Any) -> Any:
        """Return the guarantee of a fitted candidate."""
        own = getattr(model, "privacy_", None)
        return own if own is not None else pipeline.pipeline_privacy(model, assume_public=self.assume_public)


def _is_open(known: dict[str, Any]) -> bool:
    return known.get("classes") is None and known.get("schema") is None


def _penalties(model: Any) -> dict[str, Any]:
    known: dict[str, Any] = getattr(model, "_penalties", dict)()
    return {name: value for name, value in known.items() if value}


def paid_steps(name: str, step: Any) -> Iterator[tuple[str, Any]]:
    """Yield the private steps of an estimator that is not fitted yet, with their names."""
    if hasattr(step, "get_params") and "epsilon" in step.get_params(deep=False):
        yield name, step
    elif isinstance(step, pipeline.CONTAINERS):
        for inner, child in pipeline.steps_of(step):
            yield from paid_steps(f"{name}__{inner}" if name else inner, child)


def unpaid_steps(name: str, step: Any, assumed: frozenset[str]) -> Iterator[str]:
    """Yield why steps would make a candidate not private, before it is fitted."""
    if step is None or isinstance(step, str) or name in assumed:
        return
    if type(step) in pipeline.CONTAINERS:
        for inner, child in pipeline.steps_of(step):
            yield from unpaid_steps(f"{name}__{inner}" if name else inner, child, assumed)
    elif "epsilon" not in getattr(step, "get_params", dict)(deep=False):
        function = type(step) is FunctionTransformer and not pipeline.mixes_step(step)
        if not (function or pipeline.keeps_nothing(step)):
            yield pipeline.reason(name or type(step).__name__, step)


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


# --------------------------------------- Scores of single records in [0, 1], which a private search adds up


@dataclass(frozen=True)
class Scorer:
    """One score per record, 1 for the best; ``natural`` returns their mean in the units of its name.

    Errors count up to the bound of the metric.
    """

    row: MetricRow
    limits: ScoreLimits
    sign: float

    def of(self, model: Any, X: Any, y: Any, owners: Any = None) -> Floats:
        """Return the score of each record, or the mean score of each owner; the release clips it to [0, 1].

        The scores of an owner's records are clipped before their mean, so that each has its share.
        """
        judged = judge(model, X, y, self.row.asks, lambda model, method, X, n: getattr(model, method)(X))
        scores = self.row.shares(judged, self.limits)
        if owners is None:
            return scores
        return mean_of_owners(np.clip(np.nan_to_num(scores, nan=0.0), 0.0, 1.0)[:, None], owners)[:, 0]

    def natural(self, score: float) -> float:
        """Return a mean score in the units of its name."""
        return self.sign * self.row.natural(score, self.limits)


def as_numbers(y: Any) -> Floats:
    """Return targets as finite doubles; the caller refuses what raises."""
    if y.dtype.kind not in "biufO":
        raise TypeError("could not convert")
    out = y.astype(float)
    if not np.isfinite(out).all():
        raise ValueError("y contains infinity")
    return out


WORTH = 0.05  # a difference of scores that is worth a search
FEWEST, MOST = 0.05, 0.2  # shares of the records that judge, where nobody sets one


def _least_difference(search: BestOf | ChooseThenFit) -> float:
    """Return how far two scores of one record have to be apart, by noise: two deviations."""
    return 2.0 * math.sqrt(2.0) * search.score_noise(1)


def _of_the_best(name: str, words: str) -> Any:
    """Return a method of the best estimator, where the estimator has it."""

    def method(self: Any, X: Any) -> Any:
        check_is_fitted(self)
        return getattr(self.best_estimator_, name)(X)

    method.__doc__, method.__name__ = words, name
    return available_if(lambda self: hasattr(self.estimator, name))(method)


class PrivateSearchCV(MetaEstimatorMixin, PrivateEstimator):
    r"""Choose parameters privately: try the candidates for little, then fit the best with all the rest.

    Each candidate is fitted on the training part and scored, with noise, on the validation part, all for a
    fifth of the squared budget. The best is fitted anew on all records with what is left: nearly 0.9 of
    epsilon. :meth:`outlook` says before how much that is, and what the scores can tell. The estimator's own
    setting, if it is in the grid, stays unless another is better by more than noise explains. Candidates of
    ``auto`` that differ in ``alpha`` or ``n_nonzero_coefs`` only are made of one fit, which is not repeated.

    Weights and exposures of a table count in the fits; in the scores records count alike.

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
    validation : the share of records (of persons), drawn by a public permutation, that scores the candidates;
        None takes as many as tell scores apart that differ by .05, from a twentieth to a fifth of all.
    scoring : a metric that is a mean over records, by its name or scikit-learn's: "accuracy", "log_loss"
        (losses clipped at 4), "mse", "mae" or "deviance" (clipped at the target bound). A name of
        scikit-learn that begins with ``neg_`` gives the negative. None is the accuracy of classifiers, and of
        regressors ``1 - min(1, (y - prediction)^2 / target_bound^2)``.
    target_bound : the largest error of a regressor that counts; None is half of the range that a schema
        declares, or 1, and says so once.
    assume_public : names of steps that you declare to use public data only.
    ledger, dataset_id : where the whole search is booked, once.
    random_state : seeds the public permutation, never noise.

    Attributes
    ----------
    best_estimator_, best_params_, privacy_, classes_
    scoring_ : what ``best_score_`` is: ``scoring``, or "accuracy" of classifiers and "mse" of regressors.
    best_score_ : the noisy score of the best candidate as it was fitted for the choice; fitted anew, with
        more records and more of the budget, it is as a rule better. Noise beyond the range is cut off.
    best_score_interval_ : its low and high end: at 95 % they hold its mean over the law behind the records.

    **Privacy.** ``best_estimator_`` and ``best_score_`` together are (epsilon, delta)-DP. A record is either
    in the training or in the validation part, so a trial costs the larger of the two, not their sum. With
    ``groups``, or a person column in the schema, a person is in one part with all records, is protected as a
    whole by the fit, and counts once in the score, with the mean over its records. Warnings
    and progress of the trials are not shown; with a ``distribution`` the run time tells their secret number.
    """

    best_estimator_: Any
    best_params_: dict[str, Any]
    best_score_: float
    scoring_: str
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
        validation: float | None = None,
        scoring: str | None = None,
        target_bound: float | None = None,
        assume_public: Sequence[str] = (),
        relation: str = "add-remove",
        ledger: Any = None,
        dataset_id: str | None = None,
        random_state: Any = None,
    ) -> None:
        remember(self, locals())

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type, tags.target_tags = inner.estimator_type, inner.target_tags
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.input_tags, tags.non_deterministic = inner.input_tags, True
        return tags

    def fit(self, X: Any, y: Any = None, *, groups: Any = None) -> PrivateSearchCV:
        """Search; the whole budget is spent here. With a schema, y and ``groups`` come from the table."""
        if not isinstance(self.assume_public, list | tuple | set | frozenset):
            raise InvalidInputError("Expected assume_public to be a list of the names of steps, got no list.")
        candidates = Candidates(self.estimator, tuple(self.assume_public))
        candidates.check()
        grid, classifier = self._grid(), is_classifier(self.estimator)
        if self.ledger is None:
            candidates.refuse_ledgers(grid)
        X, y, owners = self._records(candidates, X, y, groups, classifier)
        score = self._scorer(candidates, classifier)
        n, unit = (len(y), "record") if owners is None else (int(owners.max()) + 1, "person")
        families = self._families(candidates, grid, owners is not None)
        search = self._search(families, n, unit, candidates.prices(grid))
        judges = self._judges(n, search)
        train, test = self._split(n, judges, owners)
        labels, past, future = y if classifier else None, rows_of(X, train), rows_of(X, test)
        owned = candidates.fit_params(None if owners is None else owners[train])

        def told(rows: Any) -> Any:  # a table that weighs its records brings its targets along
            return None if candidates.weighs else y[rows]

        # Each candidate up to its first release, the drawn ones or not: what fails is not paid for, and what
        # warns (a bound that was not declared) is seen, for inside of a trial it is not.
        for params in grid:
            model = candidates.build([params], search.trial, labels)
            search.trial.rehearse(partial(model.fit, past, told(train), **owned))
            candidates.rehearse_steps(params, search.trial, X, labels)

        def fitted(budget: Trial, number: int, rows: Any, targets: Any, owned: Any) -> list[Any]:
            model = candidates.build(families[number], budget, labels)
            model = budget.fitted(lambda: model.fit(rows, targets, **owned), candidates.report)
            return candidates.members(families[number], model)

        def trial(budget: Trial, number: int) -> tuple[Floats, list[Any]]:
            models = fitted(budget, number, past, told(train), owned)
            judging = None if owners is None else owners[test]
            scores = [score.of(model, future, y[test], judging) for model in models]
            return budget.score(np.stack(scores, axis=1)), models

        whole = candidates.fit_params(owners)
        found, number, place, models = search.run(
            trial,
            lambda budget, number: fitted(budget, number, X, told(slice(None)), whole),
            "PrivateSearchCV",
            candidates.home(families) if self.distribution is None else None,
            _least_difference(search) / judges,
        )
        self.best_params_, self.best_estimator_ = families[number][place], models[place]
        ends = search.score_interval(found, judges)
        known = min(max(found, 0.0), 1.0)  # the mean of scores in [0, 1]: only noise leaves them
        self.best_score_, self.scoring_ = score.natural(known), self.scoring or score.row.name
        self.best_score_interval_ = tuple(sorted(map(score.natural, ends)))  # a small share is a large loss
        self._report(candidates, search, n, judges, classifier)
        if classifier:
            self.classes_ = self.best_estimator_.classes_
        if hasattr(self.best_estimator_, "n_features_in_"):  # texts and tables have no such number
            self.n_features_in_ = self.best_estimator_.n_features_in_
        return self

    def outlook(self, n: int, unit: str = "record") -> str:
        """Say what a search on n records (or persons: ``unit``) can tell apart, from public numbers."""
        families = self._families(Candidates(self.estimator), self._grid(), unit != "record")
        search = self._search(families, n, unit)
        judges = self._judges(n, search)
        seen = _least_difference(search) / judges
        needed = float(self.epsilon) * _least_difference(search) / (WORTH * (self.validation or MOST))
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
        ask.require_number("PrivateSearchCV")
        relation, members = Relation.parse(self.relation), max(len(family) for family in families)
        if self.distribution is None:
            return ChooseThenFit.of(ask, relation, len(families), members, unit)
        law = self.distribution, float(self.mean_trials)
        return BestOf.made(ask, relation, *law, len(families), members, unit)

    def _report(
        self, candidates: Candidates, search: BestOf | ChooseThenFit, n: int, judges: int, classifier: bool
    ) -> None:
        share = f"validation share {judges / n:.3g}, by a public permutation"
        # The trials were told the labels of all records; that is no declaration.
        seen = classifier and candidates.open_classes(self.best_params_)
        facts = (Fact.number_of(search.unit, n), "the grid", share, *((SEEN_LABELS,) if seen else ()))
        told = (DECLARED_LABELS,) if seen else ()
        self.privacy_ = search.report(candidates.report(self.best_estimator_), facts, instead_of=told)
        # A chosen model costs the whole search, and its ledger is told which model was released.
        for _, step in paid_steps("", self.best_estimator_):
            step.privacy_, step.ledger, step.dataset_id = self.privacy_, self.ledger, self.dataset_id
        attest(self.best_estimator_)

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
            if candidates.weighs:
                frame = schema.checked(X, target=True)
                for column in schema.wanted(target=True)[len(schema.features) :]:
                    features[column.name] = frame.column(column.name).array
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
            encode_labels(targets, getattr(final_step(candidates.estimator), "classes", None))
            return targets
        return refusing(lambda: as_numbers(targets), None, targets)

    def _split(self, n: int, judges: int, owners: Ints | None) -> tuple[Ints, Ints]:
        """Return the rows to train on and those to score on, whatever the order of the records or persons."""
        judging = np.zeros(n, dtype=bool)
        public = public_generator(self.random_state)
        judging[public.permutation(n)[n - judges :]] = True
        rows = judging if owners is None else judging[owners]
        return np.flatnonzero(~rows), np.flatnonzero(rows)

    def _scorer(self, candidates: Candidates, classifier: bool) -> Scorer:
        default = "accuracy" if classifier else "mse"
        row, sign = find_metric("scoring", self.scoring or default, self.estimator)
        if row.loss is None:
            known = [name for name, other in METRICS.items() if other.loss and other.numbers == row.numbers]
            raise InvalidInputError(f"Expected scoring in {known}, means over records, got {self.scoring!r}.")
        if row.asks == "chances" and not hasattr(self.estimator, "predict_proba"):
            raise UnsupportedError(f"scoring={self.scoring!r} needs an estimator with predict_proba.")
        target = None if candidates.schema is None else candidates.schema.target
        if classifier:
            declared = target.levels if target else getattr(final_step(self.estimator), "classes", None)
            return Scorer(row, ScoreLimits(classes=2 if declared is None else len(declared)), sign)
        if self.target_bound is None and target is not None and None not in (target.low, target.high):
            reach = (float(target.high) - float(target.low)) / 2.0  # type: ignore[arg-type]
        else:
            reach = declared_bound(self, "target_bound")
        return Scorer(row, ScoreLimits(reach=reach), sign)

    def _grid(self) -> list[dict[str, Any]]:
        """Return the settings in the grid, at least one; scikit-learn's errors are not ours."""
        try:
            grid = list(ParameterGrid(self.param_grid))
        except (TypeError, ValueError):
            grid = []
        if not grid:
            raise InvalidInputError(
                "Expected param_grid to name parameters, each with a list of one or more values to try, such "
                "as {'max_iter': [10, 30]}; it holds no candidate."
            )
        taken = {k for c in grid for k in c if k.rpartition("__")[2] in OWN}
        if taken:
            raise InvalidInputError(f"Expected a grid without {sorted(taken)}: they belong to the search.")
        return grid

    def _judges(self, n: int, search: BestOf | ChooseThenFit) -> int:
        """Return how many records judge."""
        share = min(max(_least_difference(search) / (WORTH * n), FEWEST), MOST)
        if self.validation is not None:
            share = check_number("validation", self.validation)
        if not 0 < share < 1 or not 1 <= round(share * n) < n:
            raise InvalidInputError(
                f"Expected validation in (0, 1) with at least one record on each side, got {share:g} of {n}."
            )
        return round(share * n)

    predict = _of_the_best("predict", "Predict with the best estimator.")
    predict_proba = _of_the_best("predict_proba", "Return the class probabilities of the best estimator.")
    decision_function = _of_the_best("decision_function", "Return the margins of the best estimator.")

    def score(self, X: Any, y: Any = None) -> float:
        """Score the best estimator on other data; one with a schema takes y from the table."""
        check_is_fitted(self)
        return float(self.best_estimator_.score(*((X,) if y is None else (X, y))))
