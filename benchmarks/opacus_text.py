"""Sordino beside Opacus on IMDB reviews (25,000 x 74,849 CSR): accuracy and CPU, in one run.

Command: python -m benchmarks.opacus_text   (needs: pip install opacus; data set imdb; epsilon 1, delta 1e-5)
Opacus has no sparse input: its batches are made dense, as a user would have to.
"""

from __future__ import annotations

import math
import time
import warnings

import numpy as np

from benchmarks.machine import describe

EPSILON, DELTA, BATCH, EPOCHS, RATE = 1.0, 1e-5, 1024, 4, 16.0


def ours(X, y, Xt, yt):
    from sordino import SparseLogisticRegression

    SparseLogisticRegression(max_iter=2).fit(X[::100], y[::100])  # compile
    start = time.process_time()
    model = SparseLogisticRegression(epsilon=EPSILON, delta=DELTA).fit(X, y)
    return model.score(Xt, yt), time.process_time() - start


def theirs(X, y, Xt, yt):
    import torch
    from opacus import GradSampleModule
    from opacus.accountants.utils import get_noise_multiplier
    from opacus.optimizers import DPOptimizer

    rate = BATCH / X.shape[0]
    steps = EPOCHS * math.ceil(1 / rate)
    sigma = get_noise_multiplier(
        target_epsilon=EPSILON, target_delta=DELTA, sample_rate=rate, steps=steps, accountant="prv"
    )
    model = GradSampleModule(torch.nn.Linear(X.shape[1], 1))
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9),
        noise_multiplier=sigma,
        max_grad_norm=0.5,
        expected_batch_size=BATCH,
    )
    public = np.random.default_rng(0)
    start = time.process_time()
    for _ in range(steps):
        rows = np.flatnonzero(public.random(X.shape[0]) < rate)
        batch = torch.from_numpy(X[rows].toarray().astype(np.float32))
        labels = torch.from_numpy(y[rows].astype(np.float32))
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(model(batch)[:, 0], labels).backward()
        optimizer.step()
    cpu = time.process_time() - start
    weight = model._module.weight.detach().numpy()[0].astype(float)
    bias = float(model._module.bias.detach()[0])
    return float(np.mean((Xt @ weight + bias > 0) == (yt > 0))), cpu


def main() -> None:
    """Print both accuracies and the ratio of CPU times."""
    from sordino.datasets import load, log1p_unit

    warnings.simplefilter("ignore")
    describe()
    data = load("imdb")
    X, Xt = log1p_unit(data.data), log1p_unit(data.test_data)
    y, yt = data.target, data.test_target
    accuracy, cpu = ours(X, y, Xt, yt)
    print(f"sordino: accuracy {accuracy:.4f}, {cpu:.2f} s CPU", flush=True)
    try:
        other, other_cpu = theirs(X, y, Xt, yt)
    except ImportError as error:
        print(f"opacus: not measured ({error})")
        return
    print(f"opacus ({EPOCHS} epochs of {BATCH}): accuracy {other:.4f}, {other_cpu:.1f} s CPU")
    print(f"CPU ratio {other_cpu / cpu:.0f} (bar 50), for an accuracy that is {accuracy - other:+.4f} higher")


if __name__ == "__main__":
    main()
