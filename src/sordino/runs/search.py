"""The best of a secret number of trials: one promise for a whole search."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from dp_accounting import dp_event as dp

from sordino.accounting import Certificate, certify, gaussian_epsilon, solve_scale
from sordino.errors import (
    CalibrationError,
    InvalidInputError,
    SordinoError,
    UndeclaredBoundWarning,
    UnsupportedError,
)
from sordino.execute import LocalExecutor
from sordino.kernel import ClippedSum, Curator, Full, Gaussian, Plan, Relation, Release
from sordino.kernel.arrays import Floats
from sordino.kernel.contracts import RecordSums
from sordino.kernel.events import gaussian_event
from sordino.kernel.noise import NoiseSource, fresh_noise
from sordino.ledger import Reservation
from sordino.runs.ask import Ask
from sordino.runs.enclosure import Enclosure, Rehearsal, Rehearsed
from sordino.runs.outer_search import search_notes
from sordino.runs.report import PrivacyReport

SHAPES = {"geometric": 1.0, "poisson": math.inf, "truncated-negative-binomial": 0.5}


@dataclass(frozen=True)
class ScoreSum(ClippedSum):
    """The sum of scores in [0, 1], one per record (or person) of the validation part, each counted from 1/2.

    **Privacy.** Each of them adds a number in [-1/2, 1/2] whatever it holds; a score that is not a number
    counts as 0. Leaving it out moves the sum by 1/2, replacing it by 1.
    """

    def contribution(self, params: Any) -> float:
        """Return 1/2."""
        return 0.5

    def evaluate(self, records: RecordSums, params: Any) -> Floats:
        """Return the sum."""
        scores = np.nan_to_num(np.asarray(records.targets, dtype=float), nan=0.0)
        return np.array([(np.clip(scores, 0.0, 1.0) - 0.5).sum()])


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

    def rehearsed(self, fit: Callable[[], Any]) -> None:
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

    def score(self, scores: Any) -> float:
        """Release the mean of one score per record, or person, of the validation part."""
        plan = Plan({"score": Release(ScoreSum(), Gaussian(), Full())}, self.relation, len(scores), self.unit)
        executor = LocalExecutor(np.zeros((len(scores), 1)), scores)
        curator = Curator(executor, plan.at(self.scale), self.noise)
        return 0.5 + float(curator.release("score")[0])


@dataclass(frozen=True, eq=False)
class BestOf:
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

    ask: Ask
    relation: Relation
    distribution: str
    mean_trials: float
    scale: float
    certificate: Certificate
    event: dp.DpEvent
    noise: NoiseSource = field(default_factory=fresh_noise, repr=False)
    unit: str = "record"
    notes: tuple[str, ...] = field(default_factory=search_notes, repr=False)

    @classmethod
    def made(
        cls, ask: Ask, relation: Relation, distribution: str, mean_trials: float, unit: str = "record"
    ) -> BestOf:
        """Calibrate the search and certify it now."""
        if distribution not in SHAPES:
            raise InvalidInputError(f"Expected distribution in {sorted(SHAPES)}, got {distribution!r}.")
        if math.isinf(ask.epsilon):
            raise InvalidInputError("Expected a finite epsilon for a private search, got inf.")

        def event_at(scale: float) -> dp.DpEvent:
            trial = gaussian_event(scale, relation)
            return dp.RepeatAndSelectDpEvent(trial, mean_trials, SHAPES[distribution])

        scale = solve_scale(event_at, ask.epsilon, ask.delta, relation)
        certificate = certify(event_at(scale), ask.delta, relation)
        if not certificate.epsilon <= ask.epsilon:
            raise CalibrationError(
                f"The search certifies epsilon = {certificate.epsilon:.4g}, asked for is {ask.epsilon:g}."
            )
        return cls(ask, relation, distribution, mean_trials, scale, certificate, event_at(scale), unit=unit)

    @property
    def trial(self) -> Trial:
        """What each trial may spend."""
        whole = Trial(0.0, self.ask.delta, self.scale, self.relation, self.noise, self.unit)
        return replace(whole, epsilon=whole.part(1.0))

    def run(self, trial: Callable[[Trial], tuple[float, Any]], description: str) -> tuple[float, Any]:
        """Book the search, then call ``trial`` a secret number of times and return the best result."""
        with self._reserved(description) or nullcontext():  # settled at the end, failed on an error
            return self._best(trial)

    def draw(self, candidates: int) -> int:
        """Return the number of the candidate of a trial."""
        return int(self.noise.integers(candidates, 1)[0])

    def report(
        self, best: PrivacyReport, public: tuple[str, ...], instead_of: tuple[str, ...] = ()
    ) -> PrivacyReport:
        """Return the guarantee of the search, with everything that the best trial's own rests on.

        ``instead_of`` are lines of the trial that are true for it and not for the search, which told it so.
        """
        if best.seeded != (not self.noise.is_private) or best.unpaid or best.unproven or best.copied:
            raise UnsupportedError(f"A search promises what its trials do; the best is {best.status!r}.")
        said = (
            f"best of a random number of trials ({self.distribution}, {self.mean_trials:g} expected); the "
            "number of trials and all but the best are secret, and so is the run time, which tells it",
        )
        score = Plan({"score": Release(ScoreSum(), Gaussian(), Full())}, self.relation, 1).at(self.scale)
        return PrivacyReport(
            epsilon=self.certificate.epsilon,
            delta=self.certificate.delta,
            relation=self.relation,
            unit=self.unit,
            accountant=self.certificate.accountant,
            event=self.event,
            releases=(*best.releases, *PrivacyReport.described(score)),
            public=tuple(dict.fromkeys((*public, *(p for p in best.public if p not in instead_of)))),
            noise_source=self.noise.description,
            seeded=not self.noise.is_private,
            notes=(*said, *self.notes, *best.notes),
            discretisation=self.certificate.discretisation,
            learned=self.ask.learned,
        )

    def _reserved(self, description: str) -> Reservation | None:
        ledger = self.ask.open_ledger()
        if ledger is None or self.ask.dataset_id is None:
            return None
        return ledger.reserve(
            self.ask.dataset_id,
            self.event,
            relation=self.relation,
            unit=self.unit,
            certificate=(self.certificate.epsilon, self.certificate.delta),
            description=description,
        )

    def _best(self, trial: Callable[[Trial], tuple[float, Any]]) -> tuple[float, Any]:
        count = self.noise.trials(float(self.mean_trials), SHAPES[self.distribution])
        if count == 0:
            raise SordinoError(
                "The drawn number of trials is 0, so there is nothing to release; the budget is spent. "
                "Use distribution='geometric', which always runs one, or a larger mean_trials."
            )
        budget = self.trial
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # their number would tell the number of trials
            return max((trial(budget) for _ in range(count)), key=lambda found: found[0])


def _foreign() -> UnsupportedError:
    return UnsupportedError(
        "Expected an estimator whose privacy_ is what it released in this thread. Use Sordino's own."
    )
