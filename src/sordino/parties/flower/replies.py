"""What clients send back, checked before it is used: one answer per client and round, of the right shape."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from flwr.app import Message

from sordino.errors import PlanError
from sordino.kernel.arrays import Floats
from sordino.parties.flower.models import Weights


def fits(weights: object, shape: tuple[int, ...]) -> bool:
    """Tell whether these are finite floating-point weights of exactly this shape; nothing is broadcast."""
    if not isinstance(weights, np.ndarray) or weights.dtype.kind != "f" or weights.shape != tuple(shape):
        return False
    return bool(np.isfinite(weights).all())


def weights_of(message: Message, shape: tuple[int, ...]) -> Weights | None:
    """Return the weights of an answer, or None if it carries anything else."""
    try:
        sent = message.content.array_records["arrays"]["weights"]
        if tuple(sent.shape) != tuple(shape):  # what it says of itself, before it is unpacked
            return None
        weights = sent.numpy()
    except Exception:  # whatever a client packs: it counts as no answer
        return None
    return weights if fits(weights, shape) else None


def one_each(replies: Iterable[Message], asked: Sequence[int], group: str) -> dict[int, Message]:
    """Return the answers of this round by client; who answers twice or was not asked has no answer.

    An error is an answer too: whoever fails and then answers has answered twice.
    """
    mine = [m for m in replies if m.metadata.group_id == group]
    times = Counter(m.metadata.src_node_id for m in mine)
    wanted = [node for node in dict.fromkeys(asked) if times[node] == 1]
    found = {m.metadata.src_node_id: m for m in mine if not m.has_error()}
    return {node: found[node] for node in wanted if node in found}


def updates_of(
    replies: Iterable[Message], asked: Sequence[int], group: str, shape: tuple[int, ...]
) -> list[Floats]:
    """Return the usable weights, at most one vector for each client that was asked."""
    found = (weights_of(m, shape) for m in one_each(replies, asked, group).values())
    return [w for w in found if w is not None]


def stated_privacy(facts: object, node: int) -> tuple[float, float]:
    """Return the (epsilon, delta) that a client states, or refuse numbers that are no guarantee."""
    epsilon, delta = (_number(facts, name) for name in ("epsilon", "delta"))
    if not epsilon >= 0 or not 0 <= delta <= 1:
        raise PlanError(
            f"Node {node} states a guarantee that is none: expected epsilon >= 0, delta in [0, 1]."
        )
    return epsilon, delta


def stated_size(facts: object, node: int) -> float:
    """Return the number of records that a client states."""
    size = _number(facts, "num-examples")
    if not 1 <= size < math.inf:
        raise PlanError(f"Node {node} states no number of records: expected a finite number >= 1.")
    return size


def _number(facts: object, name: str) -> float:
    try:
        return float(facts[name])  # type: ignore[index]
    except (KeyError, TypeError, ValueError, OverflowError):
        return math.nan
