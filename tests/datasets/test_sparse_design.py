"""The large sparse design: exact structure, the declared law, bounded memory."""

import tracemalloc

import numpy as np
import pytest
from benchmarks.sparse_design import make_sparse_classification, open_sparse_classification, strata
from scipy import stats

from sordino.errors import DataNotFoundError, InvalidInputError


@pytest.mark.parametrize("law", ["zipf", "uniform"])
@pytest.mark.parametrize(("d", "m"), [(1, 1), (7, 7), (10, 7), (1000, 30), (20_000_000, 75)])
def test_groups_cover_all_columns_and_none_is_empty(law, d, m):
    edges = strata(d, m, law)
    assert (edges[0], edges[-1], len(edges)) == (0, d, m + 1)
    assert (np.diff(edges) >= 1).all()


@pytest.mark.parametrize("law", ["zipf", "uniform"])
@pytest.mark.parametrize(("n", "d", "m"), [(50, 5000, 12), (3, 4, 4), (40_000, 300, 5)])
def test_rows_have_distinct_sorted_columns_and_unit_norm(law, n, d, m):
    X = make_sparse_classification(n, d, m, n_informative=2, column_law=law, random_state=0).data
    assert X.shape == (n, d)
    columns = X.indices.reshape(n, m)
    assert (np.diff(columns, axis=1) > 0).all()
    assert (columns[:, 0] >= 0).all()
    assert (columns[:, -1] < d).all()
    np.testing.assert_allclose(np.linalg.norm(X.data.reshape(n, m), axis=1), 1, rtol=1e-5)
    assert X.has_canonical_format


@pytest.mark.statistical
def test_labels_follow_the_logistic_law_of_the_returned_coefficients():
    design = make_sparse_classification(30_000, 50_000, 40, n_informative=200, random_state=1)
    margins = (design.data @ design.coef.T).toarray().ravel()
    positive = design.target == 1

    def p(slope):
        probability = 1 / (1 + np.exp(-slope * margins))
        score = ((positive - probability) * margins).sum()
        return 2 * stats.norm.sf(abs(score) / np.sqrt((probability * (1 - probability) * margins**2).sum()))

    assert set(design.target) == {-1, 1}
    assert p(1.0) > 1e-4
    assert p(2 / 3) < 1e-4
    assert p(3 / 2) < 1e-4


@pytest.mark.parametrize("signal", [1.5, 4.0])
def test_the_margin_has_about_the_declared_spread(signal):
    design = make_sparse_classification(
        20_000, 100_000, 75, n_informative=2_000, signal=signal, random_state=2
    )
    margins = (design.data @ design.coef.T).toarray().ravel()
    assert np.sqrt((margins**2).mean()) == pytest.approx(signal, rel=0.25)
    assert design.coef.nnz == 2_000


def test_under_the_zipf_law_the_first_columns_are_the_common_ones():
    X = make_sparse_classification(4_000, 100_000, 50, random_state=3).data
    common = (X.indices < 1_000).mean()
    assert common == pytest.approx(np.log(1_000) / np.log(100_000), abs=0.05)
    X = make_sparse_classification(4_000, 100_000, 50, column_law="uniform", random_state=3).data
    assert (X.indices < 1_000).mean() == pytest.approx(0.01, abs=0.005)


def test_a_design_on_disk_is_the_design_in_memory(tmp_path):
    options = {"n_informative": 20, "random_state": 4}
    memory = make_sparse_classification(1_000, 5_000, 9, **options)
    disk = make_sparse_classification(1_000, 5_000, 9, path=tmp_path / "design", **options)
    again = open_sparse_classification(tmp_path / "design", 5_000)
    for other in (disk, again):
        assert (memory.data != other.data).nnz == 0
        assert np.array_equal(memory.target, other.target)


def test_a_design_on_disk_does_not_pass_through_memory(tmp_path):
    n, m = 200_000, 75
    make_sparse_classification(100, 1_000, 5, n_informative=5)  # imports and caches are not counted
    tracemalloc.start()
    design = make_sparse_classification(n, 20_000_000, m, path=tmp_path, random_state=5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    stored = design.data.nnz * 8
    assert stored == n * m * 8
    assert peak < 0.9 * stored
    assert peak < 110e6


def test_a_seed_gives_the_same_design_again_and_another_seed_another():
    one, same, other = (
        make_sparse_classification(50, 900, 6, n_informative=9, random_state=seed) for seed in (6, 6, 7)
    )
    assert (one.data != same.data).nnz == 0
    assert np.array_equal(one.target, same.target)
    assert (one.data != other.data).nnz > 0


def test_a_folder_without_a_design_is_reported(tmp_path):
    with pytest.raises(DataNotFoundError, match="does not hold a sparse design"):
        open_sparse_classification(tmp_path, 10)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((10, 5, 6), {}, "nnz_per_row to be a whole number in .1, 5., got 6"),
        ((10, 5, 2), {"n_informative": 9}, "n_informative"),
        ((0, 5, 2), {}, "n_samples"),
        ((10, 5, 2), {"n_informative": 2, "column_law": "power"}, "'power'"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(arguments, options, message):
    with pytest.raises(InvalidInputError, match=message):
        make_sparse_classification(*arguments, **options)
