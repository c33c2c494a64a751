"""Runs tables: what is known is not run again, what is run is on disk at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import sordino
from sordino.errors import InvalidInputError
from sordino.reproduce import liang, nonconvex, parties, shang, tao, transfer, wang_gu
from sordino.reproduce.pages import figure, markdown
from sordino.reproduce.store import Store
from sordino.reproduce.tables import Cell, Made, Row, Runs, Table, cell_of, verdict

TABLES: dict[str, Callable[[bool], Table]] = {
    "liang-3": liang.table_3,
    "liang-4": liang.table_4,
    "liang-5": liang.table_5,
    "lssgd": nonconvex.lssgd,
    "parties": parties.gaps,
    "shang-3": shang.table_3,
    "shang-3-text": shang.table_3_text,
    "srm": nonconvex.srm,
    "tao-rates": tao.rates,
    "transfer-e2006": transfer.table_2,
    "transfer-rcv1": transfer.table_3,
    "wang-gu-2": wang_gu.table_2,
    "wang-gu-3": wang_gu.table_3,
    "wang-gu-figure-1": wang_gu.figure_1,
}
Progress = Callable[[str, int, int], None]


def table_named(name: str, quick: bool = False) -> Table:
    """Return the table of this name."""
    if name not in TABLES:
        raise InvalidInputError(f"Expected a table in {sorted(TABLES)}, got {name!r}.")
    return TABLES[name](quick)


def reproduce(
    name: str, folder: Path, *, quick: bool = False, progress: Progress = lambda key, done, of: None
) -> Path:
    """Run a table (or go on with it) and write its JSON, Markdown and figure; return the Markdown file.

    ``quick`` makes one run per cell without tuning. Results that are there are kept: remove them to start
    anew.
    """
    table = table_named(name, quick)
    store = Store(folder / f"{name}.json", {"quick": quick, "version": sordino.__version__})
    repeats = 1 if quick else table.repeats
    todo = [(runs, seed) for runs in table.runs().values() for seed in _missing(store, runs, repeats)]
    for done, (runs, seed) in enumerate(todo):
        progress(runs.key, done, len(todo))
        store.add(runs.key, runs.once(seed))
    return _written(table, list(_made(table, store)), folder, quick)


def _missing(store: Store, runs: Runs, repeats: int) -> range:
    return range(len(store.outcomes(runs.key)), repeats)


def _made(table: Table, store: Store) -> Iterator[tuple[Row, Mapping[str, Cell | str]]]:
    for row in table.rows:
        yield (
            row,
            {
                mode: cell if isinstance(cell, str) else cell_of(store.outcomes(cell.key))
                for mode, cell in row.cells.items()
            },
        )


def _written(table: Table, made: Made, folder: Path, quick: bool) -> Path:
    page = folder / f"{table.name}.md"
    command = f"sordino reproduce {table.name}" + (" --quick" if quick else "")
    page.write_text(markdown(table, made, command), encoding="utf-8")
    figure(table, made, folder / f"{table.name}.png")
    return page


def verdicts(name: str, folder: Path, *, quick: bool = False) -> dict[str, str]:
    """Return the verdict of every row of a table that was run."""
    table = table_named(name, quick)
    settings = json.loads((folder / f"{name}.json").read_text("utf-8"))["settings"]
    store = Store(folder / f"{name}.json", {k: v for k, v in settings.items() if k != "format"})
    made = list(_made(table, store))
    return {f"{row.group}/{row.method}/{row.epsilon:g}": verdict(table, row, made) for row, _ in made}
