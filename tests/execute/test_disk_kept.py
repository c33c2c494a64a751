"""Rows past memory: what is announced, kept and dropped changes no answer, and memory stays bounded."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
from tests.execute.in_parts import as_csr, small_data

import sordino
from sordino.errors import InvalidInputError
from sordino.execute import disk
from sordino.execute.disk import Kept, Narrow, asked_columns
from sordino.execute.disk_files import Opened
from sordino.execute.local import LocalExecutor
from sordino.kernel.noise import seeded_noise_not_private
from sordino.problems.affine import Affine

X, NUMBERS, LABELS = small_data()
WIDE = np.random.default_rng(3).normal(size=(400, 60)) / 8
SIGNS = np.where(WIDE[:, 3] > WIDE[:, 5], 1, -1)
INF = float("inf")


def written(tmp_path, matrix, targets, memory):
    return sordino.on_disk(sordino.to_disk(tmp_path / "rows", [(matrix, targets)]), memory=memory)


def narrowing(rows, targets, **options):
    """Fit with a sparsity, so that later passes ask for few columns."""
    settings = {"epsilon": INF, "data_norm": 2.0, "n_nonzero_coefs": 1, "classes": [-1, 1], "max_iter": 4}
    return sordino.SparseLogisticRegression(**{**settings, **options}).fit(rows, targets).coef_.copy()


@pytest.fixture
def beyond(monkeypatch):
    """Treat every file as one that memory cannot hold."""
    monkeypatch.setattr(disk, "_BEYOND", 0.0)
    monkeypatch.setattr(disk, "_CACHED", 0.0)


@pytest.mark.parametrize("make", [np.asarray, as_csr, lambda m: m.astype(np.float32)])
@pytest.mark.parametrize("solver", ["sgd-ht", "auto", "svrg-ht"])
def test_files_past_memory_give_the_models_of_smaller_ones(make, solver, tmp_path, beyond):
    rows = written(tmp_path, make(WIDE), SIGNS, 12000)
    assert rows.block_rows < 60
    # Batches that are drawn ahead of the noise are others: without noise they are the same.
    options = {"solver": solver, "epsilon": INF if solver == "sgd-ht" else 4.0}
    with seeded_noise_not_private(5, same_for_every_fit=True):
        found, expected = narrowing(rows, SIGNS, **options), narrowing(make(WIDE), SIGNS, **options)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("make", [np.asarray, as_csr])
def test_columns_that_are_left_are_read_once_if_there_is_room(make, tmp_path, monkeypatch):
    read, honest = [], disk.DiskMatrix.read
    monkeypatch.setattr(disk.DiskMatrix, "read", lambda *given: read.append(1) or honest(*given))
    counts = {}
    for memory in (30_000, 1 << 30):
        place = tmp_path / str(memory)
        rows = written(place, make(WIDE), SIGNS, memory)
        blocks = -(-400 // rows.block_rows)
        found = narrowing(rows, SIGNS)
        np.testing.assert_allclose(found, narrowing(make(WIDE), SIGNS), rtol=1e-9, atol=1e-12)
        counts[memory], read[:] = len(read) / blocks, []
    assert counts[30_000] > 25  # most blocks are read in each pass
    assert counts[1 << 30] <= 8  # moments, sizes, four steps, then the columns that are left


def test_what_is_kept_answers_as_the_whole_block_does_and_never_in_another_order():
    whole = LocalExecutor(WIDE, SIGNS, 1.0, 0.5).records(None)
    columns = np.array([2, 3, 7, 30])
    asked = []

    def read():
        asked.append(1)
        return whole

    def mapped(columns):
        return Affine(np.full(columns.size, 0.01), np.linspace(1, 2, columns.size), 0.25, columns)

    kept = Kept(1 << 20)
    for some in (columns, columns[::2], columns[::2], columns, columns[::-1], columns):
        records, affine = kept.records(0, some, read), mapped(some)
        np.testing.assert_allclose(records.through(affine).sizes, whole.through(affine).sizes, rtol=1e-12)
        w = np.arange(some.size + 1.0)
        np.testing.assert_allclose(records.within(some).margins(w), whole.within(some).margins(w), rtol=1e-12)
        assert np.array_equal(records.targets, whole.targets)
    assert len(asked) == 3  # columns that were given up are read again
    other = mapped(np.array([1, 2]))
    np.testing.assert_allclose(records.through(other).sizes, whole.through(other).sizes, rtol=1e-12)
    np.testing.assert_allclose(
        records.weighted_sum(NUMBERS[:1].repeat(400)), whole.weighted_sum(NUMBERS[:1].repeat(400))
    )


def test_room_is_never_overdrawn_and_given_back():
    whole = LocalExecutor(WIDE, SIGNS, 1.0).records(None)
    columns = np.arange(20)
    size = Narrow(columns, LocalExecutor(WIDE[:, :20], SIGNS, 1.0).records(None)).bytes
    assert size >= 400 * 20 * 8
    kept = Kept(2 * size + 10)
    for start in range(4):
        kept.records(start, columns, lambda: whole)
    assert [kept.has(start, columns) for start in range(4)] == [True, True, False, False]
    for start in range(4):
        kept.records(start, columns[:2], lambda: whole)
    assert [kept.has(start, columns[:2]) for start in range(4)] == [True, True, True, True]


def test_only_a_map_that_drops_columns_says_which_are_asked():
    columns = np.array([1, 4])
    plain, listed = (
        Affine(np.zeros(2), np.ones(2), 0.0, given, rest) for given, rest in ((None, None), (columns, 0.5))
    )
    narrow = Affine(np.zeros(2), np.ones(2), 0.0, columns)
    assert asked_columns(plain) is None
    assert asked_columns((np.zeros(2), listed, None, 1.0)) is None
    assert np.array_equal(asked_columns((np.zeros(2), narrow, None, 1.0)), columns)
    assert asked_columns(None) is None


def test_a_pointer_outside_of_the_file_is_refused_before_anything_is_announced(tmp_path, beyond):
    written(tmp_path, as_csr(X), NUMBERS, 1 << 20)
    file = tmp_path / "rows" / "pointers.bin"
    wrong = np.fromfile(file, dtype=np.int64)
    wrong[wrong.size // 2] = -8
    wrong.tofile(file)
    rows = sordino.on_disk(tmp_path / "rows")
    with pytest.raises(InvalidInputError, match="pointers"):
        rows.announce(np.arange(300))


def test_places_that_are_near_are_announced_together(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr("os.posix_fadvise", lambda number, start, length, what: told.append((start, length)))
    path = tmp_path / "f"
    path.write_bytes(b"\0" * 64)
    starts = np.array([0, 100, 10**6])
    Opened.at(path, 64).announce(starts, starts + 50)
    assert told == [(0, 150), (10**6, 50)]


MEASURED = """
    import sys, numpy as np, sordino
    from benchmarks.beyond import block
    from benchmarks.disk import watched
    folder, count = sys.argv[1], 6
    sordino.to_disk(folder, (block(1024, seed) for seed in range(count)))
    def fit(rows, target, **options):
        sordino.SparseLogisticRegression(
            epsilon=1.0, delta=1e-8, data_norm=1.5, classes=[-1, 1], n_nonzero_coefs=4, max_iter=3, **options
        ).fit(rows, target)
    rows = sordino.on_disk(folder, memory=1 << 25)
    for solver in ("sgd-ht", "auto"):
        fit(*block(1024, 0), solver=solver)  # compiles
        fit(*block(1024, 0, 64), solver=solver)
        print(watched(lambda: fit(rows, np.array(rows.target), solver=solver))["own_mb"])
"""


@pytest.mark.long
def test_fits_from_disk_take_no_more_memory_than_they_were_given(tmp_path):
    """A hundred megabytes of rows, 32 for a pass: a bound that reading all of them would break."""
    command = [sys.executable, "-c", textwrap.dedent(MEASURED), str(tmp_path / "rows")]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    own = [float(line) for line in found.stdout.split()]
    assert len(own) == 2
    assert max(own) < 48
