"""Numbers that remember what they cost."""

from __future__ import annotations

from typing import Any

import numpy as np

from sordino.runs import PrivacyReport


class PrivateFloat(float):
    """A released number: a float with ``privacy`` (the report), ``interval`` and ``threshold``."""

    privacy: PrivacyReport
    interval: tuple[float, float]
    threshold: float | None

    def __new__(
        cls,
        value: float,
        privacy: PrivacyReport,
        interval: tuple[float, float],
        threshold: float | None = None,
    ) -> PrivateFloat:
        """Attach what is known about the number."""
        out = super().__new__(cls, value)
        out.privacy, out.interval, out.threshold = privacy, interval, threshold
        return out

    def __getnewargs__(self) -> tuple[Any, ...]:
        return float(self), self.privacy, self.interval, self.threshold


class PrivateArray(np.ndarray):
    """Released numbers: an array with ``privacy``, ``interval`` (two arrays) and ``threshold``.

    What is computed from it is a plain array of released numbers without these attributes (they are None).
    """

    privacy: PrivacyReport | None
    interval: tuple[np.ndarray, np.ndarray] | None
    threshold: np.ndarray | None

    def __new__(
        cls,
        value: np.ndarray,
        privacy: PrivacyReport,
        interval: tuple[np.ndarray, np.ndarray],
        threshold: np.ndarray | None = None,
    ) -> PrivateArray:
        """Attach what is known about the numbers."""
        out = np.array(value, dtype=float).view(cls)
        out.privacy, out.interval, out.threshold = privacy, interval, threshold
        return out

    def __array_finalize__(self, source: Any) -> None:
        self.privacy = self.interval = self.threshold = None

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (np.asarray(self), self.privacy, self.interval, self.threshold)
        return PrivateArray, parts
