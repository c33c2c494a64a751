"""Scattering coefficients of images by FFT, with NumPy or PyTorch: a fixed map of one image at a time."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import fft as scipy_fft

from sordino.errors import InvalidInputError


def scatter(images: Any, scales: int, angles: int, xp: Any) -> Any:
    """Return the coefficients of images (n, height, width) as (n, channels, height / 2^J, width / 2^J).

    ``xp`` is NumPy, or PyTorch for tensors where they lie.
    """
    height, width = images.shape[1:]
    unit = 1 << scales  # images are reflected that far, to sides that are multiples of it
    if min(height, width) < unit:
        raise InvalidInputError(f"Expected images of at least {unit} pixels a side for {scales} scales.")
    rows, columns = _mirror(height, unit), _mirror(width, unit)
    sides, fourier = (len(rows), len(columns)), scipy_fft if xp is np else xp.fft  # SciPy's are quicker here

    def filtered(spectrum: Any, values: np.ndarray) -> Any:
        """Apply a filter in the library and the precision of the images."""
        if xp is np:
            return spectrum * values.astype(images.dtype)
        return spectrum * xp.as_tensor(values, dtype=images.dtype, device=images.device)

    def low(spectrum: Any, octave: int) -> Any:
        """Return local averages on the coarsest grid, of images that were halved ``octave`` times."""
        smooth = filtered(spectrum, _average(sides, scales, octave))
        return fourier.ifft2(_fold(smooth, scales - octave)).real

    spectrum = fourier.fft2(images[:, rows][:, :, columns])
    kept = [low(spectrum, 0)]
    first = []
    for j in range(scales):
        for angle in range(angles):
            u = abs(fourier.ifft2(_fold(filtered(spectrum, _wavelet(sides, j, angle, angles, 0)), j)))
            first.append((j, fourier.fft2(u)))
            kept.append(low(first[-1][1], j))
    for j, u in first:
        for k in range(j + 1, scales):
            for angle in range(angles):
                v = abs(fourier.ifft2(_fold(filtered(u, _wavelet(sides, k, angle, angles, j)), k - j)))
                kept.append(low(fourier.fft2(v), k))
    return xp.stack(kept, 1)[:, :, 1 : 1 + (height >> scales), 1 : 1 + (width >> scales)]


def _mirror(side: int, unit: int) -> list[int]:
    """Return the indices of a side that is reflected at both ends, up to a multiple of the unit."""
    whole = (side // unit + 2) * unit
    period = max(2 * side - 2, 1)
    places = [abs(i) % period for i in range(-unit, whole - unit)]
    return [min(place, period - place) if side > 1 else 0 for place in places]


def _fold(spectrum: Any, octaves: int) -> Any:
    """Return the spectrum of the image that keeps every ``2^octaves``-th pixel."""
    if not octaves:
        return spectrum
    step = 1 << octaves
    height, width = (side // step for side in spectrum.shape[1:])
    blocks = [(i * height, j * width) for i in range(step) for j in range(step)]
    return sum(spectrum[:, i : i + height, j : j + width] for i, j in blocks) / step**2


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
    return np.asarray(_fold(spectrum, octave)[0].real) * 4**octave


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
