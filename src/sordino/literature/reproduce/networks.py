"""The published tables of networks, of one owner and federated; they need PyTorch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sordino.datasets import load
from sordino.errors import NotPrivateWarning
from sordino.estimators.linear import LogisticRegression
from sordino.kernel import Curator, Full, Plan, Poisson, Relation, Sampling, public_generator
from sordino.literature.formulas import srm_noise
from sordino.literature.reproduce import tables
from sordino.nn.federated import TorchModel
from sordino.nn.images import Scattering
from sordino.nn.solvers import NetworkSolver, NetworkTask
from sordino.nn.trainer import Trainer
from sordino.runs import Ask, Promise, Task, run
from sordino.solvers.steps import hard_threshold

# -------------- Images and the small networks of the papers; everything about them is public but the pixels

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
    found = Images(x, y, test_x, test_y, NETWORKS[network])
    return pretrain(found) if network == "cnn6" else found


def _tensor(pixels: Any) -> Tensor:
    """Return pixels in [0, 1], channels first."""
    values = np.asarray(pixels, dtype=np.float32)
    values = values[..., None] if values.ndim == 3 else values
    return torch.from_numpy(values.transpose(0, 3, 1, 2).copy())


def lenet(channels: int, last: int) -> nn.Module:
    """Return conv(6, 5) - pool - conv(16, 5) - pool - 120 - 84 - 10, the network of Liang et al. and CNN5."""
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(last, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def convolutions() -> nn.Module:
    """Return CNN6's convolutions of 32, 64 and 128 filters, and a layer that tells four rotations apart."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(2048, 4),
    )  # fmt: skip


def pretrain(data: Images, epochs: int = 40) -> Images:
    """Return the second half of the images as CNN6's convolutions see them; the first half is public here.

    The paper trains them on CIFAR-100. Ours learn from public images without labels by which of four
    rotations each has (Gidaris et al. 2018), and see no private image. Features are divided by their root
    mean square over the public images.
    """
    half = len(data.x) // 2
    x = torch.cat([data.x[:half].rot90(k, (2, 3)) for k in range(4)])
    y = torch.arange(4, device=x.device).repeat_interleave(half)
    model, public = replace(data, make=convolutions).network(0), public_generator(0)
    steps = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    for _ in range(epochs):
        for rows in torch.from_numpy(public.permutation(len(x))).to(x.device).split(128):
            steps.zero_grad()
            CROSS_ENTROPY(model(x[rows]), y[rows]).backward()
            steps.step()
    with torch.no_grad():
        features, test_features = (
            torch.cat([model[:-1](part) for part in pixels.split(2000)]) for pixels in (data.x, data.test_x)
        )
        unit = features[:half].square().mean().sqrt()
    x, test_x = features[half:] / unit, test_features / unit
    return Images(x, data.y[half:], test_x, data.test_y, NETWORKS["cnn6, trained privately"])


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "four layers": lambda: nn.Sequential(  # of pytorch-dp's example: two convolutions, two dense layers
        nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 32), nn.ReLU(), nn.Linear(32, 10),
    ),
    "cnn5": lambda: lenet(3, 400),
    "cnn6": convolutions,
    "cnn6, trained privately": lambda: nn.Sequential(  # its three dense layers
        nn.Linear(2048, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 10)
    ),
    "liang": lambda: lenet(1, 256),
}  # fmt: skip


# ------------ Networks: DP-SRM and DP-LSSGD on the dissertation's convolutional networks (chapters 4 and 5)

DELTA = 1e-5
QUICK_IMAGES = 3000
_PAGE: dict[str, Any] = tables.page_of("srm-networks")["groups"]
_ACCOUNTANT = "noise of a moments accountant: sound"


@dataclass(frozen=True)
class Optimiser:
    """How a network is trained: the settings of a :class:`sordino.nn.Trainer` beside the budget."""

    name: str
    rate: float
    epochs: float
    batch: int = 512
    options: tuple[tuple[str, Any], ...] = ()
    more: tuple[tuple[str, Any], ...] = ()

    def trainer(self, data: Images, epsilon: float, seed: int) -> Trainer:
        """Return the trainer under add-remove; its seed is that of the public initial weights."""
        return Trainer(
            data.network(seed),
            CROSS_ENTROPY,
            epsilon,
            DELTA,
            optimizer=self.name,
            optimizer_options=dict(self.options),
            learning_rate=self.rate,
            epochs=self.epochs,
            batch_size=self.batch,
            **dict(self.more),
        )


# The paper clips gradients at 1.5 (CIFAR-10: 2) and searches grids of gamma = C2, batches and rates.
_SGD = Optimiser("sgd", 0.5, 15, more=(("clip_norm", 1.0), ("average", 0.9)))
_BOTH = (("gamma", 0.9), ("difference_clip", 0.9))
_SRM = tuple(
    Optimiser("srm", rate, epochs, 512, _BOTH, (("clip_norm", 1.0),))
    for epochs in (5, 15)
    for rate in (0.5, 1.0, 2.0)
)
_SGDS = (_SGD, Optimiser("sgd", 1.0, 15, more=(("clip_norm", 1.0), ("average", 0.9))))


def srm_networks(quick: bool) -> tables.Table:
    """Return the test errors of DP-SRM and DP-SGD."""
    likeness = {group: None if quick else page.get("likeness") for group, page in _PAGE.items()}
    rows = [
        tables.Row(group, method, epsilon, DELTA, number, cells, page["plain"], likeness[group])
        for group, page in _PAGE.items()
        for method, numbers in page["numbers"].items()
        for epsilon, number in zip(page["epsilons"], numbers)
        if not quick or epsilon == page["asked_quickly"]
        for cells in [_cells(group, method, epsilon, quick)]
    ]
    return tables.printed_table("srm-networks", rows, quick, _QUICKLY)


_QUICKLY = {"quick_images": f"{QUICK_IMAGES:,}"}


def _data(group: str, quick: bool) -> Images:
    return images(*_PAGE[group]["set"], QUICK_IMAGES if quick else None)


def _cells(group: str, method: str, epsilon: float, quick: bool) -> tables.RowCells:
    data, ways = partial(_data, group, quick), _SGDS if method == "DP-SGD" else _SRM
    ways = ways[:1] if quick else ways
    at = f"{group}/{method}/{epsilon:g}"
    pixels = _PAGE[group].get("pixels", group)  # what our default sees, where the network sees features
    whole = partial(_data, pixels, quick)
    default = tables.run_of(f"{group}/default/{epsilon:g}", partial(_of, whole, _fit_scattering, epsilon))
    plain = _plain if pixels == group else _train_plainly
    paper: tables.Runs | str = _ACCOUNTANT
    if method == "DP-SRM":
        paper = tables.run_of(f"{at}/paper", partial(_of, data, partial(_fit_printed, ways[0]), epsilon))
    return tables.by_mode(
        paper,
        tables.run_of(f"{at}/sound", partial(_of, data, partial(_train_best, ways), epsilon)),
        default,
        tables.run_of(f"{group}/plain", partial(_of, data, plain, math.inf)),
    )


def _plain(data: Images, epsilon: float, seed: int) -> tables.Outcome:
    """Return the better of the network and of the default without noise."""
    found = (_train_plainly(data, epsilon, seed), _fit_scattering(data, epsilon, seed))
    return min(found, key=lambda one: one["value"])


def _train_plainly(data: Images, epsilon: float, seed: int) -> tables.Outcome:
    """Train without noise. Few images take longer steps, with which many end at a constant."""
    rate = 0.1 if len(data.x) <= QUICK_IMAGES else 0.02
    way = Optimiser("sgd", rate, 10, 64, (("momentum", 0.9),), (("clip_norm", 1e6),))
    return _train(way, data, epsilon, seed)


def _train(way: Optimiser, data: Images, epsilon: float, seed: int) -> tables.Outcome:
    with warnings.catch_warnings(action="ignore"):
        model = way.trainer(data, epsilon, seed).fit(data.x, data.y).model
    return {"value": data.error(model)}


def _train_best(ways: Sequence[Optimiser], data: Images, epsilon: float, seed: int) -> tables.Outcome:
    """Return the least error of some optimisers: in hindsight, as the paper chooses them."""
    return min((_train(way, data, epsilon, seed) for way in ways), key=lambda found: found["value"])


def _fit_scattering(data: Images, epsilon: float, seed: int) -> tables.Outcome:
    """Return the test error of logistic regression on scattering coefficients, everything by default."""
    (x, y), (test_x, test_y) = _coefficients(data)
    with warnings.catch_warnings(action="ignore"):
        model = LogisticRegression(
            epsilon, DELTA, data_norm=1.0, relation="add-remove", random_state=seed
        ).fit(x, y)
    return {"value": 100 * (1 - float(model.score(test_x, test_y)))}


@cache
def _coefficients(data: Images) -> Any:
    """Return the coefficients and labels to learn from and to judge on, where the images are."""
    found = []
    for pixels, labels in ((data.x, data.y), (data.test_x, data.test_y)):
        rows: Any = Scattering().of(pixels).flatten(1)
        found.append((rows / math.sqrt(rows.shape[1]), labels.cpu().numpy()))
    return found


@dataclass(frozen=True)
class _FromStart:
    """A network's solver as a run asks for it: from the first release to the last."""

    solver: NetworkSolver

    def plan(self, task: NetworkTask) -> Plan:
        return self.solver.plan(task)

    def run(self, curator: Curator, task: NetworkTask) -> Iterator[Any]:
        return self.solver.run(curator, task, self.solver.start(task))


def _fit_printed(way: Optimiser, data: Images, epsilon: float, seed: int) -> tables.Outcome:
    """Train with the printed noise, and certify it for both relations."""
    trainer, population = way.trainer(data, epsilon, seed), len(data.x)
    held = TorchModel(trainer.model, CROSS_ENTROPY, data.x, data.y, device=data.x.device.type)
    solver: Any = trainer.solver(population)
    ask = Ask.checked(epsilon, DELTA, population)
    task_of = partial(NetworkTask, held.engine, population)
    found = tables.certify_printed(ask, lambda relation: solver.plan(task_of(relation)), srm_noise)
    task = task_of(Relation.ADD_REMOVE)
    noise = srm_noise(solver.plan(task), ask)
    with warnings.catch_warnings(action="ignore", category=NotPrivateWarning):
        state = run(Task(_FromStart(solver), task, "DP-SRM", paper=noise), held.executor, ask).result
    held.network.load(solver.recipe.finished(state).result, trainer.model)
    return {"value": data.error(trainer.model), **found}


_LSSGD_SETS = {"MNIST": (1.0, (0.4, 0.2)), "CIFAR-10, CNN5": (3.0, (1.5,))}  # by set the clip, the epsilons
_LSSGD = {"DP-SGD": ("sgd", 0.15), "DP-LSSGD": ("ls-sgd", 0.15), "DP-Adam": ("adam", 1e-3)}
_LSSGD["DP-LSAdam"] = ("ls-adam", 1e-3)


def lssgd_networks(quick: bool) -> tables.Table:
    """Return the test errors of smoothed and plain DP-SGD and DP-Adam."""
    rows = []
    for group, (clip, epsilons) in list(_LSSGD_SETS.items())[: 1 if quick else 2]:
        data, more = partial(_data, group, quick), () if clip == 1.0 else (("clip_norm", clip),)
        at = "" if group == "MNIST" else f"{group}/"
        plain = tables.run_of(f"{at}plain", partial(_of, data, _plain, math.inf))
        for epsilon in epsilons:
            default = tables.run_of(f"{at}default/{epsilon:g}", partial(_of, data, _fit_scattering, epsilon))
            for method, (name, rate) in _LSSGD.items():
                way = partial(_train, Optimiser(name, rate, 15, 256, more=more))
                sound = tables.run_of(f"{at}{method}/{epsilon:g}/sound", partial(_of, data, way, epsilon))
                cells = tables.by_mode(_ACCOUNTANT, sound, default, plain)
                rows.append(tables.Row(group, method, epsilon, DELTA, None, cells))
    return tables.printed_table("lssgd-networks", rows, quick, _QUICKLY)


def _of(
    data: Callable[[], Images], measure: Callable[..., tables.Outcome], epsilon: float, seed: int
) -> tables.Outcome:
    return measure(data(), epsilon, seed)


# ----------------------------------------------------------------------------------------------------------
# Liang et al., figure 3: a federated convolutional network with hard thresholding, noise at each client.

CLIENTS, NONZERO, FEDERATED_DELTA = 10, 10_000, 1e-5


@dataclass(frozen=True)
class Recipe:
    """What the clients agreed on: rounds, local steps, batches (None: all records), step and clip."""

    rounds: int
    batch: int | None
    step: float = 1.0
    clip_norm: float = 1.0
    local_steps: int = 10
    sparsity: int | None = NONZERO
    relation: Relation = Relation.ADD_REMOVE  # as the accountant counts that the paper names

    @property
    def releases(self) -> int:
        return self.rounds * self.local_steps

    def sampling(self, population: int) -> Sampling:
        """Return the batches of a client with this many records."""
        return Full() if self.batch is None else Poisson(min(1.0, self.batch / population))


def figure_3(quick: bool) -> tables.Table:
    """Accuracy after the last round."""
    rounds, share = (3, 1 / 30) if quick else (40, 1 / 4)
    most = round(60_000 * share)
    recipes = {
        "DP-FedSGD-HT": Recipe(rounds, max(1, most // CLIENTS // 10)),
        "DP-FedGD-HT": Recipe(rounds, None),
    }
    best = recipes["DP-FedSGD-HT"]
    plain = tables.run_of("plain", partial(_accuracy, best, float("inf"), most))
    rows = []
    for epsilon in (4.0, 6.0):
        default = tables.run_of(f"DP-FedSGD-HT/{epsilon:g}/sound", partial(_accuracy, best, epsilon, most))
        for method, recipe in recipes.items():
            sound = tables.run_of(f"{method}/{epsilon:g}/sound", partial(_accuracy, recipe, epsilon, most))
            cells = tables.by_mode(_ACCOUNTANT, sound, default, plain)
            rows.append(tables.Row("MNIST", method, epsilon, FEDERATED_DELTA, None, cells))
    return tables.printed_table("liang-figure-3", rows, quick, {"most": f"{most:,}", "rounds": str(rounds)})


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


def _accuracy(recipe: Any, epsilon: float, most: int, seed: int) -> tables.Outcome:
    """Make all rounds: each client's local steps, then the thresholded mean."""
    data, clients = _clients(most)
    w, sizes = sparse_start(data.network(seed).cpu()), [client.executor.population for client in clients]
    asks = [Ask.checked(epsilon, FEDERATED_DELTA, size) for size in sizes]
    with ExitStack() as stack:
        curators = [
            stack.enter_context(Promise.made(ask, c.plan(recipe)).run(c.executor, "a client's rounds"))
            for c, ask in zip(clients, asks)
        ]
        for _ in range(recipe.rounds):
            found = [c.steps(curator, w, recipe, recipe.step) for c, curator in zip(clients, curators)]
            w = hard_threshold(np.average(found, axis=0, weights=sizes), recipe.sparsity, 0)
    model = data.network(0).cpu()
    nn.utils.vector_to_parameters(torch.from_numpy(w).float(), model.parameters())
    return {"value": 100 - data.error(model.to(data.x.device))}


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
