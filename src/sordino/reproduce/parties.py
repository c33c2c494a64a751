"""Wang's dissertation, chapter 6: perturbed outputs and gradients between parties, and each alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from sordino.datasets import load
from sordino.errors import NotPrivateWarning
from sordino.execute import LocalExecutor
from sordino.execute.parties import Mode, NoiseShare, SimulatedParties
from sordino.kernel import Relation
from sordino.kernel.arrays import Floats
from sordino.papers.local import gradient_noise, per_coordinate_laplace, published_gradient_noise
from sordino.parties import baselines
from sordino.parties.mpc.output import OutputPerturbation
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem
from sordino.reproduce.tables import Outcome, Row, Runs, Table
from sordino.runs import Ask, Promise, run_privately
from sordino.solvers.sparse.ight import Ight

EPSILON, DELTA, RIDGE, CLIP = 0.5, 1e-3, 1e-3, 1.0
STEPS = 1500
SIZES = {"kddcup99": 50_000, "adult": 30_000, "donor_pva": 15_000}
PARTIES = {"kddcup99": (100, 1000), "adult": (100, 1000), "donor_pva": (100, 1000)}
# Printed for m = 1,000, in words: gap and relative loss of accuracy of MPC Grad P.
_PUBLISHED = {"kddcup99": (1e-3, 1e-4)}
ORDER = (("MPC Grad P",), ("MPC Out P",), ("Pathak et al.", "Local Out P", "Local Grad P"))


class World:
    """A data set, its regularised optimum, and how far a model is from it."""

    def __init__(self, name: str, records: int, relation: Relation = Relation.REPLACE_ONE) -> None:
        data: Any = load(name, transform="unit", shuffle=True, random_state=1)
        x, y = data.data.tocsr(), _signs(data.target)
        self.name, self.x, self.y = name, x[:records], y[:records]
        judged = getattr(data, "test_data", None)  # a set without test rows keeps those after the first ones
        self.test_x = x[records:] if judged is None else judged
        self.test_y = y[records:] if judged is None else _signs(data.test_target)
        facts = (records, self.x.shape[1], relation, EPSILON, DELTA)
        self.problem = Problem(LOSSES["logistic"], *facts, ridge=RIDGE)
        self.whole = LocalExecutor(self.x, self.y)
        query = OutputPerturbation(CLIP, RIDGE).plan(self.problem).releases["minimiser"].query
        best = query.evaluate(self.whole.records(None), None)
        self.least, self.accuracy = self.objective(best), self.right(best)

    def members(self, count: int) -> list[LocalExecutor]:
        """Return the records of ``count`` parties of about the same size."""
        return [LocalExecutor(self.x[p], self.y[p]) for p in np.array_split(np.arange(len(self.y)), count)]

    def objective(self, w: Floats) -> float:
        """Return the regularised loss."""
        loss = self.problem.loss.value(self.x @ w, self.y).mean()
        return float(loss + 0.5 * RIDGE * w @ w)

    def right(self, w: Floats) -> float:
        """Return the accuracy on test rows."""
        return float(np.mean(np.sign(self.test_x @ w) == self.test_y))

    def judge(self, w: Floats) -> tuple[float, float]:
        """Return the optimality gap and the relative loss of accuracy."""
        return self.objective(w) - self.least, 1 - self.right(w) / self.accuracy


def _signs(labels: Any) -> Floats:
    return np.where(np.asarray(labels) > 0, 1.0, -1.0)


@cache
def _world(name: str, records: int) -> World:
    return World(name, records)


def gaps(quick: bool) -> Table:
    """Optimality gaps of all methods."""
    return _table("parties", "optimality gaps", "objective above its minimum", 0, quick)


def losses(quick: bool) -> Table:
    """Losses of accuracy of all methods."""
    metric = "accuracy lost, relative to the model without privacy"
    return _table("parties-accuracy", "relative loss of accuracy", metric, 1, quick)


def _table(name: str, what: str, metric: str, which: int, quick: bool) -> Table:
    rows = [
        row
        for data, records in SIZES.items()
        for parties in (PARTIES[data][:1] if quick else PARTIES[data])
        for row in _rows(data, partial(_world, data, records), parties, which)
    ]
    formula = published_gradient_noise(EPSILON, DELTA)[1]
    return Table(
        name,
        f"Wang, dissertation, chapter 6: {what} between parties",
        metric,
        "lower",
        "Ours: KDD Cup 99 (the ten per cent sample), Adult, and for KDD Cup 98, which is not at hand, donors "
        "of a related set; 50,000, 30,000 and 15,000 records.",
        "like",
        rows,
        "Ridge .001, T = 1,500, all parties in one process; the paper prints about 1e-3 (the gap) and 1e-4 "
        "(the loss of accuracy) for MPC Grad P on KDD Cup 99 with m = 1,000, says that other m do not change "
        "it, and has curves otherwise. Its m = 50,000, a record a party, is not run. Paper "
        f"mode of MPC Grad P takes the noise of the paper's table (its formula certifies {formula:.3g}). Our "
        f"default between parties is MPC Grad P.{' Quick: m = 100 only.' if quick else ''}",
        repeats=3,
        needs=tuple(SIZES),
        order=ORDER,
    )


def _rows(name: str, world: Callable[[], World], parties: int, which: int) -> Iterator[Row]:
    runs = _runs(name, world, parties, which)
    for method, sound in runs.items():
        cells: dict[str, Runs | str] = {
            "paper": _paper(name, world, which) if method == "MPC Grad P" else _printed(method),
            "sound": sound,
            "default": runs["MPC Grad P"],
            "plain": Runs(f"{name}/plain", lambda seed: {"value": 0.0}),
        }
        printed = _PUBLISHED[name][which] if (name, method) == ("kddcup99", "MPC Grad P") else None
        yield Row(f"{name}, m = {parties:,}", method, EPSILON, DELTA, printed, cells)


@cache
def _printed(method: str) -> str:
    """Say what the printed noise certifies under replace-one; it is not run between parties."""
    if method == "MPC Out P":
        return f"Laplace noise per coordinate certifies {per_coordinate_laplace(122, EPSILON, DELTA):.3g}"
    return "a baseline; sound by itself"


def _paper(name: str, world: Callable[[], World], which: int) -> Runs:
    """Descend with the noise of the paper's table, which leaves out the logarithm of its formula."""

    def once(seed: int) -> Outcome:
        here, solver = world(), _descent()
        ask = Ask(EPSILON, DELTA)
        plans = {r.value: solver.plan(replace(here.problem, relation=r)) for r in Relation}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotPrivateWarning)
            found = {
                relation: Promise.made(ask, plan, gradient_noise(plan, ask, table=True)).certificate.epsilon
                for relation, plan in plans.items()
            }
            noise = gradient_noise(solver.plan(here.problem), ask, table=True)
            w = run_privately(solver, here.problem, here.whole, ask, paper=noise).result
        return {**_found(here, w, which), **found}

    return Runs(f"{name}/MPC Grad P/paper", once)


def _descent() -> Any:
    return _Averaged(Ight(None, STEPS, 1.0, CLIP))


def _runs(name: str, world: Callable[[], World], parties: int, which: int) -> dict[str, Runs]:
    share = NoiseShare(Mode.INSIDE, parties, 1)

    def joint(solver: Any, pooled: bool) -> Outcome:
        here = world()
        members = here.members(parties)
        executor = (
            SimulatedParties(members, share, pooled=here.whole)
            if pooled
            else SimulatedParties(members, share)
        )
        return _found(here, run_privately(solver, here.problem, executor, Ask(EPSILON, DELTA)).result, which)

    def local(method: Callable[..., Floats]) -> Outcome:
        here = world()
        return _found(here, method(here.members(parties), here.problem, clip=CLIP), which)

    def gradient(seed: int) -> Outcome:
        return joint(_descent(), True)

    made: dict[str, Callable[[int], Outcome]] = {
        "MPC Grad P": gradient,
        "MPC Out P": lambda seed: joint(OutputPerturbation(CLIP, RIDGE), False),
        "Pathak et al.": lambda seed: joint(baselines.Pathak(CLIP, RIDGE, parties=parties), False),
        "Local Out P": lambda seed: local(baselines.local_output),
        "Local Grad P": lambda seed: local(partial(baselines.local_gradient, steps=100, step=1.0)),
    }
    return {method: Runs(f"{name}/{parties}/{method}", once) for method, once in made.items()}


def _found(world: World, w: Floats, which: int) -> Outcome:
    return {"value": world.judge(w)[which]}


class _Averaged:
    """Descent whose result is the mean of its last fifth: free, and what takes out most of the noise."""

    def __init__(self, solver: Ight) -> None:
        self.solver = solver

    def plan(self, problem: Problem) -> Any:
        """Declare what the solver declares."""
        return self.solver.plan(problem)

    def run(self, curator: Any, problem: Problem) -> Any:
        """Yield the mean of the late iterates."""
        late: list[Any] = [
            w for t, w in enumerate(self.solver.run(curator, problem)) if t >= 0.8 * self.solver.steps
        ]
        yield np.mean(late, axis=0)
