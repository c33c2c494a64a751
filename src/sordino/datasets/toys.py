"""Two small data sets that come with scikit-learn, scaled by declared bounds."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from sklearn import datasets as bundled
from sklearn.utils import Bunch

from sordino.datasets.load import Loaded
from sordino.datasets.loaders_table import choose
from sordino.datasets.rows import unit_rows

# What the ten measurements of a cell nucleus can be, as round numbers: mean, error, worst.
_NUCLEUS = {
    "radius": (40, 4, 40),
    "texture": (60, 6, 60),
    "perimeter": (300, 30, 300),
    "area": (4500, 600, 4500),
    "smoothness": (0.25, 0.05, 0.25),
    "compactness": (1.2, 0.2, 1.2),
    "concavity": (1.5, 0.5, 1.5),
    "concave points": (0.4, 0.1, 0.4),
    "symmetry": (0.7, 0.1, 0.7),
    "fractal dimension": (0.25, 0.05, 0.25),
}


_DIGITS = Bunch(
    DESCR="1,797 handwritten digits of 8 x 8 pixels with 17 grey levels, divided by 16.",
    citation="Alpaydin and Kaynak, Optical recognition of handwritten digits, UCI, 1998.",
)
_TUMOURS = Bunch(
    DESCR="Ten measurements of cell nuclei (mean, error, worst) of 569 breast tumours, divided by "
    "declared bounds. 0 is malignant, 1 is benign.",
    citation="Wolberg, Mangasarian, Street and Street, Breast cancer Wisconsin (diagnostic), UCI, 1993.",
)


def _finish(about: Bunch, data: Any, target: Any, unit: bool, xy: bool, **more: Any) -> Loaded:
    data = unit_rows(data) if unit else data
    if xy:
        return data, target
    return Bunch(
        data=data,
        target=target,
        shape=data.shape,
        licence="CC BY 4.0 (UCI); shipped with scikit-learn.",
        source="https://scikit-learn.org/stable/datasets/toy_dataset.html",
        **about,
        **more,
    )


def load_digits(
    *,
    target: Literal["digit", "high"] = "digit",
    unit: bool = False,
    return_X_y: bool = False,
) -> Loaded:
    """Load scikit-learn's 1,797 digits of 8 x 8 pixels, divided by their range of 16.

    Parameters
    ----------
    target : {"digit", "high"}
        The digit, or 1 for 5 to 9 and 0 for 0 to 4.
    unit : bool
        Scale each row to unit norm.
    return_X_y : bool
        Return ``(data, target)`` instead of a Bunch.

    Examples
    --------
    >>> X, y = load_digits(target="high", return_X_y=True)
    >>> X.shape, float(X.max())
    ((1797, 64), 1.0)
    """
    choose("target", target, ("digit", "high"))
    source = bundled.load_digits()
    high = target == "high"
    labels = (source.target >= 5).astype(np.int64) if high else source.target.astype(np.int64)
    names = ["0-4", "5-9"] if high else [str(digit) for digit in range(10)]
    more = {"target_names": names, "feature_names": list(source.feature_names)}
    return _finish(_DIGITS, source.data / 16.0, labels, unit, return_X_y, **more)


def load_breast_cancer(*, unit: bool = False, return_X_y: bool = False) -> Loaded:
    """Load scikit-learn's breast cancer set: 569 tumours, 30 features in [0, 1], 1 is benign.

    Parameters
    ----------
    unit : bool
        Scale each row to unit norm.
    return_X_y : bool
        Return ``(data, target)`` instead of a Bunch.

    Notes
    -----
    **Privacy.** Features are divided by declared round bounds and clipped to [0, 1]. Standardising
    by the data's own mean and deviation, as is usual, would not be private.
    """
    source = bundled.load_breast_cancer()
    bounds = np.array([[row[k] for row in _NUCLEUS.values()] for k in range(3)]).ravel()
    data = np.clip(source.data / bounds, 0.0, 1.0)
    more = {
        "target_names": [str(name) for name in source.target_names],
        "feature_names": [str(name) for name in source.feature_names],
    }
    return _finish(_TUMOURS, data, source.target.astype(np.int64), unit, return_X_y, **more)
