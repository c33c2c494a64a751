"""No record, however hostile, adds more to any query on any executor than the query declares."""

import pytest
from tests.hostile.contributions import climb
from tests.hostile.queries import CASES

PAIRS = [(case, kind) for case in CASES for kind in case.kinds]


@pytest.mark.parametrize(("case", "kind"), PAIRS, ids=str)
def test_no_record_adds_more_than_its_bound(case, kind):
    climb(case, kind, examples=25)
