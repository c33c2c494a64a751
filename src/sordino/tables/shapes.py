"""What a fitted linear model says of each column of a table: a curve, levels, or a surface for a pair."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
from scipy.special import chdtri

from sordino.kernel.arrays import Floats, public_norm
from sordino.tables.columns import Block, Entries
from sordino.tables.encoder import PairBlock, TableEncoder
from sordino.tables.values import MISSING, OTHER

_RARE = 0.1  # a level of a smaller share of the records is rare, as far as a noisy share tells


@dataclass(frozen=True, eq=False)
class Shape:
    """The effect of one column, or of two together beyond what each has alone.

    What a pair adds on average over the values of one column belongs to the effect of the other.

    Parameters
    ----------
    columns : one name, or two.
    at : for each column the values at which the effect is given: knots, between which it is straight, or
        levels.
    effect : what is added to the margin of a record (a number, log odds, a logarithm), with one axis for each
        column, measured from that of the mean record; of several classes, one behind the other.
    noise : the public standard deviation of the noise in it; None where the solver does not know it.
    importance : the standard deviation of the effect over the records, in the same units, as released means
        and second moments tell, a pair's as if its columns were independent; over the values of ``at`` where
        the run has released none.
    noise_alone : the importance that the stated noise gives to an effect of zero in 5 of 100 fits at most;
        the error of sampling is not in it. None as for ``noise``.

    **Privacy.** Post-processing of what the fit has released.
    """

    columns: tuple[str, ...]
    at: tuple[tuple[Any, ...], ...]
    effect: Floats
    noise: Floats | None
    importance: float
    noise_alone: float | None = None

    @property
    def name(self) -> str:
        """The column, or both with a cross between them."""
        return " x ".join(self.columns)

    @property
    def could_be_noise(self) -> bool:
        """Whether it matters no more than noise alone may, as far as that is known."""
        return self.noise_alone is not None and self.importance <= self.noise_alone


@dataclass(frozen=True, eq=False)
class Questions:
    """Linear functions of the coefficients that say what columns and pairs do, as rows on all of them.

    ``own`` are the encoded rows of the column or pair by itself, in the place ``here``; behind the first
    ``named`` values come other levels and gaps.
    """

    columns: tuple[str, ...]
    at: tuple[tuple[Any, ...], ...]
    rows: Floats = field(repr=False)
    own: Floats = field(repr=False)
    here: slice
    named: int

    def center(self, shares: Floats | None) -> Floats:
        """Return the rows measured from the mean record; from the mean of all values where none is known."""
        if len(self.columns) == 2:
            return self.rows
        return self.rows - (self.rows.mean(axis=0) if shares is None else shares @ self.rows)

    def shares(self, means: Floats | None) -> Floats:
        """Return the share of the records at each value, from the means of all columns; alike without them.

        Columns that noise hides have one mean in common; other levels and gaps among them count as empty.
        """
        found = np.zeros(len(self.own))
        if means is None:
            return found + 1.0 / len(found)
        _, places, counts = np.unique(means, return_inverse=True, return_counts=True)
        hidden = (counts[places] > 1)[self.here] | (means[self.here] <= 0.0)
        kept = (np.arange(len(found)) < self.named) | ~(self.own[:, hidden] > 0.0).any(axis=1)
        found[kept] = np.maximum(np.append(means[self.here], 1.0) @ _from_values(self.own[kept]), 0.0)
        return found / max(found.sum(), 1e-300)

    def shape(self, values: Floats) -> Floats:
        """Return numbers of the rows, with one axis for each column."""
        return values.reshape(*values.shape[:-1], *map(len, self.at))


def questions_of(encoder: TableEncoder) -> list[Questions]:
    """Return the questions about each column and pair, texts left out.

    **Privacy.** They follow from the schema and the basis.
    """
    size = len(encoder.origins)
    alone, pairs, start = {}, [], 0
    for block in encoder.blocks():
        here = slice(start, start + len(block.origins))
        start = here.stop
        if isinstance(block, Block):
            at, positions = block.grid()
            own = dense_rows(block.entries(positions), here.stop - here.start)
            rows = np.zeros((len(at), size))
            rows[:, here] = own
            named = len(block.grid(rest=False)[0])
            alone[block.name] = Questions((block.name,), (at,), rows, own, here, named)
        elif isinstance(block, PairBlock):
            (one, first), (two, second) = block.first.grid(rest=False), block.second.grid(rest=False)
            ends = np.repeat(first, len(second)), np.tile(second, len(first))
            both = {b.name: b.contrast(at) for b, at in zip((block.first, block.second), ends)}
            rows = np.zeros((len(one) * len(two), size))
            rows[:, here] = own = dense_rows(block.entries(both), here.stop - here.start)
            pairs.append(Questions((*both,), (one, two), rows, own, here, len(rows)))
    for pair in pairs:
        surface = pair.rows.reshape(*map(len, pair.at), size)
        for axis, name in enumerate(pair.columns):
            mean = surface.mean(axis=1 - axis)
            alone[name].rows[: len(mean)] += mean  # other levels and gaps, which come last, bring nothing
            surface -= np.expand_dims(mean, 1 - axis)
    return [*alone.values(), *pairs]


def corners_of(encoder: TableEncoder) -> list[tuple[slice, Floats, int]]:
    """Return for each column and pair its place, rows that all of its rows lie between, and a count.

    So many of the rows are usual: those of gaps and of values that are not declared stand behind them. Rows
    of a pair lie between those of :class:`Questions` and zero.

    **Privacy.** They follow from the schema and the basis.
    """
    blocks = {block.name: block for block in encoder.blocks() if isinstance(block, Block)}
    out = []
    for asks in questions_of(encoder):
        own, block = asks.own, blocks[asks.columns[0]]
        if len(asks.columns) == 1:
            rest = [MISSING, OTHER] if block.levels else [np.nan, OTHER][: 1 + block.other]
            at = np.append(block.grid(rest=False)[1], rest)
            own = dense_rows(block.entries(at), own.shape[1])
        out.append((asks.here, own, asks.named))
    return out


def without_pairs(fine: TableEncoder, plain: TableEncoder, coef: Floats) -> tuple[Floats, float]:
    """Return coefficients and what is added to the intercept of the nearest model of single columns.

    Its encoder ``plain`` has no pairs and no other knots than ``fine`` has. What a pair adds on average over
    the values of one column belongs to the other.
    """
    blocks = [{b.name: b for b in one.blocks() if isinstance(b, Block)} for one in (fine, plain)]
    singles = [asks for asks in questions_of(fine) if len(asks.columns) == 1]
    out, moved = np.zeros(len(plain.origins)), 0.0
    for asks, (here, own, named), (place, rows, few) in zip(singles, corners_of(fine), corners_of(plain)):
        effects = [asks.rows[:named] @ coef, own[named:] @ coef[here]]
        if few != named:
            at = [_shares(one[asks.columns[0]]) for one in blocks]
            effects[0] = np.interp(at[1], at[0], effects[0])
        found = _from_values(rows) @ np.concatenate(effects)
        out[place], moved = found[:-1], moved + float(found[-1])
    return out, moved


def _shares(block: Block) -> Floats:
    """Return where the values of its grid lie, from 0 at the low end to 1 at the high end."""
    positions = block.grid(rest=False)[1]
    return np.interp(positions, np.arange(float(len(block.points))), block.shares)


def hidden_effects(encoder: TableEncoder, means: Floats, unseen: float, most: float) -> Floats:
    """Return what a clip may hide of the coefficient of each level and flag that few records have.

    All that it took from the mean of the targets, ``unseen``, may be of one level: then the effect of that is
    so much over its share of the records, at ``most`` all that targets differ. ``means`` are those of encoded
    columns.
    """
    out, curved = np.zeros(len(encoder.origins)), {c.name for c in encoder.schema_.features if c.curved}
    for asks in questions_of(encoder):
        if len(asks.columns) == 2 or asks.columns[0] in curved:
            continue
        shares, own = asks.shares(means)[: asks.named], asks.own[: asks.named]
        for at, values in enumerate(own.T, asks.here.start):
            share = min(
                (float(shares[side].sum()) for side in (values > 0, values < 0) if side.any()), default=1.0
            )
            if share < _RARE:
                out[at] = min(unseen / max(share, 1e-300), most) / np.ptp(values)
    return out


def shapes_of(
    encoder: TableEncoder,
    coef: Floats,
    noise: Floats | None,
    around: Any = None,
    hidden: Floats | None = None,
) -> list[Shape]:
    """Return the effect of each column and pair, texts left out; the most important ones first.

    ``noise`` has the deviation of each coefficient. ``around`` is what a run has released of the loss around
    its model: middle and second moments of the encoded rows, a factor of the covariance of the noise.
    ``hidden`` is what clips may hide of each coefficient: noise of an effect, and no reason for importance.
    """
    coef = np.atleast_2d(coef)
    means, factor, d = None, None, coef.shape[1]  # a model may have more columns than a table
    if around is not None and around.affine.columns is None:
        means, factor = around.affine.shift[:d], None if around.factor is None else around.factor[:d]
    if factor is None and noise is not None:
        factor = np.diag(np.atleast_2d(noise).max(axis=0))
    asked = questions_of(encoder)
    shares = {asks.columns[0]: asks.shares(means) for asks in asked if len(asks.columns) == 1}
    out = []
    for asks in asked:
        parts = reduce(np.multiply.outer, [shares[c][: len(at)] for c, at in zip(asks.columns, asks.at)])
        away = asks.center(parts)
        used = np.flatnonzero(away.any(axis=0))  # few: those of one column or pair
        errors = None if factor is None else away[:, used] @ factor[used]
        spread = None if errors is None else asks.shape(np.array([public_norm(one) for one in errors]))
        effect = asks.shape((away @ coef.T).T)
        variances = [_variance(asks, values, parts, around) for values in effect]
        found = effect[0] if len(coef) == 1 else effect
        alone = None if errors is None else _noise_alone(errors, parts.ravel() / parts.sum())
        if spread is not None and hidden is not None:
            more = [public_norm(row) for row in away[:, used] * hidden[used]]
            spread = np.sqrt(np.square(spread) + asks.shape(np.square(more)))
        out.append(Shape(asks.columns, asks.at, found, spread, float(np.sqrt(np.mean(variances))), alone))
    return sorted(out, key=lambda shape: -shape.importance)


def _noise_alone(errors: Floats, parts: Floats) -> float:
    """Return the 95 % quantile of the importance that noise gives to an effect of zero.

    Its square is a sum of squared normal variables; a chi-square law of that mean and variance stands for it.
    """
    squares = np.square(np.linalg.svd(errors * np.sqrt(parts)[:, None], compute_uv=False))
    unit = np.square(squares).sum() / max(squares.sum(), 1e-300)
    freedom = max(squares.sum() / max(unit, 1e-300), 1.0)  # no noise at all has none
    return float(np.sqrt(unit * chdtri(freedom, 0.05)))


def _variance(asks: Questions, effect: Floats, parts: Floats, around: Any) -> float:
    """Return the variance of an effect over the records, with these ``parts`` of them at its values.

    It may be half too large or small, for records lie between. Released second moments of the encoded rows
    correct that of one column, as far as their noise is less; columns of a pair count as independent.
    """
    parts = parts / max(float(parts.sum()), 1e-300)
    rough = float((parts * np.square(effect - (parts * effect).sum())).sum())
    moments = None if around is None or around.affine.columns is not None else around.moments
    if len(asks.columns) == 2 or moments is None or rough == 0.0:
        return rough
    weights = (_from_values(asks.own) @ effect)[:-1] / around.affine.scale[asks.here]
    noise = moments.stretch * moments.noise * float(weights @ weights)
    fine = moments.stretch * float(weights @ moments.matrix[asks.here, asks.here] @ weights)
    return rough + (max(fine, 0.0) - rough) / (1.0 + (2.0 * noise / rough) ** 2)


def _from_values(rows: Floats) -> Floats:
    """Return the matrix that takes values at these rows to coefficients and a constant that give them."""
    return np.linalg.pinv(np.column_stack([rows, np.ones(len(rows))]))


def dense_rows(entries: Entries, width: int) -> Floats:
    """Return entries as rows of so many columns."""
    rows = np.zeros((len(entries.values), width))
    for places, values in zip(entries.places.T, entries.values.T):
        rows[np.arange(len(rows)), places] += values
    return rows
