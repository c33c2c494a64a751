"""Claim 20: a fork after the first step copied the unspent plan: every process released the rest."""

import os

import numpy as np
import pytest

import sordino
from sordino.errors import PlanSpentError


def in_a_child(action):
    """Return the name of the error that an action raises in a forked process."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            action()
            said = b"released"
        except PlanSpentError as error:
            said = type(error).__name__.encode()
        finally:
            os.write(write, said)
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        said = answer.read().decode()
    os.waitpid(child, 0)
    return said


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_stream_cannot_release_what_its_parent_paid_for():
    rows = np.random.default_rng(0).normal(size=(200, 3)) / 3
    model = sordino.PCA(2, epsilon=1.0, n_chunks=3, data_norm=1.0)
    model.partial_fit(rows)
    assert in_a_child(lambda: model.partial_fit(rows)) == "PlanSpentError"
    model.partial_fit(rows)  # the parent goes on
