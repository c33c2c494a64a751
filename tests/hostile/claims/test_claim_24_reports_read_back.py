"""Claim 24: a report read from a text was believed: a noiseless one edited to .1 read "private"."""

import numpy as np
import pytest

import sordino
from sordino.errors import InvalidInputError


@pytest.fixture(scope="module")
def noiseless():
    rows = np.random.default_rng(0).normal(size=(300, 3)) / 3
    return sordino.PCA(2, epsilon=float("inf"), data_norm=1.0).fit(rows).privacy_


@pytest.mark.parametrize("edit", [{"epsilon": 0.1}, {"epsilon": -3.0}, {"delta": 7.0}, {"delta": 0.0}])
def test_an_edited_number_is_refused(noiseless, edit):
    with pytest.raises(InvalidInputError):
        sordino.PrivacyReport.from_dict({**noiseless.to_dict(), **edit})


def test_a_copy_never_says_private():
    rows = np.random.default_rng(0).normal(size=(300, 3)) / 3
    report = sordino.PCA(2, epsilon=1.0, data_norm=1.0).fit(rows).privacy_
    assert report.status == "private"
    copy = sordino.PrivacyReport.from_json(report.to_json())
    assert copy.status == "unverified copy"
    assert not copy.is_private
