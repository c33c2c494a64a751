"""The `sordino` command."""

import subprocess
import sys
from importlib import metadata

from click.testing import CliRunner

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
