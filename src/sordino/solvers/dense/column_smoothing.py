"""Laplacian smoothing of released gradients: free post-processing."""

from __future__ import annotations

from typing import Any

import numpy as np

from sordino.errors import InvalidInputError
from sordino.kernel.arrays import Floats


def smoothed(vector: Floats, strength: float, kept: int = 0) -> Floats:
    r"""Return ``A^{-1} v`` with A = I - strength * Laplacian on a circle, by the fast Fourier transform.

    A is circulant, ``1 + 2 s`` on the diagonal and ``-s`` beside it, so its eigenvalues are
    ``1 + 2 s (1 - cos(2 pi k / d))``. Each output is smoothed on its own over its features; the last
    ``kept`` columns (the intercept) have no neighbours. Sums are kept and norms never grow.

    Examples
    --------
    >>> import numpy as np
    >>> smoothed(np.array([4.0, 0.0, 0.0, 0.0]), 1.0).round(3).tolist()
    [1.867, 0.8, 0.533, 0.8]
    """
    if not strength:
        return vector
    d = vector.shape[-1] - kept
    eigenvalues = 1 + 2 * strength * (1 - np.cos(2 * np.pi * np.arange(d // 2 + 1) / d))
    out = np.array(vector, dtype=float)
    out[..., :d] = np.fft.irfft(np.fft.rfft(out[..., :d]) / eigenvalues, n=d)
    return out


def checked_strength(value: Any) -> float:
    """Return a smoothing strength >= 0."""
    number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else -1.0
    if not 0 <= number < np.inf:
        raise InvalidInputError(f"Expected smoothing in [0, inf), got {value!r}. Usual are 0 to 3.")
    return number
