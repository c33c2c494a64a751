"""
Survival by discrete time
=========================

Who dies when, under differential privacy for each patient: time is cut into intervals, each patient has one
row for every interval at risk, and a logistic model of "dies in this interval" is a hazard model (with short
intervals about Cox's). A patient has many rows, so the unit of privacy is a person.
"""

# %%
# The records
# -----------
# ``flchain`` (survival of 7,874 people of Olmsted County, by free light chains in their serum) where the
# folder of data sets has it; elsewhere patients that are made up in its likeness.
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import sordino
from sordino.kernel import public_generator
from sordino.report.plots import plot_shapes
from sordino.tables import Category, Number, Person, Target

path = Path(os.environ.get("SORDINO_DATA", "")) / "tables" / "flchain.csv.gz"
if path.is_file():
    patients = pd.read_csv(path, index_col=0)[["age", "sex", "kappa", "lambda", "futime", "death"]]
else:
    public = public_generator(3)
    n = 7000
    patients = pd.DataFrame({"age": public.uniform(50, 95, n), "sex": public.choice(["F", "M"], n)})
    patients["kappa"] = public.lognormal(0.2, 0.5, n)
    patients["lambda"] = patients["kappa"] * public.lognormal(0.1, 0.2, n)
    risk = 0.015 * np.exp(0.09 * (patients["age"] - 65) + 0.3 * (patients["kappa"] - 1.3))
    years = public.exponential(1 / risk)
    patients["futime"] = (365 * np.minimum(years, 12)).astype(int)
    patients["death"] = (years < 12).astype(int)
patients = patients.sample(frac=1.0, random_state=0).reset_index(drop=True)


# %%
# One row for each patient and step of two years
# ----------------------------------------------
# The number of steps is a public constant. A patient who leaves in a step has no row for the steps after it.
YEARS, STEP = 6, 2


def at_risk(people: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each patient and interval in which the patient is at risk."""
    rows = []
    for start in range(0, YEARS * STEP, STEP):
        there = people[people["futime"] > 365 * start]
        dies = (there["death"] == 1) & (there["futime"] <= 365 * (start + STEP))
        rows.append(there.assign(year=start, dies=np.where(dies, "yes", "no"), patient=there.index))
    return pd.concat(rows, ignore_index=True).drop(columns=["futime", "death"])


schema = sordino.Schema(
    [
        Number("age", 50, 105),
        Category("sex", ["F", "M"]),
        Number("kappa", 0, 20, log=True),
        Number("lambda", 0, 30, log=True),
        Number("year", 0, YEARS * STEP),
        Person("patient"),
        Target("dies", levels=["no", "yes"]),
    ]
)
train, test = patients.iloc[: len(patients) * 7 // 10], patients.iloc[len(patients) * 7 // 10 :]
model = sordino.LogisticRegression(epsilon=2.0, delta=1e-6, schema=schema).fit(at_risk(train))
print(model.privacy_)

# %%
# The curve of a patient
# ----------------------
# Survival is the product of the chances of living through each interval.


def survival(people: pd.DataFrame) -> np.ndarray:
    """Return the chance of each patient to live through each interval."""
    columns = people.drop(columns=["futime", "death"])
    alive = [
        1.0 - model.predict_proba(columns.assign(year=start))[:, 1] for start in range(0, YEARS * STEP, STEP)
    ]
    return np.cumprod(np.stack(alive, axis=1), axis=1)


curves = survival(test)
plt.figure(figsize=(5, 3.2), layout="constrained")
for low, high in ((50, 60), (60, 70), (70, 80), (80, 105)):
    of_age = (test["age"] >= low) & (test["age"] < high)
    plt.plot(
        np.arange(STEP, YEARS * STEP + 1, STEP), curves[of_age].mean(axis=0), "o-", label=f"{low} to {high}"
    )
plt.xlabel("years")
plt.ylabel("share alive, as predicted")
plt.legend(title="age")

# %%
# How good is the order?
# ----------------------
# Concordance: of two patients of whom one is known to die first, how often was that one said to be at greater
# risk? On held-out records, which are taken to be public here.
risk = 1.0 - curves[:, -1]
first = np.flatnonzero(test["death"].to_numpy() == 1)
later = test["futime"].to_numpy()[first, None] < test["futime"].to_numpy()[None, :]
right = risk[first, None] > risk[None, :]
concordance = right[later].mean()
print(f"concordance {concordance:.3f}")
assert concordance > 0.65

# %%
# What the model says of each column
# ----------------------------------
plot_shapes(model, top=4)
plt.show()
