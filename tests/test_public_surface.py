"""The interface changes on purpose only, and type checkers see what it is."""

import ast
import inspect
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tools.public_surface import FILE, surface

import sordino
import sordino.nn

ROOT = Path(__file__).resolve().parents[1]


def test_the_public_surface_is_the_committed_one():
    assert surface() == FILE.read_text("utf-8"), "run `python tools/public_surface.py` if this is meant"


@pytest.mark.parametrize("package", [sordino, sordino.nn], ids=lambda package: package.__name__)
def test_type_checkers_and_python_see_the_same_names(package):
    tree = ast.parse(Path(package.__file__).read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.name: line.module for line in block.body for alias in line.names}
    assert typed == package._EXPORTS


def public_callables():
    for name in sordino.__all__:
        value = getattr(sordino, name)
        if callable(value) and not name.startswith(("Ledger", "BudgetPolicy", "PrivacyReport", "Relation")):
            yield pytest.param(value, id=name)
    for name in ("NeuralClassifier", "NeuralRegressor", "Trainer"):
        yield pytest.param(getattr(sordino.nn, name), id=name)


# What a call is about may stand without its name; everything else is said.
SUBJECTS = (
    "x",
    "X",
    "y",
    "cluster",
    "source",
    "q",
    "pipeline",
    "n_components",
    "estimator",
    "param_grid",
    "model",
    "loss",
    "path",
    "columns",
    "schema",
    "rows",
    "edges",
    "keys",
)
MAY_STAND_ALONE = ("self", "epsilon", "delta", "fit", "data", *SUBJECTS)


@pytest.mark.parametrize("value", list(public_callables()))
def test_parameters_are_named_but_for_the_data_and_the_budget(value):
    parameters = inspect.signature(value).parameters.values()
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    plain = [p.name for p in parameters if p.kind not in named]
    assert not [name for name in plain if name not in MAY_STAND_ALONE]


RIGHT = """
import numpy as np
import sordino
X, y = np.zeros((10, 2)), np.zeros(10)
model = sordino.LogisticRegression(epsilon=1.0, delta=1e-5, data_norm=1.0).fit(X, y)
epsilon: float = model.privacy_.epsilon
weights: np.ndarray = model.coef_
axes = sordino.PCA(2, epsilon=1.0, solver="gauss").fit(X)
"""
WRONG = """
import sordino
sordino.LogisticRegression(epsilon="one")
sordino.PCA(2, epsilon=1.0, solverr="gauss")
sordino.LogisticRegresion(epsilon=1.0)
sordino.SparseLogisticRegression(1.0, 1e-5, 10)
epsilon: str = sordino.LinearRegression().privacy_.epsilon
"""


def errors(command, script, tmp_path):
    file = tmp_path / "script.py"
    file.write_text(script)
    done = subprocess.run([*command, str(file)], cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = [line.partition("script.py:")[2] for line in done.stdout.splitlines() if "error" in line]
    return {int(line.split(":")[0]) for line in lines if line}


CHECKERS = {
    "mypy": [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "mypy-cache"],
    "pyright": ["pyright", "--pythonpath", sys.executable],
}


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_checker_accepts_right_types_and_refuses_wrong_ones(checker, tmp_path, monkeypatch):
    if checker == "pyright" and shutil.which("pyright") is None:
        pytest.skip("pyright is not installed; it comes from npm")
    monkeypatch.setenv("MYPYPATH", str(ROOT / "src"))
    assert errors(CHECKERS[checker], RIGHT, tmp_path) == set()
    assert errors(CHECKERS[checker], WRONG, tmp_path) == {3, 4, 5, 6, 7}
