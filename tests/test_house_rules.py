"""The house rules hold in `src/`, and each checker catches the offender it is there for."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.house_rules import (
    data_norms,
    foreign_imports,
    promises,
    random_draws,
    ways_past_the_task,
)

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "sordino"
MODULES = sorted(PACKAGE.rglob("*.py"))
NOISE = PACKAGE / "kernel" / "noise.py"
# The one place that gives torch a seed: for the masks of a model, from the kernel's source, told to nobody.
HIDDEN = PACKAGE / "execute" / "draws.py"  # gives the generators of others hidden seeds


def room_of(path):
    """Return the room of a module; the published tables are no part of the quarantine."""
    first, *rest = path.relative_to(PACKAGE).parts
    return "reproduce" if first == "literature" and rest[0] == "reproduce" else first


def _complain(findings):
    return "\n".join(f"{path.relative_to(ROOT)}:{line} {what}" for path, line, what in findings)


def _findings(check, modules):
    return [(path, *finding) for path in modules for finding in check(path.read_text("utf-8"))]


# ---------------------------------------------------------------------------------- randomness


def test_nothing_but_the_noise_module_draws_random_numbers():
    found = _findings(random_draws, [path for path in MODULES if path != NOISE])
    seeding = ("torch.manual_seed", "torch.Generator", "random", "numpy.random")
    found = [one for one in found if one[0] != HIDDEN or not one[2].startswith(seeding)]
    assert not found, "random draws outside kernel/noise.py:\n" + _complain(found)


@pytest.mark.parametrize(
    "offender",
    [
        "import random\nrandom.gauss(0, 1)",
        "from random import SystemRandom",
        "import secrets",
        "import os\nkey = os.urandom(16)",
        "from os import urandom",
        "import uuid\nx = uuid.uuid4().int",
        "import numpy as np\nx = np.random.default_rng(0)",
        "import numpy\nx = numpy.random.normal(size=3)",
        "from numpy import random as r\nx = r.normal()",
        "from numpy.random import default_rng",
        "import numpy.random as npr",
        "import numpy as np\ndef f(rng: np.random.Generator): ...",
        "import randomgen",
        "from importlib import import_module\nm = import_module('numpy.random')",
        "import numpy as np\nm = getattr(np, 'random')",
        "__import__('secrets')",
        "def f(rng):\n    return rng.standard_normal(3)",
        "def f(rng):\n    return rng.choice(3)",
        "def f(self):\n    return self.rng.normal(0, 1)",
        "def f(make):\n    return make().laplace(0, 1)",
        "from scipy import stats\nx = stats.norm.rvs(size=3)",
        "from scipy.stats import norm\nx = norm(0, 2).rvs(3)",
        "from scipy import sparse\nx = sparse.random(3, 3)",
        "import torch\nx = torch.randn(3)",
        "import torch\nx = torch.normal(0.0, 1.0, (3,))",
        "import torch as t\nx = t.rand(3)",
        "import torch\nx = torch.bernoulli(p)",
        "from torch import randperm",
        "import torch\ntorch.empty(3).normal_()",
        "import torch\ng = torch.Generator()",
        "from torch import nn\nnn.init.xavier_uniform_(w)",
        "from torch.distributions import Normal",
        "from sklearn.utils import check_random_state",
        "import dask.array as da\nx = da.random.normal(size=3)",
    ],
)
def test_a_planted_random_draw_is_found(offender):
    assert random_draws(offender)


@pytest.mark.parametrize(
    "innocent",
    [
        "def privatise(value, noise):\n    return value + noise.normal(3)",
        "class Curator:\n    def f(self):\n        return self._noise.laplace(3)",
        "from scipy import special\nx = special.gamma(3.0)",
        "from scipy import stats\nx = stats.norm.cdf(0.3)",
        "import numpy as np\nx = np.power(2, 3)",
        "import torch\nx = torch.zeros(3)",
        "random = 3\nx = random + 1",
    ],
)
def test_an_innocent_line_is_not_taken_for_a_draw(innocent):
    assert random_draws(innocent) == []


def test_a_planted_draw_is_reported_with_its_line():
    assert random_draws("import numpy as np\n\nx = np.random.rand(3)")[-1] == (
        3,
        "numpy.random.rand",
    )


# ------------------------------------------------------------------------------------ promises

# Below runs/ stand the pieces it puts together; literature/ certifies what a printed formula is worth, and
# auditing/ what was asked, a second time, beside what a report says of it.
ROOMS_OF_PROMISES = {"runs", "kernel", "accounting", "ledger", "literature", "auditing"}


def test_promises_are_made_in_runs_only():
    elsewhere = [path for path in MODULES if room_of(path) not in ROOMS_OF_PROMISES]
    found = _findings(promises, elsewhere)
    assert not found, "promises made outside runs/:\n" + _complain(found)


@pytest.mark.parametrize(
    "offender",
    [
        "from sordino.kernel import Curator\nc = Curator(executor, plan, noise)",
        "from sordino.kernel import Curator as C\nc = C(executor, plan, noise)",
        "import sordino.kernel as k\nc = k.Curator(executor, plan, noise)",
        "from sordino.accounting import certify\ne = certify(event, delta, relation)",
        "from sordino import accounting\np = accounting.calibrate(plan, 1.0, 1e-5)",
        "def f(ledger):\n    return ledger.reserve('a', event)",
        "def f(self):\n    self.reservation.settle()",
        "from sordino.runs import PrivacyReport\nr = PrivacyReport(1.0, 1e-5)",
        "from sordino.runs import PrivacyReport\nr = PrivacyReport.from_plan(plan, c, noise)",
        "from dataclasses import replace\ndef f(m):\n    m.privacy_ = replace(m.privacy_, epsilon=0.1)",
        "from sordino.ledger import Reservation\nr = Reservation(ledger, entry)",
    ],
)
def test_a_planted_promise_is_found(offender):
    assert promises(offender)


@pytest.mark.parametrize(
    "innocent",
    [
        "from sordino.runs import Promise\np = Promise.made(ask, plan)",
        "from dataclasses import replace\np = replace(problem, epsilon=2.0)",
        "def f(curator: 'Curator'):\n    return curator.release('gradient')",
    ],
)
def test_an_innocent_line_is_not_taken_for_a_promise(innocent):
    assert promises(innocent) == []


# ------------------------------------------------------------------------ one way from a task to its result

# Everything else runs a task. These few take the steps of a run one by one, and say why.
BY_HAND = {
    "estimators/pca.py": "a stream is one promise over many chunks",
    "nn/session.py": "a training goes on in another process",
    "parties/flower/client.py": "the rounds of a client are one promise",
    "parties/mpc/config.py": "a member certifies what others planned",
    "parties/mpc/party.py": "a member books before anybody is asked",
    "parties/mpc/plan.py": "a joint plan states its noise",
}


def test_nothing_but_run_leads_from_a_task_to_its_records():
    elsewhere = [path for path in MODULES if room_of(path) not in ROOMS_OF_PROMISES | {"reproduce"}]
    named = {path.relative_to(PACKAGE).as_posix(): path for path in elsewhere}
    assert set(BY_HAND) <= set(named)
    for name, why in BY_HAND.items():
        assert ways_past_the_task(named[name].read_text("utf-8")), f"{name} no longer needs: {why}"
    found = _findings(ways_past_the_task, [path for name, path in named.items() if name not in BY_HAND])
    assert not found, "a second way to the records; make a Task and run it:\n" + _complain(found)


@pytest.mark.parametrize(
    "offender",
    [
        "from sordino.runs import Promise\nmade = Promise",
        "from sordino.runs.promise import Promise as P\nP.made(ask, plan)",
        "import sordino.runs as r\nr.Promise.made(ask, plan)",
        "from sordino import runs\nruns.Promise.given(ask, plan)",
        "def fit(promise, rows):\n    with promise.reserved('a') as run:\n        return run.curate(rows)",
        "from sordino.runs.journal import RoundBook",
        "from sordino.runs.journal import resumed",
    ],
)
def test_a_planted_second_way_is_found(offender):
    assert ways_past_the_task(offender)


@pytest.mark.parametrize(
    "innocent",
    [
        "from sordino.runs import Ask, Task, run\nfitted = run(Task(solver, setting, 'a'), rows, ask)",
        "from sordino.runs import BestOf\nBestOf.made(ask, relation, law, 3)",
        "import torch\nbeside = torch.cuda.Stream()",
    ],
)
def test_a_task_that_is_run_is_no_second_way(innocent):
    assert ways_past_the_task(innocent) == []


# ------------------------------------------------------------------------------- norms of data

MEASURING_ROOMS = {"problems", "execute", "estimators", "parties", "runs", "tables", "literature"}


def test_no_room_but_the_clip_takes_a_norm_of_data():
    inside = [path for path in MODULES if room_of(path) in MEASURING_ROOMS]
    assert len(inside) > 50
    found = _findings(data_norms, inside)
    assert not found, "norms outside kernel/clip and kernel/arrays.py:\n" + _complain(found)


@pytest.mark.parametrize(
    "offender",
    [
        "import numpy as np\nx = np.linalg.norm(block, axis=1)",
        "from numpy.linalg import norm",
        "from numpy import linalg\nx = linalg.norm(v)",
        "from scipy.sparse import linalg as sl\nx = sl.norm(m, axis=1)",
        "import numpy as np\nmeasure = np.linalg.norm",
        "import numpy as np\nx = np.hypot(rows, 1.0)",
        "import numpy as np\nx = np.sqrt(np.einsum('ij,ij->i', a, a))",
        "import numpy as np\nx = np.square(a).sum(axis=1)",
        "x = (a**2).sum(1)",
        "x = a.multiply(a).sum(axis=-1)",
        "x = tensor.norm(dim=1)",
        "import torch\nx = torch.linalg.vector_norm(t, dim=1)",
        "from sklearn.utils.extmath import row_norms",
    ],
)
def test_a_planted_norm_is_found(offender):
    assert data_norms(offender)


@pytest.mark.parametrize(
    "innocent",
    [
        "from sordino.kernel.arrays import public_norm\nx = public_norm(v)",
        "from sordino.kernel import clip\nx = clip.row_norms(m)",
        "import math\nx = math.hypot(1.0, weight)",
        "import numpy as np\nx = np.einsum('ij,ij->j', a, a)",
        "import numpy as np\nx = np.square(a).sum(axis=0)",
        "x = records.norms",
        "x = a.sum(axis=1)",
    ],
)
def test_an_innocent_line_is_not_taken_for_a_norm(innocent):
    assert data_norms(innocent) == []


# ---------------------------------------------------------------------------------- the layers


def test_the_kernel_imports_only_what_it_may():
    found = [
        (path, *finding)
        for path in sorted((PACKAGE / "kernel").rglob("*.py"))
        for finding in foreign_imports(path.read_text("utf-8"), path.name)
    ]
    assert not found, "imports the kernel may not make:\n" + _complain(found)


@pytest.mark.parametrize(
    ("line", "file_name", "allowed"),
    [
        ("import numpy as np", "query.py", True),
        ("from dp_accounting import dp_event", "events.py", True),
        ("from dp_accounting.dp_event import DpEvent", "release.py", True),
        ("from sordino.kernel.query import Query", "release.py", True),
        ("from sordino.errors import PlanError", "release.py", True),
        ("import randomgen", "noise.py", True),
        ("import randomgen", "mechanism.py", False),
        ("from dp_accounting import pld", "events.py", False),
        ("import attrs", "query.py", False),
        ("import sklearn", "query.py", False),
        ("def f():\n    import torch", "query.py", False),
        ("from sordino.accounting import certify", "release.py", False),
    ],
)
def test_the_kernel_checker_tells_allowed_from_foreign(line, file_name, allowed):
    assert (foreign_imports(line, file_name) == []) is allowed


def _lint_imports(root, source):
    """Run import-linter with the project's contracts on the package under `source`."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    command += ["--config", str(ROOT / "pyproject.toml")]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    return subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_imports_point_downwards():
    result = _lint_imports(ROOT, ROOT / "src")
    assert result.returncode == 0, result.stdout + result.stderr


ROOMS = "accounting cli estimators execute kernel ledger literature nn parties problems report runs solvers"


@pytest.fixture
def empty_house(tmp_path):
    """Return a package with every room of the design and nothing in it."""
    for room in ROOMS.split():
        (tmp_path / "sordino" / room).mkdir(parents=True)
        (tmp_path / "sordino" / room / "__init__.py").touch()
    (tmp_path / "sordino" / "__init__.py").touch()
    for module in ["curator", "mechanism", "noise"]:
        (tmp_path / "sordino" / "kernel" / f"{module}.py").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("room", "offence"),
    [
        ("kernel", "import sordino.problems"),
        ("kernel", "import sordino.accounting"),
        ("kernel", "def f():\n    import torch"),
        ("problems", "import sordino.solvers"),
        ("solvers", "import sordino.estimators"),
        ("kernel", "import sordino.literature"),
        ("problems", "import sordino.literature"),
        ("solvers", "import sordino.literature"),
        ("accounting", "import sordino.literature"),
        ("ledger", "import sordino.literature"),
        ("execute", "import sordino.literature"),
        ("report", "import sordino.literature"),
        ("estimators", "import sordino.literature"),
        ("estimators", "import sordino.nn"),
        ("nn", "import sordino.estimators"),
        ("nn", "import sordino.parties"),
        ("estimators", "import sordino.parties"),
        ("runs", "import sordino.estimators"),
        ("runs", "import sordino.literature"),
        ("execute", "import sordino.runs"),
        ("execute", "from sordino.kernel import noise"),
        ("execute", "from sordino.kernel.mechanism import Gaussian"),
        ("ledger", "import sordino.runs"),
        ("solvers", "import sordino.runs"),
        ("solvers", "import sordino.ledger"),
        ("solvers", "import sordino.execute"),
        ("accounting", "import sordino.estimators"),
        ("ledger", "import sordino.nn"),
        ("execute", "import sordino.parties"),
        ("report", "import sordino.cli"),
    ],
)
def test_an_import_that_points_upwards_breaks_a_contract(empty_house, room, offence):
    (empty_house / "sordino" / room / "offender.py").write_text(offence)
    result = _lint_imports(empty_house, empty_house)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "BROKEN" in result.stdout


def test_the_house_without_an_offender_keeps_its_contracts(empty_house):
    assert _lint_imports(empty_house, empty_house).returncode == 0


# ------------------------------------------------------------------------------- paths


# Written in pieces, so that this file does not contain what it looks for.
_HOMES = [r"/home/\w", r"/Users/\w", r"/root[/]", r"/work[/]", r"[A-Z]:\\Users\\\w"]
MACHINE_PATH = re.compile("|".join(rf"(?<![\w.~-])(?:{home})" for home in _HOMES))


def _tracked_files():
    """Return the files under version control, or all of them in a copy without history."""
    if not (ROOT / ".git").exists():
        rooms = ("src", "tests", "docs", "tools", "benchmarks")
        return [path for room in rooms for path in (ROOT / room).rglob("*") if path.is_file()]
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def test_no_tracked_file_names_a_path_of_somebodys_machine():
    here = [f"{path}/" for path in (ROOT, Path.home()) if len(path.parts) > 1]
    found = [
        path.relative_to(ROOT)
        for path in _tracked_files()
        if (text := path.read_text("utf-8", errors="ignore")) is not None
        and (MACHINE_PATH.search(text) or any(prefix in text for prefix in here))
    ]
    assert not found, f"files that name a path of a machine: {[str(path) for path in found]}"


@pytest.mark.parametrize("path", ["home/ann/x", "Users/ann/x", "root/x", "work/x"])
def test_a_planted_machine_path_is_found(path):
    assert MACHINE_PATH.search(f'open("/{path}")')
    assert not MACHINE_PATH.search(f"https://example.org/{path}")
