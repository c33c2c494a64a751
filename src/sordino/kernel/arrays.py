"""Names for the arrays that all rooms pass around."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Rows: TypeAlias = Ints | None
"""Row numbers; None means every row."""


# Norms of vectors that are released or public. Norms of data are in :mod:`sordino.kernel.clip`.


def public_norm(vector: Any) -> float:
    """Return the Euclidean norm of a released or public vector."""
    return float(np.linalg.norm(np.asarray(vector, dtype=float).reshape(-1)))


def public_distance(one: Any, other: Any) -> float:
    """Return the Euclidean distance of two released or public vectors."""
    return public_norm(np.asarray(one, dtype=float) - np.asarray(other, dtype=float))
