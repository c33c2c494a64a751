"""The effects of the columns of a table on the front page: ``python docs/figures/shapes.py``.

Prices of personal computers (``tables/Computers.csv.gz`` of ``SORDINO_DATA``), bounds by what columns mean,
epsilon 1, delta 1e-6, defaults, fresh noise. It prints the odds of the run, which stand below the picture.
"""

from pathlib import Path

from benchmarks.curves import read
from matplotlib import pyplot

import sordino
from sordino.report.plots import plot_shapes

OUT = Path(__file__).parents[1] / "images" / "shapes.png"


def main() -> None:
    """Fit, draw, and print what the best attack achieves."""
    table, schema = read("Computers")
    model = sordino.LinearRegression(epsilon=1.0, delta=1e-6, schema=schema).fit(table)
    plot_shapes(model, 6)
    pyplot.savefig(OUT, dpi=100)
    print(model.privacy_.odds)
    print(f"advantage {model.privacy_.trade_off.advantage:.4f}")


if __name__ == "__main__":
    main()
