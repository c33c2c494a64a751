"""Answers of the local executor, with plain and with secure noise."""

import math

import numpy as np
import pytest
from scipy import sparse
from tests.asking import asked
from tests.execute.kinds import QUERY, D, N, executor_of
from tests.kernel.toys import source

from sordino.errors import UnsupportedError
from sordino.execute import LocalExecutor
from sordino.kernel import FixedSize, Full, Gaussian, Laplace, Norm, Poisson, Release, SparseVector
from sordino.kernel.mechanism import Rounding
from sordino.problems.losses import LOSSES
from sordino.problems.queries import GlmDifference, GlmGradient

# --------------------------------------------------------------------------------------- an answer


@pytest.mark.parametrize("kind", ["dense", "csr", "float32"])
@pytest.mark.parametrize("sampling", [Full(), Poisson(0.4), FixedSize(7)])
def test_an_answer_is_the_query_on_the_drawn_rows_plus_noise(kind, sampling):
    executor, w = executor_of(kind), 0.2 * np.ones(D + 1)
    answer = asked(executor, Release(QUERY, Gaussian(1.3), sampling), w, 2.7, 4, source(6))
    noise = source(6)
    exact = QUERY.evaluate(executor.records(sampling.draw(N, 4, noise)), w)
    np.testing.assert_allclose(answer, exact + 1.3 * 2.7 * noise.normal(D + 1))
    assert executor.population == N


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_an_empty_batch_still_releases_noise(kind):
    release = Release(QUERY, Gaussian(1.3), Poisson(1e-15))
    answer = asked(executor_of(kind), release, np.zeros(D + 1), 2.7, 0, source(6))
    assert (answer != 0).all()
    lazy = Release(QUERY, Gaussian(1.3), Poisson(1e-15), lazy=True)
    out = asked(executor_of("csr"), lazy, SparseVector.zeros(D + 1, 1), 2.7, 0, source(6))
    assert (out.to_dense() != 0).all()


# -------------------------------------------------------------------------------------- secure noise


@pytest.mark.parametrize("kind", ["dense", "float32", "csr", "csr float32", "csr stored twice"])
@pytest.mark.parametrize("sampling", [Full(), Poisson(0.5)])
def test_secure_answers_are_multiples_of_the_spacing(kind, sampling):
    mechanism = Gaussian(1.3, secure=True)
    answer = asked(executor_of(kind), Release(QUERY, mechanism, sampling), np.zeros(D + 1), 2.7, 0, source(8))
    spacing = mechanism.lattice(2.7)
    assert np.array_equal(answer / spacing, np.rint(answer / spacing))
    assert np.unique(answer).size == D + 1


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_secure_noise_is_the_exact_rounding_of_gaussian_noise(kind):
    executor, w, mechanism = executor_of(kind), 0.1 * np.ones(D + 1), Gaussian(1.3, secure=True)
    spacing = mechanism.lattice(2.7)
    answer = asked(executor, Release(QUERY, mechanism), w, 2.7, 0, source(9))
    integers = np.rint(QUERY.evaluate(executor.records(None), w) / spacing)
    wide = Rounding(QUERY.error(w, N)).widen(2.7, math.sqrt(D + 1) * spacing)
    drawn = source(9).rounded_gaussian(1.3 * wide / spacing, D + 1)
    np.testing.assert_array_equal(answer, (integers + drawn) * spacing)


def test_secure_sums_that_could_overflow_are_refused():
    tiny = Gaussian(1e-11, secure=True)
    with pytest.raises(UnsupportedError, match="overflow"):
        asked(executor_of(), Release(QUERY, tiny), np.zeros(D + 1), 2.7, 0, source())


def test_secure_noise_on_an_answer_that_cannot_move_is_no_noise():
    query = GlmDifference(LOSSES["squared"], 2.3, 1.9)
    release = Release(query, Gaussian(1.3, secure=True))
    w = np.full(D + 1, 0.4)
    answer = asked(executor_of(), release, (w, w), query.contribution((w, w)), 0, source())
    np.testing.assert_array_equal(answer, np.zeros(D + 1))


def test_a_secure_release_is_never_lazy():
    matrix = sparse.csr_matrix((np.ones(2), ([0, 1], [5, 900])), shape=(2, 1000))
    release = Release(QUERY, Gaussian(1.3, secure=True), lazy=True)
    answer = asked(LocalExecutor(matrix, np.ones(2)), release, SparseVector.zeros(1000), 2.7, 0, source())
    assert isinstance(answer, np.ndarray)


def test_other_mechanisms_get_the_whole_vector():
    matrix = sparse.csr_matrix((np.ones(2), ([0, 1], [5, 900])), shape=(2, 1000))

    class Scores(GlmGradient):
        norm = Norm.L1

    release = Release(Scores(LOSSES["squared"], 2.3), Laplace(1.3), lazy=True)
    answer = asked(LocalExecutor(matrix, np.ones(2)), release, SparseVector.zeros(1000), 2.7, 0, source())
    assert (np.asarray(answer) != 0).all()
