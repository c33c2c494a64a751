"""Doors of the training of networks that stood open, by the number of the finding."""

import random
import sys
import warnings

import numpy as np
import pytest
import torch
from tests.hostile.claims_nn import RUN
from tests.nn.helpers import blobs, perceptron
from torch import nn

from sordino.errors import InvalidInputError, PlanError, SlowEngineWarning, UnsupportedError
from sordino.execute.torch import TorchExecutor
from sordino.ledger import BudgetPolicy, Ledger
from sordino.nn import Trainer
from sordino.nn.engines import GhostEngine
from sordino.nn.network import Network
from sordino.nn.queries import TorchGradient

renamed = np.random.default_rng
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


@pytest.mark.parametrize("engine", ["auto", "ghost", "vmap"])
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
    trained = Trainer(
        model, LOSS, **{**RUN, "steps": 1, "learning_rate": 1e-6}, validation=blobs(seed=1)
    ).fit(x, y)
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


class Items(torch.utils.data.Dataset):
    """Records with noise of their own: from a generator of torch, NumPy or Python, held or not."""

    def __init__(self, way, count=40):
        self.way, (self.x, self.y) = way, blobs(count)
        self.torch = torch.Generator().manual_seed(1)
        self.parts = {
            "numpy": [np.random.default_rng(1), np.random.RandomState(1)],
            "python": random.Random(1),
        }
        self.hidden = iter(np.random.default_rng(1).normal, None)  # a generator that nobody finds

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        ways = {
            "torch": lambda: float(torch.randn((), generator=self.torch)),
            "numpy": lambda: self.parts["numpy"][0].normal(),
            "old numpy": lambda: self.parts["numpy"][1].normal(),
            "python": lambda: self.parts["python"].gauss(0, 1),
            "global numpy": lambda: np.random.normal(),  # noqa: NPY002
            "global python": lambda: random.gauss(0, 1),
            "seeding": lambda: float(torch.manual_seed(i) and torch.randn(())),
            "numpy seeding": lambda: np.random.seed(int(i)) or np.random.normal(),  # noqa: NPY002
            "python seeding": lambda: random.seed(int(i)) or random.random(),
            "held seeding": lambda: self.parts["numpy"][1].seed(int(i)) or self.parts["numpy"][1].normal(),
            "own torch": lambda: float(torch.randn((), generator=torch.Generator().manual_seed(int(i)))),
            "own numpy": lambda: np.random.default_rng(int(i)).normal(),
            "own old numpy": lambda: np.random.RandomState(int(i)).normal(),
            "renamed numpy": lambda: renamed(int(i)).normal(),
            "own python": lambda: random.Random(int(i)).random(),
            "unseen": lambda: next(self.hidden),
        }
        return self.x[i] + ways[self.way](), self.y[i]


def seeded_read(data):
    """Return what a release sees of all records when the user has seeded everything."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)
    for one in (data.torch.manual_seed, data.parts["numpy"][1].seed, data.parts["python"].seed):
        one(0)
    data.parts["numpy"][0] = np.random.default_rng(0)
    executor = TorchExecutor(data, torch.device("cpu"))
    with executor.hidden():
        x, _ = executor.batch(np.arange(executor.population))
        return x, torch.rand(3)


@pytest.mark.parametrize(
    "way", ["torch", "numpy", "old numpy", "python", "global numpy", "global python", "seeding"]
)
def test_door_09_what_a_data_set_draws_has_a_hidden_seed(way):
    data = Items(way)
    (one, mask), (two, other) = seeded_read(data), seeded_read(data)
    assert torch.equal(one, two) == (way == "seeding")  # which gives a record the same numbers always
    assert not torch.equal(mask, other)  # nor does an item's seed reach what a model draws
    if way != "seeding":
        assert len(Trainer(perceptron(), LOSS, **{**RUN, "batch_size": 10}).fit(data).history) == 0


@pytest.mark.parametrize("way", ["seeding", "numpy seeding", "python seeding", "held seeding"])
def test_door_43_a_data_set_that_seeds_a_generator_for_an_item_is_refused(way):
    with pytest.raises(UnsupportedError, match="seeds a generator to read an item"):
        Trainer(perceptron(), LOSS, **{**RUN, "batch_size": 10}).fit(Items(way))


@pytest.mark.parametrize("way", ["own torch", "own numpy", "own old numpy", "renamed numpy", "own python"])
def test_door_43_a_data_set_that_makes_a_seeded_generator_for_an_item_is_refused(way):
    with pytest.raises(UnsupportedError, match="seeds a generator to read an item"):
        Trainer(perceptron(), LOSS, **{**RUN, "batch_size": 10}).fit(Items(way))
    assert sys.getprofile() is None


def test_door_09_generators_of_the_user_go_on_as_they_would():
    data = Items("numpy")
    np.random.seed(5)  # noqa: NPY002
    expected = np.random.RandomState(5).normal(size=2), np.random.default_rng(1).normal()
    Trainer(perceptron(), LOSS, **{**RUN, "batch_size": 10}).fit(data)
    assert np.array_equal(np.random.normal(size=2), expected[0])  # noqa: NPY002
    assert data.parts["numpy"][0].normal() == expected[1]


def test_door_09_a_generator_that_is_not_found_is_refused_before_booking(tmp_path):
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.create("d", BudgetPolicy(epsilon=10.0, delta=1e-2))
    with pytest.raises(UnsupportedError, match="draws from one that is not among its attributes"):
        Trainer(perceptron(), LOSS, **RUN, ledger=ledger, dataset_id="d").fit(Items("unseen"))
    assert not ledger.history("d")


class Remembering(Items):
    def __getitem__(self, i):
        before, self.last = getattr(self, "last", 0), i
        return self.x[i] + before, self.y[i]


def test_door_09_a_data_set_that_remembers_records_is_refused():
    with pytest.raises(UnsupportedError, match="remembers what was read"):
        Trainer(perceptron(), LOSS, **RUN).fit(Remembering("torch"))


class View:
    """An augmentation of one number, with whatever it does to a record."""

    draws = 1

    def __init__(self, make, **kept):
        self.make, self.kept = make, kept

    def __call__(self, record, numbers):
        return self.make(self, record, numbers)


GENERATOR = torch.Generator().manual_seed(2)
SEEN = []


def remember(record):
    SEEN.append(torch._C._functorch.get_unwrapped(record).mean())
    return float(SEEN[-2]) if len(SEEN) > 1 else 0.0


AUGMENTATIONS = {
    "numpy": lambda v, r, n: r + np.random.normal(),  # noqa: NPY002
    "python": lambda v, r, n: r + random.random(),
    "torch": lambda v, r, n: r + torch.rand(()),
    "held": lambda v, r, n: r + v.kept["generator"].normal(),
    "a global": lambda v, r, n: r + float(torch.rand((), generator=GENERATOR)),
    "rare": lambda v, r, n: r + (np.random.random() < 1e-9),  # noqa: NPY002
    "unseen": lambda v, r, n: r + next(v.kept["hidden"]),
    "memory": lambda v, r, n: r + remember(r),
}


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_door_20_an_augmentation_that_draws_or_remembers_is_refused(name):
    hidden = iter(np.random.default_rng(1).normal, None)
    augment = View(AUGMENTATIONS[name], generator=np.random.default_rng(0), hidden=hidden)
    with pytest.raises(UnsupportedError, match=r"draws by itself|draw nothing by itself"):
        Trainer(perceptron(), LOSS, **RUN, augment=augment).fit(*blobs())


@pytest.mark.parametrize("kind", ["tensor", "a copy", "array", "part", "data set"])
def test_door_20_an_augmentation_that_holds_the_records_is_refused(kind):
    x, y = blobs()
    data = torch.utils.data.StackDataset(x, y)
    kept = {"tensor": x, "a copy": x.clone(), "array": x.numpy(), "part": x[:50], "data set": data}[kind]
    rows = kept if kind != "data set" else data.datasets[0]
    augment = View(lambda v, r, n: r + torch.as_tensor(rows[0]) * n[0] if kept is not None else r)
    with pytest.raises(UnsupportedError, match="holds the records"):
        Trainer(perceptron(), LOSS, **RUN, augment=augment).fit(*((data,) if kind == "data set" else (x, y)))


def test_door_20_an_augmentation_of_its_record_and_numbers_is_taken():
    kernel = torch.linspace(0, 1, 6)
    augment = View(lambda v, r, n: r * (0.9 + 0.2 * n[0]) + 0.1 * kernel)
    assert (
        Trainer(perceptron(), LOSS, **RUN, augment=augment, multiplicity=2).fit(*blobs()).steps
        == RUN["steps"]
    )


def words():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(20, 4), nn.Flatten(), nn.Linear(12, 3))


def odd(kind):
    """Return a model, a loss and records of which the last cannot be borne."""
    x, y = blobs()
    model, loss = perceptron(), LOSS
    if kind == "label":
        y[-1] = 3
    elif kind == "negative label":
        y[-1] = -7
    elif kind == "token":
        model, x = words(), torch.randint(0, 20, (120, 3))
        x[-1, 1] = 20
    elif kind == "target":
        model, loss = nn.Sequential(nn.Linear(6, 1), nn.Sigmoid(), nn.Flatten(0)), nn.BCELoss()
        y = (y > 0).float()
        y[-1] = 1.5
    return model, loss, x, y


@pytest.mark.parametrize("items", [False, True])
@pytest.mark.parametrize("kind", ["label", "negative label", "token", "target"])
def test_door_23_an_odd_record_is_refused_before_booking(kind, items, tmp_path):
    model, loss, x, y = odd(kind)
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.create("d", BudgetPolicy(epsilon=10.0, delta=1e-2))
    data = (torch.utils.data.StackDataset(x, y),) if items else (x, y)
    with pytest.raises(InvalidInputError, match="fails on some records") as caught:
        Trainer(model, loss, **RUN, ledger=ledger, dataset_id="d").fit(*data)
    assert "Nothing was booked" in str(caught.value)
    assert not ledger.history("d")
    good = (torch.utils.data.StackDataset(x[:-1], y[:-1]),) if items else (x[:-1], y[:-1])
    Trainer(model, loss, **RUN, ledger=ledger, dataset_id="d").fit(*good)


@pytest.mark.parametrize("kind", ["shape", "nan", "unreadable"])
def test_door_23_an_odd_item_is_refused_before_booking(kind):
    x, y = blobs(40)
    items = list(zip(x, y, strict=True))
    items[30] = {"shape": (torch.ones(7), y[0]), "nan": (x[0] * torch.nan, y[0]), "unreadable": None}[kind]
    with pytest.raises(InvalidInputError, match="Nothing was booked"):
        Trainer(perceptron(), LOSS, **RUN).fit(torch.utils.data.DataLoader(items))


class Late(torch.utils.data.Dataset):
    """Records of which one fails after it was looked at, or has another label then."""

    def __init__(self, late, count=120):
        self.late, (self.x, self.y), self.begun = late, blobs(count), False

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        if i == 33 and self.begun and self.late == "raises":
            raise ValueError(f"secret {self.x[i]}")
        if i == 33 and self.begun and self.late == "shape":
            return torch.ones(7), self.y[i]
        return self.x[i], torch.tensor(9) if i == 33 and self.begun and self.late == "label" else self.y[i]


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("late", ["raises", "label", "shape"])
def test_door_23_a_record_that_fails_in_a_step_contributes_zero(late, secure):
    network = Network(perceptron(), LOSS)
    query, data = TorchGradient(GhostEngine(network), 0.7), Late(late)
    executor = TorchExecutor(data, torch.device("cpu"), 16)
    data.begun = True
    total = query_sum(executor, query, network, np.arange(120))
    without = query_sum(executor, query, network, np.delete(np.arange(120), 33))
    assert torch.allclose(total, without, atol=1e-5)
    assert float(total.norm()) > 1
    trainer = Trainer(perceptron(), LOSS, **{**RUN, "batch_size": 120}, secure_noise=secure)
    data.begun = False
    made = trainer.fit(data)  # looked at, and trained on
    assert made.steps == RUN["steps"]


def query_sum(executor, query, network, rows):
    from sordino.kernel import Full, Gaussian, Question, Release

    release = Release(query, Gaussian(1.0), Full(), 1)
    with torch.enable_grad():
        return executor.summed(Question(release, network.flat(), 1.0, 0, executor.population), rows)


def test_door_23_a_broken_model_is_no_record_and_is_not_kept_quiet():
    executor = TorchExecutor(blobs(), torch.device("cpu"))

    class Broken(TorchGradient):
        def evaluate(self, records, params):
            raise RuntimeError("of no record")

    network = Network(perceptron(), LOSS)
    with pytest.raises(InvalidInputError, match="without a record"):
        query_sum(executor, Broken(GhostEngine(network), 0.7), network, np.arange(120))
