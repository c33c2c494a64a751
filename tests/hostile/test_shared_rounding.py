"""Exact noise of persons: blocks of persons are rounded, and no number of rows moves what others add."""

import numpy as np
import pytest
from scipy import sparse
from tests.hostile.test_shared_rows import KINDS, SUMS

import sordino
from sordino.execute import LocalExecutor
from sordino.execute.persons import SharedExecutor
from sordino.kernel import Batch, Gaussian, Laplace, Norm, Relation, Release
from sordino.kernel.plan import Question
from sordino.kernel.query import WHOLE, summation_error

PERSONS = 2100  # three blocks of 1,024 and less
OTHERS = (
    np.random.default_rng(4).normal(size=(PERSONS - 1, 4))
    * np.exp2(np.arange(PERSONS - 1) % 60 - 30)[:, None]
)
MINE = {"one": [(0.2, -9.0, 4.0, 1.0)], "many": [(-3.0, 2.0, 5.0, -1.0)] * 777, "none": [(np.nan,) * 4]}


def executor_of(kind, mine, norm):
    """Return person 5 with these rows among others with a row each."""
    table = np.concatenate([OTHERS[:5], np.array(mine), OTHERS[5:]])
    rows = table[:, :3] if kind == "array" else sparse.csr_matrix(table[:, :3])
    owners = np.concatenate([np.arange(5), np.full(len(mine), 5), np.arange(6, PERSONS)])
    return SharedExecutor(LocalExecutor(rows, table[:, 3], norm), owners)


def question_of(name, executor):
    query, params, _ = SUMS[name]
    noise = Laplace if query.norm is Norm.L1 else Gaussian
    release = Release(query, noise(2.5, secure=True), mean=False)
    offer = executor.offer
    known = (
        release.sensitivity(Relation.REPLACE_ONE, params),
        0,
        PERSONS,
        None,
        offer.lattice,
        offer.roundings,
    )
    return Question(release, params, *known)


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_rounded_sums_of_persons_are_as_near_as_the_noise_assumes(name, kind):
    blocks = {}
    for who, mine in MINE.items():
        executor = executor_of(kind, mine, SUMS[name][2])
        question = question_of(name, executor)
        with np.errstate(all="ignore"):
            blocks[who] = [question.summed(block) for block in executor._blocks]
            np.testing.assert_array_equal(executor.total(question, Batch(())), sum(blocks[who]))
    assert blocks["one"][0].dtype == np.int64
    far = []
    for who in ("many", "none"):
        for own, other in zip(blocks["one"][1:], blocks[who][1:], strict=True):
            np.testing.assert_array_equal(own, other)
        apart = (sum(blocks["one"]) - sum(blocks[who])).astype(float) * question.spacing
        far.append(np.linalg.norm(apart) / question.room(apart))
    assert 0.0 < max(far) <= 1.0


@pytest.mark.parametrize("kind", ["array", "csr"])
@pytest.mark.parametrize("outputs", [1, 3])
def test_a_row_is_multiplied_alike_wherever_it_stands(kind, outputs):
    w = np.random.default_rng(2).normal(size=(outputs, 3)) if outputs > 1 else np.array([0.3, -1.7, 0.1])
    margins = {}
    for who, mine in MINE.items():
        blocks = executor_of(kind, mine, None)._blocks
        margins[who] = np.concatenate([np.asarray(block.margins(w)) for block in blocks])
    for who in ("many", "none"):
        np.testing.assert_array_equal(margins[who][-PERSONS + 6 :], margins["one"][-PERSONS + 6 :])


def test_the_room_covers_a_block_of_persons_with_the_most_rows():
    executor = executor_of("array", MINE["one"], 1.0)
    persons, rows = WHOLE // 256, 1 << 16
    by_hand = 2.0 * (persons * rows + 16) * 2.0**-53 * persons  # roundings of terms of so many reaches
    assert by_hand <= summation_error(executor.offer.roundings, 1.0) < 2e-5
    assert SharedExecutor(executor.local, executor.groups, 10)._root == 4


def test_rows_beyond_the_most_count_nothing(monkeypatch):
    monkeypatch.setattr("sordino.execute.persons._ROWS", 4)
    executor = executor_of("array", [(0.1, 0.2, 0.3, 0.0)] * 10, None)
    parts = executor._parts[5:15]
    assert (parts[:4] > 0.2499).all()
    assert parts.sum() <= 1.0
    assert (parts[4:] == 0.0).all()


def test_persons_have_exact_noise_wherever_their_rows_count_in_parts():
    public = np.random.default_rng(1)
    X, owners = public.normal(size=(600, 3)) / 3, public.integers(0, 200, 600)
    y = X[:, 0] + 0.1
    common = {"epsilon": 1.0, "delta": 1e-5, "secure_noise": True}
    fits = [
        sordino.PCA(2, data_norm=1.0, **common).fit(X, groups=owners),
        sordino.HeavyTailedRegressor(**common).fit(X, y, groups=owners),
        sordino.LogisticRegression(data_norm=1.0, classes=[False, True], **common).fit(
            X, y > 0, groups=owners
        ),
    ]
    reports = [fit.privacy_ for fit in fits]
    table = sordino.crosstab(y > 0, X[:, 1] > 0, 1.0, levels=[[False, True]] * 2, groups=owners)
    reports += [table.privacy, sordino.count(y > 0, 1.0, rows_per_person=4).privacy]
    for report in reports:
        assert all("exact" in release.mechanism for release in report.releases), report
        assert report.unit == "person"
