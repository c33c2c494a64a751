"""What solvers do with what the user left open: public rules only."""

from dataclasses import replace

import pytest

from sordino.errors import InvalidInputError
from sordino.kernel import FixedSize, Full, Poisson, Relation
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem
from sordino.solvers import Capabilities, Option, Options
from sordino.solvers.sparse import EPOCHS, PACED_EPOCHS, PACED_SHARE, Ight, SgdHt

PROBLEM = Problem(LOSSES["logistic"], 20_000, 6, Relation.ADD_REMOVE, 1.0, 1e-5, data_norm=2.0, ridge=0.5)


def test_what_the_user_fixed_is_taken():
    options = Options(n_nonzero_coefs=4, max_iter=7, batch_size=50, step_size=0.3, clip_norm=0.9)
    ight, sgd = Ight.configure(PROBLEM, options), SgdHt.configure(PROBLEM, options)
    assert (ight.sparsity, ight.steps, ight.step, ight.clip) == (4, 7, 0.3, 0.9)
    assert (sgd.sparsity, sgd.steps, sgd.step, sgd.clip) == (4, 7, 0.3, 0.9)
    assert sgd.sampling == Poisson(50 / 20_000)


def test_what_the_user_left_open_follows_from_public_facts():
    ight, sgd = Ight.configure(PROBLEM, Options()), SgdHt.configure(PROBLEM, Options())
    assert (ight.steps, ight.clip, ight.sparsity) == (50, 2.0, None)
    assert ight.step is sgd.step is None  # they follow the planned noise
    assert ight.momentum.kind == "nesterov"
    assert Options().step(PROBLEM) == pytest.approx(1 / (0.25 * 4.0 + 0.5))
    assert (sgd.sampling, sgd.steps, sgd.paced) == (Poisson(6666 / 20_000), PACED_EPOCHS * PACED_SHARE, True)
    assert not sgd.plan(PROBLEM).releases["gradient"].lazy
    small = SgdHt.configure(PROBLEM, Options(batch_size=100))
    assert (small.sampling, small.steps, small.paced) == (Poisson(100 / 20_000), EPOCHS * 200, False)


def test_a_loss_without_a_curvature_bound_steps_as_if_it_were_one():
    problem = replace(PROBLEM, loss=LOSSES["poisson"], ridge=0.0)
    assert Options().step(problem) == pytest.approx(1 / 4.0)


def test_batches_are_at_least_64_and_at_most_everything():
    assert Options().batch(replace(PROBLEM, population=1000)) == 64
    assert Options().batch(replace(PROBLEM, population=30)) == 30
    assert Options(batch_size=99).batch(replace(PROBLEM, population=30)) == 30
    assert Options().minibatches(replace(PROBLEM, population=30)) == Full()
    assert Options().minibatches(replace(PROBLEM, population=65)) == Poisson(64 / 65)
    fixed = Options(sampling="fixed").minibatches(replace(PROBLEM, population=65))
    assert fixed == FixedSize(64)


def test_plans_ask_as_often_as_there_are_steps():
    plan = Ight(3, 7, 0.1, 0.6).plan(PROBLEM)
    release = plan.releases["gradient"]
    assert (release.times, release.sampling, release.query.clip, release.lazy) == (7, Full(), 0.6, False)
    release = SgdHt(3, 9, 0.1, 0.6, Poisson(0.1)).plan(PROBLEM).releases["gradient"]
    assert (release.times, release.sampling, release.lazy) == (9, Poisson(0.1), True)


@pytest.mark.parametrize(
    ("sparsity", "changes", "lazy"),
    [(3, {}, True), (None, {}, False), (3, {"secure_noise": True}, False), (3, {"outputs": 3}, False)],
)
def test_a_step_is_lazy_where_that_is_exact(sparsity, changes, lazy):
    plan = SgdHt(sparsity, 9, 0.1, 0.6, Poisson(0.1)).plan(replace(PROBLEM, **changes))
    assert plan.releases["gradient"].lazy is lazy


def test_options_of_one_solver_have_defaults_and_bounds():
    able = Capabilities("a", (), {"depth": Option(1, 1), "width": Option(2.0, "(0, 3]"), "free": Option()})
    assert Options(extra={"depth": 3.0}).read(able) == {"depth": 3, "width": 2.0, "free": None}
    assert Options(extra={"depth": 1}).read(able, depth=5, free=7) == {"depth": 1, "width": 2.0, "free": 7}
    for extra in ({"depth": 0}, {"depth": None}, {"width": 3.5}, {"width": "2"}):
        with pytest.raises(InvalidInputError, match=next(iter(extra))):
            Options(extra=extra).read(able)
