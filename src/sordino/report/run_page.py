"""The page a board signs: one run, what it guarantees and what that rests on."""

from __future__ import annotations

import hashlib
import json
import math
import platform
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata, resources
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

import sordino
from sordino.accounting.conversions import gaussian_mu
from sordino.accounting.trade_off import TradeOff, gaussian_trade_off
from sordino.accounting.trees import encode
from sordino.auditing import audit
from sordino.errors import InvalidInputError, SordinoError
from sordino.estimators.group_statistics import PrivateTable
from sordino.estimators.intervals import Intervals, PredictionIntervals, spread_of
from sordino.estimators.metrics import HIDDEN_SCORE, CalibrationCurve, metric_row, score_words, span_words
from sordino.estimators.pipeline import final_step, pipeline_privacy, schema_of
from sordino.estimators.statistics import PrivateFloat
from sordino.ledger.address import code_digest
from sordino.ledger.address import person as user
from sordino.report.page import Booking, Books, Unbooked, render_page
from sordino.report.plots import coefficients_of, margin_words, target_words
from sordino.report.standing import Page, Standing, standing_of, unmarked_columns
from sordino.runs import PrivacyReport, ReleaseReport
from sordino.runs.report import Fact, Source, Status, at_most, composed, guess, percent, strength
from sordino.saving.files import model_digest, released_digests
from sordino.tables.columns import Column
from sordino.tables.schema import Schema
from sordino.values import plain_number

# What is asked, by the name that solvers give a release, and what a mechanism does, by its name.
WORDS = tomllib.loads(resources.files("sordino.report").joinpath("words.toml").read_text("utf-8"))
QUICK = 50
"""Columns of a model that is attacked when its page is written: a replay takes less than a second."""
TOP = 20
COMPARED = (1.0, 4.0, 8.0)
_LONGEST_EVENT = 20_000
_NOT_SHOWN = (Status.NO_NOISE, Status.UNPAID, Status.UNPROVEN)
_IN_SCORES = (Source.COUNTED, Source.IDS, Source.CLIP, Source.ALIKE, Source.OLD)

Line = dict[str, Any]
"""What a template shows of one bar, curve or score, by name; places are percent of a chart's width."""


def _release(release: ReleaseReport, unit: str) -> str:
    """Return a release as a sentence."""
    kind, often = release.mechanism.split(" ")[0], "Once" if release.times == 1 else f"{release.times} times"
    asked = WORDS["asked"].get(release.name, f"the answer to {release.name!r}")
    asked = WORDS["asked"].get(f"{kind}-{release.name}", asked)
    words = WORDS["noise"].get(kind)
    if words is None:
        noise = f"chosen at random among the best ({release.mechanism})"
    elif release.noise_multiplier > 0:
        noise = f"with {words}, {release.noise_multiplier:.3g} times what one {unit} can change"
    else:
        noise = "without any noise"
    exact = ", exactly rounded" if release.is_exact and "lattice" in release.mechanism else ""
    return f"{often}: {asked}, from {_records(release.sampling)}, {noise}{exact}."


def _records(sampling: str) -> str:
    number = re.search(r"(\d[\d.e+-]*)", sampling)
    kind = sampling.partition("(")[0]
    if kind.startswith(("Full", "Disjoint")):
        return "all records" if kind.startswith("Full") else "one part of the records each time"
    if number is None:
        return sampling
    rate, drawn = 100 * float(number[1]), "" if "rate=1.0" in sampling else ", a secret random share of it"
    words = {
        "Poisson": f"a secret random part of the records (each with a chance of {rate:.3g} %)",
        "FixedSize": f"{number[1]} records drawn at random and kept secret",
        "Cyclic": f"one of {number[1]} parts of the records in turn{drawn}",
    }
    return next((text for start, text in words.items() if kind.startswith(start)), sampling)


# ----------------------------------------------------------------------------------------------------------
# What may be shown of a fitted model: released numbers, by a list of names and never by looking around.


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


def contents_of(model: Any, report: PrivacyReport) -> dict[str, Any]:
    """Return the parts of a model that the page shows. Of a model that is not private it shows the kind only.

    **Privacy.** Attributes are read by name, and only of parts that have a report of their own.
    """
    facts: list[tuple[str, str]] = []
    charts: list[Line] = []
    curves: list[Line] = []
    kind = "PrivacyReport" if isinstance(model, PrivacyReport) else type(model).__name__
    out: dict[str, Any] = {"kind": kind, "facts": facts, "charts": charts, "curves": curves}
    if report.status in _NOT_SHOWN:
        facts.append(("left out", "this run is not private, so nothing of the model is shown"))
        return out
    joint = getattr(model, "result", None)
    if isinstance(joint, dict) and "coef" in joint:  # of a joint run
        names = [f"x{i}" for i in range(np.size(joint["coef"]))]
        charts.append(_coefficient_chart("Coefficients", names, np.ravel(joint["coef"]), None, TOP))
        return out
    while hasattr(model, "best_estimator_") and hasattr(model, "best_params_"):  # a search
        chosen = ", ".join(f"{k} = {plain(v)}" for k, v in model.best_params_.items())
        facts.append(("chosen by the search", chosen or "the only candidate"))
        facts.append((f"noisy {model.scoring_} in the search", f"{float(model.best_score_):.4g}"))
        model = model.best_estimator_
    if isinstance(model, (Intervals, PredictionIntervals)):
        facts += _interval_facts(model)
        drawn = {"curves": _curves(model), "effects": _effect_rows(model)}
        level = f"{100 * getattr(model, 'confidence', 0.0):.3g} %"
        return out | drawn | {"margin": margin_words(model.model, True), "paid": level}
    if isinstance(model, Pipeline):
        facts.append(("steps", ", ".join(type(step).__name__ for _, step in model.steps)))
        model = model.steps[-1][1]
    if isinstance(getattr(model, "privacy_", None), PrivacyReport):
        facts += _facts(model)
        charts += _effects(model) if getattr(model, "shapes_", None) else _coefficients(model)
        charts += _scree(model)
        curves += _curves(model)
        out |= {
            "silent": all(shape.noise is None for shape in getattr(model, "shapes_", None) or ()),
            "effects": _effect_rows(model),
            "margin": margin_words(model, True),
            "target": target_words(model),
        }
    return out


def _facts(model: Any) -> Iterable[tuple[str, str]]:
    loss = getattr(model, "loss", None)
    share = f" {model.quantile:g}" if loss == "quantile" else ""
    yield "model", type(model).__name__ + (f", loss {loss}{share}" if isinstance(loss, str) else "")
    if share and model.quantile != 0.5:
        yield "its scores", "R2, mse and mae do not judge this quantile; no score that was paid for does yet"
    encoder, columns = getattr(model, "encoder_", None), "columns"
    if encoder is not None:
        yield "columns of the table", f"{encoder.n_features_in_:,}"
        columns = "columns of the model: lines, curves, levels, pairs"
    if hasattr(model, "n_features_in_"):
        yield columns, f"{int(model.n_features_in_):,}"
    if hasattr(model, "classes_"):
        yield "classes", f"{len(model.classes_):,}"
    if hasattr(model, "coef_"):
        coef = np.asarray(model.coef_)
        yield "coefficients that are not zero", f"{np.count_nonzero(coef):,} of {coef.size:,}"
    if hasattr(model, "n_components_"):
        yield "components", f"{int(model.n_components_):,}"
    if hasattr(model, "module_"):
        sizes = [p.numel() for p in model.module_.parameters()]
        yield "parameters of the network", f"{sum(sizes):,} in {len(sizes)} tensors"


def _interval_facts(found: Intervals | PredictionIntervals) -> Iterable[tuple[str, str]]:
    """Return how far new targets may be off, or the largest coefficients with the ends of their intervals."""
    if isinstance(found, PredictionIntervals):
        yield "share of new targets to cover", f"{100 * found.coverage:.3g} %"
        known = np.isfinite(found.radius)
        reach = plain_number(found.radius, 4) if known else "not known: ends are declared bounds"
        yield f"radius, in {spread_of(found.model)[1]}", reach
        return
    yield "confidence of each interval", f"{100 * found.confidence:.3g} %"
    lines = sorted(found.records(), key=lambda one: (one["high"] == np.inf, -abs(one["value"])))
    if hasattr(found.model, "shapes_"):  # a table below has all of them
        return
    for line in lines[:TOP]:
        yield line["name"], interval_words(line)
    if len(lines) > TOP:
        yield "not shown", f"{len(lines) - TOP} smaller ones"


def interval_words(line: Mapping[str, Any]) -> str:
    """Return a coefficient or effect with its ends, and the ratio of odds or rates that it stands for."""
    if not np.isfinite(line["high"]):
        return f"{plain_number(line['value'], 4)} (records do not tell the ends)"
    words = f"{plain_number(line['value'], 4)} ({span_words(line['low'], line['high'])})"
    if "ratio" not in line:
        return words
    ratio, *ends = line["ratio"]
    return f"{words}, ratio {plain_number(ratio, 4)} ({span_words(*ends)})"


def _effects(model: Any) -> list[Line]:
    """Return how much each column and pair of a table matters."""
    shapes = model.shapes_[:TOP]
    most = max((max(s.importance, s.noise_alone or 0.0) for s in shapes), default=0.0) or 1.0
    bands = [None if s.noise_alone is None else (0.0, s.noise_alone) for s in shapes]
    bars = [
        _bar(s.name, plain_number(s.importance, 3), (0.0, most), s.importance, band)
        for s, band in zip(shapes, bands, strict=True)
    ]
    told = (
        "The grey band shows how far noise alone takes a column without any effect, in 19 of 20 cases: a "
        "paler bar, inside its band, could be noise alone. Which records were drawn adds an error that is "
        "not in the band."
    )
    told = told if any(bands) else "How far noise alone takes a column is not known: any bar could be noise."
    moved = f"How far each column, or pair of columns, moves {margin_words(model)} of a record"
    caption = f"{moved} (one standard deviation). {told}"
    return [{"title": "What matters", "caption": caption, "bars": bars}]


def _bar(name: str, text: str, ends: tuple[float, float], value: float, band: Any = None) -> Line:
    """Return a bar from zero to a value, and a band, on a chart between two ends; faint inside the band."""

    def place(at: float) -> float:
        return 100.0 * (at - ends[0]) / (ends[1] - ends[0])

    low, high = place(min(value, 0.0)), place(max(value, 0.0))
    out: Line = {"name": name[:60], "text": text, "left": low, "width": high - low}
    if band is not None:
        out |= {"band_left": place(band[0]), "band_width": place(band[1]) - place(band[0])}
        out["faint"] = bool(abs(value) <= band[1])
    return out


def _curves(model: Any) -> list[Line]:
    """Return the effects of columns and pairs as pictures."""
    shapes = (getattr(model, "shapes_", None) or [])[:TOP]
    reach = max((float(np.abs(s.effect).max()) for s in shapes if len(s.columns) == 2), default=0.0) or 1.0
    wide = getattr(model, "width", 2.0)
    return [_curve(shape, wide) if len(shape.columns) == 1 else _surface(shape, reach) for shape in shapes]


def _of_last_class(shape: Any, reach: float = 2.0) -> tuple[Any, Any]:
    """Return an effect, of several classes the last one's, and so many deviations of its noise, or nan."""
    many = shape.effect.ndim > len(shape.at)
    effect = shape.effect[-1] if many else shape.effect
    noise = np.full(shape.effect.shape, np.nan) if shape.noise is None else reach * np.asarray(shape.noise)
    return effect, noise[-1] if noise.ndim > effect.ndim else noise


def _surface(shape: Any, reach: float) -> Line:
    """Return the effect of two columns together as cells of a box of 200 x 80, the darker the larger."""
    effect, _ = _of_last_class(shape)
    across, up = effect.shape
    reach *= 4.0 if shape.could_be_noise else 1.0  # pale
    cells = [
        (200.0 * i / across, 80.0 * (up - 1 - j) / up, 200.0 / across, 80.0 / up, value / reach)
        for (i, j), value in np.ndenumerate(effect)
    ]
    texts = [[plain_number(v) if isinstance(v, float) else str(v)[:12] for v in at] for at in shape.at]
    ends = [f"{name} {at[0]} to {at[-1]}" for name, at in zip(shape.columns, texts, strict=True)]
    low, high = (plain_number(end, 3, "+") for end in (effect.min(), effect.max()))
    first = f"→ {ends[0]}, ↑ {ends[1]}"
    facts = {"name": shape.name, "faint": shape.could_be_noise, "top": high, "bottom": low}
    return {**facts, "cells": cells, "first": first}


def _curve(shape: Any, reach: float = 2.0) -> Line:
    """Return the effect of one column in a box of 200 x 80: a line or dots, and a band of its noise."""
    effect, noise = _of_last_class(shape, reach)
    noise = np.nan_to_num(noise, posinf=np.nan)
    open_ended = np.isnan(noise)  # of intervals: no band says where they end
    noise[open_ended] = 0.0
    usual = np.minimum(noise, 3.0 * np.median(noise[noise > 0.0]) if noise.any() else 0.0)
    at, low, high = shape.at[0], min((effect - usual).min(), 0.0), max((effect + usual).max(), 0.0)

    def height(values: Any) -> Any:
        return 80.0 * (high - values) / ((high - low) or 1.0)

    ends = ("not known",) * 2 if open_ended.any() else tuple(plain_number(end, 3, "+") for end in (low, high))
    out = {"name": shape.name, "faint": shape.could_be_noise, "bottom": ends[0], "top": ends[1]}
    out["zero"] = float(height(0.0))
    up, down, middle = height(effect + noise), height(effect - noise), height(effect)
    if isinstance(at[0], float) and len(at) > 1:
        x = 200.0 * (np.array(at) - at[0]) / (at[-1] - at[0])
        band = "" if open_ended.any() else _path([*x, *x[::-1]], [*up, *down[::-1]])
        return out | {
            "first": plain_number(at[0]),
            "last": plain_number(at[-1]),
            "line": _path(x, middle),
            "band": band,
        }
    x = 200.0 * (np.arange(len(at)) + 0.5) / len(at)
    labels = [name if len(name := str(value)) <= 20 else f"{name[:19]}..." for value in at]
    dots = list(zip(x.tolist(), middle.tolist(), up.tolist(), down.tolist(), labels, strict=True))
    shown = labels if len(at) <= 20 else [*labels[:15], "...", *labels[-4:]]
    return out | {"first": ", ".join(shown), "dots": dots}


def _effect_rows(model: Any) -> list[Line]:
    """Return every column and pair in numbers: the effect of each value with its band, or the ends.

    A band is twice its noise, or the half of a paid interval at its confidence.
    """
    rows = []
    for shape in getattr(model, "shapes_", None) or []:
        effect, noise = _of_last_class(shape, getattr(model, "width", 2.0))
        said = [
            f"{plain_number(value, 3, '+')} ± {plain_number(band, 3)}"
            for value, band in zip(effect.flat, noise.flat)
        ]
        at = [plain_number(value) if isinstance(value, float) else str(value) for value in shape.at[0]]
        words = (
            (f"{value}: {text}" for value, text in zip(at, said))
            if effect.ndim == 1
            else [f"{said[int(effect.argmin())]} to {said[int(effect.argmax())]}"]
        )
        text = "; ".join(words) if effect.any() else "left out of the model"
        if isinstance(model, Intervals):  # one value has no error: the others are told from it
            text = re.sub(r"\+0 ± 0(?=;|$)", "reference", text)
        text = text.replace("± nan", "(noise not known)").replace("± inf", "(ends not known)")
        rows.append({"name": shape.name, "importance": plain_number(shape.importance, 3), "text": text})
    return rows


def _path(x: Any, y: Any) -> str:
    return "M" + "L".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))


def _coefficients(model: Any) -> list[Line]:
    found = coefficients_of(model)[:10]
    return [
        _coefficient_chart(
            "Coefficients" if len(found) == 1 else f"Coefficients of class {plain(label)}",
            names, coef, noise, TOP if len(found) == 1 else 8,
        )
        for label, names, coef, noise in found
    ]  # fmt: skip


def _coefficient_chart(title: str, names: Sequence[str], coef: Any, noise: Any, top: int) -> Line:
    order = np.argsort(-np.abs(np.nan_to_num(coef)), kind="stable")[: min(top, np.count_nonzero(coef))]
    band = np.zeros(len(coef)) if noise is None else 2.0 * np.nan_to_num(noise)
    reach = float(max(np.max(np.abs(coef[order]), initial=0.0), np.max(band[order], initial=0.0))) or 1.0
    said, ends = [plain_number(value, 3, "+") for value in coef], (-reach, reach)
    bars = [_bar(names[i], said[i], ends, coef[i], (-band[i], band[i])) for i in order]
    rest = np.count_nonzero(coef) - len(order)
    more = f" {rest:,} smaller ones are not shown." if rest else ""
    known = (
        " The grey band is twice the standard deviation of its noise, as far as that is known: a paler bar "
        "could be noise alone."
    )
    caption = f"The {len(order)} largest.{'' if noise is None else known}{more}"
    return {"title": title, "caption": caption, "bars": bars, "zero": 50.0}


def _scree(model: Any) -> list[Line]:
    if not hasattr(model, "noisy_eigenvalues_"):
        return []
    values = np.asarray(model.explained_variance_, dtype=float)[:TOP]
    noise = np.broadcast_to(np.asarray(model.eigenvalue_noise_, dtype=float)[: len(values)], values.shape)
    above = np.asarray(model.noisy_eigenvalues_)[: len(values)] > float(model.noise_edge_)
    reach = float(np.max(np.abs(values) + 2 * noise, initial=0.0)) or 1.0
    bars = [
        _bar(str(k), f"{v:.3g}", (0.0, reach), v, (max(v - 2 * std, 0.0), v + 2 * std)) | {"faint": not seen}
        for k, (v, std, seen) in enumerate(zip(values, noise, above, strict=True), start=1)
    ]
    caption = (
        "The variance that each axis captures, with a band of two standard deviations. A paler bar is no "
        "larger than what noise alone would show."
    )
    return [{"title": "Scree", "caption": caption, "bars": bars}]


SEEN = ", by its name the file that it was fitted to: no test"
"""How the name of a score says that its records were those of the fit."""


def scores_of(
    scores: Any,
    digest: str = "",
    books: Books | None = None,
    unit: str = "",
) -> list[Line]:
    """Return private scores as lines; a calibration curve by its error, a table by its groups.

    A score says itself by which metric it judges: its name here is a caption. One that says which model it is
    of must be of the model with this digest. ``books`` say how far a ledger confirms its report, ``unit`` is
    that of the target.
    """
    out, books = [], books or Books(None, None)
    for name, value in (scores if isinstance(scores, Mapping) else {}).items():
        of = getattr(value, "model", "")
        if digest and of and of != digest:
            raise InvalidInputError(
                f"The score {name!r} is one of another model ({of[:16]}, not {digest[:16]}). Pass the scores "
                "of this one."
            )
        parts: list[tuple[str, Any]] = value if isinstance(value, list) else []  # read back from a file
        if isinstance(value, PrivateTable):
            rows = zip(value.rows, value.value.tolist(), value.low.tolist(), value.high.tolist(), strict=True)
            for row, number, *ends in rows:
                title = ", ".join(f"{k}={v}" for k, v in zip(value.keys, row, strict=True))
                known = value.privacy, (ends[0], ends[1]), None, None, of, value.statistic
                parts.append((title, PrivateFloat(number, *known)))
        lines = [_score(str(name), part, unit, f", {group}") for group, part in parts] or [
            _score(str(name), value, unit)
        ]
        report, part = getattr(parts[0][1] if parts else value, "privacy", None), f"the score {str(name)!r}"
        told = "nothing was paid: right only where these records are public, as somebody said"
        lines[0] |= {
            "caution": f"{part} is exact: nobody checked this number, nor that its records are public",
            "exact": True,
        }
        if isinstance(report, PrivacyReport):
            paid, booking = books.find(report)
            found = Standing.of(paid, booking, part)
            delta = plain_number(float(at_most(report.delta)))
            spent = f"epsilon {at_most(report.epsilon)}, delta {delta} per {report.unit}"
            told = f"{spent}; {found.line}{', once for all groups' * bool(parts)}"
            lines[0] |= {"doubts": found.doubts, "weak": found.weak, "exact": False}
            own = books.dataset_id
            place = booking.history.dataset_id if isinstance(booking, Booking) else own
            said = (
                report.warning,
                "records that it was fitted to flatter it" if SEEN in name else "",
                f"booked on data set {place}, not on {own}" if place != own else "",
            )
            words = "; ".join(filter(None, said))
            lines[0]["caution"] = words and f"{part}: {words}"
        out += [line | {"price": told} for line in lines]
    return out


def _score(caption: str, value: Any, unit: str, group: str = "") -> Line:
    metric = "calibration" if isinstance(value, CalibrationCurve) else getattr(value, "metric", "")
    report, ends = getattr(value, "privacy", None), getattr(value, "interval", None)
    # The name of a score that was read from a file is that of its file; else somebody chose it for this page.
    own = re.split(r" by | on |, | \(", caption)[0] if getattr(report, "file", "") else caption
    row, name = metric_row(metric), own.lower().replace(" ", "_")
    called = "" if metric in ("", name) else f"{metric.replace('_', ' ')}; whoever wrote this page calls it "
    title = f'{called}"{caption}"{group}' if called else caption + group
    unit = {"mae": unit, "mse": f"({unit})²"}.get(row.name, "") if row and unit else ""
    counted = [fact for fact in getattr(report, "public", ()) if fact.origin in _IN_SCORES]
    by_person = any(fact.origin is Source.IDS for fact in counted)
    whose = "person adds the mean over their records of" if by_person else "record adds"
    added = "" if row is None else f"each {whose}: {row.words}"
    said = (added, *counted, *getattr(report, "notes", ()))
    out: Line = {"name": title, "words": "; ".join(filter(None, said))}
    if isinstance(value, CalibrationCurve):
        words = "expected calibration error, made larger by noise: it has no interval, its cells have"
        return out | {"text": f"{value.error:.3f}", "interval": words}
    number = float(value)
    constant = getattr(value, "baseline", None)
    verdict = "" if row is None else row.verdict(metric, number, ends or (), constant)
    most = 1.0 if row is not None and row.share else math.inf
    baseline = "; ".join(filter(None, (constant_words(constant, most), verdict)))
    out |= {"text": plain_number(number, 4), "interval": "exact", "baseline": baseline, "unit": unit}
    if ends is None:
        return out
    low, high = map(float, ends)
    out["text"] = score_words(number, low, high)
    if not math.isfinite(number + high - low):
        return out | {"text": "not known", "interval": HIDDEN_SCORE}
    out["interval"] = span_words(low, high)
    if row is not None and row.share and 0.0 <= low <= high <= 1.0:
        out |= {"low": 100 * low, "high": 100 * high, "at": 100 * min(max(number, 0.0), 1.0)}
    return out


def clip_words(report: Any) -> str:
    """Return at which loss of a record a paid score is clipped, as its report says it."""
    return next((fact for fact in getattr(report, "public", ()) if fact.origin is Source.CLIP), "")


def constant_words(baseline: tuple[float, float] | None, most: float = math.inf) -> str:
    """Return what the best constant scores, between twice its standard error, up to half of it.

    ``most`` is the largest score there is: noise may lie beyond it.
    """
    if baseline is None:
        return ""
    value, noise = baseline
    if abs(value) < 4 * noise:
        return "not known: pay more, or score more records"
    ends = span_words(value - 2 * noise, min(value + 2 * noise, most))
    return plain_number(value, 4) + f", 95 % interval {ends}" * (noise > 0)


def write_report(model: Any, path: str | Path, **details: Any) -> Path:
    """Write one self-contained HTML page about a run to ``path``; return the path.

    ``model`` and ``details`` are those of :func:`report_html`.
    """
    page, path = report_html(model, **details), Path(path)
    path.write_text(page, encoding="utf-8")
    return path


def report_html(
    model: Any,
    *,
    dataset_id: str | None = None,
    author: str | None = None,
    purpose: str | None = None,
    controller: str | None = None,
    approver: str | None = None,
    config: str | Mapping[str, Any] | None = None,
    command: str | None = None,
    check: str | None = None,
    title: str | None = None,
    ledger: Any = None,
    ran: tuple[str, str] | None = None,
    scores: Mapping[str, Any] | None = None,
    facts: Mapping[str, str] | None = None,
    about: Mapping[str, str] | None = None,
    assume_public: Sequence[str] = (),
    person: str | None = None,
    base: Standing | None = None,
) -> Page:
    """Return one self-contained HTML page about a run; its ``standing`` says whether it may be signed.

    Parameters
    ----------
    model : a fitted model, search or pipeline, a private result, or a :class:`sordino.PrivacyReport`.
    dataset_id, ledger : of the records; None takes the model's own. A ``dataset_id`` of "" says that the run
        was booked on no ledger.
    ran : when it began and ended (ISO 8601, UTC): this tells its reservation from those of equal runs.
    author : who wrote the page; stands beside who ran it.
    purpose, controller, approver : what it is for, who answers for the data, who signs.
    config : the settings of the run, a text or a mapping; None takes the model's parameters.
    command, check : how it was run, for the section on how to do it again, and how whoever signs makes the
        page again.
    title : of the page.
    scores : results of :func:`sordino.private_score` or :func:`sordino.private_scores_by` (or plain numbers
        from public records) by name; a score of another model is refused.
    facts : more lines about the run, by name: when it ran, on which file.
    about : more lines about the purpose, by name: on which legal basis, for whom, how long.
    assume_public : for a pipeline, see :func:`sordino.pipeline_privacy`.
    person : who ran it, as its file says; None takes ``SORDINO_PERSON`` or the name of the account, of a run
        of this process.
    base : of intervals, the standing of the model that they were asked of; None takes that of a model of this
        process as it is, and asks ``ledger`` and ``dataset_id`` for one that was read from a file.

    **Privacy.** The page shows released numbers, declared constants and the counts that the report names as
    public, by a fixed list of attributes; of a model that is not private nothing but its kind.
    """
    report = report_of(model, assume_public)
    copied, digest = report.copied, "" if isinstance(model, PrivacyReport) else model_digest(model)
    dataset_id = getattr(model, "dataset_id", None) if dataset_id is None else dataset_id
    if dataset_id is None and not copied and getattr(model, "ledger", report) is None:
        dataset_id = ""  # it was booked nowhere
    # nobody asked for the name of the model's own ledger
    books = Books(
        getattr(model, "ledger", None) if ledger is None else ledger, dataset_id, ledger is not None
    )
    contents, (report, booking) = contents_of(model, report), books.find(report, ran, released_digests(model))
    booked = booking if isinstance(booking, Booking) else None
    known = booked.person if copied and booked else "" if copied else user()
    origin = provenance(model, dataset_id, person or known, config)
    schema = schema_of(getattr(model, "model", model))
    unit = getattr(getattr(schema, "target", None), "unit", None) or ""
    unit += f" per unit of {over.name!r}" if unit and (over := getattr(schema, "exposure", None)) else ""
    judged = scores_of(scores, digest, books, unit)
    unmarked = unmarked_columns(schema, booking)
    part, both, lines = "the model", report, list(judged)
    if isinstance(model, (Intervals, PredictionIntervals)):
        part, both, line = _with_model(model, report, base, books)
        lines.append(line)
    standing = Standing.of(report, booking, part, lines, unmarked, both, books.alike(schema, booking))
    refit = f"model = sordino.{contents['kind']}(...)  # the settings below\nmodel.fit(X, y)"
    people = {
        "Run by": origin["person"],
        "Page by": author,
        "Data controller": controller,
        "Approver": approver,
    }
    text = render_page(
        "run.html",
        title=title or f"Privacy report: {contents['kind']}",
        report=report,
        both=both,
        whole=both.whole or (None if both is report else (both.epsilon, both.delta)),
        beside=" and ".join(["the model"] * (both is not report) + ["the schema"] * bool(both.whole)),
        standing=standing,
        booked=booked,
        not_booked=booking.words if isinstance(booking, Unbooked) else "",
        confirmed=copied and report.is_private,
        origin=origin,
        digest=digest,
        purpose=purpose or "not stated",
        signed={role: name or "not stated" for role, name in people.items() if name or role != "Page by"},
        facts=dict(facts or {}),
        about=dict(about or {}),
        contents=contents,
        scores=judged,
        unsourced=unsourced_words(schema),
        releases=[(release.name, _release(release, report.unit)) for release in report.releases],
        assumptions=_declaring_parties(report, origin["person"], unmarked),
        compared=compare_attacks(both),
        attacked=attack_section(model) if report.status.holds else "",
        check=check or f"report_html(model, ledger=LEDGER, dataset_id={dataset_id!r}, ...).standing",
        command=command or (refit if hasattr(model, "fit") else ""),
        event=_shorten(json.dumps(encode(report.event), indent=1)),
    )
    return Page(text, standing)


def unsourced_words(schema: Schema | None) -> str:
    """Return that nobody stated where bounds or levels of a table come from; "" where somebody did."""
    columns = [c for c in getattr(schema, "columns", ()) if getattr(c, "levels", None) or hasattr(c, "low")]
    names = [c.name for c in columns if not getattr(c, "source", "")]
    few = f"{', '.join(names[:4])}{', ...' * (len(names) > 4)}"
    words = (
        f"Nobody stated where the bounds or levels of {len(names)} of {len(columns)} columns come from "
        f"({few}): if somebody read them off these records, the guarantee does not hold"
    )
    return words * bool(names)


def _declaring_parties(
    report: PrivacyReport, person: str, unmarked: Sequence[Column] = ()
) -> list[tuple[Fact, str]]:
    """Return what is assumed to be public with who says so; what was counted comes first."""
    told = {column.fact for column in unmarked}
    return [
        (fact, WORDS["who"]["unmarked" if fact in told else fact.origin].format(person=person))
        for fact in sorted(report.public, key=lambda fact: not fact.units)
    ]


def _shorten(event: str) -> str:
    """Return a text, cut off where it is too long for a page."""
    cut = f"{event[:_LONGEST_EVENT]}\n... ({len(event)} characters in all)"
    return event if len(event) <= _LONGEST_EVENT else cut


def _with_model(
    found: Intervals | PredictionIntervals, report: PrivacyReport, base: Standing | None, books: Books
) -> tuple[str, PrivacyReport, Line]:
    """Return the name of a run of intervals, its guarantee with the model, and what is said of both."""
    fitted = getattr(found, "fitted", found.model)
    own = report_of(fitted)
    fitted_on = final_step(fitted)
    own_books = Books(getattr(fitted_on, "ledger", None), getattr(fitted_on, "dataset_id", None) or "")
    base = base or standing_of(fitted, own, books if own.copied else own_books)
    line: Line = {"doubts": base.doubts}
    if (own.unit, own.relation) != (report.unit, report.relation):
        words = f"the model protects one {own.unit} ({own.relation.value}), and its price is not counted here"
        line |= {"weak": base.weak, "caution": "; ".join([words, *base.cautions])}
    elif report.status.holds:
        return "this run", composed([("intervals", report), ("model", base.report)]), line
    return "this run", report, line


def attack_section(model: Any) -> str:
    """Return the section on attacks: a replay of a fit of this kind on made-up records, where it is quick.

    **Privacy.** The records are made up from declared facts, so that the page depends on no real one.
    """
    linear = hasattr(model, "coef_") or hasattr(model, "components_")
    if not hasattr(model, "privacy_") or not linear or model.n_features_in_ > QUICK:
        return ""
    try:
        return audit(model, seconds=0.0, draws=0).to_html()  # escaped already
    except SordinoError:  # made-up records cannot be what its parameters ask for
        return ""


def compare_attacks(report: PrivacyReport) -> list[dict[str, str]]:
    """Return what the best attack on this run achieves, beside one Gaussian release at epsilon 1, 4 and 8."""
    epsilon, delta = report.whole or (report.epsilon, report.delta)
    near = next((e for e in COMPARED if 0 <= e - epsilon <= 0.02 * e), None)  # calibrated just below it
    own = epsilon if near is None else near
    curves = {e: gaussian_trade_off(gaussian_mu(e, min(delta, 0.5))) for e in COMPARED}
    curves[own] = report.trade_off

    def harm(curve: TradeOff) -> float:
        return curve.true_positive_rate(0.001)

    return [
        {
            "epsilon": at_most(epsilon if at == own else at),
            "own": "yes" if at == own else "",
            "strength": report.strength if at == own else strength(at),
            "bet": percent(guess(curve)),
            "found": percent(curve.true_positive_rate(0.01)),
            "harm": "any chance" if harm(curve) >= 1 else f"{at_most(1000 * harm(curve), 3)} in 1,000",
        }
        for at, curve in sorted(curves.items())
    ]


# ------------------------------------------------ Who ran what, when, with which code and which settings

_LONGEST = 200


def provenance(model: Any, dataset_id: str | None, person: str, config: Any) -> dict[str, str]:
    """Return what a board wants to know about a run, besides its guarantee: who, when, code, settings.

    A fact that nobody stated reads "not stated". Of a model's parameters those that are no plain values are
    named by their type.
    """
    if config is None:
        given: Any = getattr(model, "get_params", dict)()
        given = given if isinstance(given, Mapping) else {}
        shown = {k: plain(v) for k, v in given.items() if v is not None and not k.endswith("ledger")}
        config = {"model": type(model).__name__, **shown}
    text = config if isinstance(config, str) else json.dumps(plain(config), indent=2, ensure_ascii=False)
    packages = ("numpy", "scipy", "scikit-learn", "dp-accounting")
    return {
        "dataset_id": dataset_id or "not stated",
        "person": person or "not stated",
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": sordino.__version__,
        "software": f"Python {platform.python_version()}, "
        + ", ".join(f"{name} {metadata.version(name)}" for name in packages),
        "code_digest": code_digest(),
        "config": text,
        "config_digest": hashlib.sha256(text.encode()).hexdigest(),
    }


def plain(value: Any) -> Any:
    """Return a parameter as JSON can hold it: words, numbers and short lists of them, never an array.

    **Privacy.** Parameters are public constants; an array or an object among them may not be one.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else f"a text of {len(value)} characters"
    if isinstance(value, Real):
        number = float(value)
        if number.is_integer() and abs(number) < 1e15:
            return int(number)
        return number if math.isfinite(number) else str(number)
    if isinstance(value, Mapping):
        return {str(k)[:_LONGEST]: plain(v) for k, v in list(value.items())[:100]}
    if isinstance(value, (list, tuple)) and len(value) <= 50:
        return [plain(v) for v in value]
    return f"a {type(value).__name__}"
