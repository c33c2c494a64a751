"""Tensors of which a release sees random views: the mean gradient of a record's views is clipped once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from sordino.errors import InvalidInputError, PlanError
from sordino.execute.grouped import Owners
from sordino.execute.torch_persons import PersonExecutor
from sordino.kernel.arrays import Rows
from sordino.kernel.noise import NoiseSource, fresh_noise

_FINE = 1 << 24  # the numbers that views are made from are multiples of 1 / _FINE


@dataclass(frozen=True)
class Views:
    """So many random views of each record in each release.

    ``make(record, numbers)`` returns one view of one record; ``numbers`` are ``draws`` of them, uniform on
    [0, 1). It is called for one record at a time (``torch.func.vmap``), so it cannot mix records, and may
    draw nothing itself.

    **Privacy.** What a view adds depends on its record and on numbers of its own, drawn by the kernel's
    generator and told to nobody. Adding a record changes neither the numbers of another nor their law.
    """

    make: Callable[[Tensor, Tensor], Tensor]
    draws: int
    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1 or self.draws < 0:
            raise InvalidInputError(
                f"Expected multiplicity >= 1 and draws >= 0, got {self.count} and {self.draws}."
            )

    def of(self, x: Tensor, noise: NoiseSource) -> Tensor:
        """Return one view of each row."""
        whole = noise.integers(_FINE, (len(x), self.draws)).astype(np.float32)
        return self.made(x, torch.from_numpy(whole / np.float32(_FINE)).to(x.device))

    def made(self, x: Tensor, numbers: Tensor) -> Tensor:
        """Return one view of each row from its row of numbers."""
        return vmap(self.make, randomness="error")(x, numbers)

    def owners(self, owners: Owners | None, records: int) -> Owners:
        """Return who owns the views, record by record or person by person."""
        if owners is None:
            owners = Owners(np.arange(records), np.arange(records + 1))
        return Owners(np.repeat(owners.order, self.count), owners.edges * self.count)


@dataclass(frozen=True, eq=False)
class ViewExecutor(PersonExecutor):
    """Records of which fresh views are made whenever they are read; see :class:`PersonExecutor`.

    ``owners`` owns views: each record stands there as often as it has views.
    """

    views: Views | None = None
    _draws: NoiseSource = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.views is None or self.owners is None or len(self.owners.order) != self._views():
            raise PlanError("Expected the owner of each view.")
        super(PersonExecutor, self).__post_init__()
        object.__setattr__(self, "_draws", fresh_noise())

    def _views(self) -> int:
        return self._count * (1 if self.views is None else self.views.count)

    def batch(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return a view of each of some rows, and its target; for queries only."""
        x, y = super().batch(rows)
        assert self.views is not None
        return (self.views.of(x, self._draws), y) if len(x) else (x, y)
