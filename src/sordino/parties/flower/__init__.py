"""Federated learning on Flower, with true guarantees.

Record-level, noise at the clients: DP-FedSGD-HT, DP-FedGD-HT and, without noise, FedSGD-HT
(:class:`HardThresholdAveraging` with :class:`FederatedClient`). Client-level, noise at the server: another
mechanism with another name (:class:`ClientLevelHardThresholding`).
"""

from __future__ import annotations

from importlib.util import find_spec

from sordino.errors import require_extra
from sordino.late import import_late

if find_spec("flwr") is None:  # pragma: no cover - the extra is installed wherever tests run
    raise require_extra("flwr", "flower")

# Loaded when first used. The model of a network is sordino.nn.TorchModel.
_MODULES = {
    "client": ("FederatedClient", "client_app"),
    "models": ("FederatedRecipe", "LinearModel", "SharedNoise"),
    "secure": ("secure_client_app", "secure_server_app"),
    "server": ("ClientLevelHardThresholding", "FederatedPrivacy", "FederatedResult", "HardThresholdAveraging",
               "server_app"),
    "simulation": ("InProcessGrid", "simulate"),
}  # fmt: skip
_EXPORTS = {name: f"sordino.parties.flower.{module}" for module, names in _MODULES.items() for name in names}

__all__ = list(_EXPORTS)
__getattr__, __dir__ = import_late(__name__, _EXPORTS)
