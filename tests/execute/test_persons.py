"""Persons whose ids are missing, infinite or too large to tell apart are refused."""

import numpy as np
import pytest

from sordino import SparseLogisticRegression
from sordino.errors import InvalidInputError
from sordino.execute import GroupedExecutor, LocalExecutor

X, y = np.eye(4), np.array([0, 1, 0, 1])
UNKNOWN = {
    "nan": [1.0, np.nan, np.nan, 2.0],
    "None": np.array(["a", None, None, "b"], dtype=object),
    "nan beside strings": ["a", float("nan"), "b", "c"],
    "NaT": np.array(["2020-01-01", "NaT", "NaT", "2020-01-02"], dtype="datetime64[D]"),
    "beyond 2^53": np.array([2.0**53, 2.0**53 + 2, 1.0, 2.0]),
    "at 2^53 in floating point beside a half": [2.0**53, 2**53 + 1, 0.5, 2],
    "spaces around a text": ["a", " a", "b", "c"],
    "beyond 2^24 in single precision": np.array([2.0**24 + 2, 1, 2, 3], dtype=np.float32),
    "infinite": [1.0, np.inf, np.inf, 2.0],
    "nan among objects": np.array([1, np.nan, np.nan, 2], dtype=object),
    "several kinds": [1, "1", 2, "2"],
    "texts and bytes": ["a", b"a", "b", b"b"],
    "not comparable": np.array(["a", 1, "b", 2], dtype=object),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_persons_that_are_not_known_are_refused(what):
    with pytest.raises(InvalidInputError, match="groups"):
        GroupedExecutor(LocalExecutor(X, y.astype(float)), UNKNOWN[what])
    with pytest.raises(InvalidInputError, match="groups"):
        SparseLogisticRegression(n_nonzero_coefs=1, solver="ight").fit(X, y, groups=UNKNOWN[what])


def test_pandas_missing_persons_are_refused():
    pd = pytest.importorskip("pandas")
    for missing in (pd.NA, pd.NaT, None):
        with pytest.raises(InvalidInputError, match="groups"):
            GroupedExecutor(LocalExecutor(X, y.astype(float)), pd.Series(["a", missing, "b", "c"]))


def test_large_integers_and_strings_stay_apart():
    for ids in (
        [2**60, 2**60 + 1, 2**60, 5],
        [2**63, -1, 2**63, 2**63 + 1],
        [(1, 2), (1, 3), (1, 2), (2, 1)],
        ["1", "2", "1", "5"],
        [b"1", b"1\0", b"1", b"5"],
    ):
        assert GroupedExecutor(LocalExecutor(X, y.astype(float)), ids).population == 3


def test_labels_are_compared_for_equality_only():
    sets = np.empty(4, dtype=object)
    sets[:] = [frozenset({k % 2}) for k in range(4)]  # no order: sorting them leaves equal ones apart
    for ids, persons in ((sets, 2), (["a", "a\0", "a", "a\0"], 2), ([1, 1.0, True, 2], 2)):
        assert GroupedExecutor(LocalExecutor(X, y.astype(float)), ids).population == persons
