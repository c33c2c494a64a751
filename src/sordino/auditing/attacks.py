"""What can be proven from noisy answers: likelihood ratios, lower bounds, tests that may stop at any time.

docs/audit.md ("Why the bounds hold") has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from scipy import special, stats
from scipy.special import ndtr, ndtri

from sordino.accounting.trade_off import TradeOff
from sordino.auditing.tape import Heard, Recording
from sordino.kernel.arrays import Floats
from sordino.kernel.events import FixedSize, Poisson
from sordino.kernel.mechanism import Gaussian, Laplace, NormGamma, SymmetricGaussian
from sordino.kernel.noise import NoiseSource
from sordino.kernel.selection import GumbelTopK, JointSelection

FIRST, ROUND = 25, 5_000
"""Transcripts before the first look of a gambler; each time as many as before, up to the second number."""

_SCALES = (0.9, 0.75, 0.5)  # of the noise, as the alternatives to the declared one


@dataclass(frozen=True)
class Pair:
    """One release on two neighbours: exact answers with the unit, with its neighbour, and without either."""

    ours: Heard
    theirs: Heard
    absent: Heard | None

    @property
    def rate(self) -> float:
        """The probability that the unit is in a batch."""
        sampling = self.ours.asked.release.sampling
        return sampling.rate if isinstance(sampling, Poisson) and self.absent is not None else 1.0

    @property
    def is_attacked(self) -> bool:
        """Whether the likelihood of its answers is known: others add nothing to the statistic."""
        sampling = self.ours.asked.release.sampling
        known = type(self.ours.asked.release.mechanism) in DENSITIES
        sampled = isinstance(sampling, FixedSize) or (isinstance(sampling, Poisson) and self.absent is None)
        return known and self.ours.sensitivity > 0 and (not sampled or getattr(sampling, "rate", 0.0) == 1.0)

    def ratios(self, seed: int, count: int) -> tuple[Floats, Floats]:
        """Draw answers on both sides with the same noise; return log likelihood ratios, ours over theirs."""
        asked = self.ours.asked
        centres = [one.vector for one in (self.ours, self.theirs, self.absent or self.theirs)]
        density = DENSITIES[type(asked.release.mechanism)]
        scale = declared_scale(self.ours)
        found = []
        for side in (self.ours, self.theirs):
            answers = self._answers(side, NoiseSource.seeded_not_private(seed), count)
            logs = [density(answers, centre, scale, asked) for centre in centres]
            found.append(self._mix(logs[0], logs[2]) - self._mix(logs[1], logs[2]))
        return found[0], found[1]

    def _answers(self, side: Heard, noise: NoiseSource, count: int) -> Floats:
        """Draw batches and noise by the code of the release: draws x coordinates."""
        asked, absent = side.asked, self.absent
        drawn = np.ones(count, dtype=bool)
        if self.rate < 1.0:  # all units are drawn alike: the first stands for ours
            batches = (asked.release.sampling.draw(asked.population, asked.position, noise) for _ in drawn)
            drawn = np.array([bool(np.any(rows == 0)) for rows in batches])
        if isinstance(asked.release.mechanism, SymmetricGaussian | NormGamma | GumbelTopK | JointSelection):
            values = [side.value if one or absent is None else absent.value for one in drawn]
            mechanism: Any = asked.release.mechanism
            shaped = np.asarray if asked.spacing is None else mechanism.vector  # integers of half a matrix
            return np.array([np.ravel(shaped(asked.privatised(value, noise))) for value in values])
        present, missing = (_value(one) for one in (side, absent or side))  # coordinates are independent
        tiled = np.where(drawn[:, None], present, missing)
        return np.asarray(asked.privatised(tiled.ravel(), noise)).reshape(tiled.shape)

    def _mix(self, present: Floats, absent: Floats) -> Floats:
        if self.rate == 1.0:
            return present
        return np.logaddexp(math.log(self.rate) + present, math.log1p(-self.rate) + absent)


def pairs_of(ours: Recording, theirs: Recording, absent: Recording | None) -> list[Pair]:
    """Return the releases of two neighbours, side by side, that a likelihood ratio can tell apart."""
    others: Sequence[Any] = [None] * len(ours.questions) if absent is None else absent.questions
    rows = zip(ours.questions, theirs.questions, others, strict=False)
    return [pair for pair in (Pair(*row) for row in rows) if pair.is_attacked]


def transcripts(pairs: Sequence[Pair], noise: NoiseSource, count: int) -> tuple[Floats, Floats]:
    """Draw transcripts on both neighbours, in pairs, and return their log likelihood ratios."""
    found = [pair.ratios(noise.subkey(), count) for pair in pairs]
    return sum((f[0] for f in found), np.zeros(count)), sum((f[1] for f in found), np.zeros(count))


def declared_scale(heard: Heard) -> float:
    """Return the scale of the noise by the plan; a mechanism is not asked for its own."""
    return (heard.asked.release.mechanism.multiplier or 0.0) * heard.sensitivity


def _value(heard: Heard) -> Any:
    """Return an exact answer as a vector of what the mechanism gets: numbers, or integers of a lattice."""
    return heard.vector if heard.asked.spacing is None else np.ravel(np.asarray(heard.value))


# ------------------------------- Log densities of answers (draws x coordinates) around an exact answer, but
# for a constant that both neighbours share.


def _orders(answers: Floats, exact: Floats, scale: float, asked: Any) -> Floats:
    """Return the law of Plackett and Luce: each choice is an exponential mechanism on what is left."""
    scores = (np.abs(exact) if asked.release.mechanism.absolute else exact) / scale

    def one(order: tuple[int, ...]) -> float:
        left, total = scores.copy(), 0.0
        for chosen in order:
            total += left[chosen] - special.logsumexp(left)
            left[chosen] = -np.inf
        return float(total)

    known = {order: one(order) for order in {tuple(map(int, answer)) for answer in answers}}
    return np.array([known[tuple(map(int, answer))] for answer in answers])


def _combinations(answers: Floats, exact: Floats, scale: float, asked: Any) -> Floats:
    """Return the law of the exponential mechanism on combinations: those with the same loss are counted."""
    chosen = np.asarray(answers, dtype=np.int64).reshape(len(answers), len(asked.params), -1)
    total = np.zeros(len(answers))
    for group, losses in enumerate(exact.reshape(*chosen.shape[1:], -1)):
        levels = np.unique(losses)
        up_to = np.prod([np.searchsorted(np.sort(row), levels, "right") / row.size for row in losses], axis=0)
        worst = np.take_along_axis(losses.T, chosen[:, group], axis=0).max(axis=1)
        total -= worst / scale + special.logsumexp(-levels / scale, b=np.diff(up_to, prepend=0.0))
    return total


DENSITIES: dict[type, Callable[[Floats, Floats, float, Any], Floats]] = {
    Gaussian: lambda answers, exact, scale, asked: -np.sum((answers - exact) ** 2, axis=1) / (2 * scale**2),
    Laplace: lambda answers, exact, scale, asked: -np.sum(np.abs(answers - exact), axis=1) / scale,
    NormGamma: lambda answers, exact, scale, asked: -np.sqrt(np.sum((answers - exact) ** 2, axis=1)) / scale,
    GumbelTopK: _orders,
    JointSelection: _combinations,
}
DENSITIES[SymmetricGaussian] = DENSITIES[Gaussian]  # isotropic for the Frobenius norm


# ------------------------------------------------------------------------------------------ Lower bounds


@dataclass(frozen=True)
class Rates:
    """How often a test says yes on both neighbours, as bounds that hold together with a confidence."""

    true_positive: float
    false_positive: float
    draws: int

    @classmethod
    def of(cls, ours: Floats, theirs: Floats, error: float) -> Rates:
        """Choose the threshold that tells most on the first draws; judge it on the rest."""
        first = max(1, len(ours) // 5)
        places = np.quantile(np.concatenate([ours[:first], theirs[:first]]), np.linspace(0.15, 0.85, 15))
        tried = [cls.at(ours[:first], theirs[:first], place, error) for place in places]
        best = int(np.argmax([ndtri(one.true_positive) - ndtri(one.false_positive) for one in tried]))
        return cls.at(ours[first:], theirs[first:], places[best], error)

    @classmethod
    def at(cls, ours: Floats, theirs: Floats, place: float, error: float) -> Rates:
        """Judge a threshold that was chosen before."""
        hits, misses, n = int(np.sum(ours > place)), int(np.sum(theirs > place)), len(ours)
        return cls(least(hits, n, error / 2), 1.0 - least(n - misses, n, error / 2), n)

    def epsilon(self, delta: float) -> float:
        """Return the epsilon that the rates prove at ``delta``, whatever the shape of the curve."""
        return math.log(max(1.0, (self.true_positive - delta) / self.false_positive))


def least(hits: int, draws: int, error: float) -> float:
    """Return the lower end for a probability (Clopper and Pearson)."""
    return float(stats.beta.ppf(error, hits, draws - hits + 1)) if hits else 0.0


def advantage(ours: Floats, theirs: Floats, error: float) -> float:
    """Return the lower end of true minus false positive rates of "positive is ours"; no noise in common."""
    right, count = int(np.sum(ours > 0) + np.sum(theirs <= 0)), len(ours) + len(theirs)
    return 2 * least(right, count, error) - 1


def wager(ours: Floats, theirs: Floats, error: float) -> Callable[[TradeOff, float], bool]:
    """Return who refutes curves, with a chance of error, by bets on pairs of scores with the same noise.

    A soft test says yes to a score s with probability ``Phi(s / width)``, so its rates are those of a test.
    """
    first, count = max(1, len(ours) // 5), max(1, len(ours) * 4 // 5)  # that choose; the rest are bet on
    width = count**-0.2 * np.std([ours[:first], theirs[:first]]) + 1e-300
    chosen, gains = np.split(ndtr(ours / width) - ndtr(theirs / width), [first])
    stake = math.sqrt(-2 * math.log(error) / count) * (1 + chosen.mean()) / (chosen.std() + 1e-9)

    def refutes(curve: TradeOff, error: float) -> bool:
        most = curve.advantage  # a gain of -1 loses the stake
        return bool(np.sum(np.log1p(min(0.99, stake) * (gains - most) / (1 + most))) >= -math.log(error))

    return refutes


def power(claim: TradeOff, truth: TradeOff, draws: int, error: float) -> float:
    """Return the chance that so many guesses refute a claim where another curve is the truth."""
    needed = stats.binom.isf(error, draws, (1 + claim.advantage) / 2)
    return float(stats.binom.sf(needed, draws, (1 + truth.advantage) / 2))


def lower_bound(refuted: Callable[[float], bool], epsilon: Callable[[float], float]) -> float:
    """Return the epsilon of the most noise, as a multiple of the plan's, that is not refuted."""
    if not refuted(64.0):
        return 0.0
    low, high = -6.0, 6.0  # powers of two: little noise is allowed, much is refuted
    for _ in range(16):
        middle = (low + high) / 2
        low, high = (low, middle) if refuted(2.0**middle) else (middle, high)
    return epsilon(2.0**high)


# ----------------------------------------------------------------------------- Many canaries in one run


def one_run_refutes(curve: TradeOff, right: int, guessed: int, count: int, error: float) -> bool:
    """Tell whether a curve allows so many right guesses on canaries that were each in with chance 1/2.

    The recursion of Mahloujifar, Melis and Chaudhuri (arXiv 2410.22235). The least probability under Q of an
    event that P gives x is ``max over e of exp(-e) (x - delta(e))``; some e instead of all make it smaller,
    so that less is refuted.
    """
    prices = np.linspace(-8.0, 8.0, 321)
    costs, factors = np.array([curve.delta(e) for e in prices]), np.exp(-prices)
    r, h = error * right / count, error * (guessed - right) / count
    for i in range(right - 1, -1, -1):
        more = max(h, float(np.max((r - costs) * factors)))
        if more == h:
            break
        r, h = min(1.0, r + i / (guessed - i) * (more - h)), more
    return r + h > guessed / count


def one_run_epsilon(right: int, guessed: int, count: int, delta: float, error: float) -> float:
    """Return the epsilon that right guesses in one run prove, whatever the curve (arXiv 2305.08846)."""

    def chance(epsilon: float) -> float:
        rate = special.expit(epsilon)
        tail, i = float(stats.binom.sf(right - 1, guessed, rate)), np.arange(1, right + 1)
        worst = np.max((stats.binom.sf(right - i - 1, guessed, rate) - tail) / i, initial=0.0)
        return tail + float(worst) * delta * 2 * count

    low, high = 0.0, 16.0
    for _ in range(40 if chance(0.0) < error else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if chance(middle) < error else (low, middle)
    return low


# ------------------------------------------------------------------------------- Tests that may stop


class Bets:
    """Gamblers against a claimed trade-off curve; the claim is refuted where their mean wealth is large."""

    def __init__(self, curve: TradeOff) -> None:
        prices, parts, shares = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0), (0.0, 0.25, 0.5, 1.0), (0.1, 0.3, 0.6)
        a, part, share = np.array(list(product(prices, parts, shares))).T[..., None]
        # a place on the line of log ratios, the price of a false alarm, that of the game, the share staked
        self._place, self._price, self._stake = part * a, np.exp(a), share / (np.exp(a) + 1)
        self._cost = np.array([[curve.delta(float(one))] for one in a[:, 0]])
        self._wealth = np.zeros(2 * len(a))

    def see(self, ours: Floats, theirs: Floats) -> float:
        """Bet on further draws; return the mean wealth."""
        for j, (one, other) in enumerate(((ours, theirs), (-theirs, -ours))):
            gains = (one > self._place) - self._price * (other > self._place) - self._cost
            self._wealth[j::2] += np.sum(np.log1p(self._stake * gains), axis=1)
        return float(np.exp(special.logsumexp(self._wealth) - math.log(len(self._wealth))))


@dataclass
class Scale:
    """Gamblers on noise that is smaller than declared, by the residuals of the answers of real runs."""

    wealth: float = 0.0
    count: int = 0
    reused: tuple[str, ...] = ()

    @classmethod
    def of(cls, runs: Sequence[Recording]) -> Scale:
        """Read the residuals of all Gaussian answers."""
        logs, out = np.zeros(len(_SCALES)), cls()
        seen: dict[int, list[Floats]] = {}
        for heard in (heard for run in runs for heard in run.questions):
            found = residuals(heard)
            if found is None or not found.size:
                continue
            others = seen.setdefault(found.size, [])
            if others and np.isclose(others, found, 1e-6, 1e-9).all(axis=1).any():
                out.reused = (*out.reused, heard.name)
            others.append(found)
            out.count += found.size
            squares = float(np.sum(found**2))
            logs += [-found.size * math.log(s) - squares * (s**-2 - 1) / 2 for s in _SCALES]
        out.wealth = float(special.logsumexp(logs) - math.log(len(_SCALES)))
        return out


def residuals(heard: Heard) -> Floats | None:
    """Return the noise of an answer in declared standard deviations; None where it is not Gaussian."""
    mechanism = heard.asked.release.mechanism
    if not isinstance(mechanism, Gaussian | SymmetricGaussian) or heard.noisy is None or not heard.exact:
        return None
    noisy, exact = (np.ravel(np.asarray(part)) for part in (heard.noisy, heard.exact[0]))
    scale = declared_scale(heard)
    if scale == 0 or noisy.shape != exact.shape:
        return None
    away = (noisy - exact) / scale
    return (
        np.diagonal(away.reshape(np.shape(heard.noisy))) if isinstance(mechanism, SymmetricGaussian) else away
    )


def discriminant(ours: Floats, theirs: Floats, ridge: float | None = None) -> Callable[[Floats], Floats]:
    """Return the score of outputs (fits x numbers) that a linear discriminant learns from some.

    With outputs that are nearly normal it is the likelihood ratio attack on one record. Fits that it learns
    from are not judged, which keeps a bound valid; those with the same noise on both sides teach it most.
    Numbers with heavy tails, such as quotients of noisy ones, count up to five of their quartiles. A ridge on
    the covariance helps where they are many for the fits; the one that parts unseen fits best is used.
    """
    if ridge is None:
        ridge = max((1e-3, 0.1, 10.0), key=lambda one: separation(ours, theirs, one))
    first = np.concatenate([ours, theirs])
    with np.errstate(over="ignore", invalid="ignore"):
        low, middle, high = np.quantile(first, (0.25, 0.5, 0.75), axis=0)
        spread = np.where(high > low, high - low, np.std(first, axis=0))
        told = np.isfinite(spread) & (spread > 0) & np.all(np.abs(first) < 1e150, axis=0)

    def scaled(outputs: Floats) -> Floats:
        return np.nan_to_num(np.clip((outputs[:, told] - middle[told]) / spread[told], -5.0, 5.0))

    sides = [scaled(side) for side in (ours, theirs)]
    centres = [np.mean(side, axis=0) for side in sides]
    centred = np.concatenate([side - c for side, c in zip(sides, centres)])
    covariance = centred.T @ centred / len(centred) + ridge * np.eye(int(told.sum()))
    direction = np.linalg.solve(covariance, centres[0] - centres[1])
    origin = (centres[0] + centres[1]) / 2
    return lambda outputs: np.asarray((scaled(outputs) - origin) @ direction)


def separation(ours: Floats, theirs: Floats, ridge: float | None = None) -> float:
    """Return by how many deviations a discriminant parts fits that it did not learn from."""
    total, even = 0.0, np.arange(len(ours)) % 2 == 0
    for mine in (even, ~even):
        score = discriminant(ours[~mine], theirs[~mine], ridge)
        one, other = score(ours[mine]), score(theirs[mine])
        total += float((one.mean() - other.mean()) / (1e-300 + one.std() + other.std()))
    return total


def likelihood_ratios(ours: Floats, theirs: Floats) -> tuple[Floats, Floats]:
    """Return the scores of LiRA: log ratios of two normal laws, which a third of the fits give."""
    part = len(ours) // 3
    one, other = (stats.norm(np.mean(s[:part]), np.std(s[:part]) + 1e-12) for s in (ours, theirs))
    scores = [one.logpdf(side[part:]) - other.logpdf(side[part:]) for side in (ours, theirs)]
    return scores[0], scores[1]


def above_quantile(ours: Floats, theirs: Floats) -> tuple[Floats, Floats]:
    """Return the scores of the quantile attack: by how much a canary is above the median without it."""
    part = len(ours) // 3
    middle = np.median(theirs[:part])
    return ours[part:] - middle, theirs[part:] - middle
