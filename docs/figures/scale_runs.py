"""The table of runs of docs/scale.md, from what they kept: killed workers, rounds, files past memory.

Command: python docs/figures/scale_runs.py   (writes the table into the page; --print only shows it)
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE, KEPT = ROOT / "docs" / "scale.md", ROOT / "benchmarks" / "results"
START, END = "<!-- made by docs/figures/scale_runs.py -->", "<!-- end of the runs -->"


def killed() -> list[str]:
    """Return the row of workers that were killed."""
    found = json.loads((KEPT / "dask_kills.json").read_text("utf-8"))
    ends = Counter(found["ended"])
    words = ", ".join(f"{count} {end}" for end, count in ends.items())
    agrees = "the ledger agrees in all" if found["total"]["sound"] else "**the ledger does not agree**"
    said = f"{sum(found['kills'])} kills over {len(found['ended'])} fits: {words}; {agrees}"
    return ["`benchmarks.kills`", said, "100 over 20: each equal, or failed and booked so"]


def rounds() -> list[list[str]]:
    """Return the rows of rounds over two workers."""
    rows, shape = [], ""
    for line in (KEPT / "dask.txt").read_text("utf-8").splitlines():
        if not line.startswith((" ", "#")):
            shape, taken = line.rstrip(":"), {}
        elif found := re.match(r"  (ours|here): ([\d.]+) ms", line):
            taken[found[1]] = float(found[2])
        elif found := re.match(r"  overhead ([\d.]+) ms", line):
            over = found[1]
        elif found := re.match(r"  speed-up ([\d.]+), of the quickest ([\d.]+)", line):
            light = taken["here"] < 50
            fast = f"{found[1]} times as fast ({found[2]} at the quickest)"
            said = f"{over} ms more than half of that" if light else fast
            both = f"{taken['ours']:.0f} ms for {taken['here']:.0f} in one process: {said}"
            bar = "15 ms" if light else "1.6 from 300 ms on"
            rows.append(["`benchmarks.dask`", f"{shape}: {both}", bar])
    return rows


def past_memory() -> list[list[str]]:
    """Return the rows of files that memory does not hold."""
    path = KEPT / "beyond.json"
    found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    if "reading" not in found:
        return [["`benchmarks.beyond`", "not run", ""]]
    about, files, floor = found["about"], found["files"], min(found["reading"])
    shape = f"{files['rows']:,} dense rows of {files['columns']:,} columns"
    size = f"{files['gb']:.1f} GB ({shape}) on disk, {files['machine_gb']:.0f} GB of memory"
    rows = [["`benchmarks.beyond`", f"{size}: reading {floor:.0f} s", ""]]
    if fit := found.get("sgd-ht"):
        epoch = fit["seconds"] / about["epochs"]
        said = f"an epoch of `sgd-ht`: {epoch:.0f} s, {epoch / floor:.2f} times reading"
        whole = f"{about['epochs']} of them, batches of {about['batch']:,}: {_cost(fit)}"
        rows.append(["", f"{said}; {whole}", "1.3 times; 2 GB"])
    if fit := found.get("auto"):
        passes = f"{fit['releases']:.0f} releases in {fit['seconds']:.0f} s"
        said = f"`auto`: {passes}, {fit['seconds'] / floor:.1f} times reading; {_cost(fit)}"
        rows.append(["", said, "2 GB"])
    return rows


def _cost(fit: dict[str, float]) -> str:
    return (
        f"{fit['read_gb']:.0f} GB read from the disk, {fit['processor']:.0f} s of the processor, "
        f"{fit['own_mb']:.0f} MB of its own, accuracy {fit['accuracy']:.3f}"
    )


def table() -> str:
    """Return the table."""
    rows = [["command", "measured", "bar"], ["---"] * 3, killed(), *rounds(), *past_memory()]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main() -> None:
    """Print the table, or write it between its marks."""
    if "--print" in sys.argv:
        print(table())
        return
    text = PAGE.read_text("utf-8")
    before, rest = text.split(START)
    PAGE.write_text(f"{before}{START}\n\n{table()}\n\n{END}{rest.split(END)[1]}", "utf-8")


if __name__ == "__main__":
    main()
