"""Each sabotage of tools/sabotages.toml, put into a copy of the library, makes its named test fail."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = tomllib.loads((ROOT / "tools/sabotages.toml").read_text("utf-8"))["sabotage"]
FAILED = 1  # pytest's exit status when tests ran and failed; an error on import is another one


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """Return a folder with a copy of the library, compiled code and all."""
    folder = tmp_path_factory.mktemp("sabotage")
    shutil.copytree(ROOT / "src", folder / "src")
    return folder


def judged(copy, *tests):
    """Return the exit status and the last words of tests that see the copy."""
    seen = {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1", "NUMBA_NUM_THREADS": "1"}
    options = ["-x", "-q", "-n0", "--tb=line", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    environment = {**os.environ, **seen}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.long
@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_a_sabotage_is_caught_by_name(row, copy):
    path = copy / row["file"]
    sound, times = path.read_bytes(), path.stat()
    path.write_bytes(sound.replace(row["old"].encode(), row["new"].encode()))
    try:
        status, said = judged(copy, row["test"])
    finally:
        path.write_bytes(sound)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert status == FAILED, said
    assert re.search(r"\d failed", said), said  # and not merely a crash on the way


@pytest.mark.long
def test_the_copy_without_a_sabotage_passes(copy):
    status, said = judged(copy, *dict.fromkeys(row["test"] for row in ROWS))
    assert status == 0, said


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_a_sabotage_still_has_its_place_and_its_test(row):
    assert (ROOT / row["file"]).read_text("utf-8").count(row["old"]) == 1
    file, _, name = row["test"].partition("::")
    assert f"def {name}(" in (ROOT / file).read_text("utf-8")


def test_no_two_sabotages_have_one_name():
    assert len({row["name"] for row in ROWS}) == len(ROWS) >= 28
