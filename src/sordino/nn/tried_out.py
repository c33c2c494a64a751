"""What a model and a loss are tried for on made-up records before an engine is chosen."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from sordino.errors import InvalidInputError, SordinoError, UnsupportedError
from sordino.nn.graph import read_graph
from sordino.nn.made_up import made_up, points
from sordino.nn.network import Network, quiet_dropout, same_draws
from sordino.nn.precision import forward_inputs
from sordino.nn.state import check_stateless, losses_alone

# of the outputs: the same operations on the same numbers differ by their rounding only, which may be coarse
_APART, _COARSELY = 0.01, 0.1
_UNLIKE = 1e-3


def try_out(network: Network, x: Tensor, y: Tensor) -> None:
    """Refuse what fails, remembers records or reads parameters that are not trained; before any record.

    Only shapes and types of the records are looked at.
    """
    records = made_up(network, x, y, 4, 1.0)
    try:
        check_stateless(network, *records)
    except (SordinoError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise InvalidInputError(
            f"Expected a model and a loss for inputs of shape {tuple(x.shape[1:])} and type {x.dtype}, and "
            f"targets of shape {tuple(y.shape[1:])} and type {y.dtype}, several records at once and one "
            f"alone. On made-up ones they fail; torch says: {type(error).__name__}: {str(error)[:200]} "
            "(Class numbers are int64. A model in bfloat16 needs precision=torch.bfloat16, or model.float(). "
            "squeeze(-1) keeps the axis of the records.)"
        ) from None
    with quiet_dropout(network.model):
        _check_own_parameters(network, *records)
        _check_attributes(network, records[0])
        _say_of_whole_batches(network, *records)


def _check_own_parameters(network: Network, x: Tensor, y: Tensor) -> None:
    """Refuse a forward pass that reaches trainable parameters which are not those of the model."""
    parts = network.unflatten(points(network)[1])
    params = {name: part.detach().requires_grad_() for name, part in parts.items()}
    with torch.enable_grad():
        total = torch.stack(losses_alone(network, network.outputs(params, x), y)).sum()
    own = {id(value) for value in params.values()}
    leaves = (getattr(node, "variable", None) for node in _nodes(total, params))
    if any(isinstance(leaf, nn.Parameter) and id(leaf) not in own for leaf in leaves):
        raise UnsupportedError(
            "The loss depends on trainable parameters that are not the model's, and they would never be "
            "trained. Layers in a list belong into nn.ModuleList, weights of a loss into the model. A "
            "function that was made in __init__ (a lambda, a hook) still holds the module that this one was "
            "copied from: make it a method. Freeze what stays as it is (requires_grad_(False))."
        )


def _nodes(total: Tensor, params: dict[str, Tensor]) -> list[Any]:
    return [] if total.grad_fn is None else read_graph(total.grad_fn, params).nodes


def _check_attributes(network: Network, x: Tensor) -> None:
    """Refuse a model that reads parameters otherwise than as attributes: it would see the initial ones."""
    if any(p.dtype is not torch.float32 for p in network.model.parameters()):
        return  # outputs of another type are other outputs
    start, moved = network.flat(), points(network)[1]
    draws = same_draws()
    with torch.no_grad():
        with draws:
            called = network.outputs(network.unflatten(moved), x)
        network.load(moved, network.model)
        try:
            with draws:
                held = network.outputs(None, x)
        finally:
            network.load(start, network.model)
    share = _COARSELY if _rounds(network) else _APART
    if called.shape == held.shape and not _close(called.nan_to_num(), held.nan_to_num(), share):
        raise UnsupportedError(
            "The model reads some of its parameters otherwise than as attributes (out of a list or a "
            "dictionary), so it would be trained with their initial values there. Read self.name, or keep "
            "them in nn.ParameterList or nn.ParameterDict."
        )


def _rounds(network: Network) -> bool:
    kind, around = network.device, torch.is_autocast_enabled(network.device.type)
    return around or network.precision is not torch.float32 or forward_inputs(kind) > 0


def _close(one: Tensor, other: Tensor, share: float) -> bool:
    return float((one - other).norm()) <= share * float(other.norm())


def _say_of_whole_batches(network: Network, x: Tensor, y: Tensor) -> None:
    """Warn of a loss that is not the sum, or the mean, of the losses of its records."""
    with torch.no_grad():
        outputs = network.outputs(network.unflatten(points(network)[1]), x)
        each = torch.stack(losses_alone(network, outputs, y))
        try:
            whole = network.loss(outputs, y).sum()
        except Exception:  # a loss for single records is a loss
            return
    criterion = getattr(network.loss, "loss", network.loss)
    if getattr(criterion, "ignore_index", -1) >= 0 or not bool(each.isfinite().all() & whole.isfinite()):
        return
    reach = _UNLIKE * float(each.abs().sum())
    adds_up = any(abs(float(each.sum() / n - whole)) <= reach / n for n in (1, len(each)))
    if not adds_up or _weights_cancel(criterion):
        warnings.warn(
            "The loss of several records is neither the sum nor the mean of their losses. It is called on "
            "one record at a time, so what compares records is lost, and weights of classes cancel in a mean "
            "over one record: use reduction='sum', or a loss that is a sum over records.",
            UserWarning,
            stacklevel=5,
        )


def _weights_cancel(loss: Any) -> bool:
    plain = isinstance(loss, (nn.CrossEntropyLoss, nn.NLLLoss))
    return plain and loss.weight is not None and loss.reduction == "mean"
