"""The privacy report: what a fit guarantees, in numbers and in words."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache, partial, reduce
from typing import Any, Self

from dp_accounting import dp_event as dp

from sordino.accounting.calibration import Certificate, certify
from sordino.accounting.trade_off import NO_BOUND, TradeOff, trade_off, worst_trade_off
from sordino.accounting.trees import decode, encode
from sordino.errors import InvalidInputError, PlanError
from sordino.kernel.correlated import Correlated
from sordino.kernel.events import Disjoint, Relation
from sordino.kernel.mechanism import OnGrid
from sordino.kernel.noise import NoiseSource, fresh_noise
from sordino.kernel.plan import Plan, Release
from sordino.ledger.account import exact, exact_sum
from sordino.values import at_least, plain_number
from sordino.values import at_most as at_most

_PLACES = "order of the records, which are cut into parts by it: one that is left out leaves its place empty"


# ------------------------ What is assumed to be public: lines that carry where they come from


class Source(StrEnum):
    """Who says that a fact is public, and from where; a page has a sentence for each."""

    DECLARED = "declared"
    DEFAULT = "default"
    COLUMNS = "columns"
    COUNTED = "counted"
    IDS = "ids"
    SEEN = "seen"
    SHAPE = "shape"
    LEARNED = "learned"
    RULE = "rule"
    KIND = "kind"
    CLIP = "clip"
    ALIKE = "alike"
    OLD = "old"

    @classmethod
    def given(cls, value: Any, by_columns: bool = False) -> Source:
        """Return that of a parameter: None takes what follows from the columns, or the library's default."""
        return cls.DECLARED if value is not None else cls.COLUMNS if by_columns else cls.DEFAULT

    @property
    def is_read(self) -> bool:
        """Whether it was read off the records, without noise."""
        return self in (Source.COUNTED, Source.IDS, Source.SEEN)


class Fact(str):
    """A line of a report about what is assumed to be public; a plain text is one that was declared.

    Parameters
    ----------
    what : the line.
    origin : who says so.
    units : how many are protected, where the line is about their number; else 0.
    leaves_out : records without a target were left out before anybody counted the others.
    most : so many records one person has at most, where that is declared and nothing can check it; else 0.
    """

    origin: Source
    units: int
    leaves_out: bool
    most: int

    def __new__(
        cls, what: str, origin: str = "declared", units: int = 0, leaves_out: bool = False, most: int = 0
    ) -> Self:
        """Return the line, with what it knows of itself."""
        self = super().__new__(cls, what)
        self.origin, self.units, self.leaves_out = Source(origin), int(units), bool(leaves_out)
        self.most = int(most)
        return self

    @classmethod
    def of(cls, line: str) -> Fact:
        """Return a line as a fact; one that says nothing of itself was declared."""
        return line if isinstance(line, Fact) else cls(line)

    @classmethod
    def number_of(cls, unit: str, number: int) -> Self:
        """Return the number of those who are protected, as it was counted in the data."""
        origin = Source.COUNTED if unit == "record" else Source.IDS
        return cls(f"number of {unit}s: {number}", origin, number)

    @property
    def mark(self) -> dict[str, Any]:
        """What it knows beside its words, for a file; nothing where it was declared."""
        default = vars(Fact(""))
        return {name: value for name, value in vars(self).items() if value != default[name]}

    @classmethod
    def read_old(cls, line: str) -> Self:
        """Return a line of a file that does not say who said it: counts and labels are known."""
        if found := re.fullmatch(r"number of (record|person)s: ([0-9]{1,18})", line):
            return cls.number_of(found[1], int(found[2]))
        origin = Source.SEEN if line.startswith("class labels: those seen in y") else Source.OLD
        return cls(line, origin, leaves_out=bool(re.match("column .*: target, .*; records without it", line)))


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


@dataclass(frozen=True)
class Price:
    """The guarantee under which a schema was learned; it comes on top of that of every run that reads it.

    Parameters
    ----------
    epsilon, delta, relation, unit : as certified; epsilon is infinite where nobody knows it any more.
    receipt : a random text that tells this payment from another of the same size; "" where none was drawn.
    said : the status of the run that was paid for, as it is stated.
    certified : the run was one of this process; what was read from a text or typed proves nothing.
    content : the digest of what the schema says was learned; a ledger knows that of what was.
    """

    epsilon: float
    delta: float
    relation: Relation
    unit: str
    receipt: str = ""
    said: Status = Status.PRIVATE
    certified: bool = field(default=False, compare=False)
    content: str = field(default="", compare=False, repr=False)

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
        more = {"receipt": self.receipt, "content": self.content}
        return {**out, "status": self.said.value, **{key: text for key, text in more.items() if text}}

    @classmethod
    def from_dict(cls, data: Any) -> Price:
        """Read :meth:`to_dict`; anything else raises ``InvalidInputError``."""
        known = {"epsilon", "delta", "relation", "unit"}
        if not isinstance(data, dict) or not known <= set(data) <= {*known, "status", "receipt", "content"}:
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
        content = str(data.get("content", ""))
        return cls(epsilon, delta, Relation.parse(data["relation"]), *words, Status(said), content=content)

    def __str__(self) -> str:
        numbers = f"epsilon = {at_most(self.epsilon)}, delta = {at_most(self.delta)}"
        return f"{numbers}, {self.relation.value} one {self.unit}"


def draw_receipt() -> str:
    """Return a fresh random text that tells one payment from another."""
    noise = fresh_noise()
    return f"{int(noise.integers(2**63 - 1, 1)[0]):016x}"


_DECLARED = ", rows_per_person = "


@dataclass(frozen=True)
class Booked:
    """What a ledger's description of a reservation says.

    Parameters
    ----------
    name : of the run.
    receipt, status : of the payment that it is for, and how far that was private; "" where it is for none.
    seeded : its noise can be reproduced.
    most : it protects persons with so many records, as somebody declared; 0 where nobody had to.
    """

    name: str
    receipt: str = ""
    status: str = ""
    seeded: bool = False
    most: int = 0

    @classmethod
    def read(cls, description: str) -> Booked:
        """Read what ``str`` writes; of any other text all is the name."""
        seeded = description.endswith(seed := f", {Status.SEEDED}")
        rest, mark, most = description.removesuffix(seed).rpartition(_DECLARED)
        if mark and most.isdecimal():
            return replace(cls.read(f"{rest}{seed * seeded}"), most=int(most))
        rest = description.removesuffix(seed)
        name, mark, said = rest.rpartition(", receipt ")
        receipt, _, status = said.partition(", ")
        paid = bool(mark) and receipt.isalnum() and status in list(Status)
        return cls(name, receipt, status, seeded) if paid else cls(rest, seeded=seeded)

    def __str__(self) -> str:
        paid = f", receipt {self.receipt}, {self.status}" if self.receipt else ""
        declared = f"{_DECLARED}{self.most}" if self.most else ""
        return f"{self.name}{paid}{declared}{f', {Status.SEEDED}' if self.seeded else ''}"


def most_declared(public: Iterable[str]) -> int:
    """Return how many records a person may have, by what was declared; 0 where nobody had to."""
    return min((fact.most for fact in map(Fact.of, public) if fact.most), default=0)


def condition_words(most: int) -> str:
    """Return on how many records of a person a guarantee rests, where somebody declared it; else nothing."""
    words = (
        f" This holds only for persons with at most {most} record{'s' * (most > 1)}, as somebody declared "
        "and nobody can check: whoever has more is protected less."
    )
    return words if most else ""


def each_once(prices: Iterable[Price]) -> tuple[Price, ...]:
    """Return the payments, each once: without a receipt all stay, of one receipt the worse of two prices."""
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


def _sum_up(values: list[float]) -> float:
    """Return the sum of numbers as they are written, rounded up where a float cannot hold it."""
    if not all(math.isfinite(value) for value in values):
        return math.inf
    total = reduce(exact_sum, map(float, values), Decimal(0))
    found = float(total)
    return found if exact(found) >= total else math.nextafter(found, math.inf)


FORMAT = 2
_ON_GRID, _EXACT = " (exactly rounded to a lattice)", " (exact)"
_STATED = 1.02  # a plan is calibrated to its epsilon from below, within a percent; more than that is another
_UP = 1 + 1e-12  # a margin for the rounding of sums
_TEXTS = ("public", "notes", "unpaid", "unproven")


@dataclass(frozen=True)
class ReleaseReport:
    """One kind of release: how often, with which noise, on which records."""

    name: str
    mechanism: str
    sampling: str
    times: int
    noise_multiplier: float
    sensitivity: str

    @property
    def is_exact(self) -> bool:
        """Whether the noise has the law that is proven, to the last bit; the others draw doubles."""
        return self.mechanism.endswith((_ON_GRID, _EXACT))


@dataclass(frozen=True)
class PaperClaim:
    """What a published formula claims; the report's own epsilon is what it really gives."""

    epsilon: float
    formula: str


@dataclass(frozen=True, repr=False, eq=True)
class PrivacyReport:
    """A guarantee and everything it rests on.

    Parameters
    ----------
    epsilon, delta, relation, unit : the certified guarantee.
    accountant, discretisation : how it was computed.
    event : the privacy events of all releases.
    releases : the releases by name.
    noise_source : where the noise came from.
    seeded : the noise can be reproduced, so there is no privacy.
    public : what was assumed to be public knowledge.
    paper_claim : in paper mode, the published claim.
    notes : anything else a reader must know.
    unpaid : steps that read the records and paid nothing; with one of them nothing is guaranteed.
    unproven : parts of the plan that are printed in a paper or written elsewhere, and not proven here.
    learned : what was paid before for a schema that the run read; not part of epsilon, see :attr:`whole`.
    copied : read back from a text, which proves nothing about what was run.
    file : the digest of the file that it was read from, which a ledger may know.

    A line of ``public`` is a :class:`Fact`, which knows who says so. A report that states less
    than its own event certifies, or numbers that are none, cannot be made.
    """

    epsilon: float
    delta: float
    relation: Relation
    unit: str
    accountant: str
    event: dp.DpEvent
    releases: tuple[ReleaseReport, ...]
    noise_source: str
    seeded: bool
    public: tuple[Fact, ...] = ()
    paper_claim: PaperClaim | None = None
    notes: tuple[str, ...] = ()
    discretisation: float | None = None
    unpaid: tuple[str, ...] = ()
    unproven: tuple[str, ...] = ()
    learned: tuple[Price, ...] = ()
    copied: bool = field(default=False, compare=False)
    file: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "public", tuple(map(Fact.of, self.public)))
        if not self.epsilon >= 0 or not 0 < self.delta < 1:
            raise InvalidInputError(
                "Expected a guarantee with epsilon >= 0 and delta in (0, 1), got epsilon = "
                f"{self.epsilon:g}, delta = {self.delta:g}."
            )
        proven = certify(self.event, self.delta, self.relation).epsilon
        if not self.epsilon >= proven * (1 - 1e-9):
            raise InvalidInputError(
                f"The report states epsilon = {self.epsilon:.4g}, its events certify {proven:.4g} at delta = "
                f"{self.delta:g}. A report cannot state less."
            )

    @classmethod
    def from_plan(
        cls,
        plan: Plan,
        certificate: Certificate,
        noise: NoiseSource,
        *,
        public: Iterable[str] = (),
        paper_claim: PaperClaim | None = None,
        notes: Iterable[str] = (),
        learned: Iterable[Price] = (),
    ) -> PrivacyReport:
        """Build the report of a calibrated plan from its certificate and its noise."""
        if certificate.relation is not plan.relation:
            raise PlanError(
                f"The certificate is for {certificate.relation.value!r}, the plan for "
                f"{plan.relation.value!r}. Certify this plan's own event."
            )
        cut = any(isinstance(release.sampling, Disjoint) for release in plan.releases.values())
        return certified_report(
            certificate,
            plan.event(),
            plan.unit,
            noise,
            releases=cls.described(plan),
            public=(*public, *((_PLACES,) if cut else ())),
            paper_claim=paper_claim,
            notes=tuple(notes),
            unproven=plan.printed,
            learned=each_once(learned),
        )

    @staticmethod
    def described(plan: Plan) -> tuple[ReleaseReport, ...]:
        """Return the rows of the table of releases."""
        return tuple(_describe(name, r, plan.relation) for name, r in plan.releases.items())

    @property
    def is_private(self) -> bool:
        """Whether the guarantee holds: see :attr:`status`."""
        return self.status is Status.PRIVATE

    @property
    def status(self) -> Status:
        """The word "private", or why it is not: the worst of the run and its learned schema."""
        found = {
            Status.NO_NOISE: not math.isfinite(self.epsilon),
            Status.UNPAID: bool(self.unpaid),
            Status.UNPROVEN: bool(self.unproven),
            Status.APART: self._is_apart,
            Status.SEEDED: self.seeded,
            Status.COPY: self.copied,
        }
        own = [status for status, is_so in found.items() if is_so]
        return Status.worst([*own, *(price.status for price in self.learned)])

    def with_unpaid(self, reason: str) -> PrivacyReport:
        """Return the report beside something that read the records and paid nothing."""
        return replace(self, unpaid=(*self.unpaid, reason))

    @property
    def guarantee(self) -> str:
        """The guarantee in one plain sentence."""
        if not math.isfinite(self.epsilon):
            return f"Nothing is guaranteed: a {self.unit} can be read from the output."
        if self.unpaid:
            return f"Nothing is guaranteed, because of {'; '.join(self.unpaid)}."
        if self.unproven:
            return f"Nothing is guaranteed here: not proven are {'; '.join(self.unproven)}."
        before = Status.worst(price.status for price in self.learned)
        if not before.holds:
            return f"Nothing is guaranteed: the schema that it reads was learned from records, {before}."
        change = "left out" if self.relation is Relation.ADD_REMOVE else "replaced by any other"
        words = (
            f"Whether or not one {self.unit} is {change}, any output is as likely up to a factor of "
            f"e^{at_most(self.epsilon)}, but for a probability of {_plain_bound(at_most, self.delta)}."
        )
        words += self.condition + " This run used seeded noise, so it does not hold." * self.seeded
        return f"For this run alone: {words} {self.on_top}" if self._is_apart else words

    @property
    def odds(self) -> str:
        """The guarantee as a bet on this run, and on the schema that was learned for it."""
        if not self.status.holds and not (self.seeded and self.status is Status.SEEDED):
            return self.guarantee
        words = bet(self.wager, self.trade_off)
        if self.whole is not None:
            words += " This counts the schema, which was learned from records."
        return words + self.condition + " This run used seeded noise, so it does not hold." * self.seeded

    @property
    def condition(self) -> str:
        """A sentence on what nothing enforces and the guarantee of a person rests on; else the empty text."""
        return condition_words(most_declared(self.public))

    @property
    def trade_off(self) -> TradeOff:
        """What the best attack can achieve, from the events of the run: advantage and true positive rates.

        A schema that was learned for the run counts; where it protects somebody else, nothing is bounded.
        """
        if self._is_apart or (self.whole and not math.isfinite(self.whole[0])):
            return NO_BOUND
        proven = certify(self.event, self.delta, self.relation).epsilon
        if self.epsilon <= _STATED * proven:
            curve = trade_off(self.event, self.delta, self.relation)
        else:  # the report says more than its events: they are not all there is
            curve = worst_trade_off(self.epsilon, self.delta)
        if self.whole is None:
            return curve
        epsilon = math.fsum(price.epsilon for price in self.learned)
        return curve.after(epsilon * _UP, math.fsum(price.delta for price in self.learned) * _UP)

    @property
    def whole(self) -> tuple[float, float] | None:
        """Epsilon and delta, at most, of this run and the schema that was learned for it, by their sum.

        None where nothing was learned, or where the schema protects somebody else: that does not add up.
        """
        if not self.learned:
            return None
        if not all(math.isfinite(price.epsilon) for price in self.learned):
            return math.inf, 1.0
        if self._is_apart:
            return None
        delta = _sum_up([self.delta, *(price.delta for price in self.learned)])
        return _sum_up([self.epsilon, *(price.epsilon for price in self.learned)]), min(delta, 1.0)

    @property
    def _is_apart(self) -> bool:
        """Whether the run reads a schema that protects somebody else: no number bounds both for anybody."""
        known = all(math.isfinite(price.epsilon) for price in self.learned)
        own = (self.relation, self.unit)
        return known and any((price.relation, price.unit) != own for price in self.learned)

    @property
    def on_top(self) -> str | None:
        """What a learned schema cost before this run, in a sentence; None where nothing was learned."""
        if not self.learned:
            return None
        words = "The schema was learned from records, and its price comes on top"
        status = Status.worst(price.status for price in self.learned)
        words += "" if status is Status.PRIVATE else f" ({status})"
        if self.whole is None:
            return f"{words}. It protects others ({'; '.join(map(str, self.learned))}): both do not add up."
        epsilon, delta = self.whole
        if not math.isfinite(epsilon):
            return f"{words}. What both cost together is not bounded."
        return f"{words}: together at most epsilon {at_most(epsilon)}, delta {at_most(delta, 3)}."

    @property
    def wager(self) -> str:
        """What an attacker bets on."""
        if self.relation is Relation.ADD_REMOVE:
            return f"whether one {self.unit} was in the data"
        return f"which of two versions of one {self.unit} was in the data"

    @property
    def warning(self) -> str | None:
        """What must be said about an epsilon, or a delta, that protects little; None where nothing must."""
        epsilon, delta = self.whole or (self.epsilon, self.delta)
        said = [warning(epsilon, self.trade_off) if epsilon > LITTLE else None]
        if math.isfinite(epsilon) and delta * max((fact.units for fact in self.public), default=0) >= 1:
            said.append(
                f"delta = {at_most(delta)} is at least 1/n: a mechanism that publishes whole records with "
                "this probability would satisfy it"
            )
        return "; ".join(filter(None, said)) or None

    @property
    def strength(self) -> str:
        """One word, or a few, for the guarantee: a delta of 1/n makes none of it strong."""
        epsilon = (self.whole or [self.epsilon])[0]
        return strength(max(epsilon, 2 * LITTLE) if self.warning else epsilon)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can hold; see :meth:`from_dict`."""
        return {
            "format": FORMAT,
            "status": self.status,
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else "inf",
            "delta": self.delta,
            "relation": self.relation.value,
            "unit": self.unit,
            "accountant": self.accountant,
            "discretisation": self.discretisation,
            "event": encode(self.event),
            "releases": [asdict(release) for release in self.releases],
            "public": [str(fact) for fact in self.public],
            "facts": [fact.mark for fact in self.public],
            "noise_source": self.noise_source,
            "seeded": self.seeded,
            "paper_claim": asdict(self.paper_claim) if self.paper_claim else None,
            "notes": list(self.notes),
            "unpaid": list(self.unpaid),
            "unproven": list(self.unproven),
            "learned": [price.to_dict() for price in self.learned],
        }

    def to_json(self) -> str:
        """Return the report as JSON text."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    @classmethod
    def from_dict(cls, data: Any) -> PrivacyReport:
        """Read :meth:`to_dict`; anything else raises ``InvalidInputError``.

        The events are certified again, and a text that states less is refused. Whether they are what was
        run, no text can prove: the result says that it is a copy.
        """
        try:
            if data["format"] != FORMAT:
                raise InvalidInputError(f"Expected a report of format {FORMAT}. Upgrade sordino to read it.")
            claim, grid = data["paper_claim"], data["discretisation"]
            texts: dict[str, Any] = {name: tuple(str(item) for item in data[name]) for name in _TEXTS}
            if "facts" in data:
                marks = zip(texts["public"], data["facts"], strict=True)
                texts["public"] = tuple(Fact(what, **mark) for what, mark in marks)
            else:  # earlier versions did not say who says so
                texts["public"] = tuple(map(Fact.read_old, texts["public"]))
            return cls(
                epsilon=float(data["epsilon"]),
                delta=float(data["delta"]),
                relation=Relation.parse(data["relation"]),
                unit=str(data["unit"]),
                accountant=str(data["accountant"]),
                event=decode(data["event"]),
                releases=tuple(ReleaseReport(**release) for release in data["releases"]),
                noise_source=str(data["noise_source"]),
                seeded=bool(data["seeded"]),
                paper_claim=PaperClaim(**claim) if claim is not None else None,
                discretisation=None if grid is None else float(grid),
                learned=tuple(map(Price.from_dict, data["learned"])),
                copied=True,
                **texts,
            )
        except InvalidInputError:
            raise
        except (KeyError, TypeError, AttributeError, ValueError):
            raise InvalidInputError("Expected a privacy report as written by to_json.") from None

    @classmethod
    def from_json(cls, text: str) -> PrivacyReport:
        """Read :meth:`to_json`."""
        try:
            data = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            raise InvalidInputError("Expected a privacy report as JSON text.") from None
        return cls.from_dict(data)

    def to_html(self) -> str:
        """Return a page of its own: no scripts, nothing loaded from elsewhere."""
        return self._filled("report.html")

    def _repr_html_(self) -> str:
        return self._filled("card.html")

    def _filled(self, template: str) -> str:
        event = json.dumps(encode(self.event), indent=2)
        return str(templates_of("sordino.runs").get_template(template).render(report=self, event=event))

    def __repr__(self) -> str:
        lines = [
            f"PrivacyReport: {self.status}, epsilon = {at_most(self.epsilon)}, delta = {at_most(self.delta)}",
            f"  {self.relation.value} one {self.unit}; {self.accountant} accounting; {self.noise_source}",
        ]
        lines += [
            f"  {r.name}: {r.times} x {r.mechanism}, {r.sampling}, "
            f"multiplier {_short(r.noise_multiplier)}, sensitivity {r.sensitivity}"
            for r in self.releases
        ]
        if self.public:
            lines.append(f"  assumed public: {'; '.join(self.public)}")
        if self.paper_claim:
            claim = self.paper_claim
            lines.append(f"  {claim.formula} claims epsilon = {_short(claim.epsilon)}")
        lines += [f"  {self.on_top}"] if self.on_top else []
        lines += [f"  paid nothing: {step}" for step in self.unpaid]
        lines += [f"  not proven here: {part}" for part in self.unproven]
        said = (self.warning, *self.notes) if self.warning else self.notes
        return "\n".join([*lines, *(f"  note: {note}" for note in said)])


def certified_report(
    certificate: Certificate, event: dp.DpEvent, unit: str, noise: NoiseSource | None, **rest: Any
) -> PrivacyReport:
    """Build the report of events from their certificate; ``rest`` are the other fields, by name."""
    if noise is not None:
        rest |= {"noise_source": noise.description, "seeded": not noise.is_private}
    stated = certificate.epsilon, certificate.delta, certificate.relation, unit, certificate.accountant
    return PrivacyReport(*stated, event, discretisation=certificate.discretisation, **rest)


def _describe(name: str, release: Release, relation: Relation) -> ReleaseReport:
    multiplier = release.mechanism.multiplier
    kind = type(release.mechanism).__name__
    if isinstance(release.mechanism, Correlated):
        kind += f" ({type(release.mechanism.strategy).__name__}, all releases together)"
    elif release.mechanism.secure:
        grid = isinstance(release.mechanism, OnGrid)
        kind += _ON_GRID if grid else _EXACT
    try:
        bound = _short(release.sensitivity(relation))
    except (TypeError, AttributeError, LookupError, NotImplementedError):
        bound = "follows released values"  # for example the distance of two iterates
    return ReleaseReport(
        name=name,
        mechanism=kind,
        sampling=repr(release.sampling),
        times=release.times,
        noise_multiplier=math.nan if multiplier is None else float(multiplier),
        sensitivity=f"{bound} ({release.query.norm.value})",
    )


def _short(value: float) -> str:
    return f"{value:.4g}"


def _plain_bound(bound: Any, value: float, *digits: int) -> str:
    return plain_number(float(bound(value, *digits)))


@lru_cache(maxsize=4)
def templates_of(room: str) -> Any:
    """Return the templates of a room, which escape what they show."""
    from jinja2 import Environment, PackageLoader

    environment = Environment(
        loader=PackageLoader(room), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["short"] = lambda value: plain_number(value, 4)
    for bound in (at_most, at_least):
        environment.filters[bound.__name__] = partial(_plain_bound, bound)
    environment.filters["share"] = lambda value: f"{100 * value:.1f} %"
    environment.filters["upper_first"] = lambda text: text[:1].upper() + text[1:]
    return environment


def composed(
    parts: Sequence[tuple[str, PrivacyReport]],
    delta: float | None = None,
    *,
    notes: Sequence[str] = (),
    unpaid: Sequence[str] = (),
    learned: Sequence[Price] = (),
    within: float = math.inf,
) -> PrivacyReport:
    """Return the guarantee of all parts together: their events are composed and certified now.

    Parameters
    ----------
    parts : the reports by name; all for the same unit and relation.
    delta : of the whole; None takes the largest delta of the parts.
    notes : further words.
    unpaid : what else read the records, and why it is not covered: then nothing is guaranteed.
    learned : what was paid for schemas that no part itself has read.
    within : the epsilon that was asked for all of them; a larger one is refused.
    """
    if not parts:
        raise InvalidInputError("Expected at least one private step, got none.")
    relations = {report.relation for _, report in parts}
    units = {report.unit for _, report in parts}
    if len(relations) > 1 or len(units) > 1:
        raise InvalidInputError(
            "Expected all steps to protect the same unit under the same relation, got "
            f"{sorted(r.value for r in relations)} and {sorted(units)}."
        )
    relation = relations.pop()
    delta = max(report.delta for _, report in parts) if delta is None else delta
    event = dp.ComposedDpEvent([report.event for _, report in parts])
    certificate = certify(event, delta, relation)
    if certificate.epsilon > within:
        raise PlanError(
            f"Expected epsilon <= {within:.6g} for all steps together, certified are "
            f"{certificate.epsilon:.6g} at the same delta, and spent. Please report this as a defect."
        )
    return certified_report(
        replace(certificate, delta=delta),
        event,
        units.pop(),
        None,
        releases=tuple(release for _, report in parts for release in report.releases),
        public=tuple(dict.fromkeys(line for _, report in parts for line in report.public)),
        noise_source=parts[0][1].noise_source,
        seeded=any(report.seeded for _, report in parts),
        notes=(
            *(f"step {name!r}: epsilon = {at_most(report.epsilon)}" for name, report in parts),
            *dict.fromkeys(note for _, report in parts for note in report.notes),
            *notes,
        ),
        unpaid=tuple(dict.fromkeys((*(u for _, report in parts for u in report.unpaid), *unpaid))),
        unproven=tuple(dict.fromkeys(part for _, report in parts for part in report.unproven)),
        learned=each_once((*(price for _, report in parts for price in report.learned), *learned)),
        copied=any(report.copied for _, report in parts),
        file=next((report.file for _, report in parts if report.file), ""),
    )
