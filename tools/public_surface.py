"""The public surface as text: every public name with its signature.

Command: python tools/public_surface.py   (writes tests/public_surface.txt; --print only shows it)

A change of this file is a change of the interface: it needs a line in CHANGELOG.md and, for a name that
goes, a deprecation (see `sordino.values`).
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

FILE = Path(__file__).resolve().parents[1] / "tests" / "public_surface.txt"
MODULES = ("sordino", "sordino.nn", "sordino.datasets", "sordino.solvers", "sordino.runs", "sordino.kernel")


def surface() -> str:
    """Return one line per public name, method and enum member."""
    return "\n".join(line for module in MODULES for line in _lines(module)) + "\n"


def _lines(module: str) -> Iterator[str]:
    loaded = import_module(module)
    for name in sorted(loaded.__all__):
        value = getattr(loaded, name)
        yield f"{module}.{name}{_signature(value)}"
        if inspect.isclass(value):
            yield from (f"{module}.{name}.{line}" for line in _members(value))


def _members(kind: type) -> Iterator[str]:
    if issubclass(kind, enum.Enum):
        yield from (f"{member.name} = {member.value!r}" for member in kind)
        return
    # The signature of a dataclass has its fields.
    told = {f.name for f in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    for name in sorted(n for n in dir(kind) if not n.startswith("_") and n not in told):
        value = inspect.getattr_static(kind, name)
        own = getattr(getattr(kind, name, None), "__module__", "sordino") or "sordino"
        if own.startswith("sordino"):
            plain = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
            yield f"{name}{_signature(plain) if callable(plain) else ''}"


def _signature(value: object) -> str:
    if not callable(value):
        return ""
    try:
        return re.sub(r" at 0x[0-9a-f]+", "", str(inspect.signature(value)))
    except (TypeError, ValueError):
        return ""


def main() -> None:
    """Write the file, or print it."""
    if "--print" in sys.argv:
        print(surface(), end="")
    else:
        FILE.write_text(surface(), "utf-8")


if __name__ == "__main__":
    main()
