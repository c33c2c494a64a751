"""Runs one peer on one table in the peers' own environment; prints its score. Knows nothing of Sordino.

Command: .venv-peers/bin/python benchmarks/table_worker.py FOLDER PEER EPSILON DELTA SEED

The folder holds train.csv, test.csv and facts.json: bounds of numbers, levels of categories, the target with
its bounds or labels. All of it is declared; peers get the same facts as we do.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd


def columns(table, facts):
    """Return numbers within their bounds (gaps in the middle) and the places of levels, one array."""
    out = []
    for name, (low, high) in facts["numbers"].items():
        values = pd.to_numeric(table[name], errors="coerce").fillna((low + high) / 2)
        out.append(values.clip(low, high).to_numpy(float))
    for name, levels in facts["levels"].items():
        places = {level: place for place, level in enumerate(levels)}
        out.append(table[name].astype(str).map(places).fillna(len(levels)).to_numpy(float))
    return np.column_stack(out)


def ends(facts):
    """Return the bounds of the columns of :func:`columns`."""
    pairs = [*facts["numbers"].values(), *([0, len(levels)] for levels in facts["levels"].values())]
    return [(float(low), float(high)) for low, high in pairs]


def dp_ebm(X, y, facts, epsilon, delta, seed):
    """InterpretML's private boosting, with declared bounds of columns and targets."""
    from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor

    kinds = ["continuous"] * len(facts["numbers"]) + ["nominal"] * len(facts["levels"])
    bounds = dict(enumerate(ends(facts)[: len(facts["numbers"])]))
    options = {"epsilon": epsilon, "delta": delta, "feature_types": kinds, "privacy_bounds": bounds}
    options |= {"random_state": seed, "n_jobs": 1}
    if facts["labels"]:
        return DPExplainableBoostingClassifier(**options).fit(X, y)
    low, high = facts["target_bounds"]
    return DPExplainableBoostingRegressor(
        **options, privacy_target_min=low, privacy_target_max=high
    ).fit(X, y)  # fmt: skip


def forest(X, y, facts, epsilon, delta, seed):
    """diffprivlib's random forest: random splits, the majority of each leaf by the exponential mechanism."""
    from diffprivlib.models import RandomForestClassifier

    low, high = np.transpose(ends(facts))
    return RandomForestClassifier(
        epsilon=epsilon, bounds=(low, high), classes=facts["labels"], random_state=seed
    ).fit(X, y)  # fmt: skip


def main() -> None:
    folder, peer, epsilon, delta, seed = sys.argv[1:]
    warnings.simplefilter("ignore")
    facts = json.loads((Path(folder) / "facts.json").read_text())
    train, test = (pd.read_csv(Path(folder) / f"{part}.csv") for part in ("train", "test"))
    name, labels = facts["target"], facts["labels"]
    (y, z) = (part[name].astype(str) if labels else part[name].astype(float) for part in (train, test))
    y = y if labels else y.clip(*facts["target_bounds"])
    fit = {"dp-ebm": dp_ebm, "forest": forest}[peer]
    model = fit(columns(train, facts), y.to_numpy(), facts, float(epsilon), float(delta), int(seed))
    rows = columns(test, facts)
    if labels:
        from sklearn.metrics import roc_auc_score

        place = list(map(str, model.classes_)).index(labels[1])
        print(roc_auc_score(z == labels[1], model.predict_proba(rows)[:, place]))
    else:
        print(1 - np.square(z - model.predict(rows)).mean() / z.var(ddof=0))


if __name__ == "__main__":
    main()
