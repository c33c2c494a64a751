"""The norm of a contribution and its clip factor, for everything that is not a neural network.

No other module takes a norm of data. Every norm here is an upper bound of the exact one, every factor keeps
the exact contribution at or below its bound, and each function says by how much it may be off: see
:func:`sordino.kernel.clip.rounding.slack`. Norms of released or public vectors are in
:mod:`sordino.kernel.lengths`.
"""

from sordino.kernel.clip.blocks import clipped_blocks, clipped_matrix, shortened, sum_of_rows
from sordino.kernel.clip.factors import check_bound, clip_scalars, factors_of, scaled, to_bound
from sordino.kernel.clip.norms import (
    Lengths,
    centred_norms,
    joint_norms,
    measured,
    row_norms,
    row_peaks,
    vector_norm,
    weighted_norms,
)
from sordino.kernel.clip.persons import person_norms
from sordino.kernel.clip.rounding import HIGHEST, limit, root_above, slack

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
