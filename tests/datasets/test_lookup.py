"""Files are found in the data folder, then in the cache, then at the source."""

import dataclasses
import hashlib
import sys
from pathlib import Path

import pytest

from sordino import datasets
from sordino.datasets import REGISTRY, DataFile, Form, cache_dir
from sordino.datasets.lookup import Files, roots
from sordino.errors import DataNotFoundError, InvalidInputError

TRAIN = b"+1 1:0.5 3:1\n-1 2:0.25\n+1 1:1\n"
TEST = b"-1 1:0.5\n+1 2:2\n"


def _sha(body):
    return hashlib.sha256(body).hexdigest()


@pytest.fixture
def small(site, monkeypatch):
    """Replace a9a by three training and two test rows that the loopback site serves."""
    files = (
        DataFile("train", "a9a", _sha(TRAIN), urls=(site.serve("/a9a", TRAIN),)),
        DataFile("test", "a9a.t", _sha(TEST), urls=(site.serve("/a9a.t", TEST),)),
    )
    packed = Form("libsvm", (DataFile("train", "a9a.bz2"), DataFile("test", "a9a.t.bz2")), "Packed.")
    row = dataclasses.replace(
        REGISTRY["a9a"], train_shape=(3, 3), test_shape=(2, 3), forms=(packed, Form("libsvm", files))
    )
    monkeypatch.setitem(REGISTRY._rows, "a9a", row)
    return row


def _put(folder, name, body):
    (folder / "a9a").mkdir(parents=True, exist_ok=True)
    (folder / "a9a" / name).write_bytes(body)


def test_the_data_folder_comes_before_the_cache(homes, small, site):
    data, cache = homes
    _put(data, "a9a", TRAIN)
    _put(cache, "a9a", b"+1 1:9\n" * 3)
    assert datasets.load_a9a().data.max() == 1
    assert site.asked == []


def test_the_cache_comes_before_the_source(homes, small, site):
    _, cache = homes
    _put(cache, "a9a", b"+1 1:9\n" * 3)
    assert datasets.load_a9a().data.max() == 9
    assert site.asked == []


def test_a_missing_part_is_downloaded_into_the_cache_and_only_that_part(homes, small, site):
    _, cache = homes
    bunch = datasets.load_a9a()
    assert site.asked == ["/a9a"]
    assert (cache / "a9a" / "a9a").read_bytes() == TRAIN
    assert bunch.target.tolist() == [1, -1, 1]
    assert bunch.test_target.tolist() == [-1, 1]
    assert site.asked == ["/a9a", "/a9a.t"]
    datasets.load_a9a(split="all")
    assert site.asked == ["/a9a", "/a9a.t"]


def test_nothing_is_written_to_the_data_folder(homes, small):
    data, _ = homes
    datasets.load_a9a(split="all")
    assert list(data.rglob("*")) == []


def test_parts_in_different_folders_are_put_together(homes, small, site):
    data, cache = homes
    _put(data, "a9a", TRAIN)
    _put(cache, "a9a.t", TEST)
    assert datasets.load_a9a(split="all").shape == (5, 3)
    assert site.asked == []


def test_data_home_replaces_both_folders(homes, small, site, tmp_path):
    data, _ = homes
    _put(data, "a9a", TRAIN)
    datasets.load_a9a(data_home=tmp_path / "mine")
    assert site.asked == ["/a9a"]
    assert (tmp_path / "mine" / "a9a" / "a9a").is_file()


@pytest.mark.parametrize("off", ["argument", "environment"])
def test_offline_and_absent_says_which_file_to_put_where(homes, small, site, monkeypatch, off):
    data, cache = homes
    if off == "environment":
        monkeypatch.setenv("SORDINO_OFFLINE", "1")
    with pytest.raises(DataNotFoundError) as caught:
        datasets.load_a9a(download=off != "argument")
    message = str(caught.value)
    for part in (
        "a9a.bz2, or a9a into",
        str(data / "a9a"),
        str(cache / "a9a"),
        "SORDINO_DATA",
        f"{site.address}/a9a",
        "Downloads are off",
        "Packed.",
    ):
        assert part in message
    assert isinstance(caught.value, FileNotFoundError)
    assert site.asked == []


def test_a_failed_download_names_the_reason_and_the_place(homes, small, site):
    site.serve("/a9a", b"+1 1:0.5\n")
    with pytest.raises(DataNotFoundError, match=r"sha256 is not.*Put a9a\.bz2, or a9a into"):
        datasets.load_a9a()
    _, cache = homes
    assert list((cache / "a9a").iterdir()) == []


@pytest.mark.parametrize(
    ("loader", "arguments", "file"),
    [
        ("load_donor_pva", (), "donor.csv.xz"),
        ("load_microarray", ("alon",), "alon.npz"),
        ("load_rcv1_sample", (), "X_train.npz and labels.npz"),
    ],
)
def test_a_repacked_set_says_that_nobody_serves_it(homes, loader, arguments, file):
    with pytest.raises(DataNotFoundError, match="no public original in this format") as caught:
        getattr(datasets, loader)(*arguments)
    assert f"Put {file} into" in str(caught.value)


def test_e2006_test_part_is_not_downloaded_without_being_asked(homes):
    with pytest.raises(DataNotFoundError, match=r'E2006\.test\.bz2.*download="unverified"'):
        datasets.load_e2006(split="test")


def test_a_wrong_download_option_is_refused():
    with pytest.raises(InvalidInputError, match="'maybe'"):
        Files(REGISTRY["a9a"], download="maybe")


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("SORDINO_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.delenv("SORDINO_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "sordino"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == Path.home() / ".cache" / "sordino"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_dir() == Path.home() / "Library" / "Caches" / "sordino"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache_dir() == tmp_path / "local" / "sordino"


def test_without_a_data_folder_only_the_cache_is_searched(monkeypatch, tmp_path):
    monkeypatch.delenv("SORDINO_DATA", raising=False)
    monkeypatch.setenv("SORDINO_CACHE", str(tmp_path))
    assert roots() == (tmp_path / "data",)


def test_an_archive_is_converted_after_everything_that_can_be_read(homes):
    """A packed form in the cache wins over an archive in the data folder."""
    data, cache = homes
    row = REGISTRY["imdb"]
    for folder in (data, cache):
        (folder / "imdb").mkdir(parents=True)
    (data / "imdb" / "aclImdb_v1.tar.gz").touch()
    (cache / "imdb" / "train_counts.npz").touch()
    (cache / "imdb" / "labels.npz").touch()
    form, paths = Files(row, download=False).locate("train")
    assert form.converter is None
    assert set(paths) == {"train", "labels"}
    form, paths = Files(row, download=False).locate("test")
    assert form.converter == "imdb"
    assert set(paths) == {"archive"}
