"""What parties can do on their own, each with a guarantee for its records."""

import numpy as np
import pytest

from sordino.execute import LocalExecutor
from sordino.kernel import Relation
from sordino.literature.local import Gradients, Outputs
from sordino.parties.mpc.plan import OutputPerturbation
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem
from sordino.runs import Ask, Task, run
from sordino.testing import seeded_noise_not_private


@pytest.fixture
def world():
    public = np.random.default_rng(2)
    x = public.standard_normal((3000, 5)) / 3
    y = np.where(x @ np.array([2.0, -1.0, 0.5, 0.0, 0.0]) > 0, 1.0, -1.0)
    problem = Problem(LOSSES["logistic"], 3000, 5, Relation.ADD_REMOVE, 3.0, 1e-5, ridge=0.05)
    return x, y, problem


def test_every_baseline_learns_when_epsilon_is_generous(world):
    x, y, problem = world
    solvers = {"output": Outputs(1.0, 0.05, 6, 6**0.5), "gradient": Gradients(1.0, 20, 2.0, 6**0.5)}
    for name, solver in solvers.items():
        with seeded_noise_not_private(5):
            w = run(Task(solver, problem, name), LocalExecutor(x, y), Ask(3.0, 1e-5)).result
        assert np.mean(np.sign(x @ w) == y) > 0.85, name


def test_pathak_adds_m_times_the_noise_that_is_needed(world):
    _, _, problem = world
    ours = OutputPerturbation(1.0, 0.05).plan(problem).releases["minimiser"]
    theirs = Outputs(1.0, 0.05, 6, factor=6.0).plan(problem).releases["minimiser"]
    ratio = theirs.sensitivity(Relation.ADD_REMOVE) / ours.sensitivity(Relation.ADD_REMOVE)
    assert ratio == pytest.approx(6)
