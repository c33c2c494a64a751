"""Which two data sets count as neighbours."""

from __future__ import annotations

from enum import Enum

from sordino.errors import InvalidInputError


class Relation(str, Enum):
    """The neighbouring relation of a guarantee.

    ``ADD_REMOVE``: one record is present or contributes zero, the number of records is public.
    ``REPLACE_ONE``: one record is replaced by an arbitrary other one.
    """

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"

    @classmethod
    def parse(cls, value: Relation | str) -> Relation:
        """Read a relation from its name."""
        try:
            return cls(value)
        except ValueError:
            names = ", ".join(repr(r.value) for r in cls)
            raise InvalidInputError(f"Expected relation in {{{names}}}, got {value!r}.") from None

    @property
    def contributions(self) -> int:
        """How many clipped contributions move at once: one, or two when a record is replaced."""
        return 2 if self is Relation.REPLACE_ONE else 1

    def __str__(self) -> str:
        return self.value
