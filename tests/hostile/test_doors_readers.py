"""The doors of readers: matrices, configurations, rows on disk, journals. Each test failed before its mend.

The numbers in the docstrings were measured then.
"""

import mmap
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file
from tests.cli.helpers import typed, typed_json

import sordino
from sordino import errors
from sordino.kernel import public_generator
from sordino.report import write_ledger_report
from sordino.runs.journal import Journal
from sordino.tables.files import DataFile, read_matrix, read_names

FIT = ("--model", "logistic", "--set", "data_norm=3", "--epsilon", 2, "--output", "m.sordino", "--force")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(n=200, columns=4):
    X = public_generator(3).normal(size=(n, columns)).round(3)
    return X, 1 * (X[:, 0] > 0)


def libsvm(path, last=None):
    """Write rows of which the last one has an entry in this column."""
    X, y = rows()
    wide = np.zeros((len(X), 4 if last is None else last))
    wide[:, :4] = X
    if last is not None:
        wide[-1, last - 1] = 1.0
    dump_svmlight_file(wide, y, str(path), zero_based=False)
    return path


# ------------------------------------------------------- 2: one record sets the number of columns


@pytest.mark.parametrize("megabytes", [None, 1])
def test_door_02_no_record_decides_how_many_columns_there_are(folder, monkeypatch, megabytes):
    """The largest index in a libsvm file did, and with it shape, plan and report."""
    if megabytes:  # from disk
        monkeypatch.setattr("sordino.cli.rows.memory_for_rows", lambda declared: 5000)
    found = []
    for place in (libsvm(folder / "a.svm"), libsvm(folder / "b.svm", last=7)):
        assert "Declare it, with --features" in typed("fit", place.name, *FIT, code=3)
        found.append(typed_json("fit", place.name, *FIT, "--features", 9, "--classes", "0,1")["privacy"])
        assert sordino.load("m.sordino").coef_.shape == (1, 9)
    assert found[0]["public"] == found[1]["public"]
    assert "number of features: 9" in found[0]["public"]
    assert "beyond the number of columns" in typed("fit", "b.svm", *FIT, "--features", 5, code=3)


def test_door_02_components_of_a_libsvm_file_have_declared_columns(folder):
    libsvm(folder / "a.svm")
    words = ("pca", "a.svm", "--data-norm", 3, "--epsilon", 2, "--output", "p.sordino")
    assert "--features" in typed(*words, code=3)
    typed(*words, "--features", 6)
    assert sordino.load("p.sordino").components_.shape == (2, 6)


def test_door_02_a_model_is_judged_on_as_many_columns_as_it_takes(folder):
    """`evaluate --features 9` was taken without a word for a model of four columns."""
    libsvm(folder / "a.svm")
    typed("fit", "a.svm", *FIT, "--features", 4, "--classes", "0,1")
    libsvm(folder / "b.svm")
    judged = ("evaluate", "m.sordino", "b.svm", "--public")
    assert "takes 4 columns, not 9" in typed(*judged, "--features", 9, code=3)
    typed(*judged, "--features", 4)
    typed(*judged)


# -------------------------------------------------------------- 11: files without a header


def without_header(path):
    X, y = rows()
    np.savetxt(path, np.column_stack([X, y]), delimiter=",", fmt="%g")
    return path


def test_door_11_a_first_record_never_becomes_names(folder):
    """Its values stood in model files and messages of `pca`, `schema check` and `stats`."""
    first = without_header(folder / "d.csv").read_text("utf-8").split("\n")[0].split(",")
    schema = folder / "s.toml"
    schema.write_text('format = 1\n[columns.a]\nkind = "number"\nlow = 0\nhigh = 1\n', "utf-8")
    output = ("--epsilon", 2, "--output", "p.sordino")
    for words in (
        ("pca", "d.csv", "--data-norm", 3, *output),
        ("fit", "d.csv", *FIT, "--target", first[-1]),
        ("stats", "mean", "d.csv", "--column", first[0], "--bounds", "0,1", "--epsilon", 1),
        ("schema", "check", "s.toml", "d.csv"),
        ("schema", "draft", "d.csv"),
    ):
        said = typed(*words, code=3)
        assert "looks like a record" in said
        assert not any(value in said for value in first if len(value) > 3)
    assert not (folder / "p.sordino").exists()


def test_door_11_a_file_without_a_header_is_read_when_that_is_said(folder):
    """`--no-header` was refused without a schema, after the first record had been read as names."""
    without_header(folder / "d.csv")
    typed("pca", "d.csv", "--no-header", "--data-norm", 3, "--epsilon", 2, "--output", "p.sordino")
    model = sordino.load("p.sordino")
    assert model.n_features_in_ == 5
    assert not hasattr(model, "feature_names_in_")
    typed("fit", "d.csv", "--no-header", *FIT, "--target", "x4", "--classes", "0,1")
    without_header(folder / "e.csv")
    found = typed_json("evaluate", "m.sordino", "e.csv", "--no-header", "--target", "x4", "--public")
    assert 0 <= found["value"] <= 1


def test_door_11_names_that_are_numbers_are_names_when_that_is_said(folder):
    X, _ = rows()
    text = "\n".join(["0,1,2,3", *(",".join(map(str, row)) for row in X), ""])
    (folder / "d.csv").write_text(text, "utf-8")
    with pytest.raises(errors.DataFileError, match="--header"):
        read_names(DataFile("d.csv"))
    assert read_matrix(DataFile("d.csv", sure=True)).X.shape == (200, 4)
    words = ("pca", "d.csv", "--data-norm", 3, "--epsilon", 2, "--output", "p.sordino")
    typed(*words, "--header")
    assert "either --header or --no-header" in typed(*words, "--force", "--header", "--no-header", code=2)


def test_door_11_two_equal_values_of_a_first_record_are_not_quoted(folder):
    (folder / "d.csv").write_text("Smith,Bonn,Bonn\nJones,Rome,Kiel\n", "utf-8")
    with pytest.raises(errors.DataFileError, match="columns 2 and 3 have the same name") as caught:
        read_names(DataFile("d.csv"))
    assert "Bonn" not in str(caught.value)


# --------------------------------------------------------- 24: records that stay on a disk


WAIT = """
import sys, time
import sordino.execute.disk_files as files
from sordino.cli import main
honest = files._pieces
def slow(*facts):
    yield from honest(*facts)
    print("written", flush=True)
    time.sleep(60)
files._pieces = slow
words = "sordino fit a.svm --features 4 --model logistic --classes 0,1 --set data_norm=3"
sys.argv = [*words.split(), "--epsilon", "2", "--output", "m.sordino"]
import sordino.cli.rows
sordino.cli.rows.memory_for_rows = lambda megabytes: 5000
main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_door_24_no_record_stays_on_disk_however_a_fit_ends(folder, number):
    """28.8 MB of records stayed there after SIGTERM or SIGKILL."""
    libsvm(folder / "a.svm")
    (folder / "temporary").mkdir()
    worker = subprocess.Popen(
        [sys.executable, "-c", WAIT],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folder / "temporary")},
    )
    try:
        assert worker.stdout.readline() == b"written\n"
        worker.send_signal(number)
        worker.wait(30)
    finally:
        worker.kill()
        worker.stdout.close()
        worker.wait(30)
    assert [place for place in (folder / "temporary").rglob("*") if place.is_file()] == []


def test_door_24_rows_and_budgets_are_their_owners_alone(tmp_path):
    """Files of `to_disk` and pages of `sordino ledger report` could be read by everybody."""
    before = os.umask(0o022)
    try:
        X, y = rows()
        folder = sordino.to_disk(tmp_path / "deep" / "rows", [(X, y)])
        ledger = sordino.Ledger.open(tmp_path / "ledger.db")
        ledger.create("ward", sordino.BudgetPolicy(epsilon=1.0, delta=1e-6))
        page = write_ledger_report(ledger, tmp_path / "ledger.html")
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for place in (*folder.iterdir(), page):
        assert stat.S_IMODE(place.stat().st_mode) == 0o600, place.name


# ------------------------------------------------------------- 26: configurations, journals, changed rows


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[Fit]\nepsilon = 1.0\n", "[Fit] is no command"),
        ("[tune]\nepsilonn = 1.0\n", "[tune] 'epsilonn' is no option"),
        ("epsilon = true\n", "'epsilon' wants one text or number, got true"),
        ("[fit]\ndelta = false\n", "'delta' wants one text or number, got false"),
        ('[fit]\nclasses = ["a", "b"]\n', "'classes' wants one text or number"),
        ("[fit]\nforce = 1\n", "'force' wants true or false, got 1"),
        ("[fit.set]\ndata_norm = 3\n", "'set' wants a list"),
    ],
)
def test_door_26_a_misspelt_configuration_is_refused(folder, text, words):
    """`[Fit]` was ignored, `epsilon = true` ran as 1."""
    (folder / "run.toml").write_text(text, "utf-8")
    (folder / "d.csv").write_text("a,y\n1,0\n", "utf-8")
    said = typed("fit", "d.csv", "--config", "run.toml", "--output", "m.sordino", code=2)
    assert words in " ".join(said.split())


@pytest.mark.parametrize("put", [True, False], ids=["replaced", "removed"])
def test_door_26_a_journal_that_was_exchanged_counts_nothing_more(tmp_path, put):
    """The lock was that of the old file: two processes counted, each in its own."""
    place = tmp_path / "journal"
    first = Journal(place)
    first.begin("plan")
    first.note("gradient", 1)
    place.rename(tmp_path / "old")
    second = Journal(place) if put else None
    with pytest.raises(errors.PlanError, match="removed or replaced"):
        first.note("gradient", 2)
    first.close()
    if second is not None:
        second.begin("plan")
        second.close()


def on_disk(tmp_path):
    X, y = rows(4000)
    return sordino.on_disk(sordino.to_disk(tmp_path / "rows", [(X, y)])), tmp_path / "rows" / "values.bin"


def test_door_26_a_time_that_was_set_back_hides_no_change(tmp_path):
    """`os.utime` after a write made the change unseen."""
    found, file = on_disk(tmp_path)
    found.require_unchanged()
    before = file.stat()
    time.sleep(0.02)
    with open(file, "r+b") as opened:
        opened.write(b"\0" * 64)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(errors.InvalidInputError, match="as it was when it was opened"):
        found.require_unchanged()


def test_door_26_pages_of_a_map_that_were_dirty_hide_no_change():
    """A page that another one had written to before changed without a time that says so.

    Files in memory, where other tests have theirs, have no such time: this one needs a disk.
    """
    X, y = rows(4000)
    with tempfile.TemporaryDirectory() as folder:
        place = sordino.to_disk(f"{folder}/rows", [(X, y)])
        with open(place / "values.bin", "r+b") as opened, mmap.mmap(opened.fileno(), 0) as pages:
            pages[:8] = pages[:8]  # dirty from here on
            found = sordino.on_disk(place)
            found.require_unchanged()
            time.sleep(0.02)
            pages[:8] = b"\1" * 8
            with pytest.raises(errors.InvalidInputError, match="as it was when it was opened"):
                found.require_unchanged()


def test_door_26_rows_whose_names_are_gone_are_still_read(tmp_path):
    import shutil

    found, file = on_disk(tmp_path)
    shutil.rmtree(file.parent)
    found.require_unchanged()
