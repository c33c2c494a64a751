"""Downloads: checked by digest, written beside the target and renamed, never half there."""

from __future__ import annotations

import hashlib
import http.client
import os
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from sordino.datasets.registry import DataFile
from sordino.errors import DataNotFoundError

Download = bool | Literal["unverified"]
_CHUNK = 1 << 18
_TIMEOUT_S = 30.0


class _BadDownload(Exception):
    """What came is not the file; the message says why."""


def fetch_file(file: DataFile, folder: Path, download: Download = True) -> Path:
    """Download a file into a folder and return its path.

    The digest is computed while the bytes arrive; only a whole, checked file gets its name.

    Raises
    ------
    DataNotFoundError
        If downloads are off, nobody serves the file, no digest of it is published (unless
        ``download="unverified"``), or every address failed. The message has one reason per address.
    """
    if not download:
        raise DataNotFoundError(f"Downloads are off, so {file.name} was not fetched.")
    if not file.urls:
        raise DataNotFoundError(f"Nobody serves {file.name} in this format.")
    if file.digest is None and download != "unverified":
        raise DataNotFoundError(
            f"No digest of {file.name} is published, so it is not downloaded by itself; allow it "
            'with download="unverified".'
        )
    reasons = []
    for url in file.urls:
        try:
            return _fetch(url, file, folder)
        except (OSError, http.client.HTTPException, _BadDownload) as error:
            reasons.append(f"{url} failed ({_reason(error)}).")
    raise DataNotFoundError(" ".join(reasons))


def _fetch(url: str, file: DataFile, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=folder, prefix=f".{file.name}.", suffix=".part")
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            _stream(url, file, out)
            out.flush()
            os.fsync(out.fileno())
        partial.chmod(0o644)
        os.replace(partial, folder / file.name)
    finally:
        partial.unlink(missing_ok=True)
    return folder / file.name


def _stream(url: str, file: DataFile, out: Any) -> None:
    """Copy an address into an open file and check length and digest."""
    algorithm, expected = file.digest or ("sha256", None)
    digest = hashlib.new(algorithm, usedforsecurity=False)
    request = urllib.request.Request(url, headers={"User-Agent": "sordino"})
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
        length = int(response.headers.get("Content-Length") or 0)
        received = 0
        with progress_bar(file.name, length) as advance:
            while block := response.read(_CHUNK):
                out.write(block)
                digest.update(block)
                received += len(block)
                advance(len(block))
    # http.client does not complain about a connection that closed early when it is read in blocks.
    if length and received != length:
        raise _BadDownload(f"the connection closed after {received:,} of {length:,} bytes")
    if expected is not None and digest.hexdigest() != expected:
        raise _BadDownload(f"its {algorithm} is not {expected}")


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return f"HTTP status {error.code}"
    if isinstance(error, urllib.error.URLError):
        return f"no connection: {error.reason}"
    return str(error) or type(error).__name__


@contextmanager
def progress_bar(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show progress on standard error if it is a terminal; yield a function to advance it."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console = Console(stderr=True)
    with Progress(*columns, TransferSpeedColumn(), console=console, transient=True) as progress:
        task = progress.add_task(name, total=total or None)
        yield lambda n: progress.advance(task, n)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
