"""Shared by the tests of the data sets: the folder with the real files, and a loopback server."""

import contextlib
import dataclasses
import functools
import http.server
import os
import threading
from pathlib import Path

import pytest

from sordino import datasets


@pytest.fixture(scope="session")
def data_folder():
    """Return the folder with the real data sets, or skip where there is none."""
    folder = os.environ.get("SORDINO_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("SORDINO_DATA does not name a folder with the data sets")
    return Path(folder)


@pytest.fixture(scope="session")
def real(data_folder):
    """Return a function that loads a real data set, each only once in a session."""

    @functools.cache
    def load(name, **options):
        return datasets.load(name, data_home=data_folder, download=False, **options)

    return load


class _Site:
    """A web site on loopback: answers by path, and a list of what was asked for."""

    def __init__(self, server):
        self.address = f"http://127.0.0.1:{server.server_port}"
        self.answers = {}
        self.asked = []

    def serve(self, path, body=b"", status=200, length=None):
        self.answers[path] = (status, body, len(body) if length is None else length)
        return f"{self.address}{path}"


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            site.asked.append(self.path)
            status, body, length = site.answers.get(self.path, (404, b"", 0))
            self.send_response(status)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with contextlib.closing(_Closing(Handler)) as running:
        site = running.site
        yield site


class _Closing:
    def __init__(self, handler):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.site = _Site(self.server)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def homes(tmp_path, monkeypatch):
    """Return (data folder, cache folder), both empty and known to the lookup."""
    data, cache = tmp_path / "data", tmp_path / "cache"
    data.mkdir()
    monkeypatch.setenv("SORDINO_DATA", str(data))
    monkeypatch.setenv("SORDINO_CACHE", str(cache))
    monkeypatch.delenv("SORDINO_OFFLINE", raising=False)
    return data, cache / "data"


@pytest.fixture
def replace_row(monkeypatch):
    """Return a function that changes a row of the registry for the time of a test."""
    rows = dict(datasets.REGISTRY)
    monkeypatch.setattr("sordino.datasets.loading.REGISTRY", rows)

    def replace(name, train, test=None, **changes):
        shapes = {"train": train} | ({} if test is None else {"test": test})
        rows[name] = dataclasses.replace(rows[name], **({"shapes": shapes} | changes))
        return rows[name]

    return replace
