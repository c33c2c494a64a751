"""Batches of short rows past memory: one pass copies an epoch of them, and no sum and no file tells of it."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from tests.execute.in_parts import as_csr

import sordino
from sordino.errors import InvalidInputError
from sordino.execute import disk
from sordino.kernel import (
    Batch,
    Curator,
    Disjoint,
    FixedSize,
    Full,
    Gaussian,
    Plan,
    Poisson,
    Question,
    Release,
)
from sordino.kernel.events import Listed
from sordino.kernel.noise import NoiseSource
from sordino.problems.losses import LOSSES
from sordino.problems.queries import GlmGradient

COUNT, RATE = 300, 0.1
public = np.random.default_rng(8)
X = np.where(public.random((COUNT, 12)) < 0.4, public.normal(size=(COUNT, 12)), 0.0)
X[7, 2], X[200] = np.nan, 0.0
Y, SHARES = public.choice([-1.0, 1.0], COUNT), np.linspace(0.5, 1.0, COUNT)
MAKERS = [np.asarray, as_csr, lambda m: m.astype(np.float32), lambda m: as_csr(m).astype(np.float32)]


@pytest.fixture
def beyond(monkeypatch):
    """Treat every file as one that memory cannot hold."""
    monkeypatch.setattr(disk, "_BEYOND", 0.0)
    monkeypatch.setattr(disk, "_CACHED", 0.0)


def written(tmp_path, make=np.asarray, memory=2000, **more):
    folder = sordino.to_disk(tmp_path / "rows", [(make(X), Y)])
    return sordino.on_disk(folder, memory=memory, **more)


def executor_of(rows, weights=SHARES):
    return rows.executor(Y, 1.0, 0.5, weights)


def release_of(sampling, times=40):
    return Release(GlmGradient(LOSSES["logistic"], 0.7), Gaussian(1.0), sampling, times)


def drawn(sampling, times, seed=4):
    noise = NoiseSource.seeded_not_private(seed)
    return [Batch((Listed(sampling.draw(COUNT, position, noise)),)) for position in range(times)]


def sums(executor, sampling, batches):
    params = np.linspace(-1, 1, 13)
    questions = [Question(release_of(sampling), params, 1.0, i, COUNT) for i in range(len(batches))]
    return [executor.total(one, batch) for one, batch in zip(questions, batches, strict=True)]


@pytest.mark.parametrize("sampling", [Poisson(RATE), FixedSize(31), Poisson(0.004)], ids=str)
@pytest.mark.parametrize("make", MAKERS)
def test_copied_batches_have_the_sums_of_rows_as_they_lie_to_the_last_bit(make, sampling, tmp_path, beyond):
    rows = written(tmp_path, make)
    executor = executor_of(rows)
    assert rows.block_rows < 12  # a batch is added up in several blocks
    assert rows._copied_rows < COUNT / 4  # and copied in several pieces
    batches = drawn(sampling, 23)
    expected = sums(executor, sampling, batches)
    moved = executor.prepare(iter(batches))
    assert all(isinstance(batch.shares[0], disk.Copied) for batch in moved)
    for one, other in zip(sums(executor, sampling, moved), expected, strict=True):
        assert np.array_equal(one, other)


def test_the_sources_are_read_once_for_all_batches_of_an_epoch(tmp_path, beyond, monkeypatch):
    rows = written(tmp_path, as_csr, 8000)
    read, honest = [], disk.DiskMatrix.read
    monkeypatch.setattr(
        disk.DiskMatrix, "read", lambda self, *given: read.append((self, given[0])) or honest(self, *given)
    )
    release = release_of(Poisson(RATE), 20)
    plan = Plan({"gradient": release}, "add-remove", COUNT).at(1.0)
    curator = Curator(executor_of(rows), plan, NoiseSource.seeded_not_private(1))
    for _ in range(20):
        curator.release("gradient", np.zeros(13))
    ours = [given for place, given in read if place is rows]
    assert all(isinstance(given, slice) for given in ours)
    assert sum(given.stop - given.start for given in ours) == 2 * COUNT  # two epochs of ten steps


RULES = [
    (Poisson(RATE), 40, 10),  # an epoch
    (Poisson(RATE), 3, 3),  # what is left, if it is enough
    (Poisson(0.001), 2, 0),  # so few rows are read sooner than all
    (Poisson(0.5), 40, 0),  # no batch costs more than all rows
    (FixedSize(30), 40, 10),
    (Full(), 40, 0),
    (Disjoint(10), 10, 0),  # rows behind each other
]


@pytest.mark.parametrize(("sampling", "left", "wanted"), RULES, ids=str)
def test_public_numbers_say_how_many_batches_are_copied(sampling, left, wanted, tmp_path, beyond):
    executor = executor_of(written(tmp_path, as_csr, 1 << 20))
    assert executor.ahead(release_of(sampling, 10), left) == wanted


def test_long_rows_and_files_that_the_cache_holds_are_read_as_they_lie(tmp_path, monkeypatch):
    assert executor_of(written(tmp_path, as_csr, 1 << 20)).ahead(release_of(Poisson(RATE)), 40) == 0
    monkeypatch.setattr(disk, "_BEYOND", 0.0)
    folder = sordino.to_disk(tmp_path / "long", [(np.zeros((COUNT, 4096), dtype=np.float32), Y)])
    assert executor_of(sordino.on_disk(folder)).ahead(release_of(Poisson(RATE)), 40) == 0


def test_copies_have_no_name_and_their_room_is_given_back(tmp_path, beyond):
    (tmp_path / "scratch").mkdir()
    rows = written(tmp_path, as_csr, scratch=tmp_path / "scratch")
    executor = executor_of(rows)
    before = set(os.listdir("/proc/self/fd"))
    moved = executor.prepare(drawn(Poisson(RATE), 10))
    made = [
        os.stat(f"/proc/self/fd/{fd}")
        for fd in set(os.listdir("/proc/self/fd")) - before
        if Path(f"/proc/self/fd/{fd}").exists()
    ]
    device = (tmp_path / "scratch").stat().st_dev
    assert len(made) >= 4
    assert all(one.st_nlink == 0 and one.st_mode & 0o777 == 0o600 and one.st_dev == device for one in made)
    assert list((tmp_path / "scratch").iterdir()) == []
    assert sorted(file.name for file in (tmp_path / "rows").iterdir()) == sorted(
        ["rows.json", *rows._layout.sizes()]
    )
    del moved
    assert set(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("fault", ["full", "away", "cut off"])
def test_without_room_for_copies_batches_are_read_as_they_lie(fault, tmp_path, beyond, monkeypatch):
    (tmp_path / "scratch").mkdir()
    executor = executor_of(written(tmp_path, as_csr, scratch=tmp_path / "scratch"))
    batches = drawn(Poisson(RATE), 10)
    expected = sums(executor, Poisson(RATE), batches)
    before = set(os.listdir("/proc/self/fd"))
    if fault == "full":
        usage = type(disk.shutil.disk_usage("/"))
        monkeypatch.setattr(disk.shutil, "disk_usage", lambda place: usage(100, 100, 0))
    elif fault == "away":
        (tmp_path / "scratch").rmdir()
    else:
        monkeypatch.setattr("sordino.execute.disk_files._pieces", lambda *given: os.write(-1, b""))
    kept = executor.prepare(batches)
    assert not any(isinstance(batch.shares[0], disk.Copied) for batch in kept)
    for one, other in zip(sums(executor, Poisson(RATE), kept), expected, strict=True):
        assert np.array_equal(one, other)
    assert set(os.listdir("/proc/self/fd")) <= before


def test_files_that_change_after_their_rows_were_copied_are_refused(tmp_path, beyond):
    executor = executor_of(written(tmp_path, as_csr))
    moved = executor.prepare(drawn(Poisson(RATE), 10))
    with (tmp_path / "rows" / "values.bin").open("r+b") as file:
        file.write(b"\0" * 8)
    with pytest.raises(InvalidInputError, match="as it was when it was opened"):
        sums(executor, Poisson(RATE), moved)


def test_an_error_while_rows_are_copied_ends_the_release_and_leaves_nothing(tmp_path, beyond):
    written(tmp_path, as_csr)
    file = tmp_path / "rows" / "pointers.bin"
    wrong = np.fromfile(file, dtype=np.int64)
    wrong[COUNT // 2] = 10**9
    wrong.tofile(file)
    executor = executor_of(sordino.on_disk(tmp_path / "rows", memory=2000))
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(InvalidInputError, match="pointers"):
        executor.prepare(drawn(Poisson(RATE), 10))
    assert set(os.listdir("/proc/self/fd")) <= before


def test_a_folder_for_copies_has_to_be_there(tmp_path):
    with pytest.raises(InvalidInputError, match="scratch"):
        written(tmp_path, scratch=tmp_path / "absent")


@pytest.mark.parametrize("name", ["sgd-ht", "svrg-ht", "scsg-ht"])
def test_models_of_copied_batches_are_those_in_memory(name, tmp_path, beyond, monkeypatch):
    """Without noise the batches are drawn from the same numbers, ahead or not."""
    copied, honest = [], disk.DiskMatrix.copy_batches
    monkeypatch.setattr(disk.DiskMatrix, "copy_batches", lambda *given: copied.append(1) or honest(*given))
    clean, settings = np.nan_to_num(X), {"epsilon": float("inf"), "data_norm": 1.0, "classes": [-1, 1]}
    rows = sordino.on_disk(sordino.to_disk(tmp_path / "rows", [(as_csr(clean), Y)]), memory=20_000)
    more = {"solver_options": {"batch_size": 20}} if name == "sgd-ht" else {}
    model = sordino.SparseLogisticRegression(**settings, n_nonzero_coefs=4, solver=name, max_iter=30, **more)
    with sordino.kernel.noise.seeded_noise_not_private(5, same_for_every_fit=True):
        found = model.fit(rows, Y).coef_.copy()
        expected = model.fit(as_csr(clean), Y).coef_
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-10)
    assert copied


KILLED = """
    import sys, time
    import numpy as np, sordino
    from sordino.execute import disk
    from tests.execute.test_disk_ahead import drawn, executor_of, Poisson
    disk._BEYOND = 0.0
    moved = executor_of(sordino.on_disk(sys.argv[1], memory=2000)).prepare(drawn(Poisson(0.1), 10))
    assert isinstance(moved[0].shares[0], disk.Copied)
    print("copied", flush=True)
    time.sleep(60)
"""


def test_a_killed_process_leaves_no_copy(tmp_path):
    written(tmp_path, as_csr)
    before = sorted(tmp_path.rglob("*"))
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "rows")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "copied\n"
        process.send_signal(signal.SIGKILL)
    assert sorted(tmp_path.rglob("*")) == before
