"""Write the table of layers in docs/layers.md: how each is differentiated record by record, by trying it.

Command: python docs/figures/layers.py
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sordino.errors import SordinoError
from sordino.nn.engine_choice import make_engine
from sordino.nn.engines import GhostEngine
from sordino.nn.network import Network

PAGE = Path(__file__).resolve().parents[1] / "layers.md"
BEGIN, END = "<!-- made by docs/figures/layers.py -->", "<!-- end of the table -->"
TYPES = (torch.float32, torch.bfloat16)
WORDS, PLACES, WIDTH, CLASSES = 12, 6, 8, 3


class Around(nn.Module):
    """A layer between a first product and a head, which sees the mean over all places."""

    def __init__(
        self, layer: nn.Module, call: Callable[[nn.Module, Tensor], Tensor] | None, words: bool
    ) -> None:
        super().__init__()
        self.first = nn.Embedding(WORDS, WIDTH) if words else nn.Identity()
        self.layer, self.call, self.head = layer, call, nn.LazyLinear(CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        out = self.layer(h) if self.call is None else self.call(self.layer, h)
        return self.head(out.flatten(1) if out.dim() < 3 else out.flatten(2).mean(2 if out.dim() > 3 else 1))


class Experts(nn.Module):
    """Two products, of which each place takes the one that its gate prefers."""

    def __init__(self, routed: bool) -> None:
        super().__init__()
        self.gate, self.one, self.two = nn.Linear(WIDTH, 2), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.routed = routed

    def forward(self, h: Tensor) -> Tensor:
        weights = self.gate(h).softmax(-1)
        if not self.routed:
            return weights[..., :1] * self.one(h) + weights[..., 1:] * self.two(h)
        chosen = weights.argmax(-1)
        out = torch.zeros_like(h)
        for number, expert in enumerate((self.one, self.two)):
            places = chosen == number
            out[places] = (expert(h[places]) * weights[places][:, number, None]).to(out.dtype)
        return out


class StateSpace(nn.Module):
    """A diagonal linear recurrence with a gate, in plain torch."""

    def __init__(self) -> None:
        super().__init__()
        self.decay, self.inner, self.gate = (
            nn.Parameter(torch.zeros(WIDTH)),
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, WIDTH),
        )

    def forward(self, h: Tensor) -> Tensor:
        state, outs = torch.zeros_like(h[:, 0]), []
        for place in self.inner(h).unbind(1):
            state = torch.sigmoid(self.decay) * state + place
            outs.append(state)
        return torch.stack(outs, 1) * torch.sigmoid(self.gate(h))


def packed(layer: nn.Module, h: Tensor) -> Tensor:
    lengths = torch.full((len(h),), PLACES)
    rows = nn.utils.rnn.pack_padded_sequence(h, lengths, batch_first=True, enforce_sorted=False)
    return nn.utils.rnn.pad_packed_sequence(layer(rows)[0], batch_first=True)[0]


def cells(layer: nn.Module, h: Tensor) -> Tensor:
    state = None
    for place in h.unbind(1):
        state = layer(place, state)
    return state[0] if isinstance(state, tuple) else state


def attended(mask: str) -> Callable[[nn.Module, Tensor], Tensor]:
    def call(layer: nn.Module, h: Tensor) -> Tensor:
        later = torch.ones(PLACES, PLACES, dtype=torch.bool).triu(1) if mask == "causal" else None
        gone = h[..., 0] > 9.0 if mask == "padding" else None
        return layer(h, h, h, key_padding_mask=gone, attn_mask=later, need_weights=False)[0]

    return call


def image(axes: int) -> Tensor:
    return torch.randn(1, 4, *(5,) * axes)


def attention() -> nn.Module:
    return nn.MultiheadAttention(WIDTH, 2, batch_first=True)


def of_axes(name: str, axes: int, *options: int, **known: bool) -> Callable[[], nn.Module]:
    """Return what makes a layer for images of so many axes."""
    return lambda: getattr(nn, f"{name}{axes}d")(4, *options, **known)


TEXT, VECTOR = torch.zeros(1, PLACES, dtype=torch.int64), torch.randn(1, WIDTH)
first_out = lambda layer, h: layer(h)[0]  # noqa: E731
RECURRENT = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}
# name -> (how it is made, an example record, how it is called)
LAYERS: dict[str, tuple[Callable[[], nn.Module], Tensor, Callable[[nn.Module, Tensor], Tensor] | None]] = {
    "Linear": (lambda: nn.Linear(WIDTH, 5), VECTOR, None),
    "Bilinear": (lambda: nn.Bilinear(WIDTH, WIDTH, 5), VECTOR, lambda layer, h: layer(h, h)),
    **{f"Conv{d}d": (of_axes("Conv", d, 6, 3, 2, 1), image(d), None) for d in (1, 2, 3)},
    "Conv2d, groups": (lambda: nn.Conv2d(4, 8, 3, groups=2), image(2), None),
    **{f"ConvTranspose{d}d": (of_axes("ConvTranspose", d, 6, 3, 2), image(d), None) for d in (1, 2, 3)},
    "Embedding": (lambda: nn.Embedding(WORDS, 5), TEXT, None),
    "EmbeddingBag, mean": (lambda: nn.EmbeddingBag(WORDS, 5), TEXT, None),
    "EmbeddingBag, sum": (lambda: nn.EmbeddingBag(WORDS, 5, mode="sum"), TEXT, None),
    "EmbeddingBag, max": (lambda: nn.EmbeddingBag(WORDS, 5, mode="max"), TEXT, None),
    "LayerNorm": (lambda: nn.LayerNorm(WIDTH), VECTOR, None),
    "RMSNorm": (lambda: nn.RMSNorm(WIDTH), VECTOR, None),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), image(2), None),
    **{f"InstanceNorm{d}d": (of_axes("InstanceNorm", d, affine=True), image(d), None) for d in (1, 2, 3)},
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4), image(2), None),
    "PReLU": (lambda: nn.PReLU(4), image(2), None),
    "MultiheadAttention": (attention, TEXT, attended("")),
    "MultiheadAttention, causal mask": (attention, TEXT, attended("causal")),
    "MultiheadAttention, padding mask": (attention, TEXT, attended("padding")),
    "TransformerEncoderLayer": (
        lambda: nn.TransformerEncoderLayer(WIDTH, 2, 12, batch_first=True),
        TEXT,
        None,
    ),
    **{
        name: (lambda kind=kind: kind(WIDTH, 5, batch_first=True), TEXT, first_out)
        for name, kind in RECURRENT.items()
    },
    **{
        f"{name}, two layers, both ways": (
            lambda kind=kind: kind(WIDTH, 5, 2, batch_first=True, bidirectional=True),
            TEXT,
            first_out,
        )
        for name, kind in RECURRENT.items()
    },
    "LSTM, packed sequence": (lambda: nn.LSTM(WIDTH, 5, batch_first=True), TEXT, packed),
    "LSTMCell": (lambda: nn.LSTMCell(WIDTH, 5), TEXT, cells),
    "GRUCell": (lambda: nn.GRUCell(WIDTH, 5), TEXT, cells),
    "Linear, activation checkpointing": (
        lambda: nn.Linear(WIDTH, 5),
        VECTOR,
        lambda layer, h: checkpoint(layer, h, use_reentrant=False),
    ),
    "state space block in plain torch": (StateSpace, TEXT, None),
    "mixture of experts, all weighed": (lambda: Experts(False), TEXT, None),
    "mixture of experts, routed by index": (lambda: Experts(True), TEXT, None),
}


def way(name: str, precision: torch.dtype, device: str = "cpu") -> str:
    """Return how a layer is differentiated: by rule, by vmap, or not at all and why."""
    build, example, call = LAYERS[name]
    torch.manual_seed(0)
    words = example is TEXT and "Embedding" not in name
    model = Around(build(), call, words).to(device)
    x, y = example.to(device), torch.zeros(1, dtype=torch.int64, device=device)
    with torch.no_grad():
        model(torch.cat([x, x]))  # the head takes its size
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            engine = make_engine(Network(model, nn.CrossEntropyLoss(), precision), x, y)
        except SordinoError as error:
            return f"refused: {_reason(str(error))}"
    if not isinstance(engine, GhostEngine):
        return f"by vmap: {_reason(engine.reason)}"
    return f"by vmap: {', '.join(engine.unknown())}" if engine.unknown() else "by rule"


def _reason(text: str) -> str:
    said = text.split(". ")[0]
    for begin in ("Expected ", "Ghost clipping", "The model or the loss fails"):
        said = said.partition("torch says: ")[2] or said if said.startswith(begin) else said
    return said.replace("|", "/").replace("'layer' ", "")[:120]


def table(names: tuple[str, ...] = tuple(LAYERS)) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| layer | " + " | ".join(str(kind).removeprefix("torch.") for kind in TYPES) + " |"
    yield "|---" * (1 + len(TYPES)) + "|"
    for name in names:
        yield f"| {name} | " + " | ".join(way(name, kind) for kind in TYPES) + " |"


def main() -> None:
    text = PAGE.read_text("utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(before + BEGIN + "\n\n" + "\n".join(table()) + "\n\n" + END + after, "utf-8")


if __name__ == "__main__":
    main()
