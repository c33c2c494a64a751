"""Doors of the training of networks that stood open, by the number of the finding."""

import warnings

import pytest
import torch
from tests.hostile.claims_nn import RUN
from tests.nn.helpers import blobs, perceptron
from torch import nn

from sordino.errors import PlanError, SlowEngineWarning
from sordino.nn import Trainer
from sordino.nn.network import Network

LOSS = nn.CrossEntropyLoss()


class Twice(nn.Module):
    """One layer that stands in two places, as in ALBERT, and a weight that two layers share."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Linear(6, 6)
        self.again = self.first
        self.layers = nn.ModuleList([self.first, nn.Linear(6, 6)])
        self.layers[1].weight = self.first.weight
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        for layer in (self.first, self.again, *self.layers):
            x = torch.tanh(layer(x))
        return self.head(x)


def states(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


def test_door_21_what_is_tried_does_not_stay_in_a_module_of_two_places():
    network = Network(Twice(), LOSS)
    before, x = states(network.model), torch.randn(4, 6)
    moved = network.unflatten(network.flat() + 1.0)
    outputs = network.outputs(moved, x)
    assert same(before, states(network.model))
    held = network.holding(moved, lambda: network.outputs(None, x))
    assert same(before, states(network.model))
    expected = Twice()
    network.load(network.flat() + 1.0, expected)
    assert torch.allclose(outputs, expected(x))  # and every place saw the parameters that were tried
    assert torch.equal(outputs, held)


@pytest.mark.parametrize("engine", ["auto", "ghost", "lean", "vmap"])
def test_door_21_a_module_of_two_places_starts_from_its_own_weights(engine):
    model = Twice()
    settings = {**RUN, "steps": 1, "learning_rate": 1e-6, "engine": engine}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowEngineWarning)
        trained = Trainer(model, LOSS, **settings).fit(*blobs())
    for name, value in trained.model.state_dict().items():
        assert torch.allclose(value, model.state_dict()[name], atol=1e-4), name


def test_door_21_public_pretraining_comes_back_as_it_was():
    model, (x, y) = Twice(), blobs()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        LOSS(model(x), y).backward()
        optimizer.step()
    start = float(LOSS(model(x), y).detach())
    trained = Trainer(model, LOSS, **{**RUN, "steps": 1, "learning_rate": 1e-6}, validation=(x, y)).fit(x, y)
    assert float(LOSS(trained.model(x), y).detach()) == pytest.approx(start, abs=1e-4)


@pytest.mark.parametrize("left", [0, 100, -40])
def test_door_26_a_torn_checkpoint_is_a_typed_error(left, tmp_path):
    path = tmp_path / "run"
    Trainer(perceptron(), LOSS, **RUN, checkpoint=path).fit(*blobs())
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(PlanError, match="torn or of another kind"):
        Trainer(perceptron(), LOSS, **RUN, checkpoint=path).resume(*blobs())
    torch.save({"format": 3}, path)
    with pytest.raises(PlanError, match="torn or of another kind"):
        Trainer(perceptron(), LOSS, **RUN, checkpoint=path).resume(*blobs())
