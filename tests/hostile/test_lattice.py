"""On a lattice a record adds no more than its bound, in integers and for any number of records."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, target
from hypothesis import strategies as st
from tests.hostile.contributions import BOTH, held, hostile_rows
from tests.hostile.queries import AFFINES, GLM, GRAMS, ROBUST

from sordino.execute import LocalExecutor
from sordino.execute.parties import engine as lattice
from sordino.execute.parties.engine import quantise
from sordino.kernel import ClippedSum, Gaussian, Norm, Relation, Release
from sordino.kernel.mechanism import Rounding
from sordino.problems.covariance import GramProduct

SPACING, MULTIPLIER = 2.0**-24, 2.5
ROUNDED = [
    case
    for case in [*AFFINES, *GLM, *GRAMS, *ROBUST]
    if isinstance(case.query, ClippedSum) and case.query.adds_up and case.query.norm is Norm.L2
]
OTHERS = np.array([[0.3, -0.7, 0.0, 0.1], [1.0, 1.0, -1.0, 2.0]])


def moved(case, kind, one, other):
    """Return how far two neighbours are apart in grid points, and how far the noise lets them be."""
    release = Release(case.query, Gaussian(MULTIPLIER), mean=False)
    sensitivity = release.sensitivity(Relation.REPLACE_ONE, case.params)
    found = []
    for row, y in (one, other):
        rows, targets = np.vstack([OTHERS, row]), np.array([1.0, -1.0, y])
        with np.errstate(all="ignore"):
            records = held(case, rows, targets, kind)
            found.append(quantise(release, records, case.params, sensitivity, 3))
    apart = [int(a) - int(b) for a, b in zip(found[0].values.ravel(), found[1].values.ravel())]
    assert found[0].lattice == found[1].lattice
    return math.sqrt(sum(a * a for a in apart)), found[0].lattice.std / MULTIPLIER


@pytest.mark.parametrize("case", ROUNDED, ids=str)
@given(data=st.data())
@settings(max_examples=20)
def test_rounded_neighbours_are_as_near_as_the_noise_assumes(case, data):
    kind = data.draw(st.sampled_from([k for k in case.kinds if k != "lazy"]))  # parties ask for all columns
    one, other = data.draw(st.lists(st.tuples(hostile_rows(), case.targets), min_size=2, max_size=2))
    apart, allowed = moved(case, kind, one, other)
    target(apart / allowed)
    assert apart <= allowed


def farthest_neighbours():
    """Return how far rounding takes pairs of orthogonal rows at the bound, in units of what is allowed."""
    case = next(c for c in GRAMS if c.name == "gram")
    axes = np.linalg.qr(np.random.default_rng(0).normal(size=(200, 4, 4)))[0] * 5.0
    pairs = [moved(case, "dense", (a[0], 1.0), (a[1], 1.0)) for a in axes]
    return max(apart / allowed for apart, allowed in pairs)


def test_rounding_takes_no_pair_beyond_the_widened_sensitivity():
    assert 1 - 1e-6 < farthest_neighbours() <= 1.0


def test_rounding_without_its_widening_is_found(monkeypatch):
    monkeypatch.setattr(Rounding, "widen", lambda self, sensitivity, corner=0.0, errors=1.0: sensitivity)
    monkeypatch.setattr(lattice, "_round_up", lambda std: std)
    assert farthest_neighbours() > 1.0


@pytest.mark.parametrize("relation", BOTH)
def test_what_rounding_costs_does_not_grow_with_the_number_of_records(relation):
    release = Release(GramProduct(1.3), Gaussian(MULTIPLIER), mean=False)
    params = (np.eye(4), None)
    sensitivity = release.sensitivity(relation, params)
    records = LocalExecutor(OTHERS, None, 1.3).records(None)
    costs = [quantise(release, records, params, sensitivity, n).lattice for n in (10**6, 10**8)]
    exact = MULTIPLIER * sensitivity / costs[0].spacing
    floating = 4 * 2.0 ** (32 - 53) * release.query.contribution(params)
    widened = MULTIPLIER * (sensitivity / costs[0].spacing + 4.0 + floating / costs[0].spacing)
    assert costs[0].std == costs[1].std
    assert widened <= costs[1].std < exact * (1 + 1e-5)


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_a_record_moves_the_integers_of_its_own_block_only(kind):
    case = replace(next(c for c in GRAMS if c.name == "product"))
    rows = np.random.default_rng(0).normal(size=(23, 4))
    executor = LocalExecutor(held(case, rows, np.zeros(23), kind).matrix, None, 1.3)
    drawn = np.array([1, 2, 5, 9, 11, 12, 17, 22])
    for left_out in drawn:
        with_it, without = (
            {
                int(p.positions[0]) // 4: case.query.evaluate(p, case.params)
                for p in executor.records(r).by_position(4)
            }
            for r in (drawn, drawn[drawn != left_out])
        )
        for block in with_it.keys() - {left_out // 4}:
            np.testing.assert_array_equal(with_it[block], without[block])
