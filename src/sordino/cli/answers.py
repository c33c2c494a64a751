"""`sordino predict` and `sordino evaluate`: a saved model on other records."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import Any

import click

from sordino.cli.shared import (
    DATA,
    FORCE,
    JSON,
    LEDGER,
    METRIC,
    MODEL,
    OUTPUT,
    TARGET,
    TERMS,
    UNBOOKED,
    check_booking,
    config_option,
    data_file,
    document,
    guarantee,
    pair,
    plain,
    require_writable,
    show_table,
    tell_schema_price,
    text,
)
from sordino.errors import InvalidInputError


@click.command()
@MODEL
@DATA
@click.option("--proba", is_flag=True, help="Add the probability of each class.")
@click.option("--id", "ids", multiple=True, metavar="COLUMN", help="Passed on; else the person column.")
@click.option("--output", type=OUTPUT, help="A CSV file; else print.")
@FORCE
@JSON
@config_option
def predict(
    model: Path,
    data: str,
    proba: bool,
    ids: tuple[str, ...],
    output: Path | None,
    force: bool,
    as_json: bool,
    **how: Any,
) -> None:
    """Write what MODEL predicts for each row of DATA, in order.

    A prediction is a function of its row and of released numbers: it costs nothing, and it tells about its
    row. Keep predictions for sensitive rows as you keep the rows: only you may read the file.
    """
    import sordino
    from sordino.cli.rows import ids_of, to_predict
    from sordino.saving.files import replace_file, report_of

    if output is not None:
        require_writable(output, force)
    fitted = sordino.load(model)
    if not hasattr(fitted, "predict"):
        raise InvalidInputError(f"{type(fitted).__name__} predicts nothing. Use a classifier or regressor.")
    report = report_of(fitted)
    if report is not None and report.status != "unverified copy":  # what it predicts tells about its records
        click.echo(f"Note: the model is {report.status}.", err=True)
    file = data_file(data, how)
    columns = ids_of(file, fitted, ids) | _columns(fitted, to_predict(file, fitted), proba)
    if as_json and output is None:
        document({"predictions": columns})
        return
    text = _csv(columns)
    if output is None:
        sys.stdout.write(text)
        return
    replace_file(output, text.encode(), own=True)
    rows = len(columns["prediction"])
    if as_json:
        document({"rows": rows, "output": output})
    else:
        click.echo(f"{rows} predictions written to {output}")


def _columns(model: Any, X: Any, proba: bool) -> dict[str, list[Any]]:
    columns = {"prediction": model.predict(X).tolist()}
    if proba:
        if not hasattr(model, "predict_proba"):
            raise InvalidInputError(f"{type(model).__name__} has no probabilities. Leave --proba out.")
        shares = model.predict_proba(X)
        columns |= {
            f"probability of {label}": shares[:, i].tolist() for i, label in enumerate(model.classes_)
        }
    return columns


def _csv(columns: dict[str, list[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return out.getvalue()


@click.command()
@MODEL
@DATA
@TARGET
@click.option("--metric", "--scoring", "metric", type=METRIC, help="Else accuracy of classes, r2 of numbers.")
@click.option(
    "--bounds", metavar="LOW,HIGH", help="Of targets that are numbers, with noise; else the model's own."
)
@click.option("--by", metavar="COLUMN", help="Scores by the declared levels of a column, all for one price.")
@click.option("--public", is_flag=True, help="The rows are public: an exact score, which costs nothing.")
@click.option("--epsilon", type=float, help="What the score may cost; the rows are sensitive.")
@TERMS
@LEDGER
@click.option("--output", type=OUTPUT, help="A JSON file for `sordino report --scores`.")
@FORCE
@JSON
@config_option
def evaluate(
    model: Path,
    data: str,
    target: str | None,
    metric: str | None,
    bounds: str | None,
    by: str | None,
    public: bool,
    epsilon: float | None,
    delta: float | None,
    relation: str,
    ledger: str | None,
    dataset: str | None,
    output: Path | None,
    force: bool,
    as_json: bool,
    **how: Any,
) -> None:
    """Score MODEL on the rows of DATA: with noise and for a price, or exactly on public rows.

    An exact score on sensitive rows tells about them, so one of --epsilon and --public has to be said.
    """
    import sordino
    from sordino.cli.rows import to_judge
    from sordino.estimators.metrics import find_metric, judge
    from sordino.saving.files import model_digest

    if public == (epsilon is not None):
        raise click.UsageError("Say either --epsilon (sensitive rows, paid) or --public (exact).")
    if public and dataset is not None:
        raise click.UsageError("Public rows are not booked. Leave --dataset out.")
    booked = (None, None) if public else check_booking(ledger, dataset)
    if output is not None:
        require_writable(output, force)
    limits = pair("--bounds", bounds)
    fitted = sordino.load(model)
    rows = to_judge(data_file(data, how), fitted, target, by)
    scored: dict[str, Any] = {"model": model_digest(fitted)}
    asked = {
        "epsilon": epsilon,
        "delta": delta,
        "bounds": limits,
        "groups": rows.groups,
        "relation": relation,
    }
    asked |= {"ledger": booked[0], "dataset_id": booked[1]}
    if by is not None:
        if epsilon is None:
            raise click.UsageError("--by needs --epsilon: of public rows, score the parts one by one.")
        _require_owners(fitted, rows, Path(data).name)
        table = sordino.private_scores_by(fitted, rows.X, rows.y, by=rows.by, metric=metric, **asked)
        _tell({**scored, **_by_group(table)}, output, as_json)
        return
    row, sign = find_metric("--metric", metric, fitted)
    name = metric or row.name
    if epsilon is None:
        judged = judge(fitted, rows.X, rows.y, row.asks)
        _tell({**scored, "metric": name, **_exact(row, sign, judged)}, output, as_json)
        return
    _require_owners(fitted, rows, Path(data).name)
    score = sordino.private_score(fitted, rows.X, rows.y, metric=metric, **asked)
    if booked[0] is None:
        click.echo(UNBOOKED, err=True)
    _tell({**scored, **_private(score, name)}, output, as_json)


def _require_owners(model: Any, rows: Any, name: str) -> None:
    """Refuse rows that do not say whose they are, for a model that protects persons."""
    from sordino.saving.files import report_of

    report = report_of(model)
    if rows.groups is None and report is not None and report.unit != "record":
        raise InvalidInputError(
            f"The model protects one {report.unit}, and {name!r} does not say whose row each one is. Pass an "
            "NPZ file with X, y and groups, the owner of each row: another number in each row, where "
            "a row is all of its owner."
        )


def _by_group(table: Any) -> dict[str, Any]:
    """Return the scores of the levels of a column, for a file of scores."""
    key, name = table.keys[0], table.statistic
    lines = [
        {"group": f"{key}={line[key]}", "value": line[name], "interval": [line["low"], line["high"]]}
        for line in table.records()
    ]
    return {"metric": f"{name} by {key}", "groups": lines, "privacy": table.privacy}


def _private(score: Any, metric: str) -> dict[str, Any]:
    if hasattr(score, "observed"):
        curve = {key: value for key, value in vars(score).items() if key not in ("privacy", "model")}
        return {"metric": metric, "curve": curve, "privacy": score.privacy}
    return {
        "metric": metric,
        "value": float(score),
        "interval": list(score.interval),
        "baseline": score.baseline,
        "privacy": score.privacy,
    }


def _exact(row: Any, sign: float, judged: Any) -> dict[str, Any]:
    """Return the score of public rows; a calibration error has its curve beside it."""
    found = row.exactly(judged)
    if isinstance(found, tuple):
        return {"value": found[0], "curve": found[1]}
    constant = row.exact_constant(judged)
    return {"value": sign * found, "baseline": None if constant is None else (sign * constant, 0.0)}


def _tell(found: dict[str, Any], output: Path | None, as_json: bool) -> None:
    report = found.pop("privacy", None)
    if output is not None:
        from sordino.saving.files import replace_file

        replace_file(output, f"{text(_with_report(found, report))}\n".encode())
    if as_json:
        document(_with_report(found, report))
        return
    if "curve" in found:
        columns = {name: plain(value) for name, value in found["curve"].items()}
        lists = {name: value for name, value in columns.items() if isinstance(value, list)}
        rows = [[_number(entry) for entry in row] for row in zip(*lists.values(), strict=True)]
        show_table(tuple(lists), rows)
    elif "groups" in found:
        lines = [
            (line["group"], f"{line['value']:.4g}", "{:.4g} to {:.4g}".format(*line["interval"]))
            for line in found["groups"]
        ]
        show_table(("", found["metric"].partition(" ")[0], "95 % interval"), lines)
    else:
        interval = "{:.4g} to {:.4g}".format(*found["interval"]) if "interval" in found else ""
        click.echo(f"{found['metric']}: {found['value']:.4g}{interval and f', 95 % interval {interval}'}")
        if found.get("baseline") is not None:
            from sordino.report.run_page import constant_words

            click.echo(f"without a model (the best constant): {constant_words(found['baseline'])}")
    click.echo("Exact, for public rows only." if report is None else f"{guarantee(report)}.")
    if report is not None:
        tell_schema_price(report)


def _number(entry: Any) -> str:
    """Return a number as text. A number that is not finite is a text already: nothing is known of it."""
    return "unknown" if isinstance(entry, str) else f"{entry:.4g}"


def _with_report(found: dict[str, Any], report: Any) -> dict[str, Any]:
    return {**found, "privacy": None if report is None else report.to_dict()}
