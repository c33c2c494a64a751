"""What a client learns: a model, its own records, and the gradient that is released."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sordino.errors import InvalidInputError
from sordino.execute.local import LocalExecutor
from sordino.kernel import Curator, Executor, Plan, Relation, Release
from sordino.parties.flower.recipe import FederatedRecipe
from sordino.parties.records import check_records, usual_classes
from sordino.problems.glm import GlmGradient
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem
from sordino.runs.finish import LinearFit, finish
from sordino.solvers.vectors import hard_threshold

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
        """Declare the gradients."""
        problem = self._problem(recipe.relation)
        query = GlmGradient(problem.loss, recipe.clip_norm)
        sampling = recipe.sampling(problem.population)
        return problem.planned(gradient=Release(query, problem.gaussian(), sampling, recipe.releases))

    def steps(self, curator: Curator, weights: Weights, recipe: FederatedRecipe, step_size: float) -> Weights:
        """Make the local steps of one round."""
        kept = 1 if self.intercept else 0
        for _ in range(recipe.local_steps):
            g = curator.release("gradient", weights) + self.ridge * weights
            weights = hard_threshold(weights - step_size * g, recipe.sparsity, kept)
        return weights

    def finish(self, weights: Weights) -> LinearFit:
        """Return the model that released weights stand for, with its intercept in the user's units."""
        return finish(weights, self._problem(Relation.ADD_REMOVE))

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
