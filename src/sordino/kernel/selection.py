"""Mechanisms that choose coordinates: Gumbel top-k, report-noisy-max, peeling, one of each row together."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from dp_accounting import dp_event as dp

from sordino.errors import InvalidInputError
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.events import (
    Relation,
    compose_events,
    laplace_event,
    pure_event,
    repeat_event,
    zcdp_event,
)
from sordino.kernel.lazy import SparseVector, lazy_gumbel_top
from sordino.kernel.mechanism import Additive, Laplace, Rounding, _dense, _ready
from sordino.kernel.noise import LAPLACE, NoiseSource
from sordino.kernel.query import Norm


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
