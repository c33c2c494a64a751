"""The default estimator on the other data sets, at five epsilons, beside no privacy.

Command: python -m benchmarks.more_sets [name ...]   (splits seeded 0, one fit each, fresh noise)
Needs the data sets (docs/datasets.md); one that is absent is named and left out. delta = 1e-5.
"""

from __future__ import annotations

import sys
import time
import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split

from benchmarks.machine import describe
from sordino import SparseLinearRegression, SparseLogisticRegression, datasets
from sordino.errors import DataNotFoundError

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)


def parts(data, prepare):
    if getattr(data, "test_data", None) is None:
        return train_test_split(prepare(data.data), data.target, test_size=0.3, random_state=0)
    return prepare(data.data), prepare(data.test_data), data.target, data.test_target


def two_groups():
    """20 newsgroups, computers (comp.*) against the rest."""
    data = datasets.load("20news")
    X, Xt, y, yt = parts(data, datasets.log1p_unit)
    named = np.array([str(name).startswith("comp.") for name in data.target_names])
    return X, Xt, named[y].astype(int), named[yt].astype(int)


def stars():
    """IMDB star ratings as a regression on words, targets scaled to [-1, 1] by public constants."""
    data = datasets.load("imdb", target="rating")
    X, Xt, y, yt = parts(data, datasets.log1p_unit)
    return X, Xt, (y - 5.5) / 4.5, (yt - 5.5) / 4.5


def genes(name):
    def load():
        data = datasets.load(f"microarray_{name}")
        X = datasets.unit_rows(np.log1p(np.abs(np.asarray(data.data, dtype=float))))
        return train_test_split(X, data.target, test_size=0.3, random_state=0, stratify=data.target)

    return load


TASKS = {
    "20news comp": (two_groups, 2000),
    "20news, 20 classes": (lambda: parts(datasets.load("20news"), datasets.log1p_unit), None),
    "news20, 20 classes": (lambda: parts(datasets.load("news20"), datasets.log1p_unit), None),
    "reuters acq": (lambda: parts(datasets.load("reuters_acq"), datasets.unit_rows), 500),
    "mushrooms": (lambda: parts(datasets.load("mushrooms"), datasets.unit_rows), None),
    "golub (72 x 7129)": (genes("golub"), 20),
    "gordon (181 x 12533)": (genes("gordon"), 20),
    "IMDB stars, R2": (stars, 2000),
}


def main() -> None:
    """Print one line a task."""
    warnings.simplefilter("ignore")
    describe()
    print(f"{'task':>22} {'k':>6}  " + " ".join(f"{e:>6g}" for e in EPSILONS) + "   plain  CPU s")
    for name, (load, k) in TASKS.items():
        if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
            continue
        try:
            X, Xt, y, yt = load()
        except DataNotFoundError:
            print(f"{name:>22}  absent")
            continue
        real = np.asarray(y).dtype.kind == "f"
        rivals = [Ridge(1.0)] if real else [LogisticRegression(C=c, max_iter=200) for c in (10, 1e4)]
        plain = max(rival.fit(X, y).score(Xt, yt) for rival in rivals)  # with hindsight
        kind = SparseLinearRegression if real else SparseLogisticRegression
        start = time.process_time()
        scores = [kind(epsilon=e, delta=1e-5, n_nonzero_coefs=k).fit(X, y).score(Xt, yt) for e in EPSILONS]
        cpu = (time.process_time() - start) / len(EPSILONS)
        line = " ".join(f"{score:>6.3f}" for score in scores)
        print(f"{name:>22} {k or 'all':>6}  {line}  {plain:>6.3f} {cpu:>6.2f}", flush=True)


if __name__ == "__main__":
    main()
