"""Heavy tails: rates of means and regressions, wrong bounds, a real data set, speed.

Command: python -m benchmarks.heavy   (seed 0 for data and noise; the noise of a benchmark is not private)
Set SORDINO_DATA to a folder with the donor_pva and kddcup99 data sets for the real ones.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import sordino
from benchmarks.machine import describe
from sordino.datasets import Lognormal, Pareto, StudentT, load
from sordino.errors import DataNotFoundError
from sordino.literature.reproduce.heavy import excess_risks, mean_errors, slope
from sordino.testing import seeded_noise_not_private

SIZES = (1000, 2154, 4641, 10_000, 21_544, 46_415, 100_000)
ORDERS = (0.3, 0.5, 0.7, 1.0)
GIFTS = (
    "RECENT_AVG_GIFT_AMT",
    "LIFETIME_AVG_GIFT_AMT",
    "LIFETIME_MAX_GIFT_AMT",
    "LIFETIME_MIN_GIFT_AMT",
    "LIFETIME_GIFT_AMOUNT",
    "LIFETIME_GIFT_COUNT",
    "MONTHS_SINCE_LAST_GIFT",
    "RECENT_RESPONSE_PROP",
)


def wrong_bound(factor: float, order: float, n: int = 10_000, repeats: int = 200) -> float:
    """Return how many times larger the error is at a fixed bound off by a factor than with "auto"."""
    law, rng = Pareto(1.03 + order), np.random.default_rng(0)
    rows = law.draw(rng, (repeats, n))
    ours = [sordino.mean(x, 1.0, 1e-6, moment_order=order) for x in rows]
    right = float(np.median([m.threshold for m in ours]))
    theirs = [sordino.mean(x, 1.0, 1e-6, threshold=right * factor) for x in rows]
    error = [np.mean(np.abs(np.array(m) - law.mean)) for m in (theirs, ours)]
    return float(error[0] / error[1])


def designs() -> None:
    """Print relative errors of the coefficients beside the sparse model with its default clipping."""
    print("\ndesign (n=20000, d=10)    heavy-tailed  sparse, default clipping   |coef error| / |coef|")
    for law in (StudentT(2.2), Lognormal(1.0), Pareto(2.5)):
        rng = np.random.default_rng(0)
        X = law.draw(rng, (20_000, 10)) - law.mean
        w = rng.normal(size=10)
        y = X @ w + law.draw(rng, (20_000,)) - law.mean
        found = []
        for model in (sordino.HeavyTailedRegressor(1.0, 1e-6), sordino.SparseLinearRegression(1.0, 1e-6)):
            errors = [np.linalg.norm(model.fit(X, y).coef_ - w) / np.linalg.norm(w) for _ in range(5)]
            found.append(np.median(errors))
        print(f"{law!s:26}{found[0]:12.4f}{found[1]:12.4f}")


def gifts() -> None:
    """Print test errors for the last gift of a donor, from raw amounts and counts."""
    raw = load("donor_pva", encoding="raw", target="amount").data
    X = np.stack([np.asarray(raw[c], dtype=float) for c in GIFTS], axis=1)
    y = np.asarray(raw["LAST_GIFT_AMT"], dtype=float)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:15_000], order[15_000:]
    print("\ndonor_pva, last gift from 8 raw columns, epsilon 1        test MAE     R^2")
    models = {
        "heavy-tailed": sordino.HeavyTailedRegressor(1.0, 1e-6),
        "heavy-tailed, Huber loss at 5": sordino.HeavyTailedRegressor(
            1.0, 1e-6, loss="huber", huber_threshold=5.0
        ),
        "sparse, default clipping": sordino.SparseLinearRegression(1.0, 1e-6),
        "sparse, data_norm=100, target_bound=100": sordino.SparseLinearRegression(
            1.0, 1e-6, data_norm=100.0, target_bound=100.0
        ),
        "sparse, data_norm=1000, target_bound=100": sordino.SparseLinearRegression(
            1.0, 1e-6, data_norm=1000.0, target_bound=100.0
        ),
        "without privacy": sordino.HeavyTailedRegressor(float("inf"), 1e-6, max_iter=500),
    }
    for name, model in models.items():
        scores = []
        for _ in range(5):
            error = model.fit(X[train], y[train]).predict(X[test]) - y[test]
            spread = np.sum((y[test] - y[test].mean()) ** 2)
            scores.append((np.mean(np.abs(error)), 1 - np.sum(error**2) / spread))
        print(f"{name:54}{np.median(scores, axis=0)[0]:12.2f}{np.median(scores, axis=0)[1]:8.3f}")


def bytes_sent() -> None:
    """Print means and quantiles of columns of KDD Cup 99."""
    raw = load("kddcup99", encoding="raw").data
    print("\nkddcup99 column       true mean   private mean (5 runs, epsilon 1)")
    for column in ("duration", "dst_bytes", "src_bytes"):
        x = np.asarray(raw[column], dtype=float)
        runs = "  ".join(f"{sordino.mean(x, 1.0):.1f}" for _ in range(5))
        print(f"{column:18}{x.mean():12.1f}   {runs}   (largest {x.max():.3g})")


def speed() -> None:
    """Print the time of the mean of a million numbers."""
    x = Pareto(2.2).draw(np.random.default_rng(0), (1_000_000,))
    for when in ("first call of the process (loads the library)", "second call"):
        start = time.perf_counter()
        sordino.mean(x, 1.0)
        print(f"mean of a million numbers, moment_bound='auto', {when}: {time.perf_counter() - start:.3f} s")


def main() -> None:
    """Print all figures."""
    describe()
    speed()
    print("\nmean of Pareto(1.03 + v) numbers, epsilon 1, n = 1e3..1e5, 200 repeats")
    print("   v   theory   slope 'auto'   slope known u   fixed bound x10 and /10: error over ours")
    for v in ORDERS:
        auto, known = (slope(SIZES, mean_errors(v, told, SIZES, 200)) for told in (False, True))
        worse = [wrong_bound(f, v) for f in (10.0, 0.1)]
        print(f"{v:4}{-v / (1 + v):9.3f}{auto:12.3f}{known:15.3f}{worse[0]:20.1f}{worse[1]:8.1f}")
    sizes = (3000, 10_000, 30_000, 100_000, 300_000)
    print("\nregression, Student-t(2.2) features and noise, excess risk: theory slope -1 (v = 1)")
    for options in (
        {},
        {"solver_options": {"gradient": "truncated"}},
        {"loss": "huber"},
        {"solver_options": {"split": True}},
    ):
        risks = excess_risks(options, sizes, 20)
        print(f"{options!s:30}{slope(sizes, risks):8.2f}   " + " ".join(f"{r:.2g}" for r in risks))
    designs()
    try:
        gifts()
        bytes_sent()
    except DataNotFoundError as error:
        print(f"\nno real data: {error}")


if __name__ == "__main__":
    with seeded_noise_not_private(0):
        sys.exit(main())
