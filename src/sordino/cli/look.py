"""`sordino inspect` and `sordino report`: what a saved model is, on a terminal and on a page."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import click

from sordino.cli.shared import (
    FORCE,
    JSON,
    LEDGER,
    MODEL,
    OUTPUT,
    SIGNERS,
    config_option,
    document,
    guarantee,
    require_budget,
    require_writable,
    show_table,
    tell_schema_price,
)
from sordino.errors import InvalidInputError

SIGNED = ("purpose", "controller", "approver")
"""What the page says about those who answer for it, besides its author."""


@click.command()
@MODEL
@click.option("--top", default=20, show_default=True, help="How many coefficients.")
@JSON
def inspect(model: Path, top: int, as_json: bool) -> None:
    """Show the guarantee of MODEL and its coefficients with the noise in them."""
    import sordino
    from sordino.saving.files import about, report_of

    fitted, facts = sordino.load(model), about(model)
    report = report_of(fitted)
    rows = _contents(fitted)
    if as_json:
        run = facts.get("about", {}).get("run")
        out = {"model": facts["model"], "version": facts["version"], "run": run, "privacy": facts["report"]}
        shapes = [vars(shape) for shape in getattr(fitted, "shapes_", ())]
        document({**out, "coefficients": rows, "shapes": shapes})
        return
    click.echo(f"{type(fitted).__name__}, saved by Sordino {facts['version']}")
    if report is not None:
        click.echo(f"{guarantee(report)}\n{report.guarantee}")
        tell_schema_price(report)
        show_table(("release", "times", "mechanism", "noise multiplier", "sensitivity"), _releases(report))
        click.echo("\n  ".join(["Assumed public:", *report.public]))
        said = [("Note", report.notes), ("Paid nothing", report.unpaid), ("Not proven", report.unproven)]
        for title, line in ((title, line) for title, lines in said for line in lines):
            click.echo(f"{title}: {line}")
    effects = getattr(fitted, "shapes_", ())
    if effects:
        lines = [
            (s.name, f"{s.importance:.3g}", "{:+.3g} to {:+.3g}".format(*_ends(s))) for s in effects[:top]
        ]
        show_table(("column", "importance", "effect on the prediction"), lines)
    if rows:
        known = any(entry["two sigma"] is not None for entry in rows)
        titles = ("", "value", "noise, two sigma", "") if known else ("", "value")
        show_table(titles, [_row(entry)[: len(titles)] for entry in rows[:top]])
        if len(rows) > top:
            click.echo(f"{len(rows) - top} smaller ones are not shown (--top).")


@click.command()
@MODEL
@click.option("--output", type=OUTPUT, required=True, help="The page.")
@LEDGER
@click.option("--scores", type=click.Path(path_type=Path), multiple=True, help="From evaluate --output.")
@click.option("--author", help="Who ran it; else whoever fitted the model.")
@click.option("--title", help="Of the page.")
@SIGNERS
@FORCE
@JSON
@config_option
def report(
    model: Path,
    output: Path,
    ledger: str | None,
    dataset: str | None,
    scores: tuple[Path, ...],
    author: str | None,
    title: str | None,
    force: bool,
    as_json: bool,
    **signed: str | None,
) -> None:
    """Write the page on MODEL that a review board signs: one file, no scripts, nothing loaded from elsewhere.

    With --ledger it shows the budget before and after.
    """
    import sordino
    from sordino.saving import about
    from sordino.saving.files import model_digest

    require_writable(output, force)
    fitted, facts = sordino.load(model), about(model)
    run = {**facts["about"].get("run", {}), "version": facts["version"]}
    booked = run.get("dataset", dataset)
    run |= {key: value for key, value in (("dataset", dataset), ("person", author)) if value is not None}
    if ledger is not None and run.get("dataset") is not None:
        require_budget(ledger, run["dataset"])
    if dataset is not None and booked != dataset:
        raise InvalidInputError(
            f"By its file the run was booked on {booked or 'no data set'!r}, not on {dataset!r}. "
            "Leave --dataset out: a reservation of the same releases there is that of another run."
        )
    run["signed"] = run.get("signed", {}) | {key: value for key, value in signed.items() if value is not None}
    found = _scores(scores, model_digest(fitted))
    write_page(fitted, output, run, ledger=ledger, title=title, scores=found)
    if as_json:
        document({"output": output, "privacy": facts["report"]})
    else:
        click.echo(f"Report written to {output}")


def write_page(model: Any, output: Path, run: dict[str, Any], **more: Any) -> None:
    """Write the page on a model, with what is known of the run that made it."""
    from sordino.report import write_report

    write_report(
        model,
        output,
        dataset_id=run.get("dataset"),
        author=run.get("person"),
        config=run.get("settings"),
        command=command_line(run),
        facts=_facts(run),
        **run.get("signed", {}),
        **more,
    )


def _facts(run: dict[str, Any]) -> dict[str, str]:
    """Return what a page says of a run besides its author, data set and settings."""
    facts = {}
    if "data" in run:
        rows = f", {run['rows']:,} rows" if "rows" in run else ""
        facts["Data"] = f"{run['data']}{rows}"
    if "started" in run:
        facts["Ran"] = f"{_minute(run['started'])} to {_minute(run['finished'])} UTC"
    if "version" in run:
        code = f", code {run['code'][:16]}" if "code" in run else ""
        facts["Saved by"] = f"Sordino {run['version']}{code}"
    return facts


def _minute(time: str) -> str:
    return time[:16].replace("T", " ")


def command_line(run: dict[str, Any]) -> str | None:
    """Return the command that made a model, from the settings in its file; None where none did."""
    if not run.get("settings"):
        return None
    settings = dict(run["settings"])
    words = ["sordino", run["command"], settings.pop("data", "-")]
    for name, value in settings.items():
        for entry in value if isinstance(value, list) else [value]:
            words += [f"--{name}"] if entry is True else [f"--{name}", str(entry)]
    return shlex.join(words)


def _scores(paths: tuple[Path, ...], digest: str) -> dict[str, Any]:
    """Return the scores in files by their names, those of one metric with the names of their files."""
    read = [(path, *_score(path, digest)) for path in paths]
    names = [name for _, name, _ in read]
    return {name if names.count(name) == 1 else f"{name} ({path.name})": value for path, name, value in read}


def _score(path: Path, digest: str) -> tuple[str, Any]:
    """Return the name and the score in a file of `sordino evaluate --output`, of this model."""
    try:
        found = json.loads(path.read_text("utf-8"))
        if found.get("model", digest) != digest:
            raise InvalidInputError(
                f"{path.name!r} is the score of another model. Pass the scores of this one."
            )
        unknown = "" if "model" in found else " (model not stated)"
        return f"{found['metric']}{unknown}", _value(found)
    except InvalidInputError:
        raise
    except (OSError, KeyError, TypeError, ValueError, AttributeError):
        raise InvalidInputError(
            f"Expected the file of `sordino evaluate --output`, got {path.name!r}."
        ) from None


def _value(found: dict[str, Any]) -> Any:
    """Return a score as it was before it was written: private, exact, or a calibration curve."""
    from sordino.estimators.metrics import CalibrationCurve
    from sordino.runs import PrivacyReport

    if found["privacy"] is None:
        return float(found["value"])
    report = PrivacyReport.from_dict(found["privacy"])
    if "groups" in found:
        return [(line["group"], _private_number(line, report)) for line in found["groups"]]
    if "curve" in found:
        curve = {name: _numbers(value) for name, value in found["curve"].items()}
        return CalibrationCurve(**curve, privacy=report, model=found.get("model", ""))
    return _private_number(found, report)


def _private_number(found: dict[str, Any], report: Any) -> Any:
    from sordino.estimators.statistics import PrivateFloat

    low, high = map(float, found["interval"])
    constant = found.get("baseline")
    baseline = None if constant is None else (float(constant[0]), float(constant[1]))
    return PrivateFloat(float(found["value"]), report, (low, high), None, baseline, found.get("model", ""))


def _numbers(value: Any) -> Any:
    """Return a number, or a list as an array of doubles; the texts "nan" and "inf" are numbers too."""
    import numpy as np

    return np.asarray(value, dtype=float) if isinstance(value, list) else float(value)


def _ends(shape: Any) -> tuple[float, float]:
    return float(shape.effect.min()), float(shape.effect.max())


def _releases(report: Any) -> list[tuple[str, ...]]:
    return [
        (r.name, str(r.times), f"{r.mechanism}, {r.sampling}", f"{r.noise_multiplier:.4g}", r.sensitivity)
        for r in report.releases
    ]


def _contents(model: Any) -> list[dict[str, Any]]:
    """Return coefficients by size, or the variances of components, with the noise that is known."""
    import numpy as np

    if hasattr(model, "explained_variance_"):
        values, names = (
            model.explained_variance_,
            [f"component {i}" for i in range(len(model.explained_variance_))],
        )
        noise = np.broadcast_to(model.eigenvalue_noise_, len(values))
    elif hasattr(model, "coef_"):
        coef = np.atleast_2d(model.coef_)
        classes = [""] if len(coef) == 1 else [f"{label}: " for label in model.classes_]
        names = [start + name for start in classes for name in _names(model, coef.shape[1])]
        values, noise = coef.ravel(), _noise(model, coef)
    else:
        return []
    order = np.argsort(-np.abs(values), kind="stable") if hasattr(model, "coef_") else np.arange(len(values))
    return [
        {
            "name": names[i],
            "value": float(values[i]),
            "two sigma": None if noise is None else 2 * float(noise[i]),
        }
        for i in order
    ]


def _noise(model: Any, coef: Any) -> Any:
    import numpy as np

    noise = getattr(model, "coef_noise_", None)
    if noise is None:
        return None
    rows = np.atleast_2d(noise)[:, : coef.shape[1]]  # the last one may be the intercept's
    return np.broadcast_to(rows, coef.shape).ravel() if rows.shape[1] == coef.shape[1] else None


def _names(model: Any, count: int) -> list[str]:
    encoder = getattr(model, "encoder_", None)
    if encoder is not None:
        return [str(name) for name in encoder.get_feature_names_out()]
    names = getattr(model, "feature_names_in_", None)
    return [f"x{i}" for i in range(count)] if names is None else [str(name) for name in names]


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    noise = entry["two sigma"]
    word = "could be noise" if noise is not None and abs(entry["value"]) <= noise else ""
    return entry["name"], f"{entry['value']:.4g}", "" if noise is None else f"{noise:.3g}", word
