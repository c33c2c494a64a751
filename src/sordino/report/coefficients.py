"""The coefficients of a private sparse model with the noise they carry."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sordino.errors import InvalidInputError
from sordino.report.style import BAND, BLUE, GREY, new_axes
from sordino.runs.meaning import at_most


def plot_coefficients(model: Any, top: int = 30, axes: Any = None) -> Any:
    """Draw the largest coefficients with a band of two noise standard deviations around zero.

    A coefficient inside its band could be noise alone. Only released numbers are drawn.

    Parameters
    ----------
    model : a fitted sparse estimator with one output.
    top : how many coefficients.
    axes : a matplotlib axes; None makes a new figure, which is then the current one.
    """
    check_is_fitted(model)
    coef = np.atleast_2d(model.coef_)
    if len(coef) != 1:
        raise InvalidInputError(f"Expected a model with one row of coefficients, got {len(coef)}.")
    coef = coef[0]
    order = np.argsort(-np.abs(coef), kind="stable")[: min(top, np.count_nonzero(coef))][::-1]
    names = getattr(model, "coef_names_", getattr(model, "feature_names_in_", None))
    labels = [f"x{i}" if names is None else str(names[i]) for i in order]
    axes = new_axes(6.0, 1.2 + 0.24 * len(order)) if axes is None else axes
    where = np.arange(len(order))
    axes.plot(coef[order], where, "o", color=BLUE, label="coefficient")
    noise = getattr(model, "coef_noise_", None)
    if noise is not None:
        noise = np.atleast_2d(noise)[0]
        axes.barh(where, 4 * noise[order], left=-2 * noise[order], color=BAND, label="noise, two sigma")
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set_yticks(where, labels)
    axes.set_xlabel(f"coefficient (epsilon = {at_most(model.privacy_.epsilon, 3)})")
    axes.legend()
    return axes
