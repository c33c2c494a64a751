"""
Text
====

Reviews are hashed into a fixed number of columns, which needs no vocabulary from the data, and a private
search chooses how many coefficients to keep. The whole search has one epsilon.
"""

# %%
# Made-up reviews
# ---------------
import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import sordino
from sordino.kernel import public_generator
from sordino.report.plots import log_axis, new_axes

public = public_generator(3)
good, bad = [f"good{i}" for i in range(40)], [f"bad{i}" for i in range(40)]
common = [f"word{i}" for i in range(2000)]


def review(label):
    own = public.choice(good if label else bad, 3)
    other = public.choice(bad if label else good, 1)
    return " ".join([*own, *other, *public.choice(common, 12)])


labels = public.integers(0, 2, 6000)
texts = np.array([review(label) for label in labels])
train, test = slice(0, 4500), slice(4500, None)

# %%
# A pipeline: hashing is free, the model pays
# -------------------------------------------
# ``HashingVectorizer`` keeps nothing of the data and makes rows of norm one, so ``data_norm=1`` clips
# nothing.


def private(epsilon):
    model = sordino.SparseLogisticRegression(epsilon, 1e-5, data_norm=1.0, classes=[0, 1])
    return make_pipeline(HashingVectorizer(n_features=2**12, norm="l2", alternate_sign=False), model)


epsilons = [0.5, 1.0, 2.0, 4.0]
scores = [private(e).fit(texts[train], labels[train]).score(texts[test], labels[test]) for e in epsilons]
plain = make_pipeline(HashingVectorizer(n_features=2**12), LogisticRegression())
ceiling = plain.fit(texts[train], labels[train]).score(texts[test], labels[test])

axes = new_axes()
axes.plot(epsilons, scores, "o-", label="private")
axes.axhline(ceiling, color="0.4", linestyle=":", label="without privacy")
axes.set(xlabel="epsilon (delta = 1e-5)", ylabel="test accuracy")
log_axis(axes, at=epsilons)
axes.legend()
plt.show()

# %%
# Choose a parameter privately
# ----------------------------
# A plain grid search would spend an epsilon for every fold and candidate. This one spends one.
search = sordino.PrivateSearchCV(
    private(1.0),
    {"sparselogisticregression__n_nonzero_coefs": [50, 200, None]},
    epsilon=2.0,
    delta=1e-5,
    mean_trials=3.0,
)
search.fit(texts[train], labels[train])
print(search.best_params_, f"epsilon {search.privacy_.epsilon:.3f}")
