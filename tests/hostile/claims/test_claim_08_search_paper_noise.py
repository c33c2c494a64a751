"""Claim 8: published noise inside a search ran trials at 3.46 where .41 was asked, reported as "private"."""

import numpy as np
import pytest

import sordino
from sordino.errors import UnsupportedError


def test_published_noise_is_refused_inside_a_private_search():
    public = np.random.default_rng(0)
    X = public.normal(size=(500, 4)) / 4
    model = sordino.SparseLogisticRegression(
        solver="ight", noise="paper", max_iter=5, data_norm=1.0, n_nonzero_coefs=2
    )
    search = sordino.PrivateSearchCV(model, {"fit_intercept": [True, False]}, epsilon=1.0, delta=1e-6)
    with pytest.raises(UnsupportedError, match="published noise"):
        search.fit(X, X[:, 0] > 0)
    assert not hasattr(search, "best_estimator_")
