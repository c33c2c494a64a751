"""The coefficients of a private sparse model with the noise they carry."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sordino.errors import InvalidInputError


def plot_coefficients(model: Any, top: int = 30, axes: Any = None) -> Any:
    """Draw the largest coefficients with a band of two noise standard deviations around zero.

    A coefficient inside its band could be noise alone. Only released numbers are drawn.

    Parameters
    ----------
    model : a fitted sparse estimator with one output.
    top : how many coefficients.
    axes : a matplotlib axes; None makes a figure.
    """
    check_is_fitted(model)
    coef = np.atleast_2d(model.coef_)
    if len(coef) != 1:
        raise InvalidInputError(f"Expected a model with one row of coefficients, got {len(coef)}.")
    coef = coef[0]
    order = np.argsort(-np.abs(coef), kind="stable")[: min(top, np.count_nonzero(coef))][::-1]
    names = getattr(model, "feature_names_in_", None)
    labels = [f"x{i}" if names is None else str(names[i]) for i in order]
    axes = _new_axes(len(order)) if axes is None else axes
    where = np.arange(len(order))
    axes.plot(coef[order], where, "o", color="tab:blue", label="coefficient")
    noise = getattr(model, "coef_noise_", None)
    if noise is not None:
        axes.barh(where, 4 * noise[order], left=-2 * noise[order], color="0.88", label="noise, two sigma")
    axes.axvline(0, color="0.6", linewidth=0.8)
    axes.set_yticks(where, labels)
    axes.set_xlabel(f"coefficient (epsilon = {model.privacy_.epsilon:.3g})")
    axes.legend()
    return axes


def _new_axes(rows: int) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(6, 1.2 + 0.24 * rows)).subplots()
