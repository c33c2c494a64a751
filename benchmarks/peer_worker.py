"""Runs one peer on one task in the peers' own environment; prints a line of JSON. Knows nothing of Sordino.

Command: .venv-peers/bin/python benchmarks/peer_worker.py TASK.npz PEER EPSILON SEED
"""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from importlib import import_module

import numpy as np
from machine import peak_mb  # beside this file, which is run by its path

DELTA = 1e-5


def diffprivlib(task, epsilon, seed):
    """Its logistic regression; pure epsilon, rows of norm at most 1."""
    from diffprivlib.models import LogisticRegression

    return LogisticRegression(epsilon=epsilon, data_norm=1.0, max_iter=300, random_state=seed).fit(
        task["x"], task["y"]
    )


def dp_ebm(task, epsilon, seed):
    """InterpretML's private boosting, bounds of the columns declared."""
    from interpret.privacy import DPExplainableBoostingClassifier

    low, high = task["low"], task["high"]
    bounds = {j: (float(a), float(b)) for j, (a, b) in enumerate(zip(low, high)) if a < b}
    return DPExplainableBoostingClassifier(
        epsilon=epsilon,
        delta=DELTA,
        privacy_bounds=bounds,
        feature_types=["nominal" if c else "continuous" for c in task["categories"]],
        random_state=seed,
        n_jobs=1,
    ).fit(task["raw"], task["y"])


class Linear:
    """DP-SGD, a linear model: 20 epochs of n / 20 records, the best of three rates in hindsight."""

    rates = (1.0, 4.0, 16.0)

    def __init__(self, task, epsilon, seed):
        start = time.process_time()
        sigma = self._noise(epsilon, len(task["y"]))
        calibrated = time.process_time()
        runs = [self._run(task, sigma, rate, seed) for rate in self.rates]
        # Of one fit: a user who knows the rate pays for it alone.
        self.seconds = calibrated - start + (time.process_time() - calibrated) / len(self.rates)
        score = [np.mean(self._margins(task["test_x"], w) * np.sign(task["test_y"] - 0.5) > 0) for w in runs]
        self.w = runs[int(np.argmax(score))]

    @staticmethod
    def _margins(x, w):
        return x @ w[:-1] + w[-1]

    def predict(self, x):
        return (self._margins(x, self.w) > 0).astype(int)


class opacus(Linear):
    """By Opacus."""

    def _noise(self, epsilon, n):
        from opacus.accountants.utils import get_noise_multiplier

        return get_noise_multiplier(
            target_epsilon=epsilon, target_delta=DELTA, sample_rate=1 / 20, steps=400, accountant="prv"
        )

    def _run(self, task, sigma, rate, seed):
        import torch
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer

        torch.manual_seed(seed)
        x, y = task["x"], task["y"]
        sample, steps = 1 / 20, 400
        model = GradSampleModule(torch.nn.Linear(x.shape[1], 1))
        torch.nn.init.zeros_(model._module.weight)
        optimizer = DPOptimizer(
            torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9),
            noise_multiplier=sigma,
            max_grad_norm=0.5,
            expected_batch_size=max(1, round(sample * len(y))),
        )
        public = np.random.default_rng(seed)
        for _ in range(steps):
            rows = np.flatnonzero(public.random(len(y)) < sample)
            if not len(rows):
                continue
            batch = torch.from_numpy(x[rows].astype(np.float32))
            optimizer.zero_grad()
            labels = torch.from_numpy(y[rows].astype(np.float32))
            torch.nn.functional.binary_cross_entropy_with_logits(model(batch)[:, 0], labels).backward()
            optimizer.step()
        return np.append(
            model._module.weight.detach().numpy()[0].astype(float), float(model._module.bias.detach()[0])
        )


class opake(Linear):
    """By Opake: its Poisson batches, clipped gradients, noise and accountant."""

    def _noise(self, epsilon, n):
        from opake import accounting
        from opake.dpsgd.accounting import gaussian, poisson

        budget = accounting.epsilon_budget(epsilon, DELTA)
        return accounting.calibrate(
            budget, lambda z: poisson(gaussian(z), 1 / 20) * 400, 0.2, 100.0, tolerance=1e-3
        ).param

    def _run(self, task, sigma, rate, seed):
        import torch
        from opake.dpsgd import PoissonSampler, clipped_grad, gaussian_noise
        from opake.random import key, split

        x, y = (torch.from_numpy(task[name].astype(np.float32)) for name in ("x", "y"))
        size, loss = max(1, round(len(y) / 20)), torch.nn.functional.binary_cross_entropy_with_logits
        grad, clips = clipped_grad(
            lambda w, rows, labels: loss(rows @ w["w"] + w["b"], labels),
            clipping_norm=0.5,
            normalize_by=size,
            batch_argnums=(1, 2),
        )
        drawn, added = split(key(seed), 2)
        noise, state = gaussian_noise(noise_multiplier=sigma, key=added)
        w = {"w": torch.zeros(x.shape[1]), "b": torch.zeros(())}
        moved = {name: torch.zeros_like(value) for name, value in w.items()}
        for rows in PoissonSampler(x, 1 / 20, 400, key=drawn):
            found, clips = grad(w, x[rows], y[rows], state=clips)
            private, state = noise(found, state)
            moved = {name: 0.9 * moved[name] + private.pytree[name] for name in w}
            w = {name: w[name] - rate * moved[name] for name in w}
        return np.append(w["w"].numpy().astype(float), float(w["b"]))


class jax_privacy(Linear):
    """By jax-privacy: Poisson batches, clipped gradients and noise are its own."""

    def _noise(self, epsilon, n):
        return _jax_noise(epsilon, max(1, round(n / 20)), 400, n)

    def _run(self, task, sigma, rate, seed):
        import jax
        import optax
        from jax_privacy import batch_selection, clipped_grad, noise_addition

        x, y = task["x"].astype(np.float32), task["y"].astype(np.float32)
        sample, steps, clip = 1 / 20, 400, 0.5
        size = max(1, round(sample * len(y)))
        grad = clipped_grad(_logistic, l2_clip_norm=clip, normalize_by=size, batch_argnums=(1, 2))
        noise = noise_addition.gaussian_privatizer(stddev=sigma * clip / size, prng_key=seed)
        optimizer = optax.sgd(rate, momentum=0.9)

        @jax.jit
        def step(w, rows, labels, padding, state):
            private, kept = noise.update(grad(w, rows, labels, is_padding_example=padding), state[0])
            moved, momentum = optimizer.update(private, state[1])
            return optax.apply_updates(w, moved), (kept, momentum)

        w = {"w": np.zeros(x.shape[1], np.float32), "b": np.float32(0)}
        state = (noise.init(w), optimizer.init(w))
        batches = batch_selection.CyclicPoissonSampling(sample, steps)
        for chosen in batches.batch_iterator(len(y), seed):
            rows = batch_selection.pad_to_multiple_of(chosen, size)
            w, state = step(w, x[rows], y[rows], rows < 0, state)
        return np.append(np.asarray(w["w"], float), float(w["b"]))


def _jax_noise(epsilon, size, steps, n):
    from jax_privacy import accounting

    accountant = accounting.DpsgdTrainingAccountant(accounting.PldAccountantConfig())
    return accounting.calibrate_noise_multiplier(
        target_epsilon=epsilon,
        accountant=accountant,
        batch_sizes=size,
        num_updates=steps,
        num_samples=n,
        target_delta=DELTA,
    )


def _logistic(w, x, y):
    import optax

    return optax.sigmoid_binary_cross_entropy(x @ w["w"] + w["b"], y).mean()


def opendp(task, epsilon, seed):
    """Its mean of a column with declared bounds and a known size, Laplace noise."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    bounds = (float(task["low"]), float(task["high"]))
    size = len(task["values"])
    space = dp.vector_domain(dp.atom_domain(bounds=bounds, nan=False), size=size), dp.symmetric_distance()
    mean = space >> dp.t.then_mean()
    release = dp.binary_search_chain(lambda s: mean >> dp.m.then_laplace(s), d_in=2, d_out=epsilon)
    return release(np.clip(task["values"], *bounds).tolist())


PEERS = {
    "diffprivlib": diffprivlib,
    "dp-ebm": dp_ebm,
    "jax-privacy": jax_privacy,
    "opacus": opacus,
    "opake": opake,
    "opendp": opendp,
}
MODULES = {
    "diffprivlib": ("diffprivlib.models",),
    "dp-ebm": ("interpret.privacy",),
    "jax-privacy": ("jax", "optax", "jax_privacy.accounting"),
    "opacus": ("torch", "opacus.accountants.utils"),
    "opake": ("torch", "opake.dpsgd", "opake.dpsgd.accounting"),
    "opendp": ("opendp.prelude",),
}


def main() -> None:
    """Run and print."""
    warnings.simplefilter("ignore")
    path, peer, epsilon, seed = sys.argv[1:]
    task = dict(np.load(path, allow_pickle=False))
    for module in MODULES[peer]:
        import_module(module)  # not what is measured
    if not (isinstance(PEERS[peer], type) and issubclass(PEERS[peer], Linear)):
        PEERS[peer](task, float(epsilon), int(seed))  # nor is a first fit; three rates are three fits
    start = time.process_time()
    model = PEERS[peer](task, float(epsilon), int(seed))
    seconds = getattr(model, "seconds", time.process_time() - start)
    if peer == "opendp":
        value = float(model)
    else:
        value = float(
            np.mean(model.predict(task["test_raw" if peer == "dp-ebm" else "test_x"]) == task["test_y"])
        )
    found = {"value": value if math.isfinite(value) else None, "cpu": seconds, "peak_mb": peak_mb()}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
