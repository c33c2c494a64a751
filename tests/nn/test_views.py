"""Random views of records: their mean gradient is clipped once, they mix nothing, and they are fresh."""

import numpy as np
import pytest
import torch
from tests.nn.helpers import blobs, perceptron
from torch import nn

from sordino.errors import InvalidInputError, InvalidTypeError, PlanError
from sordino.execute.torch import Views
from sordino.kernel import NoiseSource
from sordino.nn import Scattering, Shifts, Trainer
from sordino.nn.data import source_of
from sordino.testing import seeded_noise_not_private

LOSS = nn.CrossEntropyLoss()
IMAGES = torch.arange(6 * 64.0).reshape(6, 1, 8, 8)


class Scaled:
    """The record times a number between 1 and 2."""

    draws = 1

    def __call__(self, record, numbers):
        return record * (1 + numbers[0])


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(108, 2))


def fitted(**settings):
    settings = {"epsilon": 8.0, "delta": 1e-4, "steps": 3, "batch_size": 4, **settings}
    return Trainer(small(), LOSS, **settings).fit(IMAGES / 400, torch.tensor([0, 1, 0, 1, 0, 1]))


def test_a_shift_moves_a_picture_and_mirrors_its_edges():
    picture = torch.arange(25.0).reshape(1, 5, 5)
    moved = Shifts(2)(picture, torch.tensor([0.99, 0.5, 0.0]))
    assert torch.equal(moved[0, :, 0], torch.tensor([10.0, 15, 20, 15, 10]))
    assert torch.equal(Shifts(2)(picture, torch.tensor([0.5, 0.5, 0.0])), picture)
    flipped = Shifts(0, flips=True)(picture, torch.tensor([0.5, 0.5, 0.0]))
    assert torch.equal(flipped, picture.flip(-1))


def test_shifts_are_uniform_and_stay_within_their_reach():
    views = Views(Shifts(1), 3)
    seen = views.of(IMAGES[:1].expand(3000, 1, 8, 8), NoiseSource.from_os())
    counts = torch.unique(seen[:, 0, 4, 4], return_counts=True)[1]
    assert len(counts) == 9
    assert 230 < counts.min() <= counts.max() < 440


def test_the_mean_gradient_of_the_views_is_what_is_clipped():
    views = Views(Scaled(), 1, 4)
    source = source_of(IMAGES[:3] / 400, torch.tensor([0, 1, 0]))
    from dataclasses import replace

    from sordino.nn.data import MeanOfViews
    from sordino.nn.engines import GhostEngine
    from sordino.nn.network import Network
    from sordino.nn.queries import PersonGradient

    executor = replace(source, views=views).executor(torch.device("cpu"), 64, False)
    seen = []
    plain = executor.batch

    def kept(rows):
        seen.append(plain(rows))
        return seen[-1]

    object.__setattr__(executor, "batch", kept)
    network = Network(small(), MeanOfViews(LOSS, 4))
    point, clip = network.flat(), 0.05
    got = PersonGradient(GhostEngine(network), clip).evaluate(executor.records(None), point)
    (x, y) = seen[0]
    want = torch.zeros_like(point)
    for record in range(3):
        leaf = point.clone().requires_grad_()
        outputs = network.outputs(network.unflatten(leaf), x[4 * record : 4 * record + 4])
        mean = torch.autograd.grad(LOSS(outputs, y[4 * record : 4 * record + 4]), leaf)[0]
        want += mean * min(1.0, clip / float(mean.norm()))
    assert len(torch.unique(x[:4, 0, 5, 5])) == 4
    assert torch.allclose(got, want, atol=1e-5)
    assert float(got.norm()) <= 3 * clip


def test_views_are_new_in_every_step_and_a_seed_of_torch_does_not_fix_them():
    views = Views(Shifts(3), 3)
    torch.manual_seed(1)
    one = views.of(IMAGES, NoiseSource.from_os())
    torch.manual_seed(1)
    two = views.of(IMAGES, NoiseSource.from_os())
    assert not torch.equal(one, two)


def test_an_augmentation_cannot_see_other_records_or_draw_on_its_own():
    class Mixing(Scaled):
        def __call__(self, record, numbers):
            return record - record.mean(0, keepdim=True)  # the first axis of one record, never the batch

    views = Views(Mixing(), 1)
    alone = views.of(IMAGES[:1], NoiseSource.from_os())
    assert torch.equal(alone, views.of(IMAGES, NoiseSource.from_os())[:1])

    class Drawing(Scaled):
        def __call__(self, record, numbers):
            return record + torch.rand(())

    with pytest.raises(RuntimeError, match="random"):
        Views(Drawing(), 1).of(IMAGES, NoiseSource.from_os())


def test_a_training_with_views_says_so_and_counts_records():
    got = fitted(augment=Shifts(1), multiplicity=2)
    assert got.privacy.unit == "record"
    assert "number of records: 6" in got.privacy.public
    assert any("2 random views" in note for note in got.privacy.notes)


def test_views_of_persons_stay_with_their_person():
    owner = np.array([0, 0, 1, 1, 2, 2])
    trainer = Trainer(
        small(), LOSS, 8.0, 1e-4, steps=2, batch_size=2, augment=Shifts(1), multiplicity=2, secure_noise=True
    )
    got = trainer.fit(IMAGES / 400, torch.tensor([0, 1, 0, 1, 0, 1]), groups=owner)
    assert got.privacy.unit == "person"
    assert "number of persons: 3" in got.privacy.public


def test_validation_scores_plain_records_with_the_plain_loss():
    public = (IMAGES.flip(-1) / 400, torch.tensor([0, 1, 0, 1, 0, 1]))
    got = fitted(augment=Shifts(1), multiplicity=4, validation=public)
    with torch.no_grad():
        assert got.history[-1][1] == pytest.approx(float(LOSS(got.model(public[0]), public[1])), rel=1e-5)


def test_without_room_for_a_shift_nothing_is_booked(tmp_path):
    with pytest.raises(InvalidInputError, match="height and width"):
        Trainer(perceptron(), LOSS, 1.0, 1e-4, augment=Shifts()).fit(*blobs())
    with pytest.raises(InvalidInputError, match="multiplicity 1 without augment"):
        fitted(multiplicity=2)
    with pytest.raises(InvalidTypeError, match="draws"):
        fitted(augment=lambda record, numbers: record)
    with pytest.raises(InvalidInputError, match="shape of a record"):
        fitted(augment=type("Cut", (Scaled,), {"__call__": lambda self, r, n: r[:, :4]})())
    with pytest.raises(InvalidInputError, match="multiplicity >= 1"):
        fitted(augment=Shifts(1), multiplicity=0)
    with pytest.raises(InvalidInputError, match="reach >= 0"):
        Shifts(-1)


def test_a_resumed_training_has_the_same_views(tmp_path):
    settings = {"checkpoint": tmp_path / "run", "augment": Shifts(1), "multiplicity": 2}
    fitted(**settings)
    data = (IMAGES / 400, torch.tensor([0, 1, 0, 1, 0, 1]))
    again = {"epsilon": 8.0, "delta": 1e-4, "steps": 3, "batch_size": 4, **settings}
    assert Trainer(small(), LOSS, **again).resume(*data).steps == 0
    with pytest.raises(PlanError, match="another recipe"):
        Trainer(small(), LOSS, **{**again, "multiplicity": 4}).resume(*data)


def test_a_scattering_layer_equals_the_transformer_up_to_its_normalisation():
    from sordino import ScatteringTransformer

    images = np.random.default_rng(0).random((3, 256)).astype(np.float32)
    layer = Scattering(1, angles=4)
    got = layer(torch.from_numpy(images).reshape(-1, 1, 16, 16))
    plain = ScatteringTransformer(angles=4, normalise="none").fit_transform(images).reshape(3, 25, 4, 4)
    assert got.shape == (3, layer.channels, 4, 4) == plain.shape
    assert torch.allclose(got, nn.GroupNorm(5, 25, affine=False)(torch.from_numpy(plain)), atol=1e-3)
    assert not list(layer.parameters())


def test_seeded_noise_of_tests_fixes_the_views_too():
    with seeded_noise_not_private(3):
        one = fitted(augment=Shifts(1), multiplicity=2)
    with seeded_noise_not_private(3):
        two = fitted(augment=Shifts(1), multiplicity=2)
    pairs = zip(one.model.parameters(), two.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
