"""Chest X-rays without privacy: the log loss of scikit-learn on test images and on held-out training images.

Command: python -m benchmarks.xray_referee     (the set is in docs/datasets.md)
The test images of PneumoniaMNIST are of another mixture than those to learn from: is that enough for a loss
that grows the less a model is held back (C of 1 and of 1,000)?
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from sordino.datasets import load, unit_rows


def main() -> None:
    data = load("pneumoniamnist")
    pixels, test = (np.asarray(a, dtype=float).reshape(len(a), -1) for a in (data.data, data.test_data))
    print(
        f"ill: {np.mean(data.target):.1%} of training images, {np.mean(data.test_target):.1%} of test images"
    )
    for name, scale in (("rows of norm 1", unit_rows), ("pixels in [0, 1]", lambda rows: rows)):
        x, held, y, truth = train_test_split(scale(pixels), data.target, test_size=0.2, random_state=0)
        for c in (1.0, 1000.0):
            with warnings.catch_warnings(action="ignore"):
                model = LogisticRegression(C=c, max_iter=2000).fit(x, y)
            losses = [
                log_loss(labels, model.predict_proba(rows))
                for rows, labels in ((scale(test), data.test_target), (held, truth))
            ]
            print(
                f"{name}, C = {c:g}: test images {losses[0]:.2f}, held-out training images {losses[1]:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
