"""Scattering: a fixed map of one image, bounded, the same in NumPy and PyTorch."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import sordino
from sordino import LogisticRegression, ScatteringTransformer, pipeline_privacy
from sordino.errors import SordinoError
from sordino.wavelets import scatter

RNG = np.random.default_rng(0)


def images(n=6, side=28, dtype=np.float64):
    return RNG.random((n, side * side)).astype(dtype)


def test_the_number_of_coefficients_is_that_of_the_orders():
    x = images()
    assert ScatteringTransformer().fit_transform(x).shape == (6, 81 * 7 * 7)
    assert ScatteringTransformer(scales=3, angles=4).fit_transform(x).shape == (6, (1 + 12 + 48) * 3 * 3)
    colour = RNG.random((2, 32 * 32 * 3))
    assert ScatteringTransformer(shape=(32, 32, 3)).fit_transform(colour).shape == (2, 3 * 81 * 8 * 8)


def test_a_row_depends_on_its_own_image_only():
    x = images()
    whole = ScatteringTransformer().fit_transform(x)
    for i in range(len(x)):
        np.testing.assert_allclose(
            ScatteringTransformer().fit_transform(x[i : i + 1])[0], whole[i], atol=1e-12
        )


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1.0, 1e6])
def test_rows_have_norm_at_most_one(scale):
    found = ScatteringTransformer().fit_transform(images() * scale)
    assert np.linalg.norm(found, axis=1).max() <= 1 + 1e-12
    assert np.linalg.norm(ScatteringTransformer().fit_transform(np.zeros((2, 784)))) == 0


def test_constant_images_have_no_edges():
    found = scatter(np.full((1, 28, 28), 3.0), 2, 8, np)[0]
    np.testing.assert_allclose(found[0], 3.0, rtol=1e-3)
    assert np.abs(found[1:]).max() < 1e-9


def test_an_edge_answers_to_its_own_direction_most():
    stripes = np.cos(0.75 * np.pi * np.arange(28))[None, None, :] * np.ones((1, 28, 1))
    turned = np.swapaxes(stripes, 1, 2)
    across, along = (scatter(image, 2, 8, np)[0, 1:9].mean(axis=(1, 2)) for image in (stripes, turned))
    assert abs(int(np.argmax(across)) - int(np.argmax(along))) == 4  # a right angle of eight directions
    assert across.max() > 20 * across.min()


def test_a_shift_of_a_pixel_changes_little_beside_what_it_does_to_pixels():
    picture = np.zeros((1, 28, 28))
    picture[0, 10:18, 12:15] = 1.0
    moved = np.roll(picture, 1, axis=2)
    before, after = (scatter(p, 2, 8, np).ravel() for p in (picture, moved))
    pixels = np.linalg.norm(picture - moved) / np.linalg.norm(picture)
    assert np.linalg.norm(before - after) / np.linalg.norm(before) < 0.6 * pixels


def test_the_coefficients_are_those_of_plain_convolutions():
    """Order 1 without any subsampling trick: convolve, take the modulus, average, keep every fourth pixel."""
    from sordino import wavelets as module

    x = RNG.random((1, 28, 28))
    places = module._mirror(28, 4)
    big = x[0][places][:, places]
    psi, phi = module._wavelet(big.shape, 1, 3, 8, 0), module._average(big.shape, 2, 0)
    modulus = np.abs(np.fft.ifft2(np.fft.fft2(big) * psi))
    wanted = np.fft.ifft2(np.fft.fft2(modulus) * phi).real[4:32:4, 4:32:4]
    found = scatter(x, 2, 8, np)[0, 1 + 8 + 3]
    assert np.abs(found - wanted).max() < 0.02 * np.abs(wanted).max()


def test_single_precision_stays_single():
    found = ScatteringTransformer().fit_transform(images(dtype=np.float32))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, ScatteringTransformer().fit_transform(images(0 + 6)), atol=2.0)


def test_tensors_give_the_same_numbers():
    torch = pytest.importorskip("torch")
    x = RNG.random((3, 28, 28))
    there = scatter(torch.from_numpy(x), 2, 8, torch).numpy()
    np.testing.assert_allclose(there, scatter(x, 2, 8, np), atol=1e-10)


@pytest.mark.parametrize(
    "options", [{"shape": (5, 5)}, {"shape": (784,)}, {"scales": 17}, {"scales": 0}, {"normalise": "rows"}]
)
def test_what_does_not_fit_is_refused(options):
    with pytest.raises(SordinoError):
        ScatteringTransformer(**options).fit_transform(images())


def test_a_row_that_is_no_square_is_filled_up_and_that_is_said():
    with pytest.warns(UserWarning, match=r"783 pixels.* up to 28 x 28. Pass shape="):
        padded = ScatteringTransformer().fit(images()[:, :783])
    whole = images()
    whole[:, 783] = 0.0
    assert np.allclose(padded.transform(whole[:, :783]), ScatteringTransformer().fit_transform(whole))


@pytest.mark.filterwarnings("ignore:Rows of")
def test_it_keeps_the_rules_of_scikit_learn():
    for check in check_estimator(ScatteringTransformer(), on_fail=None, on_skip=None):
        assert check["status"] in ("passed", "skipped"), check["check_name"]


def test_sparse_rows_are_refused():
    with pytest.raises(SordinoError, match="sparse"):
        ScatteringTransformer().fit(sparse.csr_matrix(images()))


def test_a_pipeline_pays_nothing_for_it():
    x, y = images(60, 8), np.arange(60) % 2
    made = make_pipeline(ScatteringTransformer(), LogisticRegression(1.0, data_norm=1.0)).fit(x, y)
    report = pipeline_privacy(made)
    assert report.is_private
    assert report.epsilon <= 1.0


def test_it_is_a_part_of_the_front_door():
    assert sordino.ScatteringTransformer is ScatteringTransformer
