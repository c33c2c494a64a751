"""Networks: nothing tells neighbours apart but gradients, and those by at most their clip."""

import pytest
from tests.replay.cases import cases_of, told
from tests.replay.networks import network_rows

ROWS = list(network_rows())


@pytest.mark.parametrize("case", cases_of(ROWS, long=False), ids=lambda case: case.name)
def test_nothing_tells_neighbours_apart(case, tmp_path):
    assert told(case, case.judged(tmp_path)) == []


@pytest.mark.long
@pytest.mark.parametrize("case", cases_of(ROWS, long=True), ids=lambda case: case.name)
def test_nothing_tells_many_neighbours_apart(case, tmp_path):
    assert told(case, case.judged(tmp_path)) == []
