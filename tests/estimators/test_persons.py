"""One person, many rows: the unit of privacy is the person."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse, stats
from sklearn.base import clone

import sordino
from sordino import SparseLinearRegression, SparseLogisticRegression
from sordino.accounting.trees import flatten
from sordino.errors import InvalidInputError, UnsupportedError
from sordino.execute import GroupedExecutor, LocalExecutor
from sordino.kernel import GumbelTopK, Plan, Relation, Release, check_offer
from sordino.problems.losses import Logistic, Multinomial
from sordino.problems.queries import GlmDifference, GlmGradient, VertexScores
from sordino.testing import seeded_noise_not_private


def rows(n=60, d=4, persons=9, seed=0):
    public = np.random.default_rng(seed)
    X = public.normal(size=(n, d)) * public.choice([0.01, 1, 100], size=(n, 1))
    return X, public.choice([-1.0, 1.0], n), public.integers(0, persons, n)


def gradient(X, y, groups, w, clip, kind, intercept=0.5):
    executor = GroupedExecutor(LocalExecutor(kind(X), y, 3.0, intercept), groups)
    return GlmGradient(Logistic(), clip).evaluate(executor.records(None), w)


@given(seed=st.integers(0, 10_000), clip=st.sampled_from([0.3, 2.0]), sparse_rows=st.booleans())
def test_a_person_with_any_number_of_rows_moves_the_sum_at_most_by_the_clip(seed, clip, sparse_rows):
    X, y, groups = rows(seed=seed)
    w = np.random.default_rng(seed + 1).normal(size=5)
    kind = sparse.csr_matrix if sparse_rows else np.array
    whole = gradient(X, y, groups, w, clip, kind)
    left = groups != groups[0]
    without = gradient(X[left], y[left], groups[left], w, clip, kind)
    assert np.linalg.norm(whole - without) <= clip * (1 + 1e-9)


def test_a_person_of_many_equal_rows_attains_the_clip():
    X, y, groups = np.ones((50, 2)), np.ones(50), np.zeros(50)
    moved = gradient(X, y, groups, np.zeros(3), 0.7, np.array)
    assert np.linalg.norm(moved) == pytest.approx(0.7)


def test_the_sum_is_clipped_and_not_each_row():
    X, y, groups = np.array([[2.0, 0.0], [-2.0, 0.0]]), np.ones(2), np.zeros(2)
    moved = gradient(X, y, groups, np.zeros(2), 0.4, np.array, intercept=0.0)
    np.testing.assert_allclose(moved, 0, atol=1e-12)  # the two rows cancel within the person


@pytest.mark.parametrize("block", [7, 1 << 18])
def test_persons_that_straddle_blocks_are_clipped_as_one(block, monkeypatch):
    monkeypatch.setattr("sordino.execute.records._BLOCK", block)
    X, y, groups = rows()
    executor = GroupedExecutor(LocalExecutor(X, y, 3.0, 0.5), groups)
    records = executor.records(None)
    coefficients = np.random.default_rng(3).normal(size=60)
    order = np.argsort(groups, kind="stable")
    scaled = np.hstack([X * np.minimum(1, 3 / np.linalg.norm(X, axis=1))[:, None], np.full((60, 1), 0.5)])
    sums = np.zeros((9, 5))
    np.add.at(sums, groups[order], coefficients[:, None] * scaled[order])
    np.testing.assert_allclose(records._norms(coefficients), np.linalg.norm(sums, axis=1))


def test_several_outputs_of_a_person_are_clipped_together():
    X, _, groups = rows()
    codes = np.random.default_rng(2).integers(0, 3, 60).astype(float)
    executor = GroupedExecutor(LocalExecutor(X, codes, 3.0, 0.5), groups)
    one = executor.records(np.array([2]))
    value = GlmGradient(Multinomial(), 0.6).evaluate(one, np.zeros((3, 5)))
    assert np.linalg.norm(value) == pytest.approx(0.6, rel=1e-6)


def test_differences_of_a_person_are_clipped_at_their_own_bound():
    X, y, groups = rows()
    executor = GroupedExecutor(LocalExecutor(X, y, 3.0, 0.5), groups)
    query, points = GlmDifference(Logistic(), 0.8, 3.05), (np.full(5, 0.01), np.zeros(5))
    value = query.evaluate(executor.records(np.array([1])), points)
    assert np.linalg.norm(value) <= query.contribution(points) * (1 + 1e-9)


@pytest.mark.parametrize("solver", ["auto", "ight", "sgd-ht", "svrg-ht", "scsg-ht"])
def test_the_report_says_person_and_the_number_of_persons(solver):
    public = np.random.default_rng(0)
    X = public.normal(size=(900, 3))
    y, groups = (X[:, 0] > 0).astype(int), np.arange(900) // 3
    model = SparseLogisticRegression(epsilon=20.0, solver=solver).fit(X, y, groups=groups)
    assert model.privacy_.unit == "person"
    assert "number of persons: 300" in model.privacy_.public
    assert model.score(X, y) > 0.6


def test_one_row_a_person_is_the_ordinary_fit():
    public = np.random.default_rng(0)
    X, y = public.normal(size=(200, 3)), public.normal(size=200)
    coefs = []
    for groups in (None, np.arange(200)):
        with seeded_noise_not_private(4):
            coefs.append(SparseLinearRegression(solver="ight").fit(X, y, groups=groups).coef_)
    np.testing.assert_allclose(*coefs, rtol=1e-9)


def test_solvers_without_a_proof_for_persons_are_refused():
    X, y, groups = rows()
    with pytest.raises(InvalidInputError, match="with groups"):
        SparseLogisticRegression(solver="frank-wolfe").fit(X, y, groups=groups)
    scores = Release(VertexScores(Logistic(), 0.7), GumbelTopK(), mean=False)
    with pytest.raises(UnsupportedError, match="not proven for groups"):
        check_offer(Plan({"vertex": scores}, Relation.ADD_REMOVE, 5), GroupedExecutor.offer)
    with pytest.raises(InvalidInputError, match="one group per record"):
        SparseLogisticRegression(solver="ight").fit(X, y, groups=groups[:-1])


def test_class_weights_scale_before_the_clip():
    X, y, _ = rows()
    weights = np.where(y > 0, 50.0, 1.0)
    weighted = LocalExecutor(X, y, 3.0, 0.5, weights).records(None)
    query = GlmGradient(Logistic(), 0.2)
    coefficients = query._coefficients(weighted, np.zeros(5))
    assert np.max(np.abs(coefficients) * weighted.norms) <= 0.2
    plain = query._coefficients(LocalExecutor(X, y, 3.0, 0.5).records(None), np.zeros(5))
    small = np.abs(plain) * weighted.norms < 0.2 / 60
    np.testing.assert_allclose(coefficients[small], (weights * plain)[small])


def test_class_weights_move_the_decision_and_balanced_is_refused():
    public = np.random.default_rng(0)
    X = public.normal(size=(4000, 3)) / 3
    y = (X[:, 0] + public.normal(size=4000) > 1.2).astype(int)
    shares = [
        SparseLogisticRegression(epsilon=20.0, class_weight=w).fit(X, y).predict(X).mean()
        for w in (None, {0: 1.0, 1: 8.0})
    ]
    assert shares[1] > shares[0] + 0.1
    with pytest.raises(InvalidInputError, match="declared constants"):
        SparseLogisticRegression(class_weight="balanced").fit(X, y)


# ------------------------------------------------------- components and heavy tails: all rows of a person


def test_axes_of_persons_are_those_of_the_mean_of_their_second_moments():
    rng = np.random.default_rng(0)
    owners = np.repeat(np.arange(400), rng.integers(1, 6, 400))
    rows = rng.normal(size=(owners.size, 4)) * [3.0, 1.0, 0.5, 0.2]
    weights = 1.0 / np.bincount(owners)[owners] / 400
    mean = weights @ rows
    matrix = (rows - mean).T @ ((rows - mean) * weights[:, None])
    for solver in ("gauss", "power", "mod-sulq"):
        model = sordino.PCA(2, epsilon=math.inf, solver=solver, data_norm=20.0, random_state=0)
        model.fit(rows, groups=owners)
        expected = np.linalg.eigvalsh(matrix)[::-1][:2] * 400 / 399
        np.testing.assert_allclose(model.explained_variance_, expected, rtol=1e-6)
        assert model.privacy_.unit == "person"
        assert "number of persons: 400" in model.privacy_.public
    with pytest.raises(UnsupportedError, match="only Full ones"):
        sordino.PCA(2, solver="spca", data_norm=20.0).fit(rows, groups=owners)


def test_heavy_tailed_models_of_persons_learn_and_refuse_what_is_not_proven():
    rng = np.random.default_rng(1)
    owners = np.arange(6000) // 3
    rows = rng.standard_t(4, size=(6000, 3))
    target = rows @ [1.0, -0.5, 0.0] + 2.0 + rng.standard_t(3, 6000)
    model = sordino.HeavyTailedRegressor(epsilon=2.0).fit(rows, target, groups=owners)
    np.testing.assert_allclose([*model.coef_, model.intercept_], [1.0, -0.5, 0.0, 2.0], atol=0.3)
    assert model.privacy_.unit == "person"
    labels = sordino.HeavyTailedClassifier(epsilon=2.0, classes=[0, 1])
    assert labels.fit(rows, (target > 2) * 1, groups=owners).score(rows, (target > 2) * 1) > 0.65
    for options in ({"gradient": "median-of-means"}, {"split": True}):
        with pytest.raises(UnsupportedError):
            sordino.HeavyTailedRegressor(solver_options=options).fit(rows, target, groups=owners)


# ------------------------------------------------------- rows whose owners nobody knows, a declared number


def test_rows_of_an_unknown_person_get_so_many_times_the_noise():
    public = np.random.default_rng(3)
    X = public.uniform(-1, 1, (400, 2))
    settings = {"epsilon": 1.0, "delta": 1e-6, "data_norm": 1.5, "target_bound": 1.0, "solver": "gd"}
    found = {
        m: sordino.LinearRegression(**settings, max_iter=2, rows_per_person=m).fit(X, X[:, 0]).privacy_
        for m in (None, 5)
    }
    one, five = ([float(r.sensitivity.split()[0]) for r in found[m].releases] for m in (None, 5))
    assert five == pytest.approx([5 * bound for bound in one], rel=1e-3)
    assert [r.noise_multiplier for r in found[5].releases] == [
        r.noise_multiplier for r in found[None].releases
    ]
    assert (found[None].unit, found[5].unit) == ("record", "person")
    assert "rows_per_person = 5 (nobody has more; declared)" in found[5].public
    assert "number of records: 400" in found[5].public
    model = sordino.LinearRegression(**settings, rows_per_person=5).fit(X, X[:, 0])
    score = sordino.private_score(model, X, X[:, 0], metric="mae", epsilon=1.0, delta=1e-6)
    plain = sordino.private_score(
        model.set_params(rows_per_person=1), X, X[:, 0], metric="mae", delta=1e-6, groups=range(400)
    )
    (five,), (one,) = score.privacy.releases, plain.privacy.releases
    assert score.privacy.unit == "person"
    halves = {"half": (np.where(X[:, 0] > 0, "b", "a"), ["a", "b"])}
    apart = sordino.private_scores_by(model.set_params(rows_per_person=5), X, X[:, 0], by=halves, delta=1e-6)
    assert apart.privacy.unit == "person"
    assert float(five.sensitivity.split()[0]) == pytest.approx(
        5 * float(one.sensitivity.split()[0]), rel=1e-3
    )


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_rows_of_an_unknown_person_are_paid_for_in_batches_by_how_many_of_them_enter(relation):
    X = np.random.default_rng(3).uniform(-1, 1, (400, 2))
    settings = {"epsilon": 2.0, "delta": 1e-6, "data_norm": 1.5, "target_bound": 1.0, "relation": relation}
    settings |= {"solver": "sgd", "max_iter": 4, "solver_options": {"batch_size": 40}}
    one, five = (
        sordino.LinearRegression(**settings, rows_per_person=m).fit(X, X[:, 0]).privacy_ for m in (None, 5)
    )
    assert (one.unit, five.unit) == ("record", "person")
    first = [float(report.releases[0].sensitivity.split()[0]) for report in (one, five)]
    assert first[1] == pytest.approx(5 * first[0], rel=1e-3)
    (leaf,) = {leaf.event for leaf in flatten(five.event)}
    if relation == "replace-one":  # all five rows as one, which enters if any of them does
        assert leaf.sampling_probability == pytest.approx(1 - 0.9**5)
    else:
        np.testing.assert_allclose(leaf.sensitivities, np.arange(6) / 5)
        np.testing.assert_allclose(leaf.sampling_probs, stats.binom.pmf(range(6), 5, 0.1), rtol=1e-9)
    assert 1.98 < five.epsilon <= 2.0


@pytest.mark.parametrize(
    "model",
    [
        sordino.PCA(2, data_norm=1.5, solver="gauss"),
        sordino.PCA(2, data_norm=1.5, solver="power", max_iter=2),
        sordino.HeavyTailedRegressor(max_iter=2),
        sordino.HeavyTailedClassifier(max_iter=2, classes=[False, True]),
    ],
    ids=["gauss", "power", "regressor", "classifier"],
)
def test_axes_and_heavy_tails_of_unknown_persons_get_so_many_times_the_noise(model):
    X = np.random.default_rng(4).uniform(-1, 1, (300, 3))
    y = X[:, 0] > 0 if hasattr(model, "classes") else X[:, 0]
    one, four = (clone(model).set_params(rows_per_person=m).fit(X, y).privacy_ for m in (1, 4))
    assert (one.unit, four.unit) == ("person", "person")
    assert "rows_per_person = 4 (nobody has more; declared)" in four.public
    assert "number of records: 300" in four.public
    assert four.epsilon == pytest.approx(one.epsilon, rel=1e-6)
    first = [float(report.releases[0].sensitivity.split()[0]) for report in (one, four)]
    assert first[1] == pytest.approx(4 * first[0], rel=1e-3)


@pytest.mark.parametrize(
    ("model", "error"),
    [
        (sordino.PCA(2, data_norm=1.0, solver="gauss", noise="paper", center=False), InvalidInputError),
        (sordino.HeavyTailedRegressor(n_nonzero_coefs=1), UnsupportedError),
    ],
    ids=["paper", "selection"],
)
def test_axes_and_heavy_tails_refuse_what_is_not_proven_for_unknown_persons(model, error):
    X = np.eye(4)[np.arange(40) % 4]
    with pytest.raises(error, match=r"rows_per_person|Several records"):
        model.set_params(rows_per_person=3).fit(X, X[:, 0])


@pytest.mark.parametrize(
    "model",
    [
        sordino.LinearRegression(data_norm=1.0, target_bound=1.0),
        sordino.LinearRegression(data_norm=1.0, target_bound=1.0, solver="sgd"),
        sordino.PCA(2, data_norm=1.0),
        sordino.HeavyTailedRegressor(),
    ],
    ids=["auto", "batches", "axes", "heavy tails"],
)
def test_unknown_persons_have_exact_noise_of_the_same_size(model):
    X = np.eye(4)[np.arange(40) % 4]
    exact, plain = (
        clone(model).set_params(rows_per_person=3, secure_noise=secure).fit(X, X[:, 0]).privacy_.releases
        for secure in (True, False)
    )
    assert all("lattice" in release.mechanism for release in exact)
    for one, other in zip(exact, plain, strict=True):
        assert one.sensitivity == other.sensitivity
        assert one.noise_multiplier == pytest.approx(other.noise_multiplier)


def test_axes_of_unknown_persons_take_no_owners_and_no_chunks():
    X = np.eye(4)[np.arange(40) % 4]
    pca = sordino.PCA(2, data_norm=1.0, rows_per_person=3)
    with pytest.raises(InvalidInputError, match="rows_per_person=None"):
        pca.fit(X, groups=np.arange(40) // 3)
    with pytest.raises(UnsupportedError, match="Chunks protect records"):
        pca.partial_fit(X)
    with pytest.raises(InvalidInputError, match="rows_per_person=None"):
        sordino.HeavyTailedRegressor(rows_per_person=3).fit(X, X[:, 0], groups=np.arange(40) // 3)


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"noise": "paper", "solver": "sgd"}, InvalidInputError),
        ({"rows_per_person": 0}, InvalidInputError),
    ],
)
def test_what_is_not_proven_for_rows_of_unknown_persons_is_refused(more, error):
    X = np.eye(4)[np.arange(40) % 4]
    settings = {"data_norm": 1.0, "target_bound": 1.0, "rows_per_person": 3, **more}
    with pytest.raises(error, match=r"rows_per_person|Several records"):
        sordino.LinearRegression(**settings).fit(X, X[:, 0])


def test_known_owners_and_searches_take_no_number_of_rows():
    X = np.eye(4)[np.arange(40) % 4]
    model = sordino.LinearRegression(data_norm=1.0, target_bound=1.0, rows_per_person=3)
    with pytest.raises(InvalidInputError, match="rows_per_person=None"):
        model.fit(X, X[:, 0], groups=np.arange(40) // 3)
    with pytest.raises(UnsupportedError, match="together"):
        sordino.PrivateSearchCV(model, {"max_iter": [1, 2]}).fit(X, X[:, 0])


@pytest.mark.parametrize(
    "model",
    [
        sordino.LinearRegression(data_norm=1.0, target_bound=1.0, rows_per_person=3),
        sordino.PCA(2, data_norm=1.0, solver="power", rows_per_person=3),
    ],
)
def test_a_joint_task_is_for_persons_with_so_many_rows_at_all_members(model):
    plan = model.joint_task(40, 4).plan()
    assert plan.unit == "person"
    assert {release.rows for release in plan.releases.values()} == {3}
