"""Clients of Flower that answer in other shapes add nothing, and change nothing of the others."""

import numpy as np
import pytest

from sordino.kernel import Relation
from sordino.parties.flower.server import UpdateSum


@pytest.mark.parametrize(
    "wrong", [np.ones(4), np.ones((3, 1)), np.ones(1), np.float64(1.0), np.ones(3, dtype=int)]
)
def test_a_client_moves_the_sum_by_its_clip_whatever_shapes_the_others_send(wrong):
    query, w = UpdateSum(0.3), np.zeros(3)
    mine, others = np.full(3, 5.0), [np.asarray(wrong)] * 9
    moved = query.evaluate([mine, *others], w) - query.evaluate(others, w)
    assert np.linalg.norm(moved) <= query.sensitivity(Relation.ADD_REMOVE, w)
    assert not query.evaluate(others, w).any()
