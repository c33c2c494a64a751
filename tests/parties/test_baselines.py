"""What parties can do on their own, each with a guarantee for its records."""

import numpy as np
import pytest

from sordino.execute import LocalExecutor
from sordino.kernel import Relation
from sordino.literature import local as baselines
from sordino.parties.mpc.tasks import OutputPerturbation
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem
from sordino.testing import seeded_noise_not_private


@pytest.fixture
def world():
    public = np.random.default_rng(2)
    x = public.standard_normal((3000, 5)) / 3
    y = np.where(x @ np.array([2.0, -1.0, 0.5, 0.0, 0.0]) > 0, 1.0, -1.0)
    problem = Problem(LOSSES["logistic"], 3000, 5, Relation.ADD_REMOVE, 3.0, 1e-5, ridge=0.05)
    parts = np.array_split(np.arange(3000), 6)
    return x, y, problem, [LocalExecutor(x[p], y[p]) for p in parts]


def test_every_baseline_learns_when_epsilon_is_generous(world):
    x, y, problem, members = world
    with seeded_noise_not_private(5):
        models = {
            "output": baselines.local_output(members, problem, 1.0),
            "gradient": baselines.local_gradient(members, problem, 1.0, 20, 2.0),
        }
    for name, w in models.items():
        assert np.mean(np.sign(x @ w) == y) > 0.85, name


def test_pathak_adds_m_times_the_noise_that_is_needed(world):
    _, _, problem, _ = world
    ours = OutputPerturbation(1.0, 0.05).plan(problem).releases["minimiser"]
    theirs = baselines.Pathak(1.0, 0.05, parties=6).plan(problem).releases["minimiser"]
    ratio = theirs.sensitivity(Relation.ADD_REMOVE) / ours.sensitivity(Relation.ADD_REMOVE)
    assert ratio == pytest.approx(6)
