"""Tables and numbers of pages from the files that are kept in benchmarks/results.

Command: python docs/figures/kept.py   (writes the tables into the pages and draws passes.png; says which
sentences do not have the numbers of their file; `tests/test_results.py` asks for both)
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCS, KEPT = ROOT / "docs", ROOT / "benchmarks" / "results"
Cells = list[list[str]]


def kept(name: str) -> Any:
    """Return the contents of a kept file."""
    return json.loads((KEPT / name).read_text("utf-8"))


def short(value: float, digits: int = 2) -> str:
    """Return a number below one as the pages write it, .42 for 0.42."""
    return re.sub(r"^(-?)0\.", r"\1.", f"{value:.{digits}f}")


def bar(name: str, start: str) -> dict[str, Any]:
    """Return a kept bar by how its words begin."""
    return next(one for one in kept(f"bars/{name}.json")["bars"] if one["what"].startswith(start))


def table(head: list[str], rows: Cells) -> str:
    """Return a table in Markdown."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows))


def dated(about: dict[str, Any]) -> str:
    """Return by what and when something was measured."""
    return f"`{about['command']}`, {about['date']}"


# -------------------- sharp edges


def columns() -> str:
    """R2 of columns in unlike units."""
    ways = {
        "one `data_norm` declared": "columns in units",
        "a bound for each column in a [`Schema`](tables.md)": "the same with columns",
        "`HeavyTailedRegressor`, which finds scales": "the same with `Heavy",
    }
    rows = []
    for words, start in ways.items():
        found = bar("columns", start)["found"].split(" (")[0].split(" / ")
        rows.append([words, *(short(float(value)) for value in found[:4])])
    return table(["epsilon", ".1", ".3", "1", "3"], rows)


def _interval(statistic: str, column: str, part: str = "cells", n: int = 1000) -> dict[str, Any]:
    rows = kept("statistic_intervals.json")[part]
    asked = {"statistic": statistic, "column": column, "n": n}
    return next(row for row in rows if all(row[key] == value for key, value in asked.items()))


def tails() -> str:
    """Intervals of lognormal laws."""
    rows = []
    for statistic in ("mean", "variance"):
        cells = [_interval(statistic, f"lognormal({sigma})") for sigma in ("1", "1.5", "2")]
        for words, key in (("covered", "coverage"), ("no upper end", "endless")):
            rows.append([f"{statistic}: {words}", *(f"{100 * cell[key]:.0f} %" for cell in cells)])
    return table(["sigma", "1", "1.5", "2"], rows)


# -------------------- nonconvex losses

SETS = [(name, epsilon) for name in ("a9a", "ijcnn1") for epsilon in ("0.2", "0.5")]
LOSSES = ["test loss / gradient norm", *(f"{name}, ε = {epsilon}" for name, epsilon in SETS)]


def averages() -> str:
    """Last iterates and averages of sgd and srm."""
    data, rows = kept("nonconvex.json"), []
    for words, method in {
        "`sgd`, last": "sgd",
        "`srm`, last": "srm, last",
        "`sgd`, average of the last 30 %": "sgd, average",
        "`srm`, average of the last 30 %": "srm",
    }.items():
        found = [data[name][epsilon][method] for name, epsilon in SETS]
        rows.append([words, *(f"{one['loss'][0]:.4f} / {one['gradient'][0]:.4f}" for one in found)])
    return table(LOSSES, rows)


def run_mean(name: str, key: str) -> float:
    """Return the mean of the runs of a cell of a published table."""
    return statistics.mean(one["value"] for one in kept(f"reproduced/{name}.json")["runs"][key]["outcomes"])


def _published(table_name: str, name: str, epsilon: str) -> float:
    from sordino.literature.reproduce.tables import page_of

    group = next(one for one in page_of(table_name)["groups"] if one["name"] == name)
    value: float = group["numbers"]["DP-SRM"][group["epsilons"].index(float(epsilon))]
    return value


def constants() -> str:
    """DP-SRM with our constants, with the printed ones, as the text has it, and what is printed."""
    rows = []
    for words, method in {
        "`srm`, its defaults": "DP-SRM, our constants",
        "`srm`, printed constants, our average, steps and bound": "DP-SRM, averaged",
        "`srm`, as the text has it": "DP-SRM",
    }.items():
        keys = [f"{name}/{method}/{epsilon}/sound" for name, epsilon in SETS]
        rows.append(
            [words, *(f"{run_mean('srm', k):.4f} / {run_mean('srm-gradients', k):.4f}" for k in keys)]
        )
    printed = [[_published(name, *at) for name in ("srm", "srm-gradients")] for at in SETS]
    return table(LOSSES, [*rows, ["*printed*", *(f"*{loss:.4f} / {slope:.4f}*" for loss, slope in printed)]])


# -------------------- solvers, comparison


def passes() -> str:
    """Objectives of hard-thresholding solvers by passes."""
    data, rows, before = kept("sparse_solvers.json"), [], ""
    for row in data["rows"]:
        name = {"ight+nesterov": "`ight` with Nesterov momentum"}.get(row["solver"], f"`{row['solver']}`")
        where = f"{row['set']} ({row['n']:,} x {row['d']:,}), k = {row['k']}: "
        numbers = [short(value, 3) for value in row["objective"]]
        rows.append([("" if row["set"] == before else where) + name, *numbers])
        before = row["set"]
    head = ["training objective at (2, 1e-5), by data passes", *map(str, data["rows"][0]["passes"])]
    return f"{table(head, rows)}\n\n({dated(data['about'])}, mean of two seeds.)"


def draw_passes() -> None:
    """Draw the same as curves."""
    from matplotlib.figure import Figure

    from sordino.report.plots import log_axis

    rows = kept("sparse_solvers.json")["rows"]
    names = list(dict.fromkeys(row["set"] for row in rows))
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axis, name in zip(figure.subplots(1, len(names)), names):
        for row in (row for row in rows if row["set"] == name):
            axis.plot(row["passes"], row["objective"], "o-", label=row["solver"])
        log_axis(axis, at=rows[0]["passes"])
        axis.set(title=f"{name}, epsilon 2", xlabel="data passes", ylabel="objective")
        axis.legend()
    figure.savefig(DOCS / "solvers" / "passes.png", dpi=120, metadata={"Software": None})


def mixing() -> str:
    """R2 beside Hessian mixing."""
    data, rows = kept("hessian_mixing.json"), []
    sizes = dict.fromkeys((row["n"], row["d"]) for row in data["rows"])
    for n, d in sizes:
        here = [row for row in data["rows"] if (row["n"], row["d"]) == (n, d)]
        epsilons = list(dict.fromkeys(row["epsilon"] for row in here))
        line = [f"{n:,} x {d}", " / ".join(f"{epsilon:g}" for epsilon in epsilons)]
        for start in ("sordino", "adassp", "hessian"):
            best = [
                max(r["mean"] for r in here if r["epsilon"] == e and r["method"].startswith(start))
                for e in epsilons
            ]
            line.append(" / ".join(short(value, 3) for value in best))
        rows.append(line)
    best = "Hessian mixing, the better of 3 and 10 steps"
    return table(["rows x columns", "epsilon", "Sordino's default", "AdaSSP", best], rows)


# -------------------- heavy tails


def bounded() -> str:
    """Means between declared bounds."""
    rows = []
    for row in kept("heavy.json")["bounded"]:
        low, high = row["bounds"]
        bounds = f"±{high:g}" if low == -high else f"({low:g}, {high:g})"
        where = f"{row['law']}, bounds {bounds}, n = {row['n']:,}, epsilon {row['epsilon']:g}"
        errors = [short(row[key], 3) for key in ("error", "plain", "without bounds")]
        rows.append([where, f"{100 * row['coverage']:.0f} %", *errors])
    plain = "plain, Gaussian noise"
    head = [
        "95 % intervals of `mean`, 150 repeats",
        "coverage",
        "mean absolute error",
        plain,
        "without bounds",
    ]
    return table(head, rows)


LAWS = {
    "Pareto(1.5)": ("pareto(1.5)", "limits"),
    "80 % exponential, 20 % lognormal(2)": ("80 % exponential, 20 % lognormal(2)", "limits"),
    "90 % normal, 10 % Pareto(1.5)": ("90 % normal, 10 % pareto(1.5)", "limits"),
    "zero-inflated exponential": ("zero-inflated", "cells"),
    "t(3)": ("t(3)", "cells"),
    "lognormal(1)": ("lognormal(1)", "cells"),
}


def doubts() -> str:
    """Coverage and width of means by how much worse a tail may be than it looks."""
    rows = []
    for words, (column, part) in LAWS.items():
        cells = [_interval("mean", column, one) for one in (part, "doubt 1.5", "doubt 2")]
        widths = [str(cell["half / error"]) for cell in cells]
        widths = ["infinite" if width == "inf" else f"{float(width):.1f}" for width in widths]
        rows.append([words, *(f"{short(cell['coverage'])}, {w}" for cell, w in zip(cells, widths))])
    return table(["", "1.1 (as it is)", "1.5", "2.0"], rows)


def slopes() -> str:
    """Slopes of means, and what a wrong bound costs."""
    rows = []
    for row in kept("heavy.json")["means"]:
        v, worse = row["v"], (row["ten times too large"], row["too small"])
        found = [f"{value:.3f}" for value in (-v / (1 + v), row["auto"], row["known"])]
        rows.append([str(v), *found, *(f"{value:.1f} times our error" for value in worse)])
    wrong = ["a fixed bound 10 times too large", "10 times too small"]
    return table(["v", "theory", 'slope, `"auto"`', "slope, known u", *wrong], rows)


def risks() -> str:
    """Excess risks of regressions."""
    data = kept("heavy.json")
    rows = [
        [row["model"], f"{row['slope']:.2f}", *(f"{risk:.2g}" for risk in row["risks"])]
        for row in data["regressions"]
    ]
    return table(["model", "slope", *(f"n = {n:,}" for n in data["about"]["rows"])], rows)


def designs() -> str:
    """Coefficients beside the sparse model with its default clipping."""
    rows = [[r["law"], f"{r['heavy']:.3f}", f"{r['sparse']:.3f}"] for r in kept("heavy.json")["designs"]]
    return table(["design and noise", "`HeavyTailedRegressor`", "`SparseLinearRegression`, defaults"], rows)


def gifts() -> str:
    """Last gifts of donors."""
    rows = [[r["model"], f"{r['mae']:.2f}", f"{r['r2']:.3f}"] for r in kept("heavy.json")["gifts"]]
    return table(["model", "test MAE", "R²"], rows)


def adult() -> str:
    """Accuracy on Adult by what was declared."""
    ways = {
        "declared": "bounds and levels declared",
        "learned for .2, fitted for .8": "bounds and levels learned for epsilon .2, fitted for .8",
        "kinds learned as well": "kinds and labels learned as well, only the name of the target said",
    }
    said = (KEPT / "tables_adult.txt").read_text("utf-8")
    found = {way: re.search(f"{re.escape(way)}: mean 0(.*), least 0(.*)", said) for way in ways}
    return table(["", "mean", "least"], [[words, *found[way].groups()] for way, words in ways.items()])


def times() -> str:
    """Time and memory of components."""
    text = (KEPT / "pca_times.txt").read_text("utf-8")
    command, day = re.search(r"# (.*)\n# (\S+), commit", text).groups()
    found = r"times: what (.*), seconds (\S+), megabytes (\d+)(?:, beside (.*), theirs (\S+))?"
    rows = []
    for what, seconds, memory, beside, theirs in re.findall(found, text):
        rows.append([what, f"{seconds} s", f"{memory} MB", f"{theirs} s ({beside})" if beside else ""])
    return f"`{command}`, {day}, on a busy machine:\n\n" + table(["", "time", "memory", "beside"], rows)


def thousand() -> str:
    """Logistic regression between a thousand clients."""
    names = {
        "plain averaging, a tenth of the clients leaves": "no noise, every tenth client leaves",
        "per client, clip 1": "noise per client, clip 1",
        "per client, clip .01": "noise per client, clip .01",
        "per client, clip .01 at first, within .5": "the same, but the clip follows the median of norms",
        "per record, epsilon 4 at each client": "noise per record at each client, every tenth leaves",
    }
    text = (KEPT / "federated_thousand.txt").read_text("utf-8")
    found = re.findall(r"(\S.*?) +epsilon +(\S+)  accuracy 0(\S+) +(\d+) CPU s", text)
    rows = [[names[name], epsilon, accuracy, seconds] for name, epsilon, accuracy, seconds in found]
    return table(["", "epsilon", "accuracy", "CPU s"], rows)


def later() -> str:
    """Solvers whose defaults have changed since all of them were run."""
    data = kept("solver_bars_later.json")
    sets = list(dict.fromkeys(fit["set"] for fit in data["fits"]))
    rows = []
    for solver in dict.fromkeys(fit["solver"] for fit in data["fits"]):
        found = {fit["set"]: fit["score"] for fit in data["fits"] if fit["solver"] == solver}
        rows.append([f"`{solver}`", *(f"{found[name]:.3f}" for name in sets)])
    return f"{table(['solver', *sets], rows)}\n\n({dated(data['about'])})"


def release(members: int, numbers: int, mode: str = "noise-inside", tls: bool = True) -> dict[str, Any]:
    """Return a measured release between members."""
    asked = {"members": members, "numbers": numbers, "mode": mode, "tls": tls}
    return next(row for row in kept("wire.json") if all(row[key] == value for key, value in asked.items()))


def wire() -> str:
    """What releases between members cost."""
    asked = [release(3, size) for size in (104, 1000, 10_000)]
    asked += [release(3, size, "secure-aggregation") for size in (104, 10_000)]
    asked += [release(members, 104, tls=False) for members in (5, 7, 9, 15)]
    rows = []
    for row in asked:
        times = [f"{value:.2g}" for value in (*row["wall"], *row["cpu"])]
        rounds = [f"{value:.0f}" for value in row["rounds"]]
        who = [str(row["members"]), row["mode"].replace("-", " "), f"{row['numbers']:,}"]
        rows.append([*who, *times, *rounds, f"{row['mb']:.2g}" if row["mb"] < 1 else f"{row['mb']:.0f}"])
    head = ["members", "mode", "numbers", "offline s", "online s", "CPU s a member, offline", "online"]
    head += ["rounds offline", "online", "MB in all"]
    loads = [row["load"] for row in asked]
    first = f"{dated(asked[0])}, two cores at a load of {min(loads):.0f} to {max(loads):.0f}:"
    return f"{first}\n\n{table(head, rows)}"


BLOCKS: dict[str, dict[str, Callable[[], str]]] = {
    "sharp-edges.md": {"columns": columns, "tails": tails},
    "solvers/scsg-ht.md": {"passes": passes},
    "nonconvex.md": {"averages": averages, "constants": constants},
    "comparison.md": {"mixing": mixing},
    "parties/operations.md": {"wire": wire},
    "parties/flower.md": {"thousand": thousand},
    "tables.md": {"adult": adult},
    "solvers/index.md": {"later": later},
    "pca-results.md": {"times": times},
    "heavy-tails.md": {
        "bounded": bounded,
        "doubts": doubts,
        "slopes": slopes,
        "risks": risks,
        "designs": designs,
        "gifts": gifts,
    },
}


def page(name: str, text: str) -> str:
    """Return a page with fresh tables."""
    for block, made in BLOCKS[name].items():
        start, end = f"<!-- {block}: made by docs/figures/kept.py -->", f"<!-- end of {block} -->"
        before, found, rest = text.partition(start)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise SystemExit(f"{name} has no place for {block}")
        indent = re.search(r" *$", before)[0]  # inside a list
        lines = [indent + line if line else line for line in made().split("\n")]
        text = before + start + "\n\n" + "\n".join(lines) + f"\n\n{indent}{end}" + after
    return text


# -------------------- sentences


def _noise() -> str:
    """The stated noise of coefficients."""
    bars = [one for one in kept("bars/noise.json")["bars"] if one["what"].startswith("`coef_noise_`")]
    ratios = [float(value) for one in bars for value in one["found"].split(" / ")]
    return f"{short(min(ratios))} to {short(max(ratios))} times the stated ones"


def _covered(statistic: str, column: str, words: str, part: str = "limits") -> str:
    return words.format(f"{100 * _interval(statistic, column, part)['coverage']:.0f} %")


def _ratios(method: str) -> list[float]:
    """Gradient norms of the last iterates of srm beside those of sgd, or of all beside the printed ones."""
    data = kept("nonconvex.json")
    if method == "sgd":
        return [data[n][e]["srm, last"]["gradient"][0] / data[n][e]["sgd"]["gradient"][0] for n, e in SETS]
    return [data[n][e]["srm"]["gradient"][0] / _published("srm-gradients", n, e) for n, e in SETS]


def _shorter() -> str:
    found = [100 * (1 - ratio) for ratio in _ratios("sgd")]
    return f"is {min(found):.0f} to {max(found):.0f} % shorter"


def _averaged() -> str:
    """Where averages of sgd and of srm are better."""
    data = kept("nonconvex.json")
    pairs = [(data[n][e]["sgd, average"], data[n][e]["srm"]) for n, e in SETS]
    lower = sum(sgd["loss"][0] < srm["loss"][0] for sgd, srm in pairs)
    quiet = sum(srm["gradient"][0] < sgd["gradient"][0] for sgd, srm in pairs)
    return f"`sgd` has the lower loss in {lower} of 4 cells and `srm` the shorter gradient in {quiet} of 4"


def _beside_printed() -> str:
    found = [100 * ratio for ratio in _ratios("printed")]
    ours = [
        100
        * run_mean("srm-gradients", f"{n}/DP-SRM, our constants/{e}/sound")
        / _published("srm-gradients", n, e)
        for n, e in SETS
    ]
    return (
        f"{min(found):.0f} to {max(found):.0f} % of the gradient norm, with the same passes, "
        f"under add-remove; {min(ours):.0f} to {max(ours):.0f} % under replace-one"
    )


def _auto_beside_srm() -> str:
    """Test losses of auto and srm under replace-one."""

    def pair(name: str, way: str) -> str:
        keys = [f"{name}/{way.format(e)}" for e in ("0.2", "0.5")]
        return " / ".join(short(run_mean("srm", key), 3) for key in keys)

    auto, srm = "default/{}", "DP-SRM, our constants/{}/sound"
    return (
        f"the test loss of `auto` is {pair('a9a', auto)} on a9a at epsilon .2 / .5, where `srm` has "
        f"{pair('a9a', srm)}, and {pair('ijcnn1', auto)} on ijcnn1, where `srm` has {pair('ijcnn1', srm)}"
    )


def _digits_of_mnist() -> str:
    """Softmax regression by default under replace-one."""
    found = [1 - run_mean("lssgd", f"MNIST/default/{e}") for e in ("0.1", "0.2", "0.3")]
    return " / ".join(f"{100 * value:.1f}" for value in found) + " % under replace-one"


def _softmax() -> str:
    """The same under add-remove."""
    found = re.findall(r"accuracy (0\.\d+)", (KEPT / "multiclass.txt").read_text("utf-8"))
    return "reaches " + " / ".join(f"{100 * float(value):.1f}" for value in found) + " %"


def _trees() -> str:
    """Our default beside printed errors of trees."""
    found = [
        f"{100 * r['mean']:.1f} ± {short(100 * r['error'])} %" for r in kept("printed_trees.json")["rows"]
    ]
    return " and ".join(found)


def _opake() -> str:
    rows = kept("peers_opake.json")["rows"]
    at = {row["method"]: row for row in rows if row["epsilon"] == 1.0}
    said = [f"{short(at[m]['mean'], 3)} ± {short(at[m]['half'], 3)}" for m in ("opake", "sordino")]
    seconds = f"{at['opake']['cpu']:.1f} s of CPU a fit"
    return f"{said[0]} where Sordino had {said[1]} on the same three splits, {seconds}"


def _ours_of_peers() -> str:
    """Our scores with later defaults on the splits of the peers."""
    rows = [row for row in kept("peers_ours.json")["rows"] if row["method"] == "sordino"]
    said = [f"{short(row['mean'], 3)} ± {short(row['half'], 3)}" for row in rows]
    places = ("on digits at epsilon 1 and 4", "on breast cancer", "on Adult")
    return ", ".join(f"{said[2 * i]} and {said[2 * i + 1]} {place}" for i, place in enumerate(places))


def _coordinate() -> str:
    """What a coordinate of noise costs."""
    row = release(3, 10_000)
    return f"{1e3 * row['cpu'][0] / 1e4:.2f} ms of processor time a member and {row['mb'] / 10:.0f} kB in all"


def _shares(way: str) -> str:
    one = release(3, 104, way)
    return f"{one['wall'][1]:.2g} s online"


def _floors() -> str:
    """Accuracies with lower floors of norms."""
    said = re.findall(r"clip .*: (.*) %", (KEPT / "nn-floors.txt").read_text("utf-8"))
    ones = [short(float(value) / 100, 3) for value in said]
    return f"gave {ones[0]}, {ones[1]} and {ones[2]} at epsilon 1 and {ones[3]}, {ones[4]} and {ones[5]} at 3"


def _xray(rows: str) -> list[str]:
    text = (KEPT / "xray_referee.txt").read_text("utf-8")
    pairs = re.findall(re.escape(rows) + r", C = .*: test images (.*), held-out training images (.*)", text)
    return [short(float(one), 3 if place else 2) for place in (0, 1) for one in (p[place] for p in pairs)]


def _unit_xrays() -> str:
    """Losses of scikit-learn's model with rows of norm 1, on the test images and on others."""
    found = _xray("rows of norm 1")
    return (
        f"grows from {found[0]} to {found[1]} on the test images, and falls from {found[2]} to {found[3]} on"
    )


def _raw_xrays() -> str:
    """The same with pixels as they are."""
    found = _xray("pixels in [0, 1]")
    return f"it grows on both, {found[0]} to {found[1]} and {found[2]} to {found[3]}"


def _default_on_xrays() -> str:
    """The losses of our default by epsilon."""
    found = [run_mean("liang-5", f"chest X-ray/default/{epsilon}") for epsilon in (2, 4, 6, 8, 10)]
    return "(" + ", ".join(short(value, 3) for value in found) + " at 2, 4, 6, 8, 10;"


def _census() -> str:
    """The model of the six commands of the front page."""
    said = (KEPT / "tables_adult.txt").read_text("utf-8")
    return short(float(re.search(r"declared: mean (\S+),", said)[1]), 3) + " of the test rows"


def _aside(words: str) -> list[str]:
    """Return what was measured in passing."""
    lines = (KEPT / "asides.txt").read_text("utf-8").splitlines()
    found = next(line for line in lines if words in line).rpartition(": ")[2]
    return [short(float(one), 3) for one in found.split(" in ")[-1].rstrip(" s").split(" / ")]


def _shifted() -> str:
    """Errors of a mean with and without a shift."""
    still, moved = _aside("error of the mean of 1,000")
    return f"at epsilon 1 is {moved}, without it {still}"


def _certified_fast() -> str:
    """Seconds of a certificate."""
    ours, theirs = (_aside(f"batches, {name}")[0] for name in ("ours", "dp-accounting"))
    return f"{ours[:3]} s against {theirs[:3]} s, same epsilon"


def _secure() -> str:
    found = dict(
        re.findall(r"(perceptron|small CNN).*\((.*)x\)", (KEPT / "secure_nn.txt").read_text("utf-8"))
    )
    small = f"{float(found['small CNN']):.1f} times the step of a small CNN"
    return f"{small} and {float(found['perceptron']):.0f} times that of a small perceptron"


def _unended() -> str:
    share = _interval("variance", "lognormal(1)")["endless"]
    return f"in {100 * share:.0f} % of the runs on a lognormal"


def _million() -> str:
    found = statistics.median(row["cpu"] for row in kept("heavy.json")["speed"][1:])
    return f"take {found:.1f} s of processor time"


def _short_means(table_name: str, *keys: str, digits: int = 3) -> str:
    """Return means of cells as a sentence has them: a and b, or a, b and c."""
    *most, last = [short(run_mean(table_name, key), digits) for key in keys]
    return f"{', '.join(most)} and {last}"


def _srm_as_printed() -> str:
    """DP-SRM with all constants of the text on a9a."""
    keys = [f"a9a/DP-SRM/{epsilon}/sound" for epsilon in ("0.2", "0.5")]
    losses, norms = (_short_means(name, *keys) for name in ("srm", "srm-gradients"))
    printed = [
        " and ".join(short(_published(name, "a9a", e), 3) for e in ("0.2", "0.5"))
        for name in ("srm", "srm-gradients")
    ]
    return f"a9a has losses of {losses} (printed {printed[0]}) and norms of {norms} (printed {printed[1]});"


def _lssgd_as_printed() -> str:
    """Errors of logistic regression with the steps of the text."""
    rival = _short_means("lssgd", *(f"MNIST/DP-SGD/{e}/sound" for e in ("0.3", "0.25", "0.2")), digits=2)
    smoothed = _short_means("lssgd", *(f"MNIST/DP-LSSGD, {s}/0.3/sound" for s in (1, 2, 3)), digits=2)
    places = ("(DP-SGD at .3, .25 and .2)", "(smoothing 1, 2 and 3 at .3)")
    return f"errors after 50 epochs are {rival} {places[0]} and {smoothed} {places[1]}"


MIXED, FAR = "90 % normal, 10 % pareto(1.5)", "80 % exponential, 20 % lognormal(2)"
SENTENCES: list[tuple[str, Callable[[], str]]] = [
    ("guide.md", _noise),
    ("sharp-edges.md", lambda: _covered("mean", MIXED, "is covered in {}")),
    ("sharp-edges.md", lambda: _covered("mean", FAR, "lognormal(2) in 20 % in {}")),
    ("sharp-edges.md", lambda: _covered("mean", "pareto(1.5)", "the mean of Pareto(1.5) in {}")),
    ("sharp-edges.md", lambda: _covered("variance", "pareto(2.5)", "the variance of Pareto(2.5) in {}")),
    ("sharp-edges.md", lambda: _covered("variance", "t(2.2)", "of t(2.2) in {}")),
    ("heavy-tails.md", _unended),
    ("heavy-tails.md", _million),
    ("nonconvex.md", _shorter),
    ("deep-learning.md", _shorter),
    ("nonconvex.md", _averaged),
    ("nonconvex.md", _beside_printed),
    ("nonconvex.md", _auto_beside_srm),
    ("nonconvex.md", _digits_of_mnist),
    ("nonconvex.md", _softmax),
    ("comparison.md", _trees),
    ("comparison.md", _opake),
    ("comparison.md", _ours_of_peers),
    ("deep-learning.md", _secure),
    ("deep-learning.md", _floors),
    ("../README.md", _census),
    ("heavy-tails.md", _shifted),
    ("decisions.md", _certified_fast),
    ("sharp-edges.md", lambda: "far below 0, with 300: " + _aside("R2 of targets")[1]),
    ("evidence.md", _unit_xrays),
    ("evidence.md", _raw_xrays),
    ("evidence.md", _default_on_xrays),
    ("evidence.md", _srm_as_printed),
    ("evidence.md", _lssgd_as_printed),
    ("parties/noise-proof.md", _coordinate),
    ("parties/compared.md", lambda: f"noise inside, 3 members | {_shares('noise-inside')}"),
    ("parties/compared.md", lambda: f"secure aggregation, 3 members | {_shares('secure-aggregation')}"),
]


def missing() -> list[tuple[str, str]]:
    """Return the sentences that a page does not have, with the numbers of today's files."""
    texts = {name: " ".join((DOCS / name).read_text("utf-8").split()) for name in {n for n, _ in SENTENCES}}
    return [(name, said) for name, said in ((n, made()) for n, made in SENTENCES) if said not in texts[name]]


def main() -> int:
    """Write the tables, and tell which sentences are to be mended by hand."""
    for name in BLOCKS:
        path = DOCS / name
        path.write_text(page(name, path.read_text("utf-8")), encoding="utf-8")
    draw_passes()
    for name, said in missing():
        print(f"{name}: should say: {said}")
    return len(missing())


if __name__ == "__main__":
    sys.exit(main())
