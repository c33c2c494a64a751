"""What training by noisy gradients of mini-batches costs, in the words of those who run it: DP-SGD."""

from __future__ import annotations

from dataclasses import dataclass

from sordino.accounting import Certificate, calibrate, certify, default_delta
from sordino.accounting.risk import Risk, calibrate_to_risk
from sordino.errors import InvalidInputError
from sordino.kernel import Plan, Relation, Release
from sordino.problems.losses import LOSSES
from sordino.problems.queries import GlmGradient
from sordino.runs.correlation import Choice, choices, least_error
from sordino.values import check_range


@dataclass(frozen=True)
class Training:
    """``steps`` noisy sums of clipped gradients, each over a Poisson batch of ``batch_size`` records.

    Parameters
    ----------
    rows : the number of records, which is public.
    batch_size : the expected number of records in a batch; ``rows`` takes all of them.
    steps : how many batches.
    delta : None means ``min(1e-5, 1 / (10 rows))``.
    relation : ``"add-remove"`` or ``"replace-one"``.
    noise : ``"independent"``, or correlated over the steps: ``"banded"``, ``"blt"`` or ``"regenerated"``.
        Then its multiplier is in units of what one record can change in the whole training.

    **Privacy.** Plans and prices only; nothing is read and nothing is released.
    """

    rows: int
    batch_size: float
    steps: int
    delta: float | None = None
    relation: str = "add-remove"
    noise: str = "independent"

    def __post_init__(self) -> None:
        if self.rows < 1 or self.steps < 1 or not 0 < self.batch_size <= self.rows:
            raise InvalidInputError(
                "Expected rows >= 1, steps >= 1 and a batch size in (0, rows], got "
                f"{self.rows}, {self.steps} and {self.batch_size:g}."
            )
        if self.delta is not None:
            check_range("delta", self.delta, "(0, 1)", "It is a probability.")

    def epsilon(self, noise_multiplier: float) -> Certificate:
        """Return what noise with a deviation of ``noise_multiplier`` times the clipping norm proves."""
        if not 0 < noise_multiplier < float("inf"):
            raise InvalidInputError(f"Expected a noise multiplier > 0, got {noise_multiplier:g}.")
        if self.noise == "banded":
            raise InvalidInputError(
                "Expected an epsilon, got the multiplier of banded noise, whose bands follow from epsilon. "
                "Ask for the noise instead (sordino account noise --epsilon)."
            )
        plan = self._plan(next(choices(self.noise, self.rows, self.batch_size, self.steps)))
        # Ours is in units of the sensitivity, which is twice the clipping norm under replace-one.
        return self._certify(plan.at(noise_multiplier / plan.relation.contributions))

    def least_noise(self, epsilon: float | Risk) -> tuple[float, Certificate]:
        """Return the least noise multiplier that keeps ``epsilon`` (or a risk), and what it proves."""
        if isinstance(epsilon, Risk):
            plan = self._plan(self.chosen(epsilon.epsilon(self._delta())))
            plan = calibrate_to_risk(plan, epsilon, self._delta())
        else:
            plan = calibrate(self._plan(self.chosen(epsilon)), epsilon, self._delta())
        return _multiplier(plan) * plan.relation.contributions, self._certify(plan)

    def chosen(self, epsilon: float) -> Choice:
        """Return noise and batches of the least error for an epsilon."""

        def multiplier(choice: Choice) -> float:
            return _multiplier(calibrate(self._plan(choice), epsilon, self._delta()))

        return least_error(self.noise, self.rows, self.batch_size, self.steps, multiplier)

    def _certify(self, plan: Plan) -> Certificate:
        return certify(plan.event(), self._delta(), plan.relation)

    def _delta(self) -> float:
        return default_delta(self.rows) if self.delta is None else self.delta

    def _plan(self, choice: Choice) -> Plan:
        query = GlmGradient(LOSSES["logistic"], 1.0)
        release = Release(query, choice.mechanism, choice.sampling, self.steps)
        return Plan({"gradient": release}, Relation.parse(self.relation), self.rows)


def _multiplier(plan: Plan) -> float:
    multiplier = plan.releases["gradient"].mechanism.multiplier
    assert multiplier is not None
    return float(multiplier)
