"""The training algorithms: plans made from public facts, runs that see only noisy gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from sordino.errors import InvalidInputError
from sordino.kernel import Gaussian, Plan, Poisson, Query, Relation, Release
from sordino.nn.engines import Engine
from sordino.nn.queries import (
    Block,
    PersonDifference,
    PersonGradient,
    ShardedGradient,
    TorchDifference,
    TorchGradient,
)
from sordino.problems.problem import Setting
from sordino.runs.training import Choice
from sordino.solvers import SOLVERS, Capabilities, Entry, Option, Options, capabilities_of, make_solver
from sordino.solvers.base import FLAGS
from sordino.solvers.updates import (
    Adam,
    HardThreshold,
    Sgd,
    Slots,
    UpdateRule,
    cosine,
    recursive_direction,
    schedule_of,
    smooth_layers,
    warm_up,
)
from sordino.values import check_range


@dataclass(frozen=True, eq=False)
class NetworkTask(Setting):
    """What is public about training one network: the model, n, the relation, the unit.

    ``grouped`` says that a unit has several records, whose gradients are added up before the clip. With
    ``block`` sums are taken in integers, and the noise is exactly rounded. ``correlation`` is noise that is
    correlated over the steps, with its batches.
    """

    engine: Engine
    population: int
    relation: Relation
    unit: str = "record"
    grouped: bool = False
    block: Block | None = None
    correlation: Choice | None = None
    rows: int = 1

    def release(self, query: Query, batch: int, times: int = 1) -> Release:
        """Return so many releases with independent noise, each of a Poisson batch of this expected size."""
        sampling = Poisson(min(1.0, batch / self.population))
        return Release(query, Gaussian(secure=self.block is not None), sampling, times)

    def gradient(self, clip: float) -> TorchGradient:
        """Return the sum of clipped gradients of the units."""
        kind = PersonGradient if self.grouped else TorchGradient
        return (ShardedGradient if self.engine.network.sharded else kind)(self.engine, clip, self.block)

    def difference(self, clip: float, difference_clip: float, gamma: float) -> TorchDifference:
        """Return the sum of clipped corrections of the units."""
        kind = PersonDifference if self.grouped else TorchDifference
        return kind(self.engine, clip, difference_clip, gamma, self.block)


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
        if not 0 <= self.average < 1 or self.smoothing < 0:
            raise InvalidInputError(
                f"Expected average in [0, 1) and smoothing >= 0, got {self.average} and {self.smoothing}."
            )
        for position in range(self.steps):
            try:
                fits = 0 <= float(self.schedule(position / self.steps)) < math.inf
            except (TypeError, ValueError):
                fits = False
            if not fits:  # a factor that would make the model NaN or climb, once the budget is spent
                raise InvalidInputError(
                    "Expected schedule to return a finite number >= 0 from progress 0 to 1, got another "
                    f"for step {position + 1} of {self.steps}."
                )

    def moved(
        self, state: TrainingState, direction: Tensor, slots: Slots, task: NetworkTask, position: int
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


@dataclass(frozen=True)
class Descent:
    """DP-SGD, DP-Adam and, with smoothing, DP-LSSGD and DP-LSAdam.

    **Privacy.** ``steps`` Poisson-sampled Gaussian releases of a clipped sum, divided by the expected
    batch size, or one release of all of them with correlated noise. Smoothing, momentum, moments,
    projection and averaging act on released values.
    """

    recipe: Recipe
    rule: UpdateRule = field(default_factory=Sgd)

    def plan(self, task: NetworkTask) -> Plan:
        release = task.release(task.gradient(self.recipe.clip), self.recipe.batch, self.recipe.steps)
        if task.correlation is not None:
            release = replace(release, mechanism=task.correlation[0], sampling=task.correlation[1])
        return task.planned(gradient=release)

    def start(self, task: NetworkTask) -> TrainingState:
        """Return the initial parameters of the model."""
        vector = task.engine.network.flat()
        return TrainingState(vector, self.rule.start(vector), torch.zeros_like(vector))

    def run(self, curator: Releases, task: NetworkTask, state: TrainingState) -> Iterator[TrainingState]:
        for position in range(curator.used.get("gradient", 0), self.recipe.steps):
            g = curator.release("gradient", state.vector)
            g = smooth_layers(g, tuple(task.engine.network.sizes), self.recipe.smoothing)
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
        check_range("gamma", self.gamma, "(0, 1]")

    def plan(self, task: NetworkTask) -> Plan:
        """Declare the first gradient and the corrections."""
        recipe = self.recipe
        batch = recipe.batch if self.first_batch is None else self.first_batch
        releases = {"start": task.release(task.gradient(recipe.clip), batch)}
        if recipe.steps > 1:
            query = task.difference(recipe.clip, self.difference_clip, self.gamma)
            releases["correction"] = task.release(query, recipe.batch, recipe.steps - 1)
        return task.planned(**releases)

    def start(self, task: NetworkTask) -> TrainingState:
        """Return the initial parameters; the direction is zero until the first release."""
        vector = task.engine.network.flat()
        slots = {"direction": torch.zeros_like(vector), "before": vector.clone()}
        return TrainingState(vector, slots, torch.zeros_like(vector))

    def run(self, curator: Releases, task: NetworkTask, state: TrainingState) -> Iterator[TrainingState]:
        for position in range(sum(curator.used.values()), self.recipe.steps):
            if not curator.used.get("start"):
                v = curator.release("start", state.vector)
            else:
                correction = curator.release("correction", (state.vector, state.slots["before"]))
                v = recursive_direction(state.slots["direction"], correction, self.gamma)
            slots = {"direction": v, "before": state.vector}
            step = smooth_layers(v, tuple(task.engine.network.sizes), self.recipe.smoothing)
            state = self.recipe.moved(state, step, slots, task, position)
            yield state


NetworkSolver: TypeAlias = Descent | Srm

# Settings of a training from public facts, so that they need no runs on the data: images, text, tables.

_SGD = Capabilities(
    asks="mini-batch gradients",
    reads=("max_iter", "batch_size", "step_size", "clip_norm"),
    options={"momentum": Option(0.9), "nesterov": Option(False, FLAGS)},
    persons=True,
    paper="DP-SGD",
    page="../deep-learning",
)
_ADAM = replace(
    _SGD, options={"beta1": Option(0.9), "beta2": Option(0.999), "stability": Option(1e-8)}, paper="DP-Adam"
)
_SRM = replace(
    _SGD,
    asks="a first gradient, then recursive corrections",
    options={"gamma": Option(0.1), "difference_clip": Option(0.1), "first_batch": Option()},
    paper="DP-SRM",
)


def _entry(
    able: Capabilities, make: Callable[..., NetworkSolver], rate: float, smoothing: float = 0.0
) -> Entry:
    """Return a row: the solver of a recipe, whose rate and smoothing it sets where nobody does."""
    able = replace(able, paper=able.paper.replace("DP-", "DP-LS")) if smoothing else able
    usual = {"learning_rate": rate, "smoothing": smoothing}
    return Entry(lambda recipe, options: make(recipe, **options.read(able)), able, usual)


def _sgd(recipe: Recipe, **own: Any) -> Descent:
    return Descent(recipe, Sgd(**own))


def _adam(recipe: Recipe, **own: Any) -> Descent:
    return Descent(recipe, Adam(**own))


OPTIMIZERS = SOLVERS["networks"]
OPTIMIZERS |= {
    "sgd": _entry(_SGD, _sgd, 0.5), "ls-sgd": _entry(_SGD, _sgd, 0.5, 1.0),
    "adam": _entry(_ADAM, _adam, 2e-3), "ls-adam": _entry(_ADAM, _adam, 2e-3, 1.0),
    "srm": _entry(_SRM, Srm, 0.5),
}  # fmt: skip


def solver_of(asked: Any, population: int) -> NetworkSolver:
    """Return the algorithm for this many records, by the fields of a trainer that are settled."""
    capabilities_of(asked.optimizer, "networks")
    usual = OPTIMIZERS[asked.optimizer].usual
    batch = min(asked.batch_size, population)
    if asked.steps is None and not 0 < asked.epochs < math.inf:
        raise InvalidInputError(f"Expected epochs > 0, got {asked.epochs}.")
    recipe = Recipe(
        steps=max(1, round(asked.epochs * population / batch)) if asked.steps is None else asked.steps,
        batch=batch,
        clip=asked.clip_norm,
        learning_rate=usual["learning_rate"] if asked.learning_rate is None else asked.learning_rate,
        schedule=schedule_of(asked.schedule),
        weight_decay=asked.weight_decay,
        smoothing=usual["smoothing"] if asked.smoothing is None else asked.smoothing,
        projection=asked.projection,
        average=asked.average,
    )
    solver: NetworkSolver = make_solver(
        asked.optimizer, recipe, Options(extra=asked.optimizer_options), "networks"
    )
    return solver


# What a recipe may look at is public: how many records there are, epsilon, and how many weights are trained.


def _image(population: int, epsilon: float, weights: int) -> dict[str, Any]:
    """Forty passes of large batches, long steps that fall to zero, an average of the last iterates.

    Chosen on MNIST without its test images, on scattering coefficients (`benchmarks/results/nn_mnist.json`).
    """
    batch = max(64, population // 15)
    return {"batch_size": batch, "epochs": 40.0, "learning_rate": 1.0, "schedule": "linear", "average": 0.97}


# The learning rate of plain descent: chosen on digits, rings and a9a, judged on products of signs.
_RATE, _FASTEST = 0.12, 2.0


def noise_rate(population: int, epsilon: float, weights: int, clip_norm: float = 1.0) -> float:
    """Return a learning rate that falls with the root of the noise in a mean gradient: public numbers."""
    noise = 4.0 * math.sqrt(weights) / (population * epsilon)
    return min(_RATE / math.sqrt(noise), _FASTEST) / clip_norm if noise else _FASTEST / clip_norm


def _tabular(population: int, epsilon: float, weights: int) -> dict[str, Any]:
    """Two hundred steps at a rate that falls with the noise: what the neural estimators do."""
    batch, rate = max(64, population // 16), noise_rate(population, epsilon, weights)
    epochs = 200 * min(batch, population) / population
    return {"batch_size": batch, "epochs": epochs, "learning_rate": rate, "average": 0.9}


def _text(population: int, epsilon: float, weights: int) -> dict[str, Any]:
    """Adam, whose steps do not depend on how rare a word is, with a short rise (Li et al. 2022; untuned)."""
    return {
        "optimizer": "adam",
        "batch_size": max(64, population // 16),
        "epochs": 20.0,
        "learning_rate": 2e-3,
        "schedule": warm_up(0.1, "linear"),
    }


RECIPES = {"image": _image, "tabular": _tabular, "text": _text}
_LENGTH = {"optimizer": "sgd", "batch_size": 256, "epochs": 10.0}  # without a recipe
_PLAIN: dict[str, Any] = _LENGTH | {"clip_norm": 1.0, "schedule": "cosine", "average": 0.0}
_FLOOR = 0.01  # chosen on digits among 1, .1 and .01


def choose_settings(source: Any, population: int, weights: int, kind: str | None = None) -> Any:
    """Return a trainer with what it does not ask for set by its recipe, or to the plain values.

    A rate goes with its optimiser. A field that is None asks for nothing. The recipe ``"auto"`` is that of
    the ``kind`` of records with normalised gradients: ``g / max(||g||, floor)`` is a clip to the floor, over
    the floor, so the clip is the floor and a rate of plain descent is divided by it.

    **Privacy.** A function of public numbers and of what the caller says.
    """
    if source.recipe is not None and source.recipe not in (*RECIPES, "auto"):
        raise InvalidInputError(
            f"Expected recipe in {sorted((*RECIPES, 'auto'))} or None, got {source.recipe!r}."
        )
    name = kind if source.recipe == "auto" else source.recipe
    worth = float(source.epsilon) / (source.rows_per_person or 1)
    base = _PLAIN | ({} if name is None else RECIPES[name](population, worth, weights))
    if source.recipe == "auto":
        base["clip_norm"] = _FLOOR if source.clip_norm is None else source.clip_norm
        base["learning_rate"] /= 1.0 if base["optimizer"] == "adam" else base["clip_norm"]
    if source.optimizer not in (None, base["optimizer"]):
        base.pop("learning_rate", None)
    return replace(source, **{field: v for field, v in base.items() if getattr(source, field) is None})
