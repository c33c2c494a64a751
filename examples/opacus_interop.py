"""Take a model and a data loader that were written for Opacus and train them with Sordino.

An Opacus model is an ordinary module without BatchNorm, and `make_private` of Opacus wraps it in a
`GradSampleModule`. Here it is unwrapped, and the loader gives its data set; its Poisson sampler is not
needed, because the curator draws the batches itself.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from sordino.nn import Trainer


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the module inside Opacus's wrapper, without its hooks; any other module as it is."""
    if type(model).__name__.startswith("GradSampleModule"):
        inner: Any = model
        if hasattr(inner, "remove_hooks"):
            inner.remove_hooks()
        return inner._module
    return model


def made_for_opacus() -> tuple[nn.Module, torch.utils.data.DataLoader[Any]]:
    """Return a model and a loader, wrapped by Opacus where it is installed."""
    x = torch.stack([torch.cos(torch.arange(20.0) * (i % 7)) for i in range(400)])
    y = torch.arange(400) % 7 % 3
    model = nn.Sequential(nn.Linear(20, 16), nn.GroupNorm(4, 16), nn.Tanh(), nn.Linear(16, 3))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=100)
    try:
        from opacus import PrivacyEngine
    except ImportError:
        return model, loader
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    private, _, loader = PrivacyEngine().make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
    )
    return private, loader


def main(epochs: float = 10.0) -> None:
    """Train it, and print what it cost."""
    model, loader = made_for_opacus()
    trainer = Trainer(
        unwrapped(model), nn.CrossEntropyLoss(), epsilon=3.0, delta=1e-5, batch_size=100, epochs=epochs
    )
    print(trainer.fit(loader).privacy)


if __name__ == "__main__":
    main()
