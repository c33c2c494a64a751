"""What a histogram costs beside the rest of a plan, and how much noise a release has."""

from __future__ import annotations

import math
from typing import Any

from sordino.kernel import Curator


def share_relative(share: float, times: float = 1.0) -> float:
    """Return the relative noise that gives a Gaussian release this share beside ``times`` others."""
    return math.sqrt((1.0 - share) / (share * times))


def noise_of(curator: Curator, name: str, params: Any) -> float:
    """Return the public standard deviation of a release's noise."""
    release = curator.plan.releases[name]
    multiplier = release.mechanism.multiplier or 0.0
    return multiplier * release.sensitivity(curator.plan.relation, params)
