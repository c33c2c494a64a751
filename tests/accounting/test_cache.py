"""The memory of calibrations may be lost, damaged or shared, never wrong."""

import json
import math
import os
from importlib import metadata
from pathlib import Path

import pytest

from sordino.accounting import calibration as cache
from sordino.accounting.calibration import cache_key, keep, load, store
from sordino.kernel.arrays import cache_folder

KEY = "0" * 64


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SORDINO_CACHE", str(tmp_path / "memory"))


def written(tmp_path):
    return tmp_path / "memory" / "calibration" / f"{KEY}.json"


def test_what_was_stored_is_loaded():
    assert load(KEY) is None
    store(KEY, 1.25)
    assert load(KEY) == 1.25


def test_only_finished_files_remain(tmp_path):
    store(KEY, 1.25)
    store(KEY, 1.5)
    assert list((tmp_path / "memory" / "calibration").iterdir()) == [written(tmp_path)]
    assert load(KEY) == 1.5


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan, "1.25", 1, True, None])
def test_numbers_that_cannot_be_are_ignored(tmp_path, scale):
    store(KEY, 1.25)
    written(tmp_path).write_text(json.dumps({"key": KEY, "scale": scale}))
    assert load(KEY) is None


def test_a_process_remembers_a_bounded_number_of_scales(monkeypatch):
    monkeypatch.setattr(cache, "_MEMORY", {})
    monkeypatch.setattr(cache, "MOST", 2)
    for number in range(4):
        keep(f"key {number}", float(number))
    assert [cache._MEMORY.get(f"key {number}") for number in range(4)] == [None, None, 2.0, 3.0]


def test_a_file_under_a_foreign_name_is_ignored(tmp_path):
    store(KEY, 1.25)
    text = written(tmp_path).read_text().replace(KEY, "1" * 64)
    written(tmp_path).write_text(text)
    assert load(KEY) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"null", b"\xff\xfe", b'{"key": 1}'])
def test_damaged_files_are_ignored(tmp_path, content):
    store(KEY, 1.25)
    written(tmp_path).write_bytes(content)
    assert load(KEY) is None


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("SORDINO_CACHE", str(blocked))
    store(KEY, 1.25)
    assert load(KEY) is None


def test_a_write_that_fails_half_way_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(cache.os, "replace", fail)
    store(KEY, 1.25)
    assert list((tmp_path / "memory" / "calibration").iterdir()) == []


def test_a_user_without_a_home_still_computes(monkeypatch):
    def fail(*_):
        raise RuntimeError("no home")

    for name in ("SORDINO_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cache.Path, "home", fail)
    store(KEY, 1.25)
    assert load(KEY) is None


def test_the_folder_can_be_chosen(monkeypatch):
    assert cache_folder() == Path(os.environ["SORDINO_CACHE"])
    monkeypatch.delenv("SORDINO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/some/cache")
    assert cache_folder() == Path("/some/cache/sordino")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("LOCALAPPDATA", "/windows/cache")
    assert cache_folder() == Path("/windows/cache/sordino")
    monkeypatch.delenv("LOCALAPPDATA")
    assert cache_folder() == Path.home() / ".cache" / "sordino"


def test_keys_follow_the_problem_the_format_and_the_library(monkeypatch):
    base = cache_key({"a": 1, "b": 2}, 1.0)
    assert base == cache_key({"b": 2, "a": 1}, 1.0)
    assert len(base) == 64
    assert base != cache_key({"a": 1, "b": 2}, 1.5)
    monkeypatch.setattr(cache, "FORMAT", cache.FORMAT + 1)
    assert base != cache_key({"a": 1, "b": 2}, 1.0)
    monkeypatch.undo()
    assert cache._accounting_version() == metadata.version("dp-accounting")
    monkeypatch.setattr(cache, "_accounting_version", lambda: "9.9")
    assert base != cache_key({"a": 1, "b": 2}, 1.0)
