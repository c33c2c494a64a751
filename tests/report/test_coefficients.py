"""A reader of a private model sees which coefficients stand out of the noise."""

import numpy as np
import pytest

from sordino import SparseLogisticRegression
from sordino.errors import InvalidInputError
from sordino.report.plots import plot_coefficients
from sordino.testing import seeded_noise_not_private


def data(n=4000, d=40, seed=0):
    public = np.random.default_rng(seed)
    X = public.normal(size=(n, d)) / np.sqrt(d)
    return X, (X[:, 3] - X[:, 5] > 0).astype(int)


@pytest.mark.parametrize("count", [None, 10])
def test_the_declared_noise_of_a_coefficient_is_what_repeated_fits_show(count):
    X, _ = data()
    y = np.arange(4000) % 2  # no signal: coefficients are noise
    coefs, noises = [], []
    for seed in range(12):
        with seeded_noise_not_private(seed):
            model = SparseLogisticRegression(epsilon=0.5, delta=1e-6, n_nonzero_coefs=count).fit(X, y)
        kept = model.coef_[0] != 0
        coefs.append(model.coef_[0][kept])
        noises.append(model.coef_noise_[kept])
    seen, declared = np.concatenate(coefs).std(), np.sqrt(np.mean(np.square(np.concatenate(noises))))
    low = 0.5 if count is None else 0.7
    assert low < seen / declared < (1.4 if count is None else 3.0)  # selection keeps the largest noise


def test_the_plot_shows_the_largest_coefficients_and_their_band():
    X, y = data()
    model = SparseLogisticRegression(epsilon=4.0, n_nonzero_coefs=5).fit(X, y)
    axes = plot_coefficients(model, top=3)
    assert len(axes.patches) == 3
    assert {label.get_text() for label in axes.get_yticklabels()} <= {f"x{i}" for i in model.support_}
    assert "noise" in axes.get_legend().get_texts()[-1].get_text()


def test_several_outputs_are_refused():
    X, y = data()
    model = SparseLogisticRegression(epsilon=4.0).fit(X, y + (X[:, 0] > 0.2))
    with pytest.raises(InvalidInputError, match="one row"):
        plot_coefficients(model)
