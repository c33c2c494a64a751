"""What is assumed to be public: lines that carry where they come from."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, Self


class Source(StrEnum):
    """Who says that a fact is public, and from where; a page has a sentence for each."""

    DECLARED = "declared"
    DEFAULT = "default"
    COLUMNS = "columns"
    COUNTED = "counted"
    IDS = "ids"
    SEEN = "seen"
    SHAPE = "shape"
    LEARNED = "learned"
    RULE = "rule"
    KIND = "kind"
    CLIP = "clip"
    ALIKE = "alike"
    OLD = "old"

    @classmethod
    def given(cls, value: Any, by_columns: bool = False) -> Source:
        """Return that of a parameter: None takes what follows from the columns, or the library's default."""
        return cls.DECLARED if value is not None else cls.COLUMNS if by_columns else cls.DEFAULT

    @property
    def is_read(self) -> bool:
        """Whether it was read off the records, without noise."""
        return self in (Source.COUNTED, Source.IDS, Source.SEEN)


class Fact(str):
    """A line of a report about what is assumed to be public; a plain text is one that was declared.

    Parameters
    ----------
    what : the line.
    origin : who says so.
    units : how many are protected, where the line is about their number; else 0.
    leaves_out : records without a target were left out before anybody counted the others.
    """

    origin: Source
    units: int
    leaves_out: bool

    def __new__(cls, what: str, origin: str = "declared", units: int = 0, leaves_out: bool = False) -> Self:
        """Return the line, with what it knows of itself."""
        self = super().__new__(cls, what)
        self.origin, self.units, self.leaves_out = Source(origin), int(units), bool(leaves_out)
        return self

    @classmethod
    def of(cls, line: str) -> Fact:
        """Return a line as a fact; one that says nothing of itself was declared."""
        return line if isinstance(line, Fact) else cls(line)

    @classmethod
    def number_of(cls, unit: str, number: int) -> Self:
        """Return the number of those who are protected, as it was counted in the data."""
        origin = Source.COUNTED if unit == "record" else Source.IDS
        return cls(f"number of {unit}s: {number}", origin, number)

    @property
    def mark(self) -> dict[str, Any]:
        """What it knows beside its words, for a file; nothing where it was declared."""
        default = vars(Fact(""))
        return {name: value for name, value in vars(self).items() if value != default[name]}

    @classmethod
    def read_old(cls, line: str) -> Self:
        """Return a line of a file that does not say who said it: counts and labels are known."""
        if found := re.fullmatch(r"number of (record|person)s: ([0-9]{1,18})", line):
            return cls.number_of(found[1], int(found[2]))
        origin = Source.SEEN if line.startswith("class labels: those seen in y") else Source.OLD
        return cls(line, origin, leaves_out=bool(re.match("column .*: target, .*; records without it", line)))
