"""What records may look like at the door, and which loaders, lists and public records are refused by name."""

import warnings

import numpy as np
import pytest
import torch
from tests.nn.helpers import blobs, perceptron
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from sordino.errors import InvalidInputError, InvalidTypeError, PrivacyWarning, UnsupportedError
from sordino.nn import NeuralClassifier, Trainer, make_private
from sordino.nn.data import overlap, source_of
from sordino.nn.federated import TorchModel

LOSS = nn.CrossEntropyLoss()
RUN = {"epsilon": 3.0, "delta": 1e-4, "steps": 2, "batch_size": 30}
X, Y = blobs()
DOORS = {
    "Trainer": lambda data: Trainer(perceptron(), LOSS, **RUN).fit(data),
    "make_private": lambda data: make_private(perceptron(), LOSS, data, **RUN),
    "Flower": lambda data: TorchModel(perceptron(), LOSS, data),
}
SAMPLERS = {
    "subset": {"sampler": torch.utils.data.SubsetRandomSampler(range(40))},
    "weights": {"sampler": torch.utils.data.WeightedRandomSampler(torch.ones(120), 120)},
    "own": {"sampler": type("Own", (torch.utils.data.RandomSampler,), {})(X)},
    "batches": {"batch_sampler": [[0, 1], [2, 3]]},
    "batches of some": {
        "batch_sampler": torch.utils.data.BatchSampler(
            torch.utils.data.SubsetRandomSampler(range(9)), 3, False
        )
    },
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_loader_that_leaves_records_out_is_refused_by_name(kind, door):
    """Its sampler was dropped in silence: forty of 120 records were asked for, and all were trained on."""
    with pytest.raises(UnsupportedError, match=r"got one with a (Subset|Weighted|Own|list).*Subset\(dataset"):
        DOORS[door](DataLoader(TensorDataset(X, Y), **SAMPLERS[kind]))


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_loader_of_all_records_gives_its_batch_size(shuffle):
    loader = DataLoader(TensorDataset(X, Y), batch_size=24, shuffle=shuffle)
    asked = {"epsilon": 3.0, "delta": 1e-4, "steps": 2}
    trained = Trainer(perceptron(), LOSS, **asked).fit(loader)
    assert trained.privacy.releases[0].sampling == "Poisson(rate=0.2)"
    own = Trainer(perceptron(), LOSS, **asked, batch_size=60).fit(loader)
    assert own.privacy.releases[0].sampling == "Poisson(rate=0.5)"
    assert "the loader's batch size of 24 was not used" in own.privacy.notes
    rule = Trainer(perceptron(), LOSS, **asked, recipe="tabular").fit(loader)
    assert "the loader's batch size of 24 was not used" in rule.privacy.notes


def test_a_loader_that_accelerate_has_prepared_is_taken():
    accelerate = pytest.importorskip("accelerate", reason="comes with the extra 'transformers'")
    loader = DataLoader(TensorDataset(X, Y), batch_size=24, shuffle=True)
    source = source_of(accelerate.Accelerator(cpu=True).prepare(loader))
    assert (source.population, source.batch) == (120, 24)


@pytest.mark.parametrize("door", DOORS)
def test_a_list_of_records_is_a_data_set(door):
    DOORS[door](list(zip(X, Y, strict=True)))
    DOORS[door]([X, Y])


def test_two_records_in_a_list_are_not_two_tensors():
    assert source_of([(X[0], Y[0]), (X[1], Y[1])]).population == 2
    assert source_of([{"input": X[0], "labels": Y[0]}, {"input": X[1], "labels": Y[1]}]).population == 2


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (TensorDataset(X, Y, torch.ones(120)), "got 3.*Weights of records belong into the targets"),
        ((X, Y, Y), "two tensors, inputs and targets, got 3"),
        ([((X[0], X[1]), Y[0])] * 3, "Several inputs have names"),
        (iter([(X[0], Y[0])]), "read a stream into a list of records first"),
    ],
)
def test_records_that_cannot_be_read_are_refused_with_a_remedy(data, said):
    with pytest.raises((InvalidInputError, InvalidTypeError), match=said):
        source_of(data)


PUBLIC = {
    "itself": lambda x, y: (x, y),
    "a part": lambda x, y: (x[100:], y[100:]),
    "every other": lambda x, y: (x[::2], y[::2]),
    "a copy": lambda x, y: (x.clone(), y),
    "an array": lambda x, y: (x.numpy(), y.numpy()),
    "a data set": lambda x, y: TensorDataset(x, y),
    "names": lambda x, y: ({"input": x}, y),
}


@pytest.mark.parametrize("way", [name for name in PUBLIC if name != "names"])
def test_training_records_are_no_public_ones(way):
    """Their loss was told without noise, under a report that said private."""
    trainer = Trainer(perceptron(), LOSS, **RUN, validation=PUBLIC[way](X, Y))
    with pytest.raises(UnsupportedError, match="public records as validation"):
        trainer.fit(X, Y)


def test_training_records_of_the_estimators_are_no_public_ones():
    x, y = X.double().numpy(), Y.numpy()
    model = NeuralClassifier(3.0, 1e-4, max_iter=2, trainer_options={"validation": (x, y)})
    with pytest.raises(UnsupportedError, match="public records as validation"):
        model.fit(x, y)


def test_records_that_were_held_back_are_public():
    x, y = blobs(200)
    items = TensorDataset(x, y)
    for held, rest in (((x[:80], y[:80]), (x[80:], y[80:])), ((x[::2], y[::2]), (x[1::2], y[1::2]))):
        assert not source_of(held).shares(source_of(rest))
    first, second = (Subset(items, range(*ends)) for ends in ((0, 50), (50, 90)))
    assert not source_of(first).shares(source_of(second))
    assert source_of(first).shares(source_of(Subset(items, [49])))
    trained = Trainer(perceptron(), LOSS, **RUN, validation=(x[:80], y[:80])).fit(x[80:], y[80:])
    assert trained.history


def test_memory_in_common_is_found_whatever_the_type():
    for kind in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool):
        some = torch.zeros(10, 3).to(kind)
        assert overlap(some, some[4:])
        assert not overlap(some[:4], some[4:])
        assert not overlap(some, some.clone())
    assert overlap(np.zeros(1), np.zeros(1)) is False
    assert not overlap(torch.zeros(2).to_sparse(), torch.zeros(2))


@pytest.mark.parametrize("name", ["validation", "callbacks"])
def test_a_function_that_holds_the_training_records_is_warned_about(name):
    def look(step):
        return float(X.sum()) * 0.0

    public = blobs(seed=1)[0]
    for function, warned in ((look, True), (lambda step: float(public.sum()) * 0.0, False)):
        known = {name: function if name == "validation" else (function,)}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            Trainer(perceptron(), LOSS, **RUN, **known).fit(X, Y)
        assert any(one.category is PrivacyWarning for one in caught) == warned


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("max_grad_norm", "Pass clip_norm="),
        ("noise_multiplier", r"Pass epsilon=\. Noise follows from epsilon"),
        ("target_delta", "Pass delta="),
        ("clipnorm", "Pass clip_norm="),
        ("nonsense", "got 'nonsense'"),
    ],
)
def test_words_of_others_are_answered_with_ours(name, said):
    with pytest.raises(InvalidInputError, match=said):
        make_private(perceptron(), LOSS, (X, Y), epsilon=1.0, **{name: 1.0})
    with pytest.raises(InvalidInputError, match=said):
        NeuralClassifier(1.0, 1e-4, trainer_options={name: 1.0}).fit(X.numpy(), Y.numpy())


def convolution():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 36, 3))


def collated(items):
    return torch.utils.data.default_collate(items)


IMAGES, CLASSES = torch.rand(24, 8, 8, 3, generator=torch.Generator().manual_seed(0)), torch.arange(24) % 3
STRIDES = {
    "tensors": lambda x: (x, CLASSES),
    "arrays": lambda x: (x.numpy(), CLASSES.numpy()),
    "a data set": lambda x: TensorDataset(x, CLASSES),
    "items": lambda x: list(zip(x, CLASSES, strict=True)),
    "collated items": lambda x: DataLoader(TensorDataset(x, CLASSES), collate_fn=collated),
    "names": lambda x: ({"input": x}, CLASSES),
}


@pytest.mark.parametrize("groups", [None, np.arange(24) // 2])
@pytest.mark.parametrize("way", STRIDES)
def test_images_whose_channels_lie_last_in_memory_count_like_others(way, groups):
    """Each of them counted zero, in silence: no rule is known for operations on other strides."""
    found = []
    for x in (IMAGES.permute(0, 3, 1, 2), IMAGES.permute(0, 3, 1, 2).contiguous()):
        model = convolution()
        settings = {"epsilon": float("inf"), "delta": 1e-3, "steps": 1, "batch_size": 24, "clip_norm": 0.5}
        next(iter(make_private(model, LOSS, STRIDES[way](x), groups=groups, **settings)))
        found.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert float(found[0].norm()) > 0.01
    torch.testing.assert_close(*found, atol=1e-6, rtol=1e-4)


def test_views_whose_strides_are_others_count_like_others():
    class Turned:
        draws = 0

        def __call__(self, image, numbers):
            return image.transpose(-1, -2)

    trainer = Trainer(
        convolution(), LOSS, float("inf"), 1e-3, steps=1, batch_size=24, augment=Turned(), learning_rate=1.0
    )
    before, after = (
        convolution().state_dict(),
        trainer.fit(IMAGES.permute(0, 3, 1, 2), CLASSES).model.state_dict(),
    )
    assert all(not torch.equal(before[name], after[name]) for name in before)


class Fragile:
    """A loss that fails from some time on: on every record, or on those of one class."""

    def __init__(self, only=None, error=RuntimeError):
        self.begun, self.only, self.error = False, only, error

    def __call__(self, outputs, targets):
        if self.begun and (self.only is None or bool((targets == self.only).any())):
            raise self.error("it fails")
        return nn.functional.cross_entropy(outputs, targets, reduction="sum")


@pytest.mark.parametrize("groups", [None, np.arange(120) // 2])
@pytest.mark.parametrize("error", [RuntimeError, UnsupportedError, UserWarning])
def test_what_fails_whatever_the_record_is_said(error, groups):
    """All records were left out in silence, and the model was trained on noise."""
    loss = Fragile(error=error)
    loop = iter(make_private(perceptron(), loss, (X, Y), groups=groups, engine="vmap", **RUN))
    loss.begun = True
    with pytest.raises((InvalidInputError, UnsupportedError), match="it fails"):
        next(loop)


def test_what_fails_on_some_records_stays_unsaid():
    class Marked(nn.Module):
        """Fails on records that are marked by a number no made-up record has."""

        def __init__(self):
            super().__init__()
            self.inner, self.begun = perceptron(), [False]

        def forward(self, x):
            if self.begun[0] and bool((x[:, 0] > 1e6).any()):
                raise UnsupportedError("it fails on a record")
            return self.inner(x)

    x, found = X.clone(), []
    x[7, 0] = 1e7
    for data in ((x, Y), (torch.cat([x[:7], x[8:]]), torch.cat([Y[:7], Y[8:]]))):
        model = Marked()
        steps = make_private(
            model, LOSS, data, epsilon=float("inf"), delta=1e-3, steps=1, batch_size=len(data[0])
        )
        steps._session.made.task.engine.network.model.begun[0] = True
        next(iter(steps))
        found.append(torch.cat([p.grad.flatten() for p in model.parameters()]) * len(data[0]))
    torch.testing.assert_close(*found, atol=1e-4, rtol=1e-4)
