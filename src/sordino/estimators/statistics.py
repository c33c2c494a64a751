"""Private means, variances, covariances and quantiles of data without bounds."""

from __future__ import annotations

import math
import warnings
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from sordino.checks import check_data, check_noise, literature, remember
from sordino.errors import (
    InvalidInputError,
    InvalidTypeError,
    UndeclaredBoundWarning,
    UnsupportedError,
    levels_to_the_caller,
)
from sordino.execute import executor_of, hold_numbers
from sordino.kernel import PaperNoise, Relation, public_generator
from sordino.private_estimator import PrivateEstimator
from sordino.problems.robust import Sample, Truncation
from sordino.runs import Ask, Fitted, Price, PrivacyReport, Task, run
from sordino.runs.report import Fact, Source, at_most, each_once
from sordino.solvers import statistic
from sordino.solvers.heavy.location import UNLIMITED, RobustEstimate
from sordino.tables.columns import Column
from sordino.values import among, check_count, check_flag, check_positive, check_range, refusing

# --------------------------------------------------------------------- Numbers that remember what they cost


class PrivateFloat(float):
    """A released number: a float with ``privacy`` (the report), ``interval`` and ``threshold``.

    A score also has ``baseline``, what the best constant scores and its standard error,
    ``model``, the digest of what was scored, and ``metric``. None of it can be set to something else.
    """

    privacy: PrivacyReport
    interval: tuple[float, float]
    threshold: float | None
    baseline: tuple[float, float] | None
    model: str
    metric: str

    def __new__(
        cls,
        value: float,
        privacy: PrivacyReport,
        interval: tuple[float, float],
        threshold: float | None = None,
        baseline: tuple[float, float] | None = None,
        model: str = "",
        metric: str = "",
    ) -> PrivateFloat:
        """Attach what is known about the number."""
        out, facts = super().__new__(cls, value), (privacy, interval, threshold, baseline, model, metric)
        out.__dict__.update(zip(PrivateFloat.__annotations__, facts, strict=True))
        return out

    def __setattr__(self, name: str, value: Any) -> None:
        raise InvalidInputError(f"Expected nobody to set {name}: it is what was released with the number.")

    def __delattr__(self, name: str) -> None:
        self.__setattr__(name, None)

    def __repr__(self) -> str:
        return f"{float(self)!r} (epsilon = {at_most(self.privacy.epsilon)})"

    def __str__(self) -> str:
        return repr(float(self))

    def __getnewargs__(self) -> tuple[Any, ...]:
        return float(self), *self.__dict__.values()


class PrivateArray(np.ndarray):
    """Released numbers: an array with ``privacy``, ``interval`` (two arrays) and ``threshold``.

    What is computed from it is a plain array of released numbers without these attributes (they are None).
    """

    privacy: PrivacyReport | None
    interval: tuple[np.ndarray, np.ndarray] | None
    threshold: np.ndarray | None

    def __new__(
        cls,
        value: np.ndarray,
        privacy: PrivacyReport,
        interval: tuple[np.ndarray, np.ndarray],
        threshold: np.ndarray | None = None,
    ) -> PrivateArray:
        """Attach what is known about the numbers."""
        out = np.array(value, dtype=float).view(cls)
        out.privacy, out.interval, out.threshold = privacy, interval, threshold
        return out

    def __array_finalize__(self, source: Any) -> None:
        self.privacy = self.interval = self.threshold = None

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (np.asarray(self), self.privacy, self.interval, self.threshold)
        return PrivateArray, parts


# ---------- What statistics are asked with: numbers, probabilities, bounds and moments, checked at the door


def check_numbers(x: Any, least: int = 1) -> tuple[np.ndarray, bool]:
    """Return the rows as doubles, and whether they were plain numbers."""
    elsewhere: Any = hold_numbers(x)
    if elsewhere is not None:
        if len(elsewhere[0]) < least:
            raise InvalidInputError(f"Expected {least} or more records, got {len(elsewhere[0])}.")
        return elsewhere
    data = refusing(lambda: _doubles(x), x)
    if data.ndim not in (1, 2) or data.shape[0] < least or data.size == 0:
        raise InvalidInputError(
            f"Expected {least} or more numbers or rows of numbers, got shape {data.shape}."
        )
    if not np.isfinite(data).all():
        raise InvalidInputError(
            "Expected finite numbers, got NaN or inf. Drop or replace them by a public rule."
        )
    return (data[:, None], True) if data.ndim == 1 else (data, False)


def _doubles(x: Any) -> np.ndarray:
    """Return real numbers as doubles; the caller refuses what raises."""
    raw = np.asarray(x)
    if raw.dtype.kind == "c":
        raise ValueError("complex data")
    if raw.dtype.kind in "SUMmV":
        raise TypeError("could not convert")
    with np.errstate(all="ignore"):
        return raw.astype(float)


def moment_order_of(value: Any) -> float:
    """Return v, checked."""
    return check_range("moment_order", value, "(0, 1]", "A moment of order 1 + v exists: 1 is the variance.")


def moment_bound_of(value: Any) -> float | None:
    """Return u, checked; None for "auto"."""
    if isinstance(value, str):
        among("moment_bound", value, ("auto",))
        return None
    return check_positive("moment_bound", value, "Pass 'auto' to learn the scale privately.")


def check_share(name: str, value: Any) -> float:
    """Return a probability strictly between 0 and 1."""
    return check_range(name, value, "(0, 1)", "Pass a probability.")


def check_probabilities(q: Any) -> np.ndarray:
    """Return the probabilities of quantiles, one or several."""
    try:
        wanted = np.atleast_1d(np.asarray(q, dtype=float))
    except (TypeError, ValueError, OverflowError):
        wanted = np.empty(0)
    if wanted.ndim != 1 or wanted.size == 0 or not ((wanted >= 0) & (wanted <= 1)).all():
        raise InvalidInputError("Expected q in [0, 1], one number or a list, got others.")
    return wanted


def check_bounds(bounds: Any) -> tuple[float, float] | None:
    """Return public limits low < high, of a column of a schema too; None for none."""
    if bounds is None:
        return None
    if isinstance(bounds, Column):
        bounds = (getattr(bounds, "low", None), getattr(bounds, "high", None))
    try:
        low, high = (float(b) for b in bounds)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError("Expected bounds as two numbers low < high, got something else.") from None
    if not -np.inf < low < high < np.inf:
        raise InvalidInputError(f"Expected finite bounds low < high, got {low:g} and {high:g}.")
    if not high / 2.0 - low / 2.0 > 0.0:  # it is a unit that numbers are divided by
        raise InvalidInputError(f"Expected bounds farther apart than {low:g} and {high:g}. Change the unit.")
    return low, high


def prices_of(*declared: Any) -> tuple[Price, ...]:
    """Return what was paid for the columns of a schema that stand among bounds or levels."""
    return each_once(p for item in declared if isinstance(item, Column) for p in item.learned)


def bounds_fact(limits: tuple[float, float], declared: Any) -> Fact:
    """Return the line of a report for public limits of numbers."""
    origin = Source.LEARNED if prices_of(declared) else Source.DECLARED
    return Fact(f"bounds = [{limits[0]:g}, {limits[1]:g}] (numbers are clipped to them)", origin)


ESTIMATORS = ("truncated", "median-of-means")


def mean(
    x: Any,
    epsilon: float = 1.0,
    delta: float | None = None,
    *,
    moment_order: float | None = None,
    moment_bound: float | str = "auto",
    estimator: str = "truncated",
    truncation: str = "clip",
    joint_clip: float | None = None,
    threshold: float | None = None,
    center: Any = "auto",
    bounds: tuple[float, float] | None = None,
    failure_probability: float = 0.05,
    confidence: float = 0.95,
    relation: str = "add-remove",
    secure_noise: bool = True,
    noise: str = "sound",
    ledger: Any = None,
    dataset_id: str | None = None,
) -> PrivateFloat | PrivateArray:
    r"""Return the private mean, a float or array with ``privacy``, ``interval`` and ``threshold``.

    The data need no bound, only a moment of order 1 + v: ``mean_i truncate(x_i - center, t) + center +
    noise`` with the threshold t where bias and noise balance; no private estimator can beat its rate.

    Parameters
    ----------
    x : n numbers, or n rows of d numbers (one record per row).
    epsilon, delta : the budget; ``delta=None`` means ``min(1e-5, 1 / (10 n))``.
    moment_order : v in (0, 1]; 1 for a finite variance. None cuts as for 1; its interval trusts counts alone.
    moment_bound : u with ``E|x - center|^(1+v) <= u``, or "auto": a noisy histogram over powers of two finds
        the scale, for a tenth of the budget.
    estimator : "truncated", or "median-of-means" (of ``4 ln(2 d / xi)`` blocks, that many times the noise).
    truncation : "clip", or "zero" as in the paper (more bias).
    joint_clip : clip truncated rows to this Euclidean norm in units of the threshold; removes sqrt(d).
    threshold : a public threshold instead of a chosen one. Both hide an unknown bias: no finite interval.
    center : values are truncated around it: a public number, or "auto", a rough private median for another
        tenth of the budget (0 where ``moment_bound`` or ``threshold`` is given).
    bounds : public limits, or a schema's column: numbers are clipped to them, and the plain mean counts too.
    failure_probability : xi in the threshold of a given moment bound and in the number of blocks.
    confidence : of ``.interval``, if ``moment_bound`` holds; for "auto", if past the last octave the tail
        falls like t^-(1+v) (no slower than before, if v is None). An end that counts do not limit is open.
    relation, ledger, dataset_id : as in the estimators.
    secure_noise : exact noise on a lattice, which no artefact of floating point gives away.
    noise : "sound"; "paper" runs DPODME (or DPHDME, by blocks) as printed and reports what it certifies.

    **Privacy.** (epsilon, delta)-DP for one record, whatever the data: the moment matters for accuracy only.

    Examples
    --------
    >>> import numpy as np, sordino
    >>> x = np.arange(1, 10001) ** 1.5
    >>> low, high = sordino.mean(x, epsilon=1.0).interval
    >>> bool(low < x.mean() < high)
    True
    """
    data, flat = check_numbers(x)
    limits, data = _clip_to_bounds(bounds, data)
    xi, bound = check_share("failure_probability", failure_probability), moment_bound_of(moment_bound)
    among("truncation", truncation, ("clip", "zero"))
    order = 1.0 if moment_order is None else moment_order_of(moment_order)
    if joint_clip is not None:
        joint_clip = check_positive("joint_clip", joint_clip, "It is in units of the threshold.")
    where = _center(center, data.shape[1:], learns=bound is None and threshold is None)
    sample = _sample(data, relation, secure_noise)
    solver = statistic(
        "truncated-mean",
        sample,
        order=order,
        bound=bound,
        center=where,
        truncation=Truncation(zero=truncation == "zero", joint=joint_clip),
        blocks=_blocks(estimator, data.shape, xi),
        fixed=None if threshold is None else check_positive("threshold", threshold, _PUBLIC),
        failure=xi,
        confidence=check_share("confidence", confidence),
        declared=moment_order is not None,
        bounds=limits or UNLIMITED,
    )
    paper: PaperNoise | None = None
    budget = Ask.checked(epsilon, delta, len(data), ledger, dataset_id)
    if check_noise(noise):
        solver, paper = literature("linear", "published_mean")(solver, sample, budget)
    elif solver.takes_plain:
        solver = statistic("bounded-mean", sample, robust=solver, once=budget.ledger is None)
    return _estimate("mean", _run("mean", solver, sample, data, budget, bounds, paper), flat)


def variance(
    x: Any,
    epsilon: float = 1.0,
    delta: float | None = None,
    *,
    moment_order: float | None = None,
    bounds: tuple[float, float] | None = None,
    confidence: float = 0.95,
    relation: str = "add-remove",
    secure_noise: bool = True,
    ledger: Any = None,
    dataset_id: str | None = None,
) -> PrivateFloat | PrivateArray:
    r"""Return the private variance of each column: ``mean (x - c)^2 - (mean (x - c))^2``, truncated around c.

    c is a rough private median, so a shift of the data changes nothing, nor does the order of the rows.
    ``moment_order`` is the v of the *squared* distances: 0.5 needs a third moment of x; None cuts as for 0.5.
    Other parameters, the result and the meaning of ``.interval`` as in :func:`mean`.

    **Privacy.** (epsilon, delta)-DP for one record.
    """
    data, flat = check_numbers(x, least=2)
    limits, data = _clip_to_bounds(bounds, data)
    sample = _sample(data, relation, secure_noise)
    solver = statistic(
        "variance",
        sample,
        order=0.5 if moment_order is None else moment_order_of(moment_order),
        confidence=check_share("confidence", confidence),
        declared=moment_order is not None,
        bounds=limits or UNLIMITED,
    )
    budget = Ask.checked(epsilon, delta, len(data), ledger, dataset_id)
    if limits is not None:
        solver = statistic("bounded-variance", sample, robust=solver, once=budget.ledger is None)
    return _estimate("variance", _run("variance", solver, sample, data, budget, bounds), flat)


def covariance(
    x: Any,
    epsilon: float = 1.0,
    delta: float | None = None,
    *,
    moment_order: float = 0.5,
    bounds: tuple[float, float] | None = None,
    confidence: float = 0.95,
    relation: str = "add-remove",
    random_state: Any = None,
    secure_noise: bool = True,
    ledger: Any = None,
    dataset_id: str | None = None,
) -> PrivateFloat | PrivateArray:
    r"""Return the private covariance matrix of rows, from truncated outer products of pair differences.

    Rows are paired by a public random permutation (``random_state``), so their order does not matter.
    Positive semidefinite. Columns may have different scales, which are learned. Parameters as in
    :func:`variance`; the interval is for single entries and wide, since it bounds each by the whole row.
    ``bounds`` are those of all columns.

    **Privacy.** (epsilon, delta)-DP for one record. A record is in one pair, whatever the data.
    """
    data, _ = check_numbers(x, least=2)
    limits, data = _clip_to_bounds(bounds, data)
    public = public_generator(random_state)
    if isinstance(data, np.ndarray):  # what is held elsewhere has no pairs, and the plan is refused
        data = data[public.permutation(len(data))]
    sample = _sample(data, relation, secure_noise)
    order, share = moment_order_of(moment_order), check_share("confidence", confidence)
    solver = statistic("covariance", sample, order=order, confidence=share)
    if limits is not None:
        solver = statistic("bounded-covariance", sample, robust=solver, bounds=limits)
    budget = Ask.checked(epsilon, delta, len(data), ledger, dataset_id)
    return _estimate("covariance", _run("covariance", solver, sample, data, budget, bounds), False)


def quantiles(
    x: Any,
    q: Any,
    epsilon: float = 1.0,
    delta: float | None = None,
    *,
    bounds: tuple[float, float] | None = None,
    resolution: int | None = None,
    confidence: float = 0.95,
    relation: str = "add-remove",
    secure_noise: bool = True,
    ledger: Any = None,
    dataset_id: str | None = None,
) -> PrivateFloat | PrivateArray:
    r"""Return private quantiles: any number of them for the price of one.

    Up to nine (three where a ledger adds up, columns counted one by one) are chosen together by an
    exponential mechanism on ranks; more, and intervals, are read off a tree of counts with Gaussian noise.

    Parameters
    ----------
    x : n numbers, or n rows of d numbers.
    q : one probability or several, in [0, 1].
    bounds : public limits, which may be far too wide: with enough records a rough median and the median
        distance from it are chosen first, and cells grow from there. With few records an interval ends at
        the bounds.
    resolution : there are ``2**resolution`` cells, 2 to 20; answers are no finer than a cell. None: 16, fewer
        for many columns.
    confidence : the probability with which ``.interval`` covers all sample quantiles at q: the records of
        rank q n - 1 to q n + 1 and what is between them, whichever definition you use, with any number of
        ties. Ends are borders of cells; without bounds an end beyond the last cell is infinite, with bounds
        records beyond count as the nearer one. It covers the population's quantile as well, in the normal
        approximation of ranks.
    relation, secure_noise, ledger, dataset_id : as in :func:`mean`.

    **Privacy.** (epsilon, delta)-DP for one record: selections by rank, and counts with Gaussian noise.
    """
    data, flat = check_numbers(x)
    wanted = check_probabilities(q)
    sample = _sample(data, relation, secure_noise)
    budget = Ask.checked(epsilon, delta, len(data), ledger, dataset_id)
    solver = statistic(
        "quantiles",
        sample,
        probabilities=tuple(wanted.tolist()),
        epsilon=budget.epsilon,
        bounds=check_bounds(bounds),
        depth=check_count("resolution", resolution, 2, 20, "There are 2**resolution cells."),
        confidence=check_share("confidence", confidence),
        once=budget.ledger is None,
    )
    fitted = _run("quantiles", solver, sample, data, budget, bounds)
    ranks = fitted.result
    values = [a[:, 0] if flat else a for a in (ranks.value, ranks.low, ranks.high)]
    if np.ndim(q) == 0:
        values = [a[0] for a in values]
    return _wrap(values[0], fitted.report, (values[1], values[2]), None)


_OPEN = (
    "The released counts do not rule out that records too far out to be seen hold most of the {name}, so its "
    "interval has no end on that side. Declare bounds= (or moment_order=, if you know how heavy the tail is) "
    "or ask for a median: quantiles(x, 0.5). The guarantee is not affected."
)
_PUBLIC = "Pass a public number; computing it from the data would leak."


def _estimate(name: str, fitted: Fitted, flat: bool) -> PrivateFloat | PrivateArray:
    found: RobustEstimate = fitted.result
    ends = found.interval
    if found.open:
        warnings.warn(_OPEN.format(name=name), UndeclaredBoundWarning, stacklevel=levels_to_the_caller())
    if flat:
        ends = (ends[0][0], ends[1][0])
        return _wrap(found.value[0], fitted.report, ends, found.threshold[0])
    return _wrap(found.value, fitted.report, ends, found.threshold)


def _run(
    name: str,
    solver: Any,
    sample: Sample,
    data: np.ndarray,
    ask: Ask,
    bounds: Any,
    paper: PaperNoise | None = None,
) -> Fitted:
    """Run a statistic; public bounds are listed, and what was paid for them comes on top."""
    limits = check_bounds(bounds)
    said = () if limits is None else (bounds_fact(limits, bounds),)
    columns = Fact(f"number of columns: {sample.columns}", Source.SHAPE)
    public = (Fact.number_of("record", sample.population), columns, *said)
    task = Task(solver, sample, name, public, learned=prices_of(bounds), paper=paper)
    return run(task, executor_of(data, None, data_norm=None), ask)


def _wrap(value: Any, report: Any, ends: Any, threshold: Any) -> PrivateFloat | PrivateArray:
    if np.ndim(value) == 0:
        cut = None if threshold is None else float(threshold)
        return PrivateFloat(float(value), report, (float(ends[0]), float(ends[1])), cut)
    return PrivateArray(value, report, ends, threshold)


def _clip_to_bounds(bounds: Any, data: Any) -> tuple[tuple[float, float] | None, Any]:
    """Return the public limits, and the numbers clipped to them."""
    limits = check_bounds(bounds)
    if limits is None:
        return None, data
    if not isinstance(data, np.ndarray):
        raise UnsupportedError(
            "bounds= needs numbers in memory. Clip them where they lie, or leave bounds out."
        )
    return limits, np.clip(data, *limits)


def _sample(data: np.ndarray, relation: str, secure: bool) -> Sample:
    rows, columns = data.shape
    flag = check_flag("secure_noise", secure)
    return Sample(rows, columns, Relation.parse(relation), secure_noise=flag)


def _center(center: Any, shape: tuple[int, ...], learns: bool) -> np.ndarray | None:
    if isinstance(center, str):
        among("center", center, ("auto",))
        return None if learns else np.zeros(shape)
    try:
        value = np.broadcast_to(np.asarray(center, dtype=float), shape)
    except (TypeError, ValueError, OverflowError):
        value = np.full(shape, np.nan)
    if not np.isfinite(value).all():
        raise InvalidInputError(f"Expected center as 'auto' or finite numbers of shape {shape}, got others.")
    return value


def _blocks(estimator: str, shape: tuple[int, ...], xi: float) -> int:
    """Return the number of blocks: an odd number about ``4 ln(2 d / xi)``, at most that of the records."""
    among("estimator", estimator, ESTIMATORS)
    if estimator == "truncated":
        return 1
    wanted = math.ceil(4.0 * math.log(2.0 * shape[1] / xi))
    return min(wanted, shape[0] - 1) | 1 if shape[0] > 1 else 1


# ---------------------------------------------------------- Robust private means as scikit-learn estimators


class TruncatedMean(PrivateEstimator):
    r"""The mean of truncated rows with Gaussian noise (Algorithm 1 of the paper, DPODME, for any dimension).

    Parameters
    ----------
    epsilon, delta, moment_order, moment_bound, truncation, joint_clip : as in :func:`sordino.mean`.
    threshold, center, failure_probability, confidence, relation, secure_noise, ledger, dataset_id : as there.

    Attributes
    ----------
    location_ : the private mean of each column.
    interval_ : the lower and the upper ends.
    threshold_ : where each column was truncated.
    privacy_ : the :class:`sordino.PrivacyReport` of the fit.

    **Privacy.** ``location_``, ``interval_`` and ``threshold_`` are (epsilon, delta)-DP for one row.

    Examples
    --------
    >>> import numpy as np
    >>> from sordino import TruncatedMean
    >>> TruncatedMean(epsilon=1.0).fit(np.sinh(np.linspace(-6, 6, 3000))[:, None]).location_.shape
    (1,)
    """

    _estimator: ClassVar[str] = "truncated"

    location_: np.ndarray
    interval_: tuple[np.ndarray, np.ndarray]
    threshold_: np.ndarray

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        moment_order: float | None = None,
        moment_bound: float | str = "auto",
        truncation: str = "clip",
        joint_clip: float | None = None,
        threshold: float | None = None,
        center: Any = "auto",
        failure_probability: float = 0.05,
        confidence: float = 0.95,
        relation: str = "add-remove",
        secure_noise: bool = True,
        ledger: Any = None,
        dataset_id: str | None = None,
    ) -> None:
        remember(self, locals())

    def fit(self, X: Any, y: Any = None) -> TruncatedMean:
        """Estimate the mean; the budget is spent here. ``y`` is ignored."""
        X = check_data(self, X)
        if sparse.issparse(X):
            raise InvalidTypeError("Expected a dense matrix, got a sparse one. Convert it with X.toarray().")
        found: Any = mean(X, estimator=self._estimator, **self.get_params(deep=False))
        self.location_ = np.asarray(found)
        self.interval_, self.threshold_, self.privacy_ = found.interval, found.threshold, found.privacy
        return self._attested()


class MedianOfMeans(TruncatedMean):
    r"""The coordinate-wise median of truncated block means with noise (Algorithm 3, DPHDME).

    ``4 ln(2 d / xi)`` blocks, so that many times the noise of :class:`TruncatedMean`.
    Parameters and attributes are the same.

    **Privacy.** ``location_``, ``interval_`` and ``threshold_`` are (epsilon, delta)-DP for one row.
    """

    _estimator: ClassVar[str] = "median-of-means"
