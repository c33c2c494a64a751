"""PyTorch training with the same plans."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from sordino.errors import require_extra
from sordino.late import import_late

if TYPE_CHECKING:
    from sordino.nn.data import Shifts
    from sordino.nn.engine_choice import replace_batch_norm
    from sordino.nn.engines import GhostEngine, VmapEngine
    from sordino.nn.estimators import NeuralClassifier, NeuralRegressor
    from sordino.nn.federated import TorchModel
    from sordino.nn.hugging_face import PrivateTrainer, PrivateTraining
    from sordino.nn.images import Scattering
    from sordino.nn.network import Network
    from sordino.nn.queries import TorchDifference, TorchGradient
    from sordino.nn.session import Checkpoint
    from sordino.nn.solvers import Descent, Recipe, Srm
    from sordino.nn.trainer import Step, Trained, Trainer, make_private
    from sordino.solvers.updates import Adam, HardThreshold, Sgd, warm_up

if find_spec("torch") is None:  # pragma: no cover - the extra is installed wherever tests run
    raise require_extra("torch", "torch")

# module -> its public names; loaded when first used
_MODULES = {
    "data": "Shifts",
    "engine_choice": "replace_batch_norm",
    "engines": "GhostEngine VmapEngine",
    "estimators": "NeuralClassifier NeuralRegressor",
    "federated": "TorchModel",
    "hugging_face": "PrivateTrainer PrivateTraining",
    "images": "Scattering",
    "network": "Network",
    "queries": "TorchDifference TorchGradient",
    "session": "Checkpoint",
    "solvers": "Descent Recipe Srm",
    "trainer": "Step Trained Trainer make_private",
}
_EXPORTS = {name: f"sordino.nn.{module}" for module, names in _MODULES.items() for name in names.split()}
_EXPORTS |= dict.fromkeys(("Adam", "HardThreshold", "Sgd", "warm_up"), "sordino.solvers.updates")

__all__ = [
    "Adam", "Checkpoint", "Descent", "GhostEngine", "HardThreshold", "Network", "NeuralClassifier",
    "NeuralRegressor", "PrivateTrainer", "PrivateTraining", "Recipe", "Scattering", "Sgd", "Shifts", "Srm",
    "Step", "TorchDifference", "TorchGradient", "TorchModel", "Trained", "Trainer", "VmapEngine",
    "make_private", "replace_batch_norm", "warm_up",
]  # fmt: skip


if not TYPE_CHECKING:
    __getattr__, __dir__ = import_late(__name__, _EXPORTS)
