"""What was paid for a schema before a run that reads it, and what both cost together."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from functools import reduce
from typing import TYPE_CHECKING, Any

from sordino.accounting.trade_off import TradeOff
from sordino.errors import InvalidInputError
from sordino.kernel.events import Relation
from sordino.kernel.noise import fresh_noise
from sordino.ledger.account import exact, exact_sum
from sordino.values import at_most as at_most

if TYPE_CHECKING:
    from sordino.runs.report import PrivacyReport

# ------------------------------------------------------ What may be said of a guarantee, from best to worst


class Status(StrEnum):
    """Whether a guarantee holds, or why it does not; the order is from best to worst.

    A composition, and a run that reads a learned schema, has the worst status of its parts.
    """

    PRIVATE = "private"
    COPY = "unverified copy"
    SEEDED = "seeded (not private)"
    APART = "not private (a schema was learned for another unit or relation)"
    UNPROVEN = "not private (parts of it are not proven)"
    UNPAID = "not private (a step reads the records and paid nothing)"
    NO_NOISE = "not private (no noise)"

    @classmethod
    def worst(cls, parts: Iterable[Status]) -> Status:
        """Return the worst of some statuses; without any, the best one there is."""
        order = list(cls)
        return max(parts, key=order.index, default=cls.PRIVATE)

    def __repr__(self) -> str:
        return repr(self.value)

    @property
    def holds(self) -> bool:
        """Whether numbers of this status are a guarantee, certified here or copied."""
        return self in (Status.PRIVATE, Status.COPY)


# ------------------------- What a guarantee means in bets and chances, for people who do not read exponents

LITTLE = 8.0
"""Above this epsilon a guarantee protects little, and every text says so."""
_ROUNDING = 1e-8  # of a percentage, in units of its last digit: one half is 50.0 % and not 50.1


def guess(curve: TradeOff) -> float:
    """Return the largest chance to guess right whether a record was there, from a prior of one half."""
    return 0.5 + curve.advantage / 2


def bet(what: str, curve: TradeOff) -> str:
    """Return a guarantee as a bet on ``what``."""
    return (
        f"Whoever bets on {what}, and knows all the others, wins 50 % of the bets by tossing a coin, and "
        f"at worst {percent(guess(curve))} after seeing everything that this run released."
    )


def percent(share: float) -> str:
    """Return a share as percent, rounded up, with the digits that tell it from 100."""
    for digits in (1, 2, 3, 4):
        unit = 10.0**digits
        above = math.ceil(100.0 * share * unit - _ROUNDING) / unit
        if above < 100.0:
            return f"{above:.{digits}f} %"
    return "100 %"


def strength(epsilon: float) -> str:
    """Return one word, or a few, for a guarantee."""
    if not math.isfinite(epsilon):
        return "none"
    names = ((1.0, "strong"), (4.0, "moderate"), (LITTLE, "weak"))
    return next((name for most, name in names if epsilon <= most), "very little")


def warning(epsilon: float, curve: TradeOff) -> str | None:
    """Return what must be said about a guarantee that protects little; None where there is none at all."""
    if not math.isfinite(epsilon):
        return None
    return (
        f"epsilon above {LITTLE:g} protects little: whoever bets on whether somebody was in the data may win "
        f"{percent(guess(curve))} of the bets"
    )


LEARNED = "the schema was learned from records: "
"""How the line of a report begins that says in words what a schema cost."""

_NUMBER = r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
_SENTENCE = re.compile(rf"epsilon = {_NUMBER}, delta = {_NUMBER}, (add-remove|replace-one) one ([a-z]+)")
_ROUNDED = 1 + 5e-4  # a sentence rounds to four digits, so what was paid may be larger by this factor


@dataclass(frozen=True)
class Price:
    """The guarantee under which a schema was learned; it comes on top of that of every run that reads it.

    Parameters
    ----------
    epsilon, delta, relation, unit : as certified; epsilon is infinite where nobody knows it any more.
    receipt : a random text that tells this payment from another of the same size; "" where none was drawn.
    said : the status of the run that was paid for, as it is stated.
    certified : the run was one of this process; what was read from a text or typed proves nothing.
    """

    epsilon: float
    delta: float
    relation: Relation
    unit: str
    receipt: str = ""
    said: Status = Status.PRIVATE
    certified: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if not self.epsilon >= 0 or not 0 <= self.delta <= 1:
            raise InvalidInputError(
                "Expected the price of a learned schema with epsilon >= 0 and delta in [0, 1], got epsilon = "
                f"{self.epsilon:g}, delta = {self.delta:g}. Write what `sordino schema learn` certified."
            )

    @property
    def status(self) -> Status:
        """What may be said of the run that was paid for."""
        unknown = Status.PRIVATE if math.isfinite(self.epsilon) else Status.NO_NOISE
        return Status.worst([self.said, unknown, Status.PRIVATE if self.certified else Status.COPY])

    @classmethod
    def of(cls, report: PrivacyReport, receipt: str = "") -> Price:
        """Return what a run cost and how far it is private, with its receipt or a fresh one."""
        receipt = receipt or draw_receipt()
        numbers = report.epsilon, report.delta, report.relation, report.unit
        return cls(*numbers, receipt, report.status, certified=True)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON and TOML."""
        epsilon = self.epsilon if math.isfinite(self.epsilon) else "inf"
        out = {"epsilon": epsilon, "delta": self.delta, "relation": self.relation.value, "unit": self.unit}
        return {**out, "status": self.said.value, **({"receipt": self.receipt} if self.receipt else {})}

    @classmethod
    def from_dict(cls, data: Any) -> Price:
        """Read :meth:`to_dict`; anything else raises ``InvalidInputError``."""
        known = {"epsilon", "delta", "relation", "unit"}
        if not isinstance(data, dict) or not known <= set(data) <= {*known, "status", "receipt"}:
            raise InvalidInputError(
                "Expected the price of a learned schema as epsilon, delta, relation, unit, perhaps a status "
                "and a receipt."
            )
        try:
            epsilon, delta = float(data["epsilon"]), float(data["delta"])
        except (TypeError, ValueError):
            raise InvalidInputError("Expected epsilon and delta of a learned schema as numbers.") from None
        said = data.get("status", Status.COPY.value)  # earlier versions did not say it
        if said not in list(Status):
            raise InvalidInputError(f"Expected the status of a learned schema among {', '.join(Status)}.")
        words = str(data["unit"]), str(data.get("receipt", ""))
        return cls(epsilon, delta, Relation.parse(data["relation"]), *words, Status(said))

    def __str__(self) -> str:
        numbers = f"epsilon = {at_most(self.epsilon)}, delta = {at_most(self.delta)}"
        return f"{numbers}, {self.relation.value} one {self.unit}"


def draw_receipt() -> str:
    """Return a fresh random text that tells one payment from another."""
    noise = fresh_noise()
    return f"{int(noise.integers(2**63 - 1, 1)[0]):016x}"


def receipt_words(receipt: str, status: Status) -> str:
    """Return how a ledger's description of a reservation names the payment it is for."""
    return f"receipt {receipt}, {status}"


def prices_in_words(sentence: str) -> tuple[Price, ...]:
    """Return the prices in a sentence, which is all that schemas and reports held before they held numbers.

    They are rounded up, for the sentence rounded to nearest. What cannot be read has an unknown price.
    """
    found = _SENTENCE.findall(sentence)
    if not found or len(found) != sentence.count("epsilon"):
        return (Price(math.inf, 1.0, Relation.ADD_REMOVE, "record", said=Status.COPY),)
    out = []
    for epsilon, delta, relation, unit in found:
        paid = float(epsilon) * _ROUNDED, min(float(delta) * _ROUNDED, 1.0)
        out.append(Price(*paid, Relation.parse(relation), unit, said=Status.COPY))
    return tuple(out)


def prices_in(report: dict[str, Any]) -> tuple[Price, ...]:
    """Return the prices in the data of a report; one of an earlier version has them in its words alone."""
    if "learned" in report:
        return tuple(Price.from_dict(price) for price in report["learned"])
    lines = [str(line) for line in report["public"] if str(line).startswith(LEARNED)]
    return tuple(price for line in lines for price in prices_in_words(line))


def each_once(prices: Iterable[Price]) -> tuple[Price, ...]:
    """Return the payments, each once. Two of the same size without a receipt may be two payments, and stay.

    Where two prices with one receipt differ, one of them was edited: the worse of both counts.
    """
    found: dict[Any, Price] = {}
    for price in prices:
        key: Any = (price.receipt, price.relation, price.unit) if price.receipt else object()
        seen = found.get(key, price)
        found[key] = replace(
            seen,
            epsilon=max(seen.epsilon, price.epsilon),
            delta=max(seen.delta, price.delta),
            said=Status.worst([seen.said, price.said]),
            certified=seen.certified and price.certified,
        )
    return tuple(found.values())


def together(report: PrivacyReport) -> tuple[float, float] | None:
    """Return at most which epsilon and delta a run has together with the schema that it reads.

    By the sum, which holds however the run was chosen. None where nothing was learned, or where the schema
    protects somebody else, so that they do not add up.
    """
    prices = report.learned
    if not prices:
        return None
    if not all(math.isfinite(price.epsilon) for price in prices):
        return math.inf, 1.0
    if {(price.relation, price.unit) for price in prices} != {(report.relation, report.unit)}:
        return None
    epsilon = _sum_up([report.epsilon, *(price.epsilon for price in prices)])
    return epsilon, min(_sum_up([report.delta, *(price.delta for price in prices)]), 1.0)


def is_apart(report: PrivacyReport) -> bool:
    """Tell whether a run reads a schema that protects somebody else: no number bounds both for anybody."""
    return bool(report.learned) and together(report) is None


def _sum_up(values: list[float]) -> float:
    """Return the sum of numbers as they are written, rounded up where a float cannot hold it."""
    if not all(math.isfinite(value) for value in values):
        return math.inf
    total = reduce(exact_sum, map(float, values), Decimal(0))
    found = float(total)
    return found if exact(found) >= total else math.nextafter(found, math.inf)
