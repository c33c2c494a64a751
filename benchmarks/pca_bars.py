"""The bars of private PCA, judged from benchmarks/results/pca.json: nothing is measured here.

Command: python -m benchmarks.pca_bars   (after python -m benchmarks.pca --save benchmarks/results/pca.json)
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from statistics import median
from typing import Any

from benchmarks.bars import FOLDER, Bar, numbers, save
from benchmarks.pca import RESULT
from sordino.accounting import gaussian_multiplier

BUDGETS = (0.5, 2.0, 8.0, None)
DROWNS = (
    "A random basis of 30 among 130,107 directions sees {seen:.3f} of the largest eigenvalue, and the noise "
    "of its product is {noise:.1f} of it at epsilon 8. `auto` screens columns first"
)
WHY_NOT = {
    "spread": "Its noise follows the length of rows, theirs how far gradients are from a mean they are told",
    "coverage": "Later bases follow the noise of earlier answers; that is counted by a factor, not modelled",
    "width": "What clipping may take from an axis is bounded, not known",
    "ratio": "Axes that drown are given the average of a total that has noise of its own",
}
Cells = dict[tuple[str, str, float | None], dict[str, Any]]


def cells_of(rows: list[dict[str, Any]]) -> Cells:
    """Return the cells of the grid by set, solver and budget."""
    return {(row["set"], row["solver"], row["epsilon"]): row for row in rows}


def judged(found: dict[str, Any]) -> Iterator[Bar]:
    """Yield all bars whose sections were measured."""
    for name, judge in (("bars", of_solvers), ("spiked", of_spikes), ("counts", of_counts)):
        if name in found:
            yield from judge(found[name]["rows"])
    if "deviations" in found:
        yield from of_deviations(found["deviations"]["rows"])


def of_solvers(rows: list[dict[str, Any]]) -> Iterator[Bar]:
    """Yield what is captured, that it does not fall, and that `auto` is as good as its parts."""
    cells = cells_of(rows)
    for name in dict.fromkeys(row["set"] for row in rows):
        for solver in ("auto", "spca", "vrpca"):
            line = [cells[name, solver, budget] for budget in BUDGETS if (name, solver, budget) in cells]
            yield captures(name, solver, line)
            yield rises(name, solver, line)
        yield from leads(name, cells)


def captures(name: str, solver: str, line: list[dict[str, Any]]) -> Bar:
    """Return the bar on what is captured at 8 and without noise."""
    high, free = (cell["captured"] for cell in line[-2:])
    holds = min(high, free) >= 0.98
    why = "" if holds else why_drowned(name)
    what = f"captured by `{solver}` on {name} at epsilon 8 / without noise"
    return Bar(7, what, ">= 0.98", numbers((high, free)), fits(line), holds, why)


def why_drowned(name: str) -> str:
    """Return why a solver that asks for all columns learns nothing on text."""
    if name != "20news":
        return "Too few records for its noise"
    # 11,314 unit rows at epsilon 8, blocks of 30 columns, four releases; the largest eigenvalue is .049.
    size = 2 * gaussian_multiplier(8.0, 1e-5) * (math.sqrt(130_107) + math.sqrt(30)) / 11_314
    return DROWNS.format(seen=math.sqrt(30 / 130_107), noise=size / 0.049)


def rises(name: str, solver: str, line: list[dict[str, Any]]) -> Bar:
    """Return the bar on how far it falls from one budget to a larger one."""
    values = [cell["captured"] for cell in line]
    worst = max(max(values[:i]) - values[i] for i in range(1, len(values)))
    budgets = ", ".join("no noise" if cell["epsilon"] is None else f"{cell['epsilon']:g}" for cell in line)
    what = f"captured by `{solver}` on {name}, fall from a smaller budget ({budgets})"
    found = f"{max(worst, 0.0):.3f} ({numbers(values)})"
    return Bar(7, what, "<= 0.01", found, fits(line), worst <= 0.01, "" if worst <= 0.01 else "Not found out")


def leads(name: str, cells: Cells) -> Iterator[Bar]:
    """Yield the bars on `auto` beside the best of its parts: behind by no more than two standard errors."""
    parts = {s for (n, s, _) in cells if n == name} - {"auto", "textbook"}
    for measure, sign in (("captured", 1.0), ("distance", -1.0)):
        said, holds, late = [], True, []
        for budget in BUDGETS:
            auto = cells[name, "auto", budget]
            there = [cells[name, s, budget] for s in parts if (name, s, budget) in cells]
            part = max(there, key=lambda cell: (sign * cell[measure], cell["solver"]))
            behind = sign * (part[measure] - auto[measure])
            doubt = 2 * math.hypot(part[measure + "_se"], auto[measure + "_se"])
            good = behind <= max(doubt, 1e-4)
            holds, late = holds and good, late if good else [*late, budget]
            said.append(f"{auto[measure]:.3f} ({part['solver']} {part[measure]:.3f})")
        what = f"`auto` on {name}, {measure} beside the best of the others at .5 / 2 / 8 / no noise"
        why = "" if holds else f"Behind at {late}"
        line = [cells[name, "auto", budget] for budget in BUDGETS]
        yield Bar(7, what, "not behind by 2 standard errors", " / ".join(said), fits(line), holds, why)


def of_spikes(rows: list[dict[str, Any]]) -> Iterator[Bar]:
    """Yield one bar a design: the default beside streaming methods that are told what they estimate."""
    designs: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        size = f"{row['n']:,} x {row['d']}"
        said = f"{row['design']}, {size}, noise {row['noise']:g}, epsilon {row['epsilon']:g}"
        designs.setdefault(said, {})[row["method"]] = row
    for said, found in designs.items():
        told = min((found["DP-Oja, told"], found["DP-PCA, told"]), key=lambda row: row["error"])
        auto = found["auto"]
        holds = auto["error"] <= told["error"] + 2 * math.hypot(auto["error_se"], told["error_se"])
        why = "" if holds else WHY_NOT["spread"]
        free = found["no noise"]["error"]
        text = f"{auto['error']:.2g} ({told['method']} {told['error']:.2g}, no noise {free:.2g})"
        yield Bar(
            7, f"error of `auto`: {said}", "not above theirs", text, f"{auto['fits']} draws", holds, why
        )


def of_counts(rows: list[dict[str, Any]]) -> Iterator[Bar]:
    """Yield the bars on the number of axes that a share of .9 keeps."""
    for name in dict.fromkeys(row["set"] for row in rows):
        line = [row for row in rows if row["set"] == name]
        right = line[0]["right"]
        holds = max(row["most"] for row in line) <= right + 1
        budgets = " / ".join("no noise" if row["epsilon"] is None else f"{row['epsilon']:g}" for row in line)
        found = " / ".join(f"{row['median']:g} ({row['least']} to {row['most']})" for row in line)
        what = f"axes that `PCA(0.9)` keeps on {name} at {budgets}; {right} is right"
        why = "" if holds else "Axes beyond the right number stand out of the noise"
        yield Bar(7, what, f"never above {right + 1}", found, fits(line), holds, why)


def of_deviations(rows: list[dict[str, Any]]) -> Iterator[Bar]:
    """Yield, for each solver, the worst cell of coverage, of the width of the bands, of stated ratio sums."""
    for solver in dict.fromkeys(row["solver"] for row in rows):
        line = [row for row in rows if row["solver"] == solver]
        cell = min(line, key=lambda row: row["coverage"])
        what = f"+-2 `eigenvalue_noise_` of `{solver}` covers what axes capture, least of {len(line)} cells"
        yield _worst(what, ">= 0.934", cell, "coverage", cell["coverage"] >= 0.934, WHY_NOT["coverage"])
        cell = max(line, key=lambda row: row["stated_over_true_deviation"])
        key = "stated_over_true_deviation"
        what = f"`eigenvalue_noise_` of `{solver}` over the true deviation, most of {len(line)} cells"
        yield _worst(what, "<= 1.5", cell, key, cell[key] <= 1.5, why_wide(line, cell))
        cell = max(line, key=over)
        what = f"ratio sum of `{solver}`, stated above the true one, most of {len(line)} cells"
        found = f"{over(cell):.3f} ({cell['ratio_stated']:.3f} for {cell['ratio_true']:.3f}; {_where(cell)})"
        holds = over(cell) <= 0.05
        yield Bar(6, what, "<= 0.05", found, fits(line), holds, "" if holds else WHY_NOT["ratio"])


def why_wide(line: list[dict[str, Any]], cell: dict[str, Any]) -> str:
    """Return why bands are wide, with the other cells."""
    sizes = [row["stated_over_true_deviation"] for row in line]
    held = sum(size <= 1.5 for size in sizes)
    return (
        f"{WHY_NOT['width']}: {held} of {len(sizes)} cells hold, their median is {median(sizes):.2g}; the "
        f"band of the worst covers {cell['coverage']:.3g}"
    )


def over(row: dict[str, Any]) -> float:
    """Return by how much a ratio sum is overstated."""
    return float(row["ratio_stated"] - row["ratio_true"])


def _worst(what: str, asked: str, cell: dict[str, Any], key: str, holds: bool, why: str) -> Bar:
    found = f"{cell[key]:.3g} ({_where(cell)})"
    return Bar(6, what, asked, found, fits([cell]), holds, "" if holds else why)


def _where(cell: dict[str, Any]) -> str:
    return f"{cell['set']} at {cell['epsilon']:g}"


def fits(line: list[dict[str, Any]]) -> str:
    """Return how many fits stand behind a line."""
    least, most = (pick(row["fits"] for row in line) for pick in (min, max))
    return f"{least} fits" if least == most else f"{least} to {most} fits"


def main() -> None:
    """Judge and save."""
    bars = list(judged(json.loads(RESULT.read_text("utf-8"))))
    save(FOLDER / "pca.json", "python -m benchmarks.pca_bars", bars)
    print(f"{sum(bar.holds for bar in bars)} of {len(bars)} hold")
    for bar in bars:
        if not bar.holds:
            print(f"  {bar.what}: {bar.found} for {bar.bar}")


if __name__ == "__main__":
    main()
