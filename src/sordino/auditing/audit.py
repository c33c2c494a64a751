"""The audit of a fit: attacks in order of their price, and what they found beside the claim."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from html import escape
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from sordino.accounting import certify
from sordino.accounting.trade_off import TradeOff, trade_off
from sordino.auditing.attacks import (
    FIRST,
    ROUND,
    Bets,
    Rates,
    Scale,
    guesses,
    lower_bound,
    pairs_of,
    plain_bound,
    transcripts,
)
from sordino.auditing.facts import numbers_of
from sordino.auditing.neighbours import Records, ends_of, made_up
from sordino.auditing.replay import ROUNDING, Leak, Neighbour, Verdict, compared, share
from sordino.auditing.tape import Absent, Recording, play
from sordino.errors import AuditError, UnsupportedError
from sordino.estimators.pipeline import pipeline_privacy
from sordino.kernel.events import Relation, composed
from sordino.kernel.noise import fresh_noise
from sordino.runs import PrivacyReport
from sordino.runs.promise import at_multipliers, distance
from sordino.values import at_most

NOT_PRIVATE = (
    "This audit read the records without noise: its result is NOT private. It is for whoever holds them."
)
MADE_UP = "Attacked on made-up records: nothing here depends on yours, so it may be shown to anybody."
ALARM = 1e-5
"""The chance that one attack which draws calls a claim refuted that holds; lower bounds have their own."""

_SLACK = 1 + 1e-6  # the rounding of a certificate that is computed a second time


@dataclass(frozen=True)
class Attack:
    """One attack on a claim.

    Parameters
    ----------
    name : replay, noise, white box, sequential or black box.
    words : what it found, in a sentence.
    refuted : whether the claim does not hold.
    epsilon : what it proves with the confidence of the audit, for plans of this shape; None for no number.
    plain : what it proves whatever the shape of the trade-off.
    power : the chance that it would have refuted the claim, had the noise been half of it.
    runs : transcripts, or fits, on each neighbour.
    seconds : how long it took.
    """

    name: str
    words: str
    refuted: bool
    epsilon: float | None = None
    plain: float | None = None
    power: float | None = None
    runs: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Audit:
    """What attacks on a fit found, beside what it claims; see :func:`audit`.

    Parameters
    ----------
    subject : the name of what was fitted.
    epsilon, delta, relation, unit : the claim.
    advantage : by the plan's exact trade-off, how much better than a coin the best guess is.
    leaks : what told two neighbours apart, by kind.
    nearest : how near its sensitivity each release came on the worst neighbour.
    attacks : in the order in which they were made.
    confidence : of the lower bounds.
    made_up : whether the records were made up; an audit of real ones is not private.
    """

    subject: str
    epsilon: float
    delta: float
    relation: str
    unit: str
    advantage: float
    leaks: tuple[Leak, ...]
    nearest: dict[str, float]
    attacks: tuple[Attack, ...]
    confidence: float
    made_up: bool

    @property
    def refuted(self) -> bool:
        """Whether an attack showed that the claim does not hold."""
        return any(attack.refuted for attack in self.attacks)

    @property
    def lower(self) -> float:
        """The largest epsilon that an attack demonstrated."""
        return max((attack.epsilon or 0.0 for attack in self.attacks), default=0.0)

    @property
    def warning(self) -> str:
        """Who may see this."""
        return MADE_UP if self.made_up else NOT_PRIVATE

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can hold."""
        return {
            **asdict(self),
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else str(self.epsilon),
            "refuted": self.refuted,
            "lower": self.lower,
            "warning": self.warning,
        }

    def to_json(self) -> str:
        """Return the audit as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    def __repr__(self) -> str:
        head = (
            f"Audit of {self.subject}: {'REFUTED' if self.refuted else 'not refuted'}; claimed epsilon = "
            f"{at_most(self.epsilon)}, delta = {at_most(self.delta, 3)}, {self.relation} one {self.unit}; "
            f"demonstrated epsilon >= {self.lower:.3g} at {100 * self.confidence:g} % confidence"
        )
        lines = [f"  {a.name}: {a.words} ({a.seconds:.1f} s)" for a in self.attacks]
        return "\n".join([head, *lines, f"  {self.warning}"])

    def to_html(self) -> str:
        """Return a section for a page: a table of the attacks."""
        rows = "".join(
            f"<tr><td>{escape(a.name)}</td><td>{escape(a.words)}</td>"
            f"<td>{'' if a.epsilon is None else f'{a.epsilon:.3g}'}</td>"
            f"<td>{'' if a.power is None else f'{a.power:.2f}'}</td></tr>"
            for a in self.attacks
        )
        word = "The claim was refuted." if self.refuted else "No attack refuted the claim."
        return (
            f"<h2>How this was attacked</h2><p><strong>{word}</strong> Claimed: epsilon "
            f"{at_most(self.epsilon)}; by the plan's own trade-off no guess wins more than "
            f"{50 * (1 + self.advantage):.1f} % at even odds. {self.warning}</p>"
            "<div class='scroll'><table><thead><tr><th>attack</th><th>found</th>"
            "<th>demonstrated epsilon</th><th>power at half the noise</th></tr></thead><tbody>"
            f"{rows}</tbody></table></div>"
        )

    _repr_html_ = to_html


def audit(
    fit: Any,
    data: Any = None,
    *,
    groups: Any = None,
    claim: PrivacyReport | None = None,
    seconds: float = 20.0,
    draws: int = 40_000,
    fits: int = 0,
    rows: int | None = 500,
    confidence: float = 0.95,
    rounding: float | None = None,
) -> Audit:
    """Attack a fit, and say what the attacks prove beside what the fit claims.

    Parameters
    ----------
    fit : an estimator, pipeline or search, or a function of the data that returns all that it releases.
    data : rows, or a tuple of rows and targets; None makes records up for an estimator, and its result may
        be shown to anybody.
    groups : who owns each record, where a person is protected.
    claim : the report that is attacked; None takes the one that the fit returns.
    seconds : for the search of the worst neighbour, and again for each attack that draws.
    draws : transcripts of the likelihood ratio attack on each neighbour, at most; 0 only replays.
    fits : whole fits on each neighbour for the attack on outputs; 0 leaves it out.
    rows : so many records are used: a guarantee holds for every data set, so also for a part of one.
    confidence : of the lower bounds.
    rounding : how far exact answers may be off in their precision, in sensitivities; None goes by it.

    **Privacy.** An audit reads exact answers. With real data its result is not private: it is for the eyes of
    whoever holds the records. It names releases, counts and bounds and no value of a record, books nothing,
    and its fits are thrown away.

    Examples
    --------
    >>> import sordino
    >>> found = sordino.audit(sordino.LinearRegression(epsilon=1.0, solver="gd"), seconds=1, draws=500)
    >>> found.refuted
    False
    """
    records = made_up(fit) if data is None else Records.of(data, groups, rows)
    return _Auditor(fit, records, claim, seconds, confidence, rounding, data is None).run(draws, fits)


@dataclass(eq=False)
class _Auditor:
    """One audit: its subject, its records and its clock; then the worst neighbours that were found."""

    fit: Any
    records: Records
    claim: PrivacyReport | None
    seconds: float
    confidence: float
    rounding: float | None
    made_up: bool
    verdict: Verdict = field(default_factory=lambda: Verdict(Recording([], [], []), [], {}))
    worst: tuple[Recording, Recording, Recording | None] | None = None
    sides: tuple[Callable[[], Any], Neighbour] | None = None
    best: tuple[Any, ...] | None = None
    reach: float = -1.0

    def run(self, draws: int, fits: int) -> Audit:
        """Make all attacks."""
        attacks: list[Attack] = []
        for attack in (self._replay, self._noise, self._white_box, self._black_box):
            begin = time.monotonic()
            attacks += [replace(one, seconds=time.monotonic() - begin) for one in attack(draws, fits)]
        report = self.report
        return Audit(
            getattr(self.fit, "__name__", type(self.fit).__name__),
            report.epsilon,
            report.delta,
            report.relation.value,
            report.unit,
            report.trade_off.advantage,
            tuple(self.verdict.leaks),
            dict(self.verdict.nearest),
            tuple(attacks),
            self.confidence,
            self.made_up,
        )

    # ------------------------------------------------------------------------------ the run and its claim

    def runner(self, records: Records, **changed: Any) -> Callable[[], Any]:
        """Return a fit on some records: of a fresh copy of an estimator, or a call of a function."""
        owners = {} if records.groups is None else {"groups": records.groups}

        def fitted() -> Any:
            if not hasattr(self.fit, "fit"):
                return self.fit(*records.parts, **owners)
            if not isinstance(self.fit, BaseEstimator):
                return self.fit.fit(*records.parts, **owners)
            last = {name: name.rpartition("__")[2] for name in self.fit.get_params()}
            names = [name for name, short in last.items() if short in ("ledger", "dataset_id")]
            model = clone(self.fit).set_params(**changed, **dict.fromkeys(names))
            # Public choices, such as the first weights of a network, are the same on all neighbours.
            free = [
                n for n, short in last.items() if short == "random_state" and model.get_params()[n] is None
            ]
            model.set_params(**dict.fromkeys(free, 0))
            return model.fit(*records.parts, **owners)

        return fitted

    @property
    def report(self) -> PrivacyReport:
        """The claim."""
        if self.claim is not None:
            return self.claim
        found = next(_reports(self.verdict.recording.made), None)
        if found is None:
            error = (self.verdict.recording.error or "no report of a guarantee").partition(":")[0]
            raise AuditError(f"The fit returned {error}, so that there is nothing to attack. Pass claim=.")
        return found

    @property
    def paid(self) -> list[Any]:
        """The plans whose answers are released, as far as they were asked."""
        recording = self.verdict.recording
        return [plan for plan in recording.plans if plan not in recording.trials]

    @property
    def _is_composed(self) -> bool:
        return bool(self.paid) and not self.verdict.recording.trials

    def event(self, scale: float = 1.0) -> Any:
        """Return the event of everything that was asked, release by release, with its noise scaled."""
        parts = []
        for plan in self.paid:
            known = {name: (r.mechanism.multiplier or 0.0) * scale for name, r in plan.releases.items()}
            made = at_multipliers(plan, known).releases
            parts += [release.event(plan.relation, plan.population) for release in made.values()]
        return composed(parts)

    @property
    def distance(self) -> float:
        """How far all answers together may move, in standard deviations; known for Gaussian noise."""
        try:
            learned = bool(self.report.learned)  # paid for before, by events that are not in the report
            return math.inf if learned else distance(self.report.event, self.report.relation)
        except UnsupportedError:
            return math.inf

    # ------------------------------------------------------------------------------------------- attacks

    def _replay(self, draws: int, fits: int) -> Iterator[Attack]:
        """Record and replay on hostile neighbours, climb from the worst, and count what was asked."""
        end, unit = time.monotonic() + self.seconds, 0
        if isinstance(self.fit, BaseEstimator) and "epsilon" in self.fit.get_params(deep=False):
            play(self.runner(self.records, epsilon=10.0 * self.fit.get_params()["epsilon"]))  # fills caches
        self.verdict = Verdict(play(self.runner(self.records)), [], {})
        if self.verdict.recording.error is not None and not self.verdict.recording.questions:
            self.report  # noqa: B018 - says what is wrong
        tried = list(self.records.canaries(unit))
        for count, (name, canary) in enumerate(tried or [("as it is", ())]):
            if count < 2 or self.seconds > 0:
                self._tried(name, canary if tried else None, unit)
        number, best = 0, self.best
        while tried and time.monotonic() < end and number < 12 and best is not None:
            self._tried(f"climbing, step {number + 1}", self.records.turned(best, number), unit)
            number, best = number + 1, self.best
        self.verdict.leaks.extend(Leak(kind, "as it is", what) for kind, what in self._accounts())
        kinds = ", ".join(sorted({leak.kind for leak in self.verdict.leaks}))
        if kinds:
            yield Attack("replay", f"found {kinds}: {'; '.join(map(str, self.verdict.leaks[:3]))}", True)
            return
        near = max(self.verdict.nearest.values(), default=0.0)
        words = f"{len(self.verdict.recording.questions)} questions; neighbours differ in exact answers only"
        yield Attack("replay", f"{words}, by at most {near:.4g} of their sensitivities", False)

    def _tried(self, name: str, canary: tuple[Any, ...] | None, unit: int) -> None:
        """Put a canary in, replay on its neighbour, and keep the pair whose answers are furthest apart."""
        base = self.records if canary is None else self.records.changed(unit, canary)
        run, gone = self.runner(base), Absent(unit, base.owners)
        recorded = play(run, forced=unit)
        verdict = Verdict(recorded, self.verdict.leaks, self.verdict.nearest)
        relation = recorded.plans[0].relation if recorded.plans else Relation.ADD_REMOVE
        if canary is None or (relation is Relation.ADD_REMOVE and not recorded.trials):
            neighbour = Neighbour(f"{name}, left out", run, gone)
        else:
            first = -canary[0] if isinstance(canary[0], np.ndarray) else canary[0]
            ends = [(ends_of(part), entry) for part, entry in zip(base.parts[1:], canary[1:])]
            other = (first, *(low if entry == high else high for (low, high), entry in ends))
            changed = self.runner(self.records.changed(unit, other))
            neighbour = Neighbour(f"{name}, replaced", changed, None, 3 - relation.contributions)
        rounding = self._rounding_of(recorded)
        replayed = compared(verdict, neighbour, rounding, unit)
        reach = _reach(recorded, replayed) / neighbour.steps
        if reach > self.distance * (1 + rounding):
            what = f"all answers moved by {reach:.4g} standard deviations, the report has {self.distance:.4g}"
            self.verdict.leaks.append(Leak("distance", neighbour.name, what))
        if reach > self.reach and recorded.error is None:
            without = replayed if neighbour.absent else play(run, recorded, gone)
            self.worst, self.sides = (recorded, replayed, without), (run, neighbour)
            self.reach, self.best = reach, canary

    def _rounding_of(self, recorded: Recording) -> float:
        """Return the rounding of sums in the precision of the answers: single where one of them is."""
        if self.rounding is not None:
            return self.rounding
        values = [heard.value for heard in recorded.questions]
        parts = [part for v in values for part in (v if isinstance(v, list | tuple) else [v])]
        single = any(str(getattr(part, "dtype", "")).endswith("float32") for part in parts)
        return 4 * self.records.units * 2.0**-24 if single else ROUNDING

    def _accounts(self) -> Iterator[tuple[str, str]]:
        """Yield what the report leaves out: prices of plans that were run, their relation, their status."""
        report, recording = self.report, self.verdict.recording
        if recording.questions and self.claim is None and not report.seeded:
            yield "status", f"the report says {str(report.status)!r} of noise that was seeded"
        if any(plan.relation is not report.relation or plan.unit != report.unit for plan in self.paid):
            yield "relation", "the report protects others than the plans that were run"
        if not self._is_composed or (report.whole is None and report.learned):
            return
        epsilon, delta = report.whole or (report.epsilon, report.delta)
        proven = certify(self.event(), delta, report.relation).epsilon
        if not proven <= epsilon * _SLACK:
            yield "price", f"what was asked certifies epsilon = {proven:.4g}, the report says {epsilon:.4g}"

    def _noise(self, draws: int, fits: int) -> Iterator[Attack]:
        """Look at the residuals of real fits: their scale, and whether some come twice."""
        if not draws:
            return
        end = time.monotonic() + self.seconds / 4
        runs: list[Recording] = []
        while len(runs) < 8 and (time.monotonic() < end or len(runs) < 2):
            runs.append(play(self.runner(self.records), seed=None))
        found = Scale.of(runs)
        low = found.wealth > -math.log(ALARM)
        words = f"{found.count} residuals of {len(runs)} fits are not smaller than declared"
        if low:
            words = f"{found.count} residuals of {len(runs)} fits are smaller than declared, beyond chance"
        if found.reused:
            words += f"; the noise of {found.reused[0]} comes twice"
        yield Attack("noise", words, low or bool(found.reused), runs=len(runs))

    def _white_box(self, draws: int, fits: int) -> Iterator[Attack]:
        """Tell transcripts on the worst neighbours apart by their likelihood ratios, and bet as they come."""
        if not draws or self.worst is None or not self._is_composed:
            return
        pairs, noise, end = pairs_of(*self.worst), fresh_noise(), time.monotonic() + self.seconds
        if not pairs:
            yield Attack("white box", "no release has a likelihood that is known here", False)
            return
        claim = self.report.trade_off
        bets, wealth, stopped = Bets(claim), 0.0, None
        seen: tuple[list[float], list[float]] = ([], [])
        while len(seen[0]) < draws and (time.monotonic() < end or not seen[0]):
            count = min(max(FIRST, len(seen[0])), ROUND, draws - len(seen[0]))
            ours, theirs = transcripts(pairs, noise, count)
            seen[0].extend(ours)
            seen[1].extend(theirs)
            wealth = max(wealth, bets.see(ours, theirs))
            stopped = len(seen[0]) if stopped is None and wealth >= 1 / ALARM else stopped
        yield self._bounded("white box", np.array(seen[0]), np.array(seen[1]), len(pairs))
        words = f"refuted after {stopped} transcripts of each" if stopped else "bets on the claim won nothing"
        yield Attack("sequential", f"{words} (wealth {wealth:.3g})", stopped is not None, runs=len(seen[0]))

    def _bounded(
        self, name: str, ours: Any, theirs: Any, releases: int | None = None, place: float | None = None
    ) -> Attack:
        claim, report = self.report.trade_off, self.report

        def rated(error: float) -> Rates:
            return Rates.of(ours, theirs, error) if place is None else Rates.at(ours, theirs, place, error)

        rates = rated(1 - self.confidence)

        def family(scale: float) -> TradeOff:
            return trade_off(self.event(scale), report.delta, report.relation) if self._is_composed else claim

        epsilon = lower_bound(
            rates, family, lambda s: certify(self.event(s), report.delta, report.relation).epsilon
        )
        power = rates.power(claim, family(0.5), ALARM) if self._is_composed else None
        of = "" if releases is None else f"of {releases} of {len(self.verdict.recording.questions)} answers "
        words = (
            f"true positives >= {rates.true_positive:.3f} at false positives <= {rates.false_positive:.3f} "
            f"{of}in {rates.draws} draws"
        )
        plain = plain_bound(rates, report.delta)
        refuted = rated(ALARM).refutes(claim)
        return Attack(name, words, refuted, epsilon, plain, power, len(ours))

    def _black_box(self, draws: int, fits: int) -> Iterator[Attack]:
        """Fit again and again on both neighbours, and guess from what is released which one it was."""
        if not fits or self.sides is None:
            return
        run, neighbour = self.sides
        ours = [numbers_of(play(run, seed=None).made) for _ in range(fits)]
        theirs = [numbers_of(play(neighbour.run, None, neighbour.absent, None).made) for _ in range(fits)]
        if len({one.shape for one in (*ours, *theirs)}) > 1 or not ours[0].size:
            yield Attack("black box", "the released numbers have no fixed shape", False, runs=fits)
        else:
            yield self._bounded("black box", *guesses(np.array(ours), np.array(theirs)), place=0.0)


def _reach(ours: Recording, theirs: Recording) -> float:
    """Return how far two transcripts are apart, in standard deviations, were all their noise Gaussian."""
    total = 0.0
    for one, other in zip(ours.questions, theirs.questions, strict=False):
        multiplier = one.asked.release.mechanism.multiplier or 0.0
        total += (share(one, other) / multiplier) ** 2 if multiplier else 0.0
    return math.sqrt(total)


def _reports(made: Any) -> Iterator[PrivacyReport]:
    """Yield the reports of what a fit returned, that of the whole first."""
    if isinstance(made, PrivacyReport):
        yield made
    elif isinstance(made, tuple | list | dict):
        for part in reversed(list(made.values()) if isinstance(made, dict) else made):
            yield from _reports(part)
    elif hasattr(made, "steps") and hasattr(made, "fit"):
        yield pipeline_privacy(made)
    else:
        found = (getattr(made, name, None) for name in ("privacy_", "privacy"))
        yield from (report for report in found if isinstance(report, PrivacyReport))
