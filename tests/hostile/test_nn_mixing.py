"""Models that mix the records of a batch, or remember them, do not pass the check on made-up records."""

import pytest
import torch
from tests.hostile.claims_nn import Memory, Tokens, collated
from torch import nn

from sordino.errors import InvalidInputError, SlowEngineWarning, UnsupportedError
from sordino.nn import Trainer
from sordino.nn import network as made_up
from sordino.nn.engine_choice import make_engine
from sordino.nn.entrance import check_stateless
from sordino.nn.network import Network

MIXERS = {
    "batch norm": lambda h: (h - h.mean(dim=0)) / (h.var(dim=0, unbiased=False) + 1e-5).sqrt(),
    "softmax over records": lambda h: h * torch.softmax(h, dim=0),
    "running sum": lambda h: torch.cumsum(h, dim=0),
    "neighbour": lambda h: h + 0.1 * h.roll(1, dims=0),
    "largest": lambda h: h - h.amax(dim=0),
    "only in large batches": lambda h: h - h.mean(dim=0) if len(h) > 4 else h,
    "only in the batches of the run": lambda h: h - h.mean(dim=0) if len(h) > 8 else h,
    "only the last of many": lambda h: torch.where(torch.arange(len(h))[:, None] < 20, h, 0.0),
    "only large numbers": lambda h: h + torch.relu(h.abs() - 5.0).mean(dim=0),
}


class Mixing(nn.Module):
    def __init__(self, mix, words):
        super().__init__()
        self.mix = mix
        self.inner = nn.Embedding(20, 4) if words else nn.Linear(4, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        h = self.inner(x)
        return self.head(self.mix(8 * (h.mean(dim=1) if h.dim() == 3 else h)))


def example(words, length):
    x = torch.zeros(1, length, dtype=torch.long) if words else torch.zeros(1, 4)
    return x, torch.zeros(1, dtype=torch.long)


# embeddings start near one: nothing is large there
CASES = [(mixer, True, length) for mixer in MIXERS for length in (1, 8, 9) if mixer != "only large numbers"]


@pytest.mark.parametrize(("mixer", "words", "length"), CASES + [(mixer, False, 4) for mixer in MIXERS])
def test_a_model_that_mixes_records_is_not_left_to_ghost_norms(mixer, words, length):
    torch.manual_seed(0)
    network = Network(Mixing(MIXERS[mixer], words), nn.CrossEntropyLoss())
    with pytest.raises(UnsupportedError):
        make_engine(network, *example(words, length), "ghost")


def test_rows_that_are_all_alike_do_not_hide_the_mixing(monkeypatch):
    """The made-up records of before, words 0 and 1 in turn, of one class, hid it: sums of parts do not."""

    def alike(like, count, size, words, public):
        shape = (count, *like.shape[1:])
        if like.dim() == 1:
            return torch.zeros(shape, dtype=like.dtype)
        return (torch.arange(torch.Size(shape).numel()).reshape(shape) % 2).to(like.dtype)

    network = Network(Mixing(MIXERS["batch norm"], True), nn.CrossEntropyLoss())
    for drawn in (alike, made_up._draw):
        monkeypatch.setattr(made_up, "_draw", drawn)
        with pytest.warns(SlowEngineWarning, match="mixes records"):
            assert make_engine(network, *example(True, 8)).method == "vmap"


class Remembering(nn.Module):
    """Keeps something of the records it sees, by one of many ways."""

    def __init__(self, how):
        super().__init__()
        self.how, self.head = how, nn.Linear(4, 3)
        self.register_buffer("mean", torch.zeros(4))
        self.plain, self.number, self.seen = torch.zeros(4), 0.0, []
        self.holder = type("Holder", (), {"value": torch.zeros(4)})()

    def forward(self, x):
        batch = x.detach().mean(dim=0)
        if self.how == "buffer":
            self.mean.mul_(0.99999).add_(1e-5 * batch)
        elif self.how == "attribute":
            self.plain = self.plain + 1e-5 * batch
        elif self.how == "number":
            self.number += float(batch.sum())
        elif self.how == "list":
            self.seen.append(batch)
        elif self.how == "parameter":
            self.head.weight.data.mul_(1 + 1e-4 * batch.sum())
        elif self.how == "object":
            self.holder.value = self.holder.value + batch
        elif self.how == "autograd" and torch.is_grad_enabled():
            self.plain = batch
        out = self.head(x - self.mean - self.plain - self.holder.value)
        if self.how == "backward" and out.requires_grad:
            out.register_hook(self.note)
        return out

    def note(self, slope):
        self.number = float(slope.square().sum())


@pytest.mark.parametrize(
    "how", ["buffer", "attribute", "number", "list", "parameter", "object", "autograd", "backward"]
)
def test_a_model_that_remembers_is_refused(how):
    network = Network(Remembering(how), nn.CrossEntropyLoss())
    with pytest.raises(UnsupportedError, match="remembers"):
        check_stateless(network, torch.randn(4, 4), torch.zeros(4, dtype=torch.long))


class Balanced(nn.Module):
    """A loss that remembers the classes it has seen."""

    def __init__(self):
        super().__init__()
        self.register_buffer("counts", torch.ones(3))

    def forward(self, outputs, targets):
        self.counts += torch.nn.functional.one_hot(targets, 3).sum(dim=0)
        return nn.functional.cross_entropy(outputs, targets, 1 / self.counts)


def test_a_loss_that_remembers_is_refused():
    network = Network(nn.Linear(4, 3), Balanced())
    with pytest.raises(UnsupportedError, match="loss"):
        check_stateless(network, torch.randn(4, 4), torch.zeros(4, dtype=torch.long))


class Cached(nn.Module):
    """Makes its mask at the first call: a constant, not a memory."""

    def __init__(self):
        super().__init__()
        self.head, self.mask = nn.Linear(4, 3), None

    def forward(self, x):
        self.mask = torch.ones(x.shape[1]) if self.mask is None else self.mask
        return self.head(nn.functional.dropout(x * self.mask, 0.0))


def test_a_constant_that_is_made_at_the_first_call_is_allowed():
    engine = make_engine(Network(Cached(), nn.CrossEntropyLoss()), *example(False, 4))
    assert engine.method == "ghost"


def test_a_batch_norm_of_ones_own_on_tokens_is_left_to_vmap():
    network = Network(Tokens(), nn.CrossEntropyLoss())
    with pytest.warns(SlowEngineWarning):
        assert make_engine(network, *example(True, 8)).method == "vmap"


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("engine", ["auto", "ghost", "vmap"])
def test_training_refuses_a_model_that_remembers_records(engine, hidden):
    trainer = Trainer(Memory(hidden), nn.CrossEntropyLoss(), epsilon=3.0, steps=2, engine=engine)
    with pytest.raises(UnsupportedError, match="remembers"):
        trainer.fit(torch.randn(40, 6), torch.zeros(40, dtype=torch.long))


def padded(items):
    return torch.nn.utils.rnn.pad_sequence([i[0] for i in items], True), torch.zeros(len(items))


def test_records_of_different_lengths_are_refused_with_the_remedy():
    with pytest.raises(InvalidInputError, match="Pad to a public length"):
        collated([(torch.ones(3), 0), (torch.ones(5), 0)], padded)
