"""Runs tables: what is known is not run again, what is run is on disk at once."""

from __future__ import annotations

import math
import os
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
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
from sordino.literature.reproduce.linear import LINEAR_TABLES
from sordino.literature.reproduce.pca import distance_table, svm_table
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
    **LINEAR_TABLES,
    **parties.TABLES,
    "liang-figure-3": partial(_of_networks, "figure_3"),
    "lssgd-networks": partial(_of_networks, "lssgd_networks"),
    "shang-3": partial(svm_table, "shang-3"),
    "shang-3-text": partial(svm_table, "shang-3-text"),
    "shang-figure-1": partial(distance_table, "shang-figure-1"),
    "srm-networks": partial(_of_networks, "srm_networks"),
    "tao-rates": rates,
}
Progress = Callable[..., None]  # of the key, how many runs are done, and of how many; the table's name first


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
    measure([name], folder, quick=quick, jobs=jobs, progress=lambda of, *where: progress(*where))
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
    names: Sequence[str],
    folder: Path,
    *,
    quick: bool = False,
    jobs: int = 1,
    keep_going: bool = False,
    minutes: float | None = None,
    progress: Progress = _silence,
) -> list[str]:
    """Make the missing runs of some tables, and return the tables of which a run failed or is missing.

    This needs neither a terminal nor a plotting library, so it can run on a bare machine with many cores.
    Runs start in the order of the names, the first seeds of all tables before the second ones: after
    ``minutes`` no further run starts, and every cell has about as many. What was made is kept. A run that
    fails ends all, or with ``keep_going`` none but itself.
    """
    asked = {name: _open(name, folder, quick) for name in names}
    todo = [(seed, name, run) for name, (_, missing) in asked.items() for run, seed in missing]
    done = dict.fromkeys(names, 0)
    for name, run, result in _results(sorted(todo, key=lambda one: one[0]), quick, jobs, minutes):
        store, missing = asked[name]
        progress(name, run.key, done[name], len(missing))
        try:
            store.add(run, *result())
        except Exception as error:
            if not keep_going:
                raise
            traceback.print_exception(error)
        else:
            done[name] += 1
    return sorted(name for name, (_, missing) in asked.items() if done[name] < len(missing))


def _open(name: str, folder: Path, quick: bool) -> tuple[Store, list[tuple[Runs, int]]]:
    """Return what is known of a table, and the runs that are missing with their seeds."""
    table = table_named(name, quick)
    store = Store(folder / f"{name}.json", {"quick": quick})
    repeats = 1 if quick else table.repeats
    return store, [(run, seed) for run in table.runs().values() for seed in _missing(store, run, repeats)]


def _missing(store: Store, runs: Runs, repeats: int) -> list[int]:
    """Return the seeds that were not run with these settings."""
    known = {int(outcome.get("seed", place)) for place, outcome in enumerate(store.outcomes(runs))}
    return [seed for seed in range(repeats) if seed not in known]


def _results(
    todo: Sequence[tuple[int, str, Runs]], quick: bool, jobs: int, minutes: float | None
) -> Iterator[tuple[str, Runs, Callable[[], tuple[Outcome, str, float]]]]:
    """Yield outcomes as they come: made here when they are called, or in processes that build tables anew."""
    end = math.inf if minutes is None else time.monotonic() + 60 * minutes
    if jobs == 1:
        for seed, name, run in todo:
            if time.monotonic() < end:
                yield name, run, partial(_run_one, TABLES[name], quick, run.key, seed)
        return
    with _one_thread_each(), ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        waiting = {
            pool.submit(_run_one, TABLES[name], quick, run.key, seed): (name, run) for seed, name, run in todo
        }
        try:
            for future in as_completed(waiting, timeout=None if minutes is None else 60 * minutes):
                yield *waiting[future], future.result
        except TimeoutError:
            pass
        finally:
            pool.shutdown(cancel_futures=True)


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


def kept_rows(table: Table, folder: Path, quick: bool = False) -> Made:
    """Return the rows of a table with what is kept of them."""
    store = Store(folder / f"{table.name}.json", {"quick": quick})

    def cell(runs: Runs | str) -> Cell | str:
        if isinstance(runs, str):
            return runs
        found = store.outcomes(runs)
        return cell_of(found) if found else "no run with these settings is kept"

    return [(row, {mode: cell(runs) for mode, runs in row.cells.items()}) for row in table.rows]


def verdicts(name: str, folder: Path, *, quick: bool = False) -> dict[str, Verdict]:
    """Return the verdicts of a table, by group, method (a number) and epsilon; what is missing is not run."""
    table = table_named(name, quick)
    return judge(table, kept_rows(table, folder, quick))
