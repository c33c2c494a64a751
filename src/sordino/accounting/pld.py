"""Epsilon by privacy loss distributions: tight, and always from above."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from dp_accounting import dp_event as dp
from scipy import fft

from sordino.accounting.pairs import (
    Pair,
    addition_pair,
    dilute,
    fixed_size_pair,
    gaussian_pair,
    laplace_pair,
    mixture,
    removal_pair,
    replacement_pair,
    response_pair,
    reverse,
    tilt_pairs,
)
from sordino.accounting.trees import Leaf, gaussian_mu, unsupported_error
from sordino.errors import UnsupportedError
from sordino.kernel.arrays import Floats
from sordino.kernel.events import PureDpEvent, Relation, TiltDpEvent
from sordino.values import check_range

# ----------------- The privacy loss of a release on a grid: discretised pessimistically, composed, read off
# The discretisation is "connect the dots" (Doroshenko et al. 2022) written cell by cell: a cell keeps
# its exact masses under P and under Q, moved to its two ends. The grid pair dominates the true one.
# Composition multiplies Fourier transforms; what lies outside the window is counted as infinite loss.
# The same numbers as dp-accounting's PLD (tests compare them) at a tenth of the time, without its
# second differences, whose rounding adds mass when steps are many and small.

TAIL = 1e-15
"""Probability outside the window of a composition; it is charged as infinite loss."""

ROUNDING = 2.0**-52
"""Charged per composed release: Fourier transforms of floats lose about a tenth of it."""


@dataclass(frozen=True)
class GridLoss:
    """Probabilities of the losses ``interval * (start + i)`` under P, and of an infinite loss."""

    interval: float
    start: int
    probabilities: Floats
    infinite: float

    def losses(self, first: int = 0) -> Floats:
        """Return the losses from the bin ``first`` on."""
        end = self.start + self.probabilities.size
        return self.interval * np.arange(min(self.start + first, end), end, dtype=float)

    def delta(self, epsilon: float) -> float:
        """Return the hockey-stick divergence, ``infinite + sum_i p_i (1 - e^(epsilon - loss_i))_+``."""
        first = max(math.floor(epsilon / self.interval) + 1 - self.start, 0)
        gap = epsilon - self.losses(first)
        return self.infinite + float(np.dot(self.probabilities[first:], -np.expm1(gap)))

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon >= 0 whose divergence is at most ``delta``."""
        if self.infinite > delta:
            return math.inf
        if self.delta(0.0) <= delta:
            return 0.0
        low, high = 0, self.start + self.probabilities.size  # bins: delta(low) > delta >= delta(high)
        while high - low > 1:
            middle = (low + high) // 2
            if self.delta(middle * self.interval) > delta:
                low = middle
            else:
                high = middle
        return self._solve_in_cell(low, delta)

    def _solve_in_cell(self, cell: int, delta: float) -> float:
        """Solve ``mass - e^(epsilon - left) * tilted = delta`` in the cell that starts at ``left``."""
        left, first = cell * self.interval, max(cell + 1 - self.start, 0)
        tail, gap = self.probabilities[first:], left - self.losses(first)
        mass, tilted = self.infinite + float(tail.sum()), float(np.dot(tail, np.exp(gap)))
        if not (mass > delta and tilted > 0):  # rounding, or a tail below the smallest float
            return left + self.interval
        return left + min(max(math.log((mass - delta) / tilted), 0.0), self.interval)


def discretise(pair: Pair, interval: float) -> GridLoss:
    """Return a pessimistic grid version of a pair.

    A cell (a, a+d] with masses u under P and v under Q becomes two atoms that keep both masses:
    ``(u - e^a v) / (1 - e^-d)`` at a+d and the rest at a. Losses below the grid are rounded up to its
    first point; above it, ``e^top v`` stays at the top and the rest is infinite.
    """
    index = np.arange(math.floor(pair.low / interval), math.ceil(pair.high / interval) + 1)
    edges = interval * index.astype(float)
    tails = pair.tails(edges)
    p = np.exp(_cell_log_mass(tails.p_above, tails.p_below))
    q = np.exp(np.minimum(edges[:-1] + _cell_log_mass(tails.q_above, tails.q_below), 0.0))
    right = np.clip((p - q) / -math.expm1(-interval), 0.0, p)
    atoms = np.zeros(index.size)
    atoms[1:] += right
    atoms[:-1] += p - right
    atoms[0] += math.exp(tails.p_below[0])
    above = math.exp(tails.p_above[-1])
    finite = min(above, math.exp(min(edges[-1] + tails.q_above[-1], 0.0)))
    atoms[-1] += finite
    return GridLoss(interval, int(index[0]), atoms, above - finite)


def compose(parts: Sequence[tuple[GridLoss, int]], max_bins: int) -> GridLoss | None:
    """Return the loss of all parts together, each ``count`` times; None if it needs more bins."""
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]
    interval = parts[0][0].interval
    low, high = _window(parts)
    size = max(high - low + 1, *(part.probabilities.size for part, _ in parts))
    if size > max_bins:
        return None
    length = fft.next_fast_len(size, real=True)
    spectrum = np.ones(length // 2 + 1, dtype=complex)
    for part, count in parts:
        spectrum *= fft.rfft(part.probabilities, length) ** count
    start = sum(part.start * count for part, count in parts)
    values = np.roll(fft.irfft(spectrum, length), start - low)[: high - low + 1]
    survive = sum(count * math.log1p(-part.infinite) for part, count in parts)
    rounding = ROUNDING * sum(count for _, count in parts)
    return GridLoss(interval, low, values, TAIL + rounding - math.expm1(survive))


def _cell_log_mass(above: Floats, below: Floats) -> Floats:
    """Return the log mass between successive edges, from the side whose tail is smaller."""
    with np.errstate(divide="ignore", invalid="ignore"):
        from_right = above[:-1] + np.log(-np.expm1(above[1:] - above[:-1]))
        from_left = below[1:] + np.log(-np.expm1(below[:-1] - below[1:]))
    mass = np.where(below[1:] < above[1:], from_left, from_right)
    return np.where(np.isnan(mass), -np.inf, mass)


def _window(parts: Sequence[tuple[GridLoss, int]]) -> tuple[int, int]:
    """Return the bins outside of which the composed loss has mass at most ``TAIL`` (Chernoff)."""
    low = sum(part.start * count for part, count in parts)
    high = sum((part.start + part.probabilities.size - 1) * count for part, count in parts)
    variance = sum(count * _variance(part) for part, count in parts)
    if variance == 0:
        return low, high
    room = math.log(2 / TAIL)
    centre = math.sqrt(2 * room / variance)  # the best order of a Gaussian, in bins
    with np.errstate(divide="ignore"):
        logs = [(np.log(part.probabilities), part.start, count) for part, count in parts]
    for order in centre * 2.0 ** np.arange(-10, 2):  # rare large losses call for small orders
        high = min(high, math.ceil((_log_moment(logs, order) + room) / order))
        low = max(low, math.floor((_log_moment(logs, -order) + room) / -order))
    return low, high


def _variance(part: GridLoss) -> float:
    """Return the variance of the finite loss in bins."""
    index = np.arange(part.probabilities.size)
    mean = float(np.dot(part.probabilities, index))
    return float(np.dot(part.probabilities, (index - mean) ** 2))


def _log_moment(logs: Sequence[tuple[Floats, int, int]], order: float) -> float:
    """Return ``ln E e^(order * bin)`` of the composed loss."""
    total = 0.0
    for log_probabilities, start, count in logs:
        exponents = log_probabilities + order * np.arange(log_probabilities.size)
        top = exponents.max()
        total += count * (top + math.log(np.exp(exponents - top).sum()) + order * start)
    return total


MAX_BINS = 2**22
"""Bins of a composed loss; at 2^22 a Fourier transform takes about half a second."""

MAX_LOSS = 5e3
"""Larger losses (an epsilon of thousands) are left to Rényi divergences."""

FINEST = 1e-11
"""No finer grid is tried: the masses of its cells would be rounding errors."""


class GridEpsilon(NamedTuple):
    """An epsilon and the grid interval it was computed on."""

    epsilon: float
    interval: float


def supports(leaf: Leaf, relation: Relation) -> bool:
    """Return whether a leaf has a dominating pair here, with losses that a grid can hold."""
    try:
        pairs = leaf_pairs(leaf, relation)
    except UnsupportedError:
        return False
    return all(pair.low >= -MAX_LOSS and pair.high <= MAX_LOSS for pair in pairs)


def pld_epsilon(
    leaves: Sequence[Leaf], delta: float, relation: Relation, grid: float | None = None
) -> GridEpsilon:
    """Return the epsilon of a composition.

    Without ``grid`` the interval starts at 4e-4 (4e-3 where noise is small and losses are large) and is
    divided by 4 until epsilon moves by less than 1 % and spans 100 intervals. Coarse is sound, only loose.
    """
    pairs = [(leaf_pairs(leaf, relation), leaf.count) for leaf in leaves]
    if grid is not None:
        return _on_grid(pairs, delta, check_range("a grid interval", grid, "(0, 1]")) or GridEpsilon(
            math.inf, grid
        )
    widest = max(pair.high - pair.low for both, _ in pairs for pair in both)
    largest = max(pair.high for both, _ in pairs for pair in both)
    interval = max(4e-3 if largest > 30 else 4e-4, widest / MAX_BINS)
    best = _on_grid(pairs, delta, interval)
    while best is None:
        interval *= 4
        if interval > 1:  # so many releases that no grid is both fine and small enough
            return GridEpsilon(math.inf, interval)
        best = _on_grid(pairs, delta, interval)
    while True:
        finer = _on_grid(pairs, delta, best.interval / 4) if best.interval > FINEST else None
        if finer is None:
            return best
        settled = finer.epsilon >= 0.99 * best.epsilon and finer.interval <= finer.epsilon / 100
        if settled or finer.epsilon in (0.0, math.inf):
            return finer
        best = finer


def leaf_pairs(leaf: Leaf, relation: Relation) -> tuple[Pair, ...]:
    """Return the dominating pair of a leaf, in both directions where they differ."""
    event, replace = leaf.event, relation is Relation.REPLACE_ONE
    if isinstance(event, dp.PoissonSampledDpEvent):
        return _poisson_pairs(event, relation)
    if isinstance(event, dp.SampledWithoutReplacementDpEvent) and replace:
        inner = event.event
        if isinstance(inner, dp.GaussianDpEvent):
            mu = gaussian_mu(Leaf(inner, 1), relation)
            return (fixed_size_pair(event.sample_size / event.source_dataset_size, mu),)
    if isinstance(event, dp.MixtureOfGaussiansDpEvent) and not replace:
        pair = mixture(event.sensitivities, event.sampling_probs, event.standard_deviation)
        return pair, reverse(pair)
    if isinstance(event, TiltDpEvent):
        return tilt_pairs(event.jacobian, gaussian_mu(Leaf(event, 1), relation), relation)
    return (_base_pair(event, event, relation),)


def _poisson_pairs(event: dp.PoissonSampledDpEvent, relation: Relation) -> tuple[Pair, ...]:
    rate, inner = event.sampling_probability, event.event
    if relation is Relation.REPLACE_ONE:
        if not isinstance(inner, dp.GaussianDpEvent):
            raise unsupported_error(event, relation, "PLD")
        return (replacement_pair(rate, inner.noise_multiplier),)
    if isinstance(inner, PureDpEvent):
        return (response_pair(dilute(inner.epsilon, rate)),)
    base = _base_pair(inner, event, relation)
    return removal_pair(base, rate), addition_pair(base, rate)


def _base_pair(event: dp.DpEvent, whole: dp.DpEvent, relation: Relation) -> Pair:
    """Return the pair of a release on all records, a part of the leaf ``whole``; it is symmetric."""
    if isinstance(event, dp.GaussianDpEvent):
        return gaussian_pair(gaussian_mu(Leaf(event, 1), relation))
    if isinstance(event, dp.LaplaceDpEvent):
        return laplace_pair(1 / event.noise_multiplier)
    if isinstance(event, PureDpEvent):
        return response_pair(event.epsilon)
    raise unsupported_error(whole, relation, "PLD")


def grid_losses(leaves: Sequence[Leaf], relation: Relation, interval: float) -> tuple[GridLoss, ...]:
    """Return the composed losses on a grid, one for each order of neighbours that differs."""
    found = _compose([(leaf_pairs(leaf, relation), leaf.count) for leaf in leaves], interval)
    if found is None:
        raise UnsupportedError(f"A grid of {interval:g} is too fine for this many releases.")
    # The cells of a single release are rounded too, and compositions have their own margin.
    return tuple(replace(loss, infinite=loss.infinite + TAIL) for loss in found)


def _on_grid(
    pairs: Sequence[tuple[tuple[Pair, ...], int]], delta: float, interval: float
) -> GridEpsilon | None:
    """Return epsilon on one grid, the larger of both directions; None if it has too many bins."""
    found = _compose(pairs, interval)
    if found is None:
        return None
    # cells of one release are rounded too
    return GridEpsilon(max([0.0, *(total.epsilon(delta - TAIL) for total in found)]), interval)


def _compose(pairs: Sequence[tuple[tuple[Pair, ...], int]], interval: float) -> list[GridLoss] | None:
    found = []
    for direction in range(max(len(both) for both, _ in pairs)):
        ways = [(both[min(direction, len(both) - 1)], count) for both, count in pairs]
        total = compose([(discretise(pair, interval), count) for pair, count in ways], MAX_BINS)
        if total is None:
            return None
        found.append(total)
    return found
