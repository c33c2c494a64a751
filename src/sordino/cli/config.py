"""One TOML file for all flags of a run: shared keys at the top, a table for each command."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

import click

SECRET = ("ledger",)  # an address may hold a password
_UNSAID = ("config", "json", "force")


def config_option(command: Any) -> Any:
    """Add ``--config`` to a command."""
    return click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        is_eager=True,
        expose_value=False,
        callback=_load,
        help="A TOML file with the options of this run; what is typed wins.",
    )(command)


def _load(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    try:
        text = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path.name} is no TOML file: {error}") from None
    name, own = ctx.info_name or "", _keys(ctx.command)
    shared = {key: value for key, value in text.items() if not isinstance(value, dict)}
    _refuse_unknown(path, "", shared, _everything(ctx))
    table = text.get(name, {})
    _refuse_unknown(path, f"[{name}] ", table, own)
    said = {own[_key(key)]: value for key, value in {**shared, **table}.items() if _key(key) in own}
    ctx.default_map = {**(ctx.default_map or {}), **said}


def _key(name: str) -> str:
    return name.lstrip("-").replace("_", "-")


def _keys(command: click.Command) -> dict[str, Any]:
    """Return the names in a file, which are those on the command line, with those of the parameters."""
    named = {_key(word): p.name for p in command.params for word in (*p.opts, *p.secondary_opts)}
    return {key: name for key, name in named.items() if key != "config"}


def _refuse_unknown(path: Path, where: str, values: dict[str, Any], known: Any) -> None:
    unknown = sorted(key for key in values if _key(key) not in known)
    if unknown:
        names = ", ".join(sorted(known))
        raise click.UsageError(f"{path.name}: {where}{unknown[0]!r} is no option. Known are: {names}.")


def _everything(ctx: click.Context) -> set[str]:
    """Return the options of all commands: a shared key may belong to another one."""
    root = ctx.find_root().command
    commands = list(root.commands.values()) if isinstance(root, click.Group) else [ctx.command]
    return {key for command in commands for key in _keys(command)}


def settings(ctx: click.Context) -> dict[str, Any]:
    """Return the options of this run as they were in force, without addresses that may hold secrets."""
    names = {name: key for key, name in _keys(ctx.command).items() if key not in (*SECRET, *_UNSAID)}
    said = {names[k]: v for k, v in ctx.params.items() if k in names and v not in (None, (), False)}
    return {key: _plain(said[key]) for key in sorted(said)}


def digest(values: dict[str, Any]) -> str:
    """Return a hash of the options of a run."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(entry) for entry in value]
    return value if isinstance(value, (str, int, float, bool)) else str(value)
