"""The last question of a PCA: how much whole rows vary along the axes that were found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.optimize import isotonic_regression

from sordino.kernel import Curator
from sordino.kernel.arrays import Ints
from sordino.problems.covariance import Ball, PcaProblem
from sordino.solvers.pca.locate import noise_std
from sordino.solvers.pca.spectrum import Principal, filled

# Deviations of both by which the variances of clipped and of whole rows may differ by chance, and from which
# on those of clipped rows do not count.
AGREE, APART = 1.5, 3.0
# Noise of more than this part of the total variance leaves nothing to combine.
LOUD = 0.1


def measured(
    curator: Curator, problem: PcaProblem, found: Principal, columns: Ints | None = None
) -> Principal:
    r"""Return the axes with variances of rows that nothing but ``data_norm`` has clipped.

    The axes come from rows clipped at their spread, and clipping takes more from some axes than from others,
    by an amount that no number of records makes smaller. ``mean_i (v_j . (x_i - m))^2`` at the declared bound
    is free of that, and its noise is independent of the axes. Both are combined by their deviations; where
    they contradict each other the plain one counts. A plan without the question leaves all as it is.

    **Privacy.** One Gaussian release; a row adds at most ``(R + ||m||)^2`` to all variances together.
    """
    if "spectrum" not in curator.plan.releases:
        return found
    bound = problem.data_norm + float(np.linalg.norm(found.mean))
    ball = Ball(bound, found.mean, columns) if problem.center else Ball(problem.data_norm, None, columns)
    params, n = (found.axes.T, ball), problem.population
    plain, std = curator.release("spectrum", params), noise_std(curator, "spectrum", params) / n
    if std > LOUD * found.total:  # it tells nothing
        return found
    plain = plain * (1.0 - min(found.stray / max(float(plain.sum()), 1e-300), 1.0) * problem.center)
    distance = np.abs(plain - found.variances)
    apart = distance / np.maximum(np.hypot(found.doubt, std), 1e-300)
    # An axis that clipping has shortened for certain says that the others were not: all of them are in doubt.
    uneven = np.where(apart > APART, distance / np.maximum(plain, found.variances + 1e-300), 0.0).max()
    doubt = np.hypot(found.doubt, uneven * found.variances)
    both = np.hypot(doubt, std)
    share = np.divide(np.square(doubt), np.square(both), out=np.ones_like(both), where=both > 0)
    weight = np.maximum(share, np.clip((apart - AGREE) / (APART - AGREE), 0.0, 1.0))
    values = np.maximum(found.variances + weight * (plain - found.variances), 0.0)
    values = np.asarray(isotonic_regression(values, increasing=False).x)
    doubt = np.maximum(doubt, np.where(apart > 1.0, distance, 0.0))
    doubt = np.hypot((1.0 - weight) * doubt, weight * std)
    total = max(found.total, min(float(values.sum()), found.total + 2.0 * std))  # it is as noisy as they are
    return replace(found, variances=filled(values, total, problem.features), doubt=doubt, total=total)
