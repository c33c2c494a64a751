"""What a tree of events costs: one function, the tightest proven accountant for the tree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from dp_accounting import dp_event as dp

from sordino.accounting.conversions import check_delta, gaussian_epsilon
from sordino.accounting.leaves import Leaf, flatten, gaussian_mu, is_non_private, without_rare
from sordino.accounting.pld import pld_epsilon, supports
from sordino.accounting.renyi import rdp_curve, rdp_epsilon, total_curve
from sordino.kernel.events import Relation

__all__ = ["Certificate", "certify", "certify_by", "rdp_curve"]

EXACT, PLD, RDP, NONE = "gaussian (exact)", "pld", "rdp", "none"


@dataclass(frozen=True)
class Certificate:
    """A proven guarantee.

    Parameters
    ----------
    epsilon, delta : the guarantee; epsilon is ``inf`` where there is none.
    relation : the neighbouring relation it holds for.
    accountant : ``"gaussian (exact)"``, ``"pld"``, ``"rdp"`` or ``"none"``.
    discretisation : the grid of a privacy loss distribution, else None; coarse is loose, never wrong.
    """

    epsilon: float
    delta: float
    relation: Relation
    accountant: str
    discretisation: float | None = None

    @property
    def is_private(self) -> bool:
        """Whether epsilon is finite."""
        return math.isfinite(self.epsilon)


def certify(event: dp.DpEvent, delta: float, relation: Relation, *, grid: float | None = None) -> Certificate:
    """Return the smallest epsilon that is proven for an event tree.

    Full-batch Gaussians alone compose exactly. Otherwise privacy loss distributions are used if every
    leaf has a dominating pair, and Rényi divergences if not, or if ``delta`` is below what a
    floating-point distribution resolves. No central-limit approximation is ever used. What is told but
    rarely takes its probability off ``delta``; the rest is certified at what is left.

    Parameters
    ----------
    event : a tree in the semantics of ``kernel.events``.
    delta : in (0, 1).
    relation : the neighbouring relation of the tree.
    grid : interval of the loss grid; by default as fine as needed for 1 %.

    Examples
    --------
    >>> from dp_accounting import dp_event as dp
    >>> from sordino.kernel.events import Relation
    >>> round(certify(dp.GaussianDpEvent(1.0), 1e-5, Relation.ADD_REMOVE).epsilon, 3)
    4.377

    **Privacy.** The number depends on the tree only, never on data.
    """
    leaves, rare = without_rare(flatten(event))
    left = check_delta(delta) - rare
    if rare and not left > 0:
        return Certificate(math.inf, delta, Relation.parse(relation), NONE)
    found = _certify(leaves, left if rare else check_delta(delta), Relation.parse(relation), grid)
    return replace(found, delta=check_delta(delta)) if rare else found


@lru_cache(maxsize=256)  # a plan is certified when it is calibrated, reserved and reported
def _certify(leaves: tuple[Leaf, ...], delta: float, relation: Relation, grid: float | None) -> Certificate:
    if is_non_private(leaves):
        return Certificate(math.inf, delta, relation, NONE)
    if all(isinstance(leaf.event, dp.GaussianDpEvent) for leaf in leaves):
        # At most one leaf: flatten has composed the Gaussians. None means that nothing is released.
        mu = sum(gaussian_mu(leaf, relation) for leaf in leaves)
        return Certificate(gaussian_epsilon(mu, delta), delta, relation, EXACT)
    if all(supports(leaf, relation) for leaf in leaves):
        found = pld_epsilon(leaves, delta, relation, grid)
        if math.isfinite(found.epsilon):
            return Certificate(found.epsilon, delta, relation, PLD, found.interval)
    return _renyi(leaves, delta, relation)


def certify_by(
    accountant: str, event: dp.DpEvent, delta: float, relation: Relation, *, grid: float | None = None
) -> Certificate:
    """Return the guarantee of one named accountant, for comparisons; :func:`certify` chooses."""
    leaves, delta, relation = flatten(event), check_delta(delta), Relation.parse(relation)
    if is_non_private(leaves):
        return Certificate(math.inf, delta, relation, NONE)
    if accountant == RDP:
        return _renyi(leaves, delta, relation)
    found = pld_epsilon(leaves, delta, relation, grid)
    return Certificate(found.epsilon, delta, relation, PLD, found.interval)


def _renyi(leaves: Sequence[Leaf], delta: float, relation: Relation) -> Certificate:
    return Certificate(rdp_epsilon(total_curve(leaves, relation), delta), delta, relation, RDP)
