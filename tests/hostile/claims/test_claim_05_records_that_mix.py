"""Claim 5: layers, buffers and collate functions that mix records passed (changes 12.7, 223 and 235)."""

import pytest
import torch
from torch import nn

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.nn import Trainer
from sordino.nn.choose import make_engine
from sordino.nn.data import source_of
from sordino.nn.network import Network


class Tokens(nn.Module):
    """A batch norm of one's own behind an embedding."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(20, 4), nn.Linear(4, 3)

    def forward(self, x):
        x = self.words(x).mean(dim=1)
        return self.head((x - x.mean(dim=0)) / (x.var(dim=0, unbiased=False) + 1e-5).sqrt())


class Memory(nn.Module):
    """Remembers, slowly, in a buffer or in an attribute that nobody sees."""

    def __init__(self, hidden):
        super().__init__()
        self.head = nn.Linear(6, 3)
        self.hidden = hidden
        if hidden:
            self.seen = [torch.zeros(6)]
        else:
            self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        mean = self.seen[0] if self.hidden else self.mean
        mean.mul_(0.9999).add_(0.0001 * x.detach().mean(dim=0))
        return self.head(x - mean)


def test_a_batch_norm_of_ones_own_on_tokens_is_not_left_to_ghost_norms():
    x, y = torch.zeros(1, 8, dtype=torch.long), torch.zeros(1, dtype=torch.long)
    network = Network(Tokens(), nn.CrossEntropyLoss())
    assert make_engine(network, x, y).method == "vmap"
    with pytest.raises(UnsupportedError, match="mixes"):
        make_engine(network, x, y, "ghost")


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("method", ["auto", "ghost", "vmap"])
def test_a_model_that_remembers_records_is_refused(method, hidden):
    trainer = Trainer(Memory(hidden), nn.CrossEntropyLoss(), epsilon=3.0, steps=2, engine=method)
    with pytest.raises(UnsupportedError, match="remembers"):
        trainer.fit(torch.randn(40, 6), torch.zeros(40, dtype=torch.long))


def centred(items):
    x = torch.stack([item[0] for item in items])
    return x - x.mean(dim=0), torch.tensor([item[1] for item in items])


def padded(items):
    return torch.nn.utils.rnn.pad_sequence([i[0] for i in items], True), torch.zeros(len(items))


def loader(items, collate):
    return source_of(torch.utils.data.DataLoader(items, collate_fn=collate)).executor


def test_a_collate_function_sees_one_record_at_a_time():
    items = [(torch.randn(3), 0) for _ in range(5)]
    whole, _ = loader(items, centred)(torch.device("cpu"), 8, False).batch(None)
    assert torch.equal(whole, torch.zeros(5, 3))  # each record minus itself: nothing of the others


def test_records_of_different_lengths_are_refused_with_the_remedy():
    items = [(torch.ones(3), 0), (torch.ones(5), 0)]
    with pytest.raises(InvalidInputError, match="Pad to a public length"):
        loader(items, padded)(torch.device("cpu"), 8, False).batch(None)
