"""Noise formulas as printed in the papers, and the epsilon that they really give."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dp_accounting import dp_event as dp
from scipy.special import lambertw

from sordino.accounting.conversions import check_delta, check_epsilon
from sordino.errors import InvalidInputError
from sordino.kernel import FixedSize, Norm, PaperNoise, Plan, Poisson, Printed, Relation, Sampling
from sordino.kernel.mechanism import Additive
from sordino.runs import Ask
from sordino.values import check_whole


@dataclass(frozen=True)
class Uncertified(Printed, Additive):
    """A mechanism whose event is "not private": a plan that holds one is never reported as anything else."""

    norms: ClassVar[tuple[Norm, ...]] = (Norm.L2,)

    def event(self, relation: Relation) -> dp.DpEvent:
        return dp.NonPrivateDpEvent()

    def rho(self) -> float:
        return math.inf


# ---------------------------------------------- The noise that the papers print, for ``noise="paper"`` only
# Each function returns the printed standard deviation (or Laplace scale) divided by the *contribution* of
# one record to the released sum, the unit of our events. :func:`paper_noise` turns it into the multiplier of
# a mechanism, which is relative to the sensitivity. All papers state replace-one.
#
# **Privacy.** Several of these formulas do not give the epsilon they are printed for. Certify the plan that
# carries them and report that number; never the claim. The privacy notes say what is wrong with each.


Published = tuple[Any, PaperNoise]
"""A solver as it is printed, and its printed noise."""

Formula = Callable[[Any, Any, Ask], Published]


def variant(noise: str, variants: Mapping[str, Formula], budget: Ask, what: str) -> Formula:
    """Return what ``"paper"`` or ``"paper: NAME"`` asks for."""
    wanted = noise.partition(":")[2].strip()
    if wanted not in variants:
        known = sorted(f"paper: {name}" if name else "paper" for name in variants)
        raise InvalidInputError(f"Expected noise in {known} {what}, got {noise!r}.")
    check_finite(budget)
    return variants[wanted]


def check_finite(budget: Ask) -> None:
    if not math.isfinite(budget.epsilon):
        raise InvalidInputError("noise='paper' needs a finite epsilon; epsilon=inf runs without noise.")


def paper_noise(relation: Relation, formula: str, **noises: float) -> PaperNoise:
    """Return printed noises, relative to a contribution, as multipliers by release."""
    return PaperNoise({name: noise / relation.contributions for name, noise in noises.items()}, formula)


def batch_size(sampling: Sampling, population: int) -> int:
    """Return the (expected) number of records of a batch."""
    if isinstance(sampling, FixedSize):
        return sampling.size
    return round(sampling.rate * population) if isinstance(sampling, Poisson) else population


def sgd_ht(epsilon: float, delta: float, *, population: int, batch_size: int, steps: int) -> float:
    r"""DP-SGD-HT: ``sigma^2 = 40 a l^2 T / (n^2 eps)``, ``a = 1 + 2 ln(1/delta) / eps``."""
    order = 1 + 2 * _log(epsilon, delta) / epsilon
    return batch_size / check_whole("population", population) * math.sqrt(40 * order * steps / epsilon)


def scsg_ht(
    epsilon: float,
    delta: float,
    *,
    population: int,
    anchor_batch: int,
    batch_size: int,
    epochs: int,
    drawn: bool = False,
) -> tuple[float, float]:
    r"""DP-SCSG-HT: the noise of the anchor and of the correction.

    ``sigma1^2 / 160 = sigma2^2 / 40 = 2 C B a l^2 J / (b n^2 eps)``, the constants as printed (swapped). A
    correction is a difference of two gradients, so one record contributes up to 2l. With fixed epoch lengths
    (option II) C is 1 and ``a = 1 + 2 ln(1/delta) / eps``; with lengths that are ``drawn`` (option I) C
    is :func:`scsg_length_bound` and half of delta pays for it, ``a = 1 + 2 ln(2/delta) / eps``.
    """
    order = 1 + 2 * _log(epsilon, delta / 2 if drawn else delta) / epsilon
    constant = scsg_length_bound(delta, epochs) if drawn else 1.0
    variance = 2 * constant * anchor_batch * order * epochs / (batch_size * epsilon)
    variance /= check_whole("population", population) ** 2
    return anchor_batch * math.sqrt(160 * variance), batch_size * math.sqrt(40 * variance) / 2


def scsg_length_bound(delta: float, epochs: int) -> float:
    r"""Return C of DP-SCSG-HT's option I: ``exp(-(C - 1 - ln C)) = 1 - (1 - delta/2)^(1/J)``, C > 1.

    Examples
    --------
    >>> round(scsg_length_bound(1e-5, 10), 2)
    18.42
    """
    tail = -math.expm1(math.log1p(-check_delta(delta) / 2) / check_whole("epochs", epochs))
    return float(-lambertw(-tail / math.e, -1).real)


def ight(epsilon: float, delta: float, *, steps: int) -> float:
    r"""DP-IGHT, Theorem 5.2: ``sigma^2 = T G^2 / (n^2 rho)`` with rho of :func:`classical_rho`."""
    return math.sqrt(steps / classical_rho(epsilon, delta))


def ight_logistic(epsilon: float, delta: float, *, steps: int) -> float:
    r"""DP-IGHT, Corollary 5.8: ``sigma^2 = T K^2 ln(1/delta) / (n^2 eps^2)``."""
    return math.sqrt(steps * _log(epsilon, delta)) / epsilon


def ight_linear(epsilon: float, delta: float, *, steps: int) -> float:
    r"""DP-IGHT, Corollary 5.6: ``2 lam T K^2 (sqrt(2s) |theta*| + nu log n)^2 ln(1/delta) / (n eps)^2``.

    lam is not defined in the paper (1 here), and ``K (sqrt(2s) |theta*| + nu log n)``, which holds with high
    probability over the data only and depends on the unknown theta*, is replaced by the clip of a gradient.
    """
    return math.sqrt(2 * steps * _log(epsilon, delta)) / epsilon


def classical_rho(epsilon: float, delta: float) -> float:
    r"""Return rho with ``rho + 2 sqrt(rho ln(1/delta)) = eps``, the loose zCDP conversion."""
    log = _log(epsilon, delta)
    return (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2


def vrpca(
    epsilon: float, delta: float, *, population: int, steps: int, epochs: int = 1, distance: float = 2.0
) -> float:
    r"""DP-VRPCA: ``lambda2^2 = G^2 T m ln(1/delta) / (n^2 eps^2)`` on one record's difference.

    The formula ignores that one record contributes up to ``distance`` (2 for unit vectors) to it.
    """
    log = _log(epsilon, delta)
    return math.sqrt(steps * epochs * log) / (check_whole("population", population) * epsilon * distance)


def srm(epsilon: float, delta: float, **sizes: Any) -> float:
    r"""DP-SRM: ``sigma^2 = 14 T a ((1-gamma) C2 + gamma C1)^2 / (beta n^2 eps)``, beta = ``split``.

    The sizes are those of :func:`lssgd`.
    """
    return lssgd(epsilon, delta, **sizes, constant=14)


def lssgd(
    epsilon: float,
    delta: float,
    *,
    population: int,
    steps: int,
    batch_size: int = 1,
    split: float = 0.5,
    constant: int = 20,
) -> float:
    r"""DP-LSSGD and, for batches of one, DP-SPCA: ``20 T a G^2 / (mu n^2 eps)``, mu = ``split``.

    ``a = ln(1/delta) / ((1-mu) eps) + 1``, as in all formulas here that have a split.
    """
    if not 0 < split < 1:
        raise InvalidInputError(f"Expected a split strictly between 0 and 1, got {split!r}.")
    order = _log(epsilon, delta) / ((1 - split) * epsilon) + 1
    rate = batch_size / check_whole("population", population)
    return rate * math.sqrt(constant * steps * order / (split * epsilon))


def mpc_gradient(epsilon: float, delta: float, *, steps: int, table: bool = False) -> float:
    r"""MPC Grad P: ``s^2 = 8 G^2 T ln(1/delta) / (m^2 n1^2 eps^2)``; the ``table`` lacks ``4 ln(1/delta)``.

    The noise of the table is ``sqrt(2T) G / (m n1 eps)``.
    """
    log = _log(epsilon, delta)
    return math.sqrt(steps * (2 if table else 8 * log)) / epsilon


def truncated_mean(epsilon: float, delta: float) -> float:
    r"""DPODME and DPHDME: ``s^2 = 8 B^2 ln(1.25/delta) / (n^2 eps^2)``, the classical Gaussian mechanism."""
    return 2 * _classical_gaussian(epsilon, delta)


def sco(epsilon: float, delta: float, *, steps: int) -> float:
    r"""DP-SCO, convex: each step at ``eps / (2 sqrt(2T ln(2/delta)))`` and ``delta / 2T``."""
    each = check_epsilon(epsilon) / (2 * math.sqrt(2 * steps * math.log(2 / check_delta(delta))))
    return 2 * _classical_gaussian(each, delta / (2 * steps))


def peeling(epsilon: float, delta: float, *, sparsity: int) -> float:
    r"""Peeling: Laplace of scale ``4 lam sqrt(2 s ln(1/delta)) / eps``, lam two contributions as printed."""
    return 2 * 4 * math.sqrt(2 * sparsity * _log(epsilon, delta)) / epsilon


def frank_wolfe(epsilon: float, delta: float, *, steps: int) -> float:
    r"""Private Frank-Wolfe: Laplace of scale ``C r sqrt(8 T ln(1/delta)) / (n eps)`` on the scores."""
    return math.sqrt(8 * steps * _log(epsilon, delta)) / epsilon


def mod_sulq(epsilon: float, delta: float, *, features: int) -> float:
    """MOD-SULQ on the sum: ``(d+1)/eps sqrt(2 ln((d^2+d)/(delta sqrt(2 pi)))) + 1/sqrt(eps)``."""
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    inside = (features**2 + features) / (delta * math.sqrt(2 * math.pi))
    return (features + 1) / epsilon * math.sqrt(2 * math.log(inside)) + 1 / math.sqrt(epsilon)


def _classical_gaussian(epsilon: float, delta: float) -> float:
    return math.sqrt(2 * math.log(1.25 / check_delta(delta))) / check_epsilon(epsilon)


def _log(epsilon: float, delta: float) -> float:
    check_epsilon(epsilon)
    return math.log(1 / check_delta(delta))


def srm_noise(plan: Plan, budget: Ask) -> PaperNoise:
    """Return the noise of DP-SRM (section 4.5) on the first gradient and on the corrections of a plan."""
    n, steps = plan.population, sum(release.times for release in plan.releases.values())
    sizes = {name: batch_size(release.sampling, n) for name, release in plan.releases.items()}
    noises = {
        name: srm(budget.epsilon, budget.delta, population=n, batch_size=size, steps=steps)
        for name, size in sizes.items()
    }
    return paper_noise(plan.relation, "DP-SRM, section 4.5", **noises)
