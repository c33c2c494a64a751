"""Scores of step sizes: how low the objective gets along a released direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.kernel import FromSum, Norm, Relation
from sordino.kernel.arrays import Floats
from sordino.kernel.contracts import RecordSums
from sordino.problems.glm import check_clip, weighted
from sordino.problems.losses import Loss
from sordino.problems.penalties import Penalty


@dataclass(frozen=True)
class StepSizeScores(FromSum):
    r"""``-sum_i min(loss_i(w - a g), clip) - n penalty(w - a g)`` for each step size a.

    ``params = (w, g)``, both released. A record's loss is cut to [0, clip] and what is not a number counts
    as zero, so a record moves every score by at most ``clip``; an added one moves all of them down.

    **Privacy.** Sensitivity ``clip`` in the largest entry under both relations; monotone under add-remove.
    """

    needs: ClassVar[tuple[type, ...]] = (RecordSums,)

    loss: Loss
    clip: float
    steps: tuple[float, ...]
    penalties: tuple[Penalty, ...] = ()
    population: int = 1

    norm = Norm.LINF
    adds_up: ClassVar[bool] = False  # each answer holds the penalties

    def __post_init__(self) -> None:
        check_clip(self.clip)

    def contribution(self, params: Any) -> float:
        """Return how far one record moves a score."""
        return self.clip

    def sensitivity(self, relation: Relation, params: Any) -> float:
        """Return the clip: a loss in [0, clip] moves by no more when its record is replaced."""
        return self.clip

    def summed(self, records: RecordSums, params: tuple[Floats, Floats]) -> Floats:
        """Return the sums of losses; margins are linear in the step, so two products serve all of them."""
        w, g = params
        at_w, along = records.margins(w), records.margins(g)
        return np.array([-self._losses(records, at_w - a * along) for a in self.steps])

    def finished(self, total: Floats, params: tuple[Floats, Floats]) -> Floats:
        """Return the scores."""
        w, g = params
        penalties = [sum(p.value(w - a * g) for p in self.penalties) for a in self.steps]
        return total - self.population * np.array(penalties, dtype=float)

    def _losses(self, records: RecordSums, margins: Floats) -> float:
        with np.errstate(over="ignore", invalid="ignore"):
            losses = weighted(self.loss.value(margins, records.targets), records.weights)
        usable = np.isfinite(records.norms) & ~np.isnan(losses)
        return float(np.where(usable, np.clip(losses, 0.0, self.clip), 0.0).sum())
