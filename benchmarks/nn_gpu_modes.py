"""Noise without artefacts, persons, and processes over NCCL: each once on a GPU, on MNIST.

Command: SORDINO_DATA=... python -m benchmarks.nn_gpu_modes secure persons --out rows.jsonl
         torchrun --nproc-per-node 1 -m benchmarks.nn_gpu_modes nccl --out rows.jsonl

``secure`` times steps with and without ``secure_noise`` in turns, then trains with it; ``persons`` trains a
linear layer on scattering coefficients for 600 persons of 100 images, as ``benchmarks.persons`` does on a
processor; ``nccl`` trains over NCCL with as many processes as torchrun starts, one on a machine with one GPU.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import sordino.nn.trainer as trainer
from benchmarks.machine import keep_row
from benchmarks.nn_gpu import mnist_cnn
from benchmarks.nn_mnist import DELTA, DIGITS, LOSS, accuracy, digits
from benchmarks.persons import PERSONS, RATE, SIZE, STEPS, owners
from sordino.execute.processes import Processes
from sordino.nn import Scattering, Trainer

EPSILON, BATCH = 8.0, 2048
TRAINING = {"batch_size": BATCH, "learning_rate": 1.0}


def wait(device: str) -> None:
    """Wait for the device."""
    if device == "cuda":
        torch.cuda.synchronize()


def step_seconds(x: Tensor, y: Tensor, device: str, secure: bool, count: int = 25) -> float:
    """Return the median time of a step, the first five left out."""
    ends: list[float] = []

    def after(step: Any) -> None:
        wait(device)
        ends.append(time.perf_counter())

    settings = TRAINING | {"steps": count, "secure_noise": secure, "callbacks": (after,)}
    Trainer(mnist_cnn().to(device), LOSS, EPSILON, DELTA, **settings).fit(x, y)
    return statistics.median(b - a for a, b in pairwise(ends[4:]))


def fitted(model: nn.Module, x: Tensor, y: Tensor, test: Tensor, test_y: Tensor, **settings: Any) -> dict:
    """Return what a training reached; ``groups`` goes to the fit."""
    groups, begun = settings.pop("groups", None), time.perf_counter()
    trained = Trainer(model, LOSS, EPSILON, DELTA, **settings).fit(x, y, groups=groups)
    report, right = trained.privacy, accuracy(trained.model, test, test_y)
    said = {"unit": report.unit, "certified": report.epsilon, "notes": list(report.notes)}
    return {"accuracy": round(right, 4), "seconds": time.perf_counter() - begun} | said


def secure(device: str) -> list[dict]:
    """Return the cost of noise without artefacts, and what a training with it reaches."""
    parts = [part.to(device) for part in digits()]
    turns = [[step_seconds(*parts[:2], device, how) for how in (False, True)] for _ in range(3)]
    plain, exact = (1e3 * min(column) for column in zip(*turns, strict=True))
    cost = {
        "what": "a step of 2,048, 26,010 weights",
        "ms": plain,
        "ms_secure": exact,
        "ratio": exact / plain,
    }
    settings = TRAINING | {"steps": 150, "secure_noise": True}
    return [cost, {"what": "CNN, 150 steps"} | fitted(mnist_cnn().to(device), *parts, **settings)]


def persons(device: str) -> list[dict]:
    """Return what a linear layer reaches for 600 persons of 100 images each."""
    x, y, test, test_y = (part.to(device) for part in digits())
    layer = Scattering(1, angles=4).to(device)
    train, judged = (layer.of(part).flatten(1) for part in (x, test))
    scale = SIZE / train.shape[1] ** 0.5
    model = nn.Linear(train.shape[1], DIGITS).to(device)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    groups = owners(y.cpu().numpy(), skewed=False)
    settings = {"batch_size": PERSONS, "steps": STEPS, "learning_rate": RATE, "average": 0.8}
    found = fitted(model, scale * train, y, scale * judged, test_y, groups=groups, **settings)
    return [{"what": "600 persons of 100 images, linear on scattering"} | found]


def nccl(device: str) -> list[dict]:
    """Return what the processes of torchrun reach together; one alone sends its messages all the same."""
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend)
    trainer.join_processes = lambda wanted: Processes()
    parts = [part.to(device) for part in digits()]
    found = fitted(mnist_cnn().to(device), *parts, steps=60, **TRAINING)
    count, first = dist.get_world_size(), dist.get_rank() == 0
    dist.destroy_process_group()
    return [{"what": f"CNN, 60 steps, {count} processes over {backend}"} | found] if first else []


MODES: dict[str, Callable[[str], list[dict]]] = {"secure": secure, "persons": persons, "nccl": nccl}


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("modes", nargs="+", choices=list(MODES))
    parser.add_argument("--out", default="", help="append rows to this file, one JSON object a line")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    where = torch.cuda.get_device_name() if args.device == "cuda" else "cpu"
    about = {"epsilon": EPSILON, "delta": DELTA, "device": where, "torch": torch.__version__}
    for mode in args.modes:
        for row in MODES[mode](args.device):
            keep_row({"mode": mode} | row | about, args.out)


if __name__ == "__main__":
    main()
