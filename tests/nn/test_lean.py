"""Two backward passes give the clipped sum of one, and hold no slope longer than it is used."""

import weakref

import pytest
import torch
from tests.nn.test_operations import MODELS, apart, made, trainable
from torch import nn

from sordino.errors import InvalidInputError
from sordino.nn import Trainer, engine_choice, engines, ghosts
from sordino.nn import compiled as lean
from sordino.nn.compiled import LeanEngine
from sordino.nn.engine_choice import make_engine
from sordino.nn.engines import GhostEngine
from sordino.nn.network import Network, quiet_dropout

torch.set_num_threads(1)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("formed", [False, True])
def test_every_operation_agrees_with_float64(name, formed, monkeypatch):
    monkeypatch.setattr(ghosts, "_direct_pays", lambda found: formed and not isinstance(found, ghosts.Table))
    network, vector, x, y = made(name)
    trainable(network)
    error, share = apart(LeanEngine(network), vector, x, y)
    assert error <= 1e-4
    assert 0.999 <= share <= 1.0


@pytest.mark.parametrize("name", MODELS)
def test_the_sum_and_the_factors_are_those_of_one_pass(name):
    network, vector, x, y = made(name, 6)
    with quiet_dropout(network.model):
        want, factors = GhostEngine(network).clipped(vector, x, y, 0.2)
        got, again = LeanEngine(network).clipped(vector, x, y, 0.2)
    assert torch.allclose(again, factors, rtol=1e-6)
    assert float((got - want).norm()) <= 1e-6 * len(x)


def test_persons_are_clipped_whole():
    network, vector, x, y = made("encoder", 6)
    present = torch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    with quiet_dropout(network.model):
        want = GhostEngine(network).clipped_sum(vector, x, y, 0.2, present)
        got = LeanEngine(network).clipped_sum(vector, x, y, 0.2, present)
    assert float((got - want).norm()) <= 1e-6


def test_a_parameter_without_a_rule_is_clipped_with_the_others():
    class Distances(nn.Module):
        def __init__(self):
            super().__init__()
            self.centres, self.head = nn.Parameter(torch.randn(3, 4)), nn.Linear(3, 3)

        def forward(self, x):
            return self.head(torch.cdist(x, self.centres))

    network = Network(Distances(), nn.CrossEntropyLoss())
    x, y = torch.randn(5, 4), torch.arange(5) % 3
    want = GhostEngine(network).clipped_sum(network.flat(), x, y, 0.2)
    assert torch.allclose(LeanEngine(network).clipped_sum(network.flat(), x, y, 0.2), want, atol=1e-6)


def alive_at_most(monkeypatch, engine, room):
    """How many slopes are held at once while a sum is made."""
    network, vector, x, y = made("encoder", 6)
    real, held, most = room.found_at, [], [0]

    def watched(graph, use, kept, slope, batch):
        held.append(weakref.ref(slope))
        most[0] = max(most[0], len({id(ref()) for ref in held if ref() is not None}))
        return real(graph, use, kept, slope, batch)

    engine(network).clipped_sum(vector, x, y, 0.2)
    monkeypatch.setattr(room, "found_at", watched)
    engine(network).clipped_sum(vector, x, y, 0.2)
    return most[0]


def test_slopes_are_let_go_as_soon_as_they_were_used(monkeypatch):
    assert alive_at_most(monkeypatch, LeanEngine, lean) <= 4
    assert alive_at_most(monkeypatch, GhostEngine, engines) > 12


def test_stale_factors_would_be_noticed(monkeypatch):
    """The twin takes the norms of one pass and the slopes of another batch."""
    network, vector, x, y = made("encoder")
    trainable(network)
    real = lean._weighted
    monkeypatch.setattr(lean, "_weighted", lambda graph, piece, factors: real(graph, piece, factors.flip(0)))
    assert apart(LeanEngine(network), vector, x, y)[0] > 1e-3


def test_a_run_in_little_memory_says_so():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    settings = {"epsilon": 3.0, "delta": 1e-5, "steps": 2, "batch_size": 20, "engine": "lean"}
    trained = Trainer(model, nn.CrossEntropyLoss(), **settings).fit(torch.randn(60, 6), torch.arange(60) % 3)
    assert any("two backward passes" in note for note in trained.privacy.notes)


SMALL = torch.zeros(2, 6), torch.zeros(2, dtype=torch.long)


def small():
    return Network(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), nn.CrossEntropyLoss())


def test_memory_that_is_nearly_full_is_spared(monkeypatch):
    for used, kind in ((0.5, GhostEngine), (0.9, LeanEngine)):
        monkeypatch.setattr(engine_choice, "_peak", lambda device, action, used=used: action() or used)
        assert type(make_engine(small(), *SMALL)) is kind
        assert type(make_engine(small(), *SMALL, "ghost")) is GhostEngine


@pytest.mark.parametrize("kinds", [(GhostEngine,), (GhostEngine, LeanEngine)])
def test_records_that_do_not_fit_are_spared_or_refused_with_the_remedy(monkeypatch, kinds):
    real = engine_choice._check_many

    def short(engine, *rest):
        if type(engine) in kinds:
            raise torch.OutOfMemoryError("no room")
        real(engine, *rest)

    monkeypatch.setattr(engine_choice, "_check_many", short)
    if LeanEngine in kinds:
        with pytest.raises(InvalidInputError, match="chunk_size"):
            make_engine(small(), *SMALL)
    else:
        assert type(make_engine(small(), *SMALL)) is LeanEngine
    with pytest.raises(torch.OutOfMemoryError):
        make_engine(small(), *SMALL, "ghost")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with CUDA")
def test_two_passes_take_hardly_more_memory_than_a_plain_step():
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.Flatten())
    network = Network(model.cuda(), lambda outputs, targets: outputs.square().mean())
    x, y = torch.randn(64, 128, 256).cuda(), torch.zeros(64).cuda()
    peaks, vector = [], network.flat()
    for engine, ways in (
        (GhostEngine(network), ("whole", "clipped_sum")),
        (LeanEngine(network), ("clipped_sum",)),
    ):
        for way in ways:
            for _ in range(2):
                torch.cuda.reset_peak_memory_stats()
                getattr(engine, way)(vector, x, y, *((1.0,) if way == "clipped_sum" else ()))
            peaks.append(torch.cuda.max_memory_allocated())
    assert peaks[1] <= 2 * peaks[0]
    assert peaks[2] <= 1.3 * peaks[0]
