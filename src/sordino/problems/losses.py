"""Losses of a linear predictor: value, residual (derivative in the margin) and their bounds.

``y`` is +-1 for two-class losses, a class number for the multinomial one, a real number otherwise (not below
zero for counts and amounts).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol, TypeGuard

import numpy as np
from scipy.special import expit, log_expit, log_softmax, softmax

from sordino.kernel.arrays import Bools, Floats, Ints
from sordino.kernel.clip import row_norms
from sordino.kernel.query import LOGISTIC, NUMBERS
from sordino.values import check_range

Targets = Literal["signs", "labels", "numbers", "counts"]
# exp of more is not a number; a prediction so large is wrong anyway.
_LARGEST_LOG = 700.0
# Amounts are learned in a unit in which their bound is this: on gamma laws with means of .002 to .3 of it,
# noisy descent then predicts their mean to 1 % (200,000 rows, epsilon 4), and to 12 % with 50.
_AMOUNTS = 10.0
# A quantile is rounded off over this part of the bound of the targets.
_ROUNDED = 0.002


@dataclass(frozen=True)
class Link:
    """What a margin is of the expected target.

    ``mean`` returns the expected number, and ``node`` is the same as an operator of ONNX; ``odds`` says
    whether a margin is the log odds of a label (of several classes, up to a constant).
    """

    name: str
    mean: Callable[[Floats], Floats] = field(default=lambda margins: margins)
    node: str = "Identity"
    odds: bool = False

    def probabilities(self, margins: Floats) -> Floats:
        """Return the probability of each class, from one column of log odds, or one for each class."""
        if margins.shape[1] > 1:
            return np.asarray(softmax(margins, axis=1))
        positive = expit(margins[:, 0])
        return np.stack([1 - positive, positive], axis=1)

    def log_probabilities(self, margins: Floats) -> Floats:
        """Return the logarithm of the probability of each class."""
        if margins.shape[1] > 1:
            return np.asarray(log_softmax(margins, axis=1))
        return np.stack([log_expit(-margins[:, 0]), log_expit(margins[:, 0])], axis=1)


IDENTITY = Link("identity")
LOG = Link("log", lambda margins: np.asarray(np.exp(np.minimum(margins, _LARGEST_LOG))), "Exp")
LOGIT = Link("logit", odds=True)
UNKNOWN = Link("none")


class Loss(Protocol):
    """A loss with its public bounds.

    ``lipschitz`` bounds the norm of the residual, ``curvature`` its derivative; inf where there is no
    bound (the query then clips). ``targets`` says what ``y`` is; margins are in units of "numbers". ``link``
    says what a margin is of the expected target: the number itself, its logarithm, log odds (of several
    classes, up to a constant), or nothing known. Predictions, probabilities, ONNX graphs and the range of
    the targets follow from these two. ``expected_curvature``, where a loss has it, is the second derivative
    at each margin, of a target that the margin expects: intervals rest on it.
    """

    targets: ClassVar[Targets]
    link: ClassVar[Link]

    @property
    def name(self) -> str: ...

    @property
    def lipschitz(self) -> float: ...

    @property
    def curvature(self) -> float: ...

    def value(self, margins: Floats, y: Floats) -> Floats:
        """Return the loss of each record."""

    def residual(self, margins: Floats, y: Floats) -> Floats:
        """Return the derivative of the loss in the margin of each record."""


class LabelModel(Protocol):
    """A loss whose margins are log odds: its residual has a bound that does not look at the label."""

    def largest_residual(self, margins: Floats) -> Floats:
        """Return the norm of the largest residual that any label would have."""


def has_odds(loss: Any) -> TypeGuard[LabelModel]:
    """Return whether margins are log odds; asked often, and ``isinstance`` of a protocol is slow."""
    return hasattr(loss, "largest_residual")


def has_length(loss: Loss) -> bool:
    """Return whether margins have a right length: log odds and numbers do."""
    return loss.targets == "numbers" or has_odds(loss)


def has_labels(loss: Loss) -> bool:
    """Return whether targets are classes, with log odds or without."""
    return loss.targets in ("signs", "labels")


def has_shares(loss: Loss) -> bool:
    """Return whether residuals are shares of what is expected, as those of amounts are."""
    return bool(getattr(loss, "shares", False))


def target_range(loss: Loss, bound: float) -> tuple[float, float]:
    """Return the range of targets up to a bound: counts begin at zero."""
    return (0.0 if loss.targets == "counts" else -bound), bound


def names_of_losses(*targets: Targets) -> tuple[str, ...]:
    """Return the names, as parameters spell them, of the losses of such targets."""
    return tuple(name.replace("-", "_") for name, loss in LOSSES.items() if loss.targets in targets)


def loss_options(loss: Loss) -> Mapping[str, str]:
    """Return the fields of a loss that a user sets, with the parameters of estimators that set them."""
    return getattr(loss, "options", {})


def sigmoid(margins: Floats) -> Floats:
    """Return ``1 / (1 + exp(-m))`` without overflow, in less time than SciPy's ``expit`` takes."""
    return np.exp(np.minimum(margins, 0.0)) / (1.0 + np.exp(-np.abs(margins)))


@dataclass(frozen=True)
class Logistic:
    r"""``log(1 + exp(-y m))``."""

    targets: ClassVar[Targets] = "signs"
    link: ClassVar[Link] = LOGIT
    name: str = "logistic"
    lipschitz: float = 1.0
    curvature: float = 0.25

    def value(self, margins: Floats, y: Floats) -> Floats:
        return np.logaddexp(0.0, -y * margins)

    def residual(self, margins: Floats, y: Floats) -> Floats:
        """Return ``-y sigmoid(-y m)``."""
        return -y * sigmoid(-y * margins)

    def expected_curvature(self, margins: Floats) -> Floats:
        return 1.0 / (2.0 + 2.0 * np.cosh(np.clip(margins, -_LARGEST_LOG, _LARGEST_LOG)))

    def largest_residual(self, margins: Floats) -> Floats:
        return 1.0 / (1.0 + np.exp(-np.abs(margins)))


@dataclass(frozen=True)
class Multinomial:
    r"""``-log softmax(m)_y``; the residual ``softmax(m) - e_y`` has norm at most sqrt 2.

    A label that is no class has the loss nan, so that its record contributes zero.
    """

    targets: ClassVar[Targets] = "labels"
    link: ClassVar[Link] = LOGIT
    name: str = "multinomial"
    lipschitz: float = math.sqrt(2.0)
    curvature: float = 0.5

    def value(self, margins: Floats, y: Floats) -> Floats:
        known, label = _labels(y, margins.shape[1])
        loss = -np.take_along_axis(log_softmax(margins, axis=1), label[:, None], 1)[:, 0]
        return np.where(known, loss, np.nan)

    def residual(self, margins: Floats, y: Floats) -> Floats:
        known, label = _labels(y, margins.shape[1])
        out: Floats = softmax(margins, axis=1)
        out[np.arange(len(y)), label] -= 1.0
        out[~known] = np.nan
        return out

    def largest_residual(self, margins: Floats) -> Floats:
        """Return the distance of the softmax to the one-hot label that is farthest away."""
        p: Floats = softmax(margins, axis=1)
        return np.sqrt(np.maximum(1.0 + row_norms(p) ** 2 - 2.0 * p.min(axis=1), 0.0))


def _labels(y: Floats, classes: int) -> tuple[Bools, Ints]:
    """Return which labels are classes, and the labels with 0 in place of the others."""
    known = (y >= 0) & (y < classes)
    return known, np.where(known, y, 0).astype(np.int64)


@dataclass(frozen=True)
class Squared:
    r"""``(m - y)^2 / 2``; not Lipschitz, so its gradient is clipped."""

    targets: ClassVar[Targets] = "numbers"
    link: ClassVar[Link] = IDENTITY
    name: str = "squared"
    lipschitz: float = math.inf
    curvature: float = 1.0

    def value(self, margins: Floats, y: Floats) -> Floats:
        return 0.5 * (margins - y) ** 2

    def residual(self, margins: Floats, y: Floats) -> Floats:
        return margins - y

    def expected_curvature(self, margins: Floats) -> Floats:
        return np.ones_like(margins)


@dataclass(frozen=True)
class Huber:
    r"""Squared up to an error of ``threshold``, linear beyond."""

    options: ClassVar[Mapping[str, str]] = {"threshold": "huber_threshold"}
    targets: ClassVar[Targets] = "numbers"
    link: ClassVar[Link] = IDENTITY
    threshold: float = 1.0
    name: str = "huber"
    curvature: float = 1.0

    @property
    def lipschitz(self) -> float:
        """The threshold."""
        return self.threshold

    def value(self, margins: Floats, y: Floats) -> Floats:
        error = np.abs(margins - y)
        inner = np.minimum(error, self.threshold)
        return inner * (error - 0.5 * inner)

    def residual(self, margins: Floats, y: Floats) -> Floats:
        return np.clip(margins - y, -self.threshold, self.threshold)


@dataclass(frozen=True)
class SquaredHinge:
    r"""``max(0, 1 - y m)^2 / 2``."""

    targets: ClassVar[Targets] = "signs"
    link: ClassVar[Link] = UNKNOWN
    name: str = "squared-hinge"
    lipschitz: float = math.inf
    curvature: float = 1.0

    def value(self, margins: Floats, y: Floats) -> Floats:
        return 0.5 * np.maximum(0.0, 1.0 - y * margins) ** 2

    def residual(self, margins: Floats, y: Floats) -> Floats:
        """Return ``-y max(0, 1 - y m)``."""
        return -y * np.maximum(0.0, 1.0 - y * margins)


@dataclass(frozen=True)
class PoissonLoss:
    r"""``exp(m) - y m``, the negative log likelihood of a count."""

    targets: ClassVar[Targets] = "counts"
    link: ClassVar[Link] = LOG
    name: str = "poisson"
    lipschitz: float = math.inf
    curvature: float = math.inf

    def value(self, margins: Floats, y: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return np.exp(margins) - y * margins

    def residual(self, margins: Floats, y: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return np.exp(margins) - y

    def expected_curvature(self, margins: Floats) -> Floats:
        """Return the expected count; one beyond e^100 is wrong anyway, and its square is finite."""
        return np.exp(np.minimum(margins, 100.0))


@dataclass(frozen=True)
class GammaLoss:
    r"""``m + y exp(-m)``, the negative log likelihood of a positive amount, as spread as it is large.

    Another unit of the targets only moves the intercept.
    """

    targets: ClassVar[Targets] = "counts"
    link: ClassVar[Link] = LOG
    shares: ClassVar[bool] = True
    name: str = "gamma"
    lipschitz: float = math.inf
    curvature: float = math.inf

    def value(self, margins: Floats, y: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return margins + y * np.exp(-margins)

    def residual(self, margins: Floats, y: Floats) -> Floats:
        """Return one minus the observed part of what is expected."""
        with np.errstate(over="ignore"):
            return 1.0 - y * np.exp(-margins)

    def expected_curvature(self, margins: Floats) -> Floats:
        return np.ones_like(margins)

    def at_bound(self, bound: float) -> tuple[Loss, float]:
        """Return the loss and the unit of targets up to a bound, in which margins of zero are no extreme."""
        return self, bound / _AMOUNTS


@dataclass(frozen=True)
class QuantileLoss:
    r"""Huber's loss of an error e, and ``(1 - 2 q) threshold e``: twice the check loss, rounded off.

    Its minimum is the quantile q of the targets as the threshold t goes to zero. Its derivative is ``2 t``
    times the share of an interval of ``2 t`` around the target that is below the margin, less q.
    """

    options: ClassVar[Mapping[str, str]] = {"quantile": "quantile"}
    targets: ClassVar[Targets] = "numbers"
    link: ClassVar[Link] = IDENTITY
    quantile: float = 0.5
    threshold: float = 1.0
    name: str = "quantile"
    curvature: float = 1.0

    def __post_init__(self) -> None:
        check_range("quantile", self.quantile, "(0, 1)")

    @property
    def lipschitz(self) -> float:
        """The threshold on the steeper side."""
        return 2.0 * max(self.quantile, 1.0 - self.quantile) * self.threshold

    @property
    def _tilt(self) -> float:
        return (1.0 - 2.0 * self.quantile) * self.threshold

    def value(self, margins: Floats, y: Floats) -> Floats:
        """Return the loss of each record; a constant makes the least one zero."""
        tilted = self._tilt * (margins - y) + 0.5 * self._tilt**2
        return Huber(self.threshold).value(margins, y) + tilted

    def residual(self, margins: Floats, y: Floats) -> Floats:
        return Huber(self.threshold).residual(margins, y) + self._tilt

    def at_bound(self, bound: float) -> tuple[Loss, float]:
        """Return the loss with a threshold that is small for targets up to a bound, and their unit."""
        return replace(self, threshold=_ROUNDED * bound), 1.0


def at_bound(loss: Loss, bound: float) -> tuple[Loss, float]:
    """Return a loss as it is for targets up to a declared bound, and the unit in which they are learned."""
    own = getattr(loss, "at_bound", None)
    return (loss, 1.0) if own is None else own(bound)


def residual_in(loss: Loss, margins: Floats, y: Floats, unit: float) -> Floats:
    """Return residuals in a unit of the targets, which margins of numbers are in, and widths of quantiles."""
    if isinstance(loss, QuantileLoss):
        return loss.residual(margins, y / unit)
    return loss.residual(margins * (unit if loss.targets == "numbers" else 1.0), y) / unit


def compiled_form(loss: Loss) -> tuple[int, float] | None:
    """Return the number of a loss in a :class:`~sordino.kernel.query.Pull` and its threshold, or None."""
    if type(loss) is Logistic:
        return LOGISTIC, math.inf
    if type(loss) is Huber:
        return NUMBERS, loss.threshold
    return (NUMBERS, math.inf) if type(loss) is Squared else None


LOSSES: dict[str, Loss] = {
    loss.name: loss
    for loss in (
        Logistic(),
        Multinomial(),
        Squared(),
        Huber(),
        SquaredHinge(),
        PoissonLoss(),
        GammaLoss(),
        QuantileLoss(),
    )
}


# ------ Penalties on coefficients: functions of released points, so they are free and stay outside the clip


class Penalty(Protocol):
    """A smooth function of the coefficients; ``curvature`` bounds its second derivative."""

    @property
    def curvature(self) -> float:
        """The largest second derivative, by magnitude."""

    def value(self, w: Floats) -> float:
        """Return the penalty of a point."""

    def gradient(self, w: Floats) -> Floats:
        """Return its gradient."""


@dataclass(frozen=True)
class _Weighted:
    alpha: float

    def __post_init__(self) -> None:
        check_range("alpha", self.alpha, "[0, inf)")


@dataclass(frozen=True)
class Ridge(_Weighted):
    r"""``alpha ||w||^2 / 2``."""

    @property
    def curvature(self) -> float:
        return self.alpha

    def value(self, w: Floats) -> float:
        return 0.5 * self.alpha * float(np.square(w).sum())

    def gradient(self, w: Floats) -> Floats:
        """Return ``alpha w``."""
        return self.alpha * w


@dataclass(frozen=True)
class Nonconvex(_Weighted):
    r"""``alpha sum_j w_j^2 / (1 + w_j^2)``: it levels off, so large coefficients are not shrunk.

    Examples
    --------
    >>> import numpy as np
    >>> Nonconvex(0.5).value(np.array([0.0, 1.0, 1e9]))
    0.75
    """

    @property
    def curvature(self) -> float:
        return 2 * self.alpha

    def value(self, w: Floats) -> float:
        return self.alpha * float((1.0 - 1.0 / (1.0 + np.square(np.minimum(np.abs(w), 1e100)))).sum())

    def gradient(self, w: Floats) -> Floats:
        """Return ``2 alpha w / (1 + w^2)^2``, without overflow."""
        bounded = np.clip(w, -1e70, 1e70)
        return 2 * self.alpha * bounded / np.square(1.0 + np.square(bounded))


def label_targets(codes: Any, classes: int) -> Any:
    """Return what a loss wants for class numbers: -1 and 1 for two classes, the numbers for more."""
    return 2.0 * codes - 1.0 if classes == 2 else codes.astype(np.float64)
