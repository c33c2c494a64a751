"""Post-processing of released gradients: smoothing, momentum, thresholds, schedules."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sordino.errors import InvalidInputError
from sordino.solvers.updates import Adam, HardThreshold, Sgd, schedule_of, smooth_layers, smooth_vector


def circulant(d, s):
    """The matrix A of the smoothing, entry by entry."""
    if d == 1:
        return np.eye(1)
    a = (1 + 2 * s) * np.eye(d)
    for i in range(d):
        a[i, (i + 1) % d] -= s
        a[i, (i - 1) % d] -= s
    return a


@given(st.integers(1, 40), st.floats(0, 5), st.integers(0, 10**6))
def test_smoothing_solves_the_circulant_system(d, s, seed):
    v = np.random.default_rng(seed).normal(size=d)
    got = smooth_vector(torch.from_numpy(v), s).numpy()
    assert np.allclose(circulant(d, s) @ got, v, atol=1e-9)
    assert got.sum() == pytest.approx(v.sum(), abs=1e-9)
    assert np.linalg.norm(got) <= np.linalg.norm(v) * (1 + 1e-12)


def test_smoothing_of_strength_zero_is_the_identity():
    v = torch.randn(7)
    assert smooth_vector(v, 0.0) is v
    assert smooth_layers(v, (3, 4), 0.0) is v


def test_smoothing_does_not_cross_layers():
    v = torch.tensor([0.0, 0.0, 0.0, 8.0, 0.0])
    got = smooth_layers(v, (3, 2), 1.0)
    assert got[:3].abs().sum() == 0
    assert torch.allclose(got[3:], smooth_vector(v[3:], 1.0))


@pytest.mark.parametrize(
    ("rule", "peer"),
    [
        (Sgd(0.0), lambda p: torch.optim.SGD(p, lr=0.3)),
        (Sgd(0.8), lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.8)),
        (Sgd(0.8, nesterov=True), lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.8, nesterov=True)),
        (Adam(0.8, 0.95), lambda p: torch.optim.Adam(p, lr=0.3, betas=(0.8, 0.95))),
    ],
)
def test_update_rules_are_those_of_torch(rule, peer):
    torch.manual_seed(0)
    start, gradients = torch.randn(5), torch.randn(6, 5)
    leaf = nn.Parameter(start.clone())
    optimizer, vector, slots = peer([leaf]), start, rule.start(start)
    for g in gradients:
        direction, slots = rule.step(g, slots)
        vector = vector - 0.3 * direction
        leaf.grad = g.clone()
        optimizer.step()
    assert torch.allclose(vector, leaf.detach(), atol=1e-5)


def test_hard_threshold_keeps_the_largest():
    v = torch.tensor([0.1, -3.0, 0.2, 2.0, 0.0])
    assert HardThreshold(2).project(v, 0.1).tolist() == [0.0, -3.0, 0.0, 2.0, 0.0]
    assert HardThreshold(9).project(v, 0.1).tolist() == v.tolist()


def test_a_late_threshold_waits_but_never_beyond_the_end():
    v = torch.tensor([0.1, -3.0, 2.0])
    late = HardThreshold(1, after=0.5)
    assert late.project(v, 0.4).count_nonzero() == 3
    assert late.project(v, 0.5).count_nonzero() == 1
    assert HardThreshold(1, after=1.0).project(v, 1.0).count_nonzero() == 1


def test_schedules_start_at_one_and_may_be_functions():
    assert [schedule_of(n)(0.0) for n in ("constant", "linear", "cosine")] == [1.0, 1.0, 1.0]
    assert schedule_of("cosine")(0.5) == pytest.approx(0.5)
    assert schedule_of("linear")(0.75) == pytest.approx(0.25)
    assert schedule_of(math.exp) is math.exp
    with pytest.raises(InvalidInputError, match="cosine"):
        schedule_of("step")


@pytest.mark.parametrize("make", [lambda: Sgd(1.0), lambda: Adam(1.5), lambda: HardThreshold(0)])
def test_rules_refuse_numbers_outside_their_bounds(make):
    with pytest.raises(InvalidInputError, match="Expected"):
        make()
