"""What PCA checks before it sees any data."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from sordino.bounds import bound_fact
from sordino.checks import as_float, check_count, check_positive
from sordino.errors import InvalidInputError
from sordino.kernel import public_generator
from sordino.problems.covariance import PcaProblem
from sordino.solvers.pca import PcaOptions, automatic

_RULES = ("gap", "broken-stick")
# A solver that never holds a d x d matrix follows at most this many axes when their number is chosen.
_FOLLOWED = 50


def axes_to_follow(wanted: Any, n: int, d: int) -> int:
    """Return how many axes to follow: those asked for, or as many as a private choice may need."""
    if isinstance(wanted, Integral) and not isinstance(wanted, bool):
        remedy = "It is the number of axes."
        return int(check_count("n_components", wanted, 1, min(n, d), remedy) or 1)
    share = isinstance(wanted, Real) and not isinstance(wanted, bool) and 0 < float(wanted) < 1
    rule = wanted is None or (isinstance(wanted, str) and wanted in _RULES)
    if not share and not rule:
        raise InvalidInputError(
            f"Expected n_components to be None, a whole number, a share in (0, 1) or one of {_RULES}, "
            f"got {wanted!r}."
        )
    return min(n, d) if automatic(d) == "gauss" else min(n, d, _FOLLOWED)


def checked_options(estimator: Any) -> PcaOptions:
    """Return what the user fixed of the iterations."""
    step, momentum = estimator.step_size, estimator.momentum
    if step is not None:
        remedy = "It is relative to one over the largest singular value of a released product."
        step = check_positive("step_size", step, remedy)
    if momentum is not None and not (isinstance(momentum, Real) and 0 <= as_float(momentum) <= 1):
        raise InvalidInputError(f"Expected momentum in [0, 1], got {momentum!r}.")
    paid, size = "Each iteration is a paid release.", "It is an expected number of records."
    return PcaOptions(
        check_count("max_iter", estimator.max_iter, 1, None, paid),
        check_count("batch_size", estimator.batch_size, 1, None, size),
        step,
        check_count("n_oversamples", estimator.n_oversamples, 0, None, "20 is plenty."),
        None if momentum is None else float(momentum),
    )


def in_public_order(rows: Any, random_state: Any) -> Any:
    """Return the rows in a random order that nobody chose: batches by position then depend on no order."""
    public = public_generator(random_state)
    return rows[public.permutation(rows.shape[0])]


def public_facts(problem: PcaProblem, declared: Any) -> tuple[str, ...]:
    """Return what the report lists as assumed public."""
    return (
        f"number of records: {problem.population}",
        f"number of features: {problem.features}",
        bound_fact("data_norm", problem.data_norm, declared, "rows are clipped to it"),
    )
