"""Recurrent layers (LSTM, GRU, RNN), bags of words and bilinear layers by operations that have rules.

The gradient of the weights of a recurrent layer is ``sum_t d_t x_t^T`` and ``sum_t d_t h_{t-1}^T``, where
``d_t`` is the slope of the gates at place t. So torch's own layer finds the states ``h_t``, the gates of all
places are two products, of the inputs and of the states as *fixed numbers*, and one function leads the slopes
of the states back through time to those of the gates. The two products have rules like any others. A packed
sequence is laid out record by record, each to its own length. A bag is a table and a sum, a mean or a maximum
over its places.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.overrides import TorchFunctionMode

from sordino.errors import UnsupportedError

_LAYERS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def by_rule(model: nn.Module) -> Callable[[], AbstractContextManager[Any]]:
    """Return what makes a block in which recurrent layers and bags of this model are taken apart."""
    kinds = (nn.RNNBase, nn.RNNCellBase, nn.EmbeddingBag, nn.Bilinear)
    found = [layer for layer in model.modules() if isinstance(layer, kinds)]
    packing = [layer for layer in found if isinstance(layer, nn.RNNBase)]
    return partial(_take_apart, packing) if found else nullcontext


@contextmanager
def _take_apart(layers: list[Any]) -> Iterator[None]:
    before = [vars(layer).get("forward") for layer in layers]
    for layer in layers:  # only the layer knows in which order a packed sequence has its records
        layer.forward = partial(_forward, layer, layer.forward)
    try:
        with _TakenApart():
            yield
    finally:
        for layer, own in zip(layers, before, strict=True):
            del layer.forward
            if own is not None:
                layer.forward = own


class _TakenApart(TorchFunctionMode):
    """Calls of torch's recurrent layers, cells and bags, as operations that have rules."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name == "_cudnn_rnn_flatten_weight":  # would move weights that are parts of one vector
            return None
        padded = name in _LAYERS and not kwargs and len(args) == 9 and isinstance(args[2], (tuple, list))
        # without projections of the states, which have weights of their own
        if padded and len(args[2]) == args[4] * (1 + args[7]) * (4 if args[3] else 2):
            return _layers(name, func, *args)
        if name in _CALLS and not kwargs:
            return _CALLS[name](*args)
        if func is F.embedding_bag and args[0].dim() == 2:
            return _bag(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _bag(
    words: Tensor, table: Tensor, *rest: Any, mode: str = "mean", per_sample_weights: Any = None,
    padding_idx: int | None = None, **known: Any,
) -> Tensor:  # fmt: skip
    """Return what ``embedding_bag`` returns for bags of equal lengths, one a row."""
    rows = F.embedding(words, table)
    keep = torch.ones_like(words, dtype=torch.bool) if padding_idx is None else words != padding_idx
    if mode == "max":
        most = rows.masked_fill(~keep[:, :, None], -torch.inf).max(1).values
        return most.masked_fill(~keep.any(1)[:, None], 0.0)
    weights = keep.to(rows.dtype) if per_sample_weights is None else keep * per_sample_weights
    total = (rows * weights[:, :, None]).sum(1)
    return total / keep.sum(1).clamp(min=1)[:, None] if mode == "mean" else total


def _forward(layer: Any, plain: Any, rows: Any, start: Any = None) -> Any:
    """Run a recurrent layer; a packed sequence is padded first, and what comes out is packed again."""
    if not isinstance(rows, PackedSequence):
        return plain(rows, start)
    if layer.proj_size:
        raise UnsupportedError(
            "A packed sequence through an LSTM with projections (proj_size) has no rule. Pass padded "
            "sequences, and gather each record's state at its last place."
        )
    data, sizes, order, back = rows
    turn, again = (slice(None) if places is None else places for places in (back, order))
    padded, lengths = (part[turn] for part in _pad(data, sizes, True))
    if start is None:
        shape = layer.num_layers * (1 + layer.bidirectional), len(padded), layer.hidden_size
        zeros = data.new_zeros(shape)
        start = (zeros, zeros) if layer.mode == "LSTM" else zeros
    layer._update_flat_weights()
    name = layer.mode.lower()
    settings = layer.bias, layer.num_layers, layer.dropout, layer.training, layer.bidirectional, True
    out, *last = _layers(name, getattr(torch, name), padded, start, layer._flat_weights, *settings, lengths)
    record, place, _ = _places(sizes, data.device)
    out = PackedSequence(out[again][record, place], sizes, order, back)
    return out, tuple(last) if layer.mode == "LSTM" else last[0]


def _places(sizes: Tensor, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return record and place of each row of a packed sequence, and how long records are."""
    there = torch.arange(int(sizes[0]))[None, :] < sizes[:, None]  # (places, records)
    place, record = there.nonzero().to(device).unbind(1)
    return record, place, there.sum(0).to(device)


def _pad(
    data: Tensor, sizes: Tensor, first: bool, fill: float = 0.0, total: int = -1
) -> tuple[Tensor, Tensor]:
    """Return a packed sequence as rows of equal lengths, by one operation, and the lengths."""
    record, place, lengths = _places(sizes, data.device)
    shape = len(lengths), max(len(sizes), total), *data.shape[1:]
    made = data.new_full(shape, fill).index_put((record, place), data)
    return made if first else made.transpose(0, 1), lengths


def _layers(
    name: str, func: Any, x: Tensor, start: Any, weights: Any, has_biases: bool, count: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool, lengths: Tensor | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the outputs and the last states of all layers, as torch does."""
    states = start if isinstance(start, (tuple, list)) else (start,)
    each, ways = 4 if has_biases else 2, 1 + bidirectional
    x, ends = x if batch_first else x.transpose(0, 1), list[tuple[Tensor, ...]]()
    ended = torch.full(x.shape[:1], x.shape[1], device=x.device) if lengths is None else lengths
    places = torch.arange(x.shape[1], device=x.device)[None]
    records, turned = torch.arange(len(x), device=x.device)[:, None], ended[:, None] - 1 - places
    turned = turned.where(turned >= 0, places)  # each record from its end to its beginning
    with torch.autocast(x.device.type, enabled=False):  # slopes add up over many places
        x = x.float()
        for layer in range(count):
            outs = list[Tensor]()
            for way in range(ways):
                at = layer * ways + way
                some = weights[at * each : (at + 1) * each]
                inputs, last = x[records, turned] if way else x, None if lengths is None else ended - 1
                out, *cell = _one(name, func, inputs, [state[at] for state in states], some, last)
                ends.append((out[:, -1] if last is None else out[records[:, 0], last], *cell))
                outs.append(out[records, turned] if way else out)
            x = torch.cat(outs, 2) if bidirectional else outs[0]
            if dropout and train and layer < count - 1:
                x = F.dropout(x, dropout, True)
        last_states = [torch.stack(states) for states in zip(*ends, strict=True)]
    return (x if batch_first else x.transpose(0, 1), *last_states)


def _one(
    name: str, func: Any, x: Tensor, start: list[Tensor], weights: Any, last: Tensor | None
) -> tuple[Tensor, ...]:
    """Return the states of one layer in one direction, (records, places, states), and an LSTM's last cell."""
    own, back, *biases = weights
    first = [state[None].detach() for state in start]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="RNN module weights are not part")
        given = first if name == "lstm" else first[0]
        h = func(x.detach(), given, weights, bool(biases), 1, 0.0, False, False, True)[0]
        before = torch.cat([start[0][:, None].to(h.dtype), h[:, :-1]], 1).detach()
    gates = [F.linear(x.flatten(0, 1), own, *biases[:1])]
    if name == "gru":
        gates += [F.linear(before.flatten(0, 1), back, *biases[1:])]
    else:
        gates[0].addmm_(before.flatten(0, 1), back.t())
        gates = [gates[0].add_(biases[1])] if biases else gates
    made: tuple[Tensor, ...] = _Recursion.apply(name, h, before, back.detach(), last, *gates, *start)
    return made


class _Recursion(torch.autograd.Function):
    """States as they were found; backward, the slopes of all gates by one loop over the places."""

    @staticmethod
    def forward(
        ctx: Any, name: str, h: Tensor, before: Tensor, back: Tensor, last: Any, *parts: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.name, ctx.last, kept = name, last, [h]
        if name == "lstm":
            kept = _lstm(parts[0].detach().unflatten(0, h.shape[:2]), parts[2].detach())
        elif name == "gru":
            inner, outer = (part.detach().unflatten(0, h.shape[:2]) for part in parts[:2])
            kept = _gru(inner, outer, before)
        ctx.save_for_backward(back, *kept)
        if name != "lstm":
            return (h,)
        cells = kept[1]
        return h, cells[:, -1].clone() if last is None else cells[torch.arange(len(h), device=h.device), last]

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        back, *kept = ctx.saved_tensors
        if torch._C._autograd._get_current_graph_task_keep_graph():  # else nobody reads it again
            kept = [part.clone() for part in kept]
        with torch.autocast(back.device.type, enabled=False):
            if ctx.name == "lstm":
                h = torch.zeros_like(kept[1]) if slopes[0] is None else slopes[0]
                found = _lstm_slopes(kept, back, h, slopes[1], ctx.last)
            else:
                if ctx.name != "gru":
                    (h,) = kept
                    bent = 1 - h * h if ctx.name == "rnn_tanh" else (h > 0).float()
                    kept = [torch.zeros_like(h[:1, :1]).expand_as(h), bent]
                found = _gated_slopes(kept, back, slopes[0])
        return None, None, None, None, None, *found


def _lstm(gates: Tensor, cell: Tensor) -> list[Tensor]:
    """Return what opens the gates, written over what goes into them; all cells; the first of them."""
    i, f, g, o = gates.chunk(4, 2)
    for gate in (gates[:, :, : 2 * i.shape[2]], o):
        gate.sigmoid_()
    added, cells, first = i * g.tanh_(), torch.empty_like(i, memory_format=torch.contiguous_format), cell
    for t in range(i.shape[1]):
        cell = torch.addcmul(added[:, t], f[:, t], cell, out=cells[:, t])
    return [gates, cells, first]


def _lstm_slopes(
    kept: list[Tensor], back: Tensor, h: Tensor, c: Tensor | None, last: Tensor | None
) -> tuple[Tensor, ...]:
    """Return the slopes of the gates, written over what opens them, and those of the start."""
    slopes, cells, first = kept
    (i, f, g, o), size = slopes.chunk(4, 2), h.shape[2]
    stay = f.clone(memory_format=torch.contiguous_format)
    f.addcmul_(f, f, value=-1.0)
    f[:, 1:].mul_(cells[:, :-1])  # the cell before
    f[:, 0].mul_(first)
    bent = cells.tanh_()
    to_cell = (bent * bent).neg_().add_(1.0).mul_(o)
    o.addcmul_(o, o, value=-1.0).mul_(bent)
    of_g = torch.mul(g, g, out=bent).neg_().add_(1.0).mul_(i)
    i.addcmul_(i, i, value=-1.0).mul_(g)
    g.copy_(of_g)
    state, cell = torch.zeros_like(h[:, 0]), torch.zeros_like(h[:, 0])
    cell = cell if c is None or last is not None else c
    for t in reversed(range(h.shape[1])):
        state = state + h[:, t]
        if c is not None and last is not None:
            cell = cell + c * (last == t)[:, None]
        cell = torch.addcmul(cell, state, to_cell[:, t])
        slopes[:, t, : 3 * size].unflatten(1, (3, size)).mul_(cell[:, None])
        slopes[:, t, 3 * size :].mul_(state)
        state, cell = slopes[:, t] @ back, cell * stay[:, t]
    return slopes.flatten(0, 1), state, cell


def _gru(a: Tensor, b: Tensor, before: Tensor) -> list[Tensor]:
    """Return the factors of the slopes of states and of both gates, written over what went into these."""
    (r, z, n), (of_r, of_z, of_n) = a.chunk(3, 2), b.chunk(3, 2)
    for part, other in ((r, of_r), (z, of_z)):
        part.add_(other).sigmoid_()
    n.addcmul_(r, of_n).tanh_()
    new = (n * n).neg_().add_(1.0)
    new.addcmul_(new, z, value=-1.0)
    torch.mul(new, of_n, out=of_r).mul_(r)
    torch.sub(before, n, out=of_z).mul_(z)
    for part, gate in ((of_r, r), (of_z, z)):
        part.addcmul_(part, gate, value=-1.0)
    torch.mul(new, r, out=of_n)
    return [z.clone(), b, new]


def _gated_slopes(kept: list[Tensor], back: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    keep, gates, *new = kept
    shape, last, state = (-1, h.shape[2]), slice(-h.shape[2], None), torch.zeros_like(h[:, 0])
    inner = torch.empty_like(gates) if new else gates
    for t in reversed(range(h.shape[1])):
        state = state + h[:, t]
        gates[:, t].unflatten(1, shape).mul_(state[:, None])
        if new:  # what a GRU's new state sees of the input, without the gate of the state before
            torch.mul(state, new[0][:, t], out=inner[:, t, last])
        state = torch.addmm(state * keep[:, t], gates[:, t], back)
    if not new:
        return gates.flatten(0, 1), state
    inner[:, :, : -h.shape[2]] = gates[:, :, : -h.shape[2]]
    return inner.flatten(0, 1), gates.flatten(0, 1), state


def _lstm_cell(x: Tensor, start: Any, own: Tensor, back: Tensor, *biases: Any) -> tuple[Tensor, Tensor]:
    gates = F.linear(x, own, *biases[:1]) + F.linear(start[0], back, *biases[1:])
    i, f, g, o = gates.chunk(4, 1)
    cell = f.sigmoid() * start[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def _gru_cell(x: Tensor, start: Tensor, own: Tensor, back: Tensor, *biases: Any) -> Tensor:
    a, b = F.linear(x, own, *biases[:1]).chunk(3, 1), F.linear(start, back, *biases[1:]).chunk(3, 1)
    r, z = (a[0] + b[0]).sigmoid(), (a[1] + b[1]).sigmoid()
    n = (a[2] + r * b[2]).tanh()
    return n + z * (start - n)


def _bilinear(left: Tensor, right: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    pairs = (left[..., :, None] * right[..., None, :]).flatten(-2)
    return F.linear(pairs, weight.flatten(1), bias)


_CALLS: dict[str, Callable[..., Any]] = {
    "lstm_cell": _lstm_cell,
    "gru_cell": _gru_cell,
    "bilinear": _bilinear,
    "_pad_packed_sequence": _pad,
}
