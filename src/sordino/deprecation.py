"""How a public name or parameter goes: it warns for one minor version, then it is an error.

A name that is to go keeps working and warns with what to use instead and when it ends. Nothing goes in a
patch version. `tests/public_surface.txt` shows what is public; a change there needs a line in CHANGELOG.md.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def deprecated(instead: str, ends: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a function or class as going in version ``ends``; ``instead`` says what to use."""

    def mark(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def warned(*args: P.args, **kwargs: P.kwargs) -> R:
            warnings.warn(
                f"{function.__name__} goes in version {ends}. Use {instead}.", FutureWarning, stacklevel=2
            )
            return function(*args, **kwargs)

        return warned

    return mark


def renamed_parameters(ends: str, **renamed: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Accept old names of keyword parameters, ``old="new"``, until version ``ends``, with a warning."""

    def mark(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def translated(*args: P.args, **kwargs: P.kwargs) -> R:
            for old, new in renamed.items():
                if old in kwargs:
                    warnings.warn(
                        f"The parameter {old!r} is called {new!r} from version {ends} on.",
                        FutureWarning,
                        stacklevel=2,
                    )
                    if new in kwargs:
                        raise TypeError(f"Got both {old!r} and {new!r}, which are the same parameter.")
                    kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return translated

    return mark


@dataclass(frozen=True)
class Moved:
    """Parameters that are entries of the parameter ``into``, a dictionary, from version ``ends`` on."""

    ends: str
    into: str
    names: tuple[str, ...]

    def fold(self, params: Mapping[str, Any], known: Any = None, warn: bool = True) -> dict[str, Any]:
        """Return the parameters with the old ones in their place, over what is ``known`` to be there."""
        for name in (name for name in params if warn and name in self.names):
            words = f"The parameter {name!r} goes in version {self.ends}. Use {self.into}={{{name!r}: ...}}."
            warnings.warn(words, FutureWarning, stacklevel=3)
        own = {name: params[name] for name in self.names if params.get(name) is not None}
        rest = {name: value for name, value in params.items() if name not in self.names}
        return {**rest, self.into: {**(rest.get(self.into, known) or {}), **own}} if own else rest


def moved_parameters(ends: str, into: str, *names: str) -> Callable[[type[R]], type[R]]:
    """Accept old parameters of a class that are entries of a dictionary now; see :class:`Moved`."""
    moved = Moved(ends, into, names)

    def mark(kind: type[R]) -> type[R]:
        init: Any = kind.__init__

        @functools.wraps(init)
        def translated(self: Any, *args: Any, **kwargs: Any) -> None:
            init(self, *args, **moved.fold(kwargs))

        kind.__init__, kind._moved = translated, moved  # type: ignore[method-assign, attr-defined]
        return kind

    return mark
