"""`sordino fit`, `tune`, `pca` and `audit`: from a data file to a model file, on a budget."""

from __future__ import annotations

import datetime
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from sordino.cli import shared
from sordino.cli.look import SIGNED, write_page
from sordino.errors import InvalidInputError, ModelFileError

MODELS = {
    "logistic": "sordino.estimators.linear.LogisticRegression",
    "linear": "sordino.estimators.linear.LinearRegression",
    "ordered": "sordino.estimators.linear.OrderedLogisticRegression",
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
        if schema is not None and schema.target is None:
            raise InvalidInputError(
                'The schema declares no target. Give the column to predict kind = "target", with low and '
                "high or with levels; --target names it only where there is no schema."
            )
        if schema is None:
            raise InvalidInputError(
                f"Expected --schema, or --target and --model: one of {', '.join(MODELS)}. Or "
                "declare what the columns mean: sordino schema draft DATA --target COLUMN --output SCHEMA"
            )
        several = schema.target.ordered and len(schema.target.levels) > 2
        if lost := shared.has_unordered_persons(schema):
            click.echo(f"Note: {shared.ORDER_LOST}.", err=True)
        name = "ordered" if several and not lost else "logistic"
        name = "linear" if schema.target.kind == "number" else name
    module, _, attribute = MODELS[name].rpartition(".")
    return getattr(import_module(module), attribute)


def _parameters_of(what: str) -> Any:
    return click.option(
        "--set", "given", multiple=True, metavar="NAME=VALUE", help=f"Any parameter of {what}."
    )


MODEL_OPTIONS = shared.all_of(
    shared.DATA,
    shared.SCHEMA,
    shared.TARGET,
    click.option(
        "--model",
        "name",
        type=click.Choice(("auto", *MODELS)),
        default="auto",
        show_default=True,
        help="auto, by the schema: logistic for classes, ordered for those in an order, linear for numbers.",
    ),
    shared.BUDGET,
    click.option(
        "--rows-per-person",
        type=click.IntRange(1),
        help="Nobody has more rows; protects persons where no column says whose a row is.",
    ),
    click.option(
        "--classes", help="The class labels as the file spells them, with commas between; else those seen."
    ),
    _parameters_of("the model"),
)
RESULT = shared.all_of(
    click.option("--output", type=shared.OUTPUT, required=True, help="Where the model goes."),
    click.option("--report", type=shared.OUTPUT, help="Also write the page of `sordino report` here."),
    shared.SIGNERS,
    shared.FORCE,
    shared.JSON,
    shared.config_option,
)


@click.command()
@MODEL_OPTIONS
@shared.LEDGER
@click.option(
    "--memory",
    type=click.IntRange(min=1),
    metavar="MB",
    help="For rows; libsvm and Parquet files that need more stay on disk. Else half of the machine's.",
)
@RESULT
def fit(data: str, **chosen: Any) -> None:
    """Fit a private model to DATA (a file, or - for standard input) and save it.

    The budget is reserved before the first release and stays spent, whatever happens then.
    """
    from sordino.cli.rows import memory_for_rows
    from sordino.estimators.metrics import outlook

    begun, memory = run_of(data), memory_for_rows(chosen["memory"])
    budget = shared.take_budget(chosen)
    rows, model = _prepare(shared.data_file(data, chosen), chosen, budget, memory)
    if (schema := getattr(model, "schema", None)) is not None:
        click.echo(outlook(schema, _count_protected(rows, schema)[0], float(budget["epsilon"])), err=True)
    model.fit(rows.X, rows.y, groups=rows.groups)
    deliver(model, begun, chosen, budget)


@click.command()
@MODEL_OPTIONS
@shared.LEDGER
@click.option(
    "--grid",
    multiple=True,
    required=True,
    metavar="NAME=VALUES",
    help="Values to choose from: max_iter=[10, 30].",
)
@click.option("--trials", type=float, default=10.0, show_default=True, help="The most candidates to try.")
@click.option("--validation", type=float, help="Share of records that judge; by a rule where it is not set.")
@click.option(
    "--metric",
    "--scoring",
    "scoring",
    cls=shared.Once,
    type=shared.METRIC,
    metavar="[accuracy|rank_error|log_loss|mse|mae|deviance]",
    help="A mean over records; else accuracy or mse.",
)
@RESULT
def tune(
    data: str,
    grid: tuple[str, ...],
    trials: float,
    validation: float | None,
    scoring: str | None,
    **chosen: Any,
) -> None:
    """Choose parameters privately: try them for little, fit the best with the rest, all for one price."""
    from sklearn.base import is_classifier

    from sordino import PrivateSearchCV

    begun, budget = run_of(data), shared.take_budget(chosen)
    terms = {**budget, "ledger": None, "dataset_id": None}
    rows, model = _prepare(shared.data_file(data, chosen), chosen, terms)
    params = {}
    for key, value in shared.parameters(grid, "--grid").items():
        several = isinstance(value, str) and "," in value
        values = [shared.value_of(part.strip()) for part in value.split(",")] if several else value
        params[key] = values if isinstance(values, list) else [values]
    shared.check_parameters(type(model), params)
    metric = scoring or ("accuracy" if is_classifier(model) else "mse")
    search = PrivateSearchCV(
        model, params, **budget, mean_trials=trials, validation=validation, scoring=metric
    )
    click.echo(search.outlook(*_count_protected(rows, getattr(model, "schema", None))), err=True)
    search.fit(rows.X, rows.y, groups=rows.groups)
    found = {"chosen": shared.plain(search.best_params_), "metric": metric}
    found |= {"noisy score": search.best_score_, "score at 95 %": [*search.best_score_interval_]}
    deliver(search.best_estimator_, begun, chosen, budget, shown=search, **found)


def _count_protected(rows: Any, schema: Any) -> tuple[int, str]:
    """Return how many are protected, and what one of them is: a person where owners are known."""
    from sordino.cli.rows import owners_in
    from sordino.execute.persons import number_owners

    if (person := getattr(getattr(schema, "person", None), "name", None)) is None and rows.groups is None:
        return rows.X.shape[0], "record"
    owners = owners_in(rows.X, person) if rows.groups is None else number_owners(rows.groups)
    return int(owners.max(initial=0)) + 1, "person"


def _prepare(
    file: Any, chosen: dict[str, Any], budget: dict[str, Any], memory: int | None = None
) -> tuple[Any, Any]:
    """Return the rows and a model. A wrong parameter is refused before data is read."""
    from sklearn.base import ClassifierMixin

    from sordino.cli.rows import read_schema, to_fit
    from sordino.saving.files import pack_value

    schema, target = read_schema(chosen["schema"], True, file.path), chosen["target"]
    kind = model_class(chosen["name"], schema)
    params = {**budget, "verbose": 1, **shared.parameters(chosen["given"], "--set")}
    params |= {} if schema is None else {"schema": schema}
    if chosen["rows_per_person"] is not None:
        params["rows_per_person"] = chosen["rows_per_person"]
    if chosen["classes"] is not None:
        params["classes"] = _classes(chosen["classes"], file, schema, target)
    shared.check_parameters(kind, params)
    model = kind(**params)
    pack_value(model)  # a parameter that cannot be saved is refused here, not after the fit
    return to_fit(file, schema, target, issubclass(kind, ClassifierMixin), memory), model


def _classes(text: str, file: Any, schema: Any, target: str | None) -> list[Any]:
    """Return the declared labels as the file holds them: numbers, flags in any of their words, or texts."""
    from sordino.tables.files import stored_kinds
    from sordino.tables.values import flag_of

    labels = [label.strip() for label in text.split(",")]
    if schema is None and file.kind in ("npz", "libsvm"):
        return [shared.value_of(label) for label in labels]
    words = schema is None and file.path != "-" and {flag_of(label) for label in labels} == {0, 1}
    if words and stored_kinds(file).get(target or "") == "flag":
        return ["true" if flag_of(label) == 1 else "false" for label in labels]
    return list(labels)


def deliver(
    model: Any, run: dict[str, Any], asked: dict[str, Any], budget: dict[str, Any], shown: Any = None,
    **found: Any,
) -> None:  # fmt: skip
    """Save a model, print its guarantee, and write the page on it or on what it was ``shown`` by."""
    from sordino.saving.files import model_digest

    report = model.privacy_
    run = finished_run(run, report) | found
    output = _save(model, asked["output"], run)
    if shared.wants_json():
        facts = {"model": type(model).__name__, "output": output, "run": run}
        shared.document({**facts, "privacy": report.to_dict()})
    else:
        on = f" on {run['rows']} record{'s' * (run['rows'] != 1)}" if "rows" in run else ""
        click.echo(f"{type(model).__name__}{on}: {shared.guarantee(report)}.\n{report.guarantee}")
        shared.tell_schema_price(report)
        if "chosen" in found:
            low, high = found["score at 95 %"]
            click.echo(f"chosen: {found['chosen']}")
            score = f"noisy score ({found['metric']}): {found['noisy score']:.4g}"
            click.echo(f"{score}, 95 % interval {low:.4g} to {high:.4g}")
        shared.tell_budget(budget)
        following = shared.command_line("inspect", output, ledger=budget["ledger"])
        click.echo(f"Saved to {output}, digest {model_digest(model)[:16]}. Next: {following}")
    if asked["report"] is not None:
        shown = model if shown is None else shown
        shared.tell_doubts(write_page(shown, asked["report"], run, ledger=budget["ledger"]))


def run_of(data: str) -> dict[str, Any]:
    """Return what is said of a run that begins: its command and settings, who asks, of which file, when."""
    from sordino.ledger.address import person

    context = click.get_current_context()
    said = shared.read_settings(context)
    return {
        "command": context.info_name,
        "settings": {key: value for key, value in said.items() if key.replace("-", "_") not in SIGNED},
        "signed": {name: said[key] for name in SIGNED if (key := name.replace("_", "-")) in said},
        "data": "standard input" if data == "-" else Path(data).name,
        "dataset": said.get("dataset"),
        "person": person(),
        "started": _now(),
    }


def finished_run(run: dict[str, Any], report: Any) -> dict[str, Any]:
    """Return what is said of a run that has ended; a rule chose its delta, and may choose another later."""
    from sordino.ledger.address import code_digest
    from sordino.runs.report import Source

    run = {**run, "settings": run["settings"] | {"delta": report.delta}, "code": code_digest()}
    for fact in (fact for fact in report.public if fact.units and fact.origin is Source.COUNTED):
        run["rows"] = fact.units  # of persons who are known it is no public number
    return run | {"finished": _now()}


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _save(model: Any, output: Path, run: dict[str, Any]) -> Path:
    """Save a model that is paid for. If its place has gone, save it in the folder for temporary files."""
    try:
        return Path(model.save(output, about={"run": run}))
    except ModelFileError as error:
        try:
            rescue = Path(tempfile.mkdtemp(prefix="sordino-")) / output.name
            saved = Path(model.save(rescue, about={"run": run}))
        except (ModelFileError, OSError) as other:
            raise ModelFileError(f"{error} {other} The model is paid for, and it is lost.") from other
        click.echo(f"Note: {error} The model is paid for, so it was saved to {saved}.", err=True)
        return saved


@click.command()
@shared.DATA
@shared.SCHEMA
@click.option("--components", type=click.IntRange(1), default=2, show_default=True, help="How many axes.")
@click.option("--data-norm", type=float, help="Rows are clipped to this norm; a schema has one of its own.")
@shared.BUDGET
@shared.LEDGER
@_parameters_of("PCA")
@RESULT
def pca(data: str, components: int, data_norm: float | None, **chosen: Any) -> None:
    """Find the axes along which the rows of DATA vary most, privately, and save them."""
    from sordino import PCA
    from sordino.cli.rows import read_schema, to_fit

    begun, schema = run_of(data), read_schema(chosen["schema"], True, data)
    budget = shared.take_budget(chosen)
    params = {**budget, "data_norm": data_norm, "verbose": 1, **shared.parameters(chosen["given"], "--set")}
    shared.check_parameters(PCA, params)
    rows = to_fit(shared.data_file(data, chosen), schema, targets=False)
    model = PCA(components, **params, schema=schema).fit(rows.X, groups=rows.groups)
    deliver(model, begun, chosen, budget)


@click.command()
@MODEL_OPTIONS
@click.option("--seconds", type=float, default=20.0, show_default=True, help="For each attack.")
@click.option("--fits", type=click.IntRange(0), default=0, help="Whole fits to guess from; else none.")
@click.option("--rows", type=click.IntRange(2), default=500, show_default=True, help="Records that are used.")
@shared.JSON
@shared.config_option
def audit(data: str, seconds: float, fits: int, rows: int, **chosen: Any) -> None:
    """Attack a fit to DATA and say what the attacks prove beside what the fit claims.

    Nothing is booked and no model is kept. The result is NOT private: it is for whoever holds DATA. The
    status is 1 where the claim is refuted.
    """
    from sordino.auditing import audit as attack

    budget = shared.take_budget({**chosen, "ledger": None, "dataset": None})
    records, model = _prepare(shared.data_file(data, chosen), chosen, budget)
    parts = (records.X,) if records.y is None else (records.X, records.y)
    model.set_params(verbose=0)
    found = attack(model, parts, groups=records.groups, seconds=seconds, fits=fits, rows=rows)
    shared.result(found.to_dict(), repr(found))
    if found.refuted:
        raise click.exceptions.Exit(1)
