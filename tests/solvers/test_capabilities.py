"""A declaration says what a solver reads and can do; the rest is refused in one sentence."""

import pytest
from tests.solvers.plain import made_problem

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.execute.local import DENSE
from sordino.solvers import SOLVERS, Capabilities, Options, capabilities_of, make_solver, solvers_with

GENERAL = ("n_nonzero_coefs", "max_iter", "batch_size", "step_size", "clip_norm", "sampling")
VALUES = {
    "n_nonzero_coefs": 2,
    "max_iter": 7,
    "batch_size": 9,
    "step_size": 0.3,
    "clip_norm": 0.4,
    "sampling": "fixed",
}
SETS = [("replace-one" if option == "sampling" else "add-remove", option) for option in GENERAL]


def configured(name, relation, **given):
    return SOLVERS["linear"][name].make(made_problem(relation=relation), Options(**given))


@pytest.mark.parametrize("name", sorted(SOLVERS["linear"]))
@pytest.mark.parametrize(("relation", "option"), SETS)
def test_an_option_is_read_if_and_only_if_it_is_declared(name, relation, option):
    """What is read changes the solver; what is not read leaves it as it is, and asking for it is an error."""
    able = capabilities_of(name)
    if option in able.reads:
        given = {"random_state": 0, "n_nonzero_coefs": 3 if able.sparse else None}
        before, after = given, {**given, option: VALUES[option]}
        assert configured(name, relation, **before) != configured(name, relation, **after)
        make_solver(name, made_problem(relation=relation), Options(**{option: VALUES[option]}))
        return
    with pytest.raises((InvalidInputError, UnsupportedError)) as caught:
        make_solver(name, made_problem(relation=relation), Options(**{option: VALUES[option]}))
    assert option in str(caught.value)
    assert "sgd-ht" in str(caught.value)  # it reads all of them


@pytest.mark.parametrize("name", sorted(SOLVERS["linear"]))
def test_secure_noise_is_in_every_release(name):
    problem = made_problem(secure_noise=True)
    plan = make_solver(name, problem, Options()).plan(problem)
    assert all(r.mechanism.secure for r in plan.releases.values())
    assert not [unmet for r in plan.releases.values() if (unmet := DENSE.unmet(r))]


@pytest.mark.parametrize("name", sorted(SOLVERS["linear"]))
def test_a_lazy_solver_plans_lazy_releases_and_no_other_does(name):
    able, problem = capabilities_of(name), made_problem()
    keep = {"snapshot_keep": 3} if "snapshot_keep" in able.options else {}
    step = 0.5 if "step_size" in able.reads else None  # open steps of sgd-ht have momentum and dense iterates
    options = Options(n_nonzero_coefs=3 if able.sparse else None, step_size=step, extra=keep)
    plan = make_solver(name, problem, options).plan(problem)
    assert any(r.lazy for r in plan.releases.values()) is able.lazy


def test_a_declaration_of_an_option_that_does_not_exist_is_refused():
    with pytest.raises(InvalidInputError, match="speed"):
        Capabilities(asks="nothing", reads=("speed",))


def test_solvers_are_found_by_what_they_declare():
    assert set(solvers_with(sparse=False)) == {
        "adam",
        "agd",
        "gd",
        "ls-adam",
        "ls-sgd",
        "rrp-sgd",
        "sgd",
        "srm",
    }
    assert "heavy-tailed" not in solvers_with(weights=True)
