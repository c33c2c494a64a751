"""Runs tables: what is known is not run again, what is run is on disk at once."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import sordino
from sordino.errors import InvalidInputError, require_extra
from sordino.literature.reproduce import parties
from sordino.literature.reproduce.heavy import rates
from sordino.literature.reproduce.linear import lssgd, srm, srm_gradients
from sordino.literature.reproduce.parties import megabytes, seconds
from sordino.literature.reproduce.pca import figure_1, table_3, table_3_text
from sordino.literature.reproduce.sparse import SPARSE_TABLES
from sordino.literature.reproduce.tables import (
    Cell,
    Made,
    Outcome,
    Runs,
    Store,
    Table,
    cell_of,
    figure,
    markdown,
    verdict,
)


def _of_networks(name: str, quick: bool) -> Table:
    """Return a table that needs PyTorch, which is imported here and not before."""
    if find_spec("torch") is None:
        raise require_extra("torch", "torch")
    table: Table = getattr(import_module("sordino.literature.reproduce.networks"), name)(quick)
    return table


TABLES: dict[str, Callable[[bool], Table]] = {
    **SPARSE_TABLES,
    "aggregation-time": seconds,
    "aggregation-traffic": megabytes,
    "liang-figure-3": partial(_of_networks, "figure_3"),
    "lssgd": lssgd,
    "lssgd-networks": partial(_of_networks, "lssgd_networks"),
    **parties.TABLES,
    "shang-3": table_3,
    "shang-3-text": table_3_text,
    "shang-figure-1": figure_1,
    "srm": srm,
    "srm-gradients": srm_gradients,
    "srm-networks": partial(_of_networks, "srm_networks"),
    "tao-rates": rates,
}
Progress = Callable[..., None]  # of the key, how many runs are done, and of how many; the table's name first
Todo = list[tuple[str, int]]  # key and seed


def _silence(*where: Any) -> None:
    """Say nothing of how far the runs are."""


def table_named(name: str, quick: bool = False) -> Table:
    if name not in TABLES:
        raise InvalidInputError(f"Expected a table in {sorted(TABLES)}, got {name!r}.")
    return TABLES[name](quick)


def reproduce(
    name: str, folder: Path, *, quick: bool = False, jobs: int = 1, progress: Progress = _silence
) -> Path:
    """Run a table (or go on with it) and write its JSON, Markdown and figure; return the Markdown file.

    ``quick`` makes one run per cell without tuning; ``jobs`` is the number of processes. Results that are
    there are kept: remove them to start anew.
    """
    store = measure(name, folder, quick=quick, jobs=jobs, progress=progress)
    table = table_named(name, quick)
    made, page = _fill(table, store), folder / f"{name}.md"
    command = f"sordino reproduce {name}" + (" --quick" if quick else "")
    page.write_text(markdown(table, made, command), encoding="utf-8")
    figure(table, made, folder / f"{name}.png")
    return page


def measure(
    name: str, folder: Path, *, quick: bool = False, jobs: int = 1, progress: Progress = _silence
) -> Store:
    """Make the runs of a table that are missing, and return all of them; no page is written.

    This needs neither a terminal nor a plotting library, so it can run on a bare machine with many cores.
    """
    store, todo = _open(name, folder, quick)
    if jobs > 1:
        _together({name: (store, todo)}, quick, jobs, lambda of, *where: progress(*where))
        return store
    for done, (key, seed) in enumerate(todo):
        progress(key, done, len(todo))
        store.add(*_run_one(TABLES[name], quick, key, seed))
    return store


def measure_all(
    names: Sequence[str], folder: Path, *, quick: bool = False, jobs: int = 1, progress: Progress = _silence
) -> list[str]:
    """Make the missing runs of several tables in one pool, and return the tables of which a run failed.

    Runs start in the order of the names, so that the tables with the longest runs are named first: a core is
    idle only when the last runs of all tables are under way.
    """
    asked = {name: _open(name, folder, quick) for name in names}
    return _together(asked, quick, jobs, progress, keep_going=True)


def _open(name: str, folder: Path, quick: bool) -> tuple[Store, Todo]:
    """Return what is known of a table, and the runs that are missing."""
    table = table_named(name, quick)
    store = Store(folder / f"{name}.json", {"quick": quick, "version": sordino.__version__})
    repeats = 1 if quick else table.repeats
    return store, [(run.key, seed) for run in table.runs().values() for seed in _missing(store, run, repeats)]


def _missing(store: Store, runs: Runs, repeats: int) -> list[int]:
    """Return the seeds that were not run; where none are kept, runs came in order."""
    known = {int(outcome.get("seed", place)) for place, outcome in enumerate(store.outcomes(runs.key))}
    return [seed for seed in range(repeats) if seed not in known]


def _together(
    asked: Mapping[str, tuple[Store, Todo]],
    quick: bool,
    jobs: int,
    progress: Progress,
    keep_going: bool = False,
) -> list[str]:
    """Keep outcomes as they come, each made in a process that builds its table anew."""
    done, failed = dict.fromkeys(asked, 0), []
    with _one_thread_each(), ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        waiting = {
            pool.submit(_run_one, TABLES[name], quick, key, seed): name
            for name, (_, todo) in asked.items()
            for key, seed in todo
        }
        try:
            for future in as_completed(waiting):
                name = waiting[future]
                store, todo = asked[name]
                if keep_going and (error := future.exception()) is not None:
                    traceback.print_exception(error)
                    failed.append(name)
                    continue
                key, outcome, seconds = future.result()
                store.add(key, outcome, seconds)
                progress(name, key, done[name], len(todo))
                done[name] += 1
        finally:
            pool.shutdown(cancel_futures=True)
    return sorted(set(failed))


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Let processes started here use one thread each, where nothing else was asked for."""
    names = [f"{library}_NUM_THREADS" for library in ("OMP", "OPENBLAS", "MKL", "NUMBA")]
    set_here = [name for name in names if name not in os.environ]
    os.environ.update(dict.fromkeys(set_here, "1"))
    try:
        yield
    finally:
        for name in set_here:
            del os.environ[name]


def _run_one(make: Callable[[bool], Table], quick: bool, key: str, seed: int) -> tuple[str, Outcome, float]:
    table, start = make(quick), time.process_time()
    outcome = {**table.runs()[key].once(seed), "seed": seed}
    return key, outcome, time.process_time() - start


def _fill(table: Table, store: Store) -> Made:
    """Return the rows with what is known of their cells."""

    def cell(runs: Runs | str) -> Cell | str:
        return runs if isinstance(runs, str) else cell_of(store.outcomes(runs.key))

    return [(row, {mode: cell(runs) for mode, runs in row.cells.items()}) for row in table.rows]


def verdicts(name: str, folder: Path, *, quick: bool = False) -> dict[str, str]:
    """Return the verdict of every row of a table that was run."""
    table = table_named(name, quick)
    settings = json.loads((folder / f"{name}.json").read_text("utf-8"))["settings"]
    store = Store(folder / f"{name}.json", {k: v for k, v in settings.items() if k != "format"})
    missing = [key for key in table.runs() if not store.outcomes(key)]
    if missing:
        raise InvalidInputError(
            f"{len(missing)} runs of {name} are missing in {folder}, {missing[0]!r} the first of them. "
            f"`sordino reproduce {name}` makes them."
        )
    made = _fill(table, store)
    return {f"{row.group}/{row.method}/{row.epsilon:g}": verdict(table, row, made) for row, _ in made}
