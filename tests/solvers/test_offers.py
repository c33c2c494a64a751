"""What executors say they can do is what they can do: every solver on every kind of executor."""

import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from tests.solver_case import SolverCase
from tests.solver_table import CASES

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.execute import GroupedExecutor, LocalExecutor
from sordino.execute.local import StreamExecutor
from sordino.execute.parties import Mode, NoiseShare, SimulatedParties
from sordino.execute.persons import GroupedRecords
from sordino.execute.torch import PersonRecords
from sordino.kernel import (
    Curator,
    Disjoint,
    Gaussian,
    NoiseSource,
    Offer,
    Plan,
    Poisson,
    Relation,
    Release,
    check_offer,
)
from sordino.kernel import query as contracts
from sordino.ledger import BudgetPolicy, Ledger
from sordino.problems.covariance import GramMatrix
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem
from sordino.problems.queries import GlmGradient
from sordino.problems.scales import FeatureScales, GradientScales, TargetsBelow
from sordino.runs import Ask, Task, run
from sordino.solvers import SOLVERS, Options, make_solver
from sordino.solvers.baselines import FrankWolfe
from sordino.solvers.pca.methods import StreamGauss

every_case = pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])


def _local(case: SolverCase, kind: Any) -> LocalExecutor:
    matrix, targets = case.data(case.problem, 1)
    dense = matrix.toarray() if sparse.issparse(matrix) else matrix
    return case.executor(case.problem, kind(dense), targets)


def _parties(case: SolverCase) -> SimulatedParties:
    whole = _local(case, np.asarray)
    parts = np.array_split(np.arange(whole.population), 3)
    members = [replace(whole, matrix=whole.matrix[p], targets=whole.targets[p]) for p in parts]
    return SimulatedParties(members, NoiseShare(Mode.INSIDE, 3, 1))


def _grouped(case: SolverCase) -> GroupedExecutor:
    whole = _local(case, np.asarray)
    return GroupedExecutor(whole, np.arange(whole.population))


class Fed(StreamExecutor):
    """A stream whose next chunk comes when it is asked about."""

    def __init__(self, case: SolverCase) -> None:
        super().__init__(case.problem.population)
        self._whole = _local(case, np.asarray)

    def total(self, question, batch):
        if question.position > self._number:
            rows = batch.rows(self.population)
            whole = self._whole
            self.feed(replace(whole, matrix=whole.matrix[rows], targets=whole.targets[rows]))
        return super().total(question, batch)


EXECUTORS = {
    "dense": lambda case: _local(case, np.asarray),
    "csr": lambda case: _local(case, sparse.csr_matrix),
    "persons": _grouped,
    "parties": _parties,
    "stream": Fed,
}


@every_case
@pytest.mark.parametrize("name", EXECUTORS)
def test_a_plan_that_fits_an_executor_runs_there_and_no_other_is_opened(case, name):
    executor, plan = EXECUTORS[name](case), case.plan().at(1.3)
    if any(executor.offer.unmet(release) for release in plan.releases.values()):
        with pytest.raises((UnsupportedError, InvalidInputError), match=r"cannot be run"):
            Curator(executor, plan, NoiseSource.seeded_not_private(1))
    else:
        assert case.run(seed=1, executor=executor).iterates


def test_the_table_has_plans_that_fit_and_plans_that_do_not():
    fits = {
        name: sum(not any(make(case).offer.unmet(r) for r in case.plan().releases.values()) for case in CASES)
        for name, make in EXECUTORS.items()
    }
    assert fits["dense"] == len(CASES)
    assert fits["csr"] == len(CASES)
    assert 10 < fits["persons"] < fits["parties"] < len(CASES)
    assert 0 < fits["stream"] < 10  # most plans see all records at once


# ------------------------------------------------------------------------- needs: no more than said


def members(kind: type) -> set[str]:
    """Return the names that a group of operations promises."""
    own = [k for k in kind.__mro__ if k.__module__ == contracts.__name__]
    return {name for k in own for name in (*vars(k), *inspect.get_annotations(k)) if name[0] != "_"}


class Narrow:
    """Records that have nothing but some groups of operations."""

    def __init__(self, records: Any, needs: tuple[type, ...]) -> None:
        self._records, self._open = records, set().union(*map(members, needs))

    def __getattr__(self, name: str) -> Any:
        if name not in self._open:
            raise AssertionError(f"{name} is not among what was declared")
        return getattr(self._records, name)


def evaluated_on_what_it_declared(query: Any, records: Any, params: Any) -> Any:
    groups = query.needs + getattr(query, "shortcuts", ())
    return query.evaluate(Narrow(records, groups), params)


@every_case
def test_a_query_uses_only_what_it_declares(case):
    run, executor = case.run(seed=1), case.execute_on(1)
    for asked in {a.name: a for a in run.asked}.values():
        value = evaluated_on_what_it_declared(asked.release.query, executor.records(None), asked.params)
        assert value is not None


@pytest.mark.parametrize("kind", [GroupedRecords, PersonRecords])
def test_records_of_persons_have_no_gradient_that_is_clipped_record_by_record(kind):
    assert not any(hasattr(kind, name) for name in members(contracts.OnePass))
    assert not hasattr(kind, "__getattr__")  # nor one that is passed through


class SaysTooLittle(GlmGradient):
    """A twin that counts records, which is bounded for no person, and does not say so."""

    def evaluate(self, records, params):
        return super().evaluate(records, params) * records.count


def test_a_query_that_needs_more_than_it_says_is_found():
    records = LocalExecutor(np.eye(3), np.ones(3)).records(None)
    query = SaysTooLittle(LOSSES["logistic"], 0.7)
    with pytest.raises(AssertionError, match="count"):
        evaluated_on_what_it_declared(query, records, np.zeros(3))


# ------------------------------------------------------------------------ offers: no more than there


def not_there(offer: Offer, records: Any) -> set[str]:
    """Return what an executor offers and its records do not have."""
    return {name for kind in offer.operations for name in members(kind) if not hasattr(records, name)}


X, Y = np.random.default_rng(0).normal(size=(12, 4)), np.repeat([-1.0, 1.0], 6)
HOLDERS = [
    LocalExecutor(X, Y),
    LocalExecutor(sparse.csr_matrix(X), Y),
    GroupedExecutor(LocalExecutor(X, Y), np.arange(12) // 3),
]


@pytest.mark.parametrize("executor", HOLDERS, ids=["dense", "csr", "persons"])
def test_records_have_what_their_executor_offers(executor):
    assert not not_there(executor.offer, executor.records(None))


def test_a_batch_of_few_columns_has_what_a_lazy_release_may_ask():
    wide = LocalExecutor(sparse.csr_matrix(np.eye(3, 500)), np.ones(3))
    assert not not_there(Offer("a batch", (contracts.RecordSums,)), wide.records(np.array([0]), lazy=True))


def test_an_executor_that_offers_more_than_it_has_is_found():
    boasting = replace(GroupedExecutor.offer, operations=(contracts.RecordSums,))
    assert not_there(boasting, HOLDERS[2].records(None)) == {"weighted_sum", "peaks"}


# ----------------------------------------------------------------------------- what is refused, when


def opened(executor: Any, query: Any, mechanism: Any = None, sampling: Any = None) -> Curator:
    release = Release(query, mechanism or Gaussian(1.0), sampling or Poisson(1.0), mean=False)
    plan = Plan({"asked": release}, Relation.ADD_REMOVE, executor.population)
    return Curator(executor, plan, NoiseSource.seeded_not_private(1))


@pytest.mark.parametrize("query", [FeatureScales(4), TargetsBelow(), GradientScales(LOSSES["squared"])])
def test_counts_of_records_are_refused_for_persons(query):
    """A person with three records would be counted three times."""
    with pytest.raises(UnsupportedError, match="not proven for groups of records"):
        opened(HOLDERS[2], query)


def test_a_stream_refuses_batches_it_would_not_draw():
    """It answers from the whole chunk: Poisson batches would be accounted for and never drawn."""
    with pytest.raises(UnsupportedError, match="Poisson batches"):
        opened(StreamExecutor(12), GramMatrix(1.0), sampling=Poisson(0.1))
    opened(StreamExecutor(12), GramMatrix(1.0), sampling=Disjoint(3))


def test_the_solver_for_streams_fits_a_stream():
    from tests.solver_table import _pca

    problem = _pca()
    check_offer(StreamGauss(4).plan(problem).at(1.0), StreamExecutor.offer)


def test_a_lazy_release_of_a_query_that_needs_rows_is_refused():
    with pytest.raises(UnsupportedError, match="GradientScales needs PartedRows"):
        Release(GradientScales(LOSSES["squared"]), Gaussian(), lazy=True)


def test_a_mismatch_books_nothing(tmp_path):
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.create("toy", BudgetPolicy(epsilon=2.0, delta=1e-3, unit="person"))
    problem = Problem(LOSSES["logistic"], 4, 4, Relation.ADD_REMOVE, 1.0, 1e-4, unit="person")
    ask = Ask(1.0, 1e-4, ledger, "toy")
    with pytest.raises(UnsupportedError, match="VertexScores needs RecordSums"):
        run(Task(FrankWolfe.configure(problem, Options(max_iter=2)), problem, "fw"), HOLDERS[2], ask)
    assert ledger.history("toy") == []


@pytest.mark.parametrize("name", [name for name in SOLVERS["linear"] if name != "auto"])
def test_what_a_solver_declares_for_persons_is_what_its_plan_can(name):
    """ "auto" asks for more than persons allow; estimators put another solver in its place for them."""
    able = SOLVERS["linear"][name].capabilities
    k = 2 if able.sparse else None
    problem = Problem(LOSSES["logistic"], 40, 6, Relation.ADD_REMOVE, 1.0, 1e-5)
    plan = make_solver(name, problem, Options(n_nonzero_coefs=k)).plan(problem)
    unmet = [GroupedExecutor.offer.unmet(release) for release in plan.releases.values()]
    assert able.persons is not any(unmet)
