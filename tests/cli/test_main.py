"""The `sordino` command."""

import subprocess
import sys
from importlib import metadata

import click
from click.testing import CliRunner
from tests.cli.helpers import typed, typed_json

from sordino.cli import main


def test_version_prints_what_is_installed():
    result = CliRunner().invoke(main, ["version"])
    assert result.exit_code == 0
    assert result.output.strip() == metadata.version("sordino")


def test_help_names_every_command():
    result = CliRunner().invoke(main, ["-h"])
    assert result.exit_code == 0
    assert all(f"  {name} " in result.output for name in main.commands)


def test_help_imports_neither_an_extra_nor_the_plots():
    code = "import sys, sordino.cli; print(*{'torch', 'dask', 'matplotlib'} & set(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert result.stdout.strip() == ""


def test_an_unknown_command_is_a_usage_error():
    assert CliRunner().invoke(main, ["no-such-command"]).exit_code == 2


def _commands(group, path=()):
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), command


def test_every_command_that_ends_with_an_answer_takes_json():
    """`party serve` waits for plans, `reproduce` writes its results as JSON files."""
    others = {("party", "serve"), ("reproduce",)}
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
