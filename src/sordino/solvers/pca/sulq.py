"""The textbook's independent entries, and MOD-SULQ's noise on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sordino.kernel import Curator, Full, Plan, Release
from sordino.kernel.arrays import Floats
from sordino.problems.covariance import GramTriangle, PcaProblem
from sordino.solvers.pca.gauss import Gauss, principal_of
from sordino.solvers.pca.locate import (
    locate,
    moments_release,
    noise_level,
    noise_std,
    spectrum_release,
    weight_of_rest,
)
from sordino.solvers.pca.measured import measured
from sordino.solvers.pca.options import PcaOptions
from sordino.solvers.pca.spectrum import Principal


@dataclass(frozen=True)
class ModSulq:
    r"""Eigenvectors of ``A`` plus a symmetric matrix with independent N(0, s^2) on and above the diagonal.

    **Privacy.** One Gaussian release of the upper triangle. It has the sensitivity of the whole matrix
    (attained at a unit vector) and twice the off-diagonal noise of ``gauss``: kept for comparison.

    References: Chaudhuri et al. 2012; ``noise="paper"`` runs their formula, hundreds of times too large.
    """

    @classmethod
    def configured(cls, problem: PcaProblem, options: PcaOptions) -> ModSulq:
        """Refuse a matrix that does not fit."""
        Gauss.configured(problem, options)
        return cls()

    def plan(self, problem: PcaProblem) -> Plan:
        """Declare the mean and the triangle."""
        noise = problem.gaussian(weight_of_rest(problem, last=True))
        triangle = Release(GramTriangle(problem.data_norm), noise, Full())
        return problem.planned(**moments_release(problem), triangle=triangle, **spectrum_release(problem))

    def run(self, curator: Curator, problem: PcaProblem) -> Iterator[Principal]:
        """Yield the axes."""
        place = locate(curator, problem, noise_level(curator, "triangle", problem, problem.features))
        entries = curator.release("triangle", place.ball)
        std = noise_std(curator, "triangle", place.ball) / problem.population
        found = principal_of(symmetric(entries, problem.features), std * np.sqrt(2), place, problem)
        yield measured(curator, problem, found)


def symmetric(entries: Floats, features: int) -> Floats:
    """Return the symmetric matrix with these entries on and above its diagonal."""
    out = np.zeros((features, features))
    out[np.triu_indices(features)] = entries
    return out + np.triu(out, 1).T
