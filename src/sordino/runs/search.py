"""The best of a secret number of trials: one promise for a whole search."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from dp_accounting import dp_event as dp
from scipy import special

from sordino.accounting import Certificate, certify, gaussian_epsilon, solve_scale
from sordino.errors import (
    CalibrationError,
    InvalidInputError,
    SordinoError,
    UndeclaredBoundWarning,
    UnsupportedError,
)
from sordino.execute import LocalExecutor
from sordino.kernel import Curator, Relation
from sordino.kernel.arrays import Floats
from sordino.kernel.events import compose_events, gaussian_event, repeat_event
from sordino.kernel.noise import NoiseSource, fresh_noise
from sordino.problems.robust import Sample
from sordino.runs.promise import Ask, Enclosure, Rehearsal, Rehearsed, search_notes
from sordino.runs.report import PrivacyReport, certified_report
from sordino.solvers.heavy.location import RowMeans

CHOICE = 0.2
"""The part of the squared distance that the choice among candidates gets; the last fit has the rest."""
SHAPES = {"geometric": 1.0, "poisson": math.inf, "truncated-negative-binomial": 0.5}


def score_means(members: int) -> RowMeans:
    """Return the question about the mean scores of so many models: one row of scores in [0, 1] per record.

    **Privacy.** A row is in the ball around 1/2 whose radius is half the root of ``members``, whatever a
    record holds: leaving it out moves the sum by that radius, replacing it by twice as much.
    """
    return RowMeans((0.5,) * members, math.sqrt(members) / 2.0)


@dataclass(frozen=True, eq=False)
class Trial:
    """What one trial may spend: the model on the training part, its score on the validation part."""

    epsilon: float
    delta: float
    scale: float
    relation: Relation
    noise: NoiseSource = field(repr=False)
    unit: str = "record"

    def part(self, share: float) -> float:
        """Return the epsilon of a run that may reach this share of the trial's squared distance."""
        return gaussian_epsilon(math.sqrt(min(share, 1.0)) * (1 - 1e-9) / self.scale, self.delta)

    def fitted(self, fit: Callable[[], Any], report_of: Callable[[Any], Any] | None = None) -> Any:
        """Return what ``fit`` returns: a model with a report, and nothing released but what was admitted.

        ``report_of`` finds the report of a model that consists of several; everything in it must have paid.
        """
        around = Enclosure(1.0 / self.scale, self.relation, self.unit)
        with around.entered():
            model = fit()
        report = getattr(model, "privacy_", None) if report_of is None else report_of(model)
        if not isinstance(report, PrivacyReport) or report.unpaid or not around.covers(report.event):
            raise _foreign()
        return model

    def rehearse(self, fit: Callable[[], Any]) -> None:
        """Run ``fit`` up to its first release: what fails there fails before the search is booked.

        A bound that was not declared is said here; inside of a trial nothing is.
        """
        with (
            Rehearsal(1.0 / self.scale, self.relation, self.unit).entered(),
            warnings.catch_warnings(record=True) as said,
        ):
            warnings.simplefilter("always")
            try:
                fit()
            except Rehearsed:
                pass
            else:
                raise _foreign()
        for warning in said:
            if issubclass(warning.category, UndeclaredBoundWarning):
                warnings.warn(warning.message, stacklevel=4)

    def score(self, scores: Floats) -> Floats:
        """Release the mean score of each model: a row per record, or person, of the validation part.

        A score beyond [0, 1] counts as the nearer end, one that is not a number as 0.
        """
        rows = np.clip(np.nan_to_num(scores, nan=0.0), 0.0, 1.0)
        judges, members = rows.shape
        means = score_means(members)
        sample = Sample(judges, members, self.relation, self.unit, secure_noise=True)
        plan = means.plan(sample).at(self.scale)
        curator = Curator(LocalExecutor(rows, data_norm=None), plan, self.noise)
        return next(means.run(curator, sample)).value


@dataclass(frozen=True, eq=False)
class Search:
    """What all certified searches share: the ask, the certificate, the noise.

    ``scale`` is the noise multiplier of one Gaussian release, in units of which trials are paid; there are
    ``fits`` to choose from, and each gives at most ``members`` candidates.
    """

    ask: Ask
    relation: Relation
    scale: float
    certificate: Certificate
    event: dp.DpEvent
    fits: int = 1
    members: int = 1
    unit: str = "record"
    noise: NoiseSource = field(default_factory=fresh_noise, repr=False)
    notes: tuple[str, ...] = field(default_factory=search_notes, repr=False)

    @classmethod
    def _calibrate(
        cls, ask: Ask, relation: Relation, event_at: Callable[[float], dp.DpEvent], **rest: Any
    ) -> Self:
        """Return the search at the smallest scale that the ask covers, certified now."""
        if math.isinf(ask.epsilon):
            raise InvalidInputError("Expected a finite epsilon for a private search, got inf.")
        scale = solve_scale(event_at, ask.epsilon, ask.delta, relation)
        certificate = certify(event_at(scale), ask.delta, relation)
        if not certificate.epsilon <= ask.epsilon:
            raise CalibrationError(
                f"The search certifies epsilon = {certificate.epsilon:.4g}, asked for is {ask.epsilon:g}."
            )
        return cls(ask, relation, scale, certificate, event_at(scale), **rest)

    @property
    def trial(self) -> Trial:
        """What each trial may spend."""
        return self._at(self.scale)

    @property
    def last(self) -> Trial | None:
        """What a fit of the best anew may spend; None where nothing is fitted anew."""
        return None

    def run(
        self,
        trial: Callable[[Trial, int], tuple[Floats, Any]],
        last: Callable[[Trial, int], Any],
        description: str,
        home: tuple[int, int] | None = None,
        margin: float = 0.0,
    ) -> tuple[float, int, int, Any]:
        """Book the search, try fits by their numbers, and repeat the best by ``last`` where that is planned.

        A trial returns the scores of its members and what it fitted. ``home`` are the numbers of the fit and
        the member that stay unless a score is better by more than the margin. Return the score of the chosen
        one, the numbers of its fit and of its member there, and what was fitted last for it.
        """
        budget = self.trial
        with self.booked(description), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # their number would tell the number of trials
            best = stay = (-math.inf, -1, -1, None)
            for number in self._drawn():
                scores, fitted = trial(budget, number)
                found = float(scores.max()), number, int(scores.argmax()), fitted
                best = found if found[0] > best[0] else best
                if home is not None and number == home[0]:
                    stay = float(scores[home[1]]), *home, fitted
            chosen = stay if best[0] <= stay[0] + margin else best
            if self.last is not None:
                chosen = (*chosen[:3], last(self.last, chosen[1]))
        return chosen

    def _drawn(self) -> Sequence[int]:
        """Return the numbers of the fits that are tried: each once."""
        return range(self.fits)

    def report(
        self, best: PrivacyReport, public: tuple[str, ...], instead_of: tuple[str, ...] = ()
    ) -> PrivacyReport:
        """Return the guarantee of the search, with everything that the best trial's own rests on.

        ``instead_of`` are lines of the trial that are true for it and not for the search, which told it so.
        """
        if best.seeded != (not self.noise.is_private) or best.unpaid or best.unproven or best.copied:
            raise UnsupportedError(f"A search promises what its trials do; the best is {best.status!r}.")
        sample = Sample(1, self.members, self.relation, secure_noise=True)
        scores = score_means(self.members).plan(sample).at(self.trial.scale)
        return certified_report(
            self.certificate,
            self.event,
            self.unit,
            self.noise,
            releases=(*best.releases, *PrivacyReport.described(scores)),
            public=tuple(dict.fromkeys((*public, *(p for p in best.public if p not in instead_of)))),
            notes=(self.said, *self.notes, *best.notes),
            learned=self.ask.learned,
        )

    @property
    def said(self) -> str:
        """What the report says about how the best was found."""
        raise NotImplementedError  # pragma: no cover

    @property
    def tried(self) -> float:
        """How many fits are tried, on average."""
        return self.fits

    def score_noise(self, judges: int) -> float:
        """Return the standard deviation of the noise of a mean score of so many records."""
        radius = score_means(self.members).radius
        return self.trial.scale * radius * self.relation.contributions / judges

    def score_interval(self, score: float, judges: int, confidence: float = 0.95) -> tuple[float, float]:
        """Return ends around the best score that hold its mean over the law of the records.

        Noise and sampling error; a mean of scores in [0, 1] has a variance of at most ``s (1 - s) / n``. The
        best of several is the one that chance has favoured: each may miss with its part of the probability.
        """
        chosen_from = max(self.tried, 1.0) * self.members
        z = float(special.ndtri(1.0 - (1.0 - confidence) / (2.0 * chosen_from)))
        noise, known = self.score_noise(judges), min(max(score, 0.0), 1.0)
        near = min(max(known + math.copysign(z * noise, 0.5 - known), 0.0), 1.0)  # the noise may hide spread
        widest = 0.25 if (known - 0.5) * (near - 0.5) <= 0 else max(known * (1 - known), near * (1 - near))
        half = z * math.hypot(noise, math.sqrt(widest / judges))
        return min(max(score - half, 0.0), 1.0), max(min(score + half, 1.0), 0.0)

    def booked(self, description: str) -> Any:
        """Book the search; settled at the end of the block, failed on an error."""
        return self.ask.reserve(self.event, self.certificate, self.unit, description) or nullcontext()

    def _at(self, scale: float) -> Trial:
        whole = Trial(0.0, self.ask.delta, scale, self.relation, self.noise, self.unit)
        return replace(whole, epsilon=whole.part(1.0))


@dataclass(frozen=True, eq=False)
class ChooseThenFit(Search):
    """A certified search in two rounds: try every fit for little, repeat the chosen one with the rest.

    **Privacy.** A record, or a person with all records, is in the training or in the validation part. So a
    trial, which fits on the one and scores on the other, is one Gaussian release of multiplier
    ``scale sqrt(fits / CHOICE)``, and all of them are one of ``scale / sqrt(CHOICE)``. The last fit, on
    all records, is one of ``scale / sqrt(1 - CHOICE)``. Gaussian releases add up their squared distances:
    together one of multiplier ``scale``. A single fit is not repeated: its trial is all there is, and the
    scores of all its members, which only the validation part moves, have the whole of ``scale`` too.
    """

    @classmethod
    def of(cls, ask: Ask, relation: Relation, fits: int, members: int = 1, unit: str = "record") -> Self:
        def event_at(scale: float) -> dp.DpEvent:
            if fits == 1:
                return gaussian_event(scale, relation)
            one = gaussian_event(scale * math.sqrt(fits / CHOICE), relation)
            last = gaussian_event(scale / math.sqrt(1.0 - CHOICE), relation)
            return compose_events([repeat_event(one, fits), last])

        return cls._calibrate(ask, relation, event_at, fits=fits, members=members, unit=unit)

    @property
    def trial(self) -> Trial:
        return self._at(self.scale * (1.0 if self.fits == 1 else math.sqrt(self.fits / CHOICE)))

    @property
    def last(self) -> Trial | None:
        return None if self.fits == 1 else self._at(self.scale / math.sqrt(1.0 - CHOICE))

    @property
    def said(self) -> str:
        if self.last is None and self.members == 1:
            return "one candidate: nothing was chosen"
        if self.last is None:
            return f"chosen from {self.members} candidates, all made of one fit on the training part"
        each = "" if self.members == 1 else f" of up to {self.members} made of one fit"
        return (
            f"chosen from {self.fits} candidates{each}, each fitted with epsilon {self.trial.epsilon:.3g} on "
            f"the training part; the chosen one was fitted anew on all with epsilon {self.last.epsilon:.3g}"
        )


@dataclass(frozen=True, eq=False)
class BestOf(Search):
    """A certified search: only the best of a random, secret number of trials is released.

    Parameters
    ----------
    ask : the guarantee of the whole search.
    relation, unit : the neighbours.
    distribution, mean_trials : of the number of trials.
    scale : the noise multiplier of the Gaussian release that a trial is worth.

    **Privacy.** A record, or a person with all records, is in the training or in the validation part, so a
    trial is one Gaussian release of multiplier ``scale``, and their best costs little more than one of them
    (Papernot and Steinke 2022). What is fitted inside a trial is admitted by its :class:`Enclosure` before it
    is released. The run time tells the number of trials; do not show it to those the search is to be private
    against.
    """

    distribution: str = "geometric"
    mean_trials: float = 1.0

    @classmethod
    def made(
        cls,
        ask: Ask,
        relation: Relation,
        distribution: str,
        mean_trials: float,
        fits: int = 1,
        members: int = 1,
        unit: str = "record",
    ) -> Self:
        if distribution not in SHAPES:
            raise InvalidInputError(f"Expected distribution in {sorted(SHAPES)}, got {distribution!r}.")

        def event_at(scale: float) -> dp.DpEvent:
            trial = gaussian_event(scale, relation)
            return dp.RepeatAndSelectDpEvent(trial, mean_trials, SHAPES[distribution])

        how = {"distribution": distribution, "mean_trials": mean_trials}
        return cls._calibrate(ask, relation, event_at, fits=fits, members=members, unit=unit, **how)

    @property
    def said(self) -> str:
        return (
            f"best of a random number of trials ({self.distribution}, {self.mean_trials:g} expected); the "
            "number of trials and all but the best are secret, and so is the run time, which tells it"
        )

    @property
    def tried(self) -> float:
        return self.mean_trials

    def _drawn(self) -> Sequence[int]:
        """Return a secret number of fits, each drawn from all of them."""
        count = self.noise.trials(float(self.mean_trials), SHAPES[self.distribution])
        if count == 0:
            raise SordinoError(
                "The drawn number of trials is 0, so there is nothing to release; the budget is spent. "
                "Use distribution='geometric', which always runs one, or a larger mean_trials."
            )
        return [int(number) for number in self.noise.integers(self.fits, count)]


def _foreign() -> UnsupportedError:
    return UnsupportedError(
        "Expected an estimator whose privacy_ is what it released in this thread. Use Sordino's own."
    )
