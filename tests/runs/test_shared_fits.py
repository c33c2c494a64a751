"""Candidates of one fit: each is made of what it released, and all of them are scored in one release."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from sklearn.pipeline import make_pipeline
from tests.runs.helpers import ADD, REPLACE

import sordino
from sordino.accounting import certify
from sordino.errors import InvalidInputError
from sordino.estimators.search import Candidates
from sordino.execute import LocalExecutor
from sordino.kernel import Relation
from sordino.problems.affine import Affine
from sordino.problems.robust import Sample
from sordino.runs.search import score_means
from sordino.solvers.auto import Around
from sordino.solvers.descent import Moments
from sordino.testing import seeded_noise_not_private

LABELS = sordino.SparseLogisticRegression(data_norm=2.0, classes=[0, 1])


def memory_of(rows):
    return LocalExecutor(rows, data_norm=None).records(None)


def labelled(n=4000, d=5, seed=0):
    public = np.random.default_rng(seed)
    X = public.normal(size=(n, d)) / 2
    return X, (X[:, 0] + 0.2 * public.normal(size=n) > 0).astype(int)


@pytest.mark.parametrize("members", [1, 4, 9])
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_the_scores_of_all_members_move_by_half_the_root_of_their_number(members, relation):
    """The corners of the cube of scores are the furthest a record can be from 1/2."""
    means = score_means(members)
    query = means.plan(Sample(2, members, relation)).releases["scores"].query
    params = np.full(members, 0.5), np.full(members, means.radius)
    one = [query.evaluate(memory_of(np.full((1, members), end)), params) for end in (0.0, 1.0)]
    assert means.radius == math.sqrt(members) / 2
    assert np.linalg.norm(one[0]) == pytest.approx(1.0)
    moved = np.linalg.norm(one[1] - one[0]) if relation is REPLACE else np.linalg.norm(one[1])
    assert moved == pytest.approx(query.sensitivity(relation, params))


@pytest.mark.parametrize("score", [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324])
def test_no_score_moves_the_sum_by_more_than_its_radius(score):
    means = score_means(3)
    query = means.plan(Sample(1, 3, ADD)).releases["scores"].query
    params = np.full(3, 0.5), np.full(3, means.radius)
    assert np.linalg.norm(query.evaluate(memory_of(np.full((1, 3), score)), params)) <= 1.0 + 1e-12


@pytest.mark.parametrize("relation", [r.value for r in Relation])
def test_one_fit_has_the_whole_budget_and_gives_every_candidate(relation, monkeypatch):
    X, y = labelled()
    fits, fit = [], sordino.SparseLogisticRegression.fit

    def spied(self, X, y, **options):
        out = fit(self, X, y, **options)
        fits.append((len(X), out.privacy_.epsilon))  # a rehearsal ends before this line
        return out

    monkeypatch.setattr(sordino.SparseLogisticRegression, "fit", spied)
    grid = {"n_nonzero_coefs": [1, 3, None], "alpha": [0.0, 0.1]}
    search = sordino.PrivateSearchCV(LABELS, grid, 2.0, 1e-6, relation=relation, validation=0.2).fit(X, y)
    ((rows, epsilon),) = fits
    assert rows == 3200
    assert 1.98 < epsilon <= search.privacy_.epsilon <= 2.0
    assert isinstance(search.privacy_.event, dp.GaussianDpEvent)  # one release, whichever part a record is in
    assert certify(search.privacy_.event, 1e-6, Relation.parse(relation)).epsilon <= 2.0
    assert any("6 candidates, all made of one fit" in note for note in search.privacy_.notes)
    assert search.best_estimator_.get_params()["alpha"] == search.best_params_["alpha"]
    count = search.best_params_["n_nonzero_coefs"] or 5
    assert len(search.best_estimator_.support_) <= count
    assert search.best_estimator_.privacy_ is search.privacy_
    assert search.score(X, y) > 0.85


def test_a_family_differs_in_what_one_run_shares_and_in_nothing_else():
    grid = [{"alpha": a, "max_iter": m} for m in (5, 10) for a in (0.0, 0.1)]
    assert [len(f) for f in Candidates(LABELS).families(grid, False)] == [2, 2]
    assert [len(f) for f in Candidates(LABELS).families(grid, True)] == [1] * 4  # persons: another solver
    for other in ({"solver": "ight"}, {"noise": "paper"}):
        model = sordino.SparseLogisticRegression(data_norm=2.0, **other)
        assert [len(f) for f in Candidates(model).families(grid, False)] == [1] * 4
    counts = sordino.LinearRegression(loss="poisson")
    assert counts.shared_params() == ()
    assert sordino.LogisticRegression(penalty="nonconvex").shared_params() == ()


def test_a_faulty_member_is_refused_before_anything_is_spent():
    for grid in ({"n_nonzero_coefs": [0, 2]}, {"alpha": [-1.0, 0.0]}):
        with pytest.raises(InvalidInputError):
            sordino.PrivateSearchCV(LABELS, grid, 2.0, 1e-6).fit(*labelled(200))


def test_a_pipeline_shares_the_fit_of_its_last_step():
    X, y = labelled()
    steps = make_pipeline(sordino.PrivateStandardScaler(data_norm=2.0, epsilon=0.3), LABELS)
    grid = {"sparselogisticregression__n_nonzero_coefs": [1, 2]}
    search = sordino.PrivateSearchCV(steps, grid, 4.0, 1e-6).fit(X, y)
    assert isinstance(search.privacy_.event, dp.GaussianDpEvent)
    assert len(search.best_estimator_[-1].support_) <= 2
    assert search.score(X, y) > 0.8


@pytest.mark.parametrize("known", [True, False])
def test_a_member_is_the_ridge_and_the_least_squares_fit_on_its_support(known):
    """Moments without noise, and squared errors: what the answers say is then the loss itself."""
    public = np.random.default_rng(0)
    X = public.normal(size=(500, 4)) @ (public.normal(size=(4, 4)) if known else np.eye(4)) + 1.0
    shift = X.mean(axis=0)
    scale = np.array([0.5, 1.0, 2.0, 0.1]) if known else np.full(4, 0.5)
    rows = (X - shift) * scale
    second = rows.T @ rows / 500 if known else np.eye(4) / 4
    y = X @ np.array([3.0, -1.0, 0.05, 0.5]) + 2.0
    around = Around(Affine(shift, scale, 0.25), Moments(second, 0.0, 0.0) if known else None, 1.0, 0.0)
    original = second / np.outer(scale, scale)
    w = np.array([3.0, -1.0, 0.05, 0.5])
    ridged, offset = around.minimum(w, 2.0, 0.7, None)
    assert ridged == pytest.approx(np.linalg.solve(original + 0.7 * np.eye(4), original @ w))
    assert ridged @ shift + offset == pytest.approx(y.mean())
    few, _ = around.minimum(w[None], np.array([2.0]), 0.0, 2)
    own = np.flatnonzero(few[0])
    felt = np.abs(w) * np.sqrt(np.diag(original))
    assert set(own) == set(np.argsort(felt)[-2:])
    assert few[0, own] == pytest.approx(np.linalg.solve(original[np.ix_(own, own)], (original @ w)[own]))


def test_a_member_that_is_the_fit_itself_keeps_its_stated_noise():
    X, y = labelled()
    with seeded_noise_not_private(1):
        model = LABELS.__class__(2.0, 1e-6, data_norm=2.0, classes=[0, 1])
        few = LABELS.__class__(n_nonzero_coefs=1)
        model.widened([LABELS, few]).fit(X, y)
    same, small = model.member(LABELS), model.member(few)
    assert same.coef_noise_ is model.coef_noise_
    assert np.array_equal(same.coef_, model.coef_)
    assert small.coef_noise_ is None
    assert len(small.support_) == 1


def test_a_model_keeps_nothing_of_the_other_members_of_its_fit(tmp_path):
    X, y = labelled()
    with seeded_noise_not_private(1):
        plain = LABELS.fit(X, y)
        search = sordino.PrivateSearchCV(LABELS, {"alpha": [0.0, 0.1]}, 2.0, 1e-6).fit(X, y)
    model = search.best_estimator_
    assert set(vars(model)) == set(vars(plain)) == set(vars(sordino.load(model.save(tmp_path / "m.sordino"))))
    assert not {"_around", "_has_members"} & set(vars(model))


def test_scores_that_noise_could_cause_leave_the_estimators_own_setting():
    X, y = labelled(300)
    own, other = (sordino.LogisticRegression(alpha=a, data_norm=2.0, classes=[0, 1]) for a in (None, 7.0))
    found, free = [], []
    for seed in range(12):
        for model, chosen in ((own, found), (other, free)):
            with seeded_noise_not_private(seed):
                search = sordino.PrivateSearchCV(model, {"alpha": [0.5, 0.0, 0.1, 0.2]}, 0.2, 1e-5)
                chosen.append(search.fit(X, y).best_params_["alpha"])
    assert found.count(0.0) >= 8  # no penalty, which is a weight of 0
    assert free.count(0.0) <= 8  # the setting of 7 is not in the grid: the best score decides
    assert Candidates(own).home([[{"alpha": 0.5}], [{"alpha": 0.1}, {"alpha": 0.0}]]) == (1, 1)
    assert Candidates(own).home([[{"data_norm": 3.0}, {"data_norm": 2}]]) == (0, 1)
    assert Candidates(own).home([[{"penalty": "nonconvex", "alpha": 0.0}]]) is None


def test_as_many_records_judge_as_tell_a_difference_that_is_worth_a_search():
    def share(n, epsilon, **how):
        search = sordino.PrivateSearchCV(LABELS, {"alpha": [0.0, 0.1]}, epsilon, 1e-6, **how)
        return search._judges(n, search._search([[{}, {}]], n, "record")) / n

    assert share(300, 1.0) == pytest.approx(0.2, abs=0.002)
    assert share(100_000, 1.0) == 0.05
    assert 0.05 < share(2_000, 1.0) < share(2_000, 0.8) < 0.2
    assert share(2_000, 1.0, validation=0.31) == 0.31
