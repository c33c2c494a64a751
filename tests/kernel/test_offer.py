"""A plan that asks for more than an executor offers is refused in one sentence."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
from tests.kernel.toys import Memory, Total, source

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel import (
    ClippedSum,
    Curator,
    Full,
    Gaussian,
    Laplace,
    Norm,
    Offer,
    OnLattice,
    Plan,
    Poisson,
    Relation,
    Release,
    check_offer,
)
from sordino.kernel.query import GramSums, Parts, RecordSums, RowBlocks, UnitSums, missing

TOYS = Offer("toys", (RecordSums,), remedy="Play with something else.")


@dataclass(frozen=True)
class Counted(Total, OnLattice):
    """A sum that can be taken in integers, if it wants to."""

    whole: bool = True

    @property
    def exact(self):
        return self.whole


class Unbounded:
    """A query whose rounding nobody wrote down."""

    needs, norm, adds_up = (), Norm.L2, True

    def contribution(self, params):
        return 1.0

    def sensitivity(self, relation, params):
        return 1.0

    def evaluate(self, records, params):
        return 0.0


class ByType(Total):
    """A query that is typed to take sums for each unit."""

    def evaluate(self, records: UnitSums, params):
        return records.unit_sum(params, 1.0)


class Untyped(ByType):
    def evaluate(self, records, params):
        return super().evaluate(records, params)


class Named(ByType):
    needs: ClassVar = (GramSums, Parts)

    def evaluate(self, records: GramSums, params):
        return records.part(0, 1)


class Middle(Total):
    """Not a sum."""

    @property
    def adds_up(self):
        return False


class Rows(Total):
    needs: ClassVar[tuple[type, ...]] = (RowBlocks, Parts)


def released(query=None, mechanism=None, sampling=None):
    return Release(query or Total(), mechanism or Gaussian(1.3), sampling or Full(), mean=False)


def test_a_group_offers_what_it_extends_and_nothing_more():
    assert missing((UnitSums, RecordSums), (RecordSums,)) == []
    assert missing((RecordSums, GramSums), (UnitSums,)) == ["RecordSums", "GramSums"]
    assert missing((), ()) == []


def test_what_is_missing_is_named_with_query_records_and_remedy():
    plan = Plan({"sum": released(), "rows": released(Rows())}, Relation.ADD_REMOVE, 4)
    words = (
        r"^Release 'rows' cannot be run: Rows needs RowBlocks and Parts, which is not proven for toys\. Play"
    )
    with pytest.raises(UnsupportedError, match=words):
        check_offer(plan, TOYS)
    check_offer(plan, replace(TOYS, operations=(RowBlocks, Parts)))


def test_only_offered_batches_are_drawn():
    poisson = released(sampling=Poisson(0.5))
    assert TOYS.unmet(poisson) is None
    assert "Poisson batches cannot be drawn from toys, only Full" in replace(TOYS, samplings=(Full,)).unmet(
        poisson
    )
    assert replace(TOYS, samplings=(Full, Poisson)).unmet(poisson) is None


def test_holders_whose_answers_are_added_up_take_gaussian_sums_only():
    joint = replace(TOYS, sums_only=True)
    assert joint.unmet(released()) is None
    assert "Laplace is not independent" in joint.unmet(released(Total(norm=Norm.L1), Laplace(1.3)))
    assert "Middle is not a sum over records" in joint.unmet(released(Middle()))
    assert TOYS.unmet(released(Middle())) is None
    # they round what is no integer themselves
    assert joint.unmet(released(mechanism=Gaussian(1.3, secure=True))) is None


@pytest.mark.parametrize(
    ("offer", "query", "blamed"),
    [
        (replace(TOYS, doubles=False), Counted(), "toys"),
        (replace(TOYS, doubles=False, lattice=True), Total(), "Total"),
        (replace(TOYS, doubles=False, lattice=True), Counted(whole=False), "Counted"),
        (replace(TOYS, doubles=False, lattice=True), Counted(), None),
        (TOYS, Unbounded(), "Unbounded"),
        (TOYS, Total(), None),
    ],
)
def test_exact_noise_needs_integers_or_a_written_error(offer, query, blamed):
    release = released(query, Gaussian(1.3, secure=True))
    said = None if blamed is None else f"secure_noise=True is not proven for {blamed}"
    assert offer.unmet(release) == said
    assert offer.unmet(released(query)) is None
    if said is not None:
        with pytest.raises(UnsupportedError, match="Set secure_noise=False"):
            check_offer(Plan({"sum": release}, Relation.ADD_REMOVE, 4), offer)


def test_noise_on_a_lattice_needs_noise():
    plan = Plan({"sum": released(Counted(), Gaussian(secure=True))}, Relation.ADD_REMOVE, 4)
    with pytest.raises(InvalidInputError, match="epsilon=inf has none"):
        check_offer(plan.at(0.0), replace(TOYS, lattice=True))
    check_offer(plan.at(0.1), replace(TOYS, lattice=True))


def test_a_curator_checks_the_executor_before_it_opens_the_plan(monkeypatch):
    import numpy as np

    executor, plan = Memory(np.ones((4, 2))), Plan({"rows": released(Rows())}, Relation.ADD_REMOVE, 4)
    with pytest.raises(UnsupportedError, match="needs RowBlocks"):
        Curator(executor, plan, source())
    monkeypatch.setattr(Memory, "offer", replace(TOYS, operations=(RowBlocks, Parts)))
    Curator(executor, plan, source())  # it was not opened before


def test_a_lazy_release_needs_what_a_batch_of_few_columns_has():
    assert Release(Total(), Gaussian(), lazy=True).lazy
    with pytest.raises(UnsupportedError, match="Rows needs RowBlocks and Parts"):
        Release(Rows(), Gaussian(), lazy=True)
    assert not Release(Rows(), Gaussian()).lazy


def test_only_noise_that_says_so_is_on_a_lattice():
    assert Gaussian(secure=True).secure
    assert not Gaussian().secure
    assert not Laplace().secure


def test_the_terms_of_a_sum_are_as_large_as_its_contribution():
    assert Total(2.7).reach(2.0) == 5.4
    assert Total().adds_up
    assert Counted().exact


def test_a_query_needs_what_it_is_typed_to_take_or_names():
    assert ByType.needs == (UnitSums,)
    assert Untyped.needs == (UnitSums,)
    assert Named.needs == (GramSums, Parts)


def test_a_query_without_a_type_is_proven_for_single_records_only():
    class Silent(ClippedSum):
        def evaluate(self, records, params):
            return 0.0

    assert Silent.needs == (RecordSums,)


def test_a_type_that_is_not_there_when_a_query_is_made_is_an_error():
    with pytest.raises(KeyError, match="NoSuchGroup"):

        class Misspelt(ClippedSum):
            def evaluate(self, records: "NoSuchGroup", params):  # noqa: F821
                return 0.0
