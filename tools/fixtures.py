"""Write one file of every kind that Sordino keeps, by the version that runs it.

    python tools/fixtures.py tests/fixtures/0.2.0

Run it once for each version that changes a format, and never again over a folder that exists:
tests/test_lasting.py reads the files of all versions for ever. ``expected.json`` holds what the models
answered when they were written.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import sordino
from sordino.kernel import public_generator

ROWS = public_generator(11).normal(size=(400, 3))
LABELS = np.where(ROWS[:, 0] + 0.3 * ROWS[:, 1] > 0, "yes", "no")
TABLE = [{"age": 20 + i % 60, "ward": "ab"[i % 2], "ill": ("no", "yes")[i % 60 > 30]} for i in range(400)]
SCHEMA = """format = 1

[columns.age]
kind = "number"
low = 0
high = 100

[columns.ward]
kind = "category"
levels = ["a", "b"]

[columns.ill]
kind = "target"
of = "category"
levels = ["no", "yes"]
"""


def models() -> dict[str, object]:
    """Return fitted models whose answers to ROWS are numbers."""
    from sordino.nn.estimators import NeuralClassifier

    linear = sordino.LogisticRegression(1.0, data_norm=3.0, classes=["no", "yes"])
    steps = sordino.PrivateStandardScaler(1.0, data_norm=3.0), sordino.RowClipper(data_norm=2.0)
    last = sordino.LogisticRegression(1.0, data_norm=2.0)
    public = MinMaxScaler((0, 1)).fit([[-3, -3, -3], [3, 3, 3]])
    return {
        "logistic": linear.fit(ROWS, LABELS),
        "regression": sordino.LinearRegression(1.0, data_norm=3.0, target_bound=3.0).fit(ROWS, ROWS[:, 2]),
        "heavy": sordino.HeavyTailedRegressor(2.0).fit(ROWS, ROWS[:, 2]),
        "axes": sordino.PCA(2, epsilon=1.0, data_norm=3.0).fit(ROWS),
        "pipeline": make_pipeline(*steps, last).fit(ROWS, LABELS),
        "foreign": make_pipeline(public, sordino.LogisticRegression(1.0, data_norm=2.0)).fit(ROWS, LABELS),
        "network": NeuralClassifier(epsilon=2.0, data_norm=3.0).fit(ROWS, LABELS),
    }


def answers(model: object, rows: object = None) -> list[list[float]]:
    """Return what a model answers about the first rows."""
    rows = ROWS[:5] if rows is None else rows
    name = next(n for n in ("predict_proba", "transform", "predict") if hasattr(model, n))
    return np.asarray(getattr(model, name)(rows), dtype=float).tolist()


def write_models(folder: Path) -> None:
    """Write model files, one of them of a table, and a report."""
    import pandas

    expected = {}
    for name, model in models().items():
        sordino.save(model, folder / f"{name}.sordino", about={"fixture": name})
        expected[name] = answers(model)
    frame = pandas.DataFrame(TABLE)
    encoder = sordino.TableEncoder(sordino.Schema.from_toml(SCHEMA))
    table = make_pipeline(encoder, sordino.LogisticRegression(1.0, data_norm=encoder.schema.data_norm))
    table.fit(frame.drop(columns="ill"), frame["ill"])
    sordino.save(table, folder / "table.sordino")
    expected["table"] = answers(table, frame.drop(columns="ill").head())
    (folder / "report.json").write_text(table[-1].privacy_.to_json() + "\n")
    (folder / "schema.toml").write_text(SCHEMA)
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def write_ledger(folder: Path) -> None:
    """Write a ledger with two reservations, one of them of a process that is gone, and its export."""
    place = folder / "ledger.db"
    with sordino.Ledger.open(place) as ledger:
        ledger.create("people", sordino.BudgetPolicy(5.0, 1e-4))
        model = sordino.LogisticRegression(1.0, data_norm=3.0, ledger=ledger, dataset_id="people")
        model.fit(ROWS, LABELS)
        sordino.PCA(1, epsilon=0.5, data_norm=3.0, ledger=ledger, dataset_id="people").fit(ROWS)
        (folder / "ledger.json").write_text(ledger.to_json() + "\n")
    import sqlite3

    connection = sqlite3.connect(place)
    connection.execute("PRAGMA journal_mode = DELETE")  # one file; the ledger takes up its own mode again
    connection.execute("UPDATE sordino_reservations SET owner = 'host|boot|1|1|somebody'")
    connection.commit()
    connection.execute("VACUUM")  # what was there before is gone from the pages
    connection.close()


def trainer(path: Path) -> object:
    """Return the trainer of the checkpoint; its network and records are made the same everywhere."""
    import torch
    from torch import nn

    from sordino.nn import Trainer

    torch.set_num_threads(1)
    network = nn.Sequential(nn.Linear(3, 2))
    with torch.no_grad():
        for weights in network.parameters():
            weights.fill_(0.1)
    return Trainer(
        network, nn.CrossEntropyLoss(), epsilon=5.0, delta=1e-4, steps=6, batch_size=50, checkpoint=path,
        checkpoint_every=2,
    )  # fmt: skip


def records() -> tuple[object, object]:
    """Return the records of the training."""
    import torch

    return torch.from_numpy(ROWS.astype("float32")), torch.from_numpy((LABELS == "yes").astype("int64"))


def write_checkpoint(folder: Path) -> None:
    """Write the checkpoint of a training that was stopped."""
    from sordino.nn.session import Session

    due, calls = Session.due, []

    def stop(self: Session) -> bool:
        calls.append(None)
        if len(calls) == 4:
            raise InterruptedError
        return due(self)

    Session.due = stop  # type: ignore[method-assign]
    try:
        trainer(folder / "training").fit(*records())
    except InterruptedError:
        pass
    finally:
        Session.due = due  # type: ignore[method-assign]


def write_plan(folder: Path) -> None:
    """Write the plan of three members."""
    from sordino.parties.mpc.plan import make_plan

    members = [
        {"name": name, "host": "localhost", "port": 7000 + i, "records": 100, "fingerprint": f"{i}" * 64}
        for i, name in enumerate(("north", "east", "south"))
    ]
    params = {
        "classes": [-1, 1],
        "data_norm": 1.0,
        "solver": "ight",
        "max_iter": 3,
        "solver_options": {"step_size": 2.0},
    }
    task = {"estimator": "SparseLogisticRegression", "features": 3, "params": params}
    budget = {"epsilon": 1.0, "delta": 1e-6, "relation": "add-remove", "unit": "record"}
    make_plan("three hospitals", members, task, budget).save(folder / "plan.json")


def main(folder: Path) -> None:
    """Write all files."""
    folder.mkdir(parents=True)
    warnings.simplefilter("ignore")
    write_models(folder)
    write_ledger(folder)
    write_checkpoint(folder)
    write_plan(folder)
    sordino.to_disk(folder / "rows", [(ROWS, (LABELS == "yes").astype(float))])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
