"""Learning between parties: what a release costs on the wire, and what it is worth on data.

`python -m benchmarks.parties wire [large]` runs three processes over TLS, `... many` 3 to 15 of them; with
`save` it keeps benchmarks/results/wire.json, of which `docs/figures/kept.py` makes a table. Noise
needs no record and is drawn before (offline); the release is timed apart (online). `... utility [runs
[steps]]` compares MPC Grad P and MPC Out P with the central solver and local ones at a true epsilon of .5.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.machine import about, describe
from sordino.accounting import calibrate
from sordino.execute import LocalExecutor
from sordino.execute.parties import Mode, NoiseShare, SimulatedParties
from sordino.execute.parties.engine import Lattice
from sordino.kernel import Curator, NoiseSource, Relation
from sordino.literature.local import Gradients, LocalObjective, Outputs, PrintedTilt
from sordino.literature.reproduce.parties import World
from sordino.parties.mpc.config import PartyConfig
from sordino.parties.mpc.links import Limits, Member, fingerprint_of
from sordino.parties.mpc.plan import OutputPerturbation
from sordino.parties.mpc.shamir import ShamirEngine
from sordino.solvers.sparse import Ight

EXAMPLE = Path(__file__).parents[1] / "examples" / "three_hospitals" / "prepare.py"
NAMES = ("north", "south", "west")
BARS = {
    (104, Mode.INSIDE): "online .3 s",
    (10_000, Mode.INSIDE): "offline 30 s, online 2 s",
    (10_000, Mode.AGGREGATION): "2 s",
}


def member(folder, ports, index, mode, size, releases, results):
    """Be one of several; put wall and processor times and bytes of both phases of each release in a queue."""
    count = len(ports)
    names = [f"member-{i}" for i in range(count)] if folder is None else NAMES
    prints = (
        [""] * count if folder is None else [fingerprint_of(folder / n / "certificate.pem") for n in names]
    )
    members = tuple(Member(n, "127.0.0.1", p, f) for n, p, f in zip(names, ports, prints))
    threshold = (count - 1) // 2
    own = None if folder is None else PartyConfig.load(folder / names[index] / "party.toml")
    credentials = None if own is None else own.credentials
    engine = ShamirEngine(members, index, threshold, credentials, Limits(60.0, 600.0))
    engine.connect()
    share, lattice = NoiseShare(mode, count, threshold), Lattice(1.0, 2.0**30.5, 2**45)
    noise, figures = NoiseSource.from_os(), []
    reaches = share.reaches(lattice, (1000,) * count, size)
    for _ in range(releases):
        values, draw = share.draw(np.full(size, 2**30), lattice, index, noise)
        offline = timed(engine, engine.prepare, draw) if mode is Mode.INSIDE else (0.0, 0.0, 0, 0)
        figures.append((offline, timed(engine, engine.sum, values, replace(draw, reaches=reaches))))
    engine.exchange(b"done", "Ending")
    results.put(figures)
    engine.close()


def timed(engine, work, *given) -> tuple[float, float, int, int]:
    """Return wall and processor seconds, bytes and rounds of a piece of work that all begin together."""
    engine.exchange(b"start", "Starting")
    before = time.perf_counter(), time.process_time(), engine.bytes_sent, engine.turn
    work(*given)
    after = time.perf_counter(), time.process_time(), engine.bytes_sent, engine.turn
    return tuple(b - a for a, b in zip(before, after))


def wire(large: bool = False) -> None:
    """Print the cost of a release between three members over TLS, in both phases."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "hospitals"
        command = [sys.executable, str(EXAMPLE), str(folder), "--records", "10"]
        subprocess.run(command, check=True, capture_output=True)
        cases = [(Mode.INSIDE, 104, 5), (Mode.AGGREGATION, 104, 5), (Mode.AGGREGATION, 10_000, 5)]
        if large:
            cases += [(Mode.INSIDE, 1000, 2), (Mode.INSIDE, 10_000, 1)]
        report([(folder, 3, *case) for case in cases])


def many() -> None:
    """Print the cost of a release between 3 to 15 members, a minority of whom may collude."""
    report([(None, count, Mode.INSIDE, 104, 4) for count in (3, 5, 7, 9, 15)])


def report(cases) -> None:
    """Print a line for each case: the slowest member's wall times, mean processor times, rounds, bytes."""
    said = about("python -m benchmarks.parties " + " ".join(word for word in sys.argv[1:] if word != "save"))
    fork = multiprocessing.get_context("fork")
    print(
        "members  mode               d      wall s off, online   CPU s a member off, online  rounds   MB  bar"
    )
    for folder, count, mode, size, releases in cases:
        results, ports = fork.Queue(), free_ports(count)
        arguments = [(folder, ports, i, mode, size, releases, results) for i in range(count)]
        processes = [fork.Process(target=member, args=a) for a in arguments]
        for process in processes:
            process.start()
        figures = np.array([results.get(timeout=900) for _ in processes])  # member, release, phase, figure
        for process in processes:
            process.join()
        wall, cpu = figures[..., 0].max(axis=0).min(axis=0), figures[..., 1].mean(axis=0).min(axis=0)
        size_mb = figures[..., 2].sum(axis=(0, 2)).mean() / 1e6
        times = "".join(f"{x:10.3f}" for x in (*wall, *cpu))
        rounds = "{:4.0f} {:2.0f}".format(*figures[0, 0, :, 3])
        row = {"members": count, "mode": mode.value, "numbers": size, "tls": folder is not None}
        row |= {
            "wall": wall.tolist(),
            "cpu": cpu.tolist(),
            "rounds": figures[0, 0, :, 3].tolist(),
            "mb": size_mb,
        }
        if "save" in sys.argv:
            keep({**row, "releases": releases, "load": os.getloadavg()[0], **said})
        cost = f"{times}   {rounds}   {size_mb:10.2f}   {BARS.get((size, mode), '')}"
        print(f"{count:7d}  {mode.value:18} {size:6d}{cost}", flush=True)


def keep(row) -> None:
    """Put a row of the wire in the place of the same one in the kept file."""
    path = Path(__file__).parent / "results" / "wire.json"
    known = json.loads(path.read_text("utf-8")) if path.exists() else []
    same = ("members", "mode", "numbers", "tls")
    known = [old for old in known if any(old[key] != row[key] for key in same)]
    path.write_text(json.dumps([*known, row], indent=1) + "\n", encoding="utf-8")


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


def descend(world: World, executor, noise, steps=1500) -> np.ndarray:
    """Return gap and loss of accuracy of full-batch descent, averaged over its last fifth."""
    solver = Ight(None, steps, 1.0, 1.0)
    plan = calibrate(solver.plan(world.problem), 0.5, 1e-3)
    late = enumerate(solver.run(Curator(executor, plan, noise), world.problem))
    return np.mean([world.judge(w) for t, w in late if t >= 0.8 * steps and t % 20 == 0], axis=0)


def output(world: World, solver, executor, noise) -> np.ndarray:
    """Return gap and loss of accuracy of one release."""
    plan = calibrate(solver.plan(world.problem), 0.5, 1e-3)
    *_, w = solver.run(Curator(executor, plan, noise), world.problem)
    return np.array(world.judge(w))


def utility(runs: int = 8, steps: int = 1500) -> None:
    """Print gaps and losses of accuracy of all methods."""
    for name, records in (("adult", 30_000), ("kddcup99", 50_000)):
        world = World(name, records, Relation.ADD_REMOVE)
        size = f"{records} x {world.x.shape[1]}"
        print(f"\n{name}: {size}, objective {world.least:.4f}, accuracy {world.score:.4f}")
        sources = [NoiseSource.from_os() for _ in range(runs)]
        share = NoiseShare(Mode.INSIDE, 3, 1)
        central = np.array([descend(world, LocalExecutor(world.x, world.y), s, steps) for s in sources])
        show("central gradient", central)
        members = world.members(1000)
        joint = SimulatedParties(members, share, pooled=world.whole)
        grad = np.array([descend(world, joint, s, steps) for s in sources])
        show("MPC Grad P, any m", grad)
        ratio = grad[:, 0].mean() / central[:, 0].mean()
        spread = math.hypot(
            *(v[:, 0].std(ddof=1) / v[:, 0].mean() / math.sqrt(runs) for v in (grad, central))
        )
        print(f"  gap of Grad P over central: {ratio:.3f} +- {spread:.3f} (bar: 1.10)")
        for count in (100, 1000):
            compare(world, world.members(count), share, sources[0])


def compare(world: World, members, share, noise) -> None:
    """Print the methods that depend on how records are spread."""
    count, problem = len(members), world.problem
    joint = SimulatedParties(members, share)
    show(f"MPC Out P, m={count}", [output(world, OutputPerturbation(1.0, 1e-3), joint, noise)])
    factors = {"Pathak": float(count), "Local Out P": math.sqrt(count)}
    for name, factor in factors.items():
        found = output(world, Outputs(1.0, 1e-3, count, factor), world.whole, noise)
        show(f"{name}, m={count}", [found])
    show(f"Local Obj P, m={count}", [world.judge(local_objective(members, problem, noise))])
    descent = output(world, Gradients(1.0, 200, 1.0, math.sqrt(count)), world.whole, noise)
    show(f"Local Grad P, m={count} (T=200)", [descent])


def local_objective(members, problem, noise) -> np.ndarray:
    """Return the average of what all parties release on their own: printed, and not private."""
    total = np.zeros(problem.shape)
    for member in members:
        own = replace(problem, population=member.population)
        solver = LocalObjective.as_printed(own)
        curator = Curator(member, solver.plan(own), noise, printed=(PrintedTilt.printed,))
        total += next(solver.run(curator, own))
    return total / len(members)


def show(name: str, figures) -> None:
    """Print one line."""
    gap, loss = np.mean(figures, axis=0)
    print(
        f"  {name:32} gap {gap:9.5f}   relative loss of accuracy {loss:9.5f}   ({len(figures)} runs)",
        flush=True,
    )


def main() -> None:
    """Run what was asked for, by default the wire alone: the data sets are large."""
    describe()
    asked = sys.argv[1:] or ["wire"]
    if "wire" in asked:
        wire("large" in asked)
    if "many" in asked:
        many()
    if "utility" in asked:
        utility(*(int(word) for word in asked if word.isdigit()))


if __name__ == "__main__":
    main()
