"""What a reservation costs: the only module of the ledger that asks the accountants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dp_accounting import dp_event as dp

from sordino.accounting.accountants import certify, rdp_curve
from sordino.accounting.leaves import flatten
from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel.events import PureDpEvent
from sordino.kernel.relation import Relation
from sordino.ledger.account import Charge
from sordino.ledger.policy import number

TOLERANCE = 1e-6  # what two runs of a numerical accountant may differ by, relatively


def charge_of(
    event: dp.DpEvent,
    relation: Relation,
    orders: Sequence[float],
    certificate: tuple[float, float],
) -> Charge:
    """Return the cost of an event at each order of a filter, beside its certified guarantee.

    An event without a proven RDP curve costs infinity at every finite order: it can still be
    admitted on its certificate, never on a guess.
    """
    epsilon, delta = _certificate(certificate)
    finite = [order for order in orders if order < math.inf]
    try:
        curve = [_cost(value) for value in rdp_curve(event, relation, finite)] if finite else []
    except UnsupportedError:
        curve = [math.inf] * len(finite)
    costs = dict(zip(finite, curve, strict=True))
    pure = pure_epsilon(event, relation)
    # RDP grows with the order, so the pure epsilon bounds every order.
    renyi = tuple(min(costs.get(order, pure), pure) for order in orders)
    return Charge(renyi, epsilon, delta)


def pure_epsilon(event: dp.DpEvent, relation: Relation) -> float:
    """Return the epsilon with which an event is pure DP, infinity if it is not."""
    total = 0.0
    for leaf in flatten(event):
        total += leaf.count * _pure_leaf(leaf.event, relation)
    return _cost(total)


def check_certificate(event: dp.DpEvent, relation: Relation, charge: Charge) -> Charge:
    """Return a charge whose certificate the accountant proves, or refuse one that claims too little.

    What is stated may be larger than what is proven, and smaller by the rounding of another machine;
    then the larger number is booked. An infinite epsilon claims nothing.

    Raises
    ------
    InvalidInputError
        The event costs more than its certificate says.
    """
    if math.isinf(charge.epsilon):
        return charge
    if charge.delta > 0:
        found = certify(event, charge.delta, relation).epsilon
    else:
        found = pure_epsilon(event, relation)
    if not found <= charge.epsilon * (1 + TOLERANCE):
        raise InvalidInputError(
            f"The certificate claims epsilon {charge.epsilon:.6g} at delta {charge.delta:.3g}, "
            f"but the accountant certifies {found:.6g}. Nothing was reserved. Pass what `certify` "
            "returns for this event and relation."
        )
    return replace(charge, epsilon=max(charge.epsilon, found))


def _pure_leaf(event: dp.DpEvent, relation: Relation) -> float:
    if isinstance(event, dp.LaplaceDpEvent):
        return 1 / float(event.noise_multiplier)
    if isinstance(event, PureDpEvent):
        return float(event.epsilon)
    if isinstance(event, dp.PoissonSampledDpEvent):
        inner = _pure_leaf(event.event, relation)
        if relation is Relation.ADD_REMOVE and inner < 500:
            return math.log1p(event.sampling_probability * math.expm1(inner))
        return inner  # amplification is proven for add-remove; else sampling does no harm
    return math.inf


def _cost(value: float) -> float:
    """Return a cost that can be added up; what is not a number costs everything."""
    return math.inf if math.isnan(value) else max(float(value), 0.0)


def _certificate(certificate: tuple[float, float]) -> tuple[float, float]:
    if not isinstance(certificate, tuple | list) or len(certificate) != 2:
        raise InvalidInputError("Expected certificate=(epsilon, delta), a pair of numbers.")
    epsilon, delta = (number(v, "certificate") for v in certificate)
    if not epsilon >= 0 or not 0 <= delta < 1:
        raise InvalidInputError(
            f"Expected a certificate with epsilon >= 0 and delta in [0, 1), got ({epsilon}, "
            f"{delta}). Pass what `certify` returns."
        )
    return epsilon, delta
