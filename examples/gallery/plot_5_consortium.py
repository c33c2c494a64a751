"""
A consortium
============

Three hospitals fit one model without showing each other a record. The noise is made inside of a secure
computation, so that it is added once and nobody knows it. Here all three run in one process, with the
arithmetic of the real ones; the walk-through in the documentation starts them as three processes over TLS.
"""

# %%
# Records in three places
# -----------------------
import matplotlib.pyplot as plt
import numpy as np

import sordino
from sordino.execute import LocalExecutor
from sordino.execute.parties import Mode, NoiseShare, SimulatedParties
from sordino.kernel import Relation, public_generator
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem
from sordino.report.plots import new_axes
from sordino.runs import Ask, Task, run
from sordino.solvers import Options, make_solver

public = public_generator(5)
truth = np.concatenate([[2.0, -2.0, 1.0], np.zeros(27)])


def hospital(records):
    X = public.normal(size=(records, 30)) / 6
    return X, np.where(X @ truth + public.normal(size=records) / 4 > 0, 1.0, -1.0)


hospitals = {"north": hospital(1200), "south": hospital(800), "west": hospital(500)}
test_X, test_y = hospital(4000)
members = [LocalExecutor(X, y, 1.0, 1.0) for X, y in hospitals.values()]

# %%
# One plan for all of them
# ------------------------
# The same solver, the same accountant as on one machine: only the executor changes. Any one hospital may be
# curious.
together = SimulatedParties(members, NoiseShare(Mode.INSIDE, 3, 1))
n = together.population
ask = Ask.checked(1.0, 1e-6, n)
problem = Problem(LOSSES["logistic"], n, 30, Relation.ADD_REMOVE, ask.epsilon, ask.delta, intercept=1.0)
solver = make_solver("ight", problem, Options(max_iter=15, step_size=4.0))
task = Task(solver, problem, "three hospitals", public=(f"number of records: {n}",))
fitted = run(task, together, ask)
print(fitted.report.odds)

# %%
# Together or alone
# -----------------
# With the same epsilon each hospital alone adds the same noise to fewer records.


def accuracy(coef):
    margins = test_X @ coef[:30] + coef[30]
    return float(np.mean(np.sign(margins) == test_y))


found = {"together": accuracy(np.asarray(fitted.result))}
for name, (X, y) in hospitals.items():
    alone = sordino.LogisticRegression(1.0, 1e-6, data_norm=1.0, classes=[-1.0, 1.0]).fit(X, y)
    found[name] = alone.score(test_X, test_y)
axes = new_axes(5.0, 2.6)
axes.barh(list(found)[::-1], list(found.values())[::-1])
axes.set(xlabel="test accuracy at epsilon 1", xlim=(0.7, 0.9))
plt.show()
