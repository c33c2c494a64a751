"""The page about budgets: what is spent, when, by whom, and what is left."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import sordino
from sordino.ledger import Ledger
from sordino.ledger.export import save
from sordino.report.booking import History, Step
from sordino.report.page import rendered

SHOWN = 40
"""So many data sets have a section of their own, and so many reservations a line."""
_POINTS = 300
NOBODY = "not written down"


@dataclass(frozen=True)
class Line:
    """One reservation as the page shows it."""

    number: int
    when: str
    person: str
    description: str
    status: str
    epsilon: float
    part: float


@dataclass(frozen=True)
class Account:
    """One data set as the page shows it."""

    history: History
    spent: float
    share: float
    epsilon_left: float
    people: tuple[tuple[str, float], ...]
    lines: tuple[Line, ...]
    left_out: int
    path: str
    first: str
    last: str


def write_ledger_report(
    ledger: Ledger, path: str | Path, *, dataset_id: str | None = None, title: str | None = None
) -> Path:
    """Write one self-contained HTML page about the budgets of a ledger; return its path.

    Parameters
    ----------
    ledger : the open ledger.
    path : where to write.
    dataset_id : only this data set; None takes all.
    title : of the page.

    Only the owner of the page may read it, as with the ledger: it names people and what they asked.

    **Privacy.** A ledger holds public numbers only.
    """
    path = Path(path)
    save(ledger_html(ledger, dataset_id=dataset_id, title=title), path)
    return path


def ledger_html(ledger: Ledger, *, dataset_id: str | None = None, title: str | None = None) -> str:
    """Return the page of :func:`write_ledger_report` as text."""
    names = ledger.datasets() if dataset_id is None else [dataset_id]
    accounts = [_account(History.read(ledger, name)) for name in names]
    return rendered(
        "ledger.html",
        title=title or "Privacy budgets",
        accounts=accounts,
        detailed=accounts[:SHOWN],
        people=_by_person(accounts),
        when=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=sordino.__version__,
    )


def _account(history: History) -> Account:
    last = history.steps[-1]
    lines = _lines(history.steps)
    people: dict[str, float] = defaultdict(float)
    for line in lines:
        people[line.person] += line.part
    return Account(
        history,
        last.fraction,
        last.share,
        last.epsilon_left,
        tuple(sorted(people.items(), key=lambda item: -item[1])),
        tuple(lines[::-1][:SHOWN]),
        max(0, len(lines) - SHOWN),
        _path(history.steps),
        lines[0].when if lines else "",
        lines[-1].when if lines else "",
    )


def _lines(steps: tuple[Step, ...]) -> list[Line]:
    out = []
    for before, step in pairwise(steps):
        entry = step.entry
        if entry is None:  # pragma: no cover - only the first step has none
            continue
        part = step.fraction - before.fraction
        out.append(
            Line(
                entry.sequence,
                entry.reserved_at[:16].replace("T", " "),
                step.person or NOBODY,
                entry.description or "no description",
                entry.status.value,
                entry.epsilon,
                part,
            )
        )
    return out


def _by_person(accounts: list[Account]) -> list[tuple[str, list[tuple[str, float]]]]:
    """Return for each person the data sets and the part of each budget, those with most first."""
    found: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for account in accounts:
        for person, part in account.people:
            found[person].append((account.history.dataset_id, part))
    return sorted(found.items(), key=lambda item: -sum(part for _, part in item[1]))


def _path(steps: tuple[Step, ...]) -> str:
    """Return the spending over time as the path of a staircase in a box of 1000 x 100."""
    times = [datetime.fromisoformat(s.entry.reserved_at).timestamp() for s in steps if s.entry]
    if not times:
        return ""
    start, width = times[0], max(times[-1] - times[0], 1.0)
    points = [(940 * (t - start) / width, 100 - 100 * s.share) for t, s in zip(times, steps[1:], strict=True)]
    every = max(1, len(points) // _POINTS)
    kept = [*points[::every], points[-1]]
    return "M0,100" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in kept) + "H1000"
