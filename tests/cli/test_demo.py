"""`sordino demo` runs end to end, prints its table and writes its report."""

import functools
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import sordino.datasets
from sordino.cli import demo, main

TASKS = ("sparse regression", "digits 0-4 or 5-9", "digits PCA, k = 10")


@pytest.fixture
def small(monkeypatch):
    """Shrink the design of the paper and the list of epsilons; the rest is small already."""
    made = functools.partial(_made, sordino.datasets.make_sparse_linear_model)
    monkeypatch.setattr(sordino.datasets, "make_sparse_linear_model", made)
    monkeypatch.setattr(demo, "EPSILONS", (1.0, 8.0))


def _made(make, n, d, s, **facts):
    assert (n, d, s) == (5000, 5000, 30)
    return make(400, 60, s, **facts)


def test_the_demo_compares_and_writes_a_report(small, tmp_path):
    page = tmp_path / "report.html"
    result = CliRunner().invoke(main, ["demo", "--report", str(page)], env={"COLUMNS": "140"})
    assert result.exit_code == 0, result.output
    text = page.read_text("utf-8")
    for task in TASKS:
        assert task in result.output
        assert task in text
    assert "no privacy" in result.output
    assert text.count("<svg") + text.count("<img") >= len(TASKS)
    assert "assumed public" in text.lower()


def test_the_demo_asks_for_the_epsilons_that_it_announces():
    assert demo.EPSILONS == (0.5, 1.0, 2.0, 4.0, 8.0)


def test_the_help_of_the_program_lists_every_command_with_a_sentence():
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for name, command in main.commands.items():
        assert f"  {name} " in result.output
        assert command.help


def test_the_front_page_lists_every_command():
    page = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")
    line = next(line for line in page.splitlines() if line.startswith("| `sordino` in a terminal |"))
    assert set(re.findall(r"`([\w-]+)`", line.partition("[")[2])) == set(main.commands)
