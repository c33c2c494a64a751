"""
A budget shared by a team
=========================

Several people ask questions of one data set. The ledger adds up what everybody released, refuses what would
be too much *before* anything is computed, and writes a page about it.
"""

# %%
# A budget, set once
# ------------------
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import sordino
from sordino.errors import BudgetExceededError
from sordino.kernel import public_generator
from sordino.report import write_ledger_report
from sordino.report.page import History
from sordino.report.plots import new_axes

folder = Path(tempfile.mkdtemp())
ledger = sordino.Ledger.open(folder / "team.sqlite")
ledger.create("survey", sordino.BudgetPolicy(epsilon=3.0, delta=1e-5))
public = public_generator(11)
X = public.normal(size=(8000, 6)) / 3
y = (X[:, 0] > X[:, 1]).astype(int)
survey = {"ledger": ledger, "dataset_id": "survey", "delta": 1e-6}

# %%
# Three people at work
# --------------------
# Each process says who it works for; the ledger writes it down.
os.environ["SORDINO_PERSON"] = "Grace"
print("mean", np.round(sordino.mean(X, epsilon=0.5, **survey), 3))
os.environ["SORDINO_PERSON"] = "Ada"
model = sordino.LogisticRegression(1.5, data_norm=1.5, classes=[0, 1], **survey).fit(X, y)
print("accuracy", round(float(sordino.private_score(model, X, y, epsilon=0.3, **survey)), 3))
os.environ["SORDINO_PERSON"] = "Emmy"
sordino.PCA(3, epsilon=1.0, data_norm=1.5, **survey).fit(X)
left = ledger.remaining("survey")
print(f"{left.fraction:.0%} left, enough for one more plan of epsilon {left.epsilon:.2f}")

# %%
# What is too much is refused
# ---------------------------
try:
    sordino.LogisticRegression(2.9, data_norm=1.5, classes=[0, 1], **survey).fit(X, y)
except BudgetExceededError as error:
    print(error)

# %%
# Spending over the reservations
# ------------------------------
steps = History.read(ledger, "survey").steps
axes = new_axes(6.0, 3.0)
axes.step(range(len(steps)), [100 * step.fraction for step in steps], where="post")
labels = ["start", *(f"{step.person}: {step.entry.description}" for step in steps[1:])]
axes.set_xticks(range(len(steps)), labels, rotation=20, ha="right", fontsize=8)
axes.set(ylabel="spent, % of the budget", ylim=(0, 100))
plt.show()

# %%
# The page
# --------
# ``sordino ledger report team.sqlite --output budgets.html`` writes the same.
page = write_ledger_report(ledger, folder / "budgets.html")
print(f"{page.name}: {page.stat().st_size / 1000:.0f} kB")
