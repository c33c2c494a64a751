"""Recurrent layers (LSTM, GRU, RNN) and bags of words by operations that have rules.

The gradient of the weights of a recurrent layer is ``sum_t d_t x_t^T`` and ``sum_t d_t h_{t-1}^T``, where
``d_t`` is the slope of the gates at place t. So torch's own layer finds the states ``h_t``, the gates of all
places are two products, of the inputs and of the states as *fixed numbers*, and one function leads the slopes
of the states back through time to those of the gates. The two products have rules like any others. A bag is
a table and a sum, a mean or a maximum over its places.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sordino.errors import UnsupportedError

_LAYERS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def by_rule(model: nn.Module) -> Callable[[], AbstractContextManager[Any]]:
    """Return what makes a block in which recurrent layers and bags of this model are taken apart."""
    kinds = (nn.RNNBase, nn.RNNCellBase, nn.EmbeddingBag)
    found = any(isinstance(layer, kinds) for layer in model.modules())
    return _TakenApart if found else nullcontext


class _TakenApart(TorchFunctionMode):
    """Calls of torch's recurrent layers, cells and bags, as operations that have rules."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name == "_cudnn_rnn_flatten_weight":  # would move weights that are parts of one vector
            return None
        if name in _LAYERS and not kwargs and _is_plain(args):
            with torch.autocast(args[0].device.type, enabled=False):  # slopes add up over many places
                return _layers(name, func, args[0].float(), *args[1:])
        if name in _LAYERS and len(args) > 3 and isinstance(args[3], (tuple, list)):
            raise UnsupportedError(
                "A packed sequence puts the places of all records on one axis, so their gradients are not "
                "told apart. Pass padded sequences, and gather each record's state at its last place."
            )
        if name in _CELLS and not kwargs:
            return _CELLS[name](*args)
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


def _is_plain(args: Any) -> bool:
    """Tell whether a call is one of padded sequences, without projections of the states."""
    if len(args) != 9 or not isinstance(args[2], (tuple, list)):
        return False
    return len(args[2]) == args[4] * (1 + args[7]) * (4 if args[3] else 2)


def _layers(
    name: str, func: Any, x: Tensor, start: Any, weights: Any, has_biases: bool, count: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the outputs and the last states of all layers, as torch does."""
    states = start if isinstance(start, (tuple, list)) else (start,)
    each, ways = 4 if has_biases else 2, 1 + bidirectional
    x, ends = x if batch_first else x.transpose(0, 1), list[list[Tensor]]()
    for layer in range(count):
        outs = list[Tensor]()
        for way in range(ways):
            at = layer * ways + way
            some = weights[at * each : (at + 1) * each]
            turned = x.flip(1) if way else x
            out, cells = _one(name, func, turned, [state[at] for state in states], some)
            ends.append([out[:, -1], *(cells[:, -1] for _ in states[1:])])
            outs.append(out.flip(1) if way else out)
        x = torch.cat(outs, 2) if bidirectional else outs[0]
        if dropout and train and layer < count - 1:
            x = F.dropout(x, dropout, True)
    last = [torch.stack(states) for states in zip(*ends, strict=True)]
    return (x if batch_first else x.transpose(0, 1), *last)


def _one(name: str, func: Any, x: Tensor, start: list[Tensor], weights: Any) -> tuple[Tensor, Tensor]:
    """Return the states, and the cells, of one layer in one direction: (records, places, states)."""
    own, back, *biases = weights
    first = [state[None].detach() for state in start]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="RNN module weights are not part")
        given = first if name == "lstm" else first[0]
        h = func(x.detach(), given, weights, bool(biases), 1, 0.0, False, False, True)[0]
        before = torch.cat([start[0][:, None].to(h.dtype), h[:, :-1]], 1).detach()
    gates = F.linear(x, own, *biases[:1]), F.linear(before, back, *biases[1:])
    states: tuple[Tensor, Tensor] = _Recursion.apply(name, h, before, back.detach(), *gates, *start)
    return states


class _Recursion(torch.autograd.Function):
    """States as they were found; backward, the slopes of all gates by one loop over the places."""

    @staticmethod
    def forward(
        ctx: Any,
        name: str,
        h: Tensor,
        before: Tensor,
        back: Tensor,
        inner: Tensor,
        outer: Tensor,
        *start: Any,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.kinds = inner.dtype, outer.dtype, [state.dtype for state in start]
        a, b = inner.float(), outer.float()
        cells, ctx.slopes = h, _lstm_slopes if name == "lstm" else _gated_slopes
        if name == "lstm":
            cells, kept = _lstm(a + b, start[1].float())
        else:
            kept = _gru(a, b, before.float()) if name == "gru" else _rnn(name, h.float())
        ctx.save_for_backward(back.float(), *kept)
        return h.clone(), cells.to(h.dtype).clone()

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        h, c = slopes
        back, *kept = ctx.saved_tensors
        with torch.autocast(back.device.type, enabled=False):
            h = torch.zeros_like(kept[0]) if h is None else h.float()
            inner, outer, *first = ctx.slopes(kept, back, h, None if c is None else c.float())
        kinds = ctx.kinds
        ends = [part.to(kind) for part, kind in zip(first, kinds[2], strict=True)]
        return None, None, None, None, inner.to(kinds[0]), outer.to(kinds[1]), *ends


def _lstm(gates: Tensor, cell: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return all cells, and by what slopes of states and cells are multiplied."""
    i, f, g, o = gates.chunk(4, 2)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    added, cells = i * g, torch.empty_like(i)
    before = torch.empty_like(i)
    for t in range(i.shape[1]):
        before[:, t] = cell
        cell = torch.addcmul(added[:, t], f[:, t], cell)
        cells[:, t] = cell
    bent = cells.tanh()
    of_cells = torch.cat([g * i * (1 - i), before * f * (1 - f), i * (1 - g * g)], 2)
    return cells, (o * (1 - bent * bent), f, of_cells, bent * o * (1 - o))


def _lstm_slopes(kept: list[Tensor], back: Tensor, h: Tensor, c: Tensor | None) -> tuple[Tensor, ...]:
    to_cell, forget, of_cells, of_state = kept
    size = h.shape[2]
    gates = h.new_empty(*h.shape[:2], 4 * size)
    state, cell = torch.zeros_like(h[:, 0]), torch.zeros_like(h[:, 0])
    for t in reversed(range(h.shape[1])):
        state = state + h[:, t]
        cell = torch.addcmul(cell if c is None else cell + c[:, t], state, to_cell[:, t])
        gates[:, t, : 3 * size].unflatten(1, (3, size)).copy_(
            of_cells[:, t].unflatten(1, (3, size)) * cell[:, None]
        )
        torch.mul(state, of_state[:, t], out=gates[:, t, 3 * size :])
        state, cell = gates[:, t] @ back, cell * forget[:, t]
    return gates, gates, state, cell


def _gru(a: Tensor, b: Tensor, before: Tensor) -> tuple[Tensor, ...]:
    """Return by what slopes of states are multiplied: at the state before, at gates of both sides."""
    (ar, az, an), (br, bz, bn) = a.chunk(3, 2), b.chunk(3, 2)
    r, z = (ar + br).sigmoid(), (az + bz).sigmoid()
    n = (an + r * bn).tanh()
    new = (1 - z) * (1 - n * n)
    gates = [new * bn * r * (1 - r), (before - n) * z * (1 - z), new * r]
    return z, torch.cat(gates, 2), new


def _rnn(name: str, h: Tensor) -> tuple[Tensor, ...]:
    return torch.zeros_like(h), 1 - h * h if name == "rnn_tanh" else (h > 0).float()


def _gated_slopes(kept: list[Tensor], back: Tensor, h: Tensor, c: Tensor | None) -> tuple[Tensor, ...]:
    keep, of_gates, *new = kept
    h = h if c is None else h + c
    shape = (-1, h.shape[2])
    states, gates = torch.empty_like(h), torch.empty_like(of_gates)
    state = torch.zeros_like(h[:, 0])
    for t in reversed(range(h.shape[1])):
        states[:, t] = state = state + h[:, t]
        torch.mul(of_gates[:, t].unflatten(1, shape), state[:, None], out=gates[:, t].unflatten(1, shape))
        state = torch.addmm(state * keep[:, t], gates[:, t], back)
    inner = gates
    if new:  # the new state of a GRU sees what comes in as it is, and the state before through a gate
        inner = torch.cat([gates[:, :, : -h.shape[2]], states * new[0]], 2)
    return inner, gates, state


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


_CELLS = {"lstm_cell": _lstm_cell, "gru_cell": _gru_cell}
