"""Notice when a call of somebody else fits a private estimator again and again on the same records."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any

from sordino.errors import PrivacyWarning
from sordino.runs.enclosure import enclosing

_SEARCH, _FOLDS = "sklearn.model_selection._search", "sklearn.model_selection._validation"
# They hand each record to each of their steps once, and keep all of them: `pipeline_privacy` adds them up.
_CONTAINERS = ("Pipeline", "FeatureUnion", "ColumnTransformer")
_COUNT = "__fits_of_private_estimators"
_SUM = (
    "the epsilon of the whole is the sum over folds and candidates. Use sordino.PrivateSearchCV for a search "
    "with one epsilon."
)
_ADD_UP = (
    "the epsilon of the whole is the sum over all of them, also those that it does not keep. A ledger "
    "counts them."
)


def search_notes() -> tuple[str, ...]:
    """Return what the report must say about the calls around a promise that is being made, and warn.

    A plain search or cross-validation runs one fit for each fold and candidate; many other estimators fit
    what they wrap several times. Each fit is private on its own; what is seen of all of them costs their sum.
    They are found by counting: the second promise that one kind of estimator makes inside of one call of
    ``fit`` of another estimator, whoever wrote that, is a fit on the same records.

    **Privacy.** Inside a trial of a private search nothing is said, for the number of trials is secret.
    """
    frames = list(_frames())
    if enclosing() is not None:
        return ()
    for frame in frames:
        module = frame.f_globals.get("__name__", "")
        if module == _FOLDS:  # known even where each fold has a process of its own
            _warn(frames, "one of several fits of a scikit-learn search or cross-validation", _SUM)
            return ("one of several fits on the same records: their epsilons add up",)
        if module == _SEARCH and frame.f_code.co_name == "fit":
            return (_refit_note(frames, frame),)
    wrapper = _refitting(frames)
    if wrapper is None:
        return ()
    _warn(frames, f"one of several that the wrapper {wrapper} makes", _ADD_UP)
    return (f"one of several fits that {wrapper} makes on the same records: their epsilons add up",)


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _refitting(frames: list[FrameType]) -> str | None:
    """Count this promise in the outermost fit of a foreign estimator; return its name from the second on.

    The count is kept in the frame of that call, and so ends with it.
    """
    fits = [(frame, _fitted_in(frame)) for frame in frames]
    own = next((model for _, model in fits if model is not None and _is_ours(model)), None)
    others = [(frame, model) for frame, model in fits if model is not None and not _is_ours(model)]
    if own is None or not others:
        return None
    frame, outer = others[-1]
    counts = frame.f_locals.setdefault(_COUNT, {})
    counts[type(own)] = counts.get(type(own), 0) + 1
    return type(outer).__name__ if counts[type(own)] > 1 else None


def _fitted_in(frame: FrameType) -> Any:
    """Return the estimator that is being fitted by a call; None for calls of other kinds."""
    model = frame.f_locals.get("self") if "fit" in frame.f_code.co_name else None
    known = hasattr(model, "get_params") and not isinstance(model, type)
    return model if known and type(model).__name__ not in _CONTAINERS else None


def _is_ours(model: Any) -> bool:
    return type(model).__module__.startswith("sordino.")


def _refit_note(frames: list[FrameType], frame: FrameType) -> str:
    results = getattr(frame.f_locals.get("self"), "cv_results_", None) or frame.f_locals.get("results") or {}
    folds = sum(re.fullmatch(r"split\d+_test_score", key) is not None for key in results)
    fits = len(results.get("params", ())) * folds
    _warn(frames, "the refit of a scikit-learn search", _SUM)
    return (
        f"chosen by a search that is not private by itself: {fits} other fits on the same records; the "
        f"epsilon of the whole is the sum over folds and candidates, {fits + 1} fits. Use PrivateSearchCV."
    )


def _warn(frames: list[FrameType], what: str, remedy: str) -> None:
    modules = [frame.f_globals.get("__name__", "") for frame in frames]
    inside = next((i for i, name in enumerate(modules) if not name.startswith("sordino.")), 0)
    warnings.warn(f"This fit is {what}: {remedy}", PrivacyWarning, stacklevel=inside + 2)
