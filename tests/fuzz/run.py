"""Run targets for a number of cases: findings are kept by kind, with the bytes that show them."""

import contextlib
import faulthandler
import gc
import hashlib
import importlib
import random
import resource
import signal
import time
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tests.fuzz.bytes import mutate
from tests.fuzz.targets import SECRETS, Target

SECONDS, MEMORY = 20, 3 * 2**30
"""What one case may take: seconds of processor time, ten times as many by the clock on a busy machine, and
bytes of memory beyond what the process has at the start."""


class HangError(Exception):
    """A case took too long."""


@dataclass
class Findings:
    """How many cases were run, and what was found: a line of words and the bytes, by kind."""

    cases: int = 0
    refused: int = 0
    seconds: float = 0.0
    kinds: dict[str, tuple[str, bytes]] = field(default_factory=dict)


def place_of(error: BaseException) -> str:
    """Return where an error was raised: the last frames in src."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/src/sordino/" in f.filename]
    return " < ".join(f"{f.filename.rpartition('/')[2]}:{f.name}" for f in reversed(frames[-2:])) or "outside"


def judge(target: Target, data: bytes) -> tuple[str, str] | None:
    """Run one case; return the kind of a finding and its words, or None."""
    try:
        with warnings.catch_warnings(record=True) as said, np.errstate(all="ignore"):
            warnings.simplefilter("always")
            target.feed(data)
        words = " ".join(str(one.message) for one in said)
    except target.allowed as error:
        words = f"{error}{error.__cause__ or ''}"
        if not words:
            return f"{type(error).__name__} without words at {place_of(error)}", ""
        if any(secret in words for secret in SECRETS):
            return f"a planted value in a message at {place_of(error)}", words
        return "", words
    except (MemoryError, HangError) as error:
        return f"{type(error).__name__} at {place_of(error)}", ""
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        return f"{type(error).__name__} at {place_of(error)}", str(error)[:300]
    if any(secret in words for secret in SECRETS):
        return "a planted value in a warning", words
    return None


def run(target: Target, cases: int, seed: int, seconds: float = float("inf")) -> Findings:
    """Feed mutations of the seeds, and of mutations that were read without refusal."""
    digest = hashlib.sha256(f"{target.name}{seed}".encode()).digest()
    rng, found, pool = random.Random(digest), Findings(), list(target.seeds())
    first = len(pool)
    for name in ("skops.io", "torch"):  # loaded under the limit below, their libraries end the process
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # memory that only a document claims: an allocation beyond the limit is a MemoryError, and a finding
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    former = [(one, signal.signal(one, _hang)) for one in (signal.SIGALRM, signal.SIGPROF)]
    faulthandler.enable()
    started = time.monotonic()
    try:
        while found.cases < cases and time.monotonic() - started < seconds:
            data = pool[found.cases] if found.cases < first else mutate(rng.choice(pool), rng)
            _wait(SECONDS)
            kind = judge(target, data)
            _wait(0)
            found.cases += 1
            found.refused += kind is not None and not kind[0]
            if kind is not None and kind[0]:
                found.kinds.setdefault(kind[0], (kind[1], data))
            elif kind is None and len(pool) < 256:
                pool.append(data)
            if found.cases % 1000 == 0:
                gc.collect()
    finally:
        _wait(0)
        for one, handler in former:
            signal.signal(one, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)
    found.seconds = time.monotonic() - started
    return found


def _wait(seconds: int) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(10 * seconds)


def _hang(*_):
    raise HangError
