"""The norms of persons' sums."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.clip.norms import joint_norms, row_norms
from sordino.kernel.clip.rounding import UNIT


def person_norms(blocks: Any, owner: Ints, persons: int, sizes: Floats) -> Floats:
    r"""Return upper bounds of ``|| sum_{i of p} c_i x_i ||`` for each person p.

    ``blocks`` yields (slice, rows ``c_i x_i``) in the order of ``owner``, which does not fall; a person
    may straddle blocks; ``sizes`` are upper bounds of ``|c_i| ||x_i||``.

    **Rounding.** The sum of m rows errs by at most ``m u S``, S the sum of their sizes: it may cancel, so
    this does not shrink with the sum. The sum that is released errs likewise, after ``c_i`` was multiplied by
    the person's factor (u S more). ``(2 m + 16) u S`` is added to the norm of the computed sum.
    """
    out, first, carried = np.zeros(persons), 0, None
    for rows, block in blocks:
        sums = _sums(block, owner[rows] - first)
        if carried is not None:
            sums = sums + sparse.vstack([carried, sparse.csr_matrix((sums.shape[0] - 1, sums.shape[1]))])
        out[first : first + sums.shape[0]] = row_norms(sums)
        carried, first = sums[-1], first + sums.shape[0] - 1
    counts, total = np.bincount(owner, minlength=persons), np.bincount(owner, sizes, minlength=persons)
    with np.errstate(all="ignore"):
        return np.asarray(joint_norms([out + (2 * counts + 16) * UNIT * total]))


def _sums(block: Any, owner: Ints) -> Any:
    member = sparse.csr_matrix((np.ones(owner.size), (owner, np.arange(owner.size))))
    sums = sparse.csr_matrix(member @ block)
    sums.sum_duplicates()
    return sums
