"""Recurrent layers have rules: gradients are those of single records, and nothing goes by vmap."""

import warnings

import pytest
import torch
from torch import nn

from sordino.nn import Trainer
from sordino.nn.engine_choice import engine_notes, make_engine
from sordino.nn.engines import GhostEngine
from sordino.nn.network import Network
from sordino.nn.recurrent import by_rule

torch.set_num_threads(1)
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]
LAYERS = {
    "lstm": (nn.LSTM, {}),
    "lstm, two layers, both ways": (nn.LSTM, {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    "lstm without biases": (nn.LSTM, {"bias": False, "batch_first": True}),
    "gru": (nn.GRU, {"batch_first": True}),
    "gru, two layers, both ways": (nn.GRU, {"num_layers": 2, "bidirectional": True}),
    "tanh": (nn.RNN, {"batch_first": True, "num_layers": 2}),
    "relu": (nn.RNN, {"batch_first": True, "nonlinearity": "relu", "bidirectional": True}),
}


class Reader(nn.Module):
    """Words, a recurrent layer that starts at a learned state, a head that sees outputs and last states."""

    def __init__(self, kind, options, started=True):
        super().__init__()
        self.words, self.layer = nn.Embedding(11, 6), kind(6, 5, **options)
        ways = 1 + self.layer.bidirectional
        self.start = nn.Parameter(0.3 * torch.randn(self.layer.num_layers * ways, 1, 5)) if started else None
        self.head = nn.Linear(5 * ways + (10 if kind is nn.LSTM else 5), 3)

    def forward(self, x):
        h = self.words(x) if self.layer.batch_first else self.words(x).transpose(0, 1)
        start = None
        if self.start is not None:
            start = self.start.expand(-1, len(x), -1).contiguous()
            start = (start, start.sin()) if isinstance(self.layer, nn.LSTM) else start
        out, last = self.layer(h, start)
        last = torch.cat([state[-1] for state in last], 1) if isinstance(last, tuple) else last[-1]
        return self.head(torch.cat([out.mean(1 if self.layer.batch_first else 0), last], 1))


class Cells(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.words, self.cell, self.head = nn.Embedding(11, 6), kind(6, 5), nn.Linear(5, 3)

    def forward(self, x):
        state = None
        for word in self.words(x).unbind(1):
            state = self.cell(word, state)
        return self.head(state[0] if isinstance(state, tuple) else state)


class Packed(nn.Module):
    """Records of their own lengths, packed; a head that sees outputs at all places and the last states."""

    def __init__(self, kind, options):
        super().__init__()
        self.words, self.layer = nn.Embedding(11, 6), kind(6, 5, batch_first=True, **options)
        self.head = nn.Linear(15 * (1 + self.layer.bidirectional), 3)

    def forward(self, x):
        lengths = (x > 3).sum(1).clamp(min=1).cpu()
        rows = nn.utils.rnn.pack_padded_sequence(self.words(x), lengths, True, enforce_sorted=False)
        packed, last = self.layer(rows)
        out, _ = nn.utils.rnn.pad_packed_sequence(packed, True, total_length=x.shape[1])
        last = sum(last) if isinstance(last, tuple) else last
        ends = last[-1 - self.layer.bidirectional :].transpose(0, 1).flatten(1)
        return self.head(torch.cat([out.sum(1), out.amax(1), ends], 1))


def rows_alone(network, vector, x, y):
    leaf = vector.clone().requires_grad_()
    losses = [network.loss_of_one(leaf, a, b) for a, b in zip(x, y, strict=True)]
    return torch.stack([torch.autograd.grad(loss, leaf)[0] for loss in losses])


def checked(model, device):
    network = Network(model.to(device), nn.CrossEntropyLoss())
    x, y = torch.randint(0, 11, (4, 7), device=device), torch.randint(0, 3, (4,), device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine = make_engine(network, x[:1], y[:1], "auto", 16)
    assert type(engine) is GhostEngine
    assert engine_notes(engine) == ("gradients by ghost",)
    vector = network.flat() + 0.05 * torch.randn(network.size, device=device)
    want, reach = rows_alone(network, vector, x, y), 1e-5 if device == "cpu" else 3e-3
    assert float((engine.per_record(vector, x, y) - want).norm()) <= reach * float(want.norm())
    clip = float(want.norm(dim=1).median())
    total, factors = engine.clipped(vector, x, y, clip)
    assert float((factors[:, None] * want).norm(dim=1).max()) <= clip * (1 + reach)
    assert float((total - (factors[:, None] * want).sum(0)).norm()) <= 4 * reach * clip


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_records_are_those_of_records_alone(name, started, device):
    torch.manual_seed(0)
    checked(Reader(*LAYERS[name], started), device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_packed_sequences_have_rules_and_each_record_its_own_length(kind, options, device):
    torch.manual_seed(0)
    model = Packed(kind, options)
    checked(model, device)
    assert "forward" not in vars(model.layer)


def test_a_packed_sequence_that_starts_at_given_states_is_torchs_own():
    torch.manual_seed(0)
    layer, start = nn.LSTM(6, 5, bidirectional=True), (torch.randn(2, 4, 5), torch.randn(2, 4, 5))
    rows = nn.utils.rnn.pack_padded_sequence(torch.randn(7, 4, 6), [3, 7, 1, 5], enforce_sorted=False)
    want = layer(rows, start)
    with by_rule(layer)():
        got = layer(rows, start)
    for a, b in zip((got[0].data, *got[1]), (want[0].data, *want[1]), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells_in_a_loop_of_ones_own(kind, device):
    torch.manual_seed(0)
    checked(Cells(kind), device)


def test_a_recurrent_network_is_trained_with_its_dropout_and_in_half_precision():
    torch.manual_seed(0)
    x, y = torch.randint(0, 11, (80, 7)), torch.randint(0, 3, (80,))
    model = Reader(nn.LSTM, {"num_layers": 2, "dropout": 0.5, "batch_first": True}, False)
    for precision in (torch.float32, torch.bfloat16):
        settings = {"epsilon": 5.0, "delta": 1e-4, "steps": 3, "batch_size": 20, "precision": precision}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            trained = Trainer(model, nn.CrossEntropyLoss(), **settings).fit(x, y)
        assert "gradients by ghost" in trained.privacy.notes
