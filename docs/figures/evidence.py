"""The page docs/evidence.md: counts of verdicts, runs for a referee, a picture of epsilons for each paper.

Command: python docs/figures/evidence.py   (reads benchmarks/results; --print only shows the tables)
"""

from __future__ import annotations

import json
import math
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sordino.accounting import certify
from sordino.kernel import Relation
from sordino.kernel.events import compose_events
from sordino.literature import formulas
from sordino.literature.reproduce import TABLES, table_named, verdicts, write_page
from sordino.literature.reproduce.tables import BY_DEFAULT, KINDS, UNTRIED, Verdict, count_kinds

ROOT = Path(__file__).resolve().parents[2]
PAGE, KEPT = ROOT / "docs" / "evidence.md", ROOT / "benchmarks" / "results"
SAMPLE = 12_337  # rows of RCV1 in the runs of DP-SCSG-HT
# The text states these orders of magnitude for m = 1,000, and the rates of theorems for any v, not for ours.
ANOTHER_SETTING = ("kddcup99, m = 100/", "kddcup99, m = 50,000/")
# A text's own algorithms; the other methods of its tables are rivals. In chapter 3 DP-IGHT is one.
OWN = ("DP-SGD-HT", "DP-SCSG-HT", "DP-SPCA", "DP-VRPCA", "DPSL-KT", "DP-SRM", "DP-LSSGD", "MPC ")
OWN_TABLES = ("tao-rates", "aggregation-time", "aggregation-traffic")
MARKS = ("kept", "counts", "lemma", "referee", "figure-1")
# Rows of docs/figures/verdicts.py by paper. Those whose epsilon the dominating pair of data sets attains have
# a mark of their own; the others have an upper bound only, or an example of their own.
PAPERS = {
    "liang": ("Liang et al.", ("DP-SGD-HT", "DP-SCSG-HT", "DP-SVRG-HT")),
    "shang": ("Shang et al.", ("DP-SPCA", "DP-VRPCA", "Analyze-Gauss", "MOD-SULQ", "PPI", "Wishart")),
    "wang-gu": ("Wang and Gu", ("DP-IGHT", "Frank-Wolfe")),
    "wang": ("Wang, dissertation", ("DP-SRM", "DP-LSSGD", "MPC", "Local Obj P")),
    "tao": ("Tao et al.", ("DPODME", "DP-SCO", "Peeling")),
}
# Of the algorithms in the second line the epsilon is the worst over states of the algorithm.
UPPER_BOUNDS = ("Frank-Wolfe", "Peeling", "PPI", "Local Obj P")
UPPER_BOUNDS += ("DP-SCSG-HT", "DP-SVRG-HT", "DP-SPCA", "DP-VRPCA", "DP-SRM")


def kept() -> str:
    """Return how many runs are kept, and how many with the commit that made them."""
    without: dict[str, int] = {}
    total = plus = 0
    for path in sorted((KEPT / "reproduced").glob("*.json")):
        runs = json.loads(path.read_text("utf-8"))["runs"].values()
        commits = [one["commit"] for run in runs for one in run["outcomes"]]
        without[path.stem] = sum(commit.startswith("before") for commit in commits)
        total, plus = total + len(commits), plus + sum(commit.endswith("+") for commit in commits)
    rest = sum(without.values())
    words = (
        f"are kept with the commit that made them, {plus:,} with a plus (changes that were committed later)"
    )
    if not rest:
        return f"All {total:,} runs {words}."
    words = f"Of {total:,} runs {total - rest:,} {words}"
    tables = ", ".join(f"`{name}` {count:,}" for name, count in without.items() if count)
    return f'{words}, {rest:,} with "before" one, because an earlier version made them: {tables}.'


def counts() -> str:
    """Return the table of verdicts."""
    titles = ["table or figure", "published", *KINDS]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    parts = ("printed numbers", "of these on a stand-in", "of these printed for another setting")
    parts += ("of these for add-remove, where the text replaces a record",)
    parts += ("of these, rivals", "of these, the method itself not run", "orders of curves", "all")
    total = {name: dict.fromkeys(KINDS, 0) for name in parts}
    for name in sorted(TABLES):
        path = KEPT / "reproduced" / f"{name}.json"
        if not path.exists():
            lines.append(f"| `{name}`: nothing is kept |" + " |" * (len(KINDS) + 1))
            continue
        quick = json.loads(path.read_text("utf-8"))["settings"]["quick"]
        table, found = table_named(name, quick), verdicts(name, path.parent, quick=quick)
        curves = {f"{row.group}/{row.epsilon:g}" for row in table.rows if row.published is None}
        own_keys = {f"{r.group}/{r.method}/{r.epsilon:g}" for r in table.rows if _own(name, r.method)}
        for key, one in found.items():
            own: tuple[str, ...] = ("orders of curves",)
            if key not in curves:
                moved = name == "tao-rates" or key.startswith(ANOTHER_SETTING)
                weaker = name == "srm-networks"
                own = (parts[0], *parts[1:2] * (table.likeness == "stand-in"))
                own += (*parts[2:3] * moved, *parts[3:4] * weaker, *parts[4:5] * (key not in own_keys))
                own += parts[5:6] * (one == Verdict(BY_DEFAULT, UNTRIED))
            for part in (*own, "all"):
                total[part][one.kind] += 1
        lines.append(_count_line(f"`{name}`: {table.source}", count_kinds(found)))
    return "\n".join([*lines, *(_count_line(f"**{part}**", found) for part, found in total.items())])


def _own(table: str, method: str) -> bool:
    """Tell whether a method is the text's own, not a rival of its experiments."""
    return (
        table in OWN_TABLES or method.startswith(OWN) or (table.startswith("wang-gu") and method == "DP-IGHT")
    )


def _count_line(name: str, found: dict[str, int]) -> str:
    numbers = [sum(found.values()), *found.values()]
    return f"| {name} | " + " | ".join(str(number or "") for number in numbers) + " |"


def referee() -> str:
    """Return the runs of DP-SCSG-HT with its printed noise."""
    kept = json.loads((KEPT / "scsg_referee.json").read_text("utf-8"))
    batches = runpy.run_path(str(ROOT / "docs" / "figures" / "verdicts.py"))["Batches"]
    titles = ["claimed epsilon", "B", "b", "printed loss", "here, printed noise", "here, no noise"]
    titles += ["certified (replace-one, Poisson batches)", "at most, batches of a fixed size"]
    titles += ["noise of a snapshot over a record's gradient"]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for row in kept["rows"]:
        values = (row["claimed"], row["B"], row["b"], row["printed"], row["loss"], row["plain"])
        one, two = formulas.scsg_ht(
            row["claimed"], 1e-5, population=SAMPLE, anchor_batch=row["B"], batch_size=row["b"], epochs=10
        )
        steps = 10 * (row["B"] // row["b"])
        drawn = [batches(SAMPLE, row["B"], one, 10).fixed(), batches(SAMPLE, row["b"], two, steps).fixed()]
        fixed = certify(compose_events(drawn), 1e-5, Relation.REPLACE_ONE).epsilon
        written = [f"{value:.4g}" for value in (*values, row["certified"], fixed, row["noise"])]
        lines.append("| " + " | ".join(written) + " |")
    return "\n".join(
        [*lines, "", f"`{kept['about']['command']}`, {kept['about']['date']}, one run a number."]
    )


def figure_1() -> str:
    """Return the distances of figure 1 of Shang et al. with printed noise and as many passes as it takes."""
    kept = json.loads((KEPT / "shang_referee.json").read_text("utf-8"))
    titles = ["set", "rows with", "k", "claimed epsilon", "Gaussian", "DP-SPCA (passes)", "DP-VRPCA (passes)"]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for row in kept["rows"]:
        written = [row["set"], row["scaling"], str(row["k"]), f"{row['epsilon']:g}", f"{row['Gaussian']:.2g}"]
        for method in ("DP-SPCA", "DP-VRPCA"):
            most = "+" if row[f"{method}, passes"] == row["by passes"]["passes"][-1] else ""
            written.append(f"{row[method]:.2g} ({row[f'{method}, passes']}{most})")
        lines.append("| " + " | ".join(written) + " |")
    about = kept["about"]
    return "\n".join([*lines, "", f"`{about['command']}`, {about['date']}, {about['runs']}."])


def rows() -> list[Any]:
    """Return the claims and certificates of docs/figures/verdicts.py."""
    made = runpy.run_path(str(ROOT / "docs" / "figures" / "verdicts.py"))
    parts = ("sparse_rows", "pca_rows", "nonconvex_rows", "party_rows", "heavy_rows")
    return [row for part in parts for row in made[part]()]


def draw(known: list[Any]) -> Iterator[Path]:
    """Draw claimed, certified and demonstrated epsilons, a picture for each paper."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "sordino"
    audit = json.loads((KEPT / "papers_audit.json").read_text("utf-8"))
    shown = {(one["algorithm"], one["setting"], one["claimed"]): one["shown"] for one in audit}
    for name, (title, algorithms) in PAPERS.items():
        found = [row for row in known if row.algorithm.startswith(algorithms)]
        drawing = Figure(figsize=(7.5, 1.3 + 0.32 * len(found)), layout="constrained")
        axis = drawing.subplots()
        for place, row in enumerate(reversed(found)):
            _draw_row(axis, place, row, float(shown[row.algorithm, row.setting, row.epsilon] or 0.0))
        axis.set_yticks(range(len(found)), [f"{row.algorithm}: {row.setting}" for row in reversed(found)])
        axis.set(xscale="log", xlabel="epsilon", xlim=(1e-3, 1e5), title=title)
        for marker, colour, words in (
            ("|", "k", "claimed"),
            ("o", "C0", "certified, add-remove"),
            ("s", "C3", "certified, replace-one"),
            ("x", "C1", "attained by the dominating pair (theory)"),
            ("*", "C2", "demonstrated by the audit, at least"),
        ):
            axis.plot([], [], marker, color=colour, label=words)
        axis.legend(fontsize=7, loc="lower right")
        path = ROOT / "docs" / "figures" / f"evidence-{name}.svg"
        drawing.savefig(path, metadata={"Date": None})
        yield path


def _draw_row(axis: Any, place: int, row: Any, shown: float) -> None:
    """Draw one algorithm; no bound is drawn at the right edge, an audit that shows nothing not at all."""
    edge = 6e4
    if shown > 0:
        axis.plot([min(shown, edge)], [place], "*", color="C2", markersize=7)
    axis.plot([row.epsilon], [place], "|", color="k", markersize=14)
    for value, style in ((row.add, "C0o"), (row.replace, "C3s")):
        if value is not None:
            axis.plot([edge if math.isinf(value) else max(value, 1.2e-3)], [place], style, markersize=5)
    if not row.algorithm.startswith(UPPER_BOUNDS):
        worst = max(value for value in (row.add, row.replace) if value is not None)
        at = edge if math.isinf(worst) else max(worst, 1.2e-3)
        axis.plot([at], [place], "x", color="C1", markersize=4)


def made_anew() -> tuple[str, ...]:
    """Return the tables of the page, in the order of their marks."""
    lemma = runpy.run_path(str(ROOT / "docs" / "figures" / "verdicts.py"))["lemma"]
    return kept(), counts(), lemma(), referee(), figure_1()


def page(text: str) -> str:
    """Return the page with its tables made anew."""
    for mark, made in zip(MARKS, made_anew()):
        start, end = f"<!-- {mark}: made by docs/figures/evidence.py -->", f"<!-- end of {mark} -->"
        before, _, rest = text.partition(start)
        text = f"{before}{start}\n\n{made}\n\n{end}{rest.partition(end)[2]}"
    return text


def main() -> None:
    """Write the page, those of all tables, and the pictures; or show the counts."""
    if "--print" in sys.argv:
        print(*made_anew(), sep="\n\n")
        return
    PAGE.write_text(page(PAGE.read_text("utf-8")), encoding="utf-8")
    for path in sorted((KEPT / "reproduced").glob("*.json")):
        write_page(path.stem, path.parent)
    for path in draw(rows()):
        print(path)


if __name__ == "__main__":
    main()
