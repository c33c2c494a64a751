"""Names of a package that load when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def import_late(package: str, exports: dict[str, str], modules: tuple[str, ...] = ()) -> Any:
    """Return ``__getattr__`` and ``__dir__`` of a package; ``exports`` has the module of each name.

    ``modules`` of the package load when they are named; ``dir`` does not list them.
    """

    def find(name: str) -> Any:
        if name in exports:
            return getattr(import_module(exports[name]), name)
        if name in modules:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find, lambda: sorted(exports)
