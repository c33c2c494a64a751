"""Mutation tests: break the privacy-critical rooms line by line and see that a test fails.

Each worker owns a copy of the tree without history, puts one mutant at a time into it and runs the
tests mapped to the changed module. A mutant inside an ordinary function is judged in a fork of a
session that has collected the tests (nursery.py). Any other one is imported afresh, after the heavy
imports, and so is one that survived: tests may hold what was computed on import. A mutant that
survives that too needs a written reason in mutation_survivors.toml.

    python tools/mutate.py --only kernel/noise --sample 50
    python tools/mutate.py --shard 1/4
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import tomllib
import traceback
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from mutations import Mutant, mutants
from nursery import Nursery, changeable, time_limit, wait_for

ROOMS = ("src/sordino/kernel", "src/sordino/accounting", "src/sordino/literature/formulas.py")
HEAVY = ("numpy", "scipy.stats", "scipy.sparse", "numba", "dp_accounting", "sklearn", "hypothesis")
ENTRY = ("file", "where", "code", "change")
IGNORED = shutil.ignore_patterns("__pycache__", ".git", ".venv")
NO_TESTS = 5  # pytest's exit status; a mutant that makes the tests vanish is not noticed


@dataclass(frozen=True)
class Verdict:
    """What became of one mutant."""

    mutant: Mutant
    survived: bool
    seconds: float


def main(arguments: list[str] | None = None) -> int:
    """Run the mutation tests and return the exit status."""
    options = _options(arguments)
    root = options.root.resolve()
    reasons = _read(root / "tools/mutation_survivors.toml").get("survivor", [])
    everything = [m for file in _modules(root) for m in mutants(file, (root / file).read_bytes())]
    chosen = _choose(everything, options)
    if options.list:
        print(*chosen, sep="\n")
        return 0
    complaints = _stale(reasons, everything) + _unmapped(root, chosen)
    complaints += [] if complaints else _survivors(root, chosen, reasons, options.jobs)
    print(*complaints, sep="\n", end="\n" if complaints else "")
    return 1 if complaints else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--only", default="", help="only files whose path contains this")
    parser.add_argument("--sample", type=int, help="only this many, the same ones each time")
    parser.add_argument("--shard", default="1/1", help="part i of n, as i/n")
    parser.add_argument("--list", action="store_true", help="print the mutants and stop")
    return parser.parse_args(arguments)


def _read(path: Path) -> dict:
    return tomllib.loads(path.read_text("utf-8")) if path.exists() else {}


def _modules(root: Path) -> list[str]:
    """Return the modules of the rooms and those that the configuration names, each once."""
    more = _read(root / "tools/mutation_tests.toml").get("also", {})
    rooms = [root / room for room in ROOMS]
    files = [path for room in rooms for path in ([room] if room.is_file() else sorted(room.rglob("*.py")))]
    files += [path for pattern in more for path in sorted(root.glob(pattern))]
    return list(dict.fromkeys(path.relative_to(root).as_posix() for path in files))


def _choose(everything: list[Mutant], options: argparse.Namespace) -> list[Mutant]:
    part, parts = map(int, options.shard.split("/"))
    chosen = [m for m in everything if options.only in m.file]
    chosen.sort(key=_rank)
    chosen = chosen[part - 1 :: parts][: options.sample]
    return sorted(chosen, key=lambda m: (m.file, m.start, m.text))


def _rank(mutant: Mutant) -> bytes:
    """Return a random but fixed place in the queue, so that samples and shards are repeatable."""
    return hashlib.sha256(repr(mutant).encode()).digest()


def _key(entry: dict) -> tuple[str, ...]:
    return tuple(entry[name] for name in ENTRY)


def _entry(mutant: Mutant) -> str:
    """Return the lines for mutation_survivors.toml, to which a reason has to be added."""
    fields = [f"{name} = {json.dumps(text)}" for name, text in zip(ENTRY, mutant.key, strict=True)]
    return "\n".join(["", "[[survivor]]", *fields, 'reason = ""'])


def _stale(reasons: list[dict], everything: list[Mutant]) -> list[str]:
    known = {m.key for m in everything}
    empty = [e for e in reasons if not e.get("reason", "").strip()]
    gone = [e for e in reasons if _key(e) not in known]
    return [f"no reason given: {_key(e)}" for e in empty] + [
        f"no such mutant any more, delete the entry: {_key(e)}" for e in gone
    ]


def _tests(root: Path, file: str) -> list[str]:
    room, name = Path(file).parent.relative_to("src/sordino"), Path(file).stem
    folder = root / "tests" / room
    found = [*folder.glob(f"test_{name}.py"), *sorted(folder.glob(f"test_{name}_*.py"))]
    own = [path.relative_to(root).as_posix() for path in found]
    settings = _read(root / "tools/mutation_tests.toml")
    extra = list(settings.get("tests", {}).get(file, []))
    for pattern, tests in settings.get("also", {}).items():
        extra += tests if Path(file).match(pattern) else []
    return list(dict.fromkeys(test for test in (*own, *extra) if (root / test).exists()))


def _unmapped(root: Path, chosen: list[Mutant]) -> list[str]:
    files = dict.fromkeys(m.file for m in chosen)
    return [f"no tests mapped: {file}" for file in files if not _tests(root, file)]


def _survivors(root: Path, chosen: list[Mutant], reasons: list[dict], jobs: int) -> list[str]:
    """Judge the mutants in parallel and return a line for each unexplained survivor."""
    explained = {_key(e) for e in reasons}
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        context = multiprocessing.get_context("fork")
        counter = context.Value("i", 0)
        start = (root, Path(folder), counter, len(chosen), explained)
        with context.Pool(jobs, _start_worker, start) as pool:
            for batch in pool.imap_unordered(_judge, _batches(chosen, jobs)):
                verdicts += batch
    alive = [v.mutant for v in verdicts if v.survived]
    for verdict in verdicts:
        if not verdict.survived and verdict.mutant.key in explained:
            print(f"killed although it has a reason, consider deleting it: {verdict.mutant}")
    without = [m for m in alive if m.key not in explained]
    print(f"{len(verdicts)} mutants, {len(alive)} survived, {len(without)} of them without a reason")
    without.sort(key=lambda m: (m.file, m.start))
    return [_entry(m) for m in without] + [f"SURVIVED {m}" for m in without]


def _batches(chosen: list[Mutant], jobs: int) -> list[list[Mutant]]:
    """Return a share of each file's mutants for each worker, the large shares first."""
    files = dict.fromkeys(m.file for m in chosen)
    mine = [[m for m in chosen if m.file == file] for file in files]
    shares = [share[i::jobs] for share in mine for i in range(jobs) if share[i::jobs]]
    return sorted(shares, key=len, reverse=True)


# ------------------------------------------------------------------------------- in the workers

_here: Path  # this worker's copy of the tree
_counter: multiprocessing.sharedctypes.Synchronized  # mutants judged by all workers
_total: int
_explained: set[tuple[str, ...]]  # the keys of the written reasons
_screen = os.dup(1)  # where verdicts are shown, also by a process whose output pytest captures


def _start_worker(root: Path, folder: Path, counter, total: int, explained: set) -> None:
    global _here, _counter, _total, _explained
    _here, _counter, _total = Path(tempfile.mkdtemp(dir=folder)), counter, total
    _explained = explained
    for name in ("src", "tests", "tools"):
        if (root / name).exists():
            shutil.copytree(root / name, _here / name, ignore=IGNORED)
    for name in ("pyproject.toml", "README.md"):
        if (root / name).exists():
            shutil.copy(root / name, _here / name)
    # Bytecode is known by its second and size: two mutants of one second would be taken for one.
    os.environ.update(PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=str(_here / "src"))
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    os.environ.pop("HYPOTHESIS_PROFILE", None)
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(_here / "src"))
    os.chdir(_here)
    for name in (*HEAVY, "pytest"):
        importlib.import_module(name)


def _judge(batch: list[Mutant]) -> list[Verdict]:
    """Judge mutants of one file."""
    file = batch[0].file
    inside = changeable((_here / file).read_bytes(), batch)
    verdicts = _judge_in_a_nursery(file, inside) if inside else []
    verdicts = [v for v in verdicts if not v.survived or v.mutant.key in _explained]
    judged = {v.mutant for v in verdicts}
    outside = [m for m in batch if m not in judged]
    return verdicts + (_judge_afresh(file, outside) if outside else [])


def _judge_in_a_nursery(file: str, inside: dict[Mutant, str]) -> list[Verdict]:
    found = _here / "verdicts.jsonl"
    found.write_text("")
    order = list(inside)

    def report(mutant: Mutant, survived: bool, seconds: float) -> None:
        if not survived or mutant.key in _explained:
            _show(Verdict(mutant, survived, seconds))
        with found.open("a") as lines:
            lines.write(json.dumps([order.index(mutant), survived, seconds]) + "\n")

    plugin = Nursery(_here / file, inside, report)
    _check(file, _pytest(file, _cache(file), float("inf"), plugin))
    rows = [json.loads(line) for line in found.read_text().splitlines()]
    return [Verdict(order[i], survived, seconds) for i, survived, seconds in rows]


def _judge_afresh(file: str, outside: list[Mutant]) -> list[Verdict]:
    path = _here / file
    source, verdicts = path.read_bytes(), []
    started = time.monotonic()
    _check(file, _pytest(file, _cache(file), 900.0))
    limit = time_limit(time.monotonic() - started)
    for mutant in outside:
        started = time.monotonic()
        path.write_bytes(mutant.apply(source))
        try:
            status = _pytest(file, _cache(file), limit)
        finally:
            path.write_bytes(source)
        verdicts.append(Verdict(mutant, status in (0, NO_TESTS), time.monotonic() - started))
        _show(verdicts[-1])
    return verdicts


def _check(file: str, status: int) -> None:
    """Fail unless the tests pass without a change."""
    if status:
        output = (_here / "output.log").read_text(errors="replace")[-3000:]
        raise RuntimeError(f"The tests of {file} fail unmutated (status {status}):\n{output}")


def _show(verdict: Verdict) -> None:
    word = "survived" if verdict.survived else "killed"
    with _counter.get_lock():
        _counter.value += 1
        line = f"[{_counter.value}/{_total}] {word} in {verdict.seconds:.1f} s: {verdict.mutant}\n"
        os.write(_screen, line.encode())


def _pytest(file: str, cache: Path, limit: float, plugin: Nursery | None = None) -> int:
    """Run the tests of a file in a fork and return pytest's status, or TIMED_OUT."""
    child = os.fork()
    if child == 0:
        _run_and_exit(_tests(_here, file), cache, plugin)
    return wait_for(child, limit)


def _cache(file: str) -> Path:
    """Return where compiled code is kept: nowhere lasting for mutants of compiled code."""
    if b"numba" not in (_here / file).read_bytes():
        return _here / "numba-cache"
    cache = _here / "numba-cache-of-one"
    shutil.rmtree(cache, ignore_errors=True)
    return cache


def _run_and_exit(tests: list[str], cache: Path, plugin: Nursery | None) -> None:
    status = 70
    try:
        os.setsid()
        log = os.open(_here / "output.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.environ["NUMBA_CACHE_DIR"] = str(cache)
        importlib.import_module("numba").config.CACHE_DIR = str(cache)
        options = ["-x", "-q", "-m", "not long", "-p", "no:cacheprovider", "-p", "no:xdist"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # Hypothesis is loaded
        plugins = [plugin] if plugin else []
        status = int(importlib.import_module("pytest").main([*options, *tests], plugins))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
