"""What may be shown of a fitted model: released numbers, by a list of names and never by looking around."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from sordino.errors import InvalidInputError
from sordino.estimators.metric_curves import CalibrationCurve
from sordino.estimators.pipeline import pipeline_privacy
from sordino.report.provenance import plain
from sordino.runs import PrivacyReport
from sordino.runs.meaning import at_most
from sordino.runs.status import Status

TOP = 20
_BAND = (
    " The grey band is twice the standard deviation of its noise, as far as that is known: a paler bar could "
    "be noise alone."
)
_SHARES = ("accuracy", "balanced_accuracy", "auc", "roc_auc", "r2")


@dataclass(frozen=True)
class Bar:
    """One number with a band of noise around zero or around itself, as parts of the width of a chart."""

    name: str
    value: float
    text: str
    left: float
    width: float
    band_left: float = 0.0
    band_width: float = 0.0
    faint: bool = False


@dataclass(frozen=True)
class Chart:
    """Bars under a heading, with a sentence that says how to read them."""

    title: str
    caption: str
    bars: tuple[Bar, ...]
    zero: float | None = None


@dataclass(frozen=True)
class Score:
    """A private score with its interval and its price."""

    name: str
    text: str
    interval: str
    price: str
    low: float | None = None
    high: float | None = None
    at: float | None = None


@dataclass
class Contents:
    """Everything of a model that the page shows."""

    kind: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)


def report_of(model: Any, assume_public: Sequence[str] = ()) -> PrivacyReport:
    """Return the guarantee of a model, pipeline, search, result, or of a report itself."""
    for found in (model, getattr(model, "privacy_", None), getattr(model, "privacy", None)):
        if isinstance(found, PrivacyReport):
            return found
    if hasattr(model, "fit"):
        return pipeline_privacy(model, assume_public=assume_public)
    raise InvalidInputError(
        f"Expected a fitted private model, a pipeline, a private result or a report, got a "
        f"{type(model).__name__}."
    )


def contents_of(model: Any, report: PrivacyReport) -> Contents:
    """Return what the page shows of a model; of one that is not private, its kind only.

    **Privacy.** Attributes are read by name, and only of parts that have a report of their own.
    """
    out = Contents("PrivacyReport" if isinstance(model, PrivacyReport) else type(model).__name__)
    if report.status in (Status.NO_NOISE, Status.UNPAID, Status.UNPROVEN):
        out.facts.append(("left out", "this run is not private, so nothing of the model is shown"))
        return out
    joint = getattr(model, "result", None)
    if isinstance(joint, dict) and "coef" in joint:  # of a joint run
        out.charts.append(_coefficient_chart("Coefficients", np.ravel(joint["coef"]), None, None, TOP))
        return out
    inner, names = _innermost(model, out)
    if isinstance(getattr(inner, "privacy_", None), PrivacyReport):
        _shape(inner, out)
        _coefficients(inner, names, out)
        _scree(inner, out)
    return out


def _innermost(model: Any, out: Contents) -> tuple[Any, Any]:
    """Return the part of a search or a pipeline that holds the numbers, and the names of its columns."""
    if hasattr(model, "best_estimator_") and hasattr(model, "best_params_"):
        chosen = ", ".join(f"{k} = {plain(v)}" for k, v in model.best_params_.items())
        out.facts.append(("chosen by the search", chosen or "the only candidate"))
        out.facts.append(("its noisy score in the search", f"{float(model.best_score_):.4g}"))
        return _innermost(model.best_estimator_, out)
    if isinstance(model, Pipeline):
        out.facts.append(("steps", ", ".join(type(step).__name__ for _, step in model.steps)))
        return model.steps[-1][1], None
    return model, getattr(model, "coef_names_", getattr(model, "feature_names_in_", None))


def _shape(model: Any, out: Contents) -> None:
    out.facts.append(("model", type(model).__name__))
    for name, attribute in (("columns", "n_features_in_"), ("steps of the solver", "n_iter_")):
        if hasattr(model, attribute):
            out.facts.append((name, f"{int(getattr(model, attribute)):,}"))
    if hasattr(model, "classes_"):
        out.facts.append(("classes", f"{len(model.classes_):,}"))
    if hasattr(model, "coef_"):
        coef = np.asarray(model.coef_)
        out.facts.append(("coefficients that are not zero", f"{np.count_nonzero(coef):,} of {coef.size:,}"))
    if hasattr(model, "n_components_"):
        out.facts.append(("components", f"{int(model.n_components_):,}"))
    if hasattr(model, "module_"):
        sizes = [p.numel() for p in model.module_.parameters()]
        out.facts.append(("parameters of the network", f"{sum(sizes):,} in {len(sizes)} tensors"))


def _coefficients(model: Any, names: Any, out: Contents) -> None:
    if not hasattr(model, "coef_"):
        return
    coef = np.atleast_2d(np.asarray(model.coef_, dtype=float))
    noise = getattr(model, "coef_noise_", None)
    noise = None if noise is None else np.broadcast_to(np.atleast_2d(noise), coef.shape)
    classes = getattr(model, "classes_", None)
    for row in range(min(len(coef), 10)):
        title = "Coefficients"
        if len(coef) > 1 and classes is not None:
            title = f"Coefficients of class {plain(classes[row].item())}"
        top = TOP if len(coef) == 1 else 8
        out.charts.append(
            _coefficient_chart(title, coef[row], None if noise is None else noise[row], names, top)
        )


def _coefficient_chart(title: str, coef: Any, noise: Any, names: Any, top: int) -> Chart:
    order = np.argsort(-np.abs(np.nan_to_num(coef)), kind="stable")[: min(top, np.count_nonzero(coef))]
    band = np.zeros(len(coef)) if noise is None else 2.0 * np.nan_to_num(noise)
    reach = float(max(np.max(np.abs(coef[order]), initial=0.0), np.max(band[order], initial=0.0))) or 1.0
    bars = tuple(
        Bar(
            f"x{i}" if names is None else str(names[i])[:60],
            float(coef[i]),
            f"{coef[i]:+.3g}",
            *_part(min(coef[i], 0.0), max(coef[i], 0.0), reach),
            *_part(-band[i], band[i], reach),
            faint=bool(abs(coef[i]) <= band[i]),
        )
        for i in order
    )
    told = "" if noise is None else _BAND
    rest = np.count_nonzero(coef) - len(order)
    more = f" {rest:,} smaller ones are not shown." if rest else ""
    return Chart(title, f"The {len(order)} largest.{told}{more}", bars, 50.0)


def _part(low: float, high: float, reach: float) -> tuple[float, float]:
    """Return left end and width in percent of a chart that shows [-reach, reach]."""
    return 50.0 + 50.0 * low / reach, 50.0 * (high - low) / reach


def _scree(model: Any, out: Contents) -> None:
    if not hasattr(model, "noisy_eigenvalues_"):
        return
    values = np.asarray(model.explained_variance_, dtype=float)[:TOP]
    noise = np.broadcast_to(np.asarray(model.eigenvalue_noise_, dtype=float)[: len(values)], values.shape)
    above = np.asarray(model.noisy_eigenvalues_)[: len(values)] > float(model.noise_edge_)
    reach = float(np.max(np.abs(values) + 2 * noise, initial=0.0)) or 1.0
    bars = tuple(
        Bar(
            str(number + 1),
            float(value),
            f"{value:.3g}",
            0.0,
            100.0 * max(value, 0.0) / reach,
            100.0 * max(value - 2 * spread, 0.0) / reach,
            100.0 * min(4 * spread, value + 2 * spread) / reach,
            faint=not seen,
        )
        for number, (value, spread, seen) in enumerate(zip(values, noise, above))
    )
    caption = (
        "The variance that each axis captures, with a band of two standard deviations. A paler bar is no "
        "larger than what noise alone would show."
    )
    out.charts.append(Chart("Scree", caption, bars))


def scores_of(scores: Any) -> list[Score]:
    """Return private scores as lines; a calibration curve by its error."""
    named: Mapping[str, Any] = scores if isinstance(scores, Mapping) else {}
    return [_score(str(name), value) for name, value in named.items()]


def _score(name: str, value: Any) -> Score:
    report = getattr(value, "privacy", None)
    price = (
        f"epsilon {at_most(report.epsilon, 3)}, delta {at_most(report.delta, 2)} per {report.unit}; "
        f"{report.status}"
        if isinstance(report, PrivacyReport)
        else "nothing was paid: public records, or not private"
    )
    if isinstance(value, CalibrationCurve):
        return Score(name, f"{value.error:.3f}", "expected calibration error", price)
    number = float(value)
    ends = getattr(value, "interval", None)
    if ends is None:
        return Score(name, f"{number:.4g}", "exact", price)
    low, high = (float(e) for e in ends)
    share = name.lower().replace(" ", "_") in _SHARES
    inside = share and 0.0 <= low <= high <= 1.0
    bar = (100 * low, 100 * high, 100 * min(max(number, 0.0), 1.0)) if inside else (None, None, None)
    return Score(name, f"{number:.4g}", f"{low:.4g} to {high:.4g}", price, *bar)
