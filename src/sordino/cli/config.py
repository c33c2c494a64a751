"""One TOML file for all flags of a run: shared keys at the top, a table for each command."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

import click

from sordino.cli.places import CONFIG

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
    ctx.meta[CONFIG] = path
    try:
        text = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path.name} is no TOML file: {error}") from None
    commands, own = _commands(ctx), _keys(ctx.command)
    shared = {key: value for key, value in text.items() if not isinstance(value, dict)}
    _refuse_unknown(path, "", shared, {key for command in commands.values() for key in _keys(command)})
    tables = {key: value for key, value in text.items() if isinstance(value, dict)}
    for name, table in tables.items():
        if name not in commands:
            raise click.UsageError(
                f"{path.name}: [{name}] is no command. A table is called as one of: {', '.join(commands)}."
            )
        _refuse_unknown(path, f"[{name}] ", table, _keys(commands[name]))
    known = {param.name: param for param in ctx.command.params}
    both = {**shared, **tables.get(ctx.info_name or "", {})}
    said = {own[_key(key)]: (key, value) for key, value in both.items() if _key(key) in own}
    said = {name: _checked(path, key, value, known[name]) for name, (key, value) in said.items()}
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


def _commands(ctx: click.Context) -> dict[str, click.Command]:
    """Return all commands by their names: a shared key or a table may belong to another one."""
    root = ctx.find_root().command
    return dict(root.commands) if isinstance(root, click.Group) else {ctx.info_name or "": ctx.command}


def _checked(path: Path, key: str, value: Any, option: Any) -> Any:
    """Return a value of the kind that an option takes: click would make 1 of true, and a text of a list."""
    several = isinstance(value, list)
    entries = value if several else [value]
    flag = getattr(option, "is_flag", False)
    whole = not any(isinstance(entry, (dict, list)) or isinstance(entry, bool) != flag for entry in entries)
    if not whole or (several and not option.multiple):
        wanted = "true or false" if flag else "a list" if option.multiple else "one text or number"
        raise click.UsageError(f"{path.name}: {key!r} wants {wanted}, got {json.dumps(value, default=str)}.")
    return entries if option.multiple else value


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
