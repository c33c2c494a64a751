"""After training exactly the trained parameters have moved: a run that trained others is no run."""

from __future__ import annotations

import warnings

import torch
from torch import nn

from sordino.errors import UnsupportedError


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
