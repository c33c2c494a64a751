"""On a GPU no record adds more than its clip, in float32, TF32 and after a bfloat16 forward pass."""

import pytest
import torch
from torch import nn

from sordino.kernel.clip.tensors import norms, shortfall
from sordino.nn import operations as windows
from sordino.nn.compiled import CompiledEngine, FilledEngine
from sordino.nn.engine_choice import make_engine
from sordino.nn.engines import GhostEngine, VmapEngine
from sordino.nn.network import Network
from sordino.nn.queries import finite_sum

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with CUDA"),
    # raised while torch imports its own compiler
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
]

# name -> (layer, shape of a record, shape of its slopes)
LAYERS = {
    "linear": (lambda: nn.Linear(700, 70), (700,), (70,)),
    "positions": (lambda: nn.Linear(2048, 64, bias=False), (2, 2048), (2, 64)),
    "tokens": (lambda: nn.Linear(512, 512), (32, 512), (32, 512)),
    "conv 1x1": (lambda: nn.Conv2d(512, 512, 1), (512, 2, 1), (512, 2, 1)),
    "conv 3x3": (lambda: nn.Conv2d(64, 64, 3, padding=1), (64, 4, 4), (64, 4, 4)),
    "conv of many places": (lambda: nn.Conv2d(24, 40, 3, padding=1), (24, 10, 10), (40, 10, 10)),
    "transposed": (lambda: nn.ConvTranspose2d(8, 8, 3), (8, 4, 4), (8, 6, 6)),
    "norm": (lambda: nn.LayerNorm(64), (8, 64), (8, 64)),
}


@pytest.fixture(params=["highest", "high", "medium"])
def precision(request):
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision(request.param)
    torch.backends.cudnn.allow_tf32 = request.param != "highest"
    yield request.param
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


def record(shape, pattern, size, seed):
    generator = torch.Generator().manual_seed(seed)
    if pattern == "opposite":  # two places that nearly cancel, all entries alike: rounding errs one way
        value = 1 + torch.rand(1, generator=generator)
        step = 10 ** (-7 + 4 * torch.rand(1, generator=generator))
        signs = torch.ones(shape)
        axis = 0 if len(shape) == 2 else min(1, len(shape) - 1)
        signs.narrow(axis, 0, max(1, shape[axis] // 2)).mul_(-1 - step)
        return size * value * signs
    if pattern == "ties":
        return torch.full(shape, 1.3 * size)
    return size * torch.randn(shape, generator=generator)


PATTERNS = [("opposite", "ties"), ("normal", "normal"), ("ties", "ties")]
SIZES = [(1.0, 1.0), (1e5, 1.0), (1e18, 1e-20), (1e30, 1e-33), (1e37, 1e-42), (1e-30, 1e32)]


@pytest.mark.parametrize("forward", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("method", ["ghost", "vmap"])
@pytest.mark.parametrize("name", LAYERS)
def test_one_record_adds_at_most_its_clip(name, method, forward, precision):
    layer, shape, slopes = LAYERS[name]
    network = Network(layer().cuda(), lambda outputs, wanted: (outputs * wanted).sum(), forward)
    engine = {"ghost": GhostEngine, "vmap": VmapEngine}[method](network)
    worst = 0.0
    for seed in range(10):
        for clip in (1.0, 1e-5):
            for left, right in PATTERNS:
                for large, small in SIZES:
                    x = record(shape, left, large, seed)[None].cuda()
                    g = record(slopes, right, small, seed + 1)[None].cuda()
                    vector = network.flat()
                    total = finite_sum(lambda a, b: engine.clipped_sum(vector, a, b, clip), x, g)  # noqa: B023
                    worst = max(worst, float(total.double().norm()) / clip)
    assert 0.5 < worst <= 1.0


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("step", "pad", "spread"), [((1, 1), (1, 1), (1, 1)), ((2, 1), (0, 2), (1, 2))])
def test_rows_of_windows_are_those_of_unfolded_windows(layout, step, pad, spread):
    torch.manual_seed(0)
    device = torch.device("cuda", torch.cuda.current_device())
    assert windows._kernel(device) is not None
    images = torch.randn(5, 72, 17, 17).to(device, memory_format=layout)
    weight = torch.randn(130, 72, 3, 3, device=device)
    slopes = torch.randn_like(nn.functional.conv2d(images, weight, None, step, pad, spread))
    geometry = [3, 3], [*step], [*pad], [*spread]
    rows = torch.ops.sordino.window_rows(images, slopes, *geometry)
    want = windows._unfold(images.double(), slopes.double(), *geometry)
    assert float((rows - want).norm() / want.norm()) < 1e-3


def test_halves_are_multiplied_as_they_are():
    torch.manual_seed(0)
    images, slopes = torch.randn(2, 3, 64, 32, 32, device="cuda").bfloat16()
    geometry = [3, 3], [1, 1], [1, 1], [1, 1]
    rows = torch.ops.sordino.window_rows(images, slopes, *geometry)
    want = windows._unfold(images.double(), slopes.double(), *geometry)
    assert float((rows - want).norm()) < 1e-5 * float(want.norm())


@pytest.mark.parametrize(("kind", "far"), [(torch.float32, 2.0**-10), (torch.bfloat16, 2.0**-16)])
@pytest.mark.parametrize("places", [17, 50, 65, 197])
def test_pairs_of_places_err_as_products_do(places, kind, far):
    torch.manual_seed(0)
    values = torch.randn(5, 1, places, 384, device="cuda").to(kind).transpose(0, 1)
    want = values.double() @ values.double().transpose(-1, -2)
    sizes = values.double().norm(dim=-1)
    apart = (windows.gram32(values) - want).abs() / (sizes[..., None] * sizes[..., None, :])
    assert float(apart.max()) <= 1.01 * far


@pytest.mark.parametrize("size", [1e-36, 1e-20, 1.0, 1e30])
def test_sizes_of_records_neither_vanish_nor_overflow_in_half_precision(size):
    torch.manual_seed(0)
    images, slopes = torch.randn(2, 3, 16, 9, 9, device="cuda")
    geometry = [3, 3], [1, 1], [1, 1], [1, 1]
    rows = torch.ops.sordino.window_rows(size * images, slopes, *geometry).double()
    want = windows._unfold(images.double(), slopes.double(), *geometry)
    assert float((rows / size - want).norm()) <= 2e-3 * float(want.norm())


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_a_record_that_is_not_a_number_leaves_the_others_as_they_are(odd):
    images = torch.randn(2, 16, 8, 8, device="cuda")
    images[0, 0, 0, 0] = odd
    rows = torch.ops.sordino.window_rows(images, images, [3, 3], [1, 1], [1, 1], [1, 1])
    assert not bool(rows[0].isfinite().all())
    assert bool(rows[1].isfinite().all())


def network_of(kind):
    torch.manual_seed(0)
    layers = {
        "mlp": lambda: nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)),
        "tokens": lambda: nn.Sequential(
            nn.Linear(512, 384), nn.GELU(), nn.Linear(384, 512), nn.AdaptiveAvgPool2d((1, 10)), nn.Flatten()
        ),
        "cnn": lambda: nn.Sequential(
            nn.Conv2d(3, 32, 3, stride=2), nn.GroupNorm(4, 32), nn.ReLU(), nn.Flatten(), nn.Linear(1568, 10)
        ),
    }
    return layers[kind]().cuda(), {"mlp": (784,), "tokens": (64, 512), "cnn": (3, 16, 16)}[kind]


@pytest.mark.parametrize("kind", ["mlp", "tokens", "cnn"])
@pytest.mark.parametrize("forward", [torch.float32, torch.bfloat16, torch.float16])
def test_a_whole_network_adds_at_most_its_clip_and_nearly_all_of_it(kind, forward, precision):
    model, shape = network_of(kind)
    network = Network(model, nn.CrossEntropyLoss(), forward)
    x, y = 3 * torch.randn(8, *shape).cuda(), torch.arange(8).cuda()
    engine = make_engine(network, x, y)
    lost = {"highest": 1e-3, "high": 0.03, "medium": 0.2}[precision]
    lost = (
        max(lost, 0.02) if kind == "tokens" and forward is torch.bfloat16 else lost
    )  # halves are multiplied
    for i in range(8):
        total = engine.clipped_sum(network.flat(), x[i : i + 1], y[i : i + 1], 0.01).double().norm()
        assert (1 - lost) * 0.01 <= float(total) <= 0.01


def test_norms_are_bounds_from_above():
    torch.manual_seed(0)
    assert bool(norms(torch.full((5, 10_007), 1e38).cuda()).isinf().all())  # such a record adds nothing
    for size in (1e-45, 1e-30, 1.0, 1e18):
        values = (size * torch.rand(5, 10_007)).float().cuda()
        exact = values.double().norm(dim=1)
        part, lost = shortfall(values)
        bounds = (norms(values).square() + lost).sqrt() * (1 + part)
        assert bool((bounds >= exact).all())
        assert bool((bounds <= exact * (1 + 1e-5) + 1e-16).all())


def test_a_compiled_step_adds_at_most_its_clip():
    model, shape = network_of("cnn")
    network = Network(model, nn.CrossEntropyLoss())
    engine = CompiledEngine(GhostEngine(network), 4)
    x, y = 100 * torch.randn(1, *shape).cuda(), torch.zeros(1, dtype=torch.long).cuda()
    assert 0.0099 <= float(engine.clipped_sum(network.flat(), x, y, 0.01).double().norm()) <= 0.01


def test_recorded_blocks_give_the_sums_of_others_and_draw_anew():
    """A block is played again with other records, other parameters, another clip and other masks."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 64), nn.Dropout(0.5), nn.Tanh(), nn.Linear(64, 10)).cuda()
    network = Network(model, nn.CrossEntropyLoss())
    x, y = torch.randn(70, 512).cuda(), torch.arange(70).cuda() % 10
    inner = GhostEngine(network)
    engine = FilledEngine(inner, 96, step=16)
    engine.record(64, (x[:1], y[:1]))
    assert sorted(engine._recorded) == [64, 80]
    vector, sums = network.flat() + 0.1, []
    for seed in (1, 2):
        for count in (70, 60):
            torch.manual_seed(seed)
            got = engine.clipped_sum(vector, x[:count], y[:count], 0.3)
            torch.manual_seed(seed)
            size = 80 if count == 70 else 64
            filled = [
                torch.cat([part[:count], part[:1].expand(size - count, *part.shape[1:])]) for part in (x, y)
            ]
            want = inner.clipped_sum(vector, *filled, 0.3, (torch.arange(size).cuda() < count).float())
            assert float((got - want).norm()) <= 1e-4 * float(want.norm())
            sums.append(got)
    assert float((sums[0] - sums[2]).norm()) > 1e-2 * float(sums[0].norm())


def test_compiled_blocks_are_recorded_and_give_the_sums_of_others():
    torch.manual_seed(0)
    network = Network(
        nn.Sequential(nn.Linear(512, 64), nn.Tanh(), nn.Linear(64, 10)).cuda(), nn.CrossEntropyLoss()
    )
    x, y = torch.randn(70, 512).cuda(), torch.arange(70).cuda() % 10
    engine = CompiledEngine(GhostEngine(network), 80, smaller=72)
    engine.record(64, (x[:1], y[:1]))
    assert sorted(engine._recorded) in ([72, 80], [])  # none where a recorded block is not faster
    for count, vector in ((70, network.flat() + 0.1), (60, network.flat())):
        want = engine.inner.clipped_sum(vector, x[:count], y[:count], 0.3)
        got = engine.clipped_sum(vector, x[:count], y[:count], 0.3)
        assert float((got - want).norm()) <= 1e-3 * float(want.norm())


def test_what_looks_at_values_is_not_recorded():
    class Looking(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 3)

        def forward(self, x):
            return self.layer(x if bool((x.abs().sum() >= 0).item()) else -x)

    network = Network(Looking().cuda(), nn.CrossEntropyLoss())
    x, y = torch.randn(70, 8).cuda(), torch.arange(70).cuda() % 3
    engine = FilledEngine(GhostEngine(network), 96, step=16)
    engine.record(64, (x[:1], y[:1]))
    assert not engine._recorded
    assert bool(engine.clipped_sum(network.flat(), x, y, 1.0).isfinite().all())
