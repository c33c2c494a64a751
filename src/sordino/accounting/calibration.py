"""Noise for a wanted epsilon: one scale for all releases of a plan, as small as is proven enough."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import tempfile
from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from dp_accounting import dp_event as dp
from scipy import optimize

from sordino.accounting.conversions import check_delta, check_epsilon, gaussian_epsilon, gaussian_multiplier
from sordino.accounting.conversions import gaussian_mu as mu_of_budget
from sordino.accounting.pld import pld_epsilon, supports
from sordino.accounting.renyi import rdp_curve, rdp_epsilon, total_curve
from sordino.accounting.trees import Leaf, encode, flatten, gaussian_mu, is_non_private, without_rare
from sordino.errors import CalibrationError
from sordino.kernel.arrays import cache_folder
from sordino.kernel.events import PureDpEvent, RareDpEvent, Relation
from sordino.kernel.plan import Plan

# ------------------------------------------------------- Calibrations remembered in the process and on disk
# Losing the cache costs a second, never correctness, and what it says is never believed: ``solve_scale``
# certifies a remembered scale before it is used.

FORMAT = 4
"""Raised whenever an accountant changes, so that old results are not found any more."""

MOST = 256
"""How many solutions a process remembers."""

_MEMORY: dict[str, float] = {}


def cache_key(*parts: object) -> str:
    """Return the hash of a problem together with what solves it."""
    text = json.dumps([FORMAT, _accounting_version(), *parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def keep(key: str, scale: float) -> None:
    """Remember a scale as long as the process lives; the oldest one goes when there are many."""
    _MEMORY[key] = scale
    if len(_MEMORY) > MOST:
        _MEMORY.pop(next(iter(_MEMORY)), None)


def load(key: str) -> float | None:
    """Return the scale on disk; None if it is absent or odd in any way."""
    try:
        data = json.loads(_path(key).read_text())
        scale = data["scale"]
    except (OSError, ValueError, TypeError, KeyError, RuntimeError):  # RecursionError is a RuntimeError
        return None
    if data.get("key") != key or type(scale) is not float or not 0 < scale < math.inf:
        return None
    return scale


def store(key: str, scale: float) -> None:
    """Remember a scale on disk; a folder that cannot be written is no reason to fail."""
    text = json.dumps({"key": key, "scale": scale})
    with contextlib.suppress(OSError, RuntimeError):
        path = _path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
            os.replace(name, path)  # readers see the old file or the new one, never half of one
        except OSError:
            os.unlink(name)


def _path(key: str) -> Path:
    return cache_folder() / "calibration" / f"{key}.json"


@lru_cache(maxsize=1)
def _accounting_version() -> str:
    return metadata.version("dp-accounting")


EventAt = Callable[[float], dp.DpEvent]

TIGHT = 0.9995
"""The search stops when the certified epsilon is this close below the target; 0.99 is promised."""

MIN_SCALE, MAX_SCALE = 1e-8, 1e12

SMALLEST_EPSILON = 1e-11
"""No accountant resolves less: the finest grid of losses, and the search for a Gaussian epsilon."""

USUAL = 1e-4, 1e4
"""For epsilons outside the ends of the range are tried first: there most are out of reach."""

JUMP = 10.0
"""A bracket over which epsilon falls this many times faster than beside it holds a jump, not a root."""

ROUNDED = 2e-5
"""Brackets this narrow (in the logarithm of the scale) are not cut further: a certificate of many rare steps
moves by its rounding, up to 1 %, and no scale in between need be proven nearer to the target."""


def calibrate(plan: Plan, epsilon: float, delta: float) -> Plan:
    """Return the plan with the smallest noise that is proven (epsilon, delta)-DP.

    The certified epsilon of the result lies in (0.99 epsilon, epsilon]. ``epsilon=float("inf")`` gives
    the plan without noise. Results are remembered on disk (``SORDINO_CACHE`` names the folder).

    Parameters
    ----------
    plan : what will be released; only the ``relative`` sizes of its multipliers are used.
    epsilon, delta : the budget of the whole plan.

    Raises
    ------
    CalibrationError
        If no noise level reaches the budget.

    **Privacy.** Data-independent: the plan holds public numbers only.
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    if math.isinf(epsilon):
        return plan.at(0.0)
    return plan.at(solve_scale(lambda scale: plan.at(scale).event(), epsilon, delta, plan.relation))


def solve_scale(event_at: EventAt, epsilon: float, delta: float, relation: Relation) -> float:
    """Return the smallest scale whose event is certified within (0.99 epsilon, epsilon].

    Parameters
    ----------
    event_at : the event tree at a noise scale; its cost must fall as the scale grows.
    epsilon, delta, relation : the target.
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    # Two scales fix how each event depends on the scale, so that no other plan has the same key.
    events = [event_at(scale) for scale in (1.0, 2.0)]
    if is_non_private(flatten(events[0])):
        raise CalibrationError(
            "The plan holds a release without noise, so its epsilon is inf at every noise scale. "
            "Give every release a mechanism, or ask for an infinite epsilon (inf)."
        )
    key = cache_key([encode(event) for event in events], epsilon, delta, relation.value)
    for remembered in (_MEMORY.get, load):
        found = remembered(key)
        # A file may say anything: what is remembered is certified now, for this event.
        if found and 0.99 * epsilon < certify(event_at(found), delta, relation).epsilon <= epsilon:
            break
    else:
        if epsilon < SMALLEST_EPSILON:
            raise CalibrationError(
                f"Expected epsilon >= {SMALLEST_EPSILON:g}, got {epsilon:g}: accountants compute in floats "
                "and resolve no less. Choose a larger epsilon."
            )
        found = Search(
            lambda scale: certify(event_at(scale), delta, relation).epsilon,
            epsilon,
            f"epsilon={epsilon:g} at delta={delta:g}",
        ).run(lambda: _guess(event_at, epsilon, delta, relation))
        store(key, found)
    keep(key, found)
    return found


class Search:
    """Finds the root of ``ln cost(scale) = ln target``, of whatever falls as noise grows, by secants.

    ``above`` and ``below`` are the (log scale, cost) seen on each side of the root, by scale; ``too_little``
    and ``enough`` are the log scales nearest to it. ``what`` names the target in an error.
    """

    def __init__(
        self, cost: Callable[[float], float], target: float, what: str, tight: float = TIGHT
    ) -> None:
        self.cost, self.target, self.what, self.tight = cost, target, what, tight
        self.aim = math.log(target * (1 + tight) / 2)
        self.too_little, self.enough = -math.inf, math.inf
        self.points: list[tuple[float, float]] = []
        self.above: list[tuple[float, float]] = []
        self.below: list[tuple[float, float]] = []
        self.brackets: list[tuple[float, float]] = []

    def run(self, guess: Callable[[], float]) -> float:
        """Return a scale whose cost is at most the target, and hardly less; ``guess`` is where to begin."""
        if self.target < USUAL[0] and (least := self.cost(MAX_SCALE)) > self.target:
            raise self._unreachable(f"The most noise, scale {MAX_SCALE:g}, costs {least:.3g}")
        if self.target > USUAL[1] and (most := self.cost(MIN_SCALE)) < 0.99 * self.target:
            raise self._unreachable(f"The least noise, scale {MIN_SCALE:g}, costs {most:.3g}")
        x = math.log(min(max(guess(), MIN_SCALE), MAX_SCALE))
        for _ in range(60):
            epsilon = self.cost(math.exp(x))
            if self.tight * self.target < epsilon <= self.target:
                return math.exp(x)
            if not math.log(MIN_SCALE) < x < math.log(MAX_SCALE):
                break
            self._narrow(x, epsilon)
            if self._jumps():
                return self._beside_the_jump()
            if self.enough - self.too_little < ROUNDED and self.below[0][1] > 0.99 * self.target:
                return math.exp(self.enough)
            x = self._next(x, epsilon)
        reached = [math.exp(y) for _, y in self.points] or [math.inf]
        raise self._unreachable(f"The search reached costs between {min(reached):.3g} and {max(reached):.3g}")

    def _unreachable(self, why: str) -> CalibrationError:
        return CalibrationError(
            f"No noise scale in ({MIN_SCALE:g}, {MAX_SCALE:g}) certifies {self.what}. {why}. Choose another "
            "epsilon or another delta."
        )

    def _narrow(self, x: float, epsilon: float) -> None:
        side = self.above if epsilon > self.target else self.below
        insort(side, (x, epsilon))
        self.too_little = self.above[-1][0] if self.above else -math.inf
        self.enough = self.below[0][0] if self.below else math.inf
        if 0 < epsilon < math.inf:
            self.points.append((x, math.log(epsilon)))

    def _jumps(self) -> bool:
        """Return whether epsilon falls far faster than beside a bracket, and as far as when that was wide."""
        if len(self.above) < 2 or not self.below:
            return False
        width, (_, before), (_, after) = self.enough - self.too_little, self.above[-1], self.below[0]
        self.brackets.append((width, before - after))
        kept = any(wide > 4 * width and before - after > 0.8 * fell for wide, fell in self.brackets)
        fall = max(_fall(self.above[-2:]), _fall(self.below[:2]), before)
        return kept and width < 0.05 and after < before / 2 and before - after > JUMP * fall * width

    def _beside_the_jump(self) -> float:
        (_, before), (_, after) = self.above[-1], self.below[0]
        if after > 0.99 * self.target:
            return math.exp(self.enough)
        fall = f"falls from {before:.3g} to {after:.3g} at once"
        raise self._unreachable(f"Near scale {math.exp(self.enough):.3g} what is proven {fall}")

    def _next(self, x: float, epsilon: float) -> float:
        """Return the next log scale: a secant if it helps, else the middle of the bracket."""
        step = math.log(8) if epsilon > self.target else -math.log(8)
        if self.points and self.points[-1][0] == x:
            slope = self._slope()
            step = max(-math.log(8), min((self.aim - self.points[-1][1]) / slope, math.log(8)))
        proposal = self._straight() or x + step
        if self.too_little < proposal < self.enough:
            return proposal
        return (self.too_little + self.enough) / 2

    def _straight(self) -> float | None:
        """Return where the line through the two nearest costs above meets the target, for epsilon near 0."""
        if not self.below or self.below[0][1] > 0 or len(self.above) < 2:
            return None
        fall, (x, epsilon) = _fall(self.above[-2:]), self.above[-1]
        return x + (epsilon - math.exp(self.aim)) / fall if 0 < fall < math.inf else None

    def _slope(self) -> float:
        """Return d ln(epsilon) / d ln(scale) from the last two points; -1 to begin with."""
        if len(self.points) < 2:
            return -1.0
        (x0, y0), (x1, y1) = self.points[-2:]
        return min((y1 - y0) / (x1 - x0), -1e-4) if x1 != x0 else -1.0


def _guess(event_at: EventAt, epsilon: float, delta: float, relation: Relation) -> float:
    """Return the scale whose Gaussian limit has the target: exact for Gaussians, else a start only."""
    leaves = flatten(event_at(1.0))
    if all(isinstance(leaf.event, dp.GaussianDpEvent) for leaf in leaves):
        mu = sum(gaussian_mu(leaf, relation) for leaf in leaves)
        return mu * gaussian_multiplier(epsilon * (1 + TIGHT) / 2, delta)
    mu = mu_of_budget(epsilon, delta)
    low, high = math.log(1e-4), math.log(1e8)

    def limit(x: float) -> float:
        return math.sqrt(_total_variance(flatten(event_at(math.exp(x))), relation))

    if not limit(low) > mu > limit(high):
        return 1.0
    return math.exp(optimize.brentq(lambda x: math.log(limit(x) / mu), low, high, xtol=1e-4))


def _fall(points: list[tuple[float, float]]) -> float:
    """Return how fast epsilon falls between two points (log scale, epsilon); 0 if there is one only."""
    if len(points) < 2:
        return 0.0
    (x0, e0), (x1, e1) = points
    return (e0 - e1) / (x1 - x0) if x1 > x0 else math.inf


def _total_variance(leaves: Iterable[Leaf], relation: Relation) -> float:
    return sum(leaf.count * _limit_variance(leaf.event, relation) for leaf in leaves)


def _limit_variance(event: dp.DpEvent, relation: Relation) -> float:
    """Return the variance of the privacy loss, roughly: only to start the search."""
    if isinstance(event, (dp.PoissonSampledDpEvent, dp.SampledWithoutReplacementDpEvent)):
        rate = getattr(event, "sampling_probability", 0) or event.sample_size / event.source_dataset_size
        single = _limit_variance(event.event, Relation.ADD_REMOVE)
        return float(rate**2 * relation.contributions**2 * math.expm1(min(single, 500.0)))
    if isinstance(event, dp.RepeatAndSelectDpEvent):
        return 9 * _total_variance(flatten(event.event), relation)
    if isinstance(event, RareDpEvent):
        return 0.0
    if isinstance(event, dp.ZCDpEvent):
        return float(2 * event.rho)
    if isinstance(event, dp.MixtureOfGaussiansDpEvent):
        shift = sum(c * p for c, p in zip(event.sensitivities, event.sampling_probs))
        return float((shift / event.standard_deviation) ** 2)
    if isinstance(event, PureDpEvent):
        return float(min(event.epsilon, 1e150) ** 2)
    if isinstance(event, dp.LaplaceDpEvent):
        return float(event.noise_multiplier**-2)
    return gaussian_mu(Leaf(event, 1), relation) ** 2


# --------------------- What a tree of events costs: one function, the tightest proven accountant for the tree

__all__ = ["Certificate", "certify", "certify_by", "rdp_curve"]

EXACT, PLD, RDP, NONE = "gaussian (exact)", "pld", "rdp", "none"


@dataclass(frozen=True)
class Certificate:
    """A proven guarantee.

    Parameters
    ----------
    epsilon, delta : the guarantee; epsilon is ``inf`` where there is none.
    relation : the neighbouring relation it holds for.
    accountant : ``"gaussian (exact)"``, ``"pld"``, ``"rdp"`` or ``"none"``.
    discretisation : the grid of a privacy loss distribution, else None; coarse is loose, never wrong.
    """

    epsilon: float
    delta: float
    relation: Relation
    accountant: str
    discretisation: float | None = None


def certify(event: dp.DpEvent, delta: float, relation: Relation, *, grid: float | None = None) -> Certificate:
    """Return the smallest epsilon that is proven for an event tree.

    Full-batch Gaussians alone compose exactly. Otherwise privacy loss distributions are used if every
    leaf has a dominating pair, and Rényi divergences if not, or if ``delta`` is below what a
    floating-point distribution resolves. No central-limit approximation is ever used. What is told but
    rarely takes its probability off ``delta``; the rest is certified at what is left.

    Parameters
    ----------
    event : a tree in the semantics of ``kernel.events``.
    delta : in (0, 1).
    relation : the neighbouring relation of the tree.
    grid : interval of the loss grid; by default as fine as needed for 1 %.

    Examples
    --------
    >>> from dp_accounting import dp_event as dp
    >>> from sordino.kernel.events import Relation
    >>> round(certify(dp.GaussianDpEvent(1.0), 1e-5, Relation.ADD_REMOVE).epsilon, 3)
    4.377

    **Privacy.** The number depends on the tree only, never on data.
    """
    leaves, rare = without_rare(flatten(event))
    left = check_delta(delta) - rare
    if rare and not left > 0:
        return Certificate(math.inf, delta, Relation.parse(relation), NONE)
    found = _certify(leaves, left if rare else check_delta(delta), Relation.parse(relation), grid)
    return replace(found, delta=check_delta(delta)) if rare else found


@lru_cache(maxsize=256)  # a plan is certified when it is calibrated, reserved and reported
def _certify(leaves: tuple[Leaf, ...], delta: float, relation: Relation, grid: float | None) -> Certificate:
    if all(isinstance(leaf.event, dp.GaussianDpEvent) for leaf in leaves):
        # At most one leaf: flatten has composed the Gaussians. None means that nothing is released.
        mu = sum(gaussian_mu(leaf, relation) for leaf in leaves)
        return Certificate(gaussian_epsilon(mu, delta), delta, relation, EXACT)
    if not is_non_private(leaves) and all(supports(leaf, relation) for leaf in leaves):
        found = pld_epsilon(leaves, delta, relation, grid)
        if math.isfinite(found.epsilon):
            return Certificate(found.epsilon, delta, relation, PLD, found.interval)
    return _renyi(leaves, delta, relation)


def certify_by(
    accountant: str, event: dp.DpEvent, delta: float, relation: Relation, *, grid: float | None = None
) -> Certificate:
    """Return the guarantee of one named accountant, for comparisons; :func:`certify` chooses."""
    leaves, delta, relation = flatten(event), check_delta(delta), Relation.parse(relation)
    if is_non_private(leaves) or accountant == RDP:
        return _renyi(leaves, delta, relation)
    found = pld_epsilon(leaves, delta, relation, grid)
    return Certificate(found.epsilon, delta, relation, PLD, found.interval)


def _renyi(leaves: Sequence[Leaf], delta: float, relation: Relation) -> Certificate:
    if is_non_private(leaves):
        return Certificate(math.inf, delta, relation, NONE)
    return Certificate(rdp_epsilon(total_curve(leaves, relation), delta), delta, relation, RDP)
