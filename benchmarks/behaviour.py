"""What a statistician would check: every public estimator and statistic, on a grid of designs and budgets.

Monotone in epsilon and n, as good under scaling, shifting, sorting and rounding, never far below a constant,
equal to scikit-learn without noise, calibrated, every interval covered.

Command: python -m benchmarks.behaviour [--quick] [--only NAME ...] [--save benchmarks/results/behaviour.json]
A run goes on where the file ends: subjects in it are not run again, unless they are named or --again is
given. Then `python docs/figures/behaviour.py` writes docs/behaviour.md; cells that fail are red. Seeded
noise, not private.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import sordino
from benchmarks.behaviour_designs import ALIKE, DESIGNS, SUBJECTS, Subject
from benchmarks.laws import LAWS, Judged
from benchmarks.machine import describe
from sordino.testing import seeded_noise_not_private

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0, math.inf)
RESULT = Path(__file__).parent / "results" / "behaviour.json"
# What is asked of a cell; a score is accuracy, R2, or variance captured relative to that of the best axes.
DIP, ALIKE_WITHIN, BELOW_CONSTANT, BELOW_PLAIN = 0.02, 0.03, 0.1, 0.02
LOSS_ABOVE, SLOPES, COVERED, WIDTH = 0.15, (0.85, 1.18), 0.93, 3.0
ERRORS_APART = 3.0


@dataclass(frozen=True)
class Cell:
    """One check: what was found, what is asked, and whether it holds."""

    subject: str
    check: str
    where: str
    found: float
    asked: str
    holds: bool


@dataclass(frozen=True)
class Size:
    """How much is computed."""

    rows: int
    fits: int
    repeats: int


QUICK, FULL = Size(2000, 2, 25), Size(4000, 5, 300)


def named(epsilon: float) -> str:
    """Return the name of a budget."""
    return "no noise" if math.isinf(epsilon) else f"epsilon {epsilon:g}"


def scores(subject: Subject, size: Size) -> dict[str, dict[float, dict[str, float]]]:
    """Return the median scores by design and epsilon, with the worst ones and those of scikit-learn.

    Of many fits it is the mean, which varies less.
    """
    out: dict[str, dict[float, dict[str, float]]] = {}
    middle = np.median if subject.effort == 1 else np.mean
    for name, draw in DESIGNS.items():
        designs = [subject.rows(draw(size.rows, seed)) for seed in range(size.fits * subject.effort)]
        for epsilon in EPSILONS:
            found = [subject.score(epsilon, design) for design in designs]
            cell = {key: float(middle([f[key] for f in found])) for key in found[0]}
            cell["worst"] = min(f["score"] - subject.constant(d) for f, d in zip(found, designs, strict=True))
            out.setdefault(name, {})[epsilon] = cell
        out[name][math.inf]["plain"] = float(middle([subject.plain(d) for d in designs]))
    return out


def judged(name: str, subject: Subject, found: dict[str, dict[float, dict[str, float]]]) -> list[Cell]:
    """Return the checks of one estimator."""
    cells = []
    for design, row in found.items():
        best = -math.inf
        for epsilon in EPSILONS:
            cell, where = row[epsilon], f"{design}, {named(epsilon)}"
            dip = max(best - cell["score"], 0.0)
            cells.append(Cell(name, "does not fall in epsilon", where, dip, f"<= {DIP}", dip <= DIP))
            best = max(best, cell["score"])
            worst, asked = cell["worst"], f">= {-BELOW_CONSTANT}"
            cells.append(
                Cell(name, "worst, above the constant", where, worst, asked, worst >= -BELOW_CONSTANT)
            )
            cells += _probabilities(name, cell, where, epsilon)
        lag = row[math.inf]["plain"] - row[math.inf]["score"]
        plain = f"<= {BELOW_PLAIN}"
        cells.append(Cell(name, "behind scikit-learn without noise", design, lag, plain, lag <= BELOW_PLAIN))
    return cells + _compared(name, found)


def _probabilities(name: str, cell: dict[str, float], where: str, epsilon: float) -> list[Cell]:
    if "log loss" not in cell:
        return []
    loss = cell["log loss"]
    out = [Cell(name, "log loss above the constant's", where, loss, f"<= {LOSS_ABOVE}", loss <= LOSS_ABOVE)]
    if epsilon >= 1 and where.startswith("plain"):
        slope = cell["slope"]
        holds = SLOPES[0] <= slope <= SLOPES[1]
        out.append(Cell(name, "calibration slope", where, slope, f"{SLOPES[0]} to {SLOPES[1]}", holds))
    return out


def _compared(name: str, found: dict[str, dict[float, dict[str, float]]]) -> list[Cell]:
    """Compare designs with the plain one: more rows are no worse, changed units as good."""
    cells, plain = [], found["plain"]
    for epsilon in EPSILONS:
        more = plain[epsilon]["score"] - found["four times the rows"][epsilon]["score"]
        less = found["few rows"][epsilon]["score"] - plain[epsilon]["score"]
        fall = max(more, less, 0.0)
        cells.append(Cell(name, "does not fall in n", named(epsilon), fall, f"<= {DIP}", fall <= DIP))
        if epsilon < 1:
            continue
        for design in ALIKE:
            apart = abs(found[design][epsilon]["score"] - plain[epsilon]["score"])
            where, asked = f"{design}, {named(epsilon)}", f"<= {ALIKE_WITHIN}"
            cells.append(Cell(name, "as good as plain", where, apart, asked, apart <= ALIKE_WITHIN))
    return cells


STATISTICS: dict[str, Any] = {
    "mean": (lambda x, e: sordino.mean(x, e), lambda law: law.mean, np.mean),
    # Undeclared, the upper end is infinite where squares of a tail may be (statistic_intervals judges that).
    "variance": (lambda x, e: sordino.variance(x, e, moment_order=0.5), lambda law: law.variance, np.var),
    "quantiles": (
        lambda x, e: sordino.quantiles(x, 0.9, e),
        lambda law: law.quantiles[2],
        lambda x: np.quantile(x, 0.9, method="inverted_cdf"),
    ),
}


def statistic(name: str, size: Size, n: int = 2000) -> list[Cell]:
    """Return the checks of one statistic on the eleven laws."""
    ask, truth, plain = STATISTICS[name]
    cells = []
    for law_name, law in LAWS.items():
        before: np.ndarray | None = None
        for epsilon in EPSILONS:
            rng = np.random.default_rng(5)
            draws = [law.draw(rng, n) for _ in range(size.repeats)]
            answers = [ask(x, epsilon) for x in draws]
            lows, highs = zip(*(a.interval for a in answers), strict=True)
            found = Judged.of(answers, lows, highs, truth(law))
            where = f"{law_name}, {named(epsilon)}"
            apart = np.abs([a - plain(x) for a, x in zip(answers, draws, strict=True)])
            if math.isinf(epsilon):
                most, asked = float(apart.max() / max(np.std(draws[0]), 1e-6)), "<= 0.02 deviations"
                cells.append(Cell(name, "differs from NumPy without noise", where, most, asked, most <= 0.02))
                continue
            cells += _interval(name, where, found, epsilon, size.repeats)
            if before is not None:
                cells.append(_grows(name, where, apart, before))
            before = apart
    return cells


def _grows(name: str, where: str, apart: np.ndarray, before: np.ndarray) -> Cell:
    """Compare the mean squared distances from the same draws' own statistics, in their standard errors.

    Not from the law's: a draw whose own quantile is off is answered the better the larger epsilon is. The
    standard error is measured, for on ties an answer is right, or rarely off by a whole step.
    """
    change = apart**2 - before**2
    error = float(np.std(change, ddof=1)) / math.sqrt(change.size)
    grows = float(np.mean(change)) / error if error > 0 else 0.0
    asked = f"<= {ERRORS_APART} standard errors"
    return Cell(name, "error grows over that at less epsilon by", where, grows, asked, grows <= ERRORS_APART)


def _interval(name: str, where: str, found: Judged, epsilon: float, repeats: int) -> list[Cell]:
    least = COVERED - 2.0 * math.sqrt(COVERED * (1 - COVERED) / repeats)
    covered = found.coverage
    out = [Cell(name, "coverage", where, covered, f">= {least:.3f}", covered >= least)]
    if epsilon >= 1 and name != "quantiles":  # a quantile on ties is found exactly: its width is a cell
        most = WIDTH * (1.0 + 1.5 / math.sqrt(repeats))
        out.append(
            Cell(name, "half-width over the error", where, found.ratio, f"<= {most:.2f}", found.ratio <= most)
        )
    return out


GROUPED = ("count", "sum", "mean", "quantile")


def by_group(kind: str, size: Size, n: int = 2000) -> list[Cell]:
    """Return the coverage of a statistic by group, on integers with ties, smallest of two groups."""
    cells, bounds = [], (0.0, 30.0)
    for epsilon in EPSILONS[:-1]:
        rng, hits = np.random.default_rng(5), np.zeros(2)
        for _ in range(size.repeats):
            x, owner = rng.poisson(4.0, n).astype(float), rng.choice(["a", "b"], n, p=[0.85, 0.15])
            by = sordino.group_by(owner, levels=["a", "b"])
            options = {} if kind == "count" else {"bounds": bounds}
            asked = () if kind == "count" else (x, 0.5) if kind == "quantile" else (x,)
            table = getattr(by, kind)(*asked, epsilon, **options)
            right = {
                "count": [np.sum(owner == g) for g in "ab"],
                "sum": [np.sum(x[owner == g]) for g in "ab"],
            }.get(kind, [4.0, 4.0])
            hits += (table.low <= right) & (right <= table.high)
        covered = float(hits.min() / size.repeats)
        least = COVERED - 2.0 * math.sqrt(COVERED * (1 - COVERED) / size.repeats)
        name = f"group_by.{kind}"
        cells.append(Cell(name, "coverage", named(epsilon), covered, f">= {least:.3f}", covered >= least))
    return cells


def all_cells(size: Size, only: list[str], kept: Kept) -> None:
    """Run everything that is not kept yet, or the subjects that are named; keep each as it comes."""
    jobs = {name: (lambda n=name: judged(n, SUBJECTS[n], scores(SUBJECTS[n], size))) for name in SUBJECTS}
    jobs |= {name: (lambda n=name: statistic(n, size)) for name in STATISTICS}
    jobs |= {f"group_by.{kind}": (lambda k=kind: by_group(k, size)) for kind in GROUPED}
    for name, job in jobs.items():
        if (only and name not in only) or (not only and name in kept.done):
            continue
        start = time.process_time()
        with seeded_noise_not_private(0):  # of its own, so that a run that goes on gives the same cells
            found = job()
        failed = [cell for cell in found if not cell.holds]
        spent = time.process_time() - start
        print(f"{name}: {len(failed)} of {len(found)} fail, {spent:.0f} CPU s", flush=True)
        for cell in failed[:6]:
            print(f"    {cell.check}; {cell.where}: {cell.found:.3g}, asked {cell.asked}")
        kept.add(name, found)


@dataclass
class Kept:
    """The cells so far, in a file if there is one, written after every subject: a run goes on where it ended.

    Each subject has the date and the size of its run. A subject of a quick run is run again in full when that
    is asked for, one of a full run stays as it is when a quick one is.
    """

    about: dict[str, Any]
    path: Path | None
    subjects: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, size: Size, quick: bool, path: Path | None) -> Kept:
        """Return what the file holds."""
        about = {"command": "python -m benchmarks.behaviour" + " --quick" * quick, **asdict(size)}
        if path is None or not path.exists():
            return cls(about, path)
        return cls(about, path, json.loads(path.read_text("utf-8"))["subjects"])

    @property
    def done(self) -> set[str]:
        """The subjects that were run with as many repeats as are asked for, or more."""
        return {name for name, kept in self.subjects.items() if kept["repeats"] >= self.about["repeats"]}

    def add(self, name: str, cells: list[Cell]) -> None:
        """Keep the cells of a subject, and write."""
        today = datetime.now(UTC).date().isoformat()
        self.subjects[name] = {"date": today, **self.about, "cells": [_short(cell) for cell in cells]}
        if self.path is None:
            return
        fresh = self.path.with_suffix(".part")
        fresh.write_text(_text(self.subjects), "utf-8")
        fresh.replace(self.path)


def _short(cell: Cell) -> dict[str, Any]:
    """Return a cell as it is kept, under its subject: six digits of what was found."""
    kept = asdict(cell) | {"found": float(f"{cell.found:.6g}"), "holds": bool(cell.holds)}
    del kept["subject"]
    return kept


def _text(subjects: dict[str, dict[str, Any]]) -> str:
    """Return the file: a cell a line."""
    whole = json.dumps({"subjects": subjects}, separators=(",", ":"))
    return whole.replace('{"check"', '\n{"check"') + "\n"


def main() -> int:
    """Run, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows, fits and repeats: a few minutes")
    parser.add_argument("--only", nargs="*", default=[], help="subjects by name")
    parser.add_argument("--save", type=Path, default=None, help=f"for the page: {RESULT.name}")
    parser.add_argument("--again", action="store_true", help="forget what the file holds, and run all anew")
    asked = parser.parse_args()
    describe()
    size = QUICK if asked.quick else FULL
    kept = Kept.of(size, asked.quick, asked.save)
    if asked.again:
        kept.subjects.clear()
    all_cells(size, asked.only, kept)
    return 0


if __name__ == "__main__":
    sys.exit(main())
