"""From noisy eigenvalues to private variances: free post-processing with a known noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import optimize
from scipy.linalg import eigh, eigvalsh

from sordino.kernel import Curator, Full, Release
from sordino.kernel.arrays import Floats, Ints
from sordino.problems.covariance import AxisSquares, Ball, PcaProblem, RowMoments
from sordino.solvers.base import noise_std

# Two eigenvalues closer than this part of the noise are pushed apart as if they were as far as that.
CLOSE = 0.2


@dataclass(frozen=True)
class Principal:
    """Released axes (rows, the strongest first) and what is known about their variances.

    Parameters
    ----------
    axes : orthonormal rows.
    variances : the variance that each axis captures, with the known noise taken out.
    noisy : the eigenvalues before that.
    noise : the standard deviation of the noise in one eigenvalue.
    doubt : the standard deviation of each of the variances: noise, and what clipping usually moves.
    edge : the largest eigenvalue that the noise alone would show.
    total : the total variance.
    mean : the released mean, zero when nothing was released.
    stray : the expected squared distance of that mean from the true one: variances about it hold it too.
    stated : ``doubt``, and what clipping may have hidden of each axis whatever the law of the rows.
    """

    axes: Floats
    variances: Floats
    noisy: Floats
    noise: float
    doubt: Floats
    edge: float
    total: float
    mean: Floats
    stray: float = 0.0
    stated: Floats | float = 0.0

    def to_dense(self) -> Floats:
        """Return all numbers of the result in one vector."""
        return np.concatenate([self.axes.ravel(), self.variances, self.mean])

    def attributes(self, problem: PcaProblem, count: int) -> dict[str, Any]:
        """Return what is known of the first ``count`` axes, under the names of scikit-learn's attributes."""
        n, d = problem.population, problem.features
        unbiased = n / (n - 1) if problem.center else 1.0
        variances = np.maximum(self.variances[:count] * unbiased, 1e-300)
        left = max(self.total - float(self.variances[:count].sum()), 0.0)
        return {
            "components": self.axes[:count],
            "mean": self.mean if problem.center else np.zeros(d),
            "explained_variance": variances,
            "explained_variance_ratio": self.variances[:count] / self.total,
            "singular_values": np.sqrt(variances * (n / unbiased)),
            "noise_variance": left * unbiased / (d - count) if count < d else 0.0,
            "total_variance": self.total * unbiased,
            "noisy_eigenvalues": self.noisy * unbiased,
            "eigenvalue_noise": np.maximum(self.doubt, self.stated) * unbiased,
            "noise_edge": self.edge * unbiased,
        }


def decompose(matrix: Floats, count: int) -> tuple[Floats, Floats]:
    """Return all eigenvalues of a symmetric matrix, the largest first, and ``count`` vectors as rows."""
    d = len(matrix)
    values, vectors = eigh(matrix, subset_by_index=(d - count, d - 1) if count < d else None)
    values = values if count == d else eigvalsh(matrix)
    return values[::-1], fix_signs(np.ascontiguousarray(vectors[:, ::-1].T))


def fix_signs(axes: Floats) -> Floats:
    """Make the largest entry of each axis positive, so that two equal subspaces look equal."""
    largest = axes[np.arange(len(axes)), np.argmax(np.abs(axes), axis=1)]
    return axes * np.where(largest < 0, -1.0, 1.0)[:, None]


def captured_variance(noisy: Floats, std: float, count: int) -> tuple[Floats, Floats]:
    r"""Return what the first noisy eigenvectors really capture, and the standard deviation of that.

    ``y_i - s^2 sum_j (y_i - y_j) / ((y_i - y_j)^2 + s^2)`` over the whole noisy spectrum y, s the noise of a
    diagonal entry: the noise pushes an eigenvalue away from the others by half of that sum, and its
    eigenvector captures as much less. With one eigenvalue above a bulk of noise of edge e it is
    ``sqrt(y^2 - e^2)``. Summed over all axes it is the trace, so nothing is overstated.

    References: Bun, Bouchaud, Potters 2016 (the rotationally invariant estimator for additive noise).
    """
    y = noisy[:count]
    if std == 0:
        return np.maximum(y, 0.0), np.zeros(count)
    gaps = y[:, None] - noisy[None, :]
    push = std**2 * (gaps / (np.square(gaps) + (CLOSE * std) ** 2)).sum(axis=1)
    captured = optimize.isotonic_regression(y - push, increasing=False).x
    near = np.square(gaps) + std**2
    slope = 1.0 + std**2 * ((np.square(gaps) - std**2) / np.square(near)).sum(axis=1)
    doubt = std * np.maximum(slope, 1.0)
    # What is no larger than its doubt is noise that happened to be positive.
    return np.sqrt(np.maximum(np.square(captured) - np.square(doubt), 0.0)) * (captured > 0), doubt


def fill(variances: Floats, total: float, features: int) -> Floats:
    """Give axes that drown in noise the average of what is left: random directions capture that.

    Together they explain no more than the total.
    """
    variances = variances * min(1.0, total / max(float(variances.sum()), 1e-300))
    left = max(total - float(variances.sum()), 0.0) / features
    return np.maximum(variances, left)


def share(doubt: Floats, features: int) -> Floats:
    """Add to each deviation its part of all of them: what one axis lacks, :func:`fill` gives to others."""
    return np.hypot(doubt, doubt.sum() / features)


def choose_count(rule: float | str, principal: Principal, features: int) -> int:
    """Return how many axes to keep, from released values alone.

    A float is the share of the total variance, to within half the standard deviation of what was released and
    without axes that drown in noise, ``"gap"`` the largest drop between two variances that
    stand out of the noise, ``"broken-stick"`` the axes above the lengths of a randomly broken stick.
    """
    if rule == "gap":
        seen = _count_seen(principal)
        if seen < 2:
            return max(seen, 1)
        y = principal.noisy[: min(seen + 1, principal.noisy.size)]
        return int(np.argmax(y[:-1] - y[1:])) + 1
    ratio = principal.variances / principal.total
    if rule == "broken-stick":
        stick = np.cumsum(1 / np.arange(features, 0, -1.0))[::-1] / features
        below = np.flatnonzero(ratio <= stick[: ratio.size])
        return max(1, int(below[0]) if below.size else ratio.size)
    within = 0.5 * np.sqrt(np.cumsum(np.square(principal.doubt)))
    reached = np.cumsum(principal.variances) + within >= float(rule) * (1 - 1e-12) * principal.total
    fewest = int(np.argmax(reached)) + 1 if reached.any() else reached.size
    return max(1, min(fewest, _count_seen(principal)))


def _count_seen(principal: Principal) -> int:
    """Return how many eigenvalues stand out of the noise."""
    if principal.noise == 0:
        return int(principal.noisy.size)
    return int((principal.noisy > principal.edge + 3 * principal.noise).sum())


def by_strength(basis: Floats, inner: Floats) -> Floats:
    """Rotate a basis within its span so that ``inner = V^T A V`` is diagonal, the largest first."""
    return basis @ np.linalg.eigh((inner + inner.T) / 2)[1][:, ::-1]


def polar(block: Floats) -> Floats:
    """Return ``B (B^T B)^(-1/2)``: the orthonormal block nearest to B, so that small steps stay small."""
    left, _, right = np.linalg.svd(block, full_matrices=False)
    return left @ right


def strength(std: float, features: int) -> float:
    """Return the edge ``2 sqrt(d) std / sqrt 2`` of symmetric noise with ``std`` on the diagonal."""
    return std * math.sqrt(2 * features)


# ---------- Where the data lie and how far they spread: a cheap first release that makes all others sharper

# The parts of the squared privacy loss for the mean and the mean squared norm of whole rows, and for those of
# rows in a ball about that mean. Where rows lie far from zero for their spread, the error of the first mean
# is larger than all variances, and only the second one finds where they are.
SHARE, AGAIN = 0.11, 0.04
# Rows in the ball that lie so many times closer than its radius asks are measured in a smaller ball.
CLOSER = 1.5
# The part of it that the last question gets, of the variances of whole rows along the axes: less for fewer
# records, which it could tell nothing.
SPECTRUM_SHARE, SPECTRUM_RECORDS = 0.05, 2500.0
SPECTRUM_LEAST = 1e-6  # a smaller share tells nothing
# Rows are clipped a little below their root mean square distance s while the noise is strong, and later
# at ``s (LEVEL / level)^(1/6)``, where ``level`` is the spectral norm of the noise over the squared radius.
# At a radius f s the noise is ``level f^2``, and what clipping takes from rows with six moments is at most
# in proportion to ``f^-4``: their sum is least where f^6 is in proportion to one over the level.
LEVEL, SHORTEST, MOMENTS = 0.003, 0.85, 6
# Rows need no moments where longer ones cost noise of no more than this part of the total variance, over the
# root of the columns: many records leave no row clipped, and the axes are those of the plain second moment.
AFFORDED = 0.02
# Nothing is clipped where the variance of rows beyond the ball, by released totals, is large beside that of
# rows inside and beside the noise of unclipped rows: their product times this is less than its square. It may
# all be along one axis. Of 2, 4 and 8 chosen on rare axes and on columns that are normal, t(3), flags.
WORTH = 4.0
# That variance is clear beyond so many deviations of the noise in the total of whole rows: under a bound that
# is far too wide it is large by chance. Not chosen on any set, but as what noise does in one of 160 fits.
CLEAR = 2.5
# What clipping usually takes from the variances, and how unevenly it takes from the axes.
USUAL, UNEVEN = 0.2, 0.35


@dataclass(frozen=True)
class Location:
    """The released mean, the ball in which rows are measured, and the released total variance.

    ``total`` is None when nothing was released about it. ``stray`` is the expected squared distance of the
    released from the true mean: a second moment about the former shows that much along an axis of its own.
    ``heard`` is the standard deviation of the noise in the total of whole rows: below it, nothing is heard.
    ``whole`` is the mean of whole rows as it was released, with the standard deviation of each entry.
    """

    mean: Floats
    ball: Ball
    total: float | None
    stray: float = 0.0
    heard: float = 0.0
    whole: tuple[Floats, float] | None = None

    def undo_clip(self, trace: float, std: float, problem: PcaProblem) -> tuple[float, float, float]:
        """Return by what the variances were shortened with the rows, how far that is in doubt, what may hide.

        The released total over a noisy ``trace`` of the clipped rows is that factor, if all axes lost alike;
        they usually lose about as much, within ``UNEVEN`` of it. As far as the trace drowns, ``USUAL`` stands
        in. Rows of some laws lie along one axis alone, which then lost all that the trace lacks, known
        as far as the total is heard: two of the third number hold it.
        """
        if self.total is None or self.ball.radius >= _bound(problem, self.mean):
            return 1.0, 0.0, 0.0
        wanted = self.total - (0.0 if problem.center else float(self.mean @ self.mean))
        wanted = max(wanted, 1e-300)
        known = 1.0 / (1.0 + min(std / (USUAL * wanted), 1e9) ** 2)
        factor = min(max(wanted / trace, 1.0), 2.0) if trace > 0 else 2.0
        factor = known * factor + (1 - known) * (1 + USUAL)
        left = USUAL * math.sqrt(1 - known)  # the deviation of a value of which so much is known
        lost = max(wanted - trace, 0.0) / 2.0 + math.hypot(std, self.heard)
        return factor, UNEVEN * (factor - 1) + left, lost

    def real(self, variances: Floats, doubt: Floats) -> tuple[Floats, Floats]:
        """Return the variances without the stray one, and the doubt with it: any axis may have it.

        Where the mean strays half as far as rows vary, no axis is told from its error.
        """
        share = min(self.stray / max(float(variances.sum()), 1e-300), 1.0)
        share = max(share, min(2.0 * self.stray / (self.total or math.inf), 1.0) ** 2)
        return (1 - share) * variances, np.hypot(doubt, np.minimum(self.stray, variances))

    def with_mean(self, product: Floats, block: Floats | None = None) -> Floats:
        """Add ``m m^T`` (times a block) to a second moment about m: it becomes one about zero."""
        right = self.mean if block is None else self.mean @ block
        return product + np.outer(self.mean, right)


def moments_release(problem: PcaProblem) -> dict[str, Release]:
    """Return the first release of an adaptive plan, or nothing."""
    if not problem.adaptive:
        return {}
    whole, near = (problem.gaussian(1 / math.sqrt(share)) for share in (SHARE, AGAIN))
    return {
        "moments": Release(RowMoments(problem.data_norm, 1.0), whole, Full()),
        "again": Release(RowMoments(problem.data_norm), near, Full()),
    }


def weight_of_rest(problem: PcaProblem, times: int = 1, last: bool = False) -> float:
    """Return the relative noise of ``times`` releases that share what the mean (and the last one) leaves."""
    others = SHARE + AGAIN + (spectrum_share(problem) if last else 0.0)
    return math.sqrt(times / (1 - others if problem.adaptive else 1.0))


def spectrum_share(problem: PcaProblem) -> float:
    """Return the part of the last question, from public numbers."""
    share = SPECTRUM_SHARE * min(1.0, problem.population * problem.epsilon / SPECTRUM_RECORDS) ** 2
    return share if share > SPECTRUM_LEAST else 0.0


def spectrum_release(problem: PcaProblem) -> dict[str, Release]:
    """Return the last release of an adaptive plan, or nothing where its share would buy nothing."""
    share = spectrum_share(problem)
    if not problem.adaptive or not share > 0:
        return {}
    noise = problem.gaussian(1 / math.sqrt(share))
    return {"spectrum": Release(AxisSquares(problem.data_norm), noise, Full())}


def locate(curator: Curator, problem: PcaProblem, level: float) -> Location:
    r"""Release the mean m and the mean squared norm q; choose the ball from them, and look again inside it.

    The mean is shrunk by the positive-part James-Stein factor ``a`` for its known noise. With ``s`` the
    squared length of the true mean, rows are at mean squared distance ``q - a s`` from ``a m``: often far
    below the squared row bound, and clipping them there divides the noise of all later releases by as much.

    **Privacy.** Two releases; the rest is post-processing.
    """
    if not problem.adaptive:
        return Location(np.zeros(problem.features), Ball(problem.data_norm), None)
    std = noise_std(curator, "moments") / problem.population
    place = location_from(problem, curator.release("moments"), std, level, weight=1.0)
    std = noise_std(curator, "again", place.ball) / problem.population
    return location_near(problem, place, curator.release("again", place.ball), std, level)


def location_from(
    problem: PcaProblem, answer: Floats, std: float, level: float, weight: float = 0.5
) -> Location:
    """Return the location that a released mean of whole rows, with noise ``std`` on each entry, tells."""
    query = RowMoments(problem.data_norm, weight)
    whole, square = query.read(answer)
    mean, signal, shrink, moved = _shrink(whole, std)
    # Squares and the length of the mean are noisy, both in proportion to the declared bound.
    heard = min(math.hypot(query.square_noise(std), moved), problem.data_norm**2)
    total = max(square - (signal if problem.center else 0.0), 0.0)
    spread = max(square - shrink * signal, heard, 1e-12 * problem.data_norm**2)
    ball = Ball(_radius(problem, mean, spread, level), mean)
    stray = shrink * mean.size * std**2
    return Location(mean, ball, max(total, 1e-12 * problem.data_norm**2), stray, heard, (whole, std))


def location_near(problem: PcaProblem, first: Location, answer: Floats, std: float, level: float) -> Location:
    """Return the location that the moments of rows in the ball of a first one tell.

    Nothing says that the rows beyond that ball are few, so the total is theirs as far as it is heard.
    """
    query, ball = RowMoments(problem.data_norm), first.ball
    shift, square = query.read(answer, ball)
    _, signal, shrink, moved = _shrink(shift, std)
    own = shift.size * std**2
    kept = max(shrink, first.stray / (first.stray + own)) if own > 0 else 1.0  # of what the first one missed
    mean, noise = first.mean + kept * shift, math.hypot(query.square_noise(std, ball), moved)
    inside = max(square - signal, noise, 1e-12 * ball.radius**2)
    radius = _radius(problem, mean, CLOSER**2 * inside, level)
    near = replace(ball, radius=min(ball.radius, radius) if level > 0 else radius, center=mean)
    about = 0.0 if problem.center else float(mean @ mean)
    beyond = max((first.total or 0.0) - about - inside, 0.0)
    clear = beyond > CLEAR * first.heard
    beyond *= beyond**2 / max(beyond**2 + first.heard**2, 1e-300) * (clear or first.heard < inside)
    if clear and beyond**2 > WORTH * level * _bound(problem, mean) ** 2 * inside:
        near = replace(near, radius=_bound(problem, mean))
    return replace(first, mean=mean, ball=near, total=inside + beyond + about, stray=kept * own)


def _shrink(mean: Floats, std: float) -> tuple[Floats, float, float, float]:
    """Return a noisy mean, shrunk; the squared length of the true one; the factor; the length's deviation."""
    length = float(mean @ mean)
    signal = max(length - mean.size * std**2, 0.0)
    shrink = signal / length if length else 0.0
    return shrink * mean, signal, shrink, 2.0 * std * math.sqrt(signal)


def _bound(problem: PcaProblem, mean: Floats) -> float:
    """Return the largest distance of a clipped row from the mean."""
    return problem.data_norm + float(np.linalg.norm(mean))


def _radius(problem: PcaProblem, mean: Floats, spread: float, level: float) -> float:
    """Return how far a row may be from the mean, for a mean squared distance and a level of noise."""
    if level <= 0:
        return _bound(problem, mean)
    afforded = math.sqrt(AFFORDED / (math.sqrt(problem.features) * level))
    length = max(SHORTEST, (LEVEL / level) ** (1 / MOMENTS), afforded)
    return min(_bound(problem, mean), math.sqrt(spread) * length)


def noise_level(curator: Curator, name: str, problem: PcaProblem, columns: int) -> float:
    """Return the size of the noise in a mean of unit rows: that of a d x columns Gaussian block."""
    release = curator.plan.releases[name]
    multiplier = (release.mechanism.multiplier or 0.0) * math.sqrt(curator.plan.relation.contributions)
    spread = math.sqrt(problem.features) + math.sqrt(columns)
    return problem.rows * multiplier * spread / release.sampling.expected(problem.population)


# A d x d release needs about four such matrices at once (sum, noise, its transpose, eigenvectors).
MATRIX_BYTES = 500_000_000


def fits_matrix(features: int) -> bool:
    """Whether a features x features matrix may be held, noised and decomposed."""
    return 4 * 8 * features**2 <= MATRIX_BYTES


def automatic(features: int, sparse: bool = False, noisy: bool = True) -> str:
    """Return the solver for a number of columns, a storage format and a budget: public, so the choice is.

    One noisy matrix beats every iteration (each of its releases gets only a part of the budget), so
    it is taken whenever it fits in memory. Beyond, sparse rows have few columns that matter, and
    screening finds them; dense ones go to the power method, which uses all records in each of few
    releases and never holds a d x d matrix. Without noise no column has to be left out.
    """
    if fits_matrix(features):
        return "gauss"
    return "screen" if sparse and noisy else "power"


# ---------------------- The last question of a PCA: how much whole rows vary along the axes that were found

# Deviations of both by which the variances of clipped and of whole rows may differ by chance, and from which
# on those of clipped rows do not count: the farthest of ten axes is 2.5 away by chance in one of ten fits.
AGREE, APART = 2.5, 4.0
# Noise of more than this part of the total variance leaves nothing to combine.
LOUD = 0.3
# How many deviations an axis is away from where its place puts it before it gets another place: of two axes
# that vary alike, one in 400 pairs is.
AHEAD = 2.0


def with_more_axes(problem: PcaProblem) -> PcaProblem:
    """Return the problem of more axes than are wanted: the last question tells which of them are first.

    All axes together cost what one does. Clipped rows put an axis that few long rows make behind others.
    """
    wide = min(2 * problem.components + 8, problem.features)
    return replace(problem, components=wide) if "spectrum" in spectrum_release(problem) else problem


def measure(
    curator: Curator, problem: PcaProblem, found: Principal, place: Location, columns: Ints | None = None
) -> Principal:
    r"""Return the axes with variances of rows that nothing but ``data_norm`` has clipped.

    The axes come from rows clipped at their spread, and clipping takes more from some axes than from others,
    by an amount that no number of records makes smaller. ``mean_i (v_j . x_i)^2 - (v_j . m)^2`` of whole rows
    is free of that, and its noise is independent of the axes. Both are combined by their deviations; where
    they contradict each other the plain one counts, and axes change places. Those that were asked for are
    returned. A plan without the question leaves all as it is.

    **Privacy.** One Gaussian release; a row adds at most ``R^2`` to all variances together.
    """
    if "spectrum" not in curator.plan.releases or place.whole is None:
        return found
    params = (found.axes.T, Ball(problem.data_norm, None, columns))
    plain = curator.release("spectrum", params)
    std = np.full(plain.shape, noise_std(curator, "spectrum", params) / problem.population)
    if problem.center:
        mean, noise = found.axes @ place.whole[0], place.whole[1]
        plain, std = plain - mean**2 + noise**2, np.sqrt(std**2 + (2.0 * mean * noise) ** 2 + 2.0 * noise**4)
    return combine(found, plain, std, problem)


def combine(found: Principal, plain: Floats, std: Floats, problem: PcaProblem) -> Principal:
    """Return the first axes with their variances and those of whole rows, of this deviation, as one."""
    distance = np.abs(plain - found.variances)
    loud = std > LOUD * found.total  # it tells nothing of such values
    apart = distance / np.maximum(np.hypot(found.doubt, std), 1e-300)
    # An axis that clipping has shortened for certain says that the others were not: all of them are in doubt.
    most = np.maximum(np.maximum(plain, found.variances), distance)  # noise may be below zero
    uneven = np.where((apart > APART) & ~loud, distance / np.maximum(most, 1e-300), 0.0).max()
    doubt = np.hypot(found.doubt, uneven * found.variances)
    both = np.hypot(doubt, std)
    share = np.divide(np.square(doubt), np.square(both), out=np.ones_like(both), where=both > 0)
    weight = np.where(loud, 0.0, np.maximum(share, np.clip((apart - AGREE) / (APART - AGREE), 0.0, 1.0)))
    values = np.maximum(found.variances + weight * (plain - found.variances), 0.0)
    doubt = np.maximum(doubt, np.where((apart > 1.0) & ~loud, distance, 0.0))
    doubt = np.hypot((1.0 - weight) * doubt, weight * std)
    # The clipped answer is off by what it may hide, or by its distance from the plain one and by its noise.
    stated = np.hypot((1.0 - weight) * found.stated, weight * std)
    stated = np.minimum(stated, np.hypot((1.0 - weight) * distance, std))
    even = np.asarray(optimize.isotonic_regression(values, increasing=False).x)
    clear = np.sign(values - even) * np.maximum(np.abs(values - even) - AHEAD * doubt, 0.0)
    order = np.argsort(-(even + clear), kind="stable")[: problem.components]
    values = np.asarray(optimize.isotonic_regression(values[order], increasing=False).x)
    most_total = found.total + 2.0 * float(std[0])  # as noisy as they are
    total = max(found.total, min(float(values.sum()), most_total))
    own = {"axes": found.axes[order], "doubt": doubt[order], "stated": stated[order]}
    values, noisy = fill(values, total, problem.features), found.noisy[: order.size]
    return replace(found, variances=values, noisy=noisy, total=total, **own)
