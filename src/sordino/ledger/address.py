"""Where a ledger is, as a text that never shows a password.

An :class:`Address` *is* the URL without its secrets: that is what ``str``, ``repr``, ``format``, JSON, logs
and pickles see. Only :meth:`Address.revealed` gives the whole URL, and only where the secret was typed: it
stays in the memory of the process (and of its forks). Another process that reads a pickle asks libpq for the
password, which looks into ``PGPASSWORD`` and the password file.
"""

from __future__ import annotations

import re
from typing import Any, overload
from urllib.parse import unquote_plus

SECRET_FIELDS = ("password", "sslpassword")
"""The parameters of a PostgreSQL URL that are secrets."""

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
    >>> address.revealed()
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

    def revealed(self) -> str:
        """Return the URL with its password, if this process knows it; to connect, never to print."""
        return _WHOLE.get(self, str(self))

    def __copy__(self) -> Address:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Address:
        return self

    def __reduce__(self) -> tuple[type[Address], tuple[str]]:
        return Address, (str(self),)


@overload
def hidden(url: str) -> str: ...
@overload
def hidden(url: Any) -> Any: ...
def hidden(url: Any) -> Any:
    """Return a URL as an :class:`Address`; whatever is no URL (a path, a ledger, None) comes back untouched.

    Hiding twice changes nothing: the same object comes back, so that an estimator may hide in its constructor
    and still be cloned.
    """
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
    kept = "&".join(field for field in query.split("&") if field and not _is_secret(field))
    return f"{scheme}://{user}{'@' if user else ''}{place}{'?' if kept else ''}{kept}"


def _is_secret(field: str) -> bool:
    return unquote_plus(field.partition("=")[0]).strip().lower() in SECRET_FIELDS
