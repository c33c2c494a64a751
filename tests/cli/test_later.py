"""Modules that the program defers run at their first use, once, and only as far as they are used."""

import ast
import sys
import threading
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import sordino
from sordino.cli import program as later

NAME = "late_package"


@pytest.fixture
def late(tmp_path, monkeypatch):
    """Return a made-up package that is deferred; its list ``runs`` has an entry for each run of its files."""
    folder = tmp_path / NAME
    folder.mkdir()
    (tmp_path / "late_runs.py").write_text("runs = []\n")
    (folder / "__init__.py").write_text(
        "import late_runs\nlate_runs.runs.append('package')\n"
        f"from {NAME} import light, heavy\nvalue = light.one + 1\n"
    )
    (folder / "light.py").write_text("import late_runs\nlate_runs.runs.append('light')\none = 1\n")
    (folder / "heavy.py").write_text("import late_runs\nlate_runs.runs.append('heavy')\ntwo = 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(later, "MODULES", frozenset({NAME}))
    monkeypatch.setattr(sys, "meta_path", [later.Finder(), *sys.meta_path])
    yield import_module("late_runs").runs
    for name in [name for name in sys.modules if name.startswith((NAME, "late_runs"))]:
        del sys.modules[name]


def test_an_import_runs_nothing_and_a_name_runs_the_module_once(late):
    package = import_module(NAME)
    assert late == []
    assert package.__name__ == NAME
    assert package.value == 2
    assert package.heavy.two == 2
    assert import_module(NAME) is package
    assert late == ["package", "light", "heavy"]


def test_a_submodule_does_not_run_its_package(late):
    light = import_module(f"{NAME}.light")
    assert import_module(NAME).light is light
    assert late == ["light"]


def test_a_name_that_is_not_there_is_an_attribute_error_before_and_after_the_run(late):
    package = import_module(NAME)
    for _ in range(2):
        with pytest.raises(AttributeError, match="missing"):
            _ = package.missing
    assert late.count("package") == 1


def test_threads_that_ask_at_once_see_one_whole_module(late):
    package, found = import_module(NAME), []
    threads = [threading.Thread(target=lambda: found.append(package.value)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [2] * 8
    assert late.count("package") == 1


def test_a_module_that_others_look_for_is_listed_only_from_its_run_on(late, monkeypatch):
    monkeypatch.setattr(later, "UNLISTED", NAME)
    first = import_module(NAME)
    with pytest.raises(ModuleNotFoundError):
        import_module("no_such_package_anywhere")  # any import takes it off the list
    assert NAME not in sys.modules
    second = import_module(NAME)
    assert late == []
    assert first.value == 2
    assert first.heavy is second.heavy
    assert sys.modules[NAME] is second
    assert late == ["package", "light", "heavy"]


def test_a_package_that_is_not_installed_stays_unknown(monkeypatch):
    monkeypatch.setattr(later, "MODULES", frozenset({"no_such_package_anywhere"}))
    monkeypatch.setattr(sys, "meta_path", [later.Finder(), *sys.meta_path])
    with pytest.raises(ModuleNotFoundError):
        import_module("no_such_package_anywhere")


def test_no_module_of_ours_takes_a_name_from_a_deferred_one_and_so_runs_it():
    taken = [
        f"{path.name}: from {node.module} import {name.name}"
        for path in Path(sordino.__file__).parent.rglob("*.py")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ImportFrom) and node.module in later.MODULES
        for name in node.names
        if find_spec(f"{node.module}.{name.name}") is None
    ]
    assert taken == []
