"""What a clipped sum declares."""

import pytest
from tests.kernel.toys import Total

from sordino.kernel import ClippedSum, Norm, Query, Relation


def test_removing_a_record_moves_a_clipped_sum_by_one_contribution():
    assert Total().sensitivity(Relation.ADD_REMOVE, None) == 2.7


def test_replacing_a_record_moves_a_clipped_sum_by_two_contributions():
    assert Total().sensitivity(Relation.REPLACE_ONE, None) == 5.4


def test_a_sensitivity_may_depend_on_public_parameters():
    assert Total().sensitivity(Relation.REPLACE_ONE, 0.5) == pytest.approx(2.7)


def test_a_clipped_sum_is_measured_in_l2_and_is_a_query():
    assert ClippedSum.norm is Norm.L2
    assert isinstance(Total(), Query)
    assert [n.value for n in Norm] == ["L1", "L2", "Linf"]


def test_a_clipped_sum_without_a_bound_is_no_query():
    with pytest.raises(AttributeError, match="clip"):
        ClippedSum().sensitivity(Relation.ADD_REMOVE, None)
