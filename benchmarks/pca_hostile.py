"""Eigenvalues of a private PCA, and whether what is stated of them holds, where clipping is not even.

Command (20 columns, epsilon 1, noise not seeded)::

    python -m benchmarks.pca_hostile --repeats 12

For each design and number of records: the first eigenvalue over the plain one, the largest error of five axes
in stated deviations, and the stated deviation of the first axis over the plain eigenvalue.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

import sordino
from benchmarks.machine import describe

COLUMNS, AXES = 20, 5


def designs(rng: np.random.Generator, n: int) -> Iterator[tuple[str, np.ndarray, float]]:
    """Yield names, rows and declared bounds."""
    d, normal = COLUMNS, rng.normal(size=(n, COLUMNS))
    mixed = rng.normal(size=(d, d))
    yield "correlated", normal @ np.linalg.cholesky(mixed @ mixed.T / d + 0.05 * np.eye(d)).T, 3 * d**0.5
    yield "t(4)", rng.standard_t(4, size=(n, d)), 6 * d**0.5
    yield "spiky", np.where(rng.random((n, d)) < 0.02, 7.0, 0.3) * rng.normal(size=(n, d)), 4 * d**0.5
    for name, share, far in (("2 rows in 1,000 far out", 0.002, 20.0), ("1 row in 100 far out", 0.01, 10.0)):
        rows, which = 0.3 * normal, rng.random(n) < share
        rows[which] = 0.0
        rows[which, 0] = far * rng.choice([-1.0, 1.0], which.sum())
        yield name, rows, 1.1 * far
    yield "far from zero", 10.0 + 0.5 * normal * np.linspace(2.0, 0.5, d), 12 * d**0.5
    yield "lognormal", rng.lognormal(size=(n, d)), 6 * d**0.5
    yield "one axis", normal * np.r_[3.0, np.full(d - 1, 0.1)], 12.0


def judge(rows: np.ndarray, bound: float) -> tuple[float, float, float]:
    """Return the first eigenvalue over the plain one, the largest miss, and the stated deviation."""
    model = sordino.PCA(AXES, epsilon=1.0, data_norm=float(bound)).fit(rows)
    rows = rows * np.minimum(1.0, bound / np.linalg.norm(rows, axis=1))[:, None]
    covariance = np.cov(rows.T)
    real = np.einsum("kd,de,ke->k", model.components_, covariance, model.components_)
    top = float(np.linalg.eigvalsh(covariance)[-1])
    misses = np.abs(model.explained_variance_ - real) / model.eigenvalue_noise_
    return model.explained_variance_[0] / top, float(misses.max()), model.eigenvalue_noise_[0] / top


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=12)
    repeats = parser.parse_args().repeats
    describe()
    sizes = (1000, 5000, 50_000)
    found: dict[str, list[np.ndarray]] = {}
    for n in sizes:
        cells: dict[str, list[tuple[float, float, float]]] = {}
        for seed in range(repeats):
            for name, rows, bound in designs(np.random.default_rng(seed), n):
                cells.setdefault(name, []).append(judge(rows, bound))
        for name, cell in cells.items():
            found.setdefault(name, []).append(np.array(cell))
    print("| | " + " | ".join(f"n = {n:,}" for n in sizes) + " |\n|---" + "|---" * len(sizes) + "|")
    for name, line in found.items():
        texts = (f"{a[:, 0].mean():.2f}, {a[:, 1].max():.1f}, {a[:, 2].mean():.2f}" for a in line)
        print(f"| {name} | " + " | ".join(texts) + " |")


if __name__ == "__main__":
    main()
