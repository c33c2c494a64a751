"""Neural networks with the scikit-learn API."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from scipy import sparse
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from sordino.checks import bound_fact, check_data, declared_bound, remember
from sordino.errors import InvalidInputError
from sordino.execute.persons import Owners
from sordino.kernel import public_generator
from sordino.kernel.clip.tensors import row_factors
from sordino.nn.data import single
from sordino.nn.solvers import noise_rate
from sordino.nn.trainer import Trainer
from sordino.private_estimator import (
    PrivateEstimator,
    Scored,
    Tabular,
    centred,
    declared_target,
    encoded_labels,
    target_bound,
)
from sordino.solvers.updates import HardThreshold
from sordino.values import check_count, check_positive

_BLOCK = 4096


class _Neural(Tabular, PrivateEstimator):
    """What the neural estimators share: a module from public facts, a trainer, predictions."""

    _dense_tables: ClassVar[bool] = True

    module: Callable[[int, int], nn.Module] | None
    hidden: int
    optimizer: str
    learning_rate: float | None
    batch_size: int | None
    max_iter: int | None
    clip_norm: float
    smoothing: float | None
    n_nonzero_coefs: int | None
    data_norm: float | None
    device: str | None
    trainer_options: dict[str, Any] | None
    random_state: Any
    verbose: int
    module_: nn.Module
    n_iter_: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.non_deterministic = True
        return tags

    def fit(self, X: Any, y: Any = None, *, groups: Any = None) -> Self:
        """Fit the network; the budget is spent here.

        With a schema, X is a table, and y and ``groups`` come from its target and person columns. With
        ``groups``, the owner of each row, the unit of privacy is a person: the gradients of a person's rows
        are added up and clipped together, persons are sampled, and ``batch_size`` counts persons.
        """
        X, y, groups = self._tabled(X, y, groups)
        X, y = check_data(self, X, y, y_numeric=isinstance(self, RegressorMixin))
        targets, outputs, loss, said = self._learnable(y)
        rows = self._bounded(_dense(X))
        units = len(rows) if groups is None else Owners.of(groups, len(rows)).persons
        trainer = self._trainer(self._network(X.shape[1], outputs), loss, units, said)
        trained = trainer.fit(rows, torch.from_numpy(targets), groups=groups)
        self.module_, self.privacy_, self.n_iter_ = trained.model, trained.privacy, trained.steps
        return self

    def _learnable(self, y: Any) -> tuple[np.ndarray, int, Any, str]:
        """Return targets for the network, the number of its outputs, its loss, and a public fact."""
        raise NotImplementedError

    def _trainer(self, model: nn.Module, loss: Any, population: int, said: str) -> Trainer:
        batch = check_count("batch_size", self.batch_size, 1, None, "It is the expected number.")
        steps = check_count("max_iter", self.max_iter, 1, None, "Each iteration is a paid release.")
        kept = check_count("n_nonzero_coefs", self.n_nonzero_coefs, 1, None, "None keeps all.")
        settings: dict[str, Any] = {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "optimizer": self.optimizer,
            "learning_rate": self._rate(model, population),
            "batch_size": max(64, population // 16) if batch is None else batch,
            "steps": 200 if steps is None else steps,
            "clip_norm": check_positive("clip_norm", self.clip_norm, "It bounds a record's gradient."),
            "smoothing": self.smoothing,
            "projection": None if kept is None else HardThreshold(kept, after=0.5),
            "average": 0.9,
            "relation": self.relation,
            "ledger": self.ledger,
            "dataset_id": self.dataset_id,
            "device": self.device,
            "public": (said, *self._schema_facts()),
            "learned": self._schema_prices(),
            "verbose": self.verbose,
        }
        return Trainer(model, loss, **(settings | (self.trainer_options or {})))

    def _rate(self, model: nn.Module, population: int) -> float | None:
        """Return the learning rate: the asked one, or for plain descent one that falls with the noise.

        Other optimisers scale their steps themselves.
        """
        if self.learning_rate is not None or self.optimizer != "sgd":
            return self.learning_rate
        if not isinstance(self.epsilon, Real) or not self.epsilon > 0:
            return None  # the trainer refuses it
        weights = sum(p.numel() for p in model.parameters() if p.requires_grad)
        clip = check_positive("clip_norm", self.clip_norm, "It bounds a record's gradient.")
        return noise_rate(population, float(self.epsilon), weights, clip)

    def _network(self, features: int, outputs: int) -> nn.Module:
        if self.module is not None:
            return self.module(features, outputs)
        hidden = check_count("hidden", self.hidden, 1, None, "It is the width of the hidden layer.")
        assert hidden is not None
        return perceptron(features, hidden, outputs, self.random_state)

    def _bounded(self, X: np.ndarray) -> Tensor:
        """Return the rows, clipped to ``data_norm`` and in units of it where one is given.

        A row at the bound then has norm sqrt(features), as one of standardised columns has, so that neither
        the unit of the data nor that of the initial weights matters. No row looks at another.
        """
        rows = single(torch.from_numpy(np.require(X, requirements=("C", "W")))).float()
        if self.data_norm is None and self.schema is None:
            return rows
        bound = declared_bound(self, "data_norm")
        unit = math.sqrt(rows.shape[1]) / bound
        return rows * (row_factors(rows, bound) * unit)[:, None]

    def _outputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        rows = self._bounded(_dense(check_data(self, self._rows(X), reset=False)))
        device = next(self.module_.parameters()).device
        self.module_.eval()
        with torch.no_grad():
            parts = [self.module_(block.to(device)).cpu() for block in rows.split(_BLOCK)]
        return torch.cat(parts).nan_to_num(nan=math.nan).double().numpy()  # finite: infinities would warn


class NeuralClassifier(Scored, ClassifierMixin, _Neural):
    """A neural network classifier under differential privacy.

    Parameters
    ----------
    epsilon, delta : the budget; delta None means ``min(1e-5, 1 / (10 n))``.
    module : makes the network from (features, classes); None is one hidden layer with tanh.
    hidden : the width of that layer.
    optimizer, clip_norm, smoothing : see :class:`sordino.nn.Trainer`.
    learning_rate : None lets a rule on n, epsilon and the number of weights choose that of ``"sgd"``.
    batch_size, max_iter : expected batch size (None: a sixteenth of the records, 64 at least) and steps.
    n_nonzero_coefs : how many weights of the network survive; None keeps all.
    data_norm : rows are clipped to this norm and measured in units of it; None leaves them as they are, and
        then columns should be of size 1. Gradients are clipped anyway.
    classes : the labels; None takes those seen, which the report lists as assumed public.
    schema : a :class:`sordino.Schema`: then ``fit`` and ``predict`` take tables, and labels or targets, their
        bounds and ``data_norm`` are what it declares.
    relation, ledger, dataset_id, device, verbose : as in :class:`sordino.nn.Trainer`.
    trainer_options : any other setting of :class:`sordino.nn.Trainer`.
    random_state : seeds the initial weights only, never the noise.

    Attributes
    ----------
    module_, classes_, privacy_, n_iter_, n_features_in_

    **Privacy.** ``module_`` is (epsilon, delta)-DP for one record; see ``privacy_``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sordino.nn import NeuralClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> NeuralClassifier(epsilon=5.0, delta=1e-3, max_iter=20).fit(X, y).predict(X).shape
    (150,)
    """

    classes: Any
    classes_: np.ndarray

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        module: Callable[[int, int], nn.Module] | None = None,
        hidden: int = 32,
        optimizer: str = "sgd",
        learning_rate: float | None = None,
        batch_size: int | None = None,
        max_iter: int | None = None,
        clip_norm: float = 1.0,
        smoothing: float | None = None,
        n_nonzero_coefs: int | None = None,
        data_norm: float | None = None,
        classes: Any = None,
        relation: str = "add-remove",
        ledger: Any = None,
        dataset_id: str | None = None,
        schema: Any = None,
        device: str | None = None,
        trainer_options: dict[str, Any] | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        remember(self, locals())

    def _learnable(self, y: Any) -> tuple[np.ndarray, int, Any, str]:
        codes, self.classes_, said = encoded_labels(self, y)
        return codes.astype(np.int64), self.classes_.size, nn.CrossEntropyLoss(), said

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


class NeuralRegressor(Scored, RegressorMixin, _Neural):
    """A neural network regressor under differential privacy.

    Minimises half the squared error of targets clipped to ``[-target_bound, target_bound]``, in units of
    that public bound; None is 1, and says so once. Other parameters as in :class:`NeuralClassifier`.

    **Privacy.** ``module_`` is (epsilon, delta)-DP for one record; see ``privacy_``.
    """

    target_bound: float | None
    target_bound_: float
    target_middle_: float

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        module: Callable[[int, int], nn.Module] | None = None,
        hidden: int = 32,
        optimizer: str = "sgd",
        learning_rate: float | None = None,
        batch_size: int | None = None,
        max_iter: int | None = None,
        clip_norm: float = 1.0,
        smoothing: float | None = None,
        n_nonzero_coefs: int | None = None,
        data_norm: float | None = None,
        target_bound: float | None = None,
        relation: str = "add-remove",
        ledger: Any = None,
        dataset_id: str | None = None,
        schema: Any = None,
        device: str | None = None,
        trainer_options: dict[str, Any] | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        remember(self, locals())

    def _learnable(self, y: Any) -> tuple[np.ndarray, int, Any, str]:
        target = declared_target(self)
        bound = self.target_bound_ = target_bound(self, target, middle=True)
        y, self.target_middle_ = centred(target, y.astype(np.float64), middle=True)
        targets = np.clip(y / bound, -1, 1).astype(np.float32)
        fact = bound_fact("target_bound", bound, self._declared("target_bound"), "targets are clipped to it")
        return targets[:, None], 1, half_squared, fact

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted targets."""
        outputs = self._outputs(X)[:, 0]
        return outputs * self.target_bound_ + self.target_middle_


def _dense(X: Any) -> np.ndarray:
    if sparse.issparse(X):
        raise InvalidInputError("Expected a dense array, got a sparse matrix. Pass X.toarray().")
    return X


def half_squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return 0.5 * (outputs - targets).square().sum()


def perceptron(features: int, hidden: int, outputs: int, random_state: Any = None) -> nn.Module:
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
