"""The page a board signs: one run, what it guarantees and what that rests on."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from sordino.accounting.codec import encode
from sordino.accounting.conversions import gaussian_mu
from sordino.accounting.trade_off import gaussian_trade_off
from sordino.auditing import audit
from sordino.errors import InvalidInputError, SordinoError
from sordino.estimators.group_statistics import PrivateTable
from sordino.estimators.metrics import CalibrationCurve, row_named
from sordino.estimators.pipeline import pipeline_privacy
from sordino.estimators.statistics import PrivateFloat
from sordino.report.page import Booking, booking_of, render_page
from sordino.report.provenance import Provenance, plain
from sordino.runs import PrivacyReport, ReleaseReport
from sordino.runs.price import Status, at_most, guess, percent, strength
from sordino.saving.files import model_digest

# ----------------------------------------------------------- Releases and assumptions of a report, in words

# What is asked, by the name that solvers give a release.
_ASKED = {
    "anchor": "the direction in which the model gets better",
    "batch": "the direction in which the model gets better, from a batch",
    "bounded": "means of the values and of their squares, within declared bounds",
    "center": "where the middle of the values lies",
    "classes": "how frequent the classes are",
    "columns": "the size of each column",
    "coordinate": "the number of the column that would improve the model most",
    "correction": "how that direction changes between two points",
    "counts": "how many records each group has",
    "curvature": "how sharply the model's fit bends along its coefficients",
    "derivative": "how much one column would improve the model",
    "features": "a histogram of how large the columns are",
    "bent": "how the counts of the columns bend the direction",
    "first": "the direction in which the model gets better, at the start",
    "fit": "the model's coefficients",
    "gradient": "the direction in which the model gets better",
    "gradients": "a histogram of how large the steps of single records are",
    "gram": "how the columns vary together",
    "kinds": "which kinds of values the columns hold",
    "length": "slope and offset of the model's own margins",
    "levels": "which levels the columns hold, those that many records have",
    "mean": "the mean",
    "means": "the means of the columns, within declared bounds",
    "minimiser": "the best coefficients",
    "moments": "means and sizes of the columns",
    "norms": "a histogram of how long the rows are",
    "numbers": "counts of records in trees of intervals, one per column",
    "offset": "the mean of what the model leaves of the targets",
    "powers": "means of powers of the values",
    "product": "the product of the covariance and some axes",
    "recursion": "how the direction changes from step to step",
    "scales": "a histogram of how large the values are",
    "score": "how far the fit could still move, and how much records differ in that",
    "scores": "how well the model does on these records",
    "search": "how long the next step should be",
    "second": "how the columns vary together",
    "select": "which columns matter",
    "shares": "which share of each column is clipped or undeclared, and which is missing",
    "sizes": "a histogram of how large the values are",
    "snapshot": "the direction in which the model gets better, at a fixed point",
    "spectrum": "how much the records vary along the axes",
    "squares": "the size of each column",
    "start": "the direction in which the model gets better, at the start",
    "step": "the next step of the model",
    "sums": "sums of values by group",
    "support": "which columns matter",
    "tails": "a histogram of how large the steps of single records are",
    "targets": "a histogram of how large the targets are",
    "teacher": "the coefficients of a first model",
    "tree": "counts of records in a tree of intervals",
    "trees": "counts of records in trees of intervals, one per group",
    "triangle": "how the columns vary together",
    "update": "how the members would change the model",
    "values": "the direction in which the model gets better, for the chosen columns",
    "vertex": "the number of the column that would improve the model most",
    "whole": "the direction in which the model gets better, from whole records",
}
_NOISE = {
    "Gaussian": "Gaussian noise",
    "Correlated": "Gaussian noise that is correlated over the releases",
    "SymmetricGaussian": "Gaussian noise on a symmetric matrix",
    "Laplace": "Laplace noise",
    "NormGamma": "noise of random direction and length",
    "TiltedObjective": "a random tilt of what is minimised",
}


QUICK = 50
"""Columns of a model that is attacked when its page is written: a replay takes less than a second."""


@dataclass(frozen=True)
class Said:
    """A line of the page: a name, a sentence, and who answers for it."""

    name: str
    sentence: str
    source: str = ""


def releases(report: PrivacyReport) -> list[Said]:
    """Return every release as a sentence."""
    return [Said(release.name, _release(release, report.unit)) for release in report.releases]


def _release(release: ReleaseReport, unit: str) -> str:
    asked = _ASKED.get(release.name, f"the answer to {release.name!r}")
    often = "Once" if release.times == 1 else f"{release.times} times"
    kind = release.mechanism.split(" ")[0]
    words = _NOISE.get(kind)
    if words is None:
        noise = f"chosen at random among the best ({release.mechanism})"
    else:
        times = f"{release.noise_multiplier:.3g} times what one {unit} can change"
        noise = f"with {words}, {times}" if release.noise_multiplier > 0 else "without any noise"
    exact = ", exactly rounded" if "lattice" in release.mechanism else ""
    return f"{often}: {asked}, from {_records(release.sampling)}, {noise}{exact}."


def _records(sampling: str) -> str:
    number = re.search(r"(\d[\d.e+-]*)", sampling)
    if sampling.startswith("Full"):
        return "all records"
    if sampling.startswith("Poisson") and number:
        return f"a secret random part of the records (each with a chance of {100 * float(number[1]):.3g} %)"
    if sampling.startswith("FixedSize") and number:
        return f"{number[1]} records drawn at random and kept secret"
    if sampling.startswith("Cyclic") and number:
        drawn = "" if "rate=1.0" in sampling else ", a secret random share of it"
        return f"one of {number[1]} parts of the records in turn{drawn}"
    return "one part of the records each time" if sampling.startswith("Disjoint") else sampling


def assumptions(report: PrivacyReport, author: str) -> list[Said]:
    """Return what was assumed to be public, and who said so."""
    return [Said("", line, _declared_by(line, author)) for line in report.public]


def _declared_by(line: str, author: str) -> str:
    if ", the default" in line:
        return "nobody: the library's default"
    if "seen in" in line:
        return "nobody: read off the data"
    marks = ("the schema was learned", "(learned: ", "learned from records", "by a schema that was learned")
    if any(mark in line for mark in marks) or (line.startswith("levels of ") and line.endswith(" learned")):
        return "learned from records, for its own price"
    if line.startswith(("number of", "feature names")):
        return "the shape of the table"
    return f"declared by {author}"


# ----------------------------------------------------------------------------------------------------------
# What may be shown of a fitted model: released numbers, by a list of names and never by looking around.

TOP = 20
_BAND = (
    " The grey band is twice the standard deviation of its noise, as far as that is known: a paler bar could "
    "be noise alone."
)


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
class Curve:
    """The effect of one column in a box of 200 x 80: a line or dots, and a band of twice its noise."""

    name: str
    first: str
    last: str
    top: str
    bottom: str
    zero: float
    line: str
    band: str
    dots: tuple[tuple[float, float, float, float, str], ...] = ()


@dataclass(frozen=True)
class Score:
    """A private score with its interval and its price."""

    name: str
    words: str
    text: str
    interval: str
    price: str
    baseline: str = ""
    low: float | None = None
    high: float | None = None
    at: float | None = None


@dataclass
class Contents:
    """Everything of a model that the page shows."""

    kind: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)


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
    """Return the parts of a model that the page shows. Of a model that is not private it shows the kind only.

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
        if getattr(inner, "shapes_", None):
            _effects(inner, out)
        else:
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


def _effects(model: Any, out: Contents) -> None:
    """Show one curve for each column of a table, and how much each column and pair matters."""
    shapes = model.shapes_[:TOP]
    most = max((shape.importance for shape in shapes), default=0.0) or 1.0
    bars = tuple(
        Bar(s.name[:60], s.importance, f"{s.importance:.3g}", 0.0, 100.0 * s.importance / most)
        for s in shapes
    )
    words = (
        "How far each column, or pair of columns, moves the prediction of a record (one standard deviation), "
        "in units of the target for numbers and in log odds for labels."
    )
    out.charts.append(Chart("What matters", words, bars))
    out.curves += [_curve(shape) for shape in shapes if len(shape.columns) == 1]


def _curve(shape: Any) -> Curve:
    effect = shape.effect if shape.effect.ndim == 1 else shape.effect[-1]
    noise = np.zeros(effect.shape) if shape.noise is None else 2.0 * np.asarray(shape.noise)
    noise = np.nan_to_num(noise if noise.ndim == 1 else noise[-1])
    at = shape.at[0]
    low = min(float((effect - noise).min()), 0.0)
    high = max(float((effect + noise).max()), 0.0)
    reach = (high - low) or 1.0

    def height(values: Any) -> Any:
        return 80.0 * (high - values) / reach

    known = np.array([value for value in at if isinstance(value, float)])  # "other" and gaps come last
    ends = str(at[0]), str(at[-1])
    line = band = ""
    dots: list[tuple[float, float, float, float, str]] = []
    if len(known) > 1:
        ends = f"{known[0]:g}", f"{known[-1]:g}"
        x = 200.0 * (known - known[0]) / (known[-1] - known[0])
        up, down = height(effect + noise), height(effect - noise)
        line = _path(x, height(effect))
        there = range(len(known))
        band = _path([*x, *x[::-1]], [*(up[i] for i in there), *(down[i] for i in reversed(there))])
    else:
        for i, value in enumerate(at):
            place = 200.0 * (i + 0.5) / len(at)
            spread = float(height(effect[i] + noise[i])), float(height(effect[i] - noise[i]))
            dots.append((place, float(height(effect[i])), *spread, str(value)[:12]))
        ends = ", ".join(str(value)[:12] for value in at[:6]), ""
    return Curve(
        shape.name, *ends, f"{high:+.3g}", f"{low:+.3g}", float(height(0.0)), line, band, tuple(dots)
    )


def _path(x: Any, y: Any) -> str:
    return "M" + "L".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y))


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


def scores_of(scores: Any, digest: str = "") -> list[Score]:
    """Return private scores as lines; a calibration curve by its error, a table by its groups.

    A score that says which model it is of must be of the model with this digest.
    """
    named: Mapping[str, Any] = scores if isinstance(scores, Mapping) else {}
    out = []
    for name, value in named.items():
        of = getattr(value, "model", "")
        if digest and of and of != digest:
            raise InvalidInputError(
                f"The score {name!r} is one of another model ({of[:16]}, not {digest[:16]}). Pass the scores "
                "of this one."
            )
        parts = [(f"{name}, {group}", part) for group, part in _parts(value)]
        out += [_score(title, part) for title, part in parts or [(str(name), value)]]
    return out


def _parts(value: Any) -> list[tuple[str, Any]]:
    """Return the groups of a table of scores with their numbers; none for a single score."""
    if isinstance(value, list):  # read back from a file
        return value
    if not isinstance(value, PrivateTable):
        return []
    ends = zip(value.low.tolist(), value.high.tolist(), strict=True)
    numbers = (PrivateFloat(v, value.privacy, e) for v, e in zip(value.value.tolist(), ends, strict=True))
    names = (", ".join(f"{k}={v}" for k, v in zip(value.keys, row, strict=True)) for row in value.rows)
    return list(zip(names, numbers, strict=True))


def _score(name: str, value: Any) -> Score:
    row = row_named(re.split(r" by |, ", name)[0].lower().replace(" ", "_"))
    words = "" if row is None else f"each record adds: {row.words}"
    report = getattr(value, "privacy", None)
    price = (
        f"epsilon {at_most(report.epsilon, 3)}, delta {at_most(report.delta, 2)} per {report.unit}; "
        f"{report.status}"
        if isinstance(report, PrivacyReport)
        else "nothing was paid: public records, or not private"
    )
    if isinstance(value, CalibrationCurve):
        return Score(name, words, f"{value.error:.3f}", "expected calibration error", price)
    number = float(value)
    baseline = constant_words(getattr(value, "baseline", None))
    ends = getattr(value, "interval", None)
    if ends is None:
        return Score(name, words, f"{number:.4g}", "exact", price, baseline)
    low, high = (float(e) for e in ends)
    inside = row is not None and row.share and 0.0 <= low <= high <= 1.0
    bar = (100 * low, 100 * high, 100 * min(max(number, 0.0), 1.0)) if inside else (None, None, None)
    return Score(name, words, f"{number:.4g}", f"{low:.4g} to {high:.4g}", price, baseline, *bar)


def constant_words(baseline: tuple[float, float] | None) -> str:
    """Return what the best constant scores, with twice the deviation of its noise."""
    if baseline is None:
        return ""
    value, noise = baseline
    return f"{value:.3g} ± {2 * noise:.2g}" if noise else f"{value:.4g}"


COMPARED = (1.0, 4.0, 8.0)
_LONGEST_EVENT = 20_000


def write_report(model: Any, path: str | Path, **details: Any) -> Path:
    """Write one self-contained HTML page about a run to ``path``; return the path.

    ``model`` and ``details`` (``dataset_id``, ``author``, ``purpose``, ``controller``, ``approver``,
    ``config``, ``command``, ``title``, ``ledger``, ``scores``, ``facts``, ``assume_public``) as in
    :func:`report_html`.

    **Privacy.** The page shows released numbers and declared constants only.
    """
    page = report_html(model, **details)
    path = Path(path)
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
    title: str | None = None,
    ledger: Any = None,
    scores: Mapping[str, Any] | None = None,
    facts: Mapping[str, str] | None = None,
    assume_public: Sequence[str] = (),
) -> str:
    """Return one self-contained HTML page about a run.

    Parameters
    ----------
    model : a fitted model, search or pipeline, a private result, or a :class:`sordino.PrivacyReport`.
    dataset_id, ledger : of the records; None takes the model's own.
    author : who ran it; None takes ``SORDINO_PERSON`` or the name of the account.
    purpose, controller, approver : what it is for, who answers for the data, who signs.
    config : the settings of the run, a text or a mapping; None takes the model's parameters.
    command : how it was run, for the section on how to do it again.
    title : of the page.
    scores : results of :func:`sordino.private_score` or :func:`sordino.private_scores_by` (or plain numbers
        from public records) by name; a score of another model is refused.
    facts : more lines about the run, by name: when it ran, on which file.
    assume_public : for a pipeline, see :func:`sordino.pipeline_privacy`.

    **Privacy.** The page shows released numbers and declared constants only, by a fixed list of attributes;
    of a model that is not private nothing but its kind.
    """
    report = report_of(model, assume_public)
    dataset_id = dataset_id or getattr(model, "dataset_id", None)
    ledger = getattr(model, "ledger", None) if ledger is None else ledger
    origin = Provenance.of(model, dataset_id, author, config)
    contents = contents_of(model, report)
    booking = booking_of(report, ledger, dataset_id)
    whole, digest = report.whole, "" if isinstance(model, PrivacyReport) else model_digest(model)
    signed = {"Run by": origin.author, "Data controller": controller, "Approver": approver}
    return render_page(
        "run.html",
        title=title or f"Privacy report: {contents.kind}",
        report=report,
        origin=origin,
        contents=contents,
        booked=booking if isinstance(booking, Booking) else None,
        not_booked=booking if isinstance(booking, str) else "",
        scores=scores_of(scores, digest),
        digest=digest,
        purpose=purpose or "not stated",
        signed={role: name or "not stated" for role, name in signed.items()},
        releases=releases(report),
        assumptions=assumptions(report, origin.author),
        facts=dict(facts or {}),
        holds=report.status.holds,
        odds=report.odds,
        whole=whole,
        strength=strength(report.epsilon),
        compared=compare_attacks(report),
        command=command or _command(contents.kind),
        event=_event(report),
        attacked=attack_section(model) if report.status.holds else "",
    )


def attack_section(model: Any) -> str:
    """Return the section on attacks: a replay of a fit of this kind on made-up records, where it is quick.

    **Privacy.** The records are made up from declared facts, so that the page depends on no real one.
    """
    if not (hasattr(model, "coef_") or hasattr(model, "components_")) or model.n_features_in_ > QUICK:
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
    return [
        {
            "epsilon": at_most(epsilon, 3),
            "own": "yes" if epsilon == own else "",
            "strength": strength(epsilon),
            "bet": percent(guess(curve)),
            "found": percent(curve.true_positive_rate(0.01)),
            "harm": _in_a_thousand(curve.true_positive_rate(0.001)),
        }
        for epsilon, curve in sorted(curves.items())
    ]


def _in_a_thousand(chance: float) -> str:
    return "any chance" if chance >= 1 else f"{at_most(1000 * chance, 3)} in 1,000"


def _command(kind: str) -> str:
    return (
        f"model = sordino.{kind}(...)  # the settings below\nmodel.fit(X, y)"
        if kind != "PrivacyReport"
        else ""
    )


def _event(report: PrivacyReport) -> str:
    text = json.dumps(encode(report.event), indent=1)
    return (
        text
        if len(text) <= _LONGEST_EVENT
        else f"{text[:_LONGEST_EVENT]}\n... ({len(text)} characters in all)"
    )
