"""A guarantee that was certified, and the one run it pays for."""

from __future__ import annotations

import hashlib
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from sordino.accounting import Certificate, calibrate, canonical, certify
from sordino.errors import CalibrationError, NotPrivateWarning, PlanError, PlanSpentError
from sordino.kernel import Curator, Executor, NoisyExecutor, PaperNoise, Plan, check_offer
from sordino.kernel.noise import NoiseSource, fresh_noise
from sordino.ledger import Reservation
from sordino.runs.ask import Ask
from sordino.runs.enclosure import enclosing
from sordino.runs.outer_search import search_notes
from sordino.runs.report import PaperClaim, PrivacyReport


@dataclass(frozen=True, eq=False)
class Promise:
    """A calibrated plan with a certificate that was computed in this process, for one run.

    Parameters
    ----------
    ask : what was wanted; the certificate never exceeds it, unless published noise was asked for by name.
    plan : the plan with its noise multipliers.
    certificate : what the accountants prove for the plan's event.
    paper : the published noise the plan runs with, if it does.
    noise : where the noise of the run comes from.
    notes : what calls around the run add to its report.

    **Privacy.** Nothing but this class and its :class:`Run` opens a curator. A promise belongs to the process
    that made it and can be run once.
    """

    ask: Ask
    plan: Plan
    certificate: Certificate
    paper: PaperNoise | None = None
    noise: NoiseSource = field(default_factory=fresh_noise, repr=False)
    process: int = field(default_factory=os.getpid, repr=False)
    notes: tuple[str, ...] = field(default_factory=search_notes, repr=False)

    def __post_init__(self) -> None:
        """Refuse a plan that exceeds the ask or its certificate, however the promise was put together."""
        proven = certify(self.plan.event(), self.ask.delta, self.plan.relation).epsilon
        most = self.ask.epsilon if self.paper is None else self.certificate.epsilon
        if not proven <= min(most, self.certificate.epsilon):
            raise CalibrationError(
                f"The plan certifies epsilon = {proven:.4g} at delta = {self.ask.delta:g}, more than the "
                f"{most:g} that was asked for or stated. Nothing was released; use more noise."
            )

    @classmethod
    def made(cls, ask: Ask, plan: Plan, paper: PaperNoise | None = None, *, slack: float = 0.0) -> Promise:
        """Calibrate a plan to what was asked, or give it published noise, and certify it now.

        ``slack`` is the part of delta that pays for something else than the plan's events.
        """
        if paper is None:
            return cls.given(ask, calibrate(plan, ask.epsilon, ask.delta - slack), slack=slack)
        # An epoch of length zero asks no correction: a formula may name more releases than the plan has.
        named = {name: m for name, m in paper.multipliers.items() if name in plan.releases}
        plan = at_multipliers(plan, named)
        certificate = certify(plan.event(), ask.delta, plan.relation)
        said = (
            f"noise='paper' runs the published formula ({paper.formula}): it claims epsilon = "
            f"{ask.epsilon:g}, what it certifies is epsilon = {certificate.epsilon:.4g}."
        )
        warnings.warn(
            NotPrivateWarning(said, certificate.epsilon),
            stacklevel=5,  # made, run_privately, _fit, fit: the line that calls fit
        )
        return cls(ask, plan, certificate, paper)

    @classmethod
    def given(cls, ask: Ask, plan: Plan, *, slack: float = 0.0) -> Promise:
        """Certify a plan that has its noise already, whoever chose it; refuse it if it exceeds the ask."""
        certificate = certify(plan.event(), ask.delta - slack, plan.relation)
        if not certificate.epsilon <= ask.epsilon:
            raise CalibrationError(
                f"The plan certifies epsilon = {certificate.epsilon:.4g} at delta = {ask.delta - slack:g}, "
                f"more than the {ask.epsilon:g} that was asked for. Nothing was released; use more noise."
            )
        return cls(ask, plan, replace(certificate, delta=ask.delta))

    @property
    def digest(self) -> str:
        """A hash of what will be released, for the ledger."""
        return digest_of(self.plan)

    @property
    def multipliers(self) -> dict[str, float]:
        """The noise multiplier of each release."""
        return {name: float(r.mechanism.multiplier or 0.0) for name, r in self.plan.releases.items()}

    def reserved(self, description: str, digest: str | None = None) -> Run:
        """Book the whole plan; it is on the ledger's disk when this returns, and never comes back."""
        _require_own(self)
        around = enclosing()
        if around is not None:
            around.admit(self.plan, self.ask.ledger, printed=self.paper is not None)
        ledger = self.ask.open_ledger()
        if ledger is None or self.ask.dataset_id is None:
            return Run(self, None)
        booked = ledger.reserve(
            self.ask.dataset_id,
            self.plan.event(),
            relation=self.plan.relation,
            unit=self.plan.unit,
            certificate=(self.certificate.epsilon, self.certificate.delta),
            description=description,
            plan_digest=self.digest if digest is None else digest,
        )
        return Run(self, booked)

    @contextmanager
    def run(self, executor: Executor | NoisyExecutor, description: str) -> Iterator[Curator]:
        """Check the executor against the plan, reserve, open the curator, settle at the end of the block."""
        check_offer(self.plan, executor.offer)
        with self.reserved(description) as run:
            yield run.curate(executor)

    def report(self, public: Iterable[str] = (), notes: Iterable[str] = ()) -> PrivacyReport:
        """Return the guarantee and everything it rests on."""
        return PrivacyReport.from_plan(
            self.plan,
            self.certificate,
            self.noise,
            public=public,
            notes=(*notes, *self.notes),
            learned=self.ask.learned,
            paper_claim=None if self.paper is None else PaperClaim(self.ask.epsilon, self.paper.formula),
        )


class Run:
    """A promise that is paid for; in a ``with`` block it ends settled, or failed on an error.

    Spent it is in any case. With ``resumable`` an error leaves it reserved: another process may go on.
    """

    def __init__(
        self, promise: Promise, reservation: Reservation | None, resumable: bool = False, turn: int = 0
    ) -> None:
        self.promise, self.resumable, self.turn = promise, resumable, turn
        self._reservation, self._ended = reservation, False
        self._curator: Curator | None = None

    @property
    def place(self) -> tuple[str, int] | None:
        """The data set and the sequence number of the booking on the ledger."""
        booked = self._reservation
        return None if booked is None else (booked.dataset_id, booked.sequence)

    def curate(
        self,
        executor: Executor | NoisyExecutor,
        journal: Callable[[str, int], None] | None = None,
        used: Mapping[str, int] | None = None,
    ) -> Curator:
        """Open the curator of this run, once; ``used`` releases of earlier processes stay spent."""
        _require_own(self.promise)
        if self._ended or self._curator is not None:
            raise PlanSpentError("This run was opened before. Make a new promise, with a budget of its own.")
        paper = self.promise.paper
        self._curator = Curator(
            executor,
            self.promise.plan,
            self.promise.noise,
            used=used,
            journal=journal,
            printed=() if paper is None else paper.printed,
        )
        return self._curator

    def settle(self) -> None:
        """End the run: everything that was to be released is released."""
        if not self._end() and self._reservation is not None:
            self._reservation.settle()

    def pause(self) -> None:
        """Close the curator and leave the booking as it is: the run goes on in another process."""
        self._end()

    def fail(self, reason: str) -> None:
        """End the run before its end; the reason must not contain anything from the data."""
        if not self._end() and self._reservation is not None and not self.resumable:
            self._reservation.fail(reason)

    def give_back(self) -> None:
        """End a run whose curator was never opened, and take its booking off the ledger again.

        **Privacy.** The curator is the only way from a promise to a record, it opens once and in the process
        that booked, and after this it never opens: nothing that this run did or will do depends on a record.
        """
        if self._ended or self._curator is not None or self.resumable:
            raise PlanSpentError("This run was opened or has ended: what was reserved stays spent.")
        self._end()
        if self._reservation is not None:
            self._reservation.give_back()

    def _end(self) -> bool:
        """Close the curator; tell whether the run had ended before."""
        before, self._ended = self._ended, True
        if self._curator is not None:
            self._curator.close()
        return before

    def __enter__(self) -> Self:
        if self._ended:
            raise PlanSpentError("This run has ended. Make a new promise, with a budget of its own.")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.settle()
        else:
            self.fail(kind.__name__)  # the message of an error may quote the data, its class not


def _require_own(promise: Promise) -> None:
    """Refuse a copy made by fork: it would spend a second time what was paid for once."""
    if os.getpid() != promise.process:
        raise PlanSpentError("This promise was made in another process. Make it where it is run.")


def digest_of(plan: Plan) -> str:
    """Return a hash of what a calibrated plan will release."""
    return hashlib.sha256(canonical(plan.event()).encode()).hexdigest()


def at_multipliers(plan: Plan, multipliers: Mapping[str, float]) -> Plan:
    """Return the plan with the noise of each release set to a number that comes from elsewhere."""
    if set(multipliers) != set(plan.releases):
        raise PlanError(
            f"Expected a noise multiplier for each of the releases {sorted(plan.releases)}, "
            f"got {sorted(multipliers)}."
        )
    if not all(math.isfinite(m) and m >= 0 for m in multipliers.values()):
        raise PlanError("Expected finite noise multipliers >= 0.")
    releases = {
        name: replace(r, mechanism=r.mechanism.at(multipliers[name])) for name, r in plan.releases.items()
    }
    return replace(plan, releases=releases)
