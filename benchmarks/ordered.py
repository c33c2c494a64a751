"""Classes in an order: proportional odds beside a softmax, at one price.

Command::

    python -m benchmarks.ordered            # 8 fits of each size and epsilon
    python -m benchmarks.ordered --repeats 3

Five levels by a logistic law around a line of six numbers, three of which matter; 20,000 other records judge.
"""

from __future__ import annotations

import argparse

import numpy as np

import sordino

LEVELS = np.array(["never", "rarely", "sometimes", "often", "always"])
SLOPES = np.array([2.0, -1.5, 1.0, 0.0, 0.0, 0.0])
MODELS = (sordino.OrderedLogisticRegression, sordino.LogisticRegression)


def draw(public: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X = public.uniform(-1, 1, (n, 6))
    return X, np.searchsorted([-2.0, -0.7, 0.7, 2.0], X @ SLOPES + public.logistic(size=n))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=8)
    repeats, public = parser.parse_args().repeats, np.random.default_rng(0)
    X, ranks = draw(public, 20_000)
    print("| records, epsilon | rank error: ordered | softmax | log loss: ordered | softmax |")
    print("|---|---|---|---|---|")
    for n, epsilon in ((1000, 0.3), (1000, 1.0), (4000, 0.3), (4000, 1.0), (20_000, 1.0)):
        found = np.zeros((2, 2))
        for _ in range(repeats):
            rows, places = draw(public, n)
            for which, kind in enumerate(MODELS):
                model = kind(epsilon, data_norm=2.0, classes=LEVELS.tolist()).fit(rows, LEVELS[places])
                said = np.argsort(LEVELS)[np.searchsorted(np.sort(LEVELS), model.predict(X))]
                chances = model.predict_proba(X)[
                    np.arange(len(X)), np.searchsorted(model.classes_, LEVELS[ranks])
                ]
                found[0, which] += np.abs(said - ranks).mean() / repeats
                found[1, which] -= np.log(chances).mean() / repeats
        print(f"| {n:,}, {epsilon:g} | " + " | ".join(f"{value:.3f}" for value in found.ravel()) + " |")


if __name__ == "__main__":
    main()
