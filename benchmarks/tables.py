"""Tables: the accuracy of a schema on Adult, how it was chosen, and the time and memory of encoding.

Commands::

    python -m benchmarks.tables                    # encoding, 100,000 rows
    python -m benchmarks.tables --rows 1000000     # the size of the bar
    python -m benchmarks.tables --adult            # declared and learned schemas, 5 fits each
    python -m benchmarks.tables --peers            # DP-EBM, private forests, boosted trees, ours: one run
    python -m benchmarks.tables --choose           # knots on the donor and KDD Cup tables, not on Adult

Adult is read from `SORDINO_DATA`. The bars: encoding in at most 3 times the time of pandas' read_csv of the
same file, with at most twice the memory of the frame; accuracy at (1, 1e-5) >= .845 declared, >= .84 learned
within the same budget. The peak of memory is the kernel's, so it counts what Arrow allocates (Linux).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.machine import describe
from sordino import LogisticRegression, Schema, TableEncoder
from sordino.datasets import load
from sordino.datasets.loading import REGISTRY
from sordino.tables import Blank, Category, Number, Target, learn_schema

NAMES = [
    *("age", "workclass", "fnlwgt", "education", "education_num", "marital", "occupation", "relationship"),
    *("race", "sex", "capital_gain", "capital_loss", "hours", "country", "income"),
]
# From the meaning of the columns: the form codes ages up to 90, hours up to 99, gains up to 99,999 dollars,
# and education has 16 steps.
BOUNDS = {
    "age": (17, 90),
    "fnlwgt": (0, 1_500_000),
    "education_num": (1, 16),
    "capital_gain": (0, 100_000),
    "capital_loss": (0, 5_000),
    "hours": (1, 99),
}


def adult(part: str) -> pd.DataFrame:
    """Read one part of Adult as it was published."""
    path = Path(os.environ["SORDINO_DATA"]) / "adult" / f"adult.{part}.xz"
    table = pd.read_csv(path, header=None, names=NAMES, skipinitialspace=True)
    table["income"] = table["income"].str.rstrip(".")
    return table


def declared() -> Schema:
    """Return the schema of Adult; levels are those of the published description."""
    listed = {c.name: c.levels for c in REGISTRY["adult"].schema.columns if hasattr(c, "levels")}
    renamed = {
        "marital": "marital-status",
        "country": "native-country",
    }
    columns = [
        Number(name, *BOUNDS[name]) if name in BOUNDS else Category(name, listed[renamed.get(name, name)])
        for name in NAMES[:-1]
    ]
    return Schema([*columns, Target("income", levels=["<=50K", ">50K"])])


def blank(schema: Schema) -> Schema:
    """Return a schema that knows the kinds of the columns and the labels, and nothing else."""
    empty = {Number: {"low": None, "high": None}, Category: {"levels": None}}
    return Schema([replace(c, **empty.get(type(c), {})) for c in schema.columns])


def accuracy(repeats: int) -> None:
    """Print the accuracy of declared and of learned schemas on the test rows, for the same budget."""
    train, test, schema = adult("data"), adult("test"), declared()
    own, learned, nothing = [], [], []
    names = Schema([*(Blank(name) for name in NAMES[:-1]), Target("income")])
    for _ in range(repeats):
        own.append(LogisticRegression(epsilon=1.0, delta=1e-5, schema=schema).fit(train).score(test))
        found = learn_schema(blank(schema), train, epsilon=0.2, delta=5e-6).schema
        learned.append(LogisticRegression(epsilon=0.8, delta=5e-6, schema=found).fit(train).score(test))
        found = learn_schema(names, train.astype(str), epsilon=0.2, delta=5e-6).schema
        nothing.append(LogisticRegression(epsilon=0.8, delta=5e-6, schema=found).fit(train).score(test))
    rows = {"declared": own, "learned for .2, fitted for .8": learned, "kinds learned as well": nothing}
    for name, values in rows.items():
        print(f"Adult, (1, 1e-5), {name}: mean {statistics.mean(values):.4f}, least {min(values):.4f}")


def choose(repeats: int) -> None:
    """Print accuracy and area under the curve for numbers of knots, on tables that are not Adult."""
    from sklearn.metrics import roc_auc_score

    for name, rows in (("donor_pva", 19_372), ("kddcup99", 10_000)):
        data = load(name, encoding="raw")
        public = np.random.default_rng(0).permutation(len(data.data))[:rows]
        target = np.asarray(data.target)[public]
        y = (target != "normal.").astype(int) if target.dtype.kind in "OU" else (target > 0).astype(int)
        table, cut = data.data.iloc[public], int(0.6 * rows)
        for knots in (1, 3, 5, 9):
            schema = translated(REGISTRY[name].schema, knots)
            X = TableEncoder(schema).fit().transform({c.name: table[c.name] for c in schema.columns})
            found = []
            for _ in range(repeats):
                model = LogisticRegression(1.0, 1e-5, data_norm=schema.data_norm, classes=[0, 1])
                shares = model.fit(X[:cut], y[:cut]).predict_proba(X[cut:])[:, 1]
                found.append((np.mean((shares > 0.5) == y[cut:]), roc_auc_score(y[cut:], shares)))
            score, area = np.mean(found, axis=0)
            print(f"{name}, epsilon 1, knots = {knots}: accuracy {score:.4f}, area {area:.4f}")


def translated(schema: object, knots: int) -> Schema:
    """Return the schema of a registered data set as one of tables."""
    return Schema(
        [
            Category(c.name, c.levels) if hasattr(c, "levels") else Number(c.name, c.low, c.high, knots=knots)
            for c in schema.columns
        ]
    )


def facts_of(schema: Schema) -> dict[str, object]:
    """Return what peers are told of a table: the same declarations as ours."""
    target = schema.target
    return {
        "numbers": {c.name: (c.low, c.high) for c in schema.features if isinstance(c, Number)},
        "levels": {c.name: list(c.levels) for c in schema.features if not isinstance(c, Number)},
        "target": target.name,
        "target_bounds": (target.low, target.high),
        "labels": [str(level) for level in target.levels or ()],
    }


def peers(names: list[str], epsilon: float, repeats: int, python: str) -> None:
    """Print plain linear, ours, networks, peers and boosted trees without privacy on the same splits."""
    from benchmarks import curves
    from sordino import LinearRegression
    from sordino.nn import NeuralClassifier, NeuralRegressor

    warnings.simplefilter("ignore")
    for name in names or [*curves.CHOSEN, *curves.JUDGES, "Adult"]:
        table, schema = curves.read(name)
        number, found = schema.target.kind == "number", {}
        linear, network = (
            (LinearRegression, NeuralRegressor) if number else (LogisticRegression, NeuralClassifier)
        )
        for repeat in range(repeats):
            train, test = curves.parts(name, table, repeat, 0)
            models = {
                "plain linear": linear(epsilon, 1e-6, schema=schema, knots=1, pairs=False),
                "ours": linear(epsilon, 1e-6, schema=schema),
                "our network": network(epsilon, 1e-6, schema=schema, random_state=repeat),
                "boosted trees, not private": curves.Boosted(schema),
            }
            for kind, model in models.items():
                found.setdefault(kind, []).append(curves.score(model.fit(train), test, schema)[0])
            with tempfile.TemporaryDirectory() as folder:
                for part, rows in (("train", train), ("test", test)):
                    rows.to_csv(Path(folder) / f"{part}.csv", index=False)
                (Path(folder) / "facts.json").write_text(json.dumps(facts_of(schema)))
                for peer in ("dp-ebm", "forest")[: 1 if number else 2]:
                    worker = Path(__file__).with_name("table_worker.py")
                    call = [python, worker, folder, peer, str(epsilon), "1e-6", str(repeat)]
                    said = subprocess.run(call, capture_output=True, text=True, check=True).stdout
                    found.setdefault(peer, []).append(float(said.split()[-1]))
        print(f"{name}: " + ", ".join(f"{kind} {np.mean(v):.3f}" for kind, v in found.items()), flush=True)


def mixed(rows: int) -> pd.DataFrame:
    """Make a table of 6 numbers and 8 categories that looks like Adult, by drawing its rows again."""
    table = adult("data").drop(columns="income")
    return table.iloc[np.random.default_rng(0).integers(0, len(table), rows)].reset_index(drop=True)


def speed(rows: int) -> None:
    """Print the time and the memory of encoding beside those of reading the same file."""
    schema = declared()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        mixed(rows).to_csv(path, index=False)
        start = time.perf_counter()
        table = pd.read_csv(path)
        reading = time.perf_counter() - start
    encoder = TableEncoder(schema).fit(table)
    encoder.transform(table.iloc[:1000])
    start = time.perf_counter()
    X = encoder.transform(table)
    encoding = time.perf_counter() - start
    frame = table.memory_usage(deep=True).sum()
    kept = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    del X
    peak = peak_of(lambda: encoder.transform(table))
    print(f"{rows} rows x {table.shape[1]} columns: read {reading:.2f} s, encode {encoding:.2f} s", end=", ")
    print(f"ratio {encoding / reading:.2f} (bar 3)")
    print(f"frame {frame / 1e6:.0f} MB, matrix {kept / 1e6:.0f} MB, peak {peak / 1e6:.0f} MB", end=", ")
    print(f"ratio {peak / frame:.2f} (bar 2)")


def peak_of(call: Callable[[], object]) -> float:
    """Return how many bytes a call needs at most, on top of what the process has."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = status("VmRSS")
    call()
    return status("VmHWM") - before


def status(name: str) -> float:
    """Return a line of the process's status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--adult", action="store_true")
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--python", default=".venv-peers/bin/python", help="of the peers' environment")
    chosen = parser.parse_args()
    describe()
    if chosen.adult:
        accuracy(chosen.repeats)
    elif chosen.choose:
        choose(chosen.repeats)
    elif chosen.peers:
        peers(chosen.only, chosen.epsilon, chosen.repeats, chosen.python)
    else:
        speed(chosen.rows)


if __name__ == "__main__":
    main()
