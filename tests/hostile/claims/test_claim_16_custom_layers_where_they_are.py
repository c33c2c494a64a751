"""Claim 16: a layer without a rule was differentiated at its initial parameters, 4.5 to 29 % off."""

import torch
from torch import nn

from sordino.nn.engines import GhostEngine, VmapEngine
from sordino.nn.network import Network


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.linspace(-1.0, 1.0, 5))

    def forward(self, x):
        return x * self.factor.exp()


def test_a_custom_layer_is_differentiated_at_the_current_parameters():
    torch.manual_seed(0)
    network = Network(nn.Sequential(Scale(), nn.Linear(5, 3)), nn.CrossEntropyLoss())
    moved = network.flat() + 0.5
    records = torch.randn(4, 5), torch.tensor([0, 1, 2, 0])
    want = VmapEngine(network).per_record(moved, *records)
    assert torch.allclose(GhostEngine(network).per_record(moved, *records), want, atol=1e-5)
