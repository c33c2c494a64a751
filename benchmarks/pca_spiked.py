"""Private PCA on spiked designs, beside streaming Oja-type methods that are told what they estimate.

DP-Oja and DP-PCA are those of Liu, Kong, Jain, Oh 2022, with several axes by deflation on fresh records as
in Duengler, Sanyal 2025 (k-DP-PCA). Theirs estimate eigenvalues and the range of gradients privately; here
they are told the law, keep the whole budget for the gradients, and get the best of several numbers of
batches and lengths of steps, so theirs can only be worse. Seeded noise, not private.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.pca_measures import fitted, summary
from sordino.accounting import gaussian_multiplier
from sordino.kernel import NoiseSource

SOLVERS = ("auto", "power", "spca", "vrpca", "oja")
Tried = tuple[int, float]
# Numbers of batches, and steps of so much over t times the gap.
TRIED: tuple[Tried, ...] = tuple(itertools.product((5, 15, 50), (2.0, 6.0, 20.0)))


@dataclass(frozen=True)
class Design:
    """Rows ``sum_j z_j sqrt(spikes_j) v_j + noise N(0, I)``, z of signs or of normal variables."""

    label: str
    n: int
    d: int
    spikes: tuple[float, ...]
    noise: float
    signs: bool
    epsilon: float
    delta: float

    def rows(self, seed: int) -> np.ndarray:
        """Return rows whose leading axes are the first coordinates."""
        public, k = np.random.default_rng(seed), len(self.spikes)
        z = public.normal(size=(self.n, k))
        rows = self.noise * public.normal(size=(self.n, self.d))
        rows[:, :k] += (np.sign(z) if self.signs else z) * np.sqrt(self.spikes)
        return rows

    @property
    def values(self) -> np.ndarray:
        """The eigenvalues of the law."""
        return np.r_[self.spikes, np.zeros(self.d - len(self.spikes))] + self.noise**2

    @property
    def norm(self) -> float:
        """A public bound: half more than a typical row."""
        return 1.5 * math.sqrt(float(self.values.sum()))


def designs() -> Iterator[Design]:
    """Yield one Gaussian spike, and signs times axes with ever less noise about them."""
    for d, epsilon in ((20, 1.0), (100, 1.0), (100, 0.3)):
        yield Design("one normal spike", 20_000, d, (3.0,), 1.0, False, epsilon, 1e-5)
    for noise in (0.3, 0.025, 0.001):
        yield Design("one axis with a sign", 20_000, 100, (1.0,), noise, True, 1.0, 1e-5)
    for n, noise in ((5_000, 0.025), (20_000, 0.025), (20_000, 0.001)):
        yield Design("two axes with signs", n, 200, (10.0, 5.0), noise, True, 1.0, 0.01)


def error(axes: np.ndarray, k: int) -> float:
    """Return the part of the true axes that the found ones miss: 1 - cos^2 of the angle for one axis."""
    return 1.0 - float(np.square(axes[:, :k]).sum()) / k


def streamed(design: Design, rows: np.ndarray, seed: int, tried: Tried, about: bool) -> np.ndarray:
    """Return the axes of DP-Oja, or with ``about`` of DP-PCA, each on its own part of the records."""
    found = np.zeros((0, design.d))
    for j, part in enumerate(np.array_split(rows, len(design.spikes))):
        part = part - (part @ found.T) @ found
        axis = _one_axis(design, part, 100 * seed + j, tried, about, j)
        axis = axis - (axis @ found.T) @ found
        found = np.vstack([found, axis / np.linalg.norm(axis)])
    return found


def _one_axis(
    design: Design, rows: np.ndarray, seed: int, tried: Tried, about: bool, rank: int
) -> np.ndarray:
    """Return an axis after one pass: every batch answers with the whole budget, as no record is in two."""
    public, noise = np.random.default_rng(seed), NoiseSource.seeded_not_private(seed)
    z, values = gaussian_multiplier(design.epsilon, design.delta), design.values
    gap = values[rank] - (values[rank + 1] if rank + 1 < len(values) else 0.0)
    w, (batches, length) = public.normal(size=design.d), tried
    w /= np.linalg.norm(w)
    for t, batch in enumerate(np.array_split(rows, batches), start=1):
        gradients = batch * (batch @ w)[:, None]
        # Told: where the gradients lie, and how far they spread; DP-Oja clips them about zero.
        center = gradients.mean(axis=0) if about else np.zeros(design.d)
        lengths = np.linalg.norm(gradients - center, axis=1)
        clip = 2.0 * float(np.sqrt(np.square(lengths).mean()))
        kept = (gradients - center) * np.minimum(1.0, clip / np.maximum(lengths, 1e-300))[:, None]
        step = center + (kept.sum(axis=0) + z * clip * noise.normal(design.d)) / len(batch)
        w = w + length / (t * gap) * step
        w /= np.linalg.norm(w)
    return w


def best_streamed(design: Design, repeats: int, about: bool) -> tuple[float, float]:
    """Return the least mean error over the numbers of batches and steps, with its standard error."""
    k = len(design.spikes)
    found = [
        summary([error(streamed(design, design.rows(s), s, tried, about), k) for s in range(repeats)])
        for tried in TRIED
    ]
    return min(found)


def ours(design: Design, solver: str, repeats: int, epsilon: float | None = None) -> tuple[float, float]:
    """Return the mean error of one of our solvers, which is told nothing but a bound."""
    k, budget = len(design.spikes), design.epsilon if epsilon is None else epsilon
    facts: dict[str, Any] = {"delta": design.delta, "data_norm": design.norm}
    return summary(
        [error(fitted(design.rows(s), solver, budget, s, k, **facts).components_, k) for s in range(repeats)]
    )


def spiked(repeats: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each design and method."""
    for design in designs():
        facts = {
            "design": design.label,
            "n": design.n,
            "d": design.d,
            "axes": len(design.spikes),
            "noise": design.noise,
            "epsilon": design.epsilon,
            "delta": design.delta,
            "fits": repeats,
        }
        found = {"no noise": ours(design, "auto", repeats, math.inf)}
        found["DP-Oja, told"] = best_streamed(design, repeats, about=False)
        found["DP-PCA, told"] = best_streamed(design, repeats, about=True)
        found |= {solver: ours(design, solver, repeats) for solver in SOLVERS}
        for method, (value, doubt) in found.items():
            yield facts | {"method": method, "error": value, "error_se": doubt}
