"""Counts of sizes, from which the default solver reads its units."""

import numpy as np
import pytest

from sordino import SparseLinearRegression
from sordino.execute import LocalExecutor
from sordino.kernel import Relation
from sordino.problems.affine import SizeCounts


def counted(targets, cells=4):
    query = SizeCounts("targets", cells)
    records = LocalExecutor(np.ones((len(targets), 1)), np.asarray(targets, dtype=float)).records(None)
    return query, query.evaluate(records, None)


@pytest.mark.parametrize("cells", [1, 2, 4])
@pytest.mark.parametrize("size", [0.013, 0.5, 7.0])
def test_the_quantile_of_equal_sizes_is_that_size_up_to_a_cell(cells, size):
    query, counts = counted(np.array([size, -size] * 20), cells)
    assert counts.sum() == 40
    assert size <= query.quantile(counts, 0.6, 0.7) < size * 2 ** (1.001 / cells)


@pytest.mark.parametrize(("share", "wanted"), [(0.2, 1.0), (0.7, 4.0), (0.95, 16.0)])
def test_the_quantile_is_the_size_of_its_share(share, wanted):
    query, counts = counted(np.repeat([1.0, 4.0, 16.0], [50, 30, 20]))
    assert query.quantile(counts, share, 0.7) == pytest.approx(wanted, rel=0.2)


def test_zeros_have_no_size_and_rare_sizes_are_noise():
    query, counts = counted(np.repeat([0.0, 2.0, 1000.0], [900, 97, 3]))
    assert query.quantile(counts, 0.6, 1.3) == pytest.approx(2.0, rel=0.2)
    assert query.quantile(counts, 0.99, 1.3) == pytest.approx(2.0, rel=0.2)  # 3 < 3 * 1.3


def test_where_everything_drowns_the_largest_count_decides():
    query, counts = counted([0.0, 3.0, 3.0, 90.0])
    assert query.quantile(counts, 0.6, 50.0) == pytest.approx(3.0, rel=0.2)


def test_a_record_that_moves_changes_two_counts_by_one():
    query, counts = counted([1.0, 1.0, 5.0])
    _, moved = counted([1.0, 9.0, 5.0])
    _, fewer = counted([1.0, 5.0])
    assert np.linalg.norm(counts - moved) == pytest.approx(query.sensitivity(Relation.REPLACE_ONE, None))
    assert np.linalg.norm(counts - fewer) == pytest.approx(query.sensitivity(Relation.ADD_REMOVE, None))


def test_the_default_regression_learns_targets_that_are_mostly_zero():
    public = np.random.default_rng(0)
    X = public.normal(size=(4000, 5)) / np.sqrt(5)
    y = np.where(X[:, 0] > 0.35, 0.9, 0.0)
    assert (y == 0).mean() > 0.7
    model = SparseLinearRegression(epsilon=4.0, delta=1e-5, n_nonzero_coefs=1, data_norm=2.0).fit(X, y)
    assert model.support_.tolist() == [0]
    assert model.score(X, y) > 0.3
