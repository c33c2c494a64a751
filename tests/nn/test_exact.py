"""Noise without floating-point artefacts: a record moves an integer sum by its truncated gradient alone."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, target
from hypothesis import strategies as st
from tests.nn.helpers import blobs, perceptron, reading
from tests.nn.test_persons import GROUPS, images, texts
from torch import nn

from sordino.errors import InvalidInputError, SlowEngineWarning, UnsupportedError
from sordino.execute.persons import Owners
from sordino.execute.torch import TorchExecutor
from sordino.kernel import Curator, Gaussian, NoiseSource, Plan, Relation, Release
from sordino.kernel.clip.tensors import exact_rows, lattice_sum
from sordino.nn import NeuralClassifier, Trainer, make_private
from sordino.nn import queries as exact_module
from sordino.nn.engine_choice import make_engine
from sordino.nn.engines import VmapEngine
from sordino.nn.network import Network
from sordino.nn.queries import (
    Block,
    PersonDifference,
    PersonGradient,
    TorchDifference,
    TorchGradient,
    exact_block,
    rows_are_alone,
)

CPU = torch.device("cpu")
LOSS = nn.CrossEntropyLoss()
SPACING = 2.0**-30


def tables():
    return perceptron(), *blobs(40, 5)


def made(name):
    model, x, y = {"tables": tables, "images": images, "texts": texts}[name]()
    engine = make_engine(Network(model, LOSS), x[:1], y[:1], "ghost", 8)
    return engine, x, y, exact_block(engine, x[:1], y[:1], 16)


def on_lattice(query, x, y, params, rows, chunk=16):
    return query.evaluate_on_lattice(TorchExecutor((x, y), CPU, chunk).records(rows), params, SPACING)


@pytest.mark.parametrize("kind", ["gradient", "difference"])
@pytest.mark.parametrize("name", ["tables", "images", "texts"])
def test_leaving_out_a_record_takes_away_what_it_adds_alone_and_not_one_bit_else(name, kind):
    engine, x, y, block = made(name)
    vector = engine.network.flat() * 1.1
    query, params = {
        "gradient": (TorchGradient(engine, 0.7, block), vector),
        "difference": (TorchDifference(engine, 0.7, 0.2, 0.3, block), (vector, 0.9 * vector)),
    }[kind]
    everyone = np.arange(23)
    whole = on_lattice(query, x, y, params, everyone)
    bound = query.contribution(params) / SPACING
    for i in (0, 1, 7, 15, 16, 22):
        without = on_lattice(query, x, y, params, np.delete(everyone, i))
        alone = on_lattice(query, x, y, params, everyone[i : i + 1])
        assert torch.equal(whole - without, alone)
        assert float(alone.double().norm()) <= bound


def test_the_sum_is_the_plain_one_up_to_the_lattice_and_blocks_change_nothing():
    engine, x, y, block = made("tables")
    query, params = TorchGradient(engine, 0.7, block), engine.network.flat() * 1.1
    sums = [on_lattice(query, x, y, params, np.arange(40), chunk) for chunk in (1, 5, 16, 64)]
    assert all(torch.equal(one, sums[0]) for one in sums)
    plain = query.evaluate(TorchExecutor((x, y), CPU, 16).records(None), params)
    assert torch.allclose(sums[0].double() * SPACING, plain.double(), atol=1e-5)


def test_blocks_that_let_places_matter_are_found():
    engine, x, y, block = made("tables")
    assert block == Block(8, 2)  # rows of six numbers start at two different remainders
    assert not rows_are_alone(engine, x[:1], y[:1], Block(16))
    query, params = TorchGradient(engine, 0.7, Block(16)), engine.network.flat() * 1.1
    everyone = np.arange(16)
    broken = on_lattice(query, x, y, params, everyone) - on_lattice(query, x, y, params, everyone[1:])
    assert not torch.equal(broken, on_lattice(query, x, y, params, everyone[:1]))


def test_a_model_whose_rows_are_never_alone_is_differentiated_one_by_one(monkeypatch):
    engine, x, y, _ = made("tables")
    monkeypatch.setattr(exact_module, "rows_are_alone", lambda *_: False)
    with pytest.warns(SlowEngineWarning, match="one at a time"):
        assert exact_block(engine, x[:1], y[:1], 16) == Block(1)


@pytest.mark.parametrize("kind", ["gradient", "difference"])
def test_a_person_takes_away_what_it_adds_alone(kind):
    engine, x, y, block = made("tables")
    vector = engine.network.flat() * 1.1
    query, params = {
        "gradient": (PersonGradient(engine, 0.7, block), vector),
        "difference": (PersonDifference(engine, 0.7, 0.2, 0.3, block), (vector, 0.9 * vector)),
    }[kind]
    executor = TorchExecutor((x, y), CPU, 8, owners=Owners.of(GROUPS, 40))

    def summed(persons):
        return query.evaluate_on_lattice(executor.records(np.array(persons)), params, SPACING)

    everyone = list(range(11))
    for person in everyone:
        rest = [p for p in everyone if p != person]
        assert torch.equal(summed(everyone) - summed(rest), summed([person]))
        assert float(summed([person]).double().norm()) <= query.contribution(params) / SPACING


NETWORK = Network(perceptron(), LOSS)


@settings(max_examples=40)
@given(
    st.sampled_from(["gradient", "difference"]),
    st.integers(0, 10**6),
    st.sampled_from([1e-30, 1e-6, 1.0, 1e3, 1e18, 1e30, math.inf, math.nan]),
)
def test_a_record_adds_at_most_the_clip_in_integers(kind, seed, size):
    engine, vector = VmapEngine(NETWORK), NETWORK.flat() * 3
    query, params = {
        "gradient": (TorchGradient(engine, 0.7, Block(1)), vector),
        "difference": (TorchDifference(engine, 0.7, 0.2, 0.3, Block(1)), (vector, 0.9 * vector)),
    }[kind]
    x, y = blobs(1, seed)
    total = on_lattice(query, x * size, y, params, np.arange(1))
    exact = math.sqrt(sum(int(v) ** 2 for v in total))  # integers of any length
    target(exact)
    assert exact <= query.contribution(params) / SPACING


def test_products_and_truncation_are_exact():
    rows = torch.tensor([[1.0 + 2.0**-23, -(2.0**-20) - 2.0**-43], [math.inf, 1.0]])
    factors = torch.tensor([1.0 - 2.0**-24, 0.0])
    parts = exact_rows(rows, factors)
    assert float(parts[0, 0]) == (1.0 + 2.0**-23) * (1.0 - 2.0**-24)
    assert parts[1].tolist() == [0.0, 0.0]
    assert lattice_sum(torch.tensor([[1.9, -1.9], [0.6, -0.6]]).double(), 0.5).tolist() == [4, -4]


def test_a_release_has_the_declared_noise_on_the_lattice():
    engine, x, y, block = made("images")
    release = Release(TorchGradient(engine, 0.5, block), Gaussian(multiplier=3.0, secure=True), mean=False)
    plan = Plan({"q": release}, Relation.REPLACE_ONE, 40)
    params = engine.network.flat()
    noisy = Curator(TorchExecutor((x, y), CPU, 16), plan, NoiseSource.from_os()).release("q", params)
    plain = release.query.evaluate(TorchExecutor((x, y), CPU, 16).records(None), params)
    assert noisy.dtype == torch.float32
    scaled = (noisy - plain).double().numpy() / (3.0 * 2 * 0.5)
    assert abs(scaled.std() - 1) < 5 / math.sqrt(2 * scaled.size)


def trainer(**options):
    options = {"epsilon": 8.0, "delta": 1e-4, "steps": 4, "batch_size": 40, **options}
    return Trainer(perceptron(), LOSS, secure_noise=True, **options)


@pytest.mark.parametrize("groups", [None, np.arange(120) // 3])
@pytest.mark.parametrize("optimizer", ["sgd", "srm"])
def test_the_trainer_says_that_the_noise_is_exactly_rounded(optimizer, groups):
    got = trainer(optimizer=optimizer, device_noise=True).fit(*blobs(), groups=groups)
    assert "exactly rounded to a lattice" in str(got.privacy)
    assert not any("device" in note for note in got.privacy.notes)


def test_loops_and_estimators_take_it():
    x, y = blobs()
    options = {"secure_noise": True}
    steps = make_private(
        perceptron(), LOSS, (x, y), epsilon=8.0, delta=1e-4, steps=2, batch_size=40, **options
    )
    assert len(list(reading(steps))) == 2
    assert "exactly rounded" in str(steps.privacy)
    model = NeuralClassifier(8.0, 1e-4, max_iter=3, trainer_options=options).fit(x.numpy(), y.numpy())
    assert "exactly rounded" in str(model.privacy_)


def test_noise_that_is_none_cannot_be_secure():
    with pytest.raises(InvalidInputError, match="epsilon=inf"):
        trainer(epsilon=math.inf).fit(*blobs())


def test_a_query_without_fixed_blocks_is_refused():
    release = Release(TorchGradient(VmapEngine(NETWORK), 0.5), Gaussian(multiplier=3.0, secure=True))
    plan = Plan({"q": release}, Relation.ADD_REMOVE, 10)
    with pytest.raises(UnsupportedError, match="secure_noise"):
        Curator(TorchExecutor(blobs(10), CPU), plan, NoiseSource.from_os())
