"""Rows on a device: the models of the same rows in memory, with the passes of tensors."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse
from tests.asking import asked

import sordino
from sordino.errors import InvalidInputError, InvalidTypeError, UnsupportedError
from sordino.execute import LocalExecutor
from sordino.execute.tensors import Arriving, DeviceVector, TensorExecutor, TensorRows, store_of
from sordino.kernel import Gaussian, NoiseSource, Release, clip
from sordino.kernel.clip import doubles as clip_doubles
from sordino.problems.affine import (
    Affine,
    AffineGradient,
    ColumnMoments,
    GradientShells,
    GramShells,
    MappedCurvature,
    MappedGram,
    MarginFit,
    OwnPart,
    SizeCounts,
)
from sordino.problems.losses import LOSSES
from sordino.problems.queries import GradientCounts
from sordino.testing import seeded_noise_not_private

RNG = np.random.default_rng(8)
X = np.where(RNG.random((97, 7)) < 0.6, RNG.normal(size=(97, 7)), 0.0) / 2
NUMBERS = np.clip(X @ RNG.normal(size=7) + 0.1 * RNG.normal(size=97), -1.0, 1.0)
SIGNS = np.where(NUMBERS > 0, 1.0, -1.0)
INF = float("inf")
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=NO_GPU)]
pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")


def tensor_of(rows, kind, device="cpu"):
    if kind == "dense":
        return torch.from_numpy(rows).to(device)
    if kind == "single":
        return torch.from_numpy(rows.astype(np.float32)).to(device)
    held = sparse.csr_matrix(rows)
    return torch.sparse_csr_tensor(held.indptr, held.indices, held.data, held.shape).to(device)


def rows_of(kind):
    return {"dense": X, "single": X.astype(np.float32), "csr": sparse.csr_matrix(X)}[kind]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["dense", "single", "csr"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: sordino.LogisticRegression(epsilon=INF, data_norm=1.0, max_iter=5),
        lambda: sordino.LogisticRegression(epsilon=INF, data_norm=1.0, max_iter=5, solver="gd"),
        lambda: sordino.LinearRegression(epsilon=INF, data_norm=1.0, target_bound=1.0, max_iter=5),
        lambda: sordino.SparseLogisticRegression(epsilon=INF, data_norm=1.0, n_nonzero_coefs=2),
    ],
)
def test_a_model_of_rows_on_a_device_is_that_of_rows_in_memory(make, kind, device):
    y = NUMBERS if isinstance(make(), sordino.LinearRegression) else SIGNS
    expected = make().fit(rows_of(kind), y)
    found = make().fit(TensorRows(tensor_of(X, kind, device)), y)
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found.intercept_, expected.intercept_, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("solver", ["gauss", "power"])
def test_components_of_rows_on_a_device_are_those_of_rows_in_memory(kind, solver, device):
    make = lambda: sordino.PCA(2, epsilon=INF, data_norm=1.0, solver=solver, random_state=0)  # noqa: E731
    expected = make().fit(rows_of(kind)).components_
    found = make().fit(TensorRows(tensor_of(X, kind, device))).components_
    np.testing.assert_allclose(np.abs(np.sum(found * expected, axis=1)), 1.0, rtol=1e-9)


@NO_GPU
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_tensors_on_a_gpu_are_fitted_and_predicted(kind):
    model = sordino.LogisticRegression(epsilon=1.0, data_norm=1.0)
    there = tensor_of(X, kind, "cuda")
    model.fit(there, torch.from_numpy(SIGNS).to("cuda"))
    assert np.array_equal(model.predict(there), model.predict(rows_of(kind)))
    assert sordino.PCA(2, epsilon=1.0, data_norm=1.0).fit(there).components_.shape == (2, X.shape[1])


def test_the_noise_is_that_of_the_same_plan():
    def fit(rows):
        with seeded_noise_not_private(3):
            return sordino.LogisticRegression(epsilon=1.0, data_norm=1.0).fit(rows, SIGNS)

    found, expected = fit(TensorRows(tensor_of(X, "dense"))), fit(X)
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-7)
    assert found.privacy_ == expected.privacy_


def test_batches_are_drawn_from_rows_on_a_device():
    def fit(rows):
        with seeded_noise_not_private(3):
            return sordino.LogisticRegression(epsilon=1.0, data_norm=1.0, solver="sgd", max_iter=6).fit(
                rows, SIGNS
            )

    for kind in ("dense", "csr"):
        expected = fit(rows_of(kind)).coef_
        np.testing.assert_allclose(fit(TensorRows(tensor_of(X, kind))).coef_, expected, rtol=1e-7)


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_every_sum_is_that_of_rows_in_memory(kind):
    rng = np.random.default_rng(5)
    d = X.shape[1]
    there = TensorExecutor(store_of(tensor_of(X, kind)), SIGNS, 0.7, 0.3, rng.random(len(X)))
    here = LocalExecutor(rows_of(kind), SIGNS, 0.7, 0.3, np.asarray(there.weights))
    affine = Affine(0.1 * rng.normal(size=d), 1.0 + rng.random(d), 0.25)
    w = rng.normal(size=d + 1)
    own = OwnPart(affine, 0.3, 0.1, -0.2, 0.3, True)
    listed = Affine(affine.shift[:2], affine.scale[:2], 0.25, np.array([0, 3]), 0.7)
    cases = [
        (ColumnMoments(0.7), None),
        (ColumnMoments(0.7, square=True), None),
        (SizeCounts("rows", 3), affine),
        (SizeCounts("targets"), (0.2, 1.5)),
        (GradientCounts(LOSSES["squared"]), (w, affine, 1.5)),
        (AffineGradient(LOSSES["logistic"], 0.3, True, True), (w, affine, None, 1.0)),
        (AffineGradient(LOSSES["squared"], 0.3), (w, listed, None, 2.0)),
        (AffineGradient(LOSSES["squared"], 0.3), (w[[0, 3, -1]], replace(listed, rest=None), None, 2.0)),
        (MappedGram(), affine),
        (GramShells(), (affine, 8.0)),
        (GradientShells(LOSSES["squared"]), (w, affine, 1.5, 4)),
        (MappedCurvature(LOSSES["poisson"]), (w, affine, 1.5)),
        (MappedCurvature(LOSSES["squared"]), (w, affine, 0.3)),
        (MarginFit(LOSSES["logistic"], 0.4, True), (w, 0.1, 0.8, 1.0, own)),
        (MarginFit(LOSSES["squared"], 0.4, False), (w, 0.1, 0.8, 2.0, replace(own, fair=False))),
    ]
    for query, params in cases:
        found, expected = query.evaluate(there._all, params), query.evaluate(here.records(None), params)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(there._all.peaks, here.records(None).peaks)


def test_norms_and_clips_of_tensors_bound_those_of_arrays():
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(60, 5)) * 10.0 ** rng.integers(-320, 120, size=(60, 1)).astype(float)
    rows[3], rows[4, 1] = 0.0, 0.0
    found = clip_doubles.row_norms(torch.from_numpy(rows)).numpy()
    np.testing.assert_allclose(found, clip.row_norms(rows), rtol=1e-14, atol=1e-322)
    scalars = rng.normal(size=60) * 10.0 ** rng.integers(-100, 100, 60)
    scalars[:3] = np.nan, np.inf, -np.inf
    near = DeviceVector.of(scalars, torch.device("cpu"))
    assert np.array_equal(clip.clip_scalars(near, found, 0.7), clip.clip_scalars(scalars, found, 0.7))
    norms = np.append(found, [np.nan, np.inf, 1e-320])
    near = DeviceVector.of(norms, torch.device("cpu"))
    assert np.array_equal(clip.factors_of(near, 0.7), clip.factors_of(norms, 0.7))
    factors = clip.factors_of(found, 1e-200)
    near = DeviceVector.of(scalars[5:], torch.device("cpu"))
    assert np.array_equal(clip.scale_down(near, factors[5:]), clip.scale_down(scalars[5:], factors[5:]))
    far = torch.tensor([[1e130, 1.0], [np.nan, 1.0], [np.inf, 0.0]], dtype=torch.float64)
    assert clip_doubles.row_norms(far).isnan().all()


def test_what_is_not_a_matrix_of_numbers_is_refused():
    with pytest.raises(InvalidInputError, match="finite"):
        TensorRows(torch.tensor([[1.0, np.nan]]))
    with pytest.raises(InvalidInputError, match="dimensions"):
        TensorRows(torch.zeros(3))
    with pytest.raises(InvalidTypeError, match="complex"):
        TensorRows(torch.zeros(3, 2, dtype=torch.complex64))
    twice = torch.sparse_csr_tensor([0, 2], [1, 1], [0.5, 0.5], (1, 3), check_invariants=False)
    assert TensorRows(twice)._tensor.values().tolist() == [1.0]
    beyond = torch.sparse_csr_tensor([0, 1], [7], [0.5], (1, 3), check_invariants=False)
    with pytest.raises(InvalidInputError, match="malformed"):
        TensorRows(beyond)
    with pytest.raises(UnsupportedError, match="rows on a device"):
        sordino.LogisticRegression(epsilon=1.0, data_norm=1.0, secure_noise=True).fit(
            TensorRows(tensor_of(X, "dense")), SIGNS
        )


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_squares_of_very_long_rows_stay_within_a_very_small_bound(kind):
    bound, rows = 2.0**-137, np.zeros((30, 3))
    rows[:, 0] = 2.0**399 * np.linspace(1.0, 1.9, 30)
    records = TensorRows(tensor_of(rows, kind)).executor(None, bound, 0.0, None)._all
    query = ColumnMoments(bound, True)
    added = [np.asarray(query.evaluate(records.subset(np.array([i])), None)) for i in range(30)]
    assert np.linalg.norm(added, axis=1).max() <= query.contribution(None)


@pytest.mark.parametrize("device", DEVICES)
def test_a_sum_on_its_way_is_the_array_it_will_be(device):
    values = np.arange(5.0)
    coming = Arriving(torch.from_numpy(values).to(device))
    assert np.shape(coming) == (5,)
    assert np.array_equal(coming + np.ones(5), values + 1)
    assert np.array_equal(coming[np.array([0, 3])], values[[0, 3]])
    noise = np.ones(5)
    noise += coming
    assert np.array_equal(noise, values + 1)


def test_without_noise_an_answer_is_an_array_of_its_own():
    executor = TensorExecutor(store_of(tensor_of(X, "dense")), SIGNS, 0.7, 0.3)
    affine = Affine(np.zeros(7), np.ones(7), 0.25)
    release = Release(AffineGradient(LOSSES["logistic"], 0.3), Gaussian(0.0), mean=False)
    answer = asked(executor, release, (np.zeros(8), affine, None, 1.0), 0.3, 0, NoiseSource.from_os())
    assert type(answer) is np.ndarray
    assert answer.shape == (8,)


@NO_GPU
def test_a_gradient_that_is_recorded_is_the_one_that_is_run(monkeypatch):
    rng = np.random.default_rng(9)
    affine, query = (
        Affine(0.1 * rng.normal(size=7), np.ones(7), 0.25),
        AffineGradient(LOSSES["logistic"], 0.3),
    )
    points = [(rng.normal(size=8), affine, None, 1.0) for _ in range(5)]
    here = LocalExecutor(rows_of("csr"), SIGNS, 0.7, 0.3).records(None)
    for graphs in (True, False):
        monkeypatch.setattr("sordino.execute.tensors.GRAPHS", graphs)
        there = TensorExecutor(store_of(tensor_of(X, "csr", "cuda")), SIGNS, 0.7, 0.3)._all
        for point in points:
            found = np.asarray(query.evaluate(there, point))
            np.testing.assert_allclose(found, query.evaluate(here, point), rtol=1e-10, atol=1e-12)
        recorded = getattr(there.through(affine)._played[1], "_graph", None)
        assert (recorded is not None) == graphs
