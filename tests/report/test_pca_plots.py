"""The private scree plot draws what was released and nothing else."""

import numpy as np

from sordino import PCA
from sordino.report.plots import scree_plot


def test_the_scree_plot_shows_the_released_values_with_their_noise():
    rows = np.random.default_rng(0).normal(size=(300, 6)) * [0.5, 0.3, 0.1, 0.1, 0.1, 0.1]
    pca = PCA(2, epsilon=4.0).fit(rows)
    ax = scree_plot(pca)
    released, captured = (line.get_ydata() for line in ax.lines)
    np.testing.assert_array_equal(released, pca.noisy_eigenvalues_)
    np.testing.assert_array_equal(captured, pca.explained_variance_)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert "noise alone" in labels
    assert scree_plot(pca, ax) is ax
