"""
Genes
=====

Few genes out of thousands drive an outcome. A sparse private regression finds most of them, and its noise
bands say which of the findings could be noise alone.
"""

# %%
# A made-up study: 4,000 people, 2,000 genes, 10 that matter
# ----------------------------------------------------------
import matplotlib.pyplot as plt
import numpy as np

import sordino
from sordino.datasets import make_sparse_linear_model
from sordino.report.plots import plot_coefficients

data = make_sparse_linear_model(4000, 2000, 10, random_state=1)
X, y, truth = data.data, data.target, data.coef
real = set(np.flatnonzero(truth))

# %%
# Rows and targets are clipped to declared bounds
# -----------------------------------------------
# A row of 2,000 standardised genes is about 45 long. The bound is declared; what is beyond is clipped.
model = sordino.SparseLinearRegression(
    epsilon=2.0, delta=1e-6, n_nonzero_coefs=10, data_norm=50.0, target_bound=10.0, fit_intercept=False
).fit(X, y)
found = set(np.flatnonzero(model.coef_))
print(f"{len(found & real)} of the {len(real)} genes found, {len(found - real)} others chosen")

# %%
# What stands out of the noise
# ----------------------------
plot_coefficients(model)
plt.show()

# %%
# More budget, more genes
# -----------------------
for epsilon in (0.5, 1.0, 4.0, 8.0):
    again = sordino.SparseLinearRegression(
        epsilon, 1e-6, n_nonzero_coefs=10, data_norm=50.0, target_bound=10.0, fit_intercept=False
    ).fit(X, y)
    hits = len(set(np.flatnonzero(again.coef_)) & real)
    print(f"epsilon {epsilon:g}: {hits} of {len(real)} genes")
