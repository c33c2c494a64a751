"""How often each class is: the constant model of labels, and where a descent on log odds starts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.kernel import ClippedSum, Relation
from sordino.kernel.arrays import Floats
from sordino.kernel.contracts import Records

# The grid of log odds on which the share of a class is guessed, and the noise, in shares of equal classes, at
# which half of what was seen is believed.
_FARTHEST, _POINTS, _LOUD = 12.0, 961, 1.0


@dataclass(frozen=True)
class ClassSums(ClippedSum):
    r"""``sum_i a_i (e_{y_i} - 1 / K)``: by how much each of K classes is more frequent than 1 / K.

    ``outputs`` is K, or 1 for two classes with the targets -1 and 1. ``a_i`` is the weight of a record, at
    most one. A target that is no class adds zero.

    **Privacy.** ``||e_y - 1 / K||^2 = 1 - 1 / K``. Replacing a record by one of another class moves the sum
    by a vector of the squared norm ``(a^2 + b^2) (1 - 1 / K) + 2 a b / K <= 2``.
    """

    needs: ClassVar[tuple[type, ...]] = (Records,)

    outputs: int

    @property
    def classes(self) -> int:
        """K."""
        return max(self.outputs, 2)

    def contribution(self, params: Any) -> float:
        """Return the norm of a centred indicator."""
        return math.sqrt(1.0 - 1.0 / self.classes)

    def sensitivity(self, relation: Relation, params: Any) -> float:
        """Return the norm of a centred indicator, or sqrt 2 for a replaced record."""
        return math.sqrt(2.0) if relation.contributions == 2 else self.contribution(params)

    def evaluate(self, records: Records, params: Any) -> Floats:
        """Return the sums, one for each class."""
        y = np.asarray(records.targets, dtype=float)
        label = np.where(y == -1.0, 0.0, y) if self.outputs == 1 else y
        known = np.isin(label, np.arange(self.classes))
        weights = None
        if records.weights is not None:
            weights = np.clip(np.nan_to_num(np.asarray(records.weights, dtype=float)), 0.0, 1.0)[known]
        counts = np.bincount(label[known].astype(int), weights, minlength=self.classes).astype(float)
        return counts - counts.sum() / self.classes


def log_shares(means: Floats, noise: float) -> Any:
    """Return the log odds of the constant model from released mean :class:`ClassSums`.

    ``noise`` is the standard deviation of each mean. A share is the mean of what is expected of it: Jeffreys'
    law before, and normal noise. Where the noise is large, classes count as alike. For two classes there is
    one number, for more one for each class, with the mean zero.
    Free: it reads released numbers only.
    """
    heard = 1.0 / (1.0 + (noise * means.size / _LOUD) ** 4)
    if means.size == 2:
        share = _expected(0.5 + 0.5 * (means[1] - means[0]), noise * math.sqrt(0.5), 2)
        return heard * math.log(share / (1.0 - share))
    logs = np.log([_expected(1.0 / means.size + m, noise, means.size) for m in means])
    return heard * (logs - logs.mean())


def _expected(seen: float, noise: float, classes: int) -> float:
    """Return the mean of the share of one of so many classes that was seen with normal noise."""
    odds = np.linspace(-_FARTHEST, _FARTHEST, _POINTS)
    share = 1.0 / (1.0 + np.exp(-odds))
    law = 0.5 * (np.log(share) + (classes - 1) * np.log1p(-share))
    law = law - 0.5 * np.square((seen - share) / max(noise, 1e-6))
    weights = np.exp(law - law.max())
    return float(weights @ share / weights.sum())
