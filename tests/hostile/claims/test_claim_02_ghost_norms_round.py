"""Claim 2: float32 Gram products hid a norm: two nearly opposite positions added 138 clips, not one."""

import pytest
import torch
from torch import nn

from sordino.nn.engines import GhostEngine, VmapEngine
from sordino.nn.network import Network

torch.set_num_threads(1)


def added(engine, layer, x, clip=1.0):
    network = Network(layer, lambda outputs, targets: (outputs * targets).sum())
    targets = torch.ones(1, *x.shape[1:-1], layer.out_features)
    return float(engine(network).clipped_sum(network.flat(), x, targets, clip).double().norm())


@pytest.mark.parametrize("outputs", [1, 8])
@pytest.mark.parametrize(
    ("width", "value", "step", "scale"),
    [
        (768, 1.2843725681304932, 8.502644050167874e-05, 353677.03125),
        (8192, 1.4477436542510986, 8.769359556026757e-05, 84588.890625),
    ],
)
def test_two_nearly_opposite_positions_add_at_most_one_clip(width, value, step, scale, outputs):
    first = torch.full((width,), value)
    x = torch.stack([first, -first - step])[None] * scale
    assert added(GhostEngine, nn.Linear(width, outputs, bias=False), x) <= 1.0


def test_a_gradient_of_many_entries_adds_at_most_one_clip():
    assert added(VmapEngine, nn.Linear(2**22, 1, bias=False), torch.full((1, 2**22), 0.7)) <= 1.0
