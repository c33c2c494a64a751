"""Gradients of convolutions without unfolded windows are those of windows, and their sums lie in order."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from sordino.nn import engines
from sordino.nn import operations as products
from sordino.nn import operations as windows
from sordino.nn.compiled import CompiledEngine
from sordino.nn.engines import GhostEngine, Rows, VmapEngine
from sordino.nn.network import Network

torch.set_num_threads(1)


@pytest.fixture
def formed(monkeypatch):
    """Take the way of a GPU: its operation is computed by unfolding here."""
    calls = []
    monkeypatch.setattr(windows, "_suits", lambda images, slopes: calls.append(images.shape) or True)
    return calls


def network():
    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(),
        nn.Conv2d(4, 6, (3, 2), stride=2, padding=(2, 1), dilation=(2, 1)),
        nn.Tanh(), nn.Conv2d(6, 5, 1), nn.Flatten(), nn.LazyLinear(3),
    )  # fmt: skip
    layers(torch.zeros(1, 3, 9, 9))
    return Network(layers, nn.CrossEntropyLoss()), torch.randn(7, 3, 9, 9), torch.arange(7) % 3


def test_sums_agree_with_one_backward_pass_per_record(formed):
    net, x, y = network()
    total = GhostEngine(net).clipped_sum(net.flat(), x, y, 0.1)
    assert len(formed) >= 3
    want = VmapEngine(net).clipped_sum(net.flat(), x, y, 0.1)
    assert float((total - want).norm() / want.norm()) < 1e-3
    one = GhostEngine(net).clipped_sum(net.flat(), x[:1], y[:1], 1e-3)
    assert 0.999e-3 < float(one.double().norm()) <= 1e-3


def test_gradients_left_in_the_order_of_the_kernel_are_caught(formed, monkeypatch):
    monkeypatch.setattr(Rows, "in_order", lambda self, total: total)
    net, x, y = network()
    total = GhostEngine(net).clipped_sum(net.flat(), x, y, 0.1)
    want = VmapEngine(net).clipped_sum(net.flat(), x, y, 0.1)
    assert float((total - want).norm() / want.norm()) > 0.1


def test_a_compiled_graph_keeps_the_operation_whole(formed):
    net, x, y = network()
    graphs = []
    engine = CompiledEngine(GhostEngine(net), 7, backend=lambda graph, _: graphs.append(graph) or graph)
    total = engine.clipped_sum(net.flat(), x, y, 0.1)
    assert torch.allclose(total, GhostEngine(net).clipped_sum(net.flat(), x, y, 0.1), atol=1e-6)
    assert sum("window_rows" in str(node.target) for node in graphs[0].graph.nodes) == 3


@pytest.mark.parametrize("size", [1e-36, 1e-20, 1.0, 1e30])
def test_sizes_of_records_neither_vanish_nor_overflow(size):
    torch.manual_seed(0)
    images, slopes = torch.randn(3, 2, 4, 4), torch.randn(3, 2, 4, 4)
    geometry = [3, 3], [1, 1], [1, 1], [1, 1]
    rows = torch.ops.sordino.window_rows(size * images, slopes, *geometry)
    want = windows._unfold(images, slopes, *geometry)
    assert float((rows / size - want).norm()) <= 1e-5 * float(want.norm())


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_a_record_that_is_not_a_number_gives_rows_that_are_none(odd):
    images = torch.randn(2, 2, 4, 4)
    images[0, 0, 0, 0] = odd
    rows = torch.ops.sordino.window_rows(images, images, [3, 3], [1, 1], [1, 1], [1, 1])
    assert not bool(rows[0].isfinite().all())
    assert bool(rows[1].isfinite().all())


def test_nothing_is_left_out_where_the_operation_does_not_suit():
    assert windows.rows_of(torch.ones(2, 16, 8, 8), torch.ones(2, 16, 8, 8), *[(1, 1)] * 4) is None


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("kernel", "stride", "pad", "spread"),
    [((3, 3), (1, 1), (1, 1), (1, 1)), ((3, 5), (1, 1), (0, 2), (2, 1))],
)
def test_pairs_of_windows_are_sums_of_pairs_of_places(groups, kernel, stride, pad, spread):
    torch.manual_seed(0)
    images, weight = torch.randn(3, 4, 9, 8), torch.randn(6, 4 // groups, *kernel)
    slopes = torch.randn_like(nn.functional.conv2d(images, weight, None, stride, pad, spread, groups))
    kept = SimpleNamespace(
        input=images, stride=stride, padding=pad, dilation=spread, groups=groups, transposed=False
    )
    made = products.Windows(kept, slopes, torch.Size(kernel), 3, lambda values: values)
    want = made.right @ made.right.transpose(2, 3)
    found = made.gram()
    assert found is not None
    assert float((found - want).norm()) <= 1e-6 * float(want.norm())


def test_a_gram_matrix_that_misses_an_entry_of_the_kernel_breaks_the_clip(monkeypatch):
    """The bound is of what is summed: with one place too few a record adds more than its clip."""
    monkeypatch.setattr(engines, "_direct_pays", lambda found: False)
    net = Network(nn.Conv2d(2, 3, 3, padding=1, bias=False), lambda outputs, wanted: (outputs * wanted).sum())
    x, g = torch.ones(1, 2, 8, 8), torch.ones(1, 3, 8, 8)
    added = float(GhostEngine(net).clipped_sum(net.flat(), x, g, 1.0).double().norm())
    assert 0.999 < added <= 1.0
    real = products.product
    monkeypatch.setattr(products, "product", lambda *axes: list(real(*axes))[:-1])
    assert float(GhostEngine(net).clipped_sum(net.flat(), x, g, 1.0).double().norm()) > 1.01
