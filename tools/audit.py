"""Attack everything that asks a curator, and print a row for each; ``make audit`` runs it.

python tools/audit.py                  all rows
python tools/audit.py --only PCA       rows whose name holds this
python tools/audit.py --shard 1/4      every fourth row; --json FILE adds to what the other shards kept
python tools/audit.py --bars           the claims 1, 2 and 4 of docs/audit.md; --json FILE keeps them and what
                                       is there of attacks that were not made again (--draws 0, --fits 0)
python tools/audit.py --twins 20       breaks the fits of tests/auditing/test_twins.py; --json FILE keeps them
python tools/audit.py --keep FILE      keeps the rows of this file; those that it lacks stay, with their day
python tools/audit.py --page           writes what was kept into docs/audit.md and docs/audit-rows.md
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import inspect
import json
import sys
import time
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import pytest
from tests.auditing import test_twins
from tests.replay import networks, subjects
from tests.replay.neighbours import Data, hostile_data

import sordino
from sordino.auditing.attacks import least
from sordino.errors import SordinoError

HEAD = f"{'subject':58} {'claimed':>8} {'shown':>6} {'power':>5} {'nearest':>8} {'CPU, s':>7}  verdict"


def rows(epsilon: float) -> Iterator[tuple[Any, str]]:
    """Yield every row of the replay tests, at this budget, with its relation."""
    for module in (subjects, networks):
        module.BUDGET = {"epsilon": epsilon, "delta": 1e-5}
    for row in (*subjects.all_rows(), *networks.network_rows()):
        if "memory" in row.must:
            yield from ((row, relation) for relation in row.relations[:1])


def attacked(row: Any, relation: str, **how: Any) -> sordino.auditing.Audit:
    """Audit one row on hostile records."""
    data = hostile_data(row.kind)

    def fit(X: Any, y: Any) -> Any:
        return row.fit(Data(X, y, row.kind, np.ones(len(y))), relation)

    return sordino.audit(fit, (data.X, data.y), rounding=row.rounding, **how)


def line(name: str, found: Any, cpu: float) -> str:
    """Return one row of the table."""
    power = max((a.power for a in found.attacks if a.power is not None), default=float("nan"))
    near = max(found.nearest.values(), default=0.0)
    verdict = (
        "REFUTED: " + "; ".join(a.words for a in found.attacks if a.refuted) if found.refuted else "holds"
    )
    numbers = f"{found.epsilon:8.3g} {found.lower:6.2f} {power:5.2f} {near:8.4f} {cpu:7.1f}"
    return f"{name[:58]:58} {numbers}  {verdict}"


BARS = {
    "gd, squared": lambda e: sordino.LinearRegression(epsilon=e, solver="gd"),
    "gd, logistic": lambda e: sordino.LogisticRegression(epsilon=e, solver="gd"),
    "ight, squared": lambda e: sordino.SparseLinearRegression(epsilon=e, solver="ight", n_nonzero_coefs=2),
    "auto, squared": lambda e: sordino.LinearRegression(epsilon=e),
    "PCA": lambda e: sordino.PCA(2, epsilon=e),
    "mean": lambda e: lambda X: sordino.mean(X, epsilon=e, bounds=(-3.0, 3.0)),
    "network, all records": lambda e: _network(e, 200),
    "network, Poisson batches": lambda e: _network(e, 50),
}


def _network(epsilon: float, batch: int) -> Any:
    from sordino import nn

    plain = {
        "average": 0.0,
        "schedule": "constant",
        "optimizer_options": {"momentum": 0.0},
    }  # all steps weigh as much in the end
    return nn.NeuralClassifier(epsilon=epsilon, classes=[0, 1], hidden=4, max_iter=8, batch_size=batch,
                               trainer_options=plain, random_state=0)  # fmt: skip


def bars(only: str, **how: Any) -> Iterator[tuple[str, Any, float]]:
    """Yield audits of common fits at the claims 1, 2 and 4."""
    X = np.random.default_rng(0).normal(size=(200, 4))
    for name, epsilon in product(BARS, (1.0, 2.0, 4.0)):
        title, begin = f"{name}, epsilon {epsilon:g}", time.process_time()
        if only in title:
            asked = {**how, "fits": round(how["fits"] * (4.0 / epsilon) ** 0.5)}  # less is told by each
            data = X if name == "mean" else None
            yield title, sordino.audit(BARS[name](epsilon), data, **asked), time.process_time() - begin


ROOT = Path(__file__).resolve().parents[1]
PAGE, KEPT = ROOT / "docs" / "audit.md", ROOT / "benchmarks" / "results" / "audit.json"
ROWS, ROWS_KEPT = ROOT / "docs" / "audit-rows.md", ROOT / "benchmarks" / "results" / "audit_rows.json"
START, END = "<!-- made by python tools/audit.py --bars -->", "<!-- end of the table -->"


TWINS_KEPT = ROOT / "benchmarks" / "results" / "audit_twins.json"
TWINS_START, TWINS_END = "<!-- made by python tools/audit.py --twins -->", "<!-- end of the twins -->"


def twins() -> dict[str, Any]:
    """Return the broken fits of the tests: each breaks a fit and asks an audit to notice."""
    tests = {name: one for name, one in vars(test_twins).items() if name.startswith("test_")}
    return {name: one for name, one in tests.items() if not name.startswith("test_honest")}


def caught(twin: Any) -> list[dict[str, Any]]:
    """Break a fit once, and return what the last audit of it found; the others are of honest ones."""
    found: list[Any] = []
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(AssertionError):  # counted, not asserted
        honest = sordino.audit
        patch.setattr(sordino, "audit", lambda *args, **how: found.append(honest(*args, **how)) or found[-1])
        twin(**({"monkeypatch": patch} if "monkeypatch" in inspect.signature(twin).parameters else {}))
    return [{"name": a.name, "power": a.power} for a in found[-1].attacks if a.refuted] + [
        {"name": kind, "power": None} for kind in sorted({leak.kind for leak in found[-1].leaks})
    ]


def twin_rows(repeats: int, only: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Break each fit; yield how often an audit refuted it, by what, and the power it stated.

    A replay is deterministic: what it finds needs no second round.
    """
    for name, twin in ((name, twin) for name, twin in twins().items() if only in name):
        rounds = [caught(twin)]
        if not any(one["name"] == "replay" for one in rounds[0]):
            rounds += [caught(twin) for _ in range(repeats - 1)]
        names = {one["name"] for found in rounds for one in found}
        often = {key: sum(any(one["name"] == key for one in f) for f in rounds) for key in sorted(names)}
        powers = [one["power"] for found in rounds for one in found if one["power"] is not None]
        yield name, {"rounds": len(rounds), "caught": sum(map(bool, rounds)), "by": often,
                     "power": max(powers, default=None)}  # fmt: skip


def twins_page(text: str) -> str:
    """Return the page on audits with the table of the broken fits."""
    rows = ["| broken | caught | by, in so many rounds | power |", "|---|---|---|---|"]
    for name, one in json.loads(TWINS_KEPT.read_text("utf-8")).items():
        by = ", ".join(f"{key} {count}" for key, count in one["by"].items() if key != "replay")
        power = f">= {least(one['caught'], one['rounds'], 0.05):.2f}"  # by the rounds, at 95 % confidence
        power = power if one["power"] is None else f"{one['power']:.2f}"
        power = "certain" if "replay" in one["by"] else power
        words = name.removeprefix("test_").replace("_", " ")
        rows.append(f"| {words} | {one['caught']} of {one['rounds']} | {by} | {power} |")
    before, _, rest = text.partition(TWINS_START)
    return "\n".join([before + TWINS_START, "", *rows, "", TWINS_END]) + rest.partition(TWINS_END)[2]


def page(text: str) -> str:
    """Return the page on audits with the table of the bars that were kept."""
    kept = json.loads(KEPT.read_text("utf-8"))
    rows = [
        "| fit | claimed | white box | share | one run | outputs | power at half the noise | CPU, s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, one in kept.items():
        best: dict[str, float] = {}
        for a in one["attacks"]:
            kind = a["name"] if a["name"] in ("white box", "one run") else "outputs"
            best[kind] = max(best.get(kind, 0.0), a["epsilon"] or 0.0)
        power = max(a["power"] for a in one["attacks"] if a["power"] is not None)
        others = [f"{best[kind]:.2f}" if best.get(kind) else "" for kind in ("one run", "outputs")]
        share = f"{best['white box'] / one['epsilon']:.2f}"
        cells = [name, f"{one['epsilon']:.2f}", f"{best['white box']:.2f}", share, *others, f"{power:.2f}"]
        rows.append(f"| {' | '.join([*cells, format(one['cpu'], '.0f')])} |")
    before, _, rest = text.partition(START)
    return "\n".join([before + START, "", *rows, "", END]) + rest.partition(END)[2]


def rows_page() -> str:
    """Return the page with a row for everything that was attacked."""
    kept = json.loads(ROWS_KEPT.read_text("utf-8"))
    refuted = sum(one["refuted"] for one in kept.values())
    words = (
        "Made by `make audit` with `--json FILE`, then `python tools/audit.py --keep FILE --page`: "
        f"{len(kept)} rows, {refuted} refuted. Claimed and demonstrated epsilon, the power of the best "
        "attack against half the noise, how near the exact answers of the worst neighbours came to a "
        "sensitivity, seconds of CPU for all of it, of which a replay is most, and the day of the row. "
        "Where no neighbour moves an answer there is no verdict and no row. "
        "[How we attack ourselves](audit.md) says how.\n"
    )
    lines = [
        "# Everything that is attacked\n",
        words,
        "| subject | claimed | shown | power | nearest | CPU, s | verdict | made on |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, one in sorted(kept.items()):
        numbers = (f"{one[key]:.2f}" for key in ("claimed", "shown", "power", "nearest", "cpu"))
        words = "**refuted**" if one["refuted"] else "holds"
        lines.append(f"| {name} | {' | '.join(numbers)} | {words} | {one['made']} |")
    return "\n".join(lines) + "\n"


def known_rows() -> set[str]:
    """Return the names of all rows that there are now."""
    return {f"{row.name}, {relation}" for row, relation in rows(2.0)}


def compact(one: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of an audit that the page of all rows shows."""
    return {
        "claimed": one["epsilon"],
        "shown": one["lower"],
        "power": max((a["power"] for a in one["attacks"] if a["power"] is not None), default=0.0),
        "nearest": max(one["nearest"].values(), default=0.0),
        "cpu": one["cpu"],
        "refuted": one["refuted"],
        "made": datetime.date.today().isoformat(),
    }


def main(arguments: list[str] | None = None) -> int:
    """Print the table; the status is 1 where a claim is refuted."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", default="")
    options.add_argument("--shard", default="1/1")
    options.add_argument("--bars", action="store_true")
    options.add_argument("--epsilon", type=float, default=2.0)
    options.add_argument("--seconds", type=float, default=1.0)
    options.add_argument("--draws", type=int, default=4_000)
    options.add_argument("--fits", type=int, default=0)
    options.add_argument("--canaries", type=int, default=0)
    options.add_argument("--json", type=Path)
    options.add_argument("--page", action="store_true", help="write the kept bars into the page on audits")
    options.add_argument("--twins", type=int, metavar="ROUNDS", help="break fits, and count who notices")
    options.add_argument("--keep", type=Path, help="keep the rows of this file for the page of all rows")
    chosen = options.parse_args(arguments)
    if chosen.keep:
        made = {name: compact(one) for name, one in json.loads(chosen.keep.read_text("utf-8")).items()}
        kept = json.loads(ROWS_KEPT.read_text("utf-8"))  # rows of earlier runs stay, with their dates
        kept = {**{name: one for name, one in kept.items() if name in known_rows()}, **made}
        ROWS_KEPT.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    if chosen.page:
        PAGE.write_text(twins_page(page(PAGE.read_text("utf-8"))), "utf-8")
        ROWS.write_text(rows_page(), "utf-8")
    if chosen.keep or chosen.page:
        return 0
    warnings.simplefilter("ignore")
    if chosen.twins:
        kept = json.loads(chosen.json.read_text("utf-8")) if chosen.only and chosen.json else {}
        for name, row in twin_rows(chosen.twins, chosen.only):
            kept[name] = row
            print(f"{name:58} {row['caught']} of {row['rounds']} {row['by']}", flush=True)
        if chosen.json:
            chosen.json.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
        return int(any(row["caught"] < row["rounds"] for row in kept.values()))
    print(HEAD, flush=True)
    found: dict[str, Any] = {}
    how = {name: getattr(chosen, name) for name in ("seconds", "draws", "fits", "canaries")}
    made, bad = bars(chosen.only, **how) if chosen.bars else _all(chosen, how), 0
    for name, one, cpu in made:
        if isinstance(one, str):
            print(f"{name[:58]:58} not audited: {one}", flush=True)
            continue
        print(line(name, one, cpu), flush=True)
        found[name], bad = {**one.to_dict(), "cpu": cpu}, bad + one.refuted
    if chosen.json:
        part = chosen.only or chosen.shard != "1/1"
        kept = json.loads(chosen.json.read_text("utf-8")) if part and chosen.json.exists() else {}
        for name, one in found.items() if chosen.bars else ():
            again = {attack["name"] for attack in one["attacks"]}
            before = kept.get(name, {}).get("attacks", [])
            one["attacks"] = [*one["attacks"], *(a for a in before if a["name"] not in again)]
        chosen.json.write_text(json.dumps({**kept, **found}, indent=1) + "\n", "utf-8")
    print(f"{len(found)} audited, {bad} refuted")
    return int(bad > 0)


def _all(chosen: Any, how: dict[str, Any]) -> Iterator[tuple[str, Any, float]]:
    which, count = map(int, chosen.shard.split("/"))
    named = [one for one in rows(chosen.epsilon) if chosen.only in one[0].name]
    for row, relation in named[which - 1 :: count]:
        begin = time.process_time()
        try:
            one: Any = attacked(row, relation, **how)
        except SordinoError as error:
            one = f"{type(error).__name__}: {error}"
        yield f"{row.name}, {relation}", one, time.process_time() - begin


if __name__ == "__main__":
    raise SystemExit(main())
