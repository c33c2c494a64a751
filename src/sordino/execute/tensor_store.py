"""Rows as tensors on a device, dense or CSR, and the sums over them in double precision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from sordino.kernel import clip_doubles

_CHUNK = 1 << 26  # entries of a block that is cast to double precision at a time


class Store(Protocol):
    """Rows on a device; all sums are in double precision. ``short``: a sum is few and short operations."""

    shape: tuple[int, int]
    device: torch.device
    short: bool

    def products(self, w: Tensor) -> Tensor:
        """Return ``x_i . w`` of each row."""

    def added(self, coefficients: Tensor) -> Tensor:
        """Return ``sum_i c_i x_i``."""

    def added_sizes(self, coefficients: Tensor, square: bool) -> Tensor:
        """Return ``sum_i |c_i x_i|``, or that of the squares, entry by entry."""

    def norms(self) -> Tensor:
        """Return upper bounds of the norms of rows."""

    def peaks(self) -> Tensor:
        """Return the largest magnitude of each row."""

    def centred(self, factors: Tensor, shift: Tensor, weights: Tensor, spread: float) -> Tensor:
        """Return upper bounds of ``|| weights (f_i x_i - shift) ||``."""

    def picked(self, rows: Tensor) -> Store:
        """Return some rows."""

    def zeroed(self, marked: Tensor) -> Store:
        """Return a copy with zeros in the marked rows."""

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield the rows as dense blocks of doubles."""


class DenseStore:
    """A dense tensor; single precision is cast block by block."""

    short = False

    def __init__(self, tensor: Tensor) -> None:
        self._tensor, self.device = tensor, tensor.device
        self.shape = (tensor.shape[0], tensor.shape[1])

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield the rows in blocks."""
        step = max(1, _CHUNK // max(1, self.shape[1]))
        for start in range(0, self.shape[0], step):
            rows = slice(start, min(start + step, self.shape[0]))
            yield rows, self._tensor[rows].double()

    def products(self, w: Tensor) -> Tensor:
        """Return ``x_i . w`` of each row."""
        return self._each(lambda block, _: block @ w)

    def added(self, coefficients: Tensor) -> Tensor:
        """Return ``sum_i c_i x_i``."""
        out = coefficients.new_zeros(self.shape[1])
        for rows, block in self.blocks():
            out += coefficients[rows] @ block
        return out

    def added_sizes(self, coefficients: Tensor, square: bool) -> Tensor:
        """Return the sums of sizes."""
        out = coefficients.new_zeros(self.shape[1])
        for rows, block in self.blocks():
            sizes = block.abs() * coefficients[rows, None]
            out += (sizes.square() if square else sizes).sum(0)
        return out

    def norms(self) -> Tensor:
        """Return upper bounds of the norms of rows."""
        return self._each(lambda block, _: clip_doubles.row_norms(block))

    def peaks(self) -> Tensor:
        """Return the largest magnitude of each row."""
        return self._each(lambda block, _: block.abs().amax(1))

    def centred(self, factors: Tensor, shift: Tensor, weights: Tensor, spread: float) -> Tensor:
        """Return upper bounds of the norms of centred rows."""

        def each(block: Tensor, rows: slice) -> Tensor:
            return clip_doubles.centred_rows(block * factors[rows, None], shift, weights, spread)

        return self._each(each)

    def picked(self, rows: Tensor) -> DenseStore:
        """Return some rows."""
        return DenseStore(self._tensor[rows])

    def zeroed(self, marked: Tensor) -> DenseStore:
        """Return a copy with zeros in the marked rows."""
        return DenseStore(self._tensor.masked_fill(marked[:, None], 0.0))

    def _each(self, function: Any) -> Tensor:
        parts = [function(block, rows) for rows, block in self.blocks()]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.float64, device=self.device)


class CsrStore:
    """A CSR tensor, and its transpose: a sum over rows is a product with that."""

    short = True

    def __init__(self, tensor: Tensor) -> None:
        self.shape, self.device = (tensor.shape[0], tensor.shape[1]), tensor.device
        self._values = tensor.values().double()
        # Short numbers of places where they hold all: a product reads a number for each entry.
        kind = torch.int32 if max(len(self._values), *self.shape) < 2**31 else torch.int64
        self._pointers, self._columns = tensor.crow_indices().to(kind), tensor.col_indices().to(kind)
        counts = self._pointers.diff()
        self._rows = torch.repeat_interleave(torch.arange(self.shape[0], device=self.device), counts)
        self._order = torch.argsort(self._columns, stable=True)
        ends = torch.bincount(self._columns, minlength=self.shape[1]).cumsum(0)
        self._ends = torch.cat([ends.new_zeros(1), ends]).to(kind)
        self._turned_rows = self._rows[self._order].to(kind)
        self._matrix = _csr(self._pointers, self._columns, self._values, self.shape)
        self._turned = self._transposed(self._values)

    def products(self, w: Tensor) -> Tensor:
        """Return ``x_i . w`` of each row."""
        return _times(self._matrix, w)

    def added(self, coefficients: Tensor) -> Tensor:
        """Return ``sum_i c_i x_i``."""
        return _times(self._turned, coefficients)

    def added_sizes(self, coefficients: Tensor, square: bool) -> Tensor:
        """Return the sums of sizes."""
        sizes = self._values.abs() * coefficients[self._rows]  # before: the square of a factor underflows
        ones = coefficients.new_ones(self.shape[0])
        return _times(self._transposed(sizes.square() if square else sizes), ones)

    def _transposed(self, values: Tensor) -> Tensor:
        turned = (self.shape[1], self.shape[0])
        return _csr(self._ends, self._turned_rows, values[self._order], turned)

    def norms(self) -> Tensor:
        """Return upper bounds of the norms of rows."""
        return clip_doubles.norms_of(
            self._values, self.peaks(), lambda each: each[self._rows], self._by_row, self.shape[1]
        )

    def peaks(self) -> Tensor:
        """Return the largest magnitude of each row."""
        out = self._values.new_zeros(self.shape[0])
        return out.scatter_reduce(0, self._rows, self._values.abs(), "amax")

    def centred(self, factors: Tensor, shift: Tensor, weights: Tensor, spread: float) -> Tensor:
        """Return upper bounds of the norms of centred rows; no row is made dense."""
        entries, there = self._values * factors[self._rows], weights[self._columns]
        offset = shift[self._columns] * there
        whole = float((weights * shift).square().sum())
        inside = self._by_row(((entries - shift[self._columns]) * there).square())
        rest = (whole - self._by_row(offset.square())).clamp(min=0.0)
        away = self._by_row((entries * there).square())
        return clip_doubles.centred_norms(inside + rest, away, whole, self.shape[1], spread, False)

    def picked(self, rows: Tensor) -> CsrStore:
        """Return some rows."""
        counts = self._pointers.diff()[rows]
        pointers = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        starts = torch.repeat_interleave(self._pointers[:-1][rows] - pointers[:-1], counts)
        entries = starts + torch.arange(len(starts), device=self.device)
        shape = (len(rows), self.shape[1])
        return CsrStore(_csr(pointers, self._columns[entries], self._values[entries], shape))

    def zeroed(self, marked: Tensor) -> CsrStore:
        """Return a copy with zeros in the marked rows."""
        values = self._values.masked_fill(marked[self._rows], 0.0)
        return CsrStore(_csr(self._pointers, self._columns, values, self.shape))

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield the rows as dense blocks."""
        step = max(1, _CHUNK // max(1, self.shape[1]))
        for start in range(0, self.shape[0], step):
            rows = slice(start, min(start + step, self.shape[0]))
            entries = slice(int(self._pointers[rows.start]), int(self._pointers[rows.stop]))
            block = self._values.new_zeros(rows.stop - start, self.shape[1])
            block[self._rows[entries] - start, self._columns[entries]] = self._values[entries]
            yield rows, block

    def _by_row(self, values: Tensor) -> Tensor:
        matrix = _csr(self._pointers, self._columns, values, self.shape)
        return _times(matrix, values.new_ones(self.shape[1]))


def store_of(tensor: Tensor) -> Store:
    """Return the store of a dense or sparse tensor."""
    return DenseStore(tensor) if tensor.layout == torch.strided else CsrStore(tensor)


def _times(matrix: Tensor, w: Tensor) -> Tensor:
    return matrix.mv(w)


def _csr(pointers: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    return torch.sparse_csr_tensor(pointers, columns, values, shape, check_invariants=False)
