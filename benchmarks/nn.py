"""Private training on a processor: step cost, optimisers on digits, and (asked for) MNIST.

Command: python -m benchmarks.nn            steps and optimisers (minutes)
         python -m benchmarks.nn --mnist    MNIST at epsilon 1.2 and 3, by default (minutes of one core)
"""

from __future__ import annotations

import argparse
import importlib.util
import time

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from benchmarks.machine import describe
from benchmarks.nn_gpu import mnist_cnn, opacus_step
from sordino.nn import HardThreshold, Trainer
from sordino.nn.engines import GhostEngine, VmapEngine
from sordino.nn.network import Network
from sordino.nn.queries import TorchDifference

BATCH, LOSS = 256, nn.CrossEntropyLoss()


def cpu_ms(step, repeats: int = 8) -> float:
    """Return the least processor milliseconds of a step: other work on the machine only adds."""
    step()
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        step()
        times.append(time.process_time() - begin)
    return 1e3 * min(times)


def steps() -> None:
    """Print the cost of one clipped sum beside an ordinary gradient."""
    torch.manual_seed(0)
    x, y = torch.randn(BATCH, 1, 28, 28), torch.randint(0, 10, (BATCH,))
    network = Network(mnist_cnn(), LOSS)
    vector = network.flat()

    def plain():
        leaf = vector.clone().requires_grad_()
        outputs = network.outputs(network.unflatten(leaf), x)
        torch.autograd.grad(LOSS(outputs, y), leaf)

    base = cpu_ms(plain)
    print(f"\nMNIST CNN, batch {BATCH}, processor ms per step\n{'plain':>24} {base:7.1f}   1.00")
    ways = {kind(network).method: kind(network) for kind in (GhostEngine, VmapEngine)}
    for name, engine in ways.items():
        ms = cpu_ms(lambda engine=engine: engine.clipped_sum(vector, x, y, 1.0))
        print(f"{name:>24} {ms:7.1f} {ms / base:6.2f}")
    for name, engine in ways.items():
        query = TorchDifference(engine, 1.0, 0.1, 0.1)
        ms = cpu_ms(lambda query=query: query._sum((vector, 0.9 * vector), x, y))
        print(f"{'difference, ' + name:>24} {ms:7.1f} {ms / base:6.2f}")
    if importlib.util.find_spec("opacus"):
        for mode in ("hooks", "ghost"):
            ms = cpu_ms(opacus_step(mnist_cnn, x, y, torch.device("cpu"), mode))
            print(f"{'opacus ' + mode:>24} {ms:7.1f} {ms / base:6.2f}")


WAYS = {
    "sgd": {},
    "sgd, no momentum": {"optimizer_options": {"momentum": 0.0}, "learning_rate": 4.0},
    "ls-sgd": {"optimizer": "ls-sgd"},
    "adam": {"optimizer": "adam", "learning_rate": 0.02},
    "ls-adam": {"optimizer": "ls-adam", "learning_rate": 0.02},
    "srm": {
        "optimizer": "srm",
        "learning_rate": 4.0,
        "optimizer_options": {"gamma": 0.3, "difference_clip": 0.3},
    },
    "sgd, 800 of 2410 kept": {"projection": HardThreshold(800, after=0.5)},
}


def optimisers(runs: int = 5) -> None:
    """Print test accuracies on digits, mean and standard error over runs."""
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16.0, dtype=torch.float32), torch.tensor(labels)
    print(f"\ndigits, 64-32-10 tanh, 55 steps of batch 256, delta 1e-5: accuracy %, {runs} runs")
    print(f"{'epsilon':>24} {'.5':>12} {'1':>12} {'3':>12}")
    for name, settings in WAYS.items():
        cells = [f"{name:>24}"]
        for epsilon in (0.5, 1.0, 3.0):
            found = [digits_accuracy(x, y, epsilon, seed, settings) for seed in range(runs)]
            cells.append(f"{np.mean(found):6.1f} ± {np.std(found, ddof=1) / runs**0.5:.1f}")
        print("  ".join(cells), flush=True)


def digits_accuracy(x, y, epsilon: float, seed: int, settings: dict) -> float:
    torch.manual_seed(seed)
    order = torch.randperm(len(x))
    train, test = order[:1400], order[1400:]
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    common = {"epsilon": epsilon, "delta": 1e-5, "batch_size": 256, "epochs": 10, "average": 0.9}
    trained = Trainer(model, LOSS, **common, **settings).fit(x[train], y[train])
    return accuracy(trained.model, x[test], y[test])


def accuracy(model, x, y) -> float:
    with torch.no_grad():
        found = torch.cat([model(block).argmax(dim=1) for block in x.split(1000)])
    return 100.0 * float((found == y).float().mean())


def mnist() -> None:
    """Print what defaults reach on MNIST at epsilon 1.2 and 3, without the network on pixels."""
    from benchmarks.nn_mnist import WAYS as KINDS
    from benchmarks.nn_mnist import table

    print("\nMNIST, delta 1e-5: one row a run")
    table(list(KINDS)[:3], [1.2, 3.0], 1, "cpu", "", 0)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mnist", action="store_true")
    torch.set_num_threads(1)
    describe()
    if parser.parse_args().mnist:
        mnist()
    else:
        steps()
        optimisers()


if __name__ == "__main__":
    main()
