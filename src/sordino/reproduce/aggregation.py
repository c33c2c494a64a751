"""Wang's dissertation, chapter 6: what a secure sum with noise inside the circuit costs."""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from multiprocessing.connection import Connection

import numpy as np

from sordino.errors import require_extra
from sordino.execute.parties import Mode, NoiseShare
from sordino.execute.parties.lattice import Lattice
from sordino.kernel import NoiseSource
from sordino.papers.local import per_coordinate_laplace
from sordino.parties.mpc.links import Limits, Member
from sordino.parties.mpc.mpyc_engine import MpycEngine
from sordino.reproduce.tables import Outcome, Row, Runs, Table

EPSILON, DELTA = 0.5, 1e-3
PARTIES, THRESHOLD = 3, 1
LATTICE = Lattice(1.0, 2.0**28.5, 2**45)
_DIMENSIONS = {"Adult": 104, "KDDCup99": 122, "KDDCup98": 95}
# Seconds of a release between two parties, and MB on the wire.
_SECONDS = {
    "Yao, curious parties": {"Adult": 22.28, "KDDCup99": 26.45, "KDDCup98": 20.31},
    "dual execution, active parties": {"Adult": 56.46, "KDDCup99": 65.21, "KDDCup98": 50.67},
}
_MEGABYTES = {"Yao, curious parties": {"Adult": 812.0, "KDDCup99": 911.0, "KDDCup98": 710.0}}


def seconds(quick: bool) -> Table:
    """Seconds of a release."""
    metric = "seconds of a release (ours: processor time of the busiest party)"
    return _table("aggregation-time", metric, "seconds", _SECONDS)


def megabytes(quick: bool) -> Table:
    """Traffic of a release, of all parties together."""
    return _table("aggregation-traffic", "MB of a release, all parties together", "MB", _MEGABYTES)


def _table(name: str, metric: str, what: str, published: dict[str, dict[str, float]]) -> Table:
    if find_spec("mpyc") is None:
        raise require_extra("mpyc", "mpc")
    rows = [
        _row(f"{group}, d = {_DIMENSIONS[group]}", _DIMENSIONS[group], method, number, what)
        for method, numbers in published.items()
        for group, number in numbers.items()
    ]
    return Table(
        name,
        "Wang, dissertation, chapter 6: secure aggregation with noise inside the circuit",
        metric,
        "lower",
        "A vector of the same length; its values do not matter. Ours: three processes on one machine, "
        "without a network between them; printed are seconds on the wall.",
        "like",
        rows,
        "Printed: two parties, garbled circuits, Laplace noise. Ours: Gaussian noise on Shamir shares of "
        "three parties, of whom one may deviate and is found out, so that both printed rows have the same "
        "number of ours; the quicker of two releases. "
        "Adult's printed traffic is 777 MB one way and 35 MB the other.",
        repeats=1,
    )


def _row(group: str, size: int, method: str, published: float, what: str) -> Row:
    inside = Runs(f"{size}/inside", partial(_cost, size, what))
    certified = per_coordinate_laplace(size, EPSILON, DELTA)
    cells: dict[str, Runs | str] = {
        "paper": f"not run; Laplace noise per coordinate certifies {certified:.3g}",
        "sound": inside,
        "default": inside,
        "plain": "a sum in the clear: d numbers a party",
    }
    return Row(group, method, EPSILON, DELTA, published, cells)


def _cost(size: int, what: str, seed: int) -> Outcome:
    """Return the quicker release of two at the busiest member, or the bytes of all members."""
    spent, sent = release_cost(Mode.INSIDE, size, 2 if what == "seconds" else 1)
    return {"value": float(spent.max(axis=0).min()) if what == "seconds" else float(sent.sum()) / 1e6}


def release_cost(mode: Mode, size: int, releases: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the CPU seconds of each release by member, and the bytes that each member sends in one."""
    spawn = multiprocessing.get_context("spawn")
    members = tuple(Member(f"p{i}", "127.0.0.1", port) for i, port in enumerate(_free_ports(PARTIES)))
    pipes = [spawn.Pipe(duplex=False) for _ in members]
    processes = [
        spawn.Process(target=_member, args=(members, i, mode, size, releases, pipes[i][1]), daemon=True)
        for i in range(PARTIES)
    ]
    for process in processes:
        process.start()
    for _, theirs in pipes:
        theirs.close()  # so that a member that dies is noticed
    found = [ours.recv() for ours, _ in pipes]
    for process in processes:
        process.join(30)
    return np.array([spent for spent, _ in found]), np.array([sent for _, sent in found]) / releases


def _member(
    members: Sequence[Member], index: int, mode: Mode, size: int, releases: int, pipe: Connection
) -> None:
    """Be one party; send the CPU seconds of each release and the bytes of all of them."""
    share, noise = NoiseShare(mode, PARTIES, THRESHOLD), NoiseSource.from_os()
    engine = MpycEngine(tuple(members), index, THRESHOLD, None, Limits(120.0, 300.0))
    engine.connect()
    spent, sent = [], 0
    for _ in range(releases):
        engine.exchange(b"start", "Starting")
        start, before = time.process_time(), engine.bytes_sent
        values, draw = share.draw(np.full(size, 2**40), LATTICE, index, noise)
        engine.sum(values, draw)
        spent.append(time.process_time() - start)
        sent += engine.bytes_sent - before
    engine.exchange(b"done", "Ending")
    pipe.send((spent, sent))
    engine.close()


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [server.getsockname()[1] for server in held]
    for server in held:
        server.close()
    return ports
