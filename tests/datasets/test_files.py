"""Files are found in the data folder, then in the cache, then at the source, whole and checked."""

import hashlib
import socket
import sys
import threading

import pytest

from sordino import datasets
from sordino.datasets import REGISTRY, DataFile
from sordino.datasets.loading import Files, fetch, roots
from sordino.errors import DataNotFoundError, InvalidInputError, MissingExtraError
from sordino.kernel.arrays import cache_folder

TRAIN = b"+1 1:0.5 3:1\n-1 2:0.25\n+1 1:1\n"
TEST = b"-1 1:0.5\n+1 2:2\n"
BODY = b"0123456789abcdef" * 40_000
SHA = hashlib.sha256(BODY).hexdigest()
MD5 = hashlib.md5(BODY, usedforsecurity=False).hexdigest()


def _sha(body):
    return hashlib.sha256(body).hexdigest()


# ------------------------------------------------------------------------------ which file is read


@pytest.fixture
def small(site, replace_row):
    """Replace a9a by three training and two test rows that the loopback site serves."""
    files = (
        DataFile("train", "a9a.bz2"),
        DataFile("test", "a9a.t.bz2"),
        DataFile("train", "a9a", _sha(TRAIN), urls=(site.serve("/a9a", TRAIN),)),
        DataFile("test", "a9a.t", _sha(TEST), urls=(site.serve("/a9a.t", TEST),)),
    )
    return replace_row("a9a", (3, 3), (2, 3), files=files, note="Packed.")


def _put(folder, name, body):
    (folder / "a9a").mkdir(parents=True, exist_ok=True)
    (folder / "a9a" / name).write_bytes(body)


def test_the_data_folder_comes_before_the_cache(homes, small, site):
    data, cache = homes
    _put(data, "a9a", TRAIN)
    _put(cache, "a9a", b"+1 1:9\n" * 3)
    assert datasets.load("a9a", split="train").data.max() == 1
    assert site.asked == []


def test_the_cache_comes_before_the_source(homes, small, site):
    _, cache = homes
    _put(cache, "a9a", b"+1 1:9\n" * 3)
    assert datasets.load("a9a", split="train").data.max() == 9
    assert site.asked == []


def test_a_missing_part_is_downloaded_into_the_cache_and_only_that_part(homes, small, site):
    _, cache = homes
    bunch = datasets.load("a9a", split="train")
    assert site.asked == ["/a9a"]
    assert (cache / "a9a" / "a9a").read_bytes() == TRAIN
    assert bunch.target.tolist() == [1, -1, 1]
    assert datasets.load("a9a").test_target.tolist() == [-1, 1]
    assert site.asked == ["/a9a", "/a9a.t"]
    datasets.load("a9a", split="all")
    assert site.asked == ["/a9a", "/a9a.t"]


def test_nothing_is_written_to_the_data_folder(homes, small):
    data, _ = homes
    datasets.load("a9a", split="all")
    assert list(data.rglob("*")) == []


def test_parts_in_different_folders_are_put_together(homes, small, site):
    data, cache = homes
    _put(data, "a9a", TRAIN)
    _put(cache, "a9a.t", TEST)
    assert datasets.load("a9a", split="all").shape == (5, 3)
    assert site.asked == []


def test_data_home_replaces_both_folders(homes, small, site, tmp_path):
    data, _ = homes
    _put(data, "a9a", TRAIN)
    datasets.load("a9a", split="train", data_home=tmp_path / "mine")
    assert site.asked == ["/a9a"]
    assert (tmp_path / "mine" / "a9a" / "a9a").is_file()


@pytest.mark.parametrize("off", ["argument", "environment"])
def test_offline_and_absent_says_which_file_to_put_where(homes, small, site, monkeypatch, off):
    data, cache = homes
    if off == "environment":
        monkeypatch.setenv("SORDINO_OFFLINE", "1")
    with pytest.raises(DataNotFoundError) as caught:
        datasets.load("a9a", download=off != "argument")
    message = str(caught.value)
    for part in (
        "Put a9a.bz2 or a9a into",
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
    with pytest.raises(DataNotFoundError, match=r"SHA256 hash.*Put a9a\.bz2 or a9a into"):
        datasets.load("a9a")
    _, cache = homes
    assert list((cache / "a9a").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("donor_pva", "donor.csv.xz"),
        ("microarray_alon", "alon.npz"),
        ("microarray_west", "west.npz"),
        ("rcv1_sample", "X_train.npz"),
    ],
)
def test_a_repacked_set_says_that_nobody_serves_it(homes, name, file):
    with pytest.raises(DataNotFoundError, match="no public original in this format") as caught:
        datasets.load(name)
    assert f"Put {file} into" in str(caught.value)


def test_e2006_test_part_is_not_downloaded_without_being_asked(homes):
    with pytest.raises(DataNotFoundError, match=r'E2006\.test\.bz2.*download="unverified"'):
        datasets.load("e2006", split="test")


def test_a_wrong_download_option_is_refused():
    with pytest.raises(InvalidInputError, match="'maybe'"):
        Files(REGISTRY["a9a"], download="maybe")


def test_without_a_data_folder_only_the_cache_is_searched(monkeypatch, tmp_path):
    monkeypatch.delenv("SORDINO_DATA", raising=False)
    monkeypatch.setenv("SORDINO_CACHE", str(tmp_path))
    assert roots() == (tmp_path / "data",)
    monkeypatch.delenv("SORDINO_CACHE")
    assert roots() == (cache_folder() / "data",)


# --------------------------------------------------------- downloads come whole and checked, or not


def _file(*urls, sha256=SHA, md5=None):
    return DataFile("train", "rows.bin", sha256=sha256, md5=md5, urls=urls)


def _refusal(file, folder):
    """Return why a file was not fetched, after looking that nothing was left behind."""
    reasons = []
    assert fetch(file, folder, reasons) is None
    assert not folder.is_dir() or list(folder.iterdir()) == []
    return " ".join(reasons)


@pytest.mark.parametrize("digest", [{"sha256": SHA}, {"sha256": None, "md5": MD5}])
def test_a_good_file_arrives_with_its_name_and_nothing_else(site, tmp_path, digest):
    url = site.serve("/rows.bin", BODY)
    path = fetch(_file(url, **digest), tmp_path / "new" / "folder", [])
    assert path == tmp_path / "new" / "folder" / "rows.bin"
    assert path.read_bytes() == BODY
    assert [p.name for p in path.parent.iterdir()] == ["rows.bin"]


@pytest.mark.parametrize("digest", [{"sha256": "0" * 64}, {"sha256": None, "md5": "0" * 32}])
def test_a_wrong_digest_leaves_no_file(site, tmp_path, digest):
    url = site.serve("/rows.bin", BODY)
    kind = "MD5" if "md5" in digest else "SHA256"
    assert f"{kind} hash" in _refusal(_file(url, **digest), tmp_path)


def test_a_truncated_file_is_refused_even_if_no_digest_is_known(site, tmp_path):
    url = site.serve("/rows.bin", BODY[:1000], length=len(BODY))
    assert "1000 bytes read" in _refusal(_file(url, sha256=None), tmp_path)


def test_a_missing_page_is_reported_by_its_status(site, tmp_path):
    assert "404" in _refusal(_file(f"{site.address}/nowhere"), tmp_path)


def test_a_host_that_does_not_answer_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert "refused" in _refusal(_file(f"http://127.0.0.1:{port}/rows.bin"), tmp_path)


def test_the_next_address_is_tried_when_one_fails(site, tmp_path):
    bad = site.serve("/bad.bin", BODY[:-1] + b"!")
    good = site.serve("/good.bin", BODY)
    assert fetch(_file(f"{site.address}/gone", bad, good), tmp_path, []).read_bytes() == BODY
    assert site.asked == ["/gone", "/bad.bin", "/good.bin"]


def test_a_file_without_a_digest_is_fetched_only_when_that_is_allowed(homes, site, replace_row):
    url = site.serve("/rows", TRAIN)
    replace_row("a9a", (3, 3), files=(DataFile("train", "rows", urls=(url,)),))
    with pytest.raises(DataNotFoundError, match='download="unverified"'):
        datasets.load("a9a")
    assert site.asked == []
    assert datasets.load("a9a", download="unverified").shape == (3, 3)


def test_unverified_still_checks_a_known_digest(homes, site, replace_row):
    url = site.serve("/rows", TRAIN)
    replace_row("a9a", (3, 3), files=(DataFile("train", "rows", "1" * 64, urls=(url,)),))
    with pytest.raises(DataNotFoundError, match="SHA256"):
        datasets.load("a9a", download="unverified")


def test_two_downloads_of_one_file_at_a_time_both_end_with_the_whole_file(site, tmp_path):
    file = _file(site.serve("/rows.bin", BODY))
    threads = [threading.Thread(target=fetch, args=(file, tmp_path, [])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(p.name, p.read_bytes() == BODY) for p in tmp_path.iterdir()] == [("rows.bin", True)]


def test_an_unwritable_folder_is_reported_with_the_address(site, tmp_path):
    url = site.serve("/rows.bin", BODY)
    (tmp_path / "taken").write_bytes(b"a file, not a folder")
    assert "rows.bin failed" in _refusal(_file(url), tmp_path / "taken")


def test_a_download_without_pooch_names_the_extra(homes, small, site, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(MissingExtraError, match=r"sordino\[datasets\]"):
        datasets.load("a9a")
    assert site.asked == []
