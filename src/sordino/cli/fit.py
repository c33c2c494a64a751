"""`sordino fit` and `sordino tune`: from a data file to a model file, on a budget."""

from __future__ import annotations

import datetime
import inspect
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from sordino.cli.look import SIGNED, write_page
from sordino.cli.shared import (
    BUDGET,
    DATA,
    FORCE,
    JSON,
    LEDGER,
    METRIC,
    OUTPUT,
    REPORT,
    SCHEMA,
    SIGNERS,
    TARGET,
    UNBOOKED,
    check_booking,
    check_parameters,
    config_option,
    data_file,
    digest,
    document,
    guarantee,
    parameters,
    plain,
    read_settings,
    require_model_place,
    result,
    tell_schema_price,
    value_of,
)
from sordino.errors import InvalidInputError, ModelFileError

# -------------------------------------------- The models that `sordino fit` and `sordino tune` know by name

MODELS = {
    "logistic": "sordino.estimators.linear.LogisticRegression",
    "linear": "sordino.estimators.linear.LinearRegression",
    "classifier": "sordino.estimators.linear.LinearClassifier",
    "sparse-logistic": "sordino.estimators.linear.SparseLogisticRegression",
    "sparse-linear": "sordino.estimators.linear.SparseLinearRegression",
    "heavy-classifier": "sordino.estimators.heavy.HeavyTailedClassifier",
    "heavy-regressor": "sordino.estimators.heavy.HeavyTailedRegressor",
    "network": "sordino.nn.estimators.NeuralClassifier",
    "network-regressor": "sordino.nn.estimators.NeuralRegressor",
}
"""The word on the command line, and the class."""


def model_class(name: str, schema: Any) -> Any:
    """Return the class of a model; "auto" goes by the target of the schema."""
    if name == "auto":
        if schema is None or schema.target is None:
            raise InvalidInputError(
                f"Expected --model without a schema that declares a target: one of {', '.join(MODELS)}."
            )
        name = "linear" if schema.target.kind == "number" else "logistic"
    module, _, attribute = MODELS[name].rpartition(".")
    return getattr(import_module(module), attribute)


def takes_labels(kind: Any) -> bool:
    """Tell whether a model predicts classes."""
    from sklearn.base import ClassifierMixin

    return issubclass(kind, ClassifierMixin)


MODEL_NAME = click.option(
    "--model",
    "name",
    type=click.Choice(("auto", *MODELS)),
    default="auto",
    show_default=True,
    help="auto: logistic for a target of classes, linear for one of numbers, by the schema.",
)


CLASSES = click.option(
    "--classes", help="The class labels as the file spells them, with commas between; else those seen."
)
PARAMETERS = click.option(
    "--set", "given", multiple=True, metavar="NAME=VALUE", help="Any parameter of the model."
)


@click.command()
@DATA
@SCHEMA
@TARGET
@MODEL_NAME
@BUDGET
@LEDGER
@CLASSES
@PARAMETERS
@click.option(
    "--memory",
    type=click.IntRange(min=1),
    metavar="MB",
    help="For rows; libsvm and Parquet files that need more stay on disk. Else half of the machine's.",
)
@click.option("--output", type=OUTPUT, required=True, help="Where the model goes.")
@REPORT
@SIGNERS
@FORCE
@JSON
@config_option
def fit(data: str, output: Path, report: Path | None, force: bool, as_json: bool, **chosen: Any) -> None:
    """Fit a private model to DATA (a file, or - for standard input) and save it.

    The budget is reserved before the first release and stays spent, whatever happens then.
    """
    from sordino.cli.rows import memory_for_rows

    settings, started = read_settings(click.get_current_context()), now()
    require_model_place(output, force, report)
    memory = memory_for_rows(chosen.pop("memory"))
    rows, model = _prepare(data_file(data, chosen), chosen, memory)
    if rows.groups is None:
        model.fit(rows.X, rows.y)
    else:
        if "groups" not in inspect.signature(model.fit).parameters:
            raise InvalidInputError(
                f"{type(model).__name__} cannot protect persons, and the file says whose record each one is. "
                "Choose another model, or leave groups out of the file if a record is all of a person."
            )
        model.fit(rows.X, rows.y, groups=rows.groups)
    run = run_facts("fit", settings, started, data, len(rows))
    run = finish(model, output, as_json, run)
    if report is not None:
        write_page(model, report, run, ledger=chosen["ledger"])


@click.command()
@DATA
@SCHEMA
@TARGET
@click.option("--model", "name", type=click.Choice(("auto", *MODELS)), default="auto", show_default=True)
@click.option(
    "--grid",
    multiple=True,
    required=True,
    metavar="NAME=VALUES",
    help="Values to choose from: max_iter=[10, 30].",
)
@BUDGET
@LEDGER
@CLASSES
@PARAMETERS
@click.option("--trials", type=float, default=10.0, show_default=True, help="The most candidates to try.")
@click.option("--validation", type=float, help="Share of records that judge; by a rule where it is not set.")
@click.option(
    "--metric", "--scoring", "scoring", type=METRIC, help="A mean over records; else accuracy or mse."
)
@click.option("--output", type=OUTPUT, required=True, help="Where the model goes.")
@REPORT
@SIGNERS
@FORCE
@JSON
@config_option
def tune(
    data: str,
    output: Path,
    report: Path | None,
    force: bool,
    as_json: bool,
    grid: tuple[str, ...],
    trials: float,
    validation: float | None,
    scoring: str | None,
    **chosen: Any,
) -> None:
    """Choose parameters privately: try them for little, fit the best with the rest, all for one price."""
    from sordino import PrivateSearchCV

    settings, started = read_settings(click.get_current_context()), now()
    require_model_place(output, force, report)
    budget: dict[str, Any] = {name: chosen[name] for name in ("epsilon", "delta", "relation")}
    booked = check_booking(chosen.pop("ledger"), chosen.pop("dataset"))
    rows, model = _prepare(data_file(data, chosen), {**chosen, "ledger": None, "dataset": None})
    params = {key: _as_list(value) for key, value in parameters(grid, "--grid").items()}
    check_parameters(type(model), params)
    how: dict[str, Any] = {
        "mean_trials": trials,
        "validation": validation,
        "scoring": scoring,
        "ledger": booked[0],
        "dataset_id": booked[1],
    }
    search = PrivateSearchCV(model, params, **budget, **how)
    click.echo(search.outlook(*rows.count_protected(getattr(model, "schema", None))), err=True)
    search.fit(rows.X, rows.y, groups=rows.groups)
    best = search.best_estimator_
    run = run_facts("tune", settings, started, data, len(rows))
    run["chosen"] = plain(search.best_params_)
    run["noisy score"] = float(search.best_score_)
    run["score at 95 %"] = [float(end) for end in search.best_score_interval_]
    run = finish(best, output, as_json, run)
    if report is not None:
        write_page(search, report, run, ledger=booked[0])


def _prepare(file: Any, chosen: dict[str, Any], memory: int | None = None) -> tuple[Any, Any]:
    """Return the rows and a model. A wrong parameter is refused before data is read."""
    from sordino.cli.rows import read_whole_schema, to_fit
    from sordino.saving.files import packed

    schema = read_whole_schema(chosen["schema"])
    kind = model_class(chosen["name"], schema)
    ledger, dataset = check_booking(chosen["ledger"], chosen["dataset"])
    params = {
        "epsilon": chosen["epsilon"],
        "delta": chosen["delta"],
        "relation": chosen["relation"],
        "ledger": ledger,
        "dataset_id": dataset,
        "verbose": 1,
        **parameters(chosen["given"], "--set"),
    }
    if schema is not None:
        params["schema"] = schema
    if chosen["classes"] is not None:
        params["classes"] = _classes(chosen["classes"], file, schema, chosen["target"])
    check_parameters(kind, params)
    model = kind(**params)
    packed(model)  # a parameter that cannot be saved is refused here, not after the fit
    return to_fit(file, schema, chosen["target"], takes_labels(kind), memory), model


def _classes(text: str, file: Any, schema: Any, target: str | None) -> list[Any]:
    """Return the declared labels as the file holds them: numbers, flags in any of their words, or texts."""
    from sordino.tables.schema import stored_flags
    from sordino.tables.values import flag_of

    labels = [label.strip() for label in text.split(",")]
    if schema is None and file.kind in ("npz", "libsvm"):
        return [value_of(label) for label in labels]
    words = schema is None and target is not None and {flag_of(label) for label in labels} == {0, 1}
    if words and stored_flags(file, target or ""):
        return ["true" if flag_of(label) == 1 else "false" for label in labels]
    return list(labels)


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, str) and "," in value:
        return [value_of(part.strip()) for part in value.split(",")]
    return value if isinstance(value, list) else [value]


def now() -> str:
    """Return the time, in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def run_facts(command: str, settings: dict[str, Any], started: str, data: str, rows: int) -> dict[str, Any]:
    """Return what a report says about who did what when, with which settings."""
    from sordino.ledger.address import person
    from sordino.report.provenance import code_digest

    return {
        "command": command,
        "settings": plain({key: value for key, value in settings.items() if key not in SIGNED}),
        "signed": {key: settings[key] for key in SIGNED if key in settings},
        "digest": digest({key: value for key, value in settings.items() if key not in SIGNED}),
        "data": "standard input" if data == "-" else Path(data).name,
        "rows": rows,
        "dataset": settings.get("dataset"),
        "person": person(),
        "code": code_digest(),
        "started": started,
        "finished": now(),
    }


def _save(model: Any, output: Path, run: dict[str, Any]) -> Path:
    """Save a model that is paid for. If its place has gone, save it in the folder for temporary files."""
    try:
        return Path(model.save(output, about={"run": run}))
    except ModelFileError as error:
        rescue = Path(tempfile.mkdtemp(prefix="sordino-")) / output.name
        click.echo(f"Note: {error} The model is paid for, so it was saved to {rescue}.", err=True)
        return Path(model.save(rescue, about={"run": run}))


def finish(model: Any, output: Path, as_json: bool, run: dict[str, Any]) -> dict[str, Any]:
    """Save the model, print its guarantee, and return the facts of the run."""
    report = model.privacy_
    if report.unit != "record":  # how many records the persons have is no public number
        run = {key: value for key, value in run.items() if key != "rows"}
    output = _save(model, output, run)
    if as_json:
        document({"model": type(model).__name__, "output": output, "run": run, "privacy": report.to_dict()})
        return run
    on = f" on {run['rows']} records" if "rows" in run else ""
    click.echo(f"{type(model).__name__}{on}: {guarantee(report)}.")
    click.echo(report.guarantee)
    tell_schema_price(report)
    if "chosen" in run:
        low, high = run["score at 95 %"]
        click.echo(f"chosen: {run['chosen']}")
        click.echo(f"noisy score: {run['noisy score']:.4g}, 95 % interval {low:.4g} to {high:.4g}")
    if run["dataset"] is None:
        click.echo(UNBOOKED, err=True)
    click.echo(f"Saved to {output}")
    return run


# ----------------------------------------------- `sordino pca`: private principal components of a data file


@click.command()
@DATA
@SCHEMA
@click.option("--components", type=click.IntRange(1), default=2, show_default=True, help="How many axes.")
@click.option("--data-norm", type=float, help="Rows are clipped to this norm; a schema has one of its own.")
@BUDGET
@LEDGER
@click.option("--set", "given", multiple=True, metavar="NAME=VALUE", help="Any parameter of PCA.")
@click.option("--output", type=OUTPUT, required=True, help="Where the model goes.")
@REPORT
@SIGNERS
@FORCE
@JSON
@config_option
def pca(
    data: str,
    components: int,
    data_norm: float | None,
    output: Path,
    report: Path | None,
    force: bool,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Find the axes along which the rows of DATA vary most, privately, and save them."""
    from sordino import PCA
    from sordino.cli.rows import read_whole_schema, to_project

    settings, started = read_settings(click.get_current_context()), now()
    require_model_place(output, force, report)
    schema = read_whole_schema(chosen["schema"])
    ledger, dataset = check_booking(chosen["ledger"], chosen["dataset"])
    params = {name: chosen[name] for name in ("epsilon", "delta", "relation")}
    params |= {"ledger": ledger, "dataset_id": dataset, "data_norm": data_norm, "verbose": 1}
    params |= parameters(chosen["given"], "--set")
    check_parameters(PCA, params)
    rows = to_project(data_file(data, chosen), schema)
    model = PCA(components, **params, schema=schema).fit(rows)
    run = finish(model, output, as_json, run_facts("pca", settings, started, data, rows.shape[0]))
    if report is not None:
        write_page(model, report, run, ledger=ledger)


# ------------------------------------------------------ `sordino audit`: attacks on a fit before it is made


@click.command()
@DATA
@SCHEMA
@TARGET
@MODEL_NAME
@BUDGET
@CLASSES
@PARAMETERS
@click.option("--seconds", type=float, default=20.0, show_default=True, help="For each attack.")
@click.option("--fits", type=click.IntRange(0), default=0, help="Whole fits to guess from; else none.")
@click.option("--rows", type=click.IntRange(2), default=500, show_default=True, help="Records that are used.")
@JSON
@config_option
def audit(data: str, seconds: float, fits: int, rows: int, as_json: bool, **chosen: Any) -> None:
    """Attack a fit to DATA and say what the attacks prove beside what the fit claims.

    Nothing is booked and no model is kept. The result is NOT private: it is for whoever holds DATA. The
    status is 1 where the claim is refuted.
    """
    from sordino.auditing import audit as attack

    chosen |= {"ledger": None, "dataset": None}
    records, model = _prepare(data_file(data, chosen), chosen)
    parts = (records.X,) if records.y is None else (records.X, records.y)
    model.set_params(verbose=0)
    found = attack(model, parts, groups=records.groups, seconds=seconds, fits=fits, rows=rows)
    result(as_json, found.to_dict(), repr(found))
    if found.refuted:
        raise click.exceptions.Exit(1)
