"""Hash what every door of the library answers under seeded noise: a move of code must not change a bit.

    python tools/goldens.py write before.json      # at the commit before
    python tools/goldens.py check before.json      # after it: names what differs, and exits with 1

Covered: the rows of the solver table, every estimator with every solver it takes, the statistics, the places
where rows lie, persons, parties and clients, a search, a private score, network recipes and the commands.
The numbers depend on the processor and the versions of NumPy and Numba: write and check on one machine. Plans
are hashed by their events, results by their bytes. Seeded noise: nothing here is private.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import numpy as np  # noqa: E402
from click.testing import CliRunner  # noqa: E402
from scipy import sparse  # noqa: E402

import sordino  # noqa: E402
from sordino.cli import main as command  # noqa: E402
from sordino.testing import seeded_noise_not_private  # noqa: E402

Golden = tuple[str, Callable[[], Any]]
# What a second run of the same code changes: times, versions of the code, digests of files that hold times.
VOLATILE = {"made", "started", "finished", "created", "code", "code_digest", "python", "platform", "when"}
STAMPS = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(\+00:00|Z| UTC)?"
    r"|(?<![.\d])\b[0-9a-f]{12,64}\b|\d+\.\d+ s\b"
)
LINEAR = ("auto", "gd", "sgd", "adam", "srm", "agd", "rrp-sgd", "ls-sgd", "ls-adam")
SPARSE = ("auto", "ight", "sgd-ht", "svrg-ht", "scsg-ht", "frank-wolfe", "two-stage", "coordinate", "peeled",
          "heavy-tailed", "gd")  # fmt: skip
PCA = ("auto", "gauss", "screen", "power", "spca", "vrpca", "oja", "mod-sulq")


def digest(value: Any) -> str:
    """Return a hash of arrays, numbers, texts, reports, fitted estimators and containers of them."""
    found = hashlib.sha256()
    for part in parts(value):
        found.update(part)
    return found.hexdigest()[:16]


def parts(value: Any) -> Iterator[bytes]:
    """Yield the bytes that decide the hash of a value."""
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        yield repr(value).encode()
    elif sparse.issparse(value):
        yield from parts(value.toarray())
    elif isinstance(value, np.ndarray):
        yield str(value.dtype).encode() + str(value.shape).encode()
        yield (
            repr(value.tolist()).encode() if value.dtype == object else np.ascontiguousarray(value).tobytes()
        )
    elif isinstance(value, dict):
        for name in sorted(value, key=str):
            if name not in VOLATILE:
                yield str(name).encode()
                yield from parts(value[name])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from parts(item)
    elif isinstance(value, sordino.PrivacyReport):
        yield from parts(value.to_dict())
    elif hasattr(value, "state_dict"):
        yield from parts({name: t.detach().cpu().numpy() for name, t in value.state_dict().items()})
    elif dataclasses.is_dataclass(value) and not hasattr(value, "fit"):  # an estimator is what it fitted
        yield from parts({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    elif hasattr(value, "__dict__") and not callable(value):
        yield from parts({n: v for n, v in vars(value).items() if n.endswith("_") and not n.startswith("_")})
    else:
        yield STAMPS.sub("", str(value)).encode()


def rows(n: int = 300, d: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and margins that are the same on every machine."""
    public = np.random.default_rng(11)
    X = public.normal(size=(n, d)) / np.sqrt(d)
    return X, X @ np.arange(1.0, d + 1.0) + 0.3 * public.normal(size=n)


def solver_rows() -> Iterator[Golden]:
    """Yield the rows of the solver table: the event of the plan and the iterates."""
    from tests.solver_table import CASES

    for case in CASES:

        def run(case: Any = case) -> Any:
            found = case.run(seed=3)
            return str(found.plan.event()), found.iterates

        yield f"solver row {case.id}", run


def estimators() -> Iterator[Golden]:
    """Yield every estimator with every solver that it takes."""
    X, y = rows()
    bounds = {"data_norm": 3.0, "target_bound": 8.0}
    labels, three = (y > 0).astype(int), np.digitize(y, [-1.0, 1.0])
    for solver in LINEAR:
        yield (
            f"LogisticRegression {solver}",
            _fit(
                sordino.LogisticRegression(2.0, 1e-5, solver=solver, data_norm=3.0, random_state=0), X, labels
            ),
        )
        yield (
            f"LinearRegression {solver}",
            _fit(sordino.LinearRegression(2.0, 1e-5, solver=solver, random_state=0, **bounds), X, y),
        )
    for solver in SPARSE:
        yield (
            f"SparseLogisticRegression {solver}",
            _fit(
                sordino.SparseLogisticRegression(2.0, 1e-5, solver=solver, data_norm=3.0, random_state=0),
                X,
                labels,
            ),
        )
        yield (
            f"SparseLinearRegression {solver}",
            _fit(sordino.SparseLinearRegression(2.0, 1e-5, solver=solver, random_state=0, **bounds), X, y),
        )
    for solver in PCA:
        yield (
            f"PCA {solver}",
            _fit(sordino.PCA(2, epsilon=2.0, delta=1e-5, solver=solver, data_norm=3.0, random_state=0), X),
        )
    several = sordino.LogisticRegression(2.0, 1e-5, data_norm=3.0)
    yield "LogisticRegression three classes", _fit(several, X, three)
    yield (
        "LinearClassifier",
        _fit(sordino.LinearClassifier(2.0, 1e-5, loss="squared_hinge", data_norm=3.0), X, labels),
    )
    counts = np.random.default_rng(5).poisson(np.exp(np.clip(y / 4, -2, 2)))
    yield (
        "LinearRegression poisson",
        _fit(sordino.LinearRegression(2.0, 1e-5, loss="poisson", **bounds), X, counts),
    )
    yield "LinearRegression huber", _fit(sordino.LinearRegression(2.0, 1e-5, loss="huber", **bounds), X, y)
    yield (
        "LinearRegression secure",
        _fit(sordino.LinearRegression(2.0, 1e-5, secure_noise=True, **bounds), X, y),
    )
    yield (
        "LinearRegression replace-one",
        _fit(sordino.LinearRegression(2.0, 1e-5, relation="replace-one", **bounds), X, y),
    )
    yield "HeavyTailedRegressor", _fit(sordino.HeavyTailedRegressor(2.0, 1e-5), X, y)
    yield "HeavyTailedClassifier", _fit(sordino.HeavyTailedClassifier(2.0, 1e-5), X, labels)
    yield "TruncatedMean", _fit(sordino.TruncatedMean(epsilon=2.0, delta=1e-5), X)
    yield "MedianOfMeans", _fit(sordino.MedianOfMeans(epsilon=2.0, delta=1e-5), X)
    yield "PrivateStandardScaler", _fit(sordino.PrivateStandardScaler(2.0, 1e-5), X)
    yield "PrivateColumnWeights", _fit(sordino.PrivateColumnWeights(2.0, 1e-5), X)


def _fit(model: Any, *data: Any, **how: Any) -> Callable[[], Any]:
    return lambda: model.fit(*data, **how)


def places() -> Iterator[Golden]:
    """Yield the same fit on sparse rows, persons, disk, tensors and a cluster."""
    X, y = rows()
    labels = (y > 0).astype(int)
    make = lambda **how: sordino.LogisticRegression(2.0, 1e-5, data_norm=3.0, **how)  # noqa: E731
    wide = sparse.random(200, 3000, 0.01, format="csr", random_state=3)
    yield "sparse rows", _fit(make(), sparse.csr_matrix(X), labels)
    yield (
        "wide sparse rows",
        _fit(
            sordino.SparseLogisticRegression(2.0, 1e-5, n_nonzero_coefs=10, data_norm=3.0), wide, labels[:200]
        ),
    )
    yield "persons", _fit(make(), X, labels, groups=np.arange(300) // 3)

    def disk() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            sordino.to_disk(Path(folder) / "rows", [(X, labels)])
            stored = sordino.on_disk(Path(folder) / "rows")
            return make(classes=[0, 1]).fit(stored, stored.target)

    yield "rows on disk", disk

    def tensors() -> Any:
        import torch

        return make().fit(torch.as_tensor(X), torch.as_tensor(labels))

    yield "tensors", tensors
    yield "rows in parts", lambda: _in_parts(secure=False)
    yield "rows in parts secure", lambda: _in_parts(secure=True)


def _in_parts(secure: bool) -> Any:
    from tests.execute.in_parts import InProcess

    from sordino.execute import LocalExecutor
    from sordino.kernel import Relation
    from sordino.problems.losses import LOSSES
    from sordino.problems.problem import Problem
    from sordino.runs import Ask, Task, run
    from sordino.solvers import Options, make_solver

    parts = [LocalExecutor(X, y, 1.0) for X, y in _three_parts()]
    problem = Problem(LOSSES["logistic"], 300, 6, Relation.ADD_REMOVE, 2.0, 1e-5, secure_noise=secure)
    solver = make_solver("sgd", problem, Options(max_iter=5, batch_size=40))
    return run(Task(solver, problem, "in parts"), InProcess(parts), Ask(2.0, 1e-5)).result


def _three_parts() -> list[tuple[np.ndarray, np.ndarray]]:
    X, y = rows()
    return [(X[part], np.sign(y[part])) for part in np.split(np.arange(300), [70, 190])]


def parties() -> Iterator[Golden]:
    """Yield three parties in one process, and clients as records."""
    from sordino.execute import LocalExecutor
    from sordino.execute.parties import Mode, NoiseShare, SimulatedParties
    from sordino.kernel import Curator, NoiseSource
    from sordino.parties.mpc.plan import joint_task

    budget = {"epsilon": 1.0, "delta": 1e-5, "relation": "add-remove"}

    def joint(mode: Mode, solver: str, options: dict[str, Any]) -> Any:
        usual = {"classes": [-1, 1], "data_norm": 1.0, "random_state": 0, "fit_intercept": False}
        kind = "SparseLogisticRegression" if solver == "ight" else "LogisticRegression"
        asked = {"estimator": kind, "features": 6, "params": {**usual, "solver": solver, **options}}
        _, task = joint_task(asked, 300, budget)
        members = [LocalExecutor(X, y, 1.0) for X, y in _three_parts()]
        executor = SimulatedParties(members, NoiseShare(mode, 3, 1))
        curator = Curator(executor, task.plan().at(0.5), NoiseSource.seeded_not_private(7))
        last, _ = task.follow(curator)
        return str(curator.plan.event()), task.finish(last)

    batches = {"max_iter": 5, "solver_options": {"batch_size": 60}}
    for mode in Mode:
        yield f"parties {mode.value}", lambda mode=mode: joint(mode, "ight", {"max_iter": 5})
        yield f"batches of parties {mode.value}", lambda mode=mode: joint(mode, "srm", batches)
    yield "clients", _clients


def _clients() -> Any:
    from tests.parties.flower_toys import NODES, D, made, recipe_of

    from sordino.parties.flower import (
        ClientLevelHardThresholding,
        client_app,
        server_app,
        simulate,
    )

    recipe, found = recipe_of(), []
    strategy = ClientLevelHardThresholding(recipe, len(NODES), 0.3, epsilon=2.0, delta=1e-3, share=0.5)
    with tempfile.TemporaryDirectory() as folder:
        client = client_app(made(recipe, Path(folder), float("inf"), protection="client"))
        simulate(server_app(strategy, np.zeros(D), done=found.append), client, NODES)
    return found[0].weights, found[0].privacy


def statistics() -> Iterator[Golden]:
    """Yield the statistics, a private score and a search."""
    X, y = rows()
    labels = (y > 0).astype(int)
    yield "mean", lambda: sordino.mean(X, epsilon=2.0, bounds=(-3, 3))
    yield "mean without bounds", lambda: sordino.mean(X, epsilon=2.0)
    yield "variance", lambda: sordino.variance(X, epsilon=2.0)
    # The product of the matrix library depends on where its memory lies, in the last bit.
    yield "covariance", lambda: np.round(np.asarray(sordino.covariance(X, epsilon=2.0, random_state=0)), 10)
    yield "quantiles", lambda: sordino.quantiles(X, [0.25, 0.5], epsilon=2.0)
    yield "histogram", lambda: sordino.histogram(y, edges=[-3, 0, 3], epsilon=2.0)

    def score() -> Any:
        model = sordino.LogisticRegression(2.0, 1e-5, data_norm=3.0, classes=[0, 1]).fit(X, labels)
        return sordino.private_score(model, X, labels, epsilon=1.0)

    yield "private_score", score
    yield (
        "PrivateSearchCV",
        _fit(
            sordino.PrivateSearchCV(
                sordino.LogisticRegression(data_norm=3.0, classes=[0, 1]),
                {"alpha": [0.1, 1.0]},
                epsilon=2.0,
                random_state=0,
            ),
            X,
            labels,
        ),
    )


def networks() -> Iterator[Golden]:
    """Yield a small network by every optimiser and engine."""
    try:
        import torch
    except ImportError:
        return
    from sordino.nn import Trainer

    X, y = rows()
    inputs, targets = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor((y > 0).astype(int))

    def train(**how: Any) -> Any:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        trainer = Trainer(model, torch.nn.CrossEntropyLoss(), 2.0, 1e-5, steps=4, batch_size=64, **how)
        found = trainer.fit(inputs, targets)
        return found.model, found.privacy

    for optimizer in ("sgd", "adam", "ls-sgd", "ls-adam", "srm"):
        yield f"network {optimizer}", lambda optimizer=optimizer: train(optimizer=optimizer)
    for engine in ("ghost", "vmap"):
        yield f"network {engine}", lambda engine=engine: train(engine=engine)
    yield "network tabular", lambda: train(recipe="tabular")
    yield "network secure", lambda: train(secure_noise=True)


def commands() -> Iterator[Golden]:
    """Yield the commands, in their order, in one folder."""
    X, y = rows(400, 3)
    lines = [f"{a:.3f},{b:.3f},{c:.3f},{'yes' if t > 0 else 'no'}" for (a, b, c), t in zip(X, y, strict=True)]
    asked = {
        "schema draft": "schema draft t.csv --rest number --target y --output s.toml",
        "ledger create": "ledger create l.db people --epsilon 9 --delta 1e-3",
        "fit": "fit t.csv --model logistic --target y --classes no,yes --set data_norm=3 --epsilon 2 "
        "--ledger l.db --dataset people --output m.sordino",
        "predict": "predict m.sordino t.csv --proba --output p.csv",
        "evaluate": "evaluate m.sordino t.csv --target y --epsilon 1 --json",
        "inspect": "inspect m.sordino --json",
        "report": "report m.sordino --output r.html",
        "stats": "stats mean t.csv --column a --bounds=-3,3 --epsilon 1 --json",
        "pca": "pca x.csv --data-norm 3 --components 1 --epsilon 1 --output c.sordino",
        "account": "account epsilon --noise 1 --rows 1000 --batch-size 100 --epochs 3",
        "ledger show": "ledger show l.db people --json",
    }

    def run() -> Any:
        found = {}
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            Path("t.csv").write_text("\n".join(["a,b,c,y", *lines, ""]), "utf-8")
            Path("x.csv").write_text(
                "\n".join(["a,b,c", *(line.rpartition(",")[0] for line in lines), ""]), "utf-8"
            )
            for name, words in asked.items():
                result = CliRunner().invoke(command, words.split(), env={"COLUMNS": "200"})
                found[name] = f"{result.exit_code} {STAMPS.sub('', result.output.replace(folder, ''))}"
            found["files"] = sorted(path.name for path in Path().iterdir())
            found["predictions"] = Path("p.csv").read_text("utf-8") if Path("p.csv").exists() else ""
        return found

    everything: dict[str, Any] = {}

    def part(name: str) -> Any:
        if not everything:
            everything.update(run())
        return everything[name]

    for name in [*asked, "files", "predictions"]:
        yield f"command {name}", lambda name=name: part(name)


def all_goldens() -> Iterator[Golden]:
    """Yield every name with what it runs."""
    for group in (solver_rows, estimators, places, parties, statistics, networks, commands):
        yield from group()


def measure(only: str) -> dict[str, str]:
    """Return the hashes; an error is hashed by its type and its words, and printed."""
    found = {}
    for name, run in all_goldens():
        if only not in name:
            continue
        with warnings.catch_warnings(), seeded_noise_not_private(7):
            warnings.simplefilter("ignore")
            try:
                found[name] = digest(run())
            except Exception as error:
                found[name] = digest(f"{type(error).__name__}: {error}")
                print(f"raises: {name}: {type(error).__name__}: {str(error)[:150]}", file=sys.stderr)
    return found


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("write", "check"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="names that hold this text")
    asked = parser.parse_args()
    os.environ.pop("SORDINO_LEDGER", None)
    found = measure(asked.only)
    if asked.what == "write":
        asked.file.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        print(f"{len(found)} goldens written")
        return 0
    kept = {name: h for name, h in json.loads(asked.file.read_text("utf-8")).items() if asked.only in name}
    differ = sorted(name for name in kept.keys() | found.keys() if kept.get(name) != found.get(name))
    for name in differ:
        print(f"differs: {name}" if name in kept and name in found else f"only on one side: {name}")
    print(f"{len(kept) - len(differ)} of {len(kept)} goldens agree")
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main())
