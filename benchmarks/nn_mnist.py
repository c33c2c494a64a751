"""MNIST at true epsilon 1.2 and 3, delta 1e-5: what defaults reach, on the 10,000 test images.

Command: SORDINO_DATA=... python -m benchmarks.nn_mnist --seeds 3 --out rows.jsonl
         python -m benchmarks.nn_mnist --merge rows.jsonl --to benchmarks/results/nn_mnist.json
         python -m benchmarks.nn --mnist      (the same once, with the machine)

The coefficients take about a minute of one core, once; a run one to three minutes, the network on pixels an
hour; seconds on a GPU. The ways:

- logistic regression on scattering coefficients, everything by default;
- a linear layer on scattering coefficients with `recipe="image"`;
- a network of 26,010 weights on pixels, four shifted views of each image in each step.

Settings were chosen on 50,000 training images against the other 10,000; test images are read once a run.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.machine import keep_row
from benchmarks.nn_cifar import kept, merged
from benchmarks.nn_gpu import mnist_cnn
from sordino import LogisticRegression, ScatteringTransformer
from sordino.datasets import load
from sordino.nn import Scattering, Shifts, Trainer

DELTA, LOSS, DIGITS, SHAPE = 1e-5, nn.CrossEntropyLoss(), 10, (81, 7, 7)
SIZE = math.sqrt(math.prod(SHAPE))  # of the coefficients of an image, whose rows have norm 1
# of the network on pixels: its rate falls with the noise
PIXELS = {1.2: {"learning_rate": 10.0}, 3.0: {"learning_rate": 20.0}}
PIXELS_ALL = {"batch_size": 4096, "epochs": 40.0, "clip_norm": 0.1, "augment": Shifts(1), "multiplicity": 4}


class Linear(nn.Module):
    """A linear layer on coefficients, halved as when settings were chosen; starts at zero."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.layer = nn.Linear(features, DIGITS)
        nn.init.zeros_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)

    def forward(self, coefficients: Tensor) -> Tensor:
        """Return the scores of the digits."""
        return self.layer(coefficients.flatten(1) / 2)


@cache
def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return images (n, 1, 28, 28) and labels of both parts."""
    data, parts = load("mnist"), []
    for images, labels in ((data.data, data.target), (data.test_data, data.test_target)):
        parts.append(torch.from_numpy(np.asarray(images, dtype=np.float32)).reshape(-1, 1, 28, 28))
        parts.append(torch.from_numpy(np.asarray(labels, dtype=np.int64)))
    return parts[0], parts[1], parts[2], parts[3]


@cache
def rows() -> tuple[np.ndarray, np.ndarray, float]:
    """Return the scattering coefficients of both parts as rows, and the CPU seconds they took."""
    begun, (x, _, test, _) = time.process_time(), digits()
    map_ = ScatteringTransformer().fit(x[:1].flatten(1).numpy())
    found = [map_.transform(part.flatten(1).numpy()) for part in (x, test)]
    return found[0], found[1], time.process_time() - begun


@cache
def coefficients(device: str) -> tuple[Tensor, Tensor]:
    """Return the same as images, of the size that :class:`Scattering` gives them."""
    if device == "cpu":
        train, test, _ = rows()
        return tuple(torch.from_numpy(part).reshape(-1, *SHAPE) * SIZE for part in (train, test))
    layer, (x, _, tests, _) = Scattering(1).to(device), digits()
    return layer.of(x.to(device)), layer.of(tests.to(device))


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of right digits."""
    with torch.no_grad():
        found = torch.cat([model(part).argmax(dim=1) for part in x.split(1000)])
    return float((found == y.to(found.device)).float().mean())


def logistic(epsilon: float, device: str, asked: dict[str, Any]) -> tuple[float, float]:
    """Return the accuracy of logistic regression on coefficients, and the certified epsilon."""
    (_, y, _, test_y), (x, test, _) = digits(), rows()
    model = LogisticRegression(epsilon, DELTA, data_norm=1.0, classes=np.arange(DIGITS)).fit(x, y.numpy())
    return float((model.predict(test) == test_y.numpy()).mean()), model.privacy_.epsilon


def on_coefficients(model: nn.Module, epsilon: float, device: str, asked: dict) -> tuple[float, float]:
    """Return the same of a network on coefficients with the recipe for images."""
    (_, y, _, test_y), (x, test) = digits(), coefficients(device)
    trainer = Trainer(model.to(device), LOSS, epsilon, DELTA, recipe="image", **asked)
    trained = trainer.fit(x, y.to(device))
    return accuracy(trained.model, test, test_y), trained.privacy.epsilon


def linear(epsilon: float, device: str, asked: dict[str, Any]) -> tuple[float, float]:
    """Return the same of a linear layer."""
    return on_coefficients(Linear(math.prod(SHAPE)), epsilon, device, asked)


def pixels(epsilon: float, device: str, asked: dict[str, Any]) -> tuple[float, float]:
    """Return the same of a network on pixels."""
    x, y, test, test_y = (part.to(device) for part in digits())
    settings = PIXELS_ALL | PIXELS[epsilon] | asked
    trained = Trainer(mnist_cnn().to(device), LOSS, epsilon, DELTA, **settings).fit(x, y)
    return accuracy(trained.model, test, test_y), trained.privacy.epsilon


WAYS: dict[str, Callable[[float, str, dict[str, Any]], tuple[float, float]]] = {
    "logistic regression on scattering": logistic,
    "linear layer on scattering": linear,
    "CNN on pixels, 4 views": pixels,
}


def measured(way: str, epsilon: float, seed: int, device: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Return one row."""
    torch.manual_seed(seed)
    shared = rows()[2] if device == "cpu" and way.endswith("on scattering") else 0.0
    begun, cpu = time.perf_counter(), time.process_time()
    right, spent = WAYS[way](epsilon, device, asked)
    row = {"way": way, "epsilon": epsilon, "seed": seed, "accuracy": right, "certified": spent}
    where = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    times = {"seconds": time.perf_counter() - begun, "cpu_seconds": time.process_time() - cpu}
    times |= {"coefficients_cpu_seconds": shared} if shared else {}
    return row | times | {"device": where, "asked": asked}


def table(ways: list[str], epsilons: list[float], seeds: int, device: str, out: str, batch: int) -> None:
    """Print one row a run; append it to a file if one is given."""
    asked = {"batch_size": batch} if batch else {}
    for way in ways:
        for epsilon in epsilons:
            for seed in range(seeds):
                keep_row(measured(way, epsilon, seed, device, asked), out)


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ways", nargs="+", default=list(WAYS)[:3], choices=list(WAYS))
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.2, 3.0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--batch", type=int, default=0, help="expected batch size; 0: that of the recipe")
    parser.add_argument("--out", default="", help="append rows to this file, one JSON object a line")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--merge", nargs="*", default=[], help="files of rows to put together")
    parser.add_argument("--to", default="benchmarks/results/nn_mnist.json")
    args = parser.parse_args()
    if args.merge:
        Path(args.to).write_text(kept(merged(args.merge, "python -m benchmarks.nn_mnist --seeds 3")))
        return
    table(args.ways, args.epsilon, args.seeds, args.device, args.out, args.batch)


if __name__ == "__main__":
    main()
