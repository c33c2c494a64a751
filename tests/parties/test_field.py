"""Arithmetic on words agrees with Python's integers; shares of too few members say nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sordino.execute.parties.field import Field
from sordino.kernel import NoiseSource

EDGES = (0, 1, 2, 2**30, 2**31 - 1, 2**31, 2**32, 2**60, 2**61 - 3, 2**61 - 2)


RESIDUES = st.one_of(st.sampled_from(EDGES), st.integers(0, 2**61 - 2))


@given(data=st.data())
def test_sums_and_products_are_those_of_integers(data):
    field = Field()
    p = field.modulus
    a, b = (data.draw(st.lists(RESIDUES, min_size=5, max_size=5)) for _ in range(2))
    left, right = field.array(np.array(a, dtype=object)), field.array(np.array(b, dtype=object))
    assert field.add(left, right).tolist() == [(x + y) % p for x, y in zip(a, b)]
    assert field.subtract(left, right).tolist() == [(x - y) % p for x, y in zip(a, b)]
    assert field.multiply(left, right).tolist() == [x * y % p for x, y in zip(a, b)]
    assert field.signed(left).tolist() == [x - p if x > p // 2 else x for x in a]
    assert field.array(np.array([-x for x in a], dtype=object)).tolist() == [-x % p for x in a]
    running = field.apply(np.cumsum, left).tolist()
    assert running == [sum(a[: i + 1]) % p for i in range(5)]
    assert field.loads(field.dumps(left), 5).tolist() == a


def test_every_pair_of_edges_multiplies_exactly():
    field = Field()
    edges = field.array(np.array(EDGES, dtype=np.int64))
    found = field.multiply(edges[:, None], edges[None])
    assert found.tolist() == [[x * y % field.modulus for y in EDGES] for x in EDGES]


def test_a_long_sum_of_the_largest_residue_does_not_overflow():
    field = Field()
    largest = np.full(100_000, field.modulus - 1, dtype=np.uint64)
    assert int(field.sum(largest, 0)) == 100_000 * (field.modulus - 1) % field.modulus


@pytest.mark.parametrize(("parties", "threshold"), [(3, 1), (5, 2), (7, 2)])
def test_shares_give_the_secrets_back_and_products_are_of_twice_the_degree(parties, threshold):
    field, noise = Field(), NoiseSource.seeded_not_private(61 + parties)
    left, right = field.draw(20, noise), field.draw(20, noise)
    shares = [
        dict(enumerate(field.split(x, threshold, range(1, parties + 1), noise), start=1))
        for x in (left, right)
    ]
    for start in range(1, parties - threshold + 1):
        some = {i: shares[0][i] for i in range(start, start + threshold + 1)}
        assert field.combine(some).tolist() == left.tolist()
        assert field.combine(some, parties).tolist() == shares[0][parties].tolist()
    products = {i: field.multiply(shares[0][i], shares[1][i]) for i in range(1, 2 * threshold + 2)}
    assert field.combine(products).tolist() == field.multiply(left, right).tolist()


@pytest.mark.statistical
def test_the_shares_of_a_coalition_are_uniform_and_independent_whatever_the_secret_is():
    field, noise = Field(), NoiseSource.seeded_not_private(61)
    for secret in (0, field.modulus - 1):
        shares = field.split(field.array(np.full(20_000, secret, dtype=object)), 2, range(1, 6), noise)
        seen = [(s.astype(float) / field.modulus) for s in shares]
        for part in seen:
            assert stats.kstest(part, "uniform").pvalue > 1e-6
        cells = np.histogram2d(seen[1], seen[4], bins=8)[0]
        assert stats.chisquare(cells.ravel()).pvalue > 1e-6
        one = field.split(field.array(np.full(20_000, secret, dtype=object)), 1, range(1, 4), noise)
        together = np.histogram2d(*(s.astype(float) / field.modulus for s in one[:2]), bins=8)[0]
        assert stats.chisquare(together.ravel()).pvalue < 1e-6  # two shares of one polynomial tell the secret


def test_what_is_no_list_of_residues_is_refused():
    field = Field()
    good = field.dumps(field.array(np.array([1, 2, 3], dtype=object)))
    for broken in (good[:-1], good + b"\0", b"", good[: field.width]):
        with pytest.raises(ValueError, match="broken length"):
            field.loads(broken, 3)
    for value in (field.modulus, 256**field.width - 1):
        with pytest.raises(ValueError, match="out of range"):
            field.loads(good[: -field.width] + value.to_bytes(field.width, "little"), 3)
