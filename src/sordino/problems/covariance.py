"""Second moments of records: what private PCA asks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.errors import InvalidInputError
from sordino.kernel import ClippedSum, Norm, Poisson, Relation, Sampling, SymmetricGaussian, public_generator
from sordino.kernel.arrays import Floats, Ints, public_norm
from sordino.kernel.query import GramSums, PublicBall
from sordino.problems.problem import Setting


@dataclass(frozen=True)
class PcaProblem(Setting):
    """The public description of a PCA: everything here is declared, nothing is measured.

    Parameters
    ----------
    population : the public number of records.
    features : the number of columns.
    components : how many axes are wanted (the largest number, when it is chosen privately).
    data_norm : the norm to which rows are clipped.
    center : variances about the mean, or about zero.
    adaptive : spend a part of the budget on the mean first, and measure the rest about it.
    sparse : the rows are stored as a sparse matrix: the user's choice, so public.
    random_state : seeds public starting points only.
    """

    population: int
    features: int
    components: int
    relation: Relation
    epsilon: float
    delta: float
    data_norm: float = 1.0
    center: bool = True
    adaptive: bool = True
    unit: str = "record"
    sparse: bool = False
    random_state: Any = None
    secure_noise: bool = False
    rows: int = 1

    def start(self, columns: int) -> Floats:
        """Return a public random orthonormal basis of ``columns`` directions."""
        public = public_generator(self.random_state)
        return np.linalg.qr(public.standard_normal((self.features, columns)))[0]

    def symmetric(self, relative: float = 1.0) -> SymmetricGaussian:
        """Return the noise of a symmetric matrix, not yet calibrated."""
        return SymmetricGaussian(relative=relative)

    def minibatches(self, size: int) -> Sampling:
        """Return Poisson batches of this expected size."""
        return Poisson(min(1.0, size / self.population))


@dataclass(frozen=True)
class Ball(PublicBall):
    """A record enters as ``y = clip_radius(x - center)``. With ``columns`` only those of x are looked at."""

    columns: Ints | None = None

    @property
    def reach(self) -> float:
        """The largest ``f (||x|| + ||center||)`` of a row clipped by f: ``||f x|| <= r + ||center||``."""
        return self.radius + (0.0 if self.center is None else 2.0 * public_norm(self.center))

    def view(self, records: GramSums) -> GramSums:
        """Return the records with only the columns that are looked at."""
        return records if self.columns is None else records.restrict(self.columns)


@dataclass(frozen=True)
class RowMoments(ClippedSum):
    r"""``sum_i (y_i, w ||y_i||^2 / r)``: the mean and, in the last entry, the mean squared norm.

    ``y_i`` is the row measured in the :class:`Ball` ``params``, of radius r. With ``columns`` and no centre
    whole rows are clipped, and only those columns of the mean are looked at.

    **Privacy.** ``||y|| <= r`` (clipped), so a record adds at most ``r sqrt(1 + w^2)``. Replacing y by
    z moves the answer by at most ``2 r`` for ``w <= 1``: opposite rows of norm r are the worst pair,
    because ``(1 + t)^2 (1 + w^2 (1 - t)^2) <= 4`` for t in [0, 1].
    """

    row_norm: float
    weight: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.weight <= 1:
            raise InvalidInputError(f"Expected a weight in (0, 1], got {self.weight}.")

    def contribution(self, params: Any) -> float:
        """Return ``r sqrt(1 + w^2)``."""
        return _ball(self.row_norm, params).radius * math.hypot(1.0, self.weight)

    def reach(self, params: Any) -> float:
        return _ball(self.row_norm, params).reach * math.hypot(1.0, self.weight)

    def sensitivity(self, relation: Relation, params: Any) -> float:
        if relation is Relation.REPLACE_ONE:
            return 2.0 * _ball(self.row_norm, params).radius
        return self.contribution(params)

    def evaluate(self, records: GramSums, params: Any) -> Floats:
        ball = _ball(self.row_norm, params)
        if ball.center is None:
            total, squares = records.moments(Ball(ball.radius))
            total = total if ball.columns is None else total[ball.columns]
        else:
            total, squares = ball.view(records).moments(ball)
        return np.append(total, self.weight / ball.radius * squares)

    def read(self, answer: Floats, params: Any = None) -> tuple[Floats, float]:
        """Return the mean and the mean squared norm of a released answer."""
        return answer[:-1], self.square_noise(float(answer[-1]), params)

    def square_noise(self, std: float, params: Any = None) -> float:
        """Return the standard deviation of the mean squared norm, where each entry has ``std``."""
        return std * _ball(self.row_norm, params).radius / self.weight


@dataclass(frozen=True)
class Quadratic(ClippedSum):
    """Base of sums of ``y y^T``: replacing a record moves them by sqrt 2 contributions, not by 2.

    ``||x x^T - y y^T||_F^2 = ||x||^4 + ||y||^4 - 2 <x, y>^2 <= 2 r^4``: squares cannot point in opposite
    directions. (Under Poisson sampling the kernel takes two contributions all the same.)
    """

    needs: ClassVar[tuple[type, ...]] = (GramSums,)
    norm = Norm.L2

    row_norm: float

    def _within(self, params: Any) -> tuple[Ball, float]:
        """Return the ball in which rows are measured, and what a sum adds for a row of norm 1 at most."""
        return _ball(self.row_norm, params), 1.0

    def contribution(self, params: Any) -> float:
        ball, size = self._within(params)
        return ball.radius**2 * size

    def reach(self, params: Any) -> float:
        ball, size = self._within(params)
        return ball.reach**2 * size

    def sensitivity(self, relation: Relation, params: Any) -> float:
        factor = math.sqrt(2.0) if relation is Relation.REPLACE_ONE else 1.0
        return factor * self.contribution(params)


@dataclass(frozen=True)
class GramMatrix(Quadratic):
    r"""``sum_i y_i y_i^T`` with ``y_i`` the row measured in the :class:`Ball` ``params``.

    **Privacy.** ``||y y^T||_F = ||y||^2 <= radius^2``; sqrt 2 times that under replace-one.
    """

    def evaluate(self, records: GramSums, params: Any) -> Floats:
        ball = _ball(self.row_norm, params)
        return ball.view(records).gram(ball)


@dataclass(frozen=True)
class SquaredColumns(Quadratic):
    r"""``sum_i (x_i1^2, ..., x_id^2)``: the diagonal of the Gram matrix, for any number of columns.

    **Privacy.** ``||(x_j^2)||_2 <= ||x||^2 <= R^2``; such vectors are not negative, so replacing a record
    moves the sum by at most sqrt 2 of them.
    """

    def evaluate(self, records: GramSums, params: Any) -> Floats:
        return records.squared_columns(Ball(self.row_norm))


@dataclass(frozen=True)
class GramTriangle(GramMatrix):
    """The upper triangle of the Gram matrix as a vector, for the textbook's independent entries."""

    def evaluate(self, records: GramSums, params: Any) -> Floats:
        full = super().evaluate(records, params)
        return full[np.triu_indices(len(full))]


@dataclass(frozen=True)
class GramProduct(Quadratic):
    r"""``sum_i y_i (y_i^T B)`` for a released block ``B``; ``params = (B, ball)``.

    With ``B = V`` orthonormal this is a step of the power method, with ``B = V - V~`` the correction of
    a snapshot, whose bound shrinks as the two bases approach each other.

    **Privacy.** ``||y y^T B||_F <= ||y||^2 ||B||_op <= radius^2 ||B||_op``, whatever the number of columns.
    """

    def _within(self, params: Any) -> tuple[Ball, float]:
        return _ball(self.row_norm, params[1]), operator_norm(params[0])

    def evaluate(self, records: GramSums, params: Any) -> Floats:
        block, ball = params[0], _ball(self.row_norm, params[1])
        return ball.view(records).gram_product(np.asarray(block, float), ball)


@dataclass(frozen=True)
class AxisSquares(Quadratic):
    r"""``sum_i (y_i . b_j)^2`` for each column ``b_j`` of a released block ``B``; ``params = (B, ball)``.

    **Privacy.** The squares of one record are not negative and add up to ``||B^T y||^2 <= radius^2
    ||B||_op^2``, whatever the number of columns; replacing it moves the answer by at most sqrt 2 of that.
    """

    def _within(self, params: Any) -> tuple[Ball, float]:
        return _ball(self.row_norm, params[1]), operator_norm(params[0]) ** 2

    def evaluate(self, records: GramSums, params: Any) -> Floats:
        """Return the sums of squares, one for each column of the block."""
        block, ball = np.asarray(params[0], float), _ball(self.row_norm, params[1])
        return np.asarray((block * ball.view(records).gram_product(block, ball)).sum(axis=0))


def operator_norm(block: Any) -> float:
    """Return an upper bound on the largest singular value, tight to rounding."""
    square = np.asarray(block, dtype=float)
    square = square.T @ square
    if not np.isfinite(square).all():
        return math.inf
    top = float(np.linalg.eigvalsh(square)[-1]) if len(square) else 0.0
    return math.sqrt(max(top, 0.0)) * (1 + 1e-12) + 1e-15 * math.sqrt(float(np.trace(square)))


def _ball(row_norm: float, ball: Ball | None) -> Ball:
    return Ball(row_norm) if ball is None else ball
