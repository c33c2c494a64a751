"""Settings of a training from public facts, so that they need no runs on the data: images, text, tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from sordino.errors import InvalidInputError
from sordino.nn.solvers import Descent, NetworkSolver, Recipe, Srm
from sordino.nn.updates import Adam, HardThreshold, Sgd, schedule_of, warm_up

# name -> (what makes the solver from a recipe and options, strength of smoothing, learning rate)
OPTIMIZERS: dict[str, tuple[Callable[..., NetworkSolver], float, float]] = {
    "sgd": (lambda recipe, **options: Descent(recipe, Sgd(**options)), 0.0, 0.5),
    "adam": (lambda recipe, **options: Descent(recipe, Adam(**options)), 0.0, 2e-3),
    "ls-sgd": (lambda recipe, **options: Descent(recipe, Sgd(**options)), 1.0, 0.5),
    "ls-adam": (lambda recipe, **options: Descent(recipe, Adam(**options)), 1.0, 2e-3),
    "srm": (Srm, 0.0, 0.5),
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
        if self.optimizer not in OPTIMIZERS:
            raise InvalidInputError(f"Expected optimizer in {sorted(OPTIMIZERS)}, got {self.optimizer!r}.")
        build, usual, rate = OPTIMIZERS[self.optimizer]
        batch = min(self.batch_size, population)
        recipe = Recipe(
            steps=self._steps(population, batch) if steps is None else steps,
            batch=batch,
            clip=self.clip_norm,
            learning_rate=rate if self.learning_rate is None else self.learning_rate,
            schedule=schedule_of(self.schedule),
            weight_decay=weight_decay,
            smoothing=usual if smoothing is None else smoothing,
            projection=projection,
            average=self.average,
        )
        try:
            return build(recipe, **(self.optimizer_options or {}))
        except TypeError as error:
            raise InvalidInputError(
                f"Expected optimizer_options that {self.optimizer!r} has; {str(error).split('() ')[-1]}."
            ) from None

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
