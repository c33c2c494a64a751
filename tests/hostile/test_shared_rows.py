"""All rows of a person together move a statistic as far as one record may, however many and odd they are."""

import numpy as np
import pytest
from hypothesis import given, settings, target
from hypothesis import strategies as st

from sordino.execute import persons as places
from sordino.execute.persons import SharedRows
from sordino.kernel import Relation
from sordino.problems import scales
from sordino.problems.scales import CellMoments, CellTrees

ODD = st.sampled_from([0.0, 1.0, -1.0, 2.0, 0.5, 1e308, -1e308, 5e-324, np.inf, -np.inf, np.nan, -2.0, 7.0])
CELL = st.sampled_from([0.0, 1.0, 2.0, 3.0, -1.0, 0.5, np.nan])
ROWS = st.lists(st.tuples(CELL, ODD), min_size=1, max_size=40)
QUERIES = {
    "counts": CellMoments(3),
    "moments": CellMoments(3, ((0, 0.5), (1, 1.0), (2, 0.7)), 0.4, 2.5),
    "sums": CellMoments(3, ((1, 1.0),), 0.0, 1e-3),
    "trees": CellTrees(3, 4, (-2.0, 7.0)),
}
OTHERS = [(0.0, 1.0), (1.0, 3.0), (2.0, -1.0)]


def answer(query, mine, most):
    """Return the exact answer on three persons with a row each and one with these rows."""
    rows = np.array([*OTHERS, *mine])
    owners = [*range(len(OTHERS)), *[9] * len(mine)]
    shared = SharedRows(rows, owners, most)
    return query.evaluate(shared._local.records(None), None)


def moved(query, mine, yours, most):
    return float(np.linalg.norm(answer(query, mine, most) - answer(query, yours, most)))


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("most", [None, 1, 7])
@given(mine=ROWS, yours=ROWS)
@settings(max_examples=40, deadline=None)
def test_a_person_moves_an_answer_as_far_as_a_record_may(name, most, mine, yours):
    query = QUERIES[name]
    apart = {Relation.ADD_REMOVE: moved(query, mine, [(-1.0, 0.0)], most)}
    apart[Relation.REPLACE_ONE] = moved(query, mine, yours, most)
    for relation, distance in apart.items():
        share = distance / query.sensitivity(relation, None)
        target(share, label=f"{relation.value}")
        assert share <= 1.0 + 1e-12


@pytest.mark.parametrize("name", QUERIES)
def test_a_person_of_many_rows_reaches_the_bound(name):
    query = QUERIES[name]
    far = moved(query, [(1.0, 1e9)] * 30, [(-1.0, 0.0)], None)
    assert 0.7 < far / query.sensitivity(Relation.ADD_REMOVE, None) <= 1.0


def whole(block):
    return np.ones(len(block))


def test_a_twin_whose_rows_count_in_full_is_caught(monkeypatch):
    monkeypatch.setattr(scales, "parts_of", whole)
    with pytest.raises(AssertionError):
        test_a_person_of_many_rows_reaches_the_bound("counts")


def test_a_twin_that_keeps_more_rows_than_it_says_is_caught(monkeypatch):
    class Forgetful(SharedRows):
        def __post_init__(self):
            object.__setattr__(self, "most", 2)
            super().__post_init__()

    kept = Forgetful(np.array([(1.0, 0.0)] * 6), [1] * 6, 6)
    assert CellMoments(3).evaluate(kept._local.records(None), None)[0, 1] <= 1.0  # two halves, not six
    monkeypatch.setattr(places.Owners, "of", lambda groups, records: _each_alone(records))
    torn = SharedRows(np.array([(1.0, 0.0)] * 6), [1] * 6, 2)  # a person torn into six
    assert CellMoments(3).evaluate(torn._local.records(None), None)[0, 1] > 1.0


def _each_alone(records):
    return places.Owners(np.arange(records), np.arange(records + 1))


def test_hostile_parts_count_between_none_and_all():
    rows = np.array([(1.0, 0.0, 5.0), (1.0, 0.0, -3.0), (1.0, 0.0, np.nan), (1.0, 0.0, 0.25)])
    assert scales.parts_of(rows).tolist() == [1.0, 0.0, 0.0, 0.25]
