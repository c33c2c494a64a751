"""`sordino split`, `predict`, `evaluate` and `intervals`: records, and what a model says of them."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import sys
from pathlib import Path
from typing import Any

import click

from sordino.cli import shared
from sordino.errors import InvalidInputError


@click.command()
@shared.DATA
@shared.SCHEMA
@click.option("--person", metavar="COLUMN", help="Whose record it is; else as the schema says.")
@click.option("--share", type=float, default=0.3, show_default=True, help="Of persons (records) that judge.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the split, which is public.")
@click.option("--train", type=shared.OUTPUT, required=True, help="Where the records to learn from go.")
@click.option("--test", type=shared.OUTPUT, required=True, help="Where the others go.")
@shared.FORCE
@shared.JSON
def split(data: str, person: str | None, train: Path, test: Path, **how: Any) -> None:
    """Split DATA into two files, all rows of a person in one of them.

    Who comes where depends on a public seed and on the order of the file, not on values. Both files hold
    records: only you may read them. CSV files are written as DATA is, so that the same options read them.
    """
    import numpy as np

    from sordino.cli.rows import owners_in, read_schema
    from sordino.estimators.metrics import outlook
    from sordino.kernel import public_generator
    from sordino.tables.files import packed_table, read_whole, replace_file

    share, seed, schema = how.pop("share"), how.pop("seed"), how.pop("schema")
    said = {**how, "kind": None}
    declared = read_schema(schema)
    if not 0 < share < 1:
        raise click.UsageError("--share is between 0 and 1.")
    file = shared.data_file(data, how)
    if file.kind in ("csv", "tsv") and any(place.suffix == ".parquet" for place in (train, test)):
        raise InvalidInputError(
            "The values of a text file stay texts: give --train and --test the ending .csv."
        )
    if person is None and declared is not None and declared.person is not None:
        person = declared.person.name
    table = read_whole(file, None if declared is None else [column.name for column in declared.columns])
    if person is not None and person not in table.column_names:
        raise InvalidInputError(f"{file.name} has no column {person!r}, which says whose record each one is.")
    owners = owners_in(table, person)
    count = int(owners.max(initial=-1)) + 1
    public = public_generator(seed)
    judges = public.permutation(count)[: round(share * count)]
    held = np.isin(owners, judges)
    for place, chosen in ((train, ~held), (test, held)):
        content = packed_table(table.take(np.flatnonzero(chosen)), place.suffix, file)
        replace_file(place, content, own=True)
    unit = "records" if person is None else "persons"
    found = {"unit": unit, "train": count - len(judges), "test": len(judges), "seed": seed}
    following = shared.fit_line(train, schema, declared, **said)
    words = f"{count - len(judges)} {unit} in {train}, {len(judges)} in {test}.\n"
    if declared is not None and declared.target is not None and not declared.unknown:
        words += f"{outlook(declared, max(len(judges), 1), 1.0)}\n"
    words += f"Next: {following}"
    shared.result({**found, "outputs": [train, test]}, words)


@click.command()
@shared.MODEL
@shared.DATA
@click.option("--proba", is_flag=True, help="Add the probability of each class.")
@click.option("--id", "ids", multiple=True, metavar="COLUMN", help="Passed on; else the person column.")
@click.option("--output", type=shared.OUTPUT, help="A CSV file; else print.")
@shared.FORCE
@shared.JSON
@shared.config_option
def predict(
    model: Path, data: str, proba: bool, ids: tuple[str, ...], output: Path | None, **how: Any
) -> None:
    """Write what MODEL predicts for each row of DATA, in order.

    A prediction is a function of its row and of released numbers: it costs nothing, and it tells about its
    row. Keep predictions for sensitive rows as you keep the rows: only you may read the file.
    """
    import sordino
    from sordino.cli.rows import for_model, ids_of
    from sordino.report.plots import target_words
    from sordino.saving.files import report_of
    from sordino.tables.files import replace_file

    fitted = sordino.load(model)
    name, report = type(fitted).__name__, report_of(fitted)
    if not hasattr(fitted, "predict"):
        raise InvalidInputError(f"{name} predicts nothing. Use a classifier or regressor.")
    if proba and not hasattr(fitted, "predict_proba"):
        raise InvalidInputError(f"{name} has no probabilities. Leave --proba out.")
    if report is not None and report.status != "unverified copy":  # what it predicts tells about its records
        click.echo(f"Note: the model is {report.status}.", err=True)
    file = shared.data_file(data, how)
    X = for_model(file, fitted, judge=False).X
    columns = ids_of(file, fitted, ids) | {"prediction": fitted.predict(X).tolist()}
    if proba:
        shares = dict(zip(fitted.classes_.tolist(), fitted.predict_proba(X).T.tolist(), strict=True))
        columns |= {f"probability of {c}": shares[c] for c in getattr(fitted, "levels_", fitted.classes_)}
    target = "" if hasattr(fitted, "classes_") else target_words(fitted)
    what = f" of {target}" if target else ""
    if shared.wants_json() and output is None:
        shared.document({"predictions": columns} | ({"of": target} if target else {}))
        return
    content = io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    if output is None:
        sys.stdout.write(content.getvalue())
        click.echo(f"Note: predictions{what}.\n" * bool(what), nl=False, err=True)
        return
    replace_file(output, content.getvalue().encode(), own=True)
    rows = len(columns["prediction"])
    shared.result({"rows": rows, "output": output}, f"{rows} predictions{what} written to {output}")


@click.command()
@shared.MODEL
@shared.DATA
@shared.TARGET
@click.option(
    "--metric", "--scoring", "metric", cls=shared.Once, type=shared.METRIC,
    help="Else accuracy of classes, r2 of numbers.",
)  # fmt: skip
@click.option(
    "--bounds", metavar="LOW,HIGH", help="Of targets that are numbers, with noise; else the model's own."
)
@click.option("--by", metavar="COLUMN", help="Scores by the declared levels of a column, all for one price.")
@click.option("--public", is_flag=True, help="The rows are public: an exact score, which costs nothing.")
@click.option("--epsilon", type=float, help="What the score may cost; the rows are sensitive.")
@shared.TERMS
@shared.LEDGER
@click.option("--output", type=shared.OUTPUT, help="A JSON file for `sordino report --scores`.")
@shared.FORCE
@shared.JSON
@shared.config_option
def evaluate(
    model: Path,
    data: str,
    target: str | None,
    metric: str | None,
    bounds: str | None,
    by: str | None,
    public: bool,
    output: Path | None,
    **chosen: Any,
) -> None:
    """Score MODEL on the rows of DATA: with noise and for a price, or exactly on public rows.

    An exact score on sensitive rows tells about them, so one of --epsilon and --public has to be said.
    """
    import sordino
    from sordino.cli.look import ask_ledger
    from sordino.cli.rows import for_model
    from sordino.estimators.evaluation import alike_words
    from sordino.estimators.metrics import find_metric
    from sordino.report.run_page import SEEN
    from sordino.saving.files import about, model_digest

    if public == (chosen["epsilon"] is not None):
        raise click.UsageError("Say either --epsilon (sensitive rows, paid) or --public (exact).")
    if public and chosen["dataset"] is not None:
        raise click.UsageError("Public rows are not booked. Leave --dataset out.")
    if public and by is not None:
        raise click.UsageError("--by needs --epsilon: of public rows, score the parts one by one.")
    asked = shared.take_budget(chosen | {"ledger": None} if public else chosen)
    asked["bounds"] = shared.pair("--bounds", bounds)
    fitted = sordino.load(model)
    row, sign = find_metric("--metric", metric, fitted)  # refuses a model without a score
    file = shared.data_file(data, chosen)
    run = about(model)["about"].get("run", {})
    if public and file.path != "-" and file.name == run.get("data"):
        raise InvalidInputError(
            f"{file.name} is by its name the file that the model was fitted to, privately: an exact score "
            "would tell about its records. Pay for one with --epsilon, on records that the model has not "
            "seen. If this is another file, give it another name."
        )
    rows = for_model(file, fitted, judge=True, target=target)
    asked["groups"] = rows.groups
    found: dict[str, Any] = {"model": model_digest(fitted), "metric": metric or row.name}
    found |= {"data": file.name, "notes": list(alike_words(fitted))}
    if (standing := ask_ledger(fitted, asked["ledger"], run)) is not None and standing.denied:
        found["notes"].append(standing.booked or str(standing.doubts[0]))
    if file.path != "-" and file.name == run.get("data"):
        found["data"] += SEEN
        found["notes"].append(f"scored on {found['data']}. Score records that it has not seen")
    if public:
        _tell(row, {**found, **_exact(row, sign, fitted, rows)}, output, asked)
        return
    if by is not None:
        table = sordino.private_scores_by(fitted, rows.X, rows.y, by=by, metric=metric, **asked)
        key, name = table.keys[0], table.statistic
        if metric is None and name != row.name:
            words = f"subgroups are scored by {name}: {row.name} is no mean over records"
            found["notes"].append(words)
        lines = [
            {"group": f"{key}={line[key]}", "value": line[name], "interval": [line["low"], line["high"]]}
            for line in table.records()
        ]
        found |= {"metric": f"{name} by {key}", "groups": lines, "privacy": table.privacy}
    else:
        score = sordino.private_score(fitted, rows.X, rows.y, metric=metric, **asked)
        found |= _private(score)
    shared.tell_budget(asked)
    _tell(row, found, output, asked)


@click.command()
@shared.MODEL
@shared.DATA
@shared.TARGET
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of each interval by itself.")
@shared.BUDGET
@shared.LEDGER
@click.option("--report", type=shared.OUTPUT, help="Also write the page on them.")
@shared.SIGNERS
@shared.FORCE
@shared.JSON
@shared.config_option
def intervals(
    model: Path,
    data: str,
    target: str | None,
    confidence: float,
    report: Path | None,
    **how: Any,
) -> None:
    """Pay for intervals of the coefficients of MODEL, of a table for the effects of its columns.

    They count sampling error and noise, so they are asked of records: those of the fit, or others. What
    `sordino inspect` shows of a model without records is the noise alone.
    """
    import sordino
    from sordino.cli.fit import finished_run, run_of
    from sordino.cli.look import ask_ledger, write_page
    from sordino.cli.rows import for_model
    from sordino.report.plots import margin_words
    from sordino.report.run_page import interval_words
    from sordino.saving.files import about, model_digest

    begun = run_of(data)
    asked = shared.take_budget(how)
    fitted, file = sordino.load(model), shared.data_file(data, how)
    rows = for_model(file, fitted, judge=True, target=target)
    facts = about(model)
    fit = {"dataset": asked["dataset_id"], **facts["about"].get("run", {})}
    base = ask_ledger(fitted, asked["ledger"], fit)
    found = sordino.intervals(fitted, rows.X, rows.y, groups=rows.groups, confidence=confidence, **asked)
    page = None
    if report is not None:
        run = finished_run(begun, found.privacy) | {"version": facts["version"]}
        run["of"] = f"{model.name}, digest {model_digest(fitted)[:16]}"
        page = write_page(found, report, run, ledger=asked["ledger"], base=base)
    shared.tell_budget(asked)
    if shared.wants_json():
        privacy = found.privacy.to_dict()
        shared.document({"confidence": confidence, "intervals": found.records(), "privacy": privacy})
        shared.tell_doubts(page)
        return
    click.echo(f"Effects on {margin_words(fitted)}, with {100 * confidence:.3g} % intervals:")
    shared.show_table(("", ""), [(line["name"], interval_words(line)) for line in found.records()])
    click.echo(f"{shared.guarantee(found.privacy)}.")
    click.echo("".join(f"Note: {line}.\n" for line in found.privacy.notes), nl=False)
    shared.tell_doubts(page)


def _private(score: Any) -> dict[str, Any]:
    if hasattr(score, "observed"):
        curve = {k: value for k, value in vars(score).items() if k not in ("privacy", "model")}
        return {"curve": curve, "privacy": score.privacy}
    found = {"value": float(score), "interval": list(score.interval), "baseline": score.baseline}
    return {**found, "privacy": score.privacy}


def _exact(row: Any, sign: float, model: Any, rows: Any) -> dict[str, Any]:
    """Return the score of public rows; a calibration error has its curve beside it."""
    from sordino.estimators.metrics import judge

    judged = judge(model, rows.X, rows.y, row.asks)
    found = row.exactly(judged)
    if isinstance(found, tuple):
        return {"value": found[0], "curve": found[1]}
    constant = row.exact_constant(judged)
    baseline = None if constant is None else (sign * constant, 0.0)
    return {"value": sign * found, "baseline": baseline}


def _tell(row: Any, found: dict[str, Any], output: Path | None, asked: dict[str, Any]) -> None:
    from sordino.estimators.metrics import HIDDEN_SCORE, UNTOLD, score_words, span_words
    from sordino.runs import Ask

    report, ends = found.get("privacy"), found.get("interval", ())
    beside = found["metric"], found.get("value"), ends, found.get("baseline")
    hidden = [line for line in found.get("groups", [found]) if math.isnan(line.get("value", 0.0))]
    verdict = row.verdict(*beside)
    for line in hidden:
        line["value"] = None
    said = [f"not known, {HIDDEN_SCORE}"] * bool(hidden) + [UNTOLD] * (verdict == UNTOLD)
    whole = {**found, "worse than constant": row.is_worse(*beside), "notes": [*found["notes"], *said]}
    whole["privacy"] = None if report is None else report.to_dict()
    if output is not None:
        from sordino.tables.files import replace_file

        replace_file(output, content := f"{shared.text(whole)}\n".encode())
        if report is not None:
            ask = Ask(report.epsilon, report.delta, asked["ledger"], asked["dataset_id"])
            ask.attest(report, (), hashlib.sha256(content).hexdigest())
    if shared.wants_json():
        shared.document(whole)
        return
    if "curve" in found:
        lists = {name: shared.plain(value) for name, value in found["curve"].items()}
        lists = {name: value for name, value in lists.items() if isinstance(value, list)}
        rows = zip(*lists.values(), strict=True)  # a number that is not finite is a text already
        shared.show_table(
            tuple(lists), [["unknown" if isinstance(n, str) else f"{n:.4g}" for n in row] for row in rows]
        )
    elif "groups" in found:
        lines = [
            (line["group"], score_words(line["value"], *line["interval"]), span_words(*line["interval"]))
            for line in found["groups"]
        ]
        shared.show_table(("", found["metric"].partition(" ")[0], "95 % interval"), lines)
    else:
        from sordino.report.run_page import clip_words, constant_words

        interval = f", 95 % interval {span_words(*ends)}" if ends else ""
        words = said[0] if hidden else score_words(found["value"], *ends) + interval
        click.echo(f"{found['metric']}: {words}")
        if found.get("baseline") is not None:
            constant = constant_words(found["baseline"], 1.0 if row.share else math.inf)
            click.echo(f"without a model (the best constant): {constant}")
        if verdict:
            click.echo(f"Note: {verdict}.")
        click.echo(clip_words(report), nl=bool(clip_words(report)))
    click.echo("Exact, for public rows only." if report is None else f"{shared.guarantee(report)}.")
    if report is not None:
        shared.tell_schema_price(report)
    notes = whole["notes"] if "groups" in found else found["notes"]
    click.echo("".join(f"Note: {line}.\n" for line in notes), nl=False)
