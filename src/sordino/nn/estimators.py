"""Neural networks with the scikit-learn API."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, Self

import numpy as np
import torch
from scipy import sparse
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from sordino.checks import check_data, declared_bound
from sordino.errors import InvalidInputError
from sordino.execute import GroupedExecutor, LocalExecutor, executor_of
from sordino.execute.persons import Owners
from sordino.kernel import public_generator
from sordino.kernel.arrays import Floats
from sordino.kernel.clip.tensors import row_factors
from sordino.nn.data import single, source_of
from sordino.nn.solvers import noise_rate
from sordino.nn.trainer import Trainer, trainer_of
from sordino.private_estimator import (
    Budget,
    PrivateEstimator,
    Scored,
    Tabular,
    center_targets,
    declared_rows,
    declared_target,
    encoded_labels,
    target_bound,
    target_fact,
)
from sordino.problems.losses import LOSSES, Loss, label_targets
from sordino.problems.problem import Problem
from sordino.runs import Ask, Task, composed
from sordino.runs.report import Booked
from sordino.solvers import Options, make_solver
from sordino.solvers.base import LinearFit
from sordino.solvers.updates import HardThreshold
from sordino.values import check_count, check_positive

_BLOCK = 4096
# The network on a table corrects a linear model. Of the budget (squares of epsilon add up) it gets at most
# this share, from so many records times epsilon on, and below in proportion to their square; then the noise
# above which its rate falls fast, so that a network that cannot learn does no harm. Chosen on Computers,
# SLID, OFP and made designs; docs/tables.md has all.
_SHARE, _ENOUGH, _QUIET = 0.4, 4e4, 0.004
_COLUMN_SCALE = 2.0  # encoded columns are shares of one
_OF_TRAINERS = (
    "epsilon", "delta", "optimizer", "smoothing", "relation", "rows_per_person", "ledger", "dataset_id",
    "device", "verbose",
)  # fmt: skip
_INTERCEPT = 0.25  # the intercept column of the linear model, in units of the row bound


@dataclass(eq=False, repr=False, kw_only=True)
class _Parameters(Budget):
    """The parameters of the neural estimators."""

    module: Callable[[int, int], nn.Module] | None = None
    hidden: int = 32
    optimizer: str = "sgd"
    learning_rate: float | None = None
    batch_size: int | None = None
    max_iter: int | None = None
    clip_norm: float | None = None
    smoothing: float | None = None
    n_nonzero_coefs: int | None = None
    data_norm: float | None = None
    relation: str = "add-remove"
    ledger: Any = None
    dataset_id: str | None = None
    rows_per_person: int | None = None
    schema: Any = None
    device: str | None = None
    trainer_options: dict[str, Any] | None = None
    random_state: Any = None
    verbose: int = 0


class _Neural(_Parameters, Tabular, PrivateEstimator):
    """What the neural estimators share: a module from public facts, a trainer, predictions."""

    module_: nn.Module
    n_iter_: int
    coef_: Floats
    intercept_: Floats

    # targets for the network, the number of its outputs, its loss, and a public fact
    _learnable: Callable[[Any], tuple[np.ndarray, int, Any, str]]
    # the loss of the linear model, how many margins it has, and its targets
    _linear_targets: Callable[[np.ndarray, int], tuple[Loss, int, np.ndarray]]

    @property
    def _curved_tables(self) -> bool:  # type: ignore[override]
        return self.module is None

    @property
    def _dense_tables(self) -> bool:  # type: ignore[override]
        return self.module is not None

    @property
    def _exact_noise(self) -> bool:
        return bool((self.trainer_options or {}).get("secure_noise", False))

    @property
    def _corrects(self) -> bool:
        """Whether the network corrects a linear model of the table: the default there."""
        return self.schema is not None and self.module is None

    def fit(self, X: Any, y: Any = None, *, groups: Any = None) -> Self:
        """Fit the network; the budget is spent here.

        With a schema, X is a table, and y and ``groups`` come from its target and person columns. Most of
        the budget then goes to a linear model with curves and pairs, which the network corrects: ``coef_``
        and ``intercept_``, with targets in units of their bound. With ``groups``, the owner of each row, the
        unit of privacy is a person: the gradients of a person's rows are added up and clipped together,
        persons are sampled, and ``batch_size`` counts persons.
        """
        X, y, groups = self._read_table(X, y, groups)
        X, y = check_data(self, X, y, y_numeric=isinstance(self, RegressorMixin))
        targets, outputs, loss, said = self._learnable(y)
        units = X.shape[0] if groups is None else Owners.of(groups, X.shape[0]).persons
        trainer = self._trainer(self._network(X.shape[1], outputs), loss, units, said)
        if self._corrects:
            return self._fit_correction(trainer, X, targets, outputs, groups, units)
        rows = self._clip_rows(X)
        trained = trainer.fit(rows, torch.from_numpy(targets), groups=groups)
        self.module_, self.privacy_, self.n_iter_ = trained.model, trained.privacy, trained.steps
        return self._attested()

    def _fit_correction(
        self, trainer: Trainer, X: Any, targets: np.ndarray, outputs: int, groups: Any, units: int
    ) -> Self:
        """Fit the linear model, then the network on its errors; both certified together.

        The trainer is prepared, and both prices are known, before anything is booked.

        **Privacy.** Two runs on the same records, whose events are composed: the report certifies them now.
        """
        ask = self._ask(units).require_number("A network on a table")
        ask = replace(ask, learned=ask.find_paid(self._schema_prices()))
        share = _correction_share(units, ask.epsilon / declared_rows(self))
        first = replace(ask, epsilon=ask.epsilon * math.sqrt(1.0 - share))
        task, rows = self._linear(X, targets, outputs, first, groups)
        inputs = torch.cat([torch.zeros(X.shape[0], outputs), self._columns(X)], dim=1)
        made = trainer._prepare(source_of(inputs, torch.from_numpy(targets)).with_owners(groups))
        spent, plan = first.calibrated(task.plan()), made.solver.plan(made.task)
        second = ask.left_after(spent, plan)
        problem: Problem = task.setting
        free: dict[str, Any] = {"ledger": None, "dataset_id": None}
        booked = str(Booked(type(self).__name__, most=self.rows_per_person or 0))
        with ask.booked([spent, replace(ask, epsilon=second).calibrated(plan)], booked):
            n_iter = self._run(task, rows, replace(first, **free))
            inputs[:, :outputs] = self._margins(X, problem.data_norm)
            trainer = replace(trainer, epsilon=second, delta=ask.delta, learned=ask.learned, **free)
            trained = trainer.fit(inputs, torch.from_numpy(targets), groups=groups)
        self.module_, self.n_iter_ = trained.model, n_iter + trained.steps
        parts = [("linear model", self.privacy_), ("network", trained.privacy)]
        self.privacy_ = composed(parts, ask.delta, within=ask.epsilon)
        return self._attested()

    def _linear(self, X: Any, targets: np.ndarray, outputs: int, ask: Ask, groups: Any) -> tuple[Task, Any]:
        """Return the task of the linear model that the network corrects, and its rows."""
        bound, basis = declared_bound(self, "data_norm"), self.encoder_.basis
        intercept = _INTERCEPT * bound
        loss, margins, values = self._linear_targets(targets, outputs)
        rows = executor_of(X, values, bound, intercept)
        rows = rows if groups is None else GroupedExecutor(rows, groups)
        problem = Problem(
            loss,
            rows.population,
            X.shape[1],
            **self._shared_facts(ask, groups is not None),
            outputs=margins,
            data_norm=bound,
            intercept=intercept,
            ridge=0.0 if basis is None else basis.ridge,
            table=basis is not None,
            lines=() if basis is None else self.encoder_.lines,
            free=() if basis is None else self.encoder_.free,
        )
        solver = make_solver("auto" if groups is None else "gd", problem, Options())
        public, name = self._facts(problem, groups is not None), f"{type(self).__name__} (linear model)"
        return Task(solver, problem, name, public=public, finish=partial(_coefficients, problem)), rows

    def _margins(self, X: Any, bound: float) -> Tensor:
        """Return what the linear model says of encoded rows, one column for each output of the network."""
        found = LocalExecutor(X, None, bound).records(None).margins(np.atleast_2d(self.coef_))
        found = found + self.intercept_
        if hasattr(self, "classes_") and found.shape[1] == 1:
            found = np.column_stack([-0.5 * found, 0.5 * found])
        return torch.from_numpy(np.ascontiguousarray(found)).float()

    def _columns(self, X: Any) -> Tensor:
        """Return the columns that the network sees: those of single columns of the table."""
        part = X[:, self.encoder_.alone]
        part = part.toarray() if sparse.issparse(part) else part
        return torch.from_numpy(np.ascontiguousarray(part)).float()

    def _trainer(self, model: nn.Module, loss: Any, population: int, said: str) -> Trainer:
        batch = check_count("batch_size", self.batch_size, 1, None, "It is the expected number.")
        steps = check_count("max_iter", self.max_iter, 1, None, "Each iteration is a paid release.")
        kept = check_count("n_nonzero_coefs", self.n_nonzero_coefs, 1, None, "None keeps all.")
        settings: dict[str, Any] = {name: getattr(self, name) for name in _OF_TRAINERS} | {
            "learning_rate": self._rate(model, population),
            "batch_size": max(64, population // 16) if batch is None else batch,
            "steps": 200 if steps is None else steps,
            "clip_norm": self._clip(),
            "projection": None if kept is None else HardThreshold(kept, after=0.5),
            "average": 0.9,
            "public": (said, *self._schema_facts()),
            "learned": self._schema_prices(),
        }
        more = self.trainer_options or {}
        if own := sorted(set(_OF_TRAINERS) & set(more)):
            raise InvalidInputError(f"Expected {own[0]} outside of trainer_options: pass {own[0]}= itself.")
        return trainer_of(model, loss, settings | more)

    def _clip(self) -> float:
        """Return the clip of a record's gradient."""
        if self.clip_norm is None:
            return 1.0
        return check_positive("clip_norm", self.clip_norm, "It bounds a record's gradient.")

    def _rate(self, model: nn.Module, population: int) -> float | None:
        """Return the learning rate: what was asked, or for plain descent one that falls with the noise."""
        if self.learning_rate is not None or self.optimizer != "sgd":
            return self.learning_rate
        if not isinstance(self.epsilon, Real) or not self.epsilon > 0:
            return None  # the trainer refuses it
        weights = sum(p.numel() for p in model.parameters() if p.requires_grad)
        epsilon = float(self.epsilon) / declared_rows(self)
        if not self._corrects:
            return noise_rate(population, epsilon, weights, self._clip())
        epsilon *= math.sqrt(_correction_share(population, epsilon))
        noise = 4.0 * math.sqrt(weights) / (population * epsilon)
        quiet = min(1.0, _QUIET / noise) ** 2 if noise else 1.0
        return quiet * noise_rate(population, epsilon, weights, self._clip())

    def _network(self, features: int, outputs: int) -> nn.Module:
        if self.module is not None:
            return self.module(features, outputs)
        hidden = check_count("hidden", self.hidden, 1, None, "It is the width of the hidden layer.")
        assert hidden is not None
        if self._corrects:
            deep = perceptron(self.encoder_.alone.size, hidden, outputs, self.random_state)
            return Correction(deep, outputs)
        return perceptron(features, hidden, outputs, self.random_state)

    def _clip_rows(self, X: Any) -> Tensor:
        """Return the rows, clipped to ``data_norm`` and in units of it where one is given.

        A row at the bound then has norm sqrt(features), as one of standardised columns has, so that neither
        the unit of the data nor that of the initial weights matters. No row looks at another.
        """
        if sparse.issparse(X):
            raise InvalidInputError("Expected a dense array, got a sparse matrix. Pass X.toarray().")
        rows = single(torch.from_numpy(np.require(X, requirements=("C", "W")))).float()
        if self.data_norm is None and self.schema is None:
            return rows
        bound = declared_bound(self, "data_norm")
        unit = math.sqrt(rows.shape[1]) / bound
        return rows * (row_factors(rows, bound) * unit)[:, None]

    def _outputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = check_data(self, self._rows(X), reset=False)
        if self._corrects:
            rows = torch.cat([self._margins(X, declared_bound(self, "data_norm")), self._columns(X)], dim=1)
        else:
            rows = self._clip_rows(X)
        device = next(self.module_.parameters()).device
        self.module_.eval()
        with torch.no_grad():
            parts = [self.module_(block.to(device)).cpu() for block in rows.split(_BLOCK)]
        return torch.cat(parts).nan_to_num(nan=math.nan).double().numpy()  # finite: infinities would warn


@dataclass(eq=False, repr=False, kw_only=True)
class _Labels(_Parameters):
    classes: Any = None


class NeuralClassifier(_Labels, Scored, ClassifierMixin, _Neural):
    """A neural network classifier under differential privacy.

    Parameters
    ----------
    epsilon, delta : the budget; delta None means ``min(1e-5, 1 / (10 n))``.
    module : makes the network from (features, classes); None is one hidden layer with tanh, which on a table
        corrects a linear model with curves and pairs: most of the budget goes to that one.
    hidden : the width of that layer.
    optimizer, smoothing : see :class:`sordino.nn.Trainer`.
    clip_norm : the norm to which the gradient of a record is clipped; None is 1, which no gradient of a
        correction exceeds: less would favour the labels that most records have.
    learning_rate : None lets a rule on n, epsilon and the number of weights choose that of ``"sgd"``.
    batch_size, max_iter : expected batch size (None: a sixteenth of the records, 64 at least) and steps.
    n_nonzero_coefs : how many weights of the network survive; None keeps all.
    data_norm : rows are clipped to this norm and measured in units of it; None leaves them as they are, and
        then columns should be of size 1. Gradients are clipped anyway.
    classes : the labels; None takes those seen, which the report lists as assumed public.
    schema : a :class:`sordino.Schema`: then ``fit`` and ``predict`` take tables, and labels or targets, their
        bounds and ``data_norm`` are what it declares.
    relation, rows_per_person, ledger, dataset_id, device, verbose : as in :class:`sordino.nn.Trainer`.
    trainer_options : any other setting of :class:`sordino.nn.Trainer`.
    random_state : seeds the initial weights only, never the noise.

    Attributes
    ----------
    module_, classes_, privacy_, n_iter_, n_features_in_
    coef_, intercept_ : of a table, the linear model that the network corrects.

    **Privacy.** ``module_`` is (epsilon, delta)-DP for one record; see ``privacy_``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sordino.nn import NeuralClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> NeuralClassifier(epsilon=5.0, delta=1e-3, max_iter=20).fit(X, y).predict(X).shape
    (150,)
    """

    classes_: np.ndarray

    def _learnable(self, y: Any) -> tuple[np.ndarray, int, Any, str]:
        codes, self.classes_, said = encoded_labels(self, y)
        loss = even_entropy if self._corrects else nn.CrossEntropyLoss()
        return codes.astype(np.int64), self.classes_.size, loss, said

    def _linear_targets(self, targets: np.ndarray, outputs: int) -> tuple[Loss, int, np.ndarray]:
        values = label_targets(targets, outputs)
        return (LOSSES["logistic"], 1, values) if outputs == 2 else (LOSSES["multinomial"], outputs, values)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores of the classes; their difference when there are two."""
        scores = self._outputs(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the class probabilities."""
        return softmax(self._outputs(X), axis=1)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithm of the class probabilities."""
        return log_softmax(self._outputs(X), axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """Return the most likely class."""
        best = np.argmax(self._outputs(X), axis=1)
        return self.classes_[best]


@dataclass(eq=False, repr=False, kw_only=True)
class _Numbers(_Parameters):
    target_bound: float | None = None


class NeuralRegressor(_Numbers, Scored, RegressorMixin, _Neural):
    """A neural network regressor under differential privacy.

    Minimises half the squared error of targets clipped to ``[-target_bound, target_bound]``, in units of
    that public bound; None is 1, and says so once. Other parameters as in :class:`NeuralClassifier`.

    **Privacy.** ``module_`` is (epsilon, delta)-DP for one record; see ``privacy_``.
    """

    target_bound_: float
    target_middle_: float

    def _learnable(self, y: Any) -> tuple[np.ndarray, int, Any, str]:
        target = declared_target(self)
        bound = self.target_bound_ = target_bound(self, target, middle=True)
        y, self.target_middle_ = center_targets(target, y.astype(np.float64), middle=True)
        targets = np.clip(y / bound, -1, 1).astype(np.float32)
        loss = even_squares if self._corrects else half_squared
        return targets[:, None], 1, loss, target_fact(self, bound, middle=True)

    def _linear_targets(self, targets: np.ndarray, outputs: int) -> tuple[Loss, int, np.ndarray]:
        return LOSSES["squared"], 1, targets[:, 0].astype(np.float64)

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted targets; of a table, within their declared bounds."""
        outputs = self._outputs(X)[:, 0]
        outputs = np.clip(outputs, -1.0, 1.0) if self._corrects else outputs
        return outputs * self.target_bound_ + self.target_middle_


class Correction(nn.Module):
    """A network whose answer is added to the first inputs, the margins of a model; at first it is zero.

    The slope of a record is divided by the norm of the derivatives of its answer by all weights. The label
    has no part in that, so what is learned from many records has the same root, and the gradient of a record
    is at most the slope of its loss: with :func:`even_entropy` or :func:`even_squares` at most one.
    """

    def __init__(self, deep: nn.Sequential, outputs: int) -> None:
        super().__init__()
        self.deep, self.outputs = deep, outputs
        with torch.no_grad():
            deep[-1].weight.zero_()

    def forward(self, rows: Tensor) -> Tensor:
        """Return the margins and what the network adds."""
        inputs = _COLUMN_SCALE * rows[..., self.outputs :]
        first, bend, last = self.deep
        hidden = bend(first(inputs))
        added: Tensor = last(hidden)
        if torch.is_grad_enabled():
            h, x, fixed = hidden.detach(), inputs.detach(), added.detach()
            slopes = (1.0 - h.square()).square() @ last.weight.detach().square().sum(0)
            squares = 1.0 + h.square().sum(-1) + slopes * (1.0 + x.square().sum(-1))
            added = fixed + (added - fixed) / squares.sqrt()[..., None]
        return rows[..., : self.outputs] + added


def even_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy over the norm of the slope that the worst label of the record would have.

    Slopes ``(p - e_y) / max_k |p - e_k|`` are at most one, and zero in the mean where p are the true shares:
    a clip of one changes nothing. A smaller one cuts the slopes of rare labels, and p leans to frequent ones.
    """
    shares = outputs.detach().softmax(1)
    worst = (shares.square().sum(1, keepdim=True) - 2.0 * shares + 1.0).amax(1).sqrt()
    return (nn.functional.cross_entropy(outputs, targets, reduction="none") / worst).sum()


def even_squares(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return half the squared error over the slope of the worst target in [-1, 1]: slopes are at most one."""
    return (0.5 * (outputs - targets).square() / (1.0 + outputs.detach().abs())).sum()


def _correction_share(units: int, epsilon: float) -> float:
    """Return the share of the budget that the network gets, by public numbers."""
    return _SHARE * min(1.0, units * min(epsilon, 4.0) / _ENOUGH) ** 2


def _coefficients(problem: Problem, last: Any) -> dict[str, Any]:
    found = LinearFit.of(last, problem)
    return {"coef_": np.atleast_2d(found.coef), "intercept_": np.atleast_1d(found.intercept)}


def half_squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return 0.5 * (outputs - targets).square().sum()


def perceptron(features: int, hidden: int, outputs: int, random_state: Any = None) -> nn.Sequential:
    """Return one hidden layer with tanh, its weights drawn from ``random_state``."""
    if features < 1:
        raise InvalidInputError(f"Expected at least one feature, got {features}.")
    public = public_generator(random_state)
    model = nn.Sequential(nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, outputs))
    with torch.no_grad():
        for layer in (model[0], model[2]):
            reach = 1.0 / math.sqrt(layer.in_features)
            drawn = public.uniform(-reach, reach, size=tuple(layer.weight.shape))
            layer.weight.copy_(torch.from_numpy(drawn))
            layer.bias.zero_()
    return model
