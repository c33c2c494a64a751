"""What a histogram costs beside the rest of a plan, and how much noise a release has."""

from __future__ import annotations

import math
from typing import Any

from sordino.kernel import Curator, Plan


def share_relative(share: float, times: float = 1.0) -> float:
    """Return the relative noise that gives a Gaussian release this share beside ``times`` others."""
    return math.sqrt((1.0 - share) / (share * times))


def noise_of(curator: Curator, name: str, params: Any) -> float:
    """Return the public standard deviation of a release's noise."""
    return noise_in(curator.plan, name, params)


def noise_in(plan: Plan, name: str, params: Any = None) -> float:
    """Return the public standard deviation of the noise of a release of a calibrated plan."""
    release = plan.releases[name]
    return (release.mechanism.multiplier or 0.0) * release.sensitivity(plan.relation, params)
