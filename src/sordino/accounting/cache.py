"""Calibrations remembered on disk. Losing the cache costs a second, never correctness."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path

FORMAT = 1
"""Raised whenever an accountant changes, so that old results are not found any more."""


@dataclass(frozen=True)
class Solution:
    """A noise scale and the epsilon that was certified for it."""

    scale: float
    epsilon: float


def cache_folder() -> Path:
    """Return the folder: ``$SORDINO_CACHE``, else ``sordino`` in the user's cache folder."""
    chosen = os.environ.get("SORDINO_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(base) if base else Path.home() / ".cache") / "sordino"


def cache_key(*parts: object) -> str:
    """Return the hash of a problem together with what solves it."""
    text = json.dumps([FORMAT, _accounting_version(), *parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def load(key: str, epsilon: float) -> Solution | None:
    """Return a remembered solution for the target ``epsilon``; None if it is absent or odd in any way."""
    try:
        data = json.loads(_path(key).read_text())
        scale, certified = data["scale"], data["epsilon"]
    except (OSError, ValueError, TypeError, KeyError, RuntimeError):
        return None
    if data.get("key") != key or type(scale) is not float or type(certified) is not float:
        return None
    if not 0 < scale < math.inf or not 0.99 * epsilon < certified <= epsilon:
        return None
    return Solution(scale, certified)


def store(key: str, solution: Solution) -> None:
    """Remember a solution; a folder that cannot be written is no reason to fail."""
    text = json.dumps({"key": key, "scale": solution.scale, "epsilon": solution.epsilon})
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
