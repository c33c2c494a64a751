"""The federated CNN of the hard-thresholding paper on MNIST: accuracy against rounds, local epsilon 4 and 6.

Command: python -m benchmarks.federated                few rounds (a quarter of an hour of one core)
         python -m benchmarks.federated --rounds 50    the figure (hours; docs/parties/flower.md has it)
         python -m benchmarks.federated --thousand     1,000 clients with 30 records of Adult each
         python -m benchmarks.federated --shared       bits and error of noise in parts, one of each client

Ten clients with two digits each, 10 local steps, 10,000 of the 44,426 weights not zero. The apps are those
of a real federation, driven in this process.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.machine import describe
from sordino.datasets import load
from sordino.execute.parties.executor import SharingClient
from sordino.kernel import Curator, NoiseSource, public_generator
from sordino.literature.reproduce.networks import NONZERO, sparse_start
from sordino.nn import TorchModel
from sordino.parties.flower import (
    ClientLevelHardThresholding,
    FederatedClient,
    FederatedRecipe,
    FederatedResult,
    HardThresholdAveraging,
    LinearModel,
    SharedNoise,
    client_app,
    server_app,
    simulate,
)
from sordino.runs import Ask

CLIENTS, LOCAL_STEPS, DELTA = 10, 10, 1e-5
LOSS = nn.functional.cross_entropy
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # each client flushes each round to disk


def cnn() -> nn.Sequential:
    """Return the network of the paper, initialised from a public seed."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def images(share: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return training and test images; a share of the training ones, evenly from all."""
    data = load("mnist", flatten=False)
    x, y = np.asarray(data.data, dtype=np.float32), np.asarray(data.target, dtype=np.int64)
    tx, ty = np.asarray(data.test_data, dtype=np.float32), np.asarray(data.test_target, dtype=np.int64)
    every = max(1, round(1 / share))
    made = [torch.from_numpy(a.reshape(-1, 1, 28, 28)) for a in (x[::every], tx)]
    return made[0], torch.from_numpy(y[::every]), made[1], torch.from_numpy(ty)


def two_digits(y: torch.Tensor) -> list[torch.Tensor]:
    """Return the rows of each client: half of digit i and half of digit i + 1."""
    halves = [rows.tensor_split(2) for rows in (torch.nonzero(y == digit)[:, 0] for digit in range(10))]
    return [torch.cat([halves[i][0], halves[(i + 1) % 10][1]]) for i in range(CLIENTS)]


def accuracy(weights: np.ndarray, x: torch.Tensor, y: torch.Tensor) -> float:
    """Return the share of test images that the sparse network gets right."""
    model = cnn()
    nn.utils.vector_to_parameters(torch.from_numpy(weights), model.parameters())
    with torch.no_grad():
        return float((model(x).argmax(dim=1) == y).float().mean())


def train(recipe: FederatedRecipe, epsilon: float, data: tuple[torch.Tensor, ...]) -> FederatedResult:
    """Run one federation in this process."""
    x, y, tx, ty = data
    models = [TorchModel(cnn(), LOSS, x[rows], y[rows]) for rows in two_digits(y)]
    results: list[FederatedResult] = []
    with tempfile.TemporaryDirectory() as folder:

        def make(context):
            number = int(context.node_config["partition-id"])
            return FederatedClient(models[number], recipe, Path(folder) / str(number), epsilon, DELTA)

        strategy = HardThresholdAveraging(recipe, CLIENTS)
        rated = lambda _, weights: {"accuracy": accuracy(weights, tx, ty)}  # noqa: E731
        server = server_app(strategy, sparse_start(cnn()), evaluate=rated, done=results.append)
        simulate(server, client_app(make), [{"partition-id": i} for i in range(CLIENTS)])
    return results[0]


def thousand(rounds: int = 30, clients: int = 1000, size: int = 30) -> None:
    """Print the accuracy of logistic regression on Adult when each client holds a few records of it."""
    data = load("adult", transform="unit", shuffle=True, random_state=1)
    x, y = data.data.toarray(), np.where(np.asarray(data.target) > 0, 1, -1)
    tx, ty = data.test_data.toarray(), np.where(np.asarray(data.test_target) > 0, 1, -1)
    parts = [slice(i * size, (i + 1) * size) for i in range(clients)]
    models = [LinearModel(x[part], y[part]) for part in parts]
    nodes = [{"partition-id": i} for i in range(clients)]
    recipe = FederatedRecipe(rounds, 5, None, None, 4.0, 1.0)
    averaging = partial(HardThresholdAveraging, recipe, clients, weighting="equal", least=900)
    whole = partial(ClientLevelHardThresholding, recipe, clients, epsilon=4.0, delta=1e-5)
    runs = {
        "plain averaging, a tenth of the clients leaves": (averaging(), np.inf, "record"),
        "per client, clip 1": (whole(1.0), np.inf, "client"),
        "per client, clip .01 at first, within .5": (whole(0.01, within=0.5), np.inf, "client"),
        "per client, clip .01": (whole(0.01), np.inf, "client"),
        "per record, epsilon 4 at each client": (averaging(), 4.0, "record"),
    }
    print(f"{clients} clients, {size} records each, {rounds} rounds; larger class {np.mean(ty < 0):.3f}")
    for name, (strategy, epsilon, protection) in runs.items():
        begin, leave = time.process_time(), isinstance(strategy, HardThresholdAveraging)
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            make = partial(few_records, models, recipe, Path(folder), epsilon, protection, leave)
            results: list[FederatedResult] = []
            simulate(server_app(strategy, np.zeros(x.shape[1]), done=results.append), client_app(make), nodes)
        spent, score = time.process_time() - begin, np.mean(np.sign(tx @ results[0].weights) == ty)
        print(
            f"{name:48} epsilon {results[0].privacy.epsilon:6.4g}  accuracy {score:.3f}  {spent:6.0f} CPU s",
            flush=True,
        )


def few_records(models, recipe, folder, epsilon, protection, leave, context) -> FederatedClient:
    """Return a client; every tenth one is gone where clients may leave."""
    number = int(context.node_config["partition-id"])
    if leave and number % 10 == 0:
        raise RuntimeError("gone")
    return FederatedClient(models[number], recipe, folder / str(number), epsilon, 1e-5, protection=protection)


def shared(size: int = 1000) -> None:
    """Print what a sum of updates costs in bits, and its error beside that of one Gaussian at a server."""
    print("clients  honest  noise multiplier  bits  error / error of central noise  by the formula  CPU s")
    for clients in (10, 100, 1000):
        for honest in (clients - clients // 3, clients):
            agreed = SharedNoise(clients, 1.0, epsilon=4.0, delta=1e-5, honest=honest)
            recipe = FederatedRecipe(1, 1, shared=agreed)
            (spacing, how), begin = agreed.grid(recipe, size), time.process_time()
            ask = Ask(agreed.epsilon, agreed.delta - agreed.slack(recipe, size))
            updates = public_generator(clients).standard_normal((clients, size)) / size**0.5
            updates *= 0.99 / np.linalg.norm(updates, axis=1)[:, None]
            opened, source = np.zeros(size, dtype=np.int64), NoiseSource.from_os()
            for update in updates:
                plan = ask.calibrated(agreed.plan(recipe))
                client = SharingClient(update, clients, honest)
                opened += Curator(client, plan, source).release("update", np.zeros(size))
            multiplier = plan.releases["update"].mechanism.multiplier
            error = np.std(spacing * opened - updates.sum(axis=0)) / multiplier
            expected = np.sqrt(clients / honest * (1 + 1 / (12 * 2.5**2)))
            bits = how["modulus_range"].bit_length() - 1
            print(
                f"{clients:7d} {honest:7d} {multiplier:17.3f} {bits:5d} {error:31.3f} {expected:15.3f} "
                f"{time.process_time() - begin:6.1f}",
                flush=True,
            )


def main() -> None:
    """Print accuracy after each round, one line per method and epsilon."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0, help="share of the training images that is used")
    parser.add_argument("--batch", type=int, default=600)
    parser.add_argument("--step", type=float, default=1.0, help="of the stochastic methods")
    parser.add_argument("--full-step", type=float, default=1.0, help="of full batches")
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--epsilon", type=float, nargs="*", default=[4.0, 6.0])
    parser.add_argument("--methods", nargs="*", default=["sgd", "gd"])
    parser.add_argument("--thousand", action="store_true", help="1,000 clients of a linear model instead")
    parser.add_argument("--shared", action="store_true", help="bits and error of shared noise instead")
    parser.add_argument("--no-plain", action="store_true", help="leave out the run without noise")
    asked = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    describe()
    if asked.shared:
        shared()
        return
    if asked.thousand:
        logging.getLogger("sordino").setLevel(logging.CRITICAL)
        thousand()
        return
    data = images(asked.share)
    sizes = [len(rows) for rows in two_digits(data[1])]
    print(f"{CLIENTS} clients of {min(sizes)} to {max(sizes)} images, {LOCAL_STEPS} steps a round")
    runs = [] if asked.no_plain else [("sgd", float("inf"))]
    for method, epsilon in runs + [(m, e) for e in asked.epsilon for m in asked.methods]:
        full = method == "gd"
        recipe = FederatedRecipe(
            asked.rounds, LOCAL_STEPS, None if full else asked.batch, NONZERO,
            asked.full_step if full else asked.step, asked.clip,
        )  # fmt: skip
        begin = time.process_time()
        result = train(recipe, epsilon, data)
        marks = " ".join(f"{result.history[r]['accuracy']:.3f}" for r in sorted(result.history))
        name = recipe.algorithm(private=epsilon < float("inf"))
        images_seen = asked.rounds * LOCAL_STEPS * (sum(sizes) if full else asked.batch * CLIENTS)
        print(
            f"{name:>13} epsilon {result.privacy.epsilon:6.4g}: {marks}   "
            f"({images_seen / sum(sizes):.1f} passes, {time.process_time() - begin:.0f} s)",
            flush=True,
        )


if __name__ == "__main__":
    main()
