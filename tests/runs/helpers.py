"""A plan, an executor and a spy for the tests of promises; no sensitivity here is 1."""

import numpy as np
from tests.kernel.toys import Memory, Total

from sordino.kernel import Full, Gaussian, Plan, Poisson, Relation, Release
from sordino.runs import Ask

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE
ROWS = np.random.default_rng(5).normal(size=(60, 3))


def plan_of(times=4, relation=ADD, population=60, sampling=None, unit="record"):
    release = Release(Total(), Gaussian(), Full() if sampling is None else sampling, times)
    return Plan({"total": release}, relation, population, unit)


def batches(times=4):
    return plan_of(times, sampling=Poisson(0.25))


def ask_of(epsilon=1.5, delta=1e-4, ledger=None, dataset_id=None):
    return Ask(epsilon, delta, ledger, dataset_id)


def memory():
    return Memory(ROWS)


class CountingLedger:
    """A ledger that counts bookings and keeps none of them."""

    booked, mode = 0, None

    def reserve(self, *_, **__):
        self.booked += 1
        return self

    def spent(self, *_):
        return self

    def settle(self, *_):
        """Do nothing."""

    fail = attest = settle
