"""Doors of the kernel, the accountants and the executors that stood open, by the number of the finding."""

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event as dp

import sordino
from sordino.accounting import certify
from sordino.errors import WorkerError
from sordino.kernel import Relation, public_generator
from sordino.kernel import arrays as machine_code
from sordino.kernel.clip import clipped_matrix, joint_norms, row_norms, to_bound
from sordino.ledger.address import code_digest

SOURCE = Path(sordino.__file__).parent

# What the compiled pass over pulls makes of a residual of 5 where a record may add .5.
PULL = """
import numpy as np
from sordino.kernel.query import NUMBERS, Pull, pull_rows
margins = np.array([5.0, 0.125])
ones = np.ones(2)
pull_rows(Pull(NUMBERS, 0.5).numbers, margins, np.empty(2), np.zeros(2), np.empty(0), ones, ones, ones)
print(*margins.round(6), sum(pull_rows.stats.cache_hits.values()))
"""

# A smaller one, which is compiled in a third of the time.
CLIP = """
import numpy as np
from sordino.kernel.clip import _clip_each
out = np.empty(2)
_clip_each(np.array([5.0, 0.25]), np.ones(2), 0.5, out)
print(*out, sum(_clip_each.stats.cache_hits.values()))
"""


@pytest.fixture
def copy(tmp_path):
    """Return a copy of the package, without anything compiled."""
    shutil.copytree(SOURCE, tmp_path / "sordino", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "sordino"


def run_in(copy, code, **environment):
    """Return what a process prints that imports the copy."""
    seen = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    seen |= {"PYTHONPATH": str(copy.parent), "SORDINO_CACHE": str(copy.parent / "cache"), **environment}
    done = subprocess.run([sys.executable, "-c", code], env=seen, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def change(file, old, new):
    text = file.read_text("utf-8")
    assert text.count(old) == 1
    file.write_text(text.replace(old, new), "utf-8")


def test_door_08_a_clip_that_changes_acts_at_once(copy):
    assert run_in(copy, PULL) == ["0.5", "0.125", "0"]
    change(
        copy / "cli" / "look.py", "from __future__", "\nfrom __future__"
    )  # no compiled function can see it
    assert run_in(copy, PULL) == ["0.5", "0.125", "1"]  # so the machine code is found again
    clip = copy / "kernel/clip/__init__.py"
    change(clip, "return scalar if size <= most else", "return 0.5 * scalar if size <= most else")
    change(clip, "return bound * (1.0", "return bound * (0.5")
    assert run_in(copy, PULL) == ["0.25", "0.0625", "0"]  # inlined from another file, without cleaning


def test_door_08_a_package_that_cannot_be_written_keeps_machine_code_with_the_user(copy):
    blocked = copy / "__pycache__"
    blocked.mkdir()
    (blocked / "machine-code").write_text("a file where a folder should be: nobody can write here")
    assert run_in(copy, CLIP, PYTHONDONTWRITEBYTECODE="1")[2] == "0"
    assert run_in(copy, CLIP, PYTHONDONTWRITEBYTECODE="1")[2] == "1"
    assert list((copy.parent / "cache" / "machine-code").iterdir())
    nowhere = {"SORDINO_CACHE": str(blocked / "machine-code"), "HOME": str(blocked / "machine-code")}
    assert run_in(copy, CLIP, PYTHONDONTWRITEBYTECODE="1", **nowhere) == ["0.5", "0.25", "0"]
    assert not list(copy.rglob("*.nbi"))  # in particular not by Numba's own names, which forget the source


def test_door_08_old_machine_code_does_not_pile_up(tmp_path, monkeypatch):
    monkeypatch.setattr(machine_code.time, "time", lambda: 10_000.0)
    for age in range(12):
        folder = tmp_path / f"version-{age}"
        folder.mkdir()
        os.utime(folder, (6_000.0 - age, 6_000.0 - age) if age else (9_000.0, 9_000.0))
    machine_code._remove_old(tmp_path / "new")
    assert sorted(int(f.name[8:]) for f in tmp_path.iterdir()) == list(range(machine_code.KEPT - 1))


def holders():
    """Return the modules of the package that hold functions whose machine code is kept."""
    files = [f for f in SOURCE.rglob("*.py") if "@compile_with_cache(" in f.read_text("utf-8")]
    names = [".".join(("sordino", *f.relative_to(SOURCE).with_suffix("").parts)) for f in files]
    return [name.removesuffix(".__init__") for name in names]


def test_door_08_machine_code_is_kept_in_one_place_only():
    keepers = [f for f in SOURCE.rglob("*.py") if "cache=True" in f.read_text("utf-8")]
    assert keepers == [SOURCE / "kernel" / "arrays.py"]
    assert len(holders()) >= 8


@pytest.mark.parametrize("name", holders())
def test_door_08_the_digest_covers_all_that_a_compiled_function_names(name):
    module, reach = import_module(name), machine_code.reachable(name)
    assert not any(other.startswith(("sordino.cli", "sordino.report")) for other in reach)
    named = 0
    for kept in [v for v in vars(module).values() if hasattr(v, "py_func") and v.__module__ == name]:
        if not kept.targetoptions.get("inline"):  # which has machine code only where it is inlined
            assert machine_code.source_digest(name)[:32] in kept.stats.cache_path
        for word in kept.py_func.__code__.co_names:
            home = getattr(getattr(module, word, None), "__module__", None) or name
            assert not home.startswith("sordino.") or home in reach
            named += 1
    assert named


def test_door_08_the_digest_of_the_code_is_of_what_runs(copy):
    code = """
import os, sordino
from pathlib import Path
from sordino.ledger.address import code_digest
print(code_digest().replace(" ", "-"))
file = Path(sordino.__file__).parent / "kernel" / "query.py"
file.write_text(file.read_text() + "# changed")
print(code_digest().replace(" ", "-"))
"""
    first, second = run_in(copy, code)
    assert len(first) == 64
    assert second == "changed-on-disk-after-this-process-loaded-it"
    assert run_in(copy, code)[0] not in (first, code_digest())


def gaussian_delta(mu, epsilon):
    """Return delta of a Gaussian at distance mu, to 80 digits."""
    with mpmath.workdps(80):
        shift, half = mpmath.mpf(epsilon) / mu, mu / 2
        return mpmath.ncdf(half - shift) - mpmath.exp(epsilon) * mpmath.ncdf(-half - shift)


@pytest.mark.parametrize("count", [1, 3, 1000])
@pytest.mark.parametrize("delta", [1e-1, 1e-5, 1e-12, 1e-200])
def test_door_10_a_certificate_of_gaussians_is_never_rounded_down(delta, count):
    for exponent in range(-9, 10):
        multiplier = 10 ** (exponent / 3)
        event = dp.SelfComposedDpEvent(dp.GaussianDpEvent(multiplier), count)
        epsilon = certify(event, delta, Relation.ADD_REMOVE).epsilon
        with mpmath.workdps(80):
            mu = mpmath.sqrt(count) / mpmath.mpf(multiplier)
        assert gaussian_delta(mu, epsilon) <= mpmath.mpf(delta)
        assert epsilon == 0 or gaussian_delta(mu, epsilon * (1 - 1e-9) - 1e-9) > mpmath.mpf(delta)


def test_door_10_a_composition_of_many_gaussians_is_never_rounded_down():
    multipliers = [10.0 + k / 7 for k in range(50)]
    event = dp.ComposedDpEvent([dp.GaussianDpEvent(m) for m in multipliers])
    with mpmath.workdps(80):
        mu = mpmath.sqrt(mpmath.fsum(mpmath.mpf(m) ** -2 for m in multipliers))
    for delta in (1e-3, 1e-5, 1e-7, 1e-9):
        assert gaussian_delta(mu, certify(event, delta, Relation.ADD_REMOVE).epsilon) <= mpmath.mpf(delta)


@pytest.mark.parametrize("size", [1e308, 1e-320, 1e-200, 1.7e308])
def test_door_10_no_setting_of_numpy_tells_how_large_a_row_is(size):
    X = public_generator(0).normal(size=(60, 3))
    X[0], X[1] = size, -size
    plain = clipped_matrix(X, 0.7)
    with np.errstate(all="raise"):
        assert np.array_equal(clipped_matrix(X, 0.7), plain)
        joint_norms([row_norms(X), row_norms(X)])
        to_bound(X[0], 0.7)
        sordino.PCA(1, epsilon=1.0, delta=1e-5).fit(X)
        sordino.LogisticRegression(epsilon=1.0, delta=1e-5, classes=[False, True]).fit(X, X[:, 1] > 0)


def test_door_24_dask_logs_no_value_of_a_record_and_nothing_is_said_to_be_booked(tmp_path, capfd):
    pytest.importorskip("distributed")
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    for number, word in enumerate(("1.5", "Rosalind")):
        (tmp_path / f"{number}.csv").write_text("a,b\n" + "0.5,0.25\n" * 40 + f"0.5,{word}\n")
    place = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with LocalCluster(**place) as cluster, Client(cluster) as client:
        X = dd.read_csv(str(tmp_path / "*.csv"), dtype=float)
        with pytest.raises(WorkerError, match="Nothing was booked") as caught:
            sordino.PCA(1, epsilon=1.0, delta=1e-5).fit(X)
        logs = str(client.get_worker_logs())
    assert "stays spent" not in str(caught.value)
    seen = capfd.readouterr()
    assert "Compute Failed" in logs  # that it failed is said
    assert "Rosalind" not in logs + seen.out + seen.err
