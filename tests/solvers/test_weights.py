"""Declared weights of the losses reach every sparse solver before its clip."""

import numpy as np
import pytest
from scipy import sparse
from tests.solvers.plain import made_data, made_problem

from sordino import SparseLogisticRegression
from sordino.execute import LocalExecutor
from sordino.problems.minimiser import CertifiedMinimiser, TiltedMinimiser
from sordino.problems.queries import VertexScores
from sordino.solvers.baselines import BlockVotes, TwoStage

KINDS = pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
SOLVERS = ("ight", "svrg-ht", "transfer", "frank-wolfe", "two-stage", "peeled", "coordinate")


@KINDS
def test_a_weight_of_two_is_a_record_twice(kind):
    problem = made_problem(n=120, weight_bound=2.0, intercept=0.4)
    x, y = made_data(problem)
    weights = np.where(np.arange(120) < 30, 2.0, 1.0)
    double = np.concatenate([np.arange(120), np.arange(30)])
    one = LocalExecutor(kind(x), y, 1.5, 0.4, weights).records(None)
    other = LocalExecutor(kind(x[double]), y[double], 1.5, 0.4).records(None)
    for query in (CertifiedMinimiser.of(problem, 9.0, 0.05), VertexScores(problem.loss, 9.0)):
        params = None if isinstance(query, CertifiedMinimiser) else np.zeros(10)
        tolerance = getattr(query, "tolerance", 1e-12) / 0.05
        assert np.linalg.norm(query.evaluate(one, params) - query.evaluate(other, params)) <= 2 * tolerance
    assert (one.part(0, 4).weights == 2.0).all()
    assert (one.part(3, 4).weights == 1.0).all()


def test_the_curvature_of_a_weighted_record_is_bounded_by_the_declared_weight():
    problem = made_problem(weight_bound=40.0)
    query = CertifiedMinimiser.of(problem, 0.7, 0.05)
    assert query.record_curvature == pytest.approx(40 * 0.25 * 1.5**2)
    assert TiltedMinimiser(query).jacobian == pytest.approx(np.log(1 + query.record_curvature / (120 * 0.05)))
    x, y = made_data(problem)
    records = LocalExecutor(x, y, 1.5, 0.0, np.full(120, 40.0)).records(None)
    found = query.evaluate(records)
    assert np.linalg.norm(query._gradient(records, found, slice(None))) <= query.tolerance


def test_weights_beyond_the_declared_bound_are_cut_to_it():
    problem = made_problem(weight_bound=2.0)
    x, y = made_data(problem)
    query = CertifiedMinimiser.of(problem, 0.7, 0.05)
    found = [query.evaluate(LocalExecutor(x, y, 1.5, 0.0, np.full(120, w)).records(None)) for w in (2.0, 1e9)]
    np.testing.assert_array_equal(*found)


def test_blocks_vote_with_their_weights():
    problem = made_problem(n=40, d=6)
    x, y = made_data(problem)
    votes = TwoStage(1, 9.0, 0.1, 1, 0.5).plan(problem).releases["support"].query
    assert isinstance(votes, BlockVotes)
    x[:, :] = 0.0
    x[:20, 1], x[20:, 4], y[:] = 1.0, 0.9, 1.0
    for heavy, chosen in ((slice(0, 20), 1), (slice(20, 40), 4)):
        weights = np.full(40, 0.1)
        weights[heavy] = 3.0
        found = votes.evaluate(LocalExecutor(x, y, 1.5, 0.0, weights).records(None))
        assert np.argmax(found.to_dense()) == chosen


@pytest.mark.filterwarnings("ignore::sordino.errors.NotPrivateWarning")
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_heavier_class_is_predicted_more_often(solver):
    x, y = made_data(made_problem(n=400))
    share = [
        np.mean(
            SparseLogisticRegression(float("inf"), solver=solver, data_norm=1.5, class_weight=weight)
            .fit(x, y)
            .predict(x)
            == 1
        )
        for weight in ({-1: 5.0, 1: 0.2}, {-1: 0.2, 1: 5.0})
    ]
    assert share[0] < 0.3 < 0.7 < share[1]
