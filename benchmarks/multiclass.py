"""Softmax regression on MNIST with defaults, beside the bars and the published DP-LSSGD.

Command: SORDINO_DATA=... python -m benchmarks.multiclass [runs]

(epsilon, 1e-5), one record added or removed; pixels in [0, 1], rows clipped to the norm 12 (a guess that
holds for most), all 60,000 training images. The paper's epsilon is claimed; ours is certified.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from benchmarks.machine import describe
from sordino import LogisticRegression
from sordino.datasets import load

BARS = {0.1: 0.87, 0.2: 0.89, 0.3: 0.90}
PUBLISHED = {0.1: 0.7713, 0.2: 0.8222, 0.3: 0.8511}


def pixels(images):
    flat = np.asarray(images, dtype=np.float32).reshape(len(images), -1)
    return flat / 255 if flat.max() > 1 else flat  # 255 is the format's, not the data's


def main() -> None:
    """Print one row per epsilon."""
    describe()
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    data = load("mnist")
    X, Xt = pixels(data.data), pixels(data.test_data)
    for epsilon, bar in BARS.items():
        start = time.process_time()
        scores = [
            LogisticRegression(epsilon, 1e-5, data_norm=12.0).fit(X, data.target).score(Xt, data.test_target)
            for _ in range(runs)
        ]
        mean, error = np.mean(scores), np.std(scores) / np.sqrt(runs)
        print(
            f"mnist eps {epsilon} accuracy {mean:.4f} ±{error:.4f}  bar {bar:.2f} "
            f"{'holds' if mean >= bar else 'MISS'}  paper's best {PUBLISHED[epsilon]:.4f}  "
            f"{(time.process_time() - start) / runs:.0f} s CPU",
            flush=True,
        )


if __name__ == "__main__":
    main()
