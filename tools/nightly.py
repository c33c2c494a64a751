"""Everything that `make test` leaves out, within a budget of hours, on one page.

    python tools/nightly.py [--hours 4] [--page FILE]

Each step has a share of the budget. A step that runs out of its time is stopped and said to be cut, which is
neither passed nor failed. The mutation tests take the shard of the day, so that a month of nights has seen
every mutant. The exit status is 1 if a step failed.
"""

from __future__ import annotations

import argparse
import datetime
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHARDS = 28  # days of the shortest month


@dataclass(frozen=True)
class Step:
    """A command, and the share of the hours that it may take."""

    name: str
    share: float
    command: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """How a step ended."""

    step: Step
    status: str
    minutes: float
    last: str


def steps(day: int, workers: int) -> list[Step]:
    """Return the steps of the night of a day of the month."""
    python = sys.executable
    test = (python, "-m", "pytest", "-q", "-n", str(workers), "-p", "no:cacheprovider")
    shard = f"{(day - 1) % SHARDS + 1}/{SHARDS}"
    return [
        Step("fuzz", 0.10, (python, "tools/fuzz.py", "--cases", "1000000", "--jobs", str(workers))),
        Step("audit", 0.15, (python, "tools/audit.py", "--fits", "0")),
        Step("outside tests", 0.05, (python, "-m", "benchmarks.outside", "--make")),
        Step("long tests", 0.25, (*test, "-m", "long", "--deselect", "tests/hostile/test_sabotages.py")),
        Step("sabotages", 0.15, (*test, "tests/hostile/test_sabotages.py")),
        Step("mutants", 0.15, (python, "tools/mutate.py", "--jobs", str(workers), "--shard", shard)),
        Step(
            "pages",
            0.05,
            (python, "-m", "sphinx", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html"),
        ),
        Step("guard", 0.10, (python, "-m", "benchmarks.guard")),
    ]


def run(step: Step, seconds: float, folder: Path) -> Outcome:
    """Run a step for at most so many seconds; its output goes to a file of its name."""
    log, start = folder / f"{step.name.replace(' ', '-')}.log", time.monotonic()
    with log.open("w", encoding="utf-8") as out:
        child = subprocess.Popen(step.command, cwd=ROOT, stdout=out, stderr=out, start_new_session=True)
        try:
            status = "passed" if child.wait(seconds) == 0 else "FAILED"
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            status = "cut"
    lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    return Outcome(step, status, (time.monotonic() - start) / 60, lines[-1].strip() if lines else "")


def page(outcomes: list[Outcome]) -> str:
    """Return the page: a row for each step."""
    rows = ["| step | status | minutes | last line |", "|---|---|---|---|"]
    rows += [f"| {o.step.name} | {o.status} | {o.minutes:.0f} | {o.last[:90]} |" for o in outcomes]
    return "\n".join(rows)


def main(arguments: list[str] | None = None) -> int:
    """Run the night and return the exit status."""
    parser = argparse.ArgumentParser(description="Run what `make test` leaves out.")
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--page", type=Path, default=ROOT / "build" / "nightly" / "page.md")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)
    options.page.parent.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for step in steps(datetime.datetime.now(datetime.UTC).day, options.workers):
        outcomes.append(run(step, 3600 * options.hours * step.share, options.page.parent))
        options.page.write_text(page(outcomes) + "\n", "utf-8")
    print(page(outcomes))
    return int(any(outcome.status == "FAILED" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
