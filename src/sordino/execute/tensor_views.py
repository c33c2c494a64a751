"""Mapped rows on a device: what there is one of for each record or column stays beside the rows."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sordino.execute.affine_view import AffineView
from sordino.execute.device import Arriving, DeviceVector
from sordino.execute.played import played
from sordino.kernel import SparseVector, clip_doubles
from sordino.kernel.arrays import Floats
from sordino.kernel.contracts import Point, PublicMap
from sordino.kernel.pull import Pull, pulled


class DeviceView(AffineView):
    """The records of :class:`AffineView`; of a gradient only the sum comes to the processor."""

    _base: Any

    def __init__(self, base: Any, affine: PublicMap) -> None:
        self._base, self._affine, self.intercept = base, affine, affine.intercept
        self._offset = affine.scale * affine.shift
        self.targets, self.weights = base.targets, base.weights
        self._near = base.near(affine.scale), base.near(self._offset)
        sizes = base.centred_sizes(affine.shift, affine.scale)
        factors = clip_doubles.factors_of(sizes, 1.0)
        norms = clip_doubles.joint_norms((sizes * factors).clamp(min=affine.floor), abs(affine.intercept))
        near: Any = (DeviceVector(sizes), DeviceVector(factors), DeviceVector(norms))
        self.sizes, self._clip, self.norms = near

    def clipped_gradient(self, w: Point, pull: Pull) -> Any:
        """Return ``sum_i clip_C(r_i z_i)``, one output, on its way to the processor.

        What is asked many times of sparse rows is recorded once and played again: its operations are short.
        """
        point = np.asarray(w.to_dense() if isinstance(w, SparseVector) else w, dtype=np.float64)
        known = self.__dict__.get("_played")
        if known is None or known[0] != pull:
            here = weakref.proxy(self)  # not a circle: it would keep the rows on the device
            known = pull, played(lambda near: here._gradient(near, pull), point.size, self._base.matrix)
            self.__dict__["_played"] = known
        return Arriving(known[1](point))

    def _gradient(self, point: Tensor, pull: Pull) -> Tensor:
        base, (scale, offset), constant = self._base, self._near, self._affine.intercept
        weights, rows = point[: len(scale)], base.tensor(base.scale)
        factors = base.tensor(self._clip)
        margins = base.near_products(weights * scale) * rows - (weights * offset).sum()
        margins = margins * (factors / factors.clamp(min=1.0 / pull.longest))
        margins = margins + constant * point[-1] if constant else margins
        given = None if self.weights is None else base.tensor(self.weights)
        scalars = pulled(pull, margins, base.tensor(self.targets), given, base.tensor(self.norms))
        shorter = scalars * factors
        out = base.near_sum(clip_doubles.scaled(shorter, rows)) * scale - shorter.sum() * offset
        return torch.cat([out, (constant * scalars.sum())[None]]) if constant else out

    def gram(self, factors: Any) -> Floats:
        """Return ``sum_i f_i z_i z_i^T`` from blocks of mapped rows."""
        base, (scale, _) = self._base, self._near
        shift, rows_scale = base.near(self._affine.shift), base.tensor(base.scale)
        weights, total = base.tensor(self._clip) * base.tensor(factors).sqrt(), scale.new_zeros(len(scale), 1)
        total = total @ total.T
        for rows, block in base.near_blocks():
            kept: Tensor = weights[rows, None]
            z = (block * rows_scale[rows, None] - shift) * scale
            z = z.where(kept > 0.0, 0.0) * kept
            total += z.T @ z
        found: Floats = ((total + total.T) / 2.0).cpu().numpy()
        return found
