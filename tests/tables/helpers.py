"""A small hospital table and its schema."""

import numpy as np
import pandas as pd

from sordino.kernel import public_generator
from sordino.tables import Category, Date, Flag, Ignored, Number, Ordinal, Schema, Target, Text

SCHEMA = Schema(
    [
        Number("age", 0, 100, unit="years", source="admission form"),
        Number("dose", 0, 4, knots=1, missing="zero"),
        Category("town", ["Bonn", "Rome"], source="catchment area"),
        Ordinal("stage", ["I", "II", "III"]),
        Flag("smoker"),
        Date("admitted", "2020-01-01", "2024-01-01"),
        Ignored("note"),
        Target("ill", levels=["no", "yes"]),
    ]
)
WORDY = Schema([*SCHEMA.columns[:2], Text("complaint", buckets=8), *SCHEMA.columns[2:]])


def hospital(rows=400, seed=0):
    public = public_generator(seed)
    age = public.uniform(-10, 120, rows)
    town = np.array(["Bonn", "Rome", "Oslo"], dtype=object)[public.integers(0, 3, rows)]
    return pd.DataFrame(
        {
            "age": np.where(public.uniform(size=rows) < 0.1, np.nan, age),
            "dose": public.uniform(0, 6, rows),
            "town": np.where(public.uniform(size=rows) < 0.1, None, town),
            "stage": np.array(["I", "II", "III", "IV"])[public.integers(0, 4, rows)],
            "smoker": np.array(["yes", "no", "?"])[public.integers(0, 3, rows)],
            "admitted": pd.Timestamp("2019-06-01")
            + pd.to_timedelta(public.integers(0, 2500, rows), unit="D"),
            "note": "x",
            "ill": np.where(age > 60, "yes", "no"),
        }
    )
