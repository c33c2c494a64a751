"""Sensitivities of the network queries hold for arbitrary neighbours, and are attained."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.asking import asked
from tests.nn.helpers import blobs, perceptron
from torch import nn

from sordino.errors import InvalidInputError
from sordino.execute.torch import TorchExecutor
from sordino.kernel import Curator, Gaussian, NoiseSource, Plan, Poisson, Relation, Release
from sordino.nn.engines import GhostEngine, VmapEngine
from sordino.nn.network import Network
from sordino.nn.queries import TorchDifference, TorchGradient

CPU = torch.device("cpu")
NETWORK = Network(perceptron(), nn.CrossEntropyLoss())
ENGINES = {"ghost": GhostEngine(NETWORK), "vmap": VmapEngine(NETWORK)}


def evaluate(query, x, y, params, chunk=7):
    release = Release(query, Gaussian(multiplier=0.0), mean=False)
    plan = Plan({"q": release}, Relation.ADD_REMOVE, len(x))
    executor = TorchExecutor((x, y), CPU, chunk)
    return Curator(executor, plan, NoiseSource.from_os()).release("q", params)


def queries(engine):
    return {
        "gradient": (TorchGradient(ENGINES[engine], 0.7), lambda v: v),
        "difference": (TorchDifference(ENGINES[engine], 0.9, 0.2, 0.3), lambda v: (v, 0.8 * v + 0.01)),
    }


@settings(max_examples=30)
@given(
    st.sampled_from(["ghost", "vmap"]),
    st.sampled_from(["gradient", "difference"]),
    st.integers(0, 10**6),
    st.sampled_from([0.0, 1e-6, 1.0, 1e3, 1e18, 1e30]),
    st.integers(0, 8),
)
def test_a_record_moves_a_sum_by_at_most_its_bound(engine, name, seed, size, row):
    query, at = queries(engine)[name]
    x, y = blobs(9, seed)
    params = at(NETWORK.flat() * 3)
    whole = evaluate(query, x, y, params)
    other = x.clone()
    other[row] = size * torch.cos(torch.arange(6.0) + seed)
    without = evaluate(query, torch.cat([x[:row], x[row + 1 :]]), torch.cat([y[:row], y[row + 1 :]]), params)
    rounding = 9 * query.contribution(params) * 2.0**-20
    assert float((whole - without).norm()) <= query.sensitivity(Relation.ADD_REMOVE, params) + rounding
    replaced = evaluate(query, other, y.flip(0), params)
    there = evaluate(
        query,
        torch.cat([other[:row], other[row + 1 :]]),
        torch.cat([y.flip(0)[:row], y.flip(0)[row + 1 :]]),
        params,
    )
    assert float((replaced - there).norm()) <= query.contribution(params) + rounding


@pytest.mark.parametrize("engine", ENGINES)
def test_the_bounds_are_attained(engine):
    x, y = blobs(1, 2)
    query, at = queries(engine)["gradient"]
    got = float(evaluate(query, 100 * x, (y + 1) % 3, at(NETWORK.flat() * 10)).norm())
    assert got >= 0.99 * 0.7


def test_the_bound_of_a_correction_is_the_right_mixture_of_the_clips():
    query = TorchDifference(ENGINES["ghost"], gradient_clip=1.0, difference_clip=0.01, gamma=0.01)
    assert query.contribution(None) == pytest.approx(0.0199, rel=1e-12)  # not 0.9901
    assert query.sensitivity(Relation.REPLACE_ONE, None) == pytest.approx(0.0398, rel=1e-12)


def test_gradient_and_difference_are_clipped_apart():
    x, y = blobs(5, 3)
    old = NETWORK.flat() * 3
    new = old + 0.05
    rows, before = (VmapEngine(NETWORK).per_record(v, x, y) for v in (new, old))

    def clip(g, c):
        return g * (c / g.norm(dim=1)).clamp(max=1)[:, None]

    want = (0.7 * clip(rows - before, 0.02) + 0.3 * clip(rows, 0.9)).sum(dim=0)
    got = evaluate(TorchDifference(ENGINES["ghost"], 0.9, 0.02, 0.3), x, y, (new, old))
    assert torch.allclose(got, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("chunk", [1, 2, 5, 100])
def test_the_size_of_chunks_does_not_change_the_sum(chunk):
    x, y = blobs(11, 4)
    query, at = queries("ghost")["gradient"]
    params = at(NETWORK.flat())
    assert torch.allclose(evaluate(query, x, y, params, chunk), evaluate(query, x, y, params, 11), atol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("bad", [float("inf"), float("nan"), 3e38])
def test_a_record_without_a_finite_gradient_contributes_zero(engine, bad):
    x, y = blobs(9, 5)
    query, at = queries(engine)["gradient"]
    params = at(NETWORK.flat())
    good = evaluate(query, x, y, params)
    spoiled = torch.cat([x, torch.full((1, 6), bad)])
    got = evaluate(query, spoiled, torch.cat([y, y[:1]]), params)
    assert bool(torch.isfinite(got).all())
    assert float((got - good).norm()) <= 0.7


def test_an_empty_batch_is_answered_with_pure_noise_and_divided_by_the_expected_size():
    x, y = blobs(10, 6)
    release = Release(TorchGradient(ENGINES["ghost"], 0.5), Gaussian(multiplier=3.0), Poisson(1e-9), 1)
    plan = Plan({"q": release}, Relation.REPLACE_ONE, 10)
    answer = Curator(TorchExecutor((x, y), CPU), plan, NoiseSource.seeded_not_private(0)).release(
        "q", NETWORK.flat()
    )
    # std = multiplier * sensitivity / expected batch size
    scaled = answer.double().numpy() / (3.0 * 2 * 0.5 / 1e-8)
    assert 0.75 < scaled.std() < 1.25


@pytest.mark.parametrize("clip", [0.0, -1.0, math.inf, math.nan])
def test_a_clip_that_bounds_nothing_is_refused(clip):
    with pytest.raises(InvalidInputError, match="clip_norm"):
        TorchGradient(ENGINES["ghost"], clip)


def dropped(x, y, engine):
    """Return the answer of a model with dropout, asked by somebody who knows torch's seed."""
    network = Network(nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3)), nn.CrossEntropyLoss())
    torch.manual_seed(3)
    return evaluate(TorchGradient(engine(network), 1.0), x, y, torch.ones(network.size) / 9)


@pytest.mark.parametrize("engine", [GhostEngine, VmapEngine])
def test_masks_of_dropout_do_not_follow_a_seed_that_somebody_may_know(engine):
    """Without the first record all others got the masks of those before them: the sum moved by 4.7 clips."""
    x, y = blobs(40)
    assert not torch.equal(dropped(x, y, engine), dropped(x, y, engine))


def test_torchs_own_generator_goes_on_as_if_nothing_had_been_released():
    x, y = blobs(40)
    dropped(x, y, GhostEngine)
    after = torch.rand(3)
    torch.manual_seed(3)
    assert torch.equal(after, torch.rand(3))


def test_with_seeded_noise_masks_follow_torchs_seed():
    x, y = blobs(40)
    network = Network(nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3)), nn.CrossEntropyLoss())
    release = Release(TorchGradient(GhostEngine(network), 1.0), Gaussian(multiplier=0.0), mean=False)
    executor = TorchExecutor((x, y), CPU, 40)

    def seen():
        torch.manual_seed(3)
        return asked(executor, release, network.flat(), 1.0, 0, NoiseSource.seeded_not_private(0))

    assert torch.equal(seen(), seen())
