"""The figure of the PCA page: distance to the non-private subspace against epsilon, and a scree plot.

Command: python docs/figures/pca.py   (starting points and noise seeded 0..4, not private)
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.preprocessing import normalize

from sordino import PCA
from sordino.report.plots import log_axis, scree_plot, style_axes
from sordino.testing import seeded_noise_not_private

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
SOLVERS = ("gauss", "mod-sulq", "power", "spca", "vrpca", "oja")
AXES = 3
OUT = Path(__file__).parents[1] / "images" / "pca.png"


def distance(axes, best):
    """Return the Frobenius distance of two projections, 0 for equal and 1 for orthogonal subspaces."""
    return np.sqrt(max(0.0, 1 - np.square(axes @ best.T).sum() / len(axes)))


def textbook(rows, epsilon, seed):
    """Return the axes of independent noise on rows of norm 1, centred by a mean that nobody paid for."""
    from sordino.accounting import gaussian_multiplier

    d, public = rows.shape[1], np.random.default_rng(seed)
    noise = np.triu(public.normal(size=(d, d))) * gaussian_multiplier(epsilon, 1e-5) / len(rows)
    return np.linalg.eigh(np.cov(rows.T) + noise + np.triu(noise, 1).T)[1][:, -AXES:].T


def main():
    rows = normalize(load_digits().data)
    best = np.linalg.eigh(np.cov(rows.T))[1][:, -AXES:].T
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = (style_axes(axes) for axes in figure.subplots(1, 2))
    lines = {s: [] for s in ("textbook", *SOLVERS)}
    for epsilon in EPSILONS:
        for name, line in lines.items():
            found = []
            for seed in range(5):
                if name == "textbook":
                    axes = textbook(rows, epsilon, seed)
                else:
                    model = PCA(
                        AXES, epsilon=epsilon, delta=1e-5, solver=name, data_norm=1.0, random_state=seed
                    )
                    with seeded_noise_not_private(seed):
                        axes = model.fit(rows).components_
                found.append(distance(axes, best))
            line.append(np.mean(found))
    for name, line in lines.items():
        style = {"textbook": "k--", "gauss": "o-"}.get(name, ".-")
        left.plot(EPSILONS, line, style, label=name + (" = auto" if name == "gauss" else ""))
    log_axis(left, at=EPSILONS)
    left.set(xlabel="epsilon (delta 1e-5)", ylabel="distance of subspaces", ylim=(0, 1))
    left.set_title(f"digits 1,797 x 64, centred, k = {AXES}")
    left.legend()
    with seeded_noise_not_private(0):
        model = PCA(20, epsilon=1.0, delta=1e-5, data_norm=1.0).fit(rows)
    scree_plot(model, right).set_title("scree plot at epsilon 1")
    OUT.parent.mkdir(exist_ok=True)
    figure.savefig(OUT, dpi=100)


if __name__ == "__main__":
    main()
