"""What clients add up: their clipped updates, and noise of which each of them has a part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sordino.errors import InvalidInputError
from sordino.execute.parties.executor import SHARE, shared_grid
from sordino.execute.parties.law import lattice_ripple
from sordino.kernel import ClippedSum, Full, Gaussian, Plan, Release
from sordino.kernel.arrays import Floats
from sordino.kernel.clip import to_bound
from sordino.kernel.query import ClientUpdates
from sordino.problems.queries import check_clip
from sordino.runs import Ask
from sordino.values import check_range

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

    def __post_init__(self) -> None:
        check_clip(self.clip)

    def contribution(self, params: Any) -> float:
        return self.clip

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
