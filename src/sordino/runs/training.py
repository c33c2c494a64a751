"""What training by noisy gradients of mini-batches costs, in the words of those who run it: DP-SGD."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import optimize, signal

from sordino.accounting import Certificate, calibrate, certify, default_delta
from sordino.accounting.trade_off import Risk, calibrate_to_risk
from sordino.errors import InvalidInputError
from sordino.kernel import (
    Banded,
    Buffered,
    Correlated,
    Cyclic,
    Gaussian,
    Mechanism,
    Plan,
    Poisson,
    Regenerated,
    Relation,
    Release,
    Sampling,
)
from sordino.kernel.arrays import Floats
from sordino.kernel.correlated import Strategy, participation_norm
from sordino.problems.losses import LOSSES
from sordino.problems.queries import GlmGradient
from sordino.values import check_range

NOISES = ("independent", "banded", "blt", "regenerated")
BANDS = (1, 2, 4, 8, 16, 32)
"""Numbers of bands that are compared; each keeps as many vectors of the size of the model, less one."""

BUFFERS = 3
"""How many vectors a buffered strategy keeps."""


class Choice(NamedTuple):
    """Noise and batches that go together, and the error of both at multiplier 1."""

    mechanism: Mechanism
    sampling: Sampling
    error: float


def prefix_error(coefficients: Floats) -> float:
    """Return the root mean square, over the steps, of the noise in the sums so far: that of ``A C^-1 z``."""
    start = np.zeros(len(coefficients))
    start[0] = 1.0
    row = np.cumsum(signal.lfilter([1.0], coefficients, start))  # of A C^-1, the last first
    return math.sqrt(float(np.mean(np.cumsum(row * row))))


def choices(noise: str, population: int, batch: float, steps: int) -> Iterator[Choice]:
    """Yield what the noise of a name can be; who calibrates each of them takes the one of least error.

    Parameters
    ----------
    noise : one of :data:`NOISES`.
    population, batch, steps : public numbers; where nothing is sampled, a batch may be a little larger.

    **Privacy.** Public numbers in, public numbers out.
    """
    if noise not in NOISES:
        raise InvalidInputError(f"Expected noise in {list(NOISES)}, got {noise!r}.")
    most = max(1, int(population / batch))  # so many parts leave no room for sampling
    if noise == "independent":
        error = prefix_error(np.eye(1, steps)[0])
        yield Choice(Gaussian(), Poisson(min(1.0, batch / population)), error)
    elif noise == "banded":
        for parts in sorted({min(parts, most) for parts in BANDS}):
            rate = 1.0 if parts == most else parts * batch / population
            strategy = Banded(tuple(best_bands(min(parts, steps), steps)))
            yield _choice(strategy, parts, rate, steps)
    elif noise == "blt":
        yield _choice(best_buffers(steps, most), most, 1.0, steps)
    else:
        yield _choice(best_taps(steps, most), most, 1.0, steps)


def _choice(strategy: Strategy, parts: int, rate: float, steps: int) -> Choice:
    mechanism = Correlated(strategy=strategy, parts=parts, times=steps, sampled=rate < 1)
    error = mechanism.norm * prefix_error(strategy.coefficients(steps))
    return Choice(mechanism, Cyclic(parts, rate), error)


@lru_cache(maxsize=64)
def best_bands(bands: int, steps: int) -> tuple[float, ...]:
    """Return the weights of a banded strategy with little error for its column norm.

    The start is the truncated square root of the matrix of prefix sums, whose coefficients are
    ``binom(2j, j) / 4^j``; they are improved by a quasi-Newton method, and kept from growing.
    """
    j = np.arange(1, bands)
    start = np.concatenate([[1.0], np.cumprod((2 * j - 1) / (2 * j))])
    weights = (np.arange(steps, 0, -1)) / steps

    def objective(ratios: Floats) -> tuple[float, Floats]:
        c = np.concatenate([[1.0], np.cumprod(ratios)])
        whole = np.zeros(steps)
        whole[0] = 1.0
        inverse = signal.lfilter([1.0], c, whole)
        row = np.cumsum(inverse)
        error, size = float(weights @ (row * row)), float(c @ c)
        moved = signal.lfilter([1.0], c, row)  # d row / d c_j is minus this, j steps later
        pull = [-2.0 * float((weights * row)[k:] @ moved[: steps - k]) for k in range(bands)]
        slope = np.array(pull) / error + 2.0 * c / size
        inner = np.array([float(slope[k:] @ c[k:]) / ratios[k - 1] for k in range(1, bands)])
        return math.log(error) + math.log(size), inner

    if bands == 1:
        return (1.0,)
    ratios = start[1:] / start[:-1]
    found = optimize.minimize(
        objective, ratios, jac=True, method="L-BFGS-B", bounds=[(1e-6, 1.0)] * len(ratios)
    )
    return tuple(float(c) for c in np.concatenate([[1.0], np.cumprod(found.x)]))


@lru_cache(maxsize=16)
def best_buffers(steps: int, parts: int) -> Buffered:
    """Return a buffered strategy with little error for its participation norm."""

    def strategy(x: Floats) -> Buffered:
        scales, decays = np.log1p(np.exp(np.minimum(x[:BUFFERS], 50.0))), 1.0 / (1.0 + np.exp(-x[BUFFERS:]))
        return Buffered(tuple(scales / max(1.0, scales.sum())), tuple(decays))

    decays = 1.0 - np.array([0.5, 0.1, 0.02])
    start = np.concatenate([np.log(np.expm1([0.25, 0.1, 0.05])), np.log(decays / (1 - decays))])
    with np.errstate(all="ignore"):
        found = optimize.minimize(
            lambda x: _cost(strategy(x), steps, parts),
            start,
            method="Nelder-Mead",
            options={"maxiter": 600, "fatol": 1e-6},
        )
        return strategy(np.asarray(found.x))


@lru_cache(maxsize=16)
def best_taps(steps: int, parts: int) -> Regenerated:
    """Return ``C^-1`` with one band below the diagonal and little error for its participation norm."""
    found = optimize.minimize_scalar(
        lambda tap: _cost(Regenerated((1.0, -tap)), steps, parts), bounds=(0.0, 1.0), method="bounded"
    )
    return Regenerated((1.0, -float(found.x)))


def _cost(strategy: Strategy, steps: int, parts: int) -> float:
    coefficients = strategy.coefficients(steps)
    return participation_norm(coefficients, parts) * prefix_error(coefficients)


@dataclass(frozen=True)
class Training:
    """``steps`` noisy sums of clipped gradients, each over a Poisson batch of ``batch_size`` records.

    Parameters
    ----------
    rows : the number of records, which is public.
    batch_size : the expected number of records in a batch; ``rows`` takes all of them.
    steps : how many batches.
    delta : None means ``min(1e-5, 1 / (10 rows))``.
    relation : ``"add-remove"`` or ``"replace-one"``.
    noise : ``"independent"``, or correlated over the steps: ``"banded"``, ``"blt"`` or ``"regenerated"``.
        Then its multiplier is in units of what one record can change in the whole training.

    **Privacy.** Plans and prices only; nothing is read and nothing is released.
    """

    rows: int
    batch_size: float
    steps: int
    delta: float | None = None
    relation: str = "add-remove"
    noise: str = "independent"

    def __post_init__(self) -> None:
        if self.rows < 1 or self.steps < 1 or not 0 < self.batch_size <= self.rows:
            raise InvalidInputError(
                "Expected rows >= 1, steps >= 1 and a batch size in (0, rows], got "
                f"{self.rows}, {self.steps} and {self.batch_size:g}."
            )
        if self.delta is not None:
            check_range("delta", self.delta, "(0, 1)", "It is a probability.")

    def epsilon(self, noise_multiplier: float) -> Certificate:
        """Return what noise with a deviation of ``noise_multiplier`` times the clipping norm proves."""
        if not 0 < noise_multiplier < float("inf"):
            raise InvalidInputError(f"Expected a noise multiplier > 0, got {noise_multiplier:g}.")
        if self.noise == "banded":
            raise InvalidInputError(
                "Expected an epsilon, got the multiplier of banded noise, whose bands follow from epsilon. "
                "Ask for the noise instead (sordino account noise --epsilon)."
            )
        plan = self._plan(next(choices(self.noise, self.rows, self.batch_size, self.steps)))
        # Ours is in units of the sensitivity, which is twice the clipping norm under replace-one.
        return self._certify(plan.at(noise_multiplier / plan.relation.contributions))

    def least_noise(self, epsilon: float | Risk) -> tuple[float, Certificate]:
        """Return the least noise multiplier that keeps ``epsilon`` (or a risk), and what it proves."""
        if isinstance(epsilon, Risk):
            plan = self._plan(self.chosen(epsilon.epsilon(self._delta())))
            plan = calibrate_to_risk(plan, epsilon, self._delta())
        else:
            plan = calibrate(self._plan(self.chosen(epsilon)), epsilon, self._delta())
        return _multiplier(plan) * plan.relation.contributions, self._certify(plan)

    def chosen(self, epsilon: float) -> Choice:
        """Return noise and batches of the least error for an epsilon; bands are added while they help."""
        least, best = math.inf, None
        for choice in choices(self.noise, self.rows, self.batch_size, self.steps):
            error = choice.error * _multiplier(calibrate(self._plan(choice), epsilon, self._delta()))
            if best is not None and error >= least:
                break
            least, best = error, choice
        assert best is not None
        return best

    def _certify(self, plan: Plan) -> Certificate:
        return certify(plan.event(), self._delta(), plan.relation)

    def _delta(self) -> float:
        return default_delta(self.rows) if self.delta is None else self.delta

    def _plan(self, choice: Choice) -> Plan:
        query = GlmGradient(LOSSES["logistic"], 1.0)
        release = Release(query, choice.mechanism, choice.sampling, self.steps)
        return Plan({"gradient": release}, Relation.parse(self.relation), self.rows)


def _multiplier(plan: Plan) -> float:
    multiplier = plan.releases["gradient"].mechanism.multiplier
    assert multiplier is not None
    return float(multiplier)
