"""Files that memory does not hold: the same model from disk, nothing left there, the same refusals."""

import numpy as np
import pandas
import pytest
from sklearn.datasets import dump_svmlight_file
from tests.cli.helpers import table, typed

import sordino
from sordino.cli import rows as large
from sordino.execute.disk import DiskExecutor
from sordino.kernel.noise import seeded_noise_not_private
from sordino.tables.files import DataFile

FIT = ("--set", "data_norm=3", "--set", "max_iter=4", "--epsilon", 2, "--force", "--output", "m.sordino")
X, Y = table(400)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    pandas.DataFrame(X, columns=list("abcd")).assign(y=Y).to_parquet("people.parquet")
    dump_svmlight_file(X, Y == "yes", "people.svm", zero_based=False)
    return tmp_path


def fitted(memory, monkeypatch, *words):
    """Return the coefficients that a command finds with so many bytes for rows, and what it said."""
    monkeypatch.setattr("sordino.cli.rows.memory_for_rows", lambda megabytes: memory)
    with seeded_noise_not_private(3, same_for_every_fit=True):
        said = typed("fit", *words, *FIT)
    return sordino.load("m.sordino"), said


CASES = {
    "labels": ("people.parquet", "--target", "y", "--model", "logistic", "--classes", "no,yes"),
    "numbers": ("people.parquet", "--target", "d", "--model", "linear", "--set", "target_bound=3"),
    "libsvm": ("people.svm", "--features", 4, "--model", "logistic", "--classes", "0,1"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_large_file_gives_the_model_of_one_that_fits_and_leaves_nothing_behind(case, folder, monkeypatch):
    words = CASES[case]
    if case == "numbers":
        pandas.DataFrame(X, columns=list("abcd")).to_parquet("people.parquet")
    asked, honest = [], DiskExecutor.total
    monkeypatch.setattr(DiskExecutor, "total", lambda *a: asked.append(1) or honest(*a))
    whole, said = fitted(1 << 30, monkeypatch, *words)
    assert not asked
    assert "from disk" not in said
    pieces, said = fitted(5000, monkeypatch, *words)
    assert asked
    assert "from disk" in said
    np.testing.assert_allclose(pieces.coef_, whole.coef_, rtol=1e-9, atol=1e-12)
    names = [getattr(model, "feature_names_in_", np.array([])).tolist() for model in (whole, pieces)]
    assert names[0] == names[1]
    assert list((folder / "temporary").iterdir()) == []


def test_labels_with_gaps_are_refused_from_disk_too(folder, monkeypatch):
    gaps = np.where(np.arange(400) == 7, None, Y)
    pandas.DataFrame(X, columns=list("abcd")).assign(y=gaps).to_parquet("people.parquet")
    monkeypatch.setattr("sordino.cli.rows.memory_for_rows", lambda megabytes: 5000)
    assert "has gaps" in typed("fit", *CASES["labels"], *FIT, code=3)
    assert list((folder / "temporary").iterdir()) == []


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_features_with_gaps_are_refused_from_disk_as_in_memory(folder, monkeypatch, value):
    holes = np.where(np.arange(400)[:, None] == 7, value, X)
    pandas.DataFrame(holes, columns=list("abcd")).assign(y=Y).to_parquet("people.parquet")
    in_memory = typed("fit", *CASES["labels"], *FIT, code=3)
    monkeypatch.setattr("sordino.cli.rows.memory_for_rows", lambda megabytes: 5000)
    from_disk = typed("fit", *CASES["labels"], *FIT, code=3)
    for words in (in_memory, from_disk):
        assert "Traceback" not in words
        assert "public rule" in words
    assert list((folder / "temporary").iterdir()) == []


def test_what_is_large_is_told_from_sizes_alone(folder):
    assert large.memory_for_rows(3) == 3 << 20
    assert large.memory_for_rows(None) > 1 << 28
    size = (folder / "people.svm").stat().st_size
    for name, least in (("people.svm", 3 * size), ("people.parquet", 2 * 8 * 400 * 5)):
        assert large.is_large(DataFile(name), least - 1)
        assert not large.is_large(DataFile(name), least)
    assert not large.is_large(DataFile("people.csv"), 1)
    assert not large.is_large(DataFile("-"), 1)
