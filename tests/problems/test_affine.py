"""Counts of sizes, from which the default solver reads its units."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from sordino import SparseLinearRegression
from sordino.execute import LocalExecutor
from sordino.kernel import Relation
from sordino.problems.affine import (
    Affine,
    AffineGradient,
    ColumnMoments,
    GradientShells,
    GramShells,
    SizeCounts,
)
from sordino.problems.losses import LOSSES, Huber


def counted(targets, cells=4):
    query = SizeCounts("targets", cells)
    records = LocalExecutor(np.ones((len(targets), 1)), np.asarray(targets, dtype=float)).records(None)
    return query, query.evaluate(records, (0.0, 1.0))


@pytest.mark.parametrize("cells", [1, 2, 4])
@pytest.mark.parametrize("size", [0.013, 0.5, 7.0])
def test_the_quantile_of_equal_sizes_is_that_size_up_to_a_cell(cells, size):
    query, counts = counted(np.array([size, -size] * 20), cells)
    assert counts.sum() == 40
    assert size <= query.quantile(counts, 0.6, 0.7, 64.0) < size * 2 ** (1.001 / cells)


@pytest.mark.parametrize(("share", "wanted"), [(0.2, 1.0), (0.7, 4.0), (0.95, 16.0)])
def test_the_quantile_is_the_size_of_its_share(share, wanted):
    query, counts = counted(np.repeat([1.0, 4.0, 16.0], [50, 30, 20]))
    assert query.quantile(counts, share, 0.7, 64.0) == pytest.approx(wanted, rel=0.2)


def test_zeros_have_no_size_and_rare_sizes_are_noise():
    query, counts = counted(np.repeat([0.0, 2.0, 1000.0], [900, 97, 3]))
    assert query.quantile(counts, 0.6, 1.3, 2e3) == pytest.approx(2.0, rel=0.2)
    assert query.quantile(counts, 0.99, 1.3, 2e3) == pytest.approx(2.0, rel=0.2)  # 3 is less than noise


def test_where_everything_drowns_there_is_no_answer_whatever_the_noise():
    query, counts = counted([0.0, 3.0, 3.0, 90.0])
    noises = np.random.default_rng(0).normal(scale=50.0, size=(500, counts.size))
    assert sum(query.quantile(counts + noise, 0.6, 50.0, 100.0) is not None for noise in noises) <= 2


def test_sizes_beyond_the_bound_are_noise_and_the_answer_never_exceeds_it():
    query, counts = counted([3.0] * 50)
    counts[-8] = 1e6
    assert query.quantile(counts, 0.6, 1.0, 3.3) == pytest.approx(3.3, rel=0.1)
    assert query.quantile(counts, 0.6, 1.0, 3.3) <= 3.3


def test_counts_that_drown_one_by_one_are_seen_together():
    query, counts = counted(np.geomspace(0.5, 8.0, 200))
    assert counts.max() < 5 * 4.0
    assert query.quantile(counts, 0.6, 4.0, 16.0) == pytest.approx(2.6, rel=0.6)


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


@given(
    x=arrays(float, 4, elements=st.floats(-1, 1)),
    y=arrays(float, 4, elements=st.floats(-1, 1)),
    square=st.booleans(),
)
def test_a_replaced_row_moves_the_moments_at_most_by_their_sensitivity(x, y, square):
    query = ColumnMoments(1.3, square)
    one, two = (
        query.evaluate(LocalExecutor(row[None], None, 1.3).records(None), None) for row in (2 * x, 2 * y)
    )
    bound = query.sensitivity(Relation.REPLACE_ONE, None)
    assert np.linalg.norm(one - two) <= bound * (1 + 1e-12)


def test_the_sensitivity_of_replaced_moments_is_reached_and_squares_pass_it():
    def moved(square, *rows):
        query = ColumnMoments(1.3, square)
        records = [LocalExecutor(1.3 * np.array([row]), None, 1.3).records(None) for row in rows]
        one, two = (query.evaluate(record, None) for record in records)
        return np.linalg.norm(one - two)

    query = ColumnMoments(1.3)
    assert query.sensitivity(Relation.ADD_REMOVE, None) == pytest.approx(np.sqrt(2))
    assert query.sensitivity(Relation.REPLACE_ONE, None) == pytest.approx(moved(False, [1, 0], [0, 1]))
    assert moved(True, [1, 0], [-0.27, np.sqrt(1 - 0.27**2)]) > 2.06


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("tiny", [1e-170, 1e-156, 3e-154, 5e-324])
def test_a_row_whose_squares_underflow_is_clipped_all_the_same(kind, tiny):
    rows = np.zeros((2, 20))
    rows[0, :3] = [tiny, -tiny, 0.0]
    query = AffineGradient(LOSSES["squared"], 0.3)
    affine = Affine(np.zeros(20), np.linspace(1.0, 2.5e6, 20), 0.0)
    point = (np.zeros(20), affine, None, 1e-4)
    answers = [
        query.evaluate(LocalExecutor(kind(rows), targets, 1.7).records(None), point)
        for targets in (np.array([-1e300, 0.0]), np.array([np.nan, 0.0]))
    ]
    assert np.linalg.norm(answers[0] - answers[1]) <= 0.3


@pytest.mark.parametrize(
    "loss", [LOSSES["squared"], Huber(0.6), LOSSES["poisson"]], ids=lambda loss: loss.name
)
def test_residuals_are_in_units_of_the_targets_and_so_are_margins_without_a_link(loss):
    rows, targets = np.array([[0.5, 0.2], [0.1, -0.3]]), np.array([4.0, 1.0])
    affine, w, unit = Affine(np.zeros(2), np.full(2, 0.9), 0.0), np.array([0.7, -0.4]), 2.5
    records = LocalExecutor(rows, targets, 1.0).records(None)
    found = AffineGradient(loss, 50.0).evaluate(records, (w, affine, None, unit))
    mapped = 0.9 * rows
    margins = mapped @ w * (1.0 if loss.name == "poisson" else unit)
    np.testing.assert_allclose(found, loss.residual(margins, targets) / unit @ mapped, rtol=1e-12)


@pytest.mark.parametrize("loss", [LOSSES["logistic"], LOSSES["squared"]], ids=lambda loss: loss.name)
def test_whole_rows_have_the_margins_that_a_model_gives_them(loss):
    rows, targets = np.array([[3.0, 4.0], [0.3, 0.4], [30.0, 40.0]]), np.array([1.0, -1.0, 1.0])
    affine, w = Affine(np.array([0.1, 0.0]), np.full(2, 0.9), 0.25), np.array([0.2, -0.3, 0.5])
    records = LocalExecutor(rows, targets, 100.0).records(None)
    mapped = 0.9 * (rows - [0.1, 0.0])
    sizes = np.linalg.norm(mapped, axis=1)
    short = np.column_stack([mapped / np.maximum(sizes, 1.0)[:, None], np.full(3, 0.25)])
    for whole, longest in ((False, 1.0), (True, 256.0 if loss.targets == "numbers" else 8.0)):
        found = AffineGradient(loss, 50.0, whole=whole).evaluate(records, (w, affine, None, 1.0))
        seen = mapped * np.minimum(1.0, longest / sizes)[:, None]
        residual = loss.residual(seen @ w[:2] + 0.25 * w[2], targets)
        np.testing.assert_allclose(found, residual @ short, rtol=1e-9)


def test_a_map_cannot_change_after_rows_were_clipped_for_it():
    scale = np.ones(3)
    affine = Affine(np.zeros(3), scale, 0.0)
    scale *= 1e6
    assert affine.scale.max() == 1.0
    with pytest.raises(ValueError, match="read-only"):
        affine.shift[0] = 1e6


def test_the_longest_row_reaches_the_sensitivity_of_shells():
    records = LocalExecutor(np.array([[1.0, 0.0]]), np.array([3.0]), 1.0).records(None)
    affine = Affine(np.zeros(2), np.ones(2), 0.0)
    moments, sums = GramShells(), GradientShells(LOSSES["squared"])
    found = np.linalg.norm(moments.evaluate(records, (affine, 64.0)))
    assert 0.99 < found / moments.sensitivity(Relation.ADD_REMOVE, (affine, 64.0)) <= 1.0
    for cut, least in ((1, 0.85), (4, 0.97), (8, 0.99)):  # the clipped part and the rest add up to all of it
        params = (np.zeros(2), affine, 3.0, cut)
        found = np.linalg.norm(sums.evaluate(records, params))
        assert least < found / sums.sensitivity(Relation.ADD_REMOVE, params) <= 1.0
