"""The published noise of networks (DP-SRM, federated hard thresholding): for reproduction only."""

from __future__ import annotations

from typing import Any

from sordino.kernel import Full, PaperNoise, Plan, Poisson
from sordino.papers import formulas
from sordino.papers.formulas import Claimed


def srm_noise(plan: Plan, budget: Claimed) -> PaperNoise:
    """Return the noise of DP-SRM (section 4.5) on the first gradient and on the corrections of a plan."""
    steps = sum(release.times for release in plan.releases.values())
    noises = {
        name: formulas.srm(
            budget.epsilon,
            budget.delta,
            population=plan.population,
            batch_size=_size(release.sampling, plan.population),
            steps=steps,
        )
        for name, release in plan.releases.items()
    }
    return _noise(plan, noises, "DP-SRM, section 4.5")


def federated_noise(plan: Plan, budget: Claimed) -> PaperNoise:
    """Return the noise of one client: DP-FedSGD-HT (theorem 4.1), or DP-FedGD-HT where batches are full."""
    (release,) = plan.releases.values()
    if isinstance(release.sampling, Full):
        noise = formulas.ight(budget.epsilon, budget.delta, steps=release.times)
        return _noise(plan, {"gradient": noise}, "DP-FedGD-HT, the noise of DP-IGHT")
    noise = formulas.sgd_ht(
        budget.epsilon,
        budget.delta,
        population=plan.population,
        batch_size=_size(release.sampling, plan.population),
        steps=release.times,
    )
    return _noise(plan, {"gradient": noise}, "DP-FedSGD-HT, the noise of DP-SGD-HT")


def _noise(plan: Plan, noises: dict[str, float], formula: str) -> PaperNoise:
    made = {name: formulas.multiplier(noise, plan.relation) for name, noise in noises.items()}
    return PaperNoise(made, formula)


def _size(sampling: Any, population: int) -> int:
    return round(sampling.rate * population) if isinstance(sampling, Poisson) else population
