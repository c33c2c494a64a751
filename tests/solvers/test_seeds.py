"""A seeded run repeats itself; private runs never do."""

import numpy as np
import pytest
from tests.solver_table import CASES, IDS

from sordino.kernel import NoiseSource

SCALE = 20.0  # a selection among few has to be noisy to differ
every_case = pytest.mark.parametrize("case", CASES, ids=IDS)


def same(one, other):
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other))


@every_case
def test_the_same_seed_gives_the_same_iterates(case):
    assert same(case.run(seed=2, scale=SCALE).iterates, case.run(seed=2, scale=SCALE).iterates)


@every_case
def test_another_seed_of_the_noise_gives_other_iterates(case):
    ours = case.run(seed=2, scale=SCALE).iterates
    others = [case.run(2, SCALE, NoiseSource.seeded_not_private(s)).iterates for s in (77, 78)]
    assert not all(same(ours, other) for other in others)


@every_case
def test_two_private_runs_differ(case):
    first, *others = [case.run(2, SCALE, NoiseSource.from_os()).iterates for _ in range(5)]
    assert not all(same(first, other) for other in others)
