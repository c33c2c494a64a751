"""Images and the small networks of the papers; everything about them is public but the pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sordino.datasets import load
from sordino.kernel import public_generator

CROSS_ENTROPY = nn.functional.cross_entropy
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@dataclass(frozen=True, eq=False)
class Images:
    """Images to learn from and to judge on, and the network of a paper for them."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    make: Callable[[], nn.Module]

    def network(self, seed: int) -> nn.Module:
        """Return the network, initialised from a public seed: uniform, by the number of inputs of a layer."""
        model, public = self.make(), public_generator(seed)
        with torch.no_grad():
            for layer in model.modules():
                if isinstance(layer, (nn.Conv2d, nn.Linear)):
                    bound = layer.weight[0].numel() ** -0.5
                    for p in layer.parameters():
                        p.copy_(torch.from_numpy(public.uniform(-bound, bound, tuple(p.shape))))
        return model.to(self.x.device)

    def error(self, model: nn.Module) -> float:
        """Return the test error in per cent."""
        with torch.no_grad():
            found = torch.cat([model(part).argmax(dim=1) for part in self.test_x.split(2000)])
        return 100 * float((found != self.test_y).float().mean())


@cache
def images(name: str, network: str, most: int | None = None) -> Images:
    """Return a set, or ``most`` of its training images taken evenly."""
    data: Any = load(name, flatten=False)
    every = 1 if most is None else max(1, len(data.data) // most)
    x, test_x = (_tensor(a) for a in (data.data[::every][:most], data.test_data))
    y, test_y = (
        torch.from_numpy(np.asarray(t, dtype=np.int64))
        for t in (data.target[::every][:most], data.test_target)
    )
    x, y, test_x, test_y = (part.to(DEVICE) for part in (x, y, test_x, test_y))
    return Images(x, y, test_x, test_y, NETWORKS[network])


def _tensor(pixels: Any) -> Tensor:
    """Return pixels in [0, 1], channels first."""
    values = np.asarray(pixels, dtype=np.float32)
    values = values[..., None] if values.ndim == 3 else values
    return torch.from_numpy(values.transpose(0, 3, 1, 2).copy())


def four_layers() -> nn.Module:
    """Return the MNIST network of pytorch-dp's example: two convolutions, two dense layers."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def lenet(channels: int, last: int) -> nn.Module:
    """Return conv(6, 5) - pool - conv(16, 5) - pool - 120 - 84 - 10, the network of Liang et al. and CNN5."""
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(last, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "four layers": four_layers,
    "cnn5": lambda: lenet(3, 400),
    "liang": lambda: lenet(1, 256),
}
