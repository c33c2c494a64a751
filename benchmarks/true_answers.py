"""The bars of true answers, one by one, on designs that nothing was tuned on: what is asked, what is reached.

Command: python -m benchmarks.true_answers [NAME ...] [--fits 5] [--first 9000] [--save FILE]
Seeded noise and fresh rows for each seed, beginning at ``--first``; nothing here is private.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_softmax
from sklearn.linear_model import LinearRegression as PlainLinear
from sklearn.linear_model import LogisticRegression as PlainLogistic
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import sordino
from benchmarks.machine import describe
from sordino.accounting import gaussian_multiplier
from sordino.datasets import load, unit_rows
from sordino.testing import seeded_noise_not_private

DELTA, TESTED = 1e-6, 10_000


@dataclass(frozen=True)
class Line:
    """One bar: what is measured, what is asked of it, what was found."""

    what: str
    bar: str
    found: str
    holds: bool


@dataclass(frozen=True)
class Seeds:
    """The seeds of a measurement: so many, from the first on."""

    first: int
    fits: int

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.first + self.fits))


def inside(what: str, low: float, found: float, high: float, more: str = "") -> Line:
    """Return the line of a number that should lie between two ends."""
    ends = f"{low:g} to {high:g}" if math.isfinite(high) else f">= {low:g}"
    return Line(what, ends, f"{found:.3f}{more}", bool(low <= found <= high))


def rows(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Draw columns of three laws: normal, exponential, flags."""
    kinds = [rng.normal(size=(n, d)), rng.exponential(size=(n, d)) - 1.0, rng.random((n, d)) < 0.3]
    return np.choose(np.arange(d) % 3, [np.asarray(k, dtype=float) for k in kinds])


def signal(rng: np.random.Generator, X: np.ndarray, size: float) -> np.ndarray:
    """Draw a linear function of the rows, of this deviation."""
    s = X @ rng.normal(size=X.shape[1])
    return np.asarray(size * (s - s.mean()) / s.std())


NUMBERS: dict[str, Callable[[np.random.Generator, np.ndarray], np.ndarray]] = {
    "zero-inflated": lambda rng, s: np.where(
        rng.random(s.size) < expit(s - 1.2), rng.gamma(2.0, 1.0, s.size), 0.0
    ),
    "exponential": lambda rng, s: np.exp(0.4 * s) * rng.exponential(size=s.size),
    "lognormal": lambda rng, s: np.exp(0.5 * s + rng.normal(size=s.size)),
    "counts": lambda rng, s: rng.poisson(np.exp(0.5 * s)).astype(float),
    "normal": lambda rng, s: s + rng.normal(size=s.size),
    "t(3)": lambda rng, s: s + rng.standard_t(3, size=s.size),
    "2 % cost": lambda rng, s: np.where(
        rng.random(s.size) < 0.02 * np.exp(0.3 * s), rng.gamma(2, 3, s.size), 0.0
    ),
    "Gamma-Poisson": lambda rng, s: rng.poisson(np.exp(0.5 * s - 0.5) * rng.gamma(0.5, 2.0, s.size)).astype(
        float
    ),
    "90 % zeros": lambda rng, s: np.where(rng.random(s.size) < 0.1, rng.poisson(5 * np.exp(0.5 * s)), 0.0),
}


def sorted_tails(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    """Draw targets whose mean follows one direction and whose median another."""
    up, down = signal(rng, X, 1.0), signal(rng, X, 1.0)
    return np.asarray(up + np.exp(down / 2) * (rng.exponential(size=up.size) ** 2 - 2.0))


def drawn(kind: str, n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Return rows and targets, those of the test last, and the bounds that are declared."""
    rng = np.random.default_rng([seed, d])
    X = rows(rng, n + TESTED, d)
    y = sorted_tails(rng, X) if kind == "two directions" else NUMBERS[kind](rng, signal(rng, X, 1.0))
    return X, y, 1.1 * float(np.sqrt((X**2).sum(axis=1)).max()), 1.2 * float(np.abs(y).max())


def fitted(model: Any, X: np.ndarray, y: np.ndarray, seed: int, **more: Any) -> Any:
    """Fit with seeded noise and without words."""
    with seeded_noise_not_private(seed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y, **more)


def r2(y: np.ndarray, found: np.ndarray) -> float:
    """Return R2 beside the mean of the test rows."""
    return 1.0 - float(np.mean((y - found) ** 2) / np.var(y))


def against_least_squares(
    kind: str,
    n: int,
    d: int,
    epsilon: float,
    seeds: Seeds,
    model: Any = sordino.LinearRegression,
    **more: Any,
) -> tuple[float, float, float]:
    """Return mean R2, that of least squares, and mean prediction over mean target."""
    found = []
    for seed in seeds:
        X, y, norm, bound = drawn(kind, n, d, seed)
        own = model(epsilon, DELTA, data_norm=norm, target_bound=bound, **more)
        predicted = fitted(own, X[:n], y[:n], seed).predict(X[n:])
        least = PlainLinear().fit(X[:n], y[:n]).predict(X[n:])
        found.append([r2(y[n:], predicted), r2(y[n:], least), predicted.mean() / least.mean()])
    ours, plain, ratio = np.mean(found, axis=0)
    return float(ours), float(plain), float(ratio)


def skewed(seeds: Seeds) -> Iterator[Line]:
    """Zero-inflated, exponential, lognormal, counts, rare costs; the mean and the median apart."""
    for d in (8, 50):
        for kind in ("zero-inflated", "exponential", "lognormal", "counts", "two directions"):
            ours, plain, ratio = against_least_squares(kind, 40_000, d, 1.0, seeds)
            least = 0.85 if kind == "two directions" and d == 50 else 0.95
            said = f" ({ours:.3f} of {plain:.3f})"
            yield inside(f"{kind}, d = {d}: R2 over least squares", least, ours / plain, math.inf, said)
            if kind != "two directions":
                yield inside(f"{kind}, d = {d}: mean over mean", 0.97, ratio, 1.03)
        ours, plain, ratio = against_least_squares("2 % cost", 40_000, d, 1.0, seeds)
        yield inside(
            f"2 % cost, d = {d}: mean over mean", 0.85, ratio, 1.05, f" (R2 {ours:.3f} of {plain:.3f})"
        )


def sparse(seeds: Seeds) -> Iterator[Line]:
    """Sparse models of skewed targets."""
    for kind in ("zero-inflated", "exponential", "lognormal"):
        more = {"model": sordino.SparseLinearRegression, "n_nonzero_coefs": 8}
        ours, plain, ratio = against_least_squares(kind, 40_000, 8, 1.0, seeds, **more)
        said = f" (R2 {ours:.3f} of {plain:.3f})"
        yield inside(f"sparse, {kind}: mean over mean", 0.97, ratio, 1.03, said)
        ours, plain, ratio = against_least_squares(kind, 40_000, 40, 1.0, seeds, **more)
        yield inside(f"sparse, {kind}, 8 of 40 kept: mean over mean", 0.97, ratio, 1.03, f" (R2 {ours:.3f})")


def symmetric(seeds: Seeds) -> Iterator[Line]:
    """Symmetric targets lose nothing: R2 beside least squares."""
    for kind in ("normal", "t(3)"):
        for n, d in ((1500, 8), (5000, 8), (5000, 50), (40_000, 8), (40_000, 50)):
            ours, plain, _ = against_least_squares(kind, n, d, 1.0, seeds)
            loss = 0.01 if n >= 200 * d else 0.02
            said = f" (least squares {plain:.3f})"
            yield inside(f"{kind}, n = {n}, d = {d}: R2", round(plain - loss, 3), ours, math.inf, said)


def counts(seeds: Seeds) -> Iterator[Line]:
    """The Poisson loss: slopes along the plain model, and means."""
    for kind in ("counts", "Gamma-Poisson", "90 % zeros"):
        for n, epsilon in ((40_000, 1.0), (200_000, 8.0)):
            found = []
            for seed in seeds:
                X, y, norm, bound = drawn(kind, n, 6, seed)
                plain = PoissonRegressor(alpha=0.0, max_iter=1000).fit(X[:n], y[:n])
                model = fitted(
                    sordino.LinearRegression(
                        epsilon, DELTA, loss="poisson", data_norm=norm, target_bound=bound
                    ),
                    X[:n],
                    y[:n],
                    seed,
                )
                slope = model.coef_ @ np.cov(X.T) @ plain.coef_ / (plain.coef_ @ np.cov(X.T) @ plain.coef_)
                found.append([slope, model.predict(X[n:]).mean() / plain.predict(X[n:]).mean()])
            slope, ratio = np.mean(found, axis=0)
            at = f"Poisson loss, {kind}, n = {n}, epsilon {epsilon:g}"
            yield inside(f"{at}: slope", 0.9, slope, 1.1, f" ({np.round(np.array(found)[:, 0], 2)})")
            yield inside(f"{at}: mean over mean", 0.95, ratio, 1.05)


def slope_of(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    """Return the power of the predicted probabilities that fits best."""
    logs = np.log(np.clip(model.predict_proba(X), 1e-12, 1.0))
    chosen = np.arange(y.size), np.searchsorted(model.classes_, y)

    def lost(t: float) -> float:
        return -float(log_softmax(t * logs, axis=1)[chosen].mean())

    return float(minimize_scalar(lost, bounds=(0.05, 5.0), method="bounded").x)


def labels(rng: np.random.Generator, n: int, d: int, classes: int, size: float, flips: float) -> Any:
    """Return rows and labels, some of them replaced by others."""
    X = rows(rng, n + TESTED, d)
    scores = np.stack([signal(rng, X, size) for _ in range(classes)], axis=1)
    y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    return X, np.where(rng.random(y.size) < flips, (y + rng.integers(1, classes, y.size)) % classes, y)


def slopes(seeds: Seeds) -> Iterator[Line]:
    """Calibration slopes of flipped labels: two classes and several."""
    for classes, size, d in ((2, 8.0, 8), (2, 2.0, 20), (3, 6.0, 8), (6, 6.0, 12)):
        for flips in (0.02, 0.05, 0.10):
            found = []
            for seed in seeds:
                X, y = labels(np.random.default_rng([seed, classes]), 20_000, d, classes, size, flips)
                model = sordino.LogisticRegression(1.0, DELTA, data_norm=1.5 * d, classes=range(classes))
                found.append(slope_of(fitted(model, X[TESTED:], y[TESTED:], seed), X[:TESTED], y[:TESTED]))
            wide = 0.15 if flips == 0.02 else 0.1
            what = f"{classes} classes, {size:g}x, d = {d}, {flips:.0%} flipped: slope"
            yield inside(what, 1 - wide, float(np.mean(found)), 1 + wide)


def rare(seeds: Seeds) -> Iterator[Line]:
    """Slopes and mean probability of classes of 1 to 3 %."""
    for n, d, offset in ((20_000, 5, -5.0), (40_000, 10, -5.2), (40_000, 5, -6.0), (100_000, 20, -6.0)):
        found = []
        for seed in seeds:
            rng = np.random.default_rng([seed, n])
            X = rows(rng, n + 20_000, d)
            y = (rng.random(len(X)) < expit(signal(rng, X, 2.0) + offset)).astype(int)
            model = sordino.LogisticRegression(1.0, DELTA, data_norm=2.0 * d, classes=[0, 1])
            margins = fitted(model, X[:n], y[:n], seed).decision_function(X[n:])
            plain = PlainLogistic(C=1e6).fit(margins.reshape(-1, 1), y[n:]).coef_[0, 0]
            found.append([y.mean(), plain, expit(margins).mean() / y[n:].mean()])
        share, slope, ratio = np.mean(found, axis=0)
        yield inside(f"a class of {share:.1%}, n = {n}, d = {d}: slope", 0.87, slope, 1.15)
        yield inside(f"a class of {share:.1%}, n = {n}, d = {d}: mean over mean", 0.9, ratio, 1.1)


def steep(seeds: Seeds) -> Iterator[Line]:
    """Log loss of a class of one in sixteen with a logistic slope of 25, beside the plain model."""
    for n in (2_000, 20_000, 100_000):
        found = []
        for seed in seeds:
            rng = np.random.default_rng([seed, n, 25])
            X = rng.uniform(-1.0, 1.0, (n + TESTED, 3))
            y = (rng.random(len(X)) < expit(25.0 * X[:, 0] - 21.8)).astype(int)
            model = sordino.LogisticRegression(1.0, 1e-6, data_norm=2.0, classes=[0, 1])
            plain = PlainLogistic(C=1e6, max_iter=2000).fit(X[:n], y[:n])
            models = fitted(model, X[:n], y[:n], seed), plain
            found.append([log_loss(y[n:], m.predict_proba(X[n:])[:, 1]) for m in models])
        ours, plain_loss = np.mean(found, axis=0)
        what = f"a slope of 25, n = {n}: log loss over the plain one"
        yield inside(what, 0.0, float(ours / plain_loss), 1.05 if n > 50_000 else 1.15)


STATISTICS: dict[str, tuple[float, Callable[[np.random.Generator, int], np.ndarray]]] = {
    "1 % at 50": (60.0, lambda rng, n: np.where(rng.random(n) < 0.01, 50.0, rng.normal(size=n))),
    "lognormal": (60.0, lambda rng, n: np.minimum(np.exp(rng.normal(size=n)), 60.0)),
    "rare costs": (100.0, lambda rng, n: np.where(rng.random(n) < 0.02, 100 * rng.random(n), 0.0)),
    "normal": (5.0, lambda rng, n: np.clip(rng.normal(size=n), -5, 5)),
    "geometric": (50.0, lambda rng, n: np.minimum(rng.geometric(0.2, n), 50).astype(float)),
    "two values": (1.0, lambda rng, n: (rng.random(n) < 0.03).astype(float)),
}


def statistics(seeds: Seeds) -> Iterator[Line]:
    """Means and variances with bounds: coverage of intervals at 95 %, and errors beside the plain way."""
    for kind, (bound, draw) in STATISTICS.items():
        for n, epsilon in ((1000, 1.0), (5000, 0.3), (20_000, 1.0)):
            rng = np.random.default_rng([seeds.first, n])
            many = draw(np.random.default_rng(1), 4_000_000)
            truth, spread = float(many.mean()), float(many.var())
            plain = gaussian_multiplier(epsilon, DELTA) * bound / n
            found = []
            for seed in range(seeds.first, seeds.first + 20 * seeds.fits):
                x = draw(rng, n)[:, None]
                with seeded_noise_not_private(seed), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    mean = sordino.mean(x, epsilon, DELTA, bounds=(-bound, bound))
                    variance = sordino.variance(x, epsilon, DELTA, bounds=(-bound, bound))
                low, high = mean.interval
                least, most = variance.interval
                found.append(
                    [
                        float(np.squeeze(low)) <= truth <= float(np.squeeze(high)),
                        float(np.squeeze(least)) <= spread <= float(np.squeeze(most)),
                        (float(np.squeeze(mean)) - truth) ** 2,
                    ]
                )
            covered, varied, error = np.mean(found, axis=0)
            at = f"{kind}, n = {n}, epsilon {epsilon:g}"
            beside = math.sqrt(error / (spread / n + plain**2))
            yield inside(f"mean, {at}: coverage", 0.93, covered, 1.0, f" (error {beside:.2f} of bounded)")
            yield inside(f"variance, {at}: coverage", 0.93, varied, 1.0)


def few(seeds: Seeds) -> Iterator[Line]:
    """Few records: no worse than the private constant beyond twice its error."""
    for signal_size in (5, 10, 20, 40, 60, 90, 110, 150, 200, 400):
        for targets in ("numbers around 150", "two classes", "a class of 5 %"):
            lost = []
            for seed in range(seeds.first, seeds.first + 20 * seeds.fits):
                rng = np.random.default_rng([seed, signal_size])
                n, epsilon = 100, signal_size / 100
                X = rng.normal(size=(n + TESTED, 5))
                noise = gaussian_multiplier(epsilon, 1e-5)
                if targets == "numbers around 150":
                    y = 150 + 10 * X[:, 0] + 10 * rng.normal(size=len(X))
                    model = sordino.LinearRegression(epsilon, 1e-5, data_norm=5.0, target_bound=220.0)
                    found = fitted(model, X[:n], y[:n], seed).predict(X[n:])
                    constant = y[:n].mean() + noise * 220.0 / n * rng.normal()
                    lost.append([np.mean((found - y[n:]) ** 2), np.mean((constant - y[n:]) ** 2)])
                    best = np.var(y[n:])
                else:
                    offset = 0.0 if targets == "two classes" else -3.0
                    y = (rng.random(len(X)) < expit(0.7 * X[:, 0] + offset)).astype(int)
                    model = sordino.LogisticRegression(epsilon, 1e-5, data_norm=5.0, classes=[0, 1])
                    found = fitted(model, X[:n], y[:n], seed).predict_proba(X[n:])[:, 1]
                    shares = np.maximum(np.bincount(y[:n], minlength=2) + noise * rng.normal(size=2), 0.5)
                    constant = np.full(TESTED, shares[1] / shares.sum())
                    lost.append([log_loss(y[n:], found), log_loss(y[n:], constant)])
                    best = log_loss(y[n:], np.full(TESTED, y[n:].mean()))
            ours, theirs = np.mean(lost, axis=0) - best
            allowed = 2 * max(theirs, 0.0) + 0.02 * best
            said = f" (constant {theirs:.3f}, best {best:.3f})"
            at = f"{targets}, n epsilon = {signal_size}: loss beyond the constant's best"
            yield Line(at, f"<= {allowed:.3f}", f"{ours:.3f}{said}", bool(ours <= allowed))


def cancer(seeds: Seeds) -> Iterator[Line]:
    """Breast cancer, standardised rows of length 1: accuracy at small epsilon, mean and worst."""
    X, y = load("breast_cancer", return_X_y=True)
    X = unit_rows(StandardScaler().fit_transform(X))
    for epsilon, least in ((0.1, 0.80), (0.3, 0.90), (1.0, 0.94)):
        found = []
        for seed in range(seeds.first, seeds.first + 6 * seeds.fits):
            train, test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=seed)
            model = sordino.LogisticRegression(epsilon, 1e-5, data_norm=1.0, classes=[0, 1])
            found.append(fitted(model, train, y_train, seed).score(test, y_test))
        yield inside(
            f"breast cancer at {epsilon:g}: accuracy",
            least,
            np.mean(found),
            1.0,
            f" (worst {min(found):.3f})",
        )


def search(seeds: Seeds) -> Iterator[Line]:
    """Digits: a search beside the default, at the same total epsilon."""
    X, y = load("digits", return_X_y=True)
    X = unit_rows(X)
    grids = {"alpha": [0.0, 0.001, 0.01], "max_iter": [10, 30, 100], "data_norm": [0.5, 1.0, 2.0]}
    found: dict[str, list[float]] = {"default": [], **{name: [] for name in grids}}
    for seed in range(seeds.first, seeds.first + 2 * seeds.fits):
        train, test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=seed)
        bounds = {"data_norm": 1.0, "classes": np.arange(10)}
        model = sordino.LogisticRegression(1.0, 1e-5, **bounds)
        found["default"].append(fitted(model, train, y_train, seed).score(test, y_test))
        for name, values in grids.items():
            tried = sordino.PrivateSearchCV(
                sordino.LogisticRegression(**bounds), {name: values}, 1.0, 1e-5, random_state=seed
            )
            found[name].append(fitted(tried, train, y_train, seed).score(test, y_test))
    default = float(np.mean(found.pop("default")))
    for name, scores in found.items():
        said = f" (default {default:.3f}, worst {min(scores):.3f})"
        yield inside(
            f"digits, search over {name}: accuracy", round(default - 0.02, 3), np.mean(scores), 1.0, said
        )


def units(seeds: Seeds) -> Iterator[Line]:
    """A column in units a thousand times smaller than the others: its slope."""
    for n, small in ((20_000, 1e-1), (20_000, 1e-2), (20_000, 1e-3), (100_000, 1e-2), (100_000, 1e-3)):
        found, stated = [], []
        for seed in seeds:
            rng = np.random.default_rng([seed, n])
            X = rng.normal(size=(n, 5))
            X[:, 0] *= small
            y = X @ [10.0, 1.0, -1.0, 0.5, 0.0] + 0.5 * rng.normal(size=n)
            model = sordino.LinearRegression(1.0, DELTA, data_norm=8.0, target_bound=12.0)
            fitted(model, X, y, seed)
            found.append(float(model.coef_[0]))
            stated.append(float(model.coef_noise_[0]))
        off = abs(np.mean(found) - 10.0)
        far = 3 * float(np.mean(stated)) + 1.0
        what = f"a column times {small:g}, n = {n}: slope"
        yield Line(
            what, f"10 +- {far:.2f}", f"{np.mean(found):.2f} (noise {np.mean(stated):.2f})", bool(off <= far)
        )


def lengths(rng: np.random.Generator, kind: str, n: int) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Draw rows of very different lengths, targets, and the bounds that are declared."""
    X, e = np.clip(rng.normal(size=(n, 3)), -3, 3), 0.5 * rng.normal(size=n)
    far = rng.random(n) < 0.01
    if kind == "lognormal column":
        X[:, 2] = np.minimum(np.exp(2 * rng.normal(size=n)), 500.0)
        return X, X @ [1.0, -0.5, 0.01] + e, 501.0, 14.0
    if kind == "Cauchy column":
        X[:, 2] = np.clip(rng.standard_cauchy(size=n), -300, 300)
        return X, X @ [1.0, 0.5, -0.01] + e, 301.0, 12.0
    if kind == "rare dose":
        X[:, 2] = 1000 * rng.random(n) * (rng.random(n) < 0.02)
        return X, np.clip(X @ [1.0, 0.0, 0.005] + e, -12, 12), 1001.0, 12.0
    if kind == "rare dose without effect":
        X[:, 2] = 800 * rng.random(n) * (rng.random(n) < 0.02)
        return X, np.clip(X @ [1.0, 1.0, 0.0] + e, -12, 12), 1001.0, 12.0
    X[far] *= 10.0  # another slope of long rows
    return X, np.clip(np.where(far, -0.5, 1.25) * X[:, 0] + X[:, 1] + e, -60, 60), 52.0, 60.0


def leverage(seeds: Seeds) -> Iterator[Line]:
    """Columns and rows of very different lengths: R2 beside least squares, and that of the worst fit."""
    kinds = {"lognormal column": 5000, "Cauchy column": 5000, "rare dose": 20_000}
    kinds |= {"rare dose without effect": 20_000, "another slope of long rows": 100_000}
    for kind, least in kinds.items():
        for n, epsilon in ((5000, 1.0), (20_000, 1.0), (20_000, 8.0), (100_000, 1.0), (100_000, 8.0)):
            found = []
            for seed in seeds:
                X, y, norm, bound = lengths(np.random.default_rng([seed, n, 7]), kind, n + TESTED)
                model = sordino.LinearRegression(epsilon, DELTA, data_norm=norm, target_bound=bound)
                plain = PlainLinear().fit(X[:n], y[:n])
                models = fitted(model, X[:n], y[:n], seed), plain
                found.append([r2(y[n:], m.predict(X[n:])) for m in models])
            ours, theirs = np.mean(found, axis=0)
            bar = round(theirs - 0.02, 3) if n * epsilon >= least else 0.0
            said = f" (least squares {theirs:.3f}, worst fit {np.min(found, axis=0)[0]:.3f})"
            yield inside(f"{kind}, n = {n}, epsilon {epsilon:g}: R2", bar, float(ours), math.inf, said)


def unlike(seeds: Seeds) -> Iterator[Line]:
    """Labels and counts beside columns of other units, and rare classes among several: the excess loss."""

    def dose(rng: np.random.Generator, n: int) -> np.ndarray:
        return np.where(rng.random(n) < 0.02, 1000 * rng.random(n), 0.0)

    def paid(rng: np.random.Generator, n: int) -> np.ndarray:
        return np.exp(10 + 0.7 * rng.normal(size=n)).clip(0, 3e5)

    columns = {
        "a rare dose": (dose, (1.0, 0.004, -0.5), 1001.0),
        "money": (paid, (1.0, 2e-5, -0.5), 3.01e5),
        "thousands": (lambda rng, n: 1000 * rng.uniform(-1, 1, n), (1.0, 0.001, -0.5), 1001.0),
    }
    for name, (draw, (slope, other, offset), norm) in columns.items():
        for n in (1000, 20_000, 100_000):
            for kind in ("labels", "counts"):
                lost = []
                for seed in seeds:
                    rng = np.random.default_rng([seed, n, 26])
                    X = np.column_stack([np.clip(rng.normal(size=n + TESTED), -3, 3), draw(rng, n + TESTED)])
                    s, unit = X @ [slope, other] + offset, X.std(axis=0)
                    if kind == "labels":
                        y = (rng.random(len(s)) < expit(s)).astype(int)
                        model = sordino.LogisticRegression(1.0, DELTA, data_norm=norm, classes=[0, 1])
                        plain = PlainLogistic(C=1e8, max_iter=2000).fit(X[:n] / unit, y[:n])
                        found = fitted(model, X[:n], y[:n], seed).predict_proba(X[n:])
                        lost.append([log_loss(y[n:], p) for p in (found, plain.predict_proba(X[n:] / unit))])
                        continue
                    y = rng.poisson(np.exp(np.minimum(0.5 * s, 3))).clip(0, 60).astype(float)
                    bounds = {"data_norm": norm, "target_bound": 60.0}
                    ours = fitted(
                        sordino.LinearRegression(1.0, DELTA, loss="poisson", **bounds), X[:n], y[:n], seed
                    )
                    theirs = PoissonRegressor(alpha=0.0, max_iter=2000).fit(X[:n] / unit, y[:n])
                    means = ours.predict(X[n:]), theirs.predict(X[n:] / unit)
                    lost.append([float(np.mean(m - y[n:] * np.log(m))) for m in means])
                more = float(np.mean([a - b for a, b in lost]))
                most = 0.05 if n < 20_000 else 0.005
                yield inside(f"{kind} beside {name}, n = {n}: excess loss", -1.0, more, most)
    for classes, offset in ((3, -6.3), (4, -5.5)):
        for n in (20_000, 100_000):
            lost = []
            for seed in seeds:
                rng = np.random.default_rng([seed, n, classes])
                X = np.clip(rng.normal(size=(n + TESTED, 3)), -3, 3)
                scores = X @ np.random.default_rng(classes).normal(size=(3, classes))
                scores[:, -1] += offset
                y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
                model = sordino.LogisticRegression(1.0, DELTA, data_norm=5.2, classes=range(classes))
                plain = PlainLogistic(C=1e8, max_iter=2000).fit(X[:n], y[:n])
                models = fitted(model, X[:n], y[:n], seed), plain
                lost.append([log_loss(y[n:], m.predict_proba(X[n:]), labels=range(classes)) for m in models])
            more = float(np.mean([a - b for a, b in lost]))
            yield inside(f"a rare class among {classes}, n = {n}: excess loss", -1.0, more, 60.0 / n)


def spectrum(seeds: Seeds) -> Iterator[Line]:
    """The first eigenvalue of PCA."""

    def correlated(rng: np.random.Generator, n: int) -> np.ndarray:
        return 0.8 * rng.normal(size=(n, 1)) + 0.6 * rng.normal(size=(n, 10))

    laws: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
        "t(4)": lambda rng, n: rng.standard_t(4, size=(n, 8)) * np.linspace(2, 1, 8),
        "correlated": correlated,
        "spiky": lambda rng, n: np.where(rng.random((n, 8)) < 0.02, 7.0, 0.3) * rng.normal(size=(n, 8)),
        "exponential": lambda rng, n: rng.exponential(size=(n, 8)) * np.linspace(2, 1, 8),
    }
    for name, law in laws.items():
        for n in (5000, 50_000):
            found = []
            for seed in seeds:
                X = law(np.random.default_rng([seed, n]), n)
                model = sordino.PCA(
                    2, epsilon=1.0, delta=DELTA, data_norm=1.05 * float(np.sqrt((X**2).sum(axis=1)).max())
                )
                true = np.linalg.eigvalsh(np.cov(X.T))[-1]
                with seeded_noise_not_private(seed), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found.append(float(model.fit(X).explained_variance_[0]) / true)
            yield inside(f"PCA, {name}, n = {n}: first eigenvalue over truth", 0.93, np.mean(found), 1.07)


def persons(seeds: Seeds) -> Iterator[Line]:
    """Persons with targets far from zero and columns of other units, or more rows for larger targets.

    A person counts once: where its number of rows goes with the target, the mean is not that of the rows.
    """
    for people, least in ((300, 0.6), (2000, 0.74)):
        found = []
        for seed in seeds:
            rng = np.random.default_rng([seed, people, 150])
            owners = np.repeat(np.arange(people), rng.integers(1, 8, people))
            X = np.clip(rng.normal(size=(owners.size, 3)), -3, 3)
            y = 150 + X @ [5.0, 3.0, 0.0] + 2.8 * rng.normal(size=owners.size)
            model = sordino.LinearRegression(1.0, DELTA, data_norm=5.2, target_bound=200.0)
            found.append(r2(y, fitted(model, X, y, seed, groups=owners).predict(X)))
        yield inside(f"{people} persons, targets around 150: R2", least, float(np.mean(found)), 1.0)
    for people in (4000, 20_000):
        found = []
        for seed in seeds:
            rng = np.random.default_rng([seed, people])
            level = rng.normal(size=people)
            owners = np.repeat(np.arange(people), 1 + rng.poisson(np.exp(level)))
            X = rng.normal(size=(owners.size, 4))
            y = 3.0 + level[owners] + X @ [1.0, -0.5, 0.3, 0.0] + 0.5 * rng.normal(size=owners.size)
            model = sordino.LinearRegression(1.0, DELTA, data_norm=4.0, target_bound=10.0)
            predicted = fitted(model, X, y, seed, groups=owners).predict(X)
            plain = PlainLinear().fit(X, y)
            found.append(
                [predicted.mean(), y.mean(), model.coef_ @ plain.coef_ / (plain.coef_ @ plain.coef_)]
            )
        ours, of_rows, slope = np.mean(found, axis=0)
        what = f"{people} persons, more rows where targets are large"
        yield inside(f"{what}: mean over mean of rows", 0.97, ours / of_rows, 1.03, f" ({of_rows:.2f})")
        yield inside(f"{what}: slope", 0.9, slope, 1.1)


def monotone(seeds: Seeds) -> Iterator[Line]:
    """Nothing falls when epsilon or n rises: the largest fall of a score over fine grids."""
    grid = np.geomspace(0.1, 8.0, 23)
    for what, n, d in (("numbers", 1000, 5), ("numbers", 5000, 20), ("labels", 1000, 5), ("labels", 300, 5)):
        scores = []
        for epsilon in grid:
            found = []
            for seed in range(seeds.first, seeds.first + 4 * seeds.fits):
                rng = np.random.default_rng([seed, n])
                X = rng.normal(size=(n + 2000, d))
                s = signal(rng, X, 1.0)
                if what == "numbers":
                    y = s + 0.5 * rng.normal(size=s.size)
                    model = sordino.LinearRegression(epsilon, 1e-5, data_norm=3.0 * d**0.5, target_bound=6.0)
                    found.append(r2(y[n:], fitted(model, X[:n], y[:n], seed).predict(X[n:])))
                else:
                    y = (rng.random(s.size) < expit(2 * s - 1)).astype(int)
                    model = sordino.LogisticRegression(epsilon, 1e-5, data_norm=3.0 * d**0.5, classes=[0, 1])
                    found.append(
                        -log_loss(y[n:], fitted(model, X[:n], y[:n], seed).predict_proba(X[n:])[:, 1])
                    )
            scores.append((np.mean(found), np.std(found) / math.sqrt(len(found))))
        best, fall, at = scores[0], 0.0, 0.0
        for epsilon, score in zip(grid, scores, strict=True):
            down = best[0] - score[0] - 2 * math.hypot(best[1], score[1])
            fall, at = max((fall, at), (down, epsilon))
            best = max(best, score)
        yield Line(
            f"{what}, n = {n}, d = {d}: fall beyond noise",
            "<= 0.01",
            f"{fall:.3f} (at {at:.2f})",
            bool(fall <= 0.01),
        )


_ALL = (skewed, symmetric, sparse, counts, slopes, rare, steep, statistics)
_MORE = (few, cancer, search, units, unlike, leverage, spectrum, persons, monotone)
MEASURES = {f.__name__: f for f in (*_ALL, *_MORE)}


def main() -> int:
    """Measure and print line by line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"of {', '.join(MEASURES)}; all where none is given")
    parser.add_argument("--fits", type=int, default=5)
    parser.add_argument("--first", type=int, default=9000, help="the first seed")
    parser.add_argument("--save", default="")
    asked = parser.parse_args()
    found, start = [], time.process_time()
    for name in asked.names or MEASURES:
        began = time.process_time()
        for line in MEASURES[name](Seeds(asked.first, asked.fits)):
            found.append(line)
            print(f"{'ok  ' if line.holds else 'MISS'} {line.what}: {line.found}; bar {line.bar}", flush=True)
        print(f"     {name}: {time.process_time() - began:.0f} s", flush=True)
    missed = sum(not line.holds for line in found)
    print(f"{missed} of {len(found)} bars are missed, {time.process_time() - start:.0f} s of CPU")
    if asked.save:
        kept = {"machine": describe(), "asked": vars(asked), "bars": [asdict(line) for line in found]}
        Path(asked.save).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
