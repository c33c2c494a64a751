"""Persons instead of records: MNIST split among 600 persons of 100 images, guarantees for a person.

Command: SORDINO_DATA=... python -m benchmarks.persons

A linear layer on scattering features (a free map), trained on the summed gradients of persons. All of them
take part in every step. ``mixed`` deals the images out at random; ``skewed`` gives each person two runs of 50
from the images sorted by digit, so that most see two digits only. Steps and learning rate were chosen on 500
persons of the mixed training images against the other 10,000; the test images are read once, at the end.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import nn

from benchmarks.machine import describe
from sordino import ScatteringTransformer
from sordino.datasets import load
from sordino.kernel import public_generator
from sordino.nn import Trainer

EPSILON, DELTA, PERSONS, BAR = 8.0, 1e-5, 600, 0.93
STEPS, RATE, SIZE = 40, 1.0, 10.0
_BLOCK = 5000


def features(images: np.ndarray) -> torch.Tensor:
    """Return rows of norm at most ``SIZE``, image by image."""
    scattered = ScatteringTransformer(angles=4)
    parts = [scattered.fit_transform(images[i : i + _BLOCK]) for i in range(0, len(images), _BLOCK)]
    return torch.from_numpy(SIZE * np.vstack(parts).astype(np.float32))


def owners(digits: np.ndarray, skewed: bool) -> np.ndarray:
    """Return who owns each image: a public choice of this benchmark."""
    public = public_generator(1)
    if not skewed:
        return public.permutation(np.repeat(np.arange(PERSONS), len(digits) // PERSONS))
    runs = public.permutation(2 * PERSONS) // 2
    out = np.empty(len(digits), dtype=np.int64)
    out[np.argsort(digits, kind="stable")] = np.repeat(runs, len(digits) // (2 * PERSONS))
    return out


def main() -> None:
    """Print the accuracy on the test images for both ways to deal."""
    describe()
    torch.set_num_threads(1)
    begun, data = time.process_time(), load("mnist")
    X, Xt = (features(np.asarray(part, dtype=np.float32)) for part in (data.data, data.test_data))
    print(f"scattering: {time.process_time() - begun:.0f} s CPU", flush=True)
    y, yt = np.asarray(data.target, dtype=np.int64), np.asarray(data.test_target, dtype=np.int64)
    for skewed in (False, True):
        begun, model = time.process_time(), nn.Linear(X.shape[1], 10)
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)
        trainer = Trainer(
            model, nn.CrossEntropyLoss(), EPSILON, DELTA,
            batch_size=PERSONS, steps=STEPS, learning_rate=RATE, average=0.8,
        )  # fmt: skip
        trained = trainer.fit(X, torch.from_numpy(y), groups=owners(y, skewed))
        with torch.no_grad():
            right = float((trained.model(Xt).argmax(1).numpy() == yt).mean())
        print(
            f"mnist, {PERSONS} persons x 100, {'skewed' if skewed else 'mixed'}: accuracy {right:.4f} at "
            f"epsilon {trained.privacy.epsilon:.3f}, delta {DELTA}, one {trained.privacy.unit}; bar {BAR} "
            f"{'holds' if right >= BAR else 'MISS'}; {time.process_time() - begun:.0f} s CPU",
            flush=True,
        )


if __name__ == "__main__":
    main()
