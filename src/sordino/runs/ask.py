"""What a user wants: a budget, and the ledger it is booked on."""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import dataclass, field
from typing import Any

from sordino.accounting import calibrate
from sordino.errors import InvalidInputError, PrivacyWarning
from sordino.kernel import Plan
from sordino.ledger import Ledger
from sordino.runs.price import Price


@dataclass(frozen=True)
class Ask:
    """The guarantee that is wanted, and where it is booked.

    Parameters
    ----------
    epsilon, delta : the budget of the whole run; epsilon ``inf`` asks for no privacy.
    ledger : a :class:`sordino.Ledger`, its address, or None.
    dataset_id : the name of the records on that ledger.
    learned : what was paid before for a schema that the run reads; it comes on top.
    """

    epsilon: float
    delta: float
    ledger: Any = field(default=None, repr=False)
    dataset_id: str | None = None
    learned: tuple[Price, ...] = ()

    @classmethod
    def checked(
        cls,
        epsilon: Any,
        delta: Any,
        population: int,
        ledger: Any = None,
        dataset_id: str | None = None,
        *,
        learned: tuple[Price, ...] = (),
    ) -> Ask:
        """Validate what the user asked for; ``delta=None`` means ``min(1e-5, 1 / (10 n))``."""
        epsilon = _number("epsilon", epsilon)
        if not epsilon > 0:
            raise InvalidInputError(
                f"Expected epsilon > 0, got {epsilon}. Use a positive number, or float('inf') for no privacy."
            )
        if delta is None:
            delta = min(1e-5, 0.1 / population)
        delta = _number("delta", delta)
        if not 0 < delta < 1:
            raise InvalidInputError(
                f"Expected delta in (0, 1), got {delta}. Use delta=None for min(1e-5, 1/(10 n))."
            )
        if delta >= 1 / population and math.isfinite(epsilon):
            warnings.warn(
                f"delta = {delta:g} is at least 1/n: a mechanism that publishes whole records with this "
                "probability would satisfy it. Use delta=None for min(1e-5, 1/(10 n)).",
                PrivacyWarning,
                stacklevel=4,
            )
        if (ledger is None) != (dataset_id is None):
            raise InvalidInputError("Expected ledger and dataset_id together, got only one of them.")
        return cls(epsilon, delta, ledger, dataset_id, learned)

    def calibrated(self, plan: Plan) -> Plan:
        """Return a plan with the noise that this budget gives it, for those who decide whether to ask at all.

        **Privacy.** A function of public numbers; nothing is promised and nothing is released.
        """
        return calibrate(plan, self.epsilon, self.delta)

    def open_ledger(self) -> Ledger | None:
        """Return the ledger, opened if it was given by its address; one that is not there is not made.

        A run books on a budget that somebody set before. A new ledger has none, so an address without a
        ledger is a mistyped one.
        """
        if self.ledger is None or not isinstance(self.ledger, (str, os.PathLike)):
            return self.ledger
        return Ledger.open(self.ledger, create=False)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or (not isinstance(value, (int, float)) and not hasattr(value, "__float__")):
        raise InvalidInputError(f"Expected {name} to be a number, got {type(value).__name__}.")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError(f"Expected {name} to be a number, got {type(value).__name__}.") from None
    if math.isnan(number):
        raise InvalidInputError(f"Expected {name} to be a number, got nan.")
    return number
