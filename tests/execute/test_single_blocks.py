"""Dense rows that a map shows are kept in single precision: what they add is bounded by what they became."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.execute import LocalExecutor, csr
from sordino.execute import records as views
from sordino.kernel import clip
from sordino.kernel.query import Pull
from sordino.problems.affine import Affine, AffineGradient, MappedGram
from sordino.problems.losses import LOSSES, Huber

RNG = np.random.default_rng(11)
N, D = 2200, 9  # three blocks, the last one shorter; columns that are no multiple of four
X = RNG.normal(size=(N, D))
X[5], X[6] = 0.0, 1e6 * X[6]
WEIGHTS = RNG.random(N)
SIGNS, NUMBERS = np.where(RNG.random(N) < 0.5, -1.0, 1.0), RNG.normal(size=N)
AFFINE = Affine(0.2 * RNG.normal(size=D), 0.2 + RNG.random(D), 0.25)
BARE = Affine(np.zeros(D), 0.2 + RNG.random(D), 0.0)
LOGISTIC = LOSSES["logistic"]
QUERIES = [
    AffineGradient(LOGISTIC, 0.3, fair=True, whole=True),
    AffineGradient(LOSSES["squared"], 0.3, whole=True),
    AffineGradient(Huber(0.4), 0.3),
]


@pytest.fixture(autouse=True)
def _keep_few_rows_too(monkeypatch):
    monkeypatch.setattr(views, "_COPIED", (1, 1 << 23))


def records(targets, weights=None, rows=X):
    return LocalExecutor(rows, targets, 1.5, 0.3, weights).records(None)


def in_blocks(monkeypatch):
    """Return how often a gradient was added up from blocks, in a list of one number."""
    asked, one_pass = [0], csr.over_blocks

    def listen(*arguments):
        asked[0] += 1
        return one_pass(*arguments)

    monkeypatch.setattr(csr, "over_blocks", listen)
    return asked


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighed"])
@pytest.mark.parametrize("affine", [AFFINE, BARE], ids=["shifted", "bare"])
@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_a_gradient_after_second_moments_is_the_gradient_of_rounded_rows(
    query, affine, weights, kind, monkeypatch
):
    asked, targets = in_blocks(monkeypatch), SIGNS if query.loss is LOGISTIC else NUMBERS
    params = (RNG.normal(size=D + bool(affine.intercept)), affine, None, 0.7)
    rows = X.astype(kind)
    expected = query.evaluate(records(targets, weights, rows), params)
    held = records(targets, weights, rows)
    MappedGram().evaluate(held, affine)
    found = query.evaluate(held, params)
    assert asked == [1]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    if affine.intercept:
        last = np.arange(D + 1) == D
        other = query.evaluate(held, (params[0], affine, last, 0.7))
        np.testing.assert_allclose(other, found[-1:], rtol=1e-12)
        assert asked == [2]
        wider = Affine(affine.shift, affine.scale, 0.5)  # another constant: the same rows
        expected = query.evaluate(records(targets, weights, rows), (params[0], wider, None, 0.7))
        found = query.evaluate(held, (params[0], wider, None, 0.7))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        assert asked == [3]
    query.evaluate(held, (params[0], affine.resize(0.5), None, 0.7))  # another map: other rows
    assert asked[0] == (3 if affine.intercept else 1)


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_a_constant_entry_is_asked_of_the_rows_of_any_multiple_of_the_map(query, monkeypatch):
    asked, targets = in_blocks(monkeypatch), SIGNS if query.loss is LOGISTIC else NUMBERS
    held, last, w = records(targets), np.arange(D + 1) == D, RNG.normal(size=D + 1)
    MappedGram().evaluate(held, AFFINE)
    for times in (2.0, 1e-9):
        flat = Affine(AFFINE.shift, times * AFFINE.scale, 0.5)
        point = np.append(w[:D] / times, w[D])
        found = query.evaluate(held, (point, flat, last, 0.7))
        expected = query.evaluate(records(targets), (point, flat, last, 0.7))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert asked == [2]


def test_second_moments_are_those_of_unrounded_rows():
    found = MappedGram().evaluate(records(SIGNS), AFFINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(views, "_COPIED", (1, 0))
        np.testing.assert_allclose(found, MappedGram().evaluate(records(SIGNS), AFFINE), rtol=1e-12)


@pytest.mark.parametrize("limits", [(1 << 17, 1 << 23), (1, 100)], ids=["few entries", "many entries"])
def test_few_and_very_many_rows_are_read_as_they_are(limits, monkeypatch):
    monkeypatch.setattr(views, "_COPIED", limits)
    asked, held = in_blocks(monkeypatch), records(SIGNS)
    MappedGram().evaluate(held, AFFINE)
    QUERIES[0].evaluate(held, (np.ones(D + 1), AFFINE, None, 1.0))
    assert asked == [0]


def test_rows_and_targets_that_are_not_finite_add_nothing():
    y, rows = SIGNS.copy(), X.copy()
    y[::50], rows[1::50], rows[2::50] = np.nan, np.inf, np.nan
    kept = np.isfinite(y) & np.isfinite(rows).all(axis=1)
    params = (RNG.normal(size=D + 1), AFFINE, None, 1.0)
    answers = []
    for some in (np.ones(N, dtype=bool), kept):
        held = records(y[some], rows=rows[some])
        MappedGram().evaluate(held, AFFINE)
        answers.append(QUERIES[0].evaluate(held, params))
    np.testing.assert_allclose(*answers, rtol=1e-10)


def exact_norm(vector):
    """Return the square of a norm, exactly."""
    return sum(Fraction(float(v)) ** 2 for v in vector)


UP = 1.0 + 2.0**-24 * (1.0 + 2.0**-20)  # single precision rounds it to 1 + 2^-23
ROWS = [np.full(4, 0.25 * UP), np.array([UP, 0.0, 0.0, 0.0]), np.array([1e-46, 1e-45, 2e-44, 0.0])]


def gradient_of_one(row, clip_norm):
    """Return what a record with a long residual adds to a clipped gradient from blocks."""
    affine = Affine(np.zeros(4), np.ones(4), 0.0)
    held = LocalExecutor(row[None, :], np.array([1e30]), None).records(None)
    MappedGram().evaluate(held, affine)
    view = held.through(affine)
    return view.clipped_gradient(np.zeros(4), Pull(1, clip_norm, False))


@given(st.lists(st.floats(-1.0, 1.0), min_size=4, max_size=4), st.floats(1e-3, 10.0))
def test_a_record_adds_at_most_the_clip_in_exact_arithmetic(row, clip_norm):
    for each in (np.array(row), *ROWS):
        assert exact_norm(gradient_of_one(each, clip_norm)) <= Fraction(clip_norm) ** 2


def test_norms_of_rows_before_they_were_rounded_would_let_a_record_add_more(monkeypatch):
    monkeypatch.setattr(clip, "single_norms", lambda norms, length: norms)
    assert any(exact_norm(gradient_of_one(row, 0.7)) > Fraction(0.7) ** 2 for row in ROWS)


@given(st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=6))
def test_norms_of_single_rows_are_upper_bounds(values):
    rounded = np.array(values).astype(np.float32)
    norms = clip.single_norms(clip.row_norms(np.array([values])), len(values))
    assert Fraction(float(norms[0])) ** 2 >= exact_norm(rounded)
    assert norms[0] <= (1.0 + 2.0**-22) * clip.row_norms(np.array([values]))[0] + 1e-44
