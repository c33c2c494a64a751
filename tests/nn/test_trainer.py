"""The trainer: what it releases is its plan; what it refuses; what it learns."""

import math

import pytest
import torch
from tests.nn.helpers import accuracy, blobs, perceptron, reading
from torch import nn

from sordino.accounting import canonical, certify
from sordino.errors import InvalidInputError, PlanSpentError, SlowEngineWarning, UnsupportedError
from sordino.execute.torch import ON_DEVICE, TorchExecutor
from sordino.kernel import Poisson, Relation
from sordino.ledger import BudgetPolicy, Ledger
from sordino.nn import HardThreshold, Trainer, make_private, replace_batch_norm
from sordino.nn.engine_choice import make_engine
from sordino.nn.network import Network
from sordino.nn.solvers import OPTIMIZERS
from sordino.testing import seeded_noise_not_private

LOSS = nn.CrossEntropyLoss()


def trainer(model=None, **settings):
    settings = {"epsilon": 8.0, "delta": 1e-4, "steps": 12, "batch_size": 40, **settings}
    return Trainer(perceptron() if model is None else model, LOSS, **settings)


@pytest.fixture
def spy(monkeypatch):
    """Every question that reaches the data."""
    asked, real = [], TorchExecutor.noisy_total

    def noisy_total(self, question, batch, noise):
        asked.append((question.release, question.sensitivity, question.position))
        return real(self, question, batch, noise)

    monkeypatch.setattr(TorchExecutor, "noisy_total", noisy_total)
    return asked


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_what_is_asked_is_what_is_planned_booked_and_reported(optimizer, relation, spy, tmp_path):
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.create("toy", BudgetPolicy(epsilon=20.0, delta=1e-3, relation=relation))
    x, y = blobs()
    got = trainer(optimizer=optimizer, relation=relation, clip_norm=0.7, ledger=ledger, dataset_id="toy").fit(
        x, y
    )
    assert len(spy) == got.steps == 12
    assert [release.sampling for release, _, _ in spy] == [Poisson(40 / 120)] * 12
    factor = Relation.parse(relation).contributions
    bounds = [0.7] * 12 if optimizer != "srm" else [0.7] + [0.9 * 0.1 + 0.1 * 0.7] * 11
    assert [s for _, s, _ in spy] == pytest.approx([factor * b for b in bounds])
    entry = ledger.history("toy")[0]
    assert entry.status == "settled"
    assert entry.event_json == canonical(got.privacy.event)
    again = certify(got.privacy.event, 1e-4, Relation.parse(relation)).epsilon
    assert 0.99 * 8.0 < got.privacy.epsilon <= 8.0
    assert got.privacy.epsilon == pytest.approx(again)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimiser_learns_without_noise(optimizer):
    x, y = blobs(300)
    start = perceptron()
    got = trainer(
        start,
        optimizer=optimizer,
        epsilon=math.inf,
        steps=60,
        learning_rate=0.05 if "adam" in optimizer else None,
    ).fit(x, y)
    assert accuracy(got.model, x, y) > 0.95
    assert got.privacy.status == "not private (no noise)"
    assert torch.equal(start[0].weight, perceptron()[0].weight)  # the caller's model is untouched


def test_it_learns_with_noise():
    x, y = blobs(600)
    with seeded_noise_not_private(7):
        got = trainer(steps=60, batch_size=120, average=0.8).fit(x, y)
    assert accuracy(got.model, x, y) > 0.9
    assert got.privacy.status == "seeded (not private)"


def test_without_noise_and_clipping_it_is_ordinary_gradient_descent():
    x, y = blobs(30)
    got = trainer(
        epsilon=math.inf,
        batch_size=30,
        steps=5,
        clip_norm=1e6,
        learning_rate=0.2,
        schedule="constant",
        optimizer_options={"momentum": 0.5},
        weight_decay=0.01,
    ).fit(x, y)
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), 0.2, momentum=0.5)
    for _ in range(5):
        optimizer.zero_grad()
        LOSS(model(x), y).backward()
        with torch.no_grad():  # decoupled decay, outside the momentum
            shrunk = [0.2 * 0.01 * p.clone() for p in model.parameters()]
        optimizer.step()
        with torch.no_grad():
            for p, s in zip(model.parameters(), shrunk, strict=True):
                p -= s
    for p, q in zip(got.model.parameters(), model.parameters(), strict=True):
        assert torch.allclose(p, q, atol=2e-5)


def test_the_sparse_network_is_sparse_also_when_averaged():
    x, y = blobs()
    for average in (0.0, 0.7):
        got = trainer(projection=HardThreshold(20, after=0.5), average=average).fit(x, y)
        assert 0 < sum(int(p.count_nonzero()) for p in got.model.parameters()) <= 20


@pytest.mark.parametrize("device_noise", [False, True])
def test_the_report_says_where_the_noise_was_made(device_noise):
    got = trainer(device_noise=device_noise).fit(*blobs())
    assert (ON_DEVICE in got.privacy.notes) is device_noise
    assert "operating system" in got.privacy.noise_source
    assert got.privacy.is_private


def test_micro_batches_change_neither_plan_nor_result():
    x, y = blobs()
    runs = []
    for chunk in (3, 120):
        with seeded_noise_not_private(1):
            runs.append(trainer(chunk_size=chunk).fit(x, y))
    first, second = runs
    assert first.privacy == second.privacy
    for p, q in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.allclose(p, q, atol=1e-4)


# ---------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("layer", "suggestion"),
    [
        (nn.BatchNorm1d(8), r"GroupNorm\(2, 8\)"),
        (nn.SyncBatchNorm(6), "GroupNorm"),
        (nn.InstanceNorm1d(8, track_running_stats=True), "track_running_stats=False"),
        (nn.Embedding(4, 3, scale_grad_by_freq=True), "scale_grad_by_freq=False"),
        (nn.Embedding(4, 3, max_norm=1.0), "max_norm=None"),
    ],
)
def test_layers_that_mix_records_are_refused_by_name(layer, suggestion):
    model = nn.Sequential(nn.Linear(6, 8), nn.Sequential(nn.Tanh(), layer), nn.Linear(8, 3))
    with pytest.raises(UnsupportedError, match=suggestion) as caught:
        trainer(model).fit(*blobs())
    assert "'1.1'" in str(caught.value)
    assert type(layer).__name__ in str(caught.value)


def test_batch_norm_can_be_replaced():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    assert trainer(replace_batch_norm(model)).fit(*blobs()).steps == 12
    assert isinstance(model[1], nn.BatchNorm1d)


class Centred(nn.Module):
    """Mixes records without a layer that says so."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(x - x.mean(dim=0))


def test_a_model_that_ghost_clipping_would_get_wrong_goes_to_vmap():
    x, y = blobs(5)
    network = Network(Centred(), LOSS)
    with pytest.warns(SlowEngineWarning, match=r"'head.weight'.*engine='vmap'"):
        assert make_engine(network, x, y).method == "vmap"
    with pytest.raises(UnsupportedError, match="vmap"):
        make_engine(network, x, y, "ghost")


def test_a_model_that_cannot_be_differentiated_fails_before_anything_is_spent(spy):
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            return self.head(x) if x.sum().item() > 0 else self.head(-x)

    with pytest.raises(UnsupportedError, match=r"Branching, Linear.*item"):
        trainer(Branching(), engine="vmap").fit(*blobs())
    assert spy == []


def test_a_device_without_float64_is_refused(monkeypatch):
    monkeypatch.setattr(Network, "device", torch.device("mps"))
    with pytest.raises(UnsupportedError, match="'cpu' or 'cuda'"):
        make_engine(Network(perceptron(), LOSS), *blobs(5))


def test_dropout_is_trained_with():
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    network = Network(model, LOSS)
    x, y = blobs(5)
    assert make_engine(network, x, y).method == "ghost"
    assert network.model[1].training
    assert trainer(model, engine="vmap").fit(*blobs()).steps == 12


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"optimizer": "lbfgs"}, "optimizer"),
        ({"engine": "magic"}, "engine"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"steps": None, "epochs": 0}, "epochs"),
        ({"batch_size": 0}, "batch"),
        ({"chunk_size": -3}, "chunk"),
        ({"average": 1.0}, "average"),
        ({"relation": "swap"}, "relation"),
        ({"optimizer": "srm", "optimizer_options": {"gamma": 0.0}}, "gamma"),
    ],
)
def test_settings_outside_their_bounds_are_refused_before_anything_is_spent(settings, word, spy):
    with pytest.raises(InvalidInputError, match=word):
        trainer(**settings).fit(*blobs())
    assert spy == []


def test_records_that_are_not_numbers_are_refused_without_being_quoted():
    x, y = blobs()
    x[3, 2] = float("nan")
    with pytest.raises(InvalidInputError, match="finite inputs"):
        trainer().fit(x, y)
    with pytest.raises(InvalidInputError, match="same length"):
        trainer().fit(x, y[:-1])


def test_a_model_without_trainable_parameters_is_refused():
    model = perceptron()
    for p in model.parameters():
        p.requires_grad_(False)
    with pytest.raises(InvalidInputError, match="trainable"):
        trainer(model).fit(*blobs())


# ------------------------------------------------------------------------------ a loop of one's own


class Pairs(torch.utils.data.Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], int(self.y[i])


@pytest.mark.parametrize("kind", ["tensors", "dataset", "loader", "tensor-dataset"])
def test_a_loop_with_an_ordinary_optimiser_is_private(kind, spy):
    x, y = blobs(300)
    data = {
        "tensors": (x, y),
        "dataset": Pairs(x, y),
        "loader": torch.utils.data.DataLoader(Pairs(x, y), batch_size=7, shuffle=True),
        "tensor-dataset": torch.utils.data.TensorDataset(x, y),
    }[kind]
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    steps = make_private(model, LOSS, data, epsilon=math.inf, steps=15, batch_size=100)
    for _ in steps:
        optimizer.step()
    assert len(spy) == len(steps) == 15
    assert accuracy(model, x, y) > 0.9


def test_a_loop_cannot_be_run_twice():
    x, y = blobs()
    steps = reading(make_private(perceptron(), LOSS, (x, y), epsilon=3.0, steps=2, batch_size=30))
    assert list(steps) == [0, 1]
    assert 0.99 * 3 < steps.privacy.epsilon <= 3
    with pytest.raises(PlanSpentError):
        next(iter(steps))


def test_a_loop_that_stops_early_stays_spent(tmp_path):
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.create("toy", BudgetPolicy(epsilon=5.0, delta=1e-3))
    steps = make_private(
        perceptron(), LOSS, blobs(), epsilon=3.0, delta=1e-4, steps=5, ledger=ledger, dataset_id="toy"
    )
    running = iter(steps)
    next(running)
    running.close()
    assert ledger.history("toy")[0].status == "failed"
    assert ledger.spent("toy").epsilon >= 2.9


# ------------------------------------------------------------------------------------- compiled


def test_a_traced_step_gives_the_same_sum():
    from sordino.nn.compiled import CompiledEngine

    x, y = blobs(9)
    network = Network(perceptron(), LOSS)
    for method in ("ghost", "vmap"):
        engine = make_engine(network, x, y, method)
        traced = CompiledEngine(engine, 12, backend="eager")
        for count in (9, 4):
            want = engine.clipped_sum(network.flat(), x[:count], y[:count], 0.3)
            got = traced.clipped_sum(network.flat(), x[:count], y[:count], 0.3)
            assert torch.allclose(got, want, atol=1e-6)


def test_a_traced_step_is_traced_again_for_coarser_products():
    from sordino.nn.compiled import CompiledEngine

    x, y = blobs(4)
    network = Network(perceptron(), LOSS)
    engine = CompiledEngine(make_engine(network, x, y), 4, backend="eager")
    before = torch.get_float32_matmul_precision()
    fine = engine.clipped_sum(network.flat(), x[:1], y[:1], 1e-3)
    try:
        torch.set_float32_matmul_precision("medium")
        coarse = engine.clipped_sum(network.flat(), x[:1], y[:1], 1e-3)
    finally:
        torch.set_float32_matmul_precision(before)
    assert float(coarse.norm()) < 0.995 * float(fine.norm())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_loop_cannot_release_what_its_parent_paid_for():
    import os

    loop = iter(reading(make_private(perceptron(), LOSS, blobs(), epsilon=3.0, steps=3, batch_size=30)))
    next(loop)
    child = os.fork()
    if child == 0:
        try:
            next(loop)
        except PlanSpentError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert list(loop) == [1, 2]


def test_what_the_loss_says_of_a_record_is_not_shown():
    x, y = blobs()
    y = torch.where(y == y.max(), 4711, y)
    with pytest.raises(InvalidInputError, match="fails on some records") as caught:
        trainer().fit(x, y)
    assert "4711" not in f"{caught.value} {caught.value.__context__} {caught.value.__cause__}"


def test_a_unit_that_is_not_a_record_is_an_assumption_of_the_report():
    got = trainer(unit="person").fit(*blobs())
    assert "each person is one record of the data" in got.privacy.public


class Streamed(torch.utils.data.IterableDataset):
    def __len__(self):
        return 120

    def __iter__(self):
        return iter(zip(*blobs(), strict=True))


def test_lazy_models_and_streams_are_refused_with_a_remedy():
    with pytest.raises(InvalidInputError, match="lazy"):
        trainer(nn.Sequential(nn.LazyLinear(3))).fit(*blobs())
    with pytest.raises(InvalidInputError, match="read a stream into a list"):
        trainer().fit(Streamed())
