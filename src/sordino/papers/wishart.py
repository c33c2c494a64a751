"""Wishart noise: published as pure DP, it is not private at all. A benchmark only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from sordino.kernel import Curator, Full, NoiseSource, Plan, Release
from sordino.papers.uncertified import Uncertified
from sordino.problems.covariance import GramMatrix, PcaProblem
from sordino.solvers.pca.gauss import Gauss, principal_of
from sordino.solvers.pca.locate import locate
from sordino.solvers.pca.options import PcaOptions
from sordino.solvers.pca.spectrum import Principal


@dataclass(frozen=True)
class WishartNotPrivate(Uncertified):
    r"""Adds ``c G G^T`` with a d x (d + 1) Gaussian ``G`` and ``c = multiplier * sensitivity``.

    The noise is positive definite, so an answer M rules out every data set with a direction in which
    M is below its Gram matrix: see :func:`distinguishing_probability`. Its event is "not private".

    References: Jiang, Xie, Zhang 2016, who claim pure DP.
    """

    printed: ClassVar[str] = "Wishart noise"

    def privatise(self, value: Any, sensitivity: float, noise: NoiseSource) -> Any:
        """Add the positive definite noise."""
        d = len(value)
        block = noise.normal((d, d + 1))
        return value + self.scale(sensitivity) * (block @ block.T)


def distinguishing_probability(epsilon: float) -> float:
    r"""Return ``1 - exp(-epsilon / 3)``: how often the noise shows which of two neighbours it hides.

    Let A' hold one record x more than A. Under A' the answer M satisfies ``M >= A'`` always; under A it
    fails to when ``c / (x^T (G G^T)^-1 x) < 1``, and that is ``c chi^2_2 < 1``, ``c = 3 / (2 epsilon)``,
    for every d and n. An event of probability p under A and 0 under A' means delta >= p for every epsilon.
    """
    return -math.expm1(-epsilon / 3)


@dataclass(frozen=True)
class Wishart:
    """Eigenvectors of ``A + W``; never private, runs only with ``noise="paper"``."""

    @classmethod
    def configured(cls, problem: PcaProblem, options: PcaOptions) -> Wishart:
        """Refuse a matrix that does not fit."""
        Gauss.configured(problem, options)
        return cls()

    def plan(self, problem: PcaProblem) -> Plan:
        """Declare the matrix."""
        release = Release(GramMatrix(problem.data_norm), WishartNotPrivate(), Full())
        return problem.planned(gram=release)

    def run(self, curator: Curator, problem: PcaProblem) -> Iterator[Principal]:
        """Yield the axes."""
        place = locate(curator, problem, 0.0)
        matrix = curator.release("gram", place.ball)
        yield principal_of(matrix, 0.0, place, problem)
