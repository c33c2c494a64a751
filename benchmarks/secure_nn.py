"""What noise without floating-point artefacts costs a network: CPU seconds a step, beside the ordinary step.

Command: python -m benchmarks.secure_nn

Made-up records; the two kinds of steps alternate, so that whatever else the machine does meets both.
"""

from __future__ import annotations

import time

import torch
from torch import nn

from benchmarks.machine import describe
from sordino.nn import Trainer

ROUNDS, STEPS = 3, 8


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


def seconds(model: nn.Module, x: torch.Tensor, batch: int, secure: bool, steps: int) -> float:
    """Return the CPU time of a fit."""
    y = torch.arange(len(x)) % 10
    trainer = Trainer(
        model, nn.CrossEntropyLoss(), 4.0, 1e-5, batch_size=batch, steps=steps, secure_noise=secure
    )
    start = time.process_time()
    trainer.fit(x, y)
    return time.process_time() - start


def main() -> None:
    """Print one line per network: what is the same in a fit of one step is taken off."""
    describe()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for name, (model, x, batch) in models().items():
        taken = {False: [0.0] * ROUNDS, True: [0.0] * ROUNDS}
        for turn in range(ROUNDS):
            for secure in taken:
                both = [seconds(model, x, batch, secure, steps) for steps in (1, 1 + STEPS)]
                taken[secure][turn] = (both[1] - both[0]) / STEPS
        plain, secure_step = (min(taken[kind]) for kind in (False, True))
        print(
            f"{name}: {1e3 * plain:.0f} ms a step, with secure_noise {1e3 * secure_step:.0f} ms "
            f"({secure_step / plain:.1f}x)",
            flush=True,
        )


if __name__ == "__main__":
    main()
