"""After a training: exactly the trained parameters have moved, and not without bound."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor, nn

from sordino.errors import DivergenceWarning, UnsupportedError

_RISEN = 10.0  # times the loss of the initial model
_GROWN = 100.0  # parameters start at about 1 or below; a training multiplies them by less than ten


def check_moved(before: nn.Module, after: nn.Module, trained: tuple[str, ...]) -> None:
    """Warn of trained parameters that are where they were, refuse frozen ones that are not.

    Only released values are looked at. A parameter stays where it was if its type is too coarse for the
    steps.
    """
    old = {**dict(before.named_parameters()), **dict(before.named_buffers())}
    new = {**dict(after.named_parameters()), **dict(after.named_buffers())}
    same = {name: torch.equal(old[name].cpu(), value.cpu()) for name, value in new.items()}
    strayed = [name for name, stayed in same.items() if not stayed and name not in trained]
    if strayed:
        raise UnsupportedError(
            f"Expected {strayed[0]!r} to stay where it was: it is not trained. It has moved."
        )
    still = [name for name in trained if same[name]]
    if still:
        warnings.warn(
            f"{len(still)} of {len(trained)} trained parameters have not moved, among them {still[0]!r}. Is "
            "the learning rate too small for their type, or were others meant to be trained (requires_grad)?",
            UserWarning,
            stacklevel=4,
        )


def warn_if_diverged(
    before: nn.Module, after: nn.Module, trained: tuple[str, ...], scores: tuple[float, ...] = ()
) -> None:
    """Say that a training blew up.

    ``scores`` are losses on public records, that of the initial model first.

    **Privacy.** Only released parameters and scores on public records are looked at, which anyone who holds
    them can see as well.
    """
    reason = _blown_up(before, after, trained) or _worse(scores)
    if reason:
        warnings.warn(
            f"{reason} Lower learning_rate, or raise batch_size or epsilon. The budget is spent.",
            DivergenceWarning,
            stacklevel=4,
        )


def _blown_up(before: nn.Module, after: nn.Module, trained: tuple[str, ...]) -> str | None:
    old, new = (max(_largest(p) for p in _chosen(model, trained)) for model in (before, after))
    if not new < math.inf:
        return "The trained parameters are not finite, so predictions mean nothing."
    if new > _GROWN * max(1.0, old):
        return f"The largest trained parameter is {new:.2g}, it was {old:.2g}: the steps were too long."
    return None


def _chosen(model: nn.Module, names: tuple[str, ...]) -> list[Tensor]:
    found = dict(model.named_parameters())
    return [found[name] for name in names if found[name].numel()]


def _largest(values: Tensor) -> float:
    top = float(values.detach().abs().max())
    return math.inf if math.isnan(top) else top


def _worse(scores: tuple[float, ...]) -> str | None:
    if not scores or scores[-1] <= _RISEN * scores[0]:  # nan is not
        return None
    return (
        f"The loss on the public records is {scores[-1]:.3g}, before the training it was {scores[0]:.3g}: "
        "the steps were too long, or the noise too strong."
    )
