"""Whether a page may be signed: no better than the worst of everything that stands on it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from typing import Any, Self

from sordino.estimators.pipeline import schema_of
from sordino.report.page import Booking, Books, Unbooked
from sordino.runs import PrivacyReport
from sordino.runs.report import Status
from sordino.saving.files import released_digests
from sordino.tables.columns import Column
from sordino.tables.schema import Schema, column_digest


@dataclass(frozen=True)
class Doubt:
    """Why nobody should sign a page: ``words`` about a ``part`` of it; ``denied`` where something says no."""

    part: str
    words: str
    denied: bool = False
    status: Status = Status.COPY

    def __str__(self) -> str:
        return f"{self.part}: {self.words.rstrip('.')}"


@dataclass(frozen=True)
class Standing:
    """What the banner, the lines to sign and the commands say of a page.

    Parameters
    ----------
    report : the guarantee of the part, as far as a ledger confirms it.
    part : what it is the standing of; the model's is that of the page.
    status : the worst status of the model, its schema and its scores.
    booked : what a ledger confirms of the model; "" where none does.
    doubts : why nobody should sign; without any the page may be signed.
    cautions : what whoever signs has to know first.
    weak : the guarantee of the model, or of a score, protects little.
    exact : a score is exact, and nobody checked it.
    """

    report: PrivacyReport
    part: str
    status: Status
    booked: str
    doubts: tuple[Doubt, ...]
    cautions: tuple[str, ...]
    weak: bool
    exact: bool

    @classmethod
    def of(
        cls,
        report: PrivacyReport,
        booking: Booking | Unbooked,
        part: str = "the model",
        lines: Sequence[Mapping[str, Any]] = (),
        unmarked: Sequence[Column] = (),
        both: PrivacyReport | None = None,
        alike: str = "",
    ) -> Standing:
        """Return the standing of a part of a page.

        ``lines`` are those of the scores beside it, ``unmarked`` columns that were learned and do not say so.
        ``both`` is the guarantee of the part and of the model under it; None where there is no other.
        ``alike`` warns of other names of the same table.
        """
        warning = (both or report).warning
        doubts = [
            *doubts_of(part, report, booking),
            *doubts_of_schema(unmarked),
            *(d for line in lines for d in line.get("doubts", ())),
        ]
        status = Status.worst([report.status, *(doubt.status for doubt in doubts)])
        said = isinstance(booking, Booking) and (report.is_private or booking.doubt)
        booked = booking.confirmation if isinstance(booking, Booking) and said else ""
        if isinstance(booking, Unbooked) and report.is_private and not booking.denied:
            booked = "counted by no ledger"
        cautions = filter(None, [warning, alike, *(line.get("caution") for line in lines)])
        weak = bool(warning) or any(line.get("weak") for line in lines)
        exact = any(line.get("exact") for line in lines)
        return cls(report, part, status, booked, tuple(doubts), tuple(cautions), weak, exact)

    @property
    def denied(self) -> bool:
        """Whether something contradicts what the page says; else a doubt is only that nobody confirms it."""
        return any(doubt.denied for doubt in self.doubts)

    @property
    def colour(self) -> str:
        """The class of the banner: "" is good, "mid" wants a second look, "bad" is not to be signed."""
        return "bad" if self.denied else "mid" if self.doubts or self.cautions else ""

    @property
    def line(self) -> str:
        """The status in one line, with what a ledger confirms and what nobody does."""
        parts = dict.fromkeys(doubt.part for doubt in self.doubts)
        others = f"; NOT confirmed: {', '.join(part for part in parts if part != self.part)}"
        others = others if parts.keys() - {self.part} else ""
        if others and self.part not in parts:
            words = f"{self.status}{others}{self.booked and f'; {self.part} is {self.booked}'}"
        else:
            words = f"{self.status}{self.booked and f', {self.booked}'}{others}"
        words += ", protects little" * self.weak
        return f"{words}; beside an exact score that nobody checked" if self.exact else words

    @property
    def verdict(self) -> list[str]:
        """What a command says last: why nobody should sign, or what to know before."""
        return [
            *(f"Do not sign it. {str(doubt)[:1].upper()}{str(doubt)[1:]}." for doubt in self.doubts),
            *(f"Before you sign: {words}." for words in self.cautions),
        ]


class Page(str):
    """The text of a page, and whether it may be signed."""

    standing: Standing

    def __new__(cls, text: str, standing: Standing) -> Self:
        """Return the text with its standing."""
        self = super().__new__(cls, text)
        self.standing = standing
        return self


_WRITTEN = re.compile("<dt>Page written</dt><dd>([0-9-]{10} [0-9:]{5} UTC)</dd>")


def changes(page: str, anew: str) -> list[str]:
    """Return the lines of a page that are not on the same page made anew, and those that are missing on it.

    Only when it was written may differ; of a ledger on which more was booked since, its lines do too.
    """
    known, now = (_WRITTEN.search(text) for text in (page, anew))
    anew = anew.replace(now[1], known[1]) if known and now else anew
    given, said = ([line.strip() for line in text.splitlines()] for text in (anew, page))
    kinds = {"+": "The page says", "-": "The files give"}
    lines = [*difflib.unified_diff(given, said, n=0, lineterm="")][2:]
    told = ((line[0], " ".join(unescape(re.sub("<[^>]*>", " ", line[1:])).split())) for line in lines)
    return [f"{kinds[mark]}: {text or 'something that is no text'}" for mark, text in told if mark in kinds]


def doubts_of(part: str, report: PrivacyReport, booking: Booking | Unbooked) -> tuple[Doubt, ...]:
    """Return why nobody should sign for a part of a page, given its report as far as a ledger confirms it."""
    denied, status = False, report.status
    if not status.holds:
        words, denied = str(status), True
    elif isinstance(booking, Unbooked) and booking.denied:
        words, denied, status = booking.words, True, Status.COPY
    elif isinstance(booking, Booking) and booking.doubt:
        words, denied, status = booking.explanation, booking.doubt == "another", Status.COPY
    elif isinstance(booking, Unbooked):
        words = (
            f"{'read from a file, and ' * report.copied}{booking.doubt}. Without one nobody counts what else "
            "was released of these records, nor of how many runs this one was chosen"
        )
    elif report.is_private:
        return ()
    elif report.copied:
        words = f"the ledger does not say that {booking.words} ended as planned, with fresh noise"
    else:
        words = "the price of its schema was read from a file, and the ledger has no receipt for it"
    return (Doubt(part, words, denied, status),)


def standing_of(
    model: Any, report: PrivacyReport, books: Books, ran: tuple[str, str] | None = None
) -> Standing:
    """Return the standing of a fitted model by itself, by the digests of what was released."""
    found, booking = books.find(report, ran, released_digests(model))
    schema = schema_of(model)
    alike = books.alike(schema, booking)
    return Standing.of(found, booking, unmarked=unmarked_columns(schema, booking), alike=alike)


def unmarked_columns(schema: Schema | None, booking: Booking | Unbooked) -> list[Column]:
    """Return the columns with bounds or levels that the ledger saw learned from records and that say not so.

    Only what is equal is found: who changes a learned bound by a hair has declared another one.
    """
    out: list[Column] = []
    if schema is None or isinstance(booking, Unbooked):
        return out
    for digest, (number, *_) in booking.files.items():
        receipt, short = booking.history.steps[number].said.receipt, digest[65:]
        known = {short[i : i + 8] for i in range(0, len(short), 8)} if receipt else set()
        for column in (c for c in schema.columns if known):
            marked = receipt in {price.receipt for price in column.learned}
            out += [column] * (not marked and column_digest(column, receipt) in known)
    return out


def doubts_of_schema(unmarked: Sequence[Column]) -> tuple[Doubt, ...]:
    """Return the doubt about columns that were learned and do not say so."""
    words = (
        "the ledger saw just these bounds or levels learned from records: "
        f"{', '.join(column.name for column in unmarked)}. They are not declared, and their price is not "
        "counted here. Fit with the schema that `sordino schema learn` wrote"
    )
    return (Doubt("the schema", words, True),) * bool(unmarked)
