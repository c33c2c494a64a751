"""The table of docs/epsilon.md: what epsilon means in bets and chances.

Command: python docs/figures/odds.py   (writes the table into the page; --print only shows it)
"""

from __future__ import annotations

import sys
from pathlib import Path

from sordino.accounting import gaussian_mu
from sordino.accounting.trade_off import gaussian_trade_off, worst_trade_off
from sordino.runs import report as meaning

PAGE = Path(__file__).resolve().parents[1] / "epsilon.md"
START, END = "<!-- made by docs/figures/odds.py -->", "<!-- end of the table -->"
EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
DELTA = 1e-6


def table() -> str:
    """Return the table as Markdown: a Gaussian plan, and the worst that epsilon and delta alone allow."""
    lines = [
        "| epsilon | a bet at 50 % is won | found, at 1 % false alarms | 1 in 1,000 becomes at most "
        "| the bet, where only epsilon is known | in a word |",
        "|---|---|---|---|---|---|",
    ]
    for epsilon in EPSILONS:
        curve = gaussian_trade_off(gaussian_mu(epsilon, DELTA))
        cells = (
            f"{epsilon:g}",
            meaning.percent(meaning.guess(curve)),
            meaning.percent(curve.true_positive_rate(0.01)),
            f"{meaning.at_most(1000 * curve.true_positive_rate(0.001), 3)} in 1,000",
            meaning.percent(meaning.guess(worst_trade_off(epsilon, DELTA))),
            meaning.strength(epsilon),
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Write the table into the page."""
    if "--print" in sys.argv:
        print(table())
        return
    before, _, rest = PAGE.read_text("utf-8").partition(START)
    PAGE.write_text(f"{before}{START}\n\n{table()}\n\n{END}{rest.partition(END)[2]}", "utf-8")


if __name__ == "__main__":
    main()
