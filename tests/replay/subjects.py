"""What is recorded and replayed: a row for everything that asks a curator, made from the registries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline
from tests.asking import folded
from tests.parties.helpers import linear_task
from tests.replay.neighbours import PLACES, Data

import sordino
from sordino.estimators.metrics import METRICS
from sordino.execute.parties import SimulatedParties
from sordino.kernel import Relation
from sordino.kernel.noise import seeded_noise_not_private
from sordino.parties.mpc.plan import JointPlan, make_plan
from sordino.solvers import SOLVERS, solvers_with
from sordino.tables import Category, Number, Person, Schema, Target, Weight, learn_schema, value_shares

BUDGET: Mapping[str, Any] = {"epsilon": 20.0, "delta": 1e-3}
IN_MEMORY = ("memory", "csr")
ELSEWHERE = ("disk", "csr on disk", "tensors", "dask")
LEAD, PLAIN, LONG = "lead", "plain", "long"
LEVELS = {"signs": [-1.0, 1.0], "labels": [0.0, 1.0, 2.0]}


@dataclass(frozen=True)
class Subject:
    """One row.

    Parameters
    ----------
    name : in the tests' output; the part before the first slash is the public name it covers.
    kind : that of the targets.
    fit : returns everything that is released, from the data and the relation.
    must : the places from which it must run.
    may : places from which it may be refused, before anything is asked.
    rounding : how far an exact answer may be off in its precision, in sensitivities.
    level : how often it is replayed: from all places, from memory only, or in the long run only.
    """

    name: str
    kind: str
    fit: Callable[[Data, str], Any]
    must: tuple[str, ...] = ("memory",)
    may: tuple[str, ...] = ()
    rounding: float = 1e-9
    level: str = LEAD
    relations: tuple[str, ...] = tuple(relation.value for relation in Relation)

    @property
    def covers(self) -> str:
        """The public name."""
        return self.name.partition("/")[0]


# ---------------------------------------------------------------------------------- linear models

# public name, kind of targets, loss, its name among the losses
LINEAR = (
    ("SparseLinearRegression", "numbers", "squared", "squared"),
    ("SparseLogisticRegression", "signs", None, "logistic"),
    ("SparseLogisticRegression", "labels", None, "multinomial"),
    ("SparseLinearRegression", "numbers", "huber", "huber"),
    ("SparseLinearRegression", "counts", "poisson", "poisson"),
    ("LinearRegression", "numbers", "squared", "squared"),
    ("LinearRegression", "counts", "gamma", "gamma"),
    ("LinearClassifier", "signs", "squared_hinge", "squared-hinge"),
    ("LogisticRegression", "labels", None, "multinomial"),
)
FEW: Mapping[str, Any] = {"max_iter": 3, "batch_size": 6, "clip_norm": 0.7}
# Options of solvers under which they ask other questions; the defaults of each are a row already.
VARIANTS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "scsg-ht": ({"epochs": 3}, {"epochs": 2, "snapshot_keep": 3}),
    "svrg-ht": ({"epochs": 3},),
    "frank-wolfe": ({"selection": "laplace"},),
    "peeled": ({"split": True}, {"selection": "laplace"}),
    "two-stage": ({"stage2": "objective"},),
    "adam": ({"subtract_noise": True},),
}


def linear_rows() -> Iterator[Subject]:
    """Yield a row for every estimator and every solver that declares to know its loss."""
    dense = ("auto", *solvers_with(dense=True, sparse=False))
    for form in LINEAR:
        for solver, entry in SOLVERS["linear"].items():
            if entry.capabilities.knows(form[3]) and (form[0].startswith("Sparse") or solver in dense):
                level = (
                    LEAD if form is LINEAR[0] else PLAIN if form is LINEAR[1] or solver == "auto" else LONG
                )
                yield _linear(form, solver, {}, level)
    for solver, variants in VARIANTS.items():
        for options in variants:
            yield _linear(LINEAR[0], solver, {"solver_options": options}, PLAIN)
    for solver in SOLVERS["linear"]:
        yield _linear(LINEAR[1], solver, {"secure_noise": True}, PLAIN)
    for solver in solvers_with(weights=True):
        weights = {"class_weight": {-1.0: 0.3, 1.0: 2.0}, "weight_bound": 2.0}
        yield _linear(LINEAR[1], solver, weights, LONG)


def unknown_owner_rows() -> Iterator[Subject]:
    """Yield rows of persons with three records each, whom the model does not know: all three may change.

    And records that are asked as several rows.
    """
    asked = ((5, "auto"), (5, "gd"), (5, "sgd"), (6, "auto"), (0, "ight"), (1, "auto"))
    for form, solver in ((LINEAR[at], solver) for at, solver in asked):
        known = _linear(form, solver, {"rows_per_person": 3}, PLAIN)

        def fit(data: Data, relation: str, known: Subject = known) -> Any:
            return known.fit(replace(data, groups=None), relation)

        yield replace(known, fit=fit, must=("persons",), may=())
    for name, solver, kind, more in (
        ("PCA", "gauss", "numbers", {"data_norm": 2.0}),
        ("PCA", "power", "numbers", {"data_norm": 2.0, "max_iter": 2}),
        ("HeavyTailedRegressor", "strongly-convex", "numbers", {"max_iter": 3}),
        ("HeavyTailedClassifier", "convex", "signs", {"max_iter": 3, "classes": LEVELS["signs"]}),
    ):

        def learn(data: Data, relation: str, name: str = name, solver: str = solver, more: Any = more) -> Any:
            options = {"solver": solver, "rows_per_person": 3, "random_state": 0, **more, **BUDGET}
            return getattr(sordino, name)(relation=relation, **options).fit(data.X, data.y)

        yield Subject(f"{name}/{solver}/rows_per_person=3", kind, learn, ("persons",))

    def levels(data: Data, relation: str) -> Any:
        model = sordino.OrderedLogisticRegression(
            **BUDGET, data_norm=2.0, classes=LEVELS["labels"], relation=relation, solver="gd", max_iter=3
        )
        return model.fit(data.X, data.y)

    yield Subject("OrderedLogisticRegression/gd", "labels", levels, IN_MEMORY)


def _linear(
    form: tuple[str, str, str | None, str], solver: str, extra: Mapping[str, Any], level: str
) -> Subject:
    name, kind, loss, known = form
    able = SOLVERS["linear"][solver].capabilities
    settings: dict[str, Any] = {**BUDGET, "data_norm": 2.0, "solver": solver, "random_state": 0, **extra}
    few = FEW if known != "multinomial" or not able.losses else {"max_iter": 3}  # some need all of a gradient
    settings |= {option: value for option, value in few.items() if option in able.reads}
    settings |= {"n_nonzero_coefs": 2} if able.sparse and name.startswith("Sparse") else {}
    settings |= {} if loss is None else {"loss": loss}
    settings |= {"classes": LEVELS[kind]} if kind in LEVELS else {"target_bound": 3.0}
    settings = folded(getattr(sordino, name), settings)

    def fit(data: Data, relation: str) -> Any:
        weighted = {"sample_weight": data.weights} if "weight_bound" in settings else {}
        model = getattr(sordino, name)(relation=relation, **settings)
        return model.fit(data.X, data.y, groups=data.groups, **weighted)

    said = "/".join([name, solver, *filter(None, [loss or kind]), *map(str, extra.values())])
    persons = ("persons",) if able.persons and "weight_bound" not in settings else ()
    return Subject(said, kind, fit, (*IN_MEMORY, *persons), ELSEWHERE, level=level)


# ------------------------------------------------------------------- components, heavy tails, scalers


def pca_rows() -> Iterator[Subject]:
    """Yield a row for every solver of PCA, with and without a released mean, and one for chunks."""
    few: Mapping[str, Any] = {"max_iter": 2, "batch_size": 12}
    for solver in SOLVERS["pca"]:
        row = SOLVERS["pca"][solver]
        reads = {k: v for k, v in few.items() if k in row.capabilities.reads and row.stands_for is None}
        for center in (True, False):
            settings = {**BUDGET, "data_norm": 2.0, "random_state": 0, "center": center, **reads}
            said, level = f"PCA/{solver}/center={center}", LEAD if center else LONG
            persons = () if solver in ("spca", "vrpca", "oja") else ("persons",)  # no mini-batches of persons
            places = (*IN_MEMORY, *persons)
            yield Subject(said, "numbers", _pca(solver, settings), places, ELSEWHERE, level=level)

    secure = {**BUDGET, "data_norm": 2.0, "random_state": 0, "secure_noise": True}
    yield Subject("PCA/auto/secure", "numbers", _pca("auto", secure), (*IN_MEMORY, "persons"), ELSEWHERE)

    def chunks(data: Data, relation: str) -> Any:
        pca = sordino.PCA(2, relation=relation, n_chunks=2, data_norm=2.0, **BUDGET)
        for part in np.split(data.X, 2):
            pca.partial_fit(part)
        return vars(pca) | {"_stream": None}

    yield Subject("PCA/chunks", "numbers", chunks)


def _pca(solver: str, settings: Mapping[str, Any]) -> Callable[[Data, str], Any]:
    own = folded(sordino.PCA, settings)
    return lambda data, relation: sordino.PCA(2, solver=solver, relation=relation, **own).fit(
        data.X, groups=data.groups
    )


HEAVY: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "secure": {"secure_noise": True, "n_nonzero_coefs": 2},
    "scaled": {"scale_columns": True},
    "coordinates": {"gradient": "truncated", "truncation": "zero", "solver": "convex"},
    "blocks": {"gradient": "median-of-means", "joint_clip": 1.4},
    "split": {"split": True, "step_size": 0.1},
    "given": {"threshold": 0.7, "step_size": 0.1},
    "sparse": {"n_nonzero_coefs": 2},
    "peeling": {"n_nonzero_coefs": 2, "selection": "peeling", "threshold": 0.7, "step_size": 0.1},
    "joint": {"n_nonzero_coefs": 2, "joint_clip": 1.2, "split": True},
}


def heavy_rows() -> Iterator[Subject]:
    """Yield rows of the models for heavy tails, in each of their forms."""
    for form, options in HEAVY.items():
        settings = {**BUDGET, "max_iter": 3, "random_state": 0, **options}
        settings = folded(sordino.HeavyTailedRegressor, settings)
        for name, kind, own in (
            ("HeavyTailedRegressor", "numbers", {}),
            ("HeavyTailedRegressor", "numbers", {"loss": "huber"}),
            ("HeavyTailedClassifier", "signs", {"classes": LEVELS["signs"]}),
        ):
            whole = form not in ("blocks", "split", "joint")  # what persons have
            said = "/".join([name, form, *map(str, own.values())])
            fit = _model(name, {**settings, **own}, whole)
            level = LEAD if not own and form in ("default", "sparse") else PLAIN if not own else LONG
            level = PLAIN if name == "HeavyTailedClassifier" and form == "default" else level
            places = (*IN_MEMORY, *(["persons"] if whole else []))
            yield Subject(said, kind, fit, places, ELSEWHERE, level=level)
    for name in ("TruncatedMean", "MedianOfMeans"):
        yield Subject(name, "numbers", _model(name, BUDGET), ("memory",))
    for name in ("PrivateStandardScaler", "PrivateColumnWeights"):
        yield Subject(name, "numbers", _model(name, {**BUDGET, "data_norm": 2.0}), IN_MEMORY, ELSEWHERE)


def _model(name: str, settings: Mapping[str, Any], persons: bool = False) -> Callable[[Data, str], Any]:
    def fit(data: Data, relation: str) -> Any:
        owned = {"groups": data.groups} if persons else {}
        return getattr(sordino, name)(relation=relation, **settings).fit(data.X, data.y, **owned)

    return fit


# -------------------------------------------------------------------------------------- statistics

MEANS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "order": {"moment_order": 0.5},
    "bound": {"moment_bound": 2.0, "joint_clip": 1.5},
    "zero": {"truncation": "zero", "threshold": 1.0},
    "blocks": {"estimator": "median-of-means"},
    "plain": {"secure_noise": False, "threshold": 1.0},
    "limits": {"bounds": (-3.0, 2.0)},
}
EDGES = [-1e300, -1.0, 0.0, 0.5, 1.0, 1e300]
CELLS = (-3.0, 2.0)


def statistics_rows() -> Iterator[Subject]:
    """Yield rows of the statistics: of one column, of all, by groups, by persons."""
    elsewhere = ELSEWHERE
    for form, options in MEANS.items():
        places = elsewhere if form == "default" else ()
        yield _statistic(f"mean/{form}", lambda d, **o: sordino.mean(d.X, **o), options, places)
    yield _statistic("mean/column", lambda d, **o: sordino.mean(d.X[:, 0], **o), {}, ())
    for form, options in (("default", {}), ("limits", {"bounds": CELLS})):
        yield _statistic(f"variance/{form}", lambda d, **o: sordino.variance(d.X, **o), options, elsewhere)
        of = lambda d, **o: sordino.quantiles(d.X, [0.1, 0.5], resolution=5, **o)  # noqa: E731
        yield _statistic(f"quantiles/{form}", of, options, elsewhere)
        many = lambda d, **o: sordino.quantiles(d.X, np.linspace(0, 1, 11), resolution=5, **o)  # noqa: E731
        yield _statistic(f"quantiles/{form}/many", many, options, elsewhere)
        rough = lambda d, **o: sordino.quantiles(d.X[:, 0], 0.7, **{**o, "epsilon": 20.0})  # noqa: E731
        yield _statistic(f"quantiles/{form}/around a median", rough, options)
    yield _statistic("covariance", lambda d, **o: sordino.covariance(d.X, random_state=0, **o), {}, elsewhere)
    persons = ("memory", "persons")
    by_sign = {"levels": ["+", "-"]}
    for name, ask in {
        "count": lambda d, **o: sordino.count(d.X[:, 0] > 0, groups=d.groups, **o),
        "count/levels": lambda d, **o: sordino.count(_signs(d.X[:, 0]), groups=d.groups, **by_sign, **o),
        "histogram": lambda d, **o: sordino.histogram(d.X[:, 0], EDGES, groups=d.groups, **o),
        "crosstab": lambda d, **o: sordino.crosstab(
            _signs(d.X[:, 0]), _signs(d.y), levels=[["+", "-"]] * 2, groups=d.groups, **o
        ),
        "group_by/count": lambda d, **o: _grouped(d).count(**o),
        "group_by/sum": lambda d, **o: _grouped(d).sum(d.X[:, 1], bounds=CELLS, **o),
        "group_by/mean": lambda d, **o: _grouped(d).mean(d.X[:, 1], bounds=CELLS, **o),
        "group_by/quantile": lambda d, **o: _grouped(d).quantile(
            d.X[:, 1], [0.2, 0.7], bounds=CELLS, resolution=4, **o
        ),
    }.items():
        yield _statistic(name, ask, {}, (), persons)
        yield _statistic(f"{name}/plain", ask, {"secure_noise": False}, (), ("memory",))


def _statistic(
    name: str,
    ask: Callable[..., Any],
    options: Mapping[str, Any],
    may: tuple[str, ...] = (),
    must: tuple[str, ...] = ("memory",),
) -> Subject:
    fit = lambda data, relation: ask(data, relation=relation, **BUDGET, **options)  # noqa: E731
    return Subject(name, "numbers", fit, must, may)


def _signs(values: np.ndarray) -> np.ndarray:
    return np.where(values > 0, "+", np.where(values < 0, "-", "neither"))


def _grouped(data: Data) -> Any:
    keys = {"sign": _signs(data.X[:, 0]), "size": data.X[:, 2]}
    return sordino.group_by(keys, levels={"sign": ["+", "-"]}, edges={"size": EDGES}, groups=data.groups)


# --------------------------------------------------------------------- tables, scores, search, chains


def table_of(data: Data, person: bool = False) -> pd.DataFrame:
    """Return the records as a table with a category and, where wanted, the person of each."""
    table = pd.DataFrame(np.asarray(data.X)[:, :3], columns=["a", "b", "c"])
    table["town"] = _signs(np.asarray(data.X)[:, 3])
    table["ill"] = np.where(data.y > 0, "yes", "no")
    if person:
        table["who"] = [f"p{g}" for g in (np.arange(len(data.y)) if data.groups is None else data.groups)]
    return table


NUMBERS = [Number("a", -2, 2), Number("b", -1, 1, knots=1), Number("c", -3, 3)]
DECLARED = Schema([*NUMBERS, Category("town", ["+", "-"]), Target("ill", levels=["no", "yes"])])
OWNED = Schema([*DECLARED.columns, Person("who")])
WEIGHED = Schema([*NUMBERS[:2], Weight("c", 1.5), *DECLARED.columns[3:]])
BLANK = Schema([Number("a"), Number("b"), Number("c", -3, 3), Category("town"), Target("ill", "category")])


def table_rows() -> Iterator[Subject]:
    """Yield rows that come by way of a table: with a schema, with persons in it, and learning one."""

    def fitted(schema: Schema) -> Callable[[Data, str], Any]:
        def fit(data: Data, relation: str) -> Any:
            model = sordino.LogisticRegression(relation=relation, schema=schema, **BUDGET, random_state=0)
            return model.fit(table_of(data, schema is OWNED))

        return fit

    def learned(schema: Schema) -> Callable[[Data, str], Any]:
        def learn(data: Data, relation: str) -> Any:
            # so few records are worth learning from at such a price only
            paid = {"epsilon": 500.0, "delta": 1e-3, "relation": relation}
            return learn_schema(schema, table_of(data, schema is not BLANK), **paid)

        return learn

    def shares(data: Data, relation: str) -> Any:
        owned = data.groups is not None
        return value_shares(
            OWNED if owned else DECLARED,
            table_of(data, owned),
            relation=relation,
            **{**BUDGET, "epsilon": 60.0},
        )

    yield Subject("value_shares", "signs", shares, ("memory", "persons"))
    yield Subject("LogisticRegression/table", "signs", fitted(DECLARED))
    yield Subject("LogisticRegression/table with weights", "signs", fitted(WEIGHED))
    yield Subject("LogisticRegression/table of persons", "signs", fitted(OWNED), ("persons",))
    yield Subject("learn_schema", "signs", learned(BLANK))
    yield Subject(
        "learn_schema/persons", "signs", learned(Schema([*BLANK.columns, Person("who")])), ("persons",)
    )


@cache
def scored_model(classes: bool) -> Any:
    """Return a model that is public here: it was fitted on other records."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 5)) / 2
    with seeded_noise_not_private(1):
        if classes:
            model = sordino.LogisticRegression(data_norm=2.0, classes=LEVELS["signs"], **BUDGET)
            return model.fit(X, np.where(X[:, 0] > 0, 1.0, -1.0))
        return sordino.LinearRegression(data_norm=2.0, target_bound=3.0, **BUDGET).fit(X, X[:, 0])


def score_rows() -> Iterator[Subject]:
    """Yield a row for each metric."""
    models = {classes: scored_model(classes) for classes in (True, False)}  # before a tape runs
    for metric, row in METRICS.items():
        numbers = row.numbers

        def fit(data: Data, relation: str, metric: str = metric, numbers: bool = numbers) -> Any:
            model = models[not numbers]
            settings = {"metric": metric, "relation": relation, "groups": data.groups, **BUDGET}
            return sordino.private_score(model, data.X, data.y, **settings)

        kind = "numbers" if numbers else "signs"
        yield Subject(f"private_score/{metric}", kind, fit, ("memory", "persons"))

    def by(data: Data, relation: str) -> Any:
        sides = {"side": (_signs(data.X[:, 1]), ["+", "-"])}
        settings = {"by": sides, "relation": relation, "groups": data.groups, **BUDGET}
        return sordino.private_scores_by(models[True], data.X, data.y, **settings)

    yield Subject("private_scores_by", "signs", by, ("memory", "persons"))


def interval_rows() -> Iterator[Subject]:
    """Yield intervals of models that are public here."""
    models = {classes: scored_model(classes) for classes in (True, False)}  # before a tape runs

    def steps(data: Data, relation: str, classes: bool = False) -> Any:
        settings = {"relation": relation, "groups": data.groups, **BUDGET}
        found = sordino.intervals(models[classes], data.X, data.y, **settings)
        return found.coef_, found.errors, found.privacy

    def ranks(data: Data, relation: str) -> Any:
        settings = {"relation": relation, "groups": data.groups, **BUDGET}
        found = sordino.prediction_intervals(models[False], data.X, data.y, **settings)
        return found.radius, found.privacy

    yield Subject("intervals/numbers", "numbers", steps, ("memory", "persons"))
    yield Subject("intervals/signs", "signs", partial(steps, classes=True), ("memory", "persons"))
    yield Subject("prediction_intervals", "numbers", ranks, ("memory", "persons"))


def search_rows() -> Iterator[Subject]:
    """Yield searches: around one model of each task, and around a chain of paid steps."""

    def model(kind: str) -> Any:
        if kind == "signs":
            return sordino.LogisticRegression(data_norm=2.0, solver="gd", classes=LEVELS["signs"], max_iter=2)
        return sordino.LinearRegression(data_norm=2.0, solver="gd", target_bound=3.0, max_iter=2)

    def search(kind: str, chain: bool, **options: Any) -> Callable[[Data, str], Any]:
        def fit(data: Data, relation: str) -> Any:
            inner, name = model(kind).set_params(relation=relation), "solver_options__clip_norm"
            if chain:
                scaler = sordino.PrivateStandardScaler(data_norm=2.0, relation=relation)
                inner, name = make_pipeline(scaler, inner), f"{type(inner).__name__.lower()}__{name}"
            grid, settings = {name: [0.5, 1.0]}, {"relation": relation, "random_state": 0, **BUDGET}
            found = sordino.PrivateSearchCV(inner, grid, mean_trials=3.0, **settings, **options)
            return found.fit(data.X, data.y)

        return fit

    yield Subject("PrivateSearchCV/accuracy", "signs", search("signs", False))
    yield Subject("PrivateSearchCV/log loss", "signs", search("signs", False, scoring="neg_log_loss"))
    yield Subject("PrivateSearchCV/chain", "signs", search("signs", True))
    yield Subject("PrivateSearchCV/regression", "numbers", search("numbers", False, target_bound=3.0))


def chain_rows() -> Iterator[Subject]:
    """Yield a chain whose second step sees what the first one made of its records."""

    def fit(data: Data, relation: str) -> Any:
        scaler = sordino.PrivateColumnWeights(data_norm=2.0, relation=relation, **BUDGET)
        model = sordino.SparseLinearRegression(
            data_norm=2.0, target_bound=3.0, solver="ight", max_iter=2, relation=relation, **BUDGET
        )
        chain = make_pipeline(sordino.RowClipper(data_norm=2.0), scaler, model).fit(data.X, data.y)
        return chain, sordino.pipeline_privacy(chain)

    yield Subject("pipeline_privacy", "numbers", fit, IN_MEMORY)


# ------------------------------------------------------------------------------------- joint runs

MODES = ("secure-aggregation", "noise-inside")
JOINT: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "auto": ("signs", linear_task(5, data_norm=2.0, solver="auto", fit_intercept=True)),
    "ight": ("numbers", linear_task(
        5, "SparseLinearRegression", classes=None, target_bound=1.0, data_norm=2.0, max_iter=3,
        solver_options={"clip_norm": 0.7})),
    "sgd-ht": ("signs", linear_task(
        5, data_norm=2.0, solver="sgd-ht", max_iter=3, n_nonzero_coefs=2, solver_options={"batch_size": 6})),
    "output": ("signs", {**linear_task(5, data_norm=2.0, alpha=0.5), "method": "output"}),
    "pca": ("numbers", {"estimator": "PCA", "features": 5, "params": {
        "data_norm": 2.0, "random_state": 0, "solver": "power", "n_components": 2, "max_iter": 2}}),
}  # fmt: skip


@cache
def joint_plan(task: str, mode: str, relation: str) -> Mapping[str, Any]:
    """Return the text of a plan of three members, which is public."""
    members = [
        {"name": f"m{i}", "host": "127.0.0.1", "port": 26500 + i, "fingerprint": f"{i}" * 64, "records": 8}
        for i in range(3)
    ]
    budget = {**BUDGET, "relation": relation, "unit": "record"}
    return make_plan("three", members, JOINT[task][1], budget, mode=mode).text


def joint_rows() -> Iterator[Subject]:
    """Yield rows of joint runs: three members in this process, the integers and the noise of real ones."""

    def joint(task: str, mode: str) -> Callable[[Data, str], Any]:
        def fit(data: Data, relation: str) -> Any:
            plan = JointPlan.read(joint_plan(task, mode, relation))  # anew: a plan is opened once
            places = np.split(np.arange(len(data.y)), np.cumsum(plan.records)[:-1])
            members = [plan.model.joint_rows(data.X[rows], data.y[rows]) for rows in places]
            promise = plan.promise()
            with promise.run(SimulatedParties(members, plan.share), "joint plan") as curator:
                last, _ = plan.task.follow(curator)
            return plan.task.finish(last), promise.report(plan.task.public)

        return fit

    for task, (kind, _) in JOINT.items():
        for mode in MODES:
            yield Subject(f"joint run/{task}/{mode}", kind, joint(task, mode))


def all_rows() -> list[Subject]:
    """Return every row but those of networks."""
    makers = (linear_rows, unknown_owner_rows, pca_rows, heavy_rows, statistics_rows)
    makers += (table_rows, score_rows, interval_rows, search_rows, chain_rows, joint_rows)
    rows = [row for make in makers for row in make()]
    assert len({row.name for row in rows}) == len(rows)
    assert all(place in PLACES for row in rows for place in (*row.must, *row.may))
    return rows
