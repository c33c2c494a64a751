"""Released tables: numbers by cell, with intervals and the report."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from sordino.errors import require_extra
from sordino.kernel.arrays import Floats
from sordino.runs import PrivacyReport
from sordino.runs.meaning import at_most


@dataclass(frozen=True, eq=False)
class PrivateTable:
    """Numbers by cell that were released together.

    Attributes
    ----------
    statistic : what the numbers are, for example "count" or "mean".
    keys : the names of the keys.
    rows : the labels of each cell, in the order of the numbers.
    value, low, high : the numbers and the ends of their intervals, each of which holds by itself.
    shape : the number of levels of each key (and of probabilities, for several quantiles).
    confidence : of the intervals.
    privacy : the :class:`sordino.PrivacyReport`.
    """

    statistic: str
    keys: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    value: Floats
    low: Floats
    high: Floats
    shape: tuple[int, ...]
    confidence: float
    privacy: PrivacyReport = field(repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        """Return the numbers with one axis per key."""
        return np.array(self.value.reshape(self.shape), dtype=dtype)

    def __getitem__(self, label: Any) -> float:
        """Return the number of a cell by its label, or by a tuple of labels."""
        row = label if isinstance(label, tuple) else (label,)
        if row not in self.rows:
            raise KeyError(label)
        return float(self.value[self.rows.index(row)])

    def interval(self, label: Any) -> tuple[float, float]:
        """Return the interval of a cell by its label, or by a tuple of labels."""
        place = self.rows.index(label if isinstance(label, tuple) else (label,))
        return float(self.low[place]), float(self.high[place])

    def records(self) -> list[dict[str, Any]]:
        """Return one dict per cell: its labels, the number and the two ends."""
        names = (*self.keys, self.statistic, "low", "high")
        numbers = zip(self.value.tolist(), self.low.tolist(), self.high.tolist(), strict=True)
        return [
            dict(zip(names, (*row, *cell), strict=True)) for row, cell in zip(self.rows, numbers, strict=True)
        ]

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per cell."""
        try:
            import pandas as pd
        except ImportError:
            raise require_extra("pandas", "pandas") from None
        return pd.DataFrame.from_records(self.records())

    def plot(self, axes: Any = None) -> Any:
        """Draw the numbers with their intervals as error bars; only released numbers are drawn."""
        if axes is None:
            from matplotlib.figure import Figure

            axes = Figure(figsize=(6, 1.2 + 0.28 * len(self.rows)), layout="constrained").subplots()
        where = np.arange(len(self.rows))[::-1]
        reach = np.abs(np.stack([self.value - self.low, self.high - self.value]))
        axes.errorbar(self.value, where, xerr=reach, fmt="o", color="tab:blue", ecolor="0.6", capsize=2)
        axes.set_yticks(where, [", ".join(map(str, row)) for row in self.rows])
        axes.set_ylabel(", ".join(self.keys))
        axes.set_xlabel(
            f"{self.statistic}, {self.confidence:.0%} intervals "
            f"(epsilon = {at_most(self.privacy.epsilon, 3)})"
        )
        return axes

    def _repr_html_(self) -> str:
        heads = "".join(f"<th>{escape(str(h))}</th>" for h in (*self.keys, self.statistic, "low", "high"))
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_shown(cell))}</td>" for cell in record.values()) + "</tr>"
            for record in self.records()
        )
        caption = f"{self.confidence:.0%} intervals; epsilon = {at_most(self.privacy.epsilon)}"
        return (
            f"<table><caption>{caption}</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
        )


def _shown(cell: Any) -> str:
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)
