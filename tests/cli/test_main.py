"""The `sordino` command."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from tests.cli.helpers import FIT, named, table, typed, typed_json

import sordino
from sordino.cli import main


def test_version_prints_what_is_installed():
    result = CliRunner().invoke(main, ["version"])
    assert result.exit_code == 0
    assert result.output.strip() == sordino.__version__


def test_help_names_every_command():
    result = CliRunner().invoke(main, ["-h"])
    assert result.exit_code == 0
    assert all(f"  {name} " in result.output for name in main.commands)


# What commands import, counted, not timed: `python -m benchmarks start` has the seconds.
SLOW = {
    "numpy",
    "scipy",
    "sklearn",
    "numba",
    "dp_accounting",
    "pandas",
    "pyarrow",
    "torch",
    "dask",
    "matplotlib",
}
RUN = """
import sys
from sordino.cli import main
try:
    main({words!r}, standalone_mode=False)
finally:
    print("loaded", *sys.modules, file=sys.stderr)
"""


def loaded(*words, cwd=None):
    """Run a command in a process of its own, and return the modules that it imported."""
    code = RUN.format(words=[str(word) for word in words])
    run = [sys.executable, "-c", code]
    result = subprocess.run(run, capture_output=True, text=True, check=True, timeout=300, cwd=cwd)
    return set(result.stderr.rpartition("loaded ")[2].split())


@pytest.mark.parametrize("words", [("version",), ("--help",), ("fit", "--help"), ("ledger", "create", "-h")])
def test_words_about_commands_import_nothing_that_computes(words):
    modules = loaded(*words)
    assert not modules & SLOW
    rooms = {name.split(".")[1] for name in modules if name.startswith("sordino.")}
    assert rooms == {"cli", "errors", "late"}


def test_the_package_imports_none_of_its_rooms():
    code = "import sys; a = set(sys.modules); import sordino; print(*sorted(set(sys.modules) - a))"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    ours = {name for name in run.stdout.split() if name.startswith("sordino")}
    assert ours == {"sordino", "sordino.late"}
    assert not set(run.stdout.split()) & SLOW


def test_a_fit_imports_what_it_needs(tmp_path):
    X, y = table(100)
    named(X).assign(y=y).to_csv(tmp_path / "rows.csv", index=False)
    modules = loaded("fit", "rows.csv", *FIT, "--output", "m.sordino", cwd=tmp_path)
    assert (tmp_path / "m.sordino").exists()
    unused = {
        "torch",
        "dask",
        "matplotlib",
        "skops",
        "jinja2",
        "onnx",
        "sklearn.pipeline",
        "sklearn.preprocessing",
    }
    unused |= {"sordino.report.page", "sordino.report.run_page", "sordino.nn", "sordino.parties"}
    assert not modules & unused
    assert len(modules) < 2300  # 4,300 when every command imported all it could


def test_an_unknown_command_is_a_usage_error():
    assert CliRunner().invoke(main, ["no-such-command"]).exit_code == 2


def _commands(group, path=()):
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), command


def test_every_command_that_ends_with_an_answer_takes_json():
    """`party serve` waits for plans, `reproduce` writes JSON files, `completion` prints a script."""
    others = {("party", "serve"), ("reproduce",), ("completion",)}
    without = {p for p, c in _commands(main) if "--json" not in {o for x in c.params for o in x.opts}}
    assert without <= others


def test_json_of_small_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.csv").write_text("a,b\n1,2\n")
    assert typed_json("version")["version"]
    made = typed_json("ledger", "create", "b.db", "d", "--epsilon", 1, "--delta", 1e-5)
    assert made["budget"] == {"epsilon": 1.0, "delta": 1e-5}
    assert typed_json("ledger", "verify", "b.db", "--mark-crashed")["marked as crashed"] == 0
    assert typed_json("ledger", "export", "b.db", "--output", "b.json") == {"output": "b.json"}
    assert typed_json("ledger", "import", "c.db", "b.json") == {"imported": ["d"]}
    assert typed_json("ledger", "report", "b.db", "--output", "page.html") == {"output": "page.html"}
    assert "unexpected extra argument" in typed(
        "ledger", "report", "b.db", "page.html", "--output", "p", code=2
    )
    assert "[columns.a]" in typed_json("schema", "draft", "d.csv")["schema"]
    assert typed_json("schema", "draft", "d.csv", "--output", "s.toml") == {"output": "s.toml"}
