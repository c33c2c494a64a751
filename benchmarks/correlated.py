"""Correlated against independent noise at one epsilon: `Trainer(noise=...)` and nothing else changed.

Command: python -m benchmarks.correlated [--tasks mnist imdb cifar] [--seeds 3] [--epsilon 8] [--out FILE]

Learning rates are chosen per noise on a fifth of the training records (those are not trained on then), with
one run each, and judged on the test records by runs on all training records. `error` is the predicted root
mean square of the noise in the sum of all steps so far, in units of the clipping norm; what is compared is
accuracy.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.nn_mnist import digits
from sordino.datasets import load, log1p_unit
from sordino.kernel.noise import seeded_noise_not_private
from sordino.nn import Trainer
from sordino.runs.training import Training

NOISES = ("independent", "banded", "blt", "regenerated")
RATES = (0.125, 0.25, 0.5, 1.0, 2.0)
WORDS = 2_000


def mnist():
    """Return pixels and digits of both parts, and a small perceptron."""
    x, y, test, labels = digits()
    return (x.flatten(1), y, test.flatten(1), labels), lambda: nn.Sequential(
        nn.Linear(784, 64), nn.Tanh(), nn.Linear(64, 10)
    )


def imdb():
    """Return reviews as counts in 2,000 public buckets of words, and a small perceptron."""
    data = load("imdb")

    def buckets(matrix):
        rows = log1p_unit(matrix)
        place = (np.arange(rows.shape[1]) * 2654435761 % 2**32) % WORDS
        out = np.zeros((rows.shape[0], WORDS), dtype=np.float32)
        for start in range(0, rows.shape[0], 5000):
            part = rows[start : start + 5000].tocoo()
            np.add.at(out, (start + part.row, place[part.col]), part.data.astype(np.float32))
        return torch.from_numpy(4.0 * out)

    y = [torch.from_numpy((np.asarray(t) > 0).astype(np.int64)) for t in (data.target, data.test_target)]
    return (buckets(data.data), y[0], buckets(data.test_data), y[1]), lambda: nn.Sequential(
        nn.Linear(WORDS, 32), nn.Tanh(), nn.Linear(32, 2)
    )


def cifar():
    """Return small pictures of both parts, and a small convolutional network."""
    data = load("cifar10")
    parts = [torch.from_numpy(np.asarray(x, dtype=np.float32)) for x in (data.data, data.test_data)]
    y = [torch.from_numpy(np.asarray(t, dtype=np.int64)) for t in (data.target, data.test_target)]
    x = [part.reshape(-1, 3, 32, 32) * 2.0 - 1.0 for part in parts]
    return (x[0], y[0], x[1], y[1]), lambda: nn.Sequential(
        nn.Conv2d(3, 16, 5, 2, 2), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, 1, 1), nn.Tanh(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip


TASKS = {"mnist": (mnist, 256, 5.0), "imdb": (imdb, 128, 5.0), "cifar": (cifar, 128, 5.0)}


def accuracy(model, x, y) -> float:
    with torch.no_grad():
        return float((model(x).argmax(dim=1) == y).float().mean())


def fitted(make, x, y, noise, rate, batch, epochs, epsilon, seed):
    torch.manual_seed(seed)
    trainer = Trainer(
        make(), nn.CrossEntropyLoss(), epsilon=epsilon, delta=1e-5, batch_size=batch, epochs=epochs,
        learning_rate=rate, average=0.97, noise=noise,
    )  # fmt: skip
    with warnings.catch_warnings(), seeded_noise_not_private(seed):
        warnings.simplefilter("ignore")
        return trainer.fit(x, y)


def measure(name: str, noise: str, epsilon: float, seeds: int) -> dict:
    load_task, batch, epochs = TASKS[name]
    (x, y, test, labels), make = load_task()
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(x)))
    held, kept = order[: len(x) // 5], order[len(x) // 5 :]
    setting, begun = (batch, epochs, epsilon), time.process_time()
    tried = {}
    for rate in RATES:
        model = fitted(make, x[kept], y[kept], noise, rate, *setting, 0).model
        tried[rate] = accuracy(model, x[held], y[held])
    best = max(tried, key=tried.get)
    runs = [fitted(make, x, y, noise, best, *setting, seed) for seed in range(1, seeds + 1)]
    found = [accuracy(run.model, test, labels) for run in runs]
    priced = Training(len(x), batch, round(epochs * len(x) / batch), 1e-5, noise=noise)
    choice, (multiplier, _) = priced.chosen(epsilon), priced.least_noise(epsilon)
    row = {"task": name, "noise": noise, "epsilon": epsilon, "learning_rate": best, "validation": tried}
    row |= {"accuracy": statistics.mean(found), "runs": found, "error": multiplier * choice.error}
    return row | {"batches": repr(choice.sampling), "cpu_s": round(time.process_time() - begun, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--noises", nargs="+", default=list(NOISES), choices=NOISES)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", default="", help="also write the rows to this JSON file")
    args, rows = parser.parse_args(), []
    for name in args.tasks:
        for noise in args.noises:
            rows.append(measure(name, noise, args.epsilon, args.seeds))
            print(json.dumps(rows[-1]), flush=True)
            if args.out:
                Path(args.out).write_text(
                    json.dumps({"torch": torch.__version__, "rows": rows}, indent=1) + "\n"
                )


if __name__ == "__main__":
    main()
