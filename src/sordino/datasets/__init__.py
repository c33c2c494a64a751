"""Data sets: ``load(name)`` for public ones, and makers of the papers' synthetic designs.

:func:`load` looks into the folder ``SORDINO_DATA``, then into the user's cache, then at the public
source. Makers draw all their randomness from a public seed.
"""

from sordino.datasets.loading import REGISTRY, DataFile, Dataset, centred_unit, load, log1p_unit, unit_rows
from sordino.datasets.synthetic import (
    HeavyTail,
    Lognormal,
    Pareto,
    StudentT,
    make_knowledge_transfer,
    make_sparse_linear_model,
)

__all__ = [
    "REGISTRY", "DataFile", "Dataset", "HeavyTail", "Lognormal", "Pareto", "StudentT", "centred_unit",
    "load", "log1p_unit", "make_knowledge_transfer", "make_sparse_linear_model", "unit_rows",
]  # fmt: skip
