"""No record, however hostile, adds more to any query on any executor than the query declares."""

import pytest
from tests.hostile.contributions import climb
from tests.hostile.queries import CASES

from sordino.execute import records as affine_view

PAIRS = [(case, kind) for case in CASES for kind in case.kinds]


@pytest.mark.parametrize(("case", "kind"), PAIRS, ids=str)
def test_no_record_adds_more_than_its_bound(case, kind):
    climb(case, kind, examples=25)


@pytest.mark.parametrize("case", [c for c in CASES if c.name.startswith("second moments")], ids=str)
def test_products_of_entries_stay_within_the_bound_of_mapped_rows(case, monkeypatch):
    monkeypatch.setattr(affine_view, "_SPARSE", 0)  # whatever the share of entries
    climb(case, "csr", examples=100)
