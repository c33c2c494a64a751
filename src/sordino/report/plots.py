"""Plots of coefficients, curves and principal axes, in one style."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sordino.errors import InvalidInputError
from sordino.estimators.metrics import CalibrationCurve
from sordino.estimators.pca import PCA
from sordino.kernel.arrays import Floats
from sordino.runs.report import at_most
from sordino.values import plain_number

# ----- One style for all plots: colours that everybody can tell apart, log axes whose labels do not overlap

# Okabe and Ito's palette, without its yellow, which paper swallows.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
BLUE, GREY, BAND = COLOURS[0], "0.45", "0.88"
_MOST_LABELS = 7


def new_axes(width: float = 6.0, height: float = 3.5) -> Any:
    """Return the axes of a new figure; it is the current one, so that ``plt.savefig`` writes it."""
    from matplotlib import pyplot

    return style_axes(pyplot.figure(figsize=(width, height), layout="constrained").add_subplot())


def style_axes(axes: Any) -> Any:
    """Give axes the colours and lines of the house, and return them."""
    axes.set_prop_cycle(color=COLOURS)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    return axes


def log_axis(axes: Any, which: str = "x", at: Iterable[float] | None = None) -> Any:
    """Make an axis logarithmic with plain labels: at the given values, or at 1, 2, 5, 10 or powers of ten.

    Call it after drawing: the ticks follow the limits. Labels of minor ticks, which matplotlib writes over
    the major ones, are left out.
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    limits = axes.get_xlim() if which == "x" else axes.get_ylim()
    axis.set_major_locator(FixedLocator(list(at) if at is not None else log_ticks(*limits)))
    axis.set_minor_locator(NullLocator())
    words = FuncFormatter(lambda at, _: plain_number(at) if 1e-3 <= at < 1e6 else f"{at:.3g}")
    axis.set_major_formatter(words)
    axis.set_minor_formatter(NullFormatter())
    axes.set(**{f"{which}lim": limits})
    return axes


def log_ticks(low: float, high: float) -> list[float]:
    """Return at most seven round values between two positive limits."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [m * 10.0**e for e in range(first, last + 1) for m in steps]
        ticks = [t for t in ticks if low * (1 - 1e-9) <= t <= high * (1 + 1e-9)]
        if len(ticks) <= _MOST_LABELS:
            return ticks
    every = math.ceil(len(ticks) / _MOST_LABELS)
    return ticks[::every]


def coefficients_of(model: Any) -> list[tuple[Any, list[str], Floats, Floats | None]]:
    """Return label, names, coefficients and their noise, if it is known, for each class.

    The label is None where there is one output.
    """
    if not hasattr(model, "coef_"):
        return []
    coef = np.atleast_2d(np.asarray(model.coef_, dtype=float))
    names = getattr(model, "coef_names_", getattr(model, "feature_names_in_", None))
    named = [f"x{i}" for i in range(coef.shape[1])] if names is None else [str(name) for name in names]
    noise = getattr(model, "coef_noise_", None)
    rows: list[Any] = [None] * len(coef)
    if noise is not None and np.shape(noise)[-1] >= coef.shape[1]:  # the last one may be the intercept's
        rows = list(np.broadcast_to(np.atleast_2d(noise)[:, : coef.shape[1]], coef.shape))
    labels = [None] if len(coef) == 1 else getattr(model, "classes_", np.arange(len(coef))).tolist()
    return list(zip(labels, [named] * len(coef), coef, rows, strict=True))


def plot_coefficients(model: Any, top: int = 30, axes: Any = None) -> Any:
    """Draw the largest coefficients with a band of two noise standard deviations around zero.

    A coefficient inside its band could be noise alone. Only released numbers are drawn.

    Parameters
    ----------
    model : a fitted sparse estimator with one output.
    top : how many coefficients.
    axes : a matplotlib axes; None makes a new figure, which is then the current one.
    """
    check_is_fitted(model)
    found = coefficients_of(model)
    if len(found) != 1:
        raise InvalidInputError(f"Expected a model with one row of coefficients, got {len(found)}.")
    _, names, coef, noise = found[0]
    order = np.argsort(-np.abs(coef), kind="stable")[: min(top, np.count_nonzero(coef))][::-1]
    axes = new_axes(6.0, 1.2 + 0.24 * len(order)) if axes is None else axes
    where = np.arange(len(order))
    axes.plot(coef[order], where, "o", color=BLUE, label="coefficient")
    if noise is not None:
        axes.barh(where, 4 * noise[order], left=-2 * noise[order], color=BAND, label="noise, two sigma")
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set_yticks(where, [names[i] for i in order])
    axes.set_xlabel(f"coefficient (epsilon = {at_most(model.privacy_.epsilon, 3)})")
    axes.legend()
    return axes


def target_words(model: Any, last: bool = False) -> str:
    """Return what a model predicts: a column and its unit, or its class, of several the ``last``.

    Of a rate also per what; of a quantile which one.
    """
    schema = getattr(model, "schema", None)
    column: Any = getattr(schema, "target", None)
    classes: Any = getattr(model, "classes_", ())
    name = getattr(column, "name", "the class" if len(classes) else "")
    if len(classes) > 2 and len(getattr(model, "coef_", classes)) == 1:  # in an order
        return f"a higher level of {name}" if last else f"the level of {name}"
    if len(classes):
        return f"{name} = {classes[-1]}" if last or len(classes) == 2 else f"{name}, one of {len(classes)}"
    name += f" ({column.unit})" if getattr(column, "unit", None) else ""
    name += f" per unit of {over.name!r}" if (over := getattr(schema, "exposure", None)) else ""
    share = model.quantile if getattr(model, "loss", "") == "quantile" else None
    return name if share is None else f"the {share:g} quantile of {name or 'the target'}"


def margin_words(model: Any, last: bool = False) -> str:
    """Return what effects of a model are added to: a prediction, its logarithm, or log odds, and of what."""
    link = model._loss().link.name if hasattr(model, "_loss") else ""
    words = {"log": "the logarithm of the prediction", "logit": "the log odds"}.get(link, "the prediction")
    ordered = len(getattr(model, "classes_", ())) > 2 and len(getattr(model, "coef_", ((), ()))) == 1
    return f"{words} of {target}" if (target := target_words(model, last or ordered)) else words


def plot_shapes(model: Any, top: int = 6, label: Any = None) -> Any:
    """Draw the most important effects of a model of a table: curves or levels of columns, maps of pairs.

    Bands are two noise standard deviations wide on each side. Effects are in units of the margin: of numbers
    the target's own, else log odds or a logarithm. Only released numbers are drawn.

    Parameters
    ----------
    model : a fitted linear model with a schema, or its intervals: what has ``shapes_``.
    top : how many effects.
    label : the class whose effects are drawn, of several; None takes the last.

    Returns
    -------
    A matplotlib figure, which is then the current one.
    """
    from matplotlib import pyplot

    shapes = model.shapes_[:top]
    across = max(1, min(3, len(shapes)))
    down = max(1, -(-len(shapes) // across))
    figure = pyplot.figure(figsize=(3.4 * across, 2.6 * down), layout="constrained")
    for place, shape in enumerate(shapes, start=1):
        axes = style_axes(figure.add_subplot(down, across, place))
        axes.set_title(f"{shape.name} ({shape.importance:.3g})", fontsize=9)
        many = shape.effect.ndim > len(shape.columns)
        chosen = -1 if label is None else list(model.classes_).index(label)
        effect = shape.effect[chosen] if many else shape.effect
        if len(shape.columns) == 2:
            reach = float(np.abs(effect).max()) or 1.0
            axes.grid(False)
            image = axes.imshow(
                effect.T, cmap="RdBu_r", vmin=-reach, vmax=reach, origin="lower", aspect="auto"
            )
            axes.figure.colorbar(image, ax=axes)
            for which, name, at in zip("xy", shape.columns, shape.at):
                every = max(1, len(at) // 5)
                texts = [plain_number(v) if isinstance(v, float) else str(v)[:12] for v in at][::every]
                axes.set(**{f"{which}label": name})
                getattr(axes, f"set_{which}ticks")(np.arange(len(at))[::every], texts, fontsize=7)
        else:
            _draw_effect(axes, shape.at[0], effect, 0.0 if shape.noise is None else 2.0 * shape.noise)
    return figure


def _draw_effect(axes: Any, at: Any, effect: Any, band: Any) -> None:
    axes.axhline(0, color=GREY, linewidth=0.8)
    if isinstance(at[0], float):
        axes.fill_between(at, effect - band, effect + band, color=BLUE, alpha=0.2, linewidth=0)
        axes.plot(at, effect, ".-", color=BLUE)
        return
    where = np.arange(len(at))
    axes.errorbar(where, effect, yerr=np.broadcast_to(band, effect.shape), fmt="o", color=BLUE, capsize=2)
    axes.set_xticks(where, [str(level)[:12] for level in at], rotation=30, ha="right", fontsize=7)


def calibration_plot(curve: CalibrationCurve, ax: Any = None) -> Any:
    """Draw seen against said chances, with their intervals.

    Parameters
    ----------
    curve : what :func:`sordino.private_score` returns for ``metric="calibration"``.
    ax : Matplotlib axes; None makes a new figure.
    """
    ax = new_axes(4.5, 4.2) if ax is None else ax
    there = np.isfinite(curve.observed)
    low = np.maximum(curve.observed - curve.low, 0.0)[there]
    high = np.maximum(curve.high - curve.observed, 0.0)[there]
    ax.plot([0, 1], [0, 1], color=GREY, linestyle=":", label="calibrated")
    ax.errorbar(
        curve.predicted[there],
        curve.observed[there],
        yerr=[low, high],
        fmt="o",
        color=BLUE,
        capsize=2,
        label=f"seen, {curve.confidence:.0%} intervals",
    )
    ax.set(xlabel="said chance", ylabel="seen share", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    ax.legend()
    return ax


def scree_plot(pca: PCA, ax: Any = None, deviations: float = 2.0) -> Any:
    """Draw the released eigenvalues, and what the axes capture with its uncertainty.

    The grey area is what noise alone would show: an eigenvalue inside it says nothing. The band is
    ``deviations`` standard deviations about the captured variance.

    Parameters
    ----------
    pca : a fitted :class:`sordino.PCA`.
    ax : Matplotlib axes; None makes a new figure, which is then the current one.
    deviations : the half width of the band.

    **Privacy.** Only attributes of the fitted model are read, so the plot is as private as the model.
    """
    ax = new_axes() if ax is None else ax
    values = np.asarray(pca.noisy_eigenvalues_)
    number = np.arange(1, values.size + 1)
    ax.axhspan(0.0, pca.noise_edge_, color=BAND, label="noise alone")
    ax.plot(number, values, ".-", color=BLUE, label="released eigenvalue")
    kept, captured = np.arange(1, pca.n_components_ + 1), pca.explained_variance_
    width = deviations * pca.eigenvalue_noise_[: kept.size]
    band = {"color": BLUE, "alpha": 0.25, "linewidth": 0, "label": f"captured ± {deviations:g} sd"}
    ax.fill_between(kept, captured - width, captured + width, **band)
    ax.plot(kept, captured, "k_", label="captured variance")
    ax.set(xlabel="axis", ylabel="variance")
    ax.legend()
    return ax
