"""Numbers that pages mention in passing, measured anew and printed beside what the pages say.

Command: python docs/figures/asides.py
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import dp_accounting as dp
import numpy as np
from dp_accounting import pld, rdp

import sordino
from sordino.accounting import certify
from sordino.datasets import load
from sordino.errors import DataNotFoundError
from sordino.kernel import Relation, public_generator

Line = tuple[str, str, str]  # page, what it says, what is measured


def bounds() -> Iterator[Line]:
    """docs/sharp-edges.md: a target bound that nobody declared."""
    public = public_generator(0)
    x = public.uniform(-1, 1, (5000, 5)) / 5**0.5
    y = 100 + x @ np.array([40.0, -30.0, 20.0, 10.0, 0.0]) + public.normal(size=5000)
    found = []
    for options in ({}, {"target_bound": 300.0}):
        model = sordino.LinearRegression(1.0, 1e-5, data_norm=1.0, **options).fit(x, y)
        found.append(f"{model.score(x, y):.3f}")
    yield "sharp-edges.md", "R2 of targets near 100, bound left open / 300", " / ".join(found)


def centred() -> Iterator[Line]:
    """docs/heavy-tails.md: the mean moves with the data."""
    public, errors = public_generator(0), []
    for shift in (0.0, 1e4):
        rows = public.normal(size=(200, 1000))
        found = [abs(float(sordino.mean(row + shift, 1.0, 1e-6)) - shift) for row in rows]
        errors.append(f"{np.mean(found):.3f}")
    yield (
        "heavy-tails.md",
        "error of the mean of 1,000 normal numbers, shifted by 0 / 1e4",
        " / ".join(errors),
    )


def accountants() -> Iterator[Line]:
    """docs/decisions.md: one event, two meanings; and the time of a certificate."""
    event, replaced = dp.GaussianDpEvent(1.0), dp.NeighboringRelation.REPLACE_ONE
    read = [
        accountant(neighboring_relation=replaced).compose(event).get_epsilon(1e-5)
        for accountant in (rdp.RdpAccountant, pld.PLDAccountant)
    ]
    yield "decisions.md", "a Gaussian of multiplier 1 by dp-accounting's two", "{:.2f} / {:.2f}".format(*read)
    ways = {
        "ours": lambda batches: certify(batches, 1e-5, Relation.ADD_REMOVE).epsilon,
        "dp-accounting": lambda batches: pld.PLDAccountant().compose(batches).get_epsilon(1e-5),
    }
    for name, way in ways.items():
        for steps in (900, 1000):  # the first one warms up
            start = time.process_time()
            epsilon = way(dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.01, event), steps))
            seconds = time.process_time() - start
        yield "decisions.md", f"1,000 Poisson batches, {name}", f"{epsilon:.8f} in {seconds:.2f} s"


def steps(fits: int = 10) -> Iterator[Line]:
    """docs/solvers/auto.md: fewer steps where columns are many."""
    for name, counts in (("rcv1_sample", (20, 50)), ("imdb", (20, 41))):
        try:
            data = load(name, transform=None if name == "rcv1_sample" else "log1p-unit")
        except DataNotFoundError:
            continue
        for epsilon in (1.0, 0.5):
            found = [
                np.mean([_accuracy(data, epsilon, count) for _ in range(fits)]).round(4) for count in counts
            ]
            what = f"{name}, epsilon {epsilon:g}, accuracy with {counts[0]} / {counts[1]} steps"
            yield "solvers/auto.md", what, " / ".join(map(str, found))


def _accuracy(data: Any, epsilon: float, count: int) -> float:
    model = sordino.LogisticRegression(epsilon, 1e-5, data_norm=1.0, max_iter=count)
    return float(model.fit(data.data, data.target).score(data.test_data, data.test_target))


def lines() -> list[Line]:
    """Return all of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [line for part in (bounds, centred, accountants, steps) for line in part()]


if __name__ == "__main__":
    for page, what, number in lines():
        print(f"{page:18} {what}: {number}")
