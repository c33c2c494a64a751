"""PCA from one noisy matrix (Gaussian, MOD-SuLQ, screened columns, chunks of a stream), and by iteration.

The power method, DP-SPCA, Oja and DP-VRPCA end with a Ritz step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sordino.errors import InvalidInputError
from sordino.kernel import Curator, Disjoint, Full, Plan, Release, Sampling
from sordino.kernel.arrays import Floats, Ints
from sordino.problems.covariance import (
    Ball,
    GramMatrix,
    GramProduct,
    GramTriangle,
    PcaProblem,
    RowMoments,
    SquaredColumns,
)
from sordino.solvers.base import Capabilities, Option, Options, noise_std
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


# --------------------- What the iterations share: products about the mean, and the variances that they tell

_FOLLOW = {"n_oversamples": Option(20, 0)}
BATCH = 10  # a mini-batch is this part of the records


def _count_directions(problem: PcaProblem, own: dict[str, Any]) -> int:
    """Return how many directions an iteration follows: more than wanted, so that it converges fast."""
    return min(problem.features, problem.components + own["n_oversamples"])


# Products are averaged over about the last sixth of them; how far off the trace is that a few random
# directions tell; how much of a standard deviation to state where later bases follow earlier noise.
LATE, DIRECTIONS, FOLLOWED = 6, 0.1, 1.5


@dataclass(frozen=True)
class Products:
    """Released products with clipped rows: by what they are too short, and in which unit to step.

    Parameters
    ----------
    place : where rows are measured.
    problem : what is public.
    factor, moved, hides : see :meth:`Location.undo_clip`.
    unit : one over the unit of a step, the largest singular value of a product so far: the leading eigenvalue
        where the data speak and the size of the noise where they do not. The same step is short against
        noise and does not vanish without it, whatever the scale of the rows. In a paper's plan, which
        releases no mean, it is the squared radius.
    """

    place: Location
    problem: PcaProblem
    factor: float = 1.0
    moved: float = 0.0
    hides: float = 0.0
    unit: float = 0.0

    def first(self, basis: Floats, answer: Floats, std: float) -> Products:
        """Return the products after the first one, of a random basis: it tells the trace."""
        d, p = basis.shape
        inner = basis.T @ answer
        trace = d / p * float(np.trace(inner))
        squares = (d / p) ** 2 * (float(np.square(inner).sum()) - (p * std) ** 2) - trace**2 / p
        missed = math.sqrt(2 * max(squares, 0.0) * (1 / p - 1 / d))  # the more, the fewer axes there are
        off = math.hypot(d / math.sqrt(p) * std, max(DIRECTIONS * trace, missed))
        factor, moved, hides = self.place.undo_clip(trace, off, self.problem)
        return replace(self, factor=factor, moved=moved, hides=hides)

    def about(self, basis: Floats, answer: Floats) -> Floats:
        """Return the product with rows of full length, about the mean or about zero."""
        answer = self.factor * answer
        return answer if self.problem.center else self.place.with_mean(answer, basis)

    def after(self, answer: Floats) -> Products:
        """Return the products with the unit once this one, about the mean, is released."""
        if self.place.total is None:
            return replace(self, unit=self.place.ball.radius**2)
        return replace(self, unit=max(self.unit, self.factor * float(np.linalg.norm(answer, 2)), 1e-300))

    def principal(self, inner: Floats, axes: Floats, std: float) -> Principal:
        """Return the axes (columns, the strongest first) with the variances ``inner = V^T (A V + N)``.

        The noise N of an answer, of standard deviation ``std``, is independent of the basis V that was
        asked, so ``inner`` is unbiased; made symmetric, its noise is that of a small matrix.
        """
        k, place, std = self.problem.components, self.place, self.factor * std
        noisy = np.asarray(np.linalg.eigvalsh((inner + inner.T) / 2)[::-1], dtype=np.float64)
        variances, doubt = place.real(*spectrum.captured_variance(noisy, std, k))
        doubt = spectrum.share(np.hypot(FOLLOWED * doubt, self.moved * variances), self.problem.features)
        total = max(place.total or float(variances.sum()), 1e-300)
        variances = spectrum.fill(variances, total, self.problem.features)
        rows = spectrum.fix_signs(np.ascontiguousarray(axes[:, :k].T))
        edge, stated = spectrum.strength(std, len(inner)), np.hypot(doubt, self.hides)
        return Principal(rows, variances, noisy[:k], std, doubt, edge, total, place.mean, place.stray, stated)


def begin(curator: Curator, problem: PcaProblem, name: str, columns: int) -> tuple[Floats, Products, float]:
    """Return the first basis, the products of a release about the mean, and the noise in one of them."""
    place = spectrum.locate(curator, problem, noise_level(curator, name, problem, columns))
    basis, rows = problem.start(columns), curator.plan.releases[name].sampling.expected(problem.population)
    return basis, Products(place, problem), noise_std(curator, name, (basis, place.ball)) / rows


@dataclass(frozen=True)
class Averaged:
    """A running mean of ``V_t^T (A V_t + N_t)``, turned with the basis, and the variance of its noise."""

    value: Floats
    variance: float = 0.0

    def add(self, t: int, inner: Floats, std: float) -> Averaged:
        """Return the mean with one more; newer ones weigh more, as the basis was still moving."""
        weight = LATE / (t + LATE)
        value = self.value + weight * (inner - self.value)
        return Averaged(value, (1 - weight) ** 2 * self.variance + (weight * std) ** 2)

    def rotate(self, old: Floats, new: Floats) -> Averaged:
        """Return the mean in the coordinates of the new basis."""
        turn = spectrum.polar(old.T @ new)
        return replace(self, value=turn.T @ self.value @ turn)


# ----------------------------- The noisy power method: products with a few directions, never a d x d matrix

# With noise each step takes a share of the budget, and products are added up against it; without any, a step
# costs only time, and adding up earlier products would only hold it back.
STEPS, STEPS_WITHOUT_NOISE = 5, 20


@dataclass(frozen=True)
class Power:
    r"""``V <- orth(A V + noise + momentum * previous products)``, ``steps`` times, p > k columns.

    It is a randomised range finder with power iterations: one pass over the data per step, d x p
    numbers in memory. Earlier products, turned into the present basis, are added with weight
    ``momentum``: they are released already, so this averages their noise away for free.

    **Privacy.** ``steps`` Gaussian releases of ``X^T X V``: a record moves it by at most its squared norm,
    whatever the number of columns.

    References: Hardt and Roth 2013, Hardt and Price 2014. Departure: noise for whole records; theirs,
    which protects a single entry, is ``noise="paper"``.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="products with a few directions",
        reads=("max_iter",),
        options={**_FOLLOW, "momentum": Option(None, "[0, 1]")},
        paper="noisy power method",
        page="../pca",
    )

    columns: int
    steps: int
    momentum: float = 1.0

    @classmethod
    def configure(cls, problem: PcaProblem, options: Options) -> Power:
        noisy = math.isfinite(problem.epsilon)
        own = options.read(cls.capabilities, momentum=float(noisy))
        steps = options.steps(STEPS if noisy else STEPS_WITHOUT_NOISE)
        return cls(_count_directions(problem, own), steps, own["momentum"])

    def plan(self, problem: PcaProblem) -> Plan:
        noise = problem.gaussian(spectrum.weight_of_rest(problem, self.steps, last=True))
        product = Release(self.query(problem), noise, Full(), self.steps)
        return problem.planned(
            **spectrum.moments_release(problem), product=product, **spectrum.spectrum_release(problem)
        )

    def query(self, problem: PcaProblem) -> GramProduct:
        return GramProduct(problem.data_norm)

    def run(self, curator: Curator, problem: PcaProblem) -> Iterator[Principal]:
        basis, products, std = begin(curator, problem, "product", self.columns)
        place, memory = products.place, np.zeros_like(basis)
        for t in range(self.steps):
            answer = curator.release("product", (basis, place.ball))
            products = products.first(basis, answer, std) if t == 0 else products
            answer = products.about(basis, answer)
            memory = self.momentum * memory + answer
            turned = spectrum.fix_signs(np.linalg.svd(memory, full_matrices=False)[0].T).T
            found = products.principal(basis.T @ answer, turned, std)
            yield found if t + 1 < self.steps else spectrum.measure(curator, problem, found, place)
            memory, basis = memory @ (basis.T @ turned), turned


# ---------------------------------------------------------------------- DP-SPCA: Oja's rule on mini-batches

# In units of :class:`Products`; divided by the number of the step.
EPOCHS, STEP = 4, 5.0


@dataclass(frozen=True)
class Spca:
    r"""``V <- orth(V + step / t (batch sum of x x^T V / expected batch size + noise))``.

    The decaying step averages the noise of the batches.

    **Privacy.** ``steps`` Poisson-sampled Gaussian releases; under replace-one a record counts twice.

    References: Shang et al. (DP-SPCA). Departures: Poisson batches instead of one record (amplification
    is accounted, not assumed); rows clipped in code; the step does not depend on the data.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="products of mini-batches",
        reads=("max_iter", "batch_size", "step_size"),
        options=_FOLLOW,
        paper="DP-SPCA",
        page="../pca",
    )

    columns: int
    steps: int
    step: float
    sampling: Sampling
    decay: bool = True

    @classmethod
    def configure(cls, problem: PcaProblem, options: Options) -> Spca:
        sampling = problem.minibatches(options.batch(problem, BATCH))
        step, own = options.step_size or STEP, options.read(cls.capabilities)
        return cls(_count_directions(problem, own), options.passes(EPOCHS, problem, BATCH), step, sampling)

    def plan(self, problem: PcaProblem) -> Plan:
        query = GramProduct(problem.data_norm)
        batch = Release(query, problem.gaussian(), self.sampling, self.steps)
        return problem.planned(**spectrum.moments_release(problem), batch=batch)

    def run(self, curator: Curator, problem: PcaProblem) -> Iterator[Principal]:
        basis, products, std = begin(curator, problem, "batch", self.columns)
        inner = Averaged(np.zeros((self.columns, self.columns)))
        for t in range(self.steps):
            answer = curator.release("batch", (basis, products.place.ball))
            products = products.first(basis, answer, std) if t == 0 else products
            products, answer = products.after(answer), products.about(basis, answer)
            inner = inner.add(t, basis.T @ answer, std)
            step = (self.step / (t + 1) if self.decay else self.step) / products.unit
            moved = spectrum.polar(basis + step * answer)
            basis, inner = moved, inner.rotate(basis, moved)
            axes = spectrum.by_strength(basis, inner.value)
            yield products.principal(inner.value, axes, math.sqrt(inner.variance))


# -------------------- One private pass of Oja's rule: disjoint batches, each answered with the whole budget

# How many batches the records are cut into, and the step in units of :class:`Products`.
BATCHES, OJA_STEP = 5, 10.0


@dataclass(frozen=True)
class Oja(Spca):
    r"""``V <- orth(V + step / t (sum of x x^T V over batch t / its size + noise))``, a record in one batch.

    The batches compose in parallel, so each is answered with all of the budget that the mean leaves; but it
    is small, so its noise is T times that of all records, where a step of :class:`Power` pays sqrt T.

    **Privacy.** One release of the mean and squared norm, then ``steps`` Gaussian releases of disjoint
    batches. Which batch a record is in is public: it is fixed by its position.

    References: Liu, Kong, Jain, Oh 2022 (DP-Oja), Duengler, Sanyal 2025 (several axes). Departures: rows are
    clipped in code, at a radius from a release where theirs follows from the law of the rows.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="one product of each of a few disjoint batches",
        reads=("max_iter", "step_size"),
        options=_FOLLOW,
        paper="DP-Oja",
        page="../pca",
    )

    @classmethod
    def configure(cls, problem: PcaProblem, options: Options) -> Oja:
        steps = min(options.steps(BATCHES), problem.population)
        step, own = options.step_size or OJA_STEP, options.read(cls.capabilities)
        return cls(_count_directions(problem, own), steps, step, Disjoint(steps))

    def plan(self, problem: PcaProblem) -> Plan:
        noise = problem.gaussian(spectrum.weight_of_rest(problem))
        batch = Release(GramProduct(problem.data_norm), noise, self.sampling, self.steps)
        return problem.planned(**spectrum.moments_release(problem), batch=batch)


# -------------------------------------------- DP-VRPCA: variance reduction with a snapshot that is paid for

# The step is in units of :class:`Products`, divided by the number of the epoch.
VRPCA_EPOCHS, INNER, VRPCA_STEP = 4, 3, 1.0


@dataclass(frozen=True)
class Vrpca:
    r"""Per epoch a noisy snapshot ``G = A V~``, then ``V <- orth(V + step (G + batch of x x^T (V - V~)))``.

    The correction's noise shrinks with ``||V - V~||_op``: that is what variance reduction is worth under
    privacy.

    **Privacy.** ``epochs`` Gaussian releases of the snapshot and ``epochs * inner`` Poisson-sampled ones
    of the correction, whose bound is computed from released bases and enforced by clipping rows.

    References: Shang et al. (DP-VRPCA). Departures: the paper's snapshot is exact and unpaid, and its
    noise ignores the correction: see ``noise="paper"``.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="snapshots on all records, corrections of mini-batches",
        reads=("max_iter", "batch_size", "step_size"),
        options=_FOLLOW,
        paper="DP-VRPCA",
        page="../pca",
    )

    columns: int
    epochs: int
    inner: int
    step: float
    sampling: Sampling
    correction: float = 0.3

    @classmethod
    def configure(cls, problem: PcaProblem, options: Options) -> Vrpca:
        sampling = problem.minibatches(options.batch(problem, BATCH))
        step, own = options.step_size or VRPCA_STEP, options.read(cls.capabilities)
        return cls(_count_directions(problem, own), options.steps(VRPCA_EPOCHS), INNER, step, sampling)

    def plan(self, problem: PcaProblem) -> Plan:
        query = GramProduct(problem.data_norm)
        noise = problem.gaussian(spectrum.weight_of_rest(problem, self.epochs))
        snapshot = Release(query, noise, Full(), self.epochs)
        releases = {**spectrum.moments_release(problem), "snapshot": snapshot}
        if self._corrections:
            small = problem.gaussian(self.correction * math.sqrt(self._corrections))
            releases["correction"] = Release(query, small, self.sampling, self._corrections)
        return problem.planned(**releases)

    @property
    def _corrections(self) -> int:
        return (self.epochs - 1) * (self.inner - 1)

    def run(self, curator: Curator, problem: PcaProblem) -> Iterator[Principal]:
        basis, products, std = begin(curator, problem, "snapshot", self.columns)
        ball = products.place.ball
        for epoch in range(self.epochs):
            anchor = basis
            answer = curator.release("snapshot", (anchor, ball))
            products = products if epoch else products.first(anchor, answer, std)
            products, answer = products.after(answer), products.about(anchor, answer)
            inner = Averaged(anchor.T @ answer)
            for t in range(self.inner if epoch else 1):
                v = answer
                if t > 0:  # the first correction is zero by definition, so it is not released at all
                    drift = curator.release("correction", (basis - anchor, ball))
                    v = answer + products.about(basis - anchor, drift)
                # From a random basis the first snapshot is all that is known: a whole power step.
                moved = spectrum.polar(basis + self.step / epoch / products.unit * v if epoch else answer)
                basis, inner = moved, inner.rotate(basis, moved)
                yield products.principal(inner.value, spectrum.by_strength(basis, inner.value), std)
