"""Augmentation: random views of a record, whose mean gradient is clipped once and so costs nothing more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sordino.errors import InvalidInputError, InvalidTypeError
from sordino.execute.torch_views import Views
from sordino.kernel import NoiseSource


@dataclass(frozen=True)
class Shifts:
    """Images moved by up to ``reach`` pixels up, down and sideways, mirrored at the edges.

    With ``flips`` left and right are exchanged every other time: right for photographs, wrong for digits. The
    last two axes of a record are height and width.
    """

    reach: int = 4
    flips: bool = False
    draws: int = 3

    def __post_init__(self) -> None:
        if self.reach < 0 or self.draws != 3:
            raise InvalidInputError(f"Expected reach >= 0 and draws = 3, got {self.reach} and {self.draws}.")

    def __call__(self, image: Tensor, numbers: Tensor) -> Tensor:
        """Return one view of one image."""
        if image.dim() < 2 or min(image.shape[-2:]) <= self.reach:
            raise InvalidInputError(
                f"Expected images of height and width above {self.reach}, got shape {tuple(image.shape)}. "
                "Reshape the records to (channels, height, width)."
            )
        step = torch.floor(numbers[:2] * (2 * self.reach + 1)).long() - self.reach
        for axis, by in ((-2, step[0]), (-1, step[1])):
            image = torch.index_select(image, axis, _mirrored(image.shape[axis], by, image.device))
        return torch.where(numbers[2] < 0.5, image.flip(-1), image) if self.flips else image


def _mirrored(side: int, by: Tensor, device: torch.device) -> Tensor:
    """Return the places of a side that was moved and mirrored at its ends."""
    places = (torch.arange(side, device=device) + by).abs()
    return side - 1 - (side - 1 - places).abs()


@dataclass(frozen=True, eq=False)
class MeanOfViews:
    """The loss of one view: so many of them add up to the mean over the views of a record."""

    loss: Callable[[Tensor, Tensor], Tensor]
    count: int

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of a view over the number of views."""
        return self.loss(outputs, targets) / self.count


def views_of(augment: Any, multiplicity: int, example: tuple[Tensor, Tensor]) -> Views | None:
    """Return the views that were asked for, tried once on a made-up record; None without augmentation."""
    if augment is None:
        if multiplicity != 1:
            raise InvalidInputError(
                f"Expected multiplicity 1 without augment, got {multiplicity}: the views would be the same. "
                "Pass augment=Shifts()."
            )
        return None
    draws = getattr(augment, "draws", None)
    if not callable(augment) or not isinstance(draws, int):
        raise InvalidTypeError(
            "Expected augment as a function of (record, numbers) with an integer attribute draws that says "
            f"how many numbers it needs, got {type(augment).__name__}. Shifts() is one."
        )
    views = Views(augment, draws, multiplicity)
    made_up = torch.zeros_like(example[0])
    if views.of(made_up, NoiseSource.from_os()).shape != made_up.shape:
        raise InvalidInputError("Expected views of the shape of a record, got another from augment.")
    return views
