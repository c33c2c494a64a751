"""Scattering: wavelet moduli of images, a fixed map of one image at a time, and so free of privacy cost."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from sordino.checks import among, check_count, check_data
from sordino.errors import InvalidInputError
from sordino.kernel.arrays import Floats

_AT_ONCE = 500  # images
_GROUPS = 3  # of channels that are scaled together; chosen on a tenth of the training images of MNIST
_FLAT = 1e-5  # the variance below which a group is left flat
_NORMS = ("groups", "none")


class ScatteringTransformer(TransformerMixin, BaseEstimator):
    r"""Scattering coefficients of order 0, 1 and 2 of small images, for a linear model.

    An image ``x`` is turned into local averages of ``x``, of ``|x * psi_a|`` and of ``||x * psi_a| *
    psi_b|``, where the ``psi`` are Morlet wavelets of several scales and angles. Nothing is learned, so
    nothing is paid: row i of the result depends on image i only.

    Parameters
    ----------
    scales : the number of octaves J; the averages are over ``2^J x 2^J`` pixels.
    angles : the number of directions L.
    shape : of an image, ``(height, width)`` or ``(height, width, channels)``; None takes square grey images,
        and fills rows that are none with zeros up to the next square, with a warning.
    normalise : ``"groups"`` centres and scales the coefficients of each image within groups of channels, and
        makes the norm of a row at most 1, so that ``data_norm=1`` of a linear model after it is a fact;
        ``"none"``.

    Attributes
    ----------
    n_features_in_, shape_

    **Privacy.** A fixed map of one record at a time: fitting reads the number of columns only.

    References
    ----------
    Bruna and Mallat, Invariant scattering convolution networks, 2013; Tramèr and Boneh, Differentially
    private learning needs better features (or much more data), 2021, who use it under a private linear model.

    Examples
    --------
    >>> import numpy as np
    >>> from sordino import ScatteringTransformer
    >>> ScatteringTransformer().fit_transform(np.eye(4, 784)).shape
    (4, 3969)
    """

    n_features_in_: int
    shape_: tuple[int, int, int]

    def __init__(
        self,
        *,
        scales: int = 2,
        angles: int = 8,
        shape: tuple[int, ...] | None = None,
        normalise: str = "groups",
    ) -> None:
        self.scales = scales
        self.angles = angles
        self.shape = shape
        self.normalise = normalise

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the shape; nothing else is read."""
        X = _dense(check_data(self, X))
        scales = check_count("scales", self.scales, 1, 16, "It is the number of octaves.") or 1
        self.shape_ = _shape_of(self.shape, X.shape[1], 1 << scales)
        return self

    def transform(self, X: Any) -> Floats:
        """Return the coefficients, one row per image, in the precision of X."""
        check_is_fitted(self, "shape_")
        X = _dense(check_data(self, X, reset=False))
        return np.concatenate([self._rows(part) for part in _parts(X)])

    def _rows(self, rows: Floats) -> Floats:
        height, width, channels = self.shape_
        rows = np.pad(rows, ((0, 0), (0, math.prod(self.shape_) - rows.shape[1])))
        images = np.moveaxis(rows.reshape(-1, height, width, channels), 3, 1)
        scales = check_count("scales", self.scales, 1, 16, "It is the number of octaves.") or 1
        angles = check_count("angles", self.angles, 1, None, "It is the number of directions.") or 1
        found = scattered(images.reshape(-1, height, width), scales, angles, np)
        found = found.reshape(len(rows), channels * found.shape[1], *found.shape[2:])
        among("normalise", self.normalise, _NORMS)
        return np.asarray(grouped(found)) if self.normalise == "groups" else found.reshape(len(rows), -1)


def _dense(X: Any) -> Floats:
    if sparse.issparse(X):
        raise InvalidInputError("Expected a dense array, got a sparse matrix. Pass X.toarray().")
    return np.asarray(X)


def _shape_of(shape: tuple[int, ...] | None, columns: int, unit: int) -> tuple[int, int, int]:
    if shape is None:
        return _square(columns, unit)
    full = tuple(int(s) for s in (*shape, 1))[:3] if len(shape) in (2, 3) else (0, 0, 0)
    if math.prod(full) != columns or min(full) < 1:
        raise InvalidInputError(
            f"Expected images of shape {tuple(shape)} in rows of {math.prod(full)} pixels, got {columns} "
            "columns. Pass shape=(height, width) or (height, width, channels)."
        )
    return full[0], full[1], full[2]


def _square(columns: int, unit: int) -> tuple[int, int, int]:
    """Return the smallest square that holds a row; more pixels than the row has are said aloud."""
    side = max(math.isqrt(columns - 1) + 1, unit)
    if side * side != columns:
        warnings.warn(
            f"Rows of {columns} pixels are no square images for this transformer: they are filled with zeros "
            f"up to {side} x {side}. Pass shape=(height, width) or (height, width, channels).",
            UserWarning,
            stacklevel=4,
        )
    return side, side, 1


def _parts(rows: Floats) -> Iterator[Floats]:
    for start in range(0, len(rows), _AT_ONCE):
        yield rows[start : start + _AT_ONCE]


def scattered(images: Any, scales: int, angles: int, xp: Any) -> Any:
    """Return the coefficients of images (n, height, width) as (n, channels, height / 2^J, width / 2^J).

    ``xp`` is NumPy, or PyTorch for tensors where they lie.
    """
    height, width = images.shape[1:]
    pad, sides = _padding(height, width, scales)
    bank = _Bank(sides, scales, angles, xp, images)
    spectrum = xp.fft.fft2(_reflected(images, pad))
    kept = [bank.low(spectrum, 0)]
    first = []
    for j in range(scales):
        for angle in range(angles):
            u = abs(xp.fft.ifft2(_folded(spectrum * bank.wavelet(j, angle, 0), j)))
            first.append((j, xp.fft.fft2(u)))
            kept.append(bank.low(first[-1][1], j))
    for j, u in first:
        for k in range(j + 1, scales):
            for angle in range(angles):
                v = abs(xp.fft.ifft2(_folded(u * bank.wavelet(k, angle, j), k - j)))
                kept.append(bank.low(xp.fft.fft2(v), k))
    cut = [edge >> scales for edge in pad]
    rows, columns = height >> scales, width >> scales
    block = xp.stack(kept, 1)
    return block[:, :, cut[0] : cut[0] + rows, cut[1] : cut[1] + columns]


def _padding(height: int, width: int, scales: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return how far to reflect at the upper and left edges, and the padded sides: multiples of 2^J."""
    unit = 1 << scales
    if min(height, width) < unit:
        raise InvalidInputError(f"Expected images of at least {unit} pixels a side for {scales} scales.")
    sides = tuple((side // unit + 2) * unit for side in (height, width))
    return (unit, unit), (sides[0], sides[1])


def _reflected(images: Any, pad: tuple[int, int]) -> Any:
    height, width = images.shape[1:]
    unit = pad[0]
    rows = _mirror(height, unit)
    columns = _mirror(width, unit)
    return images[:, rows][:, :, columns]


def _mirror(side: int, unit: int) -> list[int]:
    """Return the indices of a side that is reflected at both ends, up to a multiple of the unit."""
    whole = (side // unit + 2) * unit
    period = max(2 * side - 2, 1)
    places = [abs(i) % period for i in range(-unit, whole - unit)]
    return [min(place, period - place) if side > 1 else 0 for place in places]


def _folded(spectrum: Any, octaves: int) -> Any:
    """Return the spectrum of the image that keeps every ``2^octaves``-th pixel."""
    if not octaves:
        return spectrum
    step = 1 << octaves
    n, height, width = spectrum.shape
    return spectrum.reshape(n, step, height // step, step, width // step).mean((1, 3))


class _Bank:
    """The filters at one size, in the library and the precision of the images."""

    def __init__(self, sides: tuple[int, int], scales: int, angles: int, xp: Any, like: Any) -> None:
        self._sides, self._scales, self._angles, self._xp, self._like = sides, scales, angles, xp, like

    def wavelet(self, scale: int, angle: int, octave: int) -> Any:
        """Return the wavelet of a scale and an angle for images that were halved ``octave`` times."""
        return self._as(_wavelet(self._sides, scale, angle, self._angles, octave))

    def low(self, spectrum: Any, octave: int) -> Any:
        """Return local averages on the coarsest grid."""
        smooth = spectrum * self._as(_average(self._sides, self._scales, octave))
        return self._xp.fft.ifft2(_folded(smooth, self._scales - octave)).real

    def _as(self, values: np.ndarray) -> Any:
        if self._xp is np:
            return values.astype(self._like.dtype)
        return self._xp.as_tensor(values, dtype=self._like.dtype, device=self._like.device)


@lru_cache(maxsize=512)
def _wavelet(sides: tuple[int, int], scale: int, angle: int, angles: int, octave: int) -> np.ndarray:
    """Return the spectrum of a Morlet wavelet, folded to a coarser grid; it is real."""
    width, frequency = 0.8 * 2**scale, 0.75 * math.pi / 2**scale
    slant, turn = 4.0 / angles, math.pi * (angle - angles // 2 - 1) / angles
    wave = _gabor(sides, width, turn, frequency, slant)
    bell = _gabor(sides, width, turn, 0.0, slant)
    morlet = wave - wave.sum() / bell.sum() * bell  # no answer to constant images
    spectrum = np.fft.fft2(morlet)[None]
    return _filter_at(spectrum, octave)


@lru_cache(maxsize=64)
def _average(sides: tuple[int, int], scales: int, octave: int) -> np.ndarray:
    """Return the spectrum of the Gaussian of the coarsest scale."""
    bell = _gabor(sides, 0.8 * 2 ** (scales - 1), 0.0, 0.0, 1.0)
    return _filter_at(np.fft.fft2(bell)[None], octave)


def _filter_at(spectrum: np.ndarray, octave: int) -> np.ndarray:
    """Return a filter for images that were halved: its frequencies add up, those of images are averaged."""
    return np.asarray(_folded(spectrum, octave)[0].real) * 4**octave


def _gabor(sides: tuple[int, int], width: float, turn: float, frequency: float, slant: float) -> np.ndarray:
    """Return a wave under a Gaussian bell of unit mass, wrapped around the edges."""
    height, length = sides
    total = np.zeros(sides, dtype=complex)
    cos, sin = math.cos(turn), math.sin(turn)
    for up in range(-2, 3):
        for left in range(-2, 3):
            y, x = np.mgrid[up * height : (up + 1) * height, left * length : (left + 1) * length]
            along, across = x * cos + y * sin, -x * sin + y * cos
            bell = np.exp(-(along**2 + slant**2 * across**2) / (2 * width**2))
            total += bell * np.exp(1j * frequency * along)
    return total * slant / (2 * math.pi * width**2)


def grouped(found: Any, groups: int = _GROUPS) -> Any:
    """Centre and scale each image's coefficients within groups of channels; the rows have norm at most 1.

    The squares of a group sum to at most its size, whatever the image holds, so dividing by the root of the
    number of coefficients bounds a row by 1 without looking at it.
    """
    n, channels = found.shape[:2]
    out = np.empty_like(found)
    size = max(1, math.ceil(channels / groups))
    for start in range(0, channels, size):
        part = found[:, start : start + size]
        apart = part - part.mean(axis=(1, 2, 3), keepdims=True)
        spread = np.sqrt(np.square(apart).mean(axis=(1, 2, 3), keepdims=True) + _FLAT)
        out[:, start : start + size] = apart / spread
    return out.reshape(n, -1) / math.sqrt(out[0].size)
