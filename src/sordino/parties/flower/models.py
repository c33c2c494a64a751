"""What a client learns: a model, its own records, and the gradient that is released."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from sordino.checks import check_data, encode_labels
from sordino.errors import InvalidInputError
from sordino.execute.local import LocalExecutor
from sordino.kernel import Curator, Executor, Full, Plan, Poisson, Relation, Release, Sampling
from sordino.problems.losses import LOSSES, label_targets
from sordino.problems.problem import Problem
from sordino.problems.queries import GlmGradient
from sordino.solvers.base import LinearFit
from sordino.solvers.steps import hard_threshold
from sordino.values import check_range, check_whole

# The keys of a Flower configuration, which has no None: 0 stands for it.
_KEYS = {
    "rounds": "rounds",
    "local-steps": "local_steps",
    "batch-size": "batch_size",
    "nonzero-weights": "sparsity",
    "step-size": "step_size",
    "clip-norm": "clip_norm",
    "decay": "decay",
    "relation": "relation",
}


@dataclass(frozen=True)
class FederatedRecipe:
    r"""The public numbers of DP-FedSGD-HT and its kin.

    Round: each client makes ``local_steps`` steps ``w_i <- H_k(w_i - step g_i)`` with noisy gradients of its
    own records, the server sets ``w <- H_k(sum_i p_i w_i)``.

    Parameters
    ----------
    rounds, local_steps : how many rounds, and how many noisy gradients a client releases in each.
    batch_size : the expected size of a client's Poisson batches (FedSGD); None looks at all of its records
        in each step (FedGD).
    sparsity : the number of weights that are not zero, k; None keeps all of them.
    step_size, decay : the step of round t is ``step_size * decay**(t - 1)``.
    clip_norm : the norm to which the gradient of each record is clipped.
    relation : which data sets are neighbours.

    Examples
    --------
    >>> recipe = FederatedRecipe(rounds=50, local_steps=10, batch_size=60, sparsity=100)
    >>> recipe.releases, recipe.sampling(6000)
    (500, Poisson(rate=0.01))
    """

    rounds: int
    local_steps: int = 10
    batch_size: int | None = None
    sparsity: int | None = None
    step_size: float = 0.1
    clip_norm: float = 1.0
    decay: float = 1.0
    relation: Relation = Relation.ADD_REMOVE

    def __post_init__(self) -> None:
        check_whole("rounds", self.rounds)
        check_whole("local_steps", self.local_steps)
        for name in ("batch_size", "sparsity"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name))
        for name, interval in (("step_size", "(0, inf)"), ("clip_norm", "(0, inf)"), ("decay", "(0, 1]")):
            check_range(name, getattr(self, name), interval)
        object.__setattr__(self, "relation", Relation.parse(self.relation))

    @property
    def releases(self) -> int:
        """The number of gradients each client pays for."""
        return self.rounds * self.local_steps

    def sampling(self, population: int) -> Sampling:
        """Return the batches of a client with this many records: rate b / n_i, or all of them."""
        if self.batch_size is None or self.batch_size >= population:
            return Full()
        return Poisson(self.batch_size / population)

    def step_of(self, attempt: int) -> float:
        """Return the step size of a client's round number ``attempt``, from 0."""
        return float(self.step_size * self.decay**attempt)

    def algorithm(self, private: bool = True) -> str:
        """Return the name of the algorithm in the literature."""
        return f"{'DP-' if private else ''}Fed{'GD' if self.batch_size is None else 'SGD'}-HT"

    @property
    def digest(self) -> str:
        """A fingerprint: client and server compare it before anything is released."""
        text = json.dumps({**asdict(self), "relation": self.relation.value}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_config(self) -> dict[str, Any]:
        """Return the numbers under the keys of a Flower configuration."""
        values = {key: getattr(self, name) for key, name in _KEYS.items()}
        values["relation"] = self.relation.value
        return {key: 0 if value is None else value for key, value in values.items()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_config` writes, say in ``[tool.flwr.app.config]``; other keys are ignored."""
        values = {name: config[key] for key, name in _KEYS.items() if key in config}
        for name in ("batch_size", "sparsity"):
            values[name] = values.get(name) or None
        return cls(**values)


Weights = NDArray[Any]


class LocalModel(Protocol):
    """A model beside the records of one client."""

    @property
    def executor(self) -> Executor:
        """Where the records are."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the weights, public."""

    def plan(self, recipe: FederatedRecipe) -> Plan:
        """Declare all gradients of the run; no record is looked at."""

    def steps(self, curator: Curator, weights: Weights, recipe: FederatedRecipe, step_size: float) -> Weights:
        """Make the local steps of one round and return the weights."""


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A generalised linear model, sparse data included.

    Parameters
    ----------
    matrix, targets : the records of this client.
    loss : a name of :data:`sordino.problems.losses.LOSSES`.
    outputs : 1, or the number of classes of the multinomial loss.
    classes : the labels of a loss of labels, declared: the same at all clients. By default -1 and 1, or the
        numbers of the classes. Records with others are refused.
    data_norm, intercept : rows are clipped to this norm; the constant of the intercept column, 0 for none.
    ridge : the weight of ``||w||^2 / 2``, added outside the clip.

    **Privacy.** The number of records, the columns and the classes are assumed public.
    """

    matrix: Any = field(repr=False)
    targets: Any = field(repr=False)
    loss: str = "logistic"
    outputs: int = 1
    data_norm: float = 1.0
    intercept: float = 0.0
    ridge: float = 0.0
    classes: Sequence[Any] | None = None
    executor: LocalExecutor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise InvalidInputError(f"Expected loss in {sorted(LOSSES)}, got {self.loss!r}.")
        kind = LOSSES[self.loss].targets
        known = usual_classes(kind, self.outputs) if self.classes is None else list(self.classes)
        if len(known) != {"signs": 2, "labels": self.outputs}.get(kind, 0):
            raise InvalidInputError(
                f"Expected {self.outputs if kind == 'labels' else 2} classes for labels and none for numbers "
                f"with loss={self.loss!r}, got {len(known)}."
            )
        matrix, targets = check_records(self.matrix, self.targets, known)
        made = LocalExecutor(matrix, targets, self.data_norm, self.intercept)
        object.__setattr__(self, "executor", made)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the coefficients, intercept last."""
        return self._problem(Relation.ADD_REMOVE).shape

    def start(self) -> Weights:
        """Return zero coefficients, the public starting point."""
        return np.zeros(self.shape)

    def plan(self, recipe: FederatedRecipe) -> Plan:
        problem = self._problem(recipe.relation)
        query = GlmGradient(problem.loss, recipe.clip_norm)
        sampling = recipe.sampling(problem.population)
        return problem.planned(gradient=Release(query, problem.gaussian(), sampling, recipe.releases))

    def steps(self, curator: Curator, weights: Weights, recipe: FederatedRecipe, step_size: float) -> Weights:
        kept = 1 if self.intercept else 0
        for _ in range(recipe.local_steps):
            g = curator.release("gradient", weights) + self.ridge * weights
            weights = hard_threshold(weights - step_size * g, recipe.sparsity, kept)
        return weights

    def finish(self, weights: Weights) -> LinearFit:
        """Return the model that released weights stand for, with its intercept in the user's units."""
        return LinearFit.of(weights, self._problem(Relation.ADD_REMOVE))

    def _problem(self, relation: Relation) -> Problem:
        return Problem(
            LOSSES[self.loss],
            self.executor.population,
            int(self.executor.matrix.shape[1]),
            relation,
            epsilon=1.0,  # the budget is the client's own matter: see ClientBudget
            delta=0.5,
            outputs=self.outputs,
            data_norm=self.data_norm,
            intercept=self.intercept,
            ridge=self.ridge,
        )


# ------------------------------ Rows and targets of a member, checked at the door as an estimator checks them


def usual_classes(targets: str, outputs: int) -> list[int]:
    """Return the labels that a loss has if none are declared: -1 and 1, or numbers; none for numbers."""
    return {"signs": [-1, 1], "labels": list(range(outputs))}.get(targets, [])


def check_records(matrix: Any, targets: Any, classes: Sequence[Any]) -> tuple[Any, Any]:
    """Return the rows and what a loss wants for their targets: those of the declared classes, or numbers.

    **Privacy.** What does not fit is refused in words without a value, before anything is booked.
    """
    if targets is None:
        raise InvalidInputError("Expected a target for each record, got none.")
    matrix, y = check_data(BaseEstimator(), matrix, targets, y_numeric=not len(classes))
    if not len(classes):
        return matrix, y
    codes, known, _ = encode_labels(y, np.asarray(classes))
    return matrix, label_targets(codes, known.size)
