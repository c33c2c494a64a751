"""Laplacian smoothing of released gradients, layer by layer: free post-processing."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def smoothed(vector: Tensor, strength: float) -> Tensor:
    r"""Return ``A^{-1} v`` with A = I - strength * Laplacian on a circle, by the fast Fourier transform.

    A is circulant, ``1 + 2 s`` on the diagonal and ``-s`` beside it, so its eigenvalues are
    ``1 + 2 s (1 - cos(2 pi k / d))``. The sum of the entries is kept and the norm never grows.
    """
    if not strength:
        return vector
    d = vector.numel()
    k = torch.arange(d // 2 + 1, device=vector.device, dtype=vector.dtype)
    eigenvalues = 1 + 2 * strength * (1 - torch.cos(2 * math.pi * k / d))
    return torch.fft.irfft(torch.fft.rfft(vector) / eigenvalues, n=d)


def smoothed_by_layer(vector: Tensor, sizes: tuple[int, ...], strength: float) -> Tensor:
    """Smooth each parameter tensor on its own: neighbours in different layers have nothing in common."""
    if not strength:
        return vector
    return torch.cat([smoothed(part, strength) for part in vector.split(list(sizes))])
