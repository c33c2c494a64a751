"""Two parties with data and a helper without: the same run, and the helper adds nothing."""

import numpy as np
import pytest
from tests.parties.helpers import NAMES, Consortium

import sordino
from sordino.errors import InvalidInputError
from sordino.parties.mpc.plan import JointPlan, in_words


def _members(three, records):
    return [
        {
            "name": name,
            "host": "127.0.0.1",
            "port": three.ports[i],
            "records": records[i],
            "certificate": f"{name}/certificate.pem",
        }
        for i, name in enumerate(NAMES)
    ]


@pytest.mark.parametrize("mode", ["noise-inside", "secure-aggregation"])
def test_two_parties_learn_with_a_helper_that_has_no_records(tmp_path, mode):
    three = Consortium(tmp_path, records=400, epsilon=2.0, mode=mode)
    (tmp_path / "west" / "data.npz").unlink()
    plan = three.replan(members=_members(three, (400, 400, 0)))
    assert any("a helper without records" in line for line in in_words(JointPlan.load(plan)))
    codes, said = three.run(plans=(plan,) * 3)
    assert codes == [0, 0, 0], said
    found = [sordino.load(three.state(i, plan) / "model.sordino").coef_[0] for i in range(3)]
    assert np.array_equal(found[0], found[2])
    for name in ("north", "south"):
        with np.load(tmp_path / name / "data.npz") as data:
            assert np.mean(np.sign(data["X"] @ found[0]) == data["y"]) > 0.75


def test_a_plan_without_any_records_is_refused(tmp_path):
    three = Consortium(tmp_path)
    with pytest.raises(InvalidInputError, match="1 to 2\\^53 records"):
        three.replan(members=_members(three, (0, 0, 0)))
