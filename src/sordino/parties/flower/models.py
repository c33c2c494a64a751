"""What clients add up, and what each of them learns: a model, its own records, the gradient it releases."""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from sordino.errors import InvalidInputError
from sordino.estimators.linear import LogisticRegression
from sordino.execute.local import LocalExecutor
from sordino.execute.parties.engine import lattice_ripple
from sordino.execute.parties.executor import SHARE, shared_grid
from sordino.kernel import (
    ClippedSum,
    Curator,
    Executor,
    Full,
    Gaussian,
    Plan,
    Poisson,
    Relation,
    Release,
    Sampling,
)
from sordino.kernel.arrays import Floats
from sordino.kernel.clip import to_bound
from sordino.kernel.query import ClientUpdates, check_clip
from sordino.private_estimator import refuse_unknown_owners
from sordino.problems.queries import GlmGradient
from sordino.runs import Ask, PrivacyReport, Task
from sordino.solvers.steps import hard_threshold
from sordino.values import check_range, check_whole

Weights = NDArray[Any]
MOST_BITS, TAIL = 32, 12.0  # of a number under masks; deviations of a client's noise that are sent


def fits(weights: object, shape: tuple[int, ...]) -> bool:
    """Tell whether these are finite floating-point weights of exactly this shape; nothing is broadcast."""
    if not isinstance(weights, np.ndarray) or weights.dtype.kind != "f" or weights.shape != tuple(shape):
        return False
    return bool(np.isfinite(weights).all())


@dataclass(frozen=True)
class UpdateSum(ClippedSum):
    r"""``sum_i clip_C(w_i - w)`` over clients, at the public weights ``params = w``.

    **Privacy.** Sensitivity C (add-remove a client) or 2 C (replace one) in L2. A client that fails, answers
    twice, or whose answer is not a finite floating-point vector of exactly the right shape contributes zero.
    """

    needs: ClassVar[tuple[type, ...]] = (ClientUpdates,)

    clip: float

    def evaluate(self, records: Sequence[Weights], params: Weights) -> Floats:
        total = np.zeros(np.shape(params))
        for weights in records:
            total = total + self.clipped(weights, params)
        return total

    def clipped(self, weights: Weights, params: Weights) -> Floats:
        if not fits(weights, np.shape(params)):
            return np.zeros(np.shape(params))
        with np.errstate(over="ignore", invalid="ignore"):
            return to_bound(np.asarray(weights, dtype=np.float64) - params, self.clip)


@dataclass(frozen=True)
class AdaptiveSum(UpdateSum):
    r"""The same at ``params = (w, C)``, and how many updates were within C as one more coordinate.

    A client adds ``clip_C(w_i - w)`` and, in the last coordinate, ``C / 8`` if the clip left its update as it
    was, else ``-C / 8``: a vector of norm at most ``sqrt(65) / 8 C``. So the count costs .8 % more noise and
    no release of its own, which Andrew et al. 2021 spend.

    **Privacy.** Sensitivity ``sqrt(65) / 8 C`` per client in L2. C is public: earlier answers decide it.
    """

    def contribution(self, params: Any) -> float:
        return math.sqrt(65) / 8 * float(params[1]) * (1 + 2.0**-40)

    def evaluate(self, records: Sequence[Weights], params: Any) -> Floats:
        weights, clip = params
        query, total = UpdateSum(clip), np.zeros(np.size(weights) + 1)
        for answer in records:
            if fits(answer, np.shape(weights)):
                found = query.clipped(answer, weights)
                within = np.array_equal(found, np.asarray(answer, dtype=np.float64) - weights)
                total += np.append(found, clip / 8 if within else -clip / 8)
        return total


@dataclass(frozen=True)
class SharedNoise:
    r"""Noise per client of which every client adds a part, so that no server is trusted with it.

    A client sends ``round((x + z) / g)``: its clipped update x, not rounded before, with a Gaussian z of
    variance ``s^2 / honest``. What ``honest`` of them add up to is, but for a ripple, a rounding of the
    Gaussian mechanism with deviation s on the sum of their updates (docs/parties/noise-proof.md).

    Parameters
    ----------
    clients : the public number of clients.
    update_clip : the norm to which the update of a client is clipped.
    epsilon, delta : the budget of the whole run for one client with everything it holds.
    least : how many have to stay in a round, else no client lets its masks be removed; by default all.
    honest : how many of those keep their noise from the server; by default all but a third of the clients.
    """

    clients: int
    update_clip: float
    epsilon: float
    delta: float
    least: int = 0
    honest: int = 0

    def __post_init__(self) -> None:
        check_clip(self.update_clip)
        check_range("epsilon", self.epsilon, "(0, 20]")
        object.__setattr__(self, "least", self.least or self.clients)
        object.__setattr__(self, "honest", self.honest or self.least - self.clients // 3)
        if not 1 <= self.honest <= self.least <= self.clients or self.least < 2:
            raise InvalidInputError(f"Expected 1 <= honest <= least <= clients and least > 1, got {self}.")

    def plan(self, recipe: Any) -> Plan:
        release = Release(UpdateSum(self.update_clip), Gaussian(), Full(), recipe.rounds, mean=False)
        return Plan({"update": release}, recipe.relation, self.clients, unit="client")

    def slack(self, recipe: Any, size: int) -> float:
        """Return the part of delta for ripples and cut tails of all opened numbers, ``size`` a round."""
        each = lattice_ripple(SHARE**2 / 2) + 2 * math.exp(-(TAIL**2) / 2)
        return (1 + math.exp(self.epsilon)) * recipe.rounds * size * self.clients * each

    def grid(self, recipe: Any, size: int) -> tuple[float, dict[str, Any]]:
        """Return the spacing g that all clients round to, and the numbers of a secure aggregation of that.

        A client's numbers are cut where its noise has :data:`TAIL` deviations, so that no sum wraps around.
        """
        ask = Ask.checked(self.epsilon, self.delta - self.slack(recipe, size), self.clients)
        release = ask.calibrated(self.plan(recipe)).releases["update"]
        fine, std, cell = shared_grid(release.mechanism, release.sensitivity(recipe.relation), self.honest)
        reach = math.ceil(self.update_clip / (fine * cell) + TAIL * std / cell) + 1
        modulus = 1 << (2 * reach * self.clients).bit_length()
        if modulus > 2**MOST_BITS:
            raise InvalidInputError(f"Expected a sum below 2^{MOST_BITS}, got {modulus}. Lower epsilon.")
        how = {"clipping_range": float(reach), "quantization_range": 2 * reach, "modulus_range": modulus}
        return fine * cell, how


# ------------------------------------------------------------------- The model of a client beside its records


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
    shared : noise per client of which each client adds a part, in secure aggregation.

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
    shared: SharedNoise | None = None

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
        return self.rounds * self.local_steps

    def sampling(self, population: int) -> Sampling:
        if self.batch_size is None or self.batch_size >= population:
            return Full()
        return Poisson(self.batch_size / population)

    def step_of(self, attempt: int) -> float:
        return float(self.step_size * self.decay**attempt)

    def algorithm(self, private: bool = True) -> str:
        return f"{'DP-' if private else ''}Fed{'GD' if self.batch_size is None else 'SGD'}-HT"

    @property
    def digest(self) -> str:
        """A fingerprint: client and server compare it before anything is released."""
        text = json.dumps({**asdict(self), "relation": self.relation.value}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_config(self) -> dict[str, Any]:
        """Return the numbers under the keys of a Flower configuration, which has no None: 0 stands for it."""
        shared = json.dumps(None if self.shared is None else asdict(self.shared))
        values = {**asdict(self), "relation": self.relation.value, "shared": shared}
        return {_key(name): 0 if value is None else value for name, value in values.items()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_config` writes, say in ``[tool.flwr.app.config]``; other keys are ignored."""
        values = {f.name: config[_key(f.name)] for f in fields(cls) if _key(f.name) in config}
        for name in ("batch_size", "sparsity"):
            values[name] = values.get(name) or None
        shared = json.loads(values.pop("shared", "null"))
        return cls(**values, shared=shared and SharedNoise(**shared))


def _key(name: str) -> str:
    return "nonzero-weights" if name == "sparsity" else name.replace("_", "-")


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
    """An estimator beside the records of one client, sparse data included.

    Parameters
    ----------
    matrix, targets : the records of this client.
    estimator : a linear one, not fitted, the same at all clients. Its loss, its declared classes and bounds
        and its penalty count; its budget and its solver do not: the client pays, the recipe has the steps.
        By default logistic regression of the labels -1 and 1, rows of norm 1, without an intercept.

    **Privacy.** The number of records, the columns and the classes are assumed public. Records that do not
    fit are refused in words without a value, before anything is booked.
    """

    matrix: Any = field(repr=False)
    targets: Any = field(repr=False)
    estimator: Any = field(
        default_factory=partial(LogisticRegression, classes=[-1, 1], data_norm=1.0, fit_intercept=False)
    )
    executor: LocalExecutor = field(init=False, repr=False)
    task: Task = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.targets is None:
            raise InvalidInputError("Expected a target for each record, got none.")
        estimator = clone(self.estimator)
        refuse_unknown_owners(estimator, "Federations, whose clients do not know each other's rows,")
        rows = estimator.joint_rows(self.matrix, self.targets)
        for name, value in (("estimator", estimator), ("executor", rows)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "task", estimator.joint_task(*rows.matrix.shape))

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.task.setting.shape
        return shape

    def start(self) -> Weights:
        return np.zeros(self.shape)

    def plan(self, recipe: FederatedRecipe) -> Plan:
        problem = replace(self.task.setting, relation=recipe.relation)
        query = GlmGradient(problem.loss, recipe.clip_norm)
        sampling = recipe.sampling(problem.population)
        return problem.planned(gradient=Release(query, problem.gaussian(), sampling, recipe.releases))

    def steps(self, curator: Curator, weights: Weights, recipe: FederatedRecipe, step_size: float) -> Weights:
        problem = self.task.setting
        for _ in range(recipe.local_steps):
            g = curator.release("gradient", weights) + problem.penalty_gradient(weights)
            weights = hard_threshold(weights - step_size * g, recipe.sparsity, problem.n_intercepts)
        return weights

    def finish(self, weights: Weights, report: PrivacyReport | None = None) -> Any:
        """Return the fitted estimator that released weights stand for: it predicts, saves and reports."""
        model = copy.copy(self.estimator)
        model.__dict__.update(self.task.finish(weights), **({} if report is None else {"privacy_": report}))
        return model
