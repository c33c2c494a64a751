"""What released numbers are evidence of: widths of clips, numbers seen with noise, curvature along a step."""

from __future__ import annotations

import math

import numpy as np

from sordino.kernel.arrays import Floats

# Tails end where so many deviations of noise hide them.
_SURE = 3.0
NOTHING = 1e-300
# How far the slope may be from that of the clipped question before any release.
SLOPE = 0.5


def chosen_width(
    sizes: Floats, shares: Floats, noise: float, spread: float, biased: tuple[float, float]
) -> tuple[float, float]:
    """Return the width of a clip that weighs its bias against noise, and the bias that is expected of it.

    ``shares`` of the records have these sizes, below and above zero, with this noise; a clip at ``width``
    adds noise of ``spread * width``. The tail beyond a width is what stands out of the noise of its sum, and
    what one side has more of it, and what both have, counts by ``biased``.
    """
    beyond_each = np.cumsum(shares.sum(axis=0)[::-1])[::-1]
    cells = np.arange(len(sizes), 0, -1)
    seen = sizes <= sizes[beyond_each > _SURE * noise * np.sqrt(2.0 * cells)].max(initial=0.0)
    widths = np.append(sizes[sizes > sizes[-1] * 2.0**-16], 1.2 * sizes[-1])
    beyond = np.where(seen, np.maximum(sizes - widths[:, None], 0.0), 0.0)
    unsure = noise * np.sqrt(2.0 * np.square(beyond).sum(axis=1))
    down, up = (beyond @ side for side in shares)
    more = np.maximum(np.abs(up - down) - 2.0 * unsure, 0.0)
    bias = np.hypot(biased[0] * more, biased[1] * np.maximum(up + down - unsure, 0.0))
    best = int(np.argmin(np.hypot(bias, spread * widths)))
    return float(widths[best]), float(bias[best])


def one_sided(shares: Floats, sizes: Floats) -> Floats:
    """Return the shares by rising size, all of them below zero."""
    rising = shares[np.argsort(sizes)]
    return np.stack([rising, np.zeros_like(rising)])


def believed(seen: float, variance: float, usual: float) -> float:
    """Return what is believed of a number seen with noise: that it is 0, or what is usual, of even odds."""
    both, variance = variance + usual, max(variance, NOTHING)
    odds = math.sqrt(variance / both) * math.exp(min(0.5 * seen**2 * (1.0 / variance - 1.0 / both), 700.0))
    return seen * usual / both * odds / (1.0 + odds)


def stiffened(bends: Floats, pulls: Floats, moved: Floats, noise: float) -> Floats:
    """Return the curvatures along the axes, larger where two gradients show that.

    Second moments are of clipped rows: along a column that few, long rows have they are far too small, and a
    Newton step with them goes far beyond the minimum.
    """
    far = np.maximum(np.abs(moved), NOTHING)
    return np.maximum(bends, np.minimum(np.sign(moved) * pulls / far - 3.0 * noise / far, 1e6 * bends))


def share_within(first: float, last: float, noise: float) -> float:
    """Return the share of a step at which its slope, known at both ends, is zero: 1 before that."""
    return min(1.0, -first / (last - first)) if last > noise and first < 0.0 else 1.0


def along_axes(
    seen: Floats, w: Floats, bends: Floats, noise: float
) -> tuple[Floats, Floats, Floats, tuple[float, float]]:
    """Return the step along each axis, the share of what was seen that is believed, and the noise of it.

    First the slope, one number whose spread is known; its share and its deviation come last. Then all axes
    alike: there is nothing to correct, or the step adds the same variance to margins along each axis.
    """
    along = max(float(w @ (bends * w)), NOTHING)
    error, whole = noise * math.sqrt(float(w @ w)) / along, float(w @ seen) / along
    slope = believed(whole, error**2, SLOPE**2)
    left = seen - slope * bends * w
    variances = np.append(0.0, np.geomspace(1e-8, 1e2, 81))[:, None]
    law = np.maximum(noise**2 + bends * variances, NOTHING)
    likely = -0.5 * (np.log(law) + np.square(left) / law).sum(axis=1)
    likely[1:] -= math.log(len(variances) - 1)
    weights = np.exp(likely - likely.max())
    kept = (weights / weights.sum()) @ (bends * variances / law)
    share = slope / whole if whole else 0.0
    return slope * w + kept * left / bends, kept, kept * noise / bends, (share, error)
