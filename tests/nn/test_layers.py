"""The table of layers in the docs is the one that is found by trying each layer."""

import runpy
from pathlib import Path

import pytest
import torch
from torch import nn

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.nn.network import Network
from sordino.nn.recurrent import by_rule

ROOT = Path(__file__).resolve().parents[2]
MADE = runpy.run_path(str(ROOT / "docs" / "figures" / "layers.py"))
PAGE = (ROOT / "docs" / "layers.md").read_text("utf-8")
# layers for which Opacus 1.6 has samplers of its own
OPACUS = (
    "Linear", "Conv1d", "Conv2d", "Conv3d", "Embedding", "EmbeddingBag", "LayerNorm", "GroupNorm",
    "InstanceNorm", "RMSNorm", "MultiheadAttention", "LSTM", "GRU", "RNN",
)  # fmt: skip
torch.set_num_threads(1)


@pytest.mark.parametrize("name", MADE["LAYERS"])
def test_a_row_of_the_page_is_what_is_found(name):
    found = [MADE["way"](name, kind) for kind in MADE["TYPES"]]
    assert f"| {name} | {' | '.join(found)} |\n" in PAGE


def test_no_layer_with_a_rule_elsewhere_goes_by_vmap():
    rows = [line for line in PAGE.splitlines() if line.startswith(tuple(f"| {name}" for name in OPACUS))]
    assert len(rows) >= 25
    assert "by vmap:" not in PAGE


@pytest.mark.parametrize("mode", ["mean", "sum", "max"])
@pytest.mark.parametrize("padding", [None, 2])
def test_a_bag_that_is_taken_apart_is_the_bag(mode, padding):
    torch.manual_seed(0)
    bag = nn.EmbeddingBag(9, 4, mode=mode, padding_idx=padding)
    words = torch.randint(0, 9, (5, 6))
    words[0] = 2
    want = bag(words)
    with by_rule(bag)():
        got = bag(words)
    torch.testing.assert_close(got, want)
    slope = torch.randn_like(want)
    grads = [torch.autograd.grad(out, bag.weight, slope)[0] for out in (got, want)]
    torch.testing.assert_close(*grads)


def test_weights_of_words_are_kept():
    bag, words = nn.EmbeddingBag(9, 4, mode="sum"), torch.randint(0, 9, (5, 6))
    weights = torch.rand(5, 6)
    with by_rule(bag)():
        got = bag(words, per_sample_weights=weights)
    torch.testing.assert_close(got, bag(words, per_sample_weights=weights))


def test_a_packed_sequence_with_projections_is_refused_with_what_to_do():
    layer = nn.LSTM(3, 4, proj_size=2)
    rows = nn.utils.rnn.pack_padded_sequence(torch.randn(5, 2, 3), [5, 4])
    with by_rule(layer)(), pytest.raises(UnsupportedError, match="gather each record's state"):
        layer(rows)


class DTensor(torch.Tensor):
    """What fully_shard makes of a parameter, by its name."""


def test_a_model_whose_parameters_are_sharded_is_refused_by_name():
    model = nn.Linear(3, 2)
    model.weight = nn.Parameter(torch.randn(2, 3).as_subclass(DTensor))
    with pytest.raises(InvalidInputError, match=r"sharded over processes \(FSDP, fully_shard\)"):
        Network(model, nn.CrossEntropyLoss())
