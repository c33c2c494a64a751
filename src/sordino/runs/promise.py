"""A guarantee that was certified, and the one run it pays for."""

from __future__ import annotations

import hashlib
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, Self

from dp_accounting import dp_event as dp

from sordino.accounting import Certificate, calibrate, canonical, certify
from sordino.accounting.calibration import solve_scale
from sordino.accounting.conversions import check_delta, check_epsilon, default_delta
from sordino.accounting.trade_off import Risk, calibrate_to_risk, trade_off
from sordino.accounting.trees import flatten, gaussian_mu
from sordino.errors import (
    CalibrationError,
    InvalidInputError,
    LedgerError,
    LedgerWarning,
    NotPrivateWarning,
    PlanError,
    PlanSpentError,
    PrivacyWarning,
    UnsupportedError,
    levels_to_the_caller,
)
from sordino.kernel import Curator, Executor, NoisyExecutor, PaperNoise, Plan, Relation, check_offer
from sordino.kernel.events import compose_events
from sordino.kernel.noise import NoiseSource, fresh_noise
from sordino.ledger import FilterMode, Ledger, Reservation
from sordino.ledger.ledger import Ending
from sordino.runs.report import Booked, PaperClaim, Price, PrivacyReport, Status
from sordino.values import at_least, check_number


@dataclass(frozen=True)
class Ask:
    """The guarantee that is wanted, and where it is booked.

    Parameters
    ----------
    epsilon, delta : the budget of the whole run; epsilon ``inf`` asks for no privacy.
    ledger : a :class:`sordino.Ledger`, its address, or None.
    dataset_id : the name of the records on that ledger.
    learned : what was paid before for a schema that the run reads; it comes on top.
    risk : what noise is calibrated to in place of epsilon, which is then a rough number for rules until the
        plan is known, and what that certifies from there on.
    """

    epsilon: float
    delta: float
    ledger: Any = field(default=None, repr=False)
    dataset_id: str | None = None
    learned: tuple[Price, ...] = ()
    risk: Risk | None = None

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
        """Validate what the user asked for; ``delta=None`` means ``min(1e-5, 1 / (10 n))``.

        Where the ledger adds up deltas (its first booking was a learned schema) it is at most a quarter of
        what is left of them: the runs that follow need some too.
        """
        known = None if delta is None else check_delta(check_number("delta", delta))
        delta = default_delta(population) if known is None else known
        risk = epsilon if isinstance(epsilon, Risk) else None
        epsilon = check_number("epsilon", epsilon) if risk is None else risk.epsilon(delta)
        epsilon = check_epsilon(epsilon)
        if delta >= 1 / population and math.isfinite(epsilon):
            warnings.warn(
                f"delta = {delta:g} is at least 1/n: a mechanism that publishes whole records with this "
                "probability would satisfy it. Use delta=None for min(1e-5, 1/(10 n)).",
                PrivacyWarning,
                stacklevel=levels_to_the_caller(),
            )
        if (ledger is None) != (dataset_id is None):
            raise InvalidInputError("Expected ledger and dataset_id together, got only one of them.")
        ask = cls(epsilon, delta, ledger, dataset_id, learned, risk)
        book = ask.open_ledger() if known is None else None
        if book is not None and book.spent(str(dataset_id)).mode is FilterMode.BASIC:
            quarter = float(at_least(book.remaining(str(dataset_id)).delta / 4, 6))
            ask = replace(ask, delta=min(delta, quarter) if quarter > 0 else delta)
        return replace(ask, learned=ask.find_paid(learned)) if learned else ask

    def calibrated(self, plan: Plan) -> Plan:
        """Return a plan with the noise that this budget gives it, for those who decide whether to ask at all.

        **Privacy.** A function of public numbers; nothing is promised and nothing is released.
        """
        if self.risk is None:
            return calibrate(plan, self.epsilon, self.delta)
        return calibrate_to_risk(plan, self.risk, self.delta, self._before())

    def left_after(self, spent: Plan, plan: Plan) -> float:
        """Return the epsilon of a plan that is within this budget together with one that is calibrated.

        **Privacy.** A function of public numbers; the promise of that plan, and the report of both, certify.
        """
        if math.isinf(self.epsilon):
            return math.inf
        before = spent.event()

        def event(scale: float) -> dp.DpEvent:
            return compose_events([before, plan.at(scale).event()])

        scale = solve_scale(event, self.epsilon, self.delta, plan.relation)
        return certify(plan.at(scale).event(), self.delta, plan.relation).epsilon

    def booked(self, plans: Sequence[Plan], description: str) -> AbstractContextManager[Any]:
        """Book calibrated plans as one, within this budget; the block runs them, with no ledger of their own.

        What the block has released is spent: it ends settled, or failed on an error.
        """
        event, first = compose_events([plan.event() for plan in plans]), plans[0]
        certificate = certify(event, self.delta, first.relation)
        if certificate.epsilon > self.epsilon:
            raise CalibrationError(
                f"The runs of this fit certify epsilon = {certificate.epsilon:.6g} together, more than the "
                f"{self.epsilon:g} that was asked for. Nothing was booked. Please report this as a defect."
            )
        if (around := enclosing()) is not None:
            around.refuse_booking(self.ledger)
        return self.reserve(event, certificate, first.unit, description) or nullcontext()

    def _before(self) -> tuple[float, float]:
        """Return epsilon and delta of what was paid before, in all."""
        return sum(price.epsilon for price in self.learned), sum(price.delta for price in self.learned)

    def require_number(self, what: str) -> Ask:
        """Refuse a risk where only an epsilon is known what to do with."""
        if self.risk is not None:
            raise UnsupportedError(f"{what} takes epsilon as a number, not a Risk. Pass {self.epsilon:.3g}.")
        return self

    def keeps(self, plan: Plan) -> bool:
        """Tell whether a calibrated plan keeps the risk, if one was asked for."""
        if self.risk is None:
            return True
        curve, before = trade_off(plan.event(), self.delta, plan.relation), self._before()
        return self.risk.of(curve.after(*before) if any(before) else curve) <= self.risk.bound

    def find_paid(self, prices: tuple[Price, ...]) -> tuple[Price, ...]:
        """Return prices; one that was read from a text is certified where the ledger has its receipt.

        The reservation has to be of the same records, for no more than the text says, and to state that its
        run was private; what the text says was learned has to be what was (:meth:`attest`). What a file says
        of itself proves nothing, the ledger's own lines do.
        """
        book = self.open_ledger()
        if all(p.certified or not p.receipt for p in prices) or book is None or self.dataset_id is None:
            return prices
        known, policy = book.history(self.dataset_id), book.policy(self.dataset_id)
        files = {digest[:64]: run for digest, run in book.files(self.dataset_id).items()}

        def booked(price: Price) -> bool:
            words = "", price.receipt, Status.PRIVATE
            same = bool(price.receipt) and (policy.relation, policy.unit) == (price.relation, price.unit)
            return same and any(
                replace(Booked.read(e.description), name="") == Booked(*words)
                and e.epsilon <= price.epsilon
                and e.delta <= price.delta
                and (not price.content or e.sequence in files.get(price.content, ()))
                for e in known
            )

        return tuple(replace(price, certified=True) if booked(price) else price for price in prices)

    def attest(self, report: PrivacyReport, digests: Sequence[str], file: str = "", schema: str = "") -> None:
        """Write digests of what this process released into the ledger of its run (:meth:`Ledger.attest`).

        What cannot be written is a warning: then the ledger does not know it.
        """
        try:
            book = self.open_ledger()
            if book is not None and self.dataset_id is not None and not report.copied:
                book.attest(self.dataset_id, report.event, digests, file, schema)
        except LedgerError as error:
            what = "model" if digests else "score or schema"
            words = f"The ledger could not be told which {what} was released. {error}"
            warnings.warn(words, LedgerWarning, stacklevel=levels_to_the_caller())

    def open_ledger(self) -> Ledger | None:
        """Return the ledger, opened by its address if need be; none is made, for a new one has no budget."""
        if self.ledger is None or not isinstance(self.ledger, (str, os.PathLike)):
            return self.ledger
        return Ledger.open(self.ledger, create=False)

    def reserve(
        self, event: dp.DpEvent, certificate: Certificate, unit: str, description: str, digest: str = ""
    ) -> Reservation | None:
        """Book an event on the ledger, if there is one; it is on disk when this returns."""
        ledger = self.open_ledger()
        if ledger is None or self.dataset_id is None:
            return None
        return ledger.reserve(
            self.dataset_id,
            event,
            relation=certificate.relation,
            unit=unit,
            certificate=(certificate.epsilon, certificate.delta),
            description=description,
            plan_digest=digest,
        )


# ------- A budget around other runs: what is fitted inside a trial of a private search belongs to the trial

_around: ContextVar[Enclosure | None] = ContextVar("enclosure", default=None)


def enclosing() -> Enclosure | None:
    """Return the budget of the trial that this code runs in; None outside of a trial."""
    return _around.get()


class Enclosure:
    """Admits promises as long as together they are a Gaussian release of distance ``mu`` at most.

    Parameters
    ----------
    mu : the distance of two neighbours in standard deviations that all runs inside may reach together.
    relation, unit : the neighbours.

    **Privacy.** Gaussian releases on all records compose exactly, ``mu^2 = sum mu_i^2``. Other releases are
    refused before they are asked, and so is a booking on a ledger: a row per trial would tell their number.
    """

    def __init__(self, mu: float, relation: Relation, unit: str = "record") -> None:
        self.mu, self.relation, self.unit = mu, relation, unit
        self._spent = 0.0

    @property
    def spent(self) -> float:
        """The distance that was admitted so far."""
        return math.sqrt(self._spent)

    def admit(self, plan: Plan, ledger: Any, printed: bool) -> None:
        """Count a plan before its first release; refuse it if the budget does not cover it."""
        if printed:
            raise UnsupportedError("A private search cannot run published noise. Set noise='sound'.")
        self.refuse_booking(ledger)
        if plan.relation is not self.relation or plan.unit != self.unit:
            raise UnsupportedError(
                f"Expected a trial for {self.relation.value} one {self.unit}, got {plan.relation.value} one "
                f"{plan.unit}."
            )
        total = self._spent + distance(plan.event(), self.relation) ** 2
        if not math.sqrt(total) <= self.mu:
            raise PlanError(
                f"The runs inside this trial reach a distance of {math.sqrt(total):.4g}, planned are "
                f"{self.mu:.4g}. Nothing more was released."
            )
        self._spent = total

    def refuse_booking(self, ledger: Any) -> None:
        """Refuse a ledger: a row for each trial would tell their number."""
        if ledger is not None:
            raise UnsupportedError("A trial of a private search is not booked by itself. Set ledger=None.")

    def covers(self, event: dp.DpEvent) -> bool:
        """Tell whether an event is within what was admitted so far."""
        return 0 < distance(event, self.relation) <= self.spent * (1 + 1e-9)

    @contextmanager
    def entered(self) -> Iterator[Enclosure]:
        """Make every promise of this thread a part of the budget."""
        if _around.get() is not None:
            raise UnsupportedError("A private search inside a trial of another one has no proof here.")
        token = _around.set(self)
        try:
            yield self
        finally:
            _around.reset(token)


class Rehearsed(BaseException):
    """Ends a rehearsal where the first release would begin."""


class Rehearsal(Enclosure):
    """Judges the first promise made inside as a trial would, and stops it before it is booked or run."""

    def admit(self, plan: Plan, ledger: Any, printed: bool) -> None:
        """Refuse what a trial refuses; what it would admit ends here, with nothing released."""
        super().admit(plan, ledger, printed)
        raise Rehearsed


def distance(event: dp.DpEvent, relation: Relation) -> float:
    """Return mu of an event that is Gaussian releases on all records; refuse any other."""
    leaves = flatten(event)
    if not all(isinstance(leaf.event, dp.GaussianDpEvent) for leaf in leaves):
        kinds = sorted({type(leaf.event).__name__ for leaf in leaves} - {"GaussianDpEvent"})
        raise UnsupportedError(
            "PrivateSearchCV needs an estimator whose releases are all Gaussian on all records, got "
            f"{kinds}. Use solver='auto' or solver='ight'."
        )
    return math.sqrt(sum(gaussian_mu(leaf, relation) ** 2 for leaf in leaves))


# --------- Notice when a call of somebody else fits a private estimator again and again on the same records

_SEARCH, _FOLDS = "sklearn.model_selection._search", "sklearn.model_selection._validation"
# They hand each record to each of their steps once, and keep all of them: `pipeline_privacy` adds them up.
_CONTAINERS = ("Pipeline", "FeatureUnion", "ColumnTransformer")
_COUNT = "__fits_of_private_estimators"
_SUM = (
    "the epsilon of the whole is the sum over folds and candidates. Use sordino.PrivateSearchCV for a search "
    "with one epsilon."
)
_ADD_UP = (
    "the epsilon of the whole is the sum over all of them, also those that it does not keep. A ledger "
    "counts them."
)


def search_notes() -> tuple[str, ...]:
    """Return what the report must say about the calls around a promise that is being made, and warn.

    Many estimators fit what they wrap several times; what is seen of all fits costs their sum. They are found
    by counting: the second promise of one kind inside of one call of ``fit`` of another estimator.

    **Privacy.** Inside a trial of a private search nothing is said, for the number of trials is secret.
    """
    if enclosing() is not None:
        return ()
    frames, around = [], sys._getframe(1).f_back
    while around is not None:
        frames.append(around)
        around = around.f_back
    for frame in frames:
        module = frame.f_globals.get("__name__", "")
        if module == _FOLDS:  # known even where each fold has a process of its own
            _warn("one of several fits of a scikit-learn search or cross-validation", _SUM)
            return ("one of several fits on the same records: their epsilons add up",)
        if module == _SEARCH and frame.f_code.co_name == "fit":
            results = getattr(frame.f_locals.get("self"), "cv_results_", None) or frame.f_locals.get(
                "results"
            )
            folds = sum(re.fullmatch(r"split\d+_test_score", key) is not None for key in results or {})
            fits = len((results or {}).get("params", ())) * folds
            _warn("the refit of a scikit-learn search", _SUM)
            return (
                f"chosen by a search that is not private by itself: {fits} other fits on the same records; "
                f"the epsilon of the whole is the sum over folds and candidates, {fits + 1} fits. Use "
                "PrivateSearchCV.",
            )
    wrapper = _refitting(frames)
    if wrapper is None:
        return ()
    _warn(f"one of several that the wrapper {wrapper} makes", _ADD_UP)
    return (f"one of several fits that {wrapper} makes on the same records: their epsilons add up",)


def _refitting(frames: list[FrameType]) -> str | None:
    """Count this promise in the outermost foreign ``fit``, in its frame; return its name from the second."""
    fits = [(f, f.f_locals.get("self")) for f in frames if "fit" in f.f_code.co_name]
    known = [(f, m) for f, m in fits if hasattr(m, "get_params") and not isinstance(m, type)]
    known = [(f, m) for f, m in known if type(m).__name__ not in _CONTAINERS]
    own = next((model for _, model in known if type(model).__module__.startswith("sordino.")), None)
    others = [(f, m) for f, m in known if not type(m).__module__.startswith("sordino.")]
    if own is None or not others:
        return None
    frame, outer = others[-1]
    counts = frame.f_locals.setdefault(_COUNT, {})
    counts[type(own)] = counts.get(type(own), 0) + 1
    return type(outer).__name__ if counts[type(own)] > 1 else None


def _warn(what: str, remedy: str) -> None:
    warnings.warn(f"This fit is {what}: {remedy}", PrivacyWarning, stacklevel=levels_to_the_caller())


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
        if not self.ask.keeps(self.plan):
            raise CalibrationError(f"The plan does not keep {self.ask.risk}. Nothing was released.")
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
        if paper is not None or slack:
            ask.require_number("This run")
        if paper is None:
            ready = replace(ask, delta=ask.delta - slack).calibrated(plan)
            if ask.risk is not None:
                ask = replace(ask, epsilon=certify(ready.event(), ask.delta, ready.relation).epsilon)
            return cls.given(ask, ready, slack=slack)
        # An epoch of length zero asks no correction: a formula may name more releases than the plan has.
        named = {name: m for name, m in paper.multipliers.items() if name in plan.releases}
        plan = at_multipliers(plan, named)
        certificate = certify(plan.event(), ask.delta, plan.relation)
        said = (
            f"noise='paper' runs the published formula ({paper.formula}): it claims epsilon = "
            f"{ask.epsilon:g}, what it certifies is epsilon = {certificate.epsilon:.4g}."
        )
        warnings.warn(NotPrivateWarning(said, certificate.epsilon), stacklevel=levels_to_the_caller())
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
        if self.ask.ledger is None:
            return Run(self, None)
        event, digest = self.plan.event(), self.digest if digest is None else digest
        description = str(replace(Booked.read(description), seeded=not self.noise.is_private))
        return Run(self, self.ask.reserve(event, self.certificate, self.plan.unit, description, digest))

    @contextmanager
    def run(self, executor: Executor | NoisyExecutor, description: str) -> Iterator[Curator]:
        """Check the executor against the plan, reserve, open the curator, settle at the end of the block."""
        check_offer(self.plan, executor.offer)
        with self.reserved(description) as run:
            yield run.curate(executor)

    def report(self, public: Iterable[str] = (), notes: Iterable[str] = ()) -> PrivacyReport:
        """Return the guarantee and everything it rests on."""
        notes = (*notes, *([] if self.ask.risk is None else [f"noise calibrated to {self.ask.risk}"]))
        return PrivacyReport.from_plan(
            self.plan,
            self.certificate,
            self.noise,
            public=public,
            notes=(*notes, *self.notes),
            learned=self.ask.learned,
            paper_claim=None if self.paper is None else PaperClaim(self.ask.epsilon, self.paper.formula),
        )


class Run(Ending):
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

    def give_back(self, *, only_shares: bool = False) -> None:
        """End a run whose curator was never opened, and take its booking off the ledger again.

        **Privacy.** The curator is the only way from a promise to a record, it opens once and in the process
        that booked, and after this it never opens: nothing that this run did or will do depends on a record.
        With ``only_shares`` the parties' executor says that all that left this machine are shares of answers
        that were never opened, of which nobody who holds at most ``threshold`` learns anything.
        """
        if self._ended or (self._curator is not None and not only_shares) or self.resumable:
            raise PlanSpentError("This run was opened or has ended: what was reserved stays spent.")
        self._end()
        if self._reservation is not None:
            self._reservation.give_back(self.turn)

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
