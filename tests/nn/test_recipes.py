"""Recipes: settings from public numbers, which what is asked for goes before."""

import numpy as np
import pytest
import torch
from tests.nn.helpers import blobs, perceptron
from torch import nn

from sordino.errors import InvalidInputError
from sordino.nn import GhostEngine, Network, Scattering, Trainer
from sordino.nn.data import source_of
from sordino.nn.solvers import RECIPES, noise_rate
from sordino.testing import seeded_noise_not_private

LOSS = nn.CrossEntropyLoss()


def settings(population=10_000, **asked):
    return Trainer(perceptron(), LOSS, asked.pop("epsilon", 2.0), 1e-5, **asked).settings(population)


def test_without_a_recipe_the_plain_values_hold():
    plain, asked = settings(), settings(batch_size=64, schedule="linear")
    assert (plain.optimizer, plain.batch_size, plain.epochs, plain.clip_norm) == ("sgd", 256, 10.0, 1.0)
    assert (plain.schedule, plain.average, plain.learning_rate, plain.steps) == ("cosine", 0.0, None, None)
    assert (asked.batch_size, asked.schedule, asked.epochs) == (64, "linear", 10.0)


@pytest.mark.parametrize("name", sorted(RECIPES))
@pytest.mark.parametrize("population", [3, 500, 60_000, 10**8])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, float("inf")])
def test_a_recipe_makes_a_plan_for_every_size_and_budget(name, population, epsilon):
    trainer = Trainer(perceptron(), LOSS, epsilon, 1e-9, recipe=name)
    recipe = trainer.solver(population).recipe
    assert 1 <= recipe.batch <= population
    assert 1 <= recipe.steps <= 2000
    assert 0 < recipe.learning_rate < float("inf")


@pytest.mark.parametrize("kind", sorted(RECIPES))
def test_auto_is_the_recipe_of_the_records_with_normalised_gradients(kind):
    trainer = Trainer(perceptron(), LOSS, 2.0, 1e-5, recipe="auto")
    got, base = trainer.settings(10_000, kind), settings(recipe=kind)
    assert (got.optimizer, got.batch_size, got.epochs) == (base.optimizer, base.batch_size, base.epochs)
    assert got.clip_norm == 0.01
    assert got.learning_rate == pytest.approx(base.learning_rate * (1 if kind == "text" else 100))
    wide = Trainer(perceptron(), LOSS, 2.0, 1e-5, recipe="auto", clip_norm=0.5).settings(10_000, kind)
    assert wide.clip_norm == 0.5
    assert wide.learning_rate == pytest.approx(base.learning_rate * (1 if kind == "text" else 2))


@pytest.mark.parametrize(
    ("records", "kind"),
    [
        (torch.zeros(4, 7), "tabular"),
        (torch.zeros(4, 1, 8, 8), "image"),
        (torch.zeros(4, 7, dtype=torch.int64), "text"),
        ({"pixel_values": torch.zeros(4, 3, 8, 8)}, "image"),
        ({"input_ids": torch.zeros(4, 7, dtype=torch.int64)}, "text"),
    ],
)
def test_the_kind_of_records_is_read_off_their_shape_and_type(records, kind):
    assert source_of(records, torch.zeros(4)).kind == kind


def test_normalised_gradients_are_a_clip_to_the_floor_over_the_floor():
    torch.manual_seed(0)
    network, (x, y) = Network(perceptron(), LOSS), blobs(30)
    engine, vector, floor = GhostEngine(network), network.flat(), 0.05
    rows = engine.per_record(vector, x, y)
    want = (rows / rows.norm(dim=1, keepdim=True).clamp(min=floor)).sum(0)
    torch.testing.assert_close(engine.clipped_sum(vector, x, y, floor) / floor, want, rtol=1e-3, atol=1e-3)


def test_what_is_asked_for_goes_before_the_recipe():
    got = settings(recipe="image", batch_size=17, epochs=2.0, average=0.5)
    assert (got.batch_size, got.epochs, got.average) == (17, 2.0, 0.5)
    assert got.learning_rate == settings(recipe="image").learning_rate
    other = settings(recipe="image", optimizer="adam")  # a rate belongs to its optimiser
    assert other.learning_rate is None
    assert other.optimizer_options == {}


def test_a_recipe_reads_public_numbers_only():
    one = Trainer(perceptron(), LOSS, 2.0, 1e-4, recipe="tabular", steps=2).fit(*blobs())
    two = Trainer(perceptron(), LOSS, 2.0, 1e-4, recipe="tabular", steps=2).fit(*blobs(seed=5))
    assert one.privacy.public == two.privacy.public


def test_the_rate_of_tables_falls_with_the_noise():
    rates = [noise_rate(10_000, epsilon, 1000) for epsilon in (0.1, 1.0, 10.0)]
    assert rates == sorted(rates)
    assert noise_rate(10_000, 1.0, 1000, 0.5) == 2 * rates[1]


def test_an_unknown_recipe_is_refused_before_anything_is_booked():
    with pytest.raises(InvalidInputError, match=r"recipe in \['auto', 'image', 'tabular', 'text'\]"):
        Trainer(perceptron(), LOSS, 1.0, 1e-4, recipe="images").fit(*blobs())
    with pytest.raises(InvalidInputError, match="epochs > 0"):
        Trainer(perceptron(), LOSS, recipe="text", epochs=0.0).solver(100)


@pytest.mark.parametrize("name", [*sorted(RECIPES), "auto"])
def test_a_network_learns_with_a_recipe(name):
    torch.manual_seed(1)
    x, y = blobs(2000)
    trained = Trainer(perceptron(), LOSS, 4.0, 1e-5, recipe=name).fit(x, y)
    with torch.no_grad():
        assert float((trained.model(x).argmax(1) == y).float().mean()) > 0.85


def test_the_coefficients_of_a_set_are_those_of_its_parts():
    layer, images = Scattering(2, angles=4), torch.rand(5, 2, 8, 8)
    assert torch.allclose(layer.of(images, block=2), layer(images), atol=1e-5)
    assert layer.of(images).shape == (5, 50, 2, 2)


def test_a_linear_layer_on_coefficients_is_clipped_by_ghost_norms():
    seen = Scattering(1, angles=2).of(torch.rand(60, 1, 8, 8))
    head = nn.Sequential(nn.Flatten(), nn.Linear(seen[0].numel(), 2))
    got = Trainer(head, LOSS, 2.0, 1e-4, recipe="image", epochs=1.0).fit(seen, torch.arange(60) % 2)
    assert "gradients by ghost" in got.privacy.notes


@pytest.mark.parametrize(
    ("settings", "low", "high"),
    [
        ({"recipe": "auto"}, 0.0, 0.001),
        ({"recipe": "tabular"}, 0.0, 0.03),
        ({"recipe": "tabular", "clip_norm": 8.0}, 0.08, 0.13),
    ],
)
def test_a_clip_below_the_gradients_leans_to_frequent_labels(settings, low, high):
    """The figures of the page: a label of 10 %, and what is said of it in the mean."""
    public = np.random.default_rng(5)
    x = torch.from_numpy(public.normal(size=(12_000, 4))).float()
    y = torch.from_numpy(public.uniform(size=len(x)) < 1 / (1 + np.exp(2.5 - x[:, 0].numpy()))).long()
    assert float(y.float().mean()) == pytest.approx(0.104, abs=0.001)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    with seeded_noise_not_private(1):
        trained = Trainer(model, LOSS, 8.0, 1e-6, **settings).fit(x, y).model
    with torch.no_grad():
        assert low <= float(trained(x).softmax(1)[:, 1].mean()) <= high
