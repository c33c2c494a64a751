"""Which person and process made a reservation, and whether it still runs.

Only the label of a reservation depends on this ("reserved" or "crashed"): both are spent.
"""

from __future__ import annotations

import getpass
import os
import socket
from functools import cache
from pathlib import Path


def this_process() -> str:
    """Return a name that no later process on this machine will have, and the person it works for."""
    return f"{_describe(os.getpid())}|{person()}"


def person() -> str:
    """Return who runs this process: ``SORDINO_PERSON``, or the name of the account; "" if there is none."""
    named = os.environ.get("SORDINO_PERSON", "").strip()
    try:
        found = named or getpass.getuser()
    except (KeyError, OSError):  # a container without an entry for its user
        found = ""
    return "".join(c for c in found if c.isprintable() and c != "|")[:100]


def person_of(owner: str) -> str:
    """Return the person in an owner; "" for one that was written without."""
    parts = owner.split("|")
    return parts[4] if len(parts) == 5 else ""


def is_gone(owner: str) -> bool:
    """Return whether a process of this machine surely ended; of other machines nothing is known."""
    parts = owner.split("|")
    if len(parts) not in (4, 5) or parts[0] != socket.gethostname():
        return False
    host, boot, process, start = parts[:4]
    if (host, boot) != _machine():
        return True
    return not process.isdigit() or not _exists(int(process)) or start != _start(int(process))


@cache
def _describe(process: int) -> str:
    return "|".join((*_machine(), str(process), _start(process)))


@cache
def _machine() -> tuple[str, str]:
    return socket.gethostname().replace("|", "-"), _read("/proc/sys/kernel/random/boot_id")


def _start(process: int) -> str:
    """Return when a process started, in clock ticks, where the system tells: ids are reused."""
    fields = _read(f"/proc/{process}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 else ""


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # it exists, but belongs to somebody else
    return True


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8").strip()
    except OSError:
        return ""
