"""What a solver executes is what it planned, and nothing else gets through the curator."""

from collections import Counter
from dataclasses import dataclass, replace

import pytest
from tests.solver_case import Run
from tests.solver_table import CASES, IDS

from sordino.errors import PlanError, PlanSpentError
from sordino.kernel import Curator, NoiseSource, Plan
from sordino.kernel.events import compose_events

every_case = pytest.mark.parametrize("case", CASES, ids=IDS)
NOISE = NoiseSource.seeded_not_private(0)


def executed_event(run: Run):
    """Return the event of what reached the executor, by release in the order of the plan."""
    counts = Counter(q.name for q in run.asked)
    events = []
    for name, release in run.plan.releases.items():
        used = [q for q in run.asked if q.name == name]
        if used:
            single = used[0].release.mechanism.event(run.plan.relation)
            sampling = release.sampling
            events.append(sampling.amplify(single, counts[name], run.plan.relation, run.plan.population))
    return compose_events(events)


def assert_executed_as_planned(run: Run) -> None:
    assert executed_event(run) == run.plan.event()
    assert Counter(q.name for q in run.asked) == run.curator.used


@every_case
def test_what_is_executed_is_what_was_planned(case):
    run = case.run(seed=1)
    if case.spends_all:
        assert_executed_as_planned(run)
    for name, used in run.curator.used.items():
        assert 0 < used <= run.plan.releases[name].times


@every_case
def test_every_question_gets_the_sensitivity_of_its_own_parameters(case):
    run = case.run(seed=1)
    for q in run.asked:
        assert q.sensitivity == pytest.approx(q.release.sensitivity(run.plan.relation, q.params), rel=1e-12)
        assert q.release is run.plan.releases[q.name]


@every_case
def test_positions_count_the_uses_of_a_release(case):
    positions: dict[str, list[int]] = {}
    for q in case.run(seed=1).asked:
        positions.setdefault(q.name, []).append(q.position)
    assert all(found == list(range(len(found))) for found in positions.values())


@every_case
def test_a_spent_plan_answers_nothing_more(case):
    run = case.run(seed=1)
    for q in run.asked:
        if run.curator.used[q.name] == q.release.times:
            with pytest.raises(PlanSpentError, match=r"planned \d+ times"):
                run.curator.release(q.name, q.params)
    with pytest.raises(PlanSpentError, match="already opened"):
        Curator(case.execute_on(1), run.plan, NOISE)


@every_case
def test_a_question_outside_the_plan_is_refused(case):
    run = case.run(seed=1)
    with pytest.raises(PlanError, match="No release 'surprise'"):
        run.curator.release("surprise")
    assert "surprise" not in run.curator.used


@every_case
def test_a_plan_without_noise_multipliers_is_not_opened(case):
    with pytest.raises(PlanError, match="no noise multipliers"):
        Curator(case.execute_on(1), case.plan(), NOISE)


@every_case
def test_a_plan_is_made_without_data(case):
    one, other = case.plan().at(1.7), case.plan().at(1.7)
    assert one.event() == other.event()
    assert one.relation is case.problem.relation
    assert one.population == case.problem.population


@dataclass(frozen=True, eq=False)
class EventDropped(Plan):
    """A plan that forgets to account for one use of its first release."""

    def event(self):
        first, *rest = self.releases
        release = self.releases[first]
        shorter = Plan(
            {first: replace(release, times=release.times - 1), **{n: self.releases[n] for n in rest}},
            self.relation,
            self.population,
        )
        return shorter.event()


def test_a_dropped_event_is_caught():
    run = CASES[0].run(seed=1)
    assert_executed_as_planned(run)
    twin = EventDropped(run.plan.releases, run.plan.relation, run.plan.population)
    with pytest.raises(AssertionError):
        assert_executed_as_planned(replace(run, plan=twin))
