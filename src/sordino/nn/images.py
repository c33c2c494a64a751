"""Parts of networks for images that learn well under noise."""

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


class ImageNetwork(nn.Module):
    """A network for :class:`Scattering` coefficients: a linear path and one of a convolution, added up.

    The convolution has 1 x 1 kernels and tanh; averages of 2 x 2 places go into a second linear layer. Both
    paths start at zero, so that all classes are alike before the first step.

    Parameters
    ----------
    shape : (channels, height, width) of the coefficients of an image.
    classes : how many there are.
    width : channels of the convolution.
    """

    def __init__(self, shape: tuple[int, int, int], classes: int, width: int = 32) -> None:
        super().__init__()
        channels, height, rows = shape
        edges = (height % 2, rows % 2)
        places = ((height + 1) // 2) * ((rows + 1) // 2)
        self.straight = nn.Linear(channels * height * rows, classes)
        self.last = nn.Linear(width * places, classes)
        self.path = nn.Sequential(
            nn.Conv2d(channels, width, 1), nn.Tanh(), nn.AvgPool2d(2, 2, padding=edges), nn.Flatten()
        )
        for layer in (self.straight, self.last):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, coefficients: Tensor) -> Tensor:
        """Return the scores of the classes."""
        halved = coefficients / 2  # of the size at which settings were chosen
        scores: Tensor = self.straight(halved.flatten(1)) + self.last(self.path(halved))
        return scores
