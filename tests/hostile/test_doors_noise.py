"""The stated noise of coefficients is what repeated fits show, on tables too (issue 25, item 17)."""

import numpy as np
import pytest

from sordino import LinearRegression, LogisticRegression
from sordino.testing import seeded_noise_not_private

FITS = 16


def table(n):
    """Return numbers, a constant, and dummies of all levels of three categories, two of each never seen."""
    public = np.random.default_rng(1)
    numbers = np.clip(0.5 + public.normal(size=(n, 3)) * [0.2, 0.3, 0.25], 0.0, 1.0)
    dummies = []
    for levels, share in ((5, 0.3), (9, 0.4), (14, 0.2)):
        level = np.minimum(public.geometric(share, size=n) - 1, levels - 3)
        dummies.append((level[:, None] == np.arange(levels)).astype(float))
    X = np.hstack([numbers, np.full((n, 1), 0.7), *dummies])
    s = X @ (0.6 * public.normal(size=X.shape[1]))
    return public, X, s - s.mean()


def fits(kind, n):
    public, X, s = table(n)
    if kind == "labels":
        model = LogisticRegression(1.0, 1e-6, data_norm=np.sqrt(8.0))
        y = (public.random(n) < 1.0 / (1.0 + np.exp(-1.5 * s))).astype(int)
    else:
        model = LinearRegression(1.0, 1e-6, data_norm=np.sqrt(8.0), target_bound=4.0)
        y = np.clip(s + 0.5 * public.normal(size=n), -4.0, 4.0)
    found, stated = [], []
    for seed in range(FITS):
        with seeded_noise_not_private(seed):
            model.fit(X, y)
        found.append(model.coef_.ravel())
        stated.append(np.ravel(model.coef_noise_))
    return X, np.array(found), np.array(stated)


@pytest.mark.parametrize("n", [5000, 30_000])
@pytest.mark.parametrize("kind", ["numbers", "labels"])
def test_door_17_the_stated_noise_of_the_columns_of_a_table_is_true(kind, n):
    X, found, stated = fits(kind, n)
    flat = np.ptp(X, axis=0) == 0
    ratio = np.std(found, axis=0, ddof=1) / np.sqrt(np.square(stated).mean(axis=0))
    assert 0.5 < np.median(ratio[~flat]) < 1.25  # it was 1.5 to 3.5
    assert ratio[~flat].max() < 1.6
    assert np.mean(np.abs(found) > 2.0 * stated, axis=0)[flat].mean() < 0.13  # of noise about 0.05
