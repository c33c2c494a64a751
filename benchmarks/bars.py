"""The bars of a statistician, one by one: what was asked, what is reached, and, where it is not, why.

Command: python -m benchmarks.bars NAME ...     (all: python -m benchmarks.bars)
Each name writes benchmarks/results/bars/NAME.json; `python docs/figures/behaviour.py` puts all of them into
docs/behaviour.md. Seeded noise, not private. Sets that are absent are left out (docs/datasets.md).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "results" / "bars"
# Where each measurement stands: a function of a module that returns bars.
MEASURES = {
    "lengths": "bars_linear",
    "calibration": "bars_linear",
    "explosions": "bars_linear",
    "targets": "bars_linear",
    "columns": "bars_linear",
    "wide": "bars_linear",
    "heavy": "bars_statistics",
    "order": "bars_statistics",
    "noise": "bars_statistics",
    "intervals": "bars_statistics",
    "solvers": "bars_solvers",
    "papers": "bars_solvers",
    "networks": "bars_solvers",
    "srm": "bars_solvers",
    "unlisted": "bars_unlisted",
}


@dataclass(frozen=True)
class Bar:
    """One bar: the item of the list it stands in, what is measured, what is asked, what was found.

    ``why`` is the reason, in numbers, of a bar that does not hold.
    """

    item: int
    what: str
    bar: str
    found: str
    runs: str
    holds: bool
    why: str = ""


def save(path: Path, command: str, bars: Iterable[Bar]) -> None:
    """Write the bars of one measurement."""
    about = {"command": command, "date": datetime.now(UTC).date().isoformat()}
    kept = []
    for bar in bars:
        if not bar.holds and not bar.why:
            raise ValueError(f"Expected a reason for a bar that does not hold: {bar.what}.")
        kept.append({**asdict(bar), "holds": bool(bar.holds)})
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"about": about, "bars": kept}, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", "utf-8")


def numbers(values: Sequence[float], digits: int = 3) -> str:
    """Return numbers as text, apart by strokes."""
    return " / ".join(f"{value:.{digits}f}" for value in values)


def medians(work: Callable[[int], Any], runs: int) -> np.ndarray:
    """Return the medians of what some seeds give."""
    return np.median([work(seed) for seed in range(runs)], axis=0)


def main() -> int:
    """Measure, print and write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(MEASURES), metavar="NAME")
    parser.add_argument("--to", type=Path, default=FOLDER, help="a folder")
    asked = parser.parse_args()
    for name in asked.names:
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # delta above 1 / n, bounds of peers
            found = list(getattr(import_module(f"benchmarks.{MEASURES[name]}"), name)())
        save(asked.to / f"{name}.json", f"python -m benchmarks.bars {name}", found)
        print(f"{name}: {time.process_time() - start:.0f} CPU s")
        for bar in found:
            word = "holds" if bar.holds else "MISS "
            print(f"  {word} {bar.item:>2} {bar.what}: {bar.found} (asked {bar.bar}; {bar.runs})", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
