"""Parts draw their rows apart, with the law of one draw, and the same rows each time they are asked."""

import pickle

import numpy as np
import pytest
from scipy import stats

from sordino.kernel import Batch, Disjoint, FixedSize, Full, NoiseSource, Poisson

SIZES = (7, 0, 20, 13)
SAMPLINGS = [Full(), Poisson(0.3), Poisson(1.0), FixedSize(11), Disjoint(3)]


def whole(shares):
    """Return the rows of all parts in the numbering of the whole."""
    starts = np.concatenate([[0], np.cumsum(SIZES)])
    parts = [s.rows(n) for s, n in zip(shares, SIZES, strict=True)]
    return np.concatenate(
        [a + (np.arange(n) if p is None else p) for a, n, p in zip(starts, SIZES, parts, strict=False)]
    )


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_share_gives_the_same_rows_again_and_after_a_journey(sampling):
    shares = sampling.shares(SIZES, 1, NoiseSource.seeded_not_private(3))
    there = pickle.loads(pickle.dumps(shares))
    assert np.array_equal(whole(shares), whole(shares))
    assert np.array_equal(whole(shares), whole(there))
    assert all(
        0 <= r < n
        for s, n in zip(shares, SIZES, strict=True)
        for r in (s.rows(n) if s.rows(n) is not None else [])
    )


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_another_release_draws_other_rows(sampling):
    noise = NoiseSource.seeded_not_private(3)
    one, other = (whole(sampling.shares(SIZES, 0, noise)) for _ in range(2))
    drawn = isinstance(sampling, FixedSize) or (isinstance(sampling, Poisson) and sampling.rate < 1)
    assert np.array_equal(one, other) == (not drawn)


def test_chunks_of_parts_are_the_chunks_of_the_whole():
    noise = NoiseSource.seeded_not_private(0)
    for position in range(3):
        found = whole(Disjoint(3).shares(SIZES, position, noise))
        assert np.array_equal(found, Disjoint(3).draw(sum(SIZES), position, noise))


@pytest.mark.statistical
@pytest.mark.parametrize(("sampling", "rate"), [(Poisson(0.3), 0.3), (FixedSize(12), 0.3)])
def test_every_row_is_drawn_with_its_probability_and_the_size_has_its_law(sampling, rate):
    noise, runs = NoiseSource.seeded_not_private(5), 4000
    batches = [whole(sampling.shares(SIZES, 0, noise)) for _ in range(runs)]
    counts = np.bincount(np.concatenate(batches), minlength=40)
    variance = runs * rate * (1 - rate)
    assert stats.chi2.sf(np.square(counts - runs * rate).sum() / variance, 40) > 1e-4
    assert stats.chi2.sf(np.square(counts - runs * rate * 1.1).sum() / variance, 40) < 1e-4
    sizes = np.array([len(batch) for batch in batches])
    if isinstance(sampling, FixedSize):
        assert (sizes == 12).all()
        assert all(len(set(batch)) == 12 for batch in batches)
    else:
        assert abs(sizes.var() / (40 * rate * (1 - rate)) - 1) < 0.1
        pairs = np.mean([(0 in b) and (30 in b) for b in map(set, batches)])  # parts are independent
        assert abs(pairs - rate**2) < 4 * np.sqrt(rate**2 / runs)


def test_nothing_secret_of_a_share_is_shown():
    for sampling in (Poisson(0.3), FixedSize(11)):
        for share in sampling.shares(SIZES, 0, NoiseSource.seeded_not_private(3)):
            assert str(share.key) not in repr(share)
            assert "number" not in repr(share)


def test_a_batch_of_several_parts_is_never_taken_for_all_rows_of_one_place():
    assert Batch().rows(7) is None
    for sampling in SAMPLINGS:
        batch = Batch(tuple(sampling.shares(SIZES, 1, NoiseSource.seeded_not_private(3))))
        with pytest.raises(ValueError, match="unpack"):
            batch.rows(40)
