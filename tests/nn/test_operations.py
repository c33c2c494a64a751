"""Every way a parameter enters a model agrees with one backward pass per record in float64."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from sordino.kernel.clip import tensors as clip_tensors
from sordino.nn import engines
from sordino.nn import operations as products
from sordino.nn.compiled import CompiledEngine
from sordino.nn.engines import GhostEngine
from sordino.nn.network import Network, quiet_dropout

torch.set_num_threads(1)
CLASSES = 3


class Encoder(nn.Module):
    """The encoder of torch, batch first or not, with a learned place and a mask of padding."""

    def __init__(self, first=True):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.1, batch_first=first)
        self.words, self.places = nn.Embedding(20, 8), nn.Parameter(torch.randn(1, 6, 8))
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head, self.first = nn.Linear(8, CLASSES), first

    def forward(self, x):
        h = self.words(x) + self.places
        h = h if self.first else h.transpose(0, 1)
        h = self.body(h, src_key_padding_mask=x == 0)
        return self.head(h.mean(dim=1 if self.first else 0))


class Cross(nn.Module):
    """Attention of learned queries: the packed weights enter in three slices."""

    def __init__(self):
        super().__init__()
        self.words, self.attend = nn.Embedding(20, 8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.queries, self.start = nn.Parameter(torch.randn(1, 3, 8)), nn.Parameter(torch.randn(1, 1, 8))
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        h = torch.cat([self.start.expand(len(x), -1, -1), self.words(x)], dim=1)
        return self.head(self.attend(self.queries.expand(len(x), -1, -1), h, h)[0].mean(dim=1))


class Tied(nn.Module):
    """A table that is looked up, and multiplied again at the end."""

    def __init__(self):
        super().__init__()
        self.words, self.inner = nn.Embedding(20, 8), nn.Linear(8, 8)

    def forward(self, x):
        return (torch.tanh(self.inner(self.words(x))) @ self.words.weight.T).mean(dim=1)[:, :CLASSES]


class Functions(nn.Module):
    """Parameters in functions, slices, sums, quotients, reused, and as products the other way round."""

    def __init__(self):
        super().__init__()
        self.weight, self.scale = nn.Parameter(torch.randn(6, 6)), nn.Parameter(torch.rand(6))
        self.matrix, self.shift = nn.Parameter(torch.randn(6, 2 * CLASSES)), nn.Parameter(torch.randn(6))

    def forward(self, x):
        h = F.linear(x, self.weight, self.shift) / (1 + self.scale) - self.shift
        h = torch.tanh(F.linear(h, self.weight) * self.scale.exp())
        h = torch.addmm(self.shift[:CLASSES].repeat(2), h, self.matrix)
        left, right = self.matrix.chunk(2, dim=1)
        return h[:, :CLASSES] + x @ left + torch.einsum("bi,io->bo", x, right)


class Checkpointed(nn.Module):
    """A block that runs again on the way back: it must see the parameters of the way there."""

    def __init__(self):
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(6), nn.Linear(6, 9), nn.Linear(9, CLASSES)

    def forward(self, x):
        def block(h):
            return self.second(torch.relu(self.first(self.norm(h))))

        return checkpoint(block, x, use_reentrant=False).mean(dim=1)


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.three = nn.InstanceNorm1d(4, affine=True), nn.GroupNorm(2, 4), nn.RMSNorm(7)
        self.head, self.four = nn.Linear(28, 6), nn.GroupNorm(2, 6)
        self.last = nn.Linear(6, CLASSES)

    def forward(self, x):
        h = self.head(self.three(self.two(self.one(x))).flatten(1))
        return self.last(self.four(h))  # a norm of features without places


class Video(nn.Module):
    """Images of one record share the first axis with the records."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3, groups=2), nn.GroupNorm(2, 4)
        self.back, self.head = nn.ConvTranspose2d(4, 2, 2, stride=2, output_padding=1), nn.Linear(50, CLASSES)

    def forward(self, x):
        h = self.back(self.norm(self.conv(x.flatten(0, 1))))
        return self.head(h.flatten(1)).unflatten(0, (len(x), -1)).mean(dim=1)


class Standardised(nn.Module):
    """Kernels over their deviation, by several ways; one is used twice, a matrix has a learned gain."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Parameter(torch.randn(4, 2, 3, 3)), nn.Parameter(torch.randn(4, 4, 3, 3))
        self.matrix, self.gain = nn.Parameter(torch.randn(CLASSES, 64)), nn.Parameter(torch.rand(CLASSES, 1))

    def forward(self, x):
        axes = 1, 2, 3
        one = (self.one - self.one.mean(axes, keepdim=True)) / (self.one.std(axes, keepdim=True) + 1e-5)
        var, mean = torch.var_mean(self.two, axes, keepdim=True)
        two = (self.two - mean) * torch.rsqrt(var + 1e-5)
        h = torch.tanh(F.conv2d(x, one, padding=1))
        h = F.conv2d(torch.tanh(F.conv2d(h, two, padding=1)), two, padding=1)
        return F.linear(h.flatten(1), self.gain * F.normalize(self.matrix, dim=1))


WORDS = "words"
MODELS = {
    "encoder": (Encoder, WORDS),
    "encoder, time first": (lambda: Encoder(False), WORDS),
    "cross attention": (Cross, WORDS),
    "tied": (Tied, WORDS),
    "functions": (Functions, (6,)),
    "checkpointed": (Checkpointed, (5, 6)),
    "norms": (Norms, (4, 7)),
    "video": (Video, (3, 2, 4, 4)),
    "standardised": (Standardised, (2, 4, 4)),
}


def made(name, batch=4, precision=torch.float32):
    torch.manual_seed(0)
    build, shape = MODELS[name]
    network = Network(build(), nn.CrossEntropyLoss(), precision)
    vector = network.flat() + 0.05 * torch.randn(network.size)  # not where it started: stale ones show
    x = torch.randint(0, 20, (batch, 6)) if shape == WORDS else torch.randn(batch, *shape)
    return network, vector, x, torch.randint(0, CLASSES, (batch,))


def loop(network, vector, x, y):
    """One backward pass per record, in float64."""
    double = Network(copy.deepcopy(network.model).double(), network.loss)
    for p in double.model.parameters():
        p.requires_grad_(False)
    object.__setattr__(double, "names", network.names)
    x = x.double() if x.is_floating_point() else x
    rows = []
    with quiet_dropout(double.model):
        for a, b in zip(x, y, strict=True):
            leaf = vector.double().requires_grad_()
            params = network.unflatten(leaf)

            def backward(leaf=leaf, a=a, b=b):
                return torch.autograd.grad(double.loss_of_one(leaf, a, b), leaf)[0]

            rows.append(double.holding(params, backward))
    return torch.stack(rows)


def apart(engine, vector, x, y, share=0.7):
    """How far the engine is from the loop, in clips; and whether it exceeds the clip for one record."""
    with quiet_dropout(engine.network.model):
        rows = loop(engine.network, vector, x, y)
        clip = share * float(rows.norm(dim=1).median())
        want = (rows * (clip / rows.norm(dim=1)).clamp(max=1)[:, None]).sum(dim=0)
        got = engine.clipped_sum(vector, x, y, clip)
        alone = engine.clipped_sum(vector, x[:1], y[:1], clip / 100)
    return float((got - want).norm()) / clip, float(alone.double().norm()) / (clip / 100)


def trainable(network):
    for name in network.names:
        network.model.get_parameter(name).requires_grad_(True)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("cost", [1e9, 0.0], ids=["norms", "formed"])
def test_every_operation_agrees_with_float64(name, cost, monkeypatch):
    monkeypatch.setattr(
        engines, "_direct_pays", lambda found: cost == 0.0 and not isinstance(found, engines.Table)
    )
    network, vector, x, y = made(name)
    trainable(network)
    engine = GhostEngine(network)
    error, share = apart(engine, vector, x, y)
    assert error <= 1e-4
    assert 0.999 <= share <= 1.0
    assert engine.unknown() == {}


@pytest.mark.parametrize("name", ["encoder", "tied", "functions", "norms"])
def test_a_coarse_forward_pass_is_clipped_all_the_same(name):
    network, vector, x, y = made(name, precision=torch.bfloat16)
    with quiet_dropout(network.model):
        total = GhostEngine(network).clipped_sum(vector, x[:1], y[:1], 1e-3)
    assert 0.999e-3 <= float(total.double().norm()) <= 1e-3


@pytest.mark.parametrize(
    "name", ["cross attention", "standardised", pytest.param("functions", marks=pytest.mark.long)]
)
def test_a_compiled_step_reads_the_records_of_its_own_batch(name):
    network, vector, x, y = made(name, 8)
    with quiet_dropout(network.model):
        plain, traced = GhostEngine(network), CompiledEngine(GhostEngine(network), 4, backend="eager")
        traced.clipped_sum(vector, x[:4], y[:4], 0.1)
        moved = vector + 0.1
        want = plain.clipped_sum(moved, x[4:7], y[4:7], 0.1)
        assert float((traced.clipped_sum(moved, x[4:7], y[4:7], 0.1) - want).norm()) <= 1e-6
        assert len(traced._graphs) == 1


def rounded(values, bits):
    """The value with this many bits after the first: what a coarse matrix product reads."""
    scale = 2.0 ** (torch.frexp(values).exponent - 1).double()
    return (torch.round(values.double() / scale * 2.0**bits) / 2.0**bits * scale).float().nan_to_num(0.0)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("bits", "coarse"), [(10, 2.0**-11), (7, 2.0**-8)], ids=["TF32", "bfloat16"])
def test_a_record_adds_at_most_its_clip_where_products_round(name, bits, coarse, monkeypatch):
    """Norms and sums read rounded numbers, and the clip knows how far they are rounded."""
    monkeypatch.setattr(engines, "_direct_pays", lambda found: False)
    grams, added = clip_tensors._products, engines.product32
    monkeypatch.setattr(clip_tensors, "_products", lambda v, multiply=None: grams(rounded(v, bits)))
    monkeypatch.setattr(engines, "product32", lambda a, b: added(rounded(a, bits), rounded(b, bits)))
    monkeypatch.setattr(engines, "product_inputs", lambda device: coarse)
    network, vector, x, y = made(name)
    with quiet_dropout(network.model):
        for i in range(len(x)):
            present = torch.zeros(len(x)).index_fill(0, torch.tensor([i]), 1.0)
            total, factors = GhostEngine(network).clipped(vector, x, y, 1e-3, present)
            assert 0.7e-3 <= float(total.double().norm()) <= 1e-3
            assert factors.count_nonzero() == 1


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("name", ["encoder", "cross attention", "tied"])
def test_halves_are_multiplied_as_they_are_and_a_record_adds_at_most_its_clip(name, direct, monkeypatch):
    """As on a GPU after a forward pass in bfloat16: factors are rounded with the slopes."""
    kept = []

    def halved(left, right):
        few = left.shape[2] == 1
        kept.append(not few)
        return (left, right) if few else (left.bfloat16(), right.bfloat16())

    monkeypatch.setattr(products, "_alike", halved)
    monkeypatch.setattr(engines, "_direct_pays", lambda found: direct)
    network, vector, x, y = made(name)
    with quiet_dropout(network.model):
        for i in range(len(x)):
            present = torch.zeros(len(x)).index_fill(0, torch.tensor([i]), 1.0)
            total, _ = GhostEngine(network).clipped(vector, x, y, 1e-3, present)
            assert 0.9e-3 <= float(total.double().norm()) <= 1e-3
    assert any(kept)


# ------------------------------------------------------------------------------- broken twins


def _no_cross_terms(parts, graph, name):
    return parts[0] if not isinstance(parts[0], torch.Tensor) else None


WINDOWS, SUMMED = products._windows, torch.Tensor.sum_to_size


@pytest.mark.parametrize(
    ("where", "what", "twin", "name"),
    [
        (engines, "_merge", _no_cross_terms, "tied"),
        (engines, "_norms_add_up", lambda graph, paths: True, "functions"),
        (torch.Tensor, "sum_to_size", lambda value, *shape: SUMMED(value, *shape) / 2, "standardised"),
        (products, "_windows", lambda a, k, d, s: WINDOWS(a.flip(2), k, d, s), "video"),
    ],
)
def test_a_broken_twin_is_caught(monkeypatch, where, what, twin, name):
    monkeypatch.setattr(where, what, twin)
    network, vector, x, y = made(name)
    trainable(network)
    error, share = apart(GhostEngine(network), vector, x, y)
    assert error > 1e-2 or share > 1.0


def test_stale_parameters_are_caught(monkeypatch):
    """The twin differentiates where training began."""
    real = GhostEngine._leaves
    monkeypatch.setattr(GhostEngine, "_leaves", lambda self, vector: real(self, self.network.flat()))
    network, vector, x, y = made("checkpointed")
    trainable(network)
    assert apart(GhostEngine(network), vector, x, y)[0] > 1e-2
