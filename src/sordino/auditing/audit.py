"""The audit of a fit: attacks in order of their price, and what they found beside the claim."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from sordino.accounting import certify
from sordino.accounting.trade_off import TradeOff, trade_off, worst_trade_off
from sordino.auditing import attacks
from sordino.auditing.neighbours import Records, crowds, ends_of, lift, one_each, silence
from sordino.auditing.tape import (
    ROUNDING,
    Absent,
    Leak,
    Neighbour,
    Pull,
    Recording,
    Verdict,
    compare_neighbour,
    compare_others,
    numbers_of,
    play,
    share,
)
from sordino.errors import AuditError, SordinoError, UnsupportedError
from sordino.estimators.pipeline import pipeline_privacy
from sordino.kernel.events import Relation, compose_events
from sordino.kernel.mechanism import Gaussian
from sordino.kernel.noise import fresh_noise, seeded_noise_not_private
from sordino.runs import PrivacyReport
from sordino.runs.promise import at_multipliers, distance
from sordino.runs.report import templates_of
from sordino.values import at_most

NOT_PRIVATE = (
    "This audit read the records without noise: its result is NOT private. It is for whoever holds them."
)
MADE_UP = (
    "A fit of this kind was attacked on made-up records: nothing here depends on yours; anybody may see it."
)
ALARM = 1e-5
"""The chance that one attack which draws calls a claim refuted that holds; lower bounds have their own."""

CHOSEN, LEARNED = 100, 300
"""Pairs of fits in each crowd that choose one, and those that teach an attack what a canary moves there."""

FITS, ENOUGH = 300, 24
"""Fits whose noise is looked at, at most, and those that suffice where fits are quick."""

FEW = 1_000
"""Numbers and choices whose noise is looked at, at least, where fits are quick."""

_SLACK = 1 + 1e-6  # the rounding of a certificate that is computed a second time


@dataclass(frozen=True)
class Attack:
    """One attack on a claim.

    Parameters
    ----------
    name : replay, noise, white box, sequential, one run, or one of the attacks on outputs.
    words : what it found, in a sentence.
    refuted : whether the claim does not hold.
    epsilon : what it proves with the confidence of the audit, for plans of this shape; None for no number.
    plain : what it proves whatever the shape of the trade-off.
    power : the chance that it would have refuted the claim, had the noise been half of it.
    rates : bounds on its false and true positive rates.
    runs : transcripts, or fits, on each neighbour.
    seconds : how long it took.
    """

    name: str
    words: str
    refuted: bool
    epsilon: float | None = None
    plain: float | None = None
    power: float | None = None
    rates: tuple[float, float] | None = None
    runs: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Audit:
    """What attacks on a fit found, beside what it claims; see :func:`audit`.

    Parameters
    ----------
    subject : the name of what was fitted.
    epsilon, delta, relation, unit : the claim.
    curve : the plan's own trade-off: points (false positive rate, largest true positive rate).
    advantage : by that trade-off, how much better than a coin the best guess is.
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
    curve: tuple[tuple[float, float], ...]
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
        """Return a section for a page: a table of the attacks, and a drawing where some guessed."""
        return str(templates_of(__package__).get_template("audit.html").render(audit=self))

    def to_svg(self) -> str:
        """Return a drawing: the largest true positive rate that the plan allows, and what attacks reached."""
        return str(templates_of(__package__).get_template("audit.svg").render(audit=self))

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
    canaries: int = 0,
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
    groups : who owns each record, where a person is protected; a schema takes them from the table.
    claim : the report that is attacked; None takes the one that the fit returns.
    seconds : of processor time, for the search of the worst neighbour and again for each attack that draws.
    draws : transcripts of the likelihood ratio attack on each neighbour, at most; 0 only replays.
    fits : whole fits on each neighbour for the attacks on outputs; 0 leaves them out.
    canaries : records of one fit of an estimator, each in it with chance 1/2, that are guessed from what it
        predicts; 0 leaves this attack out. It takes as many columns, of made-up records.
    rows : about so many records are used, of a person all or none: a guarantee holds for every data set, so
        also for a part of one.
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
    records, *more = crowds(fit) if data is None else [Records.of(data, groups, rows, _schema_of(fit))]
    more = more if seconds > 0 else []
    auditor = _Auditor(fit, records, claim, seconds, confidence, rounding, data is None, more)
    return auditor.run(draws, fits, canaries)


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
    more: list[Records] = field(default_factory=list)
    verdict: Verdict = field(default_factory=lambda: Verdict(Recording([], [], []), [], {}))
    worst: tuple[Recording, Recording, Recording | None] | None = None
    sides: tuple[Callable[[], Any], Neighbour] | None = None
    best: tuple[Any, ...] | None = None
    reach: float = -1.0
    noise: attacks.Scale = field(default_factory=attacks.Scale)

    def run(self, draws: int, fits: int, canaries: int) -> Audit:
        """Make all attacks."""
        made: list[Attack] = []
        plan = ((self._replay, 1), (self._noise, draws), (self._white_box, draws))
        for attack, count in (*plan, (self._one_run, canaries), (self._black_box, fits)):
            begin, found = time.monotonic(), attack(count) if count else ()
            made += [replace(one, seconds=time.monotonic() - begin) for one in found]
        report, asked = self.report, len(self.verdict.recording.questions)
        moved = any(self.verdict.nearest.values()) or any(attack.refuted for attack in made)
        if not (moved or (fits and not asked)):  # outputs of what asks nothing are attacked
            raise AuditError(
                f"Nothing was attacked: no neighbour differs in any of {asked} answers: there is no verdict. "
                "Pass data in which a unit counts"
                + ("." if asked else ", and fits= for what asks no curator.")
            )
        rates = (np.linspace(0, 1, 41) ** 2).tolist()
        return Audit(
            getattr(self.fit, "__name__", type(self.fit).__name__),
            report.epsilon,
            report.delta,
            report.relation.value,
            report.unit,
            tuple((x, report.trade_off.true_positive_rate(x)) for x in rates),
            report.trade_off.advantage,
            tuple(self.verdict.leaks),
            dict(self.verdict.nearest),
            tuple(made),
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
            recording = self.verdict.recording
            if isinstance(recording.raised, SordinoError):
                raise recording.raised
            error = (recording.error or "no report of a guarantee").partition(":")[0]
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

    def event(self, scale: float = 1.0, plans: list[Any] | None = None) -> Any:
        """Return the event of everything that was asked, release by release, with its noise scaled."""
        parts = []
        for plan in self.paid if plans is None else plans:
            known = {name: (r.mechanism.multiplier or 0.0) * scale for name, r in plan.releases.items()}
            made = at_multipliers(plan, known).releases
            parts += [release.event(plan.relation, plan.population) for release in made.values()]
        return compose_events(parts)

    @property
    def distance(self) -> float:
        """How far all answers together may move, in standard deviations; known for Gaussian noise."""
        try:
            learned = bool(self.report.learned)  # paid for before, by events that are not in the report
            return math.inf if learned else distance(self.report.event, self.report.relation)
        except UnsupportedError:
            return math.inf

    # ------------------------------------------------------------------------------------------- attacks

    def _replay(self, count: int) -> Iterator[Attack]:
        """Record and replay on hostile neighbours, climb from the worst, and count what was asked."""
        end, unit = time.process_time() + self.seconds, self.records.widest
        if isinstance(self.fit, BaseEstimator) and "epsilon" in self.fit.get_params(deep=False):
            play(self.runner(self.records, epsilon=10.0 * self.fit.get_params()["epsilon"]))  # fills caches
        self.verdict = Verdict(play(self.runner(self.records)), [], {})
        if self.verdict.recording.error is not None and not self.verdict.recording.questions:
            self.report  # noqa: B018 - says what is wrong
        for records in (self.records, *self.more):
            tried = list(records.canaries(unit))
            for count, (name, canary) in enumerate(tried or [("as it is", ())]):
                if count < 2 or self.seconds > 0:
                    self._try_canary(records, name, canary if tried else None, unit)
        for number in range(12):
            if time.process_time() > end or self.best is None:
                break
            turned = self.records.turned(self.best, number)
            if turned is self.best:  # one number has no other direction
                break
            self._try_canary(self.records, f"climbing, step {number + 1}", turned, unit)
        self.verdict.leaks.extend(Leak(kind, "as it is", what) for kind, what in self._accounts())
        kinds = ", ".join(sorted({leak.kind for leak in self.verdict.leaks}))
        if kinds:
            yield Attack("replay", f"found {kinds}: {'; '.join(map(str, self.verdict.leaks[:3]))}", True)
            return
        near = max(self.verdict.nearest.values(), default=0.0)
        words = (
            f"{len(self.verdict.recording.questions)} questions were asked again on data that differ in one "
            f"{self.report.unit}: only exact answers changed, by {100 * near:.4g} % of what their noise "
            "is made to hide, at most"
        )
        yield Attack("replay", words, False)

    def _try_canary(self, records: Records, name: str, canary: tuple[Any, ...] | None, unit: int) -> None:
        """Put a canary in, replay on its neighbour, and keep the pair whose answers are furthest apart."""
        base = records if canary is None else records.changed(unit, canary)
        run, gone = self.runner(base), Absent(unit, base.owners, base.units)
        recorded = play(run, forced=unit)
        verdict = Verdict(recorded, self.verdict.leaks, self.verdict.nearest)
        relation = recorded.plans[0].relation if recorded.plans else Relation.ADD_REMOVE
        leaves = canary is None or (relation is Relation.ADD_REMOVE and not recorded.trials)
        neighbours = [Neighbour(f"{name}, left out", run, gone)] if leaves else []
        if canary is not None and (not leaves or self.reach < 0):  # what reads records beside a curator, too
            row, *targets = records.opposite(canary)  # both turned around may pull as before
            others = [(row, *targets)] if leaves else [(row, *targets), (canary[0], *targets)]
            made = [records.changed(unit, one) for one in others] + [records] * (not leaves)
            steps = 3 - relation.contributions
            neighbours += [Neighbour(f"{name}, replaced", self.runner(one), None, steps) for one in made]
        rounding, left = self._rounding_of(recorded), None
        for neighbour in neighbours:
            replayed = compare_neighbour(verdict, neighbour, rounding, unit)
            reach = _reach(recorded, replayed) / neighbour.steps
            if reach > self.distance * (1 + rounding):
                what = f"all answers moved by {reach:.4g} standard deviations, not {self.distance:.4g}"
                self.verdict.leaks.append(Leak("distance", neighbour.name, what))
            left = replayed if neighbour.absent else left or play(run, recorded, gone, forced=unit)
            if reach > self.reach and recorded.error is None:
                self.worst, self.sides = (recorded, replayed, left), (run, neighbour)
                self.reach, self.best, self.records = reach, canary, records
        if canary is not None and left is not None and not recorded.trials:
            again = partial(play, self.runner(records), recorded)
            found = compare_others(recorded, left, again, gone, rounding)
            self.verdict.leaks.extend(Leak("others", f"{name}, or as it was", what) for what in found)

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
        altered = next((heard.name for heard in recording.questions if heard.altered), None)
        if altered is not None:
            yield "answers", f"{altered} was changed between its mechanism and its asker"
        loose = next((heard.name for heard in recording.questions if heard.is_off_lattice), None)
        if loose is not None:
            yield "status", f"{loose} is said to have exact noise, and lies on no lattice"
        if any(plan.relation is not report.relation or plan.unit != report.unit for plan in self.paid):
            yield "relation", "the report protects others than the plans that were run"
        owners = self.records.owners
        for held, persons in recording.persons if owners is not None else ():
            if held == len(owners) and persons != self.records.units:
                yield "relation", f"{persons} persons were told apart, {self.records.units} own the records"
        if not self._is_composed or (report.whole is None and report.learned):
            return
        yield from self._prices(self.paid)

    def _prices(self, plans: list[Any]) -> Iterator[tuple[str, str]]:
        """Yield by how much some plans cost more than the report says."""
        epsilon, delta = self.report.whole or (self.report.epsilon, self.report.delta)
        proven = certify(self.event(plans=plans), delta, self.report.relation).epsilon
        if not proven <= epsilon * _SLACK:
            yield "price", f"what was asked certifies epsilon = {proven:.4g}, the report says {epsilon:.4g}"

    def _noise(self, count: int) -> Iterator[Attack]:
        """Look at the noise of real fits, by all answers whose law is known, what comes twice, and the price.

        A choice tells little: there are as many fits, up to ``FITS``, as half the noise would show in.
        """
        begin, found, power = time.process_time(), self.noise, None
        records, most = self._telling(), self.verdict.recording.plans
        for number in range(FITS):
            spent = (time.process_time() - begin) / max(self.seconds, 1e-9)
            enough = (number >= ENOUGH and found.count > FEW) or spent > 0.25
            low = found.most > -math.log(ALARM)
            if number >= 2 and (low or (enough and (power is None or power > 0.99)) or spent > 1.0):
                break
            run = self._again(self.runner(records))
            most = max(most, run.plans, key=len)
            found.see(run)
            power = found.power(ALARM)
        dear = most is not self.verdict.recording.plans and self._is_composed and [*self._prices(most)]
        yield self._of_noise("noise", f"; {dear[0][1]}" if dear else "")

    def _of_noise(self, name: str, dear: str = "") -> Attack:
        """Return what bets on the noise of all fits until now have won."""
        found, low = self.noise, self.noise.most > -math.log(ALARM)
        declared = "not as declared, beyond chance" if low else "as declared"
        words = f"{found.count} residuals and choices of {found.runs} fits have noise {declared}"
        if (share := found.least_of_a_turn(ALARM)) is not None:
            words += f" ({share:.2f} of it, in any one turn of a release, would show)"
        words += f"; the noise of {found.reused[0]} comes again" if found.reused else ""
        power = found.power(ALARM, FITS / found.runs if low else 1.0)
        return Attack(name, words + dear, bool(low or found.reused or dear), power=power, runs=found.runs)

    def _telling(self) -> Records:
        """Return the records, or some of them, in which noise shows: a sure choice tells nothing of it."""
        best, most = self.records, 0.0
        for part in (1, 0.25, 4, 0.06, 16):
            some, one = self.records.resized(max(4, round(part * self.records.units))), attacks.Scale()
            run = play(self.runner(some), seed=None)
            one.see(run)
            power = one.power(ALARM, FITS / 6)
            if power is None or (power > most and run.error is None):
                best, most = some, power or 1.0
            if most > 0.99:
                break
        return best

    def _white_box(self, draws: int) -> Iterator[Attack]:
        """Tell transcripts on the worst neighbours apart by their likelihood ratios, and bet as they come."""
        if self.worst is None or not self._is_composed:
            return
        pairs, noise, end = attacks.pairs_of(*self.worst), fresh_noise(), time.process_time() + self.seconds
        if not pairs:
            yield Attack("white box", "no release has a likelihood that is known here", False)
            return
        bets, wealth, stopped = attacks.Bets(self.report.trade_off), 0.0, None
        seen: tuple[list[float], list[float]] = ([], [])
        while len(seen[0]) < draws and (time.process_time() < end or not seen[0]):
            count = min(max(attacks.FIRST, len(seen[0])), attacks.ROUND, draws - len(seen[0]))
            ours, theirs = attacks.transcripts(pairs, noise, count)
            seen[0].extend(ours)
            seen[1].extend(theirs)
            wealth = max(wealth, bets.see(ours, theirs))
            stopped = len(seen[0]) if stopped is None and wealth >= 1 / ALARM else stopped
        yield self._bounded("white box", np.array(seen[0]), np.array(seen[1]), len(pairs))
        words = f"refuted after {stopped} transcripts of each" if stopped else "bets on the claim won nothing"
        yield Attack("sequential", f"{words} (wealth {wealth:.3g})", stopped is not None, runs=len(seen[0]))

    def _bounded(self, name: str, ours: Any, theirs: Any, releases: int | None = None) -> Attack:
        """Return what guesses prove: a score above zero says "ours"; a pair of them has the same noise."""
        claim, error = self.report.trade_off, 1 - self.confidence
        rates, refutes = attacks.Rates.of(ours, theirs, error), attacks.wager(ours, theirs, error)
        of = "" if releases is None or not self.worst else f"{releases} of {len(self.worst[0].questions)}"
        words = (
            f"true positives >= {rates.true_positive:.3f} at false positives <= {rates.false_positive:.3f} "
            f"{of and f'of {of} answers '}in {rates.draws} draws"
        )
        strict = attacks.Rates.of(ours, theirs, ALARM / 3)
        refuted = strict.true_positive > claim.true_positive_rate(strict.false_positive)
        refuted = refuted or attacks.advantage(ours[::2], theirs[1::2], ALARM / 3) > claim.advantage
        refuted = refuted or refutes(claim, ALARM / 3)
        epsilon, shown = self._demonstrate(lambda curve: refutes(curve, error))
        half = self._family(shown / 2) if self._is_composed and shown < math.inf else None
        chance = None if half is None else attacks.power(claim, half, len(ours), ALARM / 3)
        plain, reached = rates.epsilon(self.report.delta), (rates.false_positive, rates.true_positive)
        return Attack(name, words, refuted, epsilon, plain, chance, reached, len(ours))

    def _family(self, scale: float) -> TradeOff:
        """Return the curve of the plan with its noise scaled; the claim's own where parts are not known."""
        report = self.report
        if not self._is_composed:
            return report.trade_off
        return trade_off(self.event(scale), report.delta, report.relation)

    def _demonstrate(self, refuted: Callable[[TradeOff], bool]) -> tuple[float, float]:
        """Return the epsilon of the most noise whose curve is not refuted, and that noise in the plan's."""
        scale = attacks.most_noise(lambda scale: refuted(self._family(scale)))
        if scale == math.inf:
            return 0.0, scale
        return certify(self.event(scale), self.report.delta, self.report.relation).epsilon, scale

    def _one_run(self, count: int) -> Iterator[Attack]:
        """Put many canaries into one fit, each by a coin, and guess from its predictions which were there."""
        if not isinstance(self.fit, BaseEstimator) or not hasattr(self.fit, "predict"):
            return
        records = one_each(self.fit, count)
        away = fresh_noise().signs(count) < 0
        run = play(self.runner(records), None, Absent(1, away.astype(int)), None)
        if run.error is not None:
            yield Attack("one run", f"{run.error.partition(':')[0]}: such canaries are refused", False)
            return
        (rows, targets), scores = records.parts, np.zeros(count)
        for mine in (targets == one for one in np.unique(targets)):
            beliefs = _belief(run.made, rows[mine], targets[mine][0])
            scores[mine] = beliefs - np.median(beliefs)
        surest = np.argsort(-np.abs(scores), kind="stable")  # who guesses on some only is right more often
        guesses = [(int(np.sum((scores > 0)[some] != away[some])), len(some)) for some in
                   (surest[: count // part] for part in (1, 3, 10))]  # fmt: skip
        error = (1 - self.confidence) / len(guesses)

        def refuted(curve: TradeOff, error: float = error) -> bool:
            return any(attacks.one_run_refutes(curve, *guess, count, error) for guess in guesses)

        told = ", ".join(f"{right} of {some}" for right, some in guesses)
        plain = max(attacks.one_run_epsilon(*guess, count, self.report.delta, error) for guess in guesses)
        wrong = refuted(self.report.trade_off, ALARM / len(guesses))
        words = f"{told} guesses on {count} canaries of one fit were right"
        yield Attack("one run", words, wrong, self._demonstrate(refuted)[0], plain, runs=count)

    def _black_box(self, fits: int) -> Iterator[Attack]:
        """Fit again and again on both neighbours, and guess from what is released which one it was."""
        if self.sides is None:
            return
        run, neighbour = self.sides
        crowd = [((run, None), (neighbour.run, neighbour.absent))]
        if self.made_up:  # alone, what a canary adds to each answer adds up in the last iterate
            runs = [self.runner(among(self.records, self.best or ())) for among in (silence, lift)]
            gone = Absent(0, records=self.records.units)
            if self._is_network:
                yield self._outputs("gradient canary", [((runs[0], Pull(0)), (runs[0], gone))], fits)[2]
                fits //= 4  # how a record pulls a network changes with its weights: more fits add little
            crowd += [((run, None), (run, gone)) for run in runs]
        ours, theirs, attack = self._outputs("black box", crowd, fits)
        yield attack
        row, *rest = self.best or (None,)
        if hasattr(ours[0], "predict") and isinstance(row, np.ndarray) and rest:
            beliefs = [np.array([_belief(made, row[None], rest[0])[0] for made in s]) for s in (ours, theirs)]
            yield self._bounded("membership, LiRA", *attacks.likelihood_ratios(*beliefs))
            yield self._bounded("membership, quantile", *attacks.above_quantile(*beliefs))
            yield self._attribute(min(fits // 2, LEARNED), row, rest[0])
        yield self._of_noise("noise of these fits")

    def _again(self, run: Any, absent: Absent | None = None) -> Recording:
        """Fit once more; the replay has seen a network pass its checks, which take longer than its steps."""
        if "gradients by ghost" not in self.report.notes:
            return play(run, None, absent, None)
        from sordino.nn.engine_choice import passed_before

        with passed_before():
            return play(run, None, absent, None)

    @property
    def _is_network(self) -> bool:
        """Whether a fit asks for tensors only, with Gaussian noise that is not on a lattice."""
        asked = [(h.value, h.asked) for h in (self.worst[0].questions if self.worst else ())]
        kinds = {(hasattr(value, "detach"), type(one.release.mechanism), one.spacing) for value, one in asked}
        return kinds == {(True, Gaussian, None)}

    def _outputs(self, name: str, crowds: list[Any], fits: int) -> tuple[list[Any], list[Any], Attack]:
        """Fit on both sides, each a run and who is absent, and guess by what a canary moves.

        A pair of fits has the same noise on both sides. That is learned from pairs which are not judged, and
        so is the crowd in which a canary shows most. The noise of those that are judged is bet on.
        """

        def one(run: Any, absent: Any, seed: int, bet: bool) -> Any:
            with seeded_noise_not_private(seed):
                recording = self._again(run, absent)
            if bet:
                self.noise.see(recording)
            return recording.made

        def fitted(sides: Any, seeds: Any, judged: bool = False) -> list[list[Any]]:
            bets = (judged, False)  # the noise of the other side is the same
            each = zip(sides, bets, strict=True)
            return [[one(run, absent, seed, bet) for seed in seeds] for (run, absent), bet in each]

        few, many = min(fits, CHOSEN), min(fits, max(LEARNED, fits // 4))
        first = [fitted(sides, range(few)) for sides in crowds]
        told = [_numbers(made) for made in first]
        best = int(np.argmax([-1.0 if one is None else attacks.separation(*one) for one in told]))
        more = fitted(crowds[best], range(few, many))
        learned = _numbers([one + other for one, other in zip(first[best], more, strict=True)])
        judged = fitted(crowds[best], [fresh_noise().subkey() for _ in range(fits)], judged=True)
        numbers = _numbers(judged)
        attack = Attack(name, "the released numbers have no fixed shape", False, runs=fits)
        if learned is not None and numbers is not None and learned[0].shape[1:] == numbers[0].shape[1:]:
            ours, theirs = map(attacks.discriminant(*learned), numbers)
            attack = self._bounded(name, ours, theirs)
        return judged[0], judged[1], attack

    def _attribute(self, fits: int, row: Any, target: Any) -> Attack:
        """Guess the target of a record whose row is known; two targets are two units apart, or one."""
        base = silence(self.records, (row, target)) if self.made_up else self.records
        low, high = ends_of(self.records.parts[1])
        runs = [self.runner(base.changed(0, (row, end))) for end in (target, low if target == high else high)]
        made = [[self._again(run).made for _ in range(fits)] for run in runs]
        beliefs = [np.array([_belief(m, row[None], target)[0] for m in side]) for side in made]
        scores = attacks.above_quantile(*beliefs)
        right, count = int(np.sum(scores[0] > 0) + np.sum(scores[1] <= 0)), 2 * len(scores[0])
        epsilon, delta, steps = self.report.epsilon, self.report.delta, 3 - self.report.relation.contributions
        group = worst_trade_off(steps * epsilon, delta * (1 + (steps - 1) * math.exp(min(epsilon, 500.0))))
        refuted = 2 * attacks.least(right, count, ALARM) - 1 > group.advantage
        return Attack("attribute", f"the target was guessed in {right} of {count} fits", refuted, runs=fits)


def _schema_of(fit: Any) -> Any:
    """Return the schema of the table that a fit is given: that of its first step, or of what it searches."""
    if hasattr(fit, "steps"):
        return _schema_of(fit.steps[0][1])
    return _schema_of(fit.estimator) if hasattr(fit, "estimator") else getattr(fit, "schema", None)


def _numbers(sides: list[list[Any]]) -> list[Any] | None:
    """Return all numbers that fits released, a row for each; None where some released more than others."""
    found = [[numbers_of(made) for made in side] for side in sides]
    shapes = {one.shape for side in found for one in side}
    return None if len(shapes) > 1 or (0,) in shapes else [np.array(side) for side in found]


def _belief(made: Any, rows: Any, target: Any) -> Any:
    """Return how much a model believes in a target at each row: log odds of a label, or what it predicts."""
    if not hasattr(made, "predict_proba"):
        return np.ravel(made.predict(rows)) * (1.0 if target > 0 else -1.0)
    chances = made.predict_proba(rows)[:, list(made.classes_).index(target)]
    return np.log(np.maximum(chances, 1e-300)) - np.log(np.maximum(1 - chances, 1e-300))


def _reach(ours: Recording, theirs: Recording) -> float:
    """Return how far two transcripts are apart, in standard deviations, were all their noise Gaussian."""
    total = 0.0
    for one, other in zip(ours.questions, theirs.questions, strict=False):
        multiplier = one.asked.release.mechanism.multiplier or 0.0
        total += attacks.apart(one, other, share(one, other) / multiplier) ** 2 if multiplier else 0.0
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
