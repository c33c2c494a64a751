"""A network in a federation."""

import numpy as np
import pytest
import torch
from torch import nn

from sordino.kernel import Poisson
from sordino.nn import TorchModel
from sordino.parties.flower import (
    FederatedClient,
    FederatedRecipe,
    HardThresholdAveraging,
    client_app,
    server_app,
    simulate,
)

CLIP = 0.7


def data(client):
    rng = np.random.default_rng(client)
    x = rng.standard_normal((40, 6)).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy((x[:, 0] > 0).astype(np.int64))


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))


def federated(recipe, tmp_path, epsilon):
    def make(context):
        i = context.node_config["partition-id"]
        model = TorchModel(network(), nn.functional.cross_entropy, *data(i))
        return FederatedClient(model, recipe, tmp_path / str(i), epsilon, 1e-5)

    results = []
    start = TorchModel(network(), nn.functional.cross_entropy, *data(0)).start()
    server = server_app(HardThresholdAveraging(recipe, 2), start, done=results.append)
    simulate(server, client_app(make), [{"partition-id": 0}, {"partition-id": 1}])
    return results[0]


def threshold(vector, count):
    out = torch.zeros_like(vector)
    best = vector.abs().topk(count).indices
    out[best] = vector[best]
    return out


def by_hand(recipe):
    """Rounds without noise, one backward pass per record."""
    model = network()
    w = nn.utils.parameters_to_vector(model.parameters()).detach()
    for _ in range(recipe.rounds):
        local = []
        for i in range(2):
            v = w
            for _ in range(recipe.local_steps):
                total = torch.zeros_like(v)
                nn.utils.vector_to_parameters(v, model.parameters())
                for x, y in zip(*data(i), strict=True):
                    loss = nn.functional.cross_entropy(model(x[None]), y[None])
                    g = torch.cat([p.reshape(-1) for p in torch.autograd.grad(loss, model.parameters())])
                    total += g * min(1.0, CLIP / float(g.norm()))
                v = threshold(v - recipe.step_size * total / 40, recipe.sparsity)
            local.append(v)
        w = threshold((local[0] + local[1]) / 2, recipe.sparsity)
    return w.numpy()


def test_rounds_of_a_network_without_noise_are_the_algorithm_written_by_hand(tmp_path):
    recipe = FederatedRecipe(rounds=2, local_steps=2, sparsity=20, step_size=0.5, clip_norm=CLIP)
    result = federated(recipe, tmp_path, float("inf"))
    assert result.weights.dtype == np.float32
    np.testing.assert_allclose(result.weights, by_hand(recipe), rtol=1e-4, atol=1e-6)


def test_a_private_network_is_sparse_and_its_plan_is_paid_for(tmp_path):
    settings = {"sparsity": 20, "step_size": 0.5, "clip_norm": CLIP, "batch_size": 10}
    recipe = FederatedRecipe(rounds=2, local_steps=3, **settings)
    result = federated(recipe, tmp_path, 3.0)
    assert np.count_nonzero(result.weights) == 20
    assert 0.99 * 3 < result.privacy.epsilon <= 3.0
    release = TorchModel(network(), nn.functional.cross_entropy, *data(0)).plan(recipe).releases["gradient"]
    assert (release.times, release.sampling) == (6, Poisson(0.25))
    assert release.query.contribution(None) == CLIP


@pytest.mark.parametrize("file", ["run.json", "rounds"])
def test_what_a_client_keeps_between_rounds_is_public(tmp_path, file):
    """No record, weight or noise is in the folder: its size does not grow with the model."""
    recipe = FederatedRecipe(rounds=1, local_steps=1, clip_norm=CLIP)
    federated(recipe, tmp_path, 3.0)
    assert (tmp_path / "0" / file).stat().st_size < 4096
