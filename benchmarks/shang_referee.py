"""Figure 1 of Shang et al. with its printed noise, however long the schedule: which curve is lower?

Command: python -m benchmarks.shang_referee [--save benchmarks/results/shang_referee.json]

The text prints step sizes, and T = n for DP-VRPCA; it prints neither the steps of DP-SPCA nor the epochs of
DP-VRPCA. Both have the best of ``PASSES`` here, chosen by the distance itself, and *exact* gradients in the
place of sampled ones, which can only help them: ``V <- orth(exp(step A) V + noise)`` in pieces of many steps,
with the noise that the steps of a piece add up to. Rows have a largest entry of 1, as printed. The rival is
Analyze Gauss with the noise of its own paper, for rows of norm one, as for the others.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from sordino.kernel import public_generator
from sordino.literature import formulas
from sordino.literature.reproduce.pca import DELTA, _points
from sordino.literature.reproduce.runner import source_commit

RESULT = Path(__file__).parent / "results" / "shang_referee.json"
PASSES = (1, 3, 10, 30, 100)
PIECES = 10  # of a pass


def distance(found: np.ndarray, best: np.ndarray) -> float:
    """Return the share of the best subspace that is missed."""
    return 1.0 - float(np.sum(np.square(found.T @ best))) / best.shape[1]


def descend(
    values: np.ndarray, axes: np.ndarray, k: int, step: float, std: float, n: int, passes: int
) -> Any:
    """Return the basis after so many passes of n steps with this noise each."""
    public, many = public_generator((k, passes)), n / PIECES
    grow = (axes * np.exp(step * many * values)) @ axes.T
    basis = np.linalg.qr(public.normal(size=(len(values), k)))[0]
    for _ in range(PIECES * passes):
        moved = grow @ basis + step * math.sqrt(many) * std * public.normal(size=basis.shape)
        left, _, right = np.linalg.svd(moved, full_matrices=False)
        basis = left @ right
    return basis


def judge(name: str) -> Iterator[dict[str, Any]]:
    """Yield the distances of the three methods, by k and epsilon."""
    points = _points(name, None, True)
    rows = points.rows * points.norm
    n, d = rows.shape
    second = np.asarray(rows.T @ rows, dtype=float) / n
    values, axes = (part[..., ::-1] for part in np.linalg.eigh(second))
    for k in (5, 10, 20):
        for epsilon in (0.1, 1.0):
            best = axes[:, :k]
            draw = np.triu(public_generator((k, 0)).normal(size=(d, d)))
            noise = math.sqrt(2 * math.log(1.25 / DELTA)) / (epsilon * n) * (draw + np.triu(draw, 1).T)
            found = {"Gaussian": distance(np.linalg.eigh(second + noise)[1][:, -k:], best)}
            for passes in PASSES:
                sizes = {"population": n, "steps": n}
                vrpca = 2 * formulas.vrpca(epsilon, DELTA, **sizes, epochs=passes)  # in units of 2
                spca = formulas.lssgd(epsilon, DELTA, population=n, steps=n * passes)
                for method, step, std in (("DP-SPCA", 0.5 / n, spca), ("DP-VRPCA", 1 / n, vrpca)):
                    here = distance(descend(values, axes, k, step, std, n, passes), best)
                    found[method] = min(found.get(method, 1.0), here)
            yield {"set": name, "longest row": points.norm, "k": k, "epsilon": epsilon, **found}


def main() -> None:
    """Judge both sets and keep what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", type=Path, default=RESULT)
    asked, rows = parser.parse_args(), []
    for name in ("a9a", "MNIST"):
        for row in judge(name):
            rows.append(row)
            print(row, flush=True)
    about = {"command": "python -m benchmarks.shang_referee", "date": datetime.now(UTC).date().isoformat()}
    about |= {"commit": source_commit(), "runs": "one a number"}
    asked.save.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
