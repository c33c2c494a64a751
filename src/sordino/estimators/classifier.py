"""What classifiers with one margin per class (or one for two classes) share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if

from sordino.checks import among
from sordino.elsewhere import where_rows_lie
from sordino.errors import UnsupportedError
from sordino.kernel.arrays import Floats, Ints
from sordino.private_estimator import Scored
from sordino.problems.losses import LOSSES, Loss
from sordino.runs.finish import LinearFit, label_targets
from sordino.tables.tabular import encoded_labels

_LOSSES = ("logistic", "squared_hinge")


@dataclass(frozen=True, eq=False)
class EncodedLabels:
    """Labels as numbers: ``codes`` count the classes, ``targets`` are what the loss wants."""

    codes: Ints
    targets: Floats
    loss: str
    outputs: int
    public: str


def _has_probabilities(estimator: Any) -> bool:
    return estimator.loss in _LOSSES and bool(estimator._loss().link == "logit")


class MarginClassifier(Scored, ClassifierMixin):
    """Labels in, classes and probabilities of margins out; a base class gives ``_decision``."""

    classes: Any
    fit_intercept: bool
    classes_: NDArray[Any]
    coef_: Floats
    intercept_: Floats
    loss: str = "logistic"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # a few dozen rows cannot be learnt from privately
        tags.classifier_tags.multi_class = _has_probabilities(self)
        return tags

    def _loss(self) -> Loss:
        """Return the loss for two classes, which knows its link."""
        among("loss", self.loss, _LOSSES)
        return LOSSES[self.loss.replace("_", "-")]

    if TYPE_CHECKING:

        def _decision(self, X: Any) -> Floats: ...

    def _encoded(self, y: Any) -> EncodedLabels:
        """Set ``classes_``; return the labels as numbers and the loss for so many classes."""
        loss = self._loss()
        codes, self.classes_, public = encoded_labels(self, y)
        if self.classes_.size == 2:
            return EncodedLabels(codes, label_targets(codes, 2), loss.name, 1, public)
        if loss.link != "logit":
            raise UnsupportedError(
                f"Only binary classification is supported by loss={self.loss!r}, got {self.classes_.size} "
                "classes. Use loss='logistic'."
            )
        several = self.classes_.size
        return EncodedLabels(codes, label_targets(codes, several), "multinomial", several, public)

    def _keep(self, found: LinearFit) -> None:
        self.coef_, self.intercept_ = np.atleast_2d(found.coef), np.atleast_1d(found.intercept)

    @where_rows_lie
    def decision_function(self, X: Any) -> Floats:
        """Return the margins of rows treated as in fit; one column per class for more than two."""
        scores = self._decision(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    @available_if(_has_probabilities)
    @where_rows_lie
    def predict_proba(self, X: Any) -> Floats:
        """Return the class probabilities; of the logistic loss only, others have none."""
        scores = self._decision(X)
        if scores.shape[1] > 1:
            return np.asarray(softmax(scores, axis=1))
        positive = expit(scores[:, 0])
        return np.stack([1 - positive, positive], axis=1)

    @available_if(_has_probabilities)
    @where_rows_lie
    def predict_log_proba(self, X: Any) -> Floats:
        """Return the logarithm of the class probabilities."""
        scores = self._decision(X)
        if scores.shape[1] > 1:
            return np.asarray(log_softmax(scores, axis=1))
        return np.stack([log_expit(-scores[:, 0]), log_expit(scores[:, 0])], axis=1)

    @where_rows_lie
    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most likely class."""
        scores = self._decision(X)
        best = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else np.argmax(scores, axis=1)
        return self.classes_[best]
