"""Compiled passes over the rows of a CSR matrix."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from scipy import sparse

from sordino.errors import InvalidInputError
from sordino.kernel.arrays import Floats, Ints, compile_with_cache
from sordino.kernel.lazy import TouchMap, find
from sordino.kernel.query import as_weights, clip_residuals, pull_rows

_AHEAD = 256  # rows
# A place in an array that cannot be negative: compiled code then has no test for places from the end, which
# would cost as much as the work. All structures were checked when they were made (:func:`check_csr`).
At = np.uint64


def as_rows(matrix: Any) -> Any:
    """Return the matrix as a C-ordered array or as CSR without copying what fits already."""
    dense = not sparse.issparse(matrix)
    if not dense:
        check_structure(matrix)
    rows = np.ascontiguousarray(matrix) if dense else matrix.tocsr()
    if rows.dtype not in (np.float32, np.float64) and rows.dtype.kind in "biuf":
        rows = rows.astype(np.float64)  # counts and flags: the compiled passes know floats
    return rows if dense else check_csr(rows)


def sound(matrix: Any) -> Any:
    """Return what is not sparse as it is, a sparse matrix with its structure checked."""
    if not sparse.issparse(matrix) or matrix.ndim != 2:
        return matrix
    check_structure(matrix)
    return check_csr(matrix) if matrix.format == "csr" else matrix


def check_structure(matrix: Any) -> None:
    """Refuse a sparse matrix of another format that conversion to CSR would read out of bounds."""
    try:
        if matrix.format in ("csc", "bsr"):
            matrix.copy().check_format(full_check=True)
        elif matrix.format == "coo":
            for axis, size in zip(matrix.coords, matrix.shape, strict=True):
                if axis.shape != matrix.data.shape or np.any((axis < 0) | (axis >= size)):
                    raise ValueError
    except ValueError:
        raise _malformed_error(matrix) from None


def _malformed_error(matrix: Any) -> InvalidInputError:
    return InvalidInputError(
        f"Expected a sparse matrix of shape {matrix.shape} with rising pointers and indices inside it, "
        f"got a malformed {matrix.format} matrix. Build it again from (data, (rows, columns))."
    )


def check_csr(matrix: Any) -> Any:
    """Return a CSR matrix whose structure holds: each entry of a row once, in order, inside the matrix.

    Nothing that the matrix says about itself is believed: a column stored twice would falsify the norm of its
    row, one beyond the last column would be added somewhere else. One pass over the non-zeros.
    """
    data, indices, indptr = matrix.data, matrix.indices, matrix.indptr
    shape_holds = indptr.shape == (matrix.shape[0] + 1,) and data.ndim == 1 and data.shape == indices.shape
    kinds_hold = indptr.dtype.kind == "i" and indices.dtype.kind == "i"
    if not (shape_holds and kinds_hold) or not _rises(indptr, data.size):
        raise _malformed_error(matrix)
    if _is_canonical(indptr, indices, matrix.shape[1]):
        if indptr[-1] == data.size:
            return matrix
    elif not _is_inside(indices[: indptr[-1]], matrix.shape[1]):
        raise _malformed_error(matrix)
    rows = matrix.copy()
    rows.prune()
    rows.has_sorted_indices = rows.has_canonical_format = False
    rows.sum_duplicates()
    return rows


@compile_with_cache(nogil=True)
def _rises(indptr: Any, stored: int) -> bool:
    """Tell whether row pointers rise from 0 to at most ``stored``."""
    rises = indptr[0] == 0 and indptr[-1] <= stored
    for i in range(indptr.size - 1):
        rises &= indptr[i] <= indptr[i + 1]
    return rises


@compile_with_cache(nogil=True)
def _is_inside(indices: Any, columns: int) -> bool:
    inside = True
    for p in range(indices.size):
        inside &= indices[p] >= 0 and indices[p] < columns
    return inside


@compile_with_cache(nogil=True)
def _is_canonical(indptr: Any, indices: Any, columns: int) -> bool:
    """Tell whether the columns of each row rise strictly and exist; row pointers are known to rise."""
    canonical = True
    for i in range(indptr.size - 1):
        row = indices[indptr[i] : indptr[i + 1]]
        if row.size:
            canonical &= row[0] >= 0 and row[-1] < columns
            for p in range(row.size - 1):
                canonical &= row[p] < row[p + 1]
    return canonical


@numba.njit(inline="always")
def product(indices: Any, data: Any, first: int, last: int, w: Floats) -> float:
    """Return the product of a row with ``w``, in four sums that do not wait for each other."""
    one, two, three, four = At(1), At(2), At(3), At(4)
    p, stop = At(first), At(last)
    a = b = c = d = 0.0
    while p + four <= stop:
        a += data[p] * w[At(indices[p])]
        b += data[p + one] * w[At(indices[p + one])]
        c += data[p + two] * w[At(indices[p + two])]
        d += data[p + three] * w[At(indices[p + three])]
        p += four
    while p < stop:
        a += data[p] * w[At(indices[p])]
        p += one
    return (a + b) + (c + d)


@numba.njit(inline="always")
def add_row(indices: Any, data: Any, first: int, last: int, factor: float, out: Floats) -> None:
    """Add ``factor`` times a row to ``out``, two entries at a time: columns differ (:func:`check_csr`)."""
    one, two = At(1), At(2)
    p, stop = At(first), At(last)
    while p + two <= stop:
        left, right = At(indices[p]), At(indices[p + one])
        a, b = out[left] + factor * data[p], out[right] + factor * data[p + one]
        out[left], out[right] = a, b
        p += two
    if p < stop:
        out[At(indices[p])] += factor * data[p]


@compile_with_cache(nogil=True)
def margins(indptr: Any, indices: Any, data: Any, rows: Any, w: Floats, out: Floats) -> None:
    """Write ``x_i . w`` for the given rows."""
    for i in range(rows.size):
        out[i] = product(indices, data, indptr[rows[i]], indptr[rows[i] + 1], w)


@compile_with_cache(nogil=True)
def scatter(indptr: Any, indices: Any, data: Any, rows: Any, coef: Floats, out: Floats) -> None:
    """Add ``coef_i x_i`` to ``out``; a row of coefficient zero is not read."""
    for i in range(rows.size):
        if coef[i] != 0.0:
            add_row(indices, data, indptr[rows[i]], indptr[rows[i] + 1], coef[i], out)


@compile_with_cache(nogil=True)
def fill(indptr: Any, indices: Any, data: Any, rows: Any, coef: Floats, out: Floats) -> None:
    """Write ``coef_i x_i`` into the rows of an array of zeros."""
    for i in range(rows.size):
        for p in range(At(indptr[rows[i]]), At(indptr[rows[i] + 1])):
            out[i, At(indices[p])] = coef[i] * data[p]


def pick(matrix: Any, rows: Any, columns: Ints) -> Any:
    """Return some rows with some columns alone, numbered in their order."""
    x, ends = matrix, np.zeros(rows.size + 1, dtype=np.int64)
    # Room for every entry, and for one that is not wanted: what is not written to takes no memory.
    indices, data = np.empty(x.indices.size + 1, dtype=np.int32), np.empty(x.data.size + 1, x.data.dtype)
    numbers, kept = np.empty(0, dtype=np.int32), TouchMap.of(columns[:0])
    if x.shape[1] <= x.indices.size // max(1, x.shape[0]) * rows.size:  # a number of each column costs less
        numbers = np.full(x.shape[1], -1, dtype=np.int32)
        numbers[columns] = np.arange(columns.size, dtype=np.int32)
    else:
        kept = TouchMap.of(columns)
    places = (numbers, kept.cells, kept.columns)
    count = _gather(x.indptr, x.indices, x.data, rows, places, ends, indices, data)
    return sparse.csr_matrix((data[:count], indices[:count], ends), (rows.size, columns.size), copy=False)


def renumber(matrix: Any, rows: Any) -> tuple[Any, Any]:
    """Return the columns that some rows have entries in, and the matrix, as wide, by their numbers."""
    x = matrix
    columns = np.empty(min(x.indices.size, x.shape[1]), dtype=np.int64)
    touched, slots = TouchMap.empty(columns), np.zeros(x.indices.size, dtype=np.int32)
    count = _renumber(x.indptr, x.indices, rows, touched.cells, columns, slots)
    return columns[:count], _with_indices(x, slots)


def reorder(columns: Any, matrix: Any, first: Any) -> tuple[Any, Any]:
    """Return numbered columns with some others in front, each once, and the matrix by the new numbers."""
    if not first.size:
        return columns, matrix
    numbers = TouchMap.of(first).slots(columns)
    new = numbers < 0
    numbers[new] = first.size + np.arange(np.count_nonzero(new))
    return np.concatenate([first, columns[new]]), _with_indices(matrix, numbers[matrix.indices])


def _with_indices(matrix: Any, indices: Any) -> Any:
    out = sparse.csr_matrix(matrix.shape, dtype=matrix.data.dtype)
    out.data, out.indices, out.indptr = matrix.data, indices, matrix.indptr
    return out


@compile_with_cache(nogil=True)
def _gather(
    indptr: Any, indices: Any, data: Any, rows: Any, places: Any, ends: Any, kept: Any, out: Any
) -> int:
    """Copy the entries whose column has a number, or is in a map; any other is written over by the next."""
    numbers, cells, columns = places
    at = At(0)
    for i in range(rows.size):
        for p in range(At(indptr[rows[i]]), At(indptr[rows[i] + 1])):
            if numbers.size:
                slot = numbers[At(indices[p])]
            else:
                slot = cells[find(cells, columns, np.int64(indices[p]))]
            kept[at], out[at] = slot, data[p]
            at += At(slot >= 0)
        ends[i + 1] = at
    return ends[-1]


@compile_with_cache(nogil=True)
def _renumber(indptr: Any, indices: Any, rows: Any, cells: Any, columns: Any, slots: Any) -> int:
    """Number the columns in the order in which they appear; return how many there are."""
    count = 0
    for i in range(rows.size):
        for p in range(At(indptr[rows[i]]), At(indptr[rows[i] + 1])):
            column = np.int64(indices[p])
            cell = find(cells, columns, column)
            if cells[cell] < 0:
                cells[cell] = count
                columns[count] = column
                count += 1
            slots[p] = cells[cell]
    return count


@compile_with_cache(nogil=True)
def touch(
    indptr: Any,
    indices: Any,
    data: Any,
    rows: Any,
    cells: Any,
    columns: Any,
    start: int,
    w: Floats,
    layout: Any,
    packed: Floats,
    out: Floats,
) -> tuple[Any, int]:
    """Lay out a batch: number the columns it touches and compute its margins in one pass.

    ``columns[:start]`` (the support of the iterate, values ``w``) are in the map already. ``layout`` gets
    the number of each non-zero's column, ``packed`` its value. Returns how many columns are touched,
    and a number without meaning, without which the reading ahead would be optimised away.
    """
    count, at, ahead = At(start), At(0), 0
    for i in range(rows.size):
        if i % _AHEAD == 0:
            ahead += _read_ahead(indptr, indices, data, rows[i : i + _AHEAD])
        total = 0.0
        for p in range(At(indptr[rows[i]]), At(indptr[rows[i] + 1])):
            column = np.int64(indices[p])
            cell = find(cells, columns, column)
            slot: Any = cells[cell]
            if slot < 0:
                slot = np.int32(count)
                cells[cell] = slot
                columns[count] = column
                count += At(1)
            layout[at] = slot
            packed[at] = data[p]
            at += At(1)
            if slot < start:
                total += data[p] * w[At(slot)]
        out[i] = total
    return count, ahead


@numba.njit(inline="always")
def _read_ahead(indptr: Any, indices: Any, data: Any, rows: Any) -> int:
    """Read one entry of each cache line of some rows, so that they are near when their turn comes."""
    seen: Any = 0
    for i in range(rows.size):
        for p in range(At(indptr[rows[i]]), At(indptr[rows[i] + 1]), At(8)):
            seen += np.int64(indices[p]) + np.int64(data[p] > 0)
    return seen


@compile_with_cache(nogil=True)
def scatter_touched(ends: Any, layout: Any, packed: Floats, coef: Floats, out: Floats) -> None:
    """Add ``coef_i x_i`` to the slots of a batch that was laid out by :func:`touch`."""
    at = 0
    for i in range(ends.size):
        if coef[i] != 0.0:
            for p in range(At(at), At(ends[i])):
                out[At(layout[p])] += coef[i] * packed[p]
        at = ends[i]


@compile_with_cache(nogil=True)
def size_scatter(
    indptr: Any, indices: Any, data: Any, rows: Any, coef: Floats, square: bool, out: Floats
) -> None:
    """Add ``|coef_i x_i|``, or its square, to ``out``."""
    for i in range(rows.size):
        for p in range(At(indptr[rows[i]]), At(indptr[rows[i] + 1])):
            size = abs(coef[i] * np.float64(data[p])) if coef[i] != 0.0 else 0.0
            out[At(indices[p])] += size * size if square else size


@compile_with_cache(nogil=True)
def multiply(
    indptr: Any, indices: Any, data: Any, rows: Any, scale: Floats, block: Floats, out: Floats
) -> None:
    """Write ``scale_i x_i^T block`` for the given rows."""
    for i in range(rows.size):
        for p in range(At(indptr[rows[i]]), At(indptr[rows[i] + 1])):
            value, column = scale[i] * data[p], At(indices[p])
            for j in range(block.shape[1]):
                out[i, j] += value * block[column, j]


@compile_with_cache(nogil=True)
def multiply_transposed(
    indptr: Any, indices: Any, data: Any, rows: Any, scale: Floats, coef: Floats, out: Floats
) -> None:
    """Add ``scale_i x_i coef_i^T`` for the given rows."""
    for i in range(rows.size):
        for p in range(At(indptr[rows[i]]), At(indptr[rows[i] + 1])):
            value, column = scale[i] * data[p], At(indices[p])
            for j in range(coef.shape[1]):
                out[column, j] += value * coef[i, j]


@compile_with_cache(nogil=True)
def add_pairs(indptr: Any, indices: Any, data: Any, rows: Any, scale: Floats, out: Floats) -> None:
    """Add ``(scale_i x_i)(scale_i x_i)^T`` over non-zero pairs to half of a symmetric matrix."""
    for i in range(rows.size):
        f, start, stop = scale[i], At(indptr[rows[i]]), At(indptr[rows[i] + 1])
        if f != 0.0:
            for p in range(start, stop):
                value, row = f * data[p], At(indices[p])
                for q in range(start, p + At(1)):
                    out[row, At(indices[q])] += value * (f * data[q])
    for j in range(out.shape[0]):
        for k in range(j):
            out[k, j] = out[j, k]


# A clipped gradient in one pass over rows in memory: a block is read once, for its margins and its sum.
# Its residuals and clips are those of :mod:`sordino.kernel.query`.

_ENTRIES = 1 << 15  # entries of a dense block: they stay in the cache
_STORED = 1 << 17  # entries of a sparse one, which takes turns with the sums of all columns
MAPPED = (
    248  # mapped rows side by side: columns that were powers of two apart would share a line of the cache
)
# The order of a sum is free where it makes a margin, which a record may have any of.
_FREE_ORDER = {"reassoc", "contract", "nsz"}


def pass_facts(view: Any, scale: Floats, factors: Floats, longest: float) -> tuple[Floats, ...]:
    """Return targets, weights, norms, and factors of sums, stored rows and margins, one for each record."""
    whole = factors / np.maximum(factors, 1.0 / longest) if longest > 1.0 else factors
    facts = (view.targets, as_weights(view.weights), view.norms, factors, scale, whole)
    return tuple(map(np.ascontiguousarray, facts))


@compile_with_cache(nogil=True)
def pull_block(pull: Any, products: Any, room: Any, facts: Any, at: Any, start: int) -> tuple[float, float]:
    """Write the factors of stored rows over their products with a point, see :func:`pull_rows`.

    ``facts`` are those of all rows, of which these begin at ``start``; ``at`` are the product of the point
    with the shift, and the constant of all margins.
    """
    targets, weights, norms, shorter, scale, whole = facts
    offset, constant = at
    here = slice(start, start + products.size)
    for j in range(products.size):
        products[j] = (products[j] * scale[start + j] - offset) * whole[start + j] + constant
    given = weights[here] if weights.size else weights
    return pull_rows(pull, products, room, targets[here], given, norms[here], shorter[here], scale[here])


@compile_with_cache(nogil=True)
def over_csr(
    indptr: Any, indices: Any, data: Any, rows: Any, w: Any, at: Any, facts: Any, pull: Any, out: Any
) -> tuple[float, float]:
    """Add the clipped gradient of sparse rows to ``out``, if it has room; return :func:`pull_rows`' sums."""
    step = max(32, min(2048, _STORED * (indptr.size - 1) // max(1, data.size)))
    products, room, total, shifted = np.empty(step), np.empty(step), 0.0, 0.0
    for start in range(0, rows.size, step):
        count = min(step, rows.size - start)
        for j in range(count):
            row = rows[start + j]
            products[j] = product(indices, data, indptr[row], indptr[row + 1], w)
        sums = pull_block(pull, products[:count], room, facts, at, start)
        total += sums[0]
        shifted += sums[1]
        for j in range(count):
            if products[j] != 0.0 and out.size:
                row = rows[start + j]
                add_row(indices, data, indptr[row], indptr[row + 1], products[j], out)
    return total, shifted


@compile_with_cache(nogil=True)
def over_dense(matrix: Any, w: Any, at: Any, facts: Any, pull: Any, out: Any) -> tuple[float, float]:
    """Add the clipped gradient of the rows of an array to ``out``, see :func:`over_csr`."""
    n, step = matrix.shape[0], max(1, min(1024, _ENTRIES // max(1, matrix.shape[1])))
    products, room, total, shifted = np.empty(step), np.empty(step), 0.0, 0.0
    for start in range(0, n, step):
        count = min(step, n - start)
        block = matrix[start : start + count]
        dots(block, w, products)
        sums = pull_block(pull, products[:count], room, facts, at, start)
        total += sums[0]
        shifted += sums[1]
        if out.size:
            add_rows(block, products, out)
    return total, shifted


@compile_with_cache(nogil=True)
def over_blocks(blocks: Any, w: Any, constant: float, facts: Any, pull: Any, out: Any) -> float:
    """Add the clipped gradient of rows in blocks to ``out``, if it has room; return the sum of its factors.

    ``facts`` are targets, weights, norms and factors of margins; ``w`` and ``out`` are as long as a block.
    """
    targets, weights, norms, longer = facts
    size, total = blocks.shape[2], 0.0
    products, room = np.empty(size), np.empty(size)
    for i in range(blocks.shape[0]):
        here = slice(i * size, min((i + 1) * size, targets.size))
        _multiply_columns(blocks[i], w, products)
        values, lengths = products[: here.stop - here.start], longer[here]
        for j in range(values.size):
            values[j] = values[j] * lengths[j] + constant
        given = weights[here] if weights.size else weights
        clip_residuals(pull, values, room, targets[here], given, norms[here])
        products[values.size :] = 0.0  # no record stands there
        total += values.sum()
        if out.size:
            _add_columns(blocks[i], products, out)
    return total


@compile_with_cache(nogil=True, fastmath=_FREE_ORDER)
def _multiply_columns(block: Any, w: Any, out: Any) -> None:
    """Write the sum of the columns of a block, which lie as rows, times numbers: 4 by 4."""
    out[:] = 0.0
    for j in range(0, w.size, 4):
        p, q, r, s = block[j], block[j + 1], block[j + 2], block[j + 3]
        a, b, c, d = w[j], w[j + 1], w[j + 2], w[j + 3]
        for i in range(out.size):
            out[i] += a * p[i] + b * q[i] + c * r[i] + d * s[i]


@compile_with_cache(nogil=True, fastmath=_FREE_ORDER)
def _add_columns(block: Any, factors: Any, out: Any) -> None:
    """Add the products of the columns of a block, which lie as rows, with factors of records: 4 by 4."""
    for j in range(0, out.size, 4):
        p, q, r, s = block[j], block[j + 1], block[j + 2], block[j + 3]
        a = b = c = d = 0.0
        for i in range(factors.size):
            a, b = a + factors[i] * p[i], b + factors[i] * q[i]
            c, d = c + factors[i] * r[i], d + factors[i] * s[i]
        out[j], out[j + 1], out[j + 2], out[j + 3] = (
            out[j] + a,
            out[j + 1] + b,
            out[j + 2] + c,
            out[j + 3] + d,
        )


@compile_with_cache(nogil=True, fastmath=_FREE_ORDER)
def dots(block: Any, w: Any, out: Any) -> None:
    """Write the products of the rows of an array with a point."""
    for i in range(block.shape[0]):
        row, total = block[i], 0.0
        for j in range(w.size):
            total += row[j] * w[j]
        out[i] = total


@compile_with_cache(nogil=True)
def size_rows(matrix: Any, coef: Floats, square: bool, out: Floats) -> None:
    """Add ``|coef_i x_i|``, or its square, of the rows of an array to ``out``."""
    sums = out.copy()
    for i in range(matrix.shape[0]):
        row, factor = matrix[i], coef[i]
        if factor != 0.0:
            for j in range(sums.size):
                size = abs(factor * np.float64(row[j]))
                sums[j] += size * size if square else size
    out[:] = sums


def room_for_blocks(count: int, width: int) -> Any:
    """Return room for mapped rows in single precision: blocks of records that hold columns as rows."""
    size = min(MAPPED * max(1, min(4, _STORED // (MAPPED * width))), count + -count % 8)
    return aligned_zeros((-(-count // size), width + -width % 4, size), np.float32)


def aligned_zeros(shape: tuple[int, ...], kind: Any = np.float64) -> Any:
    """Return zeros that begin with a line of the cache: no vector of a compiled pass straddles two."""
    room = np.zeros(math.prod(shape) + 64 // np.dtype(kind).itemsize, dtype=kind)
    start = -room.ctypes.data % 64 // room.itemsize
    return room[start : start + math.prod(shape)].reshape(shape)


@compile_with_cache(nogil=True)
def add_squares(
    matrix: Any, factors: Any, affine: Any, weights: Any, roots: Any, blocks: Any, room: Any, out: Any
) -> None:
    """Add ``y_i y_i^T``, ``y_i = weights_i scale (factors_i x_i - shift)`` a mapped row, to half of ``out``.

    It is as wide as a row, up to the next multiple of 4. A row whose weight is zero adds nothing. Where there
    are ``blocks`` (:func:`room_for_blocks`) rows are written there, and count by the squares of ``roots``.
    ``affine`` are shift and scale, ``room`` is as wide as ``out`` and has a place for ``MAPPED`` rows.
    """
    shift, scale = affine
    for start in range(0, matrix.shape[0], MAPPED):
        _write_mapped(matrix, factors, shift, scale, weights, start, room)
        if blocks.size:
            _keep(
                room,
                roots[start : start + MAPPED],
                blocks[start // blocks.shape[2]],
                start % blocks.shape[2],
            )
        _add_products(room, out)


@compile_with_cache(nogil=True)
def _write_mapped(
    matrix: Any, factors: Any, shift: Any, scale: Any, weights: Any, start: int, room: Any
) -> None:
    """Write mapped rows from ``start`` on into the columns of ``room``, see :func:`add_squares`."""
    count = min(room.shape[1], matrix.shape[0] - start)
    room[:, count:] = 0.0
    for i in range(count):
        row, factor, weight = matrix[start + i], factors[start + i], weights[start + i]
        for j in range(scale.size):
            value = (factor * np.float64(row[j]) - shift[j]) * scale[j] * weight
            room[j, i] = value if weight != 0.0 else 0.0


@compile_with_cache(nogil=True)
def _keep(room: Any, roots: Any, block: Any, at: int) -> None:
    """Write mapped rows into a block, from ``at`` on, then multiply them by the roots of their weights."""
    for j in range(room.shape[0]):
        column, kept = room[j], block[j, at : at + roots.size]
        for i in range(roots.size):
            kept[i] = column[i]
            column[i] *= roots[i]


@compile_with_cache(nogil=True, fastmath=_FREE_ORDER)
def _add_products(columns: Any, out: Any) -> None:
    """Add the products of columns, which lie as rows here, to half of ``out``: 4 by 4, each read once."""
    for i in range(0, out.shape[0], 4):
        a, b, c, d = columns[i], columns[i + 1], columns[i + 2], columns[i + 3]
        for j in range(0, i + 4, 4):
            e, f, g, h = columns[j], columns[j + 1], columns[j + 2], columns[j + 3]
            ae = af = ag = ah = be = bf = bg = bh = ce = cf = cg = ch = de = df = dg = dh = 0.0
            for k in range(columns.shape[1]):
                ae, af, ag, ah = ae + a[k] * e[k], af + a[k] * f[k], ag + a[k] * g[k], ah + a[k] * h[k]
                be, bf, bg, bh = be + b[k] * e[k], bf + b[k] * f[k], bg + b[k] * g[k], bh + b[k] * h[k]
                ce, cf, cg, ch = ce + c[k] * e[k], cf + c[k] * f[k], cg + c[k] * g[k], ch + c[k] * h[k]
                de, df, dg, dh = de + d[k] * e[k], df + d[k] * f[k], dg + d[k] * g[k], dh + d[k] * h[k]
            for row, sums in enumerate(
                ((ae, af, ag, ah), (be, bf, bg, bh), (ce, cf, cg, ch), (de, df, dg, dh))
            ):
                for column in range(4):
                    out[i + row, j + column] += sums[column]


@compile_with_cache(nogil=True)
def add_rows(block: Any, factors: Any, out: Any) -> None:
    """Add the rows of an array times their factors to ``out``."""
    sums = out.copy()  # compiled code lays it out so that no store straddles two lines of the cache
    for i in range(block.shape[0]):
        row, factor = block[i], factors[i]
        if factor != 0.0:
            for j in range(sums.size):
                sums[j] += factor * row[j]
    out[:] = sums
