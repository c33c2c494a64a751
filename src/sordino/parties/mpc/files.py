"""Files and folders that nobody but their owner can read, on systems that know owners."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

_FLAGS = {
    "wb": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "xb": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "ab": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
}


def private_folder(path: Path) -> Path:
    """Make a folder, and take everybody else's rights on it away if it was there before."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    if os.name == "posix":
        path.chmod(0o700)
    return path


def open_private(path: Path, mode: str) -> IO[Any]:
    """Open a file for writing; it is its owner's alone from its first byte on."""
    handle = os.open(path, _FLAGS[mode] | getattr(os, "O_NOFOLLOW", 0), 0o600)
    if os.name == "posix":
        os.fchmod(handle, 0o600)
    return os.fdopen(handle, mode)
