"""No hostile record adds more than its bound to the sums of tensors."""

import pytest
from tests.hostile.contributions import climb
from tests.hostile.queries import AFFINES, GLM, GRAMS

pytest.importorskip("torch")
CASES = [case for case in (*AFFINES, *GLM[:3], *GRAMS) if "dense" in case.kinds and "csr" in case.kinds]


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_record_adds_more_than_its_bound(case):
    climb(case, ("tensor dense", "tensor csr"), 10)
