"""`python -m sordino.literature.reproduce NAME ... [--quick] [--jobs N] [--minutes M] [--to FOLDER]`.

For a bare machine with many cores: neither click nor matplotlib is needed. `sordino reproduce NAME --to
FOLDER` then makes the pages from what is stored, without running anything again.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from sordino.literature.reproduce import TABLES, measure


def main() -> int:
    """Measure the named tables in one pool; a run that fails does not stop the others."""
    parser = argparse.ArgumentParser(prog="python -m sordino.literature.reproduce", description=__doc__)
    parser.add_argument("names", nargs="+", choices=sorted(TABLES))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--minutes", type=float, help="start no run after so many")
    parser.add_argument("--to", type=Path, default=Path("reproduced"))
    asked = parser.parse_args()

    def say(name: str, key: str, done: int, of: int) -> None:
        print(f"{name} {done + 1}/{of}: {key}", flush=True)

    options = {"quick": asked.quick, "jobs": asked.jobs, "minutes": asked.minutes}
    failed = measure(asked.names, asked.to, **options, keep_going=True, progress=say)
    if failed:
        print(f"Not complete: {', '.join(failed)}.", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
