"""The examples in the docstrings and the guide run."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import sordino.ledger

MODULES = sorted(module.name for module in pkgutil.iter_modules(sordino.ledger.__path__))
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "ledger.md"


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_docstring_run(name):
    module = importlib.import_module(f"sordino.ledger.{name}")
    assert doctest.testmod(module).failed == 0


def test_the_ledger_has_examples():
    assert doctest.testmod(sordino.ledger.ledger).attempted > 5


def test_the_example_of_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec("\n".join(re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)), {})
    assert (tmp_path / "ledger.sqlite").exists()
