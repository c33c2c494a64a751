"""Liang et al., figure 3: a federated convolutional network with hard thresholding, noise at each client."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import nn

from sordino.errors import NotPrivateWarning
from sordino.kernel import Full, Poisson, Relation, Sampling
from sordino.nn.federated import TorchModel
from sordino.papers.networks import federated_noise
from sordino.reproduce.images import CROSS_ENTROPY, Images, images
from sordino.reproduce.tables import Outcome, Row, Runs, Table
from sordino.runs import Ask, Promise
from sordino.solvers.vectors import hard_threshold

CLIENTS, NONZERO, DELTA = 10, 10_000, 1e-5


@dataclass(frozen=True)
class Recipe:
    """What the clients agreed on: rounds, local steps, batches (None: all records), step and clip."""

    rounds: int
    batch: int | None
    step: float = 1.0
    clip_norm: float = 1.0
    local_steps: int = 10
    sparsity: int | None = NONZERO
    relation: Relation = Relation.REPLACE_ONE

    @property
    def releases(self) -> int:
        """The number of gradients of all rounds."""
        return self.rounds * self.local_steps

    def sampling(self, population: int) -> Sampling:
        """Return the batches of a client with this many records."""
        return Full() if self.batch is None else Poisson(min(1.0, self.batch / population))


def figure_3(quick: bool) -> Table:
    """Accuracy after the last round."""
    rounds, share = (3, 1 / 30) if quick else (10, 1 / 4)
    most = round(60_000 * share)
    recipes = {
        "DP-FedSGD-HT": Recipe(rounds, max(1, most // CLIENTS // 10)),
        "DP-FedGD-HT": Recipe(rounds, None),
    }
    best = recipes["DP-FedSGD-HT"]
    plain = Runs("plain", partial(_accuracy, best, float("inf"), most))
    rows = []
    for epsilon in (4.0, 6.0):
        default = Runs(f"DP-FedSGD-HT/{epsilon:g}/sound", partial(_accuracy, best, epsilon, most))
        for method, recipe in recipes.items():
            at = f"{method}/{epsilon:g}"
            cells: dict[str, Runs | str] = {
                "paper": Runs(f"{at}/paper", partial(_accuracy, recipe, epsilon, most, printed=True)),
                "sound": Runs(f"{at}/sound", partial(_accuracy, recipe, epsilon, most)),
                "default": default,
                "plain": plain,
            }
            rows.append(Row("MNIST", method, epsilon, DELTA, None, cells))
    return Table(
        "liang-figure-3",
        "Liang et al., figure 3: a federated network with 10,000 of 44,426 weights not zero",
        "test accuracy, %",
        "higher",
        f"Ours: {most:,} images of MNIST (evenly taken), ten clients with two digits each.",
        "like",
        rows,
        f"{rounds} rounds of ten local steps, batches of a tenth of a client's records, rate and clip 1. "
        "The last point of each curve. Printed noise is certified for the client with the most records. Our "
        "default is DP-FedSGD-HT.",
        repeats=1,
        needs=("mnist",),
        order=(("DP-FedSGD-HT",), ("DP-FedGD-HT",)),
    )


@cache
def _clients(most: int) -> tuple[Images, list[TorchModel]]:
    """Return the images, and the models of clients with half of digit i and half of digit i + 1."""
    data = images("mnist", "liang", most)
    halves = [rows.tensor_split(2) for rows in (torch.nonzero(data.y == digit)[:, 0] for digit in range(10))]
    parts = [torch.cat([halves[i][0], halves[(i + 1) % 10][1]]) for i in range(CLIENTS)]
    return data, [
        TorchModel(data.network(0), CROSS_ENTROPY, data.x[rows], data.y[rows], device=data.x.device.type)
        for rows in parts
    ]


def _accuracy(recipe: Recipe, epsilon: float, most: int, seed: int, *, printed: bool = False) -> Outcome:
    data, clients = _clients(most)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        promises = [_promise(client, recipe, epsilon, printed) for client in clients]
        weights = _federated(clients, promises, recipe, sparse_start(data.network(seed).cpu()))
    model = data.network(0).cpu()
    nn.utils.vector_to_parameters(torch.from_numpy(weights).float(), model.parameters())
    model.to(data.x.device)
    value = {"value": 100 - data.error(model)}
    return value | _certified(clients, recipe, epsilon) if printed else value


def _promise(client: TorchModel, recipe: Any, epsilon: float, printed: bool) -> Promise:
    ask, plan = Ask.checked(epsilon, DELTA, client.executor.population), client.plan(recipe)
    return Promise.made(ask, plan, federated_noise(plan, ask) if printed else None)


def _certified(clients: Sequence[TorchModel], recipe: Recipe, epsilon: float) -> dict[str, float]:
    """Return what the printed noise certifies for the records of the largest client, by relation."""
    client = max(clients, key=lambda one: one.executor.population)
    found = {}
    for relation in Relation:
        fields = {**vars(recipe), "relation": relation}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotPrivateWarning)
            found[relation.value] = _promise(client, Recipe(**fields), epsilon, True).certificate.epsilon
    return found


def _federated(clients: Sequence[TorchModel], promises: Sequence[Promise], recipe: Any, start: Any) -> Any:
    """Return the weights after all rounds: each client's local steps, then the thresholded mean."""
    sizes = [client.executor.population for client in clients]
    with ExitStack() as stack:
        curators = [
            stack.enter_context(promise.run(client.executor, "a client's rounds"))
            for client, promise in zip(clients, promises)
        ]
        w = start
        for _ in range(recipe.rounds):
            found = [c.steps(curator, w, recipe, recipe.step) for c, curator in zip(clients, curators)]
            w = hard_threshold(np.average(found, axis=0, weights=sizes), recipe.sparsity, 0)
    return w


def sparse_start(model: nn.Module) -> Any:
    """Return public initial weights of a model, the same share of each layer not zero and scaled for that.

    Thresholding the usual initial weights keeps those of narrow layers only: the widest one is left
    empty, and nothing is learned for dozens of rounds.
    """
    share = 0.995 * NONZERO / sum(p.numel() for p in model.parameters())
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 1:
                p.zero_()
                continue
            keep = p.abs().flatten().topk(int(share * p.numel())).indices
            sparse = torch.zeros(p.numel()).index_copy(0, keep, p.flatten()[keep])
            std = (2 / (share * p[0].numel())) ** 0.5
            p.copy_((sparse * std / sparse[keep].square().mean().sqrt()).view_as(p))
        return nn.utils.parameters_to_vector(model.parameters()).numpy()
