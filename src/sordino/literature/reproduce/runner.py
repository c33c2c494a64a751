"""Runs tables: what is known is not run again, what is run is on disk at once."""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

import sordino
from sordino.errors import InvalidInputError, require_extra
from sordino.literature.reproduce import parties, tables
from sordino.literature.reproduce.heavy import rates
from sordino.literature.reproduce.linear import LINEAR_TABLES
from sordino.literature.reproduce.pca import distance_table, svm_table


def _of_networks(name: str, quick: bool) -> tables.Table:
    """Return a table that needs PyTorch, which is imported here and not before."""
    if find_spec("torch") is None:
        raise require_extra("torch", "torch")
    table: tables.Table = getattr(import_module("sordino.literature.reproduce.networks"), name)(quick)
    return table


TABLES: dict[str, Callable[[bool], tables.Table]] = {
    **LINEAR_TABLES,
    **parties.TABLES,
    "liang-figure-3": partial(_of_networks, "figure_3"),
    "lssgd-networks": partial(_of_networks, "lssgd_networks"),
    "shang-3": partial(svm_table, "shang-3"),
    "shang-3-text": partial(svm_table, "shang-3-text"),
    "shang-figure-1": partial(distance_table, "shang-figure-1"),
    "shang-figure-1-k": partial(distance_table, "shang-figure-1-k"),
    "srm-networks": partial(_of_networks, "srm_networks"),
    "tao-rates": rates,
}
Progress = Callable[[str, int, int], None]  # of the key, how many runs are done, and of how many


def table_named(name: str, quick: bool = False) -> tables.Table:
    if name not in TABLES:
        raise InvalidInputError(f"Expected a table in {sorted(TABLES)}, got {name!r}.")
    return TABLES[name](quick)


def reproduce(
    name: str,
    folder: Path,
    *,
    quick: bool = False,
    jobs: int = 1,
    minutes: float = math.inf,
    progress: Progress = lambda key, done, of: None,
) -> Path:
    """Make the missing runs of a table and write its JSON and Markdown; return the Markdown file.

    ``quick`` makes one run per cell without tuning; ``jobs`` is the number of processes. The first seeds of
    all cells come before the second ones, and after ``minutes`` no further run starts. Results that are there
    are kept: remove them to start anew.
    """
    table, store = table_named(name, quick), tables.Store(folder / f"{name}.json", {"quick": quick})
    seeds, runs = range(1 if quick else table.repeats), table.runs().values()
    done = {run.key: {int(one["seed"]) for one in store.outcomes(run)} for run in runs}
    todo = [(run, seed) for seed in seeds for run in runs if seed not in done[run.key]]
    for count, (run, result) in enumerate(_run_all(name, todo, quick, jobs, 60 * minutes)):
        progress(run.key, count, len(todo))
        store.add(run, *result())
    return write_page(name, folder, quick=quick)


def write_page(name: str, folder: Path, *, quick: bool = False) -> Path:
    """Write the Markdown of what is kept of a table; nothing is run."""
    table = table_named(name, quick)
    made, page = kept_rows(table, folder, quick), folder / f"{name}.md"
    command = f"sordino reproduce {name}" + (" --quick" if quick else "")
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(tables.markdown(table, made, command), encoding="utf-8")
    return page


def _run_all(
    name: str, todo: Sequence[tuple[tables.Runs, int]], quick: bool, jobs: int, seconds: float
) -> Iterator[tuple[tables.Runs, Callable[[], tuple[tables.Outcome, str, float]]]]:
    """Yield each run and a function that returns its outcome: it is made then, or was by another process."""
    end, work = time.monotonic() + seconds, partial(_run_one, TABLES[name], quick)
    if jobs == 1:
        for run, seed in todo:
            if time.monotonic() < end:
                yield run, partial(work, run.key, seed)
        return
    with _one_thread_each(), ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        waiting = {pool.submit(work, run.key, seed): run for run, seed in todo}
        try:
            for future in as_completed(waiting, timeout=None if math.isinf(seconds) else seconds):
                yield waiting[future], future.result
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


def _run_one(
    make: Callable[[bool], tables.Table], quick: bool, key: str, seed: int
) -> tuple[tables.Outcome, str, float]:
    table, start = make(quick), time.process_time()
    outcome = {**table.runs()[key].once(seed), "seed": seed}
    return outcome, source_commit(), time.process_time() - start


@cache
def source_commit() -> str:
    """Return the commit of the source, with a plus if it was changed; outside a checkout the version."""
    here = ["git", "-C", str(Path(sordino.__file__).parent)]
    try:
        found = subprocess.run([*here, "rev-parse", "--short=10", "HEAD"], capture_output=True, check=True)
        changed = subprocess.run(
            [*here, "status", "--porcelain", "."], capture_output=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return f"version {sordino.__version__}"
    return found.stdout.decode().strip() + ("+" if changed.strip() else "")


def kept_rows(table: tables.Table, folder: Path, quick: bool = False) -> tables.Made:
    """Return the rows of a table with what is kept of them."""
    store = tables.Store(folder / f"{table.name}.json", {"quick": quick})

    def cell(runs: tables.Runs | str) -> tables.Cell | str:
        if isinstance(runs, str):
            return runs
        found = store.outcomes(runs)
        return tables.cell_of(found) if found else "no run with these settings is kept"

    return [(row, {mode: cell(runs) for mode, runs in row.cells.items()}) for row in table.rows]


def verdicts(name: str, folder: Path, *, quick: bool = False) -> dict[str, tables.Verdict]:
    """Return the verdicts of a table, by group, method (a number) and epsilon; what is missing is not run."""
    table = table_named(name, quick)
    return tables.judge(table, kept_rows(table, folder, quick))
