"""Augmentation: random views of a record, whose mean gradient is clipped once and so costs nothing more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sordino.errors import InvalidInputError, InvalidTypeError, SordinoError, UnsupportedError
from sordino.execute.draws import generator_states, held_generators, reachable_objects, seeded_draws
from sordino.execute.torch import Views
from sordino.kernel import public_generator
from sordino.nn.data import Source, overlap

_SEED = 6199  # public
# Which made-up records are viewed together: all, alone, in another order, others before and after.
_BLOCKS = ((0, 1, 2, 3, 4), (0,), (4, 0), (2, 3, 0, 1), (1,), (0,), (3, 2), (4,), (0, 1, 2, 3, 4))
_BY_ITSELF = (
    "augment gives a record another view from the same numbers: it draws by itself, or remembers other "
    "records. It may use its record and the numbers it is given, as many as its attribute draws says."
)


@dataclass(frozen=True)
class Shifts:
    """Images moved by up to ``reach`` pixels (the last two axes), mirrored at the edges; with ``flips`` also
    left to right every other time: right for photographs, wrong for digits.
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
            side = image.shape[axis]
            # moved, and mirrored at the ends
            places = (torch.arange(side, device=image.device) + by).abs()
            image = torch.index_select(image, axis, side - 1 - (side - 1 - places).abs())
        return torch.where(numbers[2] < 0.5, image.flip(-1), image) if self.flips else image


@dataclass(frozen=True, eq=False)
class MeanOfViews:
    """The loss of one view: so many of them add up to the mean over the views of a record."""

    loss: Callable[[Tensor, Tensor], Tensor]
    count: int

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.loss(outputs, targets) / self.count


def views_of(augment: Any, multiplicity: int, source: Source) -> Views | None:
    """Return the views that were asked for, tried on made-up records; None without augmentation."""
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
    _check_alone(views, source.example[0])
    if holds_records(augment, source):
        raise UnsupportedError(
            "augment holds the records it is to make views of: a view would mix other records into one, "
            "and no clip bounds that. Let it hold public values only."
        )
    return views


def _check_alone(views: Views, example: Tensor) -> None:
    """Refuse an augmentation that draws by itself, or whose view of a record depends on other records."""
    public, held = public_generator(_SEED), held_generators(views.make)
    shape = (_BLOCKS[0][-1] + 1, *example.shape[1:])
    rows = torch.from_numpy(public.uniform(0, 2, shape)).to(example)
    numbers = torch.from_numpy(public.uniform(0, 1, (len(rows), views.draws))).to(example.device).float()
    first: dict[int, Tensor] = {}
    for turn, block in enumerate(_BLOCKS):
        with seeded_draws(_SEED + turn, held):
            before = generator_states(held)
            made = _view(views, rows[list(block)], numbers[list(block)])
            if generator_states(held) != before:
                raise UnsupportedError(_BY_ITSELF)
        if made.shape != (len(block), *example.shape[1:]):
            raise InvalidInputError("Expected views of the shape of a record, got another from augment.")
        if made.is_floating_point() and not bool(made.isfinite().all()):
            raise InvalidInputError(
                "Expected finite views, got nan or inf from augment on made-up records between 0 and 2. A "
                "record whose views are not finite adds nothing to the training."
            )
        for row, view in zip(block, made, strict=True):
            if not torch.allclose(first.setdefault(row, view), view, rtol=1e-4, atol=1e-5, equal_nan=True):
                raise UnsupportedError(_BY_ITSELF)


def _view(views: Views, rows: Tensor, numbers: Tensor) -> Tensor:
    try:
        made: Any = views.made(rows, numbers)
        if isinstance(made, Tensor):
            return made
        said = f"a {type(made).__name__} came back, no tensor."
    except SordinoError:
        raise
    except (RuntimeError, ValueError, TypeError) as error:
        said = str(error)[:200]
    raise UnsupportedError(
        f"augment cannot be mapped over records one by one (torch.func.vmap); torch says: {said} It may draw "
        "nothing by itself: it is given numbers, as many as its attribute draws says."
    )


def holds_records(function: Any, source: Source) -> bool:
    """Tell whether a function holds the records as they are.

    Found are the data set itself, and arrays that share the memory of its tensors or equal them as a whole.
    Some of the records, the same in another order, in a list, scaled, or a mean of them are not found.
    """
    parts = source.data if isinstance(source.data, tuple) else ()
    for one in reachable_objects(function):
        array = torch.from_numpy(one) if isinstance(one, np.ndarray) and one.dtype.kind in "fiu" else one
        alike = isinstance(array, Tensor) and (
            any(overlap(one, part) for part in (*source.inputs, *parts))
            or any(array.shape == part.shape and torch.equal(array.to(part), part) for part in parts)
        )
        if one is source.data or alike:
            return True
    return False
