"""No record, however hostile, adds more to any query on any executor than the query declares."""

import pytest
from tests.hostile.contributions import climb
from tests.hostile.queries import CASES

from sordino.execute import records as affine_view

PERSONS = [tuple(kind for kind in case.kinds if kind.startswith("persons")) for case in CASES]
SINGLE = [tuple(kind for kind in case.kinds if not kind.startswith("persons")) for case in CASES]


@pytest.mark.parametrize(("case", "kinds"), list(zip(CASES, SINGLE)), ids=str)
def test_no_record_adds_more_than_its_bound(case, kinds):
    climb(case, kinds, examples=25)


@pytest.mark.parametrize(("case", "kinds"), [pair for pair in zip(CASES, PERSONS) if pair[1]], ids=str)
def test_no_person_adds_more_than_its_bound(case, kinds):
    climb(case, kinds, examples=25)


@pytest.mark.parametrize("case", [c for c in CASES if c.name.startswith("second moments")], ids=str)
def test_products_of_entries_stay_within_the_bound_of_mapped_rows(case, monkeypatch):
    monkeypatch.setattr(affine_view, "_SPARSE", 0)  # whatever the share of entries
    climb(case, ("csr",), examples=100)
