"""The norm of a contribution and its clip factor, for everything that is not a neural network.

No other module takes a norm of data. Every norm here is an upper bound of the exact one, every factor keeps
the exact contribution at or below its bound, and each function says by how much it may be off: see
:func:`sordino.kernel.clip.doubles.slack`. Norms of released or public vectors are in
:mod:`sordino.kernel.arrays`.
"""

from sordino.kernel.clip.arrays import (
    Lengths,
    centred_norms,
    check_bound,
    clip_scalars,
    clipped_blocks,
    clipped_matrix,
    factors_of,
    joint_norms,
    measured,
    person_norms,
    person_sums,
    row_norms,
    row_peaks,
    scaled,
    shortened,
    sum_of_rows,
    to_bound,
    vector_norm,
    weighted_norms,
)
from sordino.kernel.clip.doubles import HIGHEST, limit, root_above, slack

__all__ = [
    "HIGHEST",
    "Lengths",
    "centred_norms",
    "check_bound",
    "clip_scalars",
    "clipped_blocks",
    "clipped_matrix",
    "factors_of",
    "joint_norms",
    "limit",
    "measured",
    "person_norms",
    "person_sums",
    "root_above",
    "row_norms",
    "row_peaks",
    "scaled",
    "shortened",
    "slack",
    "sum_of_rows",
    "to_bound",
    "vector_norm",
    "weighted_norms",
]
