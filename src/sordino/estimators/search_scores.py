"""Scores of single records in [0, 1], which a private search adds up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sordino.execute.grouped import mean_of_owners
from sordino.kernel.arrays import Floats

CLASSIFYING = ("accuracy", "neg_log_loss")
REGRESSING = ("neg_mean_squared_error", "neg_mean_absolute_error")
LOG_LOSS_BOUND = 4.0


@dataclass(frozen=True)
class Scorer:
    """One score per record, 1 for the best; ``natural`` returns their mean in the units of its name.

    Errors count up to ``bound``. Without a name a regressor is scored by ``1 - min(1, (error / bound)^2)``.
    """

    name: str | None
    bound: float

    def of(self, model: Any, X: Any, y: Any, owners: Any = None) -> Floats:
        """Return the score of each record, or the mean score of each owner; the release clips it to [0, 1].

        The scores of an owner's records are clipped before their mean, so that each has its share.
        """
        scores = self._of_records(model, X, y)
        if owners is None:
            return scores
        return mean_of_owners(np.clip(np.nan_to_num(scores, nan=0.0), 0.0, 1.0)[:, None], owners)[:, 0]

    def _of_records(self, model: Any, X: Any, y: Any) -> Floats:
        if self.name == "neg_log_loss":
            return self._log_loss(model, X, y)
        predicted = model.predict(X)
        if self.name == "accuracy":
            return np.asarray(predicted == y, dtype=float)
        away = np.abs((np.asarray(predicted, dtype=float) - y) / self.bound)
        return 1.0 - (away if self.name == "neg_mean_absolute_error" else away**2)

    def natural(self, score: float) -> float:
        """Return a mean score in the units of its name."""
        if self.name in (None, "accuracy"):
            return score
        if self.name == "neg_log_loss":
            return (score - 1.0) * LOG_LOSS_BOUND
        return (score - 1.0) * (self.bound if self.name == "neg_mean_absolute_error" else self.bound**2)

    @staticmethod
    def _log_loss(model: Any, X: Any, y: Any) -> Floats:
        chances, numbers = model.predict_proba(X), {c: i for i, c in enumerate(model.classes_.tolist())}
        codes = np.array([numbers.get(label, -1) for label in y.tolist()])
        own = np.where(codes >= 0, chances[np.arange(len(codes)), codes], 0.0)
        with np.errstate(divide="ignore"):
            return 1.0 + np.log(own) / LOG_LOSS_BOUND


def rows_of(X: Any, rows: Any) -> Any:
    """Return some rows of an array, a sparse matrix or a data frame."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def as_numbers(y: Any) -> Floats:
    """Return targets as finite doubles; the caller refuses what raises."""
    if y.dtype.kind not in "biufO":
        raise TypeError("could not convert")
    out = y.astype(float)
    if not np.isfinite(out).all():
        raise ValueError("y contains infinity")
    return out
