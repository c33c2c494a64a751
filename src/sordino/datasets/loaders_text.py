"""Loaders of the text collections."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, Unpack

import numpy as np

from sordino.datasets.load import Loaded, LoadOptions, Prepare, load, loader, to_dtype
from sordino.datasets.loaders_table import choose
from sordino.datasets.parse import Part
from sordino.datasets.rows import log1p_unit

Transform = Literal["counts", "log1p-unit"]


def _counts(transform: Transform) -> Prepare:
    choose("transform", transform, ("counts", "log1p-unit"))
    if transform == "counts":
        return to_dtype
    return lambda part, dtype: dataclasses.replace(part, data=log1p_unit(part.data, dtype))


@loader
def load_rcv1(**options: Unpack[LoadOptions]) -> Loaded:
    """Load LIBSVM's rcv1.binary: Reuters news, 47,236 tf-idf features, rows of unit norm.

    Parameters
    ----------
    {parameters}

    Returns
    -------
    {returns}

    See Also
    --------
    load_rcv1_sample : other rows of the same collection, smaller.
    """
    return load("rcv1", options)


@loader
def load_rcv1_sample(**options: Unpack[LoadOptions]) -> Loaded:
    """Load a sample of RCV1-v2 with the task of rcv1.binary; key ``topics`` has the root topics.

    Parameters
    ----------
    {parameters}

    Returns
    -------
    {returns}
    """
    names = ["CCAT", "ECAT", "GCAT", "MCAT"]
    return load("rcv1_sample", options, topic_names=names)


@loader
def load_imdb(
    *,
    target: Literal["sentiment", "rating"] = "sentiment",
    transform: Transform = "counts",
    **options: Unpack[LoadOptions],
) -> Loaded:
    """Load IMDB reviews as word counts, with the sentiment or the stars as the target.

    Parameters
    ----------
    target : {"sentiment", "rating"}
        0 or 1, or the stars (1 to 4 and 7 to 10) as a number.
    transform : {"counts", "log1p-unit"}
        Counts as they are, or :func:`log1p_unit` of them.
    {parameters}

    Returns
    -------
    {returns}
    """
    choose("target", target, ("sentiment", "rating"))
    count = _counts(transform)

    def prepare(part: Part, dtype: np.dtype) -> Part:
        part = count(part, dtype)
        if target == "sentiment":
            return part
        return dataclasses.replace(part, target=part.extra["rating"].astype(np.float64))

    more: dict[str, Any] = {} if target == "sentiment" else {"target_names": []}
    return load("imdb", options, prepare, **more)


@loader
def load_20news(*, transform: Transform = "counts", **options: Unpack[LoadOptions]) -> Loaded:
    """Load 20 Newsgroups (split by date) as word counts.

    Parameters
    ----------
    transform : {"counts", "log1p-unit"}
        Counts as they are, or :func:`log1p_unit` of them.
    {parameters}

    Returns
    -------
    {returns}
    """
    return load("20news", options, _counts(transform))


@loader
def load_news20(*, transform: Transform = "counts", **options: Unpack[LoadOptions]) -> Loaded:
    """Load LIBSVM's news20 (multiclass): word counts, labels 1 to 20, no test part.

    Parameters
    ----------
    transform : {"counts", "log1p-unit"}
        Counts as they are, or :func:`log1p_unit` of them.
    {parameters}

    Returns
    -------
    {returns}
    """
    return load("news20", options, _counts(transform))


@loader
def load_reuters_acq(**options: Unpack[LoadOptions]) -> Loaded:
    """Load Reuters acquisitions: 2,000 balanced stories, 9,947 tf-idf features, unit rows.

    Parameters
    ----------
    {parameters}

    Returns
    -------
    {returns}
    """
    return load("reuters_acq", options)


@loader
def load_e2006(**options: Unpack[LoadOptions]) -> Loaded:
    """Load E2006-tfidf: log volatility from financial reports, 150,360 features, regression.

    Parameters
    ----------
    {parameters}

    Returns
    -------
    {returns}

    Notes
    -----
    No digest of the test file is published; ``download="unverified"`` fetches it, and its shape is
    checked when it is read.
    """
    return load("e2006", options)


@loader
def load_real_sim(**options: Unpack[LoadOptions]) -> Loaded:
    """Load real-sim: UseNet postings, 20,958 features, rows of unit norm, no test part.

    Parameters
    ----------
    {parameters}

    Returns
    -------
    {returns}
    """
    return load("real_sim", options)
