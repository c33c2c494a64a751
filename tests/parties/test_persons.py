"""Persons with several records, at one member or at several, whom no member knows by name."""

import math

import numpy as np
import pytest
from tests.parties.flower_toys import LOGISTIC, SIZES, records
from tests.parties.helpers import Consortium, linear_task

import sordino
from sordino.errors import InvalidInputError, UnsupportedError
from sordino.execute import LocalExecutor
from sordino.execute.parties.engine import quantise
from sordino.kernel import Gaussian, Relation, Release
from sordino.kernel.mechanism import Rounding
from sordino.ledger import BudgetPolicy, Ledger
from sordino.parties.flower import LinearModel
from sordino.parties.mpc.charter import Approvals
from sordino.parties.mpc.plan import JointPlan
from sordino.problems.covariance import RowMoments
from sordino.runs.report import Booked

PERSONS = {"epsilon": 1.0, "delta": 1e-6, "unit": "person"}
TASK = linear_task(4, max_iter=3, rows_per_person=3, solver_options={"step_size": 2.0})


@pytest.fixture
def three(tmp_path):
    made = Consortium(tmp_path)
    made.plan_path = made.replan("persons.json", task=TASK, budget=PERSONS)
    return made


def test_a_plan_for_persons_has_the_noise_of_as_many_records_as_one_may_have(three):
    persons, plain = JointPlan.load(three.plan_path), JointPlan.load(three.replan("records.json"))
    (ours,), (theirs,) = (p.kernel_plan.releases.values() for p in (persons, plain))
    assert ours.sensitivity(Relation.ADD_REMOVE, np.zeros(4)) == 3 * theirs.sensitivity(
        Relation.ADD_REMOVE, np.zeros(4)
    )
    assert ours.mechanism.multiplier == pytest.approx(theirs.mechanism.multiplier, rel=1e-6)
    assert (persons.bare_plan.unit, plain.bare_plan.unit) == ("person", "record")
    assert any("rows_per_person = 3 (nobody has more; declared)" in fact for fact in persons.task.public)


@pytest.mark.parametrize(("task", "unit"), [(TASK, "record"), (linear_task(4, max_iter=3), "person")])
def test_a_budget_for_another_unit_than_that_of_the_task_is_refused(three, task, unit):
    with pytest.raises(InvalidInputError, match="rows_per_person"):
        three.replan("other.json", task=task, budget={**PERSONS, "unit": unit})


def test_a_ledger_of_records_does_not_pay_for_persons_and_one_of_persons_does(three):
    codes, said = three.run()
    assert codes == [1, 1, 1]
    assert all("unit" in text or "of its own" in text for text in said)
    assert all(not three.history(i) for i in range(3))
    for name in three.names:
        (three.folder / name / "ledger.sqlite").unlink()
        with Ledger.open(three.folder / name / "ledger.sqlite") as ledger:
            ledger.create("patients", BudgetPolicy(epsilon=2.0, delta=1e-5, unit="person"))
    codes, said = three.run()
    assert codes == [0, 0, 0], said
    report = sordino.load(three.state(0) / "model.sordino").privacy_
    assert report.unit == "person"
    assert "rows_per_person = 3 (nobody has more; declared)" in report.public
    assert all(Booked.read(three.history(i)[0].description).most == 3 for i in range(3))
    Approvals(three.folder / "north" / "state").require_heads(
        three.history(0)
    )  # their head is read in spite of the mark


SIZE, ROWS = 6, 5


def farthest_person():
    """Return by how many grid points a person with a record at each of five members moves the sum.

    Each record is at the bound, and its coordinates just above the middle between two grid points, so that
    five roundings go the same way. Beside it stand the exact distance and what the noise allows.
    """
    bound, release = 0.7, Release(RowMoments(0.7), Gaussian(1.3), mean=False, rows=ROWS)
    sensitivity = release.sensitivity(Relation.ADD_REMOVE)
    spacing = release.mechanism.lattice(sensitivity)
    row = np.full(SIZE, (math.floor(bound / math.sqrt(SIZE) / spacing) - 3.49) * spacing)
    rest = math.sqrt(bound**2 - (SIZE - 1) * row[0] ** 2) / spacing
    row[-1] = (math.floor(rest - 0.51) + 0.51) * spacing
    asked = release, None, sensitivity, 50
    found = [
        quantise(asked[0], LocalExecutor(rows, None, bound).records(None), *asked[1:])
        for rows in (row[None], row[None][:0])
    ]
    apart = ROWS * np.linalg.norm((found[0].values - found[1].values).astype(float))
    return apart, sensitivity / spacing, found[0].lattice.std / 1.3


def test_a_person_at_several_members_moves_no_more_than_the_noise_assumes():
    apart, exact, allowed = farthest_person()
    assert exact + 3 < apart <= allowed


def test_room_for_one_rounding_would_not_be_enough_for_five():
    """The twin widens the sensitivity of the whole person once."""
    apart, exact, _ = farthest_person()
    assert apart > Rounding().widen(exact, math.sqrt(SIZE + 1))


def test_a_federation_refuses_persons_whose_rows_other_clients_may_hold():
    estimator = LOGISTIC.__class__(**{**LOGISTIC.get_params(), "rows_per_person": 2})
    with pytest.raises(UnsupportedError, match="rows_per_person=None"):
        LinearModel(*records(SIZES[0], 0), estimator)
