"""AdaSSP (Wang 2018, algorithm 2): private ridge regression by noisy sufficient statistics, as a reference.

A rival only: its noise is not drawn by the kernel, so no release here is private.
"""

from __future__ import annotations

import math

import numpy as np


def adassp(
    x: np.ndarray, y: np.ndarray, epsilon: float, delta: float, row_norm: float, target: float, seed: int
) -> np.ndarray:
    """Return the coefficients; rows of norm at most ``row_norm``, targets of size at most ``target``."""
    rng = np.random.default_rng(seed)
    d, third = x.shape[1], epsilon / 3
    log = math.log(6 / delta)
    gram = x.T @ x
    smallest = max(float(np.linalg.eigvalsh(gram)[0]), 0.0)
    scale = math.sqrt(log) * row_norm**2 / third
    floor = max(smallest + scale * rng.normal() - log / third * row_norm**2, 0.0)
    spread = math.sqrt(d * log * math.log(2 * d**2 / 0.05)) * row_norm**2 / third
    ridge = max(0.0, spread - floor)
    noise = np.triu(rng.normal(size=(d, d))) * scale
    noisy = gram + noise + np.triu(noise, 1).T
    right = x.T @ y + math.sqrt(log) * row_norm * target / third * rng.normal(size=d)
    return np.linalg.solve(noisy + ridge * np.eye(d), right)
