"""A compiled step has one shape, counts nothing that only fills up, and is used where it is faster."""

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from sordino.errors import SlowEngineWarning
from sordino.nn import Trainer, compiled
from sordino.nn import compiled as rewrites
from sordino.nn.compiled import CompiledEngine, FilledEngine, compiled_engine, even_block
from sordino.nn.engines import GhostEngine, VmapEngine
from sordino.nn.network import Network

torch.set_num_threads(1)
LOSS = nn.CrossEntropyLoss()


def made():
    torch.manual_seed(0)
    network = Network(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), LOSS)
    return network, torch.randn(150, 6), torch.randint(0, 3, (150,))


@pytest.mark.parametrize("kind", [GhostEngine, VmapEngine])
def test_batches_of_any_size_take_one_compilation_and_give_the_same_sum(kind):
    network, x, y = made()
    calls = []
    engine = CompiledEngine(kind(network), 84, lambda graph, inputs: calls.append(1) or graph)
    for count in (1, 60, 83, 84, 85, 150):
        for clip in (0.3, 0.1):
            want = kind(network).clipped_sum(network.flat(), x[:count], y[:count], clip)
            got = engine.clipped_sum(network.flat(), x[:count], y[:count], clip)
            assert float((got - want).norm()) <= 1e-5 * clip * count
    assert len(engine._graphs) == len(calls) == 1


def test_what_fills_up_a_block_adds_nothing_even_if_it_is_the_largest_record():
    network, x, y = made()
    x[0] *= 1e4
    engine = CompiledEngine(GhostEngine(network), 12, "eager")
    alone = engine.clipped_sum(network.flat(), x[:1], y[:1], 0.3)
    assert 0.299 <= float(alone.double().norm()) <= 0.3
    absent = torch.tensor([0.0, 1.0, 1.0])
    want = GhostEngine(network).clipped_sum(network.flat(), x[1:3], y[1:3], 0.3)
    got = engine.clipped_sum(network.flat(), x[:3], y[:3], 0.3, absent)
    assert float((got - want).norm()) <= 1e-5


@pytest.mark.parametrize("expected", [64, 512, 2048, 10**6])
def test_blocks_fit_poisson_batches(expected):
    whole, spread = even_block(4096, expected), int(expected**0.5)
    assert whole <= 4096
    for count in (expected - spread, expected, expected + 2 * spread):
        filled = -(-count // whole) * whole
        assert filled <= 1.2 * count if expected > 64 else filled <= 1.5 * count
    assert even_block(80, 0) == 80
    assert even_block(512, 530) == 288  # 576 likely records in two equal blocks, not 512 and a rest


def failing(graph, inputs):
    raise RuntimeError("no compiler here")


@pytest.mark.parametrize(("backend", "said"), [(failing, "no compiler here"), ("eager", "made-up records")])
def test_a_step_that_cannot_be_compiled_or_is_slower_runs_without_and_says_so(monkeypatch, backend, said):
    network, x, y = made()
    engine = GhostEngine(network)
    seconds = compiled._seconds
    slow = lambda one, records: seconds(one, records) + isinstance(one, CompiledEngine)  # noqa: E731
    monkeypatch.setattr(compiled, "_seconds", slow)
    with pytest.warns(SlowEngineWarning, match=said):
        found, notes = compiled_engine(engine, 100, 80, (x[:1], y[:1]), True, 1, backend)
    assert found is engine
    assert said in notes[0]


def test_a_faster_step_is_compiled_before_any_record_is_read(monkeypatch):
    network, x, y = made()

    def fast(one, records):
        one.clipped_sum(network.flat(), *records, 1.0)
        return 1 if isinstance(one, CompiledEngine) else 2

    monkeypatch.setattr(compiled, "_seconds", fast)
    found, notes = compiled_engine(GhostEngine(network), 100, 80, (x[:1], y[:1]), True, 1, "eager")
    assert len(found._graphs) == 1
    assert notes == ()
    found.clipped_sum(network.flat(), x[:97], y[:97], 0.3)
    assert len(found._graphs) == 1


def test_a_run_that_is_not_compiled_as_was_asked_says_so_in_its_report(monkeypatch):
    monkeypatch.setattr(compiled, "make_fx", lambda whole, parts: failing)
    _, x, y = made()
    trainer = Trainer(nn.Linear(6, 3), LOSS, epsilon=3.0, delta=1e-5, steps=2, batch_size=20, compiled=True)
    with pytest.warns(SlowEngineWarning, match="not compiled"):
        trained = trainer.fit(x, y)
    assert any("not compiled" in note for note in trained.privacy.notes)


def test_blocks_that_are_filled_up_give_the_same_sum():
    network, x, y = made()
    engine, sizes = FilledEngine(GhostEngine(network), 84, step=16), set()
    inner = engine.inner.clipped_sum
    object.__setattr__(
        engine.inner, "clipped_sum", lambda v, a, *rest: sizes.add(len(a)) or inner(v, a, *rest)
    )
    for count in (1, 16, 17, 80, 83, 85, 150):
        want = inner(network.flat(), x[:count], y[:count], 0.3)
        assert (
            float((engine.clipped_sum(network.flat(), x[:count], y[:count], 0.3) - want).norm())
            <= 1e-5 * count
        )
    assert sizes == {16, 32, 80, 84}


def test_slopes_of_images_become_transposed_convolutions():
    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.GroupNorm(2, 4), nn.Tanh(),
        nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2), nn.Tanh(),
        nn.ConvTranspose2d(6, 5, 2, stride=2), nn.Conv2d(5, 3, 1, stride=2), nn.Flatten(), nn.LazyLinear(3),
    )  # fmt: skip
    layers(torch.zeros(1, 3, 12, 11))
    engine = GhostEngine(Network(layers, nn.CrossEntropyLoss()))
    x, y, vector = torch.randn(4, 3, 12, 11), torch.tensor([0, 1, 2, 0]), engine.network.flat()

    def whole(v, a, b):
        return engine.clipped_sum(v, a, b, 0.1)

    want = whole(vector, x, y)
    graph = make_fx(whole)(vector, x, y)
    assert rewrites.transpose_convolutions(graph) == 2  # the first has no slope, one is transposed itself
    assert torch.allclose(graph(vector, x, y), want, atol=1e-6)
    left = [node for node in graph.graph.nodes if "convolution_backward" in str(node.target)]
    assert len(left) == 1


@pytest.mark.parametrize(("shape", "affine"), [((4, 6, 5), True), ((4, 7), True), ((4, 6, 5), False)])
def test_the_slope_of_a_group_norm_in_the_shape_of_images_is_the_same(shape, affine):
    """The slope is taken apart in the shape of the images."""
    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.GroupNorm(2, 4), nn.GroupNorm(2, 4, affine=affine), nn.Tanh(), nn.GroupNorm(1, 4),
        nn.Flatten(), nn.LazyLinear(3),
    )  # fmt: skip
    layers(torch.zeros(1, *shape))
    engine = GhostEngine(Network(layers, nn.CrossEntropyLoss()))
    x, y, vector = 1 + torch.randn(4, *shape), torch.tensor([0, 1, 2, 0]), engine.network.flat() + 0.1

    def whole(v, a, b):
        return engine.clipped_sum(v, a, b, 0.01)

    want = whole(vector, x, y)
    graph = make_fx(whole, rewrites.IN_PARTS)(vector, x, y)
    assert not any("group_norm_backward" in str(node.target) for node in graph.graph.nodes)
    assert torch.allclose(graph(vector, x, y), want, atol=1e-6)


def test_what_is_equal_is_computed_once_and_sums_follow_what_they_read():
    def steps(x, y):
        long, other = x.sin() * y, (x.sin() * y).exp()
        return other.cos() + long.sum([0]), other.cos()

    module = make_fx(steps)(torch.randn(4, 3), torch.randn(4, 3))
    want = module(torch.ones(4, 3), torch.full((4, 3), 2.0))
    rewrites.lean_options(None)["post_grad_custom_post_pass"](module.graph)
    names = [node.name for node in module.graph.nodes]
    assert not any(name.startswith(("sin_", "mul_")) for name in names)
    assert names.index("sum_1") == names.index("mul") + 1 < names.index("exp")
    module.graph.lint()
    for one, other in zip(module(torch.ones(4, 3), torch.full((4, 3), 2.0)), want, strict=True):
        assert torch.equal(one, other)
