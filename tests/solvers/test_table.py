"""Every registered solver has a row in the table of solvers."""

import pytest
from tests.solver_table import CASES, IDS

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel import Relation
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem
from sordino.solvers import SOLVERS, Options, make_solver

TESTED = {type(case.solver(case.problem)) for case in CASES}


@pytest.mark.parametrize("name", SOLVERS["linear"])
def test_a_registered_solver_is_in_the_table(name):
    problem = Problem(LOSSES["logistic"], 400, 6, Relation.ADD_REMOVE, 1.0, 1e-5, ridge=0.1)
    try:
        solver = make_solver(name, problem, Options(n_nonzero_coefs=3))
    except UnsupportedError:  # it fits dense models only
        solver = make_solver(name, problem, Options())
    assert type(solver) in TESTED, "append a SolverCase to tests/solver_table.py"


def test_an_unknown_solver_is_refused_with_the_known_ones():
    problem = Problem(LOSSES["logistic"], 400, 6, Relation.ADD_REMOVE, 1.0, 1e-5)
    with pytest.raises(InvalidInputError, match=r"'ight'.*got 'newton'"):
        make_solver("newton", problem, Options())


def test_rows_have_names_of_their_own():
    assert len(set(IDS)) == len(IDS)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_no_row_asks_only_what_has_a_sensitivity_of_one(case):
    assert any(abs(q.sensitivity - 1) > 1e-6 for q in case.run(seed=1).asked)
