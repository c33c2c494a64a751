"""A small federation of linear models, shared by the tests of Flower."""

import numpy as np

from sordino.estimators.linear import LogisticRegression
from sordino.parties.flower import FederatedClient, FederatedRecipe, LinearModel
from sordino.solvers.steps import hard_threshold

D, K = 12, 4
SIZES = (60, 90, 150)
TRUE = np.zeros(D)
TRUE[:3] = [1.0, -1.0, 1.0]
CLIP, NORM = 0.7, 1.5  # never 1: a forgotten factor would not show
LOGISTIC = LogisticRegression(classes=[-1, 1], data_norm=NORM, fit_intercept=False)
NODES = [{"partition-id": i} for i in range(len(SIZES))]


def records(size, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((size, D)) / np.sqrt(D)
    return X, np.where(X @ TRUE + 0.05 * rng.standard_normal(size) > 0, 1.0, -1.0)


def recipe_of(**changes):
    settings = {"rounds": 3, "local_steps": 2, "batch_size": 20, "sparsity": K, "step_size": 2.0}
    return FederatedRecipe(**{**settings, "clip_norm": CLIP, **changes})


def made(recipe, tmp_path, epsilon=2.0, **more):
    """Return a client factory that reads the node's number from its configuration."""

    def make(context):
        i = int(context.node_config["partition-id"])
        model = LinearModel(*records(SIZES[i], i), LOGISTIC)
        return FederatedClient(model, recipe, tmp_path / f"client-{i}", epsilon, 1e-5, **more)

    return make


def local(recipe, w, X, y):
    """The local steps of one round without noise, written by hand: full batches, logistic loss."""
    X = X * np.minimum(1.0, NORM / np.linalg.norm(X, axis=1))[:, None]
    for _ in range(recipe.local_steps):
        g = (-y / (1 + np.exp(y * (X @ w))))[:, None] * X
        g *= np.minimum(1.0, CLIP / np.linalg.norm(g, axis=1))[:, None]
        w = hard_threshold(w - recipe.step_size * g.mean(axis=0), K)
    return w


def plain(recipe, weights, parts):
    """The whole algorithm without noise."""
    p = np.array([len(y) for _, y in parts]) / sum(len(y) for _, y in parts)
    for _ in range(recipe.rounds):
        vectors = [local(recipe, weights, X, y) for X, y in parts]
        weights = hard_threshold(sum(a * b for a, b in zip(p, vectors, strict=True)), K)
    return weights
