"""`sordino inspect` and `sordino report`: what a saved model is, on a terminal and on a page."""

from __future__ import annotations

import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any

import click

from sordino.cli import shared
from sordino.errors import InvalidInputError

SIGNED = ("purpose", "controller", "approver", "basis", "recipients", "kept_until")
"""What the page says about those who answer for it, besides its author."""

REST = ("(other)", "(missing)")
"""Nobody may have other levels, and gaps."""

_CODE = re.compile('(?<=code <span class="digest">)[0-9a-f]{16}(?=<)|(?<=of the code )[0-9a-f]{64}(?=<)')


@click.command()
@shared.MODEL
@click.option("--top", default=20, show_default=True, help="How many coefficients.")
@shared.LEDGER
@shared.JSON
def inspect(model: Path, top: int, ledger: str | None, dataset: str | None) -> None:
    """Show the guarantee of MODEL and its coefficients with the noise in them.

    With --ledger it says whether MODEL is the one that was released when its run was booked there.
    """
    import sordino
    from sordino.saving.files import about, report_of
    from sordino.values import plain_number

    fitted, facts = sordino.load(model), about(model)
    report, rows, shapes = report_of(fitted), _numbers(fitted), getattr(fitted, "shapes_", ())
    run = facts.get("about", {}).get("run")
    if ledger is not None and (booked := (run or {}).get("dataset", dataset)) is not None:
        shared.require_budget(ledger, booked)
    standing = ask_ledger(fitted, ledger, {"dataset": dataset} | {k: v for k, v in (run or {}).items() if v})
    if shared.wants_json():
        out = {"model": facts["model"], "version": facts["version"], "run": run, "privacy": facts["report"]}
        out["ledger"] = None if standing is None else {"status": standing.status, "words": standing.line}
        shared.document({**out, "coefficients": rows, "shapes": [vars(shape) for shape in shapes]})
        return
    click.echo(f"{type(fitted).__name__}, saved by Sordino {facts['version']}")
    if report is not None and standing is not None:
        known, booked = standing.report, standing.booked and f", {standing.booked}"
        asked = standing.verdict if ledger is not None else []
        click.echo("\n".join([f"{shared.guarantee(known)}{booked}", report.guarantee, *asked]))
        shared.tell_schema_price(known)
        releases = [
            (r.name, str(r.times), f"{r.mechanism}, {r.sampling}", f"{r.noise_multiplier:.4g}", r.sensitivity)
            for r in report.releases
        ]
        shared.show_table(("release", "times", "mechanism", "noise multiplier", "sensitivity"), releases)
        click.echo("\n  ".join(["Assumed public:", *map(shared.one_line, report.public)]))
        said = [("Note", report.notes), ("Paid nothing", report.unpaid), ("Not proven", report.unproven)]
        for title, line in ((title, line) for title, lines in said for line in lines):
            click.echo(f"{title}: {line}")
    if len(shapes):
        from sordino.report.plots import margin_words

        click.echo(
            f"Effects on {margin_words(fitted)}. Of 20 columns without any effect, about one is above its "
            '"noise alone". Which records were drawn adds to that (sordino intervals counts both).'
        )
        effects = [_effect(shape) for shape in shapes[:top]]
        shared.show_table(("column", "importance", "effect", "noise alone", ""), effects)
    if rows and hasattr(fitted, "intercept_") and not any(row["value"] for row in rows):
        click.echo("All coefficients are 0: the model is a constant, its intercept, for every record.")
    elif rows:
        known = any(row["two sigma"] is not None for row in rows)
        lines: list[Any] = []
        for row in rows[:top]:
            numbers = plain_number(row["value"], 4), plain_number(row["two sigma"] or 0.0, 3)
            word = "could be noise" if row["could be noise"] else ""
            word = "nobody may have it" if not word and row["name"].endswith(REST) else word
            lines.append((row["name"], *numbers, word)[: 4 if known else 2])
        shared.show_table(("", "value", "noise, two sigma", "")[: 4 if known else 2], lines)
        if len(rows) > top:
            click.echo(f"{len(rows) - top} smaller ones are not shown (--top).")


def ask_ledger(model: Any, ledger: str | None, run: dict[str, Any]) -> Any:
    """Return the standing of a saved model, as far as a ledger confirms it; None where nothing was paid."""
    from sordino.report.page import Books
    from sordino.report.standing import standing_of
    from sordino.saving.files import report_of

    report, dataset = report_of(model), dataset_of(model, run)
    if report is None:
        return None
    ran = (run["started"], run["finished"]) if "started" in run else None
    return standing_of(model, report, Books(ledger, dataset), ran)


def dataset_of(model: Any, run: dict[str, Any]) -> str | None:
    """Return where a run was booked, as its file or the model says; "" says that it was booked nowhere."""
    from sordino.estimators.pipeline import final_step

    known = run.get("dataset") or getattr(final_step(model), "dataset_id", None)
    return known or ("" if "command" in run else None)


def _effect(shape: Any) -> tuple[str, ...]:
    """Return how much a column or pair matters and from where to where it acts, beside noise alone."""
    from sordino.values import plain_number

    effect = shape.effect
    if len(shape.columns) == 1:
        effect = effect[..., [value not in REST for value in shape.at[0]]]
    ends = [plain_number(float(end), 3, "+") for end in (effect.min(), effect.max())]
    word = "could be noise" if shape.could_be_noise else ""
    alone = "not known" if shape.noise_alone is None else plain_number(shape.noise_alone, 3)
    return shape.name, plain_number(shape.importance, 3), f"{ends[0]} to {ends[1]}", alone, word


def _numbers(model: Any) -> list[dict[str, Any]]:
    """Return coefficients by size, or the variances of components, with the noise that is known."""
    from sordino.report.plots import coefficients_of

    rows = []
    faint = {shape.name for shape in getattr(model, "shapes_", ()) if shape.could_be_noise}
    origins = [origin.column for origin in model.encoder_.origins] if faint else []
    for label, names, coef, noise in coefficients_of(model):
        start = "" if label is None else f"{label}: "
        spread = [None] * len(coef) if noise is None else [2 * float(value) for value in noise]
        for name, value, s, of in zip(names, coef.tolist(), spread, origins or names, strict=True):
            rows.append((start + name, value, s, s is not None and (abs(value) <= s or of in faint)))
    rows.sort(key=lambda row: -abs(row[1]))
    for i, value in enumerate(getattr(model, "explained_variance_", ())):
        s = 2 * float(model.eigenvalue_noise_[i])
        rows.append((f"component {i}", float(value), s, abs(value) <= s))
    return [dict(zip(("name", "value", "two sigma", "could be noise"), row, strict=True)) for row in rows]


@click.command()
@shared.MODEL
@click.option("--output", type=shared.OUTPUT, help="The page.")
@click.option("--check", type=click.File(encoding="utf-8"), help="A page to compare with these files.")
@shared.LEDGER
@click.option("--scores", type=click.Path(path_type=Path), multiple=True, help="From evaluate --output.")
@click.option("--author", help="Who wrote the page, beside who ran it.")
@click.option("--title", help="Of the page.")
@shared.SIGNERS
@shared.FORCE
@shared.JSON
@shared.config_option
def report(
    model: Path,
    output: Path | None,
    check: Any,
    ledger: str | None,
    dataset: str | None,
    scores: tuple[Path, ...],
    author: str | None,
    title: str | None,
    **signed: str | None,
) -> None:
    """Write the page on MODEL that a review board signs: one file, no scripts, nothing loaded from elsewhere.

    With --ledger it shows the budget before and after. The status is 1 where nobody should sign it. With
    --check it writes nothing and says what of a page these files do not give: the page has the options to
    repeat.
    """
    import sordino
    from sordino.report.standing import changes
    from sordino.saving import about
    from sordino.saving.files import model_digest

    fitted, facts = sordino.load(model), about(model)
    run = {**facts["about"].get("run", {}), "version": facts["version"]}
    booked = run.get("dataset", dataset)
    run |= {} if dataset is None else {"dataset": dataset}
    if ledger is not None and run.get("dataset") is not None:
        shared.require_budget(ledger, run["dataset"])
    if dataset is not None and booked != dataset:
        raise InvalidInputError(
            f"By its file the run was booked on {booked or 'no data set'!r}, not on {dataset!r}. "
            "Leave --dataset out: a reservation of the same releases there is that of another run."
        )
    said = run.get("signed", {})
    run["signed"] = said | {
        key: value if said.get(key, value) == value else f"{value} (at the run: {said[key]})"
        for key, value in signed.items()
        if value is not None
    }
    run["asked"] = {
        "dataset": dataset,
        **signed,
        "author": author,
        "title": title,
    }  # the page says to ask for it again
    found = [(path, *_score(path, model_digest(fitted), run)) for path in scores]
    both: list[set[str]] = [set(), set()]
    for _, name, value in found:
        both[hasattr(value, "privacy") or isinstance(value, list)].add(name.partition(" on ")[2])
    if clash := both[0] & both[1]:
        raise InvalidInputError(
            f"One score of {', '.join(clash)} is exact, as of public records, and another was paid for, as "
            "of sensitive ones. One of both is wrong: leave it out."
        )
    names = [name for _, name, _ in found]  # scores of one metric have the names of their files
    named = {n if names.count(n) == 1 else f"{n} ({path.name})": value for path, n, value in found}
    if (output is None) == (check is None):
        raise click.UsageError("Expected one of --output, to write the page, and --check, to compare one.")
    page = page_of(fitted, run, ledger=ledger, title=title, scores=named, author=author)
    known = page if check is None else check.read()
    standing, differ = page.standing, changes(known, page)
    if differ and not changes(_CODE.sub("", known), _CODE.sub("", page)):
        differ = ["Only the digest of the code differs: another version of Sordino wrote the page."]
    said = [f"Report written to {output}: {standing.line}."]
    if output is not None:
        output.write_text(page, encoding="utf-8")
    else:
        words = "differs from what these files give" if differ else "is what these files give"
        said = [f"{check.name} {words}: {standing.line}.", *differ]
    lines = [*said, *standing.verdict]
    if missing := [f"--{key.replace('_', '-')}" for key in SIGNED if key not in run["signed"]]:
        lines.append(f"Not stated on the page: {', '.join(missing)}.")
    told = {"output": output, "privacy": facts["report"], "status": standing.status}
    told |= {"do not sign": list(map(str, standing.doubts)), "differs": differ}
    shared.result(told, "\n".join(lines))
    if standing.doubts or differ:
        raise click.exceptions.Exit(1)


def write_page(model: Any, output: Path, run: dict[str, Any], **more: Any) -> Any:
    """Write the page on a model, with what is known of the run that made it; return its standing."""
    page = page_of(model, run, **more)
    output.write_text(page, encoding="utf-8")
    return page.standing


def page_of(model: Any, run: dict[str, Any], **more: Any) -> Any:
    """Return the page on a model, with what is known of the run that made it."""
    from sordino.report import report_html

    facts = {}
    if "data" in run:
        rows = f", {run['rows']:,} records of it were used" if "rows" in run else ""
        facts["Data"] = f"{run['data']}{rows}"
    if "of" in run:
        facts["Intervals of"] = run["of"]
    if "started" in run:
        started, finished = (run[key][:16].replace("T", " ") for key in ("started", "finished"))
        facts["Ran"] = f"{started}{f' to {finished}' * (started != finished)} UTC"
        more["ran"] = run["started"], run["finished"]
    if "version" in run:
        code = f", code {run['code'][:16]}" if "code" in run else ""
        facts["Saved by"] = f"Sordino {run['version']}{code}"
    dataset = dataset_of(model, run)
    more |= {"dataset_id": dataset, "person": run.get("person"), "config": run.get("settings")}
    said = {**run.get("signed", {})}
    titles = {"basis": "Legal basis", "recipients": "Recipients", "kept_until": "Kept until"}
    about = {title: said.pop(key, "not stated") for key, title in titles.items()}
    more |= {"facts": facts, **said, "about": about}
    if settings := {**(run.get("settings") or {})}:  # of the command that made the model
        book = {"ledger": "LEDGER"} if "dataset" in settings else {}  # its address may hold a password
        places = [settings.pop("model")] if "of" in run else []
        places.append(settings.pop("data", "-"))
        more["command"] = shared.command_line(run["command"], *places, **book, **settings)
    asked = {"ledger": "LEDGER", "check": "PAGE", "scores": ["SCORE"] * len(more.get("scores") or ())}
    check = shared.command_line("report", "MODEL", **asked, **run.get("asked", {}))
    return report_html(model, check=check, **more)


def _score(path: Path, digest: str, run: dict[str, Any]) -> tuple[str, Any]:
    """Return the name and the score in a file of `sordino evaluate --output`, of this model."""
    from sordino.report.run_page import SEEN

    try:
        text = path.read_bytes()
        found = json.loads(text)
        if found.get("model", digest) != digest:
            raise InvalidInputError(
                f"{path.name!r} is the score of another model. Pass the scores of this one."
            )
        if found["privacy"] is None and str(found.get("data")).removesuffix(SEEN) == run.get("data"):
            raise InvalidInputError(
                f"{path.name!r} is an exact score of the file of the fit, which was a private one: it tells "
                "about those records. Leave it out."
            )
        unknown = "" if "model" in found else " (model not stated)"
        name = f"{found['metric']} on {found['data']}" if "data" in found else found["metric"]
        return f"{name}{unknown}", _value(found, hashlib.sha256(text).hexdigest())
    except InvalidInputError:
        raise
    except (OSError, KeyError, TypeError, ValueError, AttributeError):
        raise InvalidInputError(
            f"Expected the file of `sordino evaluate --output`, got {path.name!r}."
        ) from None


def _value(found: dict[str, Any], digest: str) -> Any:
    """Return a score as it was before it was written: private, exact, by group, or a calibration curve."""
    from dataclasses import replace

    import numpy as np

    from sordino.estimators.metrics import CalibrationCurve
    from sordino.estimators.statistics import PrivateFloat
    from sordino.runs import PrivacyReport

    if found["privacy"] is None:
        return float(found["value"])
    report, of = replace(PrivacyReport.from_dict(found["privacy"]), file=digest), found.get("model", "")
    if "curve" in found:  # the texts "nan" and "inf" are numbers too
        arrays = {name: np.asarray(value, dtype=float) for name, value in found["curve"].items()}
        curve: Any = {name: value if value.ndim else float(value) for name, value in arrays.items()}
        return CalibrationCurve(**curve, privacy=report, model=of)

    def number(line: dict[str, Any]) -> Any:
        (low, high), constant = map(float, line["interval"]), line.get("baseline")
        baseline = None if constant is None else (float(constant[0]), float(constant[1]))
        value = float("nan" if line["value"] is None else line["value"])  # noise hides it
        if not (math.isnan(value) or low <= value <= high):
            raise InvalidInputError(
                f"The score {value:g} lies outside of its own interval, {low:g} to {high:g}."
            )
        return PrivateFloat(value, report, (low, high), None, baseline, of, found["metric"].partition(" ")[0])

    return [(line["group"], number(line)) for line in found["groups"]] if "groups" in found else number(found)
