"""
A hospital table
================

A table of patients with numbers, categories and missing values becomes a private model, a private score and
a page that a review board can sign. Nothing is read off the values: the schema declares what the columns
mean.
"""

# %%
# The records
# -----------
# Made up here; in earnest this is a CSV or Parquet file.
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import sordino
from sordino.kernel import public_generator
from sordino.report import write_report
from sordino.report.plots import plot_coefficients
from sordino.tables import Category, Flag, Number, Target

public = public_generator(7)
n = 12_000
table = pd.DataFrame(
    {
        "age": public.integers(18, 100, n).astype(float),
        "blood_pressure": public.normal(130, 20, n),
        "ward": public.choice(["surgery", "medicine", "maternity"], n),
        "smoker": public.choice(["yes", "no"], n),
    }
)
risk = (table["age"] - 60) / 15 + (table["blood_pressure"] - 130) / 30 + (table["smoker"] == "yes") - 0.5
table["readmitted"] = np.where(risk + public.normal(size=n) > 0, "yes", "no")
table.loc[public.permutation(n)[:500], "blood_pressure"] = np.nan

# %%
# The schema
# ----------
# Bounds and levels come from what the columns mean, never from the records. What is beyond a bound is
# clipped, what is missing gets a column of its own.
schema = sordino.Schema(
    [
        Number("age", 18, 100, unit="years", source="adults only, by admission rule"),
        Number("blood_pressure", 60, 220, unit="mmHg", source="range of the device"),
        Category("ward", ["surgery", "medicine", "maternity"]),
        Flag("smoker"),
        Target("readmitted", levels=["no", "yes"]),
    ]
)

# %%
# Fit, and pay for it
# -------------------
folder = Path(tempfile.mkdtemp())
ledger = sordino.Ledger.open(folder / "ledger.sqlite")
ledger.create("patients", sordino.BudgetPolicy(epsilon=2.0, delta=1e-5))
booked = {"ledger": ledger, "dataset_id": "patients", "delta": 1e-6}
train, test = table[:9000], table[9000:]
model = sordino.LogisticRegression(1.0, schema=schema, **booked).fit(train)
print(model.privacy_.odds)

# %%
# Score it on records that are sensitive too
# ------------------------------------------
accuracy = sordino.private_score(model, test, epsilon=0.3, **booked)
print(f"accuracy {accuracy:.3f}, 95 % interval {accuracy.interval[0]:.3f} to {accuracy.interval[1]:.3f}")

# %%
# Which columns matter
# --------------------
plot_coefficients(model, top=12)
plt.show()

# %%
# The page for the board
# ----------------------
# One file that can be mailed: the guarantee in words, every release, what was assumed and who said so, the
# budget.
page = write_report(model, folder / "report.html", scores={"accuracy": accuracy}, author="A. Analyst")
print(f"{page.name}: {page.stat().st_size / 1000:.0f} kB")
