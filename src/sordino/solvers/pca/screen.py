"""Screening: find the columns that matter first, then release their matrix only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from sordino.kernel import Curator, Full, Plan, Release
from sordino.kernel.arrays import Floats, Ints
from sordino.problems.covariance import Ball, GramMatrix, PcaProblem, RowMoments, SquaredColumns
from sordino.solvers.pca.gauss import principal_of
from sordino.solvers.pca.locate import location_from, noise_std, spectrum_release, spectrum_share
from sordino.solvers.pca.measured import measured
from sordino.solvers.pca.options import PcaOptions
from sordino.solvers.pca.spectrum import Principal

# The shares of the squared budget for the choice of columns and for their mean; how many standard deviations
# a column has to stand out (ten of 100,000 empty columns do by chance); the most columns of a matrix.
COLUMNS_SHARE, MEAN_SHARE, CLEAR, MOST = 0.25, 0.1, 3.7, 3000


@dataclass(frozen=True)
class Screen:
    r"""Keep the columns with large noisy squares, then :class:`Gauss` on them; other entries are zero.

    In text a few of 100,000 columns carry the leading axes. The noise of a matrix grows with the root
    of its size, so dropping the others costs little variance and most of the noise.

    **Privacy.** Three Gaussian releases: the squares of all columns, then the mean and the matrix of the
    kept ones. Which columns are kept is post-processing of the first.

    References: diagonal thresholding, Johnstone and Lu 2009.
    """

    most: int = MOST

    @classmethod
    def configured(cls, problem: PcaProblem, options: PcaOptions) -> Screen:
        """There is nothing to fill in."""
        return cls()

    def plan(self, problem: PcaProblem) -> Plan:
        """Declare the squares, the mean and the matrix."""
        norm, rest = problem.data_norm, 1 - COLUMNS_SHARE - MEAN_SHARE - spectrum_share(problem)
        return problem.planned(
            squares=Release(SquaredColumns(norm), problem.gaussian(COLUMNS_SHARE**-0.5), Full()),
            moments=Release(RowMoments(norm), problem.gaussian(MEAN_SHARE**-0.5), Full()),
            gram=Release(GramMatrix(norm), problem.symmetric(rest**-0.5), Full()),
            **spectrum_release(problem),
        )

    def run(self, curator: Curator, problem: PcaProblem) -> Iterator[Principal]:
        """Yield the axes."""
        n, norm = problem.population, problem.data_norm
        squares = curator.release("squares")
        columns = self._chosen(squares, noise_std(curator, "squares") / n, 2 * problem.components)
        small = replace(problem, features=columns.size, components=min(problem.components, columns.size))
        answer, kept = curator.release("moments", Ball(norm, None, columns)), float(squares[columns].sum())
        whole = RowMoments(norm).read(answer)[1]
        answer[-1] *= kept / whole if whole > 0 else 0.0  # the spread of the kept columns alone
        level = (curator.plan.releases["gram"].mechanism.multiplier or 0.0) * 2 * math.sqrt(columns.size) / n
        place = location_from(small, answer, noise_std(curator, "moments") / n, level)
        ball = replace(place.ball, columns=columns)
        found = principal_of(
            curator.release("gram", ball), noise_std(curator, "gram", ball) / n, place, small
        )
        found = measured(curator, small, found, columns)
        yield widened(found, columns, problem, max(whole - kept, 0.0) + found.total)

    def _chosen(self, squares: Floats, std: float, least: int) -> Ints:
        """Return the columns that stand out of the noise, in order."""
        order = np.argsort(-squares)[: min(self.most, squares.size)]
        if std > 0:
            order = order[: max(least, int((squares[order] > CLEAR * std).sum()))]
        return np.sort(order)


def widened(found: Principal, columns: Ints, problem: PcaProblem, total: float) -> Principal:
    """Put the axes and the mean of some columns among zeros."""
    axes = np.zeros((len(found.axes), problem.features))
    axes[:, columns] = found.axes
    mean = np.zeros(problem.features)
    mean[columns] = found.mean
    return replace(found, axes=axes, mean=mean, total=total)
