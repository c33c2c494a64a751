"""Arrays that all rooms pass around: names of their types, norms of public ones, compiled passes over them.

Numba keeps machine code by the file that holds a function. Functions and constants of other files are frozen
into it, so a clip that is mended in one file would go on unmended in the passes of another. Here the folder
of a module's machine code is named after the source of the module and of every module of this package that it
imports, directly or not: other source, other folder. A file that no compiled function can see changes none.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Rows: TypeAlias = Ints | None
"""Row numbers; None means every row."""


# Norms of vectors that are released or public. Norms of data are in :mod:`sordino.kernel.clip`.


def public_norm(vector: Any) -> float:
    """Return the Euclidean norm of a released or public vector."""
    return float(np.linalg.norm(np.asarray(vector, dtype=float).reshape(-1)))


KEPT = 8
"""How many versions of a module's machine code stay when a new one comes; those of the last hour stay too."""

_HOUR = 3600.0
_PACKAGE, _, _ = __name__.partition(".")
_ROOT = Path(__file__).parents[1]
_NAME = rf"({_PACKAGE}[\w.]*)"
_IMPORTS = re.compile(rf"^[ \t]*(?:from +{_NAME} +import *(\([^)]*\)|.*)|import +{_NAME})", re.M)
_LOCK = threading.Lock()


def compile_with_cache(make: Any = numba.njit, **options: Any) -> Callable[[Any], Any]:
    """Return ``make(**options)`` of Numba whose machine code is kept as long as the source stays the same.

    Where no folder can be written, or the source cannot be read, each process compiles for itself.
    """

    def decorate(function: Any) -> Any:
        for folder in _folders(function.__module__):
            found = _compile_in(folder, partial(make, cache=True, **options), function)
            if found is not None:
                return found
        return make(**options)(function)

    return decorate


def source_digest(module: str) -> str:
    """Return a hash of the source of a module and of all modules that it can reach by imports."""
    total = hashlib.sha256()
    for name in sorted(reachable(module)):
        total.update(f"{name}\0".encode() + _read(name)[0])
    return total.hexdigest()


def reachable(module: str) -> set[str]:
    """Return the modules of the package that a module imports, directly or not, itself among them."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(_read(name)[1])
    return seen


def cache_folder() -> Path:
    """Return the folder: ``$SORDINO_CACHE``, else ``sordino`` in the user's cache folder."""
    chosen = os.environ.get("SORDINO_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(base) if base else Path.home() / ".cache") / "sordino"


@cache
def _folders(module: str) -> tuple[Path, ...]:
    """Return where the machine code of a module may be kept, best first; old versions of it go."""
    try:
        digest = source_digest(module)
    except OSError:  # no files: a zip archive, a frozen program
        return ()
    roots = [Path(numba.config.CACHE_DIR) / "sordino"] if numba.config.CACHE_DIR else [_ROOT / "__pycache__"]
    with contextlib.suppress(RuntimeError):  # nobody's home
        roots.append(cache_folder())
    found = tuple(root / "machine-code" / module / digest[:32] for root in roots)
    for folder in found:
        _remove_old(folder)
    return found


def _remove_old(folder: Path) -> None:
    """Mark a folder as used and remove those of other versions, except the last few."""
    with contextlib.suppress(OSError):  # another process does the same
        if folder.exists():
            os.utime(folder)
        else:
            others = sorted(folder.parent.iterdir(), key=lambda other: other.stat().st_mtime, reverse=True)
            for other in others[KEPT - 1 :]:
                if other.stat().st_mtime < time.time() - _HOUR:
                    shutil.rmtree(other, ignore_errors=True)


def _compile_in(folder: Path, make: Callable[..., Any], function: Any) -> Any:
    """Return the compiled function, or None where Numba keeps it elsewhere, under a name without the digest.

    Numba chooses the folder when it decorates; if it cannot write there it looks for another.
    """
    with _LOCK, contextlib.suppress(RuntimeError):  # it found no place at all
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(folder)
        try:
            found = make()(function)
        finally:
            numba.config.CACHE_DIR = before
        keyed = not hasattr(found, "stats") or Path(found.stats.cache_path).is_relative_to(folder)
        return found if keyed else None


@cache
def _read(module: str) -> tuple[bytes, frozenset[str]]:
    """Return the hash of a module's source and the modules of the package that it imports."""
    source = _file(module).read_bytes()
    found: set[str] = set()
    for package, names, whole in _IMPORTS.findall(source.decode()):
        for name in re.findall(r"\w+", names) if package else ():
            inner = f"{package}.{name}"  # a module, or a name that the package defines
            found.add(inner if _file(inner).exists() else package)
        if whole:
            found.add(whole)
    return hashlib.sha256(source).digest(), frozenset(found)


@cache
def _file(module: str) -> Path:
    inside = _ROOT.joinpath(*module.split(".")[1:])
    return inside / "__init__.py" if inside.is_dir() else inside.with_suffix(".py")
