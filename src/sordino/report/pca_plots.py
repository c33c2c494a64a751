"""Plots of private PCA; everything drawn was released."""

from __future__ import annotations

from typing import Any

import numpy as np

from sordino.estimators.pca import PCA
from sordino.report.style import BAND, BLUE, new_axes


def scree_plot(pca: PCA, ax: Any = None, deviations: float = 2.0) -> Any:
    """Draw the released eigenvalues, and what the axes capture with its uncertainty.

    The grey area is what noise alone would show: an eigenvalue inside it says nothing. The band is
    ``deviations`` standard deviations about the captured variance.

    Parameters
    ----------
    pca : a fitted :class:`sordino.PCA`.
    ax : Matplotlib axes; None makes a new figure, which is then the current one.
    deviations : the half width of the band.

    **Privacy.** Only attributes of the fitted model are read, so the plot is as private as the model.
    """
    ax = new_axes() if ax is None else ax
    values = np.asarray(pca.noisy_eigenvalues_)
    number = np.arange(1, values.size + 1)
    ax.axhspan(0.0, pca.noise_edge_, color=BAND, label="noise alone")
    ax.plot(number, values, ".-", color=BLUE, label="released eigenvalue")
    kept, captured = np.arange(1, pca.n_components_ + 1), pca.explained_variance_
    width = deviations * pca.eigenvalue_noise_[: kept.size]
    band = {"color": BLUE, "alpha": 0.25, "linewidth": 0, "label": f"captured ± {deviations:g} sd"}
    ax.fill_between(kept, captured - width, captured + width, **band)
    ax.plot(kept, captured, "k_", label="captured variance")
    ax.set(xlabel="axis", ylabel="variance")
    ax.legend()
    return ax
