"""The training algorithms: plans made from public facts, runs that see only noisy gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from sordino.errors import InvalidInputError
from sordino.kernel import Gaussian, Mechanism, Plan, Poisson, Relation, Release, Sampling
from sordino.nn.engines import Engine
from sordino.nn.queries import Block, PersonDifference, PersonGradient, TorchDifference, TorchGradient
from sordino.runs.correlation import Choice
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
    smoothed_by_layer,
    warm_up,
)
from sordino.values import check_range


@dataclass(frozen=True, eq=False)
class NetworkTask:
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

    def noise(self) -> Mechanism:
        """Return the independent noise of every release."""
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

    def batches(self, batch: int) -> Sampling:
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

    @property
    def recipe(self) -> Recipe: ...

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


def _fresh(task: NetworkTask, slots: Slots) -> TrainingState:
    vector = task.engine.network.flat()
    return TrainingState(vector, slots, torch.zeros_like(vector))


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
        query = task.gradient(self.recipe.clip)
        noise, sampling = task.noise(), task.batches(self.recipe.batch)
        if task.correlation is not None:
            noise, sampling, _ = task.correlation
        return task.planned(gradient=Release(query, noise, sampling, self.recipe.steps))

    def start(self, task: NetworkTask) -> TrainingState:
        """Return the initial parameters of the model."""
        return _fresh(task, self.rule.start(task.engine.network.flat()))

    def run(self, curator: Releases, task: NetworkTask, state: TrainingState) -> Iterator[TrainingState]:
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
        check_range("gamma", self.gamma, "(0, 1]")

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
        return recursive_direction(state.slots["direction"], correction, self.gamma)


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
    _SGD,
    options={"beta1": Option(0.9), "beta2": Option(0.999), "stability": Option(1e-8)},
    paper="DP-Adam",
)
_SRM = replace(
    _SGD,
    asks="a first gradient, then recursive corrections",
    options={"gamma": Option(0.1), "difference_clip": Option(0.1), "first_batch": Option()},
    paper="DP-SRM",
)


def _rows(
    able: Capabilities, make: Callable[..., NetworkSolver], rate: float, **smoothing: float
) -> dict[str, Entry]:
    """Return rows that differ in smoothing: the solver of a recipe, whose rate they set where nobody does."""

    def build(recipe: Recipe, options: Options) -> NetworkSolver:
        return make(recipe, **options.read(able))

    def variant(strength: float) -> Capabilities:
        return replace(able, paper=able.paper.replace("DP-", "DP-LS")) if strength else able

    return {
        name.replace("_", "-"): Entry(build, variant(s), {"learning_rate": rate, "smoothing": s})
        for name, s in smoothing.items()
    }


OPTIMIZERS = SOLVERS["networks"]
OPTIMIZERS |= {
    **_rows(_SGD, lambda recipe, **own: Descent(recipe, Sgd(**own)), 0.5, sgd=0.0, ls_sgd=1.0),
    **_rows(_ADAM, lambda recipe, **own: Descent(recipe, Adam(**own)), 2e-3, adam=0.0, ls_adam=1.0),
    **_rows(_SRM, Srm, 0.5, srm=0.0),
}


@dataclass(frozen=True)
class Facts:
    """What a recipe may look at; all of it is public."""

    population: int
    epsilon: float
    weights: int


@dataclass(frozen=True)
class Settings:
    """How long and how a network is trained; the defaults are those of a trainer without a recipe."""

    optimizer: str = "sgd"
    optimizer_options: Mapping[str, Any] | None = None
    batch_size: int = 256
    epochs: float = 10.0
    clip_norm: float = 1.0
    learning_rate: float | None = None
    schedule: str | Callable[[float], float] = "cosine"
    average: float = 0.0

    def with_asked(self, asked: Mapping[str, Any]) -> Settings:
        """Return these settings with what was asked for; rates and options go with their optimiser."""
        base = self
        if asked.get("optimizer", self.optimizer) != self.optimizer:
            base = replace(self, learning_rate=None, optimizer_options=None)
        return replace(base, **asked)

    def solver(
        self,
        population: int,
        steps: int | None,
        weight_decay: float = 0.0,
        smoothing: float | None = None,
        projection: HardThreshold | None = None,
    ) -> NetworkSolver:
        """Return the algorithm for this many records."""
        capabilities_of(self.optimizer, "networks")
        usual = OPTIMIZERS[self.optimizer].usual
        batch = min(self.batch_size, population)
        recipe = Recipe(
            steps=self._steps(population, batch) if steps is None else steps,
            batch=batch,
            clip=self.clip_norm,
            learning_rate=usual["learning_rate"] if self.learning_rate is None else self.learning_rate,
            schedule=schedule_of(self.schedule),
            weight_decay=weight_decay,
            smoothing=usual["smoothing"] if smoothing is None else smoothing,
            projection=projection,
            average=self.average,
        )
        own = Options(extra=self.optimizer_options or {})
        solver: NetworkSolver = make_solver(self.optimizer, recipe, own, "networks")
        return solver

    def _steps(self, population: int, batch: int) -> int:
        if not 0 < self.epochs < math.inf:
            raise InvalidInputError(f"Expected epochs > 0, got {self.epochs}.")
        return max(1, round(self.epochs * population / batch))


def _image(facts: Facts) -> Settings:
    """Forty passes of large batches, long steps that fall to zero, an average of the last iterates.

    Chosen on 50,000 training images of MNIST against the other 10,000, for networks on scattering
    coefficients at epsilon 1.2 and 3 (`benchmarks/results/nn_mnist.json`).
    """
    batch = max(64, facts.population // 15)
    return Settings(batch_size=batch, epochs=40.0, learning_rate=1.0, schedule="linear", average=0.97)


# The learning rate of plain descent: chosen on digits, rings and a9a, judged on products of signs.
_RATE, _FASTEST = 0.12, 2.0


def noise_rate(facts: Facts, clip_norm: float = 1.0) -> float:
    r"""Return a learning rate that falls with the noise.

    ``RATE / sqrt(r)`` with ``r = 4 sqrt(weights) / (n epsilon)``, about the norm of the noise in a mean
    gradient clipped to 1: a function of public numbers.
    """
    noise = 4.0 * math.sqrt(facts.weights) / (facts.population * facts.epsilon)
    return min(_RATE / math.sqrt(noise), _FASTEST) / clip_norm if noise else _FASTEST / clip_norm


def _tabular(facts: Facts) -> Settings:
    """Two hundred steps at a rate that falls with the noise: what the neural estimators do."""
    batch = max(64, facts.population // 16)
    epochs = 200 * min(batch, facts.population) / facts.population
    return Settings(batch_size=batch, epochs=epochs, learning_rate=noise_rate(facts), average=0.9)


def _text(facts: Facts) -> Settings:
    """Adam, whose steps do not depend on how rare a word is, with a short rise of its rate.

    After published practice (Li et al., Large language models can be strong differentially private learners,
    2022): large batches, more passes than without privacy. Not tuned here.
    """
    return Settings(
        optimizer="adam",
        batch_size=max(64, facts.population // 16),
        epochs=20.0,
        learning_rate=2e-3,
        schedule=warm_up(0.1, "linear"),
    )


RECIPES: dict[str, Callable[[Facts], Settings]] = {"image": _image, "tabular": _tabular, "text": _text}


def settled(name: str | None, asked: Mapping[str, Any], facts: Facts) -> Settings:
    """Return the settings by a recipe, or the plain ones, with what was asked for in their place.

    **Privacy.** A function of public numbers and of what the caller says.
    """
    if name is not None and name not in RECIPES:
        raise InvalidInputError(f"Expected recipe in {sorted(RECIPES)} or None, got {name!r}.")
    base = Settings() if name is None else RECIPES[name](facts)
    return base.with_asked(asked)


def asked_of(source: Any) -> dict[str, Any]:
    """Return the settings that were given, not None or empty, by an object with fields of these names."""
    found = {field.name: getattr(source, field.name) for field in fields(Settings)}
    return {name: value for name, value in found.items() if value is not None and value != {}}
