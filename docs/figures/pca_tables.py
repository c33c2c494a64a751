"""The tables of the two pages on PCA, from benchmarks/results/pca.json and benchmarks/results/bars/pca.json.

Command: python docs/figures/pca_tables.py   (after benchmarks.pca --save ... and benchmarks.pca_bars)
"""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = (ROOT / "docs" / "pca.md", ROOT / "docs" / "pca-results.md")
START, END = "<!-- made by docs/figures/pca_tables.py: {} -->", "<!-- end of {} -->"
QUOTED = "| diffprivlib 0.6.6 (measured in its own environment) | .222 | .218 | .252 | none | | | | |"
CLAIMS = {("a9a", 10): "82.55", ("MNIST 0/1", 10): "98.48", ("MNIST 1/7", 10): "98.48"}


def budget(epsilon: float | None) -> str:
    return "no noise" if epsilon is None else f"{epsilon:g}"


def short(value: float, digits: int = 3) -> str:
    """Return a figure without its leading zero."""
    text = f"{value:.{digits}f}"
    return text[1:] if text.startswith("0.") else text


def unique(rows: list[dict], key: str) -> list:
    return list(dict.fromkeys(row[key] for row in rows))


def table(head: list[str], body: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def bars(rows: list[dict]) -> str:
    """Return a table for each set: captured / distance by solver and budget."""
    out = []
    for name in unique(rows, "set"):
        here = [row for row in rows if row["set"] == name]
        budgets = unique(here, "epsilon")
        most = max(row["fits"] for row in here)
        body = []
        for solver in unique(here, "solver"):
            line = {row["epsilon"]: row for row in here if row["solver"] == solver}
            shown = [_both(line.get(e)) for e in budgets]
            body.append([f"`{solver}`" if solver != "textbook" else "textbook, mean for free", *shown])
        out.append(table([f"{name}, at most {most} fits", *map(budget, budgets)], body))
    return "\n\n".join(out)


def _both(row: dict | None) -> str:
    return "" if row is None else f"{short(row['captured'])} / {row['distance']:.2f}"


def splits(rows: list[dict]) -> str:
    budgets = unique(rows, "epsilon")
    cells = {(row["center"], row["solver"], row["epsilon"]): row["captured"] for row in rows}
    head = [""] + [
        f"{w}: {e:g}" if e == budgets[0] else f"{e:g}" for w in ("centred", "raw") for e in budgets
    ]
    body = []
    for solver in unique(rows, "solver"):
        name = "textbook, mean for free" if solver == "textbook" else f"`{solver}`"
        body.append([name, *(short(cells[c, solver, e]) for c in (True, False) for e in budgets)])
    made = table(head, body).split("\n")
    return "\n".join([*made[:2], QUOTED, *made[2:]])


def spiked(rows: list[dict]) -> str:
    methods, designs = unique(rows, "method"), {}
    for row in rows:
        key = (row["design"], row["n"], row["d"], row["noise"], row["epsilon"], row["delta"])
        designs.setdefault(key, {})[row["method"]] = row["error"]
    body = [
        [f"{name}: {n:,} x {d}, {noise:g}, {e:g}", *(f"{found[m]:.2g}" for m in methods)]
        for (name, n, d, noise, e, _), found in designs.items()
    ]
    return table(["rows, noise about the axes, epsilon", *methods], body)


def counts(rows: list[dict]) -> str:
    budgets = unique(rows, "epsilon")
    body = []
    for name in unique(rows, "set"):
        here = {row["epsilon"]: row for row in rows if row["set"] == name}
        shown = [
            f"{r['median']:g} ({r['least']} to {r['most']}), {short(r['explained'], 2)}"
            for r in (here[e] for e in budgets)
        ]
        body.append([f"{name}: {here[budgets[0]]['right']} is right", *shown])
    return table(["", *map(budget, budgets)], body)


def deviations(rows: list[dict]) -> str:
    budgets = unique(rows, "epsilon")
    body = []
    for name in unique(rows, "set"):
        for solver in unique(rows, "solver"):
            here = {r["epsilon"]: r for r in rows if (r["set"], r["solver"]) == (name, solver)}
            shown = [
                f"{short(r['coverage'], 2)}, {r['stated_over_true_deviation']:.1f}; "
                f"{short(r['ratio_stated'], 2)} for {short(r['ratio_true'], 2)}"
                for r in (here[e] for e in budgets)
            ]
            body.append([f"{name}, `{solver}`", *shown])
    return table(["", *map(budget, budgets)], body)


def protocol(rows: list[dict]) -> str:
    methods = unique(rows, "method")
    body = []
    for task in unique(rows, "task"):
        for k in unique(rows, "axes"):
            here = {r["method"]: r["accuracy"] for r in rows if (r["task"], r["axes"]) == (task, k)}
            claim = CLAIMS.get((task, k), "")
            body.append([f"{task}, k = {k}", *(f"{here[m]:.2f}" for m in methods), claim])
    return table(["task", *methods, "paper's claim"], body)


def reached(rows: list[dict]) -> str:
    """Return the bars: what was asked, found, and why not where it was missed."""
    body = []
    for row in rows:
        found = row["found"] if row["holds"] else f'<span style="color:#c62828">{row["found"]}</span>'
        body.append([row["what"], row["bar"], found, row["why"]])
    holds = sum(row["holds"] for row in rows)
    return f"{holds} of {len(rows)} bars hold.\n\n" + table(["bar", "asked", "found", "why not"], body)


MADE = {f.__name__: f for f in (bars, splits, spiked, counts, deviations, protocol)}


def page(text: str, found: dict, judged: dict) -> str:
    """Return a page with each of its tables between its marks."""
    tables = {name: make(found[name]["rows"]) for name, make in MADE.items() if name in found}
    tables["reached"] = reached(judged["bars"])
    for name, made in tables.items():
        start, end = START.format(name), END.format(name)
        if start not in text:
            continue
        before, rest = text.split(start)
        text = f"{before}{start}\n\n{made}\n\n{end}{rest.split(end)[1]}"
    return text


if __name__ == "__main__":
    sections = json.loads((RESULTS / "pca.json").read_text("utf-8"))
    verdicts = json.loads((RESULTS / "bars" / "pca.json").read_text("utf-8"))
    for file in PAGES:
        file.write_text(page(file.read_text("utf-8"), sections, verdicts), "utf-8")
