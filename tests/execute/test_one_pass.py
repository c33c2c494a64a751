"""A gradient in one pass over the rows is the one that queries make step by step."""

import math

import numpy as np
import pytest
from scipy import sparse

from sordino.execute import LocalExecutor
from sordino.execute import records as affine_view
from sordino.kernel import SparseVector
from sordino.problems.affine import Affine, AffineGradient, MappedGram, MarginFit, OwnPart
from sordino.problems.losses import LOSSES, Huber, compiled_form

RNG = np.random.default_rng(4)
N, D = 1500, 9  # more rows than a block
X = np.where(RNG.random((N, D)) < 0.5, RNG.normal(size=(N, D)), 0.0)
X[7], X[8] = 0.0, 1e5 * X[8]
WEIGHTS = RNG.random(N)
SIGNS, NUMBERS = np.where(RNG.random(N) < 0.5, -1.0, 1.0), RNG.normal(size=N)
AFFINE = Affine(0.2 * RNG.normal(size=D), 0.5 + RNG.random(D), 0.25)
BARE = Affine(np.zeros(D), 0.5 + RNG.random(D), 0.0)
SOME = Affine(AFFINE.shift[:3], AFFINE.scale[:3], 0.25, np.array([1, 4, 8]))
LOGISTIC = LOSSES["logistic"]
QUERIES = [
    AffineGradient(LOGISTIC, 0.3),
    AffineGradient(LOGISTIC, 0.3, fair=True, whole=True),
    AffineGradient(LOSSES["squared"], 0.3, whole=True),
    AffineGradient(Huber(0.4), 0.3),
]
KINDS = {
    "dense": lambda rows: rows,
    "single": lambda rows: rows.astype(np.float32),
    "csr": sparse.csr_matrix,
    "csr single": lambda rows: sparse.csr_matrix(rows.astype(np.float32)),
}


def records(kind, targets, weights=None, rows=X):
    return LocalExecutor(KINDS[kind](rows), targets, 1.5, 0.3, weights).records(None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighed"])
@pytest.mark.parametrize("affine", [AFFINE, BARE, SOME], ids=["shifted", "bare", "some columns"])
@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_one_pass_is_the_gradient_step_by_step(query, affine, weights, kind, monkeypatch):
    held = records(kind, SIGNS if query.loss is LOGISTIC else NUMBERS, weights)
    w = RNG.normal(size=affine.scale.size + bool(affine.intercept))
    params = (3.0 * w, affine, None, 1.0 if query.loss is LOGISTIC else 0.7)
    found = query.evaluate(held, params)
    monkeypatch.setattr(AffineGradient, "_in_one_pass", lambda *_: None)
    np.testing.assert_allclose(found, query.evaluate(held, params), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_that_is_asked_again_is_not_added_up_again(kind, monkeypatch):
    held, params = records(kind, SIGNS), (RNG.normal(size=D + 1), AFFINE, None, 1.0)
    found = QUERIES[1].evaluate(held, params)
    again = found.copy()
    monkeypatch.setattr(type(held), "add_pulls", None)
    found[:] = 0.0  # what became of the first answer is nothing to the second
    np.testing.assert_array_equal(QUERIES[1].evaluate(held, params), again)
    with pytest.raises(TypeError):
        QUERIES[0].evaluate(held, params)  # another weight of records is another gradient


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("affine", [AFFINE, SOME], ids=["shifted", "some columns"])
def test_where_only_the_constant_entry_is_asked_no_row_is_added_up(kind, affine):
    held, last = records(kind, NUMBERS), np.arange(affine.scale.size + 1) == affine.scale.size
    w, asked = RNG.normal(size=last.size), []
    one_pass = type(held).add_pulls

    def listen(self, w, at, facts, pull, out):
        asked.append(out.size)
        return one_pass(self, w, at, facts, pull, out)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(held), "add_pulls", listen)
        found = [QUERIES[3].evaluate(held, (w, affine, mask, 0.7)) for mask in (last, None)]
    assert found[0].tolist() == [found[1][-1]]
    assert asked == [0, affine.scale.size]


def test_records_that_are_not_finite_add_nothing_in_one_pass():
    w, params = RNG.normal(size=D + 1), None
    for query, targets in ((QUERIES[1], SIGNS), (QUERIES[3], NUMBERS)):
        y = np.where(np.arange(N) % 50 == 0, np.nan, targets)
        params = (w, AFFINE, None, 1.0)
        kept = np.isfinite(y)
        expected = query.evaluate(records("dense", y[kept], rows=X[kept]), params)
        for kind in KINDS:
            found = query.evaluate(records(kind, y), params)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        broken = np.where(kept[:, None], X, np.inf)
        found = query.evaluate(records("dense", targets, rows=broken), params)
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def test_a_sparse_point_and_an_empty_batch_are_taken():
    held, w = records("csr", SIGNS), np.zeros(D + 1)
    w[[2, D]] = 1.0, -0.5
    point = SparseVector(np.array([D, 2]), np.array([-0.5, 1.0]), D + 1)
    there, here = (QUERIES[0].evaluate(held, (p, AFFINE, None, 1.0)) for p in (point, w))
    assert np.array_equal(there, here)
    none = held.subset(np.empty(0, dtype=np.int64))
    assert not QUERIES[0].evaluate(none, (w, AFFINE, None, 1.0)).any()


def test_a_loss_of_ones_own_is_never_taken_for_a_compiled_one():
    class Mine(type(LOGISTIC)):
        pass

    assert compiled_form(Mine()) is None
    assert compiled_form(Huber(0.4)) == (1, 0.4)
    assert compiled_form(LOSSES["squared"]) == (1, math.inf)
    assert compiled_form(LOSSES["poisson"]) is None


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighed"])
@pytest.mark.parametrize("offset", [True, False])
@pytest.mark.parametrize("loss", [LOGISTIC, LOSSES["squared"], Huber(0.4)], ids=str)
def test_the_last_question_in_one_pass_is_the_one_step_by_step(loss, offset, weights, monkeypatch):
    held = records("csr", SIGNS if loss is LOGISTIC else NUMBERS, weights)
    w, unit = RNG.normal(size=D + 1), 1.0 if loss is LOGISTIC else 0.7
    own = OwnPart(AFFINE, 0.3, 0.1, -0.2, 0.25, loss is LOGISTIC, 0.3)
    query, params = MarginFit(loss, 0.4, offset), (w, 0.15, 0.8, unit, own)
    found = query.evaluate(held, params)
    monkeypatch.setattr("sordino.problems.affine.compiled_form", lambda loss: None)
    np.testing.assert_allclose(found, query.evaluate(held, params), rtol=1e-10)


@pytest.mark.parametrize("affine", [AFFINE, BARE, SOME], ids=["shifted", "bare", "some columns"])
def test_second_moments_from_entries_are_those_from_blocks(affine, monkeypatch):
    held = records("csr", SIGNS)
    blocks = MappedGram().evaluate(held, affine)
    monkeypatch.setattr(affine_view, "_SPARSE", 0)
    entries = MappedGram().evaluate(records("csr", SIGNS), affine)
    assert np.array_equal(entries, entries.T)
    np.testing.assert_allclose(entries, blocks, rtol=1e-10, atol=1e-10)
    whole, d = held.through(affine), affine.scale.size
    every = np.eye(d, d + bool(affine.intercept))
    columns = whole.weighted_sum(whole.margins(every))[:, :d]
    whole = whole.gram(np.ones(N))
    np.testing.assert_allclose(whole, columns, rtol=1e-9, atol=1e-9)
