"""What may be looked at while a network trains: scores on public records, and callbacks, both free."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from sordino.errors import InvalidInputError, InvalidTypeError
from sordino.nn.data import Source, source_of
from sordino.nn.network import Loss, Network
from sordino.nn.solvers import Recipe, TrainingState

_BLOCK = 1024


@dataclass(frozen=True, eq=False)
class Step:
    """Where a training stands after a release; made of released values and public records only.

    ``score`` is None where none was due. ``model`` makes a copy with the parameters of now (their average,
    where one is kept), ready to predict.
    """

    number: int
    steps: int
    learning_rate: float
    score: float | None
    _made: Callable[[], nn.Module] = field(repr=False)

    def model(self) -> nn.Module:
        """Return the model as it is now."""
        return self._made()


Callback = Callable[[Step], object]


@dataclass(eq=False)
class Watch:
    """Scores and callbacks of one training.

    **Privacy.** The parameters are released, so every function of them and of *public* records is free. A
    score on records that are to be protected is a release that nobody pays for.
    """

    model: nn.Module
    network: Network
    recipe: Recipe
    score: Callable[[nn.Module], float] | None = None
    every: int = 1
    callbacks: tuple[Callback, ...] = ()
    history: list[tuple[int, float]] = field(default_factory=list)
    start: float | None = None  # the loss of the initial model on public records

    @property
    def losses(self) -> tuple[float, ...]:
        """The losses on public records, that of the initial model first; none where scores are others."""
        return () if self.start is None else (self.start, *(score for _, score in self.history))

    def after(self, number: int, state: TrainingState) -> bool:
        """Note a step, and tell whether a callback wants to stop: what is left of the budget stays spent."""
        due = self.score is not None and (number % self.every == 0 or number == self.recipe.steps)
        if not due and not self.callbacks:
            return False

        def made() -> nn.Module:
            return self.loaded(state).eval()

        score = None
        if due and self.score is not None:
            score = float(self.score(made()))
            self.history.append((number, score))
        rate = self.recipe.learning_rate * self.recipe.schedule((number - 1) / self.recipe.steps)
        step = Step(number, self.recipe.steps, rate, score, made)
        wishes = [callback(step) for callback in self.callbacks]
        return any(wish is True for wish in wishes)

    def loaded(self, state: TrainingState) -> nn.Module:
        """Return a copy of the model with the parameters of a state."""
        model = copy.deepcopy(self.model)
        self.network.load(self.recipe.finished(state).result.to(_device_of(model)), model)
        return model


def scoring(validation: Any, network: Network, loss: Loss) -> Callable[[nn.Module], float] | None:
    """Return how a model is scored: by a function of one's own, or by the mean loss of public records."""
    if validation is None or callable(validation):
        return validation
    source = source_of(validation)
    return lambda model: _mean_loss(model, network, loss, source)


def check_callbacks(callbacks: Any) -> None:
    """Refuse what cannot be called after a step, before a budget is spent on the step."""
    if not isinstance(callbacks, (tuple, list)) or not all(map(callable, callbacks)):
        raise InvalidTypeError(
            "Expected callbacks as a tuple of functions of a step, got something else. Pass (function,)."
        )


def score_every(every: int | None, steps: int) -> int:
    """Return how many steps lie between two scores; None makes about ten of them."""
    if every is None:
        return max(1, math.ceil(steps / 10))
    if every < 1:
        raise InvalidInputError(f"Expected validate_every >= 1, got {every}.")
    return every


def _mean_loss(model: nn.Module, network: Network, loss: Loss, source: Source) -> float:
    device = _device_of(model)
    records = source.executor(device, _BLOCK, False).records(None)
    scored = Network(model, loss, network.precision, network.fields)
    losses: list[Tensor] = []
    with torch.no_grad():
        for x, y in records.chunks():
            losses.append(scored.losses(scored.outputs(None, x), y).double().cpu())
    return float(torch.cat(losses).mean())


def _device_of(model: nn.Module) -> torch.device:
    return next(model.parameters(), torch.zeros(())).device
