"""
Images
======

Handwritten digits: private principal components, a private classifier of ten classes, and its private
calibration.
"""

# %%
# Digits of scikit-learn, rows of norm one
# ----------------------------------------
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize

import sordino
from sordino.report.plots import calibration_plot, scree_plot

X, y = load_digits(return_X_y=True)
X = normalize(X)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0)

# %%
# Private axes
# ------------
# The grey area is what noise alone would show: axes inside it say nothing.
pca = sordino.PCA(12, epsilon=2.0, delta=1e-5, data_norm=1.0).fit(X_train)
scree_plot(pca)
plt.show()

# %%
# As pictures, the first axes still look like digits
# --------------------------------------------------
figure, panels = plt.subplots(1, 6, figsize=(8, 1.6), layout="constrained")
for number, panel in enumerate(panels):
    panel.imshow(pca.components_[number].reshape(8, 8), cmap="RdBu")
    panel.set(xticks=[], yticks=[], title=f"axis {number + 1}")
plt.show()

# %%
# Ten classes at once
# -------------------
model = sordino.LogisticRegression(4.0, 1e-5, data_norm=1.0, classes=list(range(10))).fit(X_train, y_train)
score = sordino.private_score(model, X_test, y_test, metric="balanced_accuracy", epsilon=2.0, delta=1e-5)
print(f"balanced accuracy {score:.2f}, interval {score.interval[0]:.2f} to {score.interval[1]:.2f}")

# %%
# Is the model's confidence to be believed?
# -----------------------------------------
# Low digits against high ones: chances that the model says, and shares that were seen, with their
# intervals.
high_train, high_test = (y_train >= 5).astype(int), (y_test >= 5).astype(int)
binary = sordino.LogisticRegression(4.0, 1e-5, data_norm=1.0, classes=[0, 1]).fit(X_train, high_train)
options = {"metric": "calibration", "bins": 5, "epsilon": 2.0, "delta": 1e-5}
calibration_plot(sordino.private_score(binary, X_test, high_test, **options))
plt.show()
