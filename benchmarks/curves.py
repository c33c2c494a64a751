"""Curves and pairs: models of tables with defaults, beside lines, curves, all pairs and boosted trees.

Commands::

    python -m benchmarks.curves                              # the table of docs/tables.md, epsilon 1
    python -m benchmarks.curves --epsilon .3 1 4 --rows 1000 0 --only SLID OFP
    python -m benchmarks.curves --made --first 100           # made designs, by seeds from this one on
    python -m benchmarks.curves --stays --rows 20000         # stays in hospital fill little of their bounds
    python -m benchmarks.curves --speed                      # CPU seconds, 50,000 rows x 12 columns
    python -m benchmarks.curves --neural                     # networks with defaults beside lines and ours
    python -m benchmarks.curves --neural --triple            # three columns of a made table act together

Seven tenths of each table are learned from and the others judge; splits are seeded by the repeat, noise is
fresh. Of at most 1,000 records there are five times as many fits (but of Adult, whose pairs are 5,000
columns): the best of three means of five has a regret of its own. Adult has a test part of its own. R2 for
numbers, area under the curve for labels; boosted trees are scikit-learn's HistGradientBoosting without
privacy. Constants of the rule were chosen on the first six
tables, Adult (weight of curves, ridge of labels) and made designs (weights below S = 450); InstEval and Vocab
were in view too. --write puts each cell into benchmarks/results/curves.json as soon as it is known, in place
of the kept one of the same table, rows and epsilon.
"""

from __future__ import annotations

import argparse
import json
import operator
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import OrdinalEncoder

from benchmarks import tables
from benchmarks.machine import describe
from sordino import LinearRegression, LogisticRegression, Schema
from sordino.tables import Category, Number, Ordinal, Target

OUT = Path(__file__).parent / "results" / "curves.json"
YES = ("no", "yes")
KINDS = {
    "lines": {"knots": 1, "pairs": False},
    "curves": {"pairs": False},
    "all pairs": {"pairs": True},
    "ours": {},
}


def numbers(**bounds: tuple[float, float]) -> list[Number]:
    """Return numbers with these bounds."""
    return [Number(name, *found) for name, found in bounds.items()]


def levels(**lists: object) -> list[Category]:
    """Return categories with these levels."""
    return [Category(name, found) for name, found in lists.items()]


# Bounds and levels by what the columns mean, not by the data.
CHOSEN = {
    "Computers": [
        *numbers(speed=(0, 150), hd=(0, 2500), ram=(0, 64), screen=(10, 20)),
        *levels(cd=YES, multi=YES, premium=YES),
        *numbers(ads=(0, 400), trend=(0, 40)),
        Target("price", "number", low=500, high=5500),
    ],
    "SLID": [
        *numbers(education=(0, 20), age=(15, 95)),
        *levels(sex=["Female", "Male"], language=["English", "French", "Other"]),
        Target("wages", "number", low=2, high=50),
    ],
    "BudgetFood": [
        *numbers(totexp=(0, 5e6), age=(15, 100), size=(1, 15)),
        Ordinal("town", ["1", "2", "3", "4", "5"]),
        *levels(sex=["man", "woman"]),
        Target("wfood", "number", low=0, high=1),
    ],
    "OFP": [
        *numbers(emr=(0, 12), hosp=(0, 8), numchron=(0, 8), age=(6.5, 11), school=(0, 18), faminc=(-1, 40)),
        *levels(adldiff=["0", "1"], black=YES, sex=["female", "male"], maried=YES, employed=YES, privins=YES),
        *levels(
            medicaid=YES, region=["noreast", "midwest", "west", "other"], hlth=["excellent", "other", "poor"]
        ),
        Target("ofp", "number", low=0, high=60),
    ],
    "VietNamI": [
        *numbers(
            lnhhexp=(0, 6), age=(0, 4.7), educ=(0, 12), illness=(0, 9), illdays=(0, 30), actdays=(0, 30)
        ),
        *levels(sex=["female", "male"], married=["0", "1"], injury=["0", "1"], insurance=["0", "1"]),
        Target("pharvis", levels=["0", "1"]),
    ],
    "flchain": [
        *[Number(name, *found) for name, found in (("age", (50, 105)), ("sample.yr", (1995, 2003)))],
        *numbers(kappa=(0, 20), creatinine=(0, 5)),
        Number("lambda", 0, 30),
        Ordinal("flc.grp", [str(group) for group in range(1, 11)]),
        *levels(sex=["F", "M"], mgus=["0", "1"]),
        Target("death", levels=["0", "1"]),
    ],
}
JUDGES = {
    "Vocab": [
        *numbers(year=(1970, 2020), education=(0, 20)),
        *levels(sex=["Female", "Male"]),
        Target("vocabulary", "number", low=0, high=10),
    ],
    "InstEval": [
        Ordinal("studage", ["2", "4", "6", "8"]),
        Ordinal("lectage", ["1", "2", "3", "4", "5", "6"]),
        *levels(service=["0", "1"], dept=[str(department) for department in range(1, 16)]),
        Target("y", "number", low=1, high=5),
    ],
}


def read(name: str) -> tuple[pd.DataFrame, Schema]:
    """Return a table whose targets are known, and its schema."""
    if name == "Adult":
        return pd.concat([tables.adult("data"), tables.adult("test")], ignore_index=True), tables.declared()
    schema = Schema({**CHOSEN, **JUDGES}[name])
    path = Path(os.environ["SORDINO_DATA"]) / "tables" / f"{name}.csv.gz"
    table = pd.read_csv(path, index_col=0)[[column.name for column in schema.columns]]
    table = table[table[schema.target.name].notna()].reset_index(drop=True)
    for at_most_one in {"VietNamI": ["pharvis"], "OFP": ["adldiff"]}.get(name, []):
        table[at_most_one] = (table[at_most_one] > 0).astype(int)
    return table, schema


def made(seed: int, rows: int = 12_000) -> tuple[pd.DataFrame, Schema]:
    """Return a table of numbers and levels whose target has lines, curves and products, drawn by a seed."""
    public = np.random.default_rng(seed)
    d, k = int(public.integers(3, 9)), int(public.integers(1, 4))
    skew = public.uniform(0.3, 3.0, d)
    U = public.uniform(size=(rows, d)) ** skew
    codes = [public.integers(0, public.integers(2, 7), rows) for _ in range(k)]
    score = U @ public.normal(size=d) + sum(public.normal(size=7)[code] for code in codes) / 2
    for column in range(d):
        score += public.uniform(0, 1) * np.sin(public.uniform(1, 8) * U[:, column] + public.uniform(0, 6))
    for _ in range(int(public.integers(0, 4))):
        a, b = public.choice(d, 2, replace=False)
        score += public.normal() * 4 * (U[:, a] - 0.5) * (U[:, b] - 0.5)
    score += public.normal() * U[:, 0] * (codes[0] == 0) * 2
    noisy = score + public.uniform(0.3, 1.5) * score.std() * public.normal(size=rows)
    table = pd.DataFrame(U, columns=[f"u{i}" for i in range(d)])
    columns = numbers(**dict.fromkeys(table.columns, (0.0, 1.0)))
    for i, code in enumerate(codes):
        table[f"c{i}"] = code.astype(str)
        columns += levels(**{f"c{i}": sorted(set(code.astype(str)))})
    if seed % 2:
        table["y"] = (noisy > np.median(noisy)).astype(int)
        return table, Schema([*columns, Target("y", levels=[0, 1])])
    middle, half = float(np.median(noisy)), 4 * float(noisy.std())
    table["y"] = noisy
    return table, Schema([*columns, Target("y", "number", low=middle - half, high=middle + half)])


def stays(rows: int = 40_000) -> tuple[pd.DataFrame, Schema]:
    """Return a made table of the costs of stays: most last a week, and a year is declared."""
    public = np.random.default_rng(0)
    days = np.minimum(public.exponential(4, rows) * np.exp(0.7 * public.normal(size=rows)), 365.0)
    table = pd.DataFrame({"age": public.uniform(18, 95, rows), "days": days})
    table["grade"], table["sex"] = public.integers(0, 4, rows), public.choice(["f", "m"], rows)
    cost = 200 + 60 * days + 2 * table["age"] + 30 * table["grade"] + 150 * public.normal(size=rows)
    columns = [*numbers(age=(18, 95), days=(0, 365), grade=(0, 3)), *levels(sex=["f", "m"])]
    return table.assign(cost=cost), Schema([*columns, Target("cost", "number", low=0, high=50_000)])


def parts(name: str, table: pd.DataFrame, repeat: int, rows: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the records to learn from, at most so many, and those that judge."""
    public = np.random.default_rng(repeat)
    order = np.arange(len(table)) if name == "Adult" else public.permutation(len(table))
    cut = 32_561 if name == "Adult" else int(0.7 * len(table))
    chosen = order[:cut] if not rows else public.permutation(order[:cut])[:rows]
    return table.iloc[chosen].reset_index(drop=True), table.iloc[order[cut:]].reset_index(drop=True)


def score(model: object, test: pd.DataFrame, schema: Schema) -> tuple[float, float]:
    """Return R2, or the area under the curve and the accuracy."""
    features, y, _ = schema.split(test, bounded=False)
    if schema.target.kind == "number":
        wrong = np.square(y - model.predict(features)).mean()
        return 1.0 - float(wrong / y.var()), float("nan")
    shares = model.predict_proba(features)[:, 1]
    return float(roc_auc_score(y == model.classes_[1], shares)), float(model.score(features, y))


class Boosted:
    """Boosted trees without privacy on the same columns."""

    def __init__(self, schema: Schema) -> None:
        self.texts = [c.name for c in schema.features if not isinstance(c, Number)]
        self.codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
        kind = (
            HistGradientBoostingRegressor
            if schema.target.kind == "number"
            else HistGradientBoostingClassifier
        )
        self.model, self.schema = kind(random_state=0), schema

    def rows(self, features: pd.DataFrame) -> pd.DataFrame:
        out = features.copy()
        out[self.texts] = (
            self.codes.transform(features[self.texts].astype(str)) if self.texts else out[self.texts]
        )
        return out

    def fit(self, table: pd.DataFrame) -> Boosted:
        features, y, _ = self.schema.split(table, bounded=False)
        if self.texts:
            self.codes.fit(features[self.texts].astype(str))
        self.model.fit(self.rows(features), y)
        self.classes_ = getattr(self.model, "classes_", None)
        return self

    def predict(self, features: pd.DataFrame) -> np.ndarray:
        return self.model.predict(self.rows(features))

    def predict_proba(self, features: pd.DataFrame) -> np.ndarray:
        return self.model.predict_proba(self.rows(features))

    def score(self, features: pd.DataFrame, y: np.ndarray) -> float:
        return self.model.score(self.rows(features), y)


def triple(rows: int = 80_000) -> tuple[pd.DataFrame, Schema]:
    """Return a made table of five numbers, three of which act only together."""
    public = np.random.default_rng(3)
    U = public.uniform(size=(rows, 5))
    s = 2 * U - 1
    table = pd.DataFrame(U, columns=[f"u{i}" for i in range(5)])
    score = U[:, 0] + np.sin(3 * U[:, 1]) + 2 * s[:, 2] * s[:, 3] + 3 * np.sign(s[:, 0] * s[:, 1]) * s[:, 4]
    schema = Schema(
        [*numbers(**dict.fromkeys(table.columns, (0.0, 1.0))), Target("y", "number", low=-6, high=8)]
    )
    return table.assign(y=score + 0.3 * public.normal(size=rows)), schema


def neural(name: str, found: tuple[pd.DataFrame, Schema], epsilon: float, rows: int, repeats: int) -> None:
    """Print the scores of straight lines, our linear model and a network, all with defaults."""
    from sordino.nn import NeuralClassifier, NeuralRegressor

    table, schema = found
    number = schema.target.kind == "number"
    linear, network = (
        (LinearRegression, NeuralRegressor) if number else (LogisticRegression, NeuralClassifier)
    )
    scores = []
    for repeat in range(repeats):
        train, test = parts(name, table, repeat, rows)
        models = [linear(epsilon, 1e-6, schema=schema, **KINDS[kind]) for kind in ("lines", "ours")]
        models.append(network(epsilon, 1e-6, schema=schema, random_state=repeat))
        scores.append([score(model.fit(train), test, schema)[0] for model in models])
    lines, ours, net = np.mean(scores, axis=0)
    gap = np.std(np.subtract(*np.transpose(scores)[1:]), ddof=repeats > 1) / repeats**0.5
    print(f"{name}, {len(train)} rows, epsilon {epsilon:g}: lines {lines:.3f}, ours {ours:.3f}, network "
          f"{net:.3f}, below ours by {ours - net:.3f} +- {gap:.3f}", flush=True)  # fmt: skip


def compare(name: str, found: tuple[pd.DataFrame, Schema], epsilon: float, rows: int, repeats: int) -> dict:
    """Return mean and standard error of each kind of model on one table."""
    table, schema = found
    private = LinearRegression if schema.target.kind == "number" else LogisticRegression
    out: dict = {"table": name, "epsilon": epsilon}
    repeats *= 5 if 0 < rows <= 1000 and name != "Adult" else 1
    for kind, chosen in {**KINDS, "boosted, not private": None}.items():
        scores = []
        for repeat in range(1 if chosen is None else repeats):
            train, test = parts(name, table, repeat, rows)
            model = Boosted(schema) if chosen is None else private(epsilon, 1e-6, schema=schema, **chosen)
            if kind == "all pairs" and len(schema.features) > 12 and len(train) > 20_000:
                continue  # Adult: 5,000 columns
            start = time.process_time()
            scores.append((*score(model.fit(train), test, schema), time.process_time() - start))
        if not scores:
            continue
        mean, error = (
            np.mean(scores, axis=0),
            np.std(scores, axis=0, ddof=len(scores) > 1) / len(scores) ** 0.5,
        )
        out["rows"] = len(train)
        out[kind] = {"score": mean[0], "error": error[0], "accuracy": mean[1], "cpu": mean[2]}
        if kind == "ours":
            basis = model.encoder_.basis
            out["basis"] = f"{basis.knots} knots, {len(basis.pairs)} pairs"
    best = max(out[kind]["score"] for kind in KINDS if kind in out and kind != "ours")
    out["regret"] = best - out["ours"]["score"]
    return out


def shown(row: dict) -> str:
    """Return one line of the printed table."""
    cells = [f"{kind} {row[kind]['score']:.3f}" for kind in (*KINDS, "boosted, not private") if kind in row]
    accuracy = row["ours"]["accuracy"]
    cells += [] if np.isnan(accuracy) else [f"accuracy {accuracy:.4f}"]
    cells += [
        f"+- {row['ours']['error']:.3f}",
        f"regret {row['regret']:.3f}",
        f"{row['ours']['cpu']:.2f} s",
        row["basis"],
    ]
    return f"{row['table']}, {row['rows']} rows, epsilon {row['epsilon']:g}: " + ", ".join(cells)


def keep(row: dict, machine: str) -> None:
    """Put a cell in the place of the kept one of the same table, rows and epsilon, or behind all."""
    cell = operator.itemgetter("table", "rows", "epsilon")
    rows = {cell(kept): kept for kept in json.loads(OUT.read_text())["rows"]} | {cell(row): row}
    OUT.write_text(json.dumps({"machine": machine, "rows": list(rows.values())}, indent=1) + "\n")


def speed() -> None:
    """Print the CPU seconds of a fit on 50,000 rows of 12 columns."""
    public = np.random.default_rng(0)
    names = [f"x{i}" for i in range(8)]
    table = pd.DataFrame(public.uniform(size=(50_000, 8)), columns=names)
    for i in range(4):
        table[f"c{i}"] = public.integers(0, 4, 50_000).astype(str)
    table["y"] = table["x0"] * table["x1"] + 0.1 * public.normal(size=50_000)
    columns = [*numbers(**dict.fromkeys(names, (0, 1))), *levels(**{f"c{i}": list("0123") for i in range(4)})]
    schema = Schema([*columns, Target("y", "number", low=-1, high=2)])
    LinearRegression(1.0, 1e-6, schema=schema).fit(table.iloc[:5000])
    for epsilon in (0.1, 1.0, 4.0):
        start = time.process_time()
        model = LinearRegression(epsilon, 1e-6, schema=schema).fit(table)
        spent = time.process_time() - start
        print(f"epsilon {epsilon:g}: {model.coef_.size} columns, {spent:.2f} s of CPU (bar 1)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0])
    parser.add_argument("--rows", type=int, nargs="+", default=[0], help="at most; 0 for all")
    parser.add_argument("--only", nargs="+", default=[*CHOSEN, *JUDGES, "Adult"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--made", action="store_true")
    parser.add_argument("--first", type=int, default=0, help="seed of the first made design")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--stays", action="store_true")
    parser.add_argument("--neural", action="store_true")
    parser.add_argument("--triple", action="store_true")
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    machine = describe()
    if chosen.speed:
        return speed()
    rows = []
    seeds = range(chosen.first, chosen.first + 8)
    found = {f"made {seed}": seed for seed in seeds} if chosen.made else dict.fromkeys(chosen.only)
    found = {"three together": -1} if chosen.triple else {"stays": -2} if chosen.stays else found
    for name, seed in found.items():
        other = {-1: triple, -2: stays}
        data = read(name) if seed is None else made(seed) if seed >= 0 else other[seed]()
        for count in chosen.rows:
            for epsilon in chosen.epsilon:
                if chosen.neural:
                    neural(name, data, epsilon, count, chosen.repeats)
                    continue
                rows.append(compare(name, data, epsilon, count, chosen.repeats))
                print(shown(rows[-1]), flush=True)
                if chosen.write:
                    keep(rows[-1], machine)
    if chosen.neural:
        return None
    regrets = [row["regret"] for row in rows]
    print(f"mean regret {np.mean(regrets):.4f}, worst {max(regrets):.4f}")
    return None


if __name__ == "__main__":
    main()
