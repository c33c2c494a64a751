"""Each parser reads each container its sources serve, and refuses what is damaged."""

import bz2
import functools
import gzip
import io
import lzma
import struct
import sys
import tarfile
import traceback

import numpy as np
import pytest
from scipy import sparse

from sordino import datasets
from sordino.errors import DataNotFoundError, MissingExtraError


@pytest.fixture
def shrink(replace_row, tmp_path):
    """Return a function that gives a row a small shape; files go to the folder it returns."""

    def shrink(name, train, test=None, **changes):
        folder = tmp_path / replace_row(name, train, test, **changes).folder
        folder.mkdir(exist_ok=True)
        return folder

    return shrink


@pytest.fixture
def load(tmp_path):
    return functools.partial(datasets.load, data_home=tmp_path, download=False)


LIBSVM = b"-1.0 1:0.5 3:0.0\n+1 2:-0.25\n"


@pytest.mark.parametrize(("name", "pack"), [("a9a.bz2", bz2.compress), ("a9a", bytes)])
def test_libsvm_text_is_read_packed_and_plain(shrink, load, name, pack):
    (shrink("a9a", (2, 4)) / name).write_bytes(pack(LIBSVM))
    bunch = load("a9a", split="train", dtype="float32")
    assert bunch.data.toarray().tolist() == [[0.5, 0, 0, 0], [0, -0.25, 0, 0]]
    assert bunch.data.dtype == np.float32
    assert bunch.data.nnz == 3
    assert bunch.data.indices.dtype == np.int32
    assert bunch.target.dtype == np.int64


def test_regression_targets_stay_real_numbers(shrink, load):
    folder = shrink("e2006", (2, 3))
    (folder / "E2006.train.bz2").write_bytes(bz2.compress(b"-3.5 1:1\n-2.25 3:1\n"))
    assert load("e2006").target.tolist() == [-3.5, -2.25]


ADULT = [
    b"39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, "
    b"2174, 0, 40, United-States, <=50K",
    b"50, ?, 83311, Masters, 14, Divorced, ?, Unmarried, Black, Female, 0, 0, 13, Cuba, >50K",
]


def test_adult_is_read_as_served_and_as_packed(shrink, load):
    folder = shrink("adult", (2, 14), (2, 14))
    (folder / "adult.data.xz").write_bytes(lzma.compress(b"\n".join(ADULT) + b"\n"))
    served = b"|1x3 Cross validator\n" + b"".join(row + b".\n" for row in ADULT) + b"\n"
    (folder / "adult.test").write_bytes(served)
    train = load("adult", missing="zero")
    test = load("adult", missing="zero", split="test")
    assert (train.data != test.data).nnz == 0
    assert train.target.tolist() == test.target.tolist() == [0, 1]
    assert load("adult").shape == (1, 104)


def test_idx_files_are_read(shrink, load):
    folder = shrink("mnist", (2, 2, 3))
    pixels = bytes(range(12))
    images = b"\0\0\x08\x03" + struct.pack(">III", 2, 2, 3) + pixels
    (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
    labels = b"\0\0\x08\x01" + struct.pack(">I", 2) + b"\x07\x01"
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    bunch = load("mnist", dtype="uint8", flatten=False)
    assert bunch.data.tolist() == [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]]
    assert bunch.target.tolist() == [7, 1]
    assert load("mnist").data[1, 5] == pytest.approx(11 / 255)


def _tar(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, body in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))


def _cifar(labels):
    """Make records whose red, green and blue planes are the label, 100 and 200."""
    planes = np.repeat(np.array([0, 100, 200], dtype=np.uint8), 1024)
    records = []
    for label in labels:
        pixels = planes.copy()
        pixels[:1024] = label
        records.append(bytes([label]) + pixels.tobytes())
    return b"".join(records)


@pytest.mark.parametrize("name", ["cifar10", "cifar10_full"])
def test_cifar_binary_archive_gives_the_subset_and_the_whole(shrink, load, name):
    folder = shrink(name, (3, 32, 32, 3), (1, 32, 32, 3))
    members = {"cifar-10-batches-bin/readme.html": b"<p>"}
    members["cifar-10-batches-bin/data_batch_1.bin"] = _cifar([3, 1, 2, 9])
    members["cifar-10-batches-bin/test_batch.bin"] = _cifar([5, 6])
    _tar(folder / "cifar-10-binary.tar.gz", members)
    bunch = load(name, flatten=False, dtype="uint8")
    assert bunch.target.tolist() == [3, 1, 2]
    assert bunch.data[1, 7, 31].tolist() == [1, 100, 200]
    assert bunch.test_target.tolist() == [5]


def test_pneumonia_is_read_with_the_keys_of_medmnist(shrink, load):
    shapes = {"train": (3, 2, 2), "validation": (2, 2, 2), "test": (1, 2, 2)}
    folder = shrink("pneumoniamnist", None, shapes=shapes)
    arrays = {}
    for part, n in [("train", 3), ("val", 2), ("test", 1)]:
        arrays[f"{part}_images"] = np.full((n, 2, 2), 51, dtype=np.uint8)
        arrays[f"{part}_labels"] = np.arange(n, dtype=np.uint8)[:, None] % 2
    np.savez(folder / "pneumoniamnist.npz", **arrays)
    bunch = load("pneumoniamnist")
    assert bunch.data[0, 0] == pytest.approx(0.2)
    assert (len(bunch.target), len(bunch.validation_target), len(bunch.test_target)) == (3, 2, 1)
    assert load("pneumoniamnist", split="train+validation").target.tolist() == [0, 1, 0, 0, 1]
    assert load("pneumoniamnist", split="all").target.tolist() == [0, 1, 0, 0, 1, 0]
    assert load("pneumoniamnist", split="test").shape == (1, 4)


NEWS = {
    "20news-bydate-train/alt.atheism/9": "naïve doubt doubt".encode("latin-1"),
    "20news-bydate-train/alt.atheism/10": b"No faith",
    "20news-bydate-train/sci.space/5": b"orbit doubt",
    "20news-bydate-test/sci.space/7": b"orbit orbit unseen",
}


def test_newsgroups_archive_is_counted_once(shrink, load, tmp_path):
    folder = shrink("20news", (3, 5), (1, 5))
    _tar(folder / "20news-bydate.tar.gz", NEWS)
    bunch = load("20news")
    assert bunch.feature_names == ["doubt", "faith", "naïve", "no", "orbit"]
    assert bunch.target.tolist() == [0, 0, 1]
    assert bunch.data.toarray().tolist() == [[0, 1, 0, 1, 0], [2, 0, 1, 0, 0], [1, 0, 0, 0, 1]]
    assert bunch.test_data.toarray().tolist() == [[0, 0, 0, 0, 2]]
    assert bunch.test_target.tolist() == [1]
    (folder / "20news-bydate.tar.gz").unlink()
    assert load("20news", split="all").shape == (4, 5)
    names = {"labels.npz", "train_counts.npz", "test_counts.npz", "vocabulary.txt.xz"}
    assert {path.name for path in folder.iterdir()} == names


def test_imdb_archive_gives_sentiment_and_stars(shrink, load):
    folder = shrink("imdb", (2, 2), (1, 2))
    members = {
        "aclImdb/train/pos/0_9.txt": "café good".encode(),
        "aclImdb/train/neg/1_2.txt": b"good",
        "aclImdb/train/unsup/2_0.txt": b"not counted",
        "aclImdb/test/pos/0_10.txt": b"good good",
        "aclImdb/README": b"read me",
    }
    _tar(folder / "aclImdb_v1.tar.gz", members)
    bunch = load("imdb")
    assert (bunch.target.tolist(), bunch.rating.tolist()) == ([0, 1], [2, 9])
    assert (bunch.test_target.tolist(), bunch.test_rating.tolist()) == ([1], [10])
    assert bunch.feature_names == ["café", "good"]
    stars = load("imdb", target="rating", split="test")
    assert stars.target.tolist() == [10.0]


def test_a_damaged_archive_is_reported(shrink, load):
    folder = shrink("imdb", (2, 2), (1, 2))
    (folder / "aclImdb_v1.tar.gz").write_bytes(b"SECRET-7781 is no archive")
    with pytest.raises(DataNotFoundError, match=r"aclImdb_v1\.tar\.gz cannot be read") as caught:
        load("imdb")
    assert SECRET not in "".join(traceback.format_exception(caught.value))


SECRET = "SECRET-7781"


def _damage_libsvm(folder):
    (folder / "a9a").write_bytes(f"+1 1:{SECRET}\n{SECRET} 2:1\n".encode())


def _damage_columns(folder):
    (folder / "a9a").write_bytes(b"+1 9:7781\n-1 1:7781\n")


def _damage_rows(folder):
    (folder / "a9a").write_bytes(b"+1 1:7781\n")


def _damage_packing(folder):
    (folder / "a9a.bz2").write_bytes(SECRET.encode())


@pytest.mark.parametrize("damage", [_damage_libsvm, _damage_columns, _damage_rows, _damage_packing])
def test_a_damaged_file_is_named_and_its_contents_are_not(shrink, load, damage):
    folder = shrink("a9a", (2, 3))
    damage(folder)
    with pytest.raises(DataNotFoundError, match="damaged or holds something else") as caught:
        load("a9a")
    shown = "".join(traceback.format_exception(caught.value))
    assert "7781" not in shown
    assert str(folder) in str(caught.value)


def test_a_damaged_table_is_named_and_its_contents_are_not(shrink, load):
    folder = shrink("adult", (2, 14), (2, 14))
    (folder / "adult.data").write_bytes(f"39, {SECRET}\n{SECRET}, 1, 2\n".encode())
    with pytest.raises(DataNotFoundError) as caught:
        load("adult")
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_pickled_arrays_are_refused(shrink, load):
    folder = shrink("microarray_alon", (2, 2))
    np.savez(folder / "alon.npz", X=np.array([[1, 2], [3, "x"]], dtype=object), y=np.zeros(2))
    with pytest.raises(DataNotFoundError):
        load("microarray_alon")


def test_an_archive_that_would_write_outside_its_folder_is_refused(shrink, load, tmp_path):
    folder = shrink("imdb", (2, 2), (1, 2))
    _tar(folder / "aclImdb_v1.tar.gz", {"../../escaped.txt": b"out"})
    with pytest.raises(DataNotFoundError):
        load("imdb")
    assert not list(tmp_path.rglob("escaped.txt"))


def test_a_table_without_pandas_names_the_extra(shrink, load, monkeypatch):
    folder = shrink("adult", (2, 14))
    (folder / "adult.data").write_bytes(b"\n".join(ADULT))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"sordino\[datasets\]"):
        load("adult")


def test_an_undeclared_label_is_refused_and_not_shown(shrink, load):
    folder = shrink("adult", (2, 14))
    (folder / "adult.data").write_bytes(b"\n".join(ADULT).replace(b">50K", SECRET.encode()))
    with pytest.raises(DataNotFoundError, match="damaged") as caught:
        load("adult")
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_counts_and_labels_of_different_lengths_are_refused(shrink, load):
    folder = shrink("imdb", (2, 2), (1, 2))
    sparse.save_npz(folder / "train_counts.npz", sparse.csr_matrix(np.eye(2)))
    np.savez(folder / "labels.npz", y_train=np.zeros(3), rating_train=np.zeros(3))
    with pytest.raises(DataNotFoundError):
        load("imdb")
