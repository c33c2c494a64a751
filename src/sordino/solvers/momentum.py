"""Momentum on released iterates: free post-processing, and sparse as long as the iterates are.

Momentum is taken on differences of *thresholded* iterates and not on a running mean of noisy gradients:
such a mean is dense, and the lazy step of :mod:`sordino.kernel.lazy` would no longer be exact with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sordino.errors import InvalidInputError
from sordino.kernel.contracts import Point
from sordino.solvers.base import Options, among
from sordino.solvers.vectors import vector_sum

KINDS = ("none", "heavy-ball", "nesterov")


@dataclass(frozen=True)
class Momentum:
    r"""How the last move is carried on, with weight ``beta`` in [0, 1).

    ``"heavy-ball"``: ``w <- H_k(w - step g(w) + beta (w - previous))``.
    ``"nesterov"``: ``w <- H_k(y - step g(y))`` at ``y = w + beta (w - previous)``.

    **Privacy.** Both are functions of released iterates and public constants.
    """

    kind: str = "none"
    beta: float = 0.9

    def __post_init__(self) -> None:
        among("momentum", self.kind, KINDS)
        if isinstance(self.beta, bool) or not isinstance(self.beta, (int, float)) or not 0 <= self.beta < 1:
            raise InvalidInputError(f"Expected momentum_weight in [0, 1), got {self.beta!r}.")

    def asked_at(self, w: Point, previous: Point) -> Point:
        """Return where the gradient is asked."""
        return self._carried(w, previous) if self.kind == "nesterov" else w

    def moved_from(self, w: Point, previous: Point) -> Point:
        """Return the point that the gradient step starts from."""
        return w if self.kind == "none" else self._carried(w, previous)

    def _carried(self, w: Point, previous: Point) -> Point:
        return vector_sum((1.0 + self.beta) * w, -self.beta * previous)


def chosen_momentum(options: Options, kind: str = "none", **defaults: Any) -> tuple[Momentum, dict[str, Any]]:
    """Return the momentum that was asked for, ``kind`` by default, and the solver's other options."""
    extra = options.chosen(momentum=kind, momentum_weight=0.9, **defaults)
    return Momentum(extra.pop("momentum"), extra.pop("momentum_weight")), extra
