"""The page docs/evidence.md: counts of verdicts, runs for a referee, a picture of epsilons for each paper.

Command: python docs/figures/evidence.py   (reads benchmarks/results; --print only shows the tables)
"""

from __future__ import annotations

import json
import math
import runpy
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from sordino.accounting import certify
from sordino.kernel import Relation
from sordino.kernel.events import compose_events
from sordino.literature import formulas
from sordino.literature.reproduce import TABLES, table_named, write_page
from sordino.literature.reproduce.runner import kept_rows
from sordino.literature.reproduce.tables import (
    BY_DEFAULT,
    BY_PRINTED,
    IDLE,
    KINDS,
    MISSED,
    MODES,
    NOT_REPRODUCIBLE,
    NOT_RUN,
    ONCE,
    REPRODUCED,
    TIED,
    UNJUDGED,
    UNTRIED,
    Cell,
    Made,
    Row,
    Table,
    Verdict,
    count_kinds,
    judge,
    page_of,
    verdict,
)

ROOT = Path(__file__).resolve().parents[2]
PAGE, KEPT = ROOT / "docs" / "evidence.md", ROOT / "benchmarks" / "results"
SAMPLE = 12_337  # rows of RCV1 in the runs of DP-SCSG-HT
# The text states these orders of magnitude for m = 1,000, and the rates of theorems for any v, not for ours.
ANOTHER_SETTING = ("kddcup99, m = 100", "kddcup99, m = 50,000")
# A text's own algorithms; the other methods of its tables are rivals. In chapter 3 DP-IGHT is one.
OWN = ("DP-SGD-HT", "DP-SCSG-HT", "DP-SPCA", "DP-VRPCA", "DPSL-KT", "DP-SRM", "DP-LSSGD", "MPC ")
OWN_TABLES = ("tao-rates", "aggregation-time", "aggregation-traffic")
MARKS = ("kept", "counts", "claims", "lemma", "referee", "figure-1")
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
    """Return how many runs are kept, and how many of them by a commit that anybody can check out."""
    total, plus, mixed, cells = 0, Counter[str](), 0, 0
    for path in sorted((KEPT / "reproduced").glob("*.json")):
        for run in json.loads(path.read_text("utf-8"))["runs"].values():
            commits = [one["commit"] for one in run["outcomes"]]
            total, cells = total + len(commits), cells + 1
            plus[path.stem] += sum(commit.endswith("+") for commit in commits)
            mixed += len(set(commits)) > 1
    rest = sum(plus.values())
    tables = ", ".join(f"`{name}` {count:,}" for name, count in sorted(plus.items()) if count)
    resting = sum(_rests_on_a_plus(one) for name in sorted(TABLES) for one in _judged(name))
    said = [
        f"Of {total:,} runs {total - rest:,} name the commit that made them.",
        f"The other {rest:,} name a commit with a plus: the source had changes on top of it that were not",
        f"committed then, are not kept, and that nobody can check out: {tables}.",
        f"On such runs of a judged method rest {resting} verdicts.",
        f"Of {cells:,} numbers {mixed} are means of runs of more than one commit.",
    ]
    return " ".join(said)


@dataclass(frozen=True)
class Judged:
    """A verdict with the rows behind it: that of a number, or those of the curves of an order."""

    table: Table
    made: Made
    row: Row
    verdict: Verdict
    runs: tuple[list[dict[str, Any]], ...]  # of the judged methods

    @property
    def is_order(self) -> bool:
        return self.row.published is None

    def kind_moved(self, errors: float) -> str:
        """Return the kind with the mean of the method moved by so many of its standard errors."""
        made = [(r, self._moved(cells, errors) if r is self.row else cells) for r, cells in self.made]
        return verdict(self.table, self.row, made).kind

    @staticmethod
    def _moved(cells: Any, errors: float) -> Any:
        sound = cells["sound"]
        if not isinstance(sound, Cell):
            return cells
        moved = tuple(value + errors * sound.error for value in sound.values)
        return {**cells, "sound": Cell(moved, sound.certified)}


@cache
def _judged(name: str) -> list[Judged]:
    """Return the verdicts of a table with what is behind them; none where nothing is kept."""
    path = KEPT / "reproduced" / f"{name}.json"
    if not path.exists():
        return []
    document = json.loads(path.read_text("utf-8"))
    quick, runs = document["settings"]["quick"], document["runs"]
    table = table_named(name, quick)
    made, known = kept_rows(table, path.parent, quick), set[str]()
    found = []
    for key, one in judge(table, made).items():
        row = next(r for r, _ in made if table.prints(r) and _key(r) == key and key not in known)
        known.add(key)
        beside = [r for r, _ in made if (r.group, r.epsilon) == (row.group, row.epsilon)]
        methods = [row] if row.published is not None else [r for r in beside if r.method in table.ranks(r)]
        keys = [getattr(r.cells["sound"], "key", "") for r in methods]
        found.append(Judged(table, made, row, one, tuple(runs[k]["outcomes"] for k in keys if k in runs)))
    return found


def _key(row: Row) -> str:
    return f"{row.group}{'' if row.published is None else f'/{row.method}'}/{row.epsilon:g}"


def _rests_on_a_plus(one: Judged) -> bool:
    return any(outcome["commit"].endswith("+") for run in one.runs for outcome in run)


def _parts(one: Judged) -> tuple[str, ...]:
    """Return the lines of the table of counts in which a verdict is counted."""
    name, words = one.table.name, one.verdict.words
    if one.is_order:
        doubts = {TIED: TIED in words, ONCE: f"{ONCE}: " in words, IDLE: IDLE in words}
        doubts["none of the three"] = one.verdict.kind == REPRODUCED and not any(doubts.values())
        own = [f"of these, {doubt}" for doubt, holds in doubts.items() if holds]
        return "orders of curves", *own, "all"
    also = {
        "of these on a stand-in": one.table.likeness == "stand-in",
        "of these printed for another setting": name == "tao-rates" or one.row.group in ANOTHER_SETTING,
        "of these for add-remove, where the text replaces a record": name == "srm-networks",
        "of these, rivals": not _own(name, one.row.method),
        "of these, the method itself not run": one.verdict == Verdict(BY_DEFAULT, UNTRIED),
        "of these, one run of the method": one.verdict.kind != UNJUDGED and [len(r) for r in one.runs] == [1],
        "of these, another verdict a standard error away": {one.kind_moved(-1.0), one.kind_moved(1.0)}
        != {one.verdict.kind},
    }
    return "printed numbers", *(part for part, holds in also.items() if holds), "all"


PARTS = ("printed numbers", "of these on a stand-in", "of these printed for another setting")
PARTS += ("of these for add-remove, where the text replaces a record", "of these, rivals")
PARTS += ("of these, the method itself not run", "of these, one run of the method")
PARTS += ("of these, another verdict a standard error away", "orders of curves")
PARTS += (*(f"of these, {doubt}" for doubt in (TIED, ONCE, IDLE)), "of these, none of the three", "all")


def counts() -> str:
    """Return the table of verdicts."""
    titles = ["table or figure", "published", *KINDS]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    total = {name: dict.fromkeys(KINDS, 0) for name in PARTS}
    for name in sorted(TABLES):
        found = _judged(name)
        if not found:
            lines.append(f"| `{name}`: nothing is kept |" + " |" * (len(KINDS) + 1))
            continue
        for one in found:
            for part in _parts(one):
                total[part][one.verdict.kind] += 1
        counted = count_kinds({str(place): one.verdict for place, one in enumerate(found)})
        lines.append(_count_line(f"`{name}`: {found[0].table.source}", counted))
    return "\n".join([*lines, *(_count_line(f"**{part}**", found) for part, found in total.items())])


def claims() -> str:
    """Return what becomes of orders that texts state of their numbers, by the rule of orders of curves."""
    kinds = (REPRODUCED, BY_PRINTED, NOT_REPRODUCIBLE, MISSED, NOT_RUN)
    titles = ["table", "the text has", "columns", "its numbers show it in", "first here", *kinds]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    totals = {"numbers of tables": Counter[str](), "curves of figures": Counter[str]()}
    for name in sorted(TABLES):
        if not (KEPT / "reproduced" / f"{name}.json").exists():
            continue
        table = table_named(name)
        made = kept_rows(table, KEPT / "reproduced")
        for claim in page_of(name).get("claims", ()):
            printed, found, first = _claimed(table, made, claim)
            drawn = table.rows[0].published is None
            total = totals["curves of figures" if drawn else "numbers of tables"]
            own = Counter(one.kind for one in found.values())
            total.update(own)
            total.update(printed=sum(one.kind == REPRODUCED for one in printed.values()), columns=len(found))
            shown = "drawn" if drawn else str(sum(one.kind == REPRODUCED for one in printed.values()))
            where = ", ".join(claim.get("groups", ()))
            places = ", ".join(f"{method} {count}" for method, count in first.most_common())
            order = " before ".join(", ".join(group) for group in claim["order"])
            written = [f"`{name}`{f' ({where})' if where else ''}", order, str(len(found)), shown, places]
            lines.append("| " + " | ".join([*written, *(str(own[kind] or "") for kind in kinds)]) + " |")
    for words, total in totals.items():
        shown = str(total["printed"]) if "numbers" in words else ""
        written = [f"**{words}**", "", str(total["columns"]), shown, ""]
        lines.append("| " + " | ".join([*written, *(str(total[kind] or "") for kind in kinds)]) + " |")
    return "\n".join(lines)


def _claimed(
    table: Table, made: Made, claim: Mapping[str, Any]
) -> tuple[dict[str, Verdict], dict[str, Verdict], Counter[str]]:
    """Return the verdicts on an order by the printed numbers and by ours, and which method is first here.

    Of an accuracy the error is compared: 2 % of an accuracy are most of the spread of a table. As a number
    on a stand-in, an order there is missed at worst.
    """
    ranked = {method for group in claim["order"] for method in group}
    accuracy = table.better == "higher"
    nothing = {group: 100 - least if accuracy else least for group, least in table.trivial.items()}
    drawn = replace(table, better="lower", order=claim["order"], orders={}, trivial=nothing)
    in_print = replace(drawn, trivial={}) if table.likeness == "stand-in" else drawn  # it has other units

    def turned(cell: Any) -> Any:
        if not (isinstance(cell, Cell) and accuracy):
            return cell
        return Cell(tuple(100 - value for value in cell.values), cell.certified)

    chosen = [
        (row, {mode: turned(cell) for mode, cell in cells.items()})
        for row, cells in made
        if row.method in ranked
        and row.group in claim.get("groups", (row.group,))
        and row.epsilon in claim.get("epsilons", (row.epsilon,))
    ]
    ours = [(replace(row, published=None), cells) for row, cells in chosen]
    printed = [
        (replace(row, published=None), {**dict.fromkeys(MODES, ""), "sound": turned(Cell((row.published,)))})
        for row, _ in chosen
        if row.published is not None
    ]
    first = Counter[str]()
    for place in dict.fromkeys((row.group, row.epsilon) for row, _ in ours):
        beside = [(r.method, c["sound"]) for r, c in ours if (r.group, r.epsilon) == place]
        known = [(cell.mean, method) for method, cell in beside if isinstance(cell, Cell)]
        first[min(known, default=(0.0, "not run"))[1]] += 1
    found = judge(drawn, ours)
    if table.likeness == "stand-in":
        found = {k: Verdict(MISSED) if v.kind == NOT_REPRODUCIBLE else v for k, v in found.items()}
    return judge(in_print, printed), found, first


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
    return kept(), counts(), claims(), lemma(), referee(), figure_1()


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
