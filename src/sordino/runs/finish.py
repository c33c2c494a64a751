"""What a loss is told before a run, and what a model holds after it: estimators and joint runs share both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sordino.kernel import SparseVector
from sordino.kernel.arrays import Floats
from sordino.problems.covariance import PcaProblem
from sordino.problems.losses import Loss, target_range
from sordino.problems.problem import Problem
from sordino.solvers.around import Around
from sordino.solvers.base import NoisyCoefficients
from sordino.solvers.pca import Principal


@dataclass(frozen=True, eq=False)
class LinearFit:
    """A linear model in the user's units: a margin is ``x @ coef + intercept``, for each output.

    ``noise`` is the public standard deviation of the noise in each coefficient, where the solver states it,
    and ``around`` what it has released of the loss around the model.
    """

    coef: Floats
    intercept: Floats
    noise: Floats | None = None
    around: Around | None = None


def finish(last: Any, problem: Problem) -> LinearFit:
    """Return the model that the last iterate of a solver stands for.

    The last weight belongs to the intercept column, which holds a constant: the intercept is their product.
    """
    noise = around = None
    if isinstance(last, NoisyCoefficients):
        last, noise, around = last.value, last.noise, last.around
    w = last.to_dense() if isinstance(last, SparseVector) else np.asarray(last)
    intercept = w[..., -1] * problem.intercept if problem.intercept else np.zeros(w.shape[:-1])
    return LinearFit(np.ascontiguousarray(w[..., : problem.features]), np.array(intercept), noise, around)


def label_targets(codes: Any, classes: int) -> Any:
    """Return what a loss wants for class numbers: -1 and 1 for two classes, the numbers for more."""
    return 2.0 * codes - 1.0 if classes == 2 else codes.astype(np.float64)


def number_targets(y: Any, loss: Loss, bound: float) -> tuple[Any, tuple[float, float]]:
    """Return targets clipped to the declared bound, and the range that they have; counts begin at zero."""
    ends = target_range(loss, bound)
    return np.clip(y, *ends), ends


def finish_pca(found: Principal, problem: PcaProblem, count: int) -> dict[str, Any]:
    """Return what is known of the first ``count`` axes, under the names of scikit-learn's attributes."""
    n, d = problem.population, problem.features
    unbiased = n / (n - 1) if problem.center else 1.0
    variances = np.maximum(found.variances[:count] * unbiased, 1e-300)
    left = max(found.total - float(found.variances[:count].sum()), 0.0)
    return {
        "components": found.axes[:count],
        "mean": found.mean if problem.center else np.zeros(d),
        "explained_variance": variances,
        "explained_variance_ratio": found.variances[:count] / found.total,
        "singular_values": np.sqrt(variances * (n / unbiased)),
        "noise_variance": left * unbiased / (d - count) if count < d else 0.0,
        "total_variance": found.total * unbiased,
        "noisy_eigenvalues": found.noisy * unbiased,
        "eigenvalue_noise": found.doubt * unbiased,
        "noise_edge": found.edge * unbiased,
    }
