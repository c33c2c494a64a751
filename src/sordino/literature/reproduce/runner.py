"""Runs tables: what is known is not run again, what is run is on disk at once."""

from __future__ import annotations

import os
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from functools import cache, partial
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
    Verdict,
    cell_of,
    figure,
    judge,
    markdown,
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
Todo = list[tuple[Runs, int]]  # with the seed


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
    measure(name, folder, quick=quick, jobs=jobs, progress=progress)
    return write_page(name, folder, quick=quick)


def write_page(name: str, folder: Path, *, quick: bool = False) -> Path:
    """Write the Markdown and the figure of what is kept of a table; nothing is run."""
    table = table_named(name, quick)
    made, page = kept_rows(table, folder, quick), folder / f"{name}.md"
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
    for done, (run, seed) in enumerate(todo):
        progress(run.key, done, len(todo))
        store.add(run, *_run_one(TABLES[name], quick, run.key, seed))
    return store


def measure_all(
    names: Sequence[str],
    folder: Path,
    *,
    quick: bool = False,
    jobs: int = 1,
    minutes: float | None = None,
    progress: Progress = _silence,
) -> list[str]:
    """Make the missing runs of several tables in one pool, and return the tables of which a run failed.

    Runs start in the order of the names, the first seeds of all tables before the second ones: after
    ``minutes`` no further run starts, and every cell has about as many. What was made is kept.
    """
    asked = {name: _open(name, folder, quick) for name in names}
    return _together(asked, quick, jobs, progress, keep_going=True, minutes=minutes)


def _open(name: str, folder: Path, quick: bool) -> tuple[Store, Todo]:
    """Return what is known of a table, and the runs that are missing."""
    table = table_named(name, quick)
    store = Store(folder / f"{name}.json", {"quick": quick})
    repeats = 1 if quick else table.repeats
    return store, [(run, seed) for run in table.runs().values() for seed in _missing(store, run, repeats)]


def _missing(store: Store, runs: Runs, repeats: int) -> list[int]:
    """Return the seeds that were not run with these settings."""
    known = {int(outcome.get("seed", place)) for place, outcome in enumerate(store.outcomes(runs))}
    return [seed for seed in range(repeats) if seed not in known]


def _together(
    asked: Mapping[str, tuple[Store, Todo]],
    quick: bool,
    jobs: int,
    progress: Progress,
    keep_going: bool = False,
    minutes: float | None = None,
) -> list[str]:
    """Keep outcomes as they come, each made in a process that builds its table anew."""
    done, failed = dict.fromkeys(asked, 0), []
    ordered = [(seed, name, run) for name, (_, todo) in asked.items() for run, seed in todo]
    with _one_thread_each(), ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        waiting = {
            pool.submit(_run_one, TABLES[name], quick, run.key, seed): (name, run)
            for seed, name, run in sorted(ordered, key=lambda one: one[0])
        }
        try:
            for future in as_completed(waiting, timeout=None if minutes is None else 60 * minutes):
                name, run = waiting[future]
                store, todo = asked[name]
                if keep_going and (error := future.exception()) is not None:
                    traceback.print_exception(error)
                    failed.append(name)
                    continue
                store.add(run, *future.result())
                progress(name, run.key, done[name], len(todo))
                done[name] += 1
        except TimeoutError:
            failed += [name for name, (_, todo) in asked.items() if done[name] < len(todo)]
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


def _run_one(make: Callable[[bool], Table], quick: bool, key: str, seed: int) -> tuple[Outcome, str, float]:
    table, start = make(quick), time.process_time()
    outcome = {**table.runs()[key].once(seed), "seed": seed}
    return outcome, source_commit(), time.process_time() - start


@cache
def source_commit() -> str:
    """Return the commit of the source, with a plus if it was changed; outside a checkout the version.

    ``SORDINO_COMMIT`` says it for a copy of a checkout on another machine.
    """
    if told := os.environ.get("SORDINO_COMMIT"):
        return told
    here = ["git", "-C", str(Path(__file__).parent)]
    try:
        found = subprocess.run([*here, "rev-parse", "--short=10", "HEAD"], capture_output=True, check=True)
        changed = subprocess.run(
            [*here, "status", "--porcelain", "."], capture_output=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return f"version {sordino.__version__}"
    return found.stdout.decode().strip() + ("+" if changed.strip() else "")


def _fill(table: Table, store: Store) -> Made:
    """Return the rows with what is known of their cells."""

    def cell(runs: Runs | str) -> Cell | str:
        if isinstance(runs, str):
            return runs
        found = store.outcomes(runs)
        return cell_of(found) if found else "no run with these settings is kept"

    return [(row, {mode: cell(runs) for mode, runs in row.cells.items()}) for row in table.rows]


def kept_rows(table: Table, folder: Path, quick: bool = False) -> Made:
    """Return the rows of a table with what is kept of them."""
    return _fill(table, Store(folder / f"{table.name}.json", {"quick": quick}))


def verdicts(name: str, folder: Path, *, quick: bool = False) -> dict[str, Verdict]:
    """Return the verdicts of a table, by group, method (a number) and epsilon; what is missing is not run."""
    table = table_named(name, quick)
    return judge(table, kept_rows(table, folder, quick))
