"""Where commands write: never onto a file that they read, nor twice onto one place, whatever was forced."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from sordino.errors import InvalidInputError

CONFIG = "sordino.config"  # where a context keeps the path of its configuration
_OUTPUTS = ("output", "report")
_ADDRESSES = ("data", "ledger")  # texts: a path, standard input, or a URL
_BESIDE = ("", "-wal", "-shm", "-journal")  # files of one ledger


def guard(command: click.Command) -> None:
    """Let a command, and those of a group, compare its places before it reads, books or writes anything."""
    if isinstance(command, click.Group):
        for part in command.commands.values():
            guard(part)
        return
    run = command.callback
    if run is None:
        return

    @functools.wraps(run)
    def guarded(*words: Any, **chosen: Any) -> Any:
        _require_apart(chosen, click.get_current_context().meta.get(CONFIG))
        return run(*words, **chosen)

    command.callback = guarded


def _require_apart(chosen: dict[str, Any], config: Path | None) -> None:
    taken = list(_inputs({**chosen, "config": chosen.get("config", config)}))
    for key in _OUTPUTS:
        if chosen.get(key) is None:
            continue
        place = Path(chosen[key])
        for name, other in taken:
            if _same(place, other):
                raise InvalidInputError(
                    f"Expected another place for --{key} than {str(place)!r}: this command has it as its "
                    f"{name}, which would be lost. Choose another place; --force does not replace it."
                )
        taken.append((f"--{key}", place))


def _inputs(chosen: dict[str, Any]) -> Iterator[tuple[str, Path]]:
    """Yield what a command reads, by the names of its parameters."""
    for name, value in chosen.items():
        if name in _OUTPUTS:
            continue
        for entry in value if isinstance(value, tuple) else (value,):
            if isinstance(entry, Path):
                yield name, entry
            elif name in _ADDRESSES and isinstance(entry, str) and entry != "-":
                beside = _BESIDE if name == "ledger" else ("",)
                yield from ((name, Path(entry + end).expanduser()) for end in beside)


def _same(one: Path, other: Path) -> bool:
    """Tell whether two paths are one file, through links of any kind."""
    try:
        return one.resolve() == other.resolve() or (one.exists() and other.exists() and one.samefile(other))
    except (OSError, RuntimeError, ValueError):  # no path at all: whoever opens it says so
        return False
