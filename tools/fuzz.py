"""Feed hostile bytes to every reader, public call and command; print what is no answer and no typed refusal.

    python tools/fuzz.py [--cases 1000000] [--seconds S] [--jobs 2] [--seed N] [--only NAME ...] [--keep DIR]

Cases are shared out by weight: readers of bytes take a millisecond, fits and commands tens of them. The seed
is the day's number unless one is given. ``--seconds`` shares out a time in the same way and ends what has not
ended by then. ``--keep`` writes the bytes of each finding, ``--show FILE --only
NAME`` runs them again.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.fuzz.run import Findings, judge, run  # noqa: E402
from tests.fuzz.targets import TARGETS  # noqa: E402

SLOW = {
    "estimators": 0.02,
    "tables": 0.02,
    "scores": 0.05,
    "searches": 0.01,
    "groups": 0.1,
    "statistics": 0.1,
    "commands": 0.2,
    "csv": 0.5,
    "ledger": 0.2,
}
"""Cases of a target in the place of one of another."""
PIECE = 20_000


def shares(names: list[str], cases: int) -> list[tuple[str, int]]:
    """Return how many cases each target gets, in pieces that a process takes at a time."""
    weights = {name: SLOW.get(name, 1.0) for name in names}
    counts = {name: round(cases * w / sum(weights.values())) for name, w in weights.items()}
    return [(n, min(PIECE, c - s)) for n, c in counts.items() for s in range(0, c, PIECE)]


def feed(name: str, cases: int, seed: int, seconds: float) -> tuple[str, Findings]:
    """Run one piece in a process of its own."""
    warnings.simplefilter("ignore")
    return name, run(next(t for t in TARGETS if t.name == name), cases, seed, seconds)


def main() -> int:
    """Fuzz, print a line for each target and each finding; the status is 1 where something was found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=datetime.date.today().toordinal())
    parser.add_argument("--only", nargs="*", default=[t.name for t in TARGETS])
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--show", type=Path)
    options = parser.parse_args()
    if options.show:
        print(judge(next(t for t in TARGETS if t.name in options.only), options.show.read_bytes()))
        return 0
    pieces, done = shares(options.only, options.cases), {name: Findings() for name in options.only}
    each = options.seconds * options.jobs / len(pieces)
    with ProcessPoolExecutor(options.jobs) as pool:
        jobs = [pool.submit(feed, *piece, options.seed + i, each) for i, piece in enumerate(pieces)]
        for name, found in (job.result() for job in jobs):
            whole = done[name]
            whole.cases, whole.refused = whole.cases + found.cases, whole.refused + found.refused
            whole.seconds += found.seconds
            whole.kinds = {**found.kinds, **whole.kinds}
    for name, found in done.items():
        print(f"{name:14} {found.cases:8} cases, {found.refused:8} refused, {found.seconds:7.0f} s")
        for number, (kind, (words, data)) in enumerate(found.kinds.items()):
            print(f"  {kind}: {words[:200]!r}")
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / f"{name}-{number}".replace(" ", "-")).write_bytes(data)
    print(f"{sum(f.cases for f in done.values())} cases, seed {options.seed}")
    return int(any(found.kinds for found in done.values()))


if __name__ == "__main__":
    sys.exit(main())
