"""What is fuzzed: every reader of foreign bytes, every public call, every command.

A target takes bytes. It may return, or raise one of the house's errors; anything else is a finding, and so
are a hang, memory for sizes that only a document claims, and a planted value in a message.
"""

# ruff: noqa: SIM905 - long lists of words

import inspect
import json
import math
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click
import numpy as np
from click.testing import CliRunner
from scipy import sparse
from tests.fuzz.bytes import Chooser

import sordino
from sordino.errors import SordinoError

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "0.1.0"
SECRET, WORD = 0.48213957160482917, "word-77aa19"
SECRETS = (WORD, "4821395", "48213957")


@dataclass(frozen=True)
class Target:
    """A name, valid inputs to start from, and the call."""

    name: str
    seeds: Callable[[], Sequence[bytes]]
    feed: Callable[[bytes], object]
    allowed: tuple[type[BaseException], ...] = (SordinoError,)


@cache
def folder() -> Path:
    """Return a folder of this process, on the memory disk where there is one."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="fuzz", dir=place))


def as_file(name: str, data: bytes) -> Path:
    path = folder() / name
    path.write_bytes(data)
    return path


def kept(*names: str) -> Callable[[], list[bytes]]:
    """Return the seeds that are files of the fixtures."""
    return lambda: [(FIXTURES / name).read_bytes() for name in names]


# ------------------------------------------------------------------------------------------ Readers of bytes


def read_event(data: bytes) -> object:
    from sordino.accounting.trees import decode

    return decode(json.loads(data))


def event_seeds() -> list[bytes]:
    from sordino.accounting.trees import encode

    model = sordino.LogisticRegression(1.0, data_norm=1.0).fit(np.eye(60, 3), np.arange(60) % 2)
    return [json.dumps(encode(model.privacy_.event)).encode(), b'{"kind": "Gaussian"}']


def read_report(data: bytes) -> object:
    return sordino.PrivacyReport.from_json(data.decode("utf-8", "replace"))


def read_export(data: bytes) -> object:
    from sordino.ledger.store import from_json

    return from_json(data.decode("utf-8", "replace"))


def read_ledger(data: bytes) -> object:
    path = as_file("ledger.db", data)
    for beside in folder().glob("ledger.db?*"):
        beside.unlink()
    ledger = sordino.Ledger.open(path)
    try:
        return [(ledger.history(name), ledger.remaining(name)) for name in ledger.datasets()], ledger.verify()
    finally:
        ledger.close()


def read_schema(data: bytes) -> object:
    return sordino.Schema.read(as_file("schema.toml", data))


def read_model(data: bytes) -> object:
    return sordino.load(as_file("model.sordino", data))


def model_seeds() -> list[bytes]:
    model = sordino.LinearRegression(1.0, data_norm=1.0).fit(np.eye(60, 3), np.arange(60) / 60)
    sordino.save(model, folder() / "seed.sordino")
    return [
        (folder() / "seed.sordino").read_bytes(),
        *kept("table.sordino", "axes.sordino", "logistic.sordino")(),
    ]


def read_rows(data: bytes) -> object:
    place = folder() / "rows"
    if not place.exists():
        shutil.copytree(FIXTURES / "rows", place)
    (place / "rows.json").write_bytes(data)
    return np.asarray(sordino.on_disk(place).shape)


TABLE = f"age,sex,income\n41,m,{SECRET}\n52,f,2.5\n{WORD},m,3\n,,\n".encode()


def fit_csv(data: bytes) -> object:
    """Fit a schema to a file of which only the bytes are known."""
    (folder() / "people.toml").write_text(SCHEMA)
    return command(
        ["fit", str(as_file("people.csv", data)), "--schema", str(folder() / "people.toml"), "--epsilon", "1",
         "--output", str(folder() / "people.sordino"), "--overwrite"]
    )  # fmt: skip


SCHEMA = """
format = 1
[columns.age]
kind = "number"
low = 0
high = 120
[columns.sex]
kind = "category"
levels = ["f", "m"]
[columns.income]
kind = "target"
of = "number"
low = 0
high = 10
"""


# -------------------------------------------------------------------------------------- Words between parties


def plans() -> list[bytes]:
    """Return the kept plan in the format of today."""
    from sordino.parties.mpc.plan import FORMAT

    return [json.dumps(json.loads(text) | {"format": FORMAT}).encode() for text in kept("plan.json")()]


def read_plan(data: bytes) -> object:
    from sordino.parties.mpc.plan import JointPlan

    return JointPlan.load(as_file("plan.json", data)).digest


def read_charter(data: bytes) -> object:
    from sordino.parties.mpc.charter import Charter

    return Charter.load(as_file("charter.json", data)).digest


@cache
def charter_seed() -> bytes:
    from tests.parties.helpers import NAMES, Consortium
    from tests.parties.test_charter import _propose, _signed

    made = Consortium(folder() / "consortium")
    _signed(made.folder, _propose(made.folder), NAMES).save(made.folder / "charter.json")
    return (made.folder / "charter.json").read_bytes()


def read_settings(data: bytes) -> object:
    from sordino.parties.mpc.config import PartyConfig

    charter_seed()
    return PartyConfig.load(as_file("consortium/north/party.toml", data))


@cache
def settings_seeds() -> list[bytes]:
    charter_seed()
    return [next((folder() / "consortium" / "north").glob("*.toml")).read_bytes()]


def read_transcript(data: bytes) -> object:
    from sordino.parties.mpc.transcript import read_transcript as read

    return read(as_file("transcript", data)).releases


def read_answer(data: bytes) -> object:
    from sordino.parties.mpc.control import Answer

    return Answer.read(data).words


def read_field(data: bytes) -> object:
    from sordino.execute.parties.field import Field

    return Field().loads(data, 4)


def hear_frames(data: bytes) -> object:
    """Feed a link with bytes of a stranger, in pieces."""
    import asyncio

    from sordino.parties.mpc.links import Link, Member, Mesh

    class Wire:
        def write(self, payload):
            """Drop it."""

        def get_extra_info(self, name):
            """Know nothing."""

        def abort(self):
            """Do nothing."""

        close = abort

    loop = asyncio.new_event_loop()
    try:
        members = tuple(Member(name, f"127.0.0.1:{7000 + i}", "") for i, name in enumerate("abc"))
        link = Link(Mesh(members, 0, loop), None, False)
        link.connection_made(Wire())
        for start in range(0, len(data), 7):
            link.data_received(data[start : start + 7])
    finally:
        loop.close()


# ---------------------------------------------------------------------------------------- Calls and commands

VALUES = (
    *(
        1.0,
        0.5,
        0,
        -1,
        2,
        1e308,
        5e-324,
        10**400,
        2**63,
        math.nan,
        math.inf,
        -math.inf,
        50,
        1j,
        b"1",
        None,
        True,
    ),
    *("", "word", "auto", "gd", "ight", "logistic", "squared", "add-remove", "replace-one"),
    *([], [0, 1], (0.0, 1.0), (1, 0), {}, {"step_size": 1.0}, object()),
    *(np.float32(1), np.array([1.0, 2.0]), np.array([])),
)
ESTIMATORS = """LogisticRegression LinearRegression LinearClassifier SparseLogisticRegression
SparseLinearRegression HeavyTailedClassifier HeavyTailedRegressor PCA TruncatedMean MedianOfMeans
PrivateStandardScaler PrivateColumnWeights RowClipper OrderedLogisticRegression""".split()
STATISTICS = ("mean", "variance", "covariance", "quantiles", "count", "histogram", "crosstab")


def rows_of(choose: Chooser) -> object:
    """Return rows: ordinary, of odd shapes, types and values, with a planted value."""
    n, d = choose.one_of((30, 8, 1, 0, 100)), choose.one_of((3, 1, 0, 6))
    rng = np.random.default_rng(choose.number(1000))
    X = rng.normal(size=(n, d))
    for _ in range(choose.number(4)):
        if X.size:
            X.flat[choose.number(X.size)] = choose.one_of(
                (SECRET, math.nan, math.inf, 1e308, 5e-324, choose.double())
            )
    kind = choose.number(12)
    if kind == 1:
        return sparse.csr_array(X)
    if kind == 2:
        return X.astype(np.float32)
    if kind == 3:
        return X.tolist()
    if kind == 4:
        return X.astype(object)
    if kind == 5:
        return X[:, 0] if d else X
    if kind == 6:
        return np.where(np.isfinite(X), X, 0).clip(-1e9, 1e9).astype(np.int64)
    if kind == 7:
        return X[None]
    if kind == 8:
        return choose.one_of(
            (None, "word", 1.0, [WORD, WORD], [[1], [1, 2]], np.array([[WORD]]), {"a": [1.0]})
        )
    if kind == 9:
        import pandas as pd

        return pd.DataFrame(X, columns=[f"c{i}" for i in range(d)])
    return X


def targets_of(choose: Chooser, rows: object) -> object:
    n = len(rows) if isinstance(rows, list) else (getattr(rows, "shape", ()) or (1,))[0]
    rng = np.random.default_rng(choose.number(1000))
    kind = choose.number(8)
    if kind == 1:
        return rng.normal(size=n)
    if kind == 2:
        return rng.choice(["yes", "no", WORD], size=n)
    if kind == 3:
        return rng.integers(0, 4, size=n + choose.number(2))
    if kind == 4:
        return np.where(rng.random(n) < 0.1, choose.double(), 1.0)
    if kind == 5:
        return choose.one_of((None, "word", 1.0, rng.normal(size=(n, 2)), np.full(n, SECRET), [None] * n))
    return rng.integers(0, 2, size=n)


def parameters_of(made: Callable[..., object], choose: Chooser) -> dict[str, object]:
    left_out = ("x", "X", "rows", "columns", "ledger", "dataset_id", "verbose", "self", "options")
    names = [name for name in inspect.signature(made).parameters if name not in left_out]
    found = {name: choose.one_of(VALUES) for name in names if choose.chance(6)}
    return {"epsilon": choose.one_of((1.0, 0.1, 8.0, *VALUES)), **found} if "epsilon" in names else found


def fit_estimator(data: bytes) -> object:
    choose = Chooser(data)
    made = getattr(sordino, choose.one_of(ESTIMATORS))
    model, X = made(**parameters_of(made, choose)), rows_of(choose)
    y = targets_of(choose, X)
    takes = inspect.signature(model.fit).parameters
    given = {"sample_weight": np.ones(30), "groups": np.arange(30) // 2}
    extra = {name: value for name, value in given.items() if name in takes and choose.chance(8)}
    repr(model)
    model.fit(X, y, **extra)
    other = rows_of(choose)
    for name in ("predict", "predict_proba", "transform"):
        if hasattr(model, name):
            getattr(model, name)(other)
    return repr(model), str(model.privacy_) if hasattr(model, "privacy_") else ""


def ask_statistic(data: bytes) -> object:
    choose = Chooser(data)
    made = getattr(sordino, choose.one_of(STATISTICS))
    parameters = parameters_of(made, choose)
    if made is sordino.quantiles:
        parameters.setdefault("q", choose.one_of((0.5, [0.1, 0.9], *VALUES)))
    rows = rows_of(choose)
    if made is sordino.histogram:
        parameters.setdefault("edges", choose.one_of(([0.0, 1.0, 2.0], *VALUES)))
    if "levels" in inspect.signature(made).parameters:
        parameters.setdefault("levels", choose.one_of(([0, 1], [[0, 1], [0, 1]], ["yes", "no"], *VALUES)))
    second = (targets_of(choose, rows),) if made is sordino.crosstab else ()
    return repr(made(rows, *second, **parameters))


KINDS = """
[columns.days]
kind = "exposure"
high = 2
[columns.weight]
kind = "weight"
high = 3
[columns.who]
kind = "person"
"""


def fit_table(data: bytes) -> object:
    """Fit a schema with weights, exposure and persons to a table of hostile cells."""
    import pandas as pd

    choose = Chooser(data)
    kinds = [kind for kind in KINDS.split("[") if kind.strip() and choose.chance(2)]
    schema = sordino.Schema.read(as_file("table.toml", (SCHEMA + "".join(f"[{k}" for k in kinds)).encode()))
    n = choose.one_of((40, 3, 0))
    cells = {"age": 41.0, "sex": "m", "income": 2.5, "days": 1.0, "weight": 2.0}
    table = pd.DataFrame({name: [value] * n for name, value in cells.items()} | {"who": np.arange(n) // 3})
    table = table.astype(object)
    for _ in range(choose.number(6) if n else 0):
        cell = choose.one_of((SECRET, WORD, None, math.nan, math.inf, -1.0, 1e308, choose.double()))
        table.iat[choose.number(n), choose.number(table.shape[1])] = cell
    names = ("knots", "pairs", "rows_per_person", "target_bound", "max_iter", "solver", "penalty", "relation")
    known = {name: choose.one_of(VALUES) for name in names if choose.chance(5)}
    loss = choose.one_of(("squared", "poisson", "huber", "quantile"))
    made = sordino.LinearRegression(epsilon=1.0, schema=schema, loss=loss, **known).fit(table)
    return repr(made), made.predict(table)


@cache
def judged() -> tuple[object, object]:
    """Return two models to ask about: of labels and of numbers."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    return (
        sordino.LogisticRegression(1.0, data_norm=1.0).fit(X, (X[:, 0] > 0).astype(int)),
        sordino.LinearRegression(1.0, data_norm=1.0, target_bound=1.0).fit(X, X[:, 0]),
    )


SCORES = ("private_score", "private_scores_by", "intervals", "prediction_intervals")


def ask_score(data: bytes) -> object:
    """Score a model, or search one, with hostile parameters and records."""
    choose = Chooser(data)
    made = getattr(sordino, choose.one_of(SCORES))
    parameters = {"epsilon": 1.0, **parameters_of(made, choose)}
    for name in ("model", "y", "groups"):
        parameters.pop(name, None)
    rows = rows_of(choose)
    n = getattr(rows, "shape", (30,))[:1]
    if "by" in inspect.signature(made).parameters:
        parameters["by"] = choose.one_of((np.arange(n[0] if n else 1) % 2, *VALUES))
    if "metric" in inspect.signature(made).parameters:
        parameters["metric"] = choose.one_of(
            ("accuracy", "mse", "mae", "log_loss", "deviance", "auc", *VALUES)
        )
    if choose.chance(6):
        parameters["groups"] = np.arange(n[0] if n else 1) // 2
    return repr(made(choose.one_of(judged()), rows, targets_of(choose, rows), **parameters))


def search(data: bytes) -> object:
    """Search with hostile grids, parameters and records."""
    choose = Chooser(data)
    parameters = parameters_of(sordino.PrivateSearchCV, choose)
    model = choose.one_of((sordino.LinearRegression(), sordino.LogisticRegression(), *VALUES))
    grids = ({"max_iter": [1, 2]}, {"solver": ["gd", "word"]}, [{"max_iter": [1]}], {"none": [1]}, *VALUES)
    parameters = {**parameters, "estimator": model, "param_grid": choose.one_of(grids)}
    X = rows_of(choose)
    made = sordino.PrivateSearchCV(**parameters).fit(X, targets_of(choose, X))
    return repr(made), repr(made.predict(X))


TERMS = ("count", "sum", "mean", "quantile")


def ask_groups(data: bytes) -> object:
    """Ask for statistics of each group, with hostile keys, levels, terms and values."""
    choose = Chooser(data)
    rows = rows_of(choose)
    keys = targets_of(choose, rows)
    parameters = {name: choose.one_of(VALUES) for name in ("edges", "groups", "rows_per_person")
                  if choose.chance(6)}  # fmt: skip
    cells = sordino.group_by(keys, levels=choose.one_of(([0, 1], ["yes", "no"], *VALUES)), **parameters)
    ask = getattr(cells, choose.one_of(TERMS))
    known = parameters_of(ask, choose)
    takes = inspect.signature(ask).parameters
    given = {"x": targets_of(choose, rows), "q": choose.one_of((0.5, *VALUES))}
    given["bounds"] = choose.one_of(((0.0, 1.0), *VALUES))
    return repr(
        ask(**known, **{name: one for name, one in given.items() if name in takes and name not in known})
    )


def command(words: Sequence[str]) -> object:
    """Run a command; whatever it ends with must be a status, and its words hold nothing that was planted."""
    from sordino.cli import main

    found = CliRunner().invoke(main, list(words))
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    if leak := [secret for secret in SECRETS if secret in found.output]:
        raise AssertionError(f"{leak} in the output of {words[:1]}")
    return found.exit_code


@cache
def shelf() -> Path:
    """Return a folder with what commands are given: a table, a schema, a model, a ledger, a report."""
    place = folder() / "shelf"
    place.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    rows = [f"{rng.integers(20, 80)},{'fm'[i % 2]},{rng.random() * 9:.2f}" for i in range(60)]
    (place / "people.csv").write_text("\n".join(["age,sex,income", *rows]) + "\n")
    (place / "people.toml").write_text(SCHEMA)
    for name in ("ledger.db", "regression.sordino", "report.json", "table.sordino"):
        shutil.copy(FIXTURES / name, place)
    return place


ARGUMENTS = [
    *"people.csv people.toml ledger.db regression.sordino table.sordino report.json out.csv".split(),
    *"out.sordino absent.csv 1 0 -1 1e400 nan 0.5 age income mean".split(),
    *"loss=poisson x=y ward 0,1 auto person / . -".split(),
    *("", "ü", "a" * 5000, "max_advantage=.1", "sqlite:///x", "postgresql://u:p@127.0.0.1:1/x"),
]
SERVERS = ("demo", "reproduce", "party serve", "party run", "consortium run", "completion")
"""Commands that serve, connect or compute for minutes: their readers are targets of their own."""


def commands_of(group: click.Group, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield every command below a group with its options, as the program itself lists them."""
    for name in group.list_commands(None):
        one, words = group.get_command(None, name), f"{path} {name}".strip()
        if isinstance(one, click.Group):
            yield from commands_of(one, words)
        elif words not in SERVERS:
            yield words, [flag for param in one.params for flag in param.opts if flag.startswith("--")]


@cache
def commands() -> dict[str, list[str]]:
    from sordino.cli import main

    return dict(commands_of(main))


def run_command(data: bytes) -> object:
    choose, here = Chooser(data), Path.cwd()
    name = choose.one_of(sorted(commands()))
    words, flags = name.split(), commands()[name] or ["--help"]
    words += [choose.one_of(ARGUMENTS if choose.chance(2) else flags) for _ in range(choose.number(9))]
    place = folder() / "run"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(shelf(), place)
    os.chdir(place)
    try:
        return command(words)
    finally:
        os.chdir(here)


def noise(count: int = 40) -> Callable[[], list[bytes]]:
    """Return seeds without a form, for targets whose bytes only choose."""
    return lambda: [random.Random(i).randbytes(count) for i in range(16)]


JSON = (
    SordinoError,
    json.JSONDecodeError,
    UnicodeDecodeError,
    RecursionError,
)  # the caller's own `json.loads`
TARGETS = (
    Target("event", event_seeds, read_event, JSON),
    Target("report", kept("report.json"), read_report),
    Target("export", kept("ledger.json"), read_export),
    Target("ledger", kept("ledger.db"), read_ledger),
    Target("schema", lambda: [*kept("schema.toml")(), SCHEMA.encode()], read_schema),
    Target("model", model_seeds, read_model),
    Target("rows on disk", kept("rows/rows.json"), read_rows),
    Target("csv", lambda: [TABLE], fit_csv),
    Target("plan", plans, read_plan),
    Target("charter", lambda: [charter_seed()], read_charter),
    Target("settings", settings_seeds, read_settings),
    Target("transcript", lambda: [b'{"kind":"start","previous":"' + b"0" * 64 + b'"}\n'], read_transcript),
    Target(
        "answer",
        lambda: [b'{"status": "running", "code": "policy", "releases": 3}'],
        read_answer,
        (*JSON, ValueError),
    ),
    Target("field", lambda: [bytes(32), b"\xff" * 32], read_field, (SordinoError, ValueError)),
    Target("frames", lambda: [b"\x01\x00" + bytes(12) + b"x" * 40], hear_frames),
    Target("estimators", noise(), fit_estimator),
    Target("statistics", noise(), ask_statistic),
    Target("tables", noise(), fit_table),
    Target("scores", noise(), ask_score),
    Target("searches", noise(), search),
    Target("groups", noise(), ask_groups),
    Target("commands", noise(20), run_command),
)
