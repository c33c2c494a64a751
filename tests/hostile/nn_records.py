"""Layers and records made to break a clip: huge, tiny, cancelling, tied, not numbers."""

import torch
from hypothesis import strategies as st
from torch import nn

from sordino.nn.compiled import CompiledEngine
from sordino.nn.engines import GhostEngine, VmapEngine
from sordino.nn.network import Network
from sordino.nn.queries import finite_sum

torch.set_num_threads(1)


class Scale(nn.Module):
    """A layer without a rule."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.linspace(-1.0, 1.0, 12))

    def forward(self, x):
        return x * self.factor.exp()


class Twice(nn.Module):
    """The same layer used twice, so that its gradients may cancel."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(12, 12)

    def forward(self, x):
        return self.inner(x[:, 0]) - self.inner(x[:, 1])


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(12, 12), nn.Linear(12, 12)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x))


# name -> (layer, shape of a record, shape of its slopes)
LAYERS = {
    "linear": (lambda: nn.Linear(12, 7), (12,), (7,)),
    "positions": (lambda: nn.Linear(768, 8, bias=False), (2, 768), (2, 8)),
    "positions-bias": (lambda: nn.Linear(130, 90), (4, 130), (4, 90)),
    "conv1d": (lambda: nn.Conv1d(40, 60, 3), (40, 4), (60, 2)),
    "conv2d": (lambda: nn.Conv2d(64, 32, 1), (64, 2, 1), (32, 2, 1)),
    "grouped": (lambda: nn.Conv2d(64, 64, 1, groups=2), (64, 2, 1), (64, 2, 1)),
    "embedding": (lambda: nn.Embedding(3, 12), "words", (6, 12)),
    "norm": (lambda: nn.LayerNorm(12), (3, 12), (3, 12)),
    "opaque": (Scale, (3, 12), (3, 12)),
    "twice": (Twice, (2, 12), (12,)),
    "tied": (Tied, (12,), (12,)),
}


def network_of(name):
    torch.manual_seed(1)
    network = Network(LAYERS[name][0](), lambda outputs, slopes: (outputs * slopes).sum())
    return network, network.flat()


def engine_of(method, network, batch):
    if method == "compiled":
        return CompiledEngine(GhostEngine(network), batch, backend="eager")
    return {"ghost": GhostEngine, "vmap": VmapEngine}[method](network)


def total(engine, vector, x, slopes, clip):
    """What is released, before its noise, as a float64 vector."""
    return finite_sum(lambda a, b: engine.clipped_sum(vector, a, b, clip), x, slopes).double()


# between one and two, with all their digits: round numbers add up without rounding
VALUES = st.integers(0, 10**6).map(lambda k: 1 + k / 1000003)
PATTERNS = ("ties", "opposite", "normal", "mixed", "broken")


@st.composite
def arrays(draw, shape, exponent, patterns=PATTERNS):
    """One record: a pattern, a magnitude, and sometimes numbers that are none."""
    pattern, scale = draw(st.sampled_from(patterns)), 10.0**exponent
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    normal = torch.randn(shape, generator=generator)
    if pattern == "ties":
        return torch.full(shape, draw(VALUES)) * scale
    if pattern == "opposite":  # two halves of the places
        value, step = draw(VALUES), 10.0 ** draw(st.floats(-7.5, -3.0))
        signs = torch.ones(shape)
        axis = 0 if len(shape) == 2 else min(1, len(shape) - 1)
        signs.narrow(axis, 0, shape[axis] // 2).mul_(-1 - step)
        return signs * value * scale
    if pattern == "mixed":
        return normal * 10.0 ** torch.empty(shape).uniform_(-45.0, 38.0, generator=generator)
    if pattern == "broken":
        normal.reshape(-1)[0] = draw(st.sampled_from([float("nan"), float("inf"), 3e38, 1e-45]))
    return normal * scale


# anywhere, and where squares begin to overflow or to vanish
EXPONENTS = st.one_of(st.floats(-45, 38), st.floats(16, 18.7), st.floats(-24, -21))


@st.composite
def records(draw, name, kinds=("any", "cancel", "near", "edge")):
    """A record, its slopes and a clip: anything, or what cancels, or products near the clip or underflow."""
    _, shape, slopes = LAYERS[name]
    clip = draw(st.sampled_from([1.0, 1e-5, 300.0]))
    if shape == "words":
        words = torch.tensor([draw(st.lists(st.integers(0, 2), min_size=6, max_size=6))])
        return words, draw(arrays(slopes, draw(EXPONENTS)))[None], clip
    kind, large = draw(st.sampled_from(kinds)), draw(EXPONENTS)
    if kind == "cancel":
        x, g = draw(arrays(shape, draw(st.floats(0, 6)), ("opposite",))), draw(arrays(slopes, 0.0, ("ties",)))
    elif kind == "edge":
        x, g = draw(arrays(shape, draw(st.floats(17, 18.7)))), draw(arrays(slopes, draw(st.floats(-25, -22))))
    elif kind == "near":
        x = draw(arrays(shape, large))
        g = draw(arrays(slopes, min(38.0, max(-45.0, draw(st.floats(-6, 6)) - large))))
    else:
        x, g = draw(arrays(shape, large)), draw(arrays(slopes, draw(EXPONENTS)))
    return x[None], g[None], clip
