"""Judge many mutants of one file in forks of one pytest session.

The tests are imported and collected once. A mutant of an ordinary function is put in place by giving
the function its changed code; module-level and compiled code can't be changed that way and is left
to a fresh import. The tests that call the changed function run first, the quick ones before the slow
ones, and the first failure ends the run.
"""

from __future__ import annotations

import ast
import gc
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType

import pytest
from mutations import Mutant

SURVIVED, KILLED, BROKEN = 0, 1, 3
TIMED_OUT = -1
COMPILED = ("njit", "vectorize")


def wait_for(child: int, limit: float) -> int:
    """Return the exit status of a child that leads its own process group, or kill it: TIMED_OUT."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return TIMED_OUT


def time_limit(seconds: float) -> float:
    """Return how long tests may take that pass in so many seconds without a change."""
    return 10.0 + 4.0 * seconds


def changeable(source: bytes, mutants: list[Mutant]) -> dict[Mutant, str]:
    """Return the mutants that lie inside the body of an ordinary function, with its dotted name."""
    starts = [0]
    for row in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(row))
    spans = []
    for name, node in _functions(ast.parse(source).body, ""):
        if not any(word in ast.unparse(d) for d in node.decorator_list for word in COMPILED):
            first, last = node.body[0], node.body[-1]
            begin = starts[first.lineno - 1] + first.col_offset
            spans.append((name, begin, starts[last.end_lineno - 1] + last.end_col_offset))
    often = Counter(name for name, _, _ in spans)
    return {
        mutant: name
        for mutant in mutants
        for name, begin, end in spans
        if begin <= mutant.start and mutant.stop <= end and often[name] == 1
    }


def _functions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the functions of a module and its classes; inner functions belong to their outer one."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield prefix + node.name, node


def _by_name(module: CodeType) -> dict[str, CodeType]:
    """Return the code of every function whose dotted name is its own."""
    codes = list(_codes(module))
    often = Counter(code.co_qualname for code in codes)
    return {code.co_qualname: code for code in codes if often[code.co_qualname] == 1}


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


@dataclass
class Nursery:
    """A pytest plugin that runs the collected tests once per mutant instead of once."""

    path: Path
    mutants: dict[Mutant, str]
    report: Callable[[Mutant, bool, float], None]
    called: dict[str, list[str]] = field(default_factory=dict)  # by test: the functions it calls
    seconds: dict[str, float] = field(default_factory=dict)  # by test

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Judge the mutants that can be put in place; the caller imports the others afresh.

        The session's own status says whether the unchanged tests pass.
        """
        if session.testsfailed or not session.items:
            return False
        source, functions = self.path.read_bytes(), self._loaded_functions()
        if not self._baseline(session, source, functions):
            session.testsfailed = 1
            return True
        limit = time_limit(sum(self.seconds.values()))
        for mutant, name in self.mutants.items():
            mine = [f for f in functions if _belongs(f, name)]
            if not mine:
                continue
            started = time.monotonic()
            changed = mutant.apply(source)
            self.path.write_bytes(changed)  # for what the tests start as processes of their own
            try:
                status = self._fork(session, changed, mine, name, limit)
            finally:
                self.path.write_bytes(source)
            if status != BROKEN:
                self.report(mutant, status == SURVIVED, time.monotonic() - started)
        return True

    def _baseline(self, session: pytest.Session, source: bytes, functions: list[FunctionType]) -> bool:
        """Run the tests in a fork, each function's own code put in its place like a mutant's.

        Learns which functions each test calls and how long it takes.
        """
        found = self.path.with_suffix(".calls.json")
        child = os.fork()
        if child == 0:
            _change(functions, source, str(self.path))
            _end_with(lambda: self._watch(session, found))
        status = wait_for(child, 900.0)
        if status == 0:
            self.called, self.seconds = json.loads(found.read_text())
            found.unlink()
        return status == 0

    def _watch(self, session: pytest.Session, found: Path) -> int:
        called, seconds = {}, {}
        names: set[str] = set()
        here = str(self.path)

        def note(frame, event, argument):
            if event == "call" and frame.f_code.co_filename == here:
                names.add(frame.f_code.co_qualname.split(".<locals>")[0])

        threading.setprofile(note)
        for item, following in _pairs(session.items):
            names.clear()
            started = time.monotonic()
            sys.setprofile(note)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            sys.setprofile(None)
            called[item.nodeid] = sorted(names)
            seconds[item.nodeid] = time.monotonic() - started
        found.write_text(json.dumps([called, seconds]))
        return session.testsfailed

    def _loaded_functions(self) -> list[FunctionType]:
        here = str(self.path)
        return [
            thing
            for thing in gc.get_objects()
            if type(thing) is FunctionType and thing.__code__.co_filename == here
        ]

    def _fork(
        self,
        session: pytest.Session,
        changed: bytes,
        functions: list[FunctionType],
        name: str,
        limit: float,
    ) -> int:
        child = os.fork()
        if child == 0:
            _change(functions, changed, str(self.path))
            _end_with(lambda: self._run(session, name))
        return wait_for(child, limit)

    def _run(self, session: pytest.Session, name: str) -> int:
        for item, following in _pairs(sorted(session.items, key=self._first_those_that_call(name))):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                return KILLED
        return SURVIVED

    def _first_those_that_call(self, name: str) -> Callable[[pytest.Item], tuple[bool, float]]:
        return lambda item: (name not in self.called[item.nodeid], self.seconds[item.nodeid])


def _belongs(function: FunctionType, name: str) -> bool:
    place = function.__code__.co_qualname
    return place == name or place.startswith(f"{name}.<locals>")


def _change(functions: list[FunctionType], source: bytes, path: str) -> None:
    """Give the functions the code they have in this source, or end the process.

    A mutant may change what an inner function sees of its outer one: then it has to be made anew.
    """
    try:
        codes = _by_name(compile(source, path, "exec", dont_inherit=True))
        for function in functions:
            code = codes.get(function.__code__.co_qualname)
            if code is not None:  # one of several of a name, or what the mutant took away
                function.__code__ = code
    except Exception:
        traceback.print_exc()
        os._exit(BROKEN)


def _pairs(items: list[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    return zip(items, [*items[1:], None], strict=True)


def _end_with(work: Callable[[], int]) -> None:
    """End this process with the status that the work returns; an error in it is a failed test."""
    status = KILLED
    try:
        os.setsid()
        status = work()
    finally:
        os._exit(status)
