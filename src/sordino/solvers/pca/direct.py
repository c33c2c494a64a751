"""PCA from one noisy matrix: Gaussian, MOD-SuLQ, screened columns, and chunks of a stream."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from sordino.errors import InvalidInputError
from sordino.kernel import Curator, Disjoint, Full, Plan, Release
from sordino.kernel.arrays import Floats, Ints
from sordino.problems.covariance import Ball, GramMatrix, GramTriangle, PcaProblem, RowMoments, SquaredColumns
from sordino.solvers.base import Capabilities, Options, noise_std
from sordino.solvers.pca import spectrum
from sordino.solvers.pca.spectrum import Location, Principal, noise_level

# ---------------------------------------- Analyze-Gauss: the whole second moment once, with symmetric noise


@dataclass(frozen=True)
class Gauss:
    r"""Eigenvectors of ``sum (x_i - m)(x_i - m)^T / n + noise``, rows clipped about the released mean m.

    **Privacy.** One Gaussian release of the mean, one of the matrix with noise of the Gaussian orthogonal
    ensemble (half the off-diagonal variance of independent entries), one of the variances along the axes.

    References: Dwork et al. 2014. Departures: symmetric noise; rows are measured from the released mean
    and clipped at their released spread, which makes the second release sharper.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="the second moments, once", reads=(), paper="Analyze Gauss", page="../pca"
    )
    asked: ClassVar[str] = "gram"

    @classmethod
    def configure(cls, problem: PcaProblem, options: Options) -> Gauss:
        if not spectrum.fits_matrix(problem.features):
            raise InvalidInputError(
                f"Expected at most 3952 features for solver 'gauss' (500 MB of matrices), got "
                f"{problem.features}. Use solver='power'."
            )
        return cls()

    def plan(self, problem: PcaProblem) -> Plan:
        matrix = {self.asked: self._matrix_release(problem)}
        return problem.planned(
            **spectrum.moments_release(problem), **matrix, **spectrum.spectrum_release(problem)
        )

    def _matrix_release(self, problem: PcaProblem) -> Release:
        noise = problem.symmetric(spectrum.weight_of_rest(problem, last=True))
        return Release(GramMatrix(problem.data_norm), noise, Full())

    def run(self, curator: Curator, problem: PcaProblem) -> Iterator[Principal]:
        place = spectrum.locate(curator, problem, noise_level(curator, self.asked, problem, problem.features))
        answer = curator.release(self.asked, place.ball)
        std = noise_std(curator, self.asked, place.ball) / problem.population
        matrix, std = self._read(answer, std, problem.features)
        found = principal_of(matrix, std, place, spectrum.with_more_axes(problem))
        yield spectrum.measure(curator, problem, found, place)

    def _read(self, answer: Floats, std: float, features: int) -> tuple[Floats, float]:
        """Return the noisy matrix and the standard deviation of its diagonal, as symmetric noise has it."""
        return answer, std


def principal_of(matrix: Floats, std: float, place: Location, problem: PcaProblem) -> Principal:
    """Return the axes of a noisy second moment about ``place.mean``; ``std`` is that of its diagonal."""
    d, k = problem.features, problem.components
    factor, moved, hides = place.undo_clip(float(np.trace(matrix)), std * math.sqrt(d), problem)
    matrix, std = factor * matrix, factor * std
    if not problem.center:
        matrix = place.with_mean(matrix)
    noisy, axes = spectrum.decompose(matrix, k)
    total = float(np.trace(matrix)) if place.total is None else place.total
    variances, doubt = place.real(*spectrum.captured_variance(noisy, std, k))
    doubt, total = np.hypot(doubt, moved * variances), max(total, 1e-300)
    if not problem.center:  # the error of the mean counts along it
        doubt = np.hypot(doubt, 2.0 * np.abs(axes @ place.mean) * math.sqrt(place.stray / d))
    variances, doubt = spectrum.fill(variances, total, d), spectrum.share(doubt, d)
    edge, stated = spectrum.strength(std, d), np.hypot(doubt, hides)
    return Principal(axes, variances, noisy[:k], std, doubt, edge, total, place.mean, place.stray, stated)


@dataclass(frozen=True)
class ModSulq(Gauss):
    r"""Eigenvectors of ``A`` plus a symmetric matrix with independent N(0, s^2) on and above the diagonal.

    **Privacy.** One Gaussian release of the upper triangle. It has the sensitivity of the whole matrix
    (attained at a unit vector) and twice the off-diagonal noise of ``gauss``: kept for comparison.

    References: Chaudhuri et al. 2012; ``noise="paper"`` runs their formula, hundreds of times too large.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="the second moments, with independent noise", reads=(), paper="MOD-SuLQ", page="../pca"
    )
    asked: ClassVar[str] = "triangle"

    def _matrix_release(self, problem: PcaProblem) -> Release:
        noise = problem.gaussian(spectrum.weight_of_rest(problem, last=True))
        return Release(GramTriangle(problem.data_norm), noise, Full())

    def _read(self, answer: Floats, std: float, features: int) -> tuple[Floats, float]:
        out = np.zeros((features, features))
        out[np.triu_indices(features)] = answer
        return out + np.triu(out, 1).T, std * np.sqrt(2)


# ---------------------------- Screening: find the columns that matter first, then release their matrix only

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

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="squares of columns, then second moments of some", reads=(), paper="screening", page="../pca"
    )

    most: int = MOST

    @classmethod
    def configure(cls, problem: PcaProblem, options: Options) -> Screen:
        return cls()

    def plan(self, problem: PcaProblem) -> Plan:
        norm, rest = problem.data_norm, 1 - COLUMNS_SHARE - MEAN_SHARE - spectrum.spectrum_share(problem)
        return problem.planned(
            squares=Release(SquaredColumns(norm), problem.gaussian(COLUMNS_SHARE**-0.5), Full()),
            moments=Release(RowMoments(norm), problem.gaussian(MEAN_SHARE**-0.5), Full()),
            gram=Release(GramMatrix(norm), problem.symmetric(rest**-0.5), Full()),
            **spectrum.spectrum_release(problem),
        )

    def run(self, curator: Curator, problem: PcaProblem) -> Iterator[Principal]:
        n, norm = problem.population, problem.data_norm
        squares = curator.release("squares")
        order, std = np.argsort(-squares)[: self.most], noise_std(curator, "squares") / n
        if std > 0:  # columns that stand out of the noise
            order = order[: max(2 * problem.components, int((squares[order] > CLEAR * std).sum()))]
        columns = np.sort(order)
        small = replace(problem, features=columns.size, components=min(problem.components, columns.size))
        answer, kept = curator.release("moments", Ball(norm, None, columns)), float(squares[columns].sum())
        whole = RowMoments(norm).read(answer)[1]
        answer[-1] *= kept / whole if whole > 0 else 0.0  # the spread of the kept columns alone
        level = (curator.plan.releases["gram"].mechanism.multiplier or 0.0) * 2 * math.sqrt(columns.size) / n
        place = spectrum.location_from(small, answer, noise_std(curator, "moments") / n, level)
        ball = replace(place.ball, columns=columns)
        std, wide = noise_std(curator, "gram", ball) / n, spectrum.with_more_axes(small)
        found = principal_of(curator.release("gram", ball), std, place, wide)
        found = spectrum.measure(curator, small, found, place, columns)
        yield widen(found, columns, problem, max(whole - kept, 0.0) + found.total)


def widen(found: Principal, columns: Ints, problem: PcaProblem, total: float) -> Principal:
    """Put the axes and the mean of some columns among zeros."""
    axes = np.zeros((len(found.axes), problem.features))
    axes[:, columns] = found.axes
    mean = np.zeros(problem.features)
    mean[columns] = found.mean
    return replace(found, axes=axes, mean=mean, total=total)


# ------------------ PCA of a stream: each chunk is released once, with the whole budget, and then forgotten


@dataclass(frozen=True)
class Pooled:
    """Released sums over the chunks so far; all of it is public.

    ``moments`` sums ``(x, w ||x||^2 / R)``, ``matrix`` sums ``x x^T``, each with the variance of its noise;
    ``radius`` is the least at which rows were clipped.
    """

    count: int
    moments: Floats
    matrix: Floats
    moments_variance: float = 0.0
    matrix_variance: float = 0.0
    radius: float = math.inf

    @classmethod
    def empty(cls, features: int) -> Pooled:
        return cls(0, np.zeros(features + 1), np.zeros((features, features)))


@dataclass(frozen=True)
class StreamGauss:
    """The matrix of :class:`Gauss`, chunk by chunk.

    **Privacy.** A record is in one chunk, so ``parts`` releases of disjoint chunks cost as much as one.
    """

    parts: int

    @classmethod
    def configure(cls, problem: PcaProblem, parts: int) -> StreamGauss:
        Gauss.configure(problem, Options())
        return cls(parts)

    def plan(self, problem: PcaProblem) -> Plan:
        chunks, norm = Disjoint(self.parts), problem.data_norm
        noise = problem.gaussian(1 / math.sqrt(spectrum.SHARE + spectrum.AGAIN))
        moments = Release(RowMoments(norm), noise, chunks, self.parts, mean=False)
        matrix_noise = problem.symmetric(spectrum.weight_of_rest(problem))
        gram = Release(GramMatrix(norm), matrix_noise, chunks, self.parts, mean=False)
        return problem.planned(moments=moments, gram=gram)

    def absorb(self, curator: Curator, problem: PcaProblem, pooled: Pooled, size: int) -> Pooled:
        r"""Release the next chunk, of a public size, and add it to what is known.

        The chunk is measured from the mean c of all chunks up to it, which is sharper than its own mean m;
        ``sum x x^T = sum (x-c)(x-c)^T + n (c m^T + m c^T - c c^T)`` puts it back.
        """
        own = curator.release("moments")
        pooled = replace(
            pooled,
            count=pooled.count + size,
            moments=pooled.moments + own,
            moments_variance=pooled.moments_variance + noise_std(curator, "moments") ** 2,
        )
        multiplier = curator.plan.releases["gram"].mechanism.multiplier or 0.0
        level = multiplier * 2 * math.sqrt(problem.features) / size
        std = math.sqrt(pooled.moments_variance) / pooled.count
        place = spectrum.location_from(problem, pooled.moments / pooled.count, std, level)
        c, m = place.mean, own[:-1]
        shift = np.outer(c, m) + np.outer(m, c) - size * np.outer(c, c)
        return replace(
            pooled,
            matrix=pooled.matrix + curator.release("gram", place.ball) + shift,
            matrix_variance=pooled.matrix_variance + noise_std(curator, "gram", place.ball) ** 2,
            radius=min(pooled.radius, place.ball.radius),
        )

    def principal(self, pooled: Pooled, problem: PcaProblem) -> Principal:
        n, mean = pooled.count, pooled.moments[:-1] / pooled.count
        std = math.sqrt(pooled.moments_variance) / n
        place = spectrum.location_from(problem, pooled.moments / n, std, 0.0)
        place = replace(place, ball=replace(place.ball, radius=min(place.ball.radius, pooled.radius)))
        # The same noise is in the mean and in the matrix: taking the mean out takes most of it out.
        matrix = pooled.matrix / n - np.outer(mean, mean)
        return principal_of(matrix, math.sqrt(pooled.matrix_variance) / n, place, problem)
