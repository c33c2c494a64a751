"""Releases and plans: what is refused at construction, and the event of the whole."""

from dataclasses import dataclass

import pytest
from dp_accounting import dp_event as dp
from tests.kernel.toys import Total

from sordino.errors import InvalidInputError, PlanError, UnsupportedError
from sordino.kernel import (
    Disjoint,
    FixedSize,
    Full,
    Gaussian,
    GumbelTopK,
    JointSelection,
    Laplace,
    LaplaceMax,
    LaplacePeeling,
    Norm,
    NormGamma,
    Plan,
    Poisson,
    Relation,
    Release,
    SymmetricGaussian,
)

AR, RO = Relation.ADD_REMOVE, Relation.REPLACE_ONE
NORMS = {
    Gaussian: Norm.L2,
    NormGamma: Norm.L2,
    SymmetricGaussian: Norm.L2,
    Laplace: Norm.L1,
    GumbelTopK: Norm.LINF,
    JointSelection: Norm.LINF,
    LaplacePeeling: Norm.LINF,
    LaplaceMax: Norm.LINF,
}


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("norm", Norm)
def test_a_mechanism_takes_the_norm_it_was_made_for_and_no_other(kind, norm):
    query = Total(norm=norm)
    if norm is NORMS[kind]:
        assert Release(query, kind(), mean=False).query is query
    else:
        with pytest.raises(
            UnsupportedError, match=f"needs a sensitivity in {NORMS[kind].value}.*{norm.value}"
        ):
            Release(query, kind(), mean=False)


def test_by_default_a_mean_of_all_records_is_asked_once():
    release = Release(Total(), Gaussian())
    assert (release.sampling, release.times, release.mean, release.lazy) == (Full(), 1, True, False)


@pytest.mark.parametrize("times", [0, -1])
def test_a_release_is_planned_at_least_once(times):
    with pytest.raises(InvalidInputError, match="at least once"):
        Release(Total(), Gaussian(), times=times)


@pytest.mark.parametrize("kind", [GumbelTopK, JointSelection, LaplaceMax])
def test_indices_have_no_mean(kind):
    with pytest.raises(InvalidInputError, match="mean=False"):
        Release(Total(norm=Norm.LINF), kind())
    assert Release(Total(norm=Norm.LINF), LaplacePeeling()).mean


@dataclass(frozen=True)
class Square(Total):
    """A query whose replaced records cannot point in opposite directions."""

    def sensitivity(self, relation, params):
        return 2**0.5 * self.contribution(params) if relation is RO else self.contribution(params)


def test_under_poisson_sampling_the_worst_pair_is_two_contributions():
    assert Release(Square(), Gaussian()).sensitivity(RO) == pytest.approx(2**0.5 * 2.7)
    assert Release(Square(), Gaussian(), Poisson(1.0)).sensitivity(RO) == pytest.approx(2**0.5 * 2.7)
    assert Release(Square(), Gaussian(), FixedSize(3)).sensitivity(RO) == pytest.approx(2**0.5 * 2.7)
    assert Release(Square(), Gaussian(), Poisson(0.5)).sensitivity(RO) == pytest.approx(5.4)
    assert Release(Square(), Gaussian(), Poisson(0.5)).sensitivity(AR) == pytest.approx(2.7)
    assert Release(Total(), Gaussian(), Poisson(0.5)).sensitivity(RO, 0.5) == pytest.approx(2.7)


def test_the_event_of_a_release_has_its_sampling_and_its_number():
    release = Release(Total(), Gaussian(1.7), Poisson(0.3), times=5)
    inner = dp.PoissonSampledDpEvent(0.3, dp.GaussianDpEvent(3.4))
    assert release.event(RO, 40) == dp.SelfComposedDpEvent(inner, 5)


def two_releases(**changes):
    facts = {"relation": AR, "population": 40, "unit": "person"} | changes
    releases = {
        "first": Release(Total(), Gaussian(relative=2.0), Full(), 3),
        "second": Release(Total(norm=Norm.L1), Laplace(relative=0.5), Disjoint(2), 2),
    }
    return Plan(releases, **facts)


def test_a_fresh_plan_is_not_calibrated_and_has_no_event():
    plan = two_releases()
    assert not plan.is_calibrated
    with pytest.raises(PlanError, match=r"accounting\.calibrate"):
        plan.event()


def test_a_plan_is_calibrated_when_all_of_it_is():
    plan = two_releases()
    half = {"first": plan.releases["first"], "second": plan.at(1.0).releases["second"]}
    assert not Plan(half, AR, 40).is_calibrated
    assert plan.at(1.5).is_calibrated


def test_one_scale_sets_every_multiplier_by_its_relative_size():
    plan = two_releases().at(1.5)
    assert [r.mechanism.multiplier for r in plan.releases.values()] == [3.0, 0.75]
    assert [r.times for r in plan.releases.values()] == [3, 2]
    assert (plan.unit, plan.population, plan.relation) == ("person", 40, AR)


def test_the_event_of_a_plan_lists_its_releases_in_order():
    wanted = [dp.SelfComposedDpEvent(dp.GaussianDpEvent(3.0), 3), dp.LaplaceDpEvent(0.75)]
    assert two_releases().at(1.5).event() == dp.ComposedDpEvent(wanted)


def test_a_plan_without_noise_is_not_private():
    event = two_releases().at(0.0).event()
    assert dp.NonPrivateDpEvent() in event.events


def test_a_plan_reads_its_relation_and_keeps_its_releases():
    releases = {"only": Release(Total(), Gaussian())}
    plan = Plan(releases, "replace-one", 40)
    assert plan.relation is RO
    assert plan.unit == "record"
    releases["more"] = releases["only"]
    assert list(plan.releases) == ["only"]
    with pytest.raises(TypeError):
        plan.releases["more"] = releases["only"]


def test_plans_are_told_apart_even_if_they_say_the_same():
    one, other = two_releases(), two_releases()
    assert one != other
    assert len({one, other, one}) == 2


def test_a_plan_asks_something_of_somebody():
    with pytest.raises(InvalidInputError, match="at least one release"):
        Plan({}, AR, 40)
    with pytest.raises(InvalidInputError, match="population >= 1"):
        two_releases(population=0)
    assert two_releases(population=1).population == 1
    with pytest.raises(InvalidInputError, match="relation"):
        two_releases(relation="sometimes")


@pytest.mark.parametrize(
    ("release", "relation"),
    [
        (Release(Total(), Gaussian(), FixedSize(7)), AR),
        (Release(Total(), NormGamma(), Poisson(0.3)), AR),
        (Release(Total(norm=Norm.LINF), GumbelTopK(), Poisson(0.3), mean=False), RO),
        (Release(Total(), Gaussian(), Disjoint(2), times=3), AR),
    ],
)
def test_a_sampling_without_a_proof_is_refused_when_the_plan_is_made(release, relation):
    with pytest.raises(UnsupportedError):
        Plan({"bad": release}, relation, 40)


def test_a_batch_larger_than_the_public_population_is_refused_when_the_plan_is_made():
    with pytest.raises(InvalidInputError, match="<= the 40 records"):
        Plan({"bad": Release(Total(), Gaussian(), FixedSize(41))}, RO, 40)


@dataclass(frozen=True)
class FreeAt(Gaussian):
    """Says that it costs nothing, at one multiplier only."""

    free: float = 3.0

    def event(self, relation):
        return dp.NoOpDpEvent() if self.multiplier == self.free else super().event(relation)


@dataclass(frozen=True)
class FreeSampling(Full):
    """Forgets what it amplifies."""

    def amplify(self, event, times, relation, population):
        return dp.NoOpDpEvent()


def test_a_release_that_is_free_is_found_while_planning_after_sampling_and_once_calibrated():
    for release in (Release(Total(), FreeAt(3.0, free=1.0)), Release(Total(), Gaussian(), FreeSampling())):
        with pytest.raises(PlanError, match="for free"):
            Plan({"sound": Release(Total(), Gaussian()), "free": release}, "add-remove", 30)
    plan = Plan({"free": Release(Total(), FreeAt(3.0))}, "add-remove", 30)
    with pytest.raises(PlanError, match="for free"):
        plan.event()


def test_a_plan_names_each_part_that_is_not_proven_once():
    odd, mark = Release(Total(), FreeAt(3.0)), "unreviewed: tests.kernel.test_release.FreeAt"
    plan = Plan({"sound": Release(Total(), Gaussian(3.0)), "one": odd, "two": odd}, "add-remove", 30)
    assert plan.printed == (mark,)
