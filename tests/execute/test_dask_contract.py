"""The table of solvers on a cluster: asked as planned, equal to parts here, refused at planning time."""

import numpy as np
import pytest
from tests.execute.in_parts import cluster, in_process, on_workers  # noqa: F401 - a fixture
from tests.solver_case import local_executor
from tests.solver_table import CASES
from tests.solvers.test_contract import assert_executed_as_planned

from sordino.errors import PlanSpentError, UnsupportedError
from sordino.kernel import Full, GumbelTopK, LaplacePeeling, check_offer

SELECTIONS = (GumbelTopK, LaplacePeeling)
OURS = [case for case in CASES if case.executor is local_executor]


def offered(case):
    """Tell whether parts can answer the plan; made without a cluster."""
    try:
        check_offer(case.plan().at(1.3), in_process(case.problem, *case.data(case.problem, 1)).offer)
    except UnsupportedError:
        return False
    return True


IN_PARTS = [case for case in OURS if offered(case)]
every_case = pytest.mark.parametrize("case", IN_PARTS, ids=[case.id for case in IN_PARTS])


@every_case
def test_a_cluster_is_asked_as_planned_and_answers_as_parts_in_this_process_do(case, cluster):  # noqa: F811
    data = case.data(case.problem, 1)
    run = case.run(1, executor=on_workers(case.problem, *data))
    if case.spends_all:
        assert_executed_as_planned(run)
    for q in run.asked:
        assert q.sensitivity == pytest.approx(q.release.sensitivity(run.plan.relation, q.params), rel=1e-12)
        if run.curator.used[q.name] == q.release.times:
            with pytest.raises(PlanSpentError):
                run.curator.release(q.name, q.params)
    here = case.run(1, executor=in_process(case.problem, *data))
    assert len(run.iterates) == len(here.iterates) > 0
    assert all(np.array_equal(a, b) for a, b in zip(run.iterates, here.iterates, strict=True))


@every_case
def test_without_noise_parts_and_the_whole_agree(case):
    plan = case.plan()
    if getattr(case.problem, "secure_noise", False):
        pytest.skip("exact noise cannot be switched off")
    if not all(type(r.sampling) is Full for r in plan.releases.values()):
        pytest.skip("parts draw batches of their own")
    data = case.data(case.problem, 1)
    ours = case.run(1, 0.0, executor=in_process(case.problem, *data)).iterates
    whole = case.run(1, 0.0, executor=case.execute_on(1)).iterates
    if any(isinstance(r.mechanism, SELECTIONS) for r in plan.releases.values()):
        ours, whole = ours[:1], whole[:1]  # equal scores are broken by position
    for a, b in zip(ours, whole, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_what_needs_all_rows_in_one_place_is_refused_at_planning_time():
    refused = [case for case in OURS if case not in IN_PARTS]
    assert 1 <= len(refused) < len(IN_PARTS) / 2
    for case in refused:
        executor = in_process(case.problem, *case.data(case.problem, 1))
        with pytest.raises(UnsupportedError, match=r"one place|Parts"):
            check_offer(case.plan().at(1.3), executor.offer)
