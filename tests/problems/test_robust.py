"""Truncated sums, medians, histograms and pair moments stay within their sensitivity on any data."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from sordino.errors import InvalidInputError
from sordino.execute import LocalExecutor
from sordino.kernel import Relation
from sordino.problems.losses import LOSSES, Huber
from sordino.problems.robust import GradientPoint, RobustGradient, RobustSum, Truncation, block_sums
from sordino.problems.scales import (
    BINS,
    EDGES,
    ColumnScales,
    CountsBelow,
    FeatureScales,
    GradientScales,
    Grid,
    PairMoments,
    PairScales,
    RankLosses,
    RankTree,
    counts_of,
    growing,
)

BOTH = [Relation.ADD_REMOVE, Relation.REPLACE_ONE]
D = 3
TRUNCATIONS = [
    Truncation(),
    Truncation(zero=True),
    Truncation(joint=1.2),
    Truncation(zero=True, joint=0.7),
    Truncation(by="norm"),
    Truncation(by="norm", zero=True),
]

special = [0.0, 1.0, -1.0, 0.3, 1e-3, -1e-170, 5e-324, 40.0, -1e8, 1e155, -1e300]
numbers = st.one_of(st.sampled_from([*special, math.nan, math.inf, -math.inf]), st.floats(allow_nan=False))


@st.composite
def neighbours(draw, relation, least=1):
    """Draw rows and targets, and the same with one record replaced or not a number (absent)."""
    count = draw(st.integers(least, 12))
    rows = np.array([[draw(numbers) for _ in range(D)] for _ in range(count)])
    targets = np.array([draw(numbers) for _ in range(count)])
    other, who = rows.copy(), draw(st.integers(0, count - 1))
    new_targets = targets.copy()
    other[who] = math.nan if relation is Relation.ADD_REMOVE else [draw(numbers) for _ in range(D)]
    if relation is Relation.REPLACE_ONE:
        new_targets[who] = draw(numbers)
    return (rows, targets), (other, new_targets)


def records(data, intercept=0.0, kind=np.asarray):
    rows, targets = data
    return LocalExecutor(kind(rows), targets, data_norm=None, intercept=intercept).records(None)


def moved(query, params, one, other, **how):
    ours, theirs = (query.evaluate(records(d, **how), params) for d in (one, other))
    assert np.isfinite(ours).all()
    assert np.isfinite(theirs).all()
    order = np.inf if query.norm.value == "Linf" else 2
    return np.linalg.norm(np.ravel(ours - theirs), order)


# --------------------------------------------------------------------------------- sums and medians


@pytest.mark.parametrize("blocks", [1, 4, 5])
@given(data=st.data())
def test_no_neighbour_moves_a_robust_sum_beyond_its_sensitivity(blocks, data):
    relation = data.draw(st.sampled_from(BOTH))
    query = RobustSum(D, data.draw(st.sampled_from(TRUNCATIONS)), blocks)
    params = (np.array([0.5, -3.0, 1e6]), np.array([2.0, 1e-3, 1e9]))
    one, other = data.draw(neighbours(relation))
    limit = query.sensitivity(relation, params)
    assert moved(query, params, one, other) <= limit * (1 + 1e-9)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix], ids=["dense", "csr"])
@given(data=st.data())
def test_no_neighbour_moves_a_robust_gradient_beyond_its_sensitivity(kind, data):
    relation = data.draw(st.sampled_from(BOTH))
    loss = data.draw(st.sampled_from([LOSSES["squared"], LOSSES["logistic"], Huber(0.7)]))
    query = RobustGradient(loss, data.draw(st.sampled_from(TRUNCATIONS)), data.draw(st.integers(1, 4)))
    scales = data.draw(st.sampled_from([1.0, np.array([1e-3, 2.0, 1e5, 0.8])]))
    point = GradientPoint(np.array([0.5, -2.0, 0.0, 1.0]), data.draw(st.sampled_from([0.6, 40.0])), scales)
    one, other = data.draw(neighbours(relation))
    limit = query.sensitivity(relation, point)
    assert moved(query, point, one, other, intercept=0.8, kind=kind) <= limit * (1 + 1e-9)


def test_entries_stored_twice_are_truncated_as_their_sum():
    whole = sparse.csr_matrix(np.array([[3.0, 0.0, -5.0]]))
    halves = sparse.csr_matrix(
        (np.repeat(whole.data / 2, 2), np.repeat(whole.indices, 2), whole.indptr * 2), (1, 3)
    )
    query = RobustGradient(LOSSES["squared"], Truncation())
    point = GradientPoint(np.zeros(3), 0.6)
    for matrix in (whole, halves):
        got = query.evaluate(LocalExecutor(matrix, np.array([-1.0]), None).records(None), point)
        np.testing.assert_allclose(got, [0.6, 0.0, -0.6])


def test_an_infinite_variance_sample_moves_the_sum_by_at_most_the_bound_and_almost_attains_it():
    rng = np.random.default_rng(0)
    data = rng.pareto(0.8, size=(500, D)) * rng.choice([-1, 1], size=(500, D))
    query, params = RobustSum(D), (np.zeros(D), np.full(D, 3.0))
    targets, best = np.zeros(500), 0.0
    for i in range(50):
        other = data.copy()
        other[i] = -1e100 * np.sign(data[i])
        best = max(best, moved(query, params, (data, targets), (other, targets)))
    limit = query.sensitivity(Relation.REPLACE_ONE, params)
    assert 0.8 * limit < best <= limit * (1 + 1e-9)
    other[0], data[0] = [9.0] * D, [-9.0] * D
    other[1:] = data[1:]
    assert moved(query, params, (data, targets), (other, targets)) == pytest.approx(limit)


@pytest.mark.parametrize("seed", range(20))
def test_vector_h2_a_replaced_record_moves_the_median_of_means_by_at_most_0_69282(seed):
    rng, n, m, tau = np.random.default_rng(seed), 90, 9, 2.0
    data = rng.standard_cauchy(size=(n, D))
    query, params = RobustSum(D, Truncation(zero=True), m), (np.zeros(D), np.full(D, tau))
    other = data.copy()
    other[rng.integers(n)] = rng.uniform(-tau, tau, D)
    change = tau * m / n * moved(query, params, (data, np.zeros(n)), (other, np.zeros(n)))
    limit = tau * m / n * query.sensitivity(Relation.REPLACE_ONE, params)
    assert limit == pytest.approx(0.69282, rel=1e-5)
    assert change <= limit * (1 + 1e-12)


def test_the_median_attains_its_bound_when_the_blocks_around_it_are_far_apart():
    m, n = 5, 10  # block sums of -2, -2, x, 2, 2: the median is x
    data = np.repeat([-1.0, -1.0, 0.0, 1.0, 1.0], n // m)[:, None] * np.ones(D)
    low, high = data.copy(), data.copy()
    low[4], high[4] = -1.0, 1.0
    query, params = RobustSum(D, blocks=m), (np.zeros(D), np.ones(D))
    change = moved(query, params, (low, np.zeros(n)), (high, np.zeros(n)))
    assert change == pytest.approx(query.sensitivity(Relation.REPLACE_ONE, params))


def test_a_block_without_truncation_would_break_the_bound():
    data = np.zeros((10, D))
    other = data.copy()
    other[0] = 1e3
    apart = np.linalg.norm(np.median(_sums(data, 1) - _sums(other, 1), axis=0))
    assert apart > RobustSum(D, blocks=1).sensitivity(Relation.REPLACE_ONE, None)


def _sums(rows, blocks):
    return block_sums(rows, slice(0, len(rows)), len(rows), blocks)


def test_every_record_belongs_to_one_block_and_blocks_are_equal_up_to_one():
    sizes = _sums(np.ones((23, 1)), 5).ravel()
    assert sizes.sum() == 23
    assert set(sizes) <= {4.0, 5.0}


def test_the_joint_clip_removes_the_root_of_the_dimension():
    assert Truncation().bound(100, 2.0) == pytest.approx(20.0)
    assert Truncation(joint=1.5).bound(100, 2.0) == pytest.approx(3.0)
    assert Truncation(joint=50.0).bound(100, 2.0) == pytest.approx(20.0)


def test_clipping_moves_to_the_edge_and_truncation_to_zero():
    row = [np.array([[0.5, 3.0, -7.0]])]
    np.testing.assert_array_equal(Truncation().apply(row, 2.0)[0], [[0.5, 2.0, -2.0]])
    np.testing.assert_array_equal(Truncation(zero=True).apply(row, 2.0)[0], [[0.5, 0.0, 0.0]])


@pytest.mark.parametrize("wrong", [{"by": "l1"}, {"joint": 0.0}, {"joint": math.inf}])
def test_a_truncation_that_bounds_nothing_is_refused(wrong):
    with pytest.raises(InvalidInputError):
        Truncation(**wrong)


def test_the_norm_path_agrees_with_the_general_one():
    rng = np.random.default_rng(2)
    data = (rng.standard_t(1.5, size=(200, D)), rng.standard_t(1.5, size=200))
    point = GradientPoint(np.array([0.3, -1.0, 2.0]), 1.7, np.array([0.5, 1.0, 3.0]))
    fast = RobustGradient(LOSSES["squared"], Truncation(by="norm"))
    slow = RobustGradient(LOSSES["squared"], Truncation(by="norm", joint=9.0))
    ours, theirs = (q.evaluate(records(data), point) for q in (fast, slow))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


# --------------------------------------------------------------------------------------- histograms

POINT = GradientPoint(np.array([0.5, -2.0, 0.0]), 1.0, np.array([0.4, 1.0, 7.0]))
CELLS = Grid(growing(-2.0, 7.0, 0.3, 0.01, 0.0, 5))
WIDE = Grid(growing(-2.0, 7.0, 0.3, 0.5, -1.5, 5), coarse=0.3, penalty=1.5)
LISTS = [[(j, (CELLS, WIDE), [(-0.4, 0.5), (1.0, 0.9)]) for j in range(D)]]
COUNTS = [
    (ColumnScales(D), np.array([1.0, 0.0, -1e9])),
    (ColumnScales(D, sides=True), np.array([1.0, 0.0, -1e9])),
    (GradientScales(LOSSES["squared"]), POINT),
    (GradientScales(LOSSES["squared"], "coordinate"), POINT),
    (FeatureScales(D), np.ones(D)),
    (PairScales(D), None),
    (PairScales(D, norms=True), np.array([0.5, 2.0, 3.0])),
    (PairMoments(D), np.array([0.5, 2.0, 3.0])),
    (CountsBelow(D), np.array([0.5, -2.0, 3.0])),
    (RankTree(D, 5), [[(j, (CELLS,), ()) for j in range(D)]]),
    (RankLosses(), LISTS),
    (RankLosses(), [[(1, (replace(CELLS, pole=0.5),), [(-0.2, 0.7), (0.4, 0.05)])]]),
]


@pytest.mark.parametrize(("query", "params"), COUNTS, ids=lambda p: type(p).__name__)
@given(data=st.data())
def test_no_neighbour_moves_a_count_or_a_moment_beyond_its_sensitivity(query, params, data):
    relation = data.draw(st.sampled_from(BOTH))
    one, other = data.draw(neighbours(relation, least=2))
    assert moved(query, params, one, other) <= query.sensitivity(relation, params) * (1 + 1e-9)


def _pair(first, second, rest=3):
    """Return two data sets whose first records are given."""
    base = np.full((2 * rest, D), 0.4)
    base[0], other = first, base.copy()
    other[0] = second
    targets = np.ones(2 * rest)
    return (base, targets), (other, targets)


@pytest.mark.parametrize(
    ("query", "params", "relation", "first", "second"),
    [
        (ColumnScales(D), np.zeros(D), Relation.REPLACE_ONE, 1.0, 1e9),
        (ColumnScales(D, sides=True), np.zeros(D), Relation.REPLACE_ONE, 1.0, -1.0),
        (ColumnScales(D), np.zeros(D), Relation.ADD_REMOVE, 1e9, math.nan),
        (FeatureScales(D), np.ones(D), Relation.REPLACE_ONE, 1.0, 1e9),
        (PairScales(D), None, Relation.ADD_REMOVE, 1e9, math.nan),
        (PairMoments(D), np.full(D, 0.01), Relation.ADD_REMOVE, 0.4, 1e9),
        (CountsBelow(D), np.zeros(D), Relation.ADD_REMOVE, -1.0, math.nan),
        (CountsBelow(D), np.zeros(D), Relation.REPLACE_ONE, -1.0, 1.0),
        (RankTree(D, 5), [[(j, (CELLS,), ()) for j in range(D)]], Relation.REPLACE_ONE, -1.0, 1e9),
        (RankLosses(), LISTS, Relation.ADD_REMOVE, -1.0, math.nan),
        (RankLosses(), LISTS, Relation.REPLACE_ONE, -1.0, 1e9),
    ],
    ids=lambda p: type(p).__name__,
)
def test_some_neighbours_attain_the_sensitivity(query, params, relation, first, second):
    change = moved(query, params, *_pair(first, second))
    assert change == pytest.approx(query.sensitivity(relation, params))


def test_outer_products_attain_their_sensitivity_by_orthogonal_differences():
    one, other = _pair([1e6, 0.4, 0.4], [0.4, 1e6, 0.4])
    query, params = PairMoments(D), np.ones(D)
    limit = query.sensitivity(Relation.REPLACE_ONE, params)
    assert 0.999 * limit < moved(query, params, one, other) <= limit


def test_an_octave_holds_the_numbers_below_its_edge():
    values = np.array([[0.0, 1.0, 1.5, -2.0, 1e-300, 5e-324, 1e300, math.nan, -math.inf]])
    counts = counts_of(values)
    assert (counts.sum(axis=1) == [0, 1, 1, 1, 1, 1, 1, 0, 0]).all()  # zero and inf have none
    assert list(np.argmax(counts, axis=1)[4:7]) == [0, 0, BINS - 1]
    assert list(EDGES[np.argmax(counts, axis=1)[1:4]]) == [2.0, 2.0, 4.0]


def test_the_sides_of_a_histogram_add_up_to_it_and_hold_what_lies_above_and_below():
    rng = np.random.default_rng(1)
    rows = rng.standard_cauchy((50, D)) * (rng.random((50, D)) < 0.5)
    held = records((rows, np.zeros(50)), 0.7), records((rows, np.zeros(50)), 0.7, sparse.csr_matrix)
    (dense, csr), whole = (ColumnScales(D, sides=True).evaluate(h, None) for h in held), ColumnScales(D)
    np.testing.assert_array_equal(dense, csr)
    np.testing.assert_array_equal(dense.sum(axis=0), whole.evaluate(held[0], None))
    np.testing.assert_array_equal(dense.sum(axis=2), [(rows > 0).sum(axis=0), (rows < 0).sum(axis=0)])


def test_squares_apart_add_up_to_the_squares_for_the_price_of_one():
    rows, params = np.random.default_rng(1).normal(size=(40, D)), (np.zeros(D), np.full(D, 1.5))
    data = records((rows, np.zeros(40)))
    both = RobustSum(D, powers=((1, 1.0), (2, 0.5)))
    apart = RobustSum(D, powers=((1, 1.0),), apart=((2, 0.5),))
    assert apart.contribution(params) == both.contribution(params)
    first, above, below = apart.evaluate(data, params).reshape(3, D)
    np.testing.assert_allclose(both.evaluate(data, params), [*first, *(above + below)])
    assert (above > 0).all()
    assert (below > 0).all()


def test_sparse_and_dense_columns_have_the_same_histogram_which_leaves_out_zeros():
    rng = np.random.default_rng(1)
    rows = rng.standard_cauchy((50, D)) * (rng.random((50, D)) < 0.5)
    targets = np.zeros(50)
    dense = ColumnScales(D).evaluate(records((rows, targets), 0.7), None)
    csr = ColumnScales(D).evaluate(records((rows, targets), 0.7, sparse.csr_matrix), None)
    np.testing.assert_array_equal(dense, csr)
    np.testing.assert_array_equal(csr.sum(axis=1), (rows != 0).sum(axis=0))


def test_every_level_of_the_tree_counts_every_record():
    rows = np.random.default_rng(0).standard_cauchy((40, D))
    cells = Grid(growing(-40.0, 40.0, 0.3, 0.1, 0.0, 4))
    asked = [[(j, (cells,), ()) for j in range(D)]]
    counts = RankTree(D, 4).evaluate(records((rows, np.zeros(40))), asked)
    edges = np.cumsum([0, 2, 4, 8, 16])
    for a, b in itertools.pairwise(edges):
        np.testing.assert_array_equal(counts[:, a:b].sum(axis=1), 40)


def test_losses_count_ranks_and_take_no_rank_within_a_tie_for_far():
    rows = np.array([1.0, 2.0, 2.0, 2.0, 2.5, 6.0])[:, None]
    fine = Grid(np.array([0.0, 0.5, 1.5, 1.9, 2.1, 3.0, 5.0, 6.5, 8.0]))
    coarse = replace(fine, coarse=0.5, penalty=0.25)
    (found,) = RankLosses().evaluate(records((rows, np.zeros(6))), [[(0, (fine, coarse), [(0.0, 0.5)])]])
    # The rank 3 of 6 is within the tie: counts up to the cells are 0 1 1 4 5 5 6 6.
    np.testing.assert_allclose(found[0, :8], 2.0 * np.array([3, 2, 2, 0, 1, 2, 2, 3]))
    np.testing.assert_allclose(found[0, 8:], 0.25 + 2.0 * np.array([3, 3, 2, 0, 2, 2, 3, 3]))


@given(data=st.data())
def test_no_neighbour_moves_the_losses_of_all_groups_together_beyond_their_sensitivity(data):
    relation, query = data.draw(st.sampled_from(BOTH)), RankLosses(by_cell=True)
    asked = [[(1, (CELLS, WIDE), [(-1.0, 0.2), (0.0, 0.7)])]] * 3
    row = st.tuples(st.sampled_from([0.0, 1.0, 2.0, 5.0, 0.5]), st.floats(-9.0, 9.0))
    rest = data.draw(st.lists(row, min_size=1, max_size=9))
    one, other = data.draw(row), data.draw(row) if relation is Relation.REPLACE_ONE else (math.nan, math.nan)
    ours, theirs = (
        query.evaluate(records((np.array([r, *rest]), np.zeros(len(rest) + 1))), asked) for r in (one, other)
    )
    moved_by = np.abs(ours - theirs).max(axis=(1, 2)).sum()  # groups are chosen from one by one
    assert moved_by <= query.sensitivity(relation, asked) * (1 + 1e-12)


def test_cells_grow_from_their_centre_and_end_at_the_bounds():
    for power in (1.0, 0.5, 0.0, -1.5):
        borders = growing(-3.0, 1e6, 2.0, 0.1, power, 8)
        assert borders.size == 257
        assert (borders[0], borders[-1]) == (-3.0, 1e6)
        assert (np.diff(borders) > 0).all()
    np.testing.assert_allclose(growing(-3.0, 5.0, 2.0, 0.1, 1.0, 4), np.linspace(-3, 5, 17))
    octave = np.log2(growing(0.0, 2.0**30, 0.0, 2.0**-10, 0.0, 8)[30:])
    np.testing.assert_allclose(
        np.diff(octave), np.diff(octave)[-1], rtol=0.3
    )  # equal ratios far from the centre


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("truncation", [Truncation(by="norm"), Truncation(by="norm", joint=9.0)])
def test_a_tiny_row_with_a_huge_target_adds_at_most_the_threshold(kind, truncation):
    records = LocalExecutor(kind([[1e-170, 0.0, 0.0]]), np.array([-1e178]), None).records(None)
    point = GradientPoint(np.zeros(3), 0.7, np.array([1.0, 2.0, 3.0]))
    assert np.linalg.norm(RobustGradient(LOSSES["squared"], truncation).evaluate(records, point)) <= 0.7
