"""Records: all kinds of data agree, nothing is densified, bad records contribute zero."""

import math

import numpy as np
import pytest
from scipy import sparse
from tests.asking import asked
from tests.execute.kinds import (
    BOUND,
    INTERCEPT,
    KINDS,
    QUERY,
    D,
    N,
    every_kind,
    executor_of,
    matrix_and_targets,
)
from tests.kernel.toys import source

from sordino.errors import InvalidInputError
from sordino.execute import LocalExecutor, csr
from sordino.execute.records import CsrRecords, DenseRecords, LazyRecords
from sordino.kernel import Full, Gaussian, Poisson, Release, SparseVector
from sordino.problems.affine import Affine
from sordino.problems.losses import LOSSES
from sordino.problems.queries import GlmGradient


def clipped_rows(intercept=INTERCEPT):
    """Return what the rows are by definition."""
    matrix, y = matrix_and_targets()
    norms = np.linalg.norm(matrix, axis=1)
    rows = matrix * np.minimum(1.0, BOUND / np.where(norms > 0, norms, 1.0))[:, None]
    return (np.hstack([rows, np.full((N, 1), intercept)]) if intercept else rows), y


ROWS = {"all": None, "some": np.array([7, 2, 29]), "none": np.array([], dtype=np.int64)}


@every_kind
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("intercept", [0.0, INTERCEPT])
def test_all_kinds_of_data_have_the_same_margins_sums_and_norms(kind, rows, intercept):
    x, y = clipped_rows(intercept)
    x = x if ROWS[rows] is None else x[ROWS[rows]]
    records = executor_of(kind, intercept).records(ROWS[rows])
    rng = np.random.default_rng(2)
    w, many = rng.normal(size=x.shape[1]), rng.normal(size=(3, x.shape[1]))
    c, several = rng.normal(size=len(x)), rng.normal(size=(len(x), 3))
    close = {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(records.margins(w), x @ w, **close)
    np.testing.assert_allclose(records.margins(many), x @ many.T, **close)
    np.testing.assert_allclose(records.weighted_sum(c), c @ x, **close)
    np.testing.assert_allclose(records.weighted_sum(several), several.T @ x, **close)
    np.testing.assert_allclose(records.norms, np.linalg.norm(x, axis=1), **close)
    np.testing.assert_array_equal(records.targets, y if ROWS[rows] is None else y[ROWS[rows]])
    assert (records.count, records.columns) == (len(x), x.shape[1])


@pytest.mark.parametrize("kind", ["dense", "csr", "float32"])
@pytest.mark.parametrize("intercept", [0.0, INTERCEPT])
def test_margins_of_slopes_at_another_length_need_no_pass_over_rows(kind, intercept, monkeypatch):
    x, _ = clipped_rows(intercept)
    records, w = executor_of(kind, intercept).records(None), np.random.default_rng(2).normal(size=x.shape[1])
    records.margins(w)
    monkeypatch.setattr(type(records), "_products", None)
    longer = -1.7 * w
    longer[D:] = 0.4
    np.testing.assert_allclose(records.margins(longer), x @ longer, rtol=1e-12, atol=1e-12)
    longer[2] *= 1.0 + 1e-14
    with pytest.raises(TypeError):
        records.margins(longer)  # other slopes, however near
    np.testing.assert_array_equal(records.margins(0.0 * w), np.zeros(N))


@every_kind
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("intercept", [0.0, INTERCEPT])
def test_a_lazy_batch_has_the_same_margins_and_sums(kind, rows, intercept):
    x, _ = clipped_rows(intercept)
    x = x if ROWS[rows] is None else x[ROWS[rows]]
    base = executor_of(kind, intercept).records(ROWS[rows])
    if not isinstance(base, CsrRecords):
        assert isinstance(base, DenseRecords)
        return
    support = np.array([9, 1, 4] + [D] * bool(intercept))
    w = SparseVector(support, np.array([0.4, -2.0, 1.0] + [0.3] * bool(intercept)), x.shape[1])
    lazy, c = LazyRecords(base), np.random.default_rng(3).normal(size=len(x))
    np.testing.assert_allclose(lazy.margins(w), x @ w.to_dense(), rtol=1e-12, atol=1e-12)
    total = lazy.weighted_sum(c)
    np.testing.assert_allclose(total.to_dense(), c @ x, rtol=1e-12, atol=1e-12)
    assert total.indices[: support.size].tolist() == support.tolist()
    assert np.unique(total.indices).size == total.indices.size
    assert total.touched.contains(total.indices).all()


@every_kind
def test_the_users_matrix_is_left_alone(kind):
    matrix, y = matrix_and_targets()
    given = KINDS[kind](matrix)
    before = given.toarray() if sparse.issparse(given) else given.copy()
    stored = given.nnz if sparse.issparse(given) else None
    executor = LocalExecutor(given, y, BOUND)
    asked(executor, Release(QUERY, Gaussian(1.3)), np.zeros(D), 2.3, 0, source())
    after = given.toarray() if sparse.issparse(given) else given
    np.testing.assert_array_equal(before, after)
    assert stored == (given.nnz if sparse.issparse(given) else None)


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.bool_, np.float16])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix])
def test_other_numbers_are_computed_with_in_double_precision(dtype, make):
    if dtype is np.float16 and make is sparse.csr_matrix:
        return  # SciPy has no such matrices
    matrix = np.array([[3, 0, 1], [0, 1, 0]]).astype(dtype)
    records = LocalExecutor(make(matrix), np.zeros(2), None).records(None)
    np.testing.assert_allclose(
        records.weighted_sum(np.array([0.1, 0.2])), np.array([0.1, 0.2]) @ matrix.astype(float)
    )
    np.testing.assert_allclose(records.norms, np.linalg.norm(matrix.astype(float), axis=1))


# --------------------------------------------------------------------------------- never densified


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "csr stored twice"])
@pytest.mark.parametrize("outputs", [1, 3])
def test_a_sparse_matrix_is_never_made_dense(kind, outputs, monkeypatch):
    matrix, y = matrix_and_targets()
    given = KINDS[kind](matrix)

    def refuse(*arguments, **options):
        raise AssertionError("densified")

    for sort in (sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix, sparse.coo_matrix):
        for name in ("toarray", "todense"):
            monkeypatch.setattr(sort, name, refuse)
    y = y if outputs == 1 else np.arange(N) % 3.0
    loss = LOSSES["squared" if outputs == 1 else "multinomial"]
    shape = (D + 1,) if outputs == 1 else (outputs, D + 1)
    executor = LocalExecutor(given, y, BOUND, INTERCEPT)
    for mechanism in (Gaussian(1.3), Gaussian(1.3, secure=True)):
        for sampling in (Full(), Poisson(0.4)):
            release = Release(GlmGradient(loss, 2.3), mechanism, sampling, 9, lazy=True)
            asked(executor, release, np.zeros(shape), 2.3, 0, source())
            if outputs == 1:
                asked(executor, release, SparseVector.zeros(D + 1, 1), 2.3, 0, source())


def test_a_wide_sparse_matrix_needs_no_dense_copy():
    columns = 40_000_000  # dense rows would take 3 GB
    matrix = sparse.csr_matrix((np.ones(10), (np.arange(10), np.arange(10) * 4_000_000)), shape=(10, columns))
    executor = LocalExecutor(matrix, np.ones(10), BOUND)
    release = Release(QUERY, Gaussian(1.3), Poisson(0.5), 3, lazy=True)
    w = SparseVector.zeros(columns)
    out = asked(executor, release, w, 2.3, 0, source())
    assert out.hard_threshold(20).indices.size == 20


def test_single_precision_rows_are_cast_in_blocks(monkeypatch):
    monkeypatch.setattr("sordino.execute.records._CHUNK", 5 * D)
    blocks = []
    original = DenseRecords._block
    monkeypatch.setattr(
        DenseRecords, "_block", lambda self, rows: blocks.append(rows) or original(self, rows)
    )
    records = executor_of("float32").records(None)
    x, _ = clipped_rows()
    np.testing.assert_allclose(records.margins(np.ones((2, D + 1)))[:, 1], x.sum(axis=1), rtol=1e-12)
    assert len(blocks) == N // 5
    np.testing.assert_allclose(records.margins(np.ones(D + 1)), x.sum(axis=1), rtol=1e-12)  # never cast
    assert len(blocks) == N // 5


# ------------------------------------------------------------------------------------- bad records

BAD = {
    "nan": lambda m, y: m.__setitem__((3, 2), math.nan),
    "inf": lambda m, y: m.__setitem__((3, 2), math.inf),
    "-inf": lambda m, y: m.__setitem__((3, 2), -math.inf),
    "nan target": lambda m, y: y.__setitem__(3, math.nan),
    "inf target": lambda m, y: y.__setitem__(3, -math.inf),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("kind", ["dense", "fortran", "csr", "csc"])
@pytest.mark.parametrize("loss", ["squared", "huber", "logistic", "poisson", "multinomial"])
def test_a_record_that_is_not_finite_contributes_zero(bad, kind, loss):
    matrix, y = matrix_and_targets()
    y = np.arange(N) % 3.0 if loss == "multinomial" else np.sign(y)
    BAD[bad](matrix, y)
    query = GlmGradient(LOSSES[loss], 2.3)
    w = 0.3 * np.ones((3, D + 1) if loss == "multinomial" else D + 1)
    for bound in (BOUND, None):
        executor = LocalExecutor(KINDS[kind](matrix), y, bound, INTERCEPT)
        without = LocalExecutor(KINDS[kind](np.delete(matrix, 3, 0)), np.delete(y, 3), bound, INTERCEPT)
        exact = query.evaluate(executor.records(None), w)
        np.testing.assert_allclose(exact, query.evaluate(without.records(None), w), rtol=1e-10, atol=1e-12)


def test_a_bad_record_contributes_zero_to_a_lazy_batch():
    matrix, y = matrix_and_targets()
    matrix[3, 2] = math.nan
    w = SparseVector.zeros(D + 1, 1)
    pair = [np.delete(matrix, 3, 0), matrix], [np.delete(y, 3), y]
    totals = [
        QUERY.evaluate(LazyRecords(LocalExecutor(sparse.csr_matrix(m), t, BOUND, INTERCEPT).records(None)), w)
        for m, t in zip(*pair)
    ]
    np.testing.assert_allclose(totals[0].to_dense(), totals[1].to_dense(), rtol=1e-12)


@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("size", [1e-170, 5e-324])
def test_a_tiny_row_with_a_huge_residual_is_clipped(kind, size):
    matrix = KINDS[kind](np.array([[size, size, 0.0]]))
    records = LocalExecutor(matrix, np.array([1e300]), None).records(None)
    assert records.norms[0] == pytest.approx(size * 2**0.5, rel=0.5)
    assert np.linalg.norm(QUERY.evaluate(records, np.zeros(3))) <= 2.3


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_many_small_entries_beside_a_large_one_count_in_the_norm(kind):
    row = np.full((1, 400_001), 1e-9)
    row[0, 0] = 1.0
    norm = LocalExecutor(KINDS[kind](row), np.zeros(1), None).records(None).norms[0]
    exact = math.sqrt(1 + 4e5 * 1e-18)
    assert exact <= norm <= exact * (1 + 1e-10)


@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("size", [1e160, 1.7e308])
def test_a_row_beyond_the_range_of_squares_is_clipped_like_any_other(kind, size):
    records = LocalExecutor(KINDS[kind](np.array([[size, size, 0.0]])), np.ones(1), 1.7).records(None)
    total = records.weighted_sum(np.ones(1))
    np.testing.assert_allclose(total, [1.7 / 2**0.5, 1.7 / 2**0.5, 0.0], rtol=1e-12)
    assert np.linalg.norm(total) <= records.norms[0] <= 1.7


@pytest.mark.parametrize("bound", [0.0, -1.0, math.inf, math.nan])
def test_a_bound_on_rows_that_bounds_nothing_is_refused(bound):
    with pytest.raises(InvalidInputError, match="would leak"):
        LocalExecutor(np.ones((2, 2)), np.ones(2), bound)


@pytest.mark.parametrize("targets", [np.ones(3), np.ones((2, 1)), 1.0])
def test_every_record_has_one_target(targets):
    with pytest.raises(InvalidInputError, match="one target per record"):
        LocalExecutor(np.ones((2, 2)), targets)


def test_no_targets_are_zeros_and_rows_may_stay_unclipped():
    records = LocalExecutor(np.array([[30.0, 40.0]]), data_norm=None).records(None)
    assert records.targets.tolist() == [0.0]
    assert 50.0 <= records.norms[0] <= 50.0 * (1 + 1e-14)


def test_an_executor_does_not_print_its_data():
    text = repr(executor_of())
    assert "array" not in text
    assert str(matrix_and_targets()[1][0])[:6] not in text


def test_no_records_give_an_empty_sum():
    for empty in (np.zeros((0, 4)), sparse.csr_matrix((0, 4))):
        executor = LocalExecutor(empty, np.zeros(0))
        assert executor.population == 0
        np.testing.assert_array_equal(QUERY.evaluate(executor.records(None), np.zeros(4)), np.zeros(4))


@pytest.mark.parametrize("width", [7, 3000])
def test_columns_are_picked_alike_whether_few_or_very_many_are_there(width):
    rng = np.random.default_rng(0)
    matrix = sparse.random_array((30, 7), density=0.4, format="csr", random_state=rng)
    matrix = sparse.csr_matrix((matrix.data, matrix.indices, matrix.indptr), (30, width))
    rows, columns = np.array([3, 4, 9, 28]), np.array([6, 0, 3])
    found = csr.pick(matrix, rows, columns)
    assert found.nnz > 0
    np.testing.assert_array_equal(found.toarray(), matrix.toarray()[np.ix_(rows, columns)])


def gram_by_column(view, factors):
    """Return the second moments of mapped rows from products and sums alone; the constant entry is last."""
    d = len(view.weighted_sum(factors)) - 1
    entries = np.where(factors[:, None] > 0.0, view.margins(np.eye(d, d + 1)), 0.0)
    return view.weighted_sum(entries * factors[:, None])[:, :d]


@pytest.mark.parametrize("dense", [True, False])
def test_second_moments_of_mapped_rows_are_those_of_their_columns(dense):
    rng = np.random.default_rng(1)
    matrix = sparse.random_array((500, 9), density=0.4, format="csr", random_state=rng)
    rows = LocalExecutor(matrix.toarray() if dense else matrix, np.ones(500), 1.3, intercept=0.2).records(
        None
    )
    affine = Affine(rng.normal(size=9) / 5, 0.5 + rng.random(9), 0.25)
    view, factors = rows.through(affine), rng.choice([0.0, 0.7, 1.0], 500)
    np.testing.assert_allclose(view.gram(factors), gram_by_column(view, factors), rtol=1e-12, atol=1e-12)
    chosen = np.array([1, 4, 7])
    narrow = rows.through(Affine(affine.shift[chosen], affine.scale[chosen], 0.25, chosen))
    np.testing.assert_allclose(narrow.gram(factors), gram_by_column(narrow, factors), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_columns_within_columns_are_those_of_the_rows(kind):
    rng = np.random.default_rng(3)
    rows = np.where(rng.random((30, 12)) < 0.5, rng.normal(size=(30, 12)), 0.0)
    held = LocalExecutor(rows if kind == "dense" else sparse.csr_matrix(rows), None, None).records(None)
    for columns in ([1, 3, 4, 8, 11], [3, 8, 11], [8], [0, 8], [11, 3, 5, 1], [3, 11], [5, 2]):
        found = held.within(np.array(columns))
        w = rng.normal(size=len(columns))
        np.testing.assert_allclose(found.margins(w), rows[:, columns] @ w, atol=1e-12)
        np.testing.assert_allclose(found.weighted_sum(np.ones(30)), rows[:, columns].sum(0), atol=1e-12)
