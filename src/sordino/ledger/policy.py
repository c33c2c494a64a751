"""What a data set may be asked in total, and the names a ledger accepts."""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass

from sordino.errors import InvalidInputError, PolicyMismatchError
from sordino.kernel.relation import Relation

MOST_NAME = 200
MOST_TEXT = 2000


@dataclass(frozen=True)
class BudgetPolicy:
    """The privacy budget of a data set: everything released from it together.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee of all releases together. ``epsilon=inf`` allows releases without noise;
        ``delta=0`` allows pure mechanisms only.
    relation : Relation or str
        Which data sets count as neighbours. A plan made for another relation is refused.
    unit : str
        Whom the guarantee protects, for example ``"record"`` or ``"person"``.

    Examples
    --------
    >>> BudgetPolicy(epsilon=2.0, delta=1e-6, unit="person").relation.value
    'add-remove'
    """

    epsilon: float
    delta: float
    relation: Relation = Relation.ADD_REMOVE
    unit: str = "record"

    def __post_init__(self) -> None:
        epsilon, delta = number(self.epsilon, "epsilon"), number(self.delta, "delta")
        if not epsilon > 0:
            raise InvalidInputError(
                f"Expected a budget epsilon > 0, got {epsilon}. A data set that nothing may be "
                "asked of needs no budget."
            )
        if not 0 <= delta < 1:
            raise InvalidInputError(
                f"Expected a budget delta in [0, 1), got {delta}. Take it well below one over "
                "the number of records."
            )
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)
        object.__setattr__(self, "relation", Relation.parse(self.relation))
        object.__setattr__(self, "unit", name(self.unit, "unit"))

    def require(self, relation: Relation | str, unit: str) -> None:
        """Refuse a guarantee that is stated for other neighbours than the budget.

        An add-remove guarantee is about half as strong under replace-one, and a record's may say
        nothing about a person who has many; neither is converted silently.
        """
        relation = Relation.parse(relation)
        if relation is not self.relation:
            raise PolicyMismatchError(
                f"The plan protects under relation {relation.value!r}, the budget under "
                f"{self.relation.value!r}. Plan with relation={self.relation.value!r}."
            )
        if name(unit, "unit") != self.unit:
            raise PolicyMismatchError(
                f"The plan protects the unit {unit!r}, the budget the unit {self.unit!r}. "
                f"Plan for one {self.unit!r}, or book on a data set whose budget protects one {unit!r} "
                f"(sordino ledger create ... --unit {unit})."
            )


def number(value: object, what: str) -> float:
    """Return a real number that is not NaN, or refuse it."""
    try:
        if isinstance(value, bool) or not hasattr(value, "__float__"):
            raise TypeError
        result = float(value)
    except (TypeError, ValueError, OverflowError):
        kind = type(value).__name__
        raise InvalidInputError(f"Expected {what} to be a number, got a {kind}.") from None
    if math.isnan(result):
        raise InvalidInputError(f"Expected {what} to be a number, got NaN.")
    return result + 0.0  # -0.0 becomes 0.0: a database may not keep the sign, and the seal would break


def name(value: object, what: str) -> str:
    """Return a printable name in Unicode's composed form, or refuse it.

    Two spellings of the same letters are one name: a data set must not get two budgets.
    """
    if not isinstance(value, str):
        raise InvalidInputError(f"Expected {what} to be a string, got a {type(value).__name__}.")
    result = unicodedata.normalize("NFC", value)
    if not 0 < len(result) <= MOST_NAME or not result.isprintable() or result != result.strip():
        raise InvalidInputError(
            f"Expected {what} of 1 to {MOST_NAME} printable characters without spaces around it, "
            f"got {value[:MOST_NAME]!r}."
        )
    return result


def text(value: object, what: str) -> str:
    """Return a short free text (it may be empty), or refuse it."""
    if not isinstance(value, str):
        raise InvalidInputError(f"Expected {what} to be a string, got a {type(value).__name__}.")
    if len(value) > MOST_TEXT or not value.replace("\n", " ").isprintable():
        raise InvalidInputError(
            f"Expected {what} of at most {MOST_TEXT} printable characters, got {len(value)}."
        )
    return value
