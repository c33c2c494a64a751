"""Tests that others wrote, in environments of their own, against our curves, samplers and fits.

    python -m benchmarks.outside --make       makes the environments under build/outside (needs PyPI)
    python -m benchmarks.outside --json benchmarks/results/outside.json
    python -m benchmarks.outside --page       writes what was kept into docs/audit.md

Each row has what they find and the bound that has to hold. A tool whose environment is missing is left out
and said to be. dp-recorder and Delta-Siege are on no package index: the five faulty mechanisms of the one are
`tests/auditing/test_twins.py`, the attack of the other on the bits of answers is written here from its paper.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import venv
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import sordino
from sordino.accounting.trade_off import gaussian_trade_off, trade_off
from sordino.auditing.attacks import advantage, discriminant
from sordino.auditing.neighbours import one_each
from sordino.auditing.tape import Absent, play
from sordino.kernel import Gaussian, NoiseSource, Relation
from sordino.kernel.events import gaussian_event, poisson_event, repeat_event
from sordino.kernel.mechanism import Rounding

ROOT = Path(__file__).resolve().parents[1]
PAGE, KEPT = ROOT / "docs" / "audit.md", ROOT / "benchmarks" / "results" / "outside.json"
START, END = "<!-- made by python -m benchmarks.outside -->", "<!-- end of the outside tests -->"
TOOLS = {
    "riskcal": ["riskcal==1.5.1", "gdpnum==0.1.2"],
    "jax": ["jax-privacy==2.0.0"],
    "sacroml": ["sacroml==2.0.1"],
    "peers": ["diffprivlib==0.6.6", "scikit-learn==1.6.1"],
}

RISKCAL = """
from riskcal.calibration.dpsgd import get_advantage_for_dpsgd, get_beta_for_dpsgd
from gdpnum import PLDConverter
from gdpnum.dpsgd import get_mu_and_regret_for_dpsgd
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
found = []
for noise, rate, steps in asked:
    pld = from_gaussian_mechanism(noise, sampling_prob=rate, value_discretization_interval=1e-4)
    beta = float(PLDConverter(pld.self_compose(steps)).get_beta(.01))
    mu = get_mu_and_regret_for_dpsgd(noise, rate, steps)[0]
    found.append([get_advantage_for_dpsgd(noise, rate, steps),
                  get_beta_for_dpsgd(noise, rate, steps, alpha=.01), beta, mu])
print(json.dumps(found))
"""
JAX = """
from jax_privacy.auditing import CanaryScoreAuditor
found = []
for inside, outside in asked:
    one = CanaryScoreAuditor(inside, outside)
    found.append([one.epsilon_one_run(.05, 1e-5), one.epsilon_one_run_fdp(.05, 1e-5), one.attack_auroc()])
print(json.dumps(found))
"""
SACROML = """
import logging
import numpy as np
from sacroml.attacks.worst_case_attack import WorstCaseAttack
found = []
for inside, outside in asked:
    one = WorstCaseAttack(write_report=False, n_reps=10)
    one.attack_from_preds(np.array(inside), np.array(outside))
    found.append(float(np.mean([m["AUC"] for m in one.attack_metrics])))
print(json.dumps(found))
"""
PEERS = """
import warnings
import numpy as np
from diffprivlib import models, tools
from diffprivlib.utils import PrivacyLeakWarning
X, fits = np.random.default_rng(0).normal(size=(100, 3)), asked
X[0] = 50.0
y = (np.arange(100) % 2)
subjects = {
    "mean, defaults": lambda X, y: [tools.mean(X[:, 0], epsilon=1.0)],
    "mean, bounds declared": lambda X, y: [tools.mean(X[:, 0], epsilon=1.0, bounds=(-3, 3))],
    "StandardScaler, defaults": lambda X, y: models.StandardScaler(epsilon=1.0).fit(X).mean_.tolist(),
    "LogisticRegression, defaults":
        lambda X, y: models.LogisticRegression(epsilon=1.0).fit(X, y).coef_.ravel().tolist(),
    "LogisticRegression, norm declared":
        lambda X, y: models.LogisticRegression(epsilon=1.0, data_norm=3.0).fit(X, y).coef_.ravel().tolist(),
}
other = X.copy()
other[0] = 0.0
found = {}
for name, fit in subjects.items():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        sides = [[fit(rows, y) for _ in range(fits)] for rows in (X, other)]
    found[name] = sides, any(issubclass(one.category, PrivacyLeakWarning) for one in said)
print(json.dumps(found))
"""


def ask(folder: Path, tool: str, program: str, asked: Any) -> Any:
    """Run a program of theirs in its environment; None without one."""
    python = folder / tool / "bin" / "python"
    if not python.exists():
        return None
    text = f"import json, sys\nasked = json.load(sys.stdin)\n{program}"
    done = subprocess.run([python, "-c", text], input=json.dumps(asked), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{tool}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


Row = dict[str, Any]


def row(tool: str, what: str, theirs: float, bound: float, holds: bool) -> Row:
    """Return a row of the table."""
    return {"tool": tool, "what": what, "theirs": theirs, "bound": bound, "holds": bool(holds)}


def curves(folder: Path) -> list[Row] | None:
    """Advantage and false negatives of sampled Gaussian plans, beside our trade-off curve.

    gdpnum's mu is that of the best Gaussian curve below the plan's: its advantage may not be smaller.
    """
    asked = [(4.0, 1.0, 1), (1.0, 0.01, 1000), (1.5, 0.05, 200), (2.0, 1.0, 10)]
    found = ask(folder, "riskcal", RISKCAL, asked)
    rows = []
    for (noise, rate, steps), (theirs, beta, same, mu) in zip(asked, found or [], strict=False):
        one = gaussian_event(noise, Relation.ADD_REMOVE)
        event = repeat_event(one if rate == 1.0 else poisson_event(rate, one), steps)
        curve = trade_off(event, 1e-5, Relation.ADD_REMOVE)
        name = f"noise {noise:g}, rate {rate:g}, {steps} steps"
        rows.append(row("riskcal", f"advantage, {name}", theirs, curve.advantage,
                        abs(theirs / curve.advantage - 1) < 2e-3))  # fmt: skip
        missed = 1 - curve.true_positive_rate(0.01)
        rows.append(row("riskcal", f"missed at 1 %, {name}", beta, missed, abs(beta - missed) < 2e-4))
        rows.append(row("gdpnum", f"missed at 1 %, {name}", same, missed, abs(same - missed) < 2e-4))
        most = gaussian_trade_off(mu).advantage
        rows.append(row("gdpnum", f"advantage of its mu, {name}", most, curve.advantage,
                        most > curve.advantage * (1 - 2e-3)))  # fmt: skip
    return rows if found else None


def canaries(folder: Path) -> list[Row] | None:
    """The scores of 1,000 canaries of one fit, judged by jax-privacy; and of a fit without noise."""
    model, count, scores = sordino.LinearRegression(epsilon=4.0, solver="gd"), 1000, []
    X, y = one_each(model, count).parts
    away = np.random.default_rng(1).random(count) < 0.5
    for noisy in (True, False):
        honest = Gaussian.privatise
        try:
            if not noisy:
                Gaussian.privatise = lambda self, value, *rest: value  # type: ignore[method-assign]
            made = play(lambda: model.fit(X, y), None, Absent(1, away.astype(int)), None).made
        finally:
            Gaussian.privatise = honest  # type: ignore[method-assign]
        beliefs = made.predict(X) * np.sign(y)
        scores.append((beliefs[~away].tolist(), beliefs[away].tolist()))
    found = ask(folder, "jax", JAX, scores)
    if found is None:
        return None
    (plain, shaped, area), (broken, shaped_broken, _) = found
    return [
        row("jax-privacy", "one run of `gd`, epsilon 4 (2305.08846)", plain, 4.0, plain <= 4.0),
        row("jax-privacy", "the same by f-DP (2410.22235)", shaped, 4.0, shaped <= 4.0),
        row("jax-privacy", "area under the curve of its scores", area, 0.743, area <= 0.78),
        row("jax-privacy", "a twin without noise has to exceed 4", max(broken, shaped_broken), 4.0,
            max(broken, shaped_broken) > 4.0),
    ]  # fmt: skip


def membership(folder: Path) -> list[Row] | None:
    """The worst case attack of sacroml on 300 records: scikit-learn's model and ours."""
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    X = np.hstack([X, np.random.default_rng(0).normal(size=(len(X), 60))])  # room to learn by heart
    (inside, outside), labels = (X[:280], X[280:560]), (y[:280], y[280:560])
    models = {
        "scikit-learn": LogisticRegression(C=1e4, max_iter=5000),
        "Sordino, epsilon 8": sordino.LogisticRegression(8.0, data_norm=8.0, classes=[0, 1]),
        "Sordino, epsilon 1": sordino.LogisticRegression(1.0, data_norm=8.0, classes=[0, 1]),
    }
    fitted = {name: model.fit(inside, labels[0]) for name, model in models.items()}

    def told(model: Any, rows: Any, truth: Any) -> list[list[float]]:  # what it says of the true label first
        chances = model.predict_proba(rows)
        return [[one[label], one[1 - label]] for one, label in zip(chances, truth)]

    asked = [(told(m, inside, labels[0]), told(m, outside, labels[1])) for m in fitted.values()]
    found = ask(folder, "sacroml", SACROML, asked)
    if found is None:
        return None
    bounds = [1.0, *(0.5 + fitted[n].privacy_.trade_off.advantage / 2 + 0.05 for n in list(models)[1:])]
    return [row("sacroml", f"AUC, worst case attack, {n}", *pair, pair[0] <= pair[1])
            for n, pair in zip(models, zip(found, bounds, strict=True), strict=True)]  # fmt: skip


def siege(folder: Path, draws: int = 40_000) -> list[Row]:
    """A classifier on the bits of answers around 0 and around 1, as Delta-Siege has it (CCS 2023)."""
    mechanism, noise = Gaussian(4.0), NoiseSource.from_os()
    claim, rows = gaussian_trade_off(1 / 4.0).advantage, []

    def plain(value: float) -> Any:
        return mechanism.privatise(np.full(draws, value), 1.0, noise)

    def exact(value: float) -> Any:
        return mechanism.privatise_exactly(np.full(draws, value), 1.0, Rounding(), noise)

    for name, draw, must in (("plain", plain, True), ("exact", exact, False)):
        bits = [_bits(draw(value)) for value in (1.0, 0.0)]
        half = draws // 2
        learn = np.concatenate([one[:half] for one in bits])
        tree = DecisionTreeClassifier(max_depth=12, min_samples_leaf=50, random_state=0)
        tree.fit(learn, np.repeat([1, 0], half))
        ours, theirs = (tree.predict_proba(one[half:])[:, 1] - 0.5 for one in bits)
        found = advantage(ours, theirs, 1e-5)
        rows.append(
            row("Delta-Siege", f"advantage from bits, {name} Gaussian", found, claim, (found > claim) == must)
        )
    return rows


def _bits(values: Any) -> Any:
    """Return the bits of doubles, and their values."""
    whole = np.ascontiguousarray(values, dtype=float).view(np.uint64)
    bits = (whole[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    zeros = np.argmax(bits[:, :53], axis=1)  # zeros at the end: how coarse the grid is that it lies on
    return np.column_stack([bits, zeros, np.asarray(values, dtype=float)])


def peers(folder: Path, fits: int = 600) -> list[Row] | None:
    """Defaults of diffprivlib at epsilon 1: one record far out, or zero; guessed from the output.

    A fit that says itself that it leaks may be told apart more often than it claims; another may not.
    """
    found = ask(folder, "peers", PEERS, fits)
    if found is None:
        return None
    rows, claim = [], float(np.tanh(0.5))  # (1, 0)-DP
    for name, (sides, warns) in found.items():
        outputs, third = [np.array(side) for side in sides], fits // 3
        score = discriminant(*(side[:third] for side in outputs))
        gain = advantage(*(score(side[third:]) for side in outputs), 1e-5)
        words = f"advantage, {name}{', which warns of a leak' if warns else ''}"
        rows.append(row("diffprivlib", words, gain, claim, gain <= claim or warns))
    return rows


CHECKS: dict[str, Callable[[Path], list[Row] | None]] = {
    "riskcal": curves, "jax": canaries, "sacroml": membership, "siege": siege, "peers": peers,
}  # fmt: skip


def page(text: str) -> str:
    """Return the page on audits with the table that was kept."""
    kept = json.loads(KEPT.read_text("utf-8"))
    lines = ["| tool | what | theirs | ours, or the bound | |", "|---|---|---|---|---|"]
    for one in kept["rows"]:
        said = "above" if one["theirs"] > one["bound"] else "within"
        said = "agrees" if one["tool"] in ("riskcal", "gdpnum") and "mu" not in one["what"] else said
        said = said if one["holds"] else f"**{said}**"
        lines.append(f"| {one['tool']} | {one['what']} | {one['theirs']:.4g} | {one['bound']:.4g} | {said} |")
    versions = ", ".join(name.replace("==", " ") for names in TOOLS.values() for name in names)
    made = [START, "", *lines, "", f"Run on {kept['date']} with {versions}.", "", END]
    before, _, rest = text.partition(START)
    return before + "\n".join(made) + rest.partition(END)[2]


def main(arguments: list[str] | None = None) -> int:
    """Make environments, run the checks or write the page; the status is 1 where a check fails."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--envs", type=Path, default=ROOT / "build" / "outside")
    options.add_argument("--make", action="store_true")
    options.add_argument("--page", action="store_true")
    options.add_argument("--only", nargs="*", default=list(CHECKS))
    options.add_argument("--json", type=Path)
    chosen = options.parse_args(arguments)
    if chosen.page:
        PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
        return 0
    for name, packages in TOOLS.items() if chosen.make else ():
        venv.create(chosen.envs / name, with_pip=True)
        subprocess.run([chosen.envs / name / "bin" / "pip", "install", "-q", *packages], check=True)
    warnings.simplefilter("ignore")
    rows: list[Row] = []
    for name in chosen.only:
        found = CHECKS[name](chosen.envs)
        if found is None:
            print(f"{name}: no environment; python -m benchmarks.outside --make", flush=True)
        for one in found or []:
            print(f"{one['tool']:12} {one['what']:52} {one['theirs']:9.4g} {one['bound']:9.4g} "
                  f"{'holds' if one['holds'] else 'FAILS'}", flush=True)  # fmt: skip
        rows += found or []
    if chosen.json:
        before = json.loads(chosen.json.read_text("utf-8"))["rows"] if chosen.json.exists() else []
        again = {one["tool"] for one in rows}
        kept = {
            "date": datetime.date.today().isoformat(),
            "rows": [*(one for one in before if one["tool"] not in again), *rows],
        }
        chosen.json.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    return int(not all(one["holds"] for one in rows))


if __name__ == "__main__":
    sys.exit(main())
