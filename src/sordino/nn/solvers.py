"""The training algorithms: plans made from public facts, runs that see only noisy gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from sordino.errors import InvalidInputError
from sordino.kernel import Gaussian, Plan, Poisson, Relation, Release
from sordino.nn.engines import Engine
from sordino.nn.layer_smoothing import smoothed_by_layer
from sordino.nn.persons import PersonDifference, PersonGradient
from sordino.nn.queries import Block, TorchDifference, TorchGradient
from sordino.nn.updates import HardThreshold, Sgd, Slots, UpdateRule, cosine


@dataclass(frozen=True, eq=False)
class NetworkTask:
    """What is public about training one network: the model, n, the relation, the unit.

    ``grouped`` says that a unit has several records, whose gradients are added up before the clip. With
    ``block`` sums are taken in integers, and the noise is exactly rounded.
    """

    engine: Engine
    population: int
    relation: Relation
    unit: str = "record"
    grouped: bool = False
    block: Block | None = None

    def noise(self) -> Gaussian:
        """Return the noise of every release."""
        return Gaussian(secure=self.block is not None)

    def gradient(self, clip: float) -> TorchGradient:
        """Return the sum of clipped gradients of the units."""
        return (PersonGradient if self.grouped else TorchGradient)(self.engine, clip, self.block)

    def difference(self, clip: float, difference_clip: float, gamma: float) -> TorchDifference:
        """Return the sum of clipped corrections of the units."""
        kind = PersonDifference if self.grouped else TorchDifference
        return kind(self.engine, clip, difference_clip, gamma, self.block)

    def planned(self, **releases: Release) -> Plan:
        """Return the plan of these releases."""
        return Plan(releases, self.relation, self.population, self.unit)

    def batches(self, batch: int) -> Poisson:
        """Return Poisson batches of this expected size."""
        return Poisson(min(1.0, batch / self.population))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of entries of each parameter tensor."""
        return tuple(shape.numel() for shape in self.engine.network.shapes)


@dataclass(frozen=True, eq=False)
class TrainingState:
    """An iterate with the memory of its update rule; made of released values only."""

    vector: Tensor
    slots: Slots
    average: Tensor
    weight: float = 0.0  # how much of the average is filled

    @property
    def result(self) -> Tensor:
        """The averaged parameters where there is an average, else the iterate."""
        return self.average / self.weight if self.weight else self.vector


class Releases(Protocol):
    """What a loop needs of a curator."""

    @property
    def plan(self) -> Plan: ...

    @property
    def used(self) -> dict[str, int]: ...

    def release(self, name: str, params: Any = None) -> Any:
        """Ask one planned question and return its noisy answer."""


class NetworkSolver(Protocol):
    """A training algorithm that can start from a saved state."""

    def plan(self, task: NetworkTask) -> Plan:
        """Declare every release; no data is touched."""

    def start(self, task: NetworkTask) -> TrainingState:
        """Return the state before the first release."""

    def run(self, curator: Releases, task: NetworkTask, state: TrainingState) -> Iterator[TrainingState]:
        """Yield the states after each release that is left in the plan."""


@dataclass(frozen=True)
class Recipe:
    """What all algorithms share: lengths, clips and free post-processing.

    Parameters
    ----------
    steps : the number of releases.
    batch : the expected batch size.
    clip : the norm to which the gradient of a record is clipped.
    learning_rate, schedule : step size and its factor as a function of the progress in [0, 1).
    weight_decay : weight of ``||w||^2 / 2``, outside the clip and so free.
    smoothing : strength of the layer-wise Laplacian smoothing of released gradients, 0 for none.
    projection : for example :class:`HardThreshold`, applied after each step.
    average : decay of the exponential average of the iterates that is returned, 0 for the last iterate.
    """

    steps: int
    batch: int
    clip: float = 1.0
    learning_rate: float = 0.5
    schedule: Callable[[float], float] = cosine
    weight_decay: float = 0.0
    smoothing: float = 0.0
    projection: HardThreshold | None = None
    average: float = 0.0

    def __post_init__(self) -> None:
        for name, low in (("steps", 1), ("batch", 1), ("learning_rate", 0), ("weight_decay", 0)):
            if not low <= getattr(self, name) < math.inf:
                raise InvalidInputError(f"Expected {name} >= {low}, got {getattr(self, name)}.")
        self._check_schedule()
        if not 0 <= self.average < 1 or self.smoothing < 0:
            raise InvalidInputError(
                f"Expected average in [0, 1) and smoothing >= 0, got {self.average} and {self.smoothing}."
            )

    def _check_schedule(self) -> None:
        """Refuse a factor that would make the model NaN or climb, before a budget is spent on it."""
        for position in range(self.steps):
            try:
                fits = 0 <= float(self.schedule(position / self.steps)) < math.inf
            except (TypeError, ValueError):
                fits = False
            if not fits:
                raise InvalidInputError(
                    "Expected schedule to return a finite number >= 0 from progress 0 to 1, got another "
                    f"for step {position + 1} of {self.steps}."
                )

    def moved(
        self,
        state: TrainingState,
        direction: Tensor,
        slots: Slots,
        task: NetworkTask,
        position: int,
    ) -> TrainingState:
        """Return the state after one step in the smoothed direction."""
        rate = self.learning_rate * self.schedule(position / self.steps)
        vector = state.vector * (1 - rate * self.weight_decay) - rate * direction
        if self.projection is not None:
            vector = self.projection.project(vector, (position + 1) / self.steps)
        average, weight = state.average, state.weight
        if self.average:
            average = self.average * average + (1 - self.average) * vector
            weight = self.average * weight + (1 - self.average)
        return TrainingState(vector, slots, average, weight)

    def finished(self, state: TrainingState) -> TrainingState:
        """Return the state whose average is projected: averages of sparse vectors are dense."""
        if self.projection is None or not state.weight:
            return state
        return replace(state, average=self.projection.project(state.result, 1.0), weight=1.0)


def _fresh(task: NetworkTask, slots: Slots) -> TrainingState:
    vector = task.engine.network.flat()
    return TrainingState(vector, slots, torch.zeros_like(vector))


@dataclass(frozen=True)
class Descent:
    """DP-SGD, DP-Adam and, with smoothing, DP-LSSGD and DP-LSAdam.

    **Privacy.** ``steps`` Poisson-sampled Gaussian releases of a clipped sum, divided by the expected
    batch size. Smoothing, momentum, moments, projection and averaging act on released values.
    """

    recipe: Recipe
    rule: UpdateRule = field(default_factory=Sgd)

    def plan(self, task: NetworkTask) -> Plan:
        """Declare the gradients."""
        query = task.gradient(self.recipe.clip)
        sampling = task.batches(self.recipe.batch)
        return task.planned(gradient=Release(query, task.noise(), sampling, self.recipe.steps))

    def start(self, task: NetworkTask) -> TrainingState:
        """Return the initial parameters of the model."""
        return _fresh(task, self.rule.start(task.engine.network.flat()))

    def run(self, curator: Releases, task: NetworkTask, state: TrainingState) -> Iterator[TrainingState]:
        """Yield the states."""
        for position in range(curator.used.get("gradient", 0), self.recipe.steps):
            g = curator.release("gradient", state.vector)
            g = smoothed_by_layer(g, task.sizes, self.recipe.smoothing)
            direction, slots = self.rule.step(g, state.slots)
            state = self.recipe.moved(state, direction, slots, task, position)
            yield state


@dataclass(frozen=True)
class Srm:
    r"""DP-SRM: ``v <- (1 - gamma) v + mean of the correction at two points + noise``; step along v.

    Gradient and difference are clipped apart, to ``recipe.clip`` (C1) and ``difference_clip`` (C2); one
    record moves a correction by at most ``(1 - gamma) C2 + gamma C1``.

    **Privacy.** One Poisson-sampled Gaussian release of a gradient and ``steps - 1`` of corrections.

    Reference: Wang, dissertation, chapter 4. Departure: the noise is that of its section 4.5; section
    4.7 exchanges C1 and C2 and adds fifty times too much.
    """

    recipe: Recipe
    gamma: float = 0.1
    difference_clip: float = 0.1
    first_batch: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.gamma <= 1:
            raise InvalidInputError(f"Expected gamma in (0, 1], got {self.gamma}.")

    def plan(self, task: NetworkTask) -> Plan:
        """Declare the first gradient and the corrections."""
        recipe = self.recipe
        first = task.gradient(recipe.clip)
        batch = recipe.batch if self.first_batch is None else self.first_batch
        releases = {"start": Release(first, task.noise(), task.batches(batch))}
        if recipe.steps > 1:
            query = task.difference(recipe.clip, self.difference_clip, self.gamma)
            sampling = task.batches(recipe.batch)
            releases["correction"] = Release(query, task.noise(), sampling, recipe.steps - 1)
        return task.planned(**releases)

    def start(self, task: NetworkTask) -> TrainingState:
        """Return the initial parameters; the direction is zero until the first release."""
        vector = task.engine.network.flat()
        return _fresh(task, {"direction": torch.zeros_like(vector), "before": vector.clone()})

    def run(self, curator: Releases, task: NetworkTask, state: TrainingState) -> Iterator[TrainingState]:
        """Yield the states."""
        used = sum(curator.used.values())
        for position in range(used, self.recipe.steps):
            v = self._direction(curator, state)
            slots = {"direction": v, "before": state.vector}
            step = smoothed_by_layer(v, task.sizes, self.recipe.smoothing)
            state = self.recipe.moved(state, step, slots, task, position)
            yield state

    def _direction(self, curator: Releases, state: TrainingState) -> Any:
        if not curator.used.get("start"):
            return curator.release("start", state.vector)
        correction = curator.release("correction", (state.vector, state.slots["before"]))
        return (1 - self.gamma) * state.slots["direction"] + correction
