"""The sets that come with scikit-learn are scaled by declared bounds."""

import numpy as np
import pytest

from sordino.datasets import load_breast_cancer, load_digits


def test_digits_are_divided_by_their_range():
    bunch = load_digits()
    assert bunch.shape == (1797, 64)
    assert (bunch.data.min(), bunch.data.max()) == (0, 1)
    assert bunch.target_names == [str(digit) for digit in range(10)]


def test_high_digits_are_those_from_five_on():
    digit, high = load_digits().target, load_digits(target="high").target
    assert ((digit >= 5) == (high == 1)).all()


def test_breast_cancer_lies_between_zero_and_one_and_is_hardly_clipped():
    bunch = load_breast_cancer()
    assert bunch.shape == (569, 30)
    assert len(bunch.feature_names) == 30
    assert bunch.data.min() >= 0
    assert 0.5 < bunch.data.max() <= 1
    assert (bunch.data == 1).mean() < 1e-3
    assert bunch.target_names == ["malignant", "benign"]


@pytest.mark.parametrize("load", [load_digits, load_breast_cancer])
def test_unit_rows_and_papers(load):
    data, target = load(unit=True, return_X_y=True)
    np.testing.assert_allclose(np.linalg.norm(data, axis=1), 1)
    bunch = load()
    assert len(target) == len(bunch.target)
    for key in ("DESCR", "licence", "citation", "source"):
        assert len(bunch[key]) > 10
