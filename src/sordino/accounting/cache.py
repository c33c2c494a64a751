"""Calibrations remembered in the process and on disk.

Losing the cache costs a second, never correctness, and what it says is never believed: ``solve_scale``
certifies a remembered scale before it is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import tempfile
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from sordino.kernel.machine_code import cache_folder

FORMAT = 4
"""Raised whenever an accountant changes, so that old results are not found any more."""


MOST = 256
"""How many solutions a process remembers."""

_MEMORY: dict[str, float] = {}


def cache_key(*parts: object) -> str:
    """Return the hash of a problem together with what solves it."""
    text = json.dumps([FORMAT, _accounting_version(), *parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def recall(key: str) -> float | None:
    """Return the scale this process found before; fits that repeat need no file."""
    return _MEMORY.get(key)


def keep(key: str, scale: float) -> None:
    """Remember a scale as long as the process lives; the oldest one goes when there are many."""
    _MEMORY[key] = scale
    if len(_MEMORY) > MOST:
        _MEMORY.pop(next(iter(_MEMORY)), None)


def load(key: str) -> float | None:
    """Return the scale on disk; None if it is absent or odd in any way."""
    try:
        data = json.loads(_path(key).read_text())
        scale = data["scale"]
    except (OSError, ValueError, TypeError, KeyError, RuntimeError):  # RecursionError is a RuntimeError
        return None
    if data.get("key") != key or type(scale) is not float or not 0 < scale < math.inf:
        return None
    return scale


def store(key: str, scale: float) -> None:
    """Remember a scale on disk; a folder that cannot be written is no reason to fail."""
    text = json.dumps({"key": key, "scale": scale})
    with contextlib.suppress(OSError, RuntimeError):
        path = _path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
            os.replace(name, path)  # readers see the old file or the new one, never half of one
        except OSError:
            os.unlink(name)


def _path(key: str) -> Path:
    return cache_folder() / "calibration" / f"{key}.json"


@lru_cache(maxsize=1)
def _accounting_version() -> str:
    return metadata.version("dp-accounting")
