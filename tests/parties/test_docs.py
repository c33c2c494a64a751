"""The walk-through names commands, options and files that exist."""

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest
import tomli_w

from sordino.cli import main
from sordino.parties.mpc.config import SECTIONS
from sordino.parties.mpc.control import plan_from
from sordino.parties.mpc.links import make_key
from sordino.parties.mpc.plan import ESTIMATORS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "parties" / "walk-through.md").read_text("utf-8")
COMMANDS = re.findall(r"^\$ (.+)$", TEXT, flags=re.MULTILINE)


@pytest.mark.parametrize("line", [c for c in COMMANDS if c.startswith("sordino")])
def test_every_command_of_the_walk_through_parses(line):
    words, command = shlex.split(line)[1:], main
    while isinstance(command, click.Group):
        assert words[0] in command.commands, line
        command = command.commands[words.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_the_scripts_of_the_walk_through_exist():
    scripts = [word for c in COMMANDS for word in c.split() if word.startswith("examples/")]
    assert len(scripts) >= 2
    assert all((ROOT / script).is_file() for script in scripts)


def test_the_settings_and_tasks_of_the_walk_through_are_known():
    found = set(re.findall(r"^\[(\w+)\]$", TEXT, flags=re.MULTILINE))
    assert found - {"budget", "task"} <= set(SECTIONS)  # the two are of consortium.toml
    assert {f"`{name}`" for name in ESTIMATORS} <= set(re.findall(r"`\w+`", TEXT))


def test_the_consortium_file_of_the_walk_through_makes_a_plan(tmp_path):
    (text,) = re.findall(r"^```toml\n(# consortium.toml\n.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)
    found = tomllib.loads(text)
    (row,) = found["members"]
    row |= {"certificate": "certificate.pem"}
    make_key(tmp_path, "north")
    others = [
        {**row, "name": name, "fingerprint": digit * 64} for name, digit in (("south", "a"), ("west", "b"))
    ]
    members = [row, *({k: v for k, v in other.items() if k != "certificate"} for other in others)]
    del found["charter"]
    (tmp_path / "consortium.toml").write_text(tomli_w.dumps({**found, "members": members}))
    assert plan_from(tmp_path / "consortium.toml").text["task"]["columns"] == ["age", "smoke"]
