"""Event trees as flat lists: which elementary releases, and how many of each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dp_accounting import dp_event as dp

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel.events import PureDpEvent, RareDpEvent, Relation, TiltDpEvent

TINY, HUGE = 1e-100, 1e30
"""Noise below the first is none, its square would not be a float; noise above the second counts as that."""

RARE, ALWAYS = 1e-100, 1 - 1e-9
"""Sampling rates are rounded up to the first, and to one above the second: more sampling costs more."""

MAX_REPETITIONS = 10**15
"""More releases than any machine makes; beyond, counts and their roots are no exact floats."""


@dataclass(frozen=True)
class Leaf:
    """An elementary event and how often it happens."""

    event: dp.DpEvent
    count: int


def flatten(event: dp.DpEvent) -> list[Leaf]:
    """Return the leaves of a tree in a normal form that every accountant reads alike.

    Equal leaves are counted together, all full-batch Gaussians become one (their composition is
    exact), a batch that takes every record is no batch, and noise of scale 0 is
    ``NonPrivateDpEvent``. Nothing is dropped but what costs nothing.
    """
    merged: dict[str, Leaf] = {}
    for leaf in _join_gaussians(_walk(event, 1)):
        key = repr(leaf.event)
        seen = merged.get(key)
        merged[key] = Leaf(leaf.event, leaf.count + (seen.count if seen else 0))
    return list(merged.values())


def is_non_private(leaves: Iterable[Leaf]) -> bool:
    """Return whether one leaf carries no guarantee at all."""
    return any(isinstance(leaf.event, dp.NonPrivateDpEvent) for leaf in leaves)


def without_rare(leaves: Iterable[Leaf]) -> tuple[tuple[Leaf, ...], float]:
    """Return the other leaves, and the probability of all that is told but rarely, rounded up."""
    leaves = tuple(leaves)
    rare = [leaf for leaf in leaves if isinstance(leaf.event, RareDpEvent)]
    total = math.fsum(leaf.count * leaf.event.delta for leaf in rare)
    return tuple(leaf for leaf in leaves if leaf not in rare), min(total * (1 + 1e-12), 1.0)


def gaussian_mu(leaf: Leaf, relation: Relation) -> float:
    """Return mu of a Gaussian leaf: the distance of the neighbours' laws in standard deviations.

    The multiplier of an event is std / one contribution (see ``kernel.events``), and under
    replace-one two contributions move.
    """
    return float(relation.contributions * math.sqrt(leaf.count) / leaf.event.noise_multiplier)


def unsupported_error(event: dp.DpEvent, relation: Relation, accountant: str) -> UnsupportedError:
    """Return the error for a pair without a proof."""
    name = type(event).__name__
    if isinstance(event, (dp.PoissonSampledDpEvent, dp.SampledWithoutReplacementDpEvent)):
        name += f"({type(event.event).__name__})"
    return UnsupportedError(
        f"No {accountant} accounting is proven for {name} under relation {relation.value!r}. Use "
        "Gaussian noise with Poisson sampling (any relation) or fixed-size sampling (replace-one), "
        "or full batches."
    )


def _walk(event: dp.DpEvent, count: int) -> Iterator[Leaf]:
    """Yield the leaves of a tree in order; recursion is as deep as the tree."""
    if isinstance(event, dp.NoOpDpEvent) or count == 0:
        return
    if isinstance(event, dp.SelfComposedDpEvent):
        count *= _count(event.count)
        if count > MAX_REPETITIONS:
            raise InvalidInputError(f"Expected at most {MAX_REPETITIONS:.0e} repetitions in all.")
        yield from _walk(event.event, count)
    elif isinstance(event, dp.ComposedDpEvent):
        for part in event.events:
            yield from _walk(part, count)
    elif isinstance(event, dp.PoissonSampledDpEvent):
        yield from _sampled_leaves(event, _rate(event.sampling_probability), count)
    elif isinstance(event, dp.SampledWithoutReplacementDpEvent):
        size, population = event.sample_size, event.source_dataset_size
        if not 0 <= size <= population or population < 1:
            raise InvalidInputError(
                f"Expected a batch size between 0 and the {population} records, got {size}."
            )
        yield from _sampled_leaves(event, float(size / population), count)
    else:
        yield from _elementary(event, count)


def _sampled_leaves(event: dp.DpEvent, rate: float, count: int) -> Iterator[Leaf]:
    inner = _join_gaussians(_walk(event.event, 1))
    if rate == 0 or not inner:
        return
    # Divergences are jointly quasi-convex: a batch costs at most what all records cost.
    rate = 1.0 if rate > ALWAYS else max(rate, RARE)
    if rate == 1 or is_non_private(inner):
        for leaf in inner:
            yield Leaf(leaf.event, leaf.count * count)
    elif len(inner) > 1 or inner[0].count > 1:
        raise UnsupportedError(
            "Several releases from one sampled batch are proven only if all of them are Gaussian. "
            "Draw a new batch for each release."
        )
    elif isinstance(event, dp.PoissonSampledDpEvent):
        yield Leaf(dp.PoissonSampledDpEvent(rate, inner[0].event), count)
    else:
        sizes = event.source_dataset_size, event.sample_size
        yield Leaf(dp.SampledWithoutReplacementDpEvent(*sizes, inner[0].event), count)


def _elementary(event: dp.DpEvent, count: int) -> Iterator[Leaf]:
    if isinstance(event, (dp.GaussianDpEvent, dp.LaplaceDpEvent, TiltDpEvent)):
        event = _noise(event)
    elif isinstance(event, dp.MixtureOfGaussiansDpEvent):
        event = _mixture(event)
    elif isinstance(event, PureDpEvent):
        _at_least_zero(event.epsilon, "epsilon")
    elif isinstance(event, RareDpEvent):
        _rate(event.delta)
    elif isinstance(event, dp.ZCDpEvent):
        _at_least_zero(event.rho, "rho")
        _at_least_zero(event.xi, "xi")
    elif isinstance(event, dp.RepeatAndSelectDpEvent):
        event = _best_of(event)
    elif not isinstance(event, dp.NonPrivateDpEvent):
        raise UnsupportedError(
            f"No accounting is proven here for {type(event).__name__}. Describe the release by the "
            "events of kernel.events."
        )
    if not isinstance(event, dp.NoOpDpEvent):
        yield Leaf(event, count)


def _best_of(event: dp.RepeatAndSelectDpEvent) -> dp.DpEvent:
    inner = flatten(event.event)
    if is_non_private(inner):
        return dp.NonPrivateDpEvent()
    # Tuples, so that every leaf can be hashed.
    parts = tuple(dp.SelfComposedDpEvent(leaf.event, leaf.count) for leaf in inner)
    return dp.RepeatAndSelectDpEvent(dp.ComposedDpEvent(parts), event.mean, event.shape)


def _noise(event: dp.DpEvent) -> dp.DpEvent:
    multiplier = _at_least_zero(event.noise_multiplier, "noise multiplier")
    tilts = isinstance(event, TiltDpEvent)
    jacobian = _at_least_zero(event.jacobian, "bound on the log determinants") if tilts else 0.0
    if multiplier < TINY or math.isinf(jacobian):
        return dp.NonPrivateDpEvent()
    if tilts:
        return TiltDpEvent(min(multiplier, HUGE), jacobian)
    return dp.NoOpDpEvent() if math.isinf(multiplier) else type(event)(min(multiplier, HUGE))


def _mixture(event: dp.MixtureOfGaussiansDpEvent) -> dp.DpEvent:
    shifts, weights = tuple(event.sensitivities), tuple(event.sampling_probs)
    if len(shifts) != len(weights) or not math.isclose(sum(weights), 1, abs_tol=1e-9):
        raise InvalidInputError(
            f"Expected one probability per sensitivity, adding up to 1; got {len(weights)} "
            f"probabilities for {len(shifts)} sensitivities."
        )
    for value in (*shifts, *weights):
        _at_least_zero(value, "sensitivity and probability")
    if max(shifts) == 0:
        return dp.NoOpDpEvent()
    std = _at_least_zero(event.standard_deviation, "standard deviation")
    ratio = std / max(shifts)
    if ratio < TINY or math.isinf(max(shifts)):
        return dp.NonPrivateDpEvent()
    # Only the ratio matters: the largest shift becomes 1, so that no square leaves the floats.
    scaled = tuple(shift / max(shifts) for shift in shifts)
    return dp.MixtureOfGaussiansDpEvent(min(ratio, HUGE), scaled, weights)


def _join_gaussians(leaves: Iterable[Leaf]) -> list[Leaf]:
    """Replace all Gaussian leaves by the one that equals their composition, in front."""
    others, mu, joined = [], 0.0, 0
    for leaf in leaves:
        if isinstance(leaf.event, dp.GaussianDpEvent):
            # hypot, for squares of very large and very small multipliers are no floats
            mu = math.hypot(mu, math.sqrt(leaf.count) / leaf.event.noise_multiplier)
            joined += 1
        else:
            others.append(leaf)
    if mu == 0:
        return others
    mu *= 1 + max(joined - 1, 0) * 2.0**-51  # each sum rounds, and a certificate is never rounded down
    return [Leaf(dp.GaussianDpEvent(1 / mu), 1), *others]


def _count(value: int) -> int:
    if isinstance(value, bool) or int(value) != value or value < 0:
        raise InvalidInputError(f"Expected a whole number of repetitions >= 0, got {value!r}.")
    return int(value)


def _rate(value: float) -> float:
    if not 0 <= value <= 1:
        raise InvalidInputError(f"Expected a sampling probability in [0, 1], got {value!r}.")
    return float(value)


def _at_least_zero(value: float, what: str) -> float:
    if not value >= 0:
        raise InvalidInputError(f"Expected a {what} >= 0, got {value!r}.")
    return float(value)
