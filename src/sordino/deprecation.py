"""How a public name or parameter goes: it warns for one minor version, then it is an error.

A name that is to go keeps working and warns with what to use instead and when it ends. Nothing goes in a
patch version. `tests/public_surface.txt` shows what is public; a change there needs a line in CHANGELOG.md.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

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
