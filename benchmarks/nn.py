"""Private training on a processor: step cost, optimisers on digits, and (asked for) regimes or MNIST.

Command: python -m benchmarks.nn              steps and optimisers (minutes)
         python -m benchmarks.nn --regimes    when smoothing and srm help (minutes)
         python -m benchmarks.nn --mnist      MNIST at epsilon 1.2 and 3, by default (ten minutes of one core)
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from itertools import product

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
            ms = cpu_ms(opacus_step(mnist_cnn, x, y, torch.device("cpu"), mode, LOSS))
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


LARGE = {"batch_size": 256, "epochs": 10, "average": 0.9}
REGIMES = {
    "batch 256, 55 steps, rate falls, average": LARGE,
    "batch 32, 440 steps, rate falls": {"batch_size": 32, "epochs": 10},
    "batch 32, 440 steps, rate stays": {"batch_size": 32, "epochs": 10, "schedule": "constant"},
}
PLAIN = {"optimizer_options": {"momentum": 0.0}}
RATED = {
    "sgd": (PLAIN, (0.25, 1.0, 4.0)),
    "ls-sgd": ({"optimizer": "ls-sgd"} | PLAIN, (0.25, 1.0, 4.0)),
    "adam": ({"optimizer": "adam"}, (0.002, 0.006, 0.02)),
    "ls-adam": ({"optimizer": "ls-adam"}, (0.002, 0.006, 0.02)),
    "srm": (WAYS["srm"], (0.25, 1.0, 4.0)),
}


def regimes(epsilon: float = 1.0, runs: int = 3) -> None:
    """Print the best of three rates, with hindsight, of each optimiser in each regime."""
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16.0, dtype=torch.float32), torch.tensor(labels)
    print(f"\ndigits, 64-32-10 tanh, epsilon {epsilon}, delta 1e-5: %, {runs} runs, best of three rates")
    for regime, common in REGIMES.items():
        print(f"{regime}", flush=True)
        for name, (settings, rates) in RATED.items():
            tried = []
            for rate in rates:
                asked = settings | {"learning_rate": rate}
                found = [digits_accuracy(x, y, epsilon, seed, asked, common) for seed in range(runs)]
                tried.append((float(np.mean(found)), float(np.std(found, ddof=1)) / runs**0.5, rate))
            mean, error, rate = max(tried)
            print(f"{name:>24} {mean:6.1f} ± {error:.1f} at rate {rate:g}", flush=True)


def digits_accuracy(x, y, epsilon: float, seed: int, settings: dict, common: dict = LARGE) -> float:
    """Return the accuracy of one run on 1,400 images, judged on the others."""
    torch.manual_seed(seed)
    order = torch.randperm(len(x))
    train, test = order[:1400], order[1400:]
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    trained = Trainer(model, LOSS, epsilon, 1e-5, **common, **settings).fit(x[train], y[train])
    return accuracy(trained.model, x[test], y[test])


def floors(runs: int = 3) -> None:
    """Print accuracies of tabular settings on digits with clips of 1, .1 and .01, the rate in their units."""
    data = load_digits()
    x, y = torch.tensor(data.data / 16.0, dtype=torch.float32), torch.tensor(data.target)
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    for epsilon, clip in product((1.0, 3.0), (1.0, 0.1, 0.01)):
        rate = Trainer(model, LOSS, epsilon, 1e-5, recipe="tabular").settings(1400).learning_rate
        asked = {"recipe": "tabular", "clip_norm": clip, "learning_rate": rate / clip}
        found = [digits_accuracy(x, y, epsilon, seed, asked, {}) for seed in range(runs)]
        print(f"epsilon {epsilon:g}, clip {clip:g}: {np.mean(found):.1f} %", flush=True)


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
    parser.add_argument("--regimes", action="store_true")
    parser.add_argument("--floors", action="store_true")
    torch.set_num_threads(1)
    describe()
    asked = parser.parse_args()
    if asked.mnist:
        mnist()
    if asked.regimes:
        regimes()
    if asked.floors:
        floors()
    if not (asked.mnist or asked.regimes or asked.floors):
        steps()
        optimisers()


if __name__ == "__main__":
    main()
