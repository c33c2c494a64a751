"""Networks: DP-SRM and DP-LSSGD on the dissertation's convolutional networks (chapters 4 and 5)."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from sordino.errors import NotPrivateWarning
from sordino.estimators.linear import LogisticRegression
from sordino.kernel import Curator, Plan, Relation
from sordino.nn.data import default_chunk, source_of
from sordino.nn.engine_choice import make_engine
from sordino.nn.images import Scattering
from sordino.nn.network import Network
from sordino.nn.solvers import NetworkSolver, NetworkTask
from sordino.nn.trainer import Trainer
from sordino.papers.networks import srm_noise
from sordino.reproduce.images import CROSS_ENTROPY, Images, images
from sordino.reproduce.tables import Likeness, Outcome, Row, Runs, Table
from sordino.runs import Ask, Promise, run_privately

DELTA = 1e-5
QUICK_IMAGES = 3000
QUICK_EPSILONS = {"MNIST": (3.0,), "CIFAR-10, CNN5": (10.0,), "CIFAR-10, CNN6": (8.0,)}
_PUBLISHED = {
    "MNIST": {
        "DP-SGD": {1.2: 5.33, 3.0: 3.81, 7.0: 2.93},
        "DP-SRM": {1.2: 4.49, 3.0: 3.62, 7.0: 2.91},
    },
    "CIFAR-10, CNN5": {
        "DP-SGD": {6.0: 51.0, 8.0: 50.2, 10.0: 49.3},
        "DP-SRM": {6.0: 50.3, 8.0: 48.2, 10.0: 47.1},
    },
    "CIFAR-10, CNN6": {"DP-SRM": {2.0: 33.2, 4.0: 31.0, 8.0: 29.3}},
}
_SETS = {
    "MNIST": ("mnist", "four layers"),
    "CIFAR-10, CNN5": ("cifar10", "cnn5"),
    "CIFAR-10, CNN6": ("cifar10", "cnn5"),
}
# Printed test errors without privacy: 1 % for MNIST, none for CNN5. That of CNN6, 18.5 %, is of pretrained
# convolutions: a ratio to it says nothing about a network from scratch.
_PLAIN = {"MNIST": 1.0, "CIFAR-10, CNN5": None, "CIFAR-10, CNN6": None}
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

    def trainer(self, data: Images, epsilon: float, seed: int, relation: str = "replace-one") -> Trainer:
        """Return the trainer; the seed is that of the public initial weights."""
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
            relation=relation,
            **dict(self.more),
        )


# The paper clips gradients at 1.5 and searches gamma = C2, batches and rates on the test set.
_SGD = Optimiser("sgd", 0.5, 15, more=(("clip_norm", 1.0), ("average", 0.9)))
_SRM = Optimiser("srm", 0.5, 5, 512, (("gamma", 0.1), ("difference_clip", 0.1)), (("clip_norm", 1.0),))


def srm_networks(quick: bool) -> Table:
    """Return the test errors of DP-SRM and DP-SGD."""
    rows = [
        Row(group, method, epsilon, DELTA, number, _cells(group, method, epsilon, quick), _PLAIN[group])
        for group, methods in _PUBLISHED.items()
        for method, numbers in methods.items()
        for epsilon, number in numbers.items()
        if not quick or epsilon in QUICK_EPSILONS[group]
    ]
    words = (
        "Ours: MNIST itself; 20,000 of the 50,000 training images of CIFAR-10. The convolutions of CNN6 are "
        "pretrained on CIFAR-100, which is not at hand: its rows are run with CNN5 from scratch."
    )
    return Table(
        "srm-networks",
        "Wang, dissertation, chapter 4: DP-SRM on convolutional networks",
        "test error, %",
        "lower",
        words + _quickly(quick) + (" One epsilon a network." if quick else ""),
        _likeness(quick),
        rows,
        "15 epochs of DP-SGD, 5 of DP-SRM, batch 512, untuned. Our default: a linear model on scattering "
        "coefficients.",
        repeats=1,
        needs=("mnist", "cifar10"),
    )


def _quickly(quick: bool) -> str:
    words = f" Quick: {QUICK_IMAGES:,} of the training images; compared is the ratio to no privacy."
    return words if quick else ""


def _likeness(quick: bool) -> Likeness:
    return "stand-in" if quick else "like"


def _data(group: str, quick: bool) -> Images:
    name, network = _SETS[group]
    return images(name, network, QUICK_IMAGES if quick else None)


def _cells(group: str, method: str, epsilon: float, quick: bool) -> dict[str, Runs | str]:
    data, way = partial(_data, group, quick), _SGD if method == "DP-SGD" else _SRM
    at = f"{group}/{method}/{epsilon:g}"
    paper: Runs | str = _ACCOUNTANT
    if method == "DP-SRM":
        paper = Runs(f"{at}/paper", lambda seed: _printed(data(), way, epsilon, seed))
    return {
        "paper": paper,
        "sound": Runs(f"{at}/sound", lambda seed: _trained(way, data(), epsilon, seed)),
        "default": Runs(f"{group}/default/{epsilon:g}", lambda seed: _scattered(data(), epsilon, seed)),
        "plain": Runs(f"{group}/plain", lambda seed: _plain(data(), math.inf, seed)),
    }


def _plain(data: Images, epsilon: float, seed: int) -> Outcome:
    """Train without noise: few images take longer steps, with which many end at a constant."""
    rate = 0.1 if len(data.x) <= QUICK_IMAGES else 0.02
    way = Optimiser("sgd", rate, 10, 64, (("momentum", 0.9),), (("clip_norm", 1e6),))
    return _trained(way, data, epsilon, seed)


def _trained(way: Optimiser, data: Images, epsilon: float, seed: int) -> Outcome:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = way.trainer(data, epsilon, seed).fit(data.x, data.y).model
    return {"value": data.error(model)}


def _scattered(data: Images, epsilon: float, seed: int) -> Outcome:
    """Return the test error of logistic regression on scattering coefficients, everything by default."""
    (x, y), (test_x, test_y) = _coefficients(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LogisticRegression(
            epsilon, DELTA, data_norm=1.0, relation="replace-one", random_state=seed
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
        """Declare what the solver declares."""
        return self.solver.plan(task)

    def run(self, curator: Curator, task: NetworkTask) -> Iterator[Any]:
        """Yield the states."""
        return self.solver.run(curator, task, self.solver.start(task))


def _printed(data: Images, way: Optimiser, epsilon: float, seed: int) -> Outcome:
    """Train with the printed noise under replace-one, and certify it for both relations."""
    trainer, source = way.trainer(data, epsilon, seed), source_of(data.x, data.y)
    network = Network(copy.deepcopy(trainer.model), CROSS_ENTROPY)
    chunk = default_chunk(network.size, way.batch, network.device)
    engine = make_engine(network, *source.example, "auto", chunk)
    solver: Any = trainer.solver(source.population)
    ask, found = Ask.checked(epsilon, DELTA, source.population), {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        for relation in Relation:
            task = NetworkTask(engine, source.population, relation)
            plan = solver.plan(task)
            found[relation.value] = Promise.made(ask, plan, srm_noise(plan, ask)).certificate.epsilon
        task = NetworkTask(engine, source.population, Relation.REPLACE_ONE)
        executor = source.executor(network.device, chunk, network.device.type == "cuda")
        noise = srm_noise(solver.plan(task), ask)
        state = run_privately(_FromStart(solver), task, executor, ask, paper=noise).result
    network.load(solver.recipe.finished(state).result, trainer.model)
    return {"value": data.error(trainer.model), **found}


_LSSGD_EPOCHS = 15
_LSSGD: dict[str, Optimiser] = {
    "DP-SGD": Optimiser("sgd", 0.15, _LSSGD_EPOCHS, 256),
    "DP-LSSGD": Optimiser("ls-sgd", 0.15, _LSSGD_EPOCHS, 256),
    "DP-Adam": Optimiser("adam", 1e-3, _LSSGD_EPOCHS, 256),
    "DP-LSAdam": Optimiser("ls-adam", 1e-3, _LSSGD_EPOCHS, 256),
}


def lssgd_networks(quick: bool) -> Table:
    """Return the test errors of smoothed and plain DP-SGD and DP-Adam."""
    data = partial(_data, "MNIST", quick)
    rows = []
    for epsilon in (0.4, 0.2):
        default = Runs(f"default/{epsilon:g}", partial(_of, data, _scattered, epsilon))
        plain = Runs("plain", partial(_of, data, _plain, math.inf))
        for method, way in _LSSGD.items():
            sound = Runs(f"{method}/{epsilon:g}/sound", partial(_of, data, partial(_trained, way), epsilon))
            cells: dict[str, Runs | str] = {
                "paper": _ACCOUNTANT,
                "sound": sound,
                "default": default,
                "plain": plain,
            }
            rows.append(Row("MNIST", method, epsilon, DELTA, None, cells))
    return Table(
        "lssgd-networks",
        "Wang, dissertation, figures 5.5 and 5.7: smoothing on a convolutional network",
        "test error, %",
        "lower",
        "Ours: MNIST itself." + _quickly(quick),
        "same",
        rows,
        "Batch 256, clip 1, rates .15 and .001 as printed, 15 epochs. Printed in words: smoothing adds 3.2 "
        "points at epsilon .4 and 5.0 at .2; DP-LSAdam, DP-Adam, DP-LSSGD, DP-SGD from best to worst. Our "
        "default: a linear model on scattering coefficients.",
        repeats=1,
        needs=("mnist",),
        order=(("DP-LSAdam",), ("DP-Adam",), ("DP-LSSGD",), ("DP-SGD",)),
    )


def _of(data: Callable[[], Images], measure: Callable[..., Outcome], epsilon: float, seed: int) -> Outcome:
    return measure(data(), epsilon, seed)
