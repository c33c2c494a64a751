"""Downloads come whole and checked, or not at all."""

import contextlib
import hashlib
import io
import socket
import sys
import threading

import pytest

from sordino.datasets import DataFile
from sordino.datasets import download as module
from sordino.datasets.download import fetch_file
from sordino.errors import DataNotFoundError

BODY = b"0123456789abcdef" * 40_000
SHA = hashlib.sha256(BODY).hexdigest()
MD5 = hashlib.md5(BODY, usedforsecurity=False).hexdigest()


def _file(*urls, sha256=SHA, md5=None):
    return DataFile("train", "rows.bin", sha256=sha256, md5=md5, urls=urls)


def _closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("digest", [{"sha256": SHA}, {"sha256": None, "md5": MD5}])
def test_a_good_file_arrives_with_its_name_and_nothing_else(site, tmp_path, digest):
    url = site.serve("/rows.bin", BODY)
    path = fetch_file(_file(url, **digest), tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "rows.bin"
    assert path.read_bytes() == BODY
    assert [p.name for p in path.parent.iterdir()] == ["rows.bin"]


@pytest.mark.parametrize("digest", [{"sha256": "0" * 64}, {"sha256": None, "md5": "0" * 32}])
def test_a_wrong_digest_leaves_no_file(site, tmp_path, digest):
    url = site.serve("/rows.bin", BODY)
    kind = "md5" if "md5" in digest else "sha256"
    with pytest.raises(DataNotFoundError, match=f"its {kind} is not 000"):
        fetch_file(_file(url, **digest), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_truncated_file_is_refused_even_if_no_digest_is_known(site, tmp_path):
    url = site.serve("/rows.bin", BODY[:1000], length=len(BODY))
    with pytest.raises(DataNotFoundError, match="closed after 1,000 of 640,000 bytes"):
        fetch_file(_file(url, sha256=None), tmp_path, "unverified")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_page_is_reported_by_its_status(site, tmp_path):
    with pytest.raises(DataNotFoundError, match="HTTP status 404"):
        fetch_file(_file(f"{site.address}/nowhere"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_host_that_does_not_answer_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(DataNotFoundError, match="no connection"):
        fetch_file(_file(f"http://127.0.0.1:{_closed_port()}/rows.bin"), tmp_path)


def test_the_next_address_is_tried_when_one_fails(site, tmp_path):
    bad = site.serve("/bad.bin", BODY[:-1] + b"!")
    good = site.serve("/good.bin", BODY)
    assert fetch_file(_file(f"{site.address}/gone", bad, good), tmp_path).read_bytes() == BODY
    assert site.asked == ["/gone", "/bad.bin", "/good.bin"]


def test_a_file_without_a_digest_is_fetched_only_when_that_is_allowed(site, tmp_path):
    url = site.serve("/rows.bin", BODY)
    with pytest.raises(DataNotFoundError, match='download="unverified"'):
        fetch_file(_file(url, sha256=None), tmp_path)
    assert site.asked == []
    assert fetch_file(_file(url, sha256=None), tmp_path, "unverified").read_bytes() == BODY


def test_unverified_still_checks_a_known_digest(site, tmp_path):
    url = site.serve("/rows.bin", BODY)
    with pytest.raises(DataNotFoundError, match="sha256"):
        fetch_file(_file(url, sha256="1" * 64), tmp_path, "unverified")


def test_nothing_is_asked_for_when_downloads_are_off(site, tmp_path):
    url = site.serve("/rows.bin", BODY)
    with pytest.raises(DataNotFoundError, match="Downloads are off"):
        fetch_file(_file(url), tmp_path, False)
    assert site.asked == []


def test_an_interrupted_download_leaves_no_file_and_keeps_the_old_one(site, tmp_path, monkeypatch):
    url = site.serve("/rows.bin", BODY)
    (tmp_path / "rows.bin").write_bytes(b"old")

    def interrupt(_):
        raise KeyboardInterrupt

    @contextlib.contextmanager
    def bar(name, total):
        yield interrupt

    monkeypatch.setattr(module, "progress_bar", bar)
    with pytest.raises(KeyboardInterrupt):
        fetch_file(_file(url), tmp_path)
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("rows.bin", b"old")]


def test_two_downloads_of_one_file_at_a_time_both_end_with_the_whole_file(site, tmp_path):
    file = _file(site.serve("/rows.bin", BODY))
    threads = [threading.Thread(target=fetch_file, args=(file, tmp_path)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(p.name, p.read_bytes() == BODY) for p in tmp_path.iterdir()] == [("rows.bin", True)]


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_shown_on_a_terminal_only(site, tmp_path, monkeypatch, capfd):
    file = _file(site.serve("/rows.bin", BODY))
    fetch_file(file, tmp_path)
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr(sys, "stderr", _Terminal())
    monkeypatch.setenv("TERM", "xterm")
    fetch_file(file, tmp_path)
    assert "rows.bin" in sys.stderr.getvalue()
    assert capfd.readouterr().out == ""


def test_an_unwritable_folder_is_reported_with_the_address(site, tmp_path):
    url = site.serve("/rows.bin", BODY)
    (tmp_path / "taken").write_bytes(b"a file, not a folder")
    with pytest.raises(DataNotFoundError, match=r"rows\.bin failed"):
        fetch_file(_file(url), tmp_path / "taken")
