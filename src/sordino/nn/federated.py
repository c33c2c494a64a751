"""A PyTorch module beside the records of one client of a federation."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sordino.kernel import Curator, Gaussian, Plan, Relation, Release, Sampling
from sordino.nn.data import source_of
from sordino.nn.engine_choice import sized_engine
from sordino.nn.entrance import check_records
from sordino.nn.network import Loss, Network, make_up_records
from sordino.nn.queries import TorchGradient
from sordino.solvers.updates import HardThreshold

Weights = NDArray[Any]
_LARGEST = float(np.finfo(np.float32).max)
_CHUNK_FOR = 256  # records: how many gradients are held at once is a matter of memory alone


class FederatedSteps(Protocol):
    """What a model has to know of a :class:`sordino.parties.flower.FederatedRecipe`."""

    local_steps: int
    sparsity: int | None
    clip_norm: float
    relation: Relation

    @property
    def releases(self) -> int:
        """The number of gradients of all rounds."""

    def sampling(self, population: int) -> Sampling:
        """Return the batches of a client with this many records."""


class TorchModel:
    """A module, its criterion and the records of one :class:`sordino.parties.flower.FederatedClient`.

    Parameters
    ----------
    model, loss : the module and ``loss(outputs, targets)``; the module is copied.
    inputs, targets : tensors or arrays, or a data set as inputs and no targets.
    method, chunk, device : see :class:`sordino.nn.Trainer`.

    **Privacy.** The architecture and the number of records are assumed public.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        inputs: Any,
        targets: Any = None,
        *,
        method: str = "auto",
        chunk: int | None = None,
        device: str = "cpu",
    ) -> None:
        source = source_of(inputs, targets)
        self.network = Network(model.to(device), loss)
        on = torch.device(device)
        most = source.most(_CHUNK_FOR, on)
        self.engine, chunk = sized_engine(self.network, *source.example, method, most, chunk)
        made_up = make_up_records(self.network, *source.example, 2, 1.0)
        self.executor = source.executor(on, chunk, on.type == "cuda", made_up=made_up)
        check_records(self.executor, self.network, source.example)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of trainable parameters."""
        return (self.network.size,)

    def start(self) -> Weights:
        """Return the parameters of the module as it was passed; the server's are the ones that count."""
        return self.network.flat().cpu().numpy()

    def plan(self, recipe: FederatedSteps) -> Plan:
        query = TorchGradient(self.engine, recipe.clip_norm)
        sampling = recipe.sampling(self.executor.population)
        release = Release(query, Gaussian(), sampling, recipe.releases)
        return Plan({"gradient": release}, recipe.relation, self.executor.population)

    def steps(self, curator: Curator, weights: Weights, recipe: FederatedSteps, step_size: float) -> Weights:
        single = np.clip(weights, -_LARGEST, _LARGEST).astype(np.float32)  # finite in single precision too
        w = torch.from_numpy(single).to(self.network.device)
        keep = None if recipe.sparsity is None else HardThreshold(recipe.sparsity)
        for _ in range(recipe.local_steps):
            w = w - step_size * curator.release("gradient", w)
            w = w if keep is None else keep.project(w, 1.0)
        return w.cpu().numpy()
