"""Wang's dissertation, chapter 6: what a secure sum with noise inside the circuit costs."""

from __future__ import annotations

import math
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from typing import Any

import numpy as np

from sordino.accounting.conversions import gaussian_epsilon
from sordino.datasets import load
from sordino.errors import NotPrivateWarning
from sordino.execute import LocalExecutor
from sordino.execute.parties import Mode, NoiseShare, SimulatedParties
from sordino.execute.parties.engine import Lattice
from sordino.kernel import Gaussian, Laplace, NoiseSource, PaperNoise, Relation
from sordino.kernel.arrays import Floats
from sordino.literature.local import (
    Gradients,
    LocalObjective,
    Outputs,
    PrintedTilt,
    Tilted,
    gradient_noise,
    per_coordinate_laplace,
    printed_draws,
    published_gradient_noise,
)
from sordino.literature.reproduce import tables
from sordino.parties.mpc.links import Limits, Member
from sordino.parties.mpc.plan import OutputPerturbation
from sordino.parties.mpc.shamir import ShamirEngine
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem
from sordino.runs import Ask, Task, run
from sordino.solvers.sparse import Ight

EPSILON, DELTA, RIDGE, CLIP = 0.5, 1e-3, 1e-3, 1.0
STEPS = 1500
SIZES = {"kddcup99": 50_000, "adult": 30_000, "donor_pva": 15_000}
PARTIES = {name: (100, 1000, records) for name, records in SIZES.items()}
AMOUNT = 100.0  # donations are divided by this declared number, and cut at 1: ridge regression


class World:
    """A data set, its regularised optimum, and how far a model is from it."""

    def __init__(self, name: str, records: int, relation: Relation = Relation.REPLACE_ONE) -> None:
        self.amounts = name == "donor_pva"
        target = "amount" if self.amounts else None
        data: Any = load(name, target=target, transform="unit", shuffle=True, random_state=1)
        x, y = data.data.tocsr(), self._targets(data.target)
        self.name, self.x, self.y = name, x[:records], y[:records]
        judged = getattr(data, "test_data", None)  # a set without test rows keeps those after the first ones
        self.test_x = x[records:] if judged is None else judged
        self.test_y = y[records:] if judged is None else self._targets(data.test_target)
        facts = (records, self.x.shape[1], relation, EPSILON, DELTA)
        self.problem = Problem(LOSSES["squared" if self.amounts else "logistic"], *facts, ridge=RIDGE)
        self.whole = LocalExecutor(self.x, self.y)
        query = OutputPerturbation(CLIP, RIDGE).plan(self.problem).releases["minimiser"].query
        best = query.evaluate(self.whole.records(None), None)
        self.least, self.score = self.objective(best), self.quality(best)

    def _targets(self, given: Any) -> Floats:
        """Return signs of labels, or amounts in units of the declared bound."""
        given = np.asarray(given)
        return np.clip(given / AMOUNT, 0.0, 1.0) if self.amounts else np.where(given > 0, 1.0, -1.0)

    def members(self, count: int) -> list[LocalExecutor]:
        """Return the records of ``count`` parties of about the same size."""
        return [LocalExecutor(self.x[p], self.y[p]) for p in np.array_split(np.arange(len(self.y)), count)]

    def objective(self, w: Floats) -> float:
        loss = self.problem.loss.value(self.x @ w, self.y).mean()
        return float(loss + 0.5 * RIDGE * w @ w)

    def quality(self, w: Floats) -> float:
        """Return the accuracy on test rows, or the mean squared error of amounts."""
        found = self.test_x @ w
        if self.amounts:
            return float(np.mean((found - self.test_y) ** 2))
        return float(np.mean(np.sign(found) == self.test_y))

    def judge(self, w: Floats) -> tuple[float, float]:
        """Return the optimality gap and the relative loss of accuracy, or growth of the squared error."""
        ratio = self.quality(w) / self.score
        return self.objective(w) - self.least, ratio - 1 if self.amounts else 1 - ratio


_world = cache(World)


def _table(name: str, quick: bool) -> tables.Table:
    """Return a panel for each set and number of parties."""
    page, which, panels = tables.page_of(name), int("accuracy" in name), 1 if quick else 3
    rows = [
        row
        for data in page["needs"]
        for parties in PARTIES[data][:panels]
        for row in _rows(data, partial(_world, data, SIZES[data]), parties, which, page["numbers"])
    ]
    formula = published_gradient_noise(EPSILON, DELTA)[1]
    nothing = {f"{data}, m = {m:,}": least for data, least in page["nothing"].items() for m in PARTIES[data]}
    return tables.printed_table(name, rows, quick, {"formula": f"{formula:.3g}"}, trivial=nothing)


def _rows(
    name: str, world: Callable[[], World], parties: int, which: int, numbers: Mapping[str, float]
) -> Iterator[tables.Row]:
    runs, spread = _runs(name, world, parties, which), math.sqrt(parties)
    plain = tables.Runs(f"{name}/plain", lambda seed: {"value": 0.0}, {"by": "definition"})
    key = f"{name}/{parties}"
    printed: dict[str, tables.Runs | str] = {
        f"{m}, pure": tables.Runs(
            f"{key}/{m}, pure/paper",
            partial(_add_laplace, world, which, parties, f),
            {**_settings_of(which), "noise": "Laplace per coordinate"},
        )
        for m, f in _factors(parties).items()
    }
    printed["Rajkumar, Agarwal"] = f"its epsilon is of one iteration: 100 add up to {100 * EPSILON:g}"
    printed["MPC Grad P"] = _paper(world, which, _DESCENT, f"{name}/MPC Grad P")
    locally = Gradients(CLIP, 100, 1.0, spread)
    printed["Local Grad P"] = _paper(world, which, locally, f"{key}/Local Grad P")
    for method, sound in runs.items():
        paper = printed.get(method, "Gaussian noise is ours")
        cells = tables.by_mode(paper, sound, runs["MPC Grad P"], plain)
        number = numbers.get(name) if method == "MPC Grad P" else None
        delta = 0.0 if method.endswith(", pure") else DELTA
        yield tables.Row(f"{name}, m = {parties:,}", method, EPSILON, delta, number, cells)
    tilted: list[tables.Runs | str] = [
        "not run: the squared loss has no bounded slope"
        if name == "donor_pva"
        else tables.Runs(
            f"{key}/Local Obj P/{mode}",
            partial(_average_objectives, world, parties, which, mode),
            {**_settings_of(which), "mode": mode},
        )
        for mode in ("paper", "sound")
    ]
    cells = tables.by_mode(tilted[0], tilted[1], runs["MPC Grad P"], plain)
    yield tables.Row(f"{name}, m = {parties:,}", "Local Obj P", EPSILON, DELTA, None, cells)


def _factors(parties: int) -> dict[str, float]:
    """Return how much more noise than MPC Out P each release of minimisers has."""
    return {"MPC Out P": 1.0, "Pathak et al.": float(parties), "Local Out P": math.sqrt(parties)}


def _average_objectives(
    world: Callable[[], World], parties: int, which: int, mode: str, seed: int
) -> tables.Outcome:
    """Average what parties release by objective perturbation; as printed, no epsilon is certified."""
    here, total = world(), np.zeros(world().problem.shape)
    for member in here.members(parties):
        own = replace(here.problem, population=member.population)
        solver = Tilted(CLIP) if mode == "sound" else LocalObjective.as_printed(own)
        noise = None
        if isinstance(solver, LocalObjective):
            noise = PaperNoise({"minimiser": solver.noise}, "Local Obj P", printed=(PrintedTilt.printed,))
        with warnings.catch_warnings(action="ignore", category=NotPrivateWarning):
            task = Task(solver, own, "Local Obj P", paper=noise)
            total += run(task, member, Ask(EPSILON, DELTA)).result
    return {"value": here.judge(total / parties)[which]}


def _paper(world: Callable[[], World], which: int, solver: Any, key: str) -> tables.Runs:
    """Descend with the noise of the paper's table, which leaves out ``4 ln(1/delta)`` of its formula."""

    def once(seed: int) -> tables.Outcome:
        here, ask, noise_of = world(), Ask(EPSILON, DELTA), partial(gradient_noise, table=True)
        found = tables.certify_printed(
            ask, lambda r: solver.plan(replace(here.problem, relation=r)), noise_of
        )
        noise = noise_of(solver.plan(here.problem), ask)
        with warnings.catch_warnings(action="ignore", category=NotPrivateWarning):
            w = run(Task(solver, here.problem, "as printed", paper=noise), here.whole, ask).result
        return {"value": here.judge(w)[which], **found}

    return tables.Runs(f"{key}/paper", once, _settings_of(which, solver))


def _add_laplace(
    world: Callable[[], World], which: int, parties: int, factor: float, seed: int
) -> tables.Outcome:
    """Add the Laplace noise of the paper's table, coordinate by coordinate, to the mean of all minimisers."""
    here = world()
    query = Outputs(CLIP, RIDGE, parties).plan(here.problem).releases["minimiser"].query
    mean = query.evaluate(here.whole.records(None), None)
    scale = factor * 2 * CLIP / (here.problem.population * RIDGE * EPSILON)
    value = here.judge(mean + printed_draws(Laplace, scale, mean.size).reshape(mean.shape))[which]
    return {"value": value, "replace-one": per_coordinate_laplace(mean.size, EPSILON, 0.0)}


def _runs(name: str, world: Callable[[], World], parties: int, which: int) -> dict[str, tables.Runs]:
    def once(solver: Any, joint: bool, delta: float, seed: int) -> tables.Outcome:
        here = world()
        # Three of the parties compute; the others send them shares of their integers.
        share = NoiseShare(Mode.INSIDE, 3, 1)
        place = SimulatedParties(here.members(3), share, here.whole) if joint else here.whole
        found = run(Task(solver, here.problem, name), place, Ask(EPSILON, delta)).result
        return {"value": here.judge(found)[which]}

    spread = math.sqrt(parties)
    outputs = partial(Outputs, CLIP, RIDGE, parties)
    factors = _factors(parties)
    alone = parties == SIZES.get(name)  # a record a party adds up in integers; larger ones are split apart
    made: dict[str, tuple[Any, bool, float]] = {
        "MPC Grad P": (_DESCENT, True, DELTA),
        **{f"{m}, pure": (outputs(factor=f, pure=True), False, PURE) for m, f in factors.items()},
        **{m: (outputs(factor=f), alone and m != "Local Out P", DELTA) for m, f in factors.items()},
        "Local Grad P": (Gradients(CLIP, 100, 1.0, spread), False, DELTA),
        "Rajkumar, Agarwal": (Gradients(CLIP, 100, 1.0, pure=True), False, DELTA),
    }
    return {
        m: tables.Runs(f"{name}/{parties}/{m}", partial(once, *how), _settings_of(which, how[0]))
        for m, how in made.items()
    }


def _settings_of(which: int, solver: Any = None) -> dict[str, Any]:
    steps = solver.steps if isinstance(solver, Gradients) else STEPS
    return {"steps": steps, "ridge": RIDGE, "clip": CLIP, "judged": ("gap", "accuracy")[which]}


PURE = 1e-12  # calibration wants a delta; a pure event needs none of it


@dataclass(frozen=True)
class _Averaged:
    """Descent whose result is the mean of its last fifth: free, and what takes out most of the noise."""

    solver: Ight

    def plan(self, problem: Problem) -> Any:
        return self.solver.plan(problem)

    def run(self, curator: Any, problem: Problem) -> Any:
        late: list[Any] = [
            w for t, w in enumerate(self.solver.run(curator, problem)) if t >= 0.8 * self.solver.steps
        ]
        yield np.mean(late, axis=0)


_DESCENT = _Averaged(Ight(None, STEPS, 1.0, CLIP))

# Table 6.1: how much noise a method adds, as printed and as its guarantee needs

_PARTIES, _RECORDS, _RIDGE, _STEPS, _FEATURES = 100, 500, 0.01, 100, 122


def scales(quick: bool) -> tables.Table:
    """The noise of each method: a function of public numbers, so no run needs data."""
    m, n, steps = _PARTIES, _RECORDS, _STEPS
    output, gradient = 2 * CLIP / (n * _RIDGE * EPSILON), math.sqrt(2 * steps) * CLIP / (n * EPSILON)
    outputs = partial(Outputs, CLIP, _RIDGE, m, pure=True)
    made: dict[str, tuple[type[Any], float, Any]] = {
        "Pathak et al.": (Laplace, output, outputs(factor=float(m))),
        "Local Out P": (Laplace, output / math.sqrt(m), outputs(factor=math.sqrt(m))),
        "Local Obj P": (Laplace, 2 * CLIP / (n * EPSILON), Tilted(CLIP)),
        "Local Grad P": (Gaussian, gradient / math.sqrt(m), Gradients(CLIP, steps, 1.0, math.sqrt(m))),
        "MPC Out P": (Laplace, output / m, outputs()),
        "MPC Grad P": (Gaussian, gradient / m, _Averaged(Ight(None, steps, 1.0, CLIP))),
    }
    rows = []
    for method, number in tables.page_of("parties-noise")["numbers"].items():
        law, scale, solver = made[method]
        known = not isinstance(solver, Tilted)  # what the printed tilt is worth is not printed
        delta = 0.0 if isinstance(solver, Outputs) else DELTA
        paper = tables.run_of(f"{method}/paper", partial(_generated, law, scale, known, delta))
        ours = tables.run_of(method, partial(_scale, solver))
        cells = tables.by_mode(paper, ours, ours, "none")
        group = f"m = {m}, {n} records a party: {method}"
        rows.append(tables.Row(group, method, EPSILON, delta, number, cells))
    return tables.printed_table("parties-noise", rows)


def _generated(law: type[Any], scale: float, known: bool, delta: float, seed: int) -> tables.Outcome:
    """Return the deviation of a thousand draws of printed noise, as the table does, and what it certifies."""
    found, mu = {}, published_gradient_noise(EPSILON, DELTA, table=True)[0]
    for relation, part in (("add-remove", 2), ("replace-one", 1)) if known else ():
        laplace = per_coordinate_laplace(_FEATURES, EPSILON / part, delta)
        found[relation] = laplace if law is Laplace else gaussian_epsilon(mu / part, DELTA)
    return {"value": float(np.std(printed_draws(law, scale, 1000))), **found}


def _scale(solver: Any, seed: int) -> tables.Outcome:
    alone = isinstance(solver, Tilted)  # the tilt of the mean objective of one party
    n = _RECORDS if alone else _PARTIES * _RECORDS
    problem = Problem(LOSSES["logistic"], n, _FEATURES, Relation.REPLACE_ONE, EPSILON, DELTA, ridge=_RIDGE)
    pure = isinstance(solver, Outputs)
    ((_, release),) = Ask(EPSILON, PURE if pure else DELTA).calibrated(solver.plan(problem)).releases.items()
    distance = release.sensitivity(problem.relation, np.zeros(problem.shape))
    std = float(release.mechanism.multiplier or 0.0) * float(distance)
    std *= math.sqrt(_FEATURES + 1) if pure else 1.0  # of a coordinate of noise of density exp(-norm / scale)
    std *= math.sqrt(NoiseShare(Mode.INSIDE, 3, 1).copies) if isinstance(solver, _Averaged) else 1.0
    return {"value": std / (n if release.mean or alone else 1.0)}


MEMBERS, THRESHOLD = 3, 1
LATTICE = Lattice(1.0, 2.0**28.5, 2**45)
_DIMENSIONS = {"Adult": 104, "KDDCup99": 122, "KDDCup98": 95}


def aggregation(name: str, quick: bool) -> tables.Table:
    """Return what a release costs: its seconds, or the traffic of all parties together."""
    page, rows = tables.page_of(name), []
    for (method, numbers), (group, size) in product(page["numbers"].items(), _DIMENSIONS.items()):
        inside = tables.run_of(f"{size}/inside", partial(_cost, size, page["what"]))
        certified = per_coordinate_laplace(size, EPSILON, DELTA)
        paper = f"not run; Laplace noise per coordinate certifies {certified:.3g}"
        clear = "a sum in the clear: d numbers a party"
        cells = tables.by_mode(paper, "garbled circuits are not run", inside, clear)
        rows.append(tables.Row(f"{group}, d = {size}", method, EPSILON, DELTA, numbers[group], cells))
    return tables.printed_table(name, rows)


def _cost(size: int, what: str, seed: int) -> tables.Outcome:
    """Return the quicker release of two at the busiest member, or the bytes of all members."""
    spent, sent = release_cost(size, 2 if what == "seconds" else 1)
    return {"value": float(spent.max(axis=0).min()) if what == "seconds" else float(sent.sum()) / 1e6}


def release_cost(size: int, releases: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the seconds on the wall of each release by member, and the bytes that each member sends."""
    with ExitStack() as held:  # ports that nobody listens on
        servers = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(MEMBERS)]
        members = tuple(Member(f"p{i}", *server.getsockname()) for i, server in enumerate(servers))
    with ThreadPoolExecutor(MEMBERS) as pool:
        spent, sent = zip(*pool.map(partial(_member, members, size, releases), range(MEMBERS)))
    return np.array(spent), np.array(sent) / releases


def _member(members: tuple[Member, ...], size: int, releases: int, index: int) -> tuple[list[float], int]:
    """Be one party; return the seconds of each release and the bytes of all of them."""
    share, noise = NoiseShare(Mode.INSIDE, MEMBERS, THRESHOLD), NoiseSource.from_os()
    reaches = share.reaches(LATTICE, (1000,) * MEMBERS, size)
    engine = ShamirEngine(members, index, THRESHOLD, None, Limits(120.0, 300.0))
    engine.connect()
    spent, sent = [], 0
    for _ in range(releases):
        engine.exchange(b"start", "Starting")
        start, before = time.perf_counter(), engine.bytes_sent
        values, draw = share.draw(np.full(size, 2**40), LATTICE, index, noise)
        engine.sum(values, replace(draw, reaches=reaches))
        spent.append(time.perf_counter() - start)
        sent += engine.bytes_sent - before
    engine.exchange(b"done", "Ending")
    engine.close()
    return spent, sent


TABLES: dict[str, Callable[[bool], tables.Table]] = {
    **{name: partial(_table, name) for name in ("parties", "parties-accuracy")},
    **{name: partial(aggregation, name) for name in ("aggregation-time", "aggregation-traffic")},
    "parties-noise": scales,
}
