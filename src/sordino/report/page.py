"""Self-contained HTML pages, and the page about the budgets of a ledger."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import sordino
from sordino.accounting.trade_off import trade_off, worst_trade_off
from sordino.errors import LedgerCorruptError, RoleError, SordinoError
from sordino.kernel.events import compose_events
from sordino.ledger import BudgetPolicy, Entry, Ledger
from sordino.ledger.account import Account, FilterMode
from sordino.ledger.ledger import booked_for
from sordino.ledger.store import Status as Ended
from sordino.ledger.store import save
from sordino.runs import Ask, PrivacyReport
from sordino.runs.report import Booked, condition_words, guess, percent, templates_of
from sordino.tables.schema import Schema


def render_page(template: str, **values: Any) -> str:
    """Return a page from one of this room's templates; every value is escaped."""
    return str(templates_of("sordino.report").get_template(template).render(**values))


# -------------------------------- The budget of a data set before and after a run, replayed from the ledger


_PURE = 1e-10  # where the curve of a budget without a delta is computed most finely
_POINTS = 300  # of the path of a staircase


@dataclass(frozen=True)
class Step:
    """An account after a reservation, who made it, and its part of the budget."""

    entry: Entry | None
    person: str
    account: Account
    part: float = 0.0

    @property
    def said(self) -> Booked:
        """What the description of the reservation says."""
        return Booked.read(self.entry.description if self.entry else "")

    @property
    def fraction(self) -> float:
        """The part that is spent."""
        return self.account.fraction

    @property
    def epsilon_left(self) -> float:
        """What one more plan may cost."""
        return self.account.left(self.account.policy.delta)[0]

    @property
    def share(self) -> float:
        """The part that is spent, within [0, 1]."""
        return min(max(self.fraction, 0.0), 1.0)


@dataclass(frozen=True)
class History:
    """Every reservation of a data set with its account."""

    dataset_id: str
    policy: BudgetPolicy
    steps: tuple[Step, ...]
    ran: tuple[str, str] = ("", "9")  # reservations of other times are those of other runs

    @classmethod
    def read(cls, ledger: Ledger, dataset_id: str) -> History:
        """Replay the reservations of a data set."""
        policy, people = ledger.policy(dataset_id), ledger.people(dataset_id)
        account = Account.opened(policy)
        steps = [Step(None, "", account)]
        for entry in ledger.history(dataset_id):
            before, account = account, account.book(entry.charge)
            person, part = people.get(entry.sequence, ""), account.fraction - before.fraction
            steps.append(Step(entry, person, account, part))
        return cls(dataset_id, policy, tuple(steps))

    @property
    def now(self) -> Step:
        """The account after all of them."""
        return self.steps[-1]

    @property
    def scores(self) -> int:
        """How many runs were booked for scores."""
        return sum(step.said.name.startswith("private_score") for step in self.steps)

    @property
    def adds_up(self) -> bool:
        """Whether certificates add up plainly, as in basic mode."""
        return self.now.account.mode is FilterMode.BASIC

    @property
    def path(self) -> str:
        """The spending over time as the path of a staircase in a box of 1000 x 100."""
        times = [datetime.fromisoformat(s.entry.reserved_at).timestamp() for s in self.steps if s.entry]
        start, width = times[0], max(times[-1] - times[0], 1.0)
        points = [(940 * (t - start) / width, 100 - 100 * s.share) for t, s in zip(times, self.steps[1:])]
        kept = [*points[:: max(1, len(points) // _POINTS)], points[-1]]
        return "M0,100" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in kept) + "H1000"

    def bets(self) -> tuple[str, str]:
        """How many bets on one unit are won with everything booked, and with all that can ever be booked.

        The first is that of all events together: proven where no event was chosen after looking at what came
        before. The second is that of the budget, which the filter keeps however plans were chosen.
        """
        epsilon, delta, relation = self.policy.epsilon, self.policy.delta, self.policy.relation
        entries = [step.entry for step in self.steps if step.entry]
        event = compose_events([e.event for e in entries if e.status is not Ended.RETURNED])
        curves = trade_off(event, delta or _PURE, relation), worst_trade_off(epsilon, delta)
        return percent(guess(curves[0])), percent(guess(curves[1]))

    @property
    def condition(self) -> str:
        """On how many records of a person the first of these bets rests, where a run declared it; else ""."""
        return condition_words(min((step.said.most for step in self.steps if step.said.most), default=0))

    def of_the_run(self) -> list[Entry]:
        """Return the reservations from the time of the run."""
        start, end = self.ran
        entries = [step.entry for step in self.steps if step.entry]
        return [e for e in entries if start[:19] <= e.reserved_at[:19] <= end[:19]]


@dataclass(frozen=True)
class Booking:
    """The account just before and just after each reservation of a run.

    Of equal reservations nothing may say which belong to the run: then ``parts`` has all of them, and only
    ``among`` of these do. The ``model`` is "known" to the ledger as the one that was released, "another" is,
    or it is "unknown" which one; None where that was not asked. So is its ``report``, as it was when the fit
    ended, and the ``file``, as it was written.
    """

    history: History
    parts: tuple[tuple[Step, Step], ...]
    among: int = 0
    place: str = ""
    model: str | None = None
    report: str | None = None
    file: str | None = None
    files: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    receipt: str = ""

    def confirm(self, report: PrivacyReport, ledger: Ledger) -> PrivacyReport:
        """Return a report that was read back as that of a run which the ledger confirms, else as it is.

        Its events were certified again when it was read. All reservations for just these have to be settled,
        none with seeded noise; a schema that was learned has to have its receipts there, and the model and
        the file that were asked for have to be those that the ledger knows.
        """
        steps = [step for _, step in self.parts if step.entry]
        if self.doubt or any(s.said.seeded or s.entry.status is not Ended.SETTLED for s in steps if s.entry):
            return report
        ask = Ask(report.epsilon, report.delta, ledger, self.history.dataset_id)
        return replace(report, copied=False, learned=ask.find_paid(report.learned))

    @property
    def doubt(self) -> str:
        """Whether the model, its report or its file is "another" than the ledger knows or "unknown" to it."""
        return getattr(self, self.doubted) if self.doubted else ""

    @property
    def doubted(self) -> str:
        """The first of "model", "report" and "file" that the ledger does not confirm; "" for none."""
        asked = ("model", "report", "file")
        return next((one for one in asked if getattr(self, one) in ("another", "unknown")), "")

    @property
    def confirmation(self) -> str:
        """What a page says beside a status: what of it the ledger confirms."""
        numbers = [str(step.entry.sequence) for _, step in self.parts if step.entry]
        kind = f"{'one of ' * bool(self.among)}reservation{'s' * (len(numbers) > 1)}"
        book = f"ledger {self.place}" if self.place else "its ledger"
        words = f"confirmed by {book}, {kind} {', '.join(numbers)}"
        parts = ["releases", *(n for n, a in (("model", self.model), ("file", self.file)) if a == "known")]
        *first, last = parts
        if not self.doubt:
            return f"{words}: {', '.join(first)} and {last}" if first else f"{words}: releases only"
        what = self.doubted
        parts = parts[:1] if what == "model" else parts
        known = {"another": f"this {what} is NOT the one that the ledger knows"}
        known["unknown"] = f"the ledger holds no digest of this {what}"
        return f"{' and '.join(parts)} {words}; {known[self.doubt]}"

    @property
    def person(self) -> str:
        """Who booked it, where that is one person and the ledger knows the model; else the empty text."""
        people = {after.person for _, after in self.parts}
        return people.pop() if len(people) == 1 and not self.doubt else ""

    @property
    def explanation(self) -> str:
        """What the digest of the model, or of the file, says to whoever would sign."""
        what = self.doubted
        if self.doubt == "unknown":
            return (
                f"the ledger holds {self.words} for just these releases, but no digest of this {what}: an "
                "older version wrote it, or not that run. Nobody can tell whether it says what it said then"
            )
        told = "what it says (who, when, of which data, or a number)"
        told = {"model": "its numbers", "report": "what it says of the run and of what is public"}.get(
            what, told
        )
        runs = self.words.removeprefix("one of ")
        return (
            f"the ledger knows the {what} of {runs}, and this one has another digest: somebody changed "
            f"{told}, or it is of another run. Ask for the {what} that was written then"
        )

    @property
    def words(self) -> str:
        """The number of the reservation; of several reservations also what each one booked."""
        *first, last = [step.entry for _, step in self.parts if step.entry]
        if self.among:
            numbers = ", ".join(str(entry.sequence) for entry in first)
            return f"{'one' if self.among == 1 else self.among} of reservations {numbers} and {last.sequence}"
        if not first:
            return f"reservation {last.sequence}"
        names = [f"{entry.sequence} ({entry.description})" for entry in (*first, last)]
        return f"reservations {', '.join(names[:-1])} and {names[-1]}"

    @property
    def together(self) -> str:
        """What several reservations of one run cost together; the empty text for a single one."""
        if len(self.parts) == 1:
            return ""
        if self.among:
            return f"This run is {self.words}: they are for equal releases, and nothing says which."
        cost = sum(after.fraction - before.fraction for before, after in self.parts)
        words = f"One run, booked one after the other: {self.words}."
        return f"{words} Together they took {100 * cost:.1f} % of the budget."


@dataclass(frozen=True)
class Unbooked:
    """Why a page shows no reservation; ``denied`` where a ledger was asked and has none.

    ``doubt`` says of a run whose ledger nobody asked why nobody should sign for it.
    """

    words: str
    doubt: str = ""
    denied: bool = False


_NOWHERE = Unbooked(
    "The run was booked on no ledger, so nobody has added it to what else was released.",
    "it was booked on no ledger. Fit with --ledger and --dataset (in Python ledger and dataset_id)",
)
_NOT_TOLD = Unbooked(
    "This page was not told of a ledger, so it cannot say whether the run was booked. Written with "
    "--ledger and --dataset (in Python ledger and dataset_id) it shows the reservation; without one "
    "nobody has counted what else was released.",
    "no ledger was asked. Name the --ledger and --dataset of the run",
)
_NO_PLACE = Unbooked(
    "Nothing says on which data set of the ledger the run was booked.",
    "the ledger could not be asked: nothing says on which of its data sets it was booked. Name the --dataset",
)


class Books:
    """The ledger that a page asks: opened once, and each data set read once.

    Parameters
    ----------
    ledger : the ledger, or its address; None asks nobody.
    dataset_id : of the page; "" says that its run was booked nowhere.
    named : the page may say what the ledger is called.
    """

    def __init__(self, ledger: Any, dataset_id: str | None, named: bool = True) -> None:
        self.dataset_id, self._named, self._ledger = dataset_id, named, ledger
        self._known: dict[str, Any] = {}

    @cached_property
    def book(self) -> Ledger:
        """The ledger, open."""
        is_address = isinstance(self._ledger, (str, os.PathLike))
        return Ledger.open(self._ledger, create=False) if is_address else self._ledger

    def find(
        self, report: PrivacyReport, ran: tuple[str, str] | None = None, digests: Sequence[str] = ()
    ) -> tuple[PrivacyReport, Booking | Unbooked]:
        """Return the report, as far as the ledger confirms it, and its booking or why there is none to show.

        With the ``digests`` of a model's parts the ledger has to know that these are what was released.
        """
        if self._ledger is None or not self.dataset_id:
            unknown = _NOT_TOLD if self._ledger is None else _NO_PLACE
            return report, _NOWHERE if self.dataset_id == "" else unknown
        try:
            place = self.dataset_id if digests else self._place_of(report)
            found = self._match(report, place, ran, digests)
        except LedgerCorruptError as error:
            told = str(error).removeprefix("The ledger is damaged: ")
            found = Unbooked(f"The ledger is damaged: {told}", denied=True)
        except SordinoError as error:
            found = Unbooked(f"The ledger could not be read ({type(error).__name__}).", denied=True)
        return found.confirm(report, self.book) if isinstance(found, Booking) else report, found

    def alike(self, schema: Schema | None, booking: Booking | Unbooked) -> str:
        """Return the warning about models with this schema on other data sets of the ledger; "" for none."""
        if schema is None or isinstance(booking, Unbooked):
            return ""
        place = booking.history.dataset_id
        names = ", ".join(repr(name) for name in self.book.alike(place, schema.digest[:12]))
        words = (
            f"the ledger has models with the same schema on other data sets, {names}: where they hold "
            f"the same {booking.history.policy.unit}s as {place!r}, budgets and bets of all of them add up"
        )
        return words * bool(names)

    def _match(
        self, report: PrivacyReport, place: str, ran: tuple[str, str] | None, digests: Sequence[str]
    ) -> Booking | Unbooked:
        """Return the reservations on a data set that a report is of, and which of its digests are known."""
        book = self.book
        if place not in self._known:
            receipt = next(iter(book.verify(place).receipts), "")
            self._known[place] = receipt, History.read(book, place), book.models(place), book.files(place)
        receipt, history, models, files = self._known[place]
        history = replace(history, ran=ran or ("", "9"))
        own, said = ((one.relation.value, one.unit) for one in (history.policy, report))
        if own != said:
            its, files = (f"one {unit} ({relation})" for relation, unit in (own, said))
            words = f"The ledger has a budget that protects {its}, the file says {files}."
            return Unbooked(words, denied=True)
        numbers = booked_for(report.event, history.of_the_run())
        if not numbers:
            when = "" if ran is None else " from the time when it ran"
            words = f"The ledger has no reservation of {place!r} for just these releases{when}."
            return Unbooked(words, denied=True)
        events = {entry.event_json for n in numbers if (entry := history.steps[n].entry)}
        equal = [entry.sequence for entry in history.of_the_run() if entry.event_json in events]
        # Lines of older versions have the first digest of two, that of the numbers.
        known = {digest[:64]: run for digest, run in reversed(models.items())} | models
        parts = [known.get(digest, known.get(digest[:64], ())) for digest in digests]
        run = sorted({*chain(*parts)}) if all(parts) else []
        if run := run if len(run) == len(numbers) and {*run} <= {*equal} else []:
            equal = numbers = run
        is_other = {*equal} <= {*chain(*models.values())}
        told, file = files.get(report.file, ()), None
        if not digests and told and {*told} <= {*equal}:
            equal = numbers = [*told]
        if report.copied and report.file:
            others = {number for run in files.values() for number in run}
            file = "known" if [*told] == equal else "another" if {*equal} <= others else "unknown"
        steps = tuple((history.steps[number - 1], history.steps[number]) for number in equal)
        among = len(numbers) if len(equal) > len(numbers) else 0
        model = None if not digests else "known" if run else "another" if is_other else "unknown"
        old = not run or models.keys() >= {digest[:64] for digest in digests}
        of_it = None if old else "known" if models.keys() >= {*digests} else "another"
        return Booking(history, steps, among, self._name(place), model, of_it, file, files, receipt)

    def _place_of(self, report: PrivacyReport) -> str:
        """Return where the ledger knows the file of a score: it may be on another data set than the model."""
        own = str(self.dataset_id)
        for place in (own, *self.book.datasets()) if report.file else ():
            with suppress(RoleError):
                if report.file in self.book.files(place):
                    return place
        return own

    def _name(self, place: str) -> str:
        """Return what the page calls the ledger, with the data set where that is another one."""
        label = self.book.label.rpartition("/")[2] if self._named else ""
        return label if not label or place == self.dataset_id else f"{label}, data set {place}"


# ----------------------------------- The page about budgets: what is spent, when, by whom, and what is left

SHOWN = 40
"""So many data sets have a section of their own, and so many reservations a line."""


def write_ledger_report(
    ledger: Ledger, path: str | Path, *, dataset_id: str | None = None, title: str | None = None
) -> Path:
    """Write one self-contained HTML page about the budgets of a ledger; return its path.

    Parameters
    ----------
    ledger : the open ledger.
    path : where to write.
    dataset_id : only this data set; None takes all.
    title : of the page.

    Only the owner of the page may read it, as with the ledger: it names people and what they asked.

    **Privacy.** A ledger holds public numbers only.
    """
    path = Path(path)
    save(ledger_html(ledger, dataset_id=dataset_id, title=title), path)
    return path


def ledger_html(ledger: Ledger, *, dataset_id: str | None = None, title: str | None = None) -> str:
    """Return the page of :func:`write_ledger_report` as text."""
    names = ledger.datasets() if dataset_id is None else [dataset_id]
    accounts = [History.read(ledger, name) for name in names]
    # For each person the part of each budget; who has most comes first.
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for account in accounts:
        for step in account.steps[1:]:
            found[step.person or "not written down"][account.dataset_id] += step.part
    return render_page(
        "ledger.html",
        title=title or "Privacy budgets",
        accounts=accounts,
        shown=SHOWN,
        people=sorted(found.items(), key=lambda item: -sum(item[1].values())),
        when=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=sordino.__version__,
    )
