"""Mechanisms, each with the privacy event it makes: noise that is added, and choices of coordinates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from dp_accounting import dp_event as dp
from scipy.special import ndtri

from sordino.errors import InvalidInputError, PlanError
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.events import (
    Relation,
    compose_events,
    gaussian_event,
    laplace_event,
    pure_event,
    rare_event,
    repeat_event,
    tilt_event,
    zcdp_event,
)
from sordino.kernel.lazy import LazyVector, SparseVector, lazy_gumbel_top
from sordino.kernel.noise import LAPLACE, NoiseSource
from sordino.kernel.query import Norm


class Mechanism(Protocol):
    """Noise of scale ``multiplier * sensitivity``.

    ``relative`` is the size of this multiplier beside those of the other releases of the plan; the
    multiplier itself is None until the plan is calibrated. One whose noise can be exact (rounded to a
    lattice, or compared without rounding) has ``privatise_exactly`` too, with room for what rounding did.
    """

    norms: ClassVar[tuple[Norm, ...]]

    @property
    def multiplier(self) -> float | None: ...

    @property
    def relative(self) -> float: ...

    @property
    def secure(self) -> bool: ...

    def at(self, multiplier: float) -> Self:
        """Return this mechanism with its multiplier set."""

    def event(self, relation: Relation) -> dp.DpEvent:
        """Return the privacy event of one use."""

    def rho(self) -> float:
        """Return the zCDP cost of one use at multiplier 1: it weighs releases against each other."""

    def privatise(self, value: Any, sensitivity: float, noise: NoiseSource) -> Any:
        """Add the noise."""


@dataclass(frozen=True)
class Additive:
    """What all mechanisms share.

    With ``secure=True`` its noise is exact: rounded to a lattice of integers, or compared without rounding,
    so that no floating-point artefact of noise or answer can be attacked (privacy notes, "Noise on a
    lattice").
    """

    multiplier: float | None = None
    relative: float = 1.0
    secure: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.multiplier is not None and not 0 <= self.multiplier < math.inf:
            raise InvalidInputError(f"Expected a finite noise multiplier >= 0, got {self.multiplier}.")
        if not 0 < self.relative < math.inf:
            raise InvalidInputError(f"Expected a relative noise size > 0, got {self.relative}.")

    def at(self, multiplier: float) -> Self:
        return replace(self, multiplier=multiplier)

    def rho(self) -> float:
        """Return 1/2: that of a Gaussian, of a tilt, and of a 1-DP mechanism at multiplier 1."""
        return 0.5

    def scale(self, sensitivity: float) -> float:
        multiplier = _ready(self.multiplier)
        if not 0 <= sensitivity < math.inf:
            raise InvalidInputError(f"Expected a finite sensitivity >= 0, got {sensitivity}.")
        return multiplier * sensitivity


@dataclass(frozen=True)
class Rounding:
    """What is known of an answer that a machine computed.

    Parameters
    ----------
    error : how far it may be from the exact one.
    spacing : of the lattice whose integers it is; None for doubles.
    truncated : what each record adds are integers already, so that nothing was rounded.
    rows : how many records of a unit the sensitivity is for. Each has room of its own: however many of them
        are in a batch, or in blocks that are rounded apart, an answer moves by no more than their part.
    """

    error: float = 0.0
    spacing: float | None = None
    truncated: bool = False
    rows: int = 1

    def widen(self, sensitivity: float, corner: float = 0.0, errors: float = 1.0) -> float:
        """Return how far such answers of neighbours may be apart, each off by so many ``errors``.

        ``corner`` is the norm of a vector of one spacing per coordinate, twice the most that rounding moves.
        """
        if self.truncated:
            return sensitivity
        return (sensitivity + 2.0 * errors * self.rows * self.error + self.rows * corner) * (1 + 2.0**-40)


@dataclass(frozen=True)
class OnGrid(Additive):
    """Base of noise that can be drawn exactly rounded to a lattice of integers."""

    def lattice(self, sensitivity: float) -> float:
        """Return the spacing, a power of two about 2^28 times finer than the noise."""
        scale = self.scale(sensitivity)
        if scale == 0:
            raise InvalidInputError("secure_noise needs noise: epsilon=inf has none. Set secure_noise=False.")
        return float(2.0 ** (math.floor(math.log2(scale)) - 28))

    def vector(self, value: Any) -> Floats:
        """Return an answer as the numbers that get independent noise."""
        return np.asarray(_dense(value), dtype=float)

    def corner(self, size: int) -> float:
        """Return the norm of a vector of ones, in the norm of the sensitivity."""
        return math.sqrt(size)

    def privatise_exactly(self, value: Any, sensitivity: float, known: Rounding, noise: NoiseSource) -> Any:
        """Add exactly rounded noise to integers, to which doubles are rounded first."""
        spacing = known.spacing
        if spacing is None:
            spacing = self.lattice(sensitivity)
            value = to_grid(self.vector(value), spacing)
        wide = known.widen(sensitivity, self.corner(value.size) * spacing)
        drawn = self._integers(self.scale(wide) / spacing, value.shape, noise)
        return np.asarray((value + drawn) * spacing, dtype=np.float64)

    def _integers(self, scale: float, shape: tuple[int, ...], noise: NoiseSource) -> Ints:
        return noise.rounded_gaussian(scale, shape)


def to_grid(values: Floats, spacing: float) -> Ints:
    """Return the nearest integers to ``values / spacing``; no two answers get further apart by the bounds."""
    return np.rint(np.minimum(np.maximum(values / spacing, -(2.0**61)), 2.0**61)).astype(np.int64)


@dataclass(frozen=True)
class Gaussian(OnGrid):
    """Independent N(0, (multiplier * sensitivity)^2) on each coordinate, for an L2 sensitivity."""

    norms: ClassVar[tuple[Norm, ...]] = (Norm.L2,)

    def event(self, relation: Relation) -> dp.DpEvent:
        return gaussian_event(_ready(self.multiplier), relation)

    def privatise(self, value: Any, sensitivity: float, noise: NoiseSource) -> Any:
        """Add the noise; a sparse value stays lazy outside its touched coordinates."""
        std = self.scale(sensitivity)
        if isinstance(value, SparseVector):
            return LazyVector.noised(value, std, noise)
        if not std or np.shape(value) == ():
            return value + std * noise.normal(()) if std else value
        if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype == np.float64:
            return noise.normal_around(value, std)
        drawn = noise.normal(np.shape(value))
        drawn *= std
        drawn += value
        return drawn


@dataclass(frozen=True)
class Laplace(OnGrid):
    """Independent Laplace(multiplier * sensitivity) on each coordinate, for an L1 sensitivity."""

    norms: ClassVar[tuple[Norm, ...]] = (Norm.L1,)

    def event(self, relation: Relation) -> dp.DpEvent:
        return laplace_event(_ready(self.multiplier))

    def privatise(self, value: Any, sensitivity: float, noise: NoiseSource) -> Any:
        value = _dense(value)
        return value + self.scale(sensitivity) * noise.laplace(np.shape(value))

    def corner(self, size: int) -> float:
        return float(size)

    def _integers(self, scale: float, shape: tuple[int, ...], noise: NoiseSource) -> Ints:
        return noise.rounded_laplace(scale, shape)


@dataclass(frozen=True)
class NormGamma(Additive):
    """Noise with density proportional to ``exp(-norm2 / scale)``: pure DP from an L2 sensitivity.

    A uniform direction times a Gamma(d) radius of scale ``multiplier * sensitivity``; it is
    ``1 / multiplier``-DP by the triangle inequality.
    """

    norms: ClassVar[tuple[Norm, ...]] = (Norm.L2,)

    def event(self, relation: Relation) -> dp.DpEvent:
        multiplier = _ready(self.multiplier)
        return pure_event(1 / multiplier if multiplier else math.inf)

    def privatise(self, value: Any, sensitivity: float, noise: NoiseSource) -> Any:
        value = np.asarray(_dense(value), dtype=float)
        direction = noise.normal(value.shape)
        radius = self.scale(sensitivity) * noise.gamma(float(value.size))
        return value + direction * (radius / np.linalg.norm(direction))


def _ready(multiplier: float | None) -> float:
    if multiplier is None:
        raise PlanError("The mechanism has no noise multiplier yet. Calibrate the plan first.")
    return multiplier


def _dense(value: Any) -> Any:
    return value.to_dense() if isinstance(value, SparseVector) else value


@dataclass(frozen=True)
class SymmetricGaussian(OnGrid):
    r"""Noise of the Gaussian orthogonal ensemble for a symmetric matrix.

    ``E_ii ~ N(0, s^2)``, ``E_ij = E_ji ~ N(0, s^2 / 2)`` with ``s = multiplier * sensitivity``: isotropic
    for the Frobenius inner product on symmetric matrices, so it is a Gaussian mechanism there, with
    half the off-diagonal variance of the usual independent upper triangle.
    """

    norms: ClassVar[tuple[Norm, ...]] = (Norm.L2,)

    def event(self, relation: Relation) -> dp.DpEvent:
        return gaussian_event(_ready(self.multiplier), relation)

    def privatise(self, value: Any, sensitivity: float, noise: NoiseSource) -> Any:
        value = np.asarray(value, dtype=float)
        if value.ndim != 2 or value.shape[0] != value.shape[1]:
            raise InvalidInputError(f"Expected a square matrix, got shape {value.shape}.")
        half = self.scale(sensitivity) / 2 * noise.normal(value.shape)
        # (G + G^T)/2 with G of std s has variance s^2 on the diagonal and s^2/2 off it.
        return value + (half + half.T)  # in this order it is symmetric to the last bit

    @staticmethod
    def vector(value: Any) -> Floats:
        """Return the upper half, entries off the diagonal times sqrt 2: its norm is that of Frobenius."""
        value = np.asarray(value, dtype=float)
        rows, columns = np.triu_indices(len(value))
        return value[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2.0))

    def privatise_exactly(self, value: Any, sensitivity: float, known: Rounding, noise: NoiseSource) -> Any:
        return self.whole(super().privatise_exactly(value, sensitivity, known, noise))

    @staticmethod
    def whole(half: Floats) -> Floats:
        """Return the symmetric matrix of such an upper half."""
        side = (math.isqrt(8 * half.size + 1) - 1) // 2
        rows, columns = np.triu_indices(side)
        out = np.zeros((side, side))
        out[rows, columns] = half / np.where(rows == columns, 1.0, math.sqrt(2.0))
        out[columns, rows] = out[rows, columns]
        return out


OUTPUT_MULTIPLE = 30.0
"""The output noise in units of the multiplier: its price is a 900th of that of the tilt."""


class Tiltable(Protocol):
    """A strongly convex sum over records that can be minimised under a linear tilt."""

    size: int
    output_sensitivity: float
    travel: float  # how far the minimiser moves at most per unit of the tilt

    def minimise(self, tilt: Floats) -> Floats:
        """Return an approximate minimiser of the sum plus ``tilt . theta``."""


@dataclass(frozen=True)
class TiltedObjective(Additive):
    r"""Minimise ``sum_i l_i(theta) + (Lam/2) ||theta||^2 + b . theta`` with a Gaussian tilt b.

    The std of b is ``multiplier * sensitivity``, the sensitivity being that of the sum of gradients.

    **Privacy.** Proven for convex losses of linear predictors with one output, where a record's curvature is
    at most ``Lam (e^jacobian - 1)``: the determinants of the map from theta to b differ by a factor of at
    most ``e^jacobian``, and the gradient of a record stays on the line of its features, so that what it adds
    to the loss is that of a Gaussian of ``mu = 1 / multiplier`` at worst, or of its absolute value where the
    determinants cost nothing. The privacy notes have the proof for both relations.

    The minimiser is approximate, so a little Gaussian noise is added to it as well; given the exact
    minimiser the rest is a function of bounded sensitivity, so the two compose.
    """

    norms: ClassVar[tuple[Norm, ...]] = (Norm.L2,)
    jacobian: float = field(kw_only=True)  # no default: forgotten, it would come for free

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.jacobian < math.inf:
            raise InvalidInputError(
                f"Expected a finite bound on the log determinants >= 0, got {self.jacobian}."
            )

    def event(self, relation: Relation) -> dp.DpEvent:
        multiplier = _ready(self.multiplier)
        if multiplier == 0:
            return dp.NonPrivateDpEvent()
        tilt = tilt_event(multiplier, self.jacobian, relation)
        return compose_events([tilt, gaussian_event(OUTPUT_MULTIPLE * multiplier, relation)])

    def privatise(self, value: Tiltable, sensitivity: float, noise: NoiseSource) -> Floats:
        """Draw the tilt, minimise, and cover the error of the minimiser."""
        found = value.minimise(self.scale(sensitivity) * noise.normal(value.size))
        return found + OUTPUT_MULTIPLE * self.scale(value.output_sensitivity) * noise.normal(value.size)

    def privatise_exactly(
        self, value: Tiltable, sensitivity: float, known: Rounding, noise: NoiseSource
    ) -> Floats:
        """Tilt by a rounded Gaussian; output noise covers what rounding moves, and is exact itself.

        A rounded tilt is at most half a spacing per coordinate from the real one that the proof speaks of, so
        its minimiser is at most ``travel`` times that from the exact one.
        """
        tilt = Gaussian(self.multiplier)
        on_lattice = Rounding(spacing=tilt.lattice(sensitivity), truncated=True)
        drawn = tilt.privatise_exactly(np.zeros(value.size, np.int64), sensitivity, on_lattice, noise)
        corner = math.sqrt(value.size) * tilt.lattice(sensitivity) * value.travel
        output = Gaussian(OUTPUT_MULTIPLE * _ready(self.multiplier))
        moved = known.widen(value.output_sensitivity, corner)
        return np.asarray(output.privatise_exactly(value.minimise(drawn), moved, Rounding(), noise))


@dataclass(frozen=True)
class StableCounts(Additive):
    r"""Gaussian noise on the count of each value that occurs; those above a threshold are told.

    The answer to a query is a dictionary of counts for each of ``columns`` columns, in each of which a unit
    has at most one value and adds at most one to its count.

    **Privacy.** Let D have one unit x more than D'. Counts of values that D' has as well get the same
    independent Gaussian noise in both: a Gaussian release. What is left are values that x alone has, at most
    one per column, with a count of one: under D' nothing is told of them, under D a value is told with
    probability ``P[1 + N(0, s^2) > t] = delta / columns`` for the threshold ``t = 1 + s z``, ``z`` the
    quantile of the normal law at ``1 - delta / columns``; in all with probability ``delta`` at most,
    independently of the first part. So the release is a Gaussian one composed with a (0, delta)-DP one. When
    x is replaced by another, both have values of their own, and delta counts twice. Values are told in the
    order of the alphabet, whatever the order of the records.
    """

    norms: ClassVar[tuple[Norm, ...]] = (Norm.L2,)
    delta: float = 0.0  # has to be given
    columns: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.delta < 0.5 or self.columns < 1:
            raise InvalidInputError(
                f"Expected delta in (0, 0.5) and at least one column, got {self.delta} and {self.columns}."
            )

    def event(self, relation: Relation) -> dp.DpEvent:
        return compose_events(
            [gaussian_event(_ready(self.multiplier), relation), rare_event(self.delta, relation)]
        )

    def threshold(self, sensitivity: float) -> float:
        """Return what a noisy count has to exceed."""
        return 1.0 - self.scale(sensitivity) * float(ndtri(self.delta / self.columns))

    def privatise(
        self, value: Sequence[dict[str, int]], sensitivity: float, noise: NoiseSource
    ) -> list[dict[str, float]]:
        """Return the noisy counts above the threshold, for each column."""
        if len(value) != self.columns or sensitivity < math.sqrt(self.columns):
            raise InvalidInputError(f"Expected counts of {self.columns} columns and their sensitivity.")
        return [self._tell(counts, sensitivity, noise) for counts in value]

    def privatise_exactly(
        self, value: Sequence[dict[str, int]], sensitivity: float, known: Rounding, noise: NoiseSource
    ) -> list[dict[str, float]]:
        """Do the same on a lattice: counts are integers of it, the threshold is a spacing above."""
        return self.privatise(value, sensitivity, noise)

    def _tell(self, counts: dict[str, int], sensitivity: float, noise: NoiseSource) -> dict[str, float]:
        values = sorted(counts)
        exact = np.array([counts[text] for text in values], dtype=float)
        most = self.threshold(sensitivity)
        if self.secure:
            gaussian = Gaussian(self.multiplier)
            spacing = min(gaussian.lattice(sensitivity), 1.0)
            integers = np.asarray(exact / spacing, dtype=np.int64)  # a power of two: there is no rest
            on_lattice = Rounding(spacing=spacing, truncated=True)
            noisy = gaussian.privatise_exactly(integers, sensitivity, on_lattice, noise)
            # A rounded count above this has a real one above the threshold, with room for its last digits.
            most = most + spacing + abs(most) * 2.0**-40
        else:
            noisy = exact + self.scale(sensitivity) * noise.normal(exact.shape)
        return {text: float(count) for text, count in zip(values, noisy) if count > most}


# ------ Mechanisms that choose coordinates: Gumbel top-k, report-noisy-max, peeling, one of each row together


@dataclass(frozen=True)
class GumbelTopK(Additive):
    r"""The ``count`` best coordinates in order, by one-shot Gumbel noise.

    Equal to ``count`` peeled exponential mechanisms: each has range ``2 / multiplier`` and so costs
    ``1 / (2 multiplier^2)`` zCDP; when all scores move in the same direction (``monotone``, add-remove
    only) the range is half of that and the cost a quarter. Magnitudes (``absolute``) of scores that move
    together may move apart, so the two do not go together.
    """

    norms: ClassVar[tuple[Norm, ...]] = (Norm.LINF,)
    count: int = 1
    absolute: bool = False
    monotone: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_count(self.count)
        if self.absolute and self.monotone:
            raise InvalidInputError(
                "Expected monotone=False with absolute=True: magnitudes can move both ways."
            )

    def event(self, relation: Relation) -> dp.DpEvent:
        multiplier = _ready(self.multiplier)
        rho = self._rho(relation) / multiplier**2 if multiplier else math.inf
        return zcdp_event(rho)

    def rho(self) -> float:
        return self._rho(Relation.ADD_REMOVE)

    def _rho(self, relation: Relation) -> float:
        # A replaced record moves some scores up and others down, so it is never monotone.
        monotone = self.monotone and relation is Relation.ADD_REMOVE
        return self.count / (8.0 if monotone else 2.0)

    def privatise(self, value: Any, sensitivity: float, noise: NoiseSource) -> Ints:
        """Return the indices of the largest noisy scores, best first."""
        scale = self.scale(sensitivity)
        if isinstance(value, SparseVector):
            scores = np.abs(value.values) if self.absolute else value.values
            return lazy_gumbel_top(value, scores, scale, self.count, noise)
        scores = np.abs(value) if self.absolute else np.asarray(value, dtype=float)
        noisy = scores + scale * noise.gumbel(scores.shape)
        return top_indices(noisy, self.count)

    def privatise_exactly(self, value: Any, sensitivity: float, known: Rounding, noise: NoiseSource) -> Ints:
        """Return the winners of an exact race of scores that are known up to an error.

        Scores that are off by ``error`` no longer move together: their moves lie in ``[-2 e, s + 2 e]``,
        which is ``4 e`` wider.
        """
        scores = np.asarray(_dense(value), dtype=float)
        wide = known.widen(sensitivity, errors=2.0 if self.monotone else 1.0)
        return noise.race(np.abs(scores) if self.absolute else scores, self.scale(wide), self.count)


@dataclass(frozen=True)
class LaplaceMax(Additive):
    r"""The best coordinate by report-noisy-max with Laplace noise: ``2 / multiplier``-DP.

    Kept for comparison: Gumbel noise of the same scale costs a quarter in zCDP.
    """

    norms: ClassVar[tuple[Norm, ...]] = (Norm.LINF,)

    def event(self, relation: Relation) -> dp.DpEvent:
        multiplier = _ready(self.multiplier)
        return pure_event(2 / multiplier if multiplier else math.inf)

    def rho(self) -> float:
        """Return the zCDP cost at multiplier 1: a 2-DP mechanism."""
        return 2.0

    def privatise(self, value: Any, sensitivity: float, noise: NoiseSource) -> Ints:
        """Return the index of the largest noisy score, as an array of one."""
        scores = np.asarray(_dense(value), dtype=float)
        noisy = scores + self.scale(sensitivity) * noise.laplace(scores.shape)
        return top_indices(noisy, 1)

    def privatise_exactly(self, value: Any, sensitivity: float, known: Rounding, noise: NoiseSource) -> Ints:
        scores = np.asarray(_dense(value), dtype=float)
        return noise.race(scores, self.scale(known.widen(sensitivity)), 1, LAPLACE)


@dataclass(frozen=True)
class LaplacePeeling(Additive):
    r"""Peeling: ``count`` rounds of report-noisy-max, then the values, all with Laplace noise.

    A round is ``2 / multiplier``-DP, each of the ``count`` released values ``1 / multiplier``-DP.
    Kept for comparison: Gumbel selection with Gaussian values needs about a third of the noise.
    """

    norms: ClassVar[tuple[Norm, ...]] = (Norm.LINF,)
    count: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_count(self.count)

    def event(self, relation: Relation) -> dp.DpEvent:
        multiplier = _ready(self.multiplier)
        rounds = pure_event(2 / multiplier if multiplier else math.inf)
        return compose_events(
            [repeat_event(rounds, self.count), repeat_event(laplace_event(multiplier), self.count)]
        )

    def rho(self) -> float:
        return 2.5 * self.count

    def privatise(self, value: Any, sensitivity: float, noise: NoiseSource) -> SparseVector:
        value = np.asarray(_dense(value), dtype=float)
        scale = self.scale(sensitivity)
        chosen = self._peel(value, lambda left: int(np.argmax(left + scale * noise.laplace(left.shape))))
        return SparseVector(chosen, value[chosen] + scale * noise.laplace(chosen.shape), value.size)

    def privatise_exactly(
        self, value: Any, sensitivity: float, known: Rounding, noise: NoiseSource
    ) -> SparseVector:
        """Peel by exact races; the values get exactly rounded noise, each a release of its own."""
        value = np.asarray(_dense(value), dtype=float)
        scale, values = self.scale(known.widen(sensitivity)), Laplace(self.multiplier)
        chosen = self._peel(value, lambda left: int(noise.race(left, scale, 1, LAPLACE)[0]))
        noisy = [values.privatise_exactly(value[[i]], sensitivity, known, noise) for i in chosen]
        return SparseVector(chosen, np.concatenate(noisy), value.size)

    def _peel(self, value: Floats, winner: Callable[[Floats], int]) -> Ints:
        left = np.arange(value.size)
        chosen = np.empty(min(self.count, value.size), dtype=np.int64)
        for i in range(chosen.size):
            place = winner(np.abs(value[left]))
            chosen[i], left = left[place], np.delete(left, place)
        return chosen


@dataclass(frozen=True)
class JointSelection(Additive):
    r"""A column c_j of each row j, with probabilities in proportion to ``exp(-max_j loss_j(c_j) / scale)``.

    The exponential mechanism on all combinations of a group of rows, for each of several groups. The largest
    loss of a combination moves no farther than losses do; the sensitivity is the sum of that over groups.
    So the privacy loss has a range of ``2 / multiplier``: that is epsilon, where it is asked ``once``, and a
    zCDP cost of ``1 / (2 multiplier^2)``, which adds up better. ``exp(-m / b)`` is the integral of
    ``exp(-t / b) / b`` from m on: a level t is drawn, with density proportional to ``exp(-t / b)`` times the
    numbers of losses up to t in each row, and then one of these in each row.
    """

    norms: ClassVar[tuple[Norm, ...]] = (Norm.LINF,)
    once: bool = True

    def event(self, relation: Relation) -> dp.DpEvent:
        multiplier = _ready(self.multiplier)
        spread = 2.0 / multiplier if multiplier else math.inf
        return pure_event(spread) if self.once else zcdp_event(spread**2 / 8.0)

    def rho(self) -> float:
        return 2.0 if self.once else 0.5

    def privatise(self, value: Any, sensitivity: float, noise: NoiseSource) -> Ints:
        """Return a column for each row of each group; without noise the middle one of the best."""
        scale = self.scale(sensitivity)
        return self._choose(value, scale, noise, lambda logs: int(np.argmax(logs + noise.gumbel(logs.shape))))

    def privatise_exactly(self, value: Any, sensitivity: float, known: Rounding, noise: NoiseSource) -> Ints:
        """Choose levels by exact races.

        Their logarithms err by at most a loss' error over the scale, and 2^-42. The rows of a person may be
        in all groups, so that there is room for the errors of each.
        """
        scale = self.scale(known.widen(sensitivity, errors=2.0 * len(value)))
        scale *= 1.0 + 2.0**-40 * len(value) * _ready(self.multiplier)
        return self._choose(value, scale, noise, lambda logs: int(noise.race(logs, 1.0, 1)[0]))

    @staticmethod
    def _choose(groups: Floats, scale: float, noise: NoiseSource, race: Callable[[Floats], int]) -> Ints:
        out = []
        for losses in groups:
            order = np.argsort(losses, axis=1, kind="stable")
            sizes = np.take_along_axis(losses, order, axis=1)
            ends = np.diff(sizes, axis=1, append=np.inf) > 0.0  # of ties, which are most of the cells
            levels = np.unique(sizes[ends & (sizes >= sizes[:, :1].max())])
            counts = np.array([np.searchsorted(row, levels, "right") for row in sizes])
            if scale:
                mass = np.log(-np.expm1(-np.diff(levels, append=np.inf) / scale)) - levels / scale
                level = race(mass + np.log(counts).sum(axis=0))
                places = [int(noise.integers(count, ())) for count in counts[:, level]]
            else:
                places = (counts[:, 0] // 2).tolist()
            out.append(order[np.arange(len(order)), places])
        return np.array(out)


def _check_count(count: int) -> None:
    if count < 1:
        raise InvalidInputError(f"Expected to select at least one coordinate, got {count}.")


def top_indices(values: Floats, count: int) -> Ints:
    """Return the positions of the ``count`` largest values, largest first."""
    count = min(count, values.size)
    best = np.argpartition(values, values.size - count)[values.size - count :]
    return best[np.argsort(-values[best], kind="stable")]
