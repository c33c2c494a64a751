"""The registry: every data set this package can load."""

from __future__ import annotations

from sordino.datasets import rows_image, rows_libsvm, rows_table, rows_text
from sordino.datasets.registry import Registry

REGISTRY = Registry(*rows_table.ROWS, *rows_libsvm.ROWS, *rows_text.ROWS, *rows_image.ROWS)
