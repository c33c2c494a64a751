"""Claim 9: a search dropped what its trials assume, had no table of releases, and warned once per trial."""

import warnings

import numpy as np

import sordino
from sordino.testing import seeded_noise_not_private


class Noisy(sordino.SparseLogisticRegression):
    """A model that warns and prints whenever it is fitted."""

    def fit(self, X, y):
        warnings.warn("fitted", UserWarning, stacklevel=2)
        if self.verbose:
            print("fitted")
        return super().fit(X, y)


def fitted(seed, capsys):
    public = np.random.default_rng(0)
    X = public.normal(size=(600, 4)) / 4
    model = Noisy(data_norm=0.7, verbose=1)
    search = sordino.PrivateSearchCV(model, {"n_nonzero_coefs": [1, 2]}, epsilon=2.0, delta=1e-6)
    with seeded_noise_not_private(seed), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        search.fit(X, X[:, 0] > 0)
    return search, len(seen), capsys.readouterr().out


def test_the_report_says_what_the_trials_assume_and_release(capsys):
    search, _, _ = fitted(3, capsys)
    said = " ".join(search.privacy_.public)
    assert "class labels" in said
    assert "data_norm = 0.7" in said
    assert len(search.privacy_.releases) > 1
    assert search.privacy_.releases[-1].name == "score"


def test_warnings_and_output_do_not_tell_the_number_of_trials(capsys):
    seen = {fitted(seed, capsys)[1:] for seed in range(4)}
    assert seen == {(0, "")}
