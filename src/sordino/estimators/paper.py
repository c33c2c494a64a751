"""The published noise formulas, by solver: for reproduction only."""

from __future__ import annotations

from typing import Any

from sordino.errors import InvalidInputError
from sordino.estimators.fitting import Budget, PaperNoise


def paper_noise(name: str, solver: Any, problem: Any, budget: Budget) -> PaperNoise:
    """Return the published multipliers of a solver; which epsilon they give is for the accountant to say."""
    if name not in _FORMULAS:
        raise InvalidInputError(
            f"Expected a solver with a published formula for noise='paper' ({sorted(_FORMULAS)}), got {name!r}."
        )
    return _FORMULAS[name](solver, problem, budget)


_FORMULAS: dict[str, Any] = {}
