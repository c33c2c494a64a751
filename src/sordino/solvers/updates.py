"""Update rules on released gradients: one set for arrays and for tensors, free post-processing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from sordino.errors import InvalidInputError
from sordino.values import check_range

# The gradient of a linear model is an array, that of a network a tensor; what is used here has the same name
# in NumPy and torch.
Vector = Any
Slots = dict[str, Vector]


def namespace(vector: Vector) -> Any:
    """Return the library of a vector: NumPy of arrays, torch of tensors."""
    return np if isinstance(vector, np.ndarray) else import_module("torch")


class UpdateRule(Protocol):
    """Turns released gradients into steps; ``slots`` are its memory."""

    def start(self, vector: Vector) -> Slots:
        """Return the memory before the first step."""

    def step(self, gradient: Vector, slots: Slots) -> tuple[Vector, Slots]:
        """Return the direction (to be multiplied by minus the learning rate) and the new memory."""


@dataclass(frozen=True)
class Sgd:
    """Gradient descent with (Nesterov) momentum on released gradients."""

    momentum: float = 0.9
    nesterov: bool = False

    def __post_init__(self) -> None:
        check_range("momentum", self.momentum, "[0, 1)")

    def start(self, vector: Vector) -> Slots:
        return {"momentum": namespace(vector).zeros_like(vector)} if self.momentum else {}

    def step(self, gradient: Vector, slots: Slots) -> tuple[Vector, Slots]:
        """Return the momentum, or one step ahead of it."""
        if not self.momentum:
            return gradient, slots
        momentum = self.momentum * slots["momentum"] + gradient
        ahead = gradient + self.momentum * momentum if self.nesterov else momentum
        return ahead, {"momentum": momentum}


@dataclass(frozen=True)
class Adam:
    """Adam on released gradients."""

    beta1: float = 0.9
    beta2: float = 0.999
    stability: float = 1e-8

    def __post_init__(self) -> None:
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1):
            raise InvalidInputError(f"Expected beta1 and beta2 in [0, 1), got {self.beta1} and {self.beta2}.")

    def start(self, vector: Vector) -> Slots:
        xp = namespace(vector)
        count = 0.0 if xp is np else xp.zeros((), device=vector.device)
        return {"first": xp.zeros_like(vector), "second": xp.zeros_like(vector), "count": count}

    def step(self, gradient: Vector, slots: Slots, noise: Vector | None = None) -> tuple[Vector, Slots]:
        """Return the first moment over the root of the second, both unbiased.

        ``noise`` is a known variance that the second moment is freed from, down to a hundredth of it.
        """
        xp, count = namespace(gradient), slots["count"] + 1
        first = self.beta1 * slots["first"] + (1 - self.beta1) * gradient
        second = self.beta2 * slots["second"] + (1 - self.beta2) * xp.square(gradient)
        level = second / (1 - self.beta2**count)
        level = level if noise is None else xp.maximum(level - noise, noise * 1e-2)
        scale = xp.sqrt(level) + self.stability
        return first / (1 - self.beta1**count) / scale, {"first": first, "second": second, "count": count}


@dataclass(frozen=True)
class HardThreshold:
    """Keep the ``count`` parameters of largest magnitude, the others become zero.

    ``after`` is the share of the run that stays dense: support found late is found better.
    """

    count: int
    after: float = 0.0

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 <= self.after <= 1:
            raise InvalidInputError(
                f"Expected count >= 1 and after in [0, 1], got {self.count} and {self.after}."
            )

    def project(self, vector: Vector, progress: float) -> Vector:
        """Return the thresholded vector; ``progress`` runs from 0 to 1, the last step included."""
        if self.count >= vector.numel() or (progress < 1 and progress < self.after):
            return vector
        torch = namespace(vector)
        best = torch.topk(vector.abs(), self.count, sorted=False).indices
        return torch.zeros_like(vector).index_copy(0, best, vector[best])


def constant(progress: float) -> float:
    """Keep the learning rate."""
    return 1.0


def linear(progress: float) -> float:
    """Let the learning rate fall to zero in a straight line."""
    return 1.0 - progress


def cosine(progress: float) -> float:
    """Let the learning rate fall to zero along half a cosine."""
    return 0.5 * (1.0 + math.cos(math.pi * progress))


@dataclass(frozen=True)
class WarmUp:
    """Let the learning rate rise in a straight line for a share of the run, then follow another schedule."""

    share: float
    then: Callable[[float], float]

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InvalidInputError(f"Expected a share of the run in (0, 1), got {self.share}.")

    def __call__(self, progress: float) -> float:
        """Return the factor at this progress."""
        if progress < self.share:
            return progress / self.share
        return self.then((progress - self.share) / (1 - self.share))


def warm_up(share: float = 0.1, then: str | Callable[[float], float] = "cosine") -> WarmUp:
    """Return a schedule that rises for a share of the run and then follows another (a name or a function)."""
    return WarmUp(share, schedule_of(then))


SCHEDULES: dict[str, Callable[[float], float]] = {"constant": constant, "cosine": cosine, "linear": linear}


def schedule_of(value: str | Callable[[float], float]) -> Callable[[float], float]:
    """Return a schedule by name, or the given function of the progress in [0, 1)."""
    if callable(value):
        return value
    if value not in SCHEDULES:
        raise InvalidInputError(
            f"Expected schedule in {sorted(SCHEDULES)} or a function of the progress, got {value!r}."
        )
    return SCHEDULES[value]


def recursive_direction(direction: Vector, correction: Vector, gamma: float) -> Vector:
    """Return the next direction of DP-SRM: the released correction on what is kept of the last direction."""
    return (1 - gamma) * direction + correction


def smooth_vector(vector: Vector, strength: float, kept: int = 0) -> Vector:
    r"""Return ``A^{-1} v`` with A = I - strength * Laplacian on a circle, by the fast Fourier transform.

    A is circulant, ``1 + 2 s`` on the diagonal and ``-s`` beside it, so its eigenvalues are
    ``1 + 2 s (1 - cos(2 pi k / d))``. Each output is smoothed on its own over its features; the last
    ``kept`` columns (the intercept) have no neighbours. Sums are kept and norms never grow.

    Examples
    --------
    >>> import numpy as np
    >>> smooth_vector(np.array([4.0, 0.0, 0.0, 0.0]), 1.0).round(3).tolist()
    [1.867, 0.8, 0.533, 0.8]
    """
    if not strength:
        return vector
    xp, d = namespace(vector), vector.shape[-1] - kept
    k = xp.arange(d // 2 + 1, device=vector.device, dtype=vector.dtype)
    eigenvalues = 1 + 2 * strength * (1 - xp.cos(2 * math.pi * k / d))
    smooth = xp.fft.irfft(xp.fft.rfft(vector[..., :d]) / eigenvalues, n=d)
    return xp.concatenate([smooth, vector[..., d:]], axis=-1) if kept else smooth


def smooth_layers(vector: Vector, sizes: tuple[int, ...], strength: float) -> Vector:
    """Smooth each parameter tensor on its own: neighbours in different layers have nothing in common."""
    if not strength:
        return vector
    parts = [smooth_vector(part, strength) for part in vector.split(list(sizes))]
    return namespace(vector).concatenate(parts)
