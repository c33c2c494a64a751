"""Which answers of clients count, and which numbers they may state of themselves."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from sordino.errors import PlanError
from sordino.parties.flower.client import fits
from sordino.parties.flower.server import one_each, stated_number, weights_of

SHAPE = (3,)


def _reply(node, weights=None, group="1", failed=False):
    held = {} if weights is None else {"arrays": ArrayRecord({"weights": Array(np.asarray(weights))})}
    return SimpleNamespace(
        metadata=SimpleNamespace(src_node_id=node, group_id=group),
        has_error=lambda: failed,
        content=SimpleNamespace(array_records=held),
    )


def test_only_finite_floats_of_exactly_the_shape_fit():
    for good in (np.zeros(3), np.zeros(3, np.float32), np.zeros(3, np.float16)):
        assert fits(good, SHAPE)
        assert fits(good, [3])
    for bad in (
        np.zeros(4),
        np.zeros((3, 1)),
        np.zeros(()),
        np.zeros(3, int),
        np.zeros(3, complex),
        [0.0] * 3,
        None,
    ):
        assert fits(bad, SHAPE) is False
    assert not fits(np.array([0.0, np.inf, 0.0]), SHAPE)
    assert not fits(np.array([0.0, np.nan, 0.0]), SHAPE)


def test_weights_are_read_if_they_are_what_they_say():
    assert np.array_equal(weights_of(_reply(1, np.arange(3.0)), SHAPE), np.arange(3.0))
    assert weights_of(_reply(1, np.zeros(4)), SHAPE) is None
    assert weights_of(_reply(1), SHAPE) is None
    liar = _reply(1, np.zeros(4))
    liar.content.array_records["arrays"]["weights"].shape = SHAPE
    assert weights_of(liar, SHAPE) is None
    broken = _reply(1, np.zeros(3))
    broken.content.array_records["arrays"]["weights"].data = b"no array"
    assert weights_of(broken, SHAPE) is None
    modest = _reply(1, np.zeros(3))
    modest.content.array_records["arrays"]["weights"].shape = (4,)
    assert weights_of(modest, SHAPE) is None


def test_one_answer_of_each_client_that_was_asked_in_this_round():
    replies = [
        _reply(1),
        _reply(2),
        _reply(2),
        _reply(3, group="0"),
        _reply(9),
        _reply(4, failed=True),
        _reply(5),
    ]
    assert list(one_each(replies, [5, 1, 2, 3, 4], "1")) == [5, 1]
    assert list(one_each(replies, [1, 1], "1")) == [1]
    assert list(one_each([_reply(1), _reply(1, failed=True)], [1], "1")) == []


def test_a_stated_guarantee_is_one():
    assert stated_number({"epsilon": 0}, "epsilon", math.inf, 1) == 0.0
    assert stated_number({"epsilon": math.inf}, "epsilon", math.inf, 1) == math.inf
    assert stated_number({"delta": 1}, "delta", 1.0, 1) == 1.0
    wrongs = [({"epsilon": -1e-9}, "epsilon", math.inf), ({"delta": 1.1}, "delta", 1.0)]
    for wrong in (*wrongs, ({"delta": -0.1}, "delta", 1.0), ({}, "delta", 1.0), (None, "epsilon", math.inf)):
        with pytest.raises(PlanError, match="Node 7 states a guarantee"):
            stated_number(*wrong, 7)


def test_a_stated_number_of_records_is_one():
    assert stated_number({"num-examples": 1}, "num-examples", 2.0**53, 1) == 1.0
    for wrong in (0.99, math.inf, math.nan, "many", 10**400):
        with pytest.raises(PlanError, match="Node 7 states no number"):
            stated_number({"num-examples": wrong}, "num-examples", 2.0**53, 7)
