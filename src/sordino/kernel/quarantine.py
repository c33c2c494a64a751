"""Marks on the parts of a plan that nobody here has proven: printed in a paper, or written elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sordino.errors import PlanError


class Printed:
    """Base of a query, mechanism or sampling that follows a paper whose claim does not hold.

    ``printed`` names the paper's algorithm: what a caller has to say to run it, and what the report shows.
    """

    printed: ClassVar[str]


@dataclass(frozen=True)
class PaperNoise:
    """Published multipliers by release, the formula they come from, and the printed parts of its plan."""

    multipliers: Mapping[str, float]
    formula: str
    printed: tuple[str, ...] = ()


def marks(query: Any, mechanism: Any, sampling: Any) -> list[str]:
    """Return the marks of the parts of a release.

    Mechanisms and samplings, which make the event, have to come from the kernel: only those are under the
    tests that every proof here has. Others are called unreviewed, with their full name. A query may be
    anybody's; its sensitivity is a claim of whoever wrote it.
    """
    found = [_printed(type(query)), _mark(type(mechanism)), _mark(type(sampling))]
    return [mark for mark in found if mark]


def check_asked(found: Collection[str], asked: Collection[str]) -> None:
    """Refuse a plan with marks that its caller has not named."""
    if isinstance(asked, str):
        asked = (asked,)
    missing = [mark for mark in found if mark not in asked]
    if missing:
        raise PlanError(
            f"The plan holds parts that are not proven here: {'; '.join(missing)}. To run them all the same, "
            f"open it with printed={tuple(missing)!r}; the report will show these names."
        )


def _mark(kind: type) -> str | None:
    printed = _printed(kind)
    # A class that only says it is from the kernel is not found there.
    home = getattr(sys.modules.get(kind.__module__), kind.__qualname__, None)
    if printed or (home is kind and kind.__module__.startswith("sordino.kernel.")):
        return printed
    return _unreviewed(kind)


def _printed(kind: type) -> str | None:
    named = str(getattr(kind, "printed", "")) or _unreviewed(kind)
    return named if issubclass(kind, Printed) else None


def _unreviewed(kind: type) -> str:
    return f"unreviewed: {kind.__module__}.{kind.__qualname__}"
