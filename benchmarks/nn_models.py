"""Shapes of transformers for `nn_gpu.py`, made of plain torch modules: no weights, nothing to download."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Size:
    """Width, depth, length of a text and number of words."""

    width: int = 256
    depth: int = 4
    length: int = 128
    words: int = 8192
    heads: int = 4

    def tiny(self) -> Size:
        """Return a size that a laptop can try."""
        return replace(self, width=16, depth=2, length=8, words=50, heads=2)


class Encoder(nn.Module):
    """`nn.TransformerEncoder` as torch has it, mean over the places, ten classes."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            size.width, size.heads, 4 * size.width, dropout=0.0, batch_first=True
        )
        self.words = nn.Embedding(size.words, size.width)
        self.places = nn.Parameter(0.02 * torch.randn(1, size.length, size.width))
        self.body = nn.TransformerEncoder(layer, size.depth, enable_nested_tensor=False)
        self.head = nn.Linear(size.width, 10)

    def forward(self, x):
        return self.head(self.body(self.words(x) + self.places).mean(dim=1))


class Block(nn.Module):
    """A block of DistilBERT (norms after) or GPT-2 (norms before), with `scaled_dot_product_attention`."""

    def __init__(self, size: Size, causal: bool) -> None:
        super().__init__()
        width = size.width
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.heads, self.causal = size.heads, causal

    def attend(self, x):
        parts = (layer(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer in self.inner)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).flatten(2))

    @property
    def inner(self):
        return self.query, self.key, self.value

    def forward(self, x):
        if self.causal:
            x = x + self.attend(self.first(x))
            return x + self.narrow(F.gelu(self.wide(self.second(x))))
        x = self.first(x + self.attend(x))
        return self.second(x + self.narrow(F.gelu(self.wide(x))))


class Bert(nn.Module):
    """DistilBERT: embeddings of words and places, blocks, a classifier of the first place.

    With ``spread`` places are looked up for each record, as Opacus needs them.
    """

    spread = False

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(size.words, size.width), nn.Embedding(size.length, size.width)
        self.norm, self.head = nn.LayerNorm(size.width), nn.Linear(size.width, 10)
        self.blocks = nn.Sequential(*(Block(size, False) for _ in range(size.depth)))

    def forward(self, x):
        places = torch.arange(x.shape[1], device=x.device)[None]
        places = places.expand(len(x), -1).contiguous() if self.spread else places
        return self.head(self.blocks(self.norm(self.words(x) + self.places(places)))[:, 0])


class Gpt(nn.Module):
    """GPT-2: the table of words is also the last product."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(size.words, size.width), nn.Embedding(size.length, size.width)
        self.blocks = nn.Sequential(*(Block(size, True) for _ in range(size.depth)))
        self.norm = nn.LayerNorm(size.width)
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, x):
        places = torch.arange(x.shape[1], device=x.device)[None]
        return self.norm(self.blocks(self.words(x) + self.places(places))) @ self.words.weight.T


class Vit(nn.Module):
    """ViT: patches of four, one more place for the class."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, size.width, 4, stride=4)
        self.start = nn.Parameter(torch.zeros(1, 1, size.width))
        self.places = nn.Parameter(0.02 * torch.randn(1, 65, size.width))
        self.blocks = nn.Sequential(*(Block(size, False) for _ in range(size.depth)))
        self.head = nn.Linear(size.width, 10)

    def forward(self, x):
        h = self.patches(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.start.expand(len(x), -1, -1), h], dim=1) + self.places
        return self.head(self.blocks(h)[:, 0])


class Adapter(nn.Module):
    """A frozen linear layer and a product of low rank beside it."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / rank)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.down), self.up)


def lora(size: Size) -> nn.Module:
    """Return the DistilBERT shape, frozen, with adapters of rank 8 at queries and values."""
    model = Bert(size).requires_grad_(False)
    for block in model.blocks:
        block.query, block.value = Adapter(block.query, 8), Adapter(block.value, 8)
    model.head.requires_grad_(True)
    return model


def next_word(outputs, words):
    """Return the mean loss of the next word."""
    return F.cross_entropy(outputs[:, :-1].flatten(0, -2), words[:, 1:].flatten())


# name -> (how to make it, its size, what a record is)
SHAPES = {
    "encoder": (Encoder, Size(), "text"),
    "distilbert": (Bert, Size(width=384, heads=6), "text"),
    "gpt2": (Gpt, Size(width=384, depth=6, heads=6), "next"),
    "vit": (Vit, Size(width=384, depth=6, heads=6), "image"),
    "lora": (lora, Size(width=384, heads=6), "text"),
}
