"""Networks, collate functions and forgers for the tests of the false claims about training."""

import numpy as np
import pytest
import torch
from torch import nn

RUN = {"epsilon": 1.0, "delta": 1e-4, "steps": 4, "batch_size": 30, "checkpoint_every": 1}
# Layer, inputs, slopes and clip: each square of a slope underflows in float32.
UNDERFLOW = {
    "wide": (
        lambda: nn.Linear(1024, 4096, bias=False),
        ((1, 100, 1024), 5.5e17),
        ((1, 100, 4096), 2.6e-23),
        1.0,
    ),
    "two features": (lambda: nn.Linear(2, 1), ((1, 2), 1.2e19), ((1, 1), 2.3e-23), 1e-5),
}


def inner(outputs, wanted):
    """Return a loss whose slopes are the targets."""
    return (outputs * wanted).sum()


def added(engine, layer, x, targets, clip=1.0):
    """Return the norm of what one record adds to a clipped sum."""
    from sordino.nn.network import Network

    network = Network(layer, inner)
    return float(engine(network).clipped_sum(network.flat(), x, targets, clip).double().norm())


def most_of_opposite_positions(width, draws=500):
    """Return the most that a record of two nearly opposite positions adds: their Gram products cancel."""
    from sordino.nn.engines import GhostEngine

    layer, generator, most = nn.Linear(width, 8, bias=False), torch.Generator().manual_seed(0), 0.0
    for value, step, scale in torch.rand(draws, 3, generator=generator).tolist():
        first = torch.full((width,), 1 + value)
        x = torch.stack([first, -first * (1 + 10 ** (-2 - 4 * step))])[None] * 10 ** (5 * scale)
        most = max(most, added(GhostEngine, layer, x, torch.ones(1, 2, 8)))
    return most


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


class Scale(nn.Module):
    """A layer that no rule is written for."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.linspace(-1.0, 1.0, 5))

    def forward(self, x):
        return x * self.factor.exp()


def collated(items, collate):
    """Return the records of a loader with a collate function, as the executor hands them out."""
    from sordino.nn.data import source_of

    data = torch.utils.data.Subset(items, range(len(items)))  # a data set that is no list
    made = source_of(torch.utils.data.DataLoader(data, collate_fn=collate)).executor
    return made(torch.device("cpu"), 8, False).batch(np.arange(len(items)))


def centred(items):
    """Look at the whole batch: subtract its mean."""
    x = torch.stack([item[0] for item in items])
    return x - x.mean(dim=0), torch.tensor([item[1] for item in items])


def stopped(monkeypatch, trainer, data):
    """Train until the first checkpoint and crash there."""
    with monkeypatch.context() as patch:
        patch.setattr("sordino.nn.session.Session.due", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            trainer.fit(*data)


def forge(trainer, data, change):
    """Change the noise of a checkpoint and every hash of it, also in its journal, as a forger would."""
    content = torch.load(trainer.checkpoint, weights_only=True)
    saved = content.get("run", content)
    for name, honest in saved["multipliers"].items():
        saved["multipliers"][name] = change * honest
        if "report" in saved:
            saved["report"] = saved["report"].replace(repr(honest), repr(change * honest))
    if "digest" in saved:
        _forge_hashes(trainer, data, saved)
    torch.save(content, trainer.checkpoint)


def _forge_hashes(trainer, data, saved):
    from sordino.nn.data import source_of
    from sordino.runs.promise import at_multipliers, digest_of

    run = trainer._prepare(source_of(data))
    honest = saved["digest"]
    saved["digest"] = digest_of(at_multipliers(run.solver.plan(run.task), saved["multipliers"]))
    journal = trainer.checkpoint.with_name("run.journal")
    journal.write_text(journal.read_text().replace(honest, saved["digest"]))


def closure(model, loss, x, y):
    """Return what an optimiser like LBFGS asks for: a backward pass on the data."""

    def call():
        value = loss(model(x), y)
        value.backward()
        return value

    return call
