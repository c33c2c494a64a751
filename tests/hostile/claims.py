"""What the tests of the false claims share: data, models that do what is forbidden, forgers and spies."""

import json
import os
import subprocess
import sys
import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import sordino
from sordino.accounting import calibration as cache
from sordino.accounting import solve_scale
from sordino.kernel import Norm, Relation
from sordino.kernel.mechanism import Additive
from sordino.testing import seeded_noise_not_private

DELTA = 1e-6
SECRET = 7319.0625  # stands in the data and must stand in no message
URL = "postgresql://ada:sw0rdf1sh@host/budgets"
# A filter by which 136 Gaussians of multiplier 2 pass for an epsilon of 1.
FILTER = {"orders": [1.0000001, "inf"], "shares": [0.9999999, 0], "spent_renyi": [0.0, 0.0]}

_PUBLIC = np.random.default_rng(0)
TIED = {
    "hours": np.where(_PUBLIC.random(5000) < 0.5, 40, _PUBLIC.integers(1, 99, 5000)),
    "education": _PUBLIC.choice([9, 10, 13], 5000),
}


def rows(n=300, d=3, size=1.0):
    return np.random.default_rng(0).normal(size=(n, d)) * size / d


def heavy_tailed(n=4000):
    public = np.random.default_rng(0)
    X = public.standard_t(3, size=(n, 3))
    return X, X[:, 0] + 0.1 * public.normal(size=n)


def event_at(scale):
    return dp.SelfComposedDpEvent(dp.GaussianDpEvent(scale), 10)


def edit_cache(folder, monkeypatch, change):
    """Fill the calibration cache and edit the scale in its file; a new process has the file only."""
    monkeypatch.setenv("SORDINO_CACHE", str(folder))
    monkeypatch.setattr(cache, "_MEMORY", {}, raising=False)
    scale = solve_scale(event_at, 1.0, 1e-5, Relation.ADD_REMOVE)
    (file,) = folder.rglob("*.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "scale": change(scale)}))
    monkeypatch.setattr(cache, "_MEMORY", {}, raising=False)


def booked(path, *names, epsilon=5.0, delta=1e-3):
    """Return a new ledger with these data sets."""
    ledger = sordino.Ledger.open(path / "ledger.db")
    for name in names:
        ledger.create(name, sordino.BudgetPolicy(epsilon, delta))
    return ledger


def seen_while(action):
    """Return what an action returns and the texts of its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = action()
    return result, sorted(str(w.message) for w in caught)


def edit_filter(ledger):
    """Put another filter into the database and make its seal anew, as a forger would."""
    from sordino.ledger.store import seal

    with ledger._store.transaction(write=True) as store:
        for column, value in FILTER.items():
            text = json.dumps(value, separators=(",", ":"))
            store.execute(f"UPDATE sordino_datasets SET {column} = ?", (text,))
        row = store.execute("SELECT * FROM sordino_datasets")[0]
        store.execute("UPDATE sordino_datasets SET seal = ?", (seal(row[:-1]),))


def add_schema(url):
    """Give all roles of a PostgreSQL database a schema of their own."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("CREATE SCHEMA apart")
        admin.execute(f"ALTER DATABASE {admin.info.dbname} SET search_path = apart")


def fit_beyond_its_bound():
    """Return what a new process says when it fits targets of 100 under the default bound of 1."""
    code = (
        "import warnings, numpy as np, sordino; warnings.simplefilter('error')\n"
        "X = np.eye(4)[np.arange(400) % 4]\n"
        "sordino.LinearRegression(data_norm=1.0).fit(X, 100.0 * X[:, 1])\n"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr


def census(n, seed):
    """Return rows like a one-hot table: eight ones each, so a norm of 2.8 under a default bound of 1."""
    levels = np.random.default_rng(seed).integers(0, 6, size=(n, 8))
    X = np.eye(6)[levels].reshape(n, -1)
    return X, (X[:, ::6].sum(axis=1) - 0.6 * X[:, 3::6].sum(axis=1) > 1.5).astype(int)


def csr(data, indices, indptr, width=3):
    """Return a CSR matrix whose parts were put in place behind its back, and that claims to be canonical."""
    out = sparse.csr_matrix((len(indptr) - 1, width))
    out.data, out.indices, out.indptr = (np.array(p, dtype=t) for p, t in zip((data, indices, indptr), "dii"))
    out.has_canonical_format = out.has_sorted_indices = True
    return out


def refused_text(action):
    """Return what an action says when it refuses its input, with all that stands behind the error."""
    with pytest.raises(ValueError) as caught:
        action()
    error, said = caught.value, []
    while error is not None:
        said.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return " ".join(said)


def scaler():
    return sordino.PrivateStandardScaler(epsilon=5.0, delta=DELTA, data_norm=2.0)


def model(epsilon=0.1):
    return sordino.LogisticRegression(epsilon=epsilon, delta=DELTA, data_norm=2.0, classes=[0, 1])


NESTED = {
    "columns": lambda: make_pipeline(ColumnTransformer([("s", scaler(), [0, 1, 2, 3])]), model()),
    "pipeline": lambda: make_pipeline(Pipeline([("inner", make_pipeline(scaler()))]), model()),
    "union": lambda: make_pipeline(FeatureUnion([("a", scaler()), ("b", "passthrough")]), model()),
    "plain scaler": lambda: make_pipeline(StandardScaler(), model()),
    "plain search": lambda: GridSearchCV(model(1.0), {"fit_intercept": [True, False]}, cv=2),
}


def search(estimator, grid, epsilon=3.0, **options):
    return sordino.PrivateSearchCV(estimator, grid, epsilon=epsilon, delta=DELTA, **options)


class Noisy(sordino.SparseLogisticRegression):
    """A model that warns and prints whenever it is fitted."""

    def fit(self, X, y):
        warnings.warn("fitted", UserWarning, stacklevel=2)
        if self.verbose:
            print("fitted")
        return super().fit(X, y)


def noisy_search(seed, capsys):
    """Return a search over that model, and how many warnings and what output it gave."""
    X, made = rows(600, 4), search(Noisy(data_norm=0.7, verbose=1), {"n_nonzero_coefs": [1, 2]}, epsilon=2.0)
    with seeded_noise_not_private(seed):
        _, warned = seen_while(lambda: made.fit(X, X[:, 0] > 0))
    return made, (len(warned), capsys.readouterr().out)


@dataclass(frozen=True)
class ExactSnapshot(Additive):
    """A mechanism that adds no noise and declares no event."""

    norms: ClassVar[tuple[Norm, ...]] = (Norm.L2,)

    def event(self, relation):
        return dp.NoOpDpEvent()

    def privatise(self, value, sensitivity, noise):
        return value


def in_a_child(action):
    """Return the name of the error that an action raises in a forked process, or "released"."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = "released"
        try:
            action()
        except BaseException as error:
            said = type(error).__name__
        finally:
            os.write(write, said.encode())
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        said = answer.read().decode()
    os.waitpid(child, 0)
    return said


def plan_of_strangers(folder):
    """Return three members, the run of one whom the two others' new certificates invite, and the refusal."""
    from tests.parties.helpers import Consortium, write_credentials

    from sordino.parties.mpc.config import PartyConfig
    from sordino.parties.mpc.party import PartyRun
    from sordino.parties.mpc.plan import JointPlan
    from sordino.parties.words import PlanRefusedError

    three = Consortium(folder, connect=0.5)
    for name in ("south", "west"):  # the same authority signs, the certificates are others
        write_credentials(folder / name, name, three.key, three.certificate)
    plan = JointPlan.load(three.replan("theirs.json"))
    return three, PartyRun(PartyConfig.load(folder / "north" / "party.toml"), plan, print), PlanRefusedError


def daemon_of_south(folder):
    """Return three members, the daemon of one, and the proposal of a plan."""
    from tests.parties.helpers import Consortium

    from sordino.parties.mpc.config import PartyConfig
    from sordino.parties.mpc.control import Daemon

    three, path = Consortium(folder), folder / "south" / "party.toml"
    question = {"op": "run", "plan": json.loads(three.plan_path.read_text())}
    return three, Daemon(PartyConfig.load(path), path), question
