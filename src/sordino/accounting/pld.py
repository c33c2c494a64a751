"""Epsilon by privacy loss distributions: tight, and always from above."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from dp_accounting import dp_event as dp

from sordino.accounting.leaves import Leaf, gaussian_mu, unsupported
from sordino.accounting.loss import TAIL, GridLoss, compose, discretise
from sordino.accounting.pairs import (
    Pair,
    added,
    diluted,
    fixed_size,
    gaussian_pair,
    laplace_pair,
    mixture,
    removed,
    replaced,
    response_pair,
    reverse,
)
from sordino.accounting.tilt import tilt_pairs
from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel.events import PureDpEvent, TiltDpEvent
from sordino.kernel.relation import Relation

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
        return _on_grid(pairs, delta, _positive(grid)) or GridEpsilon(math.inf, grid)
    widest = max(pair.high - pair.low for both, _ in pairs for pair in both)
    largest = max(pair.high for both, _ in pairs for pair in both)
    interval = max(4e-3 if largest > 30 else 4e-4, widest / MAX_BINS)
    best = _on_grid(pairs, delta, interval)
    while best is None:
        interval *= 4
        if interval > 1:  # so many releases that no grid is both fine and small enough
            return GridEpsilon(math.inf, interval)
        best = _on_grid(pairs, delta, interval)
    return _refine(pairs, delta, best)


def leaf_pairs(leaf: Leaf, relation: Relation) -> tuple[Pair, ...]:
    """Return the dominating pair of a leaf, in both directions where they differ."""
    event, replace = leaf.event, relation is Relation.REPLACE_ONE
    if isinstance(event, dp.PoissonSampledDpEvent):
        return _poisson_pairs(event, relation)
    if isinstance(event, dp.SampledWithoutReplacementDpEvent) and replace:
        inner = event.event
        if isinstance(inner, dp.GaussianDpEvent):
            mu = gaussian_mu(Leaf(inner, 1), relation)
            return (fixed_size(event.sample_size / event.source_dataset_size, mu),)
    if isinstance(event, dp.MixtureOfGaussiansDpEvent) and not replace:
        pair = mixture(event.sensitivities, event.sampling_probs, event.standard_deviation)
        return pair, reverse(pair)
    if isinstance(event, TiltDpEvent):
        return tilt_pairs(event.jacobian, gaussian_mu(Leaf(event, 1), relation), relation)
    base = _base_pair(event, relation)
    if base is None:
        raise unsupported(event, relation, "PLD")
    return (base,)


def _poisson_pairs(event: dp.PoissonSampledDpEvent, relation: Relation) -> tuple[Pair, ...]:
    rate, inner = event.sampling_probability, event.event
    if relation is Relation.REPLACE_ONE:
        if isinstance(inner, dp.GaussianDpEvent):
            return (replaced(rate, inner.noise_multiplier),)
        raise unsupported(event, relation, "PLD")
    if isinstance(inner, PureDpEvent):
        return (response_pair(diluted(inner.epsilon, rate)),)
    base = _base_pair(inner, relation)
    if base is None:
        raise unsupported(event, relation, "PLD")
    return removed(base, rate), added(base, rate)


def _base_pair(event: dp.DpEvent, relation: Relation) -> Pair | None:
    """Return the pair of a release on all records; it is symmetric."""
    if isinstance(event, dp.GaussianDpEvent):
        return gaussian_pair(gaussian_mu(Leaf(event, 1), relation))
    if isinstance(event, dp.LaplaceDpEvent):
        return laplace_pair(1 / event.noise_multiplier)
    return response_pair(event.epsilon) if isinstance(event, PureDpEvent) else None


def _refine(pairs: Sequence[tuple[tuple[Pair, ...], int]], delta: float, best: GridEpsilon) -> GridEpsilon:
    while True:
        finer = _on_grid(pairs, delta, best.interval / 4) if best.interval > FINEST else None
        if finer is None:
            return best
        settled = finer.epsilon >= 0.99 * best.epsilon and finer.interval <= finer.epsilon / 100
        if settled or finer.epsilon in (0.0, math.inf):
            return finer
        best = finer


def grid_losses(leaves: Sequence[Leaf], relation: Relation, interval: float) -> tuple[GridLoss, ...]:
    """Return the composed losses on a grid, one for each order of neighbours that differs."""
    pairs = [(leaf_pairs(leaf, relation), leaf.count) for leaf in leaves]
    found = _composed(pairs, interval)
    if found is None:
        raise UnsupportedError(f"A grid of {interval:g} is too fine for this many releases.")
    # The cells of a single release are rounded too, and compositions have their own margin.
    return tuple(replace(loss, infinite=loss.infinite + TAIL) for loss in found)


def _on_grid(
    pairs: Sequence[tuple[tuple[Pair, ...], int]], delta: float, interval: float
) -> GridEpsilon | None:
    """Return epsilon on one grid, the larger of both directions; None if it has too many bins."""
    found = _composed(pairs, interval)
    if found is None:
        return None
    # cells of one release are rounded too
    return GridEpsilon(max([0.0, *(total.epsilon(delta - TAIL) for total in found)]), interval)


def _composed(pairs: Sequence[tuple[tuple[Pair, ...], int]], interval: float) -> list[GridLoss] | None:
    found = []
    for direction in range(max(len(both) for both, _ in pairs)):
        total = compose([(_cell(both, direction, interval), count) for both, count in pairs], MAX_BINS)
        if total is None:
            return None
        found.append(total)
    return found


def _cell(both: tuple[Pair, ...], direction: int, interval: float) -> GridLoss:
    return discretise(both[min(direction, len(both) - 1)], interval)


def _positive(grid: float) -> float:
    if not 0 < grid <= 1:
        raise InvalidInputError(f"Expected a grid interval in (0, 1], got {grid!r}.")
    return grid
