"""Norms of rows and clip factors for tensors in double precision; methods of tensors need no import.

These are the passes of :mod:`sordino.kernel.clip` on a device: the same operations in the same
precision, so the same bounds hold. A sum of K terms errs by ``K u`` of the sum of their sizes in whatever
order a device adds it up; products, quotients and roots in double precision round once, as the standard says.
"""

from __future__ import annotations

from typing import Any

from sordino.kernel.clip import HIGHEST, NOTHING, TINY, UNIT, limit, slack

Tensor = Any


def clipped_scalars(scalars: Tensor, norms: Tensor, bound: float) -> Tensor:
    """Return what :func:`sordino.kernel.clip.clip_scalars` does with one scalar for each record."""
    if not bound >= NOTHING:
        return scalars * 0.0
    most = limit(bound)
    sizes = scalars.abs() * norms
    factors = sizes.new_full((), most) / sizes  # a number over a tensor would be rounded twice
    shorter = scalars * factors
    kept = factors.minimum(shorter.abs()) >= TINY  # a size that is not finite has the factor 0, or none
    return scalars.where(sizes <= most, shorter.where(kept, 0.0))


def factors_of(norms: Tensor, bound: float) -> Tensor:
    """Return ``min(1, bound / norm)`` for norms that are upper bounds, 0 where a norm is not finite."""
    most = limit(bound)
    factors = norms.new_full((), most) / norms
    return norms.new_ones(norms.shape).where(norms <= most, factors.where(factors >= TINY, 0.0))


def scale_down(coefficients: Tensor, factors: Tensor) -> Tensor:
    """Return ``coefficients factors`` for factors up to 1, see :func:`sordino.kernel.clip.scale_down`."""
    products = coefficients * factors
    return products.where((factors == 1.0) | (products.abs() >= TINY), 0.0)


def above_tensors(norms: Tensor, length: int) -> Tensor:
    """Return ``norms (1 + slack(length))``, and the next number where a subnormal was rounded."""
    out = norms * (1.0 + slack(length))
    return out.nextafter(out + 1.0).where((out > 0) & (out < TINY), out)


def joint_norms(norms: Tensor, *others: Any) -> Tensor:
    """Return upper bounds of the norms of vectors whose parts have these norms; some may be one number.

    **Rounding.** ``hypot`` errs by at most 4 u each time on a device.
    """
    for other in others:
        norms = norms.hypot(other if hasattr(other, "dtype") else norms.new_full((), other))
    return above_tensors(norms, 4 * len(others))


def sum_of_rows(columns: list[Tensor], bound: float) -> Any:
    """Return the sum of rows, given by their columns, each clipped to the norm ``bound``, as an array."""
    rows = columns[0].new_zeros(len(columns[0]), len(columns))
    for j, column in enumerate(columns):
        rows[:, j] = column
    factors = factors_of(row_norms(rows), bound)[:, None]
    return (rows.where(factors > 0.0, 0.0) * factors).sum(0).cpu().numpy()


def row_norms(rows: Tensor) -> Tensor:
    """Return upper bounds of the norms of dense rows, see :func:`norms_of`."""
    return norms_of(rows, rows.abs().amax(1), lambda each: each[:, None], lambda v: v.sum(1), rows.shape[1])


def norms_of(values: Tensor, peaks: Tensor, beside: Any, added: Any, width: int) -> Tensor:
    """Return upper bounds of the norms of rows; nan where one is not finite or longer than 2^400.

    ``peaks`` are the largest magnitudes of the rows, ``beside`` brings a number of each row to its values and
    ``added`` adds up those of a row. Values are scaled by a power of two, which is exact, so that no square
    that counts vanishes or overflows.
    """
    usable = peaks <= HIGHEST
    powers = peaks.where(usable, 0.0).frexp().exponent.clamp(min=-1000)
    roots = added((values * beside(_power(-powers, peaks))).square()).sqrt()
    return above_tensors(roots * _power(powers, peaks), width).where(usable & (roots >= 0.0), float("nan"))


def centred_norms(near: Tensor, away: Tensor, whole: float, width: int, spread: float, dense: bool) -> Tensor:
    r"""Return upper bounds of ``|| weights (f x - shift) ||``; the bound is that of the passes on arrays.

    ``near`` and ``away`` are the sums of ``(weights (f x - shift))^2`` and of ``(weights f x)^2`` as
    computed, ``whole`` that of ``(weights shift)^2`` over all columns.
    See :func:`sordino.kernel.clip.centred_norms`.
    """
    if dense:
        out = near.sqrt() + 8 * UNIT * spread * (away.sqrt() + whole**0.5)
    else:
        out = (near + 6 * (width + 4) * UNIT * spread * (away + whole)).sqrt()
    out = above_tensors(out, width) + 2.0**-500 * width**0.5
    return out.where(out < float("inf"), float("nan"))


def centred_rows(rows: Tensor, shift: Tensor, weights: Tensor, spread: float) -> Tensor:
    """Return upper bounds of the norms of dense rows that are shifted and weighed."""
    near = ((rows - shift) * weights).square().sum(1)
    away = (rows * weights).square().sum(1)
    whole = float((weights * shift).square().sum())
    return centred_norms(near, away, whole, rows.shape[1], spread, True)


def _power(exponents: Tensor, like: Tensor) -> Tensor:
    """Return powers of two of exponents between -1022 and 1023, exactly, by their bits."""
    return ((exponents.long() + 1023) * 2**52).view(like.dtype)
