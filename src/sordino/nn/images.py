"""A first layer for images that learns nothing, and so well under noise."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sordino.wavelets import scatter


class Scattering(nn.Module):
    """A first layer without weights: scattering coefficients of each channel of an image, normalised.

    Images (channels, height, width) become (channels (1 + J L + L^2 J (J - 1) / 2), height / 2^J, width /
    2^J), centred and scaled image by image within groups of at least three channels. Nothing is learned, so
    nothing is paid, and what comes after needs few weights.

    Parameters
    ----------
    channels : of an image.
    scales, angles : octaves J and directions L, see :class:`sordino.ScatteringTransformer`.
    """

    def __init__(self, channels: int = 1, *, scales: int = 2, angles: int = 8) -> None:
        super().__init__()
        self.scales, self.angles = scales, angles
        each = 1 + scales * angles + angles**2 * scales * (scales - 1) // 2
        self.channels = channels * each
        groups = max(k for k in range(1, 1 + max(1, self.channels // 3)) if self.channels % k == 0)
        self.norm = nn.GroupNorm(groups, self.channels, affine=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return the coefficients of some images."""
        found = scatter(images.flatten(0, 1), self.scales, self.angles, torch)
        coefficients: Tensor = self.norm(found.reshape(len(images), -1, *found.shape[2:]))
        return coefficients

    def of(self, images: Tensor, block: int = 500) -> Tensor:
        """Return the coefficients of a whole set, a block at a time: the layer has no weights to train."""
        with torch.no_grad():
            return torch.cat([self(part) for part in images.split(block)])
