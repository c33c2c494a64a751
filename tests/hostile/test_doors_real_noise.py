"""The stated noise of coefficients on real tables is what repeated fits show (issue 25, item 17)."""

import os
from pathlib import Path

import numpy as np
import pytest

from sordino import LinearRegression, LogisticRegression, Schema
from sordino.tables import Category, Number, TableEncoder, Target
from sordino.testing import seeded_noise_not_private

pd = pytest.importorskip("pandas")

FITS = 20
# Bounds and levels by what the columns mean; some levels no record has.
TABLES = {
    "BudgetFood": [
        Number("totexp", low=0, high=5e6),
        Number("age", low=15, high=100),
        Number("size", low=1, high=15),
        Category("town", levels=[str(level) for level in range(1, 9)]),
        Category("sex", levels=["man", "woman", "x", "y"]),
        Target("wfood", kind="number", low=0, high=1),
    ],
    "Computers": [
        *[Number(name, low=0, high=high) for name, high in [("speed", 150), ("hd", 2500), ("ram", 64)]],
        Number("screen", low=10, high=20),
        *[Category(name, levels=["yes", "no"]) for name in ("cd", "multi", "premium")],
        *[Number(name, low=0, high=high) for name, high in [("ads", 400), ("trend", 40)]],
        Target("price", kind="number", low=0, high=6000),
    ],
    "flchain": [
        Number("age", low=50, high=110),
        Category("sex", levels=["F", "M", "x"]),
        Number("kappa", low=0, high=20),
        Number("lambda", low=0, high=30),
        Category("flc.grp", levels=[str(level) for level in range(1, 13)]),
        Target("death", levels=["0", "1"]),
    ],
}


def read(name, columns):
    path = Path(os.environ.get("SORDINO_DATA", "data")) / "tables" / f"{name}.csv.gz"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    table = pd.read_csv(path, index_col=0)[[column.name for column in columns]].dropna()
    for column in columns:
        if isinstance(column, Category) or (isinstance(column, Target) and column.levels):
            kept = table[column.name]
            table[column.name] = (kept.astype(int) if kept.dtype.kind == "f" else kept).astype(str)
    return table


def repeated(model, *data):
    """Return coefficients and stated deviations of some fits, and true over stated deviations."""
    found, stated = [], []
    for seed in range(FITS):
        with seeded_noise_not_private(seed):
            model.fit(*data)
        found.append(model.coef_.ravel())
        stated.append(np.ravel(model.coef_noise_))
    found, stated = np.array(found), np.array(stated)
    return found, stated, np.std(found, axis=0, ddof=1) / np.sqrt(np.square(stated).mean(axis=0))


@pytest.mark.parametrize("name", TABLES)
def test_door_17_the_stated_noise_of_curves_and_pairs_is_not_less_than_the_true_one(name):
    columns = TABLES[name]
    model = (LogisticRegression if name == "flchain" else LinearRegression)(1.0, 1e-6, schema=Schema(columns))
    ratio = repeated(model, read(name, columns))[2]
    assert model.encoder_.basis is not None
    assert 0.15 < np.median(ratio) < 1.1
    assert ratio.max() < 1.6


@pytest.mark.parametrize("name", TABLES)
def test_door_17_the_stated_noise_of_a_real_table_is_true(name):
    columns = TABLES[name]
    table = read(name, columns)
    encoder = TableEncoder(Schema(columns[:-1])).fit(table[table.columns[:-1]])
    rows, y = encoder.transform(table[table.columns[:-1]]), table[columns[-1].name].to_numpy()
    if name == "flchain":
        model = LogisticRegression(1.0, 1e-6, data_norm=encoder.data_norm_, classes=["0", "1"])
    else:
        half = (columns[-1].high - columns[-1].low) / 2  # as a schema has it: from the middle of the bounds
        model = LinearRegression(1.0, 1e-6, data_norm=encoder.data_norm_, target_bound=half)
        y = y - (columns[-1].low + half)
    found, stated, ratio = repeated(model, rows, y)
    assert 0.6 < np.median(ratio) < 1.25  # it was 1.5 to 2.0; moments drowned in noise count as none
    assert ratio.max() < 1.6
    assert np.mean(ratio < 0.5) < 0.2  # overstated: few records have these columns
    empty = np.asarray(abs(rows).sum(axis=0)).ravel() == 0
    assert empty.sum() > 5
    assert np.mean(np.abs(found) > 2.0 * stated, axis=0)[empty].mean() < 0.1  # of noise about 0.05
