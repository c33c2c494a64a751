"""Notice when scikit-learn fits a private estimator again and again on the same records."""

from __future__ import annotations

import re
import sys
import warnings
from types import FrameType

from sordino.errors import PrivacyWarning

_SEARCH, _FOLDS = "sklearn.model_selection._search", "sklearn.model_selection._validation"
# Meta-estimators that fit more than one model on the same records, and may keep only some of them.
_WRAPPERS = (
    "sklearn.calibration",
    "sklearn.ensemble.",
    "sklearn.feature_selection._rfe",
    "sklearn.multiclass",
    "sklearn.multioutput",
    "sklearn.semi_supervised.",
)


def search_notes() -> tuple[str, ...]:
    """Return what the report must say about a surrounding search, and warn about it.

    A plain search or cross-validation runs one fit for each fold and candidate. Each is private on its
    own; what is seen of all of them together costs their sum.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module == _FOLDS:
            _warn("one of several fits of a scikit-learn search or cross-validation")
            return ("one of several fits on the same records: their epsilons add up",)
        if module.startswith(_WRAPPERS):
            _warn(f"one of those that a scikit-learn wrapper makes ({module})", _ADD_UP)
            return (f"one of the fits that {module} makes on the same records: their epsilons add up",)
        if module == _SEARCH and frame.f_code.co_name == "fit":
            return (_refit_note(frame),)
        frame = frame.f_back
    return ()


def _refit_note(frame: FrameType) -> str:
    results = getattr(frame.f_locals.get("self"), "cv_results_", None) or frame.f_locals.get("results") or {}
    folds = sum(re.fullmatch(r"split\d+_test_score", key) is not None for key in results)
    fits = len(results.get("params", ())) * folds
    _warn("the refit of a scikit-learn search")
    return (
        f"chosen by a search that is not private by itself: {fits} other fits on the same records; the "
        f"epsilon of the whole is the sum over folds and candidates, {fits + 1} fits. Use PrivateSearchCV."
    )


_SUM = (
    "the epsilon of the whole is the sum over folds and candidates. Use sordino.PrivateSearchCV for a search "
    "with one epsilon."
)
_ADD_UP = (
    "the epsilon of the whole is the sum over all of them, also those that it does not keep. A ledger "
    "counts them."
)


def _warn(what: str, remedy: str = _SUM) -> None:
    warnings.warn(f"This fit is {what}: {remedy}", PrivacyWarning, stacklevel=5)
