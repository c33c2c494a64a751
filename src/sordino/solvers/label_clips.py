"""What more records and budget change for label models: how much is clipped, what is asked of the classes.

A clip below the largest contribution weighs records. Weights that depend on rows alone leave log odds as they
are where the model is true; where labels are wrong, or log odds are no line, the weighted model is another
one. So the clips open with the public number of records times epsilon, and the estimate tends to the plain
one on every bounded distribution.
"""

from __future__ import annotations

from sordino.problems.losses import LabelModel
from sordino.problems.problem import Problem
from sordino.solvers.metric import ROOM

# From so many records times epsilon on, the last question weighs its records less: by which power of this
# number the clip grows, and how much at most (log odds of 38 are then asked about as they are).
_ENOUGH, _OPENING, _WIDEST = 1000.0, 0.9, 64.0
# From so many for each coefficient on, gradients are clipped less.
_GRADIENTS = 300.0
# The share of the budget that asks how frequent the classes are, for so many records times epsilon; fewer
# need more of it, up to the second share, and very few up to the last one.
_CLASSES, _FEW_CLASSES, _FEWEST_CLASSES, _ENOUGH_CLASSES = 0.01, 0.05, 0.5, 4000.0
_VERY_FEW = 6.0


def has_room(problem: Problem, coefficients: int) -> float:
    """Return by how much so many coefficients can be told from noise, at most 1."""
    return min(1.0, problem.population * problem.epsilon / (ROOM * coefficients))


def opened_length(problem: Problem, clip: float, coefficients: int) -> float:
    """Return the clip of the last question about a model of so many coefficients."""
    if not isinstance(problem.loss, LabelModel):
        return clip
    signal = problem.population * problem.epsilon * has_room(problem, coefficients)
    return clip * min(max(1.0, signal / _ENOUGH) ** _OPENING, _WIDEST)


def opened_gradient(problem: Problem, clip: float, coefficients: int, longest: float) -> float:
    """Return the clip of a gradient in so many coefficients, of rows that are at most so long."""
    opened = clip * _opening(problem, _GRADIENTS * coefficients)
    return max(clip, min(opened, problem.loss.lipschitz * longest))


def class_share(problem: Problem) -> float:
    """Return the share of the budget for the frequencies of the classes."""
    signal = max(problem.population * problem.epsilon, 1e-12)
    few = min(_CLASSES * _ENOUGH_CLASSES / signal, _FEW_CLASSES)
    return max(_CLASSES, few, min(_VERY_FEW / signal, _FEWEST_CLASSES))


def _opening(problem: Problem, enough: float) -> float:
    """Return by how much less is clipped; 1 for numbers, whose losses have no law of labels."""
    if not isinstance(problem.loss, LabelModel):
        return 1.0
    return min(max(1.0, problem.population * problem.epsilon / enough) ** 0.5, 1e6)
