"""Mutation tests: break the privacy-critical rooms line by line and see that a test fails.

Each worker owns a copy of the tree without history, writes one mutant at a time into it and runs
the tests mapped to the changed module. The heavy imports are done once per worker; every mutant is
judged in a fork of it. A mutant that survives needs a written reason in mutation_survivors.toml.

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
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from mutations import Mutant, mutants

ROOMS = ("src/sordino/kernel", "src/sordino/accounting")
HEAVY = ("numpy", "scipy.stats", "scipy.sparse", "numba", "dp_accounting", "sklearn", "hypothesis")
ENTRY = ("file", "where", "code", "change")
IGNORED = shutil.ignore_patterns("__pycache__", ".git", ".venv")
TIMED_OUT = -1
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
    files = [path for room in ROOMS for path in sorted((root / room).rglob("*.py"))]
    return [path.relative_to(root).as_posix() for path in files]


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
    extra = _read(root / "tools/mutation_tests.toml").get("tests", {}).get(file, [])
    return [*(path.relative_to(root).as_posix() for path in found), *extra]


def _unmapped(root: Path, chosen: list[Mutant]) -> list[str]:
    files = dict.fromkeys(m.file for m in chosen)
    return [f"no tests mapped: {file}" for file in files if not _tests(root, file)]


def _survivors(root: Path, chosen: list[Mutant], reasons: list[dict], jobs: int) -> list[str]:
    """Judge the mutants in parallel and return a line for each unexplained survivor."""
    explained = {_key(e) for e in reasons}
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        context = multiprocessing.get_context("fork")
        with context.Pool(jobs, _start_worker, (root, Path(folder))) as pool:
            for verdict in pool.imap_unordered(_judge, chosen):
                verdicts.append(verdict)
                _show(verdict, len(verdicts), len(chosen))
    alive = [v.mutant for v in verdicts if v.survived]
    for verdict in verdicts:
        if not verdict.survived and verdict.mutant.key in explained:
            print(f"killed although it has a reason, consider deleting it: {verdict.mutant}")
    without = [m for m in alive if m.key not in explained]
    print(f"{len(verdicts)} mutants, {len(alive)} survived, {len(without)} of them without a reason")
    without.sort(key=lambda m: (m.file, m.start))
    return [_entry(m) for m in without] + [f"SURVIVED {m}" for m in without]


def _show(verdict: Verdict, done: int, total: int) -> None:
    word = "survived" if verdict.survived else "killed"
    print(f"[{done}/{total}] {word} in {verdict.seconds:.1f} s: {verdict.mutant}", flush=True)


# ------------------------------------------------------------------------------- in the workers

_here: Path  # this worker's copy of the tree
_limits: dict[str, float] = {}  # seconds the tests of a file may take


def _start_worker(root: Path, folder: Path) -> None:
    global _here
    _here = Path(tempfile.mkdtemp(dir=folder))
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


def _judge(mutant: Mutant) -> Verdict:
    path = _here / mutant.file
    source = path.read_bytes()
    if mutant.file not in _limits:
        _limits[mutant.file] = _baseline(mutant.file)
    started = time.monotonic()
    path.write_bytes(mutant.apply(source))
    try:
        status = _pytest(mutant.file, _limits[mutant.file])
    finally:
        path.write_bytes(source)
    return Verdict(mutant, status in (0, NO_TESTS), time.monotonic() - started)


def _baseline(file: str) -> float:
    """Return the time limit for the mutants of a file; its tests have to pass without a change."""
    started = time.monotonic()
    status = _pytest(file, 900.0)
    if status:
        output = (_here / "output.log").read_text(errors="replace")[-3000:]
        raise RuntimeError(f"The tests of {file} fail unmutated (status {status}):\n{output}")
    return 20.0 + 4.0 * (time.monotonic() - started)


def _pytest(file: str, limit: float) -> int:
    """Run the tests of a file in a fork and return pytest's status, or TIMED_OUT."""
    tests, cache = _tests(_here, file), _numba_cache(file)
    child = os.fork()
    if child == 0:
        _run_and_exit(tests, cache)
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return TIMED_OUT


def _numba_cache(file: str) -> Path:
    """Return where compiled code is kept: nowhere lasting for the mutants of compiled code.

    Numba's cache does not notice that a function called from another file has changed.
    """
    if b"numba" not in (_here / file).read_bytes():
        return _here / "numba-cache"
    cache = _here / "numba-cache-of-one"
    shutil.rmtree(cache, ignore_errors=True)
    return cache


def _run_and_exit(tests: list[str], cache: Path) -> None:
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
        status = int(importlib.import_module("pytest").main([*options, *tests]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
