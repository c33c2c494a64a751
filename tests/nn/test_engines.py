"""Per-record norms and clipped sums agree with a loop over records, for every kind of layer."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sordino.kernel.clip.tensors import row_factors
from sordino.nn import engines
from sordino.nn.engines import GhostEngine, VmapEngine
from sordino.nn.network import Network

torch.set_num_threads(1)


class Tail(nn.Module):
    """Average over places, then a linear head of three classes."""

    def __init__(self, channels, dim):
        super().__init__()
        self.dim, self.head = dim, nn.Linear(channels, 3)

    def forward(self, x):
        x = torch.tanh(x)
        return self.head(x.mean(dim=self.dim) if self.dim else x)


class Twice(nn.Module):
    """The same layer used twice."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.inner(torch.tanh(self.inner(x)))))


class Scale(nn.Module):
    """A layer that the library has never heard of."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor([0.5, -1.0, 2.0, 0.1, 1.0]))

    def forward(self, x):
        return x * self.factor.exp()


IMAGE, SERIES, VECTOR, STEPS = (4, 9, 8), (4, 11), (5,), (7, 5)


def _conv(**kwargs):
    return nn.Sequential(nn.Conv2d(4, 6, 3, **kwargs), nn.ReLU(inplace=True), Tail(6, (2, 3)))


MODELS = {
    "linear": (lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)), VECTOR),
    "linear-no-bias": (lambda: nn.Sequential(nn.Linear(5, 4, bias=False), Tail(4, None)), VECTOR),
    "linear-over-steps": (lambda: nn.Sequential(nn.Linear(5, 4), Tail(4, 1)), STEPS),
    "linear-wide-over-steps": (lambda: nn.Sequential(nn.Linear(40, 90), Tail(90, 1)), (2, 40)),
    "conv2d": (lambda: _conv(), IMAGE),
    "conv2d-padded": (lambda: _conv(padding=1, stride=2), IMAGE),
    "conv2d-same": (lambda: _conv(padding="same", dilation=2), IMAGE),
    "conv2d-reflect": (lambda: _conv(padding=1, padding_mode="reflect", bias=False), IMAGE),
    "conv2d-grouped": (lambda: _conv(groups=2), IMAGE),
    "conv2d-few-places": (
        lambda: nn.Sequential(nn.Conv2d(4, 60, 7, padding=(0, 0)), Tail(60, (2, 3))),
        IMAGE,
    ),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(4, 6, 3, stride=2), Tail(6, 2)), SERIES),
    "conv3d": (
        lambda: nn.Sequential(nn.Conv3d(2, 5, 2, dilation=(1, 2, 1)), Tail(5, (2, 3, 4))),
        (2, 3, 5, 4),
    ),
    "conv-transpose": (lambda: nn.Sequential(nn.ConvTranspose2d(4, 6, 3), Tail(6, (2, 3))), IMAGE),
    "group-norm": (
        lambda: nn.Sequential(nn.Conv2d(4, 6, 3), nn.GroupNorm(2, 6), Tail(6, (2, 3))),
        IMAGE,
    ),
    "instance-norm": (
        lambda: nn.Sequential(nn.InstanceNorm2d(4, affine=True), Tail(4, (2, 3))),
        IMAGE,
    ),
    "layer-norm": (lambda: nn.Sequential(nn.LayerNorm([7, 5]), Tail(5, 1)), STEPS),
    "layer-norm-inner": (lambda: nn.Sequential(nn.LayerNorm(5), Tail(5, 1)), STEPS),
    "rms-norm": (lambda: nn.Sequential(nn.RMSNorm(5), Tail(5, None)), VECTOR),
    "unknown-layer": (lambda: nn.Sequential(Scale(), Tail(5, None)), VECTOR),
    "used-twice": (Twice, VECTOR),
    "embedding": (lambda: nn.Sequential(nn.Embedding(6, 5), Tail(5, 1)), "words"),
    "embedding-padded": (lambda: nn.Sequential(nn.Embedding(6, 5, padding_idx=0), Tail(5, 1)), "words"),
}


def make(name, seed, batch, size=1.0):
    torch.manual_seed(seed)
    build, shape = MODELS[name]
    network = Network(build(), nn.CrossEntropyLoss())
    x = torch.randint(0, 6, (batch, 8)) if shape == "words" else size * torch.randn(batch, *shape)
    return network, network.flat(), x, torch.randint(0, 3, (batch,))


def loop(network, vector, x, y):
    """The gradients by ordinary autograd, one record at a time."""
    rows = []
    for i in range(len(x)):
        leaf = vector.clone().requires_grad_()
        outputs = torch.func.functional_call(network.model, network.unflatten(leaf), (x[i : i + 1],))
        rows.append(torch.autograd.grad(F.cross_entropy(outputs, y[i : i + 1]), leaf)[0])
    return torch.stack(rows)


def clipped(rows, clip):
    norms = rows.norm(dim=1)
    return (rows * (clip / norms).clamp(max=1)[:, None]).sum(dim=0)


def close(a, b, tolerance=1e-4):
    return float((a - b).norm()) <= tolerance * max(float(b.norm()), 1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_ghost_and_vmap_agree_with_a_loop(name):
    network, vector, x, y = make(name, 0, 6)
    rows = loop(network, vector, x, y)
    for engine in (GhostEngine(network), VmapEngine(network)):
        assert close(engine.per_record(vector, x, y), rows)
        for quantile in (0.0, 0.5, 1.0):  # clip all records, some, none
            clip = float(rows.norm(dim=1).quantile(quantile)) * 0.9 + 0.4 * (quantile == 1.0)
            assert close(engine.clipped_sum(vector, x, y, clip), clipped(rows, clip))


@settings(max_examples=25)
@given(
    st.sampled_from(sorted(MODELS)),
    st.integers(0, 10**6),
    st.integers(1, 5),
    st.sampled_from([1e-3, 1.0, 30.0]),
    st.floats(0.01, 10.0),
)
def test_clipped_sums_agree_on_arbitrary_records(name, seed, batch, size, clip):
    network, vector, x, y = make(name, seed, batch, size)
    want = clipped(loop(network, vector, x, y), clip)
    got = GhostEngine(network).clipped_sum(vector, x, y, clip)
    # relative to the bound: records may cancel in the sum
    assert float((got - want).norm()) <= 1e-4 * batch * clip


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("engine", [GhostEngine, VmapEngine])
def test_one_record_never_adds_more_than_the_clip(name, engine):
    network, vector, x, y = make(name, 3, 1, 1e3)
    for clip in (1e-4, 0.37, 3.0):
        assert float(engine(network).clipped_sum(vector, x, y, clip).norm()) <= clip


def test_ghost_norms_and_formed_gradients_are_both_used():
    """The cases above take both branches, or the agreement proves half of what it says."""

    def ghosts(name):
        network, vector, x, y = make(name, 0, 3)
        _, found, _ = GhostEngine(network)._split_gradients(vector, x, y, form=False)
        return [ghost.name for ghost in found]

    assert "0.weight" not in ghosts("conv2d")
    assert "0.weight" in ghosts("conv2d-few-places")
    assert "0.weight" in ghosts("linear-over-steps") or "0.weight" in ghosts("linear-wide-over-steps")
    assert any("weight" in name for name in ghosts("embedding"))


def test_frozen_parameters_get_no_gradient():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    model[0].weight.requires_grad_(False)
    network = Network(model, nn.CrossEntropyLoss())
    x, y = torch.randn(6, 5), torch.randint(0, 3, (6,))
    want = VmapEngine(network).clipped_sum(network.flat(), x, y, 0.2)
    assert network.size == 4 + 12 + 3
    assert close(GhostEngine(network).clipped_sum(network.flat(), x, y, 0.2), want)


def test_filled_rows_add_nothing():
    network, vector, x, y = make("conv2d", 1, 6)
    present = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    for engine in (GhostEngine(network), VmapEngine(network)):
        want = engine.clipped_sum(vector, x[:4], y[:4], 0.3)
        assert close(engine.clipped_sum(vector, x, y, 0.3, present), want)


def test_a_norm_that_is_not_a_number_gives_factor_zero():
    rows = torch.tensor([0.0, 1.0, 4.0, float("inf"), float("nan")])[:, None]
    assert row_factors(rows, 2.0).tolist() == pytest.approx([1, 1, 0.5, 0, 0], rel=1e-4)


def test_tied_parameters_are_clipped_together():
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    network = Network(model, nn.CrossEntropyLoss())
    x, y = torch.randn(4, 3), torch.randint(0, 3, (4,))
    rows = loop(network, network.flat(), x, y)
    for engine in (GhostEngine(network), VmapEngine(network)):
        assert close(engine.per_record(network.flat(), x, y), rows)
        assert close(engine.clipped_sum(network.flat(), x, y, 0.3), clipped(rows, 0.3))


def test_a_layer_that_sees_other_rows_than_records_is_clipped_by_record():
    class Flattened(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(5, 3)

        def forward(self, x):
            return self.inner(x.reshape(-1, 5)).reshape(len(x), -1, 3).mean(dim=1)

    network = Network(Flattened(), nn.CrossEntropyLoss())
    x, y = torch.randn(4, 7, 5), torch.randint(0, 3, (4,))
    want = clipped(loop(network, network.flat(), x, y), 0.5)
    assert close(GhostEngine(network).clipped_sum(network.flat(), x, y, 0.5), want)


def test_half_precision_forward_is_clipped_in_float32():
    network, vector, x, y = make("conv2d", 0, 6)
    half = Network(network.model.requires_grad_(True), nn.CrossEntropyLoss(), torch.bfloat16)
    for engine in (GhostEngine(half), VmapEngine(half)):
        total = engine.clipped_sum(vector, x, y, 0.25)
        assert total.dtype == torch.float32
        assert close(total, VmapEngine(network).clipped_sum(vector, x, y, 0.25), 0.1)
        single = engine.clipped_sum(vector, 1e3 * x[:1], y[:1], 0.25)
        assert float(single.norm()) <= 0.25


class Either(nn.Module):
    """Uses one of two layers of the same kind, whichever is asked for."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.asked = nn.Linear(4, 3), nn.Linear(4, 3), "one"

    def forward(self, x):
        return getattr(self, self.asked)(x)


def test_two_graphs_of_the_same_operations_on_other_parameters_are_told_apart():
    network = Network(Either(), nn.CrossEntropyLoss())
    engine, x, y = GhostEngine(network), torch.randn(6, 4), torch.arange(6) % 3
    for asked, first in (("one", True), ("two", False), ("one", True)):
        network.model.asked = asked
        found = network.unflatten(engine.clipped_sum(network.flat(), x, y, 1.0))
        assert bool(found["one.weight"].any()) == first
        assert bool(found["two.weight"].any()) != first


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy_is_the_same_with_and_without_the_short_way(smoothing):
    plain = nn.CrossEntropyLoss(label_smoothing=smoothing)
    outputs, targets = torch.randn(7, 3, dtype=torch.float64), torch.arange(7) % 3
    short = Network(nn.Linear(2, 3), plain).losses(outputs, targets)
    long = Network(nn.Linear(2, 3), lambda o, t: plain(o, t)).losses(outputs, targets)
    torch.testing.assert_close(short, long, rtol=1e-14, atol=0)


class Halved(nn.CrossEntropyLoss):
    """Looks like the plain loss, and is half of it."""

    def forward(self, outputs, targets):
        return super().forward(outputs, targets) / 2


ODD_LOSSES = {
    "weighted": nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0])),
    "leaves out a class": nn.CrossEntropyLoss(ignore_index=1),
    "not reduced": nn.CrossEntropyLoss(reduction="none"),
    "derived": Halved(),
}


@pytest.mark.parametrize("name", ODD_LOSSES)
def test_a_loss_that_is_not_the_plain_one_is_that_of_each_record_alone(name):
    loss, outputs, targets = ODD_LOSSES[name], torch.randn(7, 3), torch.tensor([0, 2, 0, 2, 2, 0, 0])
    each = torch.stack([loss(outputs[[i]], targets[[i]]).sum() for i in range(7)])
    torch.testing.assert_close(Network(nn.Linear(2, 3), loss).losses(outputs, targets), each)


def test_parameters_begin_at_multiples_of_sixteen_bytes():
    layers = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 1, bias=False))
    network = Network(layers, nn.MSELoss())
    vector = torch.arange(float(network.size))
    parts, want = engines.align(network, vector), network.unflatten(vector)
    assert list(parts) == list(want)
    for name, part in parts.items():
        assert part.storage_offset() % 4 == 0
        assert torch.equal(part, want[name])
    even = Network(nn.Linear(4, 4), nn.MSELoss())
    assert engines.align(even, even.flat())["bias"].storage_offset() == 16
