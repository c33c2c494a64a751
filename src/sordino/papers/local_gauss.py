"""Local Gaussian (Wang and Xu 2020), a rival of Shang et al.: every record sends its own noisy matrix."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from dp_accounting import dp_event as dp

from sordino.kernel import (
    Curator,
    Full,
    NoiseSource,
    Norm,
    Plan,
    Printed,
    Relation,
    Release,
    SymmetricGaussian,
)
from sordino.kernel.mechanism import Additive
from sordino.problems.covariance import GramMatrix, PcaProblem
from sordino.solvers.pca.gauss import Gauss, principal_of
from sordino.solvers.pca.locate import locate, noise_std
from sordino.solvers.pca.options import PcaOptions
from sordino.solvers.pca.spectrum import Principal


@dataclass(frozen=True)
class SumOfLocalNoise(Printed, Additive):
    """The sum of n symmetric Gaussian matrices, one per record, each with the scale of this mechanism.

    **Privacy.** The event is that of *one* message ``x x^T + noise``, which holds against everybody who reads
    it: the local model. The sum, which is all that is computed here, hides a record sqrt(n) times better.
    """

    printed: ClassVar[str] = "local Gaussian, one noisy matrix a record"
    norms: ClassVar[tuple[Norm, ...]] = (Norm.L2,)
    population: int = 1

    def event(self, relation: Relation) -> dp.DpEvent:
        """Return the event of one message."""
        return SymmetricGaussian(self.multiplier).event(relation)

    def rho(self) -> float:
        """Return the cost of one message."""
        return SymmetricGaussian(self.multiplier).rho()

    def privatise(self, value: Any, sensitivity: float, noise: NoiseSource) -> Any:
        """Add the noise of all messages."""
        all_of_them = math.sqrt(self.population) * sensitivity
        return SymmetricGaussian(self.multiplier).privatise(value, all_of_them, noise)


@dataclass(frozen=True)
class LocalGauss:
    """Eigenvectors of the mean of all messages; runs only with ``noise="paper"``."""

    @classmethod
    def configured(cls, problem: PcaProblem, options: PcaOptions) -> LocalGauss:
        """Refuse a matrix that does not fit."""
        Gauss.configured(problem, options)
        return cls()

    def plan(self, problem: PcaProblem) -> Plan:
        """Declare the sum of the messages."""
        noise = SumOfLocalNoise(population=problem.population)
        return problem.planned(gram=Release(GramMatrix(problem.data_norm), noise, Full()))

    def run(self, curator: Curator, problem: PcaProblem) -> Iterator[Principal]:
        """Yield the axes."""
        place = locate(curator, problem, 0.0)
        matrix = curator.release("gram", place.ball)
        std = noise_std(curator, "gram", place.ball) / math.sqrt(problem.population)
        yield principal_of(matrix, std, place, problem)
