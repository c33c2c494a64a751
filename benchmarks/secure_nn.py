"""What noise without floating-point artefacts costs a network: CPU seconds a step, beside the ordinary step.

Command: python -m benchmarks.secure_nn

Made-up records; the two kinds of steps alternate, so that whatever else the machine does meets both.
"""

from __future__ import annotations

import time

import torch
from torch import nn

from benchmarks.machine import describe
from sordino.nn import make_private

ROUNDS, STEPS = 3, 10


def models() -> dict[str, tuple[nn.Module, torch.Tensor, int]]:
    """Return networks, records and batch sizes."""
    convolutions = nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, 2), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10),
    )  # fmt: skip
    layers = nn.Sequential(nn.Linear(100, 64), nn.Tanh(), nn.Linear(64, 10))
    return {
        "perceptron, 7,114 weights, batch 256": (layers, torch.randn(4096, 100), 256),
        "small CNN, 26,010 weights, batch 256": (convolutions, torch.randn(4096, 1, 28, 28), 256),
    }


def seconds(model: nn.Module, x: torch.Tensor, batch: int, secure: bool) -> float:
    """Return the CPU time of a step; the first is not counted."""
    data, settings = (x, torch.arange(len(x)) % 10), {"batch_size": batch, "secure_noise": secure}
    loop = make_private(
        model, nn.CrossEntropyLoss(), data, epsilon=4.0, delta=1e-5, steps=1 + STEPS, **settings
    )
    steps = iter(loop)
    next(steps)
    start = time.process_time()
    for _ in steps:
        pass
    return (time.process_time() - start) / STEPS


def main() -> None:
    """Print one line per network."""
    describe()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for name, (model, x, batch) in models().items():
        taken = [[seconds(model, x, batch, secure) for secure in (False, True)] for _ in range(ROUNDS)]
        plain, secure = (min(column) for column in zip(*taken, strict=True))
        print(
            f"{name}: {1e3 * plain:.1f} ms a step, with secure_noise {1e3 * secure:.1f} ms "
            f"({secure / plain:.1f}x)",
            flush=True,
        )


if __name__ == "__main__":
    main()
