"""What is not proven here is marked, and opened only for those who say its name."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from tests.kernel.toys import Memory, Total, source

from sordino.errors import PlanError
from sordino.kernel import Curator, Full, Gaussian, Norm, Plan, Poisson, Printed, Release
from sordino.kernel.mechanism import Additive
from sordino.literature.pca import OneRecordOverSnapshot, SnapshotAndDifference, WishartNotPrivate
from sordino.problems.covariance import GramMatrix

RECORDS = np.eye(4)[[0, 0, 1, 2, 3]] * 0.7
HERE = "tests.kernel.test_quarantine"


@dataclass(frozen=True)
class Quoted(Additive):
    """Adds no noise and says that it adds much."""

    norms: ClassVar[tuple[Norm, ...]] = (Norm.L2,)

    def event(self, relation):
        return dp.GaussianDpEvent(1000.0)

    def privatise(self, value, sensitivity, noise):
        return value


class Narrow(Gaussian):
    """A subclass of a proven mechanism is not proven."""


class Forged(Gaussian):
    """Says it is from the kernel."""


Forged.__module__ = "sordino.kernel.mechanism"


@dataclass(frozen=True)
class Rare(Poisson):
    """A subclass of a proven sampling is not proven."""


class Nameless(Printed, Gaussian):
    """Printed, and hides where."""

    printed = ""


class QuotedTotal(Printed, Total):
    """A printed query."""

    printed = "somebody's total"


def plan_of(query=None, mechanism=None, sampling=None):
    release = Release(query or Total(), mechanism or Gaussian(3.0), sampling or Full())
    return Plan({"sound": Release(Total(), Gaussian(3.0)), "other": release}, "add-remove", len(RECORDS))


def test_a_plan_of_the_kernel_has_no_marks():
    for sampling in (Full(), Poisson(0.3)):
        assert plan_of(sampling=sampling).printed == ()


@pytest.mark.parametrize(
    ("parts", "mark"),
    [
        ({"mechanism": Quoted(3.0)}, f"unreviewed: {HERE}.Quoted"),
        ({"mechanism": Narrow(3.0)}, f"unreviewed: {HERE}.Narrow"),
        ({"mechanism": Forged(3.0)}, "unreviewed: sordino.kernel.mechanism.Forged"),
        ({"mechanism": Nameless(3.0)}, f"unreviewed: {HERE}.Nameless"),
        ({"sampling": Rare(0.3)}, f"unreviewed: {HERE}.Rare"),
        ({"query": QuotedTotal()}, "somebody's total"),
        ({"query": GramMatrix(0.7), "mechanism": WishartNotPrivate(3.0)}, "Wishart noise"),
        (
            {"query": SnapshotAndDifference(0.7), "mechanism": OneRecordOverSnapshot(3.0, population=5)},
            "DP-VRPCA, step as printed",
        ),
    ],
)
def test_a_marked_plan_is_opened_only_for_those_who_say_its_name(parts, mark):
    plan = plan_of(**parts)
    assert plan.printed == plan.at(2.0).printed == (mark,)
    for asked in ((), ("Wishart",), mark[:-1], [mark.upper()]):
        with pytest.raises(PlanError, match="not proven here") as refused:
            Curator(Memory(RECORDS), plan, source(), printed=asked)
        assert mark in str(refused.value)
    assert Curator(Memory(RECORDS), plan, source(), printed=[mark]).plan is plan


def test_a_refused_plan_is_not_spent():
    plan = plan_of(mechanism=Quoted(3.0))
    with pytest.raises(PlanError, match="not proven"):
        Curator(Memory(RECORDS), plan, source())
    assert Curator(Memory(RECORDS), plan, source(), printed=plan.printed).used == {}


def test_every_mark_has_to_be_named():
    plan = plan_of(mechanism=Quoted(3.0), sampling=Rare(0.3))
    assert len(plan.printed) == 2
    for mark in plan.printed:
        with pytest.raises(PlanError, match="not proven"):
            Curator(Memory(RECORDS), plan, source(), printed=[mark])
