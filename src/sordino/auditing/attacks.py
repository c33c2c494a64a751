"""What can be proven from noisy answers: likelihood ratios, lower bounds, tests that may stop at any time.

docs/audit.md ("Why the bounds hold") has the proofs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from scipy import special, stats
from scipy.special import ndtr, ndtri

from sordino.accounting.trade_off import TradeOff
from sordino.auditing.tape import Heard, Recording
from sordino.kernel.arrays import Floats
from sordino.kernel.correlated import Correlated
from sordino.kernel.events import FixedSize, Poisson
from sordino.kernel.mechanism import (
    Gaussian,
    GumbelTopK,
    JointSelection,
    Laplace,
    LaplaceMax,
    LaplacePeeling,
    NormGamma,
    StableCounts,
    SymmetricGaussian,
)
from sordino.kernel.noise import NoiseSource

FIRST, ROUND = 25, 5_000
"""Transcripts before the first look of a gambler; each time as many as before, up to the second number."""

_WITH_RESIDUALS = (Gaussian, SymmetricGaussian, Laplace, NormGamma, Correlated, LaplacePeeling)
_SCALES = (0.9, 0.75, 0.5, 0.1)  # of the noise, as the alternatives to the declared one
_CELLS = np.array([0.0, 0.001, 0.01, 0.04, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.96, 0.99, 0.999, 1.0])
"""Quantiles between which a law is learned."""


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
        if isinstance(asked.release.mechanism, (SymmetricGaussian, NormGamma, *CHOICES)):
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


Law: TypeAlias = Callable[[Floats, float], Floats]
Stage: TypeAlias = tuple[Callable[[float], Floats], int, float]
"""One choice: log chances of all there were, had the noise been so many times smaller, which was taken, and
the logarithm of the share of answers that are one with it."""
Stages: TypeAlias = Callable[[Any], Iterator[Stage]]


def declared_scale(heard: Heard) -> float:
    """Return the scale of the noise by the plan; a mechanism is not asked for its own."""
    return (heard.asked.release.mechanism.multiplier or 0.0) * heard.sensitivity


def _value(heard: Heard) -> Any:
    """Return an exact answer as a vector of what the mechanism gets: numbers, or integers of a lattice."""
    return heard.vector if heard.asked.spacing is None else np.ravel(np.asarray(heard.value))


# ------------------------------- Log densities of answers (draws x coordinates) around an exact answer, but
# for a constant that both neighbours share.


def _list(law: Law, scores: Floats, asked: Any) -> Stages:
    """Read a list of the best, or the best one: each is chosen by a law from what is left."""
    mechanism = asked.release.mechanism
    if getattr(mechanism, "absolute", isinstance(mechanism, LaplacePeeling)):
        scores = np.abs(scores)

    def stages(answer: Any) -> Iterator[Stage]:
        left = np.arange(scores.size)
        for one in np.ravel(getattr(answer, "indices", answer)).astype(int):
            taken = int(np.flatnonzero(left == one)[0])
            yield partial(law, scores[left]), taken, 0.0
            left = np.delete(left, taken)

    return stages


def _softmax(scores: Floats, more: float, counts: Floats | float = 0.0) -> Floats:
    """Return the log chances of an exponential mechanism whose noise is ``more`` times smaller."""
    logs = more * scores + counts
    return np.asarray(logs - special.logsumexp(logs))


def _noisy_max(scores: Floats, more: float) -> Floats:
    """Return the log chances that a score with Laplace noise is the largest: integrals."""
    x = np.linspace(-15.0, 30.0, 1501)[:, None] - more * (scores - scores.max())
    away = np.abs(x)
    below = np.where(x < 0.0, -away - math.log(2.0), np.log1p(-np.exp(-away) / 2.0))
    logs = below.sum(axis=1, keepdims=True) - below - away
    return _softmax(special.logsumexp(logs, axis=0), 1.0)


def _combinations(losses: Floats, asked: Any) -> Stages:
    """Read the largest loss of each group: how many combinations have the same one is counted."""
    groups = losses.reshape(len(asked.params), sum(len(ranks) for *_, ranks in asked.params[0]), -1)
    laws = []
    for rows in groups:
        kept = [np.unique(row, return_counts=True) for row in rows]
        levels = np.unique(np.concatenate([one for one, _ in kept]))
        levels = levels[levels >= max(one[0] for one, _ in kept)]
        up_to = [np.cumsum(n)[np.searchsorted(one, levels, "right") - 1] / n.sum() for one, n in kept]
        counts = np.log(np.diff(np.prod(up_to, axis=0), prepend=0.0))
        laws.append((levels, counts, cache(partial(_softmax, -levels, counts=counts))))

    def stages(answer: Floats) -> Iterator[Stage]:
        places = np.asarray(answer, dtype=np.int64).reshape(*groups.shape[:2], 1)
        worst = np.take_along_axis(groups, places, axis=2).max(axis=(1, 2))
        for (levels, counts, law), one in zip(laws, worst, strict=True):
            taken = int(np.searchsorted(levels, one))
            yield law, taken, float(counts[taken])

    return stages


CHOICES: dict[type, Callable[[Floats, Any], Stages]] = {
    GumbelTopK: partial(_list, _softmax),
    LaplaceMax: partial(_list, _noisy_max),
    LaplacePeeling: partial(_list, _noisy_max),
    JointSelection: _combinations,
}
"""How an answer is read, by its exact scores in declared scales."""


def apart(ours: Heard, theirs: Heard, otherwise: float) -> float:
    """Return the deviation of the log ratio of a choice, were each row of scores chosen from by itself."""
    if type(ours.asked.release.mechanism) not in CHOICES or ours.vector.shape != theirs.vector.shape:
        return otherwise
    joint = isinstance(ours.asked.release.mechanism, JointSelection)
    shape = (-1, np.shape(ours.value)[-1]) if joint else (1, -1)
    sign, scale = (-1.0 if joint else 1.0), declared_scale(ours)
    scores, moved = (sign * side.vector.reshape(shape) / scale for side in (ours, theirs))
    chances, moved = special.softmax(scores, axis=1), moved - scores
    mean = np.sum(chances * moved, axis=1, keepdims=True)
    return float(np.sqrt(np.sum(chances * (moved - mean) ** 2)))


def _chosen(answers: Floats, exact: Floats, scale: float, asked: Any) -> Floats:
    stages, known = CHOICES[type(asked.release.mechanism)](exact / scale, asked), {}
    for answer in map(tuple, answers):
        if answer not in known:
            known[answer] = sum(law(1.0)[taken] - ties for law, taken, ties in stages(np.array(answer)))
    return np.array([known[tuple(answer)] for answer in answers])


DENSITIES: dict[type, Callable[[Floats, Floats, float, Any], Floats]] = {
    Gaussian: lambda answers, exact, scale, asked: -np.sum((answers - exact) ** 2, axis=1) / (2 * scale**2),
    Laplace: lambda answers, exact, scale, asked: -np.sum(np.abs(answers - exact), axis=1) / scale,
    NormGamma: lambda answers, exact, scale, asked: -np.sqrt(np.sum((answers - exact) ** 2, axis=1)) / scale,
    **dict.fromkeys((GumbelTopK, LaplaceMax, JointSelection), _chosen),
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
    """Return who refutes curves, with a chance of error, by bets on pairs of scores with the same noise: soft
    tests that say yes to a score s with probability ``Phi(s / width)``.
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


def most_noise(refuted: Callable[[float], bool]) -> float:
    """Return the most noise, as a multiple of the plan's, that is not refuted; infinite for any amount."""
    if not refuted(64.0):
        return math.inf
    low, high = -6.0, 6.0  # powers of two: little noise is allowed, much is refuted
    for _ in range(16):
        middle = (low + high) / 2
        low, high = (low, middle) if refuted(2.0**middle) else (middle, high)
    return float(2.0**high)


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


class Gamblers:
    """The logarithms of what gamblers have, by name; who joins gets an even part of the one stake."""

    def __init__(self, stake: float = 0.0) -> None:
        self._stake, self._each = stake, dict[str, Any]()

    def bet(self, who: str, ratios: Any) -> None:
        """Multiply what a gambler has, or each of several of one name, by likelihood ratios."""
        before = self._each.get(who)
        self._each[who] = (self.wealth if before is None else before) + ratios

    @property
    def wealth(self) -> float:
        """The logarithm of the mean."""
        return _log_mean([*map(_log_mean, self._each.values())]) if self._each else self._stake


class Scale:
    """Gamblers on noise that is not the declared one, by answers of real runs.

    They bet on the scale of each kind of noise, of each coordinate and of each turn of a release, on
    differences of neighbouring coordinates and of answers that follow each other, on the law, on grids and
    on the last bits of integers and on sizes of batches. All subjects of bets share the stake evenly.
    """

    def __init__(self) -> None:
        self.count, self.runs = 0, 0
        self.most = 0.0  # the logarithm of the largest mean wealth, whenever it was looked at
        self.reused: tuple[str, ...] = ()
        self._noise: dict[int, list[Floats]] = {}
        self._single = np.zeros(0)  # noise, number by number, in rising order
        self._told: dict[str, Floats] = {}  # by kind, mean and variance of the log wealth at half the noise
        self._turns: Counter[str] = Counter()  # how many numbers were heard in each
        self._subjects: dict[str, Gamblers] = {}
        self._cells: dict[str, Floats] = {}

    def see(self, run: Recording) -> None:
        """Bet on all answers of a run whose law is known."""
        past: dict[str, list[Floats]] = {}
        last: dict[str, Floats] = {}
        self.runs += 1
        for heard in run.questions:
            away = residuals(heard, past.setdefault(heard.name, []))
            if away is not None and away.size and not _is_drowned(heard):
                self._look_for_repeats(heard, away)
                self._bet_on_parts(heard, away, last)
            for kind, told in _told(heard, away):
                self.count += 1 if away is None else away.size
                self._bet("kind", kind, told[:-2])
                self._told[kind] = self._told.get(kind, 0.0) + told[-2:]
            if heard.batch is not None:
                self._bet("batches", "sizes", _batch_ratios(heard.batch, heard.asked))
        self.most = max(self.most, self.wealth)

    def _bet(self, subject: str, who: str, ratios: Any) -> None:
        if subject not in self._subjects:
            self._subjects[subject] = Gamblers(self.wealth)
        self._subjects[subject].bet(who, ratios)

    def _look_for_repeats(self, heard: Heard, away: Floats) -> None:
        """Look for noise that comes twice, and for one number that comes three times."""
        if self.runs <= 8:
            others = self._noise.setdefault(away.size, [])
            near = 1e-6 if away.size > 2 else 1e-11  # of few numbers two may be near each other by chance
            if others and np.isclose(others, away, near, near).all(axis=1).any():
                self.reused = (*self.reused, heard.name)
            others.append(away)
        if self._single.size < 5_000 and _precision(heard) == np.float64:
            new = np.sort(away[:500])
            self._single = np.insert(self._single, np.searchsorted(self._single, new), new)
            if np.any(self._single[2:] - self._single[:-2] < 1e-12):
                self.reused = (*self.reused, heard.name)

    def _bet_on_parts(self, heard: Heard, away: Floats, last: dict[str, Floats]) -> None:
        """Bet on what the mean over all coordinates and turns hides."""
        asked, release = heard.asked, f"{heard.name}, {away.size} numbers"
        mechanism, before = type(asked.release.mechanism), last.get(release)
        if not issubclass(mechanism, Gaussian | SymmetricGaussian | Laplace | Correlated):
            return
        power = 1 if mechanism is Laplace else 2
        sizes, turn = np.abs(away) ** power / power, f"{release}, turn {asked.position}"
        parts = [("coordinates", release, sizes, 1), ("turns", turn, sizes.sum(), away.size)]
        self._turns[turn] += away.size
        if power == 2:
            steps = {} if before is None else {"of answers": away - before}
            for name, one in {"of neighbours": away[:-1:2] - away[1::2], **steps}.items():
                parts.append(("differences", name, np.sum(one**2) / 4, one.size))
        for subject, who, size, count in parts:
            self._bet(subject, who, np.stack([*_ratios(size, count, power)]))
        last[release] = away
        if (grain := asked.spacing) is not None and declared_scale(heard) < 2.0**32 * grain:
            odd = np.rint(away * (declared_scale(heard) / grain)).astype(np.int64) % 2
            self._bet("last bits", "even", np.sum(np.where(odd, math.log(0.1), math.log(1.9))))
        if isinstance(heard.value, list):  # several parties add more than declared: some may leave
            return
        if not asked.secure and mechanism is not Correlated:
            self._bet("grids", release, _grid_ratios(heard, away))
        kind = mechanism.__name__
        counts, chances = self._cells.setdefault(kind, 8.0 * np.diff(_CELLS)), np.diff(_CELLS)
        drawn = np.histogram(ndtr(away) if power == 2 else stats.laplace.cdf(away), _CELLS)[0]
        self._bet("law", kind, drawn @ np.log(counts / counts.sum() / chances))  # by draws before
        counts += drawn

    @property
    def wealth(self) -> float:
        """The logarithm of the mean wealth."""
        return _log_mean([one.wealth for one in self._subjects.values()])

    def power(self, error: float, times: float = 1.0) -> float | None:
        """Return the chance that as many answers refute half of the noise, of the kind that is told least."""
        if not self._told:
            return None
        needed = math.log(len(self._subjects) * len(self._told) * len(_SCALES) / error)
        both = [(times * mean, math.sqrt(times * var) + 1e-9) for mean, var in self._told.values()]
        return float(min(ndtr((mean - needed) / deviation) for mean, deviation in both))

    def least_of_a_turn(self, error: float) -> float | None:
        """Return the share of the noise that shows in one turn alone with a chance of .99, if one does."""
        if not self._turns:
            return None
        numbers, shares = min(self._turns.values()), np.linspace(0.05, 0.95, 91)
        needed = math.log(len(self._subjects) * len(self._turns) * len(_SCALES) / error)
        gains = np.array([shares**2 * (1 - s**-2) / 2 - math.log(s) for s in _SCALES])
        spread = np.array([shares**2 * (s**-2 - 1) for s in _SCALES]) * math.sqrt(numbers / 2)
        shown = shares[np.any(numbers * gains - needed > 2.33 * spread, axis=0)]
        return float(shown.max()) if shown.size else None


def _log_mean(logs: Any) -> float:
    """Return the logarithm of the mean of some wealths; all begin with one."""
    return float(np.logaddexp.reduce(np.ravel(logs)) - math.log(np.size(logs))) if np.size(logs) else 0.0


def _precision(heard: Heard) -> Any:
    """Return the type of the numbers that an asker hears."""
    return np.float32 if str(getattr(heard.noisy, "dtype", "")).endswith("float32") else np.float64


def _grid_ratios(heard: Heard, away: Floats) -> Floats:
    """Return what is won where noise lies on a grid, from 2^-8 of it downwards: the sum has the truth's bits.

    Honest noise is within a 256th of a line with a chance of 2^-7, but for the rounding of the answer, which
    is 2^-10 of a grid at most; a hit pays 50, nothing half: .94 is expected. Grids are of powers of two, for
    bits that were left alone, and of the declared scale, for noise that was drawn in fewer bits.
    """
    scale, noise = declared_scale(heard), declared_scale(heard) * away[:50]
    unit = np.array([[2.0 ** math.floor(math.log2(scale))], [scale]])
    grids = unit * 2.0 ** -np.arange(8.0, 44.0)
    lines = noise[:, None, None] / grids
    hit = np.abs(lines - np.rint(lines)) < 2.0**-8
    largest = np.max(np.abs(heard.vector)) + np.max(np.abs(noise))
    coarse = grids >= 2.0**10 * np.spacing(_precision(heard)(largest))
    return np.asarray(np.where(coarse, np.where(hit, math.log(50.0), math.log(0.5)).sum(axis=0), 0.0))


def _is_drowned(heard: Heard) -> bool:
    """Tell whether an answer holds public numbers beside which its noise loses digits."""
    known = heard.vector.dtype != object  # counts of texts are small
    return known and not np.max(np.abs(heard.vector), initial=0.0) < 2.0**30 * declared_scale(heard)


def _ratios(size: Any, count: int, power: int) -> Iterator[Any]:
    """Yield the log ratios of less noise, by ``|z|^power / power`` of so many numbers together."""
    return (-count * math.log(s) - size * (s**-power - 1.0) for s in _SCALES)


def _batch_ratios(size: int, asked: Any) -> Floats:
    """Return the log ratios of larger batches: they grow in the size, so smaller ones win nothing."""
    n, rate = asked.population, asked.release.sampling.rate
    rates = [min(more * rate, (1.0 + rate) / 2) for more in (1.2, 1.5, 2.0)]
    return np.array([size * math.log(r / rate) + (n - size) * math.log((1 - r) / (1 - rate)) for r in rates])


def residuals(heard: Heard, past: list[Floats]) -> Floats | None:
    """Return the noise of an answer in declared scales, coordinates that are independent; None for a choice.

    Correlated noise is made white by its own matrix: ``past`` has the residuals of its release before.
    """
    mechanism, scale = heard.asked.release.mechanism, declared_scale(heard)
    if heard.noisy is None or not heard.exact or scale == 0:
        return None
    if isinstance(mechanism, StableCounts):  # what is told for sure
        sure = mechanism.threshold(heard.sensitivity) + 7.0 * scale
        counts = {key: c for key, c in dict(heard.exact[0]).items() if c > sure}
        return np.array([heard.noisy[i].get(text, 0.0) - c for (i, text), c in counts.items()]) / scale
    if not isinstance(mechanism, _WITH_RESIDUALS):
        return None
    if isinstance(mechanism, LaplacePeeling):
        return (heard.noisy.values - heard.vector[heard.noisy.indices]) / scale
    noisy, exact = np.asarray(heard.noisy), heard.vector
    if isinstance(mechanism, SymmetricGaussian):
        exact = exact if exact.size < noisy.size else mechanism.vector(exact.reshape(noisy.shape))
        noisy = mechanism.vector(noisy)
    if noisy.size != exact.size:
        return None
    away = (noisy.ravel() - exact) / scale
    if isinstance(mechanism, Correlated):
        past.append(np.asarray(away) / mechanism.norm)
        weights = mechanism.strategy.coefficients(len(past))
        away = np.asarray(sum(w * one for w, one in zip(weights, reversed(past), strict=True)))
    return away


def _told(heard: Heard, away: Floats | None) -> Iterator[tuple[str, Floats]]:
    """Yield what an answer tells of its scale: log ratios of less noise, mean and variance at half of it."""
    mechanism, kind = heard.asked.release.mechanism, type(heard.asked.release.mechanism).__name__
    if away is not None and away.size:
        power = 1 if isinstance(mechanism, Laplace | NormGamma | LaplacePeeling) else 2
        size = np.sum(np.abs(away) ** power) / power  # of the law Gamma(count / power)
        size = np.linalg.norm(away) if isinstance(mechanism, NormGamma) else size
        fall, count = 1.0 - 0.5**power, away.size
        mean, variance = count * (math.log(2.0) - fall / power), fall**2 * count / power
        yield kind, np.array([*_ratios(size, count, power), mean, variance])
    if type(mechanism) in CHOICES and heard.noisy is not None and heard.exact and declared_scale(heard):
        scores = heard.vector / declared_scale(heard)
        for law, taken, _ in CHOICES[type(mechanism)](scores, heard.asked)(heard.noisy):
            declared, half = law(1.0), law(2.0)
            gain, chances = half - declared, np.exp(half)
            mean, ratios = float(chances @ gain), [law(1.0 / s)[taken] - declared[taken] for s in _SCALES]
            yield kind, np.array([*ratios, mean, chances @ (gain - mean) ** 2])


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
