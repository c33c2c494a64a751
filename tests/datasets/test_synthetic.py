"""The synthetic designs follow the laws that the papers print."""

import numpy as np
import pytest
from scipy import stats

from sordino.datasets import make_knowledge_transfer, make_sparse_linear_model
from sordino.errors import InvalidInputError

REJECT = 1e-4
WRONG = [2 / 3, 3 / 2]


def _p(sample, law):
    return stats.kstest(sample, law.cdf).pvalue


def _uniform(bound):
    return stats.uniform(-bound, 2 * bound)


@pytest.mark.statistical
def test_entries_of_the_ight_design_are_uniform_when_no_row_is_too_long():
    # 2 s* = 40 exceeds the largest possible norm 2 sqrt(50), so nothing is scaled.
    entries = make_sparse_linear_model(200, 50, 20, random_state=1).data.ravel()
    assert _p(entries, _uniform(2)) > REJECT
    assert all(_p(entries, _uniform(2 * wrong)) < REJECT for wrong in WRONG)


@pytest.mark.parametrize(("size", "s"), [(100, 3), (400, 30)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_the_ight_design_have_norm_at_most_twice_the_sparsity(size, s, dtype):
    design = make_sparse_linear_model(size, size, s, random_state=2, dtype=dtype)
    assert design.data.dtype == dtype
    assert design.data_norm == 2 * s
    norms = np.linalg.norm(design.data.astype(float), axis=1)
    assert norms.max() <= 2 * s * (1 + 1e-6)
    assert (design.coef != 0).sum() == s
    assert np.abs(design.coef).max() <= 1


@pytest.mark.statistical
@pytest.mark.parametrize("make", [make_sparse_linear_model, make_knowledge_transfer])
def test_coefficients_are_uniform_between_minus_one_and_one(make):
    coef = make(1, 20_000, 4_000, random_state=3).coef
    drawn = coef[coef != 0]
    assert len(drawn) == 4_000
    assert _p(drawn, _uniform(1)) > REJECT
    assert all(_p(drawn, _uniform(wrong)) < REJECT for wrong in WRONG)
    places = np.flatnonzero(coef)
    assert _p(places / 20_000, stats.uniform()) > REJECT


@pytest.mark.statistical
@pytest.mark.parametrize("make", [make_sparse_linear_model, make_knowledge_transfer])
@pytest.mark.parametrize("variance", [0.1, 2.5])
def test_linear_targets_have_the_declared_noise(make, variance):
    design = make(5_000, 40, 5, noise_variance=variance, random_state=4)
    residuals = design.target - design.data @ design.coef
    std = np.sqrt(variance)
    assert _p(residuals, stats.norm(0, std)) > REJECT
    assert all(_p(residuals, stats.norm(0, std * wrong)) < REJECT for wrong in WRONG)


@pytest.mark.statistical
@pytest.mark.parametrize("make", [make_sparse_linear_model, make_knowledge_transfer])
def test_labels_follow_the_logistic_law(make):
    design = make(20_000, 30, 10, task="classification", random_state=5)
    margins = design.data @ design.coef

    def p(slope):
        probability = 1 / (1 + np.exp(-slope * margins))
        score = ((design.target - probability) * margins).sum()
        spread = np.sqrt((probability * (1 - probability) * margins**2).sum())
        return 2 * stats.norm.sf(abs(score) / spread)

    assert set(design.target) == {0, 1}
    assert p(1.0) > REJECT
    assert all(p(wrong) < REJECT for wrong in WRONG)


@pytest.mark.statistical
def test_private_and_public_features_of_the_transfer_design_are_uniform_and_different():
    design = make_knowledge_transfer(100, 60, 5, n_public=70, random_state=6)
    assert design.public_data.shape == (70, 60)
    for data in (design.data, design.public_data):
        assert _p(data.ravel(), _uniform(1)) > REJECT
        assert all(_p(data.ravel(), _uniform(wrong)) < REJECT for wrong in WRONG)
    assert not np.array_equal(design.data[:70], design.public_data)
    assert design.public_second_moment == pytest.approx((design.public_data**2).mean(), abs=0.02)
    assert make_knowledge_transfer(9, 20, 5, random_state=6).public_data.shape == (9, 20)


@pytest.mark.parametrize("make", [make_sparse_linear_model, make_knowledge_transfer])
def test_a_seed_gives_the_same_design_again_and_another_seed_another(make):
    one, same, other = (make(20, 30, 4, random_state=seed) for seed in (7, 7, 8))
    assert np.array_equal(one.data, same.data)
    assert np.array_equal(one.target, same.target)
    assert not np.array_equal(one.data, other.data)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_sparse_linear_model(10, 5, 6), "n_nonzero to be a whole number in .1, 5., got 6"),
        (lambda: make_sparse_linear_model(10, 5, 0), "n_nonzero"),
        (lambda: make_sparse_linear_model(0, 5, 1), "n_samples to be a whole number >= 1, got 0"),
        (lambda: make_sparse_linear_model(9, 5, 1, task="ranking"), "'ranking'"),
        (lambda: make_knowledge_transfer(-1, 5, 1), "n_samples"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
