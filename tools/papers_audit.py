"""Demonstrate what published noise gives away: a lower bound beside what is claimed and what is certified.

    python tools/papers_audit.py --json benchmarks/results/papers_audit.json    (a minute of CPU)
    python tools/papers_audit.py --page       writes what was kept into docs/audit.md

Transcripts are drawn for a record that adds a whole contribution to every answer, and for one that adds the
opposite (replace-one, which all papers state), with the printed noise, on Poisson batches, at the settings of
docs/papers.md, printed or ours. No algorithm is run. A likelihood
ratio tells them apart; its threshold is chosen on a fifth of the draws. The bound is ln((TPR - delta) / FPR)
at 95 % confidence, without any assumption, so N draws show about ln(N / 5) at most.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from sordino.accounting.trees import flatten
from sordino.auditing.attacks import Rates, least
from sordino.kernel.noise import NoiseSource, fresh_noise
from sordino.literature import formulas

ROOT = Path(__file__).resolve().parents[1]
PAGE, KEPT = ROOT / "docs" / "audit.md", ROOT / "benchmarks" / "results" / "papers_audit.json"
START, END = "<!-- made by python tools/papers_audit.py -->", "<!-- end of the papers' audit -->"
ERROR, WORK = 0.05, 1e7  # of a bound; draws of noise on each side of a row
PLACES = (0.15, 0.3, 0.5, 0.7, 0.85, 0.95, 0.99, 0.999)


def verdicts() -> Iterator[tuple[Any, Any]]:
    """Yield the rows of docs/papers.md with the event of each; None where the row has none."""
    sys.path.insert(0, str(ROOT / "docs" / "figures"))
    module: Any = importlib.import_module("verdicts")
    events: dict[int, Any] = {}
    honest = module._both

    def remember(*facts: Any) -> Any:
        made = honest(*facts)
        events[id(made)] = facts[4]
        return made

    def plan(*facts: Any, **more: Any) -> Any:
        made, promises = honest_pca(*facts, **more), asked
        events[id(made)] = promises[-1].plan.event()  # of the second relation, which the papers state
        return made

    def promise(*facts: Any) -> Any:
        asked.append(honest_promise(*facts))
        return asked[-1]

    asked: list[Any] = []
    honest_pca, honest_promise = module._pca, module.Promise.made
    module._both, module._pca, module.Promise = remember, plan, SimpleNamespace(made=promise)
    names = ("sparse_rows", "pca_rows", "nonconvex_rows", "party_rows", "heavy_rows")
    kept = [row for name in names for row in getattr(module, name)()]
    yield from ((row, events.get(id(row))) for row in kept)


def ratios(event: Any, noise: NoiseSource) -> tuple[Any, Any]:
    """Draw transcripts of both neighbours; return their log likelihood ratios."""
    leaves = [(leaf.event, leaf.count) for leaf in flatten(event)]
    steps = sum(count for one, count in leaves if hasattr(one, "sampling_probability"))
    draws = int(min(2e6, WORK / max(steps, 1)))
    sides = []
    for sign in (1.0, -1.0):
        total = np.zeros(draws)
        for one, count in leaves:
            if hasattr(one, "sampling_probability"):
                total += _sampled(one, count, sign, draws, noise)
            else:  # T answers are as good as their mean
                mu = 2 * math.sqrt(count) / one.noise_multiplier
                total += mu * (noise.normal(draws) + sign * mu / 2)
        sides.append(total)
    return sides[0], sides[1]


def _sampled(one: Any, count: int, sign: float, draws: int, noise: NoiseSource) -> Any:
    """Return the summed log ratios of answers on Poisson batches."""
    rate, z, total = one.sampling_probability, one.event.noise_multiplier, np.zeros(draws)
    block = max(1, 200_000 // draws)
    for start in range(0, count, block):
        shape = (min(block, count - start), draws)
        x = z * noise.normal(shape) + sign * (noise.random(shape) < rate)
        logs = [np.log1p(rate * np.expm1((2 * x * s - 1) / (2 * z * z))) for s in (1.0, -1.0)]
        total += np.sum(logs[0] - logs[1], axis=0)
    return total


def shown(ours: Any, theirs: Any, delta: float) -> float:
    """Return the epsilon that the scores prove, at the best of several thresholds on the first fifth."""
    first = len(ours) // 5
    places = np.quantile(np.concatenate([ours[:first], theirs[:first]]), PLACES)
    tried = [Rates.at(ours[:first], theirs[:first], place, ERROR).epsilon(delta) for place in places]
    best = places[int(np.argmax(tried))]
    return Rates.at(ours[first:], theirs[first:], best, ERROR).epsilon(delta)


def apart(
    name: str, noise: NoiseSource, claimed: float = 0.8, delta: float = 0.0
) -> tuple[float, str] | None:
    """Return what is shown of the rows that are no Gaussian transcripts."""
    count = 200_000
    if name == "Frank-Wolfe, Laplace":  # a vertex and its opposite, whose scores a record turns at each step
        wins, scale = [], formulas.frank_wolfe(claimed, delta, steps=50)
        for side in (1.0, -1.0):
            drawn = (scale * (noise.laplace(count) - noise.laplace(count)) > -2.0 * side for _ in range(50))
            wins.append(np.sum([one.astype(np.int8) for one in drawn], axis=0) - 25.0)
        return shown(wins[0], wins[1], delta), ""
    if name == "Peeling":  # the ten values alone, each of which a record moves by two contributions
        shift = 2.0 / formulas.peeling(claimed, delta, sparsity=10)
        x = [noise.laplace((count, 10)) + side * shift / 2 for side in (1.0, -1.0)]
        scores = [np.sum(np.abs(one + shift / 2) - np.abs(one - shift / 2), axis=1) for one in x]
        return shown(scores[0], scores[1], delta), ""
    if name == "Local Obj P":  # less than nothing is left of epsilon for the tilt, so that it has no density
        ratio = 0.25 / (50 * 1e-3)
        left = claimed - math.log(1 + 2 * ratio + ratio**2)
        return None if left > 0 else (-math.inf, f"no attack: its noise has no density at {left:.2f}")
    if name == "MPC Out P":  # the shift that the L2 sensitivity allows, spread over 122 coordinates
        shift = 0.5 / math.sqrt(122)
        x = [noise.laplace((count, 122)) + side * shift / 2 for side in (1.0, -1.0)]
        scores = [np.sum(np.abs(one + shift / 2) - np.abs(one - shift / 2), axis=1) for one in x]
        return shown(scores[0], scores[1], 0.0), ""
    if name == "Wishart":  # the event that one neighbour never has
        seen = int(np.sum(2 * noise.exponential(count) * 3 / 0.2 < 1))
        return math.inf, f"delta >= {least(seen, count, ERROR):.4f} at every epsilon"
    if name == "DPSL-KT":  # teachers 1.179 apart; the noise is for the .0141 of the lemma at n = 1,001
        mu = 1.179 / (0.0141 * math.sqrt(2 * math.log(1.25e5)) / 0.8)
        return shown(mu * noise.normal(count) + mu * mu / 2, mu * noise.normal(count) - mu * mu / 2, 1e-5), ""
    return None


def rows() -> Iterator[dict[str, Any]]:
    """Yield claimed, certified and demonstrated for each row."""
    noise = fresh_noise()
    for row, event in verdicts():
        one = None if event is None else (shown(*ratios(event, noise), row.delta), "")
        found = one or apart(row.algorithm, noise, row.epsilon, row.delta)
        yield {
            "algorithm": row.algorithm, "setting": row.setting, "claimed": row.epsilon, "delta": row.delta,
            "certified": str(row.replace), "shown": None if found is None else str(found[0]),
            "words": "" if found is None else found[1],
        }  # fmt: skip
    found = apart("DPSL-KT", noise)
    yield {"algorithm": "DPSL-KT", "setting": "the printed teacher, n = 1,001", "claimed": 0.8, "delta": 1e-5,
           "certified": "inf", "shown": str(found[0] if found else 0.0), "words": ""}  # fmt: skip


def line(one: dict[str, Any]) -> str:
    """Return a row of the table; more than claimed is bold."""
    known, proven = one["shown"], float(one["certified"])
    text = "not attacked" if known is None else one["words"] or f"{float(known):.2f}"
    text = f"**{text}**" if known is not None and float(known) > one["claimed"] else text
    upper = "no bound" if math.isinf(proven) else f"{proven:.3g}"
    return f"| {one['algorithm']} | {one['setting']} | {one['claimed']:g} | {upper} | {text} |"


def page(text: str) -> str:
    """Return the page on audits with the table that was kept."""
    head = ["| algorithm | setting | claimed | certified | demonstrated, at least |", "|---|---|---|---|---|"]
    made = [START, "", *head, *map(line, json.loads(KEPT.read_text("utf-8"))), "", END]
    before, _, rest = text.partition(START)
    return before + "\n".join(made) + rest.partition(END)[2]


def main(arguments: list[str] | None = None) -> None:
    """Draw and print, or write the page."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", type=Path)
    options.add_argument("--page", action="store_true")
    chosen = options.parse_args(arguments)
    if chosen.page:
        PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
        return
    found = []
    for one in rows():
        print(line(one), flush=True)
        found.append(one)
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
