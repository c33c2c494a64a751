"""Notebooks show a widget while a fit runs, and what models, reports and ledgers are afterwards."""

import builtins
import sys
import types
from importlib.machinery import ModuleSpec

import pytest

import sordino
from sordino.kernel import public_generator
from sordino.runs import task as progress
from sordino.runs.report import at_most

X = public_generator(2).normal(size=(200, 3))
Y = X[:, 0] > 0


class ZMQInteractiveShell:
    """What ``get_ipython()`` returns in a notebook, by the name that rich looks for."""


@pytest.fixture
def notebook(monkeypatch):
    """Stand in for IPython and ipywidgets; return what a notebook would have shown."""
    shown = []

    class Output:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def clear_output(self, wait=False):
            shown.append("cleared")

        def close(self):
            shown.append("closed")

    def module(name, **contents):
        made = types.ModuleType(name)
        made.__spec__ = ModuleSpec(name, None)
        vars(made).update(contents)
        monkeypatch.setitem(sys.modules, name, made)
        return made

    display = module("IPython.display", display=shown.append)
    module("IPython", display=display)
    module("ipywidgets", Output=Output)
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    for name in ("DATABRICKS_RUNTIME_VERSION", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return shown


def fitted(**more):
    model = sordino.LogisticRegression(2.0, 1e-5, solver="gd", max_iter=4, data_norm=2.0, **more)
    return model.fit(X, Y)


def texts(shown):
    return " ".join(str(getattr(entry, "text", entry)) for entry in shown)


def test_a_fit_shows_a_widget_and_fills_it(notebook, capsys):
    fitted(verbose=1)
    assert [type(entry).__name__ for entry in notebook].count("Output") == 1, "one widget for the whole fit"
    assert "LogisticRegression (gd)" in texts(notebook)
    assert "closed" in notebook, "it goes when the fit is done"
    assert capsys.readouterr().err == ""


def test_a_quiet_fit_shows_nothing(notebook):
    fitted()
    assert notebook == []


def test_the_trials_of_a_search_show_no_widget(notebook):
    inner = sordino.LogisticRegression(data_norm=2.0, solver="gd", penalty="ridge", max_iter=4, verbose=1)
    sordino.PrivateSearchCV(inner, {"alpha": [0.1, 0.2]}, 3.0, 1e-5).fit(X, Y)
    assert notebook == []


def test_without_widgets_a_notebook_gets_lines(notebook, monkeypatch, capsys):
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    fitted(verbose=1)
    assert notebook == []
    assert "LogisticRegression (gd): 4 of 4 steps" in capsys.readouterr().err


def test_models_reports_and_ledgers_are_html(tmp_path):
    with sordino.Ledger.open(tmp_path / "b.db", create=True) as ledger:
        ledger.create("<people>", sordino.BudgetPolicy(9.0, 1e-3))
    model = fitted(ledger=tmp_path / "b.db", dataset_id="<people>")
    score = sordino.private_score(model, X, Y, epsilon=1.0, delta=1e-5)
    with sordino.Ledger.open(tmp_path / "b.db") as ledger:
        pages = [ledger._repr_html_(), model._repr_html_(), model.privacy_._repr_html_()]
    pages += [score.privacy._repr_html_(), sordino.group_by(Y, levels=[True, False]).count(1.0)._repr_html_()]
    for page in pages:
        assert "<" in page
        assert "<people>" not in page, "names are escaped"
        assert "<script src" not in page
        assert not any(f"{value:.6g}" in page for value in X[:20].ravel()), "no record is shown"
    assert "&lt;people&gt;" in pages[0]
    assert at_most(model.privacy_.epsilon) in pages[1]
    assert "epsilon" in pages[2]


CELL = """
import numpy as np, sordino
X = np.eye(300, 3)
how = dict(solver="gd", max_iter=4, data_norm=2.0, classes=[0, 1], verbose=1)
sordino.LogisticRegression(2.0, 1e-5, **how).fit(X, np.arange(300) % 2)
"""


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_a_true_notebook_shows_widget_and_model():
    nbclient, nbformat, *_ = map(pytest.importorskip, ("nbclient", "nbformat", "ipykernel", "ipywidgets"))
    page = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    nbclient.NotebookClient(page, timeout=300, kernel_name="python3").execute()
    outputs = [output.data for output in page.cells[0].outputs if "data" in output]
    assert any("application/vnd.jupyter.widget-view+json" in data for data in outputs)
    assert any("Privacy report" in data.get("text/html", "") for data in outputs)
