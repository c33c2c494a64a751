"""The tables of docs/scale.md, from what runs kept: constants, killed workers, rounds, files past memory.

Command: python docs/figures/scale_runs.py   (writes them into the page; --print only shows them)
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
MADE = "<!-- made by docs/figures/scale_runs.py: {} -->"
END = "<!-- end of it -->"
SAID = """Constants were measured on some shapes and judged on {shapes} others, here and on two workers: the
processor's time of a round was predicted within {off} % (`python -m benchmarks.scale`, kept in
`benchmarks/results/scale.txt`).

**What it says for 1e9 rows x 1e7 columns** with 100 entries a row, over a network of 10 Gbit/s: {few:.0f} s a
round on 100 workers of one thread, {many:.0f} s on 1,000, where the 80 MB answers on their way through the
tree of workers begin to count; {minutes:.0f} minutes for the 55 rounds of `auto`."""


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


def from_disk() -> list[list[str]]:
    """Return the rows of sparse files."""
    lines = _lines("disk.txt")
    if not lines:
        return [["`benchmarks.disk`", "not run", ""]]
    size = next(line.split(" written")[0] for line in lines if " written in " in line)
    shape = f"{size} of sparse rows, 75 entries among 1,000,000 columns"
    wanted = ("reading from the disk:", "a pass from disk", "an epoch", "auto,")
    rows = [[f"`benchmarks.disk {size.split()[0]}`", shape, ""]]
    for line in lines:
        if line.startswith(wanted):
            said, _, bar = line.partition(" (bar ")
            rows.append(["", said, bar.rstrip(")") + " times" if bar else ""])
    return rows


def cold() -> list[list[str]]:
    """Return the rows of batches that the cache does not hold."""
    rows: list[list[str]] = []
    for line in _lines("cold_batches.txt"):
        if line.startswith("  "):
            rows[-1][1] += f" {line.strip()};"
        else:
            rows.append(["" if rows else "`benchmarks.cold_batches`", line, ""])
    return [[name, said.rstrip(";"), bar] for name, said, bar in rows]


def delayed() -> list[list[str]]:
    """Return the rows of slow and lost workers."""
    return [["`benchmarks.stragglers`", line, ""] for line in _lines("stragglers.txt")[:4]]


def runs() -> str:
    """Return the table of runs."""
    rows = [killed(), *rounds(), *delayed(), *from_disk(), *cold(), *past_memory()]
    return _table(["command", "measured", "bar"], rows)


def constants() -> str:
    """Return the table of constants, how well they predict, and what they say of a large cluster."""
    text = "\n".join(_lines("scale.txt"))

    def numbers(pattern: str) -> tuple[str, ...]:
        found = re.search(pattern, text)
        return found.groups() if found else ("?", "?")

    m, s, r = (
        numbers(r"back: ([\d.]+ ms) driver, ([\d.]+ ms)"),
        numbers(r"sent: ([\d.]+ ns) driver, ([-\d.]+ ns)"),
        numbers(r"a row: ([\d.]+ ns), ([-\d.]+ ns)"),
    )
    rows = [
        ["m, m'", "a message and its answer, at the driver and at the worker", ", ".join(m)],
        ["s, s'", "a coordinate of an answer that travels, at the driver and at the worker", ", ".join(s)],
        ["c", "a coordinate of an answer: noise and sums", numbers(r"answer: ([\d.]+ ns)")[0]],
        ["r, r'", "a row, and what it costs more on a worker", ", ".join(r)],
        [
            "a(d)",
            "an entry at 1e4, 1e5, 5e5, 1e6, 1e7 columns: random ones are slower where they leave the caches",
            numbers(r"an entry: ([\d., ]+ ns)")[0],
        ],
    ]
    off = [abs(int(given)) for given in re.findall(r"predicted [\d.]+ \(([+-]\d+)%\)", text)]
    large = {int(w): float(s) for w, s in re.findall(r"a row, (\d+) threads: ([\d.]+) s", text)}
    said = SAID.format(
        shapes=len(off), off=max(off), few=large[100], many=large[1000], minutes=55 * large[100] / 60
    )
    return _table(["constant", "what", "measured"], rows) + "\n\n" + said


def _lines(name: str) -> list[str]:
    path = KEPT / name
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [line for line in lines if not line.startswith("#")]


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


PARTS = {"runs": runs, "constants": constants}


def page(text: str) -> str:
    """Return the page with its parts made anew."""
    for name, make in PARTS.items():
        before, rest = text.split(MADE.format(name))
        text = f"{before}{MADE.format(name)}\n\n{make()}\n\n{END}{rest.split(END, 1)[1]}"
    return text


def main() -> None:
    """Print the parts, or write them between their marks."""
    if "--print" in sys.argv:
        print("\n\n".join(make() for make in PARTS.values()))
        return
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
