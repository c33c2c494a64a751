"""What all estimators share: an address of a ledger that cannot be printed or pickled with its password."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator

from sordino.ledger.address import hidden
from sordino.refusals import refusing


class PrivateEstimator(BaseEstimator):
    """A scikit-learn estimator that keeps secrets out of its texts."""

    def __setattr__(self, name: str, value: Any) -> None:
        # Here and not in __init__: set_params and clone assign as well.
        super().__setattr__(name, hidden(value) if name == "ledger" else value)


class Scored:
    """Score as scikit-learn does, without a value of the data in any message."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the score of scikit-learn on these rows: an exact number, which is not private."""
        inherited: Any = super()
        return float(refusing(lambda: inherited.score(X, y, sample_weight), X, y, self))
