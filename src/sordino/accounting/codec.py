"""Event trees as plain JSON and back, from a fixed list of types.

Nothing is imported by name and nothing is evaluated: what is not in the table, or is out of range,
is an error. Ledgers and reports are files that somebody else may have written.
"""

from __future__ import annotations

import itertools
import json
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from dp_accounting import dp_event as dp

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel.events import PureDpEvent, RareDpEvent, TiltDpEvent

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
