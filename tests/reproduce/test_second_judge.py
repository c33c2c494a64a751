"""A second judge: the rule of docs/evidence.md, written from its words, beside the verdicts of the code.

It shares the tables (rows, printed numbers, orders) and the kept files with the first, none of its code.
"""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from sordino.literature.reproduce import TABLES, table_named, verdicts

KEPT = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "reproduced"


def mean(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean of runs, its standard error, and the largest epsilon that their noise certifies."""
    values = [one["value"] for one in outcomes]
    worst = [one[r] for one in outcomes for r in ("add-remove", "replace-one") if r in one]
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return {"mean": fmean(values), "error": error, "runs": len(values), "worst": max(worst, default=0.0)}


class Second:
    """A table, what is kept of it, and the words of the page as functions."""

    def __init__(self, name: str) -> None:
        self.table = table_named(name)
        kept = json.loads((KEPT / f"{name}.json").read_text("utf-8"))["runs"]
        self.rows = [
            (
                row,
                {
                    m: mean(kept[c.key]["outcomes"])
                    for m, c in row.cells.items()
                    if getattr(c, "key", "") in kept
                },
            )
            for row in self.table.rows
        ]

    def gain(self, ours: float, other: float) -> float:
        return other - ours if self.table.better == "lower" else ours - other

    def beats_nothing(self, row: Any, cell: dict[str, Any]) -> bool:
        """By 2 % and two standard errors, where it is known what a model that predicts nothing reaches."""
        least = self.table.trivial.get(row.group)
        return least is None or self.gain(cell["mean"], least) > max(2 * cell["error"], 0.02 * abs(least))

    def kind(self, row: Any, cells: dict[str, Any]) -> str:
        ours = {m: cells[m] for m in ("sound", "default") if m in cells and math.isfinite(cells[m]["mean"])}
        if not ours:
            return "not run"
        if self.table.likeness == "another protocol":
            return "not judged"
        return self.order(row) if row.published is None else self.number(row, cells, ours)

    def number(self, row: Any, cells: dict[str, Any], ours: dict[str, Any]) -> str:
        likeness, nobody = row.likeness or self.table.likeness, {"mean": row.published, "error": 0.0}
        if likeness != "stand-in" and not self.beats_nothing(row, nobody):
            return "printed number of a model that predicts nothing"
        units = [(1.0, 1.0)] if likeness != "stand-in" else []
        if likeness != "same" and "plain" in cells and row.published_plain:
            best = max((*ours.values(), cells["plain"]), key=lambda cell: self.gain(cell["mean"], 0.0))
            units.append((best["mean"], row.published_plain))
        group = [r.published for r in self.table.rows if r.group == row.group and r.published is not None]
        size, spread = abs(row.published), max(group) - min(group)

        def reach(cell: dict[str, Any], errors: int = 0) -> int:
            """0: missed, 1: within the room, 2: better by more, and by two errors, in two runs or more."""
            found = []
            for unit, printed in units:
                better = self.gain(cell["mean"] / unit, row.published / printed)
                error = cell["error"] / unit
                if self.table.two_sided:
                    room = max(self.table.tolerance, self.table.share * size)
                    found.append(int(abs(better) <= room + errors * error))
                else:
                    room = max(min(spread / 10, size / 20), self.table.share * size) / printed
                    far = cell["runs"] > 1 and better > max(room, 2 * error)
                    found.append(2 if far else int(better >= -room - errors * error))
            return min(found) if self.beats_nothing(row, cell) else 0

        method, printed = ours.get("sound"), cells.get("paper")
        if method and reach(method):
            return "beaten by the method" if reach(method) == 2 else "reproduced"
        if "default" in ours and reach(ours["default"]):
            return "by our default only"
        if not method:
            return "not run"
        if printed and math.isfinite(printed["mean"]) and reach(printed):
            return "by the printed noise only" if printed["worst"] > row.epsilon else "missed"
        within = "plain" not in cells or reach(cells["plain"])
        shown = printed and likeness != "stand-in" and within and not (reach(method, 2) or reach(printed, 2))
        return "not reproducible" if shown else "missed"

    def order(self, row: Any) -> str:
        order = self.table.orders.get(row.group, self.table.order)
        ranks = {m: place for place, group in enumerate(order) for m in group}
        beside = [(r, cells) for r, cells in self.rows if (r.group, r.epsilon) == (row.group, row.epsilon)]

        def seen(mode: str) -> str:
            """Tell whether curves that are apart come as the text says ("seen"), and none otherwise."""
            curves = {r.method: c[mode] for r, c in beside if mode in c and r.method in ranks}
            said = "none"
            for one, other in combinations(curves, 2):
                a, b = curves[one], curves[other]
                first, last = (one, other) if self.gain(a["mean"], b["mean"]) > 0 else (other, one)
                if 1 in (a["runs"], b["runs"]) and a["runs"] != b["runs"]:  # the one run varies as the others
                    many = a if b["runs"] == 1 else b
                    error = many["error"] * math.sqrt(1 + many["runs"])
                else:
                    error = math.hypot(a["error"], b["error"])
                far = max(0.02 * max(abs(a["mean"]), abs(b["mean"])), 2 * error)
                if abs(a["mean"] - b["mean"]) > far and self.beats_nothing(row, curves[first]):
                    if ranks[first] > ranks[last]:
                        return "another"
                    said = "seen" if ranks[first] < ranks[last] else said
            return said

        sound = [cells["sound"] for _, cells in beside if "sound" in cells]
        if len(sound) < 2:
            return "not run"
        whole = set(ranks) == {r.method for r, cells in beside if r.method in ranks and "sound" in cells}
        some = any(self.beats_nothing(row, cell) for cell in sound)
        if some and seen("sound") == "seen":
            return "reproduced" if whole else "not run"
        printed = {r.method: cells["paper"] for r, cells in beside if "paper" in cells and r.method in ranks}
        if len({ranks[method] for method in printed}) > 1:  # curves of both sides of the order
            first = [cell["worst"] for method, cell in printed.items() if ranks[method] == 0]
            if seen("paper") == "seen" and max(first, default=0.0) > row.epsilon:
                return "by the printed noise only" if whole else "not run"
            if some and seen("paper") == seen("sound") == "another":
                return "not reproducible"
        return "missed"


@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_second_judge_comes_to_the_same_verdicts(name: str):
    if name.endswith("networks") or name == "liang-figure-3":
        pytest.importorskip("torch")
    second, found = Second(name), verdicts(name, KEPT)
    judged: dict[str, str] = {}
    for row, cells in second.rows:
        if row.published is not None or second.table.orders.get(row.group, second.table.order):
            at = "" if row.published is None else f"/{row.method}"
            judged.setdefault(f"{row.group}{at}/{row.epsilon:g}", second.kind(row, cells))
    assert judged == {key: one.kind for key, one in found.items()}
