"""What a linear model sees of a table: lines, curves and products of pairs, chosen by public numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from sordino.errors import InvalidInputError
from sordino.tables.columns import Column, Text
from sordino.tables.schema import Schema
from sordino.values import check_count

# Chosen on Computers, SLID, BudgetFood, OFP, VietNamI, flchain and Adult, judged on others (docs/tables.md).
# An epsilon beyond this one does not make room for more columns: then the records themselves are too few.
FULL = 4.0
# Records times epsilon for each column: of curves with nine knots, instead of five (an epsilon beyond 1 does
# not count), and of pairs, of labels twice as many.
FINE, PAIRED = 80.0, 20.0
KNOTS, FINE_KNOTS = 5, 9
# Hats weigh as much as lines at so many records times epsilon. Below it they weigh more, up to a limit: a
# line needs the middle of its column, which few records do not tell. Beyond it they weigh less in models of
# numbers.
EVEN, CURVE_POWER, CURVE_LIMITS = 1000.0, 0.3, (0.5, 1.5)
# All pairs together have weight 1 at so many records times epsilon, and a weight in proportion to them
# between two limits; below the first there are none.
PAIR_EVEN, PAIR_LIMITS = 6000.0, (0.25, 2.0)
# The ridge of a model of numbers, and the share of it for labels. It falls as records times epsilon grow
# beyond the second number, so that a model converges to the plain one.
RIDGE, SETTLED, OF_LABELS = 7e-4, 5e4, 1 / 16


@dataclass(frozen=True)
class Basis:
    """The columns that a linear model gets beside one line per column of the table.

    Parameters
    ----------
    knots : of each number, date and ordinal whose schema declares none; 1 for lines alone.
    pairs : the names of two columns each, whose products are columns of the model too.
    curve : the weight of hats; lines, levels, flags and gaps have weight one.
    pair : the weight of all pairs together: each has this one over the root of their number.
    ridge : the penalty of a model that was given none.

    **Privacy.** It follows from the schema, the number of records (or persons) and epsilon.
    """

    knots: int = KNOTS
    pairs: tuple[tuple[str, str], ...] = ()
    curve: float = 1.0
    pair: float = 2.0
    ridge: float = 0.0

    @property
    def fact(self) -> str:
        """What a report says of it."""
        curves = f"curves with {self.knots} knots" if self.knots > 1 else "straight lines"
        return f"{curves} for columns that declare none, {len(self.pairs)} pairs of columns"

    def squared_norm(self, columns: Sequence[Column]) -> float:
        """Return a bound on the squared norm of every encoded row: the sum of what each block adds.

        A level, a flag, a gap and the words of a text add at most one; what a column brings into its pairs
        has a squared norm of at most two, its line and its tent, or one.
        """
        tops = {column.name: 1.0 + column.curved for column in columns}
        alone = sum(1.0 + self.curve**2 * (c.curved and c.knots_or(self.knots) != 1) for c in columns)
        paired = sum(tops[a] * tops[b] for a, b in self.pairs) / max(len(self.pairs), 1)
        return alone + self.pair**2 * paired


def choose_basis(
    schema: Schema, units: int, epsilon: float, *, knots: Any = None, pairs: Any = None
) -> Basis:
    """Return the basis for so many records or persons and an epsilon.

    ``knots`` and ``pairs`` are the user's: a number, and True, False or a list of pairs of names; None leaves
    the choice to the rule.
    """
    features = schema.features
    labels = () if schema.target is None else schema.target.levels or ()
    signal = units * min(float(epsilon), FULL) / (len(labels) if len(labels) > 2 else 1)
    each = check_count("knots", knots, 1, 1000, "1 is a straight line.")
    sizes = {c.name: c.contrast_size for c in features if not isinstance(c, Text)}

    def room(pairs: Sequence[tuple[str, str]], knots: int) -> float:
        columns = sum(c.size(knots) for c in features) + sum(sizes[a] * sizes[b] for a, b in pairs)
        return signal / max(columns, 1)

    every = tuple(combinations(sizes, 2))
    if pairs is None:
        enough = PAIRED * (2.0 if labels else 1.0)
        known = signal >= PAIR_LIMITS[0] * PAIR_EVEN and room(every, each or KNOTS) >= enough
        found = every if known else ()
    else:
        found = _name_pairs(pairs, every)
    if each is None:
        each = FINE_KNOTS if room((), FINE_KNOTS) >= FINE * max(1.0, min(float(epsilon), FULL)) else KNOTS
    if each == 1 and not found:
        return Basis(1)
    least, most = 1.0 if labels else CURVE_LIMITS[0], CURVE_LIMITS[1]
    curve = min(max((EVEN / max(signal, 1.0)) ** CURVE_POWER, least), most)
    pair = min(max(signal / PAIR_EVEN, PAIR_LIMITS[0]), PAIR_LIMITS[1])
    ridge = RIDGE * (OF_LABELS if labels else 1.0) * min(1.0, SETTLED / max(signal, 1.0))
    return Basis(each, found, curve=curve, pair=pair, ridge=ridge)


def _name_pairs(pairs: Any, every: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return the user's pairs; refuse what is no pair of two columns of the schema."""
    if isinstance(pairs, bool):
        return every if pairs else ()
    known = {frozenset(pair): pair for pair in every}
    listed = isinstance(pairs, Iterable) and not isinstance(pairs, (str, bytes))
    found = [
        frozenset(pair) if isinstance(pair, (list, tuple)) else frozenset()
        for pair in (pairs if listed else [()])
    ]
    if not all(pair in known for pair in found):
        names = sorted({name for pair in every for name in pair})
        raise InvalidInputError(
            "Expected pairs as True, False or a list of pairs of two different columns, such as "
            f"[('age', 'income')], got another. Columns that can be paired: {', '.join(map(repr, names))}."
        )
    return tuple(known[pair] for pair in dict.fromkeys(found))
