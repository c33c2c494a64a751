"""PyTorch training with the same plans."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from sordino.errors import require_extra

if find_spec("torch") is None:  # pragma: no cover - the extra is installed wherever tests run
    raise require_extra("torch", "torch")

# name -> module; loaded when first used
_EXPORTS = {
    "Adam": "sordino.nn.updates",
    "Checkpoint": "sordino.nn.checkpoint",
    "Descent": "sordino.nn.solvers",
    "GhostEngine": "sordino.nn.engines",
    "HardThreshold": "sordino.nn.updates",
    "Network": "sordino.nn.network",
    "NeuralClassifier": "sordino.nn.estimators",
    "NeuralRegressor": "sordino.nn.estimators",
    "Recipe": "sordino.nn.solvers",
    "Sgd": "sordino.nn.updates",
    "Srm": "sordino.nn.solvers",
    "TorchDifference": "sordino.nn.queries",
    "TorchGradient": "sordino.nn.queries",
    "TorchModel": "sordino.nn.federated",
    "Trained": "sordino.nn.trainer",
    "Trainer": "sordino.nn.trainer",
    "VmapEngine": "sordino.nn.engines",
    "make_private": "sordino.nn.loop",
    "replace_batch_norm": "sordino.nn.refuse",
}

__all__ = list(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'sordino.nn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
