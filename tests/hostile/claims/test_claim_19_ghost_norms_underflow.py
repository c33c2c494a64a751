"""Claim 19: squares of slopes below 2.6e-23 vanish in float32: 3 clips from one layer, 39 at 1e-5."""

import torch
from torch import nn

from sordino.nn.engines import GhostEngine
from sordino.nn.network import Network

torch.set_num_threads(1)


def added(layer, x, targets, clip):
    network = Network(layer, lambda outputs, wanted: (outputs * wanted).sum())
    return float(GhostEngine(network).clipped_sum(network.flat(), x, targets, clip).double().norm())


def test_small_slopes_on_large_inputs_add_at_most_one_clip():
    x = torch.full((1, 100, 1024), 5.5e17)
    assert added(nn.Linear(1024, 4096, bias=False), x, torch.full((1, 100, 4096), 2.6e-23), 1.0) <= 1.0


def test_two_features_add_at_most_a_small_clip():
    assert added(nn.Linear(2, 1), torch.full((1, 2), 1.2e19), torch.full((1, 1), 2.3e-23), 1e-5) <= 1e-5
