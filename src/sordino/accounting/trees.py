"""Event trees: as flat lists of elementary releases, and as plain JSON and back."""

from __future__ import annotations

import itertools
import json
import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

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


# --------------------------------------------------- Trees as plain JSON and back, from a fixed list of types
# Nothing is imported by name and nothing is evaluated: what is not in the table, or is out of range, is an
# error. Ledgers and reports are files that somebody else may have written.


MAX_DEPTH = 32
MAX_NODES = 10_000
MAX_COUNT = 10**12


class _Kind(Enum):
    """What a field may hold."""

    EVENT = "an event"
    EVENTS = "a list of events"
    COUNT = "a whole number >= 0"
    NUMBER = "a number >= 0"
    NUMBERS = "a list of numbers >= 0"
    PROBABILITY = "a number in [0, 1]"


_EVENT, _COUNT, _NUMBER = _Kind.EVENT, _Kind.COUNT, _Kind.NUMBER

_TYPES: dict[str, tuple[type, dict[str, _Kind]]] = {
    "none": (dp.NoOpDpEvent, {}),
    "non-private": (dp.NonPrivateDpEvent, {}),
    "gaussian": (dp.GaussianDpEvent, {"noise_multiplier": _NUMBER}),
    "laplace": (dp.LaplaceDpEvent, {"noise_multiplier": _NUMBER}),
    "pure": (PureDpEvent, {"epsilon": _NUMBER}),
    "rare": (RareDpEvent, {"delta": _Kind.PROBABILITY}),
    "tilt": (TiltDpEvent, {"noise_multiplier": _NUMBER, "jacobian": _NUMBER}),
    "zcdp": (dp.ZCDpEvent, {"rho": _NUMBER, "xi": _NUMBER}),
    "repeated": (dp.SelfComposedDpEvent, {"event": _EVENT, "count": _COUNT}),
    "composed": (dp.ComposedDpEvent, {"events": _Kind.EVENTS}),
    "poisson": (dp.PoissonSampledDpEvent, {"sampling_probability": _Kind.PROBABILITY, "event": _EVENT}),
    "fixed-size": (
        dp.SampledWithoutReplacementDpEvent,
        {"source_dataset_size": _COUNT, "sample_size": _COUNT, "event": _EVENT},
    ),
    "gaussian-mixture": (
        dp.MixtureOfGaussiansDpEvent,
        {"standard_deviation": _NUMBER, "sensitivities": _Kind.NUMBERS, "sampling_probs": _Kind.NUMBERS},
    ),
    "best-of": (dp.RepeatAndSelectDpEvent, {"event": _EVENT, "mean": _NUMBER, "shape": _NUMBER}),
}
_NAMES = {cls: name for name, (cls, _) in _TYPES.items()}


def encode(event: dp.DpEvent) -> dict[str, Any]:
    """Return an event tree as nested dicts that JSON can hold.

    Examples
    --------
    >>> from dp_accounting import dp_event as dp
    >>> encode(dp.SelfComposedDpEvent(dp.GaussianDpEvent(2.0), 10))
    {'type': 'repeated', 'event': {'type': 'gaussian', 'noise_multiplier': 2.0}, 'count': 10}
    """
    return _encode(event, 0)


def decode(data: object) -> dp.DpEvent:
    """Return the event tree of :func:`encode`, or raise ``InvalidInputError``."""
    return _decode(data, 0, itertools.count(1))


def canonical(event: dp.DpEvent) -> str:
    """Return one text per event tree: the same tree always gives the same text."""
    return json.dumps(encode(event), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _encode(event: dp.DpEvent, depth: int) -> dict[str, Any]:
    name = _NAMES.get(type(event))
    if name is None or depth > MAX_DEPTH:
        raise UnsupportedError(
            f"{type(event).__name__} at depth {depth} has no stored form. Known events, to depth "
            f"{MAX_DEPTH}: {', '.join(_TYPES)}."
        )
    fields = _TYPES[name][1]
    values = {f: _encode_value(getattr(event, f), kind, depth) for f, kind in fields.items()}
    return {"type": name, **values}


def _encode_value(value: Any, kind: _Kind, depth: int) -> Any:
    if kind is _Kind.EVENT:
        return _encode(value, depth + 1)
    if kind is _Kind.EVENTS:
        return [_encode(event, depth + 1) for event in value]
    if kind is _Kind.NUMBERS:
        return [_encode_number(number, kind) for number in value]
    return _whole(operator.index(value)) if kind is _Kind.COUNT else _encode_number(value, kind)


def _encode_number(value: Any, kind: _Kind) -> float | str:
    number = _number(float(value), kind)
    return "inf" if number == math.inf else number


def _decode(data: object, depth: int, nodes: Iterator[int]) -> dp.DpEvent:
    """Return an event; ``nodes`` counts what was read, so that a small file cannot become a huge tree."""
    _count_node(depth, nodes)
    if not isinstance(data, Mapping) or not isinstance(data.get("type"), str):
        raise InvalidInputError('Expected an event as an object with a "type".')
    if data["type"] not in _TYPES:
        raise InvalidInputError(f"Expected an event type of {', '.join(_TYPES)}.")
    cls, fields = _TYPES[data["type"]]
    if set(data) != {"type", *fields}:
        raise InvalidInputError(f"Expected exactly the fields {['type', *fields]} in an event.")
    values = {name: _decode_value(data[name], kind, depth, nodes) for name, kind in fields.items()}
    return _check_event(cls(**values))


def _decode_value(value: object, kind: _Kind, depth: int, nodes: Iterator[int]) -> Any:
    if kind is _Kind.EVENT:
        return _decode(value, depth + 1, nodes)
    if kind is _Kind.EVENTS:
        return [_decode(part, depth + 1, nodes) for part in _items(value)]
    if kind is _Kind.NUMBERS:
        return tuple(_number(number, kind) for number in _items(value) if _count_node(depth, nodes))
    return _whole(value) if kind is _Kind.COUNT else _number(value, kind)


def _count_node(depth: int, nodes: Iterator[int]) -> bool:
    if next(nodes) > MAX_NODES or depth > MAX_DEPTH:
        raise InvalidInputError(f"Expected an event tree of at most {MAX_NODES} nodes and depth {MAX_DEPTH}.")
    return True


def _items(value: object) -> Sequence[object]:
    if not isinstance(value, (list, tuple)):
        raise InvalidInputError("Expected a list in an event.")
    return value


def _number(value: object, kind: _Kind) -> float:
    if value == "inf":
        value = math.inf
    bound = 1.0 if kind is _Kind.PROBABILITY else math.inf
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= bound:
        raise InvalidInputError(f"Expected {kind.value} in an event.")
    try:
        return float(value)
    except OverflowError:
        raise InvalidInputError(f"Expected {kind.value} that fits a float in an event.") from None


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        raise InvalidInputError(f"Expected {_Kind.COUNT.value}, at most {MAX_COUNT}, in an event.")
    return value


def _check_event(event: dp.DpEvent) -> dp.DpEvent:
    """Refuse what no mechanism can be; single fields were checked before."""
    fixed_size = isinstance(event, dp.SampledWithoutReplacementDpEvent)
    if fixed_size and event.sample_size > event.source_dataset_size:
        raise InvalidInputError("Expected a batch no larger than its data set in an event.")
    if isinstance(event, dp.MixtureOfGaussiansDpEvent):
        weights = math.fsum(event.sampling_probs)
        if len(event.sensitivities) != len(event.sampling_probs) or abs(weights - 1) > 1e-9:
            raise InvalidInputError("Expected one probability per sensitivity, adding up to 1.")
    return event
