"""Blocks of records by position, and the largest entry of each row."""

import numpy as np
import pytest
from scipy import sparse

from sordino.execute import LocalExecutor
from sordino.execute.records import LazyRecords

KINDS = pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, lambda x: x.astype(np.float32)])


def made(kind, intercept=0.0):
    x = np.random.default_rng(0).normal(size=(23, 5)) * (np.arange(23) % 3)[:, None]
    x = x.astype(np.float32).astype(float)
    return x, LocalExecutor(kind(x), np.arange(23.0), 1.3, intercept)


@KINDS
@pytest.mark.parametrize("intercept", [0.0, 0.7])
def test_peaks_are_those_of_the_clipped_rows(kind, intercept):
    x, executor = made(kind, intercept)
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    clipped = x * np.minimum(1, 1.3 / np.maximum(norms, 1e-300))
    expected = np.maximum(np.abs(clipped).max(axis=1), intercept)
    np.testing.assert_allclose(executor.records(None).peaks, expected, rtol=1e-6)
    some = np.array([4, 11, 2])
    np.testing.assert_allclose(executor.records(some).peaks, expected[some], rtol=1e-6)


def test_lazy_records_have_the_same_peaks():
    _, executor = made(sparse.csr_matrix)
    records = executor.records(np.array([4, 11, 2]))
    np.testing.assert_array_equal(LazyRecords(records).peaks, records.peaks)


@KINDS
def test_parts_are_disjoint_blocks_that_make_up_all_records(kind):
    _, executor = made(kind)
    records = executor.records(None)
    parts = [records.part(i, 4) for i in range(4)]
    assert np.concatenate([p.targets for p in parts]).tolist() == list(range(23))
    assert max(p.count for p in parts) - min(p.count for p in parts) <= 1
    w = np.arange(5.0)
    np.testing.assert_allclose(np.concatenate([p.margins(w) for p in parts]), records.margins(w))
    total = sum(p.weighted_sum(p.targets) for p in parts)
    np.testing.assert_allclose(total, records.weighted_sum(records.targets))


@pytest.mark.parametrize("intercept", [0.0, 0.7])
def test_several_outputs_of_sparse_rows_agree_with_one_at_a_time(intercept):
    _, executor = made(sparse.csr_matrix, intercept)
    records = executor.records(np.array([4, 11, 2, 3]))
    w = np.random.default_rng(1).normal(size=(3, records.columns))
    margins = records.margins(w)
    np.testing.assert_allclose(margins, np.stack([records.margins(row) for row in w], axis=1))
    sums = records.weighted_sum(margins)
    np.testing.assert_allclose(sums, np.stack([records.weighted_sum(c) for c in margins.T]))
