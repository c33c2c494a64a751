"""Clipping of per-record gradients on tensors: the line every guarantee of ``sordino.nn`` rests on."""

from __future__ import annotations

import torch
from torch import Tensor

# Norms and products are rounded to float32; this keeps a clipped gradient below its bound.
SAFETY = 1.0 - 2.0**-17
# How far a matrix product may round, relative to the norms of its factors: float32, TF32, bfloat16.
ROUNDING = {"highest": 2.0**-22, "high": 2.0**-10, "medium": 2.0**-7}


def clip_factors(norms: Tensor, clip: float, present: Tensor | None = None) -> Tensor:
    """Return ``min(1, clip / norm)`` for each record; a norm that is not a number gives zero.

    ``present`` is 0 for the rows that only fill up a compiled batch.
    """
    bound = clip * SAFETY
    factors = torch.where(norms > bound, bound / norms, torch.ones_like(norms))
    factors = torch.where(torch.isfinite(norms), factors, torch.zeros_like(factors))
    return factors if present is None else factors * present


def clipped_rows_sum(rows: Tensor, clip: float, present: Tensor | None = None) -> Tensor:
    """Return ``sum_i clip(rows_i)`` for gradients that are held one per row."""
    factors = clip_factors(torch.linalg.vector_norm(rows, dim=1), clip, present)
    return weighted_rows_sum(rows, factors)


def weighted_rows_sum(rows: Tensor, factors: Tensor) -> Tensor:
    """Return ``sum_i factors_i rows_i``; a row of factor zero is not read, it may be infinite."""
    rows = torch.where(factors[:, None] > 0, rows, torch.zeros_like(rows))
    return factors @ rows


def rounding() -> float:
    """Return the relative rounding of float32 matrix products as torch is set now."""
    return ROUNDING.get(torch.get_float32_matmul_precision(), ROUNDING["medium"])
