"""Where a ledger is, as a text that never shows a password.

An :class:`Address` *is* the URL without its secrets: that is what ``str``, ``repr``, ``format``, JSON, logs
and pickles see. Only :meth:`Address.reveal` gives the whole URL, and only where the secret was typed: it
stays in the memory of the process (and of its forks). Another process that reads a pickle asks libpq for the
password, which looks into ``PGPASSWORD`` and the password file.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import re
import socket
from collections.abc import Iterator
from functools import cache
from importlib import import_module, resources
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

SECRET_FIELDS = ("password", "sslpassword")
"""The parameters of a PostgreSQL URL that are secrets."""

_PACKAGE: Any = import_module("sordino")  # whose version and start are asked; its rooms are not
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_WHOLE: dict[str, str] = {}  # public form -> the URL as typed; the memory of this process only


class Address(str):
    """A URL whose secrets cannot be printed, formatted, serialised or pickled.

    Parameters
    ----------
    url : str
        The URL, for example ``postgresql://user:password@host/database``.

    Examples
    --------
    >>> address = Address("postgresql://ada:secret@host/budgets")
    >>> address
    'postgresql://ada@host/budgets'
    >>> address.reveal()
    'postgresql://ada:secret@host/budgets'
    """

    __slots__ = ()

    def __new__(cls, url: str) -> Address:
        """Split a URL in what may be shown and what may not."""
        if isinstance(url, Address):
            return url
        public = public_part(url)
        if public != url:
            _WHOLE[public] = url
        return super().__new__(cls, public)

    def reveal(self) -> str:
        """Return the URL with its password, if this process knows it; to connect, never to print."""
        return _WHOLE.get(self, str(self))

    def __reduce__(self) -> tuple[type[Address], tuple[str]]:
        return Address, (str(self),)


def hide(url: Any) -> Any:
    """Return a URL as an :class:`Address`; whatever is no URL, or hidden, comes back untouched."""
    return Address(url) if isinstance(url, str) and _SCHEME.match(url) else url


def public_part(url: str) -> str:
    """Return a URL without password, split as libpq does; what is odd is left out rather than shown."""
    scheme, _, rest = url.partition("://")
    head = re.match(r"[^@/]*@", rest)
    user = ""
    if head:
        user, rest = re.split("[:@]", head[0])[0], rest[head.end() :]
    if "@" in rest:  # a password with a slash or an at sign that was not escaped
        user, rest = "", rest.rpartition("@")[2]
    place, _, query = rest.partition("?")
    names = {field: unquote_plus(field.partition("=")[0]).strip().lower() for field in query.split("&")}
    kept = "&".join(field for field in query.split("&") if field and names[field] not in SECRET_FIELDS)
    return f"{scheme}://{user}{'@' if user else ''}{place}{'?' if kept else ''}{kept}"


# ----------------------------------- Which person and process made a reservation, and whether it still runs
# Only the label of a reservation depends on this ("reserved" or "crashed"): both are spent.


def this_process() -> str:
    """Return a name that no later process on this machine will have, and the person it works for."""
    return f"{_describe(os.getpid())}|{person()}"


def sign_owner(key: str) -> str:
    """Return the owner of a reservation: this process, the version and digest of its code, and a key."""
    return f"{this_process()}|{_PACKAGE.__version__}|{_digest_here()}|{key}"


def code_digest() -> str:
    """Return a hash of every Python file of this package: the same code has the same one.

    Machine code is kept by the source it was made of (:mod:`sordino.kernel.arrays`), so the files say
    what runs, unless they changed after this process loaded them; then nothing here knows, and words say so.
    """
    total = hashlib.sha256()
    for name, file in sorted(_sources(resources.files("sordino"), "")):
        content = file.read_bytes()
        total.update(f"{name}\0{len(content)}\0".encode() + content)
        if isinstance(file, Path):  # and not part of an archive
            status = file.stat()
            if max(status.st_mtime_ns, status.st_ctime_ns) > _PACKAGE._LOADED:
                return "changed on disk after this process loaded it"
    return total.hexdigest()


_digest_here = cache(lambda: code_digest()[:16])  # at the first reservation: reading all source takes time


def _sources(folder: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for item in folder.iterdir():
        if item.is_dir() and item.name != "__pycache__":
            yield from _sources(item, f"{prefix}{item.name}/")
        elif item.name.endswith(".py"):
            yield prefix + item.name, item


def is_mine(owner: str) -> bool:
    """Return whether this process made a reservation."""
    return owner.split("|")[:5] == this_process().split("|")


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
    return parts[4] if len(parts) >= 5 else ""


def is_gone(owner: str) -> bool:
    """Return whether a process of this machine surely ended; of other machines nothing is known."""
    parts = owner.split("|")
    if len(parts) not in (4, 5, 8) or parts[0] != socket.gethostname():
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
