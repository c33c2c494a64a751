"""Private PCA: bars, numbers of axes, stated deviations, spiked designs, the paper's protocol, time.

Command: python -m benchmarks.pca [section ...] [--fits N] [--sets NAME ...] [--solvers NAME ...]
         [--save benchmarks/results/pca.json]
Then `python -m benchmarks.pca_bars` judges and `python docs/figures/pca_tables.py` writes the pages on PCA.

A saved cell replaces that cell of the file and leaves the others. The noise is seeded (not private), so a
section repeats. Data sets are looked up in the folder SORDINO_DATA; sections without data are left out.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import normalize

from benchmarks.machine import describe
from benchmarks.pca_measures import AXES, SETS, Rows, captured, fitted, summary, textbook, told
from benchmarks.pca_paper import printed, protocol, times
from benchmarks.pca_spiked import spiked
from sordino.datasets import load
from sordino.errors import DataNotFoundError, NotPrivateWarning, PrivacyWarning

RESULT = Path(__file__).parent / "results" / "pca.json"
EPSILONS = (0.1, 0.5, 2.0, 8.0, math.inf)
SOLVERS = ("textbook", "auto", "mod-sulq", "power", "spca", "vrpca", "oja")  # auto is gauss here
WIDE = ("auto", "screen", "power", "spca", "vrpca", "oja")  # those that never hold a d x d matrix
SHARE = 0.9


def bars(fits: int, sets: list[str], solvers: list[str], epsilons: list[float]) -> Iterator[dict[str, Any]]:
    """Yield both measures of every solver on every set, k = 10, centred, delta 1e-5."""
    for name in sets:
        rows = absent_or(name)
        if rows is None:
            continue
        there = SOLVERS if isinstance(rows.data, np.ndarray) else WIDE
        for solver in [solver for solver in there if solver in solvers]:
            for epsilon in epsilons:
                yield both_measures(rows, solver, epsilon, min(fits, most_fits(rows, solver, epsilon)))


def most_fits(rows: Rows, solver: str, epsilon: float) -> int:
    """Return how many fits are enough: figures on many rows hardly move, nor do those of axes that drown."""
    if isinstance(rows.data, np.ndarray):
        return 3 if len(rows.data) > 50_000 else 10
    return 5 if solver in ("auto", "screen") and math.isfinite(epsilon) else 1


def absent_or(name: str) -> Rows | None:
    """Return a set, or None where it is not there."""
    try:
        return SETS[name]()
    except DataNotFoundError:
        print(f"{name}: absent")
        return None


def both_measures(rows: Rows, solver: str, epsilon: float, fits: int) -> dict[str, Any]:
    """Return captured variance and subspace distance, with standard errors."""
    start, found = time.process_time(), []
    for seed in range(fits):
        if solver == "textbook":
            axes = textbook(rows.data / rows.norm, epsilon, seed, True)
        else:
            axes = fitted(rows.data, solver, epsilon, seed, data_norm=rows.norm).components_
        found.append(rows.judged(axes))
    seconds = (time.process_time() - start) / fits
    (share, share_error), (far, far_error) = (summary(values) for values in zip(*found, strict=True))
    facts = {"set": rows.name, "solver": solver, "epsilon": told(epsilon), "fits": fits}
    facts |= {"captured": share, "captured_se": share_error, "distance": far, "distance_se": far_error}
    return facts | {"seconds": round(seconds, 2)}


def splits(fits: int) -> Iterator[dict[str, Any]]:
    """Yield captured variance on 70 % of digits, beside diffprivlib's in its own environment."""
    rows = normalize(load("digits").data)
    for center in (True, False):
        for solver in ("textbook", "auto", "power", "spca", "vrpca", "mod-sulq"):
            for epsilon in (0.5, 1.0, 2.0, 8.0):
                found = [on_a_split(rows, solver, epsilon, seed, center) for seed in range(fits)]
                facts = {"center": center, "solver": solver, "epsilon": epsilon, "fits": fits}
                yield facts | dict(zip(("captured", "captured_se"), summary(found), strict=True))


def on_a_split(rows: np.ndarray, solver: str, epsilon: float, seed: int, center: bool) -> float:
    """Return the captured variance relative to the best on 70 % of the rows."""
    train = rows[np.random.default_rng(seed).permutation(len(rows))[: int(0.7 * len(rows))]]
    mean = train.mean(axis=0) * center
    if solver == "textbook":
        axes = textbook(train, epsilon, seed, center)
    else:
        axes = fitted(train, solver, epsilon, seed, center=center, data_norm=1.0).components_
    best = np.linalg.eigvalsh(train.T @ train / len(train) - np.outer(mean, mean))[-AXES:].sum()
    return float(captured(axes, train, mean).sum() / best)


def few_axes() -> Rows:
    """Return rows that three axes explain to 95 %: 2,000 x 60 on the unit sphere's scale."""
    public = np.random.default_rng(0)
    scales = np.r_[np.sqrt([0.5, 0.3, 0.15]), np.full(57, math.sqrt(0.05 / 57))]
    return Rows.of("three axes", public.normal(size=(2_000, 60)) * scales, 2.0)


def counts(fits: int) -> Iterator[dict[str, Any]]:
    """Yield how many axes ``n_components=0.9`` keeps, and what they really explain."""
    for make in (few_axes, SETS["digits"], SETS["a9a"]):
        rows = make()
        about = rows.data - rows.mean
        values = np.linalg.eigvalsh(about.T @ about / len(about))[::-1]
        right = int(np.argmax(np.cumsum(values) >= SHARE * values.sum())) + 1
        for epsilon in (0.5, 1.0, 2.0, 8.0, math.inf):
            models = [fitted(rows.data, "auto", epsilon, s, SHARE, data_norm=rows.norm) for s in range(fits)]
            kept = [model.n_components_ for model in models]
            explained = [captured(m.components_, rows.data, rows.mean).sum() / values.sum() for m in models]
            facts = {"set": rows.name, "epsilon": told(epsilon), "fits": fits, "right": right}
            facts |= {"median": float(np.median(kept)), "least": min(kept), "most": max(kept)}
            yield facts | {"explained": summary(explained)[0]}


def deviations(fits: int) -> Iterator[dict[str, Any]]:
    """Yield how often +-2 ``eigenvalue_noise_`` covers what an axis captures; ratio sums, true and stated."""
    for make in (few_axes, SETS["digits"], SETS["a9a"]):
        rows = make()
        total = float(np.square(rows.data - rows.mean).sum() / len(rows.data))
        many = fits if len(rows.data) < 10_000 else max(fits // 3, 1)
        for solver in ("auto", "power", "spca", "vrpca", "oja", "mod-sulq"):
            for epsilon in (0.1, 0.5, 2.0, 8.0):
                models = [fitted(rows.data, solver, epsilon, s, data_norm=rows.norm) for s in range(many)]
                facts = {"set": rows.name, "solver": solver, "epsilon": epsilon, "fits": many}
                yield facts | covered(models, rows, total)


def covered(models: list[Any], rows: Rows, total: float) -> dict[str, Any]:
    """Return the coverage over axes and fits, the size of the bands, stated and true ratio sums."""
    true = np.array([captured(model.components_, rows.data, rows.mean) for model in models])
    stated = np.array([model.explained_variance_ for model in models])
    doubt = np.array([model.eigenvalue_noise_ for model in models])
    sums = [model.explained_variance_ratio_.sum() for model in models]
    off = math.sqrt(float(np.square(stated - true).mean()))
    size = math.sqrt(float(np.square(doubt).mean()))
    return {
        "coverage": round(float((np.abs(stated - true) <= 2 * doubt).mean()), 4),
        "stated_over_true_deviation": float(f"{size / max(off, 1e-300):.3g}"),
        "ratio_stated": summary(sums)[0],
        "ratio_true": summary(true.sum(axis=1) / total)[0],
    }


SECTIONS: dict[str, tuple[Callable[..., Iterator[dict[str, Any]]], int]] = {
    "bars": (bars, 10),
    "splits": (splits, 10),
    "spiked": (spiked, 10),
    "counts": (counts, 20),
    "deviations": (deviations, 30),
    "printed": (printed, 1),
    "protocol": (protocol, 5),
    "times": (times, 1),
}


# What tells the cells of a section apart.
NAMES = ("set", "solver", "epsilon", "center", "design", "n", "d", "noise", "method", "task", "axes", "what")
NAMES += ("claims",)


def measured(name: str, fits: int | None, path: Path | None, *chosen: Any) -> None:
    """Run a section, print its rows as they come, and keep each of them."""
    section, usual = SECTIONS[name]
    command = f"python -m benchmarks.pca {name}" + ("" if fits is None else f" --fits {fits}")
    about = {"command": command, "date": datetime.now(UTC).date().isoformat()}
    for row in section(usual if fits is None else fits, *(chosen if name == "bars" else ())):
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        if path is not None:
            kept(path, name, {"about": about, "rows": [row]})


def kept(path: Path, name: str, part: dict[str, Any]) -> None:
    """Write the cells of a section that were measured over those of the file."""
    old = json.loads(path.read_text("utf-8")) if path.exists() else {}
    cells = {_cell(row): row for row in old.get(name, {"rows": []})["rows"]}
    cells |= {_cell(row): row for row in part["rows"]}
    parts = {**old, name: {"about": part["about"], "rows": list(cells.values())}}
    lines = [f"{json.dumps(key)}: {_section(value)}" for key, value in sorted(parts.items())]
    path.write_text("{" + ",\n".join(lines) + "}\n", "utf-8")


def _cell(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(key) for key in NAMES)


def _section(part: dict[str, Any]) -> str:
    rows = ",\n".join(json.dumps(row) for row in part["rows"])
    return f'{{"about": {json.dumps(part["about"])}, "rows": [\n{rows}\n]}}'


def main() -> int:
    """Run, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", default=list(SECTIONS), help="sections by name")
    parser.add_argument("--fits", type=int, default=None, help="fits of each cell")
    parser.add_argument("--sets", nargs="*", default=list(SETS), help="sets of the bars")
    parser.add_argument("--solvers", nargs="*", default=[*SOLVERS, *WIDE], help="solvers of the bars")
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS), help="inf is no noise")
    parser.add_argument("--save", type=Path, default=None, help=f"for the page: {RESULT.name}")
    asked = parser.parse_args()
    for kind in (NotPrivateWarning, PrivacyWarning):
        warnings.simplefilter("ignore", kind)
    describe()
    for name in asked.sections:
        try:
            measured(name, asked.fits, asked.save, asked.sets, asked.solvers, asked.epsilons)
        except DataNotFoundError as error:
            print(f"{name} left out: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
