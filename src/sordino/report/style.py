"""One style for all plots: colours that everybody can tell apart, log axes whose labels do not overlap."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

# Okabe and Ito's palette, without its yellow, which paper swallows.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
BLUE, GREY, BAND = COLOURS[0], "0.45", "0.88"
_MOST_LABELS = 7


def new_axes(width: float = 6.0, height: float = 3.5) -> Any:
    """Return the axes of a new figure; it is the current one, so that ``plt.savefig`` writes it."""
    from matplotlib import pyplot

    return dressed(pyplot.figure(figsize=(width, height), layout="constrained").add_subplot())


def dressed(axes: Any) -> Any:
    """Give axes the colours and lines of the house, and return them."""
    axes.set_prop_cycle(color=COLOURS)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    return axes


def log_axis(axes: Any, which: str = "x", at: Iterable[float] | None = None) -> Any:
    """Make an axis logarithmic with plain labels: at the given values, or at 1, 2, 5, 10 or powers of ten.

    Call it after drawing: the ticks follow the limits. Labels of minor ticks, which matplotlib writes over
    the major ones, are left out.
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    limits = axes.get_xlim() if which == "x" else axes.get_ylim()
    axis.set_major_locator(FixedLocator(list(at) if at is not None else log_ticks(*limits)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))
    axis.set_minor_formatter(NullFormatter())
    axes.set(**{f"{which}lim": limits})
    return axes


def log_ticks(low: float, high: float) -> list[float]:
    """Return at most seven round values between two positive limits."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [m * 10.0**e for e in range(first, last + 1) for m in steps]
        ticks = [t for t in ticks if low * (1 - 1e-9) <= t <= high * (1 + 1e-9)]
        if len(ticks) <= _MOST_LABELS:
            return ticks
    every = math.ceil(len(ticks) / _MOST_LABELS)
    return ticks[::every]


def plain_number(value: float) -> str:
    """Return a number as people write it: 0.25, 1, 5,000, and powers of ten beyond."""
    if 1e-3 <= abs(value) < 1e6:
        return f"{value:,.10g}"
    return f"{value:.3g}"
