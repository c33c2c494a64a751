"""A scikit-learn Bunch whose costly values are made when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.utils import Bunch


class Deferred:
    """A value that is not there yet."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def __repr__(self) -> str:
        return "<made at first use>"


class LazyBunch(Bunch):
    """A Bunch that replaces a :class:`Deferred` by its value at first access."""

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if isinstance(value, Deferred):
            value = value.make()
            self[key] = value
        return value

    def __iter__(self) -> Any:
        # Defined so that dict(bunch) and {**bunch} ask for the values instead of copying the table.
        return super().__iter__()

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, or ``default`` where there is none."""
        return self[key] if key in self else default  # noqa: SIM401  (this is that method)

    def values(self) -> Any:
        """Return all values, made."""
        return [self[key] for key in self]

    def items(self) -> Any:
        """Return all pairs, made."""
        return [(key, self[key]) for key in self]

    def __reduce__(self) -> Any:
        return Bunch, (), None, None, iter(self.items())
