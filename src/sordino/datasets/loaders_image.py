"""Loaders of the images. Pixels are divided by 255, a bound of the format."""

from __future__ import annotations

import dataclasses
from typing import Any, Unpack

import numpy as np

from sordino.datasets.bunch import Deferred
from sordino.datasets.catalogue import REGISTRY
from sordino.datasets.load import Loaded, LoadOptions, Options, Prepare, Reader, load, loader, stack
from sordino.datasets.parse import Part

_KINDS = ("float32", "float64", "uint8")


def _pixels(flatten: bool) -> Prepare:
    """Return bytes as they are, or floats in [0, 1]; flat or in the shape of an image."""

    def prepare(part: Part, dtype: np.dtype) -> Part:
        images = part.data.reshape(len(part.data), -1) if flatten else part.data
        if dtype != np.uint8:
            images = images.astype(dtype)
            images /= 255
        return dataclasses.replace(part, data=images)

    return prepare


def _load(name: str, options: LoadOptions, prepare: Prepare, **more: Any) -> Loaded:
    return load(name, options, prepare, default="float32", kinds=_KINDS, **more)


@loader
def load_mnist(*, flatten: bool = True, **options: Unpack[LoadOptions]) -> Loaded:
    """Load MNIST: digits, entries in [0, 1].

    Parameters
    ----------
    flatten : bool
        Return rows of 784 pixels, or images of 28 x 28.
    {parameters}

    Returns
    -------
    {returns}
    """
    return _load("mnist", options, _pixels(flatten))


@loader
def load_cifar10(*, full: bool = False, flatten: bool = True, **options: Unpack[LoadOptions]) -> Loaded:
    """Load CIFAR-10, by default the first 20,000 training and 5,000 test images.

    Parameters
    ----------
    full : bool
        Load all 50,000 and 10,000 images.
    flatten : bool
        Return rows of 3,072 pixels, or images of 32 x 32 x 3.
    {parameters}

    Returns
    -------
    {returns}
    """
    return _load("cifar10_full" if full else "cifar10", options, _pixels(flatten))


@loader
def load_pneumoniamnist(
    *, validation: bool = False, flatten: bool = True, **options: Unpack[LoadOptions]
) -> Loaded:
    """Load PneumoniaMNIST: chest X-rays of children, normal or pneumonia.

    Parameters
    ----------
    validation : bool
        Count the 524 validation images as training rows (5,232 in all, as the paper on DP-SGD-HT does);
        otherwise they are the keys ``validation_data`` and ``validation_target``.
    flatten : bool
        Return rows of 784 pixels, or images of 28 x 28.
    {parameters}

    Returns
    -------
    {returns}
    """
    pixels = _pixels(flatten)
    chosen = Options(**options)
    dtype = np.dtype(chosen.dtype or "float32")
    reader = Reader(REGISTRY["pneumoniamnist"], chosen, pixels, dtype)

    def prepare(part: Part, dtype: np.dtype) -> Part:
        part = pixels(part, dtype)
        is_train = len(part.target) == REGISTRY["pneumoniamnist"].train_shape[0]
        return stack([part, reader.part("val")]) if validation and is_train else part

    more = {
        "validation_data": Deferred(lambda: reader.part("val").data),
        "validation_target": Deferred(lambda: reader.part("val").target),
    }
    return _load("pneumoniamnist", options, prepare, **({} if validation else more))
