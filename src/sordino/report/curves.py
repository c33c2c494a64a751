"""Plots of private scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from sordino.estimators.metric_curves import CalibrationCurve
from sordino.report.style import BLUE, GREY, new_axes


def calibration_plot(curve: CalibrationCurve, ax: Any = None) -> Any:
    """Draw seen against said chances, with their intervals.

    Parameters
    ----------
    curve : what :func:`sordino.private_score` returns for ``metric="calibration"``.
    ax : Matplotlib axes; None makes a new figure.
    """
    ax = new_axes(4.5, 4.2) if ax is None else ax
    there = np.isfinite(curve.observed)
    low = np.maximum(curve.observed - curve.low, 0.0)[there]
    high = np.maximum(curve.high - curve.observed, 0.0)[there]
    ax.plot([0, 1], [0, 1], color=GREY, linestyle=":", label="calibrated")
    ax.errorbar(
        curve.predicted[there],
        curve.observed[there],
        yerr=[low, high],
        fmt="o",
        color=BLUE,
        capsize=2,
        label=f"seen, {curve.confidence:.0%} intervals",
    )
    ax.set(xlabel="said chance", ylabel="seen share", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    ax.legend()
    return ax
